"""The proof of a drawn formula done again, from the file alone: its text parses, its witness moves as the robot can,
and the exact robustness of the formula on it is what is said."""

from __future__ import annotations

from temporeal.sim.stl.distribution.drawing import Drawn, decomposable
from temporeal.sim.stl.distribution.motions import broken_limit, loaded, signals
from temporeal.sim.stl.distribution.settings import World
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import to_text
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.language.sampling import steps
from temporeal.sim.stl.semantics.robustness import robustness

AGREE = 1e-6  # of two robustnesses, m


def fault(found: Drawn, world: World, alternatives: int) -> str | None:
    """What of a formula of a file does not hold; None: its witness proves that it can be satisfied."""
    schema = loaded(world.robot).signals
    try:
        formula = parse(found.formula, schema, found.constants)
        if parse(to_text(formula), schema, found.constants) != formula:
            return "the formula is not read back as it is written"
        ahead = steps(horizon(formula, world.dt), world.dt)
    except (FormulaError, OverflowError) as error:
        return f"the formula is refused: {error}"
    if ahead != found.horizon:
        return f"the formula looks {ahead} samples ahead, and {found.horizon} are said"
    if any(not low <= x <= high for low, x, high in zip(world.low, found.place, world.high)):
        return f"the start {found.place} is outside the arena, {world.low} to {world.high}"
    if (broken := broken_limit(world, found.commands)) is not None:
        return f"the witness moves as the robot cannot: {broken}"
    if not decomposable(formula, world.dt, alternatives):
        return "the formula is not decomposed"
    value = float(robustness(formula, signals(world, found.place, found.heading, found.commands), world.dt)[0])
    if not value >= world.margin:
        return f"the witness satisfies the formula by {value:g}, and not by the margin of {world.margin:g}"
    if abs(value - found.robustness) > AGREE:
        return f"the witness satisfies the formula by {value:g}, and {found.robustness:g} is said"
    return None
