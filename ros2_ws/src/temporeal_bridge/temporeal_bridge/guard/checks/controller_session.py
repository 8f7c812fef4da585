"""The controller at the other end of the line: whether it flies the guard's artifact, and when it last spoke."""

from __future__ import annotations

from math import inf

from temporeal_bridge.guard.safety.reasons import NOTHING, Reason

GREETING_S = 2.0  # a controller that has not greeted for so long is gone
UNKNOWN = "the controller has not said which artifact it flies"


class ControllerSession:
    """Times are in s, monotonic.

    Attributes:
        greeted: when the controller last greeted. heard: when it last proposed a command, or began a mission.
        stranger: why it is not ours; "": it flies the guard's artifact.
    """

    def __init__(self) -> None:
        self.greeted, self.heard, self.stranger = -inf, -inf, UNKNOWN

    def greet(self, digest: str, ours: str, now: float) -> None:
        """It says the ``digest`` of its artifact; ``ours``: of the guard's."""
        self.accept(now)
        if digest != ours:
            self.stranger = (f"the controller flies another artifact ({digest[:12]}...) than the guard was given "
                             f"({ours[:12]}...)")

    def accept(self, now: float) -> None:
        """The controller is ours."""
        self.greeted, self.stranger = now, ""

    def forget(self) -> None:
        """The next controller must say what it flies."""
        self.greeted, self.stranger = -inf, UNKNOWN

    def present(self, now: float) -> bool:
        """Whether a controller has greeted lately."""
        return now - self.greeted <= GREETING_S

    def absent(self, now: float) -> Reason:
        """No controller has greeted lately."""
        return NOTHING if self.present(now) else ("silent", f"the controller has said nothing for {GREETING_S:g} s")

    def silent(self, now: float, most: float) -> Reason:
        """It has proposed nothing for more than ``most`` [s]."""
        quiet = now - self.heard
        return NOTHING if quiet <= most else (
            "silent", f"the controller has proposed nothing for {quiet:.3f} s, {most:g} s is allowed")
