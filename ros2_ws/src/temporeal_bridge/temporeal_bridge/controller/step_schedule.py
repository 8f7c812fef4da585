"""When control steps are due: every period, in phase with the arrival of states, so that states are used when new."""

from __future__ import annotations

import numpy as np

PHASE_GAIN = 0.05  # share of the phase error between control steps and arriving states that each step corrects


class StepSchedule:
    """The schedule of one mission's control steps.

    Args:
        period: of the control steps [s]. state_period: of the state that paces them [s].

    Attributes:
        window: a step is made on a state's arrival within so much around its due time [s], else without a new state
            at the end of the window; 0 where states come more seldom than steps.
        next: when the next step is due [s, monotonic]. used: arrival of the state last acted on.
    """

    def __init__(self, period: float, state_period: float) -> None:
        self.period = period
        self.window = 0.5 * state_period if state_period <= period + 1e-9 else 0.0
        self.next = self.used = 0.0

    def restart(self, now: float) -> None:
        """Only a state that arrives from now on is new."""
        self.next = self.used = now

    def due(self, now: float, arrival: float) -> bool:
        """Whether to step now, where the newest state arrived at ``arrival``."""
        return (arrival > self.used and arrival >= self.next - self.window) or now >= self.deadline

    @property
    def deadline(self) -> float:
        """When to step without a new state."""
        return self.next + self.window

    def missed(self, now: float) -> int:
        """Number of steps before this one that were not made in their time."""
        return max(0, int((now - self.next + 0.5 * self.window) / self.period))

    def advance(self, missed: int, arrival: float) -> None:
        """A step was made of the state that arrived at ``arrival``, after ``missed`` ones."""
        fresh = arrival > self.used and not missed
        error = float(np.clip(arrival - self.next, -self.window, self.window)) if fresh else 0.0
        self.used = arrival
        self.next += (missed + 1) * self.period + PHASE_GAIN * error
