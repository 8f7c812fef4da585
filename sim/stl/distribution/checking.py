"""The proof of a drawn formula done again, from the file alone: its text parses, its witness moves as the robot can,
the exact robustness of the formula on it is what is said, and its seed draws it; the set is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from temporeal.sim.stl.distribution.drawing import CERTIFIED, Drawn, decomposable, draw
from temporeal.sim.stl.distribution.formula_sets import Header, by_kind
from temporeal.sim.stl.distribution.motions import broken_limit, loaded, signals
from temporeal.sim.stl.distribution.settings import Family, World, comes_along
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula, to_text
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.language.sampling import steps
from temporeal.sim.stl.semantics.robustness import robustness

AGREE = 1e-6  # of two robustnesses, m
Counts = Counter[tuple[str, str]]
"""Tries by kind and outcome."""


def fault(found: Drawn, world: World, alternatives: int) -> str | None:
    """What of a formula of a file does not hold; None: its witness proves that it can be satisfied."""
    schema = loaded(world.robot).signals
    try:
        formula = parse(found.formula, schema, found.constants)
        if parse(to_text(formula), schema, found.constants) != formula:
            return "the formula is not read back as it is written"
        ahead = steps(horizon(formula, world.dt), world.dt)
    except (ValueError, OverflowError) as error:
        return f"the formula is refused: {error}"
    if ahead != found.horizon:
        return f"the formula looks {ahead} samples ahead, and {found.horizon} are said"
    if any(not low <= x <= high for low, x, high in zip(world.low, found.place, world.high)):
        return f"the start {found.place} is outside the arena, {world.low} to {world.high}"
    if (broken := broken_limit(world, found.commands)) is not None:
        return f"the witness moves as the robot cannot: {broken}"
    return _unproven(found, formula, world, alternatives)


def _unproven(found: Drawn, formula: Formula, world: World, alternatives: int) -> str | None:
    """What the witness, which the robot can do, does not show of the ``formula``."""
    try:
        if not decomposable(formula, world.dt, alternatives):
            return "the formula is not decomposed"
        seen = signals(world, found.place, found.heading, found.commands)
        value = float(robustness(formula, seen, world.dt)[0])
    except (ValueError, OverflowError) as error:  # one that reads no signal, or one that the witness does not have
        return f"the formula is not judged on the witness: {error}"
    if not value >= world.margin:
        return f"the witness satisfies the formula by {value:g}, and not by the margin of {world.margin:g}"
    if abs(value - found.robustness) > AGREE:
        return f"the witness satisfies the formula by {value:g}, and {found.robustness:g} is said"
    return None


def unlike_its_seed(found: Drawn, world: World, family: Family, counts: Counts) -> str | None:
    """How a formula differs from what its family, seed and index draw; ``counts`` gets the tries."""
    try:
        drawn = draw(world, family, found.seed, found.index, counts)
    except ValueError as error:
        return f"it is not drawn: {error}"
    names = "formula", "constants", "place", "heading"
    wrong = [name for name, one, other in zip(names, found.identity(), drawn.identity()) if one != other]
    wrong += [name for name in ("kind", "horizon") if getattr(found, name) != getattr(drawn, name)]
    if not wrong:
        return None
    return f"family {family.name}, seed {found.seed}, index {found.index} draw another {', '.join(wrong)}"


def not_whole(header: Header, indices: Sequence[int], counts: Counts) -> list[str]:
    """What of a set is not as its header says; ``counts``: tries of drawing its formulas again."""
    said = {kind: outcomes.get(CERTIFIED, 0) for kind, outcomes in header.counts.items()}
    if sum(said.values()) != len(indices):
        return [f"the header counts {sum(said.values())} formulas, and {len(indices)} are there"]
    out = []
    if list(indices) != list(range(indices[0], indices[0] + len(indices))):
        out.append("the indices are not one after the other")
    if (again := by_kind(counts)) != header.counts:
        out.append(f"the header's counts are {header.counts}, and drawing again gives {again}")
    return out


def own_settings(header: Header) -> list[str]:
    """What of ``world`` and ``family`` is not that of the same name in ``configs/formulas``."""
    return [name for name in ("world", "family") if not comes_along(getattr(header, name))]
