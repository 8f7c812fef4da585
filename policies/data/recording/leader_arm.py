"""A leader arm: a second robot that a person moves by hand; the follower is to be where it is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.recording.controls import BEGIN, SESSION, Device
from temporeal.policies.data.recording.operators import Wish
from temporeal.robots.spec import RobotSpec
from temporeal.sim.types import Obs
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.state_input import StateInput
from temporeal_bridge.transports.transport import Transport

WITHIN = 0.3  # rad: chosen; a follower that is farther away would jump
STALE_S = 0.2  # s: chosen; an older state of the leader moves nothing


class LeaderArm:
    """Commands a follower's joint positions, and its gripper where the command has one, by a leader's joint states.

    Args:
        transport: on which the leader is. ``interface``: the topics of a robot of the follower's kind.
        command: the follower's, positions of its joints.
        action_dim: A, of the task, whose action is not used.
        keys: say what becomes of an episode.
    """

    words = "move the leader to where the follower is, then begin"

    def __init__(self, transport: Transport, robot: RobotSpec, interface: Interface, command: str, action_dim: int,
                 keys: Device | None) -> None:
        spec, joints = robot.command(command), robot.signals.get("joint_pos")
        if joints is None or spec.unit not in ("rad", "rad,m") or spec.size not in (joints.size, joints.size + 1):
            raise DataError(f"a leader arm gives positions of joints, and {command!r} of robot {robot.name!r} has unit "
                            f"{spec.unit!r}: choose a task whose command is positions")
        self.transport, self.keys, self.action = transport, keys, np.zeros(action_dim, np.float32)
        self.low, self.high, self.joints = np.asarray(spec.low), np.asarray(spec.high), joints.size
        self.wanted = ("joint_pos", "finger_pos")[: 1 + spec.size - joints.size]
        self.state = StateInput(transport, robot, interface, wanted=self.wanted)
        self.open_m = robot.gripper.open if robot.gripper is not None else 0.0
        self.last: np.ndarray | None = None

    def __call__(self, obs: Obs, signals: Mapping[str, np.ndarray]) -> Wish:
        """The leader's joints as the follower's command."""
        while self.transport.wait(0.0):
            pass
        events = [SESSION.events[key] for key in (self.keys.read().pressed if self.keys else ())
                  if key in SESSION.events]
        now, newest = self.transport.monotonic(), self.state.newest()
        fresh = newest.keys() >= set(self.wanted) and self.state.age(now) < STALE_S
        if fresh:
            self.last = self.command_of(newest)
        if self.last is None:  # nothing came yet: the follower stays
            self.last = self.command_of(signals)
        if BEGIN in events and not (fresh and self.near(signals)):
            events.remove(BEGIN)
        return Wish(self.action, self.last.astype(np.float32), tuple(events))

    def command_of(self, signals: Mapping[str, np.ndarray]) -> np.ndarray:
        """[U] within the command's limits; an arm without fingers in its signals keeps its gripper open."""
        parts = [np.asarray(signals["joint_pos"], dtype=np.float64)]
        if len(self.wanted) > 1:
            fingers = signals.get("finger_pos")
            parts.append(np.array([self.open_m if fingers is None else float(np.mean(fingers))]))
        return np.clip(np.concatenate(parts), self.low, self.high)

    def near(self, signals: Mapping[str, np.ndarray]) -> bool:
        """Whether the follower is where the leader is."""
        assert self.last is not None
        away = np.abs(np.asarray(signals["joint_pos"]) - self.last[: self.joints]).max()
        return bool(away < WITHIN)

    def begin(self) -> None:
        """Nothing is remembered."""

    def close(self) -> None:
        """Leave the bus."""
        self.transport.close()
        if self.keys is not None:
            self.keys.close()
