"""Regions are read off formulas: what a point is inside of is what the drawn shape contains."""

from __future__ import annotations

import numpy as np
import pytest

from temporeal.robots.registry import resolve
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.queries import predicates_in
from temporeal.sim.stl.semantics.robustness import margin
from temporeal.sim.task import task_schema
from temporeal.sim.task_parts.regions import shapes_of

PARTS = {
    "sphere": "norm(base_pos_w - a) < 0.5", "distance": "dist(base_pos_w, a) < 0.5",
    "pillar": "hypot(base_pos_w.x - a.x, base_pos_w.y - a.y) < 0.5",
    "box": "max(abs(base_pos_w.x - w.0) - w.2, abs(base_pos_w.y - w.1) - w.3) < 0"}  # fmt: skip
CONSTANTS = {"a": (0.4, -0.3, 1.0), "w": (0.2, 0.5, 0.3, 0.6)}


def shapes(text, name="quadrotor", constants=CONSTANTS):
    system = resolve("temporeal.sim.systems", name).make()
    formula = parse(text, task_schema(system.scene), constants)
    return {shape["name"]: shape for shape in shapes_of(formula, system)}, formula


def contains(shape, place):
    """Whether the shape contains places [K, 3], height aside where it has none of its own."""
    if shape["type"] == "box":
        return ((place > np.array(shape["low"])) & (place < np.array(shape["high"]))).all(-1)
    size = 3 if shape["type"] == "sphere" else 2
    return np.linalg.norm(place[:, :size] - np.array(shape["center"])[:size], axis=-1) < shape["radius"]


@pytest.mark.parametrize("part", PARTS)
def test_a_shape_is_the_region(part):
    found, formula = shapes(f"F[0,5] ({PARTS[part]})")
    place = np.random.default_rng(0).uniform((-1.5, -1.5, 0.1), (1.5, 1.5, 2.0), (2000, 3))
    shape = found["w" if part == "box" else "a"]
    inside = margin(next(predicates_in(formula)), {"base_pos_w": place}) > 0
    assert inside.sum() > 20 and np.array_equal(contains(shape, place), inside)


@pytest.mark.parametrize(("text", "role"), [
    ("G[0,5] !({})", "avoid"), ("F[0,5] ({})", "goal"), ("(!({}) U[0,5] ({})) ", "goal"),
    ("G[0,5] (({}) -> height > 1)", "avoid"), ("F[0,5] G[0,1] !!({})", "goal"),
    ("G[0,5] !({}) & F[0,3] (height > 1)", "avoid")])  # fmt: skip
@pytest.mark.parametrize("part", PARTS)
def test_the_role_is_what_the_formula_asks_for(part, text, role):
    found, _ = shapes(text.format(*[PARTS[part]] * text.count("{}")))
    assert found["w" if part == "box" else "a"]["role"] == role


def test_the_arena_is_the_formulas_or_the_systems():
    found, _ = shapes("G[0,5] (max(abs(base_pos_w.x), abs(base_pos_w.y)) < 3)", "linear")
    assert found == {
        "fence": {"type": "box", "name": "fence", "role": "fence", "low": [-3, -3, 0], "high": [3, 3, 0.3]}}
    found, _ = shapes("F[0,5] (height > 1)")
    assert (found["fence"]["low"], found["fence"]["high"]) == ([-2.5, -2.5, 0.0], [2.5, 2.5, 2.5])


def test_what_has_no_form_is_left_out():
    odd = "F[0,5] (base_pos_w.x + base_pos_w.y < 1 & norm(base_vel_w) < 1 & norm(base_pos_w) < height)"
    assert list(shapes(odd)[0]) == ["fence"]


@pytest.mark.parametrize(("text", "role"), [
    ("F[0,5] (0.5 > norm(a - base_pos_w))", "goal"), ("G[0,5] (0.5 < dist(a, base_pos_w))", "avoid")])
def test_a_comparison_is_read_from_either_side(text, role):
    """As planners read it: what is flown to is what is drawn."""
    one, _ = shapes(text)
    assert one == {**one, "a": {"type": "sphere", "name": "a", "center": [0.4, -0.3, 1.0], "radius": 0.5, "role": role}}


@pytest.mark.parametrize("text", [
    "base_pos_w.z > 1", "abs(base_pos_w.x - a.x) < 1", "hypot(base_pos_w.x - a.x, base_pos_w.z - a.z) < 1",
    "norm(base_vel_w - a) < 1"])
def test_regions_that_planners_read_and_nobody_can_draw_are_left_out(text):
    assert list(shapes(f"F[0,5] ({text})")[0]) == ["fence"]


def test_places_without_names_are_told_apart_by_where_they_are():
    """Reached and kept out of one place, then another: two shapes, the first a goal."""
    where = "norm(base_pos_w - [{}, 0, 1])"
    one, two = where.format(1), where.format(2)
    found, _ = shapes(f"G[0,5] ({one} > r) & F[0,5] ({one} < r) & G[0,5] ({two} > r)", constants={"r": 0.2})
    first, second, _ = found.values()
    assert (first["center"], first["role"], second["center"], second["role"]) == (
        [1, 0, 1], "goal", [2, 0, 1], "avoid")


def test_in_the_plane_goals_are_disks():
    found, _ = shapes("F[0,5] (norm(base_pos_w - a) < 0.5)", "unicycle", {"a": (1, 2, 0)})
    assert found["a"] == {"type": "cylinder", "height": 0.02, "name": "a", "center": [1, 2, 0], "radius": 0.5,
                          "role": "goal"}
