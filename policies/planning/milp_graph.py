"""Formula and samples as one graph of conjunctions and disjunctions of affine functions, with bounds."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.policies.planning.affine import Array, Least, Most, Shapes, System, Terms, _numbers, margin_terms
from temporeal.policies.planning.problem import TIME, Problem
from temporeal.sim.stl.language.propositional import Predicate
from temporeal.sim.stl.language.queries import predicates_in
from temporeal.sim.stl.language.values import numpy_arrays, predicate_margin
from temporeal.sim.stl.rewriting.lower import Fixed, Leaf, Lowered, Merge, Scan, Shift, Slide, inputs

if TYPE_CHECKING:
    from temporeal.policies.planners.milp import MILPConfig


class Graph:
    """Conjunctions and disjunctions of affine functions at samples, each stored once, with bounds.

    A vertex is the value of a node of the lowered formula at a sample. ``kind`` is "row" (with ``what`` an affine
    function and a sample), "all" or "any" (with ``what`` the joined vertices) or "number". ``low`` and ``high`` bound
    the robustness over all reachable states.
    """

    def __init__(self, asked: Problem, system: System, lowered: Lowered, config: MILPConfig) -> None:
        self.asked, self.lowered, self.system = asked, lowered, system
        self.shapes = Shapes(system.signals, config.sides, config.facets)
        self.least = -inf if config.least is None else config.least
        self.samples = asked.seen + asked.steps + 1
        self.kind: list[str] = []
        self.what: list[Any] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.known: dict[Any, int] = {}
        self.reach: dict[bytes, tuple[Array, Array]] = {}
        self.terms = {leaf: margin_terms(leaf, self.shapes) for leaf in lowered.nodes if isinstance(leaf, Leaf)}
        self.past = {p: self._measured(p) for p in predicates_in(asked.formula)} if asked.seen else {}

    def _measured(self, predicate: Predicate) -> Array:
        """Margins [k] of the samples before now."""
        signals = {name: _numbers(x[:, 0]) for name, x in self.asked.past.items()}
        signals[TIME] = np.arange(self.asked.seen) * self.asked.dt
        margin = np.asarray(predicate_margin(predicate, signals, numpy_arrays()), float)
        return np.broadcast_to(margin, self.asked.seen)

    def of_formula(self) -> int:
        """The vertex of the formula at the first sample."""
        nodes = self.lowered.nodes
        needed = self._needed()
        values: list[dict[int, int]] = []
        for node, wanted in zip(nodes, needed):
            own: dict[int, int] = {}
            values.append(own)
            backwards = isinstance(node, Scan) and not node.past
            for t in sorted(wanted, reverse=backwards):
                own[t] = self._vertex(node, t, values, own)
        return values[-1][0]

    def _needed(self) -> list[set[int]]:
        """The samples at which each node is needed."""
        nodes = self.lowered.nodes
        needed: list[set[int]] = [set() for _ in nodes]
        needed[-1] = {0}
        for index in range(len(nodes) - 1, -1, -1):
            node = nodes[index]
            if isinstance(node, Scan) and needed[index]:
                wanted = needed[index]
                needed[index] = set(range(max(wanted) + 1) if node.past else range(min(wanted), self.samples))
            for t in needed[index]:
                for other in inputs(node):
                    needed[other].update(self._reads(node, t))
        return needed

    def _reads(self, node: Any, t: int) -> Sequence[int]:
        """The samples of its inputs that ``node`` reads at sample ``t``."""
        last = self.samples - 1
        match node:
            case Slide(_, _, lo, hi, past):
                if past:
                    return range(0 if hi is None else max(0, t - hi), t - lo + 1)
                return range(t + lo, (last if hi is None else min(last, t + hi)) + 1)
            case Shift(_, by, _, past):
                at = t - by if past else t + by
                return [at] if 0 <= at <= last else []
        return [t]

    def _vertex(self, node: Any, t: int, values: list[dict[int, int]], own: dict[int, int]) -> int:
        match node:
            case Leaf():
                return self._leaf(node, t)
            case Fixed(value):
                return self.number(value)
            case Merge(most, args):
                return self.join(most, [values[i][t] for i in args])
            case Slide(most, arg):
                return self.join(most, [values[arg][s] for s in self._reads(node, t)])
            case Shift(arg, _, fill):
                at = self._reads(node, t)
                return values[arg][at[0]] if at else self.number(fill)
            case Scan(most, keep, reach, past):
                ahead = own.get(t - 1 if past else t + 1)
                if ahead is None:
                    ahead = self.number(-inf if most else inf)
                return self.join(most, [values[reach][t], self.join(not most, [values[keep][t], ahead])])
        raise TypeError(f"not a node: {node!r}")

    def _leaf(self, leaf: Leaf, t: int) -> int:
        if t < self.asked.seen:
            value = float(self.past[leaf.predicate][t])
            return self.number(-value if leaf.negated else value)
        return self._of_terms(self.terms[leaf], t)

    def _of_terms(self, terms: Terms, t: int) -> int:
        if isinstance(terms, (Least, Most)):
            return self.join(isinstance(terms, Most), [self._of_terms(x, t) for x in terms.args])
        low, high = self.reached(terms, t)
        if low == high:
            return self.number(low)
        return self.add("row", (terms.tobytes(), t), low, high, terms)

    def reached(self, row: Array, t: int) -> tuple[float, float]:
        """Bounds of an affine function at sample ``t`` over all states reachable by actions in [-1, 1]."""
        key = row.tobytes()
        if key not in self.reach:
            self.reach[key] = self._support(row)
        center, radius = self.reach[key]
        at = t - self.asked.seen
        return float(center[at] - radius[at]), float(center[at] + radius[at])

    def _support(self, row: Array) -> tuple[Array, Array]:
        s, size, count = self.system, len(self.system.start), self.asked.steps + 1
        center, radius = np.empty(count), np.zeros(count)
        weight, offset, spread = row[:size].copy(), 0.0, 0.0
        for ahead in range(count):
            center[ahead], radius[ahead] = weight @ s.start + offset, spread
            offset, spread = offset + weight @ s.c, spread + np.abs(weight @ s.b).sum()
            weight = weight @ s.a
        times = (np.arange(count) + self.asked.seen) * self.asked.dt
        return center + row[size] * times + row[size + 1], radius

    def add(self, kind: str, what: Any, low: float, high: float, payload: Any = None) -> int:
        """The vertex with this content; equal vertices are shared."""
        key = (kind, what)
        if key not in self.known:
            self.known[key] = len(self.kind)
            self.kind.append(kind)
            self.what.append((payload, what[1]) if kind == "row" else what)
            self.low.append(low)
            self.high.append(high)
        return self.known[key]

    def number(self, value: float) -> int:
        """A constant."""
        return self.add("number", value, value, value)

    def join(self, most: bool, args: Sequence[int]) -> int:
        """The maximum (``most``) or minimum of vertices, without those that cannot affect it."""
        kind = "any" if most else "all"
        flat: dict[int, None] = {}
        for arg in args:
            flat.update(dict.fromkeys(self.what[arg] if most and self.kind[arg] == kind else (arg,)))
        if not flat:
            return self.number(-inf if most else inf)
        low = (max if most else min)(self.low[i] for i in flat)
        high = (max if most else min)(self.high[i] for i in flat)
        if most:  # what cannot be as high as another surely is, or as is asked for, decides nothing
            able = [i for i in flat if self.high[i] > low or self.low[i] == low]
            kept = [i for i in able if self.high[i] >= self.least] or able
        else:  # what is never lower than another can be
            kept = [i for i in flat if self.low[i] < high or self.high[i] == high]
        if len(kept) == 1:
            return kept[0]
        return self.add(kind, tuple(sorted(kept)), low, high)
