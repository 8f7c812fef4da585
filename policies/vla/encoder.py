"""Pictures, a sentence and the robot's own state to the context of a vision-language-action policy: tokens [N, L, D].

The *prefix* (sentence and pictures, fused by attention) is apart from the token of the robot's state: it is what is
pre-trained, frozen, and computed once for each sample where it is frozen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from temporeal.policies.nets.encoders import count, is_picture, is_words, vector
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.nets.transformer import Block
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla.config import SeeingConfig
from temporeal.policies.vla.frozen import lite0, minilm
from temporeal.policies.vla.frozen.sentence import FrozenSentence
from temporeal.policies.vla.pictures import POINTED, Eye
from temporeal.policies.vla.places import Places
from temporeal.policies.vla.plan.head import Plan
from temporeal.policies.vla.text import Sentence
from temporeal.robots.artifact.manifest import FIRST_LOOK
from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.instructions.vocabulary import Vocabulary

PREFIX = "prefix"
"""Key of a prefix [N, L, D] that was computed before, among the signals."""
FIRST = FIRST_LOOK
"""Key of the first look [N, 1 + F + W] among the signals: 1, the places that the prefix told then, normalized, and the
numbers of the words that were said then; where there was no look yet, zeros."""
POSITIVE = "positive"
"""Key of RECAP's label [N] among the signals of a batch: 1 positive, -1 negative, 0 hidden."""


class Prefix(nn.Module):
    """What does not depend on the robot's state: the sentence, and what the cameras see given the sentence.

    Where eyes have pointers, the last token holds their numbers as they are, camera by camera, and zeros.

    Attributes:
        pointed: how many of its numbers that are.
        places: the signals ``told`` by its tokens; None: it was never asked for any.
    """

    def __init__(
        self, specs: Sequence[SignalSpec], vocabulary: Vocabulary | None, sizes: SeeingConfig,
        told: Sequence[SignalSpec] = (),
    ) -> None:
        super().__init__()
        width = sizes.context
        self.pictures = tuple(spec for spec in specs if is_picture(spec))
        self.words = next((spec.name for spec in specs if is_words(spec)), "")
        self.sentence = reader(vocabulary, sizes) if vocabulary else None
        self.unsaid = nn.Parameter(torch.zeros(1, width))
        self.net = net = lite0.load() if sizes.image_encoder == "imagenet" and self.pictures else None  # of all eyes
        self.eyes = nn.ModuleDict({
            spec.name: Eye(spec.shape, sizes.channels, sizes.keypoints, sizes.camera_tokens, sizes.patches, width,
                           sizes.pointers, net)
            for spec in self.pictures})
        fused = 1 + len(self.pictures) * (sizes.camera_tokens + sizes.patches**2)
        self.pointed = len(self.pictures) * sizes.pointers * POINTED
        if self.pointed > width:
            raise SettingsError(f"algo.pointers={sizes.pointers} of {len(self.pictures)} cameras are {self.pointed} "
                                f"numbers, and a token holds algo.context={width}")
        self.length = fused + (self.pointed > 0)
        self.place = nn.Parameter(0.02 * torch.randn(fused, width))
        self.blocks = nn.ModuleList(Block(width, sizes.heads) for _ in range(sizes.fusion_layers))
        self.norm = nn.LayerNorm(width)
        self.places = Places(told, self.length, width) if told else None

    def forward(self, signals: Mapping[str, Tensor]) -> Tensor:
        """Tokens [N, L, D]."""
        return self.looked(signals)[0]

    def looked(self, signals: Mapping[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Tokens [N, L, D], and of each camera the logits [N, Q, cells] of where its pointers look."""
        told = self.told(signals)
        pictures = {spec.name: signals[spec.name] for spec in self.pictures}
        if self.net is not None:
            pictures = lite0.mapped(self.net, pictures)
        seen = [self.eyes[name](picture, told) for name, picture in pictures.items()]
        found = torch.cat([told[:, None], *(look.tokens for look in seen)], 1) + self.place
        for block in self.blocks:
            found = block(found)
        found = self.norm(found)
        if self.pointed:
            numbers = torch.cat([look.pointed for look in seen], 1)
            found = torch.cat([found, nn.functional.pad(numbers, (0, found.shape[2] - self.pointed))[:, None]], 1)
        return found, [look.logits for look in seen]

    def told(self, signals: Mapping[str, Tensor]) -> Tensor:
        """The sentence [N, D]; where there is none, the same for all."""
        if self.sentence is not None:
            found: Tensor = self.sentence(signals[self.words])
            return found
        some = next(iter(signals.values()))
        return self.unsaid + 0.0 * some[..., None].flatten(1)[:, :1]  # zeros_like would be traced with the batch's size


def reader(vocabulary: Vocabulary, sizes: SeeingConfig) -> Sentence | FrozenSentence:
    """What makes one vector of a sentence."""
    if sizes.text_encoder == "minilm":
        return FrozenSentence(vocabulary, sizes.context, minilm.load(vocabulary))
    return Sentence(vocabulary, sizes.context, sizes.heads, sizes.text_layers)


class VlaEncoder(nn.Module):
    """Raw signals, by name [N, *shape], to the context [N, L, D]: the prefix, the state with the places that the prefix
    tells, and RECAP's label where it is ``labelled``.

    Attributes:
        normalizer: of the numbers that are read.
        plain: the signals that are these numbers.
        size: L * D.
        plan: head of ``plan`` waypoints, which nothing here reads; None where there are to be none.
        remembered: F, numbers of the first look that it is told beside what the prefix tells now; 0: none.
        said: W, numbers of words.
    """

    def __init__(
        self, specs: Sequence[SignalSpec], vocabulary: Vocabulary | None, sizes: SeeingConfig, labelled: bool = False,
        told: Sequence[SignalSpec] = (), plan: int = 0, remember: bool = False,
    ) -> None:
        super().__init__()
        self.prefix = Prefix(specs, vocabulary, sizes, told)
        self.remembered = sum(map(count, told)) if remember else 0
        self.said = sum(spec.size for spec in specs if is_words(spec))
        self.plain = tuple(spec for spec in specs if not is_picture(spec) and not is_words(spec))
        self.normalizer = Normalizer(sum(map(count, self.plain)), limit=5.0)
        width, numbers = sizes.context, sum(map(count, (*self.plain, *told))) + self.remembered + self.prefix.pointed
        self.state = nn.Sequential(nn.Linear(numbers, width), nn.SiLU(), nn.Linear(width, width),
                                   nn.LayerNorm(width)) if numbers else None
        self.label = nn.Parameter(0.02 * torch.randn(width)) if labelled else None
        self.size = width * (self.prefix.length + (self.state is not None) + (self.label is not None))
        with torch.random.fork_rng(devices=[]):  # with or without it, the other weights are drawn alike
            self.plan = Plan(self.prefix.length, width, plan) if plan else None

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words that it knows; None: it is told nothing."""
        return self.prefix.sentence.vocabulary if self.prefix.sentence else None

    def fix(self, words: Tensor) -> None:
        """Be told the sentence of ``words`` [L] for good, as far as that saves anything."""
        if isinstance(self.prefix.sentence, FrozenSentence):
            self.prefix.sentence.fix(words)

    def forward(self, signals: Mapping[str, Tensor]) -> Tensor:
        """The context. Without a label among the signals, the positive one is asked for."""
        found = [signals[PREFIX] if PREFIX in signals else self.prefix(signals)]
        if self.state is not None:
            found.append(self.state(self.numbers(found[0], signals))[:, None])
        if self.label is not None:
            one = 1.0 + 0.0 * found[0][:, 0, 0]
            found.append((signals.get(POSITIVE, one)[:, None] * self.label)[:, None])
        return torch.cat(found, 1)

    def numbers(self, tokens: Tensor, signals: Mapping[str, Tensor]) -> Tensor:
        """What is measured, what the prefix tells now and told at the first look, and where its pointers look,
        normalized [N, F]. What it tells is learned of the truth alone: no gradient goes back from what is done with it.
        """
        own = [self.normalizer(vector(self.plain, signals))] if self.plain else []
        told = [self.prefix.places(tokens).detach()] if self.prefix.places is not None else []
        told += [signals[FIRST][:, 1 : 1 + self.remembered] if FIRST in signals else told[0]] if self.remembered else []
        pointed = [tokens[:, self.prefix.length - 1, :self.prefix.pointed].detach()] if self.prefix.pointed else []
        return torch.cat([*own, *told, *pointed], -1)

    def initial_memory(self, n: int) -> dict[str, Tensor]:
        """No look yet, [N, 1 + F + W]; nothing where nothing is remembered."""
        return {FIRST: torch.zeros(n, 1 + self.remembered + self.said)} if self.remembered else {}

    def look(self, tokens: Tensor, signals: Mapping[str, Tensor], before: Tensor | None = None) -> Tensor:
        """The first look [N, 1 + F + W] by the prefix's ``tokens``, or the look that was ``before``, where there was
        one and the sentence is the same: the sentence decides whose places are told."""
        assert self.prefix.places is not None
        now = nn.functional.pad(self.prefix.places(tokens).detach(), (1, 0), value=1.0)
        if self.said:
            now = torch.cat([now, signals[self.prefix.words].to(now.dtype)], 1)
        if before is None:
            return now
        other = (before - now)[:, 1 + self.remembered :].abs().sum(1, keepdim=True)
        return torch.where((before[:, :1] > 0.5) & (other < 0.5), before, now)

    def remembering(
        self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The signals with the prefix and the first look among them, and the memory from here on."""
        tokens = self.prefix(signals)
        after = {FIRST: self.look(tokens, signals, memory[FIRST])}
        return {**signals, PREFIX: tokens, **after}, after
