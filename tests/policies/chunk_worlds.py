"""Worlds in which chunk policies are tuned within a second: a point in the plane is to be brought to a goal.

A command is a velocity; an episode has twelve steps; it succeeds where the point ends near the goal. The base policy
was cloned from one that goes part of the way only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.imitation.flow import Flow, FlowConfig
from temporeal.policies.nets.encoders import SignalEncoder
from temporeal.policies.nets.normalizer import moments
from temporeal.policies.training.chunk_rl.tuning import Base
from temporeal.policies.training.chunks.policy import ChunkPolicy, Decoder
from temporeal.policies.vla.tokens import Writer
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.types import EnvCapabilities, Obs, Step

STEPS, NEAR, STRIDE = 8, 0.25, 0.3
SIGNALS = schema(SignalSpec("pos", (2,), "m", "w"), SignalSpec("goal", (2,), "m", "w"))


class PointWorlds:
    """N points. World w begins its episode e where the seed of both says, as recorded episodes do."""

    action_dim = obs_dim = 2
    critic_dim = 4

    def __init__(self, num_worlds: int, seed: int = 0) -> None:
        self.num_worlds, self.seed, self.device = num_worlds, seed, torch.device("cpu")
        self.task = SimpleNamespace(steps=STEPS, control_dt=0.1, name="point")
        self.worlds = torch.arange(num_worlds)
        self.keys, self.episode = self.worlds.clone(), torch.full((num_worlds,), -1)
        self.pos, self.goal = torch.zeros(num_worlds, 2), torch.zeros(num_worlds, 2)
        self.count = torch.zeros(num_worlds, dtype=torch.int64)
        self.command_override: Tensor | None = None
        self.rendering, self.column = False, {}

    @property
    def capabilities(self) -> EnvCapabilities:
        return EnvCapabilities()

    def true_signals(self) -> dict[str, Tensor]:
        return {"pos": self.pos, "goal": self.goal}

    def render(self, ids: Tensor | None = None) -> dict[str, Tensor]:
        return {}

    def record(self, world: int, episode: int | None = None) -> tuple[int, int]:
        return (int(self.keys[world]), int(self.episode[world])) if episode is None else (world, episode)

    def begin(self, episodes: Sequence[tuple[int, int]]) -> Obs:
        self.keys = torch.tensor([key for key, _ in episodes])
        self.episode = torch.tensor([episode - 1 for _, episode in episodes])
        return self.reset()

    def reset(self) -> Obs:
        self.start(self.worlds)
        return self.obs()

    def start(self, ids: Tensor) -> None:
        self.episode[ids] += 1
        for world in ids.tolist():
            key = 1000 * self.seed + 7 * int(self.keys[world]) + 101 * int(self.episode[world])
            self.goal[world] = 2 * torch.rand(2, generator=torch.Generator().manual_seed(key)) - 1
        self.pos[ids], self.count[ids] = 0.0, 0

    def obs(self) -> Obs:
        return Obs(self.pos.clone(), torch.cat([self.pos, self.goal], -1))

    def step(self, action: Tensor) -> Step:
        command, self.command_override = self.command_override, None
        assert command is not None
        before = (self.goal - self.pos).norm(dim=-1)
        self.pos = self.pos + STRIDE * command.clamp(-1, 1)
        self.count = self.count + 1
        final, over = self.obs(), self.count >= STEPS
        apart = (self.goal - self.pos).norm(dim=-1)
        info: Mapping[str, Any] = {"signals": {k: v.clone() for k, v in self.true_signals().items()},
                                   "success": apart < NEAR, "length": self.count.clone()}
        if bool(over.any()):
            self.start(over.nonzero()[:, 0])
        return Step(self.obs(), before - apart, torch.zeros_like(over), over, final, info)

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).clone() for name in ("pos", "goal", "count", "keys", "episode")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value.clone())


def interface() -> Interface:
    return Interface("point", SIGNALS, ActionSpec("velocity", (-1.0, -1.0), (1.0, 1.0)), 10.0)


def flow(horizon: int) -> Flow:
    """A decoder that flows."""
    return Flow(FlowConfig(horizon=horizon, execute=horizon, context=16, hidden=(32, 32), denoise_steps=3), 2)


def writer(horizon: int) -> Writer:
    """A decoder that writes tokens: one coefficient of each number, in 17 bins."""
    return Writer((horizon, 2), 1, 17, 16, 32, 2, 1)


@lru_cache(maxsize=4)
def cloned(make: Callable[[int], Decoder], share: float, horizon: int, updates: int, seed: int) -> ChunkPolicy:
    """Trained once for all tests: :func:`half_way`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = Tokens(16) if make is writer else SignalEncoder(tuple(SIGNALS.values()), 16, 1)
        policy = ChunkPolicy(interface(), horizon, encoder, make(horizon))
    generator = torch.Generator().manual_seed(seed)
    draw = lambda: 2 * torch.rand(256, 2, generator=generator) - 1  # noqa: E731
    encoder.normalizer.update(moments(torch.cat([draw(), draw()], -1)))
    adam = torch.optim.Adam(policy.parameters(), 1e-2)
    for _ in range(updates):
        pos, goal = draw(), draw()
        noise = 0.05 * torch.randn(256, horizon, 2, generator=generator)
        command = share * (goal - pos)[:, None].expand(-1, horizon, -1) + noise
        decoder: Decoder = policy.decoder
        loss = decoder.loss(encoder({"pos": pos, "goal": goal}), command, torch.ones(256, horizon), generator)[0]
        adam.zero_grad()
        loss.backward()
        adam.step()
    return policy.eval()


@torch.no_grad()
def success(policy: ChunkPolicy, episodes: int = 256, seed: int = 99) -> float:
    """Share of fresh episodes in which the deployed policy succeeds."""
    return played(policy, PointWorlds(episodes, seed))


@torch.no_grad()
def played(policy: ChunkPolicy, env: PointWorlds) -> float:
    """Share of the worlds of ``env`` in which the deployed policy succeeds."""
    env.reset()
    for k in range(STEPS):
        if k % policy.horizon == 0:
            rows = policy.rows(env.true_signals())
        env.command_override = rows[:, k % policy.horizon]
        step = env.step(rows[:, 0])
    return float(step.info["success"].float().mean())


def half_way(
    make: Callable[[int], Decoder] = flow, share: float = 0.4, horizon: int = 4, updates: int = 80, seed: int = 0
) -> ChunkPolicy:
    """A policy that was cloned from one that goes ``share`` of the way."""
    return deepcopy(cloned(make, share, horizon, updates, seed))


class Tokens(SignalEncoder):
    """A context of one token."""

    def __init__(self, width: int) -> None:
        super().__init__(tuple(SIGNALS.values()), width, 1)

    def forward(self, signals: Mapping[str, Tensor]) -> Tensor:
        """[N, 1, C]."""
        return super().forward(signals)[:, None]


def base(policy: ChunkPolicy, run: Path) -> Base:
    """``policy`` as what is tuned."""
    return Base(policy, run, lambda env: env.true_signals, (),
                lambda now, episodes: {"success": success(now, episodes)})
