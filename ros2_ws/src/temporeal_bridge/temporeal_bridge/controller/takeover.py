"""Taking over from the controller in charge, in flight.

A second controller lives through the running mission by the step log of the one in charge, asks the guard, and then
proposes beside it until the guard puts it in charge (:mod:`temporeal_bridge.guard.artifact_swap`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalError
from temporeal_bridge.controller.figures import FlightFigures
from temporeal_bridge.controller.step_log import LoggedStep, LogHead, StepLogReader
from temporeal_bridge.mission import MISSION_TIME, MissionStatus

SUCCEED_S = 60.0  # for a successor to be ready, and to be answered
CATCH_UP_S = 0.005  # a successor catches up in slices of this length, with pauses of the same: others need the machine


class TakeoverError(RuntimeError):
    """This controller cannot take over; the message says why."""


class Successor:
    """Lives through the mission of the controller in charge.

    Args:
        artifact: the successor's own.
        log: file of the other controller's step log.
        offer: what it shows the guard (:func:`temporeal_bridge.link.artifact_offer.offer`).
        clock: monotonic time [s]. arrival: of the newest state, by the same clock.

    Attributes:
        mission: the guard's last status.
        asked: whether the guard was asked.
        flight: the mission that the artifact has lived through.
        due: when the next step is due. first: time of the first step. used: arrival of the state at the last step.
    """

    def __init__(
        self, artifact: Artifact, log: Path, offer: str, clock: Callable[[], float], arrival: Callable[[], float]
    ) -> None:
        self.artifact, self.log, self.offer, self.clock, self.arrival = artifact, log, offer, clock, arrival
        self.name, self.period = artifact.manifest.commands[0].name, 1.0 / artifact.manifest.rate_hz
        self.mission, self.asked, self.until = MissionStatus("", -1, 0), False, clock() + SUCCEED_S
        self.flight, self.due, self.first, self.used = FlightFigures(-1), 0.0, 0.0, 0.0
        self.reader: StepLogReader | None = None

    @property
    def head(self) -> LogHead | None:
        """Head of the log that is read."""
        return None if self.reader is None else self.reader.head

    def follow(self, complete: bool) -> FlightFigures:
        """The mission to live through: anew where the guard has begun another one. ``complete``: whether the state
        is."""
        mode, number, start_ns = self.mission
        same = self.reader is not None and (number, start_ns) == (self.flight.number, self.flight.start_ns)
        if mode == "active" and complete and not self.asked and not same:
            self.artifact.reset()
            self.flight, self.reader = FlightFigures(number, start_ns), StepLogReader(self.log, number, start_ns)
        return self.flight

    def prepared(self, complete: bool) -> bool:
        """Whether it is time to ask the guard. ``complete``: whether the state is."""
        mode = self.mission.mode
        if self.clock() > self.until:
            raise TakeoverError(f"no artifact swap within {SUCCEED_S:g} s (guard: {mode or 'silent'}, state: "
                                f"{'there' if complete else 'missing'}, prepared: {self.flight.steps} steps of mission "
                                f"{self.flight.number})")
        if self.asked or not (mode and complete):
            return False
        return mode != "active" or self._lived()

    def _lived(self) -> bool:
        """Whether the artifact has lived through the mission up to now."""
        return (self.reader is not None and self.reader.ready() and self.catch_up(CATCH_UP_S)
                and self.flight.steps > 0)

    def catch_up(self, seconds: float) -> bool:
        """Make the logged steps for at most ``seconds``; whether the log's end is reached."""
        if self.reader is None or self.reader.head is None:
            return True
        until, self.first = self.clock() + seconds, self.reader.head.first
        for step in self.reader.steps():
            self._live(step)
            if self.clock() > until:
                return False
        return True

    def _live(self, step: LoggedStep) -> None:
        """A control step of the controller in charge, with the same signals, for the policy's memory. A memory of the
        last command gets the one that was proposed to the guard, so that targets do not run away."""
        signals = dict(step.signals)
        try:
            for _ in range(step.missed + 1):
                signals[MISSION_TIME.name] = np.asarray(self.flight.steps * self.period, dtype=np.float32)
                self.artifact.act(signals)
                self.flight.steps += 1
        except SignalError as error:  # it reads other signals, or gives a command that cannot be sent
            raise TakeoverError(f"cannot live through mission {self.flight.number}: at step {self.flight.steps} {error}"
                                ) from error
        if np.isfinite(step.command).all():
            self.artifact.adopt({self.name: step.command})
        self.due, self.used = step.due, self.arrival()
