"""Rendering and inference overlapped: steps a second of tuning with two halves of the worlds side by side.

Flow-SDE tunes a policy with random weights that looks at the tabletop through two 64x64 cameras. One after the other:
all worlds in one thread. Overlapped (``algo.overlap``): each half in a thread of its own, one infers while the other
renders or simulates; gradients are of both halves and come after them, so that nothing is stale. Both are measured in
turn, whole iterations with their updates, physics in one thread. It takes two free cores. What can be gained at most
follows from the shares of one core's time, which are measured, too: updates are not halved. That the halves learn the
same one after the other and side by side, bit for bit, is a row.
"""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from temporeal.policies.algos.flow_sde import FlowSDEConfig, SDEAgent
from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.runs import environments
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.tuning_runs import bases as tuning
from temporeal.policies.training.chunk_rl.halves import Halves, Worlds
from temporeal.policies.training.chunk_rl.ppo import PPO, Critic
from temporeal.policies.training.chunk_rl.rewards import Sparse
from temporeal.policies.training.chunk_rl.worlds import ChunkWorlds
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal_benchmarks.rows import Row, at_least, none_of
from temporeal_benchmarks.vla.inference import policy_of

FEW = 8  # worlds of a half where results are compared
RATIO = 1.4  # target: overlapped over one after the other
CONFIG = FlowSDEConfig(execute=8, minibatch=256, critic_warmup=0, rollout_steps=64)


def rows(quick: bool, out: Path) -> list[Row]:
    """Control steps a second both ways, and their ratio: the medians of rounds that were measured in turn."""
    worlds, rounds = (16, 2) if quick else (64, 5)
    settings = compose(["experiment=tabletop", "task.settings.kinds=reach", f"num_worlds={worlds // 2}", "threads=1"])
    policy = scaled(policy_of("vla"))
    single = method(policy, [made(settings, policy, worlds, 1)])
    both = method(policy, [made(settings, policy, worlds // 2, seed) for seed in (1, 2)])
    for learner in (single, both):
        rate(*learner)  # kernels are compiled, memory is taken
    found = [(rate(*single), rate(*both)) for _ in range(rounds)]
    ratios = [fast / slow for slow, fast in found]
    about = f"{worlds} worlds, two cameras; median of {rounds} rounds, {min(ratios):.2f} to {max(ratios):.2f}"
    updates = share_of_updates(*single)
    return [Row("vla.overlap.sequential", median(slow for slow, _ in found), "1/s", peer=about),
            Row("vla.overlap.overlapped", median(fast for _, fast in found), "1/s", peer=about),
            at_least("vla.overlap.ratio", median(ratios), "1", RATIO, about),
            Row("vla.overlap.updates", updates, "1", peer="share of one core's time, which does not overlap: "
                f"{1 / (updates + 0.5 * (1 - updates)):.2f} is the most that two cores can gain"),
            none_of("vla.overlap.differences", differences(settings, policy),
                    "weights after an update of halves side by side that are not those of one after the other")]


def scaled(policy: ChunkPolicy) -> ChunkPolicy:
    """``policy`` with statistics of some kind, without which no policy is tuned."""
    for part in policy.modules():
        if isinstance(part, Normalizer):
            part.update(moments(torch.randn(256, len(part.shift), generator=torch.Generator().manual_seed(0))))
    return policy


def made(settings: Settings, policy: ChunkPolicy, worlds: int, seed: int) -> ChunkWorlds:
    """Worlds with cameras that play the chunks of ``policy``."""
    task = tuning.shown(policy, environments.make_task(settings))
    env = environments.make_env(settings, task=task, num_worlds=worlds, seed=seed, training=True)
    pictures = tuple(name for name in policy.signals if name.endswith("_rgb"))
    agent = SDEAgent(policy, CONFIG.noise, CONFIG.execute)
    return ChunkWorlds(env, agent.flow, tuning.measuring(policy.signals, pictures)(env), pictures, CONFIG.execute,
                       Sparse(env))


def method(policy: ChunkPolicy, parts: list[ChunkWorlds], side_by_side: bool = True) -> tuple[PPO, Worlds]:
    """A learner, and what it collects from."""
    worlds: Worlds = parts[0] if len(parts) == 1 else Halves(parts[0], parts[1], side_by_side)
    config = replace(CONFIG, overlap=len(parts) > 1)
    torch.manual_seed(0)
    critic = Critic(worlds.context_dim(), worlds.critic_dim, config)
    return PPO(SDEAgent(policy, config.noise, config.execute), config, critic), worlds


def rate(learner: PPO, worlds: Worlds) -> float:
    """Control steps a second of one iteration."""
    before, began = worlds.steps, time.perf_counter()
    learner.iterate(worlds, torch.Generator().manual_seed(0))
    return (worlds.steps - before) / (time.perf_counter() - began)


def share_of_updates(learner: PPO, worlds: Worlds) -> float:
    """The share of an iteration's processor time, in one thread, that its updates take."""
    generator, began = torch.Generator().manual_seed(0), time.process_time()
    rollout = learner.collect(worlds, generator)
    flown = time.process_time()
    learner.learn(rollout, generator)
    return (time.process_time() - flown) / (time.process_time() - began)


def differences(settings: Settings, policy: ChunkPolicy) -> int:
    """How many weights differ after an iteration between halves side by side and one after the other."""
    found = list[list[torch.Tensor]]()
    for side_by_side in (False, True):
        own = deepcopy(policy)
        learner, worlds = method(own, [made(settings, own, FEW, seed) for seed in (1, 2)], side_by_side)
        learner.iterate(worlds, torch.Generator().manual_seed(0))
        found.append([value.clone() for part in learner.modules.values() for value in part.state_dict().values()])
    return sum(int((a != b).sum()) for a, b in zip(*found, strict=True))
