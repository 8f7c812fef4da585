"""Folds over windows and recursions over time in torch: O(T) work and O(log T) passes, on any device.

An evaluator of a lowered formula defines its maximum and minimum (an :class:`Algebra`); :func:`walk` does the rest.
`torch_ops` has the exact algebra, `smooth` the smooth ones. Time is axis 0 everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from temporeal.sim.stl.rewriting.lower import Fixed, Leaf, Lowered, Merge, Node, Scan, Shift, Slide, inputs

Parts = tuple[Tensor, ...]
"""The state of a fold: one tensor or several of equal shape."""
Join = Callable[[Parts, Parts], Parts]


@dataclass(frozen=True)
class Fold:
    """A kind of maximum or minimum of many values, as an associative operation on :data:`Parts`.

    Args:
        neutral: the value of no values: -infinity for a maximum.
        lift: the state of one value.
        join: the state of two disjoint sets of values from those of each.
        value: the maximum or minimum of a state.
        prefixes: along axis 1, the states of the values up to each.
        suffixes: the states of the values from each on.
    """

    neutral: float | bool
    lift: Callable[[Tensor], Parts]
    join: Join
    value: Callable[[Parts], Tensor]
    prefixes: Callable[[Parts], Parts]
    suffixes: Callable[[Parts], Parts]


@dataclass(frozen=True)
class Algebra:
    """A maximum, a minimum, and the recursion of ``Scan`` towards the beginning: ``scan(most, keep, reach)``."""

    most: Fold
    least: Fold
    scan: Callable[[bool, Tensor, Tensor], Tensor]

    def fold(self, most: bool) -> Fold:
        return self.most if most else self.least

    def infinity(self, value: float) -> float | bool:
        """What represents +inf (the minimum of nothing) or -inf (the maximum of nothing)."""
        return self.fold(value < 0).neutral


def walk(
    lowered: Lowered, leaf: Callable[[Leaf], Tensor], shape: Sequence[int], like: Tensor, mask: Tensor | None,
    algebra: Algebra,
) -> Tensor:
    """Value ``shape`` = [T, ...] of a lowered formula at every sample.

    ``leaf`` gives the values of leaves; ``like`` has the type and device of all values; ``mask`` is true where a sample
    exists: nothing past the end of a trace is looked at, and values there have no meaning.
    """
    values: dict[int, Tensor] = {}
    readers = Counter(i for node in lowered.nodes for i in inputs(node))
    for index, node in enumerate(lowered.nodes):
        read = [values[i] for i in inputs(node)]
        values[index] = _node(node, read, leaf, shape, like, mask, algebra)
        for i in inputs(node):
            readers[i] -= 1
            if not readers[i]:
                del values[i]
    return values[len(lowered.nodes) - 1]


def _node(
    node: Node, read: list[Tensor], leaf: Callable[[Leaf], Tensor], shape: Sequence[int], like: Tensor,
    mask: Tensor | None, algebra: Algebra,
) -> Tensor:
    def ahead(x: Tensor, fill: float | bool) -> Tensor:
        # operators of the past never read a sample past the end
        return x if mask is None else torch.where(mask, x, torch.full_like(x, fill))

    match node:
        case Leaf():
            return leaf(node)
        case Fixed(value):
            return like.new_full(tuple(shape), algebra.infinity(value))
        case Merge(most):
            fold = algebra.fold(most)
            return fold.value(reduce(fold.join, map(fold.lift, read)))
        case Slide(most, _, lo, hi, past):
            fold = algebra.fold(most)
            return slide(read[0] if past else ahead(read[0], fold.neutral), lo, hi, past, fold)
        case Scan(most, past=False):
            keep, reach = read
            return algebra.scan(most, keep, ahead(reach, algebra.fold(most).neutral))
        case Scan(most):
            keep, reach = read
            return algebra.scan(most, keep.flip(0), reach.flip(0)).flip(0)
        case Shift(_, by, fill, past):
            end = algebra.infinity(fill)
            return shift(read[0] if past else ahead(read[0], end), by, past, end)
    raise TypeError(f"not a node: {node!r}")


def shift(x: Tensor, by: int, past: bool, fill: float | bool) -> Tensor:
    """``x[t+by]``, with ``past`` ``x[t-by]``; ``fill`` beyond the ends."""
    by = min(by, len(x))
    none = x.new_full((by, *x.shape[1:]), fill)
    return torch.cat([none, x[: len(x) - by]] if past else [x[by:], none])


def slide(x: Tensor, lo: int, hi: int | None, past: bool, fold: Fold) -> Tensor:
    """``fold`` over ``x[t+lo .. t+hi]``, with ``past`` over ``x[t-hi .. t-lo]``, clipped at the ends."""
    last = len(x) - 1
    if lo == hi or lo > last:
        return shift(x, lo, past, fold.neutral)
    if hi is not None and hi < last:
        return windows(x, -hi if past else lo, hi - lo + 1, fold)
    parts = fold.lift((x[: len(x) - lo] if past else x[lo:])[None])
    whole = fold.value(fold.prefixes(parts) if past else fold.suffixes(parts))[0]
    none = x.new_full((lo, *x.shape[1:]), fold.neutral)
    return torch.cat([none, whole] if past else [whole, none]) if lo else whole


def windows(x: Tensor, first: int, width: int, fold: Fold) -> Tensor:
    """``fold`` over ``x[t+first .. t+first+width-1]``, ``width`` at least two, clipped at the ends.

    In blocks of ``width - 1`` samples a window is a suffix of one block and a prefix of the next, without a common
    sample, so that sums can be folded too, not only maxima. After van Herk, "A fast algorithm for local minimum
    and maximum filters on rectangular and octagonal kernels", Pattern Recognition Letters 13, 1992.
    """
    length, block = len(x), width - 1
    count = -(-length // block)
    rows, head = (count + 1) * block, max(-first, 0)
    inside = x[max(first, 0) : rows + first]
    tail = rows - head - len(inside)
    ends = [x.new_full((n, *x.shape[1:]), fold.neutral) for n in (head, tail)]
    blocks = fold.lift(torch.cat([ends[0], inside, ends[1]]).reshape(count + 1, block, *x.shape[1:]))
    back = fold.suffixes(tuple(p[:-1] for p in blocks))
    front = fold.prefixes(tuple(p[1:] for p in blocks))
    return fold.value(fold.join(_samples(back, length), _samples(front, length)))


def _samples(parts: Parts, length: int) -> Parts:
    return tuple(p.flatten(0, 1)[:length] for p in parts)


def recursion(maps: Parts, last: Parts, compose: Join, apply: Join) -> Parts:
    """All ``u[t] = f_t(u[t+1])`` along axis 0, ``u[T] = last`` [1, ...]: O(T) work in O(log T) passes.

    ``maps`` are the parameters of f_0 ... f_T-1; ``compose(f, g)`` those of f after g; ``apply(f, u)`` is f(u). Pairs
    of maps are composed, that recursion of half the length gives every other value, and one application the rest
    (odd-even reduction: Blelloch, "Prefix sums and their applications", CMU-CS-90-190, 1990).
    """
    count = len(maps[0])
    if count % 2:
        tail = apply(tuple(m[count - 1 :] for m in maps), last)
        if count == 1:
            return tail
        before = recursion(tuple(m[: count - 1] for m in maps), tail, compose, apply)
        return tuple(torch.cat(pair) for pair in zip(before, tail))
    even, odd = tuple(m[0::2] for m in maps), tuple(m[1::2] for m in maps)
    first = recursion(compose(even, odd), last, compose, apply)
    second = apply(odd, tuple(torch.cat([u[1:], end]) for u, end in zip(first, last)))
    return tuple(torch.stack(pair, 1).flatten(0, 1) for pair in zip(first, second))


def suffixes(parts: Parts, neutral: float, join: Join) -> Parts:
    """The suffixes of a :class:`Fold` by :func:`recursion`."""
    along = tuple(p.transpose(0, 1) for p in parts)
    nothing = tuple(torch.full_like(p[:1], neutral) for p in along)
    return tuple(p.transpose(0, 1) for p in recursion(along, nothing, join, join))


def prefixes(parts: Parts, neutral: float, join: Join) -> Parts:
    """The prefixes of a :class:`Fold` by :func:`recursion`."""
    turned = suffixes(tuple(p.flip(1) for p in parts), neutral, join)
    return tuple(p.flip(1) for p in turned)
