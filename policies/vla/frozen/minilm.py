"""MiniLM as a sentence encoder: a sentence, as word numbers of our own vocabulary, to one vector of length 1.

all-MiniLM-L6-v2 (Reimers and Gurevych 2019, arXiv 1908.10084; Wang et al. 2020, arXiv 2002.10957): BERT's encoder with
six layers (Devlin et al. 2018, arXiv 1810.04805), the mean over its tokens, normalized. The words of a vocabulary are
known before, so each is cut into BERT's pieces once: of the 30,522 pieces a network keeps those that its vocabulary can
say, and an exported policy takes any sentence of these words, without a tokenizer.

N sentences, L words, P pieces of a word at most, up to M = P L + 2 tokens, E numbers of a vector. Only the tokens that
a sentence has are computed with: of a vocabulary of L = 16, P = 2 these are 6 to 12 of 34.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.nets.transformer import Attention
from temporeal.policies.pretrained.serving import tensor_files
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla.frozen import weights
from temporeal.robots.handed_over import files
from temporeal.sim.stl.instructions.vocabulary import Vocabulary

HEAD, EPSILON = 32, 1e-12  # numbers of a head of attention; of layer normalization
FIRST, LAST, UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
PIECES = "vocab.txt"  # beside the weights: a piece a line, its number is its place
LARGEST = 1 << 26  # bytes of a tensor


def cut(word: str, pieces: Mapping[str, int]) -> list[int]:
    """The numbers of the longest pieces of ``word``, from its beginning on (WordPiece: Wu et al. 2016, arXiv
    1609.08144); of what cannot be cut: of the unknown one."""
    found, start = list[int](), 0
    while start < len(word):
        ends = (end for end in range(len(word), start, -1) if ("##" if start else "") + word[start:end] in pieces)
        end = next(ends, 0)
        if not end:
            return [pieces[UNKNOWN]]
        found.append(pieces[("##" if start else "") + word[start:end]])
        start = end
    return found


class Layer(nn.Module):
    """A post-norm block of BERT."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.own, self.first = Attention(width, width // HEAD, any_length=True), nn.LayerNorm(width, EPSILON)
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.last = nn.LayerNorm(width, EPSILON)

    def forward(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """The tokens [N, M, E] after the block."""
        tokens = self.first(tokens + self.own(tokens, tokens, hidden))
        found: Tensor = self.last(tokens + self.narrow(nn.functional.gelu(self.wide(tokens))))
        return found


class MiniLM(nn.Module):
    """Word numbers [N, L], 0 where there is no word, to vectors [N, E].

    Args:
        cuts: of each word of the vocabulary, the pieces among the ``count`` that are kept; 0 and 1 begin and end.
        longest: L.
        layers, width, inner: E is the width.
    """

    def __init__(
        self, cuts: Sequence[Sequence[int]], count: int, longest: int, layers: int, width: int, inner: int
    ) -> None:
        super().__init__()
        most = max(map(len, cuts))
        rows = torch.tensor([[-1] * most, *([*cut, *[-1] * (most - len(cut))] for cut in cuts)])
        self.register_buffer("rows", rows.clamp(min=0), persistent=False)
        self.register_buffer("there", (rows >= 0).float(), persistent=False)
        self.rows: Tensor
        self.there: Tensor
        self.size = width
        self.pieces, self.places = nn.Embedding(count, width), nn.Embedding(most * longest + 2, width)
        self.norm = nn.LayerNorm(width, EPSILON)
        self.layers = nn.ModuleList(Layer(width, inner) for _ in range(layers))

    @property
    def stacked(self) -> Iterable[Layer]:
        """The layers, the first one first."""
        return cast("Iterable[Layer]", self.layers)

    def forward(self, words: Tensor) -> Tensor:
        """The vectors."""
        words = words.long()
        edge = torch.zeros_like(words[:, :1])
        pieces = torch.cat([edge, self.rows[words].flatten(1), edge + 1], 1)
        there = torch.cat([edge + 1.0, self.there[words].flatten(1), edge + 1.0], 1)
        pieces, there = together(pieces, there)
        tokens = self.norm(self.pieces(pieces) + self.places.weight[: pieces.shape[1]])
        hidden = (there - 1.0)[:, None, None] * 1e4
        for layer in self.layers:
            tokens = layer(tokens, hidden)
        mean = (tokens * there[..., None]).sum(1) / there.sum(1, keepdim=True)
        return nn.functional.normalize(mean, dim=1)


def together(pieces: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """The ``pieces`` [N, M] that are ``there`` (1, else 0) in their order, without gaps, and which of these are there
    (1, else 0): [N, m], m those of the longest sentence. An exported graph takes m from what it reads."""
    count = there.sum(1, keepdim=True)
    last = pieces.shape[1]  # a column for the gaps
    to = torch.where(there > 0, there.cumsum(1) - 1.0, float(last)).long()
    packed = (0 * torch.cat([pieces, pieces[:, :1]], 1)).scatter(1, to, pieces)
    longest = count.max().long()
    return packed[:, :longest], (torch.arange(last, device=count.device)[None, :longest] < count).float()


# ---- weights


def load(vocabulary: Vocabulary) -> MiniLM:
    """The network of ``vocabulary`` with the weights that are installed."""
    path = weights.path_of("minilm")
    try:
        found = {name.removeprefix("bert."): torch.from_numpy(value).float() for name, value in
                 tensor_files.tensors(path, lambda name: "position_ids" not in name, LARGEST).items()}
        lines = files.read_text(path.parent / PIECES, within=path.parent).splitlines()
    except (OSError, files.Refused) as error:
        raise SettingsError(f"the weights of the frozen encoder 'minilm' cannot be read: {error}") from error
    return filled(path, found, {piece: number for number, piece in enumerate(lines)}, vocabulary)


def filled(path: Path, found: Mapping[str, Tensor], pieces: Mapping[str, int], vocabulary: Vocabulary) -> MiniLM:
    """The network with the weights ``found``, whose shapes say its sizes. ``pieces``: their numbers."""
    layers = len({name.split(".")[2] for name in found if name.startswith("encoder.layer.")})
    width, inner = sizes(found)
    if missing := [piece for piece in (FIRST, LAST, UNKNOWN) if piece not in pieces]:
        raise SettingsError(f"{path.parent / PIECES} lacks the pieces {', '.join(missing)}")
    cuts = [cut(word, pieces) for word in vocabulary.words]
    kept = list(dict.fromkeys([pieces[FIRST], pieces[LAST], *(piece for each in cuts for piece in each)]))
    net = MiniLM([[kept.index(piece) for piece in each] for each in cuts], len(kept), vocabulary.length, layers,
                 width, inner)
    weights.check(path, found, wanted(net, len(pieces), found))
    fill(net, found, kept)
    weights.fixed(net)
    return net


def sizes(found: Mapping[str, Tensor]) -> tuple[int, int]:
    """E and the width inside, as the first layer has them; what does not fit them is refused by name later."""
    inner = found.get("encoder.layer.0.intermediate.dense.weight", torch.zeros(1, HEAD))
    return max(HEAD, inner.shape[-1] // HEAD * HEAD), len(inner)


def wanted(net: MiniLM, pieces: int, found: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors that are read of the file, by name and shape. ``pieces``: how many there are."""
    width, places = net.size, found.get("embeddings.position_embeddings.weight", torch.zeros(0))
    needed = max(len(places), net.places.num_embeddings)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (pieces, width), "embeddings.position_embeddings.weight": (needed, width),
        "embeddings.token_type_embeddings.weight": (2, width), "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,)}
    for i, layer in enumerate(net.stacked):
        inner = layer.wide.out_features
        for name, shape in (("attention.self.query", (width, width)), ("attention.self.key", (width, width)),
                            ("attention.self.value", (width, width)), ("attention.output.dense", (width, width)),
                            ("attention.output.LayerNorm", (width,)), ("intermediate.dense", (inner, width)),
                            ("output.dense", (width, inner)), ("output.LayerNorm", (width,))):
            shapes[f"encoder.layer.{i}.{name}.weight"] = shape
            shapes[f"encoder.layer.{i}.{name}.bias"] = shape[:1]
    return shapes


@torch.no_grad()
def fill(net: MiniLM, found: Mapping[str, Tensor], kept: Sequence[int]) -> None:
    """Copy the weights ``found``; the pieces ``kept`` alone."""
    begin = "embeddings."
    net.pieces.weight.copy_(found[begin + "word_embeddings.weight"][np.asarray(kept)])
    kind = found[begin + "token_type_embeddings.weight"][0]
    net.places.weight.copy_(found[begin + "position_embeddings.weight"][: len(net.places.weight)] + kind)
    copy(net.norm, found, begin + "LayerNorm")
    for i, layer in enumerate(net.stacked):
        at = f"encoder.layer.{i}."
        copy(layer.own.query, found, at + "attention.self.query")
        copy(layer.own.both, found, at + "attention.self.key", at + "attention.self.value")
        copy(layer.own.out, found, at + "attention.output.dense")
        copy(layer.first, found, at + "attention.output.LayerNorm")
        copy(layer.wide, found, at + "intermediate.dense")
        copy(layer.narrow, found, at + "output.dense")
        copy(layer.last, found, at + "output.LayerNorm")


def copy(part: nn.Module, found: Mapping[str, Tensor], *names: str) -> None:
    """Weights and biases of the layers ``names``, one below the other, into ``part``."""
    for kind in ("weight", "bias"):
        getattr(part, kind).copy_(torch.cat([found[f"{name}.{kind}"] for name in names]))
