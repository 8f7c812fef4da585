"""The suite of formulas as a comparison: methods, systems with their budgets and targets, and what trials add up to.

A *trial* is one method on one formula with one seed: a mapping as `temporeal_benchmarks.stl_study.trial` writes it,
with ``status`` ``done``, ``not supported`` (the method refuses the formula or the system, ``reason`` says why) or
``failed`` (it ended with an error). Trials that are not there yet are missing, and in no average.

Rules of the averages:

- Of a formula: the mean over its seeds, each with the same weight: a planner that fails is slow, and judged on fewer
  starts, so that all of them as one proportion would hide it. Its interval: where each seed has as many episodes,
  Clopper-Pearson's of all of them, else the mean of the seeds' lower and of their upper ends.
- Of several formulas: the mean of theirs, each with the same weight. A formula that is not supported counts as 0, as
  in the published comparisons, and so does a failed training; how many there are is said beside it. Besides there is
  the mean over those that are supported.
- Its interval: where each formula has as many episodes, that of all of them as one proportion, which is conservative
  for a mean of different ones (Hoeffding, Annals of Mathematical Statistics 27, 1956); else the mean of the formulas'
  lower and of their upper ends, which is wider still. It is about these policies: seeds differ by more.
- Over trainings: :func:`training_interval`, by which another seed's mean may be expected to differ.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from statistics import fmean, median
from typing import Any

import numpy as np

Trial = Mapping[str, Any]
DONE, NOT_SUPPORTED, FAILED = "done", "not supported", "failed"
LEARNER, MODEL, PLANNER = "learner", "model", "planner"


@dataclass(frozen=True)
class Method:
    """One way to satisfy formulas.

    ``words``: settings as ``temporeal train`` takes them. ``kind``: a ``learner`` is judged by its policy, ``model`` is
    learned and then plans with its network and the model, a ``planner`` only plans. ``systems``: where it can run at
    all; None: wherever it does not refuse.
    """

    key: str
    title: str
    about: str
    words: tuple[str, ...]
    kind: str = LEARNER
    systems: tuple[str, ...] | None = None

    @property
    def algo(self) -> str:
        """The module of `temporeal.policies.algos`."""
        return next(word.removeprefix("algo=") for word in self.words if word.startswith("algo="))


@dataclass(frozen=True)
class Target:
    """What one system is given and must reach.

    ``budget_s``: CPU time of each training, on one core, and of all planning of a planner. ``success`` of TGPO*, mean
    over the formulas; ``seconds``: longest training, CPU time from process start, None where none is asked.
    ``replan``: control steps between plans, 0 where the model is the simulator. ``words``: settings of all its
    learners; ``of``: by method, what fits it to the system: its sizes, or what the system's experiment says and the
    method's own settings would take away.
    """

    success: float
    seconds: float | None
    budget_s: float
    replan: int = 0
    words: tuple[str, ...] = ()
    of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


PLAIN = "task.settings.view=plain"
# Of the learners that TGPO is compared with, for all systems; chosen by looks at `linear_reach` and a few others
# (docs/how-to/learning-formulas.md). Their episodes all last equally long: worlds that begin at once would be in step
# for
# ever. What is paid late must not be discounted away: 0.999^1000 = 0.37. Their critics see the margins so far, of which
# their rewards are made, for a view that forgets them makes a reward of luck. A recurrent actor learns from whole
# windows of 100 steps: with 25, as the others have, it learned to remember nothing. Observations are not normalized, as
# TGPO's are not: what is seldom other than 0, as a flag, is scaled up by its rarity, and with that several learned
# nothing that otherwise learn it. Unlike TGPO's, their exploration does not fade, and their updates are those of PPO's
# default, `desired_kl` 0.01, where TGPO's is 0.03: with both as TGPO's, none of eight trainings came to more.
LEARNER_WORDS = ("algo=ppo", "algo.stagger=true", "algo.rollout_steps=25", "algo.minibatches=8", "algo.gamma=0.999",
                 "algo.gae_lambda=0.98", "algo.entropy_coef=0.005", "algo.max_std=1.0",
                 "algo.normalize_observations=false")
NORMALIZED = "algo.normalize_observations=true"  # with the arm they learn more so, elsewhere less or as much
WINDOWS = ("algo.memory=64", "algo.rollout_steps=100", "num_worlds=512")
SO_FAR = "task.settings.of_view={privileged: true}"
METHODS: Mapping[str, Method] = {method.key: method for method in (
    Method("tgpo", "TGPO*", "policy conditioned on a time for each subgoal, schedules guided by its critic",
           ("algo=tgpo",)),
    Method("tgpo-uniform", "TGPO", "an ablation: the critic guides neither the schedules that are learned from, which "
           "are drawn uniformly, nor the starts in the middle of missions", (
               "algo=tgpo", "algo.guided=false", "algo.frontier=0")),
    Method("tgpo-home", "TGPO* from home", "an ablation: TGPO* whose episodes all start where the task's do, as those "
           "of the baselines, and none in the middle of a mission", ("algo=tgpo", "algo.mid_episode_starts=0")),
    Method("ppo", "PPO", "state and time, the formula's robustness at the end", (*LEARNER_WORDS, PLAIN, SO_FAR)),
    Method("rnn", "RNN", "a recurrent policy; paid for each change of the soft robustness, and at the end where the "
           "formula is satisfied",
           (*LEARNER_WORDS, *WINDOWS, PLAIN, SO_FAR,
            "task.settings.reward={robustness: 0.0, early: 1.0, satisfied: 10.0}")),
    Method("tau-mdp", "τ-MDP", "the state's history (Aksaray et al., CDC 2016), of 32 samples; paid likewise",
           (*LEARNER_WORDS, "task.settings.view=history", "task.settings.of_view={samples: 32, privileged: true}",
            "task.settings.reward={satisfied: 10.0}")),
    Method("f-mdp", "F-MDP", "a flag for each inner operator (Venkataraman et al., HSCC 2020); paid likewise",
           (*LEARNER_WORDS, "task.settings.view=flags", SO_FAR,
            "task.settings.reward={early: 1.0, satisfied: 10.0, sharp: 1.0}")),
    Method("npc", "STL-NPC", "gradient through the model and smooth robustness, with its backup policy "
           "(Meng and Fan, RA-L 2023)", ("algo=npc", PLAIN, "num_worlds=1", "algo.backup_steps=300"), MODEL),
    Method("cem", "CEM", "cross-entropy search over action splines in the model", (
        "algo=cem", PLAIN, "algo.population=512", "algo.iterations=120", "algo.knots=40"), PLANNER),
    Method("milp", "MILP", "mixed-integer program, exact on linear systems: the classical reference",
           ("algo=milp", PLAIN), PLANNER, ("linear",)),
)}
OURS, UNIFORM, HOME, HISTORY, EXACT = "tgpo", "tgpo-uniform", "tgpo-home", "tau-mdp", "milp"
BASELINES = ("ppo", "rnn", "tau-mdp", "f-mdp", "npc", "cem", "milp")
"""What the margin is taken over, each on the systems that it is for (:func:`is_for`)."""
MODEL_FREE = tuple(key for key in BASELINES if METHODS[key].kind == LEARNER)
"""Those that are given no model and do not plan: what learns from samples, as TGPO does."""

SYSTEMS: Mapping[str, Target] = {
    "linear": Target(0.95, 180.0, 150.0),
    "unicycle": Target(0.90, 180.0, 150.0),
    "quadrotor": Target(0.95, 900.0, 720.0, replan=50, of={  # paid by a sharper minimum, both stayed on the floor
        "rnn": ("task.settings.reward={robustness: 0.0, early: 1.0, satisfied: 10.0, sharp: 1.0}",),
        "tau-mdp": ("task.settings.reward={satisfied: 10.0, sharp: 1.0}",)}),
    "franka": Target(0.80, None, 360.0, replan=25, of={  # a place has a radius of 6 cm there, 60 cm in the plane
        **dict.fromkeys(("ppo", "tau-mdp"), (NORMALIZED,)),
        # softer than size asks for, 50, by which it has less (one training each); tau-MDP has more by that
        "rnn": (NORMALIZED, "task.settings.reward={robustness: 0.0, early: 1.0, satisfied: 10.0, sharp: 10.0}"),
        "npc": ("algo.margin=0.02", "algo.temperature=0.01", "algo.temperature_end=0.002"),
        "cem": ("algo.enough=0.005",),
        "f-mdp": (NORMALIZED, "task.settings.reward={early: 1.0, satisfied: 10.0, sharp: 10.0}")}),
    "ant": Target(0.75, None, 1200.0, words=("experiment=stl_ant",), of=dict.fromkeys(
        ("ppo", "rnn", "tau-mdp", "f-mdp"), ("algo.minibatches=4", "algo.entropy_coef=0.001"))),
}
MARGIN = 32.0  # percentage points above the best baseline
LONG, LONG_SUCCESS = 1000, 0.99  # control steps on system linear
SHORT = (50, 100, 200)  # control steps up to which the published method loses to tau-MDP
SEEDS = 3  # at least
STARTS = 1000  # that a trial is judged on; of a planner fewer, where its time was over before
THRESHOLDS = (0.5, 0.9)  # of success, that the time to is told of

STUDY_OF_HORIZONS = re.compile(r"linear_horizon_([1-9][0-9]*)")  # control steps; of other systems there is none


def is_for(method: str, system: str) -> bool:
    """Whether ``method`` is for ``system`` at all."""
    systems = METHODS[method].systems
    return systems is None or system in systems


def system_of(task: str) -> str:
    """The system of a formula's file ``<system>_<name>``."""
    return task.partition("_")[0]


def steps_of(task: str) -> int | None:
    """Control steps of a formula of the study of horizons; None of any other formula."""
    found = STUDY_OF_HORIZONS.fullmatch(task)
    return int(found[1]) if found else None


def is_scaling(task: str) -> bool:
    """Whether ``task`` is one of the study of horizons: in none of the averages over formulas."""
    return steps_of(task) is not None


def seen(trials: Sequence[Trial], key: str, known: Iterable[str]) -> list[str]:
    """Those of ``known`` that there are trials of."""
    there = {t[key] for t in trials}
    return [name for name in known if name in there]


# ---------------------------------------------------------------- averages


@dataclass(frozen=True)
class Share:
    """A probability with its interval, and what it is made of."""

    estimate: float
    low: float
    high: float
    episodes: int
    formulas: int = 1
    not_supported: int = 0
    failed: int = 0
    seeds: int = 1
    starts: tuple[int, int] = (0, 0)  # least and most that a trial was judged on
    unknown: int = 0  # trials of which nobody knows whether their settings were those of now


def of(trials: Iterable[Trial], **asked: Any) -> list[Trial]:
    """The trials whose entries are as ``asked``."""
    return [trial for trial in trials if all(trial.get(key) == value for key, value in asked.items())]


def unknown_settings(trials: Iterable[Trial]) -> list[Trial]:
    """Those that do not tell all their settings (``settings``, a digest), only the words of a command line: the files
    of settings behind these were perhaps others than those of now."""
    return [trial for trial in trials if trial.get("settings") is None]


def formula_share(trials: Sequence[Trial]) -> Share | None:
    """Of the trials of one method on one formula; None where there is none. See the head of this module."""
    if not trials:
        return None
    from temporeal.policies.evaluate.statistics import clopper_pearson

    done, failed = of(trials, status=DONE), len(of(trials, status=FAILED))
    if not done:
        refused = len(of(trials, status=NOT_SUPPORTED))
        return Share(0.0, 0.0, 0.0, 0, not_supported=bool(refused and not failed), failed=failed, seeds=len(trials))
    judged = [(t["satisfied"], t["episodes"]) for t in done]
    starts = [episodes for _, episodes in judged]
    ends = [clopper_pearson(*map(sum, zip(*judged)))] if len({*starts}) == 1 else [clopper_pearson(*t) for t in judged]
    low, high = map(fmean, zip(*ends))
    part, estimate = len(done) / (len(done) + failed), fmean(hits / episodes for hits, episodes in judged)
    return Share(part * estimate, part * low, part * high, sum(starts), failed=failed, seeds=len(trials),
                 starts=(min(starts), max(starts)), unknown=len(unknown_settings(done)))


def mean_share(shares: Sequence[Share], *, refused_as_zero: bool = True) -> Share | None:
    """The mean over formulas; None where there is none. See the head of this module."""
    from temporeal.policies.evaluate.statistics import clopper_pearson

    ran = [share for share in shares if not share.not_supported]
    counted = len(shares) if refused_as_zero else len(ran)
    if not counted:
        return None
    told = {"episodes": sum(s.episodes for s in ran), "formulas": len(shares),
            "not_supported": len(shares) - len(ran), "failed": sum(s.failed for s in ran),
            "seeds": min(s.seeds for s in shares), "unknown": sum(s.unknown for s in ran)}
    judged = [s.starts for s in ran if s.episodes]
    starts = (min(least for least, _ in judged), max(most for _, most in judged)) if judged else (0, 0)
    scale = len(ran) / counted
    if not ran:
        return Share(0.0, 0.0, 0.0, **told, starts=starts)
    estimate = scale * fmean(s.estimate for s in ran)
    if len({s.episodes for s in ran}) == 1 and not told["failed"]:
        low, high = clopper_pearson(round(sum(s.estimate * s.episodes for s in ran)), told["episodes"])
    else:
        low, high = fmean(s.low for s in ran), fmean(s.high for s in ran)
    return Share(estimate, scale * low, scale * high, **told, starts=starts)


def shares(trials: Sequence[Trial], method: str, tasks: Sequence[str]) -> dict[str, Share]:
    """Of ``method`` on each of ``tasks`` that it was tried on."""
    found = {task: formula_share(of(trials, method=method, task=task)) for task in tasks}
    return {task: share for task, share in found.items() if share is not None}


def system_tasks(trials: Sequence[Trial], system: str, layers: str | None = None) -> list[str]:
    """The formulas of ``system`` that there are trials of, the study of horizons left out; of ``layers`` only."""
    own = [t for t in of(trials, system=system) if not is_scaling(t["task"])]
    kinds = {t["task"]: layer_name(t) for t in own if "depth" in t}  # a failed trial does not tell
    return sorted({t["task"] for t in own if layers is None or kinds.get(t["task"]) == layers})


def layer_name(trial: Trial) -> str:
    """``two`` or ``multi`` layers: temporal operators inside others make the second."""
    return "two" if trial["depth"] <= 1 else "multi"


def system_share(
    trials: Sequence[Trial], method: str, system: str, layers: str | None = None, *, refused_as_zero: bool = True
) -> Share | None:
    """Mean over the formulas of ``system`` (with ``layers``)."""
    found = shares(trials, method, system_tasks(trials, system, layers))
    return mean_share(list(found.values()), refused_as_zero=refused_as_zero)


def seed_range(trials: Sequence[Trial], method: str, system: str) -> tuple[float, float] | None:
    """Least and greatest mean over the formulas of ``system`` that a single seed has; of seeds that have them all."""
    tasks, found = system_tasks(trials, system), []
    for seed in sorted({t["seed"] for t in of(trials, method=method, system=system)}):
        own = shares(of(trials, seed=seed), method, tasks)
        if len(own) == len(tasks):
            mean = mean_share(list(own.values()))
            found += [mean.estimate] if mean else []
    return (min(found), max(found)) if found else None


def formulas_of(study: Mapping[str, Any], system: str, layers: str | None = None) -> int | None:
    """How many formulas of ``system`` (with ``layers``) the suite has, the study of horizons left out; None: of those
    that nothing was tried on, the layers are not known."""
    tried = system_tasks(study["trials"], system)
    known = {t for t in study.get("tasks", ()) if system_of(t) == system and not is_scaling(t)} | {*tried}
    if layers is None:
        return len(known)
    sure = {kind: system_tasks(study["trials"], system, kind) for kind in ("two", "multi")}
    return len(sure[layers]) if len(known) == sum(map(len, sure.values())) else None


def extent(share: Share, of: int | None) -> list[str]:
    """Of how many formulas and seeds a share is, where those are not all; of how many starts, where those are few."""
    parts = []
    if share.formulas != of or share.seeds < SEEDS:
        formulas = f"{share.formulas}" + ("" if of is None else f" of {of}")
        formulas += " formula, " if (of or share.formulas) == 1 else " formulas, "
        seeds = f"{share.seeds} seed" + ("s" if share.seeds > 1 else "")
        parts.append(("" if share.formulas == of == 1 else formulas) + seeds)
    least, most = share.starts
    if 0 < least < STARTS:
        parts.append(f"{least} starts" if least == most else f"{least} to {most} starts")
    return parts


RESAMPLES = 10_000
"""Of a bootstrap: its 2.5 % quantile is then known to some 1.5 % of the interval's width."""


def training_interval(trials: Sequence[Trial], method: str, system: str) -> tuple[float, float] | None:
    """95 % interval of the mean over the formulas of ``system``, over trainings: of each formula as many are drawn
    anew, with replacement, as there are (stratified bootstrap, Agarwal et al., NeurIPS 2021). None where a formula has
    only one, and for planners, which do not train. With three trainings each it is too narrow rather than too wide.
    """
    if METHODS[method].kind == PLANNER:
        return None
    own = [of(trials, method=method, task=task) for task in system_tasks(trials, system)]
    own = [found for found in own if found]
    if not own or min(map(len, own)) < 2:
        return None
    rng, total = np.random.default_rng(0), np.zeros(RESAMPLES)
    for found in own:
        told = np.array([t["satisfied"] / t["episodes"] if t["status"] == DONE else 0.0 for t in found])
        total += told[rng.integers(len(found), size=(RESAMPLES, len(found)))].mean(1)  # as formula_share has it
    low, high = np.quantile(total / len(own), (0.025, 0.975))
    return float(low), float(high)


def is_complete(trials: Sequence[Trial], methods: Sequence[str], tasks: Sequence[str], seeds: int = SEEDS) -> bool:
    """Whether each of ``methods`` was tried on each of ``tasks`` with at least ``seeds`` seeds."""
    counted = {(m, t): {x["seed"] for x in of(trials, method=m, task=t)} for m in methods for t in tasks}
    return bool(tasks) and all(len(found) >= seeds for found in counted.values())


# ---------------------------------------------------------------- against the baselines


def ran(trials: Sequence[Trial], method: str, system: str) -> bool:
    """Whether ``method`` runs on ``system`` at all: it supports at least one of its formulas."""
    return any(t["status"] != NOT_SUPPORTED for t in of(trials, method=method, system=system)
               if not is_scaling(t["task"]))


def compared_systems(trials: Sequence[Trial], baselines: Sequence[str] = BASELINES) -> list[str]:
    """The systems where ours and all ``baselines`` that are for it ran, on the same formulas: means over different ones
    do not tell."""
    def whole(method: str, system: str) -> bool:
        tasks = system_tasks(trials, system)
        return ran(trials, method, system) and len(shares(trials, method, tasks)) == len(tasks)

    return [system for system in SYSTEMS
            if all(whole(method, system) for method in (OURS, *baselines) if is_for(method, system))]


def best_baseline(
    trials: Sequence[Trial], system: str, baselines: Sequence[str] = BASELINES
) -> tuple[str, float] | None:
    """The one of ``baselines`` with the greatest mean success on ``system``, and that."""
    found = {m: share.estimate for m in baselines if (share := system_share(trials, m, system)) is not None}
    return max(found.items(), key=lambda item: item[1]) if found else None


def margin(trials: Sequence[Trial], baselines: Sequence[str] = BASELINES) -> float | None:
    """Percentage points of TGPO* above the best of ``baselines`` on each system, mean over those where all ran."""
    gaps = []
    for system in compared_systems(trials, baselines):
        ours, best = system_share(trials, OURS, system), best_baseline(trials, system, baselines)
        if ours is not None and best is not None:
            gaps.append(100.0 * (ours.estimate - best[1]))
    return fmean(gaps) if gaps else None


def margin_where_supported(trials: Sequence[Trial]) -> float | None:
    """As :func:`margin`, each baseline against TGPO* on the formulas only that the baseline supports; the least."""
    gaps = []
    for system in compared_systems(trials):
        tasks = system_tasks(trials, system)
        ours, of_system = shares(trials, OURS, tasks), []
        for method in BASELINES:
            theirs = {t: s for t, s in shares(trials, method, tasks).items() if not s.not_supported and t in ours}
            if theirs:
                of_system.append(fmean(100.0 * (ours[t].estimate - s.estimate) for t, s in theirs.items()))
        gaps += [min(of_system)] if of_system else []
    return fmean(gaps) if gaps else None


def by_horizon(trials: Sequence[Trial], method: str) -> list[tuple[int, Share]]:
    """Control steps and success of the study of horizons, ascending."""
    own = of(trials, method=method)
    lengths = sorted({steps for t in own if (steps := steps_of(t["task"])) is not None})
    found = [(steps, formula_share([t for t in own if steps_of(t["task"]) == steps])) for steps in lengths]
    return [(steps, share) for steps, share in found if share is not None and not share.not_supported]


def not_worse(ours: Share, theirs: Share) -> bool:
    """Whether the other estimate does not lie above our interval."""
    return theirs.estimate <= ours.high


def tried(study: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """What was tried for the figure ``row`` of ``study``, where its target is missed; else empty."""
    return "" if row["ok"] is not False else study.get("tried", {}).get(row["name"], "nothing is noted yet")


# ---------------------------------------------------------------- time


POOL = 100
"""Whole episodes that a share of success is told of while learning, at least: its standard deviation is then at most
0.05. In one iteration often a single one ends, and the first that is lucky is no threshold reached."""


def pooled(history: Sequence[Mapping[str, float]]) -> list[tuple[float, float, float]]:
    """Seconds, steps and success over the last :data:`POOL` whole episodes or more, as long as training went on.

    Each episode counts once: an iteration in which none ended repeats the figures of the one before. Nothing is said
    before there were so many. A row that does not say of how many ``episodes`` it is stands for itself: STL-NPC's,
    which are of the batch of an update, missions that its model predicts (256,
    :class:`temporeal.policies.algos.npc.NPCConfig`).
    """
    told, window, before = list[tuple[float, float, float]](), deque[tuple[float, float]](), None
    for row in (row for row in history if "success" in row):
        figures = tuple(row.get(name) for name in ("success", "episodes", "return"))
        if "episodes" in row and figures == before:
            continue
        before, count = figures, row.get("episodes", POOL)
        window.append((count, count * row["success"]))
        while sum(c for c, _ in window) - window[0][0] >= POOL:
            window.popleft()
        if (whole := sum(c for c, _ in window)) >= POOL:
            told.append((row["seconds"], row["steps"], sum(good for _, good in window) / whole))
    return told


SETTLED = 5
"""Points of a curve that a time to a threshold is told by, at least."""


def time_to(curve: Sequence[Sequence[float]], threshold: float) -> float | None:
    """Seconds of training from which on success stays at least ``threshold``: of the first point of the curve
    [[s, steps, success], ...] that is there together with all that follow, on their average; None where none is.

    Where some 100 episodes were so good for the first time says little: of thousands of such shares the largest is well
    above what the policy does, and trainings that never came to 0.9 had one.
    """
    shares = [success for *_, success in curve]
    return next((curve[i][0] for i in range(len(curve) - SETTLED + 1)
                 if shares[i] >= threshold and fmean(shares[i:]) >= threshold), None)


def is_pooled(trial: Trial) -> bool:
    """Whether the trial's curve is of pooled episodes: in trials of before it is of those that ended in one
    iteration."""
    return trial.get("pooled") == POOL


@dataclass(frozen=True)
class Times:
    """Of the trainings of one method on one system, from process start, the study of horizons left out. ``to``: by
    threshold, how many of those ``pooled`` (:func:`is_pooled`) got there, and their median time [s]: None where half of
    them did not. ``wall``: of those that ran at most :data:`FEW` at once, how many, and the longest [s]."""

    trainings: int
    cpu_s: float  # median
    longest_s: float  # of CPU time
    pooled: int
    to: Mapping[float, tuple[int, float | None]]
    wall: tuple[int, float | None] = (0, None)


FEW = 2  # trials at once: each has a core of its own on machines of two cores, where nothing else runs


def times(trials: Sequence[Trial], method: str, system: str) -> Times | None:
    """See :class:`Times`; of the times to a threshold, one that was not reached is infinite."""
    own = [t for t in of(trials, method=method, system=system, status=DONE)
           if t.get("cpu_s") is not None and not is_scaling(t["task"])]
    if not own:
        return None
    to, told = {}, [t["curve"] for t in own if is_pooled(t)]
    for threshold in THRESHOLDS:
        seconds = [inf if (s := time_to(curve, threshold)) is None else s for curve in told]
        middle = median(seconds) if seconds else inf
        to[threshold] = (sum(map(isfinite, seconds)), middle if isfinite(middle) else None)
    took = [t["cpu_s"] for t in own]
    walls = [t["wall_s"] for t in own if "wall_s" in t and (t.get("parallel") or FEW + 1) <= FEW]
    return Times(len(own), median(took), max(took), len(told), to, (len(walls), max(walls, default=None)))


def spent_s(trial: Trial) -> float:
    """CPU time of a trial's training, from process start and with what it does after its last update, and of all its
    plans, s."""
    return float(trial.get("cpu_s") or 0.0) + float(trial.get("planning_s") or 0.0)


def processors(trials: Sequence[Trial]) -> str:
    """The processors that ``trials`` ran on; how many on each, where there are several."""
    found = Counter(str((t.get("machine") or {}).get("cpu", "unknown")) for t in trials)
    return ", ".join(name if len(found) == 1 else f"{name} ({n})" for name, n in sorted(found.items()))


GIVEN = ("system", "method", "budget, CPU time", "longest trial, training (from process start) and plans", "processor")
"""Columns of :func:`given`."""


def given(trials: Sequence[Trial]) -> list[tuple[str, str, str, str, str]]:
    """What the methods were given on each system: system, method, budget, :func:`spent_s` of the longest trial, and
    processors, as text. CPU time is worth more on a faster processor, and a planner's last batch may outlast it."""
    rows = []
    methods = seen(trials, "method", METHODS)
    for system, method in ((s, m) for s in seen(trials, "system", SYSTEMS) for m in methods):
        if own := of(trials, system=system, method=method, status=DONE):
            longest = max(own, key=spent_s)
            rows.append((system, METHODS[method].title, budget(own, system),
                         f"{spent_s(longest):.0f} s ({longest['task']})", processors(own)))
    return rows


def budget(trials: Sequence[Trial], system: str) -> str:
    """The CPU time that the trials of ``system`` were given."""
    seconds = sorted({t.get("budget_s", SYSTEMS[system].budget_s) for t in of(trials, system=system)})
    return " or ".join(f"{s:g} s" for s in seconds)


def reached(found: Times, threshold: float) -> str:
    """Median time to ``threshold``, and how many got there of those that tell it."""
    if not found.pooled:
        return "not measured"
    got, seconds = found.to[threshold]
    return f"{'–' if seconds is None else f'{seconds:.0f} s'} ({got} of {found.pooled})"


def first_to_fail(trials: Sequence[Trial], method: str, task: str) -> dict[str, float]:
    """Share of all episodes in which each clause was the first to fail, most frequent first."""
    done = of(trials, method=method, task=task, status=DONE)
    episodes = sum(t["episodes"] for t in done)
    counts: dict[str, int] = {}
    for trial in done:
        for clause, count in trial.get("first_to_fail", {}).items():
            counts[clause] = counts.get(clause, 0) + count
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return {clause: count / episodes for clause, count in ordered if count}
