"""A mission before it has places: its formula with windows left open, and the order in which its witness goes.

    draft = Draft(rng, world, family)
    first, then = draft.visit(), draft.visit(after=0)
    draft.mission(f"F[{draft.window(first)}] ({draft.goal(first)} & ...)")

Times are samples. Windows are filled in once the witness has shown how long each part takes: ``{w0}`` is that of visit
0, counted from the hit of the visit that it comes ``after``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from temporeal.sim.stl.distribution.settings import Family, World
from temporeal.sim.stl.language.text import number_text
from temporeal.sim.stl.planning.alternative import seconds

NAMES = "abcdefghijkl"
"""Places by the order in which they are drawn."""
AVOIDED = "o"
"""The first letter of discs to avoid: o1, o2, ..."""


@dataclass(frozen=True)
class Visit:
    """One subgoal.

    Args:
        place: its name. hold: samples for which it is stayed at from the hit on.
        after: index of the visit from whose hit the window counts; None: from the start.
        factor: of the window's end on the time that the witness takes.
        later: share of the window before which a hit does not count.
        closed: places that must not be entered on the way there.
        done: whether the witness goes there; else it is of a branch that it does not take.
    """

    place: str
    hold: int = 0
    after: int | None = None
    factor: float = 1.0
    later: float = 0.0
    closed: tuple[str, ...] = ()
    done: bool = True


@dataclass(frozen=True)
class Response:
    """``G[0,{t}] (at trigger -> F[0,{slot}] answer)``, visits by index; how long after leaving the witness answers says
    what its window is."""

    trigger: int
    answer: int
    slot: str
    factor: float


@dataclass(frozen=True)
class Recurrence:
    """``G[0,{t}] F[0,{slot}] at place``: the witness's longest time without it says what the window is."""

    place: str
    slot: str
    factor: float


@dataclass(frozen=True)
class Mission:
    """A formula to be: ``template`` has ``{w0}`` for the window of visit 0, ``{t}`` and slots for the watches' times.

    Args:
        order: visits that the witness makes, in its order. nearest: it goes to the nearest of them first instead.
        together: all windows that count from the start end when the last one does.
    """

    template: str
    places: tuple[str, ...]
    visits: tuple[Visit, ...]
    order: tuple[int, ...]
    watches: tuple[Response | Recurrence, ...] = ()
    nearest: bool = False
    together: bool = False


class Draft:
    """Draws visits, and numbers their places."""

    def __init__(self, rng: np.random.Generator, world: World, family: Family) -> None:
        self.rng, self.world, self.family = rng, world, family
        self.places: list[str] = []
        self.visits: list[Visit] = []

    def place(self) -> str:
        """A new place's name."""
        self.places.append(NAMES[len(self.places)])
        return self.places[-1]

    def visit(
        self, place: str | None = None, after: int | None = None, closed: Sequence[str] = (), done: bool = True,
        stay: bool = True, later: bool = False,
    ) -> int:
        """A new visit's index; ``stay`` and ``later``: it may be stayed at, its window may begin later."""
        hold = 0
        if stay and self.chance(self.family.stay):
            low, high = (round(x / self.world.dt) for x in self.world.hold_s)
            hold = int(self.rng.integers(low, high + 1))
        share = self.world.wait * self.rng.random() if later and self.chance(self.family.later) else 0.0
        self.visits.append(Visit(self.place() if place is None else place, hold, after, self.factor(), share,
                                 tuple(closed), done))
        return len(self.visits) - 1

    def factor(self) -> float:
        """A factor on a time, log-uniform between the world's ``deadline``."""
        low, high = self.world.deadline
        return exp(log(low) + (log(high) - log(low)) * self.rng.random())

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return bool(self.rng.random() < probability)

    def between(self, ends: tuple[int, int]) -> int:
        """A whole number from the first to the last of ``ends``."""
        return int(self.rng.integers(ends[0], ends[1] + 1))

    def goal(self, visit: int) -> str:
        """Text of being at a visit's place, for as long as it is stayed."""
        hold = number_text(seconds(self.visits[visit].hold, self.world.dt))
        return at(self.visits[visit].place) if hold == "0" else f"G[0,{hold}] {at(self.visits[visit].place)}"

    def reach(self, visit: int, then: str = "") -> str:
        """Text of reaching a visit's place within its window, and ``then`` from there on."""
        return f"F[{window(visit)}] ({self.goal(visit)} & {then})" if then else f"F[{window(visit)}] {self.goal(visit)}"

    def shuffled(self, before: Sequence[tuple[int, int]] = ()) -> tuple[int, ...]:
        """The visits that are done in a random order in which the first of each pair comes before the second."""
        waiting = [i for i, v in enumerate(self.visits) if v.done]
        out: list[int] = []
        while waiting:
            free = [i for i in waiting if not any(b == i and a in waiting for a, b in before)]
            out.append(free[int(self.rng.integers(len(free)))])
            waiting.remove(out[-1])
        return tuple(out)

    def mission(
        self, template: str, order: Sequence[int] | None = None, watches: Sequence[Response | Recurrence] = (),
        nearest: bool = False, together: bool = False,
    ) -> Mission:
        """The mission; ``order``: as drawn where it is left out."""
        done = [i for i, v in enumerate(self.visits) if v.done] if order is None else order
        return Mission(template, tuple(self.places), tuple(self.visits), tuple(done), tuple(watches), nearest, together)


def structure(formula: str) -> str:
    """What is left of a drawn formula's text without its regions, times and stays: ``F (at_1 & F at_2)``.

    Two formulas of one structure differ in where, when and how long. Places are numbered as they occur; what is kept
    throughout is left out.
    """
    body = formula.rsplit(";", 1)[-1].strip().split("\n")[0]
    body = re.sub(r"G (?=at_)", "", re.sub(r"\[[^\]]*\]", "", body))
    number: dict[str, str] = {}
    return re.sub(r"at_\w+", lambda name: number.setdefault(name[0], f"at_{len(number) + 1}"), body)


def at(place: str) -> str:
    """The name of being at a place."""
    return f"at_{place}"


def window(visit: int) -> str:
    """The slot of a visit's window."""
    return f"{{w{visit}}}"


def slot(name: str) -> str:
    """The slot of a time."""
    return f"{{{name}}}"
