"""Exact semantics of whole traces, batched: robustness and Boolean satisfaction.

Signals are ``[T, N, *shape]`` with any number of batch dimensions, also none: numpy arrays or torch tensors of any type
and device. The result is ``[T, N]`` of the same library, the value of the formula at each sample. Time is O(T) for
every operator whatever its window, memory O(T N).

numpy arrays and torch tensors on the CPU go through compiled kernels (`compiled`), also with gradients; other devices
through torch operations (`torch_ops`). Without numba, numpy arrays go through `numpy_ops`: the same values, slower.

The conventions at the end of a trace are `conventions.Semantics`, by default rtamt's: a window is clipped to the
samples that exist; one wholly past the end is empty, so that ``G`` is +inf there and ``F`` and ``U`` are -inf. ``a U
b`` requires ``a`` up to the sample before ``b``. A NaN in a signal makes every robustness NaN that depends on it;
``satisfied`` refuses it. Where several samples are critical, the gradient goes to one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from math import inf, isnan, prod
from typing import Any

import numpy as np

from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.propositional import Formula, Predicate
from temporeal.sim.stl.language.queries import operations_in
from temporeal.sim.stl.language.values import Array, Arrays, predicate_margin, predicate_truth, state_margin
from temporeal.sim.stl.rewriting.lower import Fixed, Leaf, Lowered, Merge, Node, Scan, Shift, Slide, dependence, lower
from temporeal.sim.stl.semantics.numpy_ops import merged, recursion, shifted, sliding
from temporeal.sim.stl.semantics.traces import (
    exists,
    filled,
    inputs,
    is_tensor,
    leading,
    library,
    padded,
    refuse_nan,
    traces,
    where,
)

UNDEFINED = frozenset(("/", "pow", "sqrt"))
"""Operations on finite numbers that may have no value."""

COMPILED = find_spec("numba") is not None
"""Whether numpy arrays go through the compiled kernels."""


def margin(formula: Formula, signals: Mapping[str, Array]) -> Array:
    """Robustness at each sample by itself of a formula without temporal operators.

    ``signals`` have any leading dimensions, which the result has too. On torch tensors it consists of basic operations:
    differentiable, and traceable into an exported graph.
    """
    used = inputs(formula, signals)
    like = next(iter(used.values()))
    out = state_margin(formula, used, library(like))
    return out if not isinstance(out, float) else filled(out, like, leading(formula, used))


def robustness(
    formula: Formula, signals: Mapping[str, Array], dt: float, lengths: Array | None = None,
    semantics: Semantics = RTAMT,
) -> Array:
    """Robustness ``[T, N]`` of ``formula`` at every sample of traces sampled every ``dt`` seconds.

    ``lengths`` [N] are the numbers of samples of traces that are padded to T; the padding may hold anything. Values
    past the end of a trace are NaN.
    """
    used, shape, counts = traces(formula, signals, lengths)
    lowered, like = lower(formula, dt, semantics), next(iter(used.values()))
    if _fast(used) and not (is_tensor(like) and _differentiated(used) and lowered.leaves):
        out, spread = _compiled(lowered, used, shape, counts, truth=False)
    else:
        by = _with_gradient if _fast(used) else _by_nodes
        out = by(lowered, used, shape, counts)
        spread = any(isinstance(node, Scan) for node in lowered.nodes) and _has_nan(out)
    if spread:
        out = _without_spread(formula, dt, lowered, used, shape, counts, out)
    return out if counts is None else where(exists(counts, shape, like), out, filled(float("nan"), like, shape))


def satisfied(
    formula: Formula, signals: Mapping[str, Array], dt: float, lengths: Array | None = None,
    semantics: Semantics = RTAMT,
) -> Array:
    """Whether ``formula`` is true, bool ``[T, N]``; at robustness zero the comparison decides: ``x <= 1`` holds at 1.

    False past the end of a trace. A NaN within a trace raises a :class:`SignalError`. Where a predicate has no value (a
    division by zero), neither it nor its negation holds.
    """
    used, shape, counts = traces(formula, signals, lengths)
    refuse_nan(formula, used, shape, counts)
    lowered, like = lower(formula, dt, semantics), next(iter(used.values()))
    if _fast(used):
        out = _compiled(lowered, used, shape, counts, truth=True)[0] > 0
    else:
        out = _by_nodes(lowered, used, shape, counts, truth=True)
    return out if counts is None else out & exists(counts, shape, like)


def evaluate_leaves(
    lowered: Lowered, leaf: Callable[[Leaf], np.ndarray], shape: tuple[int, int], lengths: np.ndarray | None = None
) -> np.ndarray:
    """The value [T, N] of a lowered formula over other numbers than margins: ``leaf`` gives the array [T, N] of each.

    Minima and maxima depend on order only, so that times or ranks can take the place of margins.
    """
    arrays = [np.asarray(leaf(lowered.nodes[i]), dtype=np.float64) for i in lowered.leaves]  # type: ignore[arg-type]
    if COMPILED:
        from temporeal.sim.stl.semantics import compiled

        return compiled.evaluate(lowered, arrays, shape, np.float64, lengths=lengths, of_each_leaf=True)[0]
    given = dict(zip((lowered.nodes[i] for i in lowered.leaves), arrays))
    mask = None if lengths is None else exists(lengths, shape, np.empty(0))
    return _by_numpy(lowered, lambda node: given[node], shape, mask)


def _without_spread(
    formula: Formula, dt: float, lowered: Lowered, used: Mapping[str, Array], shape: tuple[int, ...],
    counts: np.ndarray | None, out: Array,
) -> Array:
    """``out`` with NaN only where a value depends on one.

    A timed until is computed from an unbounded one, whose NaN may come from beyond the window. The value of the timed
    one does not: it is the same with any number in place of that NaN.
    """
    nan = out != out if counts is None else (out != out) & exists(counts, shape, out)
    flat = (shape[0], prod(shape[1:]))

    def unknown(node: Leaf) -> np.ndarray:
        margin = _plain(filled(predicate_margin(node.predicate, used, library(out)), out, shape))
        return np.where(np.isnan(margin), inf, -inf).reshape(flat)

    ends = None if counts is None else counts.reshape(-1)
    depends = evaluate_leaves(dependence(formula, dt, lowered.semantics), unknown, flat, ends).reshape(shape) > 0
    rescued = nan & (sys.modules["torch"].from_numpy(~depends).to(out.device) if is_tensor(out) else ~depends)
    if not bool(rescued.any()):
        return out
    return where(rescued, _by_nodes(lowered, used, shape, counts, known=True), out)


def _has_nan(array: Array) -> bool:
    # a maximum propagates NaN, and is faster than a test of each; inside a transform values cannot be inspected
    if is_tensor(array):
        torch = sys.modules["torch"]
        if torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(array):
            return False
        array = array.detach()
    return isnan(array.max())


def _plain(array: Array) -> np.ndarray:
    return np.asarray(array.detach().cpu() if is_tensor(array) else array)


# ---------------------------------------------------------------- compiled


def _fast(used: Mapping[str, Array]) -> bool:
    """Whether the kernels take these signals: numpy arrays, or plain torch tensors on the CPU."""
    return COMPILED and all(not is_tensor(a) or _is_plain(a) for a in used.values())


def _is_plain(tensor: Any) -> bool:
    torch = sys.modules["torch"]
    return (type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "cpu"
            and tensor.dtype in (torch.float32, torch.float64) and not torch.compiler.is_compiling()
            and not torch.jit.is_tracing() and not torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def _differentiated(used: Mapping[str, Array]) -> bool:
    return bool(sys.modules["torch"].is_grad_enabled()) and any(a.requires_grad for a in used.values())


def _compiled(
    lowered: Lowered, used: Mapping[str, Array], shape: tuple[int, ...], counts: np.ndarray | None, truth: bool
) -> tuple[Array, bool]:
    from temporeal.sim.stl.semantics import compiled

    arrays = {name: a.detach().numpy() if is_tensor(a) else a for name, a in used.items()}
    result = np.result_type(*arrays.values())
    dtype = np.float32 if result.itemsize <= 4 else np.float64
    flat = {name: a.astype(dtype, copy=False).reshape(shape[0], prod(shape[1:]), *a.shape[len(shape):])
            for name, a in arrays.items()}
    ends = None if counts is None else counts.reshape(-1)
    out, spread = compiled.evaluate(lowered, flat, (shape[0], prod(shape[1:])), dtype, truth=truth, lengths=ends)
    out = out.reshape(shape).astype(result, copy=False)
    return sys.modules["torch"].from_numpy(out) if is_tensor(next(iter(used.values()))) else out, spread


def _with_gradient(
    lowered: Lowered, used: Mapping[str, Array], shape: tuple[int, ...], counts: np.ndarray | None
) -> Array:
    from temporeal.sim.stl.semantics import torch_ops, torch_subgradient

    like = next(iter(used.values()))
    used = used if counts is None else padded(used, shape, counts)
    leaves = [node for i in lowered.leaves if isinstance(node := lowered.nodes[i], Leaf)]
    margins = {p: filled(torch_ops.nan_safe_margin(p, used), like, shape) for p in {n.predicate for n in leaves}}
    return torch_subgradient.robustness(lowered, leaves, margins, shape, counts)


# ---------------------------------------------------------------- by array operations


def _by_nodes(
    lowered: Lowered, used: Mapping[str, Array], shape: tuple[int, ...], counts: np.ndarray | None,
    truth: bool = False, known: bool = False,
) -> Array:
    """Robustness, or truth as booleans; with ``known``, margins of NaN count as zero."""
    like = next(iter(used.values()))
    arrays, mask = library(like), None
    if counts is not None:
        used, mask = padded(used, shape, counts), exists(counts, shape, like)

    def leaf(node: Leaf) -> Array:
        if not truth:
            margin = filled(_margin(node.predicate, used, arrays), like, shape)
            if known:
                margin = where(margin == margin, margin, filled(0.0, like, shape))
            return -margin if node.negated else margin
        holds = filled(predicate_truth(node.predicate, used, arrays), like > 0, shape) != node.negated
        if not operations_in(node.predicate) & UNDEFINED:
            return holds
        margin = filled(_margin(node.predicate, used, arrays), like, shape)
        return holds & (margin == margin)

    with np.errstate(invalid="ignore", divide="ignore"):
        if is_tensor(like):
            return _by_torch(lowered, leaf, like > 0 if truth else like, shape, mask)
        if not truth:
            return _by_numpy(lowered, leaf, shape, mask).astype(like.dtype, copy=False)
        return _by_numpy(lowered, lambda node: np.where(leaf(node), 1.0, -1.0), shape, mask) > 0


def _margin(predicate: Predicate, used: Mapping[str, Array], arrays: Arrays) -> Array:
    if is_tensor(next(iter(used.values()))):
        from temporeal.sim.stl.semantics import torch_ops

        return torch_ops.nan_safe_margin(predicate, used)
    return predicate_margin(predicate, used, arrays)


def _beyond(lowered: Lowered) -> float:
    """The value of every leaf past the end of a trace, in the strong or weak view."""
    return -inf if lowered.semantics.end == "strong" else inf


def _by_torch(
    lowered: Lowered, leaf: Callable[[Leaf], Array], like: Array, shape: tuple[int, ...], mask: Array | None
) -> Array:
    from temporeal.sim.stl.semantics import torch_ops

    torch, beyond = sys.modules["torch"], _beyond(lowered)
    lowered, more = lowered.viewed(shape[0])
    fill = beyond > 0 if like.dtype == torch.bool else beyond
    rows = (shape[0] + more, *shape[1:])

    def extended(node: Leaf) -> Array:
        x = leaf(node)
        if not more:
            return x
        if mask is not None:
            x = torch.where(mask, x, torch.full_like(x, fill))
        return torch.cat([x, x.new_full((more, *shape[1:]), fill)])

    return torch_ops.evaluate(lowered, extended, rows, like, None if more else mask)[: shape[0]]


def _by_numpy(
    lowered: Lowered, leaf: Callable[[Leaf], np.ndarray], shape: tuple[int, ...], mask: np.ndarray | None
) -> np.ndarray:
    beyond = _beyond(lowered)
    lowered, more = lowered.viewed(shape[0])
    rows = (shape[0] + more, *shape[1:])

    def extended(node: Leaf) -> np.ndarray:
        x = leaf(node)
        if mask is not None and more:
            x = np.where(mask, x, x.dtype.type(beyond))
        return np.concatenate([x, np.full((more, *shape[1:]), beyond, dtype=x.dtype)])

    values: list[np.ndarray] = []
    for node in lowered.nodes:
        values.append(_numpy_node(node, values, extended, rows, None if more else mask))
    return values[-1][: shape[0]]


def _numpy_node(
    node: Node, values: list[np.ndarray], leaf: Callable[[Leaf], np.ndarray], shape: tuple[int, ...],
    mask: np.ndarray | None,
) -> np.ndarray:
    def ahead(index: int, past: bool, fill: float) -> np.ndarray:
        """The values, reversed for the past; ``fill`` past the end of a trace."""
        if past:
            return values[index][::-1]
        return values[index] if mask is None else np.where(mask, values[index], values[index].dtype.type(fill))

    match node:
        case Leaf():
            return leaf(node)
        case Fixed(value):
            return np.full(shape, value)
        case Merge(most, args):
            return merged([values[i] for i in args], most)
        case Slide(most, arg, lo, hi, past):
            out = sliding(ahead(arg, past, -inf if most else inf), lo, hi, most)
        case Scan(most, keep, reach, past):
            fill = -inf if most else inf
            out = recursion(ahead(keep, past, -fill), ahead(reach, past, fill), most)
        case Shift(arg, by, fill, past):
            out = shifted(ahead(arg, past, fill), by, fill)
        case _:
            raise TypeError(f"not a node: {node!r}")
    return out[::-1] if node.past else out
