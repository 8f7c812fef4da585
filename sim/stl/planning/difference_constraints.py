"""Integer times under difference constraints ``lo <= tau_j - tau_i <= hi``. numpy only.

Such a system, a simple temporal network, is a graph with an edge from i to j of length hi and one from j to i of length
-lo; node 0 is the start of the trace, tau_0 = 0. Its *closure* ``d`` [n+1, n+1] holds the shortest paths: ``d[i, j]``
is the largest tau_j - tau_i. The system has a solution if and only if no cycle is negative (Bellman, 1958). Then every
choice of some times within the closure extends to all of them, so that dropping rows and columns of the closure
projects the solutions exactly (Dechter, Meiri and Pearl, "Temporal constraint networks", 1991).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

import numpy as np
from numpy.typing import NDArray

UNBOUNDED = 1 << 40
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def closure(variables: int, edges: Iterable[tuple[int, int, int]]) -> Ints | None:
    """Closure [n+1, n+1] of ``tau_j - tau_i <= w`` for edges (i, j, w) over n variables; None: no solution.

    Floyd's algorithm: O(n^3), vectorized over two of the three.
    """
    d = np.full((variables + 1, variables + 1), UNBOUNDED, dtype=np.int64)
    np.fill_diagonal(d, 0)
    for i, j, w in edges:
        d[i, j] = min(d[i, j], w)
    for k in range(variables + 1):
        np.minimum(d, d[:, k : k + 1] + d[k : k + 1, :], out=d)
        if d[k, k] < 0:
            return None
    return None if (np.diagonal(d) < 0).any() else np.minimum(d, UNBOUNDED)


def needed(d: Ints) -> NDArray[np.bool_]:
    """Which entries [n+1, n+1] of a closure do not follow from two others.

    If no two times are at a fixed distance, these constraints are the smallest set with this closure.
    """
    out = d < UNBOUNDED // 2
    np.fill_diagonal(out, False)
    for k in range(len(d)):
        via = d[:, k : k + 1] + d[k : k + 1, :] <= d
        via[k, :] = via[:, k] = False
        out &= ~via
    return out


def order(d: Ints) -> list[int]:
    """The variables 1 to n, each after those that are never later than it, otherwise by number."""
    n = len(d)
    never_later = (d <= 0) & ((d.T > 0) | np.tri(n, k=-1, dtype=bool))  # [j, i]: i before j
    never_later[0], never_later[:, 0] = False, False
    waiting = never_later.sum(1)
    ready = [i for i in range(1, n) if not waiting[i]]
    out = []
    while ready:
        i = heappop(ready)
        out.append(i)
        waiting -= never_later[:, i]
        for j in np.nonzero(never_later[:, i] & (waiting == 0))[0]:
            heappush(ready, int(j))
    return out


def windows_given(d: Ints, times: Ints, assigned: list[int], variable: int) -> tuple[Ints, Ints]:
    """(earliest, latest) [K] of ``variable`` for the ``assigned`` columns of ``times`` [K, n+1]."""
    known = times[:, assigned]
    return (known - d[variable, assigned]).max(1), (known + d[assigned, variable]).min(1)


def enumerated(d: Ints, limit: int) -> Ints | None:
    """Every solution [K, n+1] (column 0 is 0), or None where there are more than ``limit``."""
    times = np.zeros((1, len(d)), dtype=np.int64)
    assigned = [0]
    for v in order(d):
        lo, hi = windows_given(d, times, assigned, v)
        width = hi - lo + 1
        if int(width.sum()) > limit:  # each row extends to a solution
            return None
        first = np.cumsum(width) - width
        step = np.arange(int(width.sum())) - np.repeat(first, width)
        times = np.repeat(times, width, axis=0)
        times[:, v] = np.repeat(lo, width) + step
        assigned.append(v)
    return times


def forest(variables: int, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]] | None:
    """(variable, parent), parents first, parent 0 for roots; None if ``pairs`` has a cycle."""
    near: dict[int, set[int]] = {v: set() for v in range(1, variables + 1)}
    for i, j in pairs:
        near[i].add(j)
        near[j].add(i)
    out: list[tuple[int, int]] = []
    seen: set[int] = set()
    for root in near:
        stack = [(root, 0)] if root not in seen else []
        while stack:
            v, parent = stack.pop()
            if v in seen:
                return None
            seen.add(v)
            out.append((v, parent))
            stack += [(w, v) for w in sorted(near[v], reverse=True) if w != parent]
    return out


def sampled(d: Ints, tree: list[tuple[int, int]] | None, count: int, rng: np.random.Generator, sweeps: int) -> Ints:
    """``count`` solutions [K, n+1].

    With a ``tree`` (from :func:`forest`, of the pairs that constrain each other beyond their own windows): independent
    and uniform over all solutions. The number of completions of each time is counted from the leaves, O(n T) in all,
    then times are drawn from the roots. Without one, each time is drawn in its window given those before it, and
    ``sweeps`` Gibbs sweeps bring that nearer to uniform; single moves reach every solution, because no two times are at
    a fixed distance.
    """
    if tree is not None:
        return _sampled_uniformly(d, tree, count, rng)
    times = np.zeros((count, len(d)), dtype=np.int64)
    assigned = [0]
    for v in order(d):
        times[:, v] = rng.integers(*windows_given(d, times, assigned, v), endpoint=True)
        assigned.append(v)
    for _ in range(sweeps):
        for v in range(1, len(d)):
            others = [i for i in range(len(d)) if i != v]
            times[:, v] = rng.integers(*windows_given(d, times, others, v), endpoint=True)
    return times


def _sampled_uniformly(d: Ints, tree: list[tuple[int, int]], count: int, rng: np.random.Generator) -> Ints:
    ways = _counted(d, tree)
    times = np.zeros((count, len(d)), dtype=np.int64)
    for v, parent in tree:
        starts = times[:, parent] - d[v, parent] + d[v, 0]
        times[:, v] = ways[v].drawn(starts, rng) - d[v, 0]
    return times


def _counted(d: Ints, tree: list[tuple[int, int]]) -> dict[int, _Windows]:
    """Per variable, sums of its subtree's numbers of solutions over the windows that its parent leaves."""
    logs = {v: np.zeros(int(d[0, v] + d[v, 0]) + 1) for v in range(len(d))}
    out = {}
    for v, parent in reversed(tree):
        out[v] = _windows(logs[v], int(d[v, parent] + d[parent, v]) + 1)
        if parent:
            starts = np.arange(len(logs[parent])) - d[parent, 0] - d[v, parent] + d[v, 0]
            logs[parent] = logs[parent] + out[v].sums(starts)
    return out


@dataclass(frozen=True)
class _Windows:
    """Sums of positive weights over windows of ``width`` of them, and draws from a window in proportion to them.

    All in logarithms, as weights may differ by factors of 10^1000, and without subtraction: a window is the end of one
    block of ``width`` weights and the beginning of the next, and ``before`` and ``behind`` hold the sums from each
    weight to the ends of its block (van Herk, 1992). Weights off the ends are zero.
    """

    width: int
    before: Floats
    """[blocks * width]: logarithm of the sum of the numbers of the same block up to this one."""
    behind: Floats
    """[blocks * width]: the same, from this one on."""

    def sums(self, starts: Ints) -> Floats:
        """Logarithm [K] of the sum over each window; windows begin at ``starts`` [K] > -width."""
        end, begin = self._parts(starts)
        return np.logaddexp(end, begin)

    def _parts(self, starts: Ints) -> tuple[Floats, Floats]:
        """Sums in the block of the first weight and, if it is another one, in the block of the last."""
        first = starts + self.width
        last = first + self.width - 1
        return self.behind[first], np.where(first % self.width == 0, -inf, self.before[last])

    def drawn(self, starts: Ints, rng: np.random.Generator) -> Ints:
        """One index [K] from each window."""
        end, begin = self._parts(starts)
        earlier = np.log1p(-rng.random(len(starts))) + np.logaddexp(end, begin) <= end
        wanted = np.log1p(-rng.random(len(starts))) + np.where(earlier, end, begin)
        first = starts + self.width
        border = (first // self.width + 1) * self.width
        low, high = np.where(earlier, first, border), np.where(earlier, border, first + self.width) - 1
        for _ in range(self.width.bit_length()):  # binary search
            middle = (low + high) // 2
            enough = np.where(earlier, self.behind[middle + 1] < wanted, self.before[middle] >= wanted)
            low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
        return low - self.width


def _windows(logs: Floats, width: int) -> _Windows:
    """``logs`` [L] are the logarithms of the weights."""
    blocks = -(-len(logs) // width) + 2  # one of zeros on each side
    padded = np.full(blocks * width, -inf)
    padded[width : width + len(logs)] = logs
    rows = padded.reshape(blocks, width)
    before = np.logaddexp.accumulate(rows, axis=1)
    behind = np.logaddexp.accumulate(rows[:, ::-1], axis=1)[:, ::-1]
    return _Windows(width, before.reshape(-1), behind.reshape(-1))
