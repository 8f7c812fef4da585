"""OpenVLA's statistics: ``norm_stats`` of its config, or ``dataset_statistics.json``, by dataset (``unnorm_key``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from temporeal.policies.pretrained.serving.folders import CONFIG, ModelFolder, json_of
from temporeal.robots.handed_over.files import Refused

FILE = "dataset_statistics.json"  # of fine-tuned checkpoints; it comes before the config's
BOUNDS: Mapping[str, tuple[str, str]] = {"q99": ("q01", "q99"), "min_max": ("min", "max")}
"""Statistics that are -1 and 1: OpenVLA-OFT's BOUNDS_Q99 (LIBERO, Bridge) and BOUNDS (ALOHA)."""
TINY = 1e-8  # added to a width, as OpenVLA-OFT does (``_unnormalize_actions``, ``normalize_proprio``)


@dataclass(frozen=True)
class Scale:
    """Bounds [A] of a feature in a dataset; components outside of ``mask`` are not scaled (a gripper)."""

    low: np.ndarray
    high: np.ndarray
    mask: np.ndarray

    def scaled(self, value: np.ndarray) -> np.ndarray:
        """``value`` [..., A] of the data, so that the bounds are -1 and 1; what is beyond is cut off."""
        width = self.high - self.low + TINY
        found: np.ndarray = np.where(self.mask, 2.0 * (value - self.low) / width - 1.0, value).clip(-1.0, 1.0)
        return found

    def raw(self, value: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`scaled`, without the cut."""
        width = self.high - self.low + TINY
        return np.where(self.mask, 0.5 * (value + 1.0) * width + self.low, value)


def scale_of(folder: ModelFolder, dataset: str, feature: str = "action", bounds: str = "q99") -> Scale:
    """The bounds of ``feature`` (``action`` or ``proprio``) in ``dataset``, if they are those of data."""
    name = FILE if (folder.path / FILE).is_file() else CONFIG
    keyed, where = json_of(folder.path, FILE) if name == FILE else folder.config.get("norm_stats"), folder.path / name
    if not isinstance(keyed, dict) or not keyed:
        raise Refused(f"{where} holds no normalization statistics (norm_stats)")
    if dataset not in keyed:
        raise Refused(f"{where} holds statistics of {', '.join(sorted(map(str, keyed)))[:300]}, not of dataset "
                      f"{dataset!r}")
    names = BOUNDS[bounds]
    try:
        of = keyed[dataset][feature]
        low, high = (np.asarray(of[key], np.float64) for key in names)
        mask = np.asarray(of.get("mask", np.ones(low.shape, bool)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Refused(f"{where}: the statistics of {dataset!r} have no {feature} with {' and '.join(names)} "
                      f"({error})") from error
    good = low.ndim == 1 and low.shape == high.shape and np.isfinite(low).all() and np.isfinite(high).all()
    if not good or (high < low).any() or not (high > low).any():
        raise Refused(f"{where}: the {feature} statistics of {dataset!r} are no numbers of data: {names[0]} {low}, "
                      f"{names[1]} {high}")
    if mask.dtype != bool or mask.shape != low.shape:
        raise Refused(f"{where}: the mask of the {feature} statistics of {dataset!r} is {str(mask)[:80]}; true or "
                      f"false for each of {low.size} components is needed")
    if not mask.any():
        raise Refused(f"{where}: the mask of the {feature} statistics of {dataset!r} has no true component: nothing "
                      "would be scaled, and the network's numbers would be commands")
    return Scale(low, high, mask)
