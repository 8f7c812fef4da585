"""Whether a quadrotor stands on the ground, on a table or in a hand, as far as the guard's own commands tell.

A stop that levels starts motors: not those of a robot that nothing has lifted. Where that is, its height does not say
(a table, a hand), and a mission may begin in the air, where somebody else flew the robot. What was sent does: with less
than ``lifts`` none flies, and who is in the air falls by that.
"""

from __future__ import annotations

from math import inf

from temporeal_bridge.guard.hover_thrust import GRAVITY

FLIES_S = 1.5  # so long after the last command a Crazyflie still flies: it levels out with its thrust, which it cuts
# after 2 s (supervisor.c). Chosen: 0.5 s less, for what the radio loses and the next command takes
LIFTED_M_S = 2.0  # who was sent what would make the lightest and strongest so fast has left the ground. Chosen: who
# takes off with 1.05 of its weight needs 0.5 s for its first mm, for its motors are 0.14 s late
FELL_M_S, HELD_M_S = 3.0, 0.5  # who would fall so fast at least by what it was sent, were it in the air, and never was
# even so fast meanwhile, stands or is held. Chosen: with motors that stop at once 0.3 s, 1.5 m/s where they need 0.14 s


class Ground:
    """Of one robot. ``lifts`` [N]: with less thrust none of its kind hovers
    (:func:`temporeal_bridge.guard.hover_thrust.lifts`).

    ``lifted_at`` [s]: when it was last sent so much. ``pushed``, ``fell`` [m/s]: how fast it may have become by what it
    was sent, upwards on the ground, and downwards in the air. ``stands``: whether it is known to stand, or to be held,
    in this mission, as long as nothing lifts it; ``floor``: it began there.
    """

    def __init__(self, lifts: float) -> None:
        self.lifts, self.lifted_at = lifts, -inf
        self.pushed = self.fell = 0.0
        self.stands = self.floor = False

    def begin(self, height: float, below: float) -> None:
        """A mission begins at ``height`` [m]; ``below`` [m] robots stand on the ground."""
        self.pushed = self.fell = 0.0
        self.stands = self.floor = height < below

    def flies(self, now: float) -> bool:
        """Whether it was lifted a moment ago, so that its firmware still flies it."""
        return now - self.lifted_at < FLIES_S

    def push(self, thrust: float, period: float, now: float, speed: float | None) -> bool:
        """``thrust`` [N] is sent for a ``period`` [s] to a robot that moves up with ``speed`` [m/s] (None: nobody says
        so); whether it may have left the ground by now."""
        if thrust >= self.lifts:
            self.lifted_at = now
        pushes = GRAVITY * (thrust / self.lifts - 1.0) * period
        self.pushed, self.fell = max(self.pushed + pushes, 0.0), max(self.fell - pushes, 0.0)
        if speed is not None and abs(speed) >= HELD_M_S:  # it is carried, or in the air, where a climb may turn round
            self.fell, self.stands = 0.0, self.floor
        elif speed is not None and self.fell >= FELL_M_S:
            self.stands = True
        return self.pushed >= LIFTED_M_S
