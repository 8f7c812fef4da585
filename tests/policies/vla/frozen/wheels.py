"""Packages like those that ship weights, with random ones of the same architecture: in a folder, for sys.path."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from temporeal.policies.vla.frozen import lite0
from temporeal.policies.vla.frozen.weights import WHEELS

WIDTH, INNER, PLACES = 32, 64, 64
PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "blue", "go", "red", "squa", "##re", "the", "to")
LAYER = {"attention.self.query": (WIDTH, WIDTH), "attention.self.key": (WIDTH, WIDTH),
         "attention.self.value": (WIDTH, WIDTH), "attention.output.dense": (WIDTH, WIDTH),
         "attention.output.LayerNorm": (WIDTH,), "intermediate.dense": (INNER, WIDTH), "output.dense": (WIDTH, INNER),
         "output.LayerNorm": (WIDTH,)}


def imagenet(seed: int = 0) -> dict[str, Tensor]:
    """Random weights of EfficientNet-Lite0, as far as they are read."""
    generator, found = torch.Generator().manual_seed(seed), {}
    for name, shape in lite0.wanted(lite0.Lite0()).items():
        value = torch.randn(shape, generator=generator)
        found[name] = value.abs() + 0.5 if "running_var" in name else 0.5 * value if len(shape) < 4 else (
            value / max(1.0, value[0].numel()) ** 0.5)
    return found


def minilm(seed: int = 0, pieces: Sequence[str] = PIECES) -> dict[str, Tensor]:
    """Random weights of a sentence encoder of one layer."""
    generator = torch.Generator().manual_seed(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(pieces), WIDTH),
        "embeddings.position_embeddings.weight": (PLACES, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH), "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,), "pooler.dense.weight": (WIDTH, WIDTH)}
    for name, shape in LAYER.items():
        shapes |= {f"encoder.layer.0.{name}.weight": shape, f"encoder.layer.0.{name}.bias": shape[:1]}
    return {name: 0.5 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def install(folder: Path, seed: int = 0, pieces: Sequence[str] = PIECES) -> Path:
    """Both packages in ``folder``; importing one of them is an error."""
    for name, wheel in WHEELS.items():
        file = folder / wheel.module / wheel.file
        file.parent.mkdir(parents=True, exist_ok=True)
        (folder / wheel.module / "__init__.py").write_text("raise RuntimeError('code of the wheel ran')\n")
        if name == "imagenet":
            torch.save(imagenet(seed), file)
        else:
            file.write_bytes(safetensors(minilm(seed, pieces)))
            (file.parent / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder


def safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """The bytes of a file."""
    table, data = {}, b""
    for name, value in tensors.items():
        raw = value.numpy().astype("<f4").tobytes()
        table[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    header = json.dumps(table).encode()
    return len(header).to_bytes(8, "little") + header + data
