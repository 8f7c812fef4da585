"""From a rollout to figures: how often the formula holds, by how much, and where it fails first.

- The verdict is Boolean and exact. An episode is satisfied only if its samples *decide* the formula: one that ended
  early
  (a crash, a left fence) while the formula was still open counts as violated.
- Its robustness is that of the trace with its last sample held to the end, at most :data:`BELOW_ZERO` if not satisfied.
- A clause is a top-level conjunct. The first to fail is the one whose violation was known first; if an episode ended
  before any violation was known, the open clause with the least robustness of the held trace.
- Slack of a subgoal: the end of its window minus the time at which it was reached (as early as possible, at the start
  of
  the stretch that it must hold for); NaN if it was not reached in time.
- Slack of the mission, defined for every formula: the longest delay, with the first sample held meanwhile, under which
  the formula is still satisfied, as it is under all smaller delays that were tried (at most :data:`DELAYS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import numpy as np

from temporeal.policies.evaluate.partial import Verdict, bounds, verdict
from temporeal.policies.evaluate.rollout import Rollout
from temporeal.policies.evaluate.statistics import Proportion, Summary, proportion, summarize
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula, to_text
from temporeal.sim.stl.language.queries import clauses, horizon, signals_in
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.planning.plan import Subgoal as TimedSubgoal
from temporeal.sim.stl.planning.plan import plan
from temporeal.sim.stl.semantics.robustness import robustness, satisfied

TIME = "mission_time"
DELAYS = 200
BELOW_ZERO = -1e-6  # robustness of an episode that showed no violation but did not live to satisfy


@dataclass(frozen=True)
class Episodes:
    """Figures of each of E episodes."""

    satisfied: np.ndarray  # [E] bool
    robustness: np.ndarray  # [E]
    decided_at_s: np.ndarray  # [E], when the verdict was known; the end where it never was
    first_clause: np.ndarray  # [E] index of the clause that failed first, -1: none
    failed_at_s: np.ndarray  # [E] when it did, NaN: none
    slack_s: np.ndarray  # [E, S] per subgoal, NaN: not reached in time
    delay_s: np.ndarray  # [E] slack of the mission, NaN: not satisfied
    terminated: np.ndarray  # [E] bool
    length_s: np.ndarray  # [E]
    tracking_m: np.ndarray | None  # [E] RMS distance from the reference, None without one
    effort: np.ndarray  # [E] mean squared action
    change: np.ndarray  # [E] mean squared change of the action per step


@dataclass(frozen=True)
class ClauseResult:
    """One top-level conjunct: how often it holds, its robustness, how often it is the first to fail, and when."""

    label: str
    satisfied: Proportion
    robustness: Summary
    first_to_fail: int
    failed_at_s: Summary


@dataclass(frozen=True)
class SubgoalResult:
    """One timed subgoal of the formula's decomposition."""

    label: str
    reached: Proportion
    slack_s: Summary


@dataclass(frozen=True)
class Evaluation:
    """The judgement of E episodes by ``formula``."""

    formula: Formula
    text: str
    dt: float
    horizon_s: float
    seed: int
    satisfied: Proportion
    robustness: Summary
    clauses: tuple[ClauseResult, ...]
    subgoals: tuple[SubgoalResult, ...]
    delay_s: Summary  # of the satisfied episodes
    terminated: int
    non_finite: int
    tracking_m: Summary | None
    effort: Summary
    change: Summary
    length_s: Summary
    episodes: Episodes


Reference = Callable[[np.ndarray], np.ndarray]
"""Mission time [...] s to the position [..., 3] m (world) that should be held then."""


def evaluate(
    rollout: Rollout, formula: Formula, *, reference: Reference | None = None, confidence: float = 0.95,
    delays: int = DELAYS,
) -> Evaluation:
    """Judge every episode of ``rollout`` by ``formula``; the rules are in the module's docstring.

    ``delays``: how many are tried for the slack of the mission, at most; with 0 it is NaN.
    """
    # a sample with a value that is not a number is no sample: the episode ends before it
    lengths = np.maximum(rollout.lengths - ~rollout.finite, 1)
    whole = verdict(formula, rollout.signals, rollout.dt, lengths)
    margins = held_robustness(formula, rollout, whole.satisfied)
    parts = clauses(formula)
    verdicts = [verdict(part, rollout.signals, rollout.dt, lengths) for _, part in parts]
    clause_margins = [held_robustness(part, rollout, v.satisfied) for (_, part), v in zip(parts, verdicts)]
    end = (lengths - 1) * rollout.dt
    first, failed_at = first_failure(whole, verdicts, clause_margins, end)
    labels, slack = subgoal_slack(formula, rollout, lengths)
    delay = mission_slack(formula, rollout, whole.satisfied, delays)
    effort, change = control_effort(rollout)
    tracking = None if reference is None else tracking_error(rollout, reference, lengths)
    episodes = Episodes(
        whole.satisfied, margins, np.minimum(whole.decided_at_s, end), first, failed_at, slack, delay,
        rollout.terminated, end, tracking, effort, change)
    return Evaluation(
        formula=formula, text=to_text(formula), dt=rollout.dt, horizon_s=horizon(formula), seed=rollout.seed,
        satisfied=proportion(whole.satisfied, confidence), robustness=summarize(margins),
        clauses=tuple(
            ClauseResult(label, proportion(v.satisfied, confidence), summarize(m), int((first == i).sum()),
                         summarize(failed_at[first == i]))
            for i, ((label, _), v, m) in enumerate(zip(parts, verdicts, clause_margins))),
        subgoals=tuple(
            SubgoalResult(label, proportion(np.isfinite(slack[:, i]), confidence), summarize(slack[:, i]))
            for i, label in enumerate(labels)),
        delay_s=summarize(delay), terminated=int(rollout.terminated.sum()), non_finite=int((~rollout.finite).sum()),
        tracking_m=None if tracking is None else summarize(tracking), effort=summarize(effort),
        change=summarize(change), length_s=summarize(end), episodes=episodes)


def gate(evaluation: Evaluation, require: float | None = None, require_lower: float | None = None) -> bool:
    """Whether the policy passes: the estimate reaches ``require``, and the interval's lower end ``require_lower``.

    A gate on the estimate is common, but with few episodes it is often wrong by chance. The lower end holds at the
    interval's confidence, and needs more episodes the closer it is to 1.
    """
    for value in (require, require_lower):
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"a required probability lies between 0 and 1, got {value}")
    p = evaluation.satisfied
    return (require is None or p.estimate >= require) and (require_lower is None or p.low >= require_lower)


def held_robustness(formula: Formula, rollout: Rollout, holds: np.ndarray) -> np.ndarray:
    """Robustness [E] at time 0 of the traces with their last sample held, below zero unless the formula ``holds``."""
    value = robustness(formula, hold(rollout.signals, horizon(formula), rollout.dt), rollout.dt)[0].astype(np.float64)
    margins: np.ndarray = np.where(holds, np.maximum(value, 0.0), np.minimum(value, BELOW_ZERO))
    return margins


def hold(signals: Mapping[str, np.ndarray], seconds: float, dt: float) -> dict[str, np.ndarray]:
    """The traces continued with their last sample up to ``seconds``."""
    samples = len(next(iter(signals.values())))
    missing = max(round(seconds / dt) + 1 - samples, 0) if isfinite(seconds) else 0
    return {name: np.concatenate([v, np.repeat(v[-1:], missing, axis=0)]) for name, v in signals.items()}


def first_failure(
    whole: Verdict, parts: list[Verdict], margins: list[np.ndarray], end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Index of the clause that failed first [E] (-1: none) and when [E] s (NaN: none)."""
    times = np.stack([np.where(p.violated, p.decided_at_s, np.inf) for p in parts])
    margin = np.stack(margins)
    # of clauses that fail at the same time the one that fails by more; of open ones likewise
    earliest = times.min(0)
    order = np.where(times == earliest, margin, np.inf)
    unsettled = np.stack([~p.satisfied for p in parts])
    order = np.where(np.isinf(earliest), np.where(unsettled, margin, np.inf), order)
    failed = ~whole.satisfied
    return np.where(failed, order.argmin(0), -1), np.where(failed, np.minimum(earliest, end), np.nan)


def subgoal_slack(formula: Formula, rollout: Rollout, lengths: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Label of each timed subgoal and slack [E, S] in s; none for a formula that is no sequence of timed subgoals."""
    try:
        goals = plan(decompose(formula, rollout.dt)).subgoals
    except FormulaError:
        goals = ()
    hits: list[np.ndarray] = []
    slack = np.full((rollout.episodes, len(goals)), np.nan)
    for i, goal in enumerate(goals):
        start = np.zeros(rollout.episodes) if goal.after is None else hits[goal.after]
        hits.append(hit_time(goal, rollout, lengths, start))
        slack[:, i] = start + goal.window[1] - hits[i]
    return [to_text(goal.predicate) for goal in goals], slack


def mission_slack(formula: Formula, rollout: Rollout, holds: np.ndarray, delays: int) -> np.ndarray:
    """The longest delay [E] in s under which episodes that satisfy (``holds`` [E]) still do; NaN for the others."""
    if not delays:
        return np.full(rollout.episodes, np.nan)
    used = {name: rollout.signals[name] for name in signals_in(formula) if name != TIME}
    traces = hold(used, horizon(formula), rollout.dt)
    samples = len(next(iter(traces.values()), ()))
    out, going = np.where(holds, 0.0, np.nan), np.flatnonzero(holds)
    clock = {TIME: np.broadcast_to(rollout.dt * np.arange(samples)[:, None], (samples, rollout.episodes))}
    stride = -(-samples // delays) if samples else 1
    for by in range(stride, samples, stride):
        if not len(going):
            break
        late = np.maximum(np.arange(samples) - by, 0)
        delayed = {**{name: x[late][:, going] for name, x in traces.items()}, TIME: clock[TIME][:, going]}
        going = going[satisfied(formula, delayed, rollout.dt)[0]]
        out[going] = by * rollout.dt
    return out


def hit_time(goal: TimedSubgoal, rollout: Rollout, lengths: np.ndarray, start: np.ndarray) -> np.ndarray:
    """First time [E] in the goal's window (counted from ``start`` [E]) from which its predicate holds for its hold
    time; NaN if there is none."""
    inside = satisfied(goal.predicate, rollout.signals, rollout.dt, lengths)
    time = rollout.dt * np.arange(len(inside))[:, None]
    held, need = np.zeros(inside.shape, int), round(goal.hold / rollout.dt) + 1
    run = np.zeros(rollout.episodes, int)
    for k in range(len(inside) - 1, -1, -1):  # backwards: samples for which the predicate goes on to hold
        run = np.where(inside[k], run + 1, 0)
        held[k] = run
    tolerance = 1e-3 * rollout.dt
    low, high = start + goal.window[0], start + goal.window[1]
    found = (held >= need) & (time >= low - tolerance) & (time <= high + tolerance)
    return np.where(found.any(0), time[found.argmax(0), 0], np.nan)


def control_effort(rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
    """Mean squared action and mean squared change of action per step, [E] each, over the steps of each episode."""
    count = np.maximum(rollout.lengths - 1, 1)
    own = np.arange(len(rollout.actions))[:, None] < (rollout.lengths - 1)[None]
    squared = (rollout.actions.astype(np.float64) ** 2).sum(-1)
    change = (np.diff(rollout.actions.astype(np.float64), axis=0) ** 2).sum(-1)
    return (squared * own).sum(0) / count, (change * own[1:]).sum(0) / np.maximum(count - 1, 1)


def tracking_error(rollout: Rollout, reference: Reference, lengths: np.ndarray) -> np.ndarray:
    """RMS distance [E] m of ``base_pos_w`` from the reference over the samples of each episode."""
    position = rollout.signals["base_pos_w"].astype(np.float64)
    time = rollout.dt * np.arange(len(position))
    error = ((position - reference(time)[:, None]) ** 2).sum(-1)
    own = np.arange(len(position))[:, None] < lengths[None]
    mean: np.ndarray = np.sqrt((error * own).sum(0) / lengths)
    return mean


def bounds_over_time(
    formula: Formula, rollout: Rollout, episode: int, steps: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest robustness that the episode could still end with, at each of the sample ``steps``."""
    repeated = {k: np.repeat(v[:, episode : episode + 1], len(steps), axis=1) for k, v in rollout.signals.items()}
    length = rollout.lengths[episode] - (not rollout.finite[episode])
    return bounds(formula, repeated, rollout.dt, np.minimum(np.asarray(steps) + 1, length))


def to_json(evaluation: Evaluation) -> dict[str, Any]:
    """Figures as plain JSON values: no infinity, no NaN (null instead), no per-episode arrays."""
    e = evaluation
    interval = "ci95" if e.satisfied.confidence == 0.95 else "ci"
    figures: dict[str, Any] = clean({
        "p_satisfied": e.satisfied.estimate, interval: [e.satisfied.low, e.satisfied.high],
        "confidence": e.satisfied.confidence, "episodes": e.satisfied.trials, "satisfied": e.satisfied.successes,
        "robustness": asdict(e.robustness), "formula": e.text, "horizon_s": e.horizon_s, "dt": e.dt, "seed": e.seed,
        "terminated": e.terminated, "non_finite": e.non_finite,
        "clauses": [asdict(c) for c in e.clauses], "subgoals": [asdict(s) for s in e.subgoals],
        "delay_s": asdict(e.delay_s),
        "tracking_m": None if e.tracking_m is None else asdict(e.tracking_m), "effort": asdict(e.effort),
        "change": asdict(e.change), "length_s": asdict(e.length_s)})
    return figures


def clean(value: Any) -> Any:
    """``value`` with text keys, and null for non-finite numbers."""
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else f"{key:g}": clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
