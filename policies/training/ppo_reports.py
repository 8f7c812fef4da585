"""Reports of PPO iterations: figures of episodes, faults, and a dump of non-finite numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from temporeal.policies.training import checkpoint
from temporeal.policies.training.ppo_checkpoint import modules_of
from temporeal.policies.training.ppo_state import (
    FIGURES,
    Learner,
    Rollout,
    columns_of,
    fraction_spent,
)
from temporeal.policies.training.progress import Logger, Progress


def health_of(learner: Learner) -> dict[str, int]:
    """Fault counts of this process' worlds so far; empty if the environment reports none."""
    ask = learner.env.capabilities.health
    return dict(ask()) if ask is not None else {}


def troubles(learner: Learner, before: Mapping[str, int]) -> dict[str, float]:
    """Faults in the worlds of all processes since ``before``: diverged worlds, the simulator's warnings, and how many
    worlds currently lack memory for contacts or constraints."""
    now = health_of(learner)
    if not now:
        return {}
    row = [now["diverged"] - before["diverged"], now["warnings"] - before["warnings"], now["overflow"]]
    rows = learner.ranks.gathered(torch.tensor([row], dtype=torch.float64, device=learner.device))
    return dict(zip(("diverged", "warnings", "overflow"), rows.sum(0).tolist()))


def count_episodes(sums: dict[str, Tensor], info: Mapping[str, Any], ended: Tensor) -> None:
    """Add the figures [N] in ``info`` of the worlds ``ended`` [K], of whole episodes only."""
    if "mid_episode" in info:
        ended = ended[~info["mid_episode"][ended]]
    if not len(ended):
        return
    for name, value in info.items():
        name = name.removeprefix("episode_")
        if isinstance(value, Tensor) and value.ndim == 1 and name != "mid_episode":
            total = value[ended].double().sum()
            sums[name] = sums[name] + total if name in sums else total
    count = torch.tensor(float(len(ended)), dtype=torch.float64, device=ended.device)
    sums["count"] = sums["count"] + count if "count" in sums else count


def dump_non_finite(learner: Learner, minibatch: Tensor, values: list[float], out: Path) -> str:
    """Save the data needed to find the cause; return a message that says where and what."""
    batch = columns_of(learner, minibatch)
    path = out / f"nonfinite.rank{learner.ranks.index}.pt"
    names = (*FIGURES, "gradient_norm")
    checkpoint.save(path, {
        "batch": {k: v.detach().clone() for k, v in batch._asdict().items()},
        "figures": dict(zip(names, values)), "iteration": learner.iteration, "steps": learner.steps,
        "learning_rate": learner.learning_rate, **modules_of(learner)})
    wrong = [n for n, v in zip(names, values) if not math.isfinite(v)]
    inputs = [k for k, v in batch._asdict().items() if not torch.isfinite(v).all()]
    cause = f"non-finite inputs: {', '.join(inputs)}" if inputs else "all inputs are finite: a step was too large"
    return (f"iteration {learner.iteration}: {', '.join(wrong)} not finite ({cause}); the minibatch, networks and "
            f"optimizer are in {path}, the last good state in {out / 'checkpoints'}")


def report(
    learner: Learner, rollout: Rollout, figures: dict[str, float], display: Progress | None, logger: Logger | None
) -> None:
    """Add an iteration to the history, the display and the log."""
    before = learner.history[-1] if learner.history else {"steps": 0.0, "seconds": 0.0}
    fraction = fraction_spent(learner)
    row = {
        "iteration": float(learner.iteration), "steps": float(learner.steps), "seconds": learner.seconds,
        "rate": (learner.steps - before["steps"]) / max(learner.seconds - before["seconds"], 1e-9),
        "fraction": fraction, "eta": max(0.0, learner.seconds * (1.0 / fraction - 1.0)),
        "reward": float(rollout.reward.mean()), "std": float(learner.actor.log_std.detach().exp().mean()),
        **episode_means(learner, rollout), **figures}
    learner.history.append(row)
    for listener in (display, partial(logger, learner.steps) if logger else None):
        if listener is not None and learner.ranks.is_first:
            listener(row)


def episode_means(learner: Learner, rollout: Rollout) -> dict[str, float]:
    """Means over the whole episodes that ended, and their number, of this process' last rollout with any."""
    sums = {k: float(v) for k, v in rollout.episodes.items()}
    count = sums.pop("count", 0.0)
    return {"episodes": count, **{k: v / max(count, 1.0) for k, v in sums.items()}}
