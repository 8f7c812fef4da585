"""The semantics of every operator, written straight from its definition, and random formulas and traces to try it on.

Slow on purpose and free of the code under test: one recursion per sample, plain Python.
"""

from math import inf

import numpy as np
from hypothesis import strategies as st

from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.language.constructors import norm
from temporeal.sim.stl.language.conventions import RTAMT
from temporeal.sim.stl.language.propositional import And, Constant, Iff, Implies, Not, Or, Predicate, Signal, Truth
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

DT = 0.1
X, Y, P = Signal("x", (), "m"), Signal("y", (), "m"), Signal("p", (3,), "m")
SCHEMA = {"x": SignalSpec("x", (), "m"), "y": SignalSpec("y", (), "m"), "p": SignalSpec("p", (3,), "m")}

# ---------------------------------------------------------------- the definitions


def holds(predicate, sample):
    """(margin, truth) of a predicate at one sample, by hand for the expressions drawn here."""
    left, right = number(predicate.left, sample), number(predicate.right, sample)
    return {"<": (right - left, left < right), "<=": (right - left, left <= right),
            ">": (left - right, left > right), ">=": (left - right, left >= right),
            "==": (-abs(left - right), left == right), "!=": (abs(left - right), left != right)}[predicate.op]


def number(e, sample):
    match type(e).__name__:
        case "Signal":
            return sample[e.name]
        case "Constant":
            return e.value
        case "Component":
            return number(e.of, sample)[e.index]
    args = [number(a, sample) for a in e.args]
    return {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "neg": lambda a: -a,
            "abs": abs, "min": min, "max": max, "norm": lambda v: float(np.sqrt(np.sum(np.square(v))))}[e.op](*args)


class Definition:
    """The value of formulas at the samples of one trace (a list of samples by signal name).

    ``kind`` 0: robustness, 1: truth. In the strong and weak views a trace goes on for ever with samples at which every
    literal is false or true: ``beyond`` of them are enough.
    """

    def __init__(self, trace, kind, semantics=RTAMT, beyond=40):
        self.trace, self.kind, self.semantics = trace, kind, semantics
        self.top, self.bottom = (inf, -inf) if kind == 0 else (True, False)
        self.length = len(trace) + (beyond if semantics.end != "clip" else 0)
        self.known, self.kept = {}, []

    def at(self, f, t, positive=True):
        """Value of ``f``, or of its negation, at sample ``t``."""
        key = id(f), t, positive
        if key not in self.known:
            self.kept.append(f)  # an id is that of a living object
            self.known[key] = self._at(f, t, positive)
        return self.known[key]

    def _literal(self, f, t, positive):
        if t >= len(self.trace):
            return self.bottom if self.semantics.end == "strong" else self.top
        value = holds(f, self.trace[t])[self.kind]
        return value if positive else (-value if self.kind == 0 else not value)

    def _at(self, f, t, positive):
        # negation goes to the literals; every operator has its dual, with meet and join exchanged
        lowest, highest = (min, max) if self.kind == 0 else (all, any)

        def meet(values):
            values = list(values)
            return lowest(values) if values else self.top

        def join(values):
            values = list(values)
            return highest(values) if values else self.bottom

        if not positive:
            meet, join = join, meet
        # what an empty or missing sample counts: +inf and -inf change places with the lattice
        true, false = (self.top, self.bottom) if positive else (self.bottom, self.top)

        def of(g, s, negate=False):
            return self.at(g, s, positive != negate)

        def ahead(w):
            hi = self.length if w.hi == inf else round(w.hi / DT)
            return range(t + round(w.lo / DT), min(t + hi, self.length - 1) + 1)

        def behind(w):
            hi = t if w.hi == inf else round(w.hi / DT)
            return range(max(t - hi, 0), t - round(w.lo / DT) + 1)

        closed = self.semantics.until == "closed"
        match f:
            case Predicate():
                return self._literal(f, t, positive)
            case Truth(value):
                return self.top if value == positive else self.bottom
            case Not(a):
                return of(a, t, True)
            case And(args):
                return meet(of(a, t) for a in args)
            case Or(args):
                return join(of(a, t) for a in args)
            case Implies(a, b):
                return join([of(a, t, True), of(b, t)])
            case Iff(a, b):
                return meet([join([of(a, t, True), of(b, t)]), join([of(a, t), of(b, t, True)])])
            case Always(a, w):
                return meet(of(a, s) for s in ahead(w))
            case Eventually(a, w):
                return join(of(a, s) for s in ahead(w))
            case Historically(a, w):
                return meet(of(a, s) for s in behind(w))
            case Once(a, w):
                return join(of(a, s) for s in behind(w))
            case Next(a, strong):
                return of(a, t + 1) if t + 1 < self.length else false if strong else true
            case Previous(a, strong):
                return of(a, t - 1) if t else false if strong else true
            case Until(a, b, w):
                return join(meet([of(b, s), *(of(a, r) for r in range(t, s + closed))]) for s in ahead(w))
            case Since(a, b, w):
                return join(meet([of(b, s), *(of(a, r) for r in range(s + 1 - closed, t + 1))]) for s in behind(w))
            case Release(a, b, w):
                return meet(join([of(b, s), *(of(a, r) for r in range(t, s + closed))]) for s in ahead(w))
            case WeakUntil(a, b, w):
                whole = ahead(Window(0.0, w.hi))
                return join([of(Until(a, b, w), t), meet(of(a, s) for s in whole)])
        raise TypeError(f)


def samples(signals, world=0, length=None):
    """One world of signals [T, N, ...] as a list of samples."""
    return [{k: v[t, world] for k, v in signals.items()} for t in range(length or len(next(iter(signals.values()))))]


def defined(f, signals, kind, lengths=None, semantics=RTAMT):
    """[T, N] by the definition; NaN or False past the lengths."""
    length, worlds = signals["x"].shape
    out = np.full((length, worlds), np.nan if kind == 0 else False, dtype=float if kind == 0 else bool)
    for n in range(worlds):
        trace = samples(signals, n, None if lengths is None else lengths[n])
        means = Definition(trace, kind, semantics)
        for t in range(len(trace)):
            out[t, n] = means.at(f, t)
    return out


# ---------------------------------------------------------------- random formulas and traces

values = st.integers(-4, 4).map(lambda k: k / 2)  # few values: ties and equalities happen
scalars = st.one_of(
    st.sampled_from([X, Y, P[0], P[2], abs(X), -Y, X - Y, 2 * X, norm(P)]),
    values.map(lambda v: X + v))
predicates = st.builds(Predicate, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), scalars,
                       st.one_of(scalars, values.map(Constant)))


@st.composite
def windows(draw, most=5, unbounded=False):
    lo = draw(st.integers(0, most))
    if unbounded and draw(st.integers(0, 5)) == 0:
        return Window(round(lo * DT, 9))
    return Window(round(lo * DT, 9), round(draw(st.integers(lo, most)) * DT, 9))


def formulas(unbounded=False, past=True, leaf=predicates, max_leaves=5, unbounded_past=None):
    """Random formulas. ``unbounded_past`` (by default ``unbounded``): past windows without an end."""
    w = windows(unbounded=unbounded)
    v = windows(unbounded=unbounded if unbounded_past is None else unbounded_past)
    strong = st.booleans()

    def grow(f):
        several = st.lists(f, min_size=2, max_size=3).map(tuple)
        ahead = [st.builds(Always, f, w), st.builds(Eventually, f, w), st.builds(Until, f, f, w),
                 st.builds(Release, f, f, w), st.builds(WeakUntil, f, f, w), st.builds(Next, f, strong)]
        behind = [st.builds(Historically, f, v), st.builds(Once, f, v), st.builds(Since, f, f, v),
                  st.builds(Previous, f, strong)]
        return st.one_of(
            st.builds(Not, f), st.builds(And, several), st.builds(Or, several), st.builds(Implies, f, f),
            st.builds(Iff, f, f), *ahead, *(behind if past else []))

    return st.recursive(leaf, grow, max_leaves=max_leaves)


states = st.recursive(
    predicates, lambda f: st.one_of(st.builds(Not, f), st.lists(f, min_size=2, max_size=2).map(lambda a: Or(tuple(a))),
                                    st.builds(Implies, f, f)), max_leaves=3)


def traces(least=1, most=12, batch=2):
    def arrays(length):
        size = 5 * length * batch
        drawn = st.lists(values, min_size=size, max_size=size)
        return drawn.map(lambda v: split(np.array(v).reshape(length, batch, 5)))

    return st.integers(least, most).flatmap(arrays)


def split(a):
    """Signals x, y, p of numbers [..., 5]."""
    return {"x": a[..., 0], "y": a[..., 1], "p": a[..., 2:]}
