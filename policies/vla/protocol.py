"""What tuning asks of a policy that gives chunks, whatever its networks are: two protocols, and our own policies as
them. Samplers and reinforcement learning are written once, against these; the losses of supervised learning and
distillation ask for decoders (:mod:`temporeal.policies.training.chunks.policy`).

N robots, H steps of a chunk, U numbers of a command, K denoise steps. A context is one tensor whose first dimension is
N: it can be stored, and used again by every later pass of the expert.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from temporeal.policies.data.episodes.interface import Interface
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.chunks.flow_matching import FlowMatching
from temporeal.policies.training.chunks.policy import ChunkPolicy, Scale
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla.tokens import Writer


class Chunked(Protocol):
    """What both kinds of policy have in common.

    Attributes:
        interface: the signals that it reads, its command and its rate.
        horizon: H.
        scale: from raw commands to chunks in [-1, 1] and back; there is no policy without it.
        mask: bool [U], which numbers of a chunk are commands; the others are padding, and count nowhere.
        policy: the module that has all weights.
        expert: the module that makes chunks of a context: what is tuned where the encoder is frozen.
    """

    interface: Interface
    horizon: int
    scale: Scale
    mask: Tensor
    policy: nn.Module
    expert: nn.Module

    def initial_memory(self, n: int) -> Mapping[str, Tensor]:
        """What is remembered before an episode's first decision, [n, ...] by name."""

    def remembering(
        self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]
    ) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """The signals with what is remembered among them, for :meth:`encode`, and the memory from here on."""

    def encode(self, signals: Mapping[str, Tensor]) -> Tensor:
        """The context of raw signals [N, *shape]."""

    def chunk(self, command: Tensor, signals: Mapping[str, Tensor]) -> Tensor:
        """Raw commands [N, H, U] as a chunk in [-1, 1]."""

    def commands(self, x: Tensor, signals: Mapping[str, Tensor]) -> Tensor:
        """The raw commands [N, H, U], within the limits, of a chunk."""


class FlowPolicy(Chunked, Protocol):
    """A policy that moves noise (t = 1) to a chunk (t = 0) along a velocity. ``steps``: K, as it is deployed."""

    steps: int

    def velocity(self, context: Tensor, x: Tensor, t: Tensor) -> Tensor:
        """dx/dt [N, H, U] at ``x`` and the levels ``t`` [N]."""

    def start(self, context: Tensor) -> Tensor:
        """The noise [N, H, U] that a deployed chunk begins with."""


class TokenPolicy(Chunked, Protocol):
    """A policy that writes a chunk as T tokens, one after the other.

    Attributes:
        bins: V, values of a token.
        tokens: T.
    """

    bins: int
    tokens: int

    def logits(self, context: Tensor, tokens: Tensor) -> Tensor:
        """Of the next token [N, V] after ``tokens`` [N, k], k < T."""

    def all_logits(self, context: Tensor, tokens: Tensor) -> Tensor:
        """Of each of ``tokens`` [N, T] given those before it, [N, T, V], in one pass."""

    def chunk_of(self, tokens: Tensor) -> Tensor:
        """The chunk [N, H, U] in [-1, 1] that ``tokens`` [N, T] write."""


class ChunkedPolicy:
    """What a :class:`temporeal.policies.training.chunks.policy.ChunkPolicy` is to tuning. All its numbers are commands.
    """

    def __init__(self, policy: ChunkPolicy) -> None:
        require_statistics(policy)
        self.policy, self.expert = policy, policy.decoder
        self.interface, self.horizon, self.scale = policy.interface, policy.horizon, policy.scale
        self.mask = torch.ones(policy.interface.action.size, dtype=torch.bool)

    def initial_memory(self, n: int) -> Mapping[str, Tensor]:
        """That of the policy."""
        return self.policy.initial_memory(n)

    def remembering(
        self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]
    ) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """The signals with what is remembered among them, and the memory from here on."""
        return self.policy.remembering(signals, memory)

    def encode(self, signals: Mapping[str, Tensor]) -> Tensor:
        """The context."""
        return cast("Tensor", self.policy.encoder(signals))

    def chunk(self, command: Tensor, signals: Mapping[str, Tensor]) -> Tensor:
        """Raw commands as a chunk."""
        return self.policy.chunk(command, signals)

    def commands(self, x: Tensor, signals: Mapping[str, Tensor]) -> Tensor:
        """The raw commands of a chunk."""
        return self.policy.commands(x, signals)


class ChunkFlow(ChunkedPolicy):
    """A chunk policy that flows, as a :class:`FlowPolicy`."""

    def __init__(self, policy: ChunkPolicy, decoder: FlowMatching) -> None:
        super().__init__(policy)
        self.flow, self.steps = decoder, decoder.steps

    def velocity(self, context: Tensor, x: Tensor, t: Tensor) -> Tensor:
        """dx/dt at ``x``."""
        return cast("Tensor", self.flow.net(x, t, context))

    def start(self, context: Tensor) -> Tensor:
        """The deployed noise."""
        return cast("Tensor", self.flow.start(context))


class ChunkTokens(ChunkedPolicy):
    """A chunk policy that writes tokens, as a :class:`TokenPolicy`."""

    def __init__(self, policy: ChunkPolicy, decoder: Writer) -> None:
        super().__init__(policy)
        self.writer, self.bins, self.tokens = decoder, decoder.code.bins, decoder.code.count

    def logits(self, context: Tensor, tokens: Tensor) -> Tensor:
        """Of the next token."""
        return self.writer.logits(context, tokens)

    def all_logits(self, context: Tensor, tokens: Tensor) -> Tensor:
        """Of each token given those before it."""
        return self.writer.all_logits(context, tokens)

    def chunk_of(self, tokens: Tensor) -> Tensor:
        """The chunk that tokens write."""
        return self.writer.code.back(tokens)


def as_tokens(policy: ChunkPolicy) -> ChunkTokens:
    """``policy`` of algo=vla_tokens as a :class:`TokenPolicy`; it shares the weights."""
    if not isinstance(policy.decoder, Writer):
        raise SettingsError(f"a policy whose decoder is {type(policy.decoder).__name__} writes no tokens: tuning of "
                            "tokens takes runs of algo=vla_tokens")
    return ChunkTokens(policy, policy.decoder)


def as_flow(policy: ChunkPolicy) -> ChunkFlow:
    """``policy`` of algo=flow or algo=vla as a :class:`FlowPolicy`; it shares the weights."""
    if not isinstance(policy.decoder, FlowMatching):
        raise SettingsError(f"a policy whose decoder is {type(policy.decoder).__name__} has no velocity: tuning of "
                            "flows takes runs of algo=flow or algo=vla")
    return ChunkFlow(policy, policy.decoder)


def require_statistics(policy: ChunkPolicy) -> None:
    """Refuse a policy that would normalize by nothing: what it was trained to read is not known."""
    empty = [name for name, part in policy.named_modules() if isinstance(part, Normalizer) and len(part.shift)
             and not bool(part.count)]
    if empty:
        raise SettingsError(f"the policy has no statistics of what it reads ({', '.join(empty)}): it was not trained "
                            "on a dataset, or they were lost; a policy is never tuned without")
