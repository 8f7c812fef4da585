"""What all our models of progress share: an encoder of moments, and a value that goes from moment to moment.

N worlds, T samples of an episode, C numbers of a context. A memory is tensors by name, each with N in front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.data.episodes.interface import Interface
from temporeal.policies.nets.encoders import SignalEncoder, is_words
from temporeal.robots.signals import SignalSpec

AT_ONCE = 256  # samples that are encoded together

Memory = dict[str, Tensor]


class Sentence(nn.Module):
    """Word numbers [N, L] to the mean [N, D] of the words' vectors. A number beyond the vocabulary is an error."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(words + 1, width, padding_idx=0)

    def forward(self, tokens: Tensor) -> Tensor:
        """What the sentence means."""
        tokens = tokens.long()
        there = (tokens > 0).float()[..., None]
        found: Tensor = (self.vectors(tokens) * there).sum(-2) / there.sum(-2).clamp(min=1.0)
        return found


class MomentEncoder(nn.Module):
    """Raw signals, by name [N, *shape], to a context [N, C]: what is measured and seen, and the instruction."""

    def __init__(self, specs: Sequence[SignalSpec], width: int, keypoints: int, words: int) -> None:
        super().__init__()
        self.told = tuple(spec.name for spec in specs if is_words(spec))
        self.seen = SignalEncoder([spec for spec in specs if not is_words(spec)], width, keypoints)
        self.sentence = Sentence(words, width) if self.told else None
        self.both = nn.Sequential(nn.SiLU(), nn.Linear(width * (1 + len(self.told)), width), nn.SiLU(),
                                  nn.Linear(width, width), nn.LayerNorm(width))

    def forward(self, signals: Mapping[str, Tensor]) -> Tensor:
        """The context."""
        parts = [self.seen(signals)]
        if self.sentence is not None:
            parts += [self.sentence(signals[name]) for name in self.told]
        found: Tensor = self.both(torch.cat(parts, -1))
        return found


class ProgressNetwork(nn.Module):
    """A :class:`temporeal.policies.training.progress_models.protocol.ProgressModel` with networks. An algorithm says
    what it remembers of an episode (:meth:`begin`), what the value is (:meth:`step`) and what is minimized.

    Attributes:
        names: of the signals that are read. ``interface``: of the set that it learned from, these signals alone; None
            where it was not read from a run.
        encoder: raw signals, by name [N, *shape], to contexts [N, C]; its ``seen`` has the statistics of the numbers.
        figures: names of what :meth:`loss` gives; the first one is minimized.
    """

    figures: tuple[str, ...] = ("loss",)
    encoder: Any
    interface: Interface | None = None

    def __init__(self, specs: Sequence[SignalSpec], encoder: nn.Module) -> None:
        super().__init__()
        self.names, self.encoder = tuple(spec.name for spec in specs), encoder
        self.memory: Memory | None = None
        self.worlds, self.every = 0, 1

    def begin(self, context: Tensor) -> Memory:
        """What is remembered before the first moment, whose context [N, C] this is."""
        return {}

    def step(self, context: Tensor, memory: Memory, elapsed: int) -> tuple[Tensor, Memory]:
        """The value [N] in [0, 1] at a moment's context [N, C], ``elapsed`` samples after the last one, and what is
        remembered from then on."""
        raise NotImplementedError

    def loss(self, batch: Any, averaged: ProgressNetwork) -> Tensor:
        """The :attr:`figures` [F] of a batch; ``averaged``: the model with averaged weights, for targets."""
        raise NotImplementedError

    @torch.no_grad()
    def values(self, signals: Mapping[str, Tensor]) -> Tensor:
        """[T] of one episode."""
        context, found = self.contexts(signals), []
        memory = self.begin(context[:1])
        for moment in torch.split(context, 1):
            value, memory = self.step(moment, memory, 1)
            found.append(value)
        return torch.cat(found)

    def contexts(self, signals: Mapping[str, Tensor]) -> Tensor:
        """[T, C], a few samples at a time."""
        read = [torch.split(signals[name], AT_ONCE) for name in self.names]
        return torch.cat([self.encoder(dict(zip(self.names, part))) for part in zip(*read)])

    def start(self, n: int, every: int = 1) -> None:
        """Begin episodes in ``n`` worlds, of which each ``every``-th sample will be shown."""
        self.worlds, self.every, self.memory = n, every, None

    @torch.no_grad()
    def update(self, signals: Mapping[str, Tensor], begins: Tensor | None = None) -> Tensor:
        """[N] at the next samples."""
        context = self.encoder({name: signals[name] for name in self.names})
        if len(context) != self.worlds:
            raise ValueError(f"progress of {len(context)} worlds is asked for; start({self.worlds}) was said")
        if self.memory is None:
            self.memory = self.begin(context)
        elif begins is not None and bool(begins.any()):
            self.memory = chosen(begins, self.begin(context), self.memory)
        value, self.memory = self.step(context, self.memory, self.every)
        return value


class ComparingNetwork(ProgressNetwork):
    """A model whose value follows from one moment to the next by comparing them. Each ``stride`` samples the moment
    becomes the one that later ones are compared with. It remembers that moment, its value, and how long ago it was."""

    def __init__(self, specs: Sequence[SignalSpec], encoder: nn.Module, width: int, stride: int) -> None:
        super().__init__(specs, encoder)
        self.stride, self.head = stride, head(3 * width, width)

    def compare(self, before: Tensor, after: Tensor) -> Tensor:
        """What the network says [N] of two contexts [N, C]."""
        found: Tensor = self.head(torch.cat([before, after, after - before], -1))[..., 0]
        return found

    def follow(self, value: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """The value [N] at the context ``after`` from that at ``before``."""
        raise NotImplementedError

    def begin(self, context: Tensor) -> Memory:
        """Nothing is done."""
        nothing = context.new_zeros(len(context))
        return {"compared": context, "value": nothing, "age": nothing}

    def step(self, context: Tensor, memory: Memory, elapsed: int) -> tuple[Tensor, Memory]:
        """The value of this moment. The first one is not compared with itself."""
        value = self.follow(memory["value"], memory["compared"], context)
        value = torch.where(memory["age"] > 0, value, memory["value"])
        due = memory["age"] >= self.stride
        begun = torch.full_like(memory["age"], elapsed)
        return value, {"compared": torch.where(due[:, None], context, memory["compared"]),
                       "value": torch.where(due, value, memory["value"]),
                       "age": torch.where(due, begun, memory["age"] + elapsed)}


class StillNetwork(ProgressNetwork):
    """A model whose value is that of the moment alone."""

    def value(self, context: Tensor) -> Tensor:
        """[N] in [0, 1] of contexts [N, C]."""
        raise NotImplementedError

    def step(self, context: Tensor, memory: Memory, elapsed: int) -> tuple[Tensor, Memory]:
        """The value; nothing is remembered."""
        return self.value(context), memory


def chosen(which: Tensor, yes: Memory, no: Memory) -> Memory:
    """``yes`` in the worlds ``which`` [N], ``no`` in the others."""
    return {name: torch.where(which.reshape(-1, *[1] * (value.ndim - 1)), value, no[name])
            for name, value in yes.items()}


def head(inputs: int, width: int, outputs: int = 1) -> nn.Sequential:
    """From contexts to what is predicted."""
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, outputs))
