"""``temporeal bench reflex``: violations and success with a reflex and without, on fresh episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from temporeal.policies.algos.reflex import Constraint
from temporeal.policies.evaluate.statistics import proportion
from temporeal.policies.training.reflex_policy import ReflexGraph
from temporeal.robots.artifact.manifest import ENGAGED, HELD, PHASE
from temporeal_benchmarks.options import seeds as asked_seeds
from temporeal_benchmarks.processes import run_module
from temporeal_benchmarks.rows import Row

if TYPE_CHECKING:
    from temporeal.policies.evaluate.evaluation import Evaluation
    from temporeal.policies.evaluate.rollout import Rollout
    from temporeal.sim.maps import Memory

HELP = (
    "the mission waypoints with PPO's default settings (not the demo's, which leave nothing to prevent), a reflex for "
    "each policy, and both judged on the same fresh randomized episodes: share of episodes in which what the formula "
    "says must always hold was violated, and P(satisfied), Clopper-Pearson intervals; the task network asked at each "
    "control step and at every second one, then also with the reflex asked only when it is (slow); in the wind of the "
    "training and in one twice as strong. Runs that are in outputs/bench/reflex are taken, not trained again: remove "
    "them where the code has changed. Option: --seeds"
)
OPTIONS = {"seeds": "whole numbers (default: 1,2,3; quick: 1)"}
NARROWING = ("seeds",)

SEEDS, EVERY = (1, 2, 3), (1, 2)
EPISODES = 1000  # of each seed and case
SEED = 0x4EF1_0000  # of the episodes: apart from what training and `temporeal eval` draw
WINDS = {"wind": 0.0156, "gale": 0.0312}  # N, standard deviation of the steady force: as trained; twice that
WORLDS = 512  # worlds of the reflex' training


class Judged(NamedTuple):
    """What became of some episodes, [E] each."""

    violated: np.ndarray
    satisfied: np.ndarray
    engaged: float  # share of control steps at which the reflex was in charge


def run(
    quick: bool = False, *, out: Path = Path("outputs/bench/reflex"), seeds: list[str] | None = None
) -> list[Row]:
    """Train and judge, one seed after the other."""
    rows: list[Row] = []
    folder, found = out / "quick" if quick else out, dict[tuple[int, str, str], list[Judged]]()
    for seed in asked_seeds(seeds, SEEDS[:1] if quick else SEEDS):
        task = trained(folder / f"task-{seed}", ["algo=ppo", f"seed={seed}"], quick, "algo.total_steps=2000000")
        for every in EVERY:
            words = ["algo=reflex", f"algo.policy={task}", f"algo.every={every}", f"num_worlds={WORLDS}",
                     f"seed={seed}"]
            reflex = trained(folder / f"reflex-{every}-{seed}", words, quick, "algo.updates=500")
            for wind, newton in WINDS.items():
                for case, judged in compared(reflex, newton, seed, 100 if quick else EPISODES).items():
                    found.setdefault((every, wind, case), []).append(judged)
                    rows += figures(f"seed{seed}.every{every}.{wind}.{case}", judged)
    return [*rows, *(row for every in EVERY for wind in WINDS for row in verdict(every, wind, found))]


def trained(folder: Path, words: list[str], quick: bool, shorter: str) -> Path:
    """The run in ``folder``, trained if it is not there."""
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        given = [*words, *([shorter] if quick else []), f"out={unfinished}", "--overwrite"]
        run_module("temporeal.policies.cli.main", ["train", "task=waypoints", *given], quiet=True)
        unfinished.rename(folder)
    return folder


def compared(folder: Path, newton: float, seed: int, episodes: int) -> dict[str, Judged]:
    """The policy of the run in ``folder`` without its reflex and with it, in a wind of ``newton``."""
    from temporeal.policies.runs import environments, run_folders, trained

    settings = run_folders.load_run(folder)
    graph = trained.load_graph(settings, folder, environments.make_task(settings))
    assert isinstance(graph, ReflexGraph)
    cases = {"without": ReflexGraph(graph.task, graph.reflex, replace(graph.spec, threshold=1.0, release=1.0)),
             "with": graph, **({} if graph.spec.every == 1 else {"slow": Slow(graph.task, graph.reflex, graph.spec)})}
    return {case: judge(settings, policy, newton, SEED + seed, episodes) for case, policy in cases.items()}


class Slow(ReflexGraph):
    """The same reflex, asked only when the task network is: what was chosen then is sent until the next time."""

    @property
    def carried(self) -> dict[str, tuple[int, ...]]:
        """As of the fast one, and what is sent."""
        return {**super().carried, "sent": super().carried[HELD]}

    def decide(self, obs: torch.Tensor, carried: Memory) -> tuple[torch.Tensor, Memory]:
        """Action [N, A] and what is carried to the next step."""
        action, after = super().decide(obs, carried)
        due = carried[PHASE] < 0.5
        sent = torch.where(due[:, None], action, carried["sent"])
        return sent, {**after, "sent": sent, ENGAGED: torch.where(due, after[ENGAGED], carried[ENGAGED])}


def judge(settings: Mapping[str, Any], graph: ReflexGraph, newton: float, seed: int, episodes: int) -> Judged:
    """Fresh episodes of ``graph``; the seed says which."""
    from temporeal.policies.evaluate.evaluation import evaluate
    from temporeal.policies.evaluate.rollout import rollout
    from temporeal.policies.runs import environments
    from temporeal.policies.training.acting import CARRIED, graph_policy

    task, drawn = environments.make_task(settings), settings["randomize"]
    windy = {**drawn, "parameters": {**drawn["parameters"], "force_w": {"kind": "normal", "std": newton}}}
    env = environments.make_env({**settings, "randomize": windy}, task=task, num_worlds=episodes, seed=seed)
    act, engaged = graph_policy(graph), []

    def watched(obs: torch.Tensor) -> torch.Tensor:
        action = act(obs)
        engaged.append(getattr(act, CARRIED)(episodes)[ENGAGED].numpy())
        return action

    found: Rollout = rollout(env, watched)
    verdict: Evaluation = evaluate(found, task.formula, delays=0)
    counted = np.arange(len(engaged))[:, None] < (found.lengths - 1)[None]
    return Judged(violations(found, Constraint(task.formula)), verdict.episodes.satisfied,
                  float(np.stack(engaged)[counted].mean()))


def violations(found: Rollout, constraint: Constraint) -> np.ndarray:
    """Whether what must always hold was violated in an episode, [E] bool."""
    margin = constraint.margin({name: torch.from_numpy(value) for name, value in found.signals.items()}).numpy()
    own = np.arange(len(margin))[:, None] < found.lengths[None]
    broken: np.ndarray = ((margin < 0) & own).any(0)
    return broken


def figures(name: str, judged: Judged) -> list[Row]:
    """Shares with their intervals."""
    rows = []
    for what in ("violated", "satisfied"):
        p = proportion(getattr(judged, what))
        rows += [Row(f"{name}.{what}", p.estimate, "1"), Row(f"{name}.{what}.low", p.low),
                 Row(f"{name}.{what}.high", p.high)]
    return [*rows, Row(f"{name}.engaged", judged.engaged, "1")]


def verdict(every: int, wind: str, found: Mapping[tuple[int, str, str], list[Judged]]) -> list[Row]:
    """All seeds together. The target is fewer violations, beyond both intervals, and no less success."""
    rows, p = [], {}
    for case in ("without", "with", "slow"):
        judged = found.get((every, wind, case), [])
        if not judged:
            continue
        both = [np.concatenate([getattr(j, what) for j in judged]) for what in ("violated", "satisfied")]
        whole = Judged(both[0], both[1], float(np.mean([j.engaged for j in judged])))
        p[case] = [proportion(x) for x in both]
        rows += figures(f"all.every{every}.{wind}.{case}", whole)
    fewer = p["without"][0].estimate - p["with"][0].estimate
    more = p["with"][1].estimate - p["without"][1].estimate
    return [*rows, Row(f"all.every{every}.{wind}.prevented", fewer, "1", 0.0, None,
                       p["with"][0].high < p["without"][0].low),
            Row(f"all.every{every}.{wind}.success_gained", more, "1", 0.0, None, more >= 0)]
