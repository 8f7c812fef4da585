"""Episodes as an operator makes them: begun, ended, judged, discarded. What is ended is on disk; a kill loses the open
episode alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.policies.data.recording.controls import BEGIN, DISCARD, END, FAILURE, QUIT, SUCCESS

Judge = Callable[[], bool | None]
"""Whether the open episode, which ends now, did what was asked; None: nobody knows."""


@dataclass
class Session:
    """The state of a recording.

    Args:
        writer: of the dataset.
        wanted: episodes to record; after them it is over.
        language: the instruction of each episode. ``info``: what is said of each.
        say: tells the operator what happened.
    """

    writer: DatasetWriter
    wanted: int
    language: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    say: Callable[[str], None] = print
    recorded: int = 0
    discarded: int = 0
    steps: int = 0  # of the open episode
    open: bool = False
    over: bool = False
    successes: int = 0

    def begin(self, **info: Any) -> None:
        """Open an episode."""
        self.writer.begin(self.language, {**self.info, **info})
        self.open, self.steps = True, 0
        self.say(f"episode {self.recorded}: recording")

    def step(self, signals: Mapping[str, np.ndarray], action: np.ndarray, policy_action: np.ndarray | None = None,
             reward: float | None = None) -> None:
        """A sample and the command that followed it."""
        self.writer.step(signals, action, policy_action, reward)
        self.steps += 1

    def end(self, final: Mapping[str, np.ndarray] | None, success: bool | None, terminated: bool = False) -> None:
        """Write the open episode; one without a step is dropped."""
        if not self.steps:
            return self.discard("it has no step")
        self.writer.end(final, terminated, success)
        self.open, self.recorded = False, self.recorded + 1
        self.successes += bool(success)
        word = {True: "success", False: "failure", None: "not judged"}[success]
        done = f"{self.recorded} of {self.wanted} are on disk"
        self.say(f"episode {self.recorded - 1}: {self.steps} steps, {word}; {done}")
        self.over = self.over or self.recorded >= self.wanted

    def discard(self, why: str = "as asked") -> None:
        """Drop the open episode."""
        self.writer.discard()
        self.open, self.discarded = False, self.discarded + 1
        self.say(f"episode {self.recorded} discarded: {why}")

    def hear(self, event: str, begin: Callable[[], None], final: Callable[[], Mapping[str, np.ndarray]],
             judge: Judge) -> None:
        """What the operator says: one of :data:`temporeal.policies.data.recording.controls.EVENTS`; what does not fit
        the state means nothing."""
        if event == BEGIN and not self.open and not self.over:
            begin()
        elif event in (END, SUCCESS, FAILURE) and self.open:
            self.end(final(), judge() if event == END else event == SUCCESS)
        elif event == DISCARD and self.open:
            self.discard()
        elif event == QUIT:
            if self.open:
                self.discard("the recording was ended")
            self.over = True
