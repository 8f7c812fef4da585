"""Exact semantics of whole traces, batched: robustness (how much) and satisfaction (whether).

Signals are ``[T, N, *shape]`` (any number of batch dimensions, also none), numpy arrays or torch tensors of any
type and device; what comes out is ``[T, N]`` of the same library: the value of the formula at each sample, looking
forward. Time O(T log w) per operator and window of w samples, memory O(T N): nothing grows with the window.

Conventions at the end of a trace are rtamt's: a window is clipped to the samples that exist; a window that lies
wholly past the end is empty, so ``G`` is +inf there and ``F`` and ``U`` are -inf. ``a U b`` asks for ``a`` up to the
sample before ``b``. A NaN in a signal makes every robustness NaN that depends on it; ``satisfied`` refuses it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import reduce
from math import inf
from typing import Any

import numpy as np

from robots.signals import SignalError
from sim.stl.lower import RTAMT, Fixed, Leaf, Lowered, Merge, Node, Scan, Semantics, Shift, Slide, lower
from sim.stl.syntax import (
    Formula,
    clauses,
    horizon,
    signals_in,
    to_text,
)
from sim.stl.values import (
    Array,
    Arrays,
    check_shape,
    numpy_arrays,
    predicate_margin,
    predicate_truth,
    required,
    state_margin,
)
from sim.stl.windows import NUMPY_MARGINS, NUMPY_TRUTHS, Lattice, dual, sliding, until

__all__ = ["clauses", "horizon", "margin", "robustness", "satisfied"]


def margin(formula: Formula, signals: Mapping[str, Array]) -> Array:
    """Robustness at each sample by itself of a formula without temporal operators.

    ``signals`` have any leading dimensions, which are those of the result. On torch tensors it is made of basic
    operations: differentiable, and traceable into an exported graph.
    """
    used = _inputs(formula, signals)
    like = next(iter(used.values()))
    out = state_margin(formula, used, _library(like)[0])
    return out if not isinstance(out, float) else _filled(out, like, _leading(formula, used))


def robustness(
    formula: Formula, signals: Mapping[str, Array], dt: float, lengths: Array | None = None,
    semantics: Semantics = RTAMT,
) -> Array:
    """Robustness ``[T, N]`` of ``formula`` at every sample of traces sampled each ``dt`` seconds.

    ``lengths`` [N] are the numbers of samples of traces that are padded to T (what stands in the padding does not
    matter); values past the end of a trace are NaN.
    """
    used, shape, mask = _traces(formula, signals, lengths)
    like = next(iter(used.values()))
    arrays, lattice, _ = _library(like)

    def leaf(node: Leaf) -> Array:
        margin = _filled(predicate_margin(node.predicate, used, arrays), like, shape)
        return -margin if node.negated else margin

    out = _viewed(lower(formula, dt, semantics), leaf, lambda x: x, lattice, like, shape, mask)
    return out if mask is None else lattice.where(mask, out, float("nan"))


def satisfied(
    formula: Formula, signals: Mapping[str, Array], dt: float, lengths: Array | None = None,
    semantics: Semantics = RTAMT,
) -> Array:
    """Whether ``formula`` is true, bool ``[T, N]``. Finer than the sign of the robustness: ``x <= 1`` holds at x = 1.

    False past the end of a trace. A signal that is NaN within a trace raises a :class:`SignalError`.
    """
    used, shape, mask = _traces(formula, signals, lengths)
    like = next(iter(used.values()))
    arrays, _, lattice = _library(like)
    for name, array in used.items():
        if bool((array != array).any()):
            raise SignalError(f"signal {name!r} has a NaN: whether {to_text(formula)} holds is unknown")

    def leaf(node: Leaf) -> Array:
        truth = _filled(predicate_truth(node.predicate, used, arrays), like > 0, shape)
        return lattice.complement(truth) if node.negated else truth

    out = _viewed(lower(formula, dt, semantics), leaf, lambda x: x > 0, lattice, like > 0, shape, mask)
    return out if mask is None else lattice.where(mask, out, False)


def _viewed(
    lowered: Lowered, leaf: Callable[[Leaf], Array], constant: Callable[[float], float | bool], lattice: Lattice,
    like: Array, shape: tuple[int, ...], mask: Array | None,
) -> Array:
    """The values [T, ...] under the formula's view of what lies past the end.

    In the strong and weak views the trace goes on with samples at which every leaf is false or true; as many as the
    formula can reach are enough.
    """
    end = lowered.semantics.end
    rows = shape[0] + (lowered.ahead() if end != "clip" else 0)
    beyond = constant(-inf if end == "strong" else inf)

    def extended(node: Leaf) -> Array:
        x = leaf(node)
        if end == "clip":
            return x
        if mask is not None:
            x = lattice.where(mask, x, beyond)
        return lattice.concat([x, lattice.rows(x, rows - shape[0], beyond)])

    def filled(value: float) -> Array:
        return _filled(constant(value), like, (rows, *shape[1:]))

    with np.errstate(invalid="ignore", divide="ignore"):
        return _evaluate(lowered, extended, filled, lattice, mask if end == "clip" else None)[: shape[0]]


def _evaluate(
    lowered: Lowered, leaf: Callable[[Leaf], Array], constant: Callable[[float], Array], lattice: Lattice,
    mask: Array | None,
) -> Array:
    """The value of a lowered formula at every sample, in the lattice of margins or of truths."""
    values: list[Array] = []
    for node in lowered.nodes:
        values.append(_node(node, values, leaf, constant, lattice, mask))
    return values[-1]


def _node(
    node: Node, values: list[Array], leaf: Callable[[Leaf], Array], constant: Callable[[float], Array],
    lattice: Lattice, mask: Array | None,
) -> Array:
    def masked(x: Array, most: bool) -> Array:
        return x if mask is None else lattice.where(mask, x, lattice.bottom if most else lattice.top)

    def backward(x: Array, past: bool) -> Array:
        return (x.flip(0) if _is_tensor(x) else x[::-1]) if past else x

    match node:
        case Leaf():
            return leaf(node)
        case Fixed(value):
            return constant(value)
        case Merge(most, args):
            return reduce(lattice.join if most else lattice.meet, [values[i] for i in args])
        case Slide(most, arg, lo, hi, past):
            combine, neutral = (lattice.join, lattice.bottom) if most else (lattice.meet, lattice.top)
            x = backward(values[arg] if past else masked(values[arg], most), past)
            return backward(sliding(x, lo, hi, combine, neutral, lattice), past)
        case Scan(most, keep, reach, past):
            u, v = values[keep], values[reach]
            if not past:
                u, v = masked(u, not most), masked(v, most)
            return backward(until(backward(u, past), backward(v, past), 0, None, lattice if most else dual(lattice)),
                            past)
        case Shift(arg, by, fill, past):
            x = backward(values[arg] if past else masked(values[arg], fill < 0), past)
            rows = lattice.rows(x, min(by, len(x)), lattice.bottom if fill < 0 else lattice.top)
            return backward(lattice.concat([x[by:], rows]), past)
    raise TypeError(f"not a node: {node!r}")


# ---------------------------------------------------------------- inputs


def _is_tensor(x: Any) -> bool:
    # only a program that has imported torch can hold a tensor
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _is_traced(x: Array) -> bool:
    # under a tracer shapes are symbols, and asking them would be recorded as a decision
    return _is_tensor(x) and bool(sys.modules["torch"].jit.is_tracing())


def _library(like: Array) -> tuple[Arrays, Lattice, Lattice]:
    """Functions and the lattices of margins and of truths of the library that ``like`` belongs to."""
    if _is_tensor(like):
        from sim.stl import torch_ops

        return torch_ops.torch_arrays(like), torch_ops.MARGINS, torch_ops.TRUTHS
    return numpy_arrays(like.dtype), NUMPY_MARGINS, NUMPY_TRUTHS


def _floating(array: Any) -> Array:
    if _is_tensor(array):
        return array if array.dtype.is_floating_point else array.to(sys.modules["torch"].get_default_dtype())
    array = np.asarray(array)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _inputs(formula: Formula, signals: Mapping[str, Array]) -> dict[str, Array]:
    """The signals that ``formula`` reads, as floating-point arrays of one library, their last dimensions checked."""
    names = signals_in(formula)
    if not names:
        raise SignalError(f"{to_text(formula)} reads no signal, so that its batch is unknown")
    used = {name: _floating(array) for name, array in required(names, signals).items()}
    if len({_is_tensor(a) for a in used.values()}) > 1:
        raise SignalError(f"torch tensors and numpy arrays are mixed: {sorted(used)}")
    for name, signal in names.items():
        if not _is_traced(used[name]):
            check_shape(signal, used[name])
    return used


def _leading(formula: Formula, used: Mapping[str, Array]) -> tuple[int, ...]:
    """The leading dimensions, equal in all signals."""
    names = signals_in(formula)
    shapes = {n: tuple(a.shape[: a.ndim - len(names[n].shape)]) for n, a in used.items()}
    if len(set(shapes.values())) > 1:
        raise SignalError(f"the signals differ in their leading dimensions: {shapes}")
    return next(iter(shapes.values()))


def _traces(
    formula: Formula, signals: Mapping[str, Array], lengths: Array | None
) -> tuple[dict[str, Array], tuple[int, ...], Array | None]:
    """Signals of whole traces, their leading dimensions [T, N], and the mask [T, N] of samples that exist."""
    used = _inputs(formula, signals)
    shape = _leading(formula, used)
    if not shape or shape[0] == 0:
        raise SignalError(f"a trace has at least one sample; the signals' leading dimensions are {shape}, time first")
    if lengths is None:
        return used, shape, None
    count = np.asarray(lengths.detach().cpu() if _is_tensor(lengths) else lengths)
    if count.shape != shape[1:] or count.dtype.kind not in "iu" or (count < 1).any() or (count > shape[0]).any():
        raise SignalError(f"lengths must be integers {shape[1:]} from 1 to {shape[0]}, got {count}")
    like = next(iter(used.values()))
    rows = np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    mask: Array = rows < count
    if _is_tensor(like):
        mask = sys.modules["torch"].from_numpy(mask).to(like.device)
    # padding may hold anything, NaN too, whose gradient would be NaN: every padded sample repeats the first one
    names = signals_in(formula)
    padded = {n: _where(mask.reshape(*shape, *[1] * len(names[n].shape)), a, a[:1]) for n, a in used.items()}
    return padded, shape, mask


def _where(mask: Array, a: Array, b: Array) -> Array:
    return sys.modules["torch"].where(mask, a, b) if _is_tensor(a) else np.where(mask, a, b)


def _filled(x: Any, like: Array, shape: tuple[int, ...]) -> Array:
    """``x`` if it is an array, else an array of ``shape`` like ``like`` full of the number ``x``."""
    if not isinstance(x, (float, bool, np.bool_)):
        return x
    return like.new_full(shape, x) if _is_tensor(like) else np.full(shape, x, dtype=like.dtype)
