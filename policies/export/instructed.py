"""What an artifact says of the instruction that its policy takes, and a policy that was told one for good.

A sentence that is baked in is a constant of the exported graph: the artifact reads no words, and its manifest has the
sentence as ``instruction.fixed``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.robots.artifact.additions import TOKEN, InstructionSpec
from temporeal.robots.artifact.manifest import ArtifactError
from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.instructions.vocabulary import Vocabulary


def words_among(signals: Iterable[SignalSpec]) -> SignalSpec | None:
    """The signal of words among those that a policy reads; None: it reads none."""
    found = [spec for spec in signals if spec.unit == TOKEN]
    if len(found) > 1:
        raise ArtifactError(f"a policy reads one instruction, got {', '.join(spec.name for spec in found)}")
    return found[0] if found else None


def instruction_spec(
    signals: Iterable[SignalSpec], vocabulary: Vocabulary | None, grammar: str = "", fixed: str = ""
) -> InstructionSpec | None:
    """The manifest's part for a policy that reads ``signals``; None where none of them is of words.

    ``fixed``: the sentence that is baked in. :class:`ArtifactError` where the policy reads no words, or of another
    number of words; :class:`temporeal.sim.stl.instructions.vocabulary.InstructionError` where it does not know them.
    """
    words = words_among(signals)
    if words is None:
        if fixed:
            raise ArtifactError(f"instruction={fixed!r}: the policy reads no instruction, it does one thing")
        return None
    if vocabulary is None:
        raise ArtifactError(f"the policy reads word numbers, {words.name!r}, and does not say which words they are: "
                            "its encoder has no vocabulary")
    if words.shape != (vocabulary.length,):
        raise ArtifactError(f"signal {words.name!r} has the shape {list(words.shape)}; sentences of its vocabulary "
                            f"have {vocabulary.length} words")
    if fixed:
        vocabulary.encode(fixed)
    return InstructionSpec(words.name, vocabulary.words, vocabulary.length, vocabulary.digest(), grammar, fixed)


class Told(nn.Module):
    """A policy that gives chunks and was told ``sentence`` for good: the same, without its signal of words.

    It has what exporting and playing a :class:`temporeal.policies.training.chunks.policy.ChunkPolicy` ask for.
    """

    def __init__(self, policy: Any, vocabulary: Vocabulary, sentence: str) -> None:
        super().__init__()
        words = words_among(policy.interface.signals.values())
        if words is None:
            raise ArtifactError(f"instruction={sentence!r}: the policy reads no instruction, it does one thing")
        self.policy, self.name = deepcopy(policy), words.name
        self.interface, self.horizon = policy.interface, policy.horizon
        self.signals = tuple(name for name in policy.signals if name != words.name)
        self.register_buffer("tokens", torch.from_numpy(vocabulary.encode(sentence)))
        self.tokens: Tensor
        fix = getattr(getattr(self.policy, "encoder", None), "fix", None)
        if fix is not None:
            fix(self.tokens)  # a frozen encoder of sentences stays at home

    def initial_memory(self, n: int) -> dict[str, Tensor]:
        """That of the policy."""
        found: dict[str, Tensor] = self.policy.initial_memory(n)
        return found

    def rows(self, signals: Mapping[str, Tensor]) -> Tensor:
        """Raw commands [N, H, U]."""
        rows: Tensor = self.policy.rows(self.told(signals))
        return rows

    def told(self, signals: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The signals with the sentence among them."""
        first = next(iter(signals.values()))
        nothing = 0 * first.reshape(first.shape[0], -1)[:, :1].to(self.tokens.dtype)  # [N, 1], traced for any N
        return {**signals, self.name: self.tokens + nothing}

    def forward(self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Any]:
        """Commands by name, and the memory from here on."""
        commands, after = self.policy(self.told(signals), memory)
        return commands, after
