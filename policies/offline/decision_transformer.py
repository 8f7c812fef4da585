"""Decision transformer (Chen et al., NeurIPS 2021, arXiv 2106.01345), and its state-space variant (Decision Mamba, Ota
2024, arXiv 2403.19925).

Supervised learning of "what did the data do when they went on to earn this much": a sequence of (return, observation)
gives the action; deployed, it is asked for a high return. No value is bootstrapped. Deployed robots count no rewards:
the return asked for is that of the whole episode, the same at each step.

B sequences, T steps, O observation, A action.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.normalizer import Normalizer, moments
from temporeal.policies.nets.sequence import SelectiveScan, WindowAttention
from temporeal.policies.training import checkpoint, offline_learner, policy_graphs
from temporeal.policies.training.errors import SettingsError, choose, require
from temporeal.policies.training.offline.flat_parameters import Adam, descend
from temporeal.policies.training.offline.reinforcement import OfflineRLConfig
from temporeal.policies.training.offline.trajectory_weights import weighted
from temporeal.policies.training.offline_learner import Result

if TYPE_CHECKING:
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task import Task

BLOCKS = ("attention", "state_space")


@dataclass(frozen=True)
class DecisionTransformerConfig(OfflineRLConfig):
    """Settings.

    Args:
        block: "attention" sees ``window`` steps; "state_space" remembers from the first step on.
        layers, features: of the network; ``hidden`` is not used.
        states: of each feature, of the state space.
        window: steps of a training sequence, and of the attention; for a state space at least the longest episode's.
        quantile: of the data's returns, which the deployed policy is asked for.
    """

    block: str = "attention"
    layers: int = 2
    features: int = 64
    states: int = 8
    window: int = 20
    quantile: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        choose(self, block=tuple(BLOCKS))
        require(self, layers="[1, inf)", features="[1, inf)", states="[1, inf)", window="[2, inf)", quantile="[0, 1]")


class SequenceActor(nn.Module):
    """Observations to actions in (-1, 1), given the return that is asked for: sequences in training; step by step, with
    the state of what was seen, in deployment."""

    wanted: Tensor

    def __init__(self, obs_dim: int, action_dim: int, config: DecisionTransformerConfig) -> None:
        super().__init__()
        self.enter = nn.Linear(obs_dim + 1, config.features)
        self.blocks = nn.ModuleList(
            WindowAttention(config.features, config.window) if config.block == "attention"
            else SelectiveScan(config.features, config.states) for _ in range(config.layers))
        self.leave = nn.Sequential(nn.LayerNorm(config.features), nn.Linear(config.features, action_dim), nn.Tanh())
        self.register_buffer("wanted", torch.zeros(()))  # return, in deviations of the data's
        self.hidden_dim = sum(block.hidden_dim for block in self.blocks)

    def sequence(self, obs: Tensor, returns: Tensor) -> Tensor:
        """Actions [B, T, A] of observations [B, T, O] in episodes that earned ``returns`` [B]."""
        x = self.enter(torch.cat((obs, returns[:, None, None].expand(*obs.shape[:2], 1)), -1))
        for block in self.blocks:
            x = block(x)
        return self.leave(x)

    def forward(self, obs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Deterministic action [N, A] and next state [N, H] of ``obs`` [N, O]."""
        # added to zeros: an exported graph takes any number of rows
        x = self.enter(torch.cat((obs, torch.zeros_like(obs[:, :1]) + self.wanted), -1))
        after = []
        for block, state in zip(self.blocks, hidden.split([block.hidden_dim for block in self.blocks], -1)):
            x, state = block.step(x, state)
            after.append(state)
        return self.leave(x), torch.cat(after, -1)


class Sequences:
    """Batches of ``obs`` [B, T, O], ``action`` [B, T, A], ``there`` [B, T] and ``returns`` [B] (in deviations)."""

    def __init__(self, data: Transitions, config: DecisionTransformerConfig) -> None:
        self.data, self.config = data, config
        self.normalizer = Normalizer(data.obs.shape[1])
        if config.normalize_observations:
            self.normalizer.update(moments(data.obs))
        self.obs, self.lengths = self.normalizer(data.obs), data.starts.diff()
        if config.block == "state_space" and config.window < int(self.lengths.max()):
            raise SettingsError(f"algo.window={config.window}: a state space learns whole episodes, and the longest "
                                f"has {int(self.lengths.max())} steps")
        earned = torch.zeros(len(self.lengths)).index_add_(0, data.episode, data.reward)
        self.returns = (earned - earned.mean()) / earned.std(correction=0).clamp(min=1e-6)
        self.chance = torch.ones(len(self.lengths)) if data.weight is None else data.weight
        self.sizes = {"obs_dim": data.obs.shape[1], "action_dim": data.action.shape[1]}

    def fingerprint(self) -> str:
        """SHA-256 of observations, actions and rewards."""
        columns = (self.data.obs, self.data.action, self.data.reward)
        return hashlib.sha256(b"".join(column.numpy().tobytes() for column in columns)).hexdigest()

    def draw(self, generator: torch.Generator, count: int) -> Iterator[Any]:
        """``count`` batches: windows lie anywhere in their episode."""
        chance = self.chance * self.lengths
        steps = torch.arange(self.config.window)
        for _ in range(count):
            episode = torch.multinomial(chance, self.config.batch, True, generator=generator)
            room = (self.lengths[episode] - self.config.window).clamp(min=0)
            far = torch.rand(len(episode), generator=generator)
            offset = (far * (room + 1)).long()[:, None] + steps
            there = offset < self.lengths[episode][:, None]
            rows = self.data.starts[episode][:, None] + torch.minimum(offset, self.lengths[episode][:, None] - 1)
            yield SimpleNamespace(obs=self.obs[rows], action=self.data.action[rows], there=there.float(),
                                  returns=self.returns[episode])


class DecisionTransformer:
    """One gradient step of the sequence model."""

    figures = ("policy_loss",)

    def __init__(self, batches: Sequences, config: DecisionTransformerConfig) -> None:
        self.updates = 0
        self.actor = make_actor(batches.sizes, config)
        self.actor.wanted.copy_(torch.quantile(batches.returns, config.quantile))
        self.adam = Adam(self.actor, rate=config.learning_rate)
        self.modules, self.optimizers = {"actor": self.actor}, {"policy": self.adam}

    def update(self, batch: Any) -> Tensor:
        """Regress the data's actions, given what their episode earned."""
        error = (self.actor.sequence(batch.obs, batch.returns) - batch.action).square().sum(-1)
        loss = (error * batch.there).sum() / batch.there.sum()
        descend(loss, self.adam)
        return loss.detach()[None]


def make_actor(sizes: Mapping[str, int], config: DecisionTransformerConfig) -> SequenceActor:
    """The policy's network."""
    return SequenceActor(sizes["obs_dim"], sizes["action_dim"], config)


def train(data: Transitions, config: DecisionTransformerConfig, *, out: Path, seed: int = 0, **watched: Any) -> Result:
    """Learn from ``data``; ``watched``: see :func:`temporeal.policies.training.offline_learner.learn`."""
    torch.manual_seed(seed)
    batches = Sequences(weighted(data, config.weighting, config.weighting_temperature), config)
    return offline_learner.learn(DecisionTransformer(batches, config), batches, config, out=out, seed=seed,
                                 generator=torch.Generator().manual_seed(seed), **watched)


def load_sequence(path: Path, device: str = "cpu") -> tuple[SequenceActor, Normalizer, DecisionTransformerConfig]:
    """Actor, normalizer and configuration of the checkpoint or run in ``path``."""
    state = offline_learner.read(path)
    config, sizes = offline_learner.config_of(state, DecisionTransformerConfig), state["sizes"]
    weights = state["modules"]["actor"]
    checkpoint.require_held(state["path"], [sizes["obs_dim"] + 1, config.features, sizes["action_dim"]], weights)
    actor, normalizer = make_actor(sizes, config), Normalizer(sizes["obs_dim"])
    actor.load_state_dict(weights)
    normalizer.load_state_dict(state["normalizer"])
    return actor.to(device).eval(), normalizer.to(device), config


def load_graph(run: Path, task: Task, device: str = "cpu") -> PolicyGraph:
    """The policy of ``run`` on ``task``, with what it remembers."""
    from temporeal.sim.maps import PolicyGraph

    actor, normalizer, _ = load_sequence(run, device)
    policy_graphs.check_reads(run, normalizer, task)
    return PolicyGraph(task.observe, normalizer, actor, task.act).eval()
