"""GRPO of flow policies: no critic; an episode is compared with others from the same start.

Group relative policy optimization (DeepSeekMath, arXiv 2402.03300), as SimpleVLA-RL (arXiv 2509.09674) has it for
robots, on Flow-SDE's random denoise steps (pi_RL, arXiv 2510.25889):

    A = (R - mean of the group) / (std of the group)        one number for all decisions of an episode

* Dynamic sampling (DAPO, arXiv 2503.14476): groups whose share of successes is not between ``low`` and ``high`` teach
  nothing and are dropped; worlds go on until enough decisions are kept, or ``rolls`` are flown.
* Asymmetric clipping (DAPO): the ratio may rise further than it may fall.
* The rollout budget goes where groups are informative (Knapsack RL, arXiv 2509.25849):
  :mod:`temporeal.policies.training.chunk_rl.groups`.

A start is an episode's record: begun in several worlds, it is the same in each, noise of the simulator included.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.algos.flow_sde import SDEAgent
from temporeal.policies.training.chunk_rl import groups, rollouts, tuning
from temporeal.policies.training.chunk_rl.ppo import ClipConfig, ClippedUpdate
from temporeal.policies.training.chunk_rl.rollouts import Rollout
from temporeal.policies.training.chunk_rl.tuning import Base, Result, make_worlds, tune
from temporeal.policies.training.chunk_rl.worlds import ChunkEnv, ChunkWorlds
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError, require


@dataclass(frozen=True)
class FlowGRPOConfig(ClipConfig):
    """Settings of the learner. ``configs/algo/flow_grpo.yaml`` has the same names.

    Args:
        noise: a, the level of the random step. late, smooth: see
            :class:`temporeal.policies.algos.flow_sde.FlowSDEConfig`.
        group: episodes of a start, on average; the knapsack gives some more and some none.
        low, high: shares of successes between which a group is kept.
        starts: in the pool, of which each roll takes those that are worth it.
        tries: episodes after which a start makes room for another one.
        keep: decisions that an update waits for ...
        rolls: ... for at most so many episodes of each world.
        knapsack: false: all starts are given the same number of episodes.
    """

    epochs: int = 2
    clip_high: float = 0.28
    noise: float = 0.5
    late: int = 0
    smooth: float = 0.0
    group: int = 8
    low: float = 0.1
    high: float = 0.9
    starts: int = 64
    tries: int = 32
    keep: int = 512
    rolls: int = 4
    knapsack: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, noise="(0, inf)", late="[0, inf)", smooth="[0, 0.99]", group="[2, inf)", starts="[1, inf)",
                tries="[1, inf)", keep="[1, inf)", rolls="[1, inf)", low="[0, 1]", high="[0, 1]")
        if self.overlap:
            raise SettingsError("algo.overlap=true: groups are flown by one set of worlds; algo.overlap=false")
        if not self.low < self.high:
            raise SettingsError(f"algo.low is below algo.high, got {self.low} and {self.high}")


class Roll(NamedTuple):
    """One episode of every world, and the advantage of each decision: NaN where its group teaches nothing."""

    rollout: Rollout
    advantage: Tensor
    kept: float


class GRPO:
    """A :class:`temporeal.policies.training.chunk_rl.tuning.Method`."""

    def __init__(self, agent: SDEAgent, config: FlowGRPOConfig) -> None:
        self.agent, self.config, self.policy = agent, config, agent.policy
        self.step = ClippedUpdate(agent, config)
        self.starts = groups.Starts(config.starts, config.tries)
        self.modules, self.optimizers = agent.learns, {"policy": self.step.adam}
        self.memory = self.step.memory
        self.memory.update(starts=self.starts.memory, success=0.5)
        self.soften = self.step.soften

    def iterate(self, worlds: ChunkWorlds, generator: torch.Generator) -> dict[str, float]:
        """Roll until enough is kept, and learn of it."""
        rolls = list[Roll]()
        for _ in range(self.config.rolls):
            rolls.append(self.roll(worlds, generator))
            if sum(int((~each.advantage.isnan()).sum()) for each in rolls) >= self.config.keep:
                break
        rollout = rollouts.joined([each.rollout for each in rolls])
        figures = {**rollout.figures(), "kept_groups": float(np.mean([each.kept for each in rolls])),
                   "rolls": float(len(rolls))}
        advantage = torch.cat([each.advantage for each in rolls])
        if bool(advantage.isnan().all()):
            return figures
        return figures | self.step(rollout, advantage, generator)

    def roll(self, worlds: ChunkWorlds, generator: torch.Generator) -> Roll:
        """An episode of every world, from starts that are worth it."""
        config, starts = self.config, self.starts
        starts.memory = self.memory["starts"]
        starts.refresh(config.low, config.high)
        counts = self.allocated(worlds.env.num_worlds)
        which = [int(s) for s in counts.nonzero()[0]]
        group = torch.from_numpy(np.repeat(np.arange(len(which)), counts[which]))
        records = [worlds.env.record(starts.memory["key"][s], 0) for s in which]
        worlds.begin(worlds.env.begin([records[g] for g in group.tolist()]))
        found = worlds.rollout(self.agent.draw, worlds.env.task.steps, generator, once=True)
        order = found.episodes["world"].argsort()
        success, outcome = (found.episodes[name][order] for name in ("success", "return"))
        starts.count(which, success, group)
        self.memory["success"] = 0.9 * self.memory["success"] + 0.1 * float(success.float().mean())
        kept = groups.informative(success, group, config.low, config.high)
        advantage = torch.where(kept[group], groups.group_advantages(outcome, group), torch.nan)
        return Roll(found, advantage[found.worlds], float(kept.float().mean()))

    def allocated(self, budget: int) -> np.ndarray:
        """Episodes [S] of each start, ``budget`` in all."""
        config = self.config
        if not config.knapsack:
            few = min(config.starts, max(1, budget // config.group))
            return groups.filled(np.r_[np.full(few, budget // few), np.zeros(config.starts - few, np.int64)], budget)
        chances = self.starts.chances(min(max(self.memory["success"], 0.05), 0.95))
        return groups.filled(groups.knapsack(groups.value(chances, 2 * config.group), budget), budget)


def train(env: ChunkEnv, config: FlowGRPOConfig, *, out: Path, seed: int = 0, base: Base, **rest: Any) -> Result:
    """Tune the policy of ``base`` in the worlds of ``env``; ``rest``: see
    :func:`temporeal.policies.training.chunk_rl.tuning.tune`."""
    if env.num_worlds < config.group:
        raise SettingsError(f"algo.group={config.group}: episodes of one start are flown side by side, so num_worlds "
                            f"is at least that; got {env.num_worlds}")
    generator = torch.Generator().manual_seed(seed)
    agent = SDEAgent(tuning.copied(base), config.noise, config.execute, config.late, config.smooth)
    worlds = make_worlds(env, agent.flow, config, base)
    return tune(worlds, config, GRPO(agent, config), base, out=out, seed=seed, generator=generator, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The tuned policy of a run."""
    return tuning.load(run, FlowGRPOConfig, device)
