"""What may be sent to a robot, as somebody sees it who stands beside the bus: reads every command that was sent.

It knows the robot's ``spec.py`` and ``ros.yaml``, and nothing of the guard: limits are looked up in the files, speed,
acceleration and jerk are plain differences of what was on the wire, divided by the control period (backward Euler, as
libfranka checks them, ``rate_limiting.h``). Where the state has a say in it (``effort``, ``ends``), it reads that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.table import COMMAND_CODECS, STATE_CODECS
from temporeal_bridge.interface.interface import Interface, StateTopic
from temporeal_bridge.interface.state_input import mark
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.transports import messages

ROUNDING = 1e-6  # of a limit: commands pass through float64 and through sums with offsets near pi
PLACE = 1e-9  # of a range
ON_TIME = 0.9  # periods: so early the next command may be; with each period more one was missed. A late controller is
# bridged before, so it was the guard that stood still
# Periods: a command's turn comes PACE after the one before, and it is early EARLY before that
# (docs/reference/faults.md). So two
# are 0.45 of a period apart at least, and in the long run there is one every 0.95 at most
PACE, EARLY = 0.95, 0.5
CLOCK_S = 1e-9  # times are told since the mission began, as differences of float64
KEEPS = ("hold", "ramp", "damp")  # stop actions that go on from the last command, a period after it; others at once
SPOKEN = ("active", "stopping", "holding")  # modes in which commands may be on the wire
# Of who listens beside the robot: a command may be taken so long before the mode that it belongs to, or after the one
# that ended. Topics have no order among each other, and are taken one after the other. Chosen: five commands at 50 Hz;
# a process that shares its core waits some slices of 3 ms, and who waited longer finds both topics' messages there
ORDER_S = 0.1
KEPT = 1000  # messages of the state that may still be told of
WAITING = 100  # told of and not seen yet, before a command that is none of them is given up
RATES = ("speed", "acceleration", "jerk")
STALE = 0.9  # of the age from which on a state says nothing: nearer to it nobody knows what the guard thought
REORDERED_NS = 1_000_000_000  # a stamp that goes back by less is of an old state, by more of a clock that was set


class Times(NamedTuple):
    """Of a command, by the clock of who sent it [s]: when it was begun to be made, and when it had gone. In between it
    left: who sends is told so late by a machine that has other things to do."""

    made: float
    left: float


NEVER = Times(-np.inf, -np.inf)


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


class Doubt(NamedTuple):
    """A command taken at ``at`` [s] that is wrong unless a mode comes that excuses it; ``early``: the begin of a stop,
    else any mode in which there are commands."""

    at: float
    text: str
    early: bool


class Windows:
    """Between which commands a robot may be sent something, by the states on the bus.

    Args:
        names: signals that tell. ends: lowest and highest command [B] of their values.
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
        self.known: dict[str, tuple[int, float]] = {}  # by topic: the mark last told of, and since when at the earliest
        self.told_at = -np.inf
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

    def told(self, marks: Sequence[int], at: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Ends [1, B] of the commands that may be sent by the messages that who commands says it knew
        (``marks``, one a topic) at ``at`` [s, its clock]; None: they may have been too old, or were not seen here.

        A message came to it after the last command that it told of without it: it is no older than that.
        """
        for topic, new in zip(self.topics, marks, strict=True):
            if self.known.get(topic, (0, 0.0))[0] != new:
                self.known[topic] = new, self.told_at
        self.told_at = at
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
        self.known, self.told_at = {}, -np.inf


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


class Oracle:
    """Reads the commands of one robot.

    Args:
        command: its name. period: s between commands. timed: whether the times of arrival are those of departure, and
            modes and commands come in the order in which they were sent.

    Attributes:
        commands: how many were read, ``points`` of trajectories included in ``points``.
        wrong: what was outside a limit, in words; only the first of them are kept, ``outside`` counts all.
        trace: (time [s], command [A]) of all of them.
        efforts: commands whose efforts were judged. yielded: those at the end of what the servos may give, which may be
            faster than the limits of motion.
    """

    def __init__(
        self, robot: RobotSpec, interface: Interface, command: str, period: float, timed: bool = True
    ) -> None:
        self.spec, self.period, self.topic = robot.command(command), period, interface.command(command)
        section: Mapping[str, Any] = interface.safety["commands"][command]
        own: Mapping[str, Any] = section.get("motion") or {}
        self.servos = windows_of(robot, interface, section, period, timed)
        self.held = robot.drives.get(command) in ("velocity", "effort", "tool")
        margin = np.broadcast_to(np.asarray(own.get("margin", 0.0), dtype=float), (self.spec.size,))
        self.low, self.high = np.array(self.spec.low) + margin, np.array(self.spec.high) - margin
        self.rates = {name: np.broadcast_to(np.asarray(own.get(name) or np.inf, dtype=float), (self.spec.size,))
                      for name in RATES}
        self.bounded = bool(np.isfinite(self.rates["speed"]).any())
        self.at_once = not set(section["stop"].values()) <= set(KEEPS)
        self.timed, self.order_s = timed, 0.0 if timed else ORDER_S
        # messages whose numbers are float32, or scaled there and back, round a limit over its end
        exact = self.topic.type.startswith(("trajectory", "std_msgs/msg/Float64", "sensor_msgs"))
        self.rounding = (PLACE if exact else PLACE + 1e-6) * (self.high - self.low)
        self.commands = self.points = self.outside = self.yielded = self.efforts = 0
        self.closest = np.inf
        self.wrong: list[str] = []
        self.trace: list[tuple[float, np.ndarray]] = []
        self.mode, self.history, self.last, self.measured = "", list[np.ndarray](), NEVER, None
        self.silent_at = -np.inf  # from when on there may be no command
        self.turn = -np.inf  # of the next command, by the clock of ``last``
        self.since, self.count = -np.inf, 0  # when the mission began, as it was taken [s]; its commands
        self.begun = 0  # stops of which no command is known yet that followed at once
        self.doubts: list[Doubt] = []
        self.grounded = False  # a quadrotor stands on the ground: there a zero unlocks its thrust
        self.ahead: np.ndarray | None = None  # points [K, A] of the last trajectory, a period from each other

    def says(self, mode: str, at: float = -np.inf) -> None:
        """The guard's mode changed, as taken at ``at`` [s]. One command of the same instant may have been sent before
        that; who listens beside the robot takes all in that come soon after it, and some before it."""
        self.settle(at)
        if mode == "active":
            if self.timed:
                self.forget()
            self.since, self.count, self.begun = at - self.order_s, 0, 0
        self.doubts = [doubt for doubt in self.doubts if doubt.early or mode not in SPOKEN]
        if mode == "stopping" and self.at_once:
            self.count -= 1
            if self.doubts:
                self.doubts.pop(0)
            else:
                self.begun += 1
        self.mode, self.silent_at = mode, np.inf if mode in SPOKEN else min(self.silent_at, at + self.order_s)

    def settle(self, at: float = np.inf) -> None:
        """What no mode has excused by ``at`` [s] is wrong."""
        late = [doubt for doubt in self.doubts if at - doubt.at > self.order_s]
        self.doubts = [doubt for doubt in self.doubts if doubt not in late]
        for doubt in late:
            self._bad(doubt.text)

    def _doubt(self, at: float, text: str, early: bool = False) -> None:
        if self.timed or (early and not self.at_once):
            self._bad(text)
        else:
            self.doubts.append(Doubt(at, text, early))

    def forget(self) -> None:
        """What comes next goes on from nothing that is known."""
        self.history, self.last, self.turn = [], NEVER, -np.inf
        if self.servos is not None:
            self.servos.forget()

    def read(
        self, at: float, data: bytes, times: Times | None = None, marks: Sequence[int] | None = None
    ) -> None:
        """One message on the command's topic, taken at ``at`` [s]; its ``times`` and the ``marks`` of the state that it
        was made of, where the sender has told them."""
        self.commands += 1
        self.settle(at)
        now, timed = times or Times(at, at), self.timed or times is not None
        try:
            message = messages.decode(self.topic.type, data)
            command = np.asarray(COMMAND_CODECS[self.topic.codec].decode(message, self.topic.options), dtype=float)
        except (messages.MessageError, CodecError, ValueError) as error:
            return self._bad(f"not a command: {error}")
        if at > self.silent_at and (command.any() or not self.grounded):
            self._doubt(at, f"a command in mode {self.mode!r}")
        elif self.mode not in SPOKEN and self.timed:
            self.silent_at = -np.inf  # that was the one
        command = command.reshape(-1)
        if command.size != self.spec.size or not np.isfinite(command).all():
            return self._bad(f"{command.tolist()} is not {self.spec.size} finite numbers")
        self.trace.append((at, command))
        self._place(command, "command")
        if self.held and self.mode != "active" and not command.any():
            return self._last_word(now)
        pushed = self._effort(command, now.made, marks)
        missed = int((now.made - self.last.left) / self.period - ON_TIME) if timed and self.history else 0
        if missed > 0:
            self._gap(missed, hasattr(message, "points"))
        self._motion(command, pushed)
        self._pace(at, now.made, timed)
        self.last = now
        if hasattr(message, "points"):
            self._trajectory(message)

    def _pace(self, at: float, made: float, timed: bool) -> None:
        """No heap of commands: none before its turn, by when they were made, where that is known. However late they are
        taken, no more than fit in since the mission began."""
        self.count += 1
        if at - self.since < ((self.count - 1) * PACE - EARLY) * self.period - CLOCK_S:
            self._bad(f"{self.count} commands within {at - self.since:.4f} s, a period is {self.period:g} s")
        if not timed:
            return
        apart, early = made - self.last.made, made < self.turn - EARLY * self.period - CLOCK_S
        self.closest = min(self.closest, apart / self.period)
        if early and self.begun:
            self.begun -= 1
        elif early:
            self._doubt(at, f"two commands within {apart:.4f} s, a period is {self.period:g} s", early=True)
        self.turn = (made if early else max(self.turn, made)) + PACE * self.period  # a stop has turns of its own

    def _last_word(self, now: Times) -> None:
        """Zero to a robot that holds speeds or efforts, from a guard that lets go of it: at once, however far the last
        command was from that and however short ago. What comes next begins there."""
        self.history, self.last, self.turn = [np.zeros(self.spec.size)], now, -np.inf

    def _place(self, command: np.ndarray, what: str) -> None:
        self._within(what + " place", np.maximum(self.low - command, command - self.high), self.rounding)

    def _effort(self, command: np.ndarray, at: float, marks: Sequence[int] | None) -> np.ndarray:
        """Which components [A] are at the end of what their servos may give; beyond it only an end of place excuses."""
        pushed = np.zeros(command.size, dtype=bool)
        if self.servos is None:
            return pushed
        ends = self.servos.recent(at) if marks is None else self.servos.told(marks, at)
        if ends is None:
            return pushed
        self.efforts += 1
        low, high = ends
        size = low.shape[1]
        rounding, asked = self.rounding[:size], command[:size]
        under, over = low - asked, asked - high  # [K, B]
        pushed[:size] = ((np.abs(under) <= rounding) | (np.abs(over) <= rounding)).any(axis=0)
        beyond = np.maximum(under, over).min(axis=0)  # by the state that allows most
        at_end = np.where(under.min(axis=0) > 0, self.high[:size] - asked, asked - self.low[:size]) <= rounding
        self._within("way beyond the servo's limit", np.where(at_end | self._less(asked), 0.0, beyond), rounding)
        pushed[:size] |= at_end & (beyond > rounding)
        self.yielded += bool(pushed.any())
        return pushed

    def _less(self, asked: np.ndarray) -> np.ndarray:
        """Which components [B] of a stop are speeds or efforts on the way to none: as where no state is believed."""
        if self.mode not in ("stopping", "holding") or not self.held or len(self.trace) < 2:
            return np.zeros(asked.size, dtype=bool)
        before = self.trace[-2][1][: asked.size]
        return np.asarray((asked * before >= 0.0) & (np.abs(asked) <= np.abs(before)))

    def _gap(self, missed: int, led: bool) -> None:
        """So many commands were ``missed``: the guard itself stood still.

        What was ``led`` by a trajectory has passed its next points meanwhile; anything else rests at the last command.
        The next one comes after that, with the limits of a single period.
        """
        if not led:
            self.history = [self.history[-1]] * 3
        elif self.ahead is None:
            self._bad("a trajectory left points out: where it led in a pause cannot be told")
        else:
            passed = [self.ahead[min(k, len(self.ahead) - 1)] for k in range(1, missed + 1)]
            self.history = [*self.history, *passed][-3:]

    def _motion(self, command: np.ndarray, pushed: np.ndarray) -> None:
        """Differences of the last commands: of rest before the first, only as far as there are some.

        Where servos are at the end of what they may give (``pushed`` [A]), how fast the command is is not ours to say:
        from there on it is judged as after the first.
        """
        if not self.history and self.measured is not None and self.bounded:
            reach = np.minimum(self.rates["speed"] * self.period, self.rates["acceleration"] * self.period**2)
            size = self.measured.size
            self._within("first command", np.abs(command[:size] - self.measured), reach[:size] + 0.02)
        self.history = [*self.history[-3:], command]
        differences = np.stack(self.history)
        for order, name in enumerate(RATES[: len(self.history) - 1], start=1):
            differences = np.diff(differences, axis=0) / self.period
            limit = self.rates[name]
            rounding = 2.0**order * 8e-15 / self.period**order
            known = np.isfinite(differences[-1]) & ~pushed
            self._within(name, np.where(known, np.abs(differences[-1]), 0.0), limit * (1 + ROUNDING) + rounding)
        self.history[:-1] = [np.where(pushed, np.nan, row) for row in self.history[:-1]]

    def _trajectory(self, message: Any) -> None:
        """Every point: its place, speed and acceleration; from point to point the jerk, where none was left out."""
        points = message.points
        times = np.array([1e-9 * messages.nanoseconds(p.time_from_start) for p in points])
        order = [list(message.joint_names).index(name) for name in self.topic.options["joints"]]
        place, speed, acceleration = (np.array([getattr(p, field) for p in points])[:, order]
                                      for field in ("positions", "velocities", "accelerations"))
        self.points += len(points)
        for row in place:
            self._place(row, "point")
        for name, rows in (("speed", speed), ("acceleration", acceleration)):
            self._within(f"{name} of a point", np.abs(rows).max(axis=0), self.rates[name] * (1 + ROUNDING))
        steps = np.diff(times)
        jerk = np.abs(np.diff(acceleration, axis=0)) / steps[:, None] if len(points) > 1 else np.zeros((0, 1))
        whole = steps < 1.5 * self.period
        if whole.any():
            self._within("jerk between points", jerk[whole].max(axis=0), self.rates["jerk"] * (1 + ROUNDING))
        self.ahead = place if whole.all() else None
        if speed[-1].any() or acceleration[-1].any():
            self._bad(f"a trajectory ends in motion: {speed[-1].tolist()}")

    def _within(self, what: str, value: np.ndarray, limit: np.ndarray) -> None:
        over = np.flatnonzero(~(value <= limit))
        if over.size:
            i = int(over[0])
            self._bad(f"{what} of component {i} is {value[i]:.9g}, {limit[i]:.9g} is allowed (mode {self.mode})")

    def _bad(self, text: str) -> None:
        self.outside += 1
        if len(self.wrong) < 10:
            self.wrong.append(text)


class Joined:
    """Commands from the wire with the times that the guard tells of them (``guard/command``), for an oracle.

    The two topics have no order among each other, this process may take both in late, and messages may be lost. A
    command is read once what the guard tells of it is there: both are the same numbers. Where one of the two is
    missing the robot's motion is not known, and judged from the next pair on.

    Attributes:
        lost: messages without their partner.
    """

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.lost, self.flight = oracle, 0, -1
        oracle.says("active")  # until somebody tells the oracle the guard's modes, which come on a third topic
        self.commands: deque[tuple[float, bytes, np.ndarray | None]] = deque()
        self.tolds: deque[CommandRecord] = deque()

    def command(self, at: float, data: bytes) -> None:
        """A message on the command's topic, taken at ``at`` [s]."""
        self.commands.append((at, data, self._numbers(data)))
        self._match()

    def told(self, data: bytes) -> CommandRecord:
        """A message on ``guard/command``, read."""
        found = CommandRecord.of(messages.decode("std_msgs/msg/Float64MultiArray", data).data)
        self.tolds.append(found)
        self._match()
        return found

    def end(self) -> None:
        """Nothing more comes."""
        while self.commands:
            self._untold()
        self.lost += len(self.tolds)
        self.tolds.clear()
        self.oracle.settle()

    def _match(self) -> None:
        while self.commands and self.tolds:
            at, data, numbers = self.commands[0]
            partner = next((n for n, told in enumerate(self.tolds) if self._same(numbers, told)), None)
            if partner is not None:
                self._skip(partner)
                self.commands.popleft()
                self._read(at, data, self.tolds.popleft())
            elif len(self.tolds) >= WAITING or any(self._same(other, self.tolds[0]) for *_, other in self.commands):
                self._untold()
            else:
                return

    def _read(self, at: float, data: bytes, told: CommandRecord) -> None:
        if told.flight != self.flight:
            self.flight = told.flight
            self.oracle.forget()
        self.oracle.read(at, data, Times(told.since, told.left), told.marks)

    def _skip(self, count: int) -> None:
        """So many were told of and not seen."""
        for _ in range(count):
            self.tolds.popleft()
            self.lost += 1
            self.oracle.forget()

    def _untold(self) -> None:
        """One was seen and not told of: what can be judged of it alone is."""
        at, data, _ = self.commands.popleft()
        self.lost += 1
        self.oracle.forget()
        self.oracle.read(at, data)
        self.oracle.forget()

    def _numbers(self, data: bytes) -> np.ndarray | None:
        topic = self.oracle.topic
        try:
            message = messages.decode(topic.type, data)
            return np.asarray(COMMAND_CODECS[topic.codec].decode(message, topic.options), dtype=float).reshape(-1)
        except (messages.MessageError, CodecError, ValueError):
            return None  # the oracle will say so

    def _same(self, command: np.ndarray | None, told: CommandRecord) -> bool:
        if command is None or command.size != len(told.sent):
            return False
        return bool((np.abs(command - told.sent) <= self.oracle.rounding).all())
