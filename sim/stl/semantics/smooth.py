"""Smooth robustness: every sample that matters has a gradient, not only the critical one. Needs torch.

A maximum over values v becomes, with the temperature h > 0 in the unit of the margin,

- ``logsumexp``: h log sum exp(v/h), at least the maximum, monotone in every value; its gradient is weights of sum one;
- ``softmax``: the mean of v weighted by exp(v/h), at most the maximum, not monotone.

A minimum is minus the maximum of the negated values. Both become exact as the temperature goes to zero;
:func:`smooth_bounds` bounds the difference (derived in docs/explanation/stl-smooth.md). Work and memory are O(T) per
operator, as in the exact evaluation: both kinds are folds, and until is the recursion of :class:`_Ladder`.

Internally, values are margins divided by the temperature, and infinities (empty windows, samples past the end in the
strong and weak views) are large finite numbers, so that no gradient contains inf - inf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from math import exp, inf, isfinite, log, log1p
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from temporeal.robots.signals import SignalError
from temporeal.sim.stl.language.conventions import RTAMT, Semantics
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.values import Array, predicate_margin
from temporeal.sim.stl.rewriting.lower import Leaf, Merge, Node, Scan, Slide, inputs, lower
from temporeal.sim.stl.semantics.torch_ops import torch_arrays
from temporeal.sim.stl.semantics.torch_scans import Algebra, Fold, Parts, prefixes, recursion, suffixes, walk
from temporeal.sim.stl.semantics.traces import exists, filled, padded, traces

Method = Literal["logsumexp", "softmax"]
METHODS = ("logsumexp", "softmax")


def smooth_robustness(
    formula: Formula, signals: Mapping[str, Array], dt: float, temperature: float, method: Method = "logsumexp",
    lengths: Array | None = None, semantics: Semantics = RTAMT,
) -> Array:
    """Smooth robustness ``[T, N]`` of ``formula`` at every sample of traces sampled every ``dt`` seconds.

    Infinite where the exact robustness is; NaN past the end of a trace and where it depends on a NaN.

    Args:
        formula: any formula; its margins should have one unit, as all share one temperature.
        signals: ``[T, N, *shape]``, any number of batch dimensions; torch tensors of float32 or float64 on any device,
            or numpy arrays, for which the result is one.
        dt: sample period, s.
        temperature: in the unit of the margins, greater than zero. Margins beyond 1e28 temperatures (float32; float64:
            1e231) count as infinite.
        method: ``logsumexp`` or ``softmax``.
        lengths: [N], numbers of samples of traces that are padded to T.
        semantics: as for ``robustness``.
    """
    _check(temperature, method)
    tensors, back = _tensors(signals)
    used, shape, counts = traces(formula, tensors, lengths)
    dtype = reduce(torch.promote_types, (x.dtype for x in used.values()))
    if dtype not in (torch.float32, torch.float64):
        raise SignalError(f"smooth robustness needs float32 or float64 signals, got {dtype}")
    used = {name: x.to(dtype) for name, x in used.items()}
    lowered, like = lower(formula, dt, semantics), next(iter(used.values()))
    if counts is not None:
        used = padded(used, shape, counts)
    large, arrays = _large(like), torch_arrays(like)
    lowered, more = lowered.viewed(shape[0])
    rows = (shape[0] + more, *shape[1:])
    own, extended = (None, None) if counts is None else (exists(c, rows, like) for c in (counts, counts + more))
    fill = -large if semantics.end == "strong" else large

    def leaf(node: Leaf) -> Tensor:
        margin: Tensor = filled(predicate_margin(node.predicate, used, arrays), like, shape)
        x = ((-margin if node.negated else margin) / temperature).clamp(-large, large)
        if more:
            x = torch.cat([x, x.new_full((more, *shape[1:]), fill)])
        return x if own is None else torch.where(own, x, fill)

    x = walk(lowered, leaf, rows, like, extended, _algebra(method, large))[: shape[0]]
    out = torch.where(x >= large / 2, inf, torch.where(x <= -large / 2, -inf, x * temperature))
    return back(out if own is None else torch.where(own[: shape[0]], out, torch.nan))


def smooth_bounds(
    formula: Formula, samples: int, dt: float, temperature: float, method: Method = "logsumexp",
    semantics: Semantics = RTAMT,
) -> tuple[float, float]:
    """``(below, above)``: exact - below <= smooth <= exact + above for every trace of up to ``samples`` samples.

    This holds in exact arithmetic; rounding adds a few units in the last place of the largest margin. The bounds have
    the unit of the margins and are proportional to the temperature.
    """
    _check(temperature, method)
    if samples < 1:
        raise SignalError(f"a trace has at least one sample, got samples = {samples}")
    lowered, more = lower(formula, dt, semantics).viewed(samples)
    rows = samples + more
    known: list[tuple[float, float]] = []
    for node in lowered.nodes:
        read = [known[i] for i in inputs(node)]
        below, above = (max((r[side] for r in read), default=0.0) for side in (0, 1))
        own = _own_bounds(node, rows, method)
        known.append((below + own[0], above + own[1]))
    return known[-1][0] * temperature, known[-1][1] * temperature


def _own_bounds(node: Node, rows: int, method: Method) -> tuple[float, float]:
    """How far a smooth operation can be below and above the exact one on the same inputs, in temperatures."""
    match node:
        case Merge(most, args):
            return _extremum_bounds(most, len(args), method)
        case Slide(most, _, lo, hi):
            last = rows - 1 if hi is None else min(hi, rows - 1)
            return _extremum_bounds(most, max(last - lo + 1, 1), method)
        case Scan():
            own = log(rows) if method == "logsumexp" else 2 * log(rows)
            return own, own
    return 0.0, 0.0


def _extremum_bounds(most: bool, count: int, method: Method) -> tuple[float, float]:
    if method == "logsumexp":
        return (0.0, log(count)) if most else (log(count), 0.0)
    below = _lambert((count - 1) / exp(1))
    return (below, 0.0) if most else (0.0, below)


def _lambert(c: float) -> float:
    """w with w exp(w) = c >= 0, by Newton's method from above: never less than the root, except for rounding."""
    w = log1p(c)
    for _ in range(50):
        w -= (w * exp(w) - c) / (exp(w) * (1 + w))
    return w


def _check(temperature: float, method: str) -> None:
    if not (temperature > 0 and isfinite(temperature)):
        raise FormulaError(f"temperature = {temperature}; it must be a finite number greater than zero")
    if method not in METHODS:
        raise FormulaError(f"method {method!r}; legal: {', '.join(METHODS)}")


def _tensors(signals: Mapping[str, Array]) -> tuple[Mapping[str, Array], Any]:
    """``signals`` as tensors, and the function that converts the result back."""
    if any(isinstance(x, Tensor) for x in signals.values()):
        return signals, lambda out: out
    arrays = {name: np.array(x) for name, x in signals.items()}
    floating = {name: x if x.dtype.kind == "f" else x.astype(np.float64) for name, x in arrays.items()}
    return {name: torch.from_numpy(x) for name, x in floating.items()}, lambda out: out.numpy()


def _large(like: Tensor) -> float:
    """The number that represents infinity: products with gradients and sums over time stay finite."""
    return float(torch.finfo(like.dtype).max ** 0.75)


# ---------------------------------------------------------------- the two kinds of maxima


def _algebra(method: Method, large: float) -> Algebra:
    logsumexp = method == "logsumexp"
    return Algebra(_fold(True, logsumexp, large), _fold(False, logsumexp, large),
                   partial(_ladder if logsumexp else _mean_ladder, large))


def _fold(most: bool, logsumexp: bool, large: float) -> Fold:
    """A smooth maximum; the minimum is minus that of the negated values."""
    sign, count, join = 1 if most else -1, 1 if logsumexp else 2, _add if logsumexp else _average

    def lift(x: Tensor) -> Parts:
        return ((x if most else -x),) * count

    return Fold(-sign * large, lift, join, lambda parts: sign * parts[-1],
                partial(prefixes, neutral=-large, join=join), partial(suffixes, neutral=-large, join=join))


def _add(a: Parts, b: Parts) -> Parts:
    """Logarithms of sums."""
    return (torch.logaddexp(a[0], b[0]),)


def _average(a: Parts, b: Parts) -> Parts:
    """Logarithms of the sums of weights, and means: a convex combination of means, without cancellation."""
    ahead = a[0] - b[0]
    return torch.logaddexp(a[0], b[0]), torch.sigmoid(ahead) * a[1] + torch.sigmoid(-ahead) * b[1]


# ---------------------------------------------------------------- until


def _ladder(large: float, most: bool, keep: Tensor, reach: Tensor) -> Tensor:
    """``Scan`` with logsumexp maxima and minima."""
    if not most:
        return -_ladder(large, True, -keep, -reach)
    out: Tensor = _Ladder.apply(keep, reach, large)  # type: ignore[no-untyped-call]
    return out


def _mean_ladder(large: float, most: bool, keep: Tensor, reach: Tensor) -> Tensor:
    """The mean of everything that the logsumexp ``Scan`` reads, weighted by its gradient.

    For a single maximum that is the softmax, whose weights are the gradient of the logsumexp.
    """
    if not most:
        return -_mean_ladder(large, True, -keep, -reach)
    ahead = _next(_ladder(large, True, keep, reach), -large)
    w = _weights(keep, reach, ahead)
    steps = (w.through * w.ahead, w.reach * reach + w.through * w.keep * keep)
    return recursion(steps, (torch.full_like(reach[:1], -large),), _affine_composed, _affine)[0]


@dataclass(frozen=True)
class _Weights:
    """Derivatives of one step: of u by ``reach`` and by the minimum (``through``), of the minimum by its two inputs."""

    reach: Tensor
    through: Tensor
    keep: Tensor
    ahead: Tensor


def _weights(keep: Tensor, reach: Tensor, ahead: Tensor) -> _Weights:
    rise, room = reach - _less(keep, ahead), ahead - keep
    return _Weights(torch.sigmoid(rise), torch.sigmoid(-rise), torch.sigmoid(room), torch.sigmoid(-room))


class _Ladder(torch.autograd.Function):
    """``u[t] = smax(reach[t], smin(keep[t], u[t+1]))``, u[T] = -large, along axis 0.

    With U = exp(u) the maximum of two is a sum and the minimum a parallel sum, U = Y + X U'/(X + U'): a resistor ladder
    of shunt conductances Y and series conductances X. What t to s-1 make of U(s) has the form

        f(U) = P + E QU/(Q + U),   0 < E <= 1,

    with P the value at U = 0, E the gain there, and Q where it saturates. Composition consists of sums, products and
    parallel sums of positive numbers, so that in logarithms (p, q, e) no digits are lost, unlike in products of the
    2 x 2 matrices of the same maps, whose entries grow without bound.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(keep: Tensor, reach: Tensor, large: float) -> Tensor:
        last = torch.full_like(reach[:1], -large)
        return recursion((reach, keep, torch.zeros_like(reach)), (last,), _composed, _applied)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        keep, reach, ctx.large = inputs
        ctx.save_for_backward(keep, reach, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        keep, reach, out = ctx.saved_tensors
        w = _weights(keep, reach, _next(out, -ctx.large))
        # the gradient of u[t]: its own, and the part of u[t-1]'s that comes through the minimum
        gain = w.through * w.ahead
        steps = (torch.cat([torch.zeros_like(gain[:1]), gain[:-1]]).flip(0), grad.flip(0))
        (flow,) = recursion(steps, (torch.zeros_like(grad[:1]),), _affine_composed, _affine)
        flow = flow.flip(0)
        return flow * w.through * w.keep, flow * w.reach, None


def _less(a: Tensor, b: Tensor) -> Tensor:
    """The logsumexp minimum of two."""
    return -torch.logaddexp(-a, -b)


def _applied(f: Parts, u: Parts) -> Parts:
    p, q, e = f
    return (torch.logaddexp(p, e + _less(q, u[0])),)


def _composed(f: Parts, g: Parts) -> Parts:
    _, q1, e1 = f
    p2, q2, e2 = g
    return (*_applied(f, (p2,)), _less(q2, torch.logaddexp(p2, q1) - e2), e1 + e2 + 2 * logsigmoid(q1 - p2))


def _affine(f: Parts, u: Parts) -> Parts:
    return (f[1] + f[0] * u[0],)


def _affine_composed(f: Parts, g: Parts) -> Parts:
    return f[0] * g[0], f[1] + f[0] * g[1]


def _next(u: Tensor, last: float) -> Tensor:
    return torch.cat([u[1:], torch.full_like(u[:1], last)])
