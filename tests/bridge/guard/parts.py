"""Parts of a guard without a node: a configuration, a monitor that has seen a robot at rest, an output that records."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from temporeal.robots.spec import load_robot
from temporeal_bridge.guard.checks.competing_publishers import PublisherChecks
from temporeal_bridge.guard.checks.controller_session import ControllerSession
from temporeal_bridge.guard.checks.safety_checks import SafetyChecks
from temporeal_bridge.guard.checks.state_monitor import StateMonitor
from temporeal_bridge.guard.checks.stop_button import StopButton
from temporeal_bridge.guard.command_stream import CommandStream
from temporeal_bridge.guard.config import GuardConfig
from temporeal_bridge.guard.flight import Flight
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.guard.stop_actions.airborne import Airborne
from temporeal_bridge.interface.loading import load_interface

PERIOD = 0.02
COMMANDS = {"franka": "joint_pos_cmd", "crazyflie": "ctbr_cmd"}


def config(robot: str = "franka", interface: str = "forward_position", command: str = "", **safety: Any) -> GuardConfig:
    """What a guard of this robot protects."""
    spec, found = load_robot(robot), load_interface(load_robot(robot), interface)
    found = replace(found, safety={**found.safety, **safety})
    wanted = spec.command(command or COMMANDS[robot])
    return GuardConfig(spec, found, wanted, profile_on(spec, found, wanted, PERIOD))


def monitor(of: GuardConfig) -> StateMonitor:
    """One that has seen the robot at its home, at rest, for 0.1 s before time 0."""
    made = StateMonitor(of.profile, [row.rate_hz for row in of.interface.states])
    for k in range(11):
        see(made, of, 0.01 * k - 0.1, 1e-6 * k)
    return made


def see(to: StateMonitor, of: GuardConfig, now: float, noise: float = 0.0) -> None:
    """A state of the robot at its home."""
    signals = {}
    for name in of.interface.carried:
        spec = of.robot.signals[name]
        home = np.asarray(of.robot.home.get(name, np.zeros(spec.shape)), dtype=float).reshape(spec.shape)
        signals[name] = home + (0.0 if spec.unit == "wxyz" else noise)
        if spec.unit == "wxyz":
            turned = np.array([1.0, noise, 0.0, 0.0])
            signals[name] = turned / np.linalg.norm(turned)
    for topic in range(len(of.interface.states)):
        to.take(topic, 0, signals, now, 0)


def stream(of: GuardConfig, seen: StateMonitor | None = None) -> CommandStream:
    """Commands of a robot at rest."""
    seen = seen or monitor(of)
    return CommandStream(of, seen, Airborne(of, seen))


def checks(seen: StateMonitor, active: Any = lambda: True, offboard: Any = None) -> SafetyChecks:
    """Nobody else commands, and the controller is ours."""
    publishers = PublisherChecks((), lambda topic: [], lambda topic: topic, StopButton(seen.profile.estop))
    made = SafetyChecks(seen, publishers, ControllerSession(), active, offboard)
    made.controller.accept(0.0)
    made.controller.heard = 0.0
    return made


class Output:
    """Stands for :class:`temporeal_bridge.guard.command_output.CommandOutput`: records instead of publishing."""

    def __init__(self, of: CommandStream) -> None:
        self.stream, self.config, self.offboard = of, of.config, None
        self.nothing = np.full(of.config.spec.size, np.nan)
        self.sent: list[np.ndarray] = []
        self.modes: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.announcements = SimpleNamespace(
            mode=lambda mode, flight, start: self.modes.append(mode), mix=lambda *_: None, artifact=lambda *_: None,
            event=lambda mode, flight, since, code, reason: self.events.append((code, reason)))

    def send(self, command: np.ndarray, made_at: float, flight: Flight, active: bool, p: Any = None) -> None:
        self.sent.append(np.reshape(command, -1))
        self.stream.departed(self.sent[-1], made_at, made_at)

    def encoded(self, command: np.ndarray, stamp: int, motion: Any) -> list[Any]:
        return []

    def heard(self) -> bool:
        return True
