"""A vision-language-action policy: pictures, a sentence and the robot's state to an action chunk, by flow matching.

The form of pi0 (Black et al. 2024, arXiv 2410.24164) at any size: an encoder makes tokens of the sentence, of each
camera's picture given the sentence, and of the state; an action expert, which attends to them, is the velocity of flow
matching (:mod:`temporeal.policies.training.chunks.flow_matching`). In place of a pretrained vision-language model: the
context must tell in training where the things are that are named (``ground``), or grounding was pre-trained
(algo=vla_grounding), and then few demonstrations tune the expert alone (``tune=expert``). """

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.flow_matching import FlowMatching
from temporeal.policies.training.chunks.learner import Result
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.chunks.windows import Source
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.vla import learning
from temporeal.policies.vla.config import VlaConfig
from temporeal.policies.vla.expert import Expert


@dataclass(frozen=True)
class FlowVlaConfig(VlaConfig):
    """Settings of the learner. ``configs/algo/vla.yaml`` has the same names.

    Args:
        width: numbers of a token of the expert.
        layers: of the expert.
        denoise_steps: K, evaluations of the expert for a chunk.
        beta: levels of training are drawn from Beta(beta, 1), as in pi0: above 1, more of them are near the noise.
        spread: of the fixed noise that a deployed chunk starts from.
    """

    width: int = 96
    layers: int = 2
    denoise_steps: int = 4
    beta: float = 1.5
    spread: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, width="[1, inf)", layers="[1, inf)", denoise_steps="[1, inf)", beta="(0, inf)", spread="[0, inf)")
        if self.width % self.heads:
            raise SettingsError(f"algo.width={self.width} is no multiple of algo.heads={self.heads}")


def flow(config: FlowVlaConfig, size: int) -> FlowMatching:
    """The decoder."""
    expert = Expert((config.horizon, size), config.context, config.width, config.heads, config.layers)
    return FlowMatching(expert, (config.horizon, size), config.denoise_steps, config.beta, config.spread)


def train(data: Source, config: FlowVlaConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the windows of a dataset; ``rest``: see :func:`temporeal.policies.training.chunks.learner.train`."""
    return learning.train(data, config, flow, "vla", out=out, seed=seed, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The policy of a run."""
    return learning.load(run, FlowVlaConfig, flow, device)[0]


def untrained(state: Mapping[str, Any], about: Mapping[str, Any]) -> ChunkPolicy:
    """A policy with new weights, of the shape that a student's checkpoint ``state`` states of its teacher."""
    config, interface = FlowVlaConfig(**learner.tupled(about["config"])), learner.interface_of(about["interface"])
    learner.hold(state, config, interface)
    return learner.make_policy(interface, config, flow, learning.encode_of(state, about))
