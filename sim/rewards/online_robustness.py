"""Robustness of a formula while its trace is being recorded: one sample at a time, exact, in torch operations.

For objectives and observations of N worlds at once, compiled by :mod:`temporeal.sim.compiler.vectorize`
(`temporeal.sim.stl.monitoring.stream` is for monitors). A formula is evaluated at one sample (:meth:`Online.at_start`)
or at all (:meth:`Online.following`). At one sample, an operator over predicates keeps one or two numbers, however long
its window. At all samples it keeps as many values as its window has, which exactness requires.

Every value is that of ``temporeal.sim.stl.semantics.robustness`` on a trace that reaches to the formula's horizon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from math import inf

import torch
from torch import Tensor

from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import And, Formula, Not, Or, Truth, to_text
from temporeal.sim.stl.language.queries import is_temporal
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
from temporeal.sim.stl.rewriting.normal import positive
from temporeal.sim.stl.semantics.torch_ops import margin_function

Carry = dict[str, Tensor]


@dataclass
class Sample:
    """One sample of N worlds, with the carry for the next one as it is being filled."""

    signals: Mapping[str, Tensor]
    tick: Tensor  # [N] number of the sample, the first is 0
    carry: Mapping[str, Tensor]
    after: Carry = field(default_factory=dict)
    known: dict[Part, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Part:
    """A number of each world at each sample. What uses it twice computes it once.

    ``late``: of one that follows the samples, by how many its value lies behind the newest; of one that stands for
    a single sample, the number of the sample at which it is known. ``since``: before that sample its value says nothing
    at all; a largest or smallest value of what was seen so far is infinite before there was any.
    """

    of: Callable[[Sample], Tensor]
    late: int
    since: int = 0

    def __call__(self, sample: Sample) -> Tensor:
        """Its value [N]."""
        if self not in sample.known:
            sample.known[self] = self.of(sample)
        return sample.known[self]


class Online:
    """Builds parts; equal parts share their carry.

    ``carry``: shapes (without N) of what they keep; :meth:`begin` gives its values at the start of an episode.
    """

    def __init__(self, dt: float) -> None:
        self.dt = dt
        self.carry: dict[str, tuple[int, ...]] = {}
        self._first: dict[str, float] = {}  # what stands in a carry before the first sample
        self._made: dict[object, Part] = {}
        self._stacks: dict[tuple[Part, int, float], Callable[[Sample], Tensor]] = {}

    def begin(self, carry: Mapping[str, Tensor]) -> Carry:
        """Its carry before the first sample; ``carry``: tensors of the right shapes."""
        return {name: torch.full_like(carry[name], first) for name, first in self._first.items()}

    def sample(self, signals: Mapping[str, Tensor], tick: Tensor, carry: Mapping[str, Tensor]) -> Sample:
        """Sample number ``tick`` [N]; after all parts were evaluated, ``after`` is the carry for the next."""
        return Sample(signals, tick, carry)

    def at_start(self, formula: Formula) -> Part:
        """The robustness of ``formula`` at sample 0, known from sample ``late`` on."""
        return self._at(positive(formula), 0)

    def following(self, formula: Formula) -> Part:
        """The robustness of ``formula`` at the sample ``late`` before the newest, once there is one."""
        return self._follow(positive(formula))

    # ---- at one sample

    def _at(self, f: Formula, at: int) -> Part:
        return self._once((f, at), lambda: self._make_at(f, at))

    def _make_at(self, f: Formula, at: int) -> Part:
        match f:
            case Not(arg):
                inner = self._at(arg, at)
                return Part(lambda s: -inner(s), inner.late)
            case And(args) | Or(args) if is_temporal(f):
                parts = [self._at(a, at) for a in args]
                fold = torch.minimum if isinstance(f, And) else torch.maximum
                return Part(lambda s: reduce(fold, [p(s) for p in parts]), max(p.late for p in parts))
            case Always(arg, window) | Eventually(arg, window):
                lo, hi = self._bounded(f, window)
                return self._at(arg, at + lo) if lo == hi else self._extreme(f, self._follow(arg), at + lo, at + hi)
            case Until(left, right, window):
                lo, hi = self._bounded(f, window)
                return self._until_at(*self._aligned([left, right]), at, lo, hi)
            case Release(left, right, window):
                return self._negated(self._at(Until(_opposite(left), _opposite(right), window), at))
            case WeakUntil(left, right, window):
                return self._at(Or((Until(left, right, window), Always(left, Window(0.0, window.hi)))), at)
            case Next(arg):
                return self._at(arg, at + 1)
        return self._latched(self._follow(f), at)

    def _extreme(self, f: Formula, part: Part, first: int, last: int) -> Part:
        """The largest or smallest value of ``part`` at the samples ``first`` to ``last``."""
        most = isinstance(f, Eventually)
        name, fold = self._register((), -inf if most else inf), torch.maximum if most else torch.minimum
        first, last = first + part.late, last + part.late

        def of(s: Sample) -> Tensor:
            before = s.carry[name]
            inside = (s.tick >= first) & (s.tick <= last)
            s.after[name] = torch.where(inside, fold(before, part(s)), before)
            return s.after[name]

        return Part(of, last)

    def _until_at(self, left: Part, right: Part, at: int, lo: int, hi: int) -> Part:
        kept, found = self._register((), inf), self._register((), -inf)
        first, late = at + left.late, left.late

        def of(s: Sample) -> Tensor:
            inside = (s.tick >= first + lo) & (s.tick <= first + hi)
            reached = torch.maximum(s.carry[found], torch.minimum(right(s), s.carry[kept]))
            s.after[found] = torch.where(inside, reached, s.carry[found])
            s.after[kept] = torch.where(s.tick >= first, torch.minimum(s.carry[kept], left(s)), s.carry[kept])
            return s.after[found]

        return Part(of, at + hi + late)

    def _latched(self, part: Part, at: int) -> Part:
        name, when = self._register((), 0.0), at + part.late

        def of(s: Sample) -> Tensor:
            s.after[name] = torch.where(s.tick == when, part(s), s.carry[name])
            return s.after[name]

        return Part(of, when, when)

    # ---- at all samples

    def _follow(self, f: Formula) -> Part:
        return self._once(f, lambda: self._make_follow(f))

    def _make_follow(self, f: Formula) -> Part:
        match f:
            case Truth(value):
                return Part(lambda s: torch.full_like(s.tick, inf if value else -inf), 0)
            case Not(arg):
                return self._negated(self._follow(arg))
            case _ if not is_temporal(f):
                margin = margin_function(f)
                return Part(lambda s: margin(s.signals), 0)
            case And(args) | Or(args):
                parts = self._aligned(args)
                fold = torch.minimum if isinstance(f, And) else torch.maximum
                return Part(lambda s: reduce(fold, [p(s) for p in parts]), parts[0].late)
            case Always(arg, window) | Eventually(arg, window):
                lo, hi = self._bounded(f, window)
                return self._slide(self._follow(arg), hi, hi - lo, isinstance(f, Eventually))
            case Until(left, right, window):
                return self._until(*self._aligned([left, right]), *self._bounded(f, window))
            case Release(left, right, window):
                return self._negated(self._follow(Until(_opposite(left), _opposite(right), window)))
            case WeakUntil(left, right, window):
                return self._follow(Or((Until(left, right, window), Always(left, Window(0.0, window.hi)))))
            case Next(arg):
                part = self._follow(arg)
                return Part(part, part.late + 1)
            case Historically(arg, window) | Once(arg, window):
                lo, hi = window_steps(window, self.dt)
                most = isinstance(f, Once)
                return self._behind(self._follow(arg), lo, hi, most, -inf if most else inf)
            case Previous(arg, strong):
                return self._behind(self._follow(arg), 1, 1, True, -inf if strong else inf)
            case Since(left, right, window):
                return self._since(self._follow(left), self._follow(right), *window_steps(window, self.dt))
        raise TypeError(f"not a formula: {f!r}")

    def _slide(self, part: Part, later: int, width: int, most: bool) -> Part:
        """Over the newest ``width`` + 1 values; ``later``: how far ahead the newest of them lies."""
        recent = self._recent(part, width)
        return Part(lambda s: _extreme(recent(s), most), part.late + later)

    def _until(self, left: Part, right: Part, lo: int, hi: int) -> Part:
        kept, reached = self._recent(left, hi), self._recent(right, hi - lo)
        return Part(lambda s: _reached(kept(s)[:, :hi], reached(s), lo), left.late + hi)

    def _behind(self, part: Part, lo: int, hi: int | None, most: bool, fill: float) -> Part:
        """Over the values ``lo`` to ``hi`` samples ago; ``fill`` where there was no sample."""
        late = max(0, part.late - lo)
        part, newest = self._existing(part, fill), late - part.late + lo
        if hi is not None:
            recent, width = self._recent(part, newest + hi - lo, fill), hi - lo + 1
            return Part(lambda s: _extreme(recent(s)[:, :width], most), late)
        part = self._delayed(part, newest, fill)
        name, fold = self._register((), fill), torch.maximum if most else torch.minimum

        def of(s: Sample) -> Tensor:
            s.after[name] = fold(s.carry[name], part(s))
            return s.after[name]

        return Part(of, late)

    def _since(self, left: Part, right: Part, lo: int, hi: int | None) -> Part:
        late = max(left.late, right.late - lo, 0)
        if hi is None:
            return self._since_ever(left, right, lo, late)
        kept = self._recent(self._existing(left, inf), late - left.late + max(hi - 1, 0), inf)
        reached = self._recent(self._existing(right, -inf), late - right.late + hi, -inf)
        return Part(lambda s: _reached(kept(s)[:, :hi].flip(-1), reached(s)[:, : hi - lo + 1].flip(-1), lo), late)

    def _since_ever(self, left: Part, right: Part, lo: int, late: int) -> Part:
        same = max(left.late, right.late)
        keep = self._delayed(left, same - left.late)
        reach = self._delayed(right, same - right.late)
        name = self._register((), -inf)

        def of(s: Sample) -> Tensor:
            held = torch.maximum(reach(s), torch.minimum(keep(s), s.carry[name]))
            s.after[name] = torch.where(s.tick >= same, held, s.carry[name])
            return s.after[name]

        whole = self._delayed(Part(of, same), late - same + lo, -inf)
        if not lo:
            return Part(whole, late)
        newest = self._recent(self._existing(left, inf), late - left.late + lo - 1, inf)
        return Part(lambda s: torch.minimum(whole(s), newest(s)[:, :lo].amin(-1)), late)

    # ---- what they are made of

    def _once(self, key: object, make: Callable[[], Part]) -> Part:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _negated(self, part: Part) -> Part:
        return self._once(("-", part), lambda: Part(lambda s: -part(s), part.late))

    def _aligned(self, args: Iterable[Formula]) -> list[Part]:
        """All as late as the latest."""
        parts = [self._follow(a) for a in args]
        late = max(p.late for p in parts)
        return [self._delayed(p, late - p.late) for p in parts]

    def _existing(self, part: Part, fill: float) -> Part:
        """``part``, and ``fill`` in the place of values before the first sample."""
        if not part.late:
            return part
        return Part(lambda s: torch.where(s.tick >= part.late, part(s), torch.full_like(s.tick, fill)), part.late)

    def _delayed(self, part: Part, by: int, fill: float = 0.0) -> Part:
        if not by:
            return part
        recent = self._recent(part, by, fill)
        return self._once((part, by, fill), lambda: Part(lambda s: recent(s)[:, 0], part.late + by))

    def _recent(self, part: Part, count: int, fill: float = 0.0) -> Callable[[Sample], Tensor]:
        """The newest ``count`` + 1 values [N, count + 1], the oldest first."""
        if (part, count, fill) in self._stacks:
            return self._stacks[part, count, fill]
        name = self._register((count,), fill)

        def of(s: Sample) -> Tensor:
            values = torch.cat([s.carry[name], part(s)[:, None]], -1)
            s.after[name] = values[:, 1:]
            return values

        stacked = Part(of, part.late)
        self._stacks[part, count, fill] = stacked
        return stacked

    def _register(self, shape: tuple[int, ...], first: float) -> str:
        name = f"kept{len(self.carry)}"
        self.carry[name], self._first[name] = shape, first
        return name

    def _bounded(self, f: Formula, window: Window) -> tuple[int, int]:
        lo, hi = window_steps(window, self.dt)
        if hi is None:
            raise FormulaError(f"{to_text(f)} has no end: an episode cannot tell its robustness; give the window one")
        return lo, hi


def _opposite(f: Formula) -> Formula:
    return f.arg if isinstance(f, Not) else Not(f)


def _extreme(values: Tensor, most: bool) -> Tensor:
    return values.amax(-1) if most else values.amin(-1)


def _reached(kept: Tensor, reached: Tensor, lo: int) -> Tensor:
    """The largest over k of ``reached`` [N, K], k = lo, lo + 1, .., and of the smallest of the first k ``kept``."""
    if not kept.shape[-1]:
        return reached[:, 0]
    running = _running_minimum(kept)
    if lo:
        return torch.minimum(reached, running[:, lo - 1 :]).amax(-1)
    return torch.maximum(reached[:, 0], torch.minimum(reached[:, 1:], running).amax(-1))


def _running_minimum(x: Tensor) -> Tensor:
    """Minima of the first 1, 2, .. columns; log2 of their number passes (Hillis and Steele, CACM 29(12), 1986)."""
    step = 1
    while step < x.shape[-1]:
        x = torch.cat([x[:, :step], torch.minimum(x[:, step:], x[:, :-step])], -1)
        step *= 2
    return x
