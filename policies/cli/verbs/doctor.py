"""``temporeal doctor``: check this machine, and advise on every finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from temporeal.policies.cli.console import Parser, add_json, add_overrides, print_json, say
from temporeal.policies.cli.preflight.findings import Check, guarded, lines
from temporeal.policies.cli.preflight.machine import clock, disk, processor
from temporeal.policies.cli.preflight.middleware import dds, rclpy, ros_domain
from temporeal.policies.cli.preflight.packages import (
    falsification,
    installed_version,
    numba_threads,
    packages,
    pictures,
    python,
    torch_gpu,
)
from temporeal.policies.runs.errors import FAILED, OK, BadInput, bad_input

SUMMARY = "is this machine ready, and the robot before a flight, and what to do where not"
HELP = """\
Without --artifact: checks Python, packages, processor, numba threads and cache, GPU, DDS (two processes really
exchange a message over loopback), rclpy, ROS_DOMAIN_ID, disk and clock. Each line says what was found and, where
something is amiss, what to do. Exit status 1 where something that the quadrotor chain needs does not work; warnings
do not count.

With --artifact: joins the robot's bus, sends nothing, listens for some seconds and checks before anything moves:
topics, types and QoS, rates and gaps, clocks against stamps, joint names, limits and units, dead sensors, geofence,
whether anybody else commands the robot and whether the robot listens, node names, the artifact's own trace and its
first command for the robot's state, real-time priority. Settings are those of `temporeal deploy`:
deploy.namespace=/cf1, ...

Exit status: 0 nothing failed, 1 a check failed, 2 the bus or the artifact cannot be used.

Example:
  temporeal doctor
  temporeal doctor --artifact outputs/artifact deploy.namespace=/cf1 --seconds 5
"""

MIN_SECONDS, MAX_SECONDS = 0.5, 600.0  # of listening


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("doctor", HELP)
    add_overrides(p)
    p.add_argument("--artifact", type=Path, metavar="ARTIFACT", help="check the robot that this is for, on its bus")
    p.add_argument("--trust", type=Path, metavar="PUB.pem",
                   help="with --artifact: public key; one that its owner did not sign is refused")
    p.add_argument("--robot", metavar="NAME", help="with --artifact: the robot that is there, to be compared")
    p.add_argument("--seconds", type=float, metavar="S", help="with --artifact: how long to listen (3)")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Make every check; status 1 if one failed."""
    options = parser().parse_intermixed_args(argv)
    for name in ("trust", "robot", "seconds", "overrides"):
        if getattr(options, name) not in (None, []) and options.artifact is None:
            raise BadInput(f"{name if name == 'overrides' else '--' + name} needs --artifact ARTIFACT: "
                           "without it only this machine is checked")
    of_machine = (check for examine in MACHINE_CHECKS for check in guarded(examine))
    checks = on_robot(options) if options.artifact else of_machine
    found = []
    for check in checks:
        found.append(check)
        if not options.json:
            say(lines(check))
    failed = [check.name for check in found if check.status == "fail"]
    good = "nothing was found in the way" if options.artifact else what_next()
    if options.json:
        print_json({"ok": not failed, "failed": failed, "checks": [asdict(check) for check in found]})
    else:
        say(f"\n{'not ready: ' + ', '.join(failed) if failed else f'ready: {good}'}")
    return FAILED if failed else OK


def what_next() -> str:
    """The next steps that this machine's packages allow."""
    from temporeal.policies.cli.deployment.requirements import TRAINING

    if all(installed_version(name) for name in TRAINING):
        return "try `temporeal demo`"
    return "`temporeal deploy ARTIFACT` flies what was trained elsewhere (extra train is what training needs)"


def on_robot(options: Any) -> Iterator[Check]:
    """The checks of ``--artifact``: on the robot's bus, before anything moves."""
    from temporeal.policies.cli.deployment.bus_settings import check_bus, deploy_settings
    from temporeal.policies.cli.deployment.requirements import needs_bridge
    from temporeal.policies.cli.preflight import realtime, robot
    from temporeal.robots.artifact.loading import load_manifest
    from temporeal.robots.handed_over.robots import named_robot
    from temporeal.robots.spec import load_robot

    seconds = 3.0 if options.seconds is None else options.seconds
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise BadInput(f"--seconds is from {MIN_SECONDS:g} to {MAX_SECONDS:g}, got {seconds:g}")
    needs_bridge()
    deploy = deploy_settings(options.overrides)
    with bad_input():
        manifest = load_manifest(options.artifact, options.trust)
        standing = load_robot(options.robot).name if options.robot else None
    with bad_input():
        named = named_robot(manifest.robot).name
    check_bus(deploy, named)
    yield from guarded(realtime.machine)
    yield from guarded(clock)
    yield from robot.live(options.artifact, manifest, deploy, seconds, standing)


MACHINE_CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    python, packages, processor, numba_threads, torch_gpu, pictures, falsification, dds, rclpy, ros_domain, disk, clock)
