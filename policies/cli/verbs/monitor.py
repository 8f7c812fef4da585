"""``temporeal monitor``: monitor a formula on live topics."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_trust, print_json, say
from temporeal.policies.runs.errors import FAILED, OK, BadInput
from temporeal.policies.runs.interrupts import on_signals

if TYPE_CHECKING:
    from temporeal.robots.artifact.manifest import Manifest

SUMMARY = "monitor a formula on live topics: bounds, verdict, clause by clause"
HELP = """\
Reads the robot's state from its topics and evaluates the formula online: the robustness that the mission can still end
with, and the verdict as soon as it is known. With an artifact, its formula, from each mission's start; with --formula,
your own, from now. The monitor only listens to the robot. An artifact's verdict goes out on monitor/verdict, which the
guard reads if it flies that formula (as it does with the monitor of `temporeal deploy`); your own formula's on
monitor/own/verdict and monitor/own/robustness, which no node reads.
Ends after --flights verdicts (undecided: another mission began before), with Ctrl-C, or if the robot's state has not
come within --wait seconds (a mission may begin at any later time). To start it before the robot, as on board at
power-up: --wait 0.

Exit status: 0 every verdict was satisfied, 1 one was not or none came, 2 bad input or no robot.

Example:
  temporeal monitor outputs/artifact deploy.namespace=/cf1
  temporeal monitor --formula "G[0,10] (height > 0.3)" --robot crazyflie
"""
WAIT_S = 30.0  # for the robot's state: a wrong domain or namespace looks like a robot that is not there yet


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("monitor", HELP)
    p.add_argument("words", nargs="*", metavar="[ARTIFACT] [key=value ...]", help="folder of an artifact; settings")
    p.add_argument("--formula", help="a formula over the robot's signals and mission_time, instead of an artifact's")
    p.add_argument("--constants", metavar="JSON", default="{}", help="""of --formula, such as '{"a": [1, 0, 1]}'""")
    p.add_argument("--robot", default="crazyflie", help="with --formula: the robot (%(default)s)")
    p.add_argument("--rate", type=float, default=50.0, help="with --formula: samples per second (%(default)s)")
    p.add_argument("--flights", type=int, help="end after this many verdicts (with --formula: 1)")
    p.add_argument("--wait", type=float, default=WAIT_S, metavar="S",
                   help="give up if the robot's state has not come after S seconds; 0: never (%(default)g)")
    add_trust(p)
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Monitor until the verdicts are in."""
    options = parser().parse_intermixed_args(argv)
    overrides = [word for word in options.words if "=" in word]
    folders = [word for word in options.words if "=" not in word]
    if len(folders) + (options.formula is not None) != 1:
        raise BadInput(f"give one artifact or --formula; got {', '.join(folders) or 'neither'}"
                       f"{' and --formula' if options.formula and folders else ''}")
    if options.flights is not None and options.flights < 1:
        raise BadInput(f"--flights is at least 1, got {options.flights}")
    if not options.wait >= 0:
        raise BadInput(f"--wait is a number of seconds from 0, got {options.wait}")
    from temporeal.policies.cli.deployment.bus_settings import deploy_settings
    from temporeal.policies.cli.deployment.requirements import needs_bridge

    needs_bridge()
    deploy = deploy_settings(overrides)
    manifest = of_formula(options) if options.formula else of_artifact(Path(folders[0]), options.trust)
    results = observe(manifest, deploy, options.flights or (1 if options.formula else None),
                    now=options.formula is not None, quiet=options.json, wait_s=options.wait)
    if options.json:
        print_json({"formula": manifest.formula, "verdicts": results})
    return OK if results and all(row["verdict"] == "satisfied" for row in results) else FAILED


def of_artifact(folder: Path, trust: Path | None = None) -> Manifest:
    """The manifest of a self-tested artifact, which the key in ``trust`` signed."""
    from temporeal.policies.runs import artifacts

    return artifacts.load_artifact(folder, trust).manifest


def of_formula(options: Any) -> Manifest:
    """The user's formula as the manifest of no policy, which the monitor takes."""
    from temporeal.policies.runs import errors
    from temporeal.robots.artifact.manifest import Manifest
    from temporeal.robots.spec import load_robot
    from temporeal.sim.stl.language.parse import parse
    from temporeal.sim.stl.language.queries import horizon
    from temporeal_bridge.mission import MISSION_TIME

    if not options.rate > 0:
        raise BadInput(f"--rate is above 0 samples per second, got {options.rate}")
    with errors.bad_input():
        try:
            constants = json.loads(options.constants)
        except ValueError as error:
            raise BadInput(f"--constants is no JSON: {error}") from error
        if not isinstance(constants, dict):
            raise BadInput("""--constants is one JSON object, such as '{"a": [1, 0, 1]}'; got """ + options.constants)
        robot = load_robot(options.robot)
        formula = parse(options.formula, {**robot.signals, MISSION_TIME.name: MISSION_TIME}, constants)
    return Manifest(
        name="formula", robot=robot.name, signals=(), commands=(), rate_hz=options.rate, memory=(),
        formula=options.formula, constants=constants, horizon_s=horizon(formula), stop="", training={}, versions={},
        seed=0, git_revision="", created="", files={})


def observe(
    manifest: Manifest, deploy: dict[str, Any], flights: int | None, *, now: bool, quiet: bool, wait_s: float = 0.0
) -> list[dict[str, Any]]:
    """Run the monitor node in this process until ``flights`` missions have a verdict (undecided if another one
    followed), or a signal comes; the verdicts.

    :class:`BadInput` if the robot's state has not come within ``wait_s`` (0: it may come at any time).
    """
    from temporeal.policies.runs import errors
    from temporeal.robots.handed_over.robots import named_robot
    from temporeal_bridge.interface.loading import load_interface
    from temporeal_bridge.monitor_node import OWN, TOPICS, MonitorNode
    from temporeal_bridge.process.node import spin
    from temporeal_bridge.transports.selection import open_transport
    from temporeal_bridge.transports.transport import TransportError

    stopped: list[int] = []
    robot = named_robot(manifest.robot)
    try:
        with errors.bad_input():
            transport = open_transport(deploy["transport"], "monitor", deploy["namespace"], domain=deploy["domain"],
                                       loopback=deploy["loopback"])
            interface = load_interface(robot, deploy["interface"], deploy["signals"])
            node = MonitorNode(transport, manifest, robot, interface, topics=OWN if now else TOPICS)
    except TransportError as error:
        raise BadInput(str(error)) from error
    if not quiet:
        topics = ", ".join(state.topic for state in interface.states)
        domain = "of ROS_DOMAIN_ID" if deploy["domain"] is None else deploy["domain"]
        say(f"listening for {topics} in namespace {deploy['namespace']}, domain {domain}, over {deploy['transport']}")
    shown: list[str] = []
    until = transport.monotonic() + (wait_s or inf)

    def done() -> bool:
        nonlocal shown
        mission = node.mission
        if now and mission.flight < 0 and mission.complete:
            mission.begin(0, transport.now())
        lines = describe(mission)
        for line in () if quiet else lines:
            if line not in shown:
                say(line)
        shown = lines
        if not mission.complete and transport.monotonic() > until:
            raise BadInput(silence(node, transport, wait_s))
        return bool(stopped) or (flights is not None and len(mission.results) >= flights)

    try:
        with on_signals([signal.SIGINT, signal.SIGTERM], lambda got, _: stopped.append(got)):
            spin(node, transport, done)
    finally:
        transport.close()
    results: list[dict[str, Any]] = node.summary()["flights"]
    return results


def silence(node: Any, transport: Any, wait_s: float) -> str:
    """Which topics of the robot's state are silent, and possible causes."""
    silent = [endpoint for held, endpoint in zip(node.mission.held, node.endpoints) if held.last == -inf]
    topics = ", ".join(f"{endpoint.topic} ({endpoint.type})" for endpoint in silent)
    hint = getattr(transport, "no_peer_hint", lambda _: "")(silent[0])
    return (f"no message on {topics} within {wait_s:g} s{hint}. Is the robot's node running, on the same domain, in "
            "the same namespace? --wait 0 waits indefinitely")


def describe(mission: Any) -> list[str]:
    """The state of the mission: a line per second of mission time and for the verdict, and one per violated clause."""
    if mission.flight < 0:
        return ["waiting for a mission" if mission.complete else "waiting for the robot's state"]
    reading = mission.formula.reading
    bounds = f", robustness {reading.lower:.3f}..{reading.upper:.3f}" if reading.final else ""
    head = f"flight {mission.flight}, {int(reading.time_s):3} s: {reading.verdict}{bounds}"
    return [head, *(f"  violated: {clause.text}" for clause in reading.clauses if clause.verdict == "violated")]
