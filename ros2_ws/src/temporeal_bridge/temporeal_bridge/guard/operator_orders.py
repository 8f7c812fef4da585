"""The operator's orders to stop: which of them is a repeated one, and when a reset may follow."""

from __future__ import annotations

from math import inf

from temporeal_bridge.guard.stop_actions.level import AGAIN_S

RESET_AFTER_S = 0.5  # a reset sooner after a stop may be the older message. Chosen: messages that arrive within 20 ms
# are read together, networks and busy computers add to that; an operator who has seen the robot stop needs longer to
# answer


class OperatorOrders:
    """Times are in s, monotonic.

    Attributes:
        stop_heard: when the last order to stop came. order_at: the same, in this mission.
        freed: whether the stop button was released since it was last pressed.
    """

    def __init__(self) -> None:
        self.stop_heard = self.order_at = -inf
        self.freed = True

    def begin(self) -> None:
        """A mission begins."""
        self.order_at, self.freed = -inf, True

    def release(self, pressed: bool) -> None:
        """The stop button is ``pressed``, or not."""
        self.freed = self.freed or not pressed

    def repeated(self, now: float) -> bool:
        """An order came; whether it repeats one. What follows sooner than after AGAIN_S is the same order."""
        quiet, self.order_at = now - self.order_at, now
        return AGAIN_S <= quiet < inf

    def pressed(self, now: float) -> bool:
        """The stop button says that it is pressed, which it does again and again; whether that repeats an order."""
        if not self.freed:
            return False
        self.freed = False
        return self.repeated(now)

    def reset_refusal(self, now: float) -> str:
        """Why a reset that comes now may not follow the last order; "": it may."""
        since = now - self.stop_heard
        return f"a stop was heard {since:.2f} s ago: say reset again" if since < RESET_AFTER_S else ""
