"""``temporeal doctor --artifact``: check this robot on its bus before anything moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.cli.preflight.findings import Check, guarded
from temporeal.policies.cli.preflight.graph import alone, button, names, present
from temporeal.policies.cli.preflight.listening import Heard, listen
from temporeal.policies.cli.preflight.plan import Plan, Propose
from temporeal.policies.cli.preflight.start import familiar, start
from temporeal.policies.cli.preflight.timing import clocks, rates
from temporeal.policies.cli.preflight.values import fence, frozen, joints, usable, within
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import ArtifactError, Manifest, added_signals
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.artifact.trial import tried
from temporeal.robots.handed_over.robots import named_robot
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.guard.safety.checked_values import SafetyError
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.interface.checks import check_reads
from temporeal_bridge.interface.interface import Interface, InterfaceError
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.mission import MISSION_TIME, own_signals
from temporeal_bridge.transports.selection import open_transport
from temporeal_bridge.transports.transport import TransportError

NODE = "temporeal_doctor"
STANDING_CHECKS: tuple[Callable[[Heard, Plan], Iterator[Check]], ...] = (
    present, usable, rates, clocks, joints, within, frozen, fence, alone, button, names)
ROBOT_CHECKS = (*STANDING_CHECKS, start, familiar)


def standing(robot: RobotSpec, deploy: Mapping[str, Any], seconds: float) -> Iterator[Check]:
    """The checks that need no artifact, of what is received on the bus of the settings ``deploy``."""
    interface = load_interface(robot, deploy["interface"], deploy["signals"])
    command = robot.command(next(iter(interface.commands)))
    plan, heard = received(robot, interface, command, robot.control_hz or 50.0, deploy, seconds)
    for examine in STANDING_CHECKS:
        yield from guarded(examine, heard, plan)


def received(
    robot: RobotSpec, interface: Interface, command: CommandSpec, rate_hz: float, deploy: Mapping[str, Any],
    seconds: float,
) -> tuple[Plan, Heard]:
    """What the guard demands of ``command``, and what is received within ``seconds``."""
    try:
        demanded = profile_on(robot, interface, command, 1.0 / rate_hz)
        transport = open_transport(deploy["transport"], NODE, deploy["namespace"], domain=deploy["domain"],
                                   loopback=deploy["loopback"])
    except (InterfaceError, SafetyError, TransportError) as error:
        raise BadInput(str(error)) from error
    try:
        return Plan(robot, interface, demanded, command), listen(transport, interface, command.name, seconds)
    finally:
        transport.close()


def live(
    folder: Path, manifest: Manifest, deploy: Mapping[str, Any], seconds: float, standing: str | None
) -> Iterator[Check]:
    """All checks: the artifact, then what is received on the bus of the settings ``deploy``.

    ``standing``: name of the robot that is there, as a person says; None: not said.
    """
    robot = named_robot(manifest.robot)
    interface = load_interface(robot, deploy["interface"], deploy["signals"])
    loaded, check = examined(folder, robot)
    yield check
    yield same_robot(manifest, standing)
    yield carried(manifest, interface)
    command = manifest.commands[0]
    plan, heard = received(robot, interface, command, manifest.rate_hz, deploy, seconds)
    if loaded:
        plan = replace(plan, golden=recorded(loaded), propose=first(loaded))
    for examine in ROBOT_CHECKS:
        yield from guarded(examine, heard, plan)


def examined(folder: Path, robot: RobotSpec) -> tuple[Artifact | None, Check]:
    """The artifact as the nodes load it: complete, unchanged, this robot's, and self-tested.

    Signals that its task adds are checked against the interface by :func:`carried`.
    """
    try:
        manifest = load_manifest(folder)
        tried(folder, manifest)
        artifact = Artifact.load(folder, robot, task_signals=added_signals(manifest, robot))
        test = artifact.self_test()
    except ArtifactError as error:
        return None, Check("artifact", "fail", str(error), "export it again; its files must stay as they were written")
    return artifact, Check("artifact", "ok", f"{artifact.manifest.name}: its {test.steps} recorded commands within "
                                             f"{test.max_error:.1g} of their range")


def same_robot(manifest: Manifest, standing: str | None) -> Check:
    """Whether the artifact is for the robot that is there."""
    if standing in (None, manifest.robot):
        return Check("robot", "ok", f"the artifact is for {manifest.robot}{'' if standing else ' (--robot compares)'}")
    return Check("robot", "fail", f"the artifact is for {manifest.robot}, the robot is {standing}",
                 "take the artifact of this robot")


def carried(manifest: Manifest, interface: Interface) -> Check:
    """Whether topics carry all that the policy reads."""
    try:
        check_reads(interface, manifest.signals, own=tuple(own_signals(manifest)))
    except InterfaceError as error:
        return Check("signals", "fail", str(error), "another interface (deploy.interface=), or one that reads less")
    return Check("signals", "ok", f"interface {interface.name} carries all that the policy reads")


def first(artifact: Artifact) -> Propose:
    """The artifact's first command of a mission, for signals by name; the first row of a chunk."""
    def propose(signals: Mapping[str, np.ndarray]) -> np.ndarray:
        words = {name: artifact.golden[f"signals.{name}"][0] for name in own_signals(artifact.manifest)
                 if name in artifact.schema and name != MISSION_TIME.name}  # any sentence
        given = {**signals, **words, MISSION_TIME.name: np.zeros((), dtype=np.float32)}
        batch = {name: np.asarray(given[name])[None] for name in artifact.schema}
        commands, _ = artifact.act_batch(batch, artifact.initial_memory(1))
        command = np.asarray(commands[artifact.manifest.commands[0].name][0])
        return command if artifact.manifest.chunk is None else np.asarray(command[0])

    return propose


def recorded(artifact: Artifact) -> dict[str, np.ndarray]:
    """The golden trace's signals [T, *shape] by name."""
    return {name: artifact.golden[f"signals.{name}"] for name in artifact.schema}
