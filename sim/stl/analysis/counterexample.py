"""Counterexamples: a trace that violates a formula, or nearly, with all that is needed to reproduce it."""

from __future__ import annotations

import io
import json
import os
import platform
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.handed_over import texts
from temporeal.robots.handed_over.arrays import array, members
from temporeal.robots.handed_over.files import read
from temporeal.robots.signals import SignalError
from temporeal.sim.stl.analysis.parameter_space import ParameterSpace, Values, space_from_json
from temporeal.sim.stl.analysis.rollouts import (
    Judge,
    Rollout,
    distinct_conjuncts,
    error_text,
    judge_clauses,
    judge_traces,
    to_numpy,
)
from temporeal.sim.stl.language.conventions import Semantics
from temporeal.sim.stl.language.propositional import Formula, to_text
from temporeal.sim.stl.language.serialization import from_json, to_json


@dataclass(frozen=True)
class Counterexample:
    """One trace with all that is needed to reproduce it.

    ``signals`` [T, *shape] are empty if the rollout raised ``failure``. ``about`` names the rollout, as JSON data;
    ``versions`` are those of the packages, ``revision`` that of the simulating code.
    """

    formula: Formula
    dt: float
    semantics: Semantics
    parameters: Values
    seed: int
    signals: Mapping[str, np.ndarray]
    robustness: float
    violated: bool
    failure: str = ""
    space: ParameterSpace | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    revision: str = ""


@dataclass(frozen=True)
class Replay:
    """A counterexample simulated again.

    ``identical``: every signal is bit-identical, or it failed with the same message. ``difference``: largest absolute
    difference of each signal (inf if the shape or the set of finite samples differs); ``tolerance``: the largest of
    them. ``robustness`` is that of the new trace, ``change`` its difference from the saved one. ``undecided``: no
    clause is violated, but the trace ended before one was decided.
    """

    robustness: float
    change: float
    violated: bool
    identical: bool
    difference: Mapping[str, float]
    tolerance: float
    failure: str = ""
    undecided: bool = False


def versions() -> dict[str, str]:
    """Versions of the packages that a rollout may depend on."""
    out = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("temporeal", "numpy", "cma", "torch", "numba", "mujoco"):
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out


FORMAT = 2
READABLE = (1, FORMAT)
UNKNOWN = "the robustness is NaN"
DEPTH = 400  # levels of its JSON: a formula is a tree
CONTENT = "counterexample.json"


def save_counterexample(path: str | Path, found: Counterexample) -> Path:
    """Write ``found`` to ``path``, one NPZ file, atomically.

    It holds ``counterexample.json`` (to read: ``unzip -p FILE counterexample.json``) and arrays without pickles: the
    signals by name, the time ``t`` in seconds, as ``temporeal spec`` reads a trace, and ``parameters/<name>``. A signal
    called ``t`` takes the place of the time.
    """
    path = Path(path)
    content = {
        "format": FORMAT, "signals": list(found.signals),
        "formula": to_text(found.formula), "formula_json": to_json(found.formula), "dt": found.dt,
        "semantics": asdict(found.semantics), "seed": found.seed, "robustness": _json_number(found.robustness),
        "violated": found.violated, "failure": found.failure, "revision": found.revision,
        "parameters": {k: np.asarray(v).tolist() for k, v in found.parameters.items()},
        "space": None if found.space is None else found.space.to_json(), "versions": dict(found.versions),
        "about": dict(found.about)}
    arrays = {f"parameters/{k}": np.asarray(v) for k, v in found.parameters.items()}
    samples = max((len(v) for v in found.signals.values()), default=0)
    arrays |= {"t": np.arange(samples) * found.dt} if samples else {}
    for name, value in found.signals.items():
        if not name or "/" in name or name == CONTENT:
            raise SignalError(f"signal name {name!r}: a word without slashes")
        arrays[name] = np.asarray(value)
    if any(a.dtype.hasobject for a in arrays.values()):
        raise SignalError("a counterexample holds arrays of numbers and texts, not of objects")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(CONTENT, json.dumps(content, indent=2, allow_nan=False))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    _write_whole(path, out.getvalue())
    return path


def load_counterexample(path: str | Path) -> Counterexample:
    """The counterexample that :func:`save_counterexample` wrote; a ValueError for any other file."""
    path = Path(path)
    try:
        held = dict(members(read(path), "the file"))
        content = texts.from_json(held.pop(CONTENT), CONTENT, DEPTH)
        arrays = {name.removesuffix(".npy"): array(data, name) for name, data in held.items()}
        if content["format"] not in READABLE:
            raise ValueError(f"format {content['format']}, this version reads {', '.join(map(str, READABLE))}")
        old = content["format"] == 1
        signals = _group("signals/", arrays) if old else {name: arrays[name] for name in content["signals"]}
        return Counterexample(
            from_json(content["formula_json"]), float(content["dt"]), Semantics(**content["semantics"]),
            _group("parameters/", arrays), int(content["seed"]), signals,
            float(content["robustness"]), bool(content["violated"]), content["failure"],
            None if content["space"] is None else space_from_json(content["space"]), content["about"],
            content["versions"], content["revision"])
    except FileNotFoundError:
        raise
    except (OSError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{path} is not a counterexample that save_counterexample wrote: {error}") from error


def replay(found: Counterexample, rollout: Rollout, judge: Judge | None = None) -> Replay:
    """Simulate ``found`` again, alone, with ``rollout``, and compare. ``judge``: that of the search."""
    batch = {k: np.asarray(v)[None] for k, v in found.parameters.items()}
    try:
        signals = {k: to_numpy(v) for k, v in rollout(batch, np.array([found.seed], np.int64)).items()}
    except MemoryError:
        raise
    except Exception as error:
        same = error_text(error) == found.failure
        return Replay(float("nan"), float("nan"), True, same, {}, 0.0 if same else inf, error_text(error))
    judge = judge or judge_traces(found.dt, found.semantics)
    judged = judge_clauses(judge, distinct_conjuncts(found.formula), signals, 1)
    value = float(judged.robustness.min())
    own = {k: v[:, 0] for k, v in signals.items()}
    names = [*found.signals, *(k for k in own if k not in found.signals)]
    difference = {k: _difference(found.signals.get(k), own.get(k)) for k in names}
    identical = bool(names) and all(_same_bits(found.signals.get(k), own.get(k)) for k in names)
    violated = bool(judged.violated.any())
    undecided = judged.undecided is not None and bool(judged.undecided.any()) and not violated
    change = 0.0 if value == found.robustness else value - found.robustness
    failure = UNKNOWN if np.isnan(value) else ""
    if found.failure:
        same = failure == found.failure
        return Replay(value, change, violated, same, {}, 0.0 if same else inf, failure, undecided)
    return Replay(value, change, violated, identical, difference, max(difference.values(), default=0.0), failure,
                  undecided)


def _same_bits(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is not None and b is not None and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _difference(a: np.ndarray | None, b: np.ndarray | None) -> float:
    """Largest absolute difference; inf if one is missing, or shapes or non-finite samples differ."""
    if a is None or b is None or a.shape != b.shape:
        return inf
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not (np.isfinite(a) & np.isfinite(b))[~same].all():
        return inf
    return float(np.abs(a[~same] - b[~same]).max(initial=0.0))


def _json_number(x: float) -> float | str:
    return x if isfinite(x) else str(x)  # JSON has no NaN and no infinity


def _group(prefix: str, arrays: Mapping[str, np.ndarray]) -> Values:
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def _write_whole(path: Path, content: bytes) -> None:
    """Write atomically: after a kill or on a full disk the file is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
