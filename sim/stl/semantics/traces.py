"""Signals of whole traces: checked, of one array library, and with equal leading dimensions."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.propositional import Formula, to_text
from temporeal.sim.stl.language.queries import check_depth, require_formula, signals_in
from temporeal.sim.stl.language.values import Array, Arrays, check_shape, numpy_arrays, required


def is_tensor(x: Any) -> bool:
    """Whether ``x`` is a torch tensor, without importing torch: a program without torch has no tensors."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_traced(x: Array) -> bool:
    """Whether a tracer records the operations on ``x``: it would record questions about its shape too."""
    return is_tensor(x) and bool(sys.modules["torch"].jit.is_tracing())


def library(like: Array) -> Arrays:
    """The functions of the library that ``like`` belongs to."""
    if is_tensor(like):
        from temporeal.sim.stl.semantics import torch_ops

        return torch_ops.torch_arrays(like)
    return numpy_arrays(like.dtype)


def _floating(name: str, array: Any) -> Array:
    if is_tensor(array):
        if array.dtype.is_complex:
            raise SignalError(f"signal {name!r} has numbers of type {array.dtype}; legal: floats, integers, booleans")
        return array if array.dtype.is_floating_point else array.to(sys.modules["torch"].get_default_dtype())
    array = np.asarray(array)
    if array.dtype.kind not in "fiub":
        raise SignalError(f"signal {name!r} has numbers of type {array.dtype}; legal: floats, integers, booleans")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def inputs(formula: Formula, signals: Mapping[str, Array]) -> dict[str, Array]:
    """The signals that ``formula`` reads, as floating-point arrays of one library, their last dimensions checked."""
    try:
        names = signals_in(formula)
    except RecursionError:
        check_depth(formula)
        raise
    if not names:
        raise SignalError(f"{to_text(formula)} reads no signal: its batch size is unknown")
    used = {name: _floating(name, array) for name, array in required(names, signals).items()}
    if len({is_tensor(a) for a in used.values()}) > 1:
        raise SignalError(f"torch tensors and numpy arrays are mixed: {sorted(used)}")
    for name, signal in names.items():
        if not is_traced(used[name]):
            check_shape(signal, used[name])
    return _of_one_type(used)


def _of_one_type(used: dict[str, Array]) -> dict[str, Array]:
    """Tensors of several types in the widest; numpy promotes by itself."""
    types = {array.dtype for array in used.values() if is_tensor(array)}
    if len(types) < 2:
        return used
    widest = reduce(sys.modules["torch"].promote_types, types)
    return {name: array.to(widest) for name, array in used.items()}


def leading(formula: Formula, used: Mapping[str, Array]) -> tuple[int, ...]:
    """The leading dimensions; an error unless they are equal in all signals."""
    names = signals_in(formula)
    shapes = {n: tuple(a.shape[: a.ndim - len(names[n].shape)]) for n, a in used.items()}
    if len(set(shapes.values())) > 1:
        raise SignalError(f"the signals differ in their leading dimensions: {shapes}")
    return next(iter(shapes.values()))


def traces(
    formula: Formula, signals: Mapping[str, Array], lengths: Array | None
) -> tuple[dict[str, Array], tuple[int, ...], np.ndarray | None]:
    """Signals of whole traces, their leading dimensions [T, N], and the checked lengths [N]."""
    require_formula(formula)
    used = inputs(formula, signals)
    shape = leading(formula, used)
    if not shape or 0 in shape:
        raise SignalError(f"a trace has at least one sample; the signals' leading dimensions are {shape}, time first")
    if lengths is None:
        return used, shape, None
    count = np.asarray(lengths.tolist() if is_tensor(lengths) else lengths)
    if count.shape != shape[1:] or count.dtype.kind not in "iu" or (count < 1).any() or (count > shape[0]).any():
        raise SignalError(f"lengths must be integers {shape[1:]} from 1 to {shape[0]}, got {count}")
    return used, shape, count.astype(np.int64)


def exists(counts: np.ndarray, shape: tuple[int, ...], like: Array) -> Array:
    """Which samples [T, N] belong to their trace."""
    mask: Array = np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1)) < counts
    return sys.modules["torch"].from_numpy(mask).to(like.device) if is_tensor(like) else mask


def padded(used: Mapping[str, Array], shape: tuple[int, ...], counts: np.ndarray) -> dict[str, Array]:
    """The signals with the padding of each trace replaced by its first sample.

    Padding may hold anything, NaN included, and its gradient would be NaN.
    """
    mask = exists(counts, shape, next(iter(used.values())))
    return {n: where(mask.reshape(*shape, *[1] * (a.ndim - len(shape))), a, a[:1]) for n, a in used.items()}


def refuse_nan(
    formula: Formula, used: Mapping[str, Array], shape: tuple[int, ...], counts: np.ndarray | None
) -> None:
    """Raise a :class:`SignalError` if a signal is NaN within its trace."""
    for name, array in used.items():
        bad = array != array
        if counts is not None and bool(bad.any()):
            bad = bad.reshape(*shape, -1).any(-1) & exists(counts, shape, array)
        if bool(bad.any()):
            raise SignalError(f"signal {name!r} has a NaN: it is unknown whether {to_text(formula)} holds")


def where(mask: Array, a: Array, b: Array) -> Array:
    """``a`` where ``mask`` is true, else ``b``, in the library of ``a``."""
    return sys.modules["torch"].where(mask, a, b) if is_tensor(a) else np.where(mask, a, b)


def filled(x: Any, like: Array, shape: tuple[int, ...]) -> Array:
    """``x``; if it is a number, an array of ``shape`` like ``like``, filled with it."""
    if not isinstance(x, (float, bool, np.bool_)):
        return x
    return like.new_full(shape, x) if is_tensor(like) else np.full(shape, x, dtype=like.dtype)
