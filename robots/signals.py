"""Named signals with declared shape, unit and frame: the data that crosses every boundary of the stack.

numpy only. A *schema* is a mapping from signal name to :class:`SignalSpec`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, prod
from typing import TypeGuard

import numpy as np


class SignalError(ValueError):
    """A signal is missing, unknown, or has another shape, type or value than its spec declares."""


LARGEST = sys.float_info.max  # a whole number of a file may be larger, and is no float then


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether ``value``, read from a file, is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def is_size(value: object) -> bool:
    """Whether ``value`` is a valid number of components."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 0)


def is_type_of_numbers(name: object) -> bool:
    """Whether ``name`` is a numpy type of numbers or booleans."""
    try:
        return isinstance(name, str) and np.dtype(name).kind in "biuf"
    except TypeError:
        return False


@dataclass(frozen=True)
class SignalSpec:
    """One named signal.

    Args:
        name: identifier, frame as suffix where it has one (``base_pos_w``: world, ``_b``: body).
        shape: shape of one sample of one robot; ``()`` is a scalar.
        unit: SI unit as text; ``"1"`` is dimensionless, ``"wxyz"`` a unit quaternion, scalar first.
        frame: ``"w"`` world (ENU, z up), ``"b"`` body (FLU), ``""`` none.
        dtype: numpy type name.
        rate_hz: nominal rate of the source; 0 means "every control step".
    """

    name: str
    shape: tuple[int, ...] = ()
    unit: str = "1"
    frame: str = ""
    dtype: str = "float32"
    rate_hz: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise SignalError(f"signal name {self.name!r} is not an identifier (letters, digits, underscore)")
        if not isinstance(self.shape, tuple) or not all(map(is_size, self.shape)):
            raise SignalError(f"signal {self.name!r}: shape is {self.shape!r}; whole numbers from 0 on are needed")
        for key in ("unit", "frame"):
            if not isinstance(getattr(self, key), str):
                raise SignalError(f"signal {self.name!r}: {key} is {getattr(self, key)!r}; text is needed")
        if not is_type_of_numbers(self.dtype):
            raise SignalError(f"signal {self.name!r}: dtype is {self.dtype!r}; a numpy type of numbers is needed, such "
                              "as float32")
        if not is_number(self.rate_hz) or self.rate_hz < 0:
            raise SignalError(f"signal {self.name!r}: rate_hz is {self.rate_hz!r}; a number from 0 on is needed")

    @property
    def size(self) -> int:
        """Number of components of one sample."""
        return prod(self.shape)


@dataclass(frozen=True)
class CommandSpec(SignalSpec):
    """A signal that the robot's actuators take, with its limits per component (same unit)."""

    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("low", "high"):
            limits = getattr(self, key)
            if not isinstance(limits, tuple) or not all(map(is_number, limits)):
                raise SignalError(f"command {self.name!r}: {key} is {limits!r}; a number per component is needed")
        if len(self.low) != self.size or len(self.high) != self.size:
            raise SignalError(
                f"command {self.name!r}: {self.size} components need as many limits, "
                f"got {len(self.low)} low and {len(self.high)} high"
            )
        if any(lo >= hi for lo, hi in zip(self.low, self.high)):
            raise SignalError(f"command {self.name!r}: every low limit must be below its high limit")


Schema = Mapping[str, SignalSpec]


def schema(*specs: SignalSpec) -> dict[str, SignalSpec]:
    """A schema from specs; a name declared twice is an error."""
    out: dict[str, SignalSpec] = {}
    for spec in specs:
        if spec.name in out:
            raise SignalError(f"signal {spec.name!r} is declared twice")
        out[spec.name] = spec
    return out


FEW = 32  # numbers: so few are faster looked at as plain numbers, one by one, than as an array


def all_finite(array: np.ndarray) -> bool:
    """Whether no number in ``array`` is NaN or infinite."""
    if array.size <= FEW:
        return all(map(isfinite, array.ravel().tolist()))
    return bool(np.isfinite(array).all())


def check_signal(spec: SignalSpec, value: np.ndarray) -> np.ndarray:
    """``value`` as the declared dtype, or a :class:`SignalError` that names the signal and the rule."""
    array = np.asarray(value, dtype=spec.dtype)
    if array.shape != spec.shape:
        raise SignalError(f"signal {spec.name!r} has shape {array.shape}, its spec says {spec.shape}")
    if array.dtype.kind == "f" and not all_finite(array):
        raise SignalError(f"signal {spec.name!r} has a non-finite value: {array}")
    return array


def check_signals(schema: Schema, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every signal of ``schema`` from ``values`` (others are ignored), each checked."""
    if not schema.keys() <= values.keys():
        missing = [name for name in schema if name not in values]
        raise SignalError(f"missing signals {missing}; got {sorted(values)}")
    return {name: check_signal(spec, values[name]) for name, spec in schema.items()}
