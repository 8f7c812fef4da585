"""Policy folders as LeRobot's save_pretrained writes them, without LeRobot and without weights that mean anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

FEATURES = {"observation.state": {"type": "STATE", "shape": [3]},
            "observation.images.front": {"type": "VISUAL", "shape": [3, 8, 8]}}
CONFIG = {"type": "smolvla", "chunk_size": 10, "input_features": FEATURES,
          "output_features": {"action": {"type": "ACTION", "shape": [2]}},
          "normalization_mapping": {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"}}
STATE = {"observation.state.mean": np.zeros(3), "observation.state.std": np.ones(3)}
ACTION = {"action.mean": np.zeros(2), "action.std": np.array([0.5, 0.0])}


def write_tensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """A safetensors file of float32."""
    header, body = {}, b""
    for name, value in tensors.items():
        data = np.asarray(value, "<f4").tobytes()
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": "F32", "shape": list(np.shape(value)), "data_offsets": offsets}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def model(path: Path, config: dict[str, Any] | None = None, state: dict[str, np.ndarray] | None = None,
          action: dict[str, np.ndarray] | None = None, trained_on: str | None = None) -> Path:
    """A policy's folder."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    write_tensors(path / "model.safetensors", {"weight": np.ones(2)})
    for name, step, found in (("pre", "normalizer_processor", STATE if state is None else state),
                              ("post", "unnormalizer_processor", ACTION if action is None else action)):
        write_tensors(path / f"{name}.safetensors", found)
        (path / f"policy_{name}processor.json").write_text(json.dumps(
            {"steps": [{"registry_name": step, "config": {}, "state_file": f"{name}.safetensors"}]}))
    if trained_on:
        (path / "train_config.json").write_text(json.dumps({"dataset": {"repo_id": trained_on}}))
    return path
