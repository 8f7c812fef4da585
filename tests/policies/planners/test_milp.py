"""Plans by mixed-integer linear programming: against brute force, sound, and clear about what it does not take."""

from __future__ import annotations

import dataclasses
import importlib.util
from math import cos, inf, pi
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import OptimizeResult

from temporeal.policies.planners.milp import MILPConfig, plan, solve
from temporeal.policies.planning import affine, milp_program
from temporeal.policies.planning.affine import NotLinear, linearized
from temporeal.policies.planning.problem import judge, problem
from temporeal.policies.planning.receding import Receding
from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.semantics.robustness import satisfied

HERE = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("plan_models", HERE / "plan_models.py")
assert SPEC and SPEC.loader
models = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(models)

SIGNALS = {name: SignalSpec(name, shape, "") for name, shape in {"p": (2,), "v": (2,), "mission_time": ()}.items()}
BEST = MILPConfig(least=None, most=None, gap=0.0)
BOX = "(abs(p.x - 1) < 0.5 & abs(p.y - 1) < 0.5)"


def formula(text):
    return parse(text, SIGNALS)


def one(text, steps, start=(0.0, 0.0), model=None, dt=1.0, past=None):
    return problem(model or models.Point(dt), formula(text), dt, {"p": torch.tensor([start])}, steps, past)


def of(asked, solution):
    return float(judge(asked, torch.tensor(solution.actions, dtype=torch.float32)[None]))


FORMULAS = [
    "F[0,3] (p.x > 2.3)",
    "G[1,3] (p.x > 0.7) & F[2,3] (p.x < 0.4)",
    "F[0,2] (p.x > 0.9 & F[1,1] (p.x < 0.2))",
    "(p.x < 0.6) U[1,3] (p.x > 1.2)",
    "(p.x > -0.5) U[0,3] (p.x < -1.1 | p.x > 1.3)",
    "(p.x > 0.3) R[0,3] (p.x < 0.5)",
    "(p.x < 0.8) W[0,2] (p.x > 0.9)",
    "G[0,2] F[0,1] (abs(p.x - 0.5) < 0.3)",
    "F[0,1] G[0,2] (p.x > 0.4 & p.x < 0.9)",
    "F[1,3] (p.x > 1.1) <-> F[1,3] (p.x < -0.3)",
    "!(G[1,3] (p.x < 0.7)) & !(F[0,3] (p.x > 1.9))",
    "G[0,2] (p.x > 0.5 -> X (p.x < 0.6)) & F[0,3] (p.x > 1)",
    "F[3,3] (p.x > 0.6 & O[1,2] (p.x < -0.4))",
    "F[2,3] ((p.x > -0.2) S[0,2] (p.x < 0.1)) & F[3,3] (p.x > 1.5)",
    "F[0,3] (p.x == 1.25) & G[2,3] (p.x != 1)",
    "F[0,3] (min(p.x, 2 - p.x) - 0.5 * max(p.x, 0.4) > 0.1)",
    "F[0,3] (p.x - mission_time / 2 > 0.2) & G[0,3] (2 * abs(p.x - 0.3) < 1.7)",
    "G[0,9] (p.x < 0.3 | p.x > 0.8) & F (p.x > 0.8)",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_the_optimum_is_that_of_brute_force(text: str) -> None:
    steps = 9 if "[0,9]" in text else 3
    asked = one(text, steps)
    solution = solve(asked, BEST)
    assert solution.robustness == pytest.approx(of(asked, solution), abs=1e-5)  # of the program: the exact one
    assert solution.bound == pytest.approx(solution.robustness, abs=1e-5)
    grid = torch.linspace(-1, 1, 21)
    several = torch.cartesian_prod(*[grid] * 3)
    tried = torch.zeros(len(several), steps, 2)
    tried[:, :3, 0] = several
    best = float(judge(asked.of(torch.zeros(len(tried), dtype=torch.long)), tried).max())
    # an action off the grid moves the three states by 0.05, 0.1 and 0.15 at most; slopes are 2 at most
    assert best - 1e-5 <= solution.robustness <= best + 0.3


def test_the_bound_is_exact_and_by_hand() -> None:
    # 3 m in 3 s at 1 m/s, of which the last must be stood still in: the best compromise between > 2 and < 2 later
    solution = solve(one("F[2,2] (p.x > 2) & F[3,3] (p.x < 2.5)", 3), BEST)
    assert solution.robustness == pytest.approx(0.0, abs=1e-6)  # p.x is 2 at most after 2 s
    solution = solve(one("F[0,3] (p.x > 1 & p.x < 2)", 3), BEST)
    assert solution.robustness == pytest.approx(0.5, abs=1e-6)
    assert solution.binaries == 4  # one for each sample that may reach it: nothing else is a choice


@pytest.mark.parametrize(("text", "start"), [
    (f"F[0,6] {BOX} & G[0,6] !(abs(p.x) < 0.4 & abs(p.y) < 0.4)", (-1.0, -1.0)),
    ("F[0,6] (norm(p - [1, 1]) < 0.4) & G[0,6] (norm(p) > 0.6)", (-1.0, -1.0)),
    ("F[0,4] (norm(p - [1, -1]) < 0.4 & F[0,4] (norm(p - [1, 1]) < 0.4)) & G[0,8] (norm(p) > 0.6)", (-1.0, -1.0)),
    (f"!{BOX} U[0,5] (norm(p - [-1, 1]) < 0.4) & F[0,8] {BOX}", (-1.0, -1.0)),
    (f"(F[0,6] G[0,2] {BOX} | F[0,2] (p.x < -9)) & G[0,8] (p.y < 1.2)", (-1.0, -1.0)),
])
def test_small_missions_are_solved(text: str, start) -> None:
    asked = one(text, 16 if "[0,8]" in text or "G[0,2]" in text else 12, start, dt=0.5)
    solution = solve(asked, MILPConfig())
    assert 0.001 <= solution.robustness <= of(asked, solution) + 1e-5
    states = [torch.tensor([start])]
    for action in torch.tensor(solution.actions, dtype=torch.float32):
        states.append(asked.model.step(states[-1], action[None]))
    assert bool(satisfied(asked.formula, {"p": torch.stack(states)}, 0.5)[0, 0])


def test_a_disc_becomes_a_polygon_inside_it_and_outside_of_it() -> None:
    inside = one("G[2,2] (norm(p - [0, 0]) < 1)", 2)
    solution = solve(inside, BEST)
    assert solution.robustness == pytest.approx(1.0, abs=1e-5)  # in the middle both are 1
    asked = one("F[2,2] (norm(p) < 1)", 2, (3.0, 0.3))
    for sides in (3, 4, 16, 64):
        solution = solve(asked, dataclasses.replace(BEST, sides=sides))
        # 2 steps of (-1, -0.15) lead to (1, 0): a margin of 0, of the program at most a polygon's error worse
        exact = of(asked, solution)
        assert solution.robustness <= exact + 1e-6 <= 1e-5 + 0.0
        assert solution.robustness >= 1 - 1 / cos(pi / sides) - 1e-5
    away = one("G[2,2] (norm(p) > 1)", 2, (0.1, 0.0))
    for facets in (3, 4, 8):
        solution = solve(away, dataclasses.replace(BEST, facets=facets))
        assert solution.robustness <= of(away, solution) + 1e-6
        assert solution.robustness >= 1.0  # 2.1 along the first facet


def test_lengths_with_what_does_not_move() -> None:
    shapes = affine.Shapes({"p": np.array([[1.0, 0, 0], [0, 0, 3]])}, 16, 8)  # x, and 3
    length = formula("norm(p - [0, 0]) < 1").left
    above, below = (affine.under(length, positive, shapes) for positive in (True, False))
    for x in np.linspace(-5, 5, 41):
        at = np.array([x, 0.0, 1.0])
        assert max(row @ at for row in above.args) <= np.hypot(x, 3) + 1e-9
        assert min(row @ at for row in below.args) <= -np.hypot(x, 3) + 1e-9


def test_the_matrices_of_a_model() -> None:
    cart = models.Cart(0.5)
    start = {"p": torch.tensor([[1.0, 2.0]]), "v": torch.tensor([[0.5, -0.5]])}
    asked = problem(cart, formula("F[0,1] (p.x + v.y > 0)"), 0.5, start, 4)
    system = linearized(asked)
    eye = np.eye(2)
    np.testing.assert_allclose(system.a, np.block([[eye, 0.5 * eye], [0 * eye, eye]]), atol=1e-5)
    np.testing.assert_allclose(system.b, np.concatenate([0.125 * eye, 0.5 * eye]), atol=1e-5)
    np.testing.assert_allclose(system.c, 0, atol=1e-5)
    np.testing.assert_allclose(system.start, [1, 2, 0.5, -0.5])
    np.testing.assert_allclose(system.signals["v"], np.eye(6)[2:4], atol=1e-5)


def test_a_double_integrator_stops_in_the_box() -> None:
    text = "F[0,6] G[0,1] (abs(p.x - 1) < 0.2 & abs(p.y) < 0.2 & abs(v.x) < 0.1)"
    start = {"p": torch.zeros(2, 2), "v": torch.tensor([[0.0, 0.0], [0.8, 0.0]])}
    found = plan(models.Cart(0.5), formula(text), 0.5, start, 14, MILPConfig(most=0.05))
    assert found.actions.shape == (2, 14, 2) and bool((found.robustness >= 0.05 - 1e-4).all())
    assert bool((found.actions.abs() <= 1).all())


def test_reach_bounds_leave_out_what_cannot_be() -> None:
    # 5 m away: nothing before 5 s; without the bounds there would be one binary for each of 8 samples
    assert solve(one("F[0,7] (p.x > 5)", 7), dataclasses.replace(BEST, least=0.001)).binaries <= 2
    far = one("F[0,3] (p.x > 9)", 3)
    assert solve(far, MILPConfig())[:3] == (None, -inf, -6.0)
    assert solve(far, MILPConfig(least=None)).robustness == pytest.approx(-6.0, abs=1e-6)
    found = plan(far.model, far.formula, 1.0, {"p": torch.zeros(1, 2)}, 3, MILPConfig())
    assert not found.actions.any() and float(found.robustness) == -9.0


FAILS = ("F[0,4] ((p.y > 0.5 & 1 - abs(p.x) > min(p.y, 0.4)))", (0.9870250084253704, -0.09737130891890011))
"""HiGHS says "Solve error" of this program (scipy 1.17.1), with its presolve."""


def test_a_program_on_which_the_solver_fails_is_tried_once_more_without_presolve(monkeypatch) -> None:
    asked = one(FAILS[0], 4, FAILS[1])
    solution = solve(asked, BEST)
    assert solution.robustness == pytest.approx(0.6, abs=1e-5) == pytest.approx(of(asked, solution), abs=1e-5)
    told, real = [], milp_program.milp

    def failing_once(*args, options, **given):
        told.append(options["presolve"])
        found = real(*args, options=options, **given)
        return OptimizeResult(x=None, status=4, message="Solve error") if len(told) == 1 else found

    monkeypatch.setattr(milp_program, "milp", failing_once)  # whatever the version fails on
    assert solve(one("F[0,3] (p.x > 1)", 3), BEST).robustness == pytest.approx(2.0, abs=1e-6) and told == [True, False]


def test_a_program_on_which_the_solver_fails_twice_is_not_called_infeasible(monkeypatch) -> None:
    monkeypatch.setattr(milp_program, "milp", lambda *_, **__: OptimizeResult(x=None, status=4, message="Solve error"))
    asked = one("F[0,3] (p.x > 1)", 3)
    with pytest.raises(milp_program.SolverFailed, match="with its presolve and without it: Solve error"):
        solve(asked, BEST)
    with pytest.warns(UserWarning, match="robot 0 has no plan of its own: HiGHS failed"):
        found = plan(asked.model, asked.formula, 1.0, {"p": torch.zeros(1, 2)}, 3, MILPConfig())
    assert not found.actions.any()


def test_feasible_effort_and_held_actions() -> None:
    asked = one("F[0,6] (p.x > 2) & G[0,6] (p.y > -1)", 6)
    feasible = solve(asked, MILPConfig(objective="feasible", least=0.25))
    assert of(asked, feasible) >= 0.25 - 1e-5
    least = solve(asked, MILPConfig(least=0.25, most=0.25, effort=1.0))
    assert np.abs(least.actions).sum() == pytest.approx(2.25, abs=1e-4)  # 2.25 m at 1 m/s, and nothing sideways
    held = solve(asked, MILPConfig(hold=4, least=None, most=None))
    assert (held.actions[:4] == held.actions[0]).all() and (held.actions[4:] == held.actions[4]).all()
    assert held.robustness == pytest.approx(1.0, abs=1e-5)  # y: 0 - -1; x: at most 4


def test_what_was_seen_counts_as_it_was() -> None:
    text = "F[0,2] (p.x > 1) & F[0,5] (p.x < -1) & G[0,5] (p.y < 1)"
    past = {"p": torch.tensor([[[0.0, 0.0]], [[1.5, 0.25]]])}
    asked = one(text, 3, (0.0, 0.0), past=past)
    solution = solve(asked, BEST)
    assert solution.robustness == pytest.approx(0.5, abs=1e-5) == pytest.approx(of(asked, solution), abs=1e-5)
    missed = one(text, 3, (0.0, 0.0), past={"p": torch.zeros(3, 1, 2)})
    assert solve(missed, BEST).robustness == pytest.approx(-1.0, abs=1e-5)


def test_a_receding_horizon_makes_up_for_a_slower_plant() -> None:
    text, start = "F[0,8] (abs(p.x - 3) < 0.3) & G[0,8] (p.x < 3.5)", {"p": torch.zeros(1, 2)}
    plant, config = models.Point(0.5, speed=0.75), MILPConfig(most=0.25)
    arguments = (plan, models.Point(0.5), formula(text), 0.5, 16, config, None)
    once, again = (models.pursue(Receding(*arguments, every=every), plant, formula(text), 0.5, start, 16)
                   for every in (0, 4))
    assert float(once.robustness) < 0 < float(again.robustness)


@pytest.mark.parametrize(("text", "told"), [
    ("F[0,3] (sin(p.x) > 0)", r"predicate sin\(p.x\) > 0: sin\(p.x\) is not affine"),
    ("F[0,3] (p.x * p.y > 0)", r"predicate p.x \* p.y > 0"),
    ("F[0,3] (1 / p.x > 0)", "predicate 1 / p.x > 0"),
    ("F[0,3] (norm(p * p.x) > 0)", "not affine"),
    ("F[0,3] (hypot(abs(p.x), p.y) > 0)", "length of what is not affine"),
])
def test_predicates_that_are_not_affine_are_named(text: str, told: str) -> None:
    with pytest.raises(NotLinear, match=told):
        solve(one(text, 3), MILPConfig())


def test_models_and_lengths_that_do_not_fit_are_named() -> None:
    start = {"p": torch.zeros(1, 2), "heading": torch.zeros(1)}
    with pytest.raises(NotLinear, match="Unicycle.step.*not affine"):
        plan(models.Unicycle(0.5), formula("F[0,1] (p.x > 0)"), 0.5, start, 2, MILPConfig())
    class Spatial(models.Cart):
        def signals(self, state):
            return {"p": state[:, :2], "w": state[:, :3]}
    schema = {**SIGNALS, "w": SignalSpec("w", (3,), "")}
    start = {"p": torch.zeros(1, 2), "v": torch.zeros(1, 2)}
    with pytest.raises(NotLinear, match="a length in 3 dimensions"):
        plan(Spatial(0.5), parse("F[0,1] (norm(w) > 1)", schema), 0.5, start, 2, MILPConfig())
    with pytest.raises(FormulaError, match="no multiple"):
        plan(models.Point(0.5), formula("F[0,0.7] (p.x > 0)"), 0.5, start, 2, MILPConfig())


@pytest.mark.parametrize(("settings", "told"), [
    ({"objective": "best"}, "objective is 'best'"), ({"sides": 2}, "sides is 2"), ({"facets": 0}, "facets is 0"),
    ({"hold": 0}, "hold must be"), ({"seconds": 0}, "seconds must be"), ({"gap": -1}, "gap must not"),
    ({"least": 0.5, "most": 0.2}, "least <= most"), ({"objective": "feasible", "least": None}, "least is a number"),
])
def test_settings_that_cannot_work_are_refused(settings, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        MILPConfig(**settings)
