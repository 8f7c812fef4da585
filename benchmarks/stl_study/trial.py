"""One trial of `temporeal bench stl-tasks`, a process: ``python -m temporeal_benchmarks.stl_study.trial FILE``.

``FILE`` is the order of a trial (`temporeal_benchmarks.measurements.stl_tasks` writes it); what became of it is written
to the file that the order names under ``file``. It is killed when the study that started it is gone.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.policies.evaluate.suite import averages, catalog, timing
from temporeal_benchmarks.stl_study import renamed
from temporeal_benchmarks.stl_study.landscape import heat

if TYPE_CHECKING:
    from temporeal.policies.evaluate.evaluation import Evaluation
    from temporeal.policies.evaluate.rollout import Rollout
    from temporeal.sim.env import Env
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task import Task

Order = Mapping[str, Any]
"""``task``, ``system``, ``method``, ``seed``, ``words`` (settings), ``episodes``, ``budget_s``, ``run``
(folder), ``file``, ``began`` (Unix time at which the process was started); ``trained``, where the folder has the
policy already: what its training said of itself."""

CURVE, PATHS, SAMPLES = 60, 6, 60  # points of a curve, drawn episodes, their points
BATCH = {"cem": (50, 20), "npc": (250, 250), "milp": (1, 1)}
"""Starts planned at once, between checks of the clock: of plans that are followed to the end, and of plans made anew on
the way, which cost many times as much."""


class NotRun(Exception):
    """The method refuses the formula or the system; the text says why."""


def main(argv: Sequence[str]) -> int:
    """Make the trial that the file ``argv[0]`` orders."""
    from temporeal.policies.cli.console import plain
    from temporeal.policies.evaluate.evaluation import clean
    from temporeal.policies.runs.workers import STARTED_BY, end_without
    from temporeal.robots.atomic_files import write_whole

    if STARTED_BY in os.environ:  # else it is made by hand
        end_without(int(os.environ[STARTED_BY]))
    order = json.loads(Path(argv[0]).read_text())
    found = clean(plain({**order, **trial(order)}))
    write_whole(Path(order["file"]), (json.dumps(found, allow_nan=False) + "\n").encode())
    return 0


def trial(order: Order) -> dict[str, Any]:
    """Train, plan and judge as ordered: the entries of the trial."""
    from temporeal.policies.runs.settings import compose

    words = [*order["words"], f"task=stl/{order['task']}", f"seed={order['seed']}", f"out={order['run']}"]
    settings = compose.compose(words)
    found = {**described(settings, order["system"]), "settings": digest(settings)}
    try:
        return {**found, "status": averages.DONE, **KINDS[catalog.METHODS[order["method"]].kind](order, settings)}
    except NotRun as error:
        return {**found, "status": averages.NOT_SUPPORTED, "reason": str(error)}


def described(settings: Mapping[str, Any], system: str) -> dict[str, Any]:
    """The formula: its layers, its length, what to draw."""
    from temporeal.policies.runs import errors
    from temporeal.robots.registry import resolve
    from temporeal.sim.stl.language.propositional import to_text
    from temporeal.sim.task import load_task

    own = {k: v for k, v in settings["task"]["settings"].items() if k not in ("reward", "of_view")}  # of other views
    with errors.bad_input():
        task = load_task("stl", **{**own, "view": "terminal_robustness"})
    made = resolve("temporeal.sim.systems", system).make()
    return {"formula": to_text(task.formula), "depth": depth(task.formula), "steps_of_a_mission": task.steps,
            "dt": task.control_dt, "shapes": list(task.shapes), "planar": len(made.fence["low"]) == 2}


OF_FORMULA = ("formula", "constants", "start", "shapes", "episode_s")
"""Settings of a task that are its formula's, not the method's: the digest of its file covers these."""


def digest(settings: Mapping[str, Any]) -> str:
    """Of all settings of the method, those that no word of the command line names included: the algorithm's, how many
    worlds, the view with what its system brings."""
    from temporeal.policies.runs import environments

    own = {k: v for k, v in environments.resolved(settings)["task"]["settings"].items() if k not in OF_FORMULA}
    whole = {"algo": renamed.algorithm_as_then(settings["algo"]), "num_worlds": settings["num_worlds"],
             "task": renamed.task_as_then(own)}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]


def depth(formula: Any) -> int:
    """Temporal operators inside each other, at most: 1 is what the comparisons call two layers."""
    from temporeal.sim.stl.language.queries import children
    from temporeal.sim.stl.language.temporal import Always, Eventually, Release, Until, WeakUntil

    inner = max((depth(child) for child in children(formula)), default=0)
    return inner + isinstance(formula, (Always, Eventually, Until, WeakUntil, Release))


# ---------------------------------------------------------------- methods


def learned(order: Order, settings: dict[str, Any]) -> dict[str, Any]:
    """A policy, trained as `temporeal train` does it and judged deterministically."""
    from temporeal.policies.algos import tgpo
    from temporeal.policies.evaluate.rollout import rollout
    from temporeal.policies.runs import environments, trained
    from temporeal.policies.training import schedule_choice
    from temporeal.policies.training.acting import graph_policy

    task = supported(settings)
    figures = train_or_reuse(order, settings)
    graph: PolicyGraph = trained.load_graph(settings, Path(order["run"]), task)
    if isinstance(graph.observe, schedule_choice.Choosing):  # an early policy is deployed as one of today would be
        graph = tgpo.load_graph(Path(order["run"]), task, patience=settings["algo"]["patience"])
    shown = trained.shown_to(graph, task)
    env = environments.make_env(settings, task=shown, num_worlds=order["episodes"], seed=evaluation_seed(order))
    found = rollout(env, graph_policy(graph), keep=kept_signals(task))
    guided = {"heat": heat(Path(order["run"]), task)} if catalog.METHODS[order["method"]].algo == "tgpo" else {}
    return {**figures, **judged(order, task, found), **guided}


def learned_to_plan(order: Order, settings: dict[str, Any]) -> dict[str, Any]:
    """A network that is trained through the model, then plans with its backup policy."""
    from temporeal.policies.algos import npc

    task = supported(settings)
    require_model(task)
    figures = train_or_reuse(order, settings)
    policy, config = npc.load_policy(Path(order["run"]))
    planning = planned(order, settings, task, partial(npc.plan, policy=policy), config)
    return {**figures, **planning}


def searched(order: Order, settings: dict[str, Any]) -> dict[str, Any]:
    """Plans of a planner that learns nothing."""
    from temporeal.policies.planners import cem, milp
    from temporeal.policies.planning import affine
    from temporeal.policies.runs.settings.compose import of_group
    from temporeal.sim.stl.language.errors import FormulaError

    task = supported(settings)
    require_model(task)
    name = settings["algo"]["name"]
    module, made = {"cem": (cem, cem.CEMConfig), "milp": (milp, milp.MILPConfig)}[name]
    try:
        return planned(order, settings, task, module.plan, made(**of_group(settings, "algo")))
    except (affine.NotLinear, FormulaError) as error:
        raise NotRun(str(error)) from error


KINDS: Mapping[str, Callable[[Order, dict[str, Any]], dict[str, Any]]] = {
    catalog.LEARNER: learned, catalog.MODEL: learned_to_plan, catalog.PLANNER: searched}


def supported(settings: Mapping[str, Any]) -> Task:
    """The task in the method's view, or :class:`NotRun` where the view is not for such formulas."""
    from temporeal.sim.stl.language.errors import FormulaError
    from temporeal.sim.task import load_task

    try:
        return load_task(settings["task"]["name"], **settings["task"]["settings"])
    except FormulaError as error:
        raise NotRun(str(error)) from error


def require_model(task: Task) -> None:
    """The system can be predicted."""
    system: Any = getattr(task.observe, "system", None)
    if getattr(system, "model", None) is None:
        raise NotRun(f"system {system.name!r} has no model to predict with")


def evaluation_seed(order: Order) -> int:
    """Of the starts that are judged: one that no training has."""
    from temporeal.policies.evaluate.judging import EVALUATION_SEED

    return int(order["seed"] + EVALUATION_SEED)


def kept_signals(task: Task) -> list[str]:
    """What the verdict and the drawing read."""
    from temporeal.sim.stl.language.queries import signals_in

    return [name for name in signals_in(task.formula) if name in task.schema]


def train_or_reuse(order: Order, settings: dict[str, Any]) -> dict[str, Any]:
    """Train, unless the folder has the policy already; what it took, and its curve."""
    took = order.get("trained") or training(order, settings)
    return {**took, **learning(history_of(Path(order["run"])))}


def training(order: Order, settings: dict[str, Any]) -> dict[str, Any]:
    """Train; what it took, from the start of this process."""
    from temporeal.policies.runs import training

    training.train(settings, overwrite=True, quiet=True)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"wall_s": time.time() - float(order["began"]), "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_memory_B": 1024 * usage.ru_maxrss}


def history_of(run: Path) -> Sequence[Mapping[str, float]]:
    """The figures of each iteration of the training in the folder ``run``."""
    from temporeal.policies.training import checkpoint

    found: Sequence[Mapping[str, float]] = checkpoint.load(checkpoint.latest(run / "checkpoints", 0, 1))["history"]
    return found


def learning(history: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Time, steps and curve [[s, steps, success], ...] of what training did, exploring; ``pooled`` over at least so
    many of its whole episodes (:func:`temporeal.policies.evaluate.suite.timing.pooled`).

    An early trial whose run is still there gets them by ``{**trial, **learning(history_of(run))}``.
    """
    points = timing.pooled(history)
    places = np.unique(np.linspace(0, len(points) - 1, min(CURVE, len(points))).round().astype(int)) if points else []
    last = history[-1] if history else {"seconds": 0.0, "steps": 0.0}
    return {"seconds": last["seconds"], "steps": last["steps"], "pooled": timing.POOL,
            "curve": [[round(float(x), 4) for x in points[i]] for i in places]}


# ---------------------------------------------------------------- plans


def planned(
    order: Order, settings: Mapping[str, Any], task: Task, plan: Any, config: Any
) -> dict[str, Any]:
    """Plan from fresh starts, and again on the way, until all are judged or the planner's time is over."""
    import torch

    from temporeal.policies.evaluate.rollout import rollout
    from temporeal.policies.planning.receding import Receding
    from temporeal.policies.runs import environments

    size = min(BATCH[settings["algo"]["name"]][config.replan > 0], order["episodes"])
    env = environments.make_env(settings, task=task, num_worlds=size, seed=evaluation_seed(order))
    system: Any = task.observe.system  # type: ignore[attr-defined]
    generator = torch.Generator().manual_seed(order["seed"])
    parts: list[Rollout] = []
    began = time.process_time()
    while sum(p.episodes for p in parts) < order["episodes"] and (
            not parts or time.process_time() - began < order["budget_s"]):
        policy = Receding(plan, system.model, task.formula, task.control_dt, task.steps, config, generator,
                          every=config.replan)
        parts.append(rollout(env, follow(env, policy), keep=kept_signals(task)))
    seconds = time.process_time() - began
    found = joined(parts)
    few = found.episodes < order["episodes"]
    return {**judged(order, task, found), "plan_s": seconds / found.episodes, "planning_s": seconds,
            "few_starts": few, "replan": config.replan}


def follow(env: Env, policy: Any) -> Callable[[Any], Any]:
    """A planner as a policy of ``env``: it reads the true signals, as its model does, and not the observation."""
    def act(_: Any) -> Any:
        return policy({name: value.clone() for name, value in env.true_signals().items()})

    return act


def joined(parts: Sequence[Rollout]) -> Rollout:
    """Rollouts of one length as one."""
    from temporeal.policies.evaluate.rollout import Rollout

    def cat(pick: Callable[[Rollout], np.ndarray], axis: int) -> np.ndarray:
        return np.concatenate([pick(part) for part in parts], axis)

    names = parts[0].signals
    return Rollout({name: cat(lambda p, n=name: p.signals[n], 1) for name in names}, cat(lambda p: p.actions, 1),
                   cat(lambda p: p.lengths, 0), cat(lambda p: p.terminated, 0), cat(lambda p: p.finite, 0),
                   parts[0].dt, parts[0].seed)


# ---------------------------------------------------------------- verdicts


def judged(order: Order, task: Task, found: Rollout) -> dict[str, Any]:
    """The exact Boolean verdicts of the formula on the traces, with what fails first and how late subgoals are."""
    from temporeal.policies.evaluate.evaluation import evaluate

    e = evaluate(found, task.formula, delays=0)
    p = e.satisfied
    return {"episodes": p.trials, "satisfied": p.successes, "success": [p.estimate, p.low, p.high],
            "evaluation_seed": evaluation_seed(order), "non_finite": e.non_finite,
            "robustness": {"median": e.robustness.median, "p5": e.robustness.quantiles[0.05]},
            "first_to_fail": {c.label: c.first_to_fail for c in e.clauses},
            "slack_s": [{"subgoal": s.label, "reached": s.reached.estimate, "median": s.slack_s.median}
                        for s in e.subgoals],
            "paths": paths(found, e)}


def paths(found: Rollout, e: Evaluation) -> list[dict[str, Any]]:
    """A few episodes to draw: two that failed, if any did, the others satisfied; more that failed where few did not."""
    name = next((n for n in found.signals if n.endswith("_pos_w")), None)
    if name is None:
        return []
    good = e.episodes.satisfied
    failed = np.flatnonzero(~good)
    satisfied = np.flatnonzero(good)[: PATHS - min(len(failed), 2)]
    chosen = [*failed[: PATHS - len(satisfied)], *satisfied]
    out = []
    for i in chosen:
        last = int(found.lengths[i]) - 1
        steps = np.unique(np.linspace(0, last, min(SAMPLES, last + 1)).round().astype(int))
        out.append({"satisfied": bool(good[i]), "points": np.round(found.signals[name][steps, i].astype(float), 2)})
    return out


if __name__ == "__main__":
    from temporeal.policies.cli.main import guarded

    sys.exit(guarded(lambda words: main(words), sys.argv[1:]))
