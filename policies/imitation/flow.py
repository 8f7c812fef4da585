"""Flow matching: a policy that moves noise to an action chunk along a learned velocity.

Straight paths between noise (t = 1) and chunk (t = 0), and Euler steps along the velocity: the formulas and their
sources stand where the decoder does, :mod:`temporeal.policies.training.chunks.flow_matching`.

A chunk is deployed from one fixed noise (:class:`temporeal.policies.training.chunks.policy.Latent`): the same
measurement has the same chunk. Commands are scaled to [-1, 1]. """

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporeal.policies.nets.denoisers import check_denoiser, make_denoiser
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.flow_matching import FlowMatching
from temporeal.policies.training.chunks.learner import ChunkConfig, Result
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.chunks.windows import Source
from temporeal.policies.training.errors import require


@dataclass(frozen=True)
class FlowConfig(ChunkConfig):
    """Settings of the learner. ``configs/algo/flow.yaml`` has the same names.

    Args:
        network: mlp, unet or transformer (:mod:`temporeal.policies.nets.denoisers`).
        hidden: widths of its layers.
        denoise_steps: K, evaluations of the network for a chunk.
        beta: levels of training are drawn from Beta(beta, 1), as in pi0: above 1, more of them are near the noise.
        spread: of the fixed noise that a deployed chunk starts from: 1 as in training; one draw for all states leans
            all chunks to one side, so little of it is used: enough to choose between ways that are alike.
    """

    network: str = "mlp"
    hidden: Sequence[int] = (256, 256, 256)
    denoise_steps: int = 5
    beta: float = 1.5
    spread: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, hidden="[1, inf)", spread="[0, inf)", denoise_steps="[1, inf)", beta="(0, inf)")
        check_denoiser(self.network, self.horizon, self.hidden)


class Flow(FlowMatching):
    """The decoder, with the velocity network that the settings say."""

    def __init__(self, config: FlowConfig, size: int) -> None:
        net = make_denoiser(config.network, config.horizon, size, config.context, config.hidden)
        super().__init__(net, (config.horizon, size), config.denoise_steps, config.beta, config.spread)


def train(data: Source, config: FlowConfig, *, out: Path, seed: int = 0, **rest: Any) -> Result:
    """Train on the windows of a dataset; ``rest``: see :func:`temporeal.policies.training.chunks.learner.train`."""
    return learner.train(data, config, Flow, out=out, seed=seed, **rest)


def load_chunks(run: Path, device: str = "cpu") -> ChunkPolicy:
    """The policy of a run."""
    return learner.load(run, FlowConfig, Flow, device)[0]


def untrained(state: Mapping[str, Any], about: Mapping[str, Any]) -> ChunkPolicy:
    """A policy with new weights, of the shape that a student's checkpoint ``state`` states of its teacher."""
    config, interface = FlowConfig(**learner.tupled(about["config"])), learner.interface_of(about["interface"])
    learner.hold(state, config, interface)
    return learner.make_policy(interface, config, Flow)
