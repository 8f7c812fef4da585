"""Formulas with a certificate, drawn by a seed: the same seed, family and world give the same formulas.

    found = draw(world("linear"), family("train"), seed=1, index=0)
    found.formula, found.constants, found.start      # of task=stl; found.commands: its witness

Each (family, seed, index) has a random stream of its own, so that no two families share one. The kind is drawn once;
what cannot be certified is drawn again within the kind, so that shares are as set, and counted by reason.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from temporeal.robots.registry import guess
from temporeal.sim.stl.distribution.kinds import KINDS
from temporeal.sim.stl.distribution.missions import Draft, Mission, at
from temporeal.sim.stl.distribution.motions import Floats, loaded, signals
from temporeal.sim.stl.distribution.regions import Layout, layout
from temporeal.sim.stl.distribution.settings import Family, World
from temporeal.sim.stl.distribution.witness import NoWitness, Performance, perform
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.language.sampling import steps
from temporeal.sim.stl.language.text import number_text
from temporeal.sim.stl.planning.alternative import seconds
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.semantics.robustness import robustness

CERTIFIED = "certified"
SEEDS = 2**63
DIGITS = 6
"""After the point, of a mission's numbers: what is drawn has three."""


@dataclass(frozen=True)
class Drawn:
    """A formula that can be satisfied, and the proof.

    Args:
        formula: its text over the robot's signals; ``constants``: its numbers and places by name.
        place: of the start, [3] m, at rest; ``heading`` rad.
        horizon: samples. commands: of the witness, float32 [horizon, A]; robustness: of the formula on it.
    """

    family: str
    kind: str
    seed: int
    index: int
    formula: str
    constants: Mapping[str, Any]
    place: tuple[float, float, float]
    heading: float
    horizon: int
    commands: Floats
    robustness: float

    def identity(self) -> tuple[object, ...]:
        """Equal of equal missions: text, numbers and start, to :data:`DIGITS`."""
        def rounded(x: Any) -> Any:
            return tuple(map(rounded, x)) if isinstance(x, (list, tuple)) else round(float(x), DIGITS)

        numbers = tuple((name, rounded(x)) for name, x in sorted(self.constants.items()))
        return self.formula, numbers, rounded(self.place), rounded(self.heading)


def draw(world: World, family: Family, seed: int, index: int, counts: Counter[tuple[str, str]] | None = None) -> Drawn:
    """Formula number ``index`` of ``seed``; ``counts`` gets every try by (kind, outcome).

    Raises:
        ValueError: the settings leave no formula, or the seed is none.
    """
    check_shares(family)
    for name, value in (("seed", seed), ("index", index)):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < SEEDS:
            raise ValueError(f"{name} is {value!r}; a whole number of 0 to 2^63 - 1 is legal")
    rng = stream(world, family, seed, index)
    kind = drawn_kind(rng, family)
    counts = Counter() if counts is None else counts
    own: Counter[str] = Counter()
    for _ in range(family.attempts):
        found, outcome = _tried(rng, world, family, kind)
        counts[kind, outcome] += 1
        own[outcome] += 1
        if found is not None:
            return Drawn(family.name, kind, seed, index, **found)
    why = ", ".join(f"{reason} ({count})" for reason, count in own.most_common())
    raise ValueError(f"family {family.name}, kind {kind}, seed {seed}, index {index}: none of {family.attempts} tries "
                     f"was certified: {why}. Smaller radii, fewer discs, a longer horizon_s or more attempts help")


def stream(world: World, family: Family, seed: int, index: int) -> np.random.Generator:
    """The random numbers of one formula; no other family, robot, seed or index has them."""
    return np.random.default_rng(np.random.SeedSequence(
        [zlib.crc32(f"{family.name}/{world.robot}".encode()), seed, index]))


def drawn_kind(rng: np.random.Generator, family: Family) -> str:
    """A kind by its share: the first draw of a formula's stream."""
    weights = np.array(list(family.shares.values()), float)
    return list(family.shares)[int(rng.choice(len(weights), p=weights / weights.sum()))]


def task_settings(found: Drawn, world: World) -> dict[str, Any]:
    """Settings of ``task=stl`` that begin at the drawn start."""
    return {"system": world.system, "formula": found.formula, "constants": dict(found.constants),
            "start": start_settings(world, found.place, found.heading)}


def start_settings(world: World, place: Sequence[float], heading: float) -> dict[str, Any]:
    """Settings of the system's start at ``place`` [3] m and ``heading`` rad."""
    corner = list(place[: len(world.low)])
    start = {"low": corner, "high": corner} if world.home is None else {}
    return {**start, **({"heading": [heading] * 2} if world.headed else {}), **world.start}


def check_shares(family: Family) -> None:
    """A ValueError where ``family`` has a share of a kind that is none."""
    for name in family.shares:
        if name not in KINDS:
            raise ValueError(f"family {family.name}: no kind {name!r}; {guess(name, KINDS)}known: {', '.join(KINDS)}")


def _tried(rng: np.random.Generator, world: World, family: Family, kind: str) -> tuple[dict[str, Any] | None, str]:
    """One try: what it drew, or None and why."""
    mission = KINDS[kind](Draft(rng, world, family))
    discs = int(rng.choice(len(family.avoid), p=np.asarray(family.avoid) / sum(family.avoid)))
    around = layout(rng, world, mission.places, discs)
    if around is None:
        return None, "no room"
    try:
        shown = perform(mission, around, world)
    except NoWitness as error:
        return None, str(error)
    text, constants = written(mission, around, shown, world)
    formula = parse(text, loaded(world.robot).signals, constants)
    if not decomposable(formula, world.dt, family.alternatives):
        return None, "not decomposable"
    if steps(horizon(formula, world.dt), world.dt) != shown.horizon:
        return None, "the horizon is not the witness's"
    value = float(robustness(formula, signals(world, around.start, around.heading, shown.commands), world.dt)[0])
    if not value >= world.margin:
        return None, "robustness below the margin"
    return {"formula": text, "constants": constants, "place": around.start, "heading": around.heading,
            "horizon": shown.horizon, "commands": shown.commands, "robustness": value}, CERTIFIED


def decomposable(formula: Formula, dt: float, alternatives: int) -> bool:
    """Whether the decomposition has at least one way, and at most so many combinations."""
    try:
        found = decompose(formula, dt, strict=True)
    except FormulaError:
        return False
    return 0 < found.count <= alternatives and next(iter(found), None) is not None


def written(
    mission: Mission, around: Layout, shown: Performance, world: World
) -> tuple[str, dict[str, Any]]:
    """The formula's text and its constants."""
    def number(samples: int) -> str:
        return number_text(seconds(samples, world.dt))

    slots = {f"w{i}": f"{number(lo)},{number(hi)}" for i, (lo, hi) in shown.windows.items()}
    slots |= {name: number(samples) for name, samples in shown.times.items()}
    names = [f"{at(name)} = {world.named(world.place, name)};" for name in around.places]
    names += [f"clear_{name} = {world.named(world.avoid, name)};" for name in around.avoided]
    body, end = mission.template.format(**slots), number(shown.horizon)
    kept = [" & ".join(f"clear_{name}" for name in around.avoided)] if around.avoided else []
    lines = [*names, body, *(f"& G[0,{end}] ({state})" for state in (*kept, world.keep))]
    constants: dict[str, Any] = {}
    for name, region in (*around.places.items(), *around.avoided.items()):
        constants |= {name: list(region.center), f"{name}_r": region.radius}
    return "\n".join(lines), {**constants, **world.constants}
