"""Which commands a robot may be sent by the state it is in: what its servos may give, and the ends of its range."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.interface import Interface, StateTopic
from temporeal_bridge.interface.state_input import mark
from temporeal_bridge.transports import messages

KEPT = 1000  # messages of the state that a record may still name
STALE = 0.9  # of the age at which a state is stale: closer to it the guard may have decided either way
REORDERED_NS = 1_000_000_000  # a stamp that goes back by less is of an old state, by more of a clock that was set


def servo_ends(rule: Mapping[str, Any], position: np.ndarray, velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest command [B] by the section ``effort``: servos with the law ``kp (command - position) -
    kd velocity`` and a limit."""
    kp, kd, limit = (np.asarray(rule[key], dtype=float) for key in ("kp", "kd", "limit"))
    return position + (kd * velocity - limit) / kp, position + (kd * velocity + limit) / kp


def range_ends(
    rule: Mapping[str, Any], robot: RobotSpec, period: float, position: np.ndarray, velocity: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest command [B] by the section ``ends``: speeds that stop within the range if they begin to a
    ``period`` and ``late_s`` later, or what brings an effort's joints to speeds that stop at once."""
    spec, brake = robot.command(rule["range"]), np.asarray(rule["brake"], dtype=float)
    low, high = (np.array(end)[: position.size] + sign * np.asarray(rule.get("margin", 0.0), dtype=float)
                 for end, sign in ((spec.low, 1.0), (spec.high, -1.0)))
    most, up, down = np.asarray(rule["speed"], dtype=float), high - position, position - low
    lost = brake * (period + float(rule.get("late_s", 0.0))) if velocity is None else 0.0  # in speed, until then
    fastest = np.minimum(most, np.sqrt(lost**2 + 2.0 * brake * np.where(up > 0.0, up, 0.0)) - lost)
    slowest = np.maximum(-most, lost - np.sqrt(lost**2 + 2.0 * brake * np.where(down > 0.0, down, 0.0)))
    if velocity is None:
        return slowest, fastest
    gain = np.asarray(rule["gain"], dtype=float)
    return gain * (slowest - velocity), gain * (fastest - velocity)


class Windows:
    """The lowest and the highest command that a robot may be sent, by the states on the bus.

    Args:
        names: signals that decide. ends: lowest and highest command [B] of their values.
        timed: whether a command was made of the newest state read; else of any that is fresh, for topics have no order
            among each other.
    """

    def __init__(
        self, interface: Interface, names: Sequence[str], ends: Callable[..., tuple[np.ndarray, np.ndarray]],
        timed: bool, stale_s: float | None = None,
    ) -> None:
        self.names, self.ends, self.timed = tuple(names), ends, timed
        self.stale_s = float(stale_s or interface.safety["stale_after_s"])
        self.topics = [state.topic for state in interface.states]
        self.marked: dict[tuple[str, int], dict[str, np.ndarray]] = {}  # what each message said, by topic and mark
        self.known: dict[str, tuple[int, float]] = {}  # by topic: last recorded mark, since when at the earliest
        self.recorded_at = -np.inf
        self.newest: dict[str, np.ndarray] = {}
        self.stamps: dict[str, int] = {}
        self.windows: deque[tuple[float, np.ndarray, np.ndarray]] = deque(maxlen=1000)  # (taken [s], low, high)

    def read(self, topic: StateTopic, at: float, data: bytes, true: bool = True) -> None:
        """A state, taken at ``at`` [s]; who cannot read it, or has seen a newer one, does not act on it. One that is
        not ``true`` allows nothing: commands that go by it are beyond the limits of motion for no reason."""
        try:
            message = messages.decode(topic.type, data)
            stamp, signals = STATE_CODECS[topic.codec].stamp(message), STATE_CODECS[topic.codec].decode(
                message, topic.options)
        except (messages.MessageError, CodecError, ValueError):
            return
        old = stamp and 0 <= self.stamps.get(topic.topic, 0) - stamp < REORDERED_NS
        said = {name: np.asarray(signals[name], dtype=float).reshape(-1) for name in self.names if name in signals}
        if old or not all(np.isfinite(value).all() for value in signals.values()) or not said:
            return
        self.stamps[topic.topic] = stamp
        if not true:
            said = {}
            self.newest.clear()
            self.windows.clear()
        self.marked[topic.topic, mark(data)] = said
        if len(self.marked) > KEPT:
            self.marked.pop(next(iter(self.marked)))
        self.newest.update(said)
        if len(self.newest) == len(self.names):
            self.windows.append((at, *self.ends(*(self.newest[name] for name in self.names))))

    def recent(self, at: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Ends [K, B] of the commands that may be sent at ``at`` [s], by each state that may have been the
        last one then; None: the state is old, or nearly."""
        fresh = [(low, high) for taken, low, high in self.windows if at - taken <= STALE * self.stale_s]
        if not fresh:
            return None
        low, high = (np.stack(ends) for ends in zip(*fresh[-1 if self.timed else 0 :]))
        return low, high

    def by_marks(self, marks: Sequence[int], at: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Ends [1, B] of the commands that may be sent by the messages that the sender says it knew (``marks``, one a
        topic) at ``at`` [s, its clock]; None: they may have been too old, or were not received here.

        A message reached the sender after the last command that was recorded without it: it is no older than that.
        """
        for topic, new in zip(self.topics, marks, strict=True):
            if self.known.get(topic, (0, 0.0))[0] != new:
                self.known[topic] = new, self.recorded_at
        self.recorded_at = at
        said: dict[str, np.ndarray] = {}
        for topic, (found, since) in self.known.items():
            if at - since > STALE * self.stale_s:
                return None
            said.update(self.marked.get((topic, found), {}))
        if not said.keys() >= set(self.names):
            return None
        low, high = self.ends(*(said[name] for name in self.names))
        return low[None], high[None]

    def forget(self) -> None:
        """Another mission, with another clock; or something was lost."""
        self.known, self.recorded_at = {}, -np.inf


def windows_of(
    robot: RobotSpec, interface: Interface, section: Mapping[str, Any], period: float, timed: bool
) -> Windows | None:
    """What a command's ``section`` of ``ros.yaml`` demands of it by the state; None: nothing."""
    effort, ends = section.get("effort"), section.get("ends")
    if effort is not None:
        return Windows(interface, (effort["position"], effort["velocity"]), partial(servo_ends, effort), timed)
    if ends is None:
        return None
    names = (ends["position"], *([ends["velocity"]] if "velocity" in ends else []))
    return Windows(
        interface, names, lambda position, velocity=None: range_ends(ends, robot, period, position, velocity), timed,
        section.get("stale_after_s"))
