"""Lowering: from a formula to the few operations that every evaluator implements, on samples instead of seconds.

A :class:`Lowered` formula is a list of nodes in topological order. Every time is a number of samples, negations are
left at leaves only, and a pair of dual operations serves each operator and its mirror in the past:

==================  ===================================================================================================
``Leaf``            a predicate, or its negation
``Fixed``           +inf (true) or -inf (false)
``Merge``           maximum or minimum of several nodes at one sample
``Slide``           maximum or minimum of one node over a window of samples, ahead or behind
``Scan``            ``u[t] = max(reach[t], min(keep[t], u[t+1]))``: until, unbounded; min and max swapped: release
``Shift``           the value ``by`` samples ahead or behind, ``fill`` beyond the ends of the trace
==================  ===================================================================================================

A timed until is three of them, because min and max distribute over each other:
``left U[a,b] right = F[a,b] right & G[0,a-1] left & (left U right)(t+a)``. The number of nodes does not grow with the
window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf

from temporeal.sim.stl.language.conventions import RTAMT, End, Semantics
from temporeal.sim.stl.language.propositional import And, Formula, Iff, Implies, Not, Or, Predicate, Truth
from temporeal.sim.stl.language.queries import check_depth
from temporeal.sim.stl.language.sampling import window_steps
from temporeal.sim.stl.language.temporal import (
    Always,
    Eventually,
    Historically,
    Next,
    Once,
    Previous,
    Release,
    Since,
    Until,
    WeakUntil,
    Window,
)


@dataclass(frozen=True)
class Leaf:
    """A predicate, or with ``negated`` its negation."""

    predicate: Predicate
    negated: bool


@dataclass(frozen=True)
class Fixed:
    """``value``, +inf or -inf, at every sample."""

    value: float


@dataclass(frozen=True)
class Merge:
    """At each sample the maximum (``most``) or minimum of the nodes ``args``."""

    most: bool
    args: tuple[int, ...]


@dataclass(frozen=True)
class Slide:
    """The maximum (``most``) or minimum of node ``arg`` over the samples t+lo .. t+hi, with ``past`` t-hi .. t-lo.

    ``hi`` None: to the end of the trace, with ``past`` to its beginning. An empty window gives -inf (``most``) or +inf.
    """

    most: bool
    arg: int
    lo: int
    hi: int | None
    past: bool


@dataclass(frozen=True)
class Scan:
    """``u[t] = max(reach[t], min(keep[t], u[t+1]))``, u[T] = -inf; without ``most`` min and max are swapped.

    With ``past`` the recursion reads u[t-1].
    """

    most: bool
    keep: int
    reach: int
    past: bool


@dataclass(frozen=True)
class Shift:
    """Node ``arg`` at sample t+by, with ``past`` t-by; ``fill`` where the trace has no such sample."""

    arg: int
    by: int
    fill: float
    past: bool


Node = Leaf | Fixed | Merge | Slide | Scan | Shift


def inputs(node: Node) -> tuple[int, ...]:
    """Indices of the nodes that ``node`` reads."""
    match node:
        case Merge(_, args):
            return args
        case Slide(_, arg) | Shift(arg):
            return (arg,)
        case Scan(_, keep, reach):
            return (keep, reach)
    return ()


@dataclass(frozen=True)
class Lowered:
    """Nodes in topological order; the last one is the formula. Equal nodes are one node."""

    nodes: tuple[Node, ...]
    semantics: Semantics

    @property
    def leaves(self) -> tuple[int, ...]:
        """Indices of the :class:`Leaf` nodes."""
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node, Leaf))

    def viewed(self, samples: int) -> tuple[Lowered, int]:
        """What to evaluate on traces of up to ``samples`` samples, and how many samples to append to them.

        In the clip view that is the formula itself, and none. In the others the samples past the end are all alike: so
        many are appended that no value changes any more, and longer windows are cut there, so that the work grows with
        the trace and not with the windows.
        """
        return (self, 0) if self.semantics.end == "clip" else _viewed(self, samples)


@lru_cache(maxsize=256)
def _viewed(lowered: Lowered, samples: int) -> tuple[Lowered, int]:
    nodes: list[Node] = []
    settled: list[int] = []  # per node, samples past the end after which its value is constant
    ahead: list[int] = []
    for node in lowered.nodes:
        below = max((settled[i] for i in inputs(node)), default=0)
        new, own = _cut(node, samples + below, below)
        nodes.append(new)
        settled.append(below + _memory(node))
        ahead.append(own + max((ahead[i] for i in inputs(node)), default=0))
    return Lowered(tuple(nodes), lowered.semantics), ahead[-1]


def _memory(node: Node) -> int:
    """Samples for which a node's value may still change after its inputs have become constant."""
    match node:
        case Slide(_, _, lo, hi, past=True):
            return lo if hi is None else hi
        case Shift(_, by, _, past=True):
            return by
        case Scan(past=True):
            return 1
    return 0


def _cut(node: Node, last: int, below: int) -> tuple[Node, int]:
    """``node`` cut to windows of at most ``last`` samples ahead, and how many samples ahead it then looks."""
    match node:
        case Slide(most, arg, lo, None, past=False):
            return Slide(most, arg, min(lo, last), None, False), max(min(lo, last), below) + 1
        case Slide(most, arg, lo, int(hi), past=False):
            return Slide(most, arg, min(lo, last), min(hi, last), False), min(hi, last)
        case Shift(arg, by, fill, past=False):
            return Shift(arg, min(by, last), fill, False), min(by, last)
        case Scan(past=False):
            return node, below + 1
    return node, 0


def lower(formula: Formula, dt: float, semantics: Semantics = RTAMT) -> Lowered:
    """``formula`` on samples every ``dt`` seconds; a FormulaError if a window is not a whole number of samples."""
    try:
        return _lowered(formula, dt, semantics)
    except RecursionError:
        check_depth(formula)
        raise


@lru_cache(maxsize=256)
def _lowered(formula: Formula, dt: float, semantics: Semantics) -> Lowered:
    builder = Builder(dt, semantics)
    root = builder.of(formula, False)
    return Lowered(builder.reachable(root), semantics)


class Builder:
    """Makes the nodes of a formula, equal ones once. Streams override :meth:`until`."""

    def __init__(self, dt: float, semantics: Semantics) -> None:
        self.dt, self.closed = dt, semantics.until == "closed"
        self.nodes: list[Node] = []
        self.index: dict[Node, int] = {}
        self.known: dict[tuple[int, bool], int] = {}  # by identity, as the formula outlives the builder

    def add(self, node: Node) -> int:
        if node not in self.index:
            self.index[node] = len(self.nodes)
            self.nodes.append(node)
        return self.index[node]

    def reachable(self, root: int) -> tuple[Node, ...]:
        """The nodes that ``root`` needs, renumbered so that it is the last."""
        needed, stack = set(), [root]
        while stack:
            at = stack.pop()
            if at not in needed:
                needed.add(at)
                stack += inputs(self.nodes[at])
        kept = sorted(needed)
        new = {old: i for i, old in enumerate(kept)}
        return tuple(_renumbered(self.nodes[i], new) for i in kept)

    def of(self, formula: Formula, negated: bool) -> int:
        """The node of a formula or of its negation; each is lowered once, however often nested iffs use it."""
        key = id(formula), negated
        if key not in self.known:
            self.known[key] = self._of(formula, negated)
        return self.known[key]

    def _of(self, formula: Formula, negated: bool) -> int:
        match formula:
            case Predicate():
                return self.add(Leaf(formula, negated))
            case Truth(value):
                return self.add(Fixed(inf if value != negated else -inf))
            case Not(arg):
                return self.of(arg, not negated)
            case And(args) | Or(args):
                return self.merge(isinstance(formula, Or) != negated, [self.of(a, negated) for a in args])
            case Implies(left, right):
                return self.merge(not negated, [self.of(left, not negated), self.of(right, negated)])
            case Iff(left, right):
                return self.iff(left, right, negated)
            case Always(arg, window) | Historically(arg, window):
                return self.slide(negated, self.of(arg, negated), window, isinstance(formula, Historically))
            case Eventually(arg, window) | Once(arg, window):
                return self.slide(not negated, self.of(arg, negated), window, isinstance(formula, Once))
            case Next(arg, strong) | Previous(arg, strong):
                fill = -inf if strong != negated else inf
                return self.shift(self.of(arg, negated), 1, fill, isinstance(formula, Previous))
            case Until(left, right, window) | Since(left, right, window):
                keep, reach = self.of(left, negated), self.of(right, negated)
                return self.until(not negated, keep, reach, window, isinstance(formula, Since))
            case Release(left, right, window):
                return self.until(negated, self.of(left, negated), self.of(right, negated), window, False)
            case WeakUntil(left, right, window):
                keep, reach = self.of(left, negated), self.of(right, negated)
                forever = self.slide(negated, keep, Window(0.0, window.hi), False)
                return self.merge(not negated, [self.until(not negated, keep, reach, window, False), forever])
        raise TypeError(f"not a formula: {formula!r}")

    def iff(self, left: Formula, right: Formula, negated: bool) -> int:
        a, b = self.of(left, False), self.of(right, False)
        not_a, not_b = self.of(left, True), self.of(right, True)
        pairs = [(a, not_b), (not_a, b)] if negated else [(not_a, b), (a, not_b)]
        return self.merge(negated, [self.merge(not negated, pair) for pair in pairs])

    def merge(self, most: bool, args: Sequence[int]) -> int:
        """The maximum (``most``) or minimum of ``args``: flat, without repetitions, constants folded."""
        flat: dict[int, None] = {}
        for arg in args:
            node = self.nodes[arg]
            flat.update(dict.fromkeys(node.args if isinstance(node, Merge) and node.most == most else (arg,)))
        winning, losing = self.add(Fixed(inf if most else -inf)), self.add(Fixed(-inf if most else inf))
        if winning in flat:
            return winning
        flat.pop(losing, None)
        return losing if not flat else next(iter(flat)) if len(flat) == 1 else self.add(Merge(most, tuple(flat)))

    def slide(self, most: bool, arg: int, window: Window, past: bool) -> int:
        return self.slide_steps(most, arg, *window_steps(window, self.dt), past)

    def slide_steps(self, most: bool, arg: int, lo: int, hi: int | None, past: bool) -> int:
        if lo == hi:
            return self.shift(arg, lo, -inf if most else inf, past)
        return self.add(Slide(most, arg, lo, hi, past))

    def shift(self, arg: int, by: int, fill: float, past: bool) -> int:
        return self.add(Shift(arg, by, fill, past)) if by else arg

    def until(self, most: bool, keep: int, reach: int, window: Window, past: bool) -> int:
        lo, hi = window_steps(window, self.dt)
        if self.closed:
            reach = self.merge(not most, [reach, keep])
        if hi == 0:
            return reach
        whole = self.add(Scan(most, keep, reach, past))
        parts = [self.shift(whole, lo, -inf if most else inf, past)]
        if hi is not None:
            parts.append(self.slide_steps(most, reach, lo, hi, past))
        if lo:
            parts.append(self.slide_steps(not most, keep, 0, lo - 1, past))
        return self.merge(not most, parts)


class _Dependence(Builder):
    """Every operator as the maximum over the samples that it may depend on."""

    def of(self, formula: Formula, negated: bool) -> int:
        return self.add(Fixed(-inf)) if isinstance(formula, Truth) else super().of(formula, False)

    def merge(self, most: bool, args: Sequence[int]) -> int:
        return super().merge(True, args)

    def slide_steps(self, most: bool, arg: int, lo: int, hi: int | None, past: bool) -> int:
        return super().slide_steps(True, arg, lo, hi, past)

    def shift(self, arg: int, by: int, fill: float, past: bool) -> int:
        return super().shift(arg, by, -inf, past)

    def until(self, most: bool, keep: int, reach: int, window: Window, past: bool) -> int:
        lo, hi = window_steps(window, self.dt)
        if self.closed:
            reach = self.merge(True, [reach, keep])
        parts = [self.slide_steps(True, reach, lo, hi, past)]
        if hi != 0:
            if not self.closed:
                # the left side is never read at the last sample of the trace, in a since at the first
                keep = self.shift(self.shift(keep, 1, -inf, not past), 1, -inf, past)
            parts.append(self.slide_steps(True, keep, 0, None if hi is None else hi - 1, past))
        return self.merge(True, parts)


@lru_cache(maxsize=256)
def dependence(formula: Formula, dt: float, semantics: Semantics = RTAMT) -> Lowered:
    """Which samples a value may depend on, whatever the margins are.

    With leaves of +inf at some samples and -inf elsewhere, a value is +inf where it may depend on one of the former.
    """
    view: End = "clip" if semantics.end == "clip" else "strong"
    builder = _Dependence(dt, Semantics(view, semantics.until))
    root = builder.of(formula, False)
    return Lowered(builder.reachable(root), Semantics(view, semantics.until))


def _renumbered(node: Node, new: dict[int, int]) -> Node:
    match node:
        case Merge(most, args):
            return Merge(most, tuple(new[i] for i in args))
        case Slide(most, arg, lo, hi, past):
            return Slide(most, new[arg], lo, hi, past)
        case Scan(most, keep, reach, past):
            return Scan(most, new[keep], new[reach], past)
        case Shift(arg, by, fill, past):
            return Shift(new[arg], by, fill, past)
    return node
