"""Falsification: search a bounded space of parameters for a trace that violates a formula.

    space = ParameterSpace((Real("start", (-1, -1), (1, 1)), Real("gust", 0.01, 1.0, "log"), Integer("delay", 0, 3)))
    found = falsify(rollout, formula, space, 0.02, SearchOptions(budget=2000, seed=1))
    found.verdict, found.robustness, found.parameters      # "violated", -0.12, {"start": array([...]), ...}
    save_counterexample("falsified.npz", found.counterexample({"simulator": "mine"}))

``rollout(parameters, seeds)`` simulates B candidates at once: ``parameters`` name -> [B, *shape], ``seeds`` int64 [B],
result signal name -> [T, B, *shape]. `rollouts.one_at_a_time` makes one from a function of a single candidate. It must
be a function of its arguments: what the search found is simulated again, alone, before it is reported.

The objective is the exact robustness at time 0 (`semantics.robustness`), minimised by CMA-ES in the unit cube (Hansen,
"The CMA evolution strategy: a tutorial", arXiv:1604.00772), restarted with larger populations (IPOP: Auger and Hansen,
CEC 2005; BIPOP: Hansen, GECCO 2009 workshop), or by sampling.

**Not finding a violation proves nothing.** The only statement with a number is about the evaluations that were sampled
independently and uniformly: `falsification.Sampled`.

A rollout that raises, or whose robustness is NaN, has *failed*. That is neither a violation nor a proof of the
contrary, but a finding of its own (``Falsification.failures``); the search ranks it last. When a batch raises, its
candidates are simulated one by one to find which fail; if none does alone, the error is raised.

A conjunction's robustness is that of its worst clause, in that clause's own unit. A clause in radians with margins of
0.1 hides one in metres with margins of 5, whichever is nearer to a violation, as long as its number stays smaller. The
option ``attack`` chooses:

``formula``   minimise the robustness as it is.
``scaled``    minimise the smallest clause, each divided by its spread (interquartile range) among the first, uniform
              samples. The sign is that of the robustness, so that the same traces violate.
``clauses``   one search per clause, side by side, with equal shares of the budget. A search whose clause is violated
              passes its share to the others, until all are. The scale within a clause does not matter, as CMA-ES uses
              ranks only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from temporeal.sim.stl.analysis.binomial import clopper_pearson
from temporeal.sim.stl.analysis.cma_search import CmaSearch, default_population
from temporeal.sim.stl.analysis.evaluations import Aim, Evaluations, StopRule
from temporeal.sim.stl.analysis.falsification import Clause, Falsification, Sampled, Verdict
from temporeal.sim.stl.analysis.parameter_space import ParameterSpace, Values
from temporeal.sim.stl.analysis.rollouts import Judge, Rollout, judge_traces
from temporeal.sim.stl.analysis.search_options import SearchOptions, check_method
from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.propositional import Formula, to_text

DEFAULTS = SearchOptions()


def falsify(
    rollout: Rollout, formula: Formula, space: ParameterSpace, dt: float, options: SearchOptions = DEFAULTS, *,
    semantics: Semantics = RTAMT, judge: Judge | None = None,
    progress: Callable[[int, int, float], None] | None = None, interrupted: Callable[[], bool] = lambda: False,
) -> Falsification:
    """Search ``space`` for parameters whose rollout violates ``formula`` at time 0; see the head of this module.

    Deterministic in the seed if the rollout is.

    Args:
        rollout: candidates to traces sampled every ``dt`` s; see `rollouts.Rollout`.
        judge: replaces `rollouts.judge_traces` with ``semantics``, for example for rollouts that end early.
        progress: ``progress(evaluations, budget, least)`` after each batch.
        interrupted: asked after each batch; True ends the search with what it has found.
    """
    check_method(options.method)
    rng = np.random.default_rng(options.seed)
    record = Evaluations(rollout, formula, space, judge or judge_traces(dt, semantics), options, rng, progress)
    stop = StopRule(record, interrupted)
    sampled, stopped, size = None, None, options.batch or 64
    if options.uniform:
        stopped = _run_points(record, stop, rng.random((options.uniform, space.dim)), size)
        sampled = _sampled(record)
    if stopped is None and options.method in ("sobol", "lhs"):
        stopped = _run_points(record, stop, _even_points(options.method, space.dim, options.budget, rng), size)
    if stopped is None and options.method == "cma":
        stopped = _run_cma(record, stop, rng)
    return _result(record, dt, semantics, sampled, stopped or "budget")


def _run_points(record: Evaluations, stop: StopRule, points: np.ndarray, batch: int) -> str | None:
    """Evaluate ``points`` in batches; why to stop, or None."""
    for start in range(0, len(points), batch):
        record.evaluate(points[start : start + batch])
        if reason := stop.reason():
            return reason
    return None


def _even_points(method: str, dim: int, count: int, rng: np.random.Generator) -> np.ndarray:
    from scipy.stats import qmc

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a count that is not a power of two only costs evenness
        points = qmc.Sobol(dim, rng=rng) if method == "sobol" else qmc.LatinHypercube(dim, rng=rng)
        return np.asarray(points.random(count))


def _run_cma(record: Evaluations, stop: StopRule, rng: np.random.Generator) -> str | None:
    """Searches side by side, until the budget is spent, all have converged, or ``stop`` ends them."""
    options = record.options
    aims = _aims(record, options.attack)
    population = max(default_population(record.space.dim), (options.batch or 0) // len(aims))
    state = np.random.RandomState(int(rng.integers(2**32)))
    searches = [CmaSearch(record.space, population, options.restarts, record.best_point(aim), state) for aim in aims]
    while record.left:
        live = [(s, aim) for s, aim in zip(searches, aims) if not s.done]
        if len(aims) > 1:  # one per clause: those not violated yet go first, then all look for the worst
            live = [(s, aim) for s, aim in live if not record.is_hit(aim)] or live
        if not live:
            return "converged"
        # equal shares: after a restart a search has a larger population, and waits for the others
        least = min(s.evaluations for s, _ in live)
        live = [(s, aim) for s, aim in live if s.evaluations == least]
        asked = [s.ask() for s, _ in live]
        points = np.concatenate(asked)[: record.left]
        size = options.batch or len(points)
        values = []
        for start in range(0, len(points), size):
            values.append(record.evaluate(points[start : start + size]))
            if reason := stop.reason():
                return reason
        of_clause = np.concatenate(values, 1)
        for (search, aim), last in zip(live, np.cumsum([len(a) for a in asked])):
            if last <= len(points):  # a population cut off by the budget is not told
                search.tell(aim(of_clause[:, last - search.size : last]))
    return None


def _aims(record: Evaluations, attack: str) -> list[Aim]:
    if attack == "clauses":
        return [lambda values, i=i: values[i] for i in range(len(record.parts))]  # type: ignore[misc]
    if attack == "scaled":
        spread = np.array([record.spread(i) for i in range(len(record.parts))])
        # a clause that does not vary keeps its unit
        scale = np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)[:, None]
        return [lambda values: (values / scale).min(0)]
    return [lambda values: values.min(0)]


def _sampled(record: Evaluations) -> Sampled:
    values, violated = np.concatenate(record.values, 1), np.concatenate(record.violated, 1)
    undecided = np.concatenate(record.undecided, 1)
    findings = int((violated.any(0) | undecided.any(0) | np.isnan(values).any(0)).sum())
    count, confidence = record.evaluations, record.options.confidence
    if not findings:
        return Sampled(count, 0, 0.0, 1 - (1 - confidence) ** (1 / count), confidence)
    if count < record.options.uniform:  # it stopped at a finding
        return Sampled(count, findings, float("nan"), float("nan"), confidence)
    return Sampled(count, findings, *clopper_pearson(findings, count, confidence), confidence)


def _result(
    record: Evaluations, dt: float, semantics: Semantics, sampled: Sampled | None, stopped: str
) -> Falsification:
    options = record.options
    values, violated = np.concatenate(record.values, 1), np.concatenate(record.violated, 1)
    undecided = np.concatenate(record.undecided, 1)
    points, seeds = np.concatenate(record.points), np.concatenate(record.seeds)

    def candidate(i: int) -> tuple[Values, int]:
        return {k: v[0] for k, v in record.space.from_unit(points[i : i + 1]).items()}, int(seeds[i])

    uniform = sampled.samples if sampled is not None else 0
    found = []
    for c, part in enumerate(record.parts):
        own, seed = candidate(_least(values[c], violated[c]))
        spread = record.spread(c, uniform) if uniform else float("nan")
        hit = bool(violated[c].any())
        found.append(Clause(to_text(part), part, float(record.least[c]), hit, own, seed, spread,
                            bool(undecided[c].any()) and not hit))
    i = _least(values.min(0), np.where(violated.any(0), 2, undecided.any(0)))
    parameters, seed = candidate(i)
    searched = float(values[:, i].min())
    signals: dict[str, np.ndarray] = {}
    alone, margin, at_s, deciding, broken, open_ = float("nan"), float("nan"), float("nan"), 0, False, False
    if not np.isnan(searched):
        again, fails, unsettled, times = record.alone(parameters, seed)
        signals, alone, broken, open_ = record.signals, float(again.min()), bool(fails.any()), bool(unsettled.any())
        deciding = _first(again, fails, times)
        margin, at_s = float(again[deciding]), float(times[deciding])
    verdict: Verdict = "failed" if record.failures else "none found"
    if violated[:, i].any() or undecided[:, i].any() or broken or open_:
        verdict = "violated" if broken else "undecided" if open_ and not violated[:, i].any() else "unconfirmed"
    return Falsification(
        record.formula, dt, semantics, record.space, verdict, alone, searched, parameters, seed, signals,
        to_text(record.parts[deciding]), tuple(found), tuple(record.failures), sampled,
        np.array(record.history, np.float64).reshape(-1, 2), record.evaluations, options.budget,
        options.method, options.attack, options.noise, stopped, margin, at_s)


def _least(values: np.ndarray, gravity: np.ndarray) -> int:
    """Index of the least value among those of the greatest ``gravity`` (2 violated, 1 undecided), NaN last."""
    rank = -gravity.astype(int)
    return int(np.lexsort((np.where(np.isnan(values), np.inf, values), rank, np.isnan(values)))[0])


def _first(values: np.ndarray, violated: np.ndarray, times: np.ndarray) -> int:
    """Index of the violated clause that was decided first, the least of several; the least where none is."""
    when = np.where(violated & np.isfinite(times), times, np.inf)
    return int(np.lexsort((np.where(np.isnan(values), np.inf, values), when, ~violated, np.isnan(values)))[0])
