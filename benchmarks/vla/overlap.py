"""Rendering, inference and training overlapped: steps a second of tuning with two halves of the worlds side by side.

Flow-SDE tunes a policy with random weights that looks at the tabletop through two 64x64 cameras. One after the other:
all worlds in one thread. Overlapped (``algo.overlap``): each half in a thread of its own, one infers while the other
renders. Both are measured in turn, whole iterations with their updates, physics in one thread. It takes two free cores.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from temporeal.policies.algos.flow_sde import FlowSDEConfig, SDEAgent
from temporeal.policies.nets.normalizer import moments
from temporeal.policies.runs import environments
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.tuning_runs import bases as tuning
from temporeal.policies.training.chunk_rl.halves import Halves, Worlds
from temporeal.policies.training.chunk_rl.ppo import PPO, Critic
from temporeal.policies.training.chunk_rl.rewards import Sparse
from temporeal.policies.training.chunk_rl.worlds import ChunkWorlds
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal_benchmarks.rows import Row, at_least
from temporeal_benchmarks.vla.inference import policy_of

RATIO = 1.4  # target: overlapped over one after the other
CONFIG = FlowSDEConfig(execute=8, minibatch=256, critic_warmup=0, rollout_steps=64)


def rows(quick: bool, out: Path) -> list[Row]:
    """Control steps a second both ways, and their ratio: the medians of rounds that were measured in turn."""
    worlds, rounds = (16, 2) if quick else (64, 5)
    settings = compose(["experiment=tabletop", "task.settings.kinds=reach", f"num_worlds={worlds // 2}", "threads=1"])
    policy = policy_of("vla")
    scales = policy.encoder.normalizer
    scales.update(moments(torch.randn(256, len(scales.shift), generator=torch.Generator().manual_seed(0))))
    single = method(policy, [made(settings, policy, worlds, 1)])
    both = method(policy, [made(settings, policy, worlds // 2, seed) for seed in (1, 2)])
    for learner in (single, both):
        rate(*learner)  # kernels are compiled, memory is taken
    found = [(rate(*single), rate(*both)) for _ in range(rounds)]
    ratios = [fast / slow for slow, fast in found]
    about = f"{worlds} worlds, two cameras; median of {rounds} rounds, {min(ratios):.2f} to {max(ratios):.2f}"
    return [Row("vla.overlap.sequential", median(slow for slow, _ in found), "1/s", peer=about),
            Row("vla.overlap.overlapped", median(fast for _, fast in found), "1/s", peer=about),
            at_least("vla.overlap.ratio", median(ratios), "1", RATIO, about)]


def made(settings: Settings, policy: ChunkPolicy, worlds: int, seed: int) -> ChunkWorlds:
    """Worlds with cameras that play the chunks of ``policy``."""
    task = tuning.shown(policy, environments.make_task(settings))
    env = environments.make_env(settings, task=task, num_worlds=worlds, seed=seed, training=True)
    pictures = tuple(name for name in policy.signals if name.endswith("_rgb"))
    agent = SDEAgent(policy, CONFIG.noise, CONFIG.execute)
    return ChunkWorlds(env, agent.flow, tuning.measuring(policy.signals, pictures)(env), pictures, CONFIG.execute,
                       Sparse(env))


def method(policy: ChunkPolicy, parts: list[ChunkWorlds]) -> tuple[PPO, Worlds]:
    """A learner, and what it collects from."""
    worlds: Worlds = parts[0] if len(parts) == 1 else Halves(*parts)
    config = replace(CONFIG, overlap=len(parts) > 1)
    torch.manual_seed(0)
    critic = Critic(worlds.context_dim(), worlds.critic_dim, config)
    return PPO(SDEAgent(policy, config.noise, config.execute), config, critic), worlds


def rate(learner: PPO, worlds: Worlds) -> float:
    """Control steps a second of one iteration."""
    before, began = worlds.steps, time.perf_counter()
    learner.iterate(worlds, torch.Generator().manual_seed(0))
    return (worlds.steps - before) / (time.perf_counter() - began)
