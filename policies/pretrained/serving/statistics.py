"""Normalization statistics of a pretrained policy: read, checked, and refused where they are not those of the data.

LeRobot's processors leave a feature as it is when the statistics have no key for it (``_apply_transform`` of
``lerobot/processor/normalize_processor.py``, 0.4.4: ``key not in self._tensor_stats``). Weights that were trained on
several sets have keys such as ``so100.buffer.action``: raw network outputs, a few units around zero, then go to motors
as if they were joint positions. Here such keys are resolved by the name of the dataset, and what is missing is an
error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.pretrained.serving.folders import TRAINING, WEIGHTS, ModelFolder, json_of
from temporeal.policies.pretrained.serving.tensor_files import header, tensors
from temporeal.robots.handed_over.files import Refused, member

Statistics = dict[str, dict[str, np.ndarray]]
"""Feature -> statistic (mean, std, min, ...) -> numbers of the feature's shape."""

MODES: Mapping[str, tuple[str, str]] = {
    "MEAN_STD": ("mean", "std"), "MIN_MAX": ("min", "max"), "QUANTILES": ("q01", "q99"), "QUANTILE10": ("q10", "q90")}
"""Statistics that each mode of normalization needs."""

PIPELINES = ("policy_preprocessor.json", "policy_postprocessor.json")
OLD_LAYERS = ("normalize_inputs.", "unnormalize_outputs.", "normalize_targets.")
BUFFER = ".buffer"  # between dataset and feature, in names of weights that were trained on several sets


@dataclass(frozen=True)
class Normalization:
    """The statistics of a policy, by its features' names, and where they come from.

    Args:
        source: what says that they are of this dataset: ``key``, ``train_config`` or ``stated`` (the user alone).
        notes: what is unusual and not refused.
    """

    statistics: Statistics
    dataset: str
    source: str
    notes: tuple[str, ...] = ()


def normalization_of(folder: ModelFolder, dataset: str, raw: tuple[str, ...] = ()) -> Normalization:
    """The statistics that the policy in ``folder`` was trained with, if they are those of ``dataset``.

    ``raw``: features that the user says are not normalized; a policy that does not normalize others is refused.
    """
    refuse_old_layers(folder)
    inputs, outputs = folder.features("input_features"), folder.features("output_features")
    before, after = (one_pipeline(folder.path, name) for name in PIPELINES)
    found, sources, notes = Statistics(), set(), list[str]()
    for name, (kind, shape) in {**inputs, **outputs}.items():
        mode = mode_of(folder, kind, name, raw)
        if mode is None:
            continue
        stored = after if kind == "ACTION" else before
        values, source = entries_of(stored, name, dataset, folder.path)
        found[name] = checked(values, name, mode, shape, folder.path)
        notes += constant_components(found[name], name, mode, kind)
        sources.add(source)
    check_needed(found, raw, {**inputs, **outputs}, folder.path)
    source = "key" if sources == {"key"} else training_set(folder.path, dataset)
    return Normalization(found, dataset, source, tuple(notes))


def mode_of(folder: ModelFolder, kind: str, name: str, raw: tuple[str, ...]) -> str | None:
    """The mode of normalization of a feature; None where it has none."""
    mode = folder.group("normalization_mapping").get(kind, "IDENTITY")
    if mode == "IDENTITY":
        if kind in ("STATE", "ACTION") and name not in raw:
            raise Refused(f"{folder.path}: its config does not normalize {name} (mode IDENTITY). If it was trained on "
                          f"raw numbers, say so in the mapping: not_normalized: [{name}]")
        return None
    if name in raw:
        raise Refused(f"the mapping says that {name} is not normalized; the config of {folder.path} says {mode}")
    if not isinstance(mode, str) or mode not in MODES:
        raise Refused(f"{folder.path}: its config normalizes {kind} by {str(mode)[:40]!r}; known: IDENTITY, "
                      f"{', '.join(MODES)}")
    return mode


def one_pipeline(folder: Path, name: str) -> dict[str, np.ndarray]:
    """What the normalizers of one of LeRobot's processor files hold."""
    found: dict[str, np.ndarray] = {}
    for step in steps_of(folder, name):
        if "normalizer" in str(step.get("registry_name")) and (file := step.get("state_file")):
            try:
                found |= tensors(member(folder, file))
            except OSError as error:
                raise Refused(f"{folder / name} names {file}, with its statistics, which cannot be read: "
                              f"{error.strerror}") from error
    return found


def steps_of(folder: Path, name: str) -> Iterator[Mapping[str, Any]]:
    """The steps of a processor file, each by a registered name."""
    steps = json_of(folder, name).get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise Refused(f"{folder / name} has no list of steps")
    for step in steps:
        if "class" in step or not isinstance(step.get("registry_name"), str):
            raise Refused(f"{folder / name} names the class {str(step.get('class'))[:80]!r} for a step: only LeRobot's "
                          "registered steps are taken")
        yield step


def entries_of(
    stored: Mapping[str, np.ndarray], name: str, dataset: str, folder: Path
) -> tuple[dict[str, np.ndarray], str]:
    """The statistics of a feature, and what says that they are of ``dataset``."""
    owners: dict[str, dict[str, np.ndarray]] = {}
    for key, value in stored.items():
        feature, _, statistic = key.rpartition(".")
        if feature == name or feature.endswith(f".{name}"):
            owner = feature[: -len(name)].rstrip(".").removesuffix(BUFFER)
            owners.setdefault(owner, {})[statistic] = value
    if not owners:
        known = sorted({key.rpartition(".")[0] for key in stored})
        raise Refused(f"{folder}: there are no normalization statistics of {name} (there are those of: "
                      f"{', '.join(known)[:300] or 'nothing'}); without them its numbers would pass as they are")
    if set(owners) == {""}:
        return owners[""], "stated"
    if dataset not in owners:
        raise Refused(f"{folder}: the statistics of {name} are of {', '.join(sorted(owners))[:300]}, not of dataset "
                      f"{dataset!r}; LeRobot would silently leave {name} as it is")
    return owners[dataset], "key"


def checked(
    values: Mapping[str, np.ndarray], name: str, mode: str, shape: tuple[int, ...], folder: Path
) -> dict[str, np.ndarray]:
    """The statistics that ``mode`` needs: there, of the right shape, finite, and of some width."""
    missing = [key for key in MODES[mode] if key not in values]
    if missing:
        raise Refused(f"{folder}: {name} is normalized by {mode}, and its statistics have no {', '.join(missing)}; "
                      f"there: {', '.join(sorted(values))}")
    wanted = (shape[0], 1, 1) if len(shape) == 3 else shape  # of a picture's channels
    for key in MODES[mode]:
        if values[key].shape != wanted:
            raise Refused(f"{folder}: the statistic {key} of {name} has the shape {list(values[key].shape)}, the "
                          f"feature needs {list(wanted)}")
        if not np.isfinite(values[key]).all():
            raise Refused(f"{folder}: the statistic {key} of {name} is not finite: {values[key].ravel()[:8]}")
    width = width_of(values, mode)
    if (width < 0).any() or not width.any():
        what = "negative somewhere" if (width < 0).any() else "zero everywhere"
        raise Refused(f"{folder}: the width ({' to '.join(MODES[mode])}) of {name} is {what}: these are no statistics "
                      "of data")
    return {key: values[key] for key in MODES[mode]}


def width_of(values: Mapping[str, np.ndarray], mode: str) -> np.ndarray:
    """By what a feature is divided."""
    low, high = MODES[mode]
    return values[high] if mode == "MEAN_STD" else values[high] - values[low]


def constant_components(values: Mapping[str, np.ndarray], name: str, mode: str, kind: str) -> list[str]:
    """A note on components of the state that never changed in the data: LeRobot divides their deviation by 1e-8."""
    still = np.flatnonzero(width_of(values, mode).ravel() == 0.0)
    if kind != "STATE" or not len(still):
        return []
    return [f"{name}: components {still.tolist()} never changed in the data; any deviation from "
            f"{values[MODES[mode][0]].ravel()[still].tolist()} becomes enormous"]


def check_needed(found: Statistics, raw: tuple[str, ...], features: Mapping[str, Any], folder: Path) -> None:
    """State and action are known."""
    for kind in ("STATE", "ACTION"):
        if not any(of == kind and (name in found or name in raw) for name, (of, _) in features.items()):
            raise Refused(f"{folder}: its config has no feature of type {kind}")


def training_set(folder: Path, dataset: str) -> str:
    """Whether the folder itself says that it was trained on ``dataset``."""
    if not (folder / TRAINING).is_file():
        return "stated"
    of = json_of(folder, TRAINING).get("dataset")
    trained = of.get("repo_id") if isinstance(of, dict) else None
    if trained != dataset:
        raise Refused(f"{folder / TRAINING} says that the policy was trained on {str(trained)[:80]!r}, the mapping "
                      f"says {dataset!r}: its statistics are of the former")
    return "train_config"


def refuse_old_layers(folder: ModelFolder) -> None:
    """Policies of LeRobot before 0.4 kept statistics in the network."""
    if any(name.startswith(OLD_LAYERS) for name in header(folder.path / WEIGHTS)):
        raise Refused(f"{folder.path}: its statistics are in the network's file, as LeRobot before 0.4 wrote it; "
                      "python -m lerobot.processor.migrate_policy_normalization --pretrained-path FOLDER writes it "
                      "anew")
