"""Checks before any node is started, for ``temporeal deploy`` and the launch files: what every node would refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.instruction.sentences import missions_of
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.mission import check_fits
from temporeal_bridge.monitor.formula import formula_of
from temporeal_bridge.process.scheduling import check_awake, check_core, check_priority
from temporeal_bridge.transports.selection import choose
from temporeal_bridge.transports.transport import resolve_name


def check_mission(
    manifest: Manifest, robot: RobotSpec, interface: Interface, instructions: Sequence[str] = ()
) -> None:
    """The artifact is for this robot, and the interface carries its signals, command and formula, and the signals that
    the guard requires for that command. It can be told each of ``instructions``."""
    check_fits(manifest, robot, interface)
    profile_on(robot, interface, robot.command(manifest.commands[0].name), 1.0 / manifest.rate_hz)
    for mission in missions_of(manifest, robot, interface, instructions):
        formula_of(mission, robot, interface)


def check_processes(transport: str, namespace: str, priority: Any, core: Any, awake: bool) -> None:
    """The transport, the namespace, the priority and the core are possible here."""
    choose(transport)
    resolve_name("mission", namespace)
    check_priority(priority)
    check_core(core)
    check_awake(awake, core, priority)


def check_worker(given: Any, manifest: Manifest) -> None:
    """A worker's folder is ``given`` (None: none is) for a policy that gives chunks only."""
    if given is not None and manifest.chunk is None:
        raise ValueError(f"worker {given}: the policy {manifest.name!r} gives one command at a time, which the "
                         "controller runs by itself; leave it out")
