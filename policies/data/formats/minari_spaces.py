"""Gymnasium's spaces as Minari writes them (minari/serialization.py, 0.5.4): the signals and the command they are.

A leaf of a space of observations is a signal; its name joins the keys on the way to it. The leaves of a space of
actions are put behind each other: they are the components of the command.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.policies.data.episodes.interface_file import COMPONENTS, DIMENSIONS, unique
from temporeal.robots.signals import SignalSpec, is_number, is_size, is_type_of_numbers

LEAVES = 1000  # of a space
SMALLEST_PICTURE = 32
"""Rows and columns from which on Minari keeps uint8 in [0, 255] as JPEG (minari_storage.py, is_image_space)."""


@dataclass(frozen=True)
class Leaf:
    """A box, a number or flags of a space.

    Args:
        path: keys on the way to it; of tuples ``_index_0``.
        low, high: of each of its numbers, row by row.
    """

    path: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def name(self) -> str:
        """The keys with underscores between."""
        return "_".join(key.removeprefix("_index_") for key in self.path)

    @property
    def size(self) -> int:
        """Count of its numbers."""
        return math.prod(self.shape)

    @property
    def is_picture(self) -> bool:
        """Whether Minari may keep it as JPEG."""
        return (self.dtype == "uint8" and len(self.shape) in (2, 3) and min(self.shape[:2]) >= SMALLEST_PICTURE
                and set(self.low) == {0.0} and set(self.high) == {255.0})


@dataclass(frozen=True)
class Contents:
    """What metadata.json says.

    Args:
        interface: of the set.
        signals: by signal, the part of the space that it is.
        action: the parts of the space of actions.
        jpeg: whether pictures are kept as JPEG.
        layout: "hdf5" or "arrow".
    """

    interface: Interface
    signals: Mapping[str, Leaf]
    action: Sequence[Leaf]
    jpeg: bool
    layout: str


def leaves(told: Any, where: str, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """The leaves of a space in JSON."""
    kind = told.get("type") if isinstance(told, Mapping) else None
    try:
        if kind == "Dict":
            for key, each in told["subspaces"].items():
                yield from leaves(each, where, (*path, str(key)))
        elif kind == "Tuple":
            for k, each in enumerate(told["subspaces"]):
                yield from leaves(each, where, (*path, f"_index_{k}"))
        elif kind in KINDS:
            yield Leaf(path, *KINDS[kind](told))
        else:
            raise DataError(f"{where}: {'.'.join(path) or 'the space'} is of type {kind!r}; read are Dict, Tuple, "
                            f"{', '.join(KINDS)}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise error if isinstance(error, DataError) else DataError(
            f"{where}: {'.'.join(path) or 'the space'} is no {kind}: {type(error).__name__} {error}") from error


Told = tuple[tuple[int, ...], str, tuple[float, ...], tuple[float, ...]]


def of_box(told: Mapping[str, Any]) -> Told:
    """Shape, type and limits of a Box."""
    shape, dtype = tuple(told["shape"]), told["dtype"]
    if not all(map(is_size, shape)) or len(shape) > DIMENSIONS or math.prod(shape) > COMPONENTS or (
            not is_type_of_numbers(dtype)):
        raise ValueError(f"shape {shape}, type {dtype!r}")
    low, high = (np.broadcast_to(np.array(told[side], np.float64), shape).ravel() for side in ("low", "high"))
    return shape, str(dtype), tuple(map(float, low)), tuple(map(float, high))


def of_discrete(told: Mapping[str, Any]) -> Told:
    """A whole number from ``start`` on."""
    start, count = told.get("start", 0), told["n"]
    if not is_number(start) or not is_number(count) or count < 2:
        raise ValueError(f"start {start!r}, n {count!r}; two choices at least are needed")
    return (), "int64", (float(start),), (float(start + count - 1),)


def of_multi_discrete(told: Mapping[str, Any]) -> Told:
    """A row of whole numbers."""
    counts = np.array(told["nvec"], np.float64)
    start = np.broadcast_to(np.array(told.get("start", 0), np.float64), counts.shape)
    return counts.shape, "int64", tuple(map(float, start.ravel())), tuple(map(float, (start + counts - 1).ravel()))


def of_multi_binary(told: Mapping[str, Any]) -> Told:
    """A row of flags."""
    shape = tuple(told["n"]) if isinstance(told["n"], list) else (told["n"],)
    if not all(map(is_size, shape)) or math.prod(shape) > COMPONENTS:
        raise ValueError(f"n {told['n']!r}")
    return shape, "int8", (0.0,) * math.prod(shape), (1.0,) * math.prod(shape)


KINDS = {"Box": of_box, "Discrete": of_discrete, "MultiDiscrete": of_multi_discrete, "MultiBinary": of_multi_binary}


def listed(told: Any, where: str) -> list[Leaf]:
    """The leaves, of which there is one at least."""
    found = [leaf for _, leaf in zip(range(LEAVES + 1), leaves(told, where))]
    if not 0 < len(found) <= LEAVES:
        raise DataError(f"{where} has {len(found) or 'no'} parts; 1 to {LEAVES} are read")
    return found


def signals_of(found: Sequence[Leaf]) -> dict[str, tuple[Leaf, SignalSpec]]:
    """The leaves of a space of observations by the name of their signal."""
    out: dict[str, tuple[Leaf, SignalSpec]] = {}
    for leaf in found:
        name = unique(leaf.name or "observation", dict.fromkeys(out, ""))
        dtype = "float32" if leaf.dtype.startswith("float") else leaf.dtype
        out[name] = leaf, SignalSpec(name, leaf.shape, dtype=dtype)
    return out


def components_of(found: Sequence[Leaf]) -> tuple[str, ...]:
    """Names of the command's components: () where the action is one box, whose numbers have none."""
    if len(found) == 1 and not found[0].name:
        return ()
    return tuple(leaf.name if leaf.size == 1 else f"{leaf.name}.{k}" for leaf in found for k in range(leaf.size))


def box(shape: tuple[int, ...], dtype: str, low: Any, high: Any) -> dict[str, Any]:
    """A Box in JSON, as Minari writes it: infinite limits as Infinity."""
    return {"type": "Box", "dtype": dtype, "shape": list(shape), "low": np.broadcast_to(low, shape).tolist(),
            "high": np.broadcast_to(high, shape).tolist()}


def spaces(interface: Interface) -> tuple[dict[str, Any], dict[str, Any]]:
    """Spaces of observations and of actions of an interface."""
    parts = {}
    for name, spec in interface.signals.items():
        kind = np.dtype(spec.dtype).kind
        low, high = (-math.inf, math.inf) if kind == "f" else (0, 1) if kind == "b" else (
            np.iinfo(spec.dtype).min, np.iinfo(spec.dtype).max)
        parts[name] = box(spec.shape, "int8" if kind == "b" else spec.dtype, low, high)
    action = interface.action
    return ({"type": "Dict", "subspaces": parts},
            box((action.size,), "float32", np.array(action.low, np.float32), np.array(action.high, np.float32)))
