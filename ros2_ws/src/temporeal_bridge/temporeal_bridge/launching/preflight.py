"""What every node would refuse, refused once, before any is started: for ``temporeal deploy`` and the launch files."""

from __future__ import annotations

from typing import Any

from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.mission import check_fits
from temporeal_bridge.monitor.formula import formula_of
from temporeal_bridge.process.scheduling import check_awake, check_core, check_priority
from temporeal_bridge.transports.selection import choose
from temporeal_bridge.transports.transport import resolve_name


def check_mission(manifest: Manifest, robot: RobotSpec, interface: Interface) -> None:
    """The artifact is for this robot, its signals, command and formula are on the interface's topics, and so is what
    the guard demands of that command."""
    check_fits(manifest, robot, interface)
    profile_on(robot, interface, robot.command(manifest.commands[0].name), 1.0 / manifest.rate_hz)
    formula_of(manifest, robot, interface)


def check_processes(transport: str, namespace: str, priority: Any, core: Any, awake: bool) -> None:
    """Nodes can be run like this: on such a bus, under such a name, ahead of others so far, on that core."""
    choose(transport)
    resolve_name("mission", namespace)
    check_priority(priority)
    check_core(core)
    check_awake(awake, core, priority)


def check_worker(given: Any, manifest: Manifest) -> None:
    """Only a policy that gives chunks has a use for the worker that is ``given``; None: none is."""
    if given is not None and manifest.chunk is None:
        raise ValueError(f"worker {given}: the policy {manifest.name!r} gives one command at a time, which the "
                         "controller runs by itself; leave it out")
