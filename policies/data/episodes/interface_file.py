"""An interface as JSON, and what can be known of the interface of a set that somebody else wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.episodes.layout import ACTION, OBSERVATION
from temporeal.robots.signals import SignalError, SignalSpec, schema

UNKNOWN = ("units, frames and limits of the action, success and termination are not in LeRobot's files: unit '?', "
           "limits infinite, success unknown, every episode cut by time")
FEATURES, DIMENSIONS, COMPONENTS = 1000, 5, 1 << 28
"""Most features of a set, dimensions of one (LeRobot's Array5D), numbers of one."""


def to_json(interface: Interface) -> dict[str, Any]:
    """What :func:`from_json` reads."""
    return {"format": 1, "interface": {
        "robot": interface.robot, "rate_hz": interface.rate_hz, "task_action": interface.task_action,
        "task": interface.task, "simulator": interface.simulator, "about": dict(interface.about),
        "action": {**asdict(interface.action), "low": finite_or_null(interface.action.low),
                   "high": finite_or_null(interface.action.high)},
        "signals": [asdict(spec) for spec in interface.signals.values()]}, "digest": interface.digest()}


def finite_or_null(limits: tuple[float, ...]) -> list[float | None]:
    """Limits as JSON has them: null where there is none, for it has no infinity."""
    return [value if math.isfinite(value) else None for value in limits]


def limits(told: Any, none: float) -> tuple[float, ...]:
    """Limits of JSON; ``none``: what null is."""
    return tuple(none if value is None else float(value) for value in told)


def from_json(told: Any, where: str) -> Interface:
    """The interface of ``meta/temporeal.json``, its hash compared with what the file says."""
    try:
        given = told["interface"]
        action = given["action"]
        interface = Interface(
            robot=str(given["robot"]), rate_hz=float(given["rate_hz"]), task_action=int(given["task_action"]),
            task=str(given["task"]), simulator=str(given["simulator"]), about=dict(given["about"]),
            action=ActionSpec(str(action["name"]), limits(action["low"], -math.inf), limits(action["high"], math.inf),
                              str(action["unit"]), tuple(map(str, action["components"]))),
            signals=schema(*(SignalSpec(**{**spec, "shape": tuple(spec["shape"])}) for spec in given["signals"])))
    except (KeyError, TypeError, ValueError, SignalError) as error:
        raise DataError(f"{where}: this is no interface: {type(error).__name__} {error}") from error
    check(interface, where)
    if interface.digest() != told.get("digest"):
        raise DataError(f"{where}: the interface was changed after it was written: its hash is "
                        f"{interface.digest()[:12]}, the file says {str(told.get('digest'))[:12]}")
    return interface


def check(interface: Interface, where: str) -> None:
    """An interface that data can be written of."""
    try:
        json.dumps(dict(interface.about), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: about {dict(interface.about)!r}: {error}; plain figures and words are needed"
                        ) from error
    if not interface.signals:
        raise DataError(f"{where}: an interface needs a signal at least")
    if not (math.isfinite(interface.rate_hz) and interface.rate_hz > 0):
        raise DataError(f"{where}: rate_hz is {interface.rate_hz!r}; a positive number is needed")
    low, high = interface.action.low, interface.action.high
    if len(low) != len(high) or not low or not all(a < b for a, b in zip(low, high)):
        raise DataError(f"{where}: action {interface.action.name!r} has low {low} and high {high}; as many of both are "
                        "needed, one at least, each low below its high")
    for spec in interface.signals.values():
        check_size(spec, f"{where}: signal {spec.name!r}")


def check_size(spec: SignalSpec, what: str) -> None:
    """A signal that a column can hold."""
    if not 0 < spec.size <= COMPONENTS or len(spec.shape) > DIMENSIONS:
        raise DataError(f"{what} has shape {spec.shape}; 1 to {COMPONENTS:,} numbers in at most {DIMENSIONS} "
                        "dimensions are stored")


def inferred(info: Mapping[str, Any], folder: Path) -> tuple[Interface, dict[str, str]]:
    """The interface that ``info.json`` of a foreign set tells, and the column of each signal.

    A signal's name is its column's without ``observation.`` and ``images.``, dots as underscores. What the file does
    not say is in ``about["unknown"]``.
    """
    features = info.get("features")
    if not isinstance(features, Mapping) or len(features) > FEATURES:
        raise DataError(f"{folder}: info.json has no mapping of at most {FEATURES} features")
    specs: list[SignalSpec] = []
    columns: dict[str, str] = {}
    for key, told in features.items():
        if key.startswith(OBSERVATION):
            name = unique(key.removeprefix(OBSERVATION).removeprefix("images."), columns)
            columns[name] = key
            specs.append(of_feature(name, key, told, folder))
    action = action_of(features, folder)
    interface = Interface(robot=str(info.get("robot_type") or "?"), signals=schema(*specs), action=action,
                          rate_hz=rate_of(info, folder), about={"unknown": UNKNOWN, "written_by": "LeRobot"})
    check(interface, str(folder))
    return interface, columns


def unique(name: str, taken: Mapping[str, str]) -> str:
    """``name`` as an identifier that is not taken."""
    plain = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    plain = plain if plain.isidentifier() else f"_{plain}"
    while plain in taken:
        plain += "_"
    return plain


def of_feature(name: str, key: str, told: Any, folder: Path) -> SignalSpec:
    """A column of ``info.json`` as a signal."""
    try:
        shape, dtype = tuple(int(n) for n in told["shape"]), str(told["dtype"])
        names = list(told.get("names") or [])
        if dtype in ("video", "image"):
            if names[:1] in (["channels"], ["channel"]):
                shape = (*shape[1:], shape[0])
            dtype = "uint8"
        spec = SignalSpec(name, shape, "1" if dtype == "uint8" else "?", dtype=dtype)
        check_size(spec, f"{folder}: feature {key!r} of info.json")
        return spec
    except (KeyError, TypeError, ValueError, SignalError) as error:
        raise DataError(f"{folder}: feature {key!r} of info.json: {error}") from error


def columns_of(features: Mapping[str, Any], folder: Path) -> dict[str, SignalSpec]:
    """All columns of a foreign set. What is neither observed nor an action (reward, done, indices) is a scalar where
    its shape is [1]: LeRobot has no other for one."""
    columns = {key: of_feature(f"column_{k}", key, told, folder) for k, (key, told) in enumerate(features.items())}
    return {key: replace(spec, shape=()) if spec.shape == (1,) and key != ACTION and not key.startswith(OBSERVATION)
            else spec for key, spec in columns.items()}


def action_of(features: Mapping[str, Any], folder: Path) -> ActionSpec:
    """The column ``action`` of a foreign set."""
    if ACTION not in features:
        raise DataError(f"{folder}: info.json has no feature 'action'; it has {', '.join(sorted(features))}")
    spec = of_feature("action", ACTION, features[ACTION], folder)
    names = features[ACTION].get("names")
    components = tuple(map(str, names)) if isinstance(names, list) and len(names) == spec.size else ()
    return ActionSpec("action", (-math.inf,) * spec.size, (math.inf,) * spec.size, "?", components)


def rate_of(info: Mapping[str, Any], folder: Path) -> float:
    """Samples per second."""
    fps = info.get("fps")
    if isinstance(fps, bool) or not isinstance(fps, (int, float)) or not 0 < fps < 1e6:
        raise DataError(f"{folder}: info.json says fps {fps!r}; a positive number is needed")
    return float(fps)
