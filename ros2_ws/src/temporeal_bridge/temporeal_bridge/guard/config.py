"""What one guard protects: a robot, the command that it is sent, and the requirements for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.motion.rate_limiter import Bounds
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.guard.safety.checked_values import is_rate
from temporeal_bridge.guard.safety.config_checks import profile_on
from temporeal_bridge.guard.safety.fallback_actions import KEEPS
from temporeal_bridge.guard.safety.profile import Profile
from temporeal_bridge.interface.interface import CommandTopic, Interface


@dataclass(frozen=True)
class GuardConfig:
    """The same for the guard's whole life, whichever artifact is in charge."""

    robot: RobotSpec
    interface: Interface
    spec: CommandSpec
    profile: Profile

    @cached_property
    def period(self) -> float:
        """Control period [s]."""
        return self.limits.dt

    @cached_property
    def limits(self) -> Bounds:
        """Of the command's motion."""
        return self.profile.limits

    @cached_property
    def topic(self) -> CommandTopic:
        """Of the command."""
        return self.interface.command(self.spec.name)

    @property
    def autopilot(self) -> bool:
        """Whether an autopilot stands between the commands and the motors."""
        return self.interface.autopilot is not None

    @cached_property
    def needs_state(self) -> bool:
        """Whether the state limits what may be sent."""
        return self.profile.effort is not None or bool(self.profile.joints)

    @cached_property
    def keeps(self) -> bool:
        """Whether the default stop action keeps the robot where it brought it."""
        return self.profile.action("default") in KEEPS

    @cached_property
    def rates(self) -> bool:
        """Whether the robot is kept by speeds or efforts: the last one must be 0, for a driver may hold it for ever."""
        return self.keeps and is_rate(self.spec)

    @cached_property
    def levels(self) -> bool:
        """Whether a stop action levels out and sinks."""
        return "level" in self.profile.stop.values()

    @cached_property
    def led(self) -> bool:
        """Whether each message says the way to rest after it, so that the robot comes to rest by itself."""
        return COMMAND_CODECS[self.topic.codec].encode_smooth_trajectory is not None


def guard_config(manifest: Manifest, robot: RobotSpec, interface: Interface) -> GuardConfig:
    """The configuration for the artifact's command, or an error that names what is wrong."""
    if len(manifest.commands) != 1:
        raise ValueError(f"one command is expected, the artifact gives {[c.name for c in manifest.commands]}")
    spec = robot.command(manifest.commands[0].name)
    return GuardConfig(robot, interface, spec, profile_on(robot, interface, spec, 1.0 / manifest.rate_hz))
