"""Falsification: search a bounded space of parameters for a trace that violates a formula.

    space = Space((Real("start", (-1, -1), (1, 1)), Real("gust", 0.01, 1.0, "log"), Integer("delay", 0, 3)))
    found = falsify(rollout, formula, space, dt=0.02, budget=2000, seed=1)
    found.verdict, found.robustness, found.parameters      # "violated", -0.12, {"start": array([...]), ...}
    save_counterexample("falsified.npz", found.counterexample({"simulator": "mine"}))

``rollout(parameters, seeds)`` simulates B candidates at once: ``parameters`` name -> [B, *shape], ``seeds`` int64 [B],
result signal name -> [T, B, *shape]. :func:`one_at_a_time` makes one of a function of a single candidate. It must be a
function of its arguments: what it returned during the search is simulated again, alone, before it is reported.

What is minimised is the robustness at time 0, exact (:mod:`temporeal.sim.stl.semantics.robustness`), by CMA-ES (the
package ``cma``;
Hansen, "The CMA evolution strategy: a tutorial", arXiv:1604.00772) in the unit cube, restarted with larger populations
(IPOP: Auger and Hansen, CEC 2005; BIPOP: Hansen, GECCO 2009 workshop), or by sampling.

**Not finding a violation proves nothing.** The one statement with a number is about the part of the evaluations that
was sampled independently and uniformly: :class:`Sampled`.

A rollout that raises, or whose robustness is NaN, has *failed*. That is no violation, and no proof of the contrary: it
is a finding of its own (``Falsification.failures``), never followed by the search, which ranks it last. When a batch
raises, its candidates are simulated one by one to find which fail; if none does alone, the error is raised.

A conjunction's robustness is that of its worst clause, in that clause's own unit. A clause in radians with margins of
0.1 hides one in metres with margins of 5, whichever is nearer to being violated, for as long as the first one stays
the smaller number. ``attack`` says what to do about that:

``formula``   minimise the robustness as it is.
``scaled``    minimise the smallest clause, each divided by its spread (interquartile range) among the first, uniform
              samples. The sign is that of the robustness, so that the same traces violate.
``clauses``   one search per clause, side by side, with equal shares of the budget; one whose clause is violated gives
              its share to the others, until all are. Within one clause the scale does not matter: CMA-ES looks at
              ranks only.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, isfinite, isnan, lgamma, log
from typing import Any, Literal

import numpy as np

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.analysis.counterexample import (
    UNKNOWN,
    Counterexample,
    Replay,
    load_counterexample,
    replay,
    save_counterexample,
    versions,
)
from temporeal.sim.stl.analysis.space import (
    Choice,
    Integer,
    Parameter,
    Real,
    Space,
    SpaceError,
    Values,
    space_from_json,
)
from temporeal.sim.stl.analysis.trials import (
    Judge,
    Judged,
    Rollout,
    conjuncts,
    distinct_conjuncts,
    host,
    judge_clauses,
    judge_traces,
    one_at_a_time,
    told,
)
from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.propositional import Formula, to_text

__all__ = [
    "Choice", "Clause", "Counterexample", "Failure", "Falsification", "Integer", "Judge", "Judged", "Parameter", "Real",
    "Replay", "Rollout", "Sampled", "Space", "SpaceError", "Values", "conjuncts", "falsify", "judge_traces",
    "load_counterexample", "one_at_a_time", "replay", "save_counterexample", "space_from_json",
]  # fmt: skip

# ---------------------------------------------------------------- results


@dataclass(frozen=True)
class Failure:
    """A rollout that raised (``message``: the error), or whose robustness is NaN (``message`` says so)."""

    parameters: Values
    seed: int
    message: str


@dataclass(frozen=True)
class Clause:
    """What was found about one conjunct, in all evaluations, whichever search made them.

    ``robustness`` is the least value seen, at ``parameters``; ``spread`` the interquartile range of its values among
    the uniform samples (NaN with fewer than 8): ``robustness / spread`` compares clauses of different units.
    ``undecided``: it was never violated, but in some traces, which ended early, neither known to hold.
    """

    text: str
    formula: Formula
    robustness: float
    violated: bool
    parameters: Values
    seed: int
    spread: float
    undecided: bool = False


@dataclass(frozen=True)
class Sampled:
    """What the independent uniform samples say, and only they: ``findings`` violations, failures or traces that ended
    undecided, of ``samples``.

    If parameters are drawn as the space draws (:meth:`temporeal.sim.stl.analysis.space.Space.sample`), the probability
    of a finding lies
    in [low, high] with at least ``confidence``: with none found ``high = 1 - (1 - confidence)^(1/samples)``, about
    3 / samples at 95 % (the rule of three), else Clopper and Pearson's interval (Biometrika 26, 1934). NaN where the
    search stopped at a finding: what made it stop is not independent of it. With ``noise="fixed"`` it is about that
    noise only. It says nothing about other distributions of the parameters, and nothing comes from the samples that
    CMA-ES chose: they are not independent.
    """

    samples: int
    findings: int
    low: float
    high: float
    confidence: float


Verdict = Literal["violated", "unconfirmed", "undecided", "failed", "none found"]


@dataclass(frozen=True)
class Falsification:
    """The result of a search.

    Args:
        verdict: ``violated``: a trace violates the formula, and did so again when simulated alone. ``unconfirmed``: one
            did in the search, but not again: the rollout is no function of its arguments. ``undecided``: no violation,
            but a trace ended before the formula was decided, as only some judges say. ``failed``: no violation, but
            rollouts failed. ``none found``: which proves nothing.
        robustness: least robustness at time 0, of the trace ``signals`` [T, *shape] at ``parameters`` and ``seed``,
            simulated alone; ``searched`` is what the search saw there (equal where a batch does not change the bits).
        clause: text of the clause that decides it: of violated ones the first to be decided, where the judge says when,
            else the least. ``margin`` is its own value, ``at_s`` the time at which it was decided (NaN: unknown).
        clauses: per conjunct.
        history: evaluations made, and the least robustness by then, [B, 2] after each batch.
        evaluations: rollouts judged, of ``budget``; one more was made to confirm.
        method, attack, noise: as they were given.
        stopped: why it ended: ``violation``, ``budget``, ``patience``, ``failure``, ``converged`` without restarts,
            ``broken`` (nothing but failures of one kind, from the first on), or ``interrupted``.
    """

    formula: Formula
    dt: float
    semantics: Semantics
    space: Space
    verdict: Verdict
    robustness: float
    searched: float
    parameters: Values
    seed: int
    signals: Mapping[str, np.ndarray]
    clause: str
    clauses: tuple[Clause, ...]
    failures: tuple[Failure, ...]
    sampled: Sampled | None
    history: np.ndarray
    evaluations: int
    budget: int
    method: str
    attack: str
    noise: str
    stopped: str
    margin: float = float("nan")
    at_s: float = float("nan")

    def statement(self) -> str:
        """What this result says and does not say, in words."""
        if self.verdict == "violated":
            when = f"; first at {self.at_s:.6g} s," if isfinite(self.at_s) else ","
            own = "" if self.margin == self.robustness or isnan(self.margin) else f", whose margin is {self.margin:.6g}"
            return (f"violated: robustness {self.robustness:.6g} after {self.evaluations} evaluations{when} by "
                    f"{self.clause}{own}")
        found = {
            "undecided": f"no violation found in {self.evaluations} evaluations, but traces that ended before the "
                         "formula was decided",
            "none found": f"no violation found in {self.evaluations} evaluations, which proves nothing",
            "failed": f"no violation found, but {len(self.failures)} of {self.evaluations} rollouts failed"
                      f"{', every one: the search was given up' if self.stopped == 'broken' else ''}: "
                      f"{self.failures[0].message if self.failures else ''}",
            "unconfirmed": f"a robustness of {self.searched:.6g} was seen, but {self.robustness:.6g} when simulated "
                           "again alone: the rollout does not repeat itself",
        }[self.verdict]
        least = "" if np.isnan(self.robustness) else f"; least robustness {self.robustness:.6g}, by {self.clause}"
        s = self.sampled
        bound = "" if s is None or s.findings or not s.samples else (
            f"; of {s.samples} independent samples none was one: with parameters drawn as this space draws them"
            f"{' and this noise' if self.noise == 'fixed' else ''}, the probability of one is at most {s.high:.2g} at "
            f"{s.confidence:.0%} confidence")
        return f"{'interrupted: ' if self.stopped == 'interrupted' else ''}{found}{least}{bound}"

    def counterexample(self, about: Mapping[str, Any] | None = None, revision: str = "") -> Counterexample:
        """What was found, to save and to replay. ``about``: which rollout this was, as JSON data."""
        if self.verdict == "failed" and self.failures:
            first = self.failures[0]
            return Counterexample(self.formula, self.dt, self.semantics, first.parameters, first.seed, {}, float("nan"),
                                  True, first.message, self.space, dict(about or {}), versions(), revision)
        return Counterexample(self.formula, self.dt, self.semantics, self.parameters, self.seed, self.signals,
                              self.robustness, self.verdict == "violated", "", self.space, dict(about or {}),
                              versions(), revision)


# ---------------------------------------------------------------- the search

METHODS = ("cma", "random", "sobol", "lhs")
ATTACKS = ("formula", "scaled", "clauses")
RESTARTS = ("ipop", "bipop", "none")
NOISES = ("fixed", "fresh")
ON_FAILURE = ("record", "stop", "raise")
SIGMA = 0.3  # initial standard deviation in the unit cube: Hansen's tutorial advises 0.2 to 0.5 of the interval
RESOLUTION = 1e-5  # of an interval: a search that is down to it has converged. The library's 1e-11 is for minima
ENOUGH = 8  # values of which an interquartile range is worth something
BROKEN = 32  # rollouts that fail alike, without one that does not, and the rollout is broken


def falsify(
    rollout: Rollout, formula: Formula, space: Space, dt: float, *, method: str = "cma", budget: int = 1000,
    seed: int = 0, batch: int | None = None, attack: str = "formula", explore: float = 0.1, restarts: str = "ipop",
    stop_at_violation: bool = True, on_failure: str = "record", patience: int | None = None, noise: str = "fixed",
    semantics: Semantics = RTAMT, judge: Judge | None = None, confidence: float = 0.95,
    progress: Callable[[int, int, float], None] | None = None, interrupted: Callable[[], bool] | None = None,
) -> Falsification:
    """Search ``space`` for parameters whose rollout violates ``formula`` at time 0; see the head of this module.

    Deterministic in ``seed`` if the rollout is.

    Args:
        rollout: candidates to traces sampled each ``dt`` s; see :data:`Rollout`.
        method: ``cma``; ``random`` (independent, uniform); ``sobol`` or ``lhs`` (scipy's scrambled Sobol points and
            Latin hypercube: more even, but not independent, so that they give no bound).
        budget: rollouts judged at most.
        batch: candidates per call of ``rollout`` at most. The population of CMA-ES is 4 + 3 ln(dim), or its share of
            ``batch`` where that is larger: a simulator of many worlds is used in full. None: one population per call.
        attack: ``formula``, ``scaled`` or ``clauses``.
        explore: share of the budget that ``cma`` spends on uniform samples before it starts, at the best of them.
        restarts: ``ipop``, ``bipop``, or ``none``: the search ends where CMA-ES has converged.
        stop_at_violation: stop at the first one; False spends the budget and looks for the worst.
        on_failure: ``record`` goes on, ``stop`` ends the search, ``raise`` raises the rollout's error.
        patience: end after so many evaluations without a smaller value (of any clause where each is attacked).
        noise: ``fixed``: every rollout gets the seed ``seed``, and differences are the parameters' alone. ``fresh``:
            each gets its own, and the search is over noise too.
        judge: replaces :func:`judge_traces`, for rollouts that end early, say.
        progress: ``progress(evaluations, budget, least)`` after each batch.
        interrupted: asked after each batch; True ends the search with what it has found.
    """
    for name, value, legal in (("method", method, METHODS), ("attack", attack, ATTACKS), ("noise", noise, NOISES),
                               ("restarts", restarts, RESTARTS), ("on_failure", on_failure, ON_FAILURE)):
        if value not in legal:
            raise ValueError(f"{name}={value!r}; legal: {', '.join(legal)}")
    for name, number in (("budget", budget), ("batch", batch), ("patience", patience)):
        if number is not None and (not _is_whole(number) or number < 1):
            raise ValueError(f"{name} is at least 1, and a whole number, got {number!r}")
    if not _is_whole(seed) or not 0 <= seed < SEEDS:
        raise ValueError(f"seed is a whole number from 0 to 2^63 - 1, got {seed!r}")
    if not 0 <= explore <= 1 or not 0 < confidence < 1:
        raise ValueError(f"explore lies in [0, 1] and confidence in (0, 1), got {explore} and {confidence}")
    check_method(method)
    parts = distinct_conjuncts(formula)
    uniform = budget if method == "random" else round(explore * budget) if method == "cma" else 0
    if method == "cma" and attack == "scaled" and uniform < ENOUGH:
        raise ValueError(f"attack='scaled' takes its scales from uniform samples: explore * budget is at least "
                         f"{ENOUGH}, got {uniform}")
    rng = np.random.default_rng(seed)
    record = _Record(rollout, formula, parts, space, judge or judge_traces(dt, semantics), seed, noise, rng, on_failure,
                     budget, attack == "clauses", progress)
    stop = _Stop(record, stop_at_violation, on_failure == "stop", patience, interrupted or (lambda: False))
    sampled, stopped = None, None
    if uniform:
        stopped = _run_points(record, stop, rng.random((uniform, space.dim)), batch or 64)
        sampled = _sampled(record, uniform, confidence)
    if stopped is None and method in ("sobol", "lhs"):
        stopped = _run_points(record, stop, _even_points(method, space.dim, budget, rng), batch or 64)
    if stopped is None and method == "cma":
        stopped = _run_cma(record, stop, attack, batch, restarts, rng)
    return _result(record, dt, semantics, method, attack, sampled, stopped or "budget")


SEEDS = 2**63
PACKAGES = {"cma": ("cma", "cma"), "sobol": ("scipy.stats", "scipy"), "lhs": ("scipy.stats", "scipy")}


def check_method(method: str) -> None:
    """A :class:`ModuleNotFoundError` that says what to install, where the package of ``method`` is missing."""
    if method not in PACKAGES:
        return
    module, package = PACKAGES[method]
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"method {method!r} needs the package {package}: pip install {package}, or method "
                                  "'random' (--method random), which needs none", name=package) from error


def _is_whole(number: Any) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def _run_points(record: _Record, stop: _Stop, points: np.ndarray, batch: int) -> str | None:
    """Evaluate ``points`` in batches; why to stop, or None."""
    for start in range(0, len(points), batch):
        record.evaluate(points[start : start + batch])
        if reason := stop.reason():
            return reason
    return None


def _even_points(method: str, dim: int, count: int, rng: np.random.Generator) -> np.ndarray:
    from scipy.stats import qmc

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the count is no power of two costs evenness only
        points = qmc.Sobol(dim, rng=rng) if method == "sobol" else qmc.LatinHypercube(dim, rng=rng)
        return np.asarray(points.random(count))


def _run_cma(
    record: _Record, stop: _Stop, attack: str, batch: int | None, restarts: str, rng: np.random.Generator
) -> str | None:
    """Searches side by side, until the budget is spent, all have converged, or ``stop`` says so."""
    aims = _aims(record, attack)
    population = max(_default_population(record.space.dim), (batch or 0) // len(aims))
    state = np.random.RandomState(int(rng.integers(2**32)))
    searches = [_Cma(record.space, population, restarts, record.best_point(aim), state) for aim in aims]
    while record.left:
        live = [(s, aim) for s, aim in zip(searches, aims) if not s.done]
        if len(aims) > 1:  # each clause has one: those that hold go first, and then the worst of all is looked for
            live = [(s, aim) for s, aim in live if not record.is_hit(aim)] or live
        if not live:
            return "converged"
        # equal shares: after a restart a search has a larger population, and waits for the others
        least = min(s.evaluations for s, _ in live)
        live = [(s, aim) for s, aim in live if s.evaluations == least]
        asked = [s.ask() for s, _ in live]
        points = np.concatenate(asked)[: record.left]
        size = batch or len(points)
        values = []
        for start in range(0, len(points), size):
            values.append(record.evaluate(points[start : start + size]))
            if reason := stop.reason():
                return reason
        of_clause = np.concatenate(values, 1)
        for (search, aim), last in zip(live, np.cumsum([len(a) for a in asked])):
            if last <= len(points):  # a population that the budget cut is told nothing
                search.tell(aim(of_clause[:, last - search.size : last]))
    return None


Aim = Callable[[np.ndarray], np.ndarray]
"""Clauses' values [C, B] to what a search minimises, [B]."""


def _aims(record: _Record, attack: str) -> list[Aim]:
    if attack == "clauses":
        return [lambda values, i=i: values[i] for i in range(len(record.parts))]  # type: ignore[misc]
    if attack == "scaled":
        spread = np.array([record.spread(i) for i in range(len(record.parts))])
        # a clause that does not vary is no goal of its own; it keeps its unit
        scale = np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)[:, None]
        return [lambda values: (values / scale).min(0)]
    return [lambda values: values.min(0)]


def _default_population(dim: int) -> int:
    """4 + 3 ln(dim), the library's own."""
    return int(4 + 3 * log(dim))


class _Cma:
    """CMA-ES over a space's unit cube, asked and told, restarted where it has converged.

    The library's own restarts are inside its ``fmin``, which calls the objective; here populations of several searches
    share a batch. The schedules are the same. Coordinates with n values are stretched to [-0.5, n - 0.5], where the
    library rounds them. A space of one coordinate gets a second one without effect: the library needs two.
    """

    def __init__(
        self, space: Space, population: int, restarts: str, start: np.ndarray | None, state: np.random.RandomState
    ) -> None:
        counts = np.append(space.counts, 0) if space.dim == 1 else space.counts
        self.counts, self.dim, self.restarts, self.state = counts, space.dim, restarts, state
        self.width, self.shift = np.maximum(counts, 1).astype(float), np.where(counts > 0, 0.5, 0.0)
        self.first = self.size = population
        self.large, self.spent = 0, {"small": 0, "large": 0}  # restarts with larger populations, evaluations of each
        self.kind, self.done = "small", False
        self._begin(np.full(len(counts), 0.5) if start is None else np.resize(start, len(counts)), 1.0, None)

    def _begin(self, start: np.ndarray, sigma: float, iterations: float | None) -> None:
        cma = importlib.import_module("cma")
        options: dict[str, Any] = {
            "bounds": [list(-self.shift), list(self.width - self.shift)], "popsize": self.size, "seed": np.nan,
            "CMA_stds": list(self.width), "integer_variables": [int(i) for i in np.flatnonzero(self.counts)],
            "tolx": RESOLUTION, "verbose": -10, "verb_log": 0, "verb_disp": 0}
        if iterations is not None:
            options["maxiter"] = iterations
        with self._random():
            self.es = cma.CMAEvolutionStrategy(start * self.width - self.shift, SIGMA * sigma, options)

    @property
    def evaluations(self) -> int:
        """Evaluations that it was told of."""
        return sum(self.spent.values())

    def ask(self) -> np.ndarray:
        """The next population, [size, dim] in the unit cube."""
        with self._random():
            self.asked = self.es.ask()
        return np.asarray(np.clip((np.array(self.asked) + self.shift) / self.width, 0, 1)[:, : self.dim])

    def tell(self, values: np.ndarray) -> None:
        """The values [size] of the population."""
        with self._random():
            self.es.tell(self.asked, list(_ranked(values)))
            stopped = bool(self.es.stop())
        self.spent[self.kind] += self.size
        if stopped:
            self._restart()

    def _restart(self) -> None:
        self.done = self.restarts == "none"
        if self.done:
            return
        sigma, iterations = 1.0, None
        small = self.restarts == "bipop" and self.large > 0 and self.spent["small"] < self.spent["large"]
        self.kind = "small" if small else "large"
        if small:
            sigma = 0.01 ** self.state.uniform()
            self.size = int(self.first * 2.0 ** (self.large * self.state.uniform() ** 2))
            iterations = max(1.0, 0.5 * self.spent["large"] / self.size)
        else:
            self.large += 1
            self.size = self.first * 2**self.large
        self._begin(self.state.uniform(size=len(self.counts)), sigma, iterations)

    @contextmanager
    def _random(self) -> Iterator[None]:
        """Inside, numpy's global generator, which the library draws from, is ours; the caller's own is put back."""
        theirs = np.random.get_state()  # noqa: NPY002 (the library has no other)
        np.random.set_state(self.state.get_state())  # noqa: NPY002
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            self.state.set_state(np.random.get_state())  # noqa: NPY002
            np.random.set_state(theirs)  # noqa: NPY002


def _ranked(values: np.ndarray) -> np.ndarray:
    """Finite numbers in the order of ``values``: -inf first, then the finite ones as they are, +inf, and NaN last."""
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    step = 1.0 + high - low
    out = np.where(np.isnan(values), high + 2 * step, values)
    return np.asarray(np.clip(out, low - step, np.where(np.isnan(values), inf, high + step)))


class _Record:
    """Evaluates candidates and remembers the least value of the formula and of each clause."""

    def __init__(
        self, rollout: Rollout, formula: Formula, parts: Sequence[Formula], space: Space, judge: Judge, seed: int,
        noise: str, rng: np.random.Generator, on_failure: str, budget: int, each: bool,
        progress: Callable[[int, int, float], None] | None,
    ) -> None:
        self.rollout, self.formula, self.parts, self.space, self.judge = rollout, formula, parts, space, judge
        self.seed, self.noise, self.rng = seed, noise, rng
        self.raises, self.budget, self.each, self.progress = on_failure == "raise", budget, each, progress
        self.points: list[np.ndarray] = []  # [B, dim] of each batch
        self.seeds: list[np.ndarray] = []  # [B]
        self.values: list[np.ndarray] = []  # [C, B], NaN: failed
        self.violated: list[np.ndarray] = []  # bool [C, B]
        self.undecided: list[np.ndarray] = []  # bool [C, B]
        self.failures: list[Failure] = []
        self.signals: dict[str, np.ndarray] = {}  # of the candidate that was simulated alone
        self.history: list[tuple[int, float]] = []
        self.evaluations = 0
        self.least = np.full(len(parts), inf)
        self.any_violated = np.zeros(len(parts), bool)
        self.improved_at = 0

    @property
    def left(self) -> int:
        return self.budget - self.evaluations

    def evaluate(self, points: np.ndarray) -> np.ndarray:
        """The clauses' values [C, B] at ``points`` [B, dim]; NaN where a rollout failed."""
        count = len(points)
        seeds = np.full(count, self.seed, np.int64)
        if self.noise == "fresh":
            seeds = self.rng.integers(2**31, size=count, dtype=np.int64)
        values, violated, undecided = self._judged(self.space.from_unit(points), seeds)
        self.evaluations += count
        smallest = np.fmin(self.least, np.fmin.reduce(values, axis=1, initial=inf))
        if (smallest < self.least).any() if self.each else smallest.min() < self.least.min():
            self.improved_at = self.evaluations
        self.least, self.any_violated = smallest, self.any_violated | violated.any(1)
        self.points.append(points)
        self.seeds.append(seeds)
        self.values.append(values)
        self.violated.append(violated)
        self.undecided.append(undecided)
        self.history.append((self.evaluations, float(self.least.min())))
        if self.progress is not None:
            self.progress(self.evaluations, self.budget, float(self.least.min()))
        return values

    def _judged(self, parameters: Values, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        messages = [""] * len(seeds)
        try:
            signals = self.simulate(parameters, seeds)
        except MemoryError:
            raise
        except Exception as error:
            if self.raises:
                raise
            values, violated, undecided, messages = self._one_by_one(parameters, seeds, error)
        else:
            values, violated, undecided, _ = self.judged(signals, len(seeds))
        for i in np.flatnonzero(np.isnan(values).any(0)):
            own = {k: v[i] for k, v in parameters.items()}
            if self.raises:
                raise SignalError(f"the robustness of a rollout is NaN, at {own}")
            values[:, i], violated[:, i], undecided[:, i] = np.nan, False, False
            self.failures.append(Failure(own, int(seeds[i]), messages[i] or UNKNOWN))
        return values, violated, undecided

    def _one_by_one(
        self, parameters: Values, seeds: np.ndarray, error: Exception
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
        values = np.full((len(self.parts), len(seeds)), np.nan)
        violated, undecided, messages = np.zeros(values.shape, bool), np.zeros(values.shape, bool), [""] * len(seeds)
        if len(seeds) == 1:
            return values, violated, undecided, [told(error)]
        for i in range(len(seeds)):
            try:
                signals = self.simulate({k: v[i : i + 1] for k, v in parameters.items()}, seeds[i : i + 1])
            except MemoryError:
                raise
            except Exception as own:
                messages[i] = told(own)
            else:
                values[:, i : i + 1], violated[:, i : i + 1], undecided[:, i : i + 1], _ = self.judged(signals, 1)
        if not any(messages):
            raise error
        return values, violated, undecided, messages

    def alone(self, parameters: Values, seed: int) -> tuple[np.ndarray, ...]:
        """Of one candidate, simulated by itself, clauses' values, violations, what is undecided, and times [C]; the
        signals [T, *shape] are kept in ``signals``.
        """
        batch, seeds = {k: np.asarray(v)[None] for k, v in parameters.items()}, np.array([seed], np.int64)
        try:
            signals = self.simulate(batch, seeds)
        except MemoryError:
            raise
        except Exception as error:
            if self.raises:
                raise
            self.failures.append(Failure(parameters, seed, told(error)))
            unknown, nothing = np.full(len(self.parts), np.nan), np.zeros(len(self.parts), bool)
            return unknown, nothing, nothing, unknown
        self.signals = {k: v[:, 0] for k, v in signals.items()}
        return tuple(part[:, 0] for part in self.judged(signals, 1))

    def simulate(self, parameters: Values, seeds: np.ndarray) -> dict[str, np.ndarray]:
        """The rollout's signals as numpy arrays."""
        return {name: host(value) for name, value in self.rollout(parameters, seeds).items()}

    def judged(self, signals: Mapping[str, np.ndarray], count: int) -> tuple[np.ndarray, ...]:
        """Value, violation, indecision and its time of each clause, [C, B]. What is wrong with the signals' form is the
        caller's error.
        """
        judged = judge_clauses(self.judge, self.parts, signals, count)
        return tuple(np.array(part) for part in judged)

    def is_broken(self) -> bool:
        """Whether nothing but failures of one kind came so far, and enough of them."""
        kinds = {f.message.partition(":")[0] for f in self.failures}
        return self.evaluations >= BROKEN and len(self.failures) == self.evaluations and len(kinds) == 1

    def is_hit(self, aim: Aim) -> bool:
        """Whether the one clause that ``aim`` is about was violated."""
        return bool(aim(self.any_violated[:, None])[0])

    def best_point(self, aim: Aim) -> np.ndarray | None:
        """The point with the least value of ``aim`` so far; None without one."""
        if not self.values:
            return None
        values = aim(np.concatenate(self.values, 1))
        return None if np.isnan(values).all() else np.concatenate(self.points)[np.nanargmin(values)]

    def spread(self, clause: int, samples: int | None = None) -> float:
        """Interquartile range of a clause's finite values among the first ``samples``."""
        values = np.concatenate(self.values, 1)[clause, :samples] if self.values else np.empty(0)
        values = values[np.isfinite(values)]
        return float(np.subtract(*np.percentile(values, [75, 25]))) if len(values) >= ENOUGH else float("nan")


@dataclass(frozen=True)
class _Stop:
    """When a search ends before its budget is spent."""

    record: _Record
    at_violation: bool
    at_failure: bool
    patience: int | None
    interrupted: Callable[[], bool]

    def reason(self) -> str | None:
        r = self.record
        if self.at_violation and r.any_violated.any():
            return "violation"
        if self.at_failure and r.failures:
            return "failure"
        if r.is_broken():
            return "broken"
        if self.interrupted():
            return "interrupted"
        if self.patience is not None and r.evaluations - r.improved_at >= self.patience:
            return "patience"
        return None


def _sampled(record: _Record, planned: int, confidence: float) -> Sampled:
    values, violated = np.concatenate(record.values, 1), np.concatenate(record.violated, 1)
    undecided = np.concatenate(record.undecided, 1)
    findings = int((violated.any(0) | undecided.any(0) | np.isnan(values).any(0)).sum())
    count = record.evaluations
    if not findings:
        return Sampled(count, 0, 0.0, 1 - (1 - confidence) ** (1 / count), confidence)
    low, high = clopper_pearson(findings, count, confidence) if count == planned else (float("nan"), float("nan"))
    return Sampled(count, findings, low, high, confidence)


def clopper_pearson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Exact two-sided interval of a binomial proportion, by bisection of the binomial distribution."""
    tail = (1 - confidence) / 2

    def at_most(k: int, p: float) -> float:
        terms = [lgamma(trials + 1) - lgamma(i + 1) - lgamma(trials - i + 1) + i * log(p) + (trials - i) * log(1 - p)
                 for i in range(k + 1)]
        return float(np.exp(terms).sum())

    def root(k: int, target: float) -> float:
        a, b = 0.0, 1.0
        for _ in range(60):  # at_most(k, p) falls with p
            middle = 0.5 * (a + b)
            a, b = (middle, b) if at_most(k, middle) > target else (a, middle)
        return 0.5 * (a + b)

    low = 0.0 if successes == 0 else root(successes - 1, 1 - tail)
    return low, 1.0 if successes == trials else root(successes, tail)


def _result(
    record: _Record, dt: float, semantics: Semantics, method: str, attack: str, sampled: Sampled | None, stopped: str
) -> Falsification:
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
        np.array(record.history, np.float64).reshape(-1, 2), record.evaluations, record.budget, method, attack,
        record.noise, stopped, margin, at_s)


def _least(values: np.ndarray, gravity: np.ndarray) -> int:
    """Index of the least value among those of the greatest ``gravity`` (2 violated, 1 undecided), NaN last."""
    rank = -gravity.astype(int)
    return int(np.lexsort((np.where(np.isnan(values), np.inf, values), rank, np.isnan(values)))[0])


def _first(values: np.ndarray, violated: np.ndarray, times: np.ndarray) -> int:
    """Index of the violated clause that was decided first, the least of several; the least where none is."""
    when = np.where(violated & np.isfinite(times), times, np.inf)
    return int(np.lexsort((np.where(np.isnan(values), np.inf, values), when, ~violated, np.isnan(values)))[0])
