"""Who plans a mission: at its start, and its rest again whenever a place was hit, and on the way where it is behind.

What is asked of a :class:`Guide` in every control step is the same on a robot, in a simulation and in a replay. A
robot with a short control period plans in pieces, some in each step, and follows the plan before until the new one is
there: its program has the next places, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from temporeal.sim.stl.itineraries.asked import Asked
from temporeal.sim.stl.itineraries.detours import of_formula
from temporeal.sim.stl.itineraries.pieces import Work
from temporeal.sim.stl.itineraries.planner import JUDGED, Judge, Plan, plan, planning
from temporeal.sim.stl.itineraries.regions import Numbers
from temporeal.sim.stl.itineraries.search import Begun, Travel
from temporeal.sim.stl.language.errors import FormulaError

OFTEN = 0.1
"""s: the control period from which on there is time for a whole plan in any step (13 ms at the median, 50 ms at most).
"""
PER_STEP = JUDGED
"""What a robot with a shorter period plans in a step, in small pieces: a batch of the judge, or 25 orders going on."""
LOOK, STILL = 10, 0.3
"""Samples between two looks on the way; share of the way, at the speed of the search, that a robot should have come by
then."""
Ways = Sequence[Asked]


@dataclass(frozen=True)
class Rest:
    """A plan of the rest that is being made: from ``point`` at sample ``now``, of a mission that was ``begun``;
    ``kept``: the order of the plan that is followed; ``around``: on the way, not after a hit."""

    work: Work[Plan | None]
    begun: Begun
    now: int
    point: Numbers
    kept: tuple[tuple[int, ...], ...]
    around: bool


class Guide:
    """Plans one mission. ``dt`` s: control period. ``room`` m: that ways keep from what must be kept out of; 0: none.

    Attributes:
        plan: what is followed now; None: no order of places satisfies the times.
        begun: what was hit before that plan; None: nothing. ``since``, ``place``: sample of the last plan or look, and
            where the robot was [m]. ``entered``: whether it was in the place of the leg under way.
        known: legs of the plan that were hit, when the rest was last planned. rest: a plan that is being made.
    """

    def __init__(self, ways: Ways, travel: Travel, judge: Judge | None, dt: float, room: float = 0.0) -> None:
        self.ways, self.travel, self.judge, self.room = tuple(ways), travel, judge, room
        self.often, self.most = dt >= OFTEN, inf if dt >= OFTEN else PER_STEP
        self.plan: Plan | None = None
        self.begun: Begun | None = None
        self.rest: Rest | None = None
        self.since: int = 0
        self.place: Numbers = (0.0, 0.0, 0.0)
        self.known, self.entered = 0, False

    def begin(self, point: Numbers) -> Plan | None:
        """The plan from the start of a mission."""
        self.rest, self.known, self.entered = None, 0, False
        self._follow(plan(self.ways, point, self.travel, self.judge, room=self.room), None, 0, point)
        return self.plan

    def step(
        self, point: Numbers, now: int, hits: Sequence[float], held: float, ways: Callable[[], Ways] | None = None,
    ) -> Plan | None:
        """To be asked in every control step: the plan of the rest where there is a new one by now; None: what is
        followed stays.

        A plan begins where a leg of the program was hit, or where it is time to look for a likelier way. ``now``,
        ``hits`` [LEGS] (1 + sample, 0: not yet) and ``held`` (samples in the current place) are the follower's memory,
        of which ``hit`` and ``held`` begin at 0 with another program. ``ways``: what is planned, where places move.
        """
        count = sum(1 for hit in hits if hit > 0)
        self.entered = self.entered or held > 0
        if count > self.known:
            self.known, self.entered = count, False
            self.rest = self._begun(point, now, hits[:count], ways, around=False)
        elif self.rest is not None and self.rest.around and held > 0:  # it has come after all
            self.rest = None
        elif self.rest is None and self.due(now, held) and self._behind(point, now):
            self.rest = self._begun(point, now, hits[:count], ways, around=True)
        return None if self.rest is None else self._done(self.rest)

    def due(self, now: int, held: float) -> bool:
        """Whether it is time to look: ``LOOK`` samples after the last plan or look, unless the robot is in its place,
        where it has ``held`` samples."""
        return self.plan is not None and self.judge is not None and now - self.since >= LOOK and held <= 0

    def _behind(self, point: Numbers, now: int) -> bool:
        """Whether a look is worth it: where the control period is too short for a plan in each, only if the robot came
        less than ``STILL`` of the way that it could have."""
        came, could = self.travel(self.place, point, ()), now - self.since
        self.since, self.place = now, point
        return self.often or came < STILL * could

    def _begun(
        self, point: Numbers, now: int, hits: Sequence[float], ways: Callable[[], Ways] | None, around: bool,
    ) -> Rest | None:
        """The plan of the rest after the legs that were hit at ``hits`` [K], begun; None where nothing is left. Who was
        in a place and left it before its time keeps the order: another one may ask that it was never there."""
        if self.plan is None or len(hits) >= len(self.plan.itinerary.groups):
            return None
        if ways is not None:
            self.ways = tuple(ways())
        own = self.plan.itinerary
        before = self.begun or Begun(own.alternative, (), ())
        asked_for = [(group, int(hit) - 1) for group, hit in zip(own.groups, hits) if group]
        begun = Begun(own.alternative, (*before.groups, *(group for group, _ in asked_for)),
                      (*before.times, *(hit for _, hit in asked_for)))
        kept = of_formula(own.groups[len(hits):])
        work = Work(planning(self.ways, point, self.travel, self.judge, now=now, begun=begun, kept=kept, around=around,
                             same=around and self.entered, room=self.room))
        return Rest(work, begun, now, point, kept, around)

    def _done(self, rest: Rest) -> Plan | None:
        """The plan, once it is there and other than what is followed; in no other order, if the robot came to the next
        place meanwhile."""
        try:
            if not rest.work.go_on(self.most):
                return None
            found = rest.work.result
        except (FormulaError, ArithmeticError):  # a rest that a program cannot hold, a place that overflows
            found = None
        self.rest = None
        if self.plan is None or found is None or (self.entered and of_formula(found.itinerary.groups) != rest.kept):
            return None
        new = not (rest.around and np.array_equal(found.program, self.plan.program))
        self._follow(found, rest.begun, rest.now, rest.point)
        if not new:
            return None
        self.known = 0
        return found

    def _follow(self, found: Plan | None, begun: Begun | None, now: int, point: Numbers) -> None:
        self.plan, self.begun, self.since, self.place = found, begun, now, point
