"""The evaluated candidates of a search, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.analysis.counterexample import UNKNOWN
from temporeal.sim.stl.analysis.falsification import Failure
from temporeal.sim.stl.analysis.parameter_space import ParameterSpace, Values
from temporeal.sim.stl.analysis.rollouts import Judge, Rollout, distinct_conjuncts, error_text, judge_clauses, to_numpy
from temporeal.sim.stl.analysis.search_options import ENOUGH, SearchOptions
from temporeal.sim.stl.language.propositional import Formula

BROKEN = 32
"""Rollouts that fail alike, without any that does not, from which on the rollout counts as broken."""
Aim = Callable[[np.ndarray], np.ndarray]
"""From the clauses' values [C, B] to the objective of a search, [B]."""


class Evaluations:
    """Evaluates candidates and records everything about them."""

    def __init__(
        self, rollout: Rollout, formula: Formula, space: ParameterSpace, judge: Judge, options: SearchOptions,
        rng: np.random.Generator, progress: Callable[[int, int, float], None] | None,
    ) -> None:
        self.rollout, self.formula, self.space, self.judge, self.options = rollout, formula, space, judge, options
        self.parts, self.rng, self.progress = distinct_conjuncts(formula), rng, progress
        self.points: list[np.ndarray] = []  # [B, dim] of each batch
        self.seeds: list[np.ndarray] = []  # [B]
        self.values: list[np.ndarray] = []  # [C, B], NaN: failed
        self.violated: list[np.ndarray] = []  # bool [C, B]
        self.undecided: list[np.ndarray] = []  # bool [C, B]
        self.failures: list[Failure] = []
        self.signals: dict[str, np.ndarray] = {}  # of the candidate that was simulated alone
        self.history: list[tuple[int, float]] = []
        self.evaluations = 0
        self.least = np.full(len(self.parts), inf)
        self.any_violated = np.zeros(len(self.parts), bool)
        self.improved_at = 0

    @property
    def left(self) -> int:
        return self.options.budget - self.evaluations

    def evaluate(self, points: np.ndarray) -> np.ndarray:
        """The clauses' values [C, B] at ``points`` [B, dim]; NaN where a rollout failed."""
        count = len(points)
        seeds = np.full(count, self.options.seed, np.int64)
        if self.options.noise == "fresh":
            seeds = self.rng.integers(2**31, size=count, dtype=np.int64)
        values, violated, undecided = self._judged(self.space.from_unit(points), seeds)
        self.evaluations += count
        smallest = np.fmin(self.least, np.fmin.reduce(values, axis=1, initial=inf))
        if (smallest < self.least).any() if self.options.attack == "clauses" else smallest.min() < self.least.min():
            self.improved_at = self.evaluations
        self.least, self.any_violated = smallest, self.any_violated | violated.any(1)
        self.points.append(points)
        self.seeds.append(seeds)
        self.values.append(values)
        self.violated.append(violated)
        self.undecided.append(undecided)
        self.history.append((self.evaluations, float(self.least.min())))
        if self.progress is not None:
            self.progress(self.evaluations, self.options.budget, float(self.least.min()))
        return values

    def _judged(self, parameters: Values, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        messages = [""] * len(seeds)
        try:
            signals = self.simulate(parameters, seeds)
        except MemoryError:
            raise
        except Exception as error:
            if self.options.on_failure == "raise":
                raise
            values, violated, undecided, messages = self._one_by_one(parameters, seeds, error)
        else:
            values, violated, undecided, _ = self.judged(signals, len(seeds))
        for i in np.flatnonzero(np.isnan(values).any(0)):
            own = {k: v[i] for k, v in parameters.items()}
            if self.options.on_failure == "raise":
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
            return values, violated, undecided, [error_text(error)]
        for i in range(len(seeds)):
            try:
                signals = self.simulate({k: v[i : i + 1] for k, v in parameters.items()}, seeds[i : i + 1])
            except MemoryError:
                raise
            except Exception as own:
                messages[i] = error_text(own)
            else:
                values[:, i : i + 1], violated[:, i : i + 1], undecided[:, i : i + 1], _ = self.judged(signals, 1)
        if not any(messages):
            raise error
        return values, violated, undecided, messages

    def alone(self, parameters: Values, seed: int) -> tuple[np.ndarray, ...]:
        """One candidate simulated alone: its clauses' values, violations, indecisions and times of decision, [C].

        ``signals`` holds its signals [T, *shape] afterwards.
        """
        batch, seeds = {k: np.asarray(v)[None] for k, v in parameters.items()}, np.array([seed], np.int64)
        try:
            signals = self.simulate(batch, seeds)
        except MemoryError:
            raise
        except Exception as error:
            if self.options.on_failure == "raise":
                raise
            self.failures.append(Failure(parameters, seed, error_text(error)))
            unknown, nothing = np.full(len(self.parts), np.nan), np.zeros(len(self.parts), bool)
            return unknown, nothing, nothing, unknown
        self.signals = {k: v[:, 0] for k, v in signals.items()}
        return tuple(part[:, 0] for part in self.judged(signals, 1))

    def simulate(self, parameters: Values, seeds: np.ndarray) -> dict[str, np.ndarray]:
        """The rollout's signals as numpy arrays."""
        return {name: to_numpy(value) for name, value in self.rollout(parameters, seeds).items()}

    def judged(self, signals: Mapping[str, np.ndarray], count: int) -> tuple[np.ndarray, ...]:
        """Value, violation, indecision and time of decision of each clause, [C, B]; raises for malformed signals."""
        judged = judge_clauses(self.judge, self.parts, signals, count)
        return tuple(np.array(part) for part in judged)

    def is_broken(self) -> bool:
        """Whether there were only failures of one kind so far, and at least :data:`BROKEN`."""
        kinds = {f.message.partition(":")[0] for f in self.failures}
        return self.evaluations >= BROKEN and len(self.failures) == self.evaluations and len(kinds) == 1

    def is_hit(self, aim: Aim) -> bool:
        """Whether the single clause of ``aim`` was violated."""
        return bool(aim(self.any_violated[:, None])[0])

    def best_point(self, aim: Aim) -> np.ndarray | None:
        """The point with the least value of ``aim`` so far; None if there is none."""
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
class StopRule:
    """When a search ends before its budget is spent."""

    record: Evaluations
    interrupted: Callable[[], bool]

    def reason(self) -> str | None:
        r, options = self.record, self.record.options
        if options.stop_at_violation and r.any_violated.any():
            return "violation"
        if options.on_failure == "stop" and r.failures:
            return "failure"
        if r.is_broken():
            return "broken"
        if self.interrupted():
            return "interrupted"
        if options.patience is not None and r.evaluations - r.improved_at >= options.patience:
            return "patience"
        return None
