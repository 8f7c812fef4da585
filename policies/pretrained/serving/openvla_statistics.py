"""OpenVLA's action statistics: ``norm_stats`` of its config, or ``dataset_statistics.json``, keyed by dataset."""

from __future__ import annotations

import numpy as np

from temporeal.policies.pretrained.serving.folders import CONFIG, ModelFolder, json_of
from temporeal.robots.handed_over.files import Refused

FILE = "dataset_statistics.json"  # of fine-tuned checkpoints; it comes before the config's


def action_statistics(folder: ModelFolder, dataset: str) -> dict[str, np.ndarray]:
    """``q01``, ``q99`` [A] of the action in ``dataset``, by which OpenVLA scales its tokens."""
    name = FILE if (folder.path / FILE).is_file() else CONFIG
    keyed = json_of(folder.path, FILE) if name == FILE else folder.config.get("norm_stats")
    if not isinstance(keyed, dict) or not keyed:
        raise Refused(f"{folder.path / name} holds no normalization statistics (norm_stats)")
    if dataset not in keyed:
        raise Refused(f"{folder.path / name} holds statistics of {', '.join(sorted(map(str, keyed)))[:300]}, not of "
                      f"dataset {dataset!r}")
    try:
        action = keyed[dataset]["action"]
        found = {key: np.asarray(action[key], np.float64) for key in ("q01", "q99")}
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"{folder.path / name}: the statistics of {dataset!r} have no action with q01 and q99 "
                      f"({error})") from error
    low, high = found["q01"], found["q99"]
    good = low.ndim == 1 and low.shape == high.shape and np.isfinite(low).all() and np.isfinite(high).all()
    if not good or (high < low).any() or not (high > low).any():
        raise Refused(f"{folder.path / name}: the action statistics of {dataset!r} are no numbers of data: q01 {low}, "
                      f"q99 {high}")
    return found
