"""Falsification: problems whose violating region is known, and what a search must do about failures and bounds."""

from __future__ import annotations

import sys
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.analysis.falsification import Sampled
from temporeal.sim.stl.analysis.falsify import falsify
from temporeal.sim.stl.analysis.parameter_space import Choice, Integer, ParameterSpace, Real
from temporeal.sim.stl.analysis.rollouts import conjuncts, judge_traces, one_at_a_time
from temporeal.sim.stl.analysis.search_options import SearchOptions
from temporeal.sim.stl.language.constructors import always, eventually
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.propositional import Signal, Truth
from temporeal.sim.stl.semantics.robustness import robustness

DT, STEPS, PUSHES = 0.05, 60, 6
POS, X, Y = Signal("pos", (), "m"), Signal("x"), Signal("y")
PUSH = ParameterSpace((Real("push", (-1.0,) * PUSHES, (1.0,) * PUSHES),))


def double_integrator(parameters: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
    """Position of a unit mass from rest under a force that is constant over each of six half seconds."""
    force = parameters["push"]
    x, v, out = np.zeros(len(force)), np.zeros(len(force)), [np.zeros(len(force))]
    for k in range(STEPS):
        x, v = x + DT * v, v + DT * force[:, k * PUSHES // STEPS]
        out.append(x)
    return {"pos": np.stack(out)}


def weights() -> np.ndarray:
    """Final position per unit of each push: it is linear in them."""
    return np.array([double_integrator({"push": row[None]}, np.zeros(1))["pos"][-1, 0] for row in np.eye(PUSHES)])


FARTHEST = weights().sum()
NEEDLE = always(0, STEPS * DT, POS < 0.93 * FARTHEST)


def constant(name: str = "x") -> Any:
    """A rollout whose signal is its one parameter, for two samples."""
    return lambda p, seeds: {name: np.stack([p["p"], p["p"]])}


LINE = ParameterSpace((Real("p", -1.0, 1.0),))


def test_double_integrator_is_falsified_up_to_its_known_worst_case() -> None:
    """The worst force is full thrust all the way, in one corner of the box."""
    found = falsify(double_integrator, always(0, 3, POS < 2.0), PUSH, DT,
                    SearchOptions(budget=1500, seed=3, stop_at_violation=False))
    assert found.verdict == "violated"
    assert found.robustness == pytest.approx(2.0 - FARTHEST, abs=0.01)
    assert (found.parameters["push"] > 0.97).all()
    assert found.signals["pos"].shape == (STEPS + 1,)


def test_no_violation_where_there_is_none() -> None:
    found = falsify(double_integrator, always(0, 3, POS < FARTHEST + 1e-9), PUSH, DT, SearchOptions(budget=600, seed=1))
    assert found.verdict == "none found"
    assert found.evaluations == 600
    assert 0 <= found.robustness < 0.2
    assert "proves nothing" in found.statement()


def test_needle_that_random_search_misses() -> None:
    """Share of the box that violates, bounded above by the whole corner simplex: sum w (1 - push) < gap."""
    w, gap, budget, seeds = weights(), 0.07 * FARTHEST, 600, range(12)
    share = gap**PUSHES / (factorial(PUSHES) * np.prod(w)) / 2**PUSHES
    assert 1 - (1 - share) ** budget < 0.05, "random search must miss on most seeds for the test to say something"
    hits = {
        method: sum(
            falsify(double_integrator, NEEDLE, PUSH, DT,
                    SearchOptions(method=method, budget=budget, seed=s)).verdict == "violated"
            for s in seeds)
        for method in ("random", "cma")}
    assert hits["random"] <= 2
    assert hits["cma"] >= 11


def test_every_candidate_lies_within_the_bounds() -> None:
    """Also where the optimum is a corner, for all methods and kinds of parameters."""
    space = ParameterSpace((Real("a", -2.0, 3.0), Real("b", (1e-3, 1e-2), (1.0, 10.0), "log"), Integer("n", 2, 5),
                   Choice("kind", ("soft", "hard"))))
    for method in ("cma", "random", "sobol", "lhs"):
        seen: list[dict[str, np.ndarray]] = []

        def rollout(p: dict[str, np.ndarray], seeds: np.ndarray, seen: list[Any] = seen) -> dict[str, np.ndarray]:
            seen.append(space.checked(p))
            return {"x": (p["a"] - np.log(p["b"]).sum(1) + p["n"] + (p["kind"] == "hard") + 9.0)[None]}

        found = falsify(rollout, X > 0, space, 1.0,
                        SearchOptions(method=method, budget=400, seed=2, stop_at_violation=False))
        assert sum(len(p["a"]) for p in seen) == 401  # one to confirm
        if method == "cma":
            assert found.robustness == pytest.approx(-2 - np.log(10.0) + 2 + 9.0, abs=0.1)
            assert (found.parameters["n"], found.parameters["kind"]) == (2, "soft")


def test_discrete_parameters_are_searched() -> None:
    """One of 6 x 7 x 3 cells violates."""
    space = ParameterSpace((Integer("n", (0, 0), (5, 6)), Choice("c", (10, 20, 30))))

    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        return {"x": (abs(p["n"][:, 0] - 1) + abs(p["n"][:, 1] - 6) + abs(p["c"] - 20) / 10.0 - 0.5)[None]}

    found = falsify(rollout, X > 0, space, 1.0, SearchOptions(budget=300, seed=0, explore=0.0))
    assert found.verdict == "violated"
    assert found.parameters["n"].tolist() == [1, 6]
    assert found.parameters["c"] == 20


@pytest.mark.parametrize("options", [{}, {"attack": "clauses"}, {"restarts": "bipop"}, {"noise": "fresh"},
                                     {"method": "random"}, {"method": "sobol"}, {"method": "lhs"}])
def test_deterministic_by_seed_and_alone(options: dict[str, str]) -> None:
    """The same seed gives the same search; numpy's global generator is neither read nor moved."""
    formula = (X > -3) & (X < 3)
    runs = []
    for disturb in (1, 2):
        np.random.seed(disturb)  # noqa: NPY002
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        runs.append(falsify(constant(), formula, LINE, 1.0, SearchOptions(budget=200, seed=5, **options)))
        assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    a, b = runs
    assert np.array_equal(a.history, b.history)
    assert (a.robustness, a.parameters, a.seed) == (b.robustness, b.parameters, b.seed)
    other = falsify(constant(), formula, LINE, 1.0, SearchOptions(budget=200, seed=6, **options))
    assert not np.array_equal(a.history, other.history)


@pytest.mark.parametrize("method", ["cma", "random"])
def test_batch_and_single_rollouts_are_the_same_search(method: str) -> None:
    """How many candidates are simulated at once changes no value; CMA-ES sees the same populations."""
    def one(p: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
        batch = double_integrator({"push": p["push"][None]}, np.array([seed]))
        return {"pos": batch["pos"][:, 0]}

    runs = [falsify(rollout, NEEDLE, PUSH, DT,
                    SearchOptions(method=method, budget=120, seed=4, batch=batch, stop_at_violation=False))
            for rollout, batch in ((double_integrator, 8), (double_integrator, 3), (one_at_a_time(one), 1))]
    assert len({r.robustness for r in runs}) == 1
    assert all(r.evaluations == 120 for r in runs)
    assert all(np.array_equal(r.parameters["push"], runs[0].parameters["push"]) for r in runs)


def test_calls_are_at_most_a_batch_and_a_population_fills_it() -> None:
    sizes: list[int] = []

    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        sizes.append(len(seeds))
        return double_integrator(p, seeds)

    falsify(rollout, NEEDLE, PUSH, DT,
            SearchOptions(budget=320, seed=0, batch=32, explore=0.1, stop_at_violation=False))
    assert sizes == [32] * 10 + [1]


# ---------------------------------------------------------------- conjunctions


def test_conjuncts_are_the_formula() -> None:
    rng = np.random.default_rng(0)
    signals = {"x": rng.normal(size=(9, 50)), "y": rng.normal(size=(9, 50))}
    formula = always(0, 2, (X > -1) & always(0, 3, (Y < 1) & (X < Y))) & eventually(0, 4, (X > 0) & (Y > 0))
    parts = conjuncts(formula)
    assert len(parts) == 4
    least = np.min([robustness(part, signals, 1.0)[0] for part in parts], axis=0)
    assert np.array_equal(least, robustness(formula, signals, 1.0)[0])


def scales(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
    """x: an angle that is never farther than 0.2 from its limit and never beyond it. y: a distance of metres, whose
    violation is a ball of radius 0.1 around (0.8, ..., 0.8); its slope leads there."""
    u = p["u"]
    return {"x": (0.1 + 0.05 * (u**2).mean(1))[None], "y": (10 * np.linalg.norm(u - 0.8, axis=1) - 1.0)[None]}


@pytest.mark.slow
def test_scale_of_one_clause_does_not_hide_the_other() -> None:
    space = ParameterSpace((Real("u", (-1.0,) * 5, (1.0,) * 5),))
    formula = (X > 0) & (Y > 0)
    hits = {attack: sum(falsify(scales, formula, space, 1.0,
                                SearchOptions(attack=attack, budget=700, seed=s)).verdict == "violated"
                        for s in range(6)) for attack in ("formula", "scaled", "clauses")}
    assert hits["formula"] <= 1, "the smaller number leads away from the violation"
    assert hits["clauses"] >= 5
    assert hits["scaled"] > hits["formula"]


def test_clauses_are_reported_each_with_its_own_least() -> None:
    space = ParameterSpace((Real("u", (-1.0,) * 5, (1.0,) * 5),))
    formula = (X > 0) & (Y > 0)
    found = falsify(scales, formula, space, 1.0,
                    SearchOptions(attack="clauses", budget=800, seed=1, stop_at_violation=False))
    angle, distance = found.clauses
    assert (angle.violated, distance.violated) == (False, True)
    assert angle.robustness == pytest.approx(0.1, abs=1e-3)
    assert -1 <= distance.robustness < 0, "its search ends at the violation, and the other has the rest"
    for clause in found.clauses:
        batch = {k: v[None] for k, v in clause.parameters.items()}
        judged = judge_traces(1.0)(clause.formula, scales(batch, np.zeros(1)))
        assert judged.robustness[0] == clause.robustness
    assert found.clause == distance.text
    assert distance.spread > 50 * angle.spread > 0


def test_clauses_have_equal_shares() -> None:
    """A clause that never changes converges at once, again and again, each time with twice the population."""
    space = ParameterSpace((Real("u", (-1.0,) * 5, (1.0,) * 5),))

    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        return {**scales(p, seeds), "x": np.ones((1, len(seeds)))}

    found = [falsify(rollout, (X > 0) & (Y > 0), space, 1.0,
                     SearchOptions(attack="clauses", budget=900, seed=s)) for s in range(4)]
    assert sum(f.verdict == "violated" for f in found) >= 3


def test_clause_without_a_signal_is_judged_as_part_of_the_whole() -> None:
    found = falsify(constant(), Truth(True) & (X < 0.5), LINE, 1.0, SearchOptions(budget=50, seed=0))
    assert found.verdict == "violated"
    assert len(found.clauses) == 1


# ---------------------------------------------------------------- failures, zeros, stops


def raises_above(limit: float) -> Any:
    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        if (p["p"] > limit).any():
            raise ArithmeticError("the simulator blew up")
        return constant()(p, seeds)

    return rollout


def test_rollouts_that_raise_are_failures_and_not_violations() -> None:
    """A batch that raises is simulated one by one: only those that raise alone fail, the others are judged."""
    found = falsify(raises_above(0.5), X > -2, LINE, 1.0, SearchOptions(method="random", budget=200, seed=0, batch=50))
    assert found.verdict == "failed"
    assert found.robustness == pytest.approx(1.0, abs=0.1)
    assert all(f.parameters["p"] > 0.5 for f in found.failures)
    assert len(found.failures) == pytest.approx(50, abs=20)
    assert found.failures[0].message == "ArithmeticError: the simulator blew up"
    assert found.sampled is not None
    assert found.sampled.findings == len(found.failures)


def test_search_does_not_follow_failures() -> None:
    """One side of the box fails; the violation lies in the corner farthest from it."""
    space = ParameterSpace((Real("u", (-1.0,) * 6, (1.0,) * 6),))

    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        value = p["u"].mean(1) + 0.9
        return {"x": np.where(p["u"][:, 0] > 0.3, np.nan, value)[None]}

    for seed in range(3):
        found = falsify(rollout, X > 0, space, 1.0, SearchOptions(budget=500, seed=seed, explore=0.0))
        assert found.verdict == "violated"
        assert 0 < len(found.failures) < 0.3 * found.evaluations


def test_nan_is_a_failure() -> None:
    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        return {"x": np.where(p["p"] > 0, np.nan, p["p"] + 2)[None]}

    found = falsify(rollout, X > 0, LINE, 1.0, SearchOptions(method="random", budget=100, seed=0))
    assert found.verdict == "failed"
    assert found.failures[0].message == "the robustness is NaN"
    assert found.robustness == pytest.approx(1.0, abs=0.1)
    all_fail = falsify(lambda p, s: {"x": np.full((1, len(s)), np.nan)}, X > 0, LINE, 1.0,
                       SearchOptions(budget=30, seed=0))
    assert (all_fail.verdict, len(all_fail.failures)) == ("failed", 30)
    assert np.isnan(all_fail.robustness)
    assert "30 of 30 rollouts failed" in all_fail.statement()


def test_rollout_that_only_fails_does_not_spend_the_budget() -> None:
    for batch in (1, 64):
        found = falsify(raises_above(-2.0), X > -2, LINE, 1.0, SearchOptions(budget=5000, seed=0, batch=batch))
        assert (found.verdict, found.stopped) == ("failed", "broken")
        assert found.evaluations <= 64
        assert "every one: the search was given up: ArithmeticError: the simulator blew up" in found.statement()
    later = falsify(raises_above(-0.95), X > -2, LINE, 1.0,
                    SearchOptions(method="random", budget=400, seed=1, batch=64))
    assert later.stopped == "budget", "one that does not fail is enough to go on"


def test_missing_signal_is_named() -> None:
    with pytest.raises(SignalError, match="lacks 'x', which .* reads; it has: height"):
        falsify(lambda p, s: {"height": np.zeros((1, len(s)))}, eventually(0, 9, X > 0), LINE, 1.0,
                SearchOptions(budget=20))


def test_search_can_be_interrupted_between_batches() -> None:
    asked = iter([False, False, True])
    found = falsify(constant(), X > -2, LINE, 1.0,
                    SearchOptions(method="random", budget=500, seed=0, batch=10), interrupted=lambda: next(asked))
    assert (found.stopped, found.evaluations, found.verdict) == ("interrupted", 30, "none found")
    assert found.statement().startswith("interrupted: no violation found in 30 evaluations")


def test_failures_can_stop_or_raise() -> None:
    stopped = falsify(raises_above(0.5), X > -2, LINE, 1.0,
                      SearchOptions(method="random", budget=200, seed=0, batch=10, on_failure="stop"))
    assert (stopped.stopped, stopped.verdict, stopped.evaluations) == ("failure", "failed", 10)
    with pytest.raises(ArithmeticError, match="blew up"):
        falsify(raises_above(0.5), X > -2, LINE, 1.0, SearchOptions(budget=200, seed=0, on_failure="raise"))


def test_batch_that_fails_as_a_whole_only_is_an_error() -> None:
    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        if len(seeds) > 1:
            raise TypeError("no batches")
        return constant()(p, seeds)

    with pytest.raises(TypeError, match="no batches"):
        falsify(rollout, X > -2, LINE, 1.0, SearchOptions(budget=20, seed=0))


def test_interrupt_is_no_failure() -> None:
    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        falsify(rollout, X > 0, LINE, 1.0, SearchOptions(budget=20))


def test_at_zero_the_boolean_value_decides() -> None:
    at_limit = ParameterSpace((Choice("p", (0, 1)),))
    strict = falsify(constant(), X < 1, at_limit, 1.0, SearchOptions(method="random", budget=20, seed=0))
    assert (strict.verdict, strict.robustness) == ("violated", 0.0)
    loose = falsify(constant(), X <= 1, at_limit, 1.0, SearchOptions(method="random", budget=20, seed=0))
    assert (loose.verdict, loose.robustness) == ("none found", 0.0)


def test_infinite_values_are_ranked() -> None:
    """F past the end under strong semantics is -inf: a violation; +inf elsewhere misleads no search."""
    formula = (X > 0.9) >> eventually(5, 6, X > 0)
    found = falsify(constant(), formula, LINE, 1.0,
                    SearchOptions(budget=400, seed=0), semantics=Semantics(end="strong"))
    assert found.verdict == "violated"
    assert found.robustness == pytest.approx(-0.05, abs=0.05)


def test_short_trace_is_refused_and_not_violated() -> None:
    with pytest.raises(SignalError, match="2 samples.*simulate 7"):
        falsify(constant(), eventually(5, 6, X > -2), LINE, 1.0, SearchOptions(budget=20))


def test_wrong_batch_is_refused() -> None:
    with pytest.raises(SignalError, match="20 candidates"):
        falsify(lambda p, s: {"x": np.zeros((2, 3))}, X > 0, LINE, 1.0, SearchOptions(method="random", budget=20))


def test_rollout_that_does_not_repeat_itself_is_told() -> None:
    calls: list[int] = []

    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        calls.append(len(seeds))
        return {"x": np.full((1, len(seeds)), 1.0 if len(seeds) == 1 else -1.0)}

    found = falsify(rollout, X > 0, LINE, 1.0, SearchOptions(method="random", budget=20, seed=0))
    assert (found.verdict, found.searched, found.robustness) == ("unconfirmed", -1.0, 1.0)
    assert "does not repeat itself" in found.statement()


def test_seeds() -> None:
    """fixed: all rollouts share the noise; fresh: each has its own, and the one that violates is reported."""
    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        return {"x": np.array([np.random.default_rng(s).random() for s in seeds])[None]}

    fixed = falsify(rollout, X > 0.01, LINE, 1.0, SearchOptions(method="random", budget=300, seed=0))
    assert (fixed.verdict, fixed.seed) == ("none found", 0)
    fresh = falsify(rollout, X > 0.01, LINE, 1.0, SearchOptions(method="random", budget=1000, seed=0, noise="fresh"))
    assert fresh.verdict == "violated"
    assert np.random.default_rng(fresh.seed).random() <= 0.01


def test_stops() -> None:
    patient = falsify(lambda p, s: {"x": np.ones((1, len(s)))}, X > 0, LINE, 1.0,
                      SearchOptions(method="random", budget=1000, seed=0, batch=10, patience=50))
    assert (patient.stopped, patient.evaluations) == ("patience", 60)
    once = falsify(constant(), X < 2, LINE, 1.0, SearchOptions(budget=5000, seed=0, restarts="none"))
    assert once.stopped == "converged"
    assert once.evaluations < 5000
    again = falsify(constant(), X < 2, LINE, 1.0, SearchOptions(budget=1500, seed=0))
    assert (again.stopped, again.evaluations) == ("budget", 1500)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", ["ipop", "bipop"])
def test_restarts_leave_a_local_minimum(restarts: str) -> None:
    """Two valleys in four dimensions; the one nearer to the middle, where the search starts, is not deep enough."""
    space = ParameterSpace((Real("u", (-1.0,) * 4, (1.0,) * 4),))

    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        near, far = (np.linalg.norm(p["u"] - c, axis=1) for c in (-0.4, 0.7))
        return {"x": np.minimum(near + 0.1, far - 0.1)[None]}

    def hits(restarts: str) -> int:
        found = [falsify(rollout, X > 0, space, 1.0, SearchOptions(budget=3000, seed=s, explore=0.0, restarts=restarts))
                 for s in range(6)]
        return sum(f.verdict == "violated" for f in found)

    assert hits("none") <= 2
    assert hits(restarts) >= 4


def test_history_and_progress() -> None:
    told: list[tuple[int, int, float]] = []
    found = falsify(double_integrator, NEEDLE, PUSH, DT,
                    SearchOptions(budget=150, seed=0, stop_at_violation=False), progress=lambda *x: told.append(x))
    assert found.history[:, 0].tolist() == [t[0] for t in told]
    assert (np.diff(found.history[:, 1]) <= 0).all()
    assert found.history[-1, 1] == found.searched == told[-1][2]
    assert told[-1][:2] == (150, 150)


# ---------------------------------------------------------------- what may be said


def test_bound_of_the_uniform_samples() -> None:
    from scipy.stats import binomtest

    none = falsify(constant(), X < 2, LINE, 1.0, SearchOptions(budget=1000, seed=0)).sampled
    assert none == Sampled(100, 0, 0.0, 1 - 0.05 ** (1 / 100), 0.95)
    assert none.high == pytest.approx(3 / 100, rel=0.03)
    some = falsify(constant(), X < 0.5, LINE, 1.0,
                   SearchOptions(method="random", budget=200, seed=0, stop_at_violation=False)).sampled
    assert some is not None
    assert 30 < some.findings < 70
    exact = binomtest(some.findings, 200).proportion_ci(0.95, method="exact")
    assert (some.low, some.high) == pytest.approx((exact.low, exact.high), abs=1e-9)
    stopped = falsify(constant(), X < 0.5, LINE, 1.0, SearchOptions(method="random", budget=200, seed=0)).sampled
    assert stopped is not None
    assert np.isnan(stopped.high), "what made the search stop is not independent of it"
    assert falsify(constant(), X < 2, LINE, 1.0, SearchOptions(method="sobol", budget=64, seed=0)).sampled is None


def test_coverage_of_the_bound() -> None:
    """A violation of probability p is missed by n samples with (1 - p)^n: the bound covers p at least 95 % of times."""
    p, n = 0.03, 60
    rng = np.random.default_rng(1)
    highs = []
    for hits in rng.binomial(n, p, size=400):
        highs.append(1 - 0.05 ** (1 / n) if hits == 0 else 1.0)
    assert np.mean(np.array(highs) >= p) >= 0.95


# ---------------------------------------------------------------- input


@pytest.mark.parametrize(("options", "told"), [
    ({"method": "newton"}, "cma, random, sobol, lhs"), ({"attack": "all"}, "formula, scaled, clauses"),
    ({"budget": 0}, "budget is at least 1"), ({"batch": 0}, "batch is at least 1"), ({"explore": 2.0}, "explore"),
    ({"restarts": "ever"}, "ipop, bipop, none"), ({"on_failure": "ignore"}, "record, stop, raise"),
    ({"seed": 2**70}, "from 0 to 2"), ({"seed": -1}, "from 0 to 2"), ({"budget": 10.5}, "a whole number, got 10.5"),
    ({"noise": "some"}, "fixed, fresh"), ({"attack": "scaled", "budget": 20}, "at least 8"),
])  # fmt: skip
def test_bad_options_name_the_legal_ones(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        falsify(constant(), X > 0, LINE, 1.0, SearchOptions(**options))


def test_missing_packages_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cma", None)
    flown: list[int] = []

    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, np.ndarray]:
        flown.append(len(seeds))
        return constant()(p, seeds)

    with pytest.raises(ModuleNotFoundError, match="pip install cma.*--method random"):
        falsify(rollout, X > -2, LINE, 1.0, SearchOptions(budget=20))
    assert not flown, "it is told before the first rollout"
    assert falsify(constant(), X > -2, LINE, 1.0, SearchOptions(budget=20, method="random")).verdict == "none found"
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(ModuleNotFoundError, match="pip install scipy"):
        falsify(constant(), X > -2, LINE, 1.0, SearchOptions(budget=20, method="lhs"))


def test_torch_rollout() -> None:
    torch = pytest.importorskip("torch")

    def rollout(p: dict[str, np.ndarray], seeds: np.ndarray) -> dict[str, Any]:
        return {"x": torch.as_tensor(p["p"])[None].float()}

    assert falsify(rollout, X > -0.9, LINE, 1.0, SearchOptions(budget=200, seed=0)).verdict == "violated"


def test_example_of_the_documentation_runs(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints what its comments say: a violation, none by sampling, an exact replay."""
    page = (Path(__file__).parents[4] / "docs" / "how-to/stl-falsification.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec(page.split("```python\n")[1].split("```")[0], {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("violated: robustness -0.0661263 after 109 evaluations, by G[0,3] (pos < 4.1)")
    assert any(line.startswith("no violation found in 1000 evaluations, which proves nothing") for line in lines)
    assert lines[-1] == "True True"
