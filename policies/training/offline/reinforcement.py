"""What offline reinforcement learning shares beside the loop: its settings, the weights of trajectories, the start of a
training and the policy in a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.actor import ACTIVATIONS
from temporeal.policies.nets.bounded_actor import BoundedActor
from temporeal.policies.nets.ensembles import PRECISIONS
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training import checkpoint, offline_learner
from temporeal.policies.training.errors import choose, require
from temporeal.policies.training.offline.trajectory_weights import WEIGHTINGS, weighted
from temporeal.policies.training.offline.transition_batches import TransitionBatches
from temporeal.policies.training.offline_learner import Algorithm, OfflineConfig, Result


@dataclass(frozen=True)
class OfflineRLConfig(OfflineConfig):
    """Settings of all offline reinforcement learners.

    Args:
        gamma: discount per step.
        learning_rate: of Adam, for all networks.
        target_rate: of the target networks' moving average, per update.
        hidden: widths of all networks.
        precision: of products between hidden layers in training: float32, or bfloat16.
        normalize_observations: by their mean and standard deviation in the data.
        history: whether the policy sees what the task's observation map remembers, such as its last action; see
            :mod:`temporeal.policies.data.memoryless`.
        reward: "data"; or computed from the signals: "formula", progress over the decomposed formula of the task, or
            "task", what the task itself trains with.
        weighting: how often a trajectory is drawn: see :mod:`temporeal.policies.training.offline.trajectory_weights`.
        weighting_temperature: of its softmax: smaller draws the best more often.
    """

    gamma: float = 0.99
    learning_rate: float = 3e-4
    target_rate: float = 0.005
    hidden: tuple[int, ...] = (256, 256)
    activation: str = "relu"
    precision: str = "float32"
    normalize_observations: bool = True
    history: bool = True
    reward: str = "data"
    weighting: str = "none"
    weighting_temperature: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, gamma="[0, 1)", learning_rate="(0, inf)", target_rate="(0, 1]", hidden="[1, inf)",
                weighting_temperature="(0, inf)")
        choose(self, activation=tuple(ACTIVATIONS), precision=tuple(PRECISIONS), reward=REWARDS,
               weighting=WEIGHTINGS)


REWARDS = ("data", "formula", "task")
C = TypeVar("C", bound=OfflineRLConfig)
Build = Callable[[Mapping[str, int], Any, torch.Generator], Algorithm]
"""``build(sizes, config, generator)``: the algorithm with new networks."""


def learn(
    data: Transitions, config: OfflineRLConfig, build: Build, *, out: Path, seed: int = 0,
    more: Mapping[str, Tensor] | None = None, **watched: Any,
) -> Result:
    """Learn from ``data``. ``more``: columns of the algorithm's own; ``watched``: see
    :func:`temporeal.policies.training.offline_learner.learn`."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    batches = TransitionBatches(
        weighted(data, config.weighting, config.weighting_temperature), config.batch,
        normalize=config.normalize_observations, more=more)
    return offline_learner.learn(build(batches.sizes, config, generator), batches, config, out=out, seed=seed,
                                 generator=generator, **watched)


def bounded_actor(sizes: Mapping[str, int], config: OfflineRLConfig) -> BoundedActor:
    """A policy's network."""
    return BoundedActor(sizes["obs_dim"], sizes["action_dim"], config.hidden, name=config.activation,
                        precision=config.precision)


def load_policy(
    path: Path, kind: type[C], actor: Callable[[Mapping[str, int], C], nn.Module], device: str
) -> tuple[nn.Module, Normalizer, C]:
    """Actor, normalizer and configuration, a ``kind``, of the checkpoint or run in ``path``.

    ``actor(sizes, config)`` makes the network.
    """
    state = offline_learner.read(path)
    config, sizes = offline_learner.config_of(state, kind), state["sizes"]
    weights = state["modules"]["actor"]
    checkpoint.require_held(state["path"], [sizes["obs_dim"], *config.hidden, sizes["action_dim"]], weights)
    network, normalizer = actor(sizes, config), Normalizer(sizes["obs_dim"])
    network.load_state_dict(weights)
    normalizer.load_state_dict(state["normalizer"])
    return network.to(device).eval(), normalizer.to(device), config
