"""Windows and recursions over axis 0 of numpy arrays, in O(T) work and memory whatever the window.

They serve where numba is not installed; `compiled` gives the same values many times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


def shifted(x: Values, by: int, fill: float) -> Values:
    """``x[t+by]`` for each t, ``fill`` past the end."""
    kept = x[min(by, len(x)):]
    return np.concatenate([kept, np.full((len(x) - len(kept), *x.shape[1:]), fill, dtype=x.dtype)])


def sliding(x: Values, lo: int, hi: int | None, most: bool) -> Values:
    """The maximum (``most``) or minimum of ``x[t+lo .. t+hi]`` for each t, clipped at the end; -inf or +inf if empty.

    A window is a right part of one block of samples and a left part of the next (van Herk, Pattern Recognition Letters
    13(7), 1992).
    """
    combine, neutral = (np.maximum, -inf) if most else (np.minimum, inf)
    x = shifted(x, lo, neutral)
    width = len(x) if hi is None else min(hi - lo + 1, len(x))
    if width == len(x):
        return np.asarray(combine.accumulate(x[::-1])[::-1])
    blocks = -(-len(x) // width) + 1
    padding = np.full((blocks * width - len(x), *x.shape[1:]), neutral, dtype=x.dtype)
    cut = np.concatenate([x, padding]).reshape(blocks, width, *x.shape[1:])
    left = combine.accumulate(cut, axis=1).reshape(-1, *x.shape[1:])
    right = combine.accumulate(cut[:, ::-1], axis=1)[:, ::-1].reshape(-1, *x.shape[1:])
    return np.asarray(combine(right[: len(x)], left[width - 1 : width - 1 + len(x)]))


def recursion(keep: Values, reach: Values, most: bool) -> Values:
    """``u[t] = max(reach[t], min(keep[t], u[t+1]))``, u[T] = -inf; without ``most`` min and max are swapped."""
    join, meet = (np.maximum, np.minimum) if most else (np.minimum, np.maximum)
    out = np.empty_like(reach)
    after = np.full_like(reach[:1], -inf if most else inf)[0]
    for t in range(len(out) - 1, -1, -1):
        after = out[t] = join(reach[t], meet(keep[t], after))
    return out


def merged(parts: list[Values], most: bool) -> Values:
    """The maximum (``most``) or minimum of several arrays."""
    combine: Callable[..., Any] = np.maximum if most else np.minimum
    return np.asarray(reduce(combine, parts))
