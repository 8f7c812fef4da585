"""What planners share, and the cross-entropy method: on a point and a unicycle, judged by exact robustness."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from temporeal.policies.planners import cem
from temporeal.policies.planners.cem import CEMConfig
from temporeal.policies.planning.problem import Plan, better, judge, judged, problem, rollout, smoothed, trace
from temporeal.policies.planning.receding import Receding
from temporeal.policies.planning.splines import basis
from temporeal.robots.registry import resolve
from temporeal.robots.signals import SignalError, SignalSpec
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.semantics.robustness import robustness
from temporeal.sim.system import states_after

HERE = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("plan_models", HERE / "plan_models.py")
assert SPEC and SPEC.loader
models = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(models)

SIGNALS = {name: SignalSpec(name, shape, "") for name, shape in {"p": (2,), "v": (2,), "mission_time": ()}.items()}
REACH = "F[0,8] (norm(p - [1, 1]) < 0.4) & G[0,8] (norm(p) > 0.6)"
SEQUENCE = "F[0,6] (norm(p - [1, -1]) < 0.4 & F[0,4] (norm(p - [1, 1]) < 0.4)) & G[0,10] (norm(p) > 0.6)"
UNTIL = "(norm(p - [1, 1]) > 0.6) U[0,5] (norm(p - [-1.5, 1]) < 0.4) & F[0,10] (norm(p - [1, 1]) < 0.5)"
MISSIONS = {REACH: 16, SEQUENCE: 20, UNTIL: 20}
DT = 0.5


def formula(text):
    return parse(text, SIGNALS)


def starts(model, count, seed=0):
    out = models.spread(count, torch.Generator().manual_seed(seed))
    return {**out, "heading": torch.zeros(count)} if isinstance(model, models.Unicycle) else out


def asked(text=REACH, steps=16, count=3, model=None, **more):
    model = model or models.Point(DT)
    return problem(model, formula(text), DT, starts(model, count), steps, **more)


# ---------------------------------------------------------------- cross-entropy


@pytest.mark.parametrize("model", [models.Point(DT), models.Unicycle(DT)], ids=["point", "unicycle"])
@pytest.mark.parametrize("text", MISSIONS)
def test_cem_solves_small_missions(text: str, model) -> None:
    config = CEMConfig(knots=10, population=128, elites=12)
    signals, generator = starts(model, 12), torch.Generator().manual_seed(1)
    found = cem.plan(model, formula(text), DT, signals, MISSIONS[text], config, generator)
    assert found.actions.shape == (12, MISSIONS[text], 2) and bool((found.actions.abs() <= 1).all())
    state, seen = model.state(signals), [signals["p"]]
    for action in found.actions.unbind(1):
        state = model.step(state, action)
        seen.append(model.signals(state)["p"])
    exact = robustness(formula(text), {"p": torch.stack(seen)}, DT)[0]
    torch.testing.assert_close(found.robustness, exact)
    assert bool((exact >= config.enough).all())


def test_cem_finds_the_optimum_of_a_task_by_hand() -> None:
    # 2 m in 4 steps at 0.5 m each, at rest after that: margin min(2 - 1.5, 2.25 - 2) would be 0.25 at best in between
    text = "G[2,3] (p.x > 1.5 & p.x < 2.25)"
    config = CEMConfig(knots=0, enough=None, iterations=30, min_std=0.002)
    found = cem.plan(models.Point(DT), formula(text), DT, {"p": torch.zeros(1, 2)}, 6, config,
                     torch.Generator().manual_seed(0))
    assert 0.36 < float(found.robustness) <= 0.375


def test_cem_repeats_itself_and_rows_change_nothing() -> None:
    def found(seed, **settings):
        config = CEMConfig(population=32, elites=4, iterations=3, enough=None, **settings)
        return cem.plan(models.Point(DT), formula(REACH), DT, starts(None, 3), 16, config,
                        torch.Generator().manual_seed(seed))

    first, again, other, parts = found(0), found(0), found(1), found(0, rows=7)
    assert torch.equal(first.actions, again.actions) and torch.equal(first.actions, parts.actions)
    assert not torch.equal(first.actions, other.actions)


def test_cem_rolls_a_model_that_has_a_plan_in_one_call_out_in_parts_that_change_nothing() -> None:
    class AtOnce(models.Point):
        """Says how many it was asked for."""

        asked: list[int] = []

        def rollout(self, state, actions):
            self.asked.append(len(state))
            return states_after(models.Point(DT), state, actions)

    def found(model):
        config = CEMConfig(population=400, elites=4, iterations=2, enough=None)
        return cem.plan(model, formula(REACH), DT, starts(None, 3), 16, config, torch.Generator().manual_seed(0))

    assert torch.equal(found(AtOnce(DT)).actions, found(models.Point(DT)).actions)
    assert max(AtOnce.asked) == cem.IN_CACHE


def test_cem_is_never_worse_than_its_start_and_leaves_a_good_one() -> None:
    generator = torch.Generator().manual_seed(0)
    arguments = (models.Point(DT), formula(REACH), DT, starts(None, 4), 16)
    start = cem.plan(*arguments, CEMConfig(), generator)
    again = cem.plan(*arguments, CEMConfig(), generator, start=start.actions)
    assert torch.equal(again.actions, start.actions)
    weak = cem.plan(*arguments, CEMConfig(iterations=1, population=4, elites=2, kept=1, enough=None), generator,
                    start=start.actions)
    assert bool((weak.robustness >= start.robustness).all())
    with pytest.raises(ValueError, match=r"start has shape \[4, 3, 2\]"):
        cem.plan(*arguments, CEMConfig(), generator, start=start.actions[:, :3])


@pytest.mark.parametrize(("settings", "told"), [
    ({"spline": "wavy"}, "spline is 'wavy'"), ({"knots": -1}, "knots is -1"), ({"knots": 1}, "knots is 1"),
    ({"elites": 300}, "at most the population"), ({"population": 0}, "population must"), ({"smoothing": 1.0}, "smooth"),
    ({"init_std": 0}, "init_std must"), ({"min_std": -1}, "min_std must"), ({"replan": -1}, "replan must"),
])
def test_settings_that_cannot_work_are_refused(settings, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        CEMConfig(**settings)


# ---------------------------------------------------------------- splines, rollouts


@pytest.mark.parametrize("kind", ["hold", "linear", "cubic"])
def test_splines_keep_constants_and_lines(kind: str) -> None:
    curves = basis(21, 5, kind, torch.zeros((), dtype=torch.float64))
    assert curves.shape == (21, 5)
    torch.testing.assert_close(curves.sum(1), torch.ones(21, dtype=torch.float64))
    line = curves @ torch.linspace(0, 1, 5, dtype=torch.float64)
    if kind == "hold":
        assert line.unique().tolist() == [0, 0.25, 0.5, 0.75, 1]
    else:
        torch.testing.assert_close(line, torch.linspace(0, 1, 21, dtype=torch.float64))
    assert torch.equal(basis(4, 0, kind, curves), torch.eye(4, dtype=torch.float64))
    assert torch.equal(basis(4, 9, kind, curves), torch.eye(4, dtype=torch.float64))


def test_segments_change_memory_and_nothing_else() -> None:
    model, state = models.Unicycle(DT), torch.zeros(2, 3)
    actions = torch.rand(2, 11, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    found = []
    for segment in (0, 4, 11, 100):
        states = rollout(model, state, actions, segment=segment)
        found.append((states, *torch.autograd.grad(states[1:, :, :2].square().sum(), actions)))
    for states, gradient in found[1:]:
        torch.testing.assert_close(states, found[0][0], rtol=0, atol=0)
        torch.testing.assert_close(gradient, found[0][1])


def test_truncation_cuts_the_gradient_where_it_says() -> None:
    actions = torch.zeros(1, 6, 2, requires_grad=True)
    states = rollout(models.Point(DT), torch.zeros(1, 2), actions, truncate=4)
    (gradient,) = torch.autograd.grad(states[6, 0, 0], actions)
    assert gradient[0, :, 0].tolist() == [0, 0, 0, 0, DT, DT]
    (gradient,) = torch.autograd.grad(rollout(models.Point(DT), torch.zeros(1, 2), actions)[6, 0, 0], actions)
    assert gradient[0, :, 0].tolist() == [DT] * 6


def test_the_gradient_of_smooth_robustness_is_that_of_differences() -> None:
    model = models.Unicycle(DT)
    signals = {name: x.double() for name, x in starts(model, 2).items()}
    where = problem(model, formula(SEQUENCE), DT, signals, 20)
    draws = torch.Generator().manual_seed(3)
    actions = (torch.rand(2, 20, 2, generator=draws, dtype=torch.float64) * 1.6 - 0.8).requires_grad_()

    def value(actions):
        return smoothed(where, rollout(model, where.state, actions), 0.1, "logsumexp").sum()

    (gradient,) = torch.autograd.grad(value(actions), actions)
    way = torch.randn(actions.shape, generator=draws, dtype=torch.float64)
    with torch.no_grad():
        difference = (value(actions + 1e-5 * way) - value(actions - 1e-5 * way)) / 2e-5
    assert float((gradient * way).sum()) == pytest.approx(float(difference), rel=1e-5)
    assert float(gradient.abs().max()) > 0.01


def test_the_more_robust_plan_is_taken() -> None:
    a = Plan(torch.zeros(3, 2, 1), torch.tensor([1.0, 0.0, -torch.inf]))
    b = Plan(torch.ones(3, 2, 1), torch.tensor([0.5, 2.0, -torch.inf]))
    assert better(a, b).actions[:, 0, 0].tolist() == [0, 1, 0]
    assert better(a, b).robustness.tolist() == [1, 2, -torch.inf]


# ---------------------------------------------------------------- problems


def test_what_was_seen_is_judged_with_what_is_planned() -> None:
    text = "F[0,1] (p.x > 1) & F[0,3] (p.x < -0.5) & G[0,3] (mission_time < 2.75 | p.y > 4)"
    past = {"p": torch.tensor([[[0.0, 5.0]], [[1.25, 5.0]]])}
    where = problem(models.Point(DT), formula(text), DT, {"p": torch.tensor([[1.0, 5.0]])}, 4, past)
    actions = torch.tensor([[[-1.0, 0.0]] * 4])
    signals = trace(where, rollout(where.model, where.state, actions))
    assert signals["p"][:, 0, 0].tolist() == [0, 1.25, 1, 0.5, 0, -0.5, -1]
    assert signals["mission_time"][:, 0].tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    assert float(judge(where, actions)) == 0.25
    both = where.of(torch.tensor([0, 0]))
    assert judge(both, actions.expand(2, -1, -1)).tolist() == [0.25, 0.25]


def test_no_number_is_the_worst() -> None:
    where = asked()
    states = rollout(where.model, where.state, torch.zeros(3, 16, 2))
    states[5, 1] = torch.nan
    assert judged(where, states)[1] == -torch.inf and bool(torch.isfinite(judged(where, states)[[0, 2]]).all())


@pytest.mark.parametrize(("change", "error", "told"), [
    ({"steps": 0}, ValueError, "steps is 0"),
    ({"steps": 15}, ValueError, r"looks 8 s ahead, the trace covers 7.5 s \(15 steps of 0.5 s\)"),
    ({"text": "F[0,1] (v.x > 0)"}, SignalError, "reads v, which the model does not predict; it predicts: p"),
    ({"past": {"v": torch.zeros(2, 3, 2)}}, SignalError, "not in the past"),
    ({"past": {"p": torch.zeros(2, 4, 2)}}, SignalError, r"the past of 3 robots is \[k, 3"),
])
def test_problems_that_are_none_are_refused(change, error, told: str) -> None:
    with pytest.raises(error, match=told):
        asked(**change)


def test_states_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="finite numbers"):
        problem(models.Point(DT), formula(REACH), DT, {"p": torch.tensor([[torch.nan, 0.0]])}, 16)


# ---------------------------------------------------------------- receding horizon


@pytest.mark.parametrize("plant", [models.Point(DT, speed=0.8), models.Point(DT, speed=1.25)])
def test_planning_again_makes_up_for_another_plant(plant) -> None:
    arguments = (cem.plan, models.Point(DT), formula(SEQUENCE), DT, 20, CEMConfig(knots=10))
    signals = starts(None, 8)
    results = []
    for every in (0, 1):
        policy = Receding(*arguments, torch.Generator().manual_seed(0), every=every)
        results.append(models.pursue(policy, plant, formula(SEQUENCE), DT, signals, 20).robustness)
    once, again = ((r > 0).float().mean() for r in results)
    assert float(again) == 1.0 and float(once) < 0.8


def test_a_plan_is_followed_until_a_better_one_is_found() -> None:
    calls = []

    def worse(model, formula, dt, signals0, steps, config, generator=None, *, past=None, start=None):
        calls.append((steps, 0 if past is None else len(past["p"])))
        made = torch.full((1, steps, 2), 1.0 if start is None else -1.0)
        return Plan(made, judge(problem(model, formula, dt, signals0, steps, past), made))

    policy = Receding(worse, models.Point(DT), formula("F[0,2] (p.x > 1)"), DT, 4, None, every=2)
    found = models.pursue(policy, models.Point(DT), policy.formula, DT, {"p": torch.zeros(1, 2)}, 4)
    assert calls == [(4, 0), (2, 2)] and bool((found.actions == 1.0).all())
    with pytest.raises(ValueError, match="had 4 control steps and is over"):
        policy({"p": torch.zeros(1, 2)})
    policy.reset()
    assert policy({"p": torch.zeros(1, 2)}).tolist() == [[1.0, 1.0]]
    with pytest.raises(ValueError, match="every is -1"):
        Receding(worse, models.Point(DT), policy.formula, DT, 4, None, every=-1)


@pytest.mark.parametrize(("name", "text"), [
    ("linear", "F[0,6] (hypot(base_pos_w.x - 1, base_pos_w.y - 1) < 0.5)"),
    ("unicycle", "F[0,6] (hypot(base_pos_w.x - 1, base_pos_w.y - 1) < 0.5)"),
])
def test_systems_of_the_suite_are_planned_for(name: str, text: str) -> None:
    system = resolve("temporeal.sim.systems", name).make()
    draws = torch.Generator().manual_seed(0)
    start = {"low": [-1, -1], "high": [0, 0], **({"heading": [0, 1.5]} if name == "unicycle" else {})}
    signals = system.initial(lambda _, n: torch.rand(3, n, generator=draws), start)
    found = cem.plan(system.model, parse(text, system.signals), system.control_dt, signals, 30, CEMConfig(), draws)
    assert bool((found.robustness >= 0.05).all())
    np.testing.assert_equal(found.actions.shape, (3, 30, 2))
