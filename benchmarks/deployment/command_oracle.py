"""A test oracle that reads every command sent to a robot and checks it against the robot's limits.

It knows the robot's ``spec.py`` and ``ros.yaml``, and nothing of the guard. Speed, acceleration and jerk are plain
differences of what was on the wire, divided by the control period (backward Euler, as libfranka checks them,
``rate_limiting.h``). Limits that depend on the state (``effort``, ``ends``) are checked by the states on the bus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal_benchmarks.deployment.command_windows import windows_of
from temporeal_bridge.codecs.codec import CodecError
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.transports import messages

ROUNDING = 1e-6  # of a limit: commands pass through float64 and through sums with offsets near pi
PLACE = 1e-9  # of a range
# Periods: the next command may come so early; each period more is a missed command. The guard bridges a late
# controller, so it was the guard that stood still
ON_TIME = 0.9
# Periods: a command's turn comes PACE after the one before, and it is early EARLY before that
# (docs/reference/faults.md). Two commands are at least 0.45 of a period apart, and in the long run at least 0.95
PACE, EARLY = 0.95, 0.5
CLOCK_S = 1e-9  # times are recorded since the mission began, as differences of float64
KEEPS = ("hold", "ramp", "damp")  # stop actions that go on from the last command, a period after it; others at once
SPOKEN = ("active", "stopping", "holding")  # modes in which commands may be on the wire
# s: an observer may receive a command so long before the mode that it belongs to, or after the mode that ended. Topics
# have no order among each other. Chosen: five commands at 50 Hz; a process that shares its core waits some slices of
# 3 ms, and after a longer wait the messages of both topics are there
ORDER_S = 0.1
RATES = ("speed", "acceleration", "jerk")


class Times(NamedTuple):
    """Of a command, by the sender's clock [s]: when its computation began, and when the sender knew that it was sent.
    It left in between."""

    made: float
    left: float


NEVER = Times(-np.inf, -np.inf)


class Doubt(NamedTuple):
    """A command received at ``at`` [s] that is wrong unless a mode follows that excuses it: the begin of a stop where
    it came ``early``, else any mode in which there are commands."""

    at: float
    text: str
    early: bool


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

    def set_mode(self, mode: str, at: float = -np.inf) -> None:
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
        was made of, where the sender has recorded them."""
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
        ends = self.servos.recent(at) if marks is None else self.servos.by_marks(marks, at)
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
            self._bad("a trajectory left points out: where it led in a pause is unknown")
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
