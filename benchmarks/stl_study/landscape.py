"""What a critic of TGPO expects over two time variables of a schedule: the heat map of a trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from temporeal.sim.task import Task

GRID = 24  # side of the heat map


def heat(folder: Path, task: Task) -> dict[str, Any] | None:
    """What the critic expects over two time variables, the others as in the best schedule of the buffer.

    Mean over the starts that the run has kept; None at times that the formula does not allow. None where no
    alternative has two variables with room.
    """
    from temporeal.policies.algos import tgpo
    from temporeal.policies.nets.actor import Critic
    from temporeal.policies.nets.normalizer import Normalizer
    from temporeal.policies.training import ppo_checkpoint, schedule_choice

    state = ppo_checkpoint.read_last(folder)
    config = ppo_checkpoint.config_of(state, tgpo.TGPOConfig)
    critic = Critic(state["sizes"]["critic_dim"], config.critic_hidden, config.activation)
    normalizer = Normalizer(state["sizes"]["critic_dim"])
    critic.load_state_dict(state["critic"])
    normalizer.load_state_dict(state["critic_normalizer"])
    kept: Any = state["companion"]

    def value(schedules: Any) -> np.ndarray:
        import torch

        with torch.no_grad():
            obs = schedule_choice.observed(task.observe, kept["signals"], schedules)
            out = critic(normalizer(obs.flatten(0, 1))).reshape(obs.shape[:2]).mean(-1)
        return np.asarray(out.numpy(), float)

    return landscape(task.schedules.alternatives, kept["buffer"], value)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Axis:
    """Time variable ``index`` (from 0) of an alternative, the samples at which it is looked at, and those variables
    that move with it: index and distance, samples."""

    index: int
    samples: np.ndarray
    label: str
    behind: tuple[tuple[int, int], ...] = ()


def landscape(alternatives: Sequence[Any], schedules: Any, value: Callable[[Any], np.ndarray]) -> dict[str, Any] | None:
    """The heat map of :func:`heat`: ``schedules`` [M, 1 + V], ``value`` of schedules [K, 1 + V] is [K]."""
    import torch

    from temporeal.sim.stl.planning.grounding import feasible

    worth = value(schedules)
    for row in np.argsort(-worth, kind="stable"):
        alternative = alternatives[round(float(schedules[row, 0]))]
        axes = axes_of(alternative)
        if len(axes) == 2:
            break
    else:
        return None
    x, y = axes
    grid = np.repeat(schedules[row : row + 1].numpy(), len(x.samples) * len(y.samples), 0)
    for axis, samples in ((x, np.tile(x.samples, len(y.samples))), (y, np.repeat(y.samples, len(x.samples)))):
        for index, distance in ((axis.index, 0), *axis.behind):
            grid[:, 1 + index] = samples + distance
    seen = value(torch.from_numpy(grid))
    seen[~feasible(alternative, grid[:, 1 : 1 + alternative.variables].astype(np.int64))] = np.nan
    dt = alternative.dt
    best = [float(schedules[row, 1 + axis.index]) * dt for axis in axes]
    return {"x": x.samples * dt, "y": y.samples * dt, "x_label": x.label, "y_label": y.label, "best": best,
            "value": np.round(seen, 3).reshape(len(y.samples), len(x.samples))}


def axes_of(alternative: Any) -> list[Axis]:
    """The two time variables with the most room, in their order, each with those at a fixed distance from it; fewer
    where fewer have any."""
    from temporeal.sim.rewards.schedules import movable

    d, groups = alternative.bounds, movable(alternative)
    room = [(-int(d[group[0], 0]), int(d[0, group[0]])) for group in groups]
    chosen = sorted(sorted(range(len(groups)), key=lambda g: room[g][0] - room[g][1])[:2])
    return [Axis(groups[g][0] - 1, np.unique(np.linspace(*room[g], GRID).round()), label(alternative, groups[g][0] - 1),
                 tuple((v - 1, -int(d[v, groups[g][0]])) for v in groups[g][1:])) for g in chosen]


def label(alternative: Any, index: int) -> str:
    """The variable with what it reaches or what is kept from it on."""
    variable = index + 1
    asked = [str(r.predicate) for r in alternative.reaches if r.variable == variable]
    asked += [str(k.predicate) for k in alternative.keeps if k.start.variable == variable and not asked]
    return f"t{variable}: {' and '.join(asked)}" if asked else f"t{variable}"
