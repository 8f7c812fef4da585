"""Whether a quadrotor stands on the ground, on a table or in a hand, as far as the guard's own commands tell.

The stop action ``level`` starts motors, so it must not begin on a robot that nothing has lifted. The height does not
tell (a table, a hand), and a mission may begin in the air, where somebody else flew the robot. The commands do: with
less thrust than ``lifts`` no robot flies, and one in the air falls.
"""

from __future__ import annotations

from math import inf

from temporeal_bridge.guard.safety.fallback_actions import FLIES_S
from temporeal_bridge.guard.stop_actions.hover_thrust import GRAVITY

LIFTED_M_S = 2.0  # speed that the thrust would give the lightest and strongest robot: then it has left the ground.
# Chosen: a take-off with 1.05 of the weight needs 0.5 s for its first mm, because motors are 0.14 s late
FELL_M_S, HELD_M_S = 3.0, 0.5  # a robot that would fall so fast in the air, and never was even so fast, stands or is
# held. Chosen: 0.3 s with motors that stop at once; 1.5 m/s where they need 0.14 s


class Ground:
    """One robot. ``lifts`` [N]: with less thrust none of its kind hovers
    (:func:`temporeal_bridge.guard.stop_actions.hover_thrust.lifts`). ``flies_s`` [s]: how long after its last command
    its firmware still flies it.

    Attributes:
        lifted_at: when [s] it was last sent so much.
        pushed, fell: the speeds [m/s] that its commands may have given it: upwards on the ground, downwards in the air.
        stands: whether it is known to stand, or to be held, in this mission, until something lifts it.
        floor: whether the mission began on the ground.
    """

    def __init__(self, lifts: float, flies_s: float = FLIES_S) -> None:
        self.lifts, self.flies_s, self.lifted_at = lifts, flies_s, -inf
        self.pushed = self.fell = 0.0
        self.stands = self.floor = False

    def begin(self, height: float, below: float) -> None:
        """A mission begins at ``height`` [m]; below the height ``below`` [m] robots stand on the ground."""
        self.pushed = self.fell = 0.0
        self.stands = self.floor = height < below

    def flies(self, now: float) -> bool:
        """Whether it was lifted a moment ago, so that its firmware still flies it."""
        return now - self.lifted_at < self.flies_s

    def push(self, thrust: float, period: float, now: float, speed: float | None) -> bool:
        """``thrust`` [N] is sent for a ``period`` [s] to a robot that climbs with ``speed`` [m/s] (None: unknown);
        whether it may have left the ground by now."""
        if thrust >= self.lifts:
            self.lifted_at = now
        pushes = GRAVITY * (thrust / self.lifts - 1.0) * period
        self.pushed, self.fell = max(self.pushed + pushes, 0.0), max(self.fell - pushes, 0.0)
        if speed is not None and abs(speed) >= HELD_M_S:  # carried, or in the air, where a climb may turn round
            self.fell, self.stands = 0.0, self.floor
        elif speed is not None and self.fell >= FELL_M_S:
            self.stands = True
        return self.pushed >= LIFTED_M_S
