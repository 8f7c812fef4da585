"""The folder of a pretrained model, before anything of it is loaded: which of our known kinds it is, and what it holds.

A model's folder was handed over. Its ``config.json`` chooses among the kinds of :data:`KINDS`, never a class; weights
are safetensors, for files of pickles run code when they are loaded; nothing in it is executed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporeal.robots.handed_over.files import Refused, inside, opened, read_text
from temporeal.robots.handed_over.texts import from_json

CONFIG, WEIGHTS, TRAINING = "config.json", "model.safetensors", "train_config.json"
FILES = 10_000  # of a folder, at most
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".dill", ".msgpack", ".h5")
CONFIGS = ("config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json")


@dataclass(frozen=True)
class Kind:
    """A kind of model that can be served.

    Args:
        library: that runs it.
        chunk: the key of ``config.json`` with the rows of a chunk.
        reads_text: whether it takes an instruction.
    """

    library: str
    chunk: str
    reads_text: bool


KINDS: Mapping[str, Kind] = {
    "smolvla": Kind("lerobot", "chunk_size", True), "pi0": Kind("lerobot", "chunk_size", True),
    "pi05": Kind("lerobot", "chunk_size", True), "act": Kind("lerobot", "chunk_size", False),
    "diffusion": Kind("lerobot", "n_action_steps", False), "openvla": Kind("transformers", "", True)}
"""Every kind that a config may name; LeRobot's by its ``type``, OpenVLA's by its ``model_type``."""


@dataclass(frozen=True)
class ModelFolder:
    """A checked folder: its kind and its configuration."""

    path: Path
    kind: str
    config: Mapping[str, Any]

    def digest(self) -> str:
        """SHA-256 over the names and contents of all files."""
        found = hashlib.sha256()
        for file in sorted(files(self.path)):
            found.update(str(file.relative_to(self.path)).encode() + b"\0")
            with opened(file, 1 << 40, self.path) as stream:
                while piece := stream.read(1 << 20):
                    found.update(piece)
        return found.hexdigest()

    def group(self, key: str) -> dict[str, Any]:
        """The object at ``key`` of the configuration; empty where there is none."""
        found = self.config.get(key) or {}
        if not isinstance(found, dict):
            raise Refused(f"{self.path / CONFIG}: {key} is {str(found)[:60]!r}; an object is needed")
        return found

    def features(self, key: str) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type (STATE, VISUAL, ACTION, ...) and shape of ``input_features`` or ``output_features``, by name."""
        where, found = self.path / CONFIG, dict[str, tuple[str, tuple[int, ...]]]()
        for name, entry in self.group(key).items():
            shape = entry.get("shape") if isinstance(entry, Mapping) else None
            if not (isinstance(shape, list) and shape and all(type(n) is int and 0 < n < 1 << 20 for n in shape)):
                raise Refused(f"{where}: {key}.{name} has the shape {shape}; whole numbers above 0 are needed")
            found[name] = (str(entry.get("type")), tuple(shape))
        return found


def open_folder(path: Path) -> ModelFolder:
    """The model in ``path``; :class:`Refused` says what cannot be served, and why."""
    if not path.is_dir():
        raise Refused(f"{path} is no folder: a pretrained model is a local folder; nothing is downloaded")
    check_files(path)
    config = json_of(path, CONFIG)
    kind = kind_of(config, path)
    if kind != "openvla":
        refuse_code(path)
        check_rows(config, KINDS[kind], path)
    return ModelFolder(path, kind, config)


def json_of(folder: Path, name: str) -> dict[str, Any]:
    """The object in a JSON file of the folder."""
    try:
        found = from_json(read_text(folder / name, 64 << 20, folder), str(folder / name))
    except OSError as error:
        raise Refused(f"{folder} holds no {name} ({error.strerror}); a model that LeRobot's save_pretrained wrote has "
                      f"{CONFIG}, {WEIGHTS} and its processors") from error
    if not isinstance(found, dict):
        raise Refused(f"{folder / name} holds no object")
    return found


def kind_of(config: Mapping[str, Any], path: Path) -> str:
    """The kind that a config names, if it is one of ours."""
    named = config.get("type", config.get("model_type"))
    if not isinstance(named, str) or named not in KINDS:
        raise Refused(f"{path / CONFIG} names the policy {str(named)[:60]!r}; served are: {', '.join(KINDS)}. A config "
                      "chooses among these and never names a class")
    return named


def check_rows(config: Mapping[str, Any], kind: Kind, path: Path) -> None:
    """A chunk has a number of rows."""
    rows = config.get(kind.chunk)
    if type(rows) is not int or not 0 < rows <= 10_000:
        raise Refused(f"{path / CONFIG}: {kind.chunk} is {rows!r}; a whole number from 1 to 10,000 is needed")


def files(folder: Path) -> Iterator[Path]:
    """The files below a folder; one that leads out of it, itself or by its folder, is refused."""
    for place, folders, names in os.walk(folder):
        for name in folders:
            inside(folder, Path(place) / name)  # a link to a folder is not walked, and libraries would follow it
        yield from (inside(folder, Path(place) / name) for name in names)


def check_files(folder: Path) -> None:
    """No link that leads out, no pickle, weights where they belong."""
    found = []
    for file in files(folder):
        found.append(file)
        if len(found) > FILES:
            raise Refused(f"{folder} holds more than {FILES:,} files")
    if pickles := [file.name for file in found if file.suffix.lower() in PICKLES]:
        raise Refused(f"{folder} holds {pickles[0]}: files of this kind are pickles or may be, and loading one can run "
                      "any code; only safetensors are taken. Convert it where you trust it, and move it out of the "
                      "folder")
    if not any(file.suffix == ".safetensors" for file in found):
        raise Refused(f"{folder} holds no weights ({WEIGHTS})")


def refuse_code(folder: Path) -> None:
    """No JSON file of the folder that transformers reads names code of its own (``auto_map``): it is never run."""
    for file in files(folder):
        if file.name in CONFIGS and "auto_map" in lenient(file, folder):
            raise Refused(f"{file} names Python code of its own (auto_map): code that comes with a model is not run")


def lenient(file: Path, folder: Path) -> dict[str, Any]:
    """The object in a JSON file of transformers, which writes numbers of more than 64 bits (``model_max_length``)."""
    try:
        found = json.loads(read_text(file, 64 << 20, folder))
    except (ValueError, RecursionError) as error:
        raise Refused(f"{file} is not JSON: {error}") from error
    return found if isinstance(found, dict) else {}
