"""The formulas that methods are judged on: held out, drawn by a seed that is for nothing else, and certified.

    formulas = held_out("linear", "unseen", 100, folder)       # the first 100; drawn once, then read and checked

Files are those of ``temporeal spec draw``, in the folder ``sets`` of the benchmark. What trains, tunes or recalibrates
takes any other seed than :data:`SEED`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from temporeal.policies.runs.errors import BadInput
from temporeal.sim.stl.distribution import formula_sets
from temporeal.sim.stl.distribution.checking import fault
from temporeal.sim.stl.distribution.drawing import Drawn, draw
from temporeal.sim.stl.distribution.settings import Family, World, family, world

SEED = 51
"""Of the formulas that judge."""
ROBOTS = ("linear", "unicycle", "quadrotor", "franka", "ant")
FAMILIES = ("validation", "unseen", "deeper", "crowded")
NO_ROOM = (("franka", "crowded"),)
"""There is no room for it (docs/how-to/drawing-formulas.md)."""
COUNT = {"validation": 1000, "unseen": 1000, "deeper": 200, "crowded": 200}
"""Of each robot; the first two are judged."""


def families_of(robot: str) -> tuple[str, ...]:
    """The families that there are of ``robot``."""
    return tuple(name for name in FAMILIES if (robot, name) not in NO_ROOM)


def held_out(robot: str, name: str, count: int, folder: Path) -> list[Drawn]:
    """The first ``count`` formulas of a family, from a file in ``folder``, which is made where it is not there."""
    of, missions = world(robot), family(name)
    path = folder / f"{robot}-{name}-{count}.jsonl"
    if not path.exists():
        write(path, of, missions, count)
    return checked(path, of, missions, count)


def write(path: Path, of: World, missions: Family, count: int) -> None:
    """Draw ``count`` formulas into a file."""
    counts: Counter[tuple[str, str]] = Counter()

    def each() -> Iterator[Drawn]:
        for index in range(count):
            yield draw(of, missions, SEED, index, counts)

    formula_sets.write(
        path, lambda: formula_sets.Header(of, missions, SEED, formula_sets.by_kind(counts)), each())


def checked(path: Path, of: World, missions: Family, count: int) -> list[Drawn]:
    """The formulas of a file, each proof done again; :class:`BadInput` where it is not what these settings draw."""
    header, read = formula_sets.read(path)
    if (header.world, header.family, header.seed) != (of, missions, SEED):
        raise BadInput(f"{path} was drawn from other settings than configs/formulas has now: remove it")
    found = list(read)
    if [one.index for one in found] != list(range(count)):
        raise BadInput(f"{path} has {len(found)} formulas, and the first {count} are needed: remove it")
    for one in found:
        if (wrong := fault(one, of, missions.alternatives)) is not None:
            raise BadInput(f"{path}, index {one.index}: {wrong}")
    return found


def digest(formulas: Sequence[Drawn]) -> str:
    """Of the missions: other places, starts or texts have another."""
    return hashlib.sha256(repr([one.identity() for one in formulas]).encode()).hexdigest()[:16]
