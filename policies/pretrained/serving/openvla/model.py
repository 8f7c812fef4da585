"""OpenVLA and OpenVLA-OFT from a local folder, as :class:`temporeal.policies.pretrained.serving.server.Model`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from temporeal.policies.pretrained.serving.folders import ModelFolder
from temporeal.policies.pretrained.serving.interface import Interface
from temporeal.policies.pretrained.serving.openvla.checkpoint import (
    DDP,
    HEAD,
    PROPRIO,
    Checkpoint,
    check_interface,
    check_words,
    checkpoint_of,
)
from temporeal.policies.pretrained.serving.openvla.network import (
    ActionHead,
    Network,
    Projector,
    below,
    built,
    network_of,
    numbers_of,
)
from temporeal.policies.pretrained.serving.openvla.pictures import prepared
from temporeal.robots.handed_over.files import Refused, read_text

PROMPT = "In: What action should the robot take to {instruction}?\nOut:"
"""Of both repositories; instructions in lower case."""
BEGIN, END, EMPTY = 1, 2, 29871  # of Llama 2's tokens: <s>, </s>, and the one of an empty word, which ends the prompt


class OpenVLAModel:
    """OpenVLA (one row, token by token) or OpenVLA-OFT (a chunk at once, from an action head or from tokens)."""

    def __init__(self, folder: ModelFolder, request: Mapping[str, Any]) -> None:
        torch.set_num_threads(int(request["threads"]))
        self.given = checkpoint_of(folder, request["dataset"], request["openvla"])
        self.tokenizer = tokenizer_of(folder.path)
        self.network = network_at(self.given).to(request["device"])
        dtype = self.network.language.embed_tokens.weight.dtype
        self.head = part_of(folder.path / HEAD, ActionHead, "model.") if self.given.head else None
        self.proprio = part_of(folder.path / PROPRIO, Projector) if self.given.proprio else None
        for part in (self.head, self.proprio):
            if part is not None:
                part.to(request["device"], dtype)
        check_widths(self)
        self.like: dict[str, Any] = {"device": request["device"], "dtype": dtype}
        self.facts: dict[str, Any] = {
            "kind": "openvla", "files": folder.digest(), "dataset": request["dataset"], "statistics": "key",
            "notes": [], "versions": {name: metadata.version(name) for name in (
                "transformers", "tokenizers", "torch")}}

    def check(self, interface: Interface) -> int:
        """The rows of a chunk, if the model takes these inputs and gives this action."""
        return check_interface(self.given, interface)

    def infer(self, inputs: dict[str, np.ndarray], sentences: list[str] | None, seed: int) -> np.ndarray:
        """Rows [N, H, A], one world after the other: their sentences have different lengths."""
        found = []
        for k, sentence in enumerate(sentences or []):
            with torch.inference_mode():
                found.append(self.row(({name: value[k] for name, value in inputs.items()}), sentence))
        return np.stack(found).astype(np.float32)

    def row(self, inputs: Mapping[str, np.ndarray], sentence: str) -> np.ndarray:
        """The chunk [H, A] of one world, in the units of the data."""
        tokens = torch.tensor([self.tokens(sentence)], device=self.like["device"])
        words, context = self.network.embedded(tokens), self.context(inputs)
        rows, size = self.given.settings.rows, self.given.action.low.size
        before = torch.cat([words[:, :1], context, words[:, 1:]], 1)
        if self.given.settings.decoding == "autoregressive":
            return self.given.action.raw(self.centres(self.network.continued(before, size)).reshape(1, size))
        end = self.network.embedded(torch.tensor([[END]], device=self.like["device"]))
        empty = before.new_zeros(1, rows * size, before.shape[2])
        first = before.shape[1] - 1  # what follows a place is read there
        hidden = self.network.hidden(torch.cat([before, empty, end], 1))[:, first : first + rows * size]
        return self.given.action.raw(self.numbers(hidden).reshape(rows, size))

    def numbers(self, hidden: Tensor) -> np.ndarray:
        """Numbers [H * A], -1 to 1, of the hidden states [1, H * A, D]."""
        if self.head is None:
            return self.centres(self.network.likeliest(hidden))
        given: Tensor = self.head(hidden.reshape(1, self.given.settings.rows, -1))
        return np.asarray(given.float().cpu().numpy().reshape(-1))

    def centres(self, tokens: Tensor) -> np.ndarray:
        """The middles [S] of the bins that tokens [1, S] stand for: the last words of the vocabulary, backwards."""
        words = self.network.language.config.vocab_size - self.given.bins.padding
        edges = np.linspace(-1.0, 1.0, self.given.bins.count)
        middles = (edges[:-1] + edges[1:]) / 2.0
        return np.asarray(middles[(words - tokens[0].cpu().numpy() - 1).clip(0, len(middles) - 1)])

    def context(self, inputs: Mapping[str, np.ndarray]) -> Tensor:
        """Patches of all pictures, and the state after them, [1, P, D]."""
        crop, normal = self.given.settings.center_crop, self.given.normal
        pictures = [normal.numbers(prepared(value, normal.pixels, crop)) for value in inputs.values()
                    if value.dtype == np.uint8]
        found = self.network.seen(torch.tensor(np.stack(pictures)[None], **self.like))
        if self.proprio is None or self.given.proprio is None:
            return found
        (state,) = (value for value in inputs.values() if value.dtype != np.uint8)
        told = self.proprio(torch.tensor(self.given.proprio.scaled(state)[None, None], **self.like))
        return torch.cat([found, told], 1)

    def tokens(self, sentence: str) -> list[int]:
        """The tokens of the prompt."""
        found: list[int] = self.tokenizer.encode(PROMPT.format(instruction=sentence.lower())).ids
        if not found or found[0] != BEGIN or max(found) >= self.network.language.config.vocab_size:
            raise Refused(f"the tokenizer gives {found[:4]}... where Llama 2's begins with {BEGIN}")
        return found if found[-1] == EMPTY else [*found, EMPTY]


def tokenizer_of(folder: Path) -> Any:
    """Llama 2's tokenizer; its file holds tables, no code."""
    path = folder / "tokenizer.json"
    try:
        return Tokenizer.from_str(read_text(path, 64 << 20, folder))
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from error
    except Refused:
        raise
    except Exception as error:  # the library raises Exception itself
        raise Refused(f"{path} is no tokenizer: {error}") from error


def network_at(given: Checkpoint) -> Network:
    """The network of a checkpoint, from one file or several."""
    state: dict[str, Tensor] = {}
    for file in given.weights():
        state |= load_file(file)
    return network_of(numbers_of(state, str(given.folder.path)), given.folder.group("text_config"),
                      str(given.folder.path))


def part_of(path: Path, kind: Any, prefix: str = "") -> Any:
    """The action head or the projector of proprioception."""
    state = {name.removeprefix(DDP): value for name, value in load_file(path).items()}
    if others := [name for name in state if not name.startswith(prefix)]:
        raise Refused(f"{path} holds {others[0]}, which is no part of OpenVLA-OFT's")
    return built(kind, below(numbers_of(state, str(path)), prefix), str(path))


def check_widths(model: OpenVLAModel) -> None:
    """The parts fit together."""
    width, size = model.network.language.config.hidden_size, model.given.action.low.size
    if model.head is not None and model.head.fc1.in_features != width * size:
        raise Refused(f"{HEAD} reads {model.head.fc1.in_features} numbers; {size} hidden states of {width} are given")
    if model.proprio is not None and list(model.proprio.children())[-1].out_features != width:
        raise Refused(f"{PROPRIO} gives another width than the language model's {width}")
    check_words(model.given, model.network.language.config.vocab_size)
    towers: Any = model.network.vision_backbone
    sides = {int(tower.pixels) for tower in towers.values()}
    if sides != {model.given.normal.pixels}:
        raise Refused(f"the vision towers read pictures of {sorted(sides)} pixels, the picture processor gives "
                      f"{model.given.normal.pixels}")
