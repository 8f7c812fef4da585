"""The rules of decomposition: from a formula in positive normal form to a tree of choices. numpy only.

docs/explanation/stl-decomposition.md has them as a table and shows why each is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isinf

from temporeal.sim.stl.language.propositional import And, Formula, Not, Or
from temporeal.sim.stl.language.queries import is_temporal
from temporeal.sim.stl.language.sampling import steps
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
from temporeal.sim.stl.language.text import number_text
from temporeal.sim.stl.planning.alternative import All, Choice, Gap, Keep, Point, later, seconds
from temporeal.sim.stl.planning.difference_constraints import UNBOUNDED
from temporeal.sim.stl.rewriting.normal import FALSE, TRUE, NotDecomposable, all_of, any_of, positive


def links(samples: int, width: int) -> int:
    """The fewest hits that suffice for one in each of ``samples`` successive windows of ``width``.

    From any set with a hit in each window take the latest in the first window, then always the latest at most ``width``
    after the previous one. Every second hit is then at least ``width`` + 1 later, and the second is after the first
    window: with m hits before the first one in the last window, m = 2k needs k (width + 1) <= samples - 1 and m = 2k +
    1 needs k (width + 1) <= samples - 2. Both occur.
    """
    return 1 + max(2 * ((samples - 1) // (width + 1)), 2 * ((samples - 2) // (width + 1)) + 1 if samples > 1 else 0)


def most_runs(samples: int, width: int) -> int:
    """The most separate runs among ``samples`` samples, each of which must hold from itself to the next ``width`` - 1.

    Between two runs there is a sample that holds for neither, so a run begins at least ``width`` + 1 after the end of
    the previous one.
    """
    return (samples - 1) // (width + 1) + 1


_NOTHING, _NEVER = All(), All(choices=(Choice(()),))


def _both(*parts: All) -> All:
    if any(part.choices and not part.count for part in parts):
        return _NEVER
    constraints = tuple(dict.fromkeys(c for part in parts for c in part.constraints))
    return All(constraints, tuple(c for part in parts for c in part.choices))


def _either(*parts: All, origin: Formula | None = None) -> All:
    possible = tuple(part for part in parts if part.count)
    if any(not part.constraints and not part.choices for part in possible):
        return _NOTHING
    return _NEVER if not possible else possible[0] if len(possible) == 1 else All(
        choices=(Choice(possible, origin),))


def _gap(before: Point, after: Point, lo: int = -UNBOUNDED, hi: int = UNBOUNDED) -> All:
    """``lo <= after - before <= hi``."""
    shift = before.offset - after.offset
    return All((Gap(before.variable, after.variable, max(lo + shift, -UNBOUNDED), min(hi + shift, UNBOUNDED)),))


@dataclass(frozen=True)
class _Look:
    """``arg`` at all (``always``) or some samples from ``first`` to ``last`` after now; the past is negative."""

    always: bool
    arg: Formula
    first: int
    last: int


class Rules:
    """Makes the tree of choices and the time variables of a formula in positive normal form.

    ``last`` is the last sample of the trace. ``lowest`` and ``highest`` bound each variable as known when it is made.
    ``origins``: the user's sub-formulas, for errors.
    """

    def __init__(self, dt: float, last: int, limit: int, origins: Mapping[Formula, Formula]) -> None:
        self.dt, self.last, self.limit, self.origins = dt, last, limit, origins
        self.origin: Formula | None = None
        self.lowest, self.highest = [0], [0]
        self.known: dict[tuple[int, int], tuple[int, int]] = {}

    @contextmanager
    def inside(self, f: Formula) -> Iterator[None]:
        """While ``f`` is decomposed, ``origin`` is the innermost sub-formula of the user's that contains it."""
        outer, self.origin = self.origin, self.origins.get(f, self.origin)
        try:
            yield
        finally:
            self.origin = outer

    def users(self, f: Formula) -> Formula:
        """The sub-formula that an error names: the user's own."""
        return f if self.origin is None else self.origin

    def either(self, *parts: All) -> All:
        return _either(*parts, origin=self.origin)

    # ------------------------------------------------ points and intervals

    def time(self, lo: int, hi: int, formula: Formula) -> Point:
        """A new time variable in [lo, hi], clipped to the trace."""
        if len(self.lowest) > self.limit:
            raise NotDecomposable(
                f"more than {self.limit} time variables (the limit) would be needed", self.users(formula))
        self.lowest.append(max(lo, 0))
        self.highest.append(min(hi, self.last))
        return Point(len(self.lowest) - 1)

    def range(self, point: Point) -> tuple[int, int]:
        return self.lowest[point.variable] + point.offset, self.highest[point.variable] + point.offset

    def difference(self, start: Point, end: Point) -> tuple[int, int]:
        """Bounds of end - start."""
        shift = end.offset - start.offset
        if start.variable == end.variable:
            return shift, shift
        lo, hi = self.known.get((start.variable, end.variable), (-UNBOUNDED, UNBOUNDED))
        (start_lo, start_hi), (end_lo, end_hi) = self.range(start), self.range(end)
        return max(lo + shift, end_lo - start_hi), min(hi + shift, end_hi - start_lo)

    def when(self, before: Point, after: Point, lo: int = -UNBOUNDED, hi: int = UNBOUNDED) -> All:
        """``lo <= after - before <= hi``: no constraint if that is known, impossible if it cannot be."""
        least, most = self.difference(before, after)
        if lo <= least and most <= hi:
            return _NOTHING
        return _NEVER if least > hi or most < lo else _gap(before, after, lo, hi)

    def exists(self, point: Point) -> All:
        """``point`` is a sample of the trace."""
        return self.when(Point(0), point, 0, self.last)

    def keep(self, state: Formula, start: Point, end: Point) -> All:
        if state == TRUE or self.difference(start, end)[1] < 0:
            return _NOTHING
        if state == FALSE:  # the interval must be empty
            return self.either(self.when(start, end, hi=-1), self.when(Point(0), start, lo=self.last + 1),
                           self.when(Point(0), end, hi=-1))
        return All((Keep(state, start, end),))

    def hit(self, from_: Point, first: int, last: int, formula: Formula) -> tuple[Point, All]:
        """A sample of the trace from ``first`` to ``last`` after ``from_``, and the constraints for that."""
        lo, hi = self.range(from_)
        if first == last:
            return later(from_, first), self.exists(later(from_, first))
        if lo + first > self.last or hi + last < 0:
            return from_, _NEVER
        at = self.time(lo + first, hi + last, formula)
        self.known[from_.variable, at.variable] = from_.offset + first, from_.offset + last
        self.known[at.variable, from_.variable] = -from_.offset - last, -from_.offset - first
        return at, _gap(from_, at, first, last)

    def look(self, f: Formula) -> _Look | None:
        """``f`` as one :class:`_Look`, if it requires its argument at all or some samples of a window.

        An always directly under an always is one operator; so is an eventually under an eventually. (Also if the trace
        ends in between: a sample between two of the trace is in the trace.)
        """
        match f:
            case Always(arg, window) | Historically(arg, window) | Eventually(arg, window) | Once(arg, window):
                past = isinstance(f, (Historically, Once))
                always = isinstance(f, (Always, Historically))
                first, last = self.samples(window, f, past)
                first, last = (-last, -first) if past else (first, last)
            case Next(arg, strong) | Previous(arg, strong):
                always, first = not strong, -1 if isinstance(f, Previous) else 1
                last = first
            case _:
                return None
        inner = self.look(arg)
        if inner and inner.always == always and (first >= 0 and inner.first >= 0 or last <= 0 and inner.last <= 0):
            return _Look(always, inner.arg, first + inner.first, last + inner.last)
        return _Look(always, arg, first, last)

    def samples(self, window: Window, formula: Formula, past: bool = False) -> tuple[int, int]:
        """The window in samples; an unbounded one reaches to the end of the trace."""
        lo = steps(window.lo, self.dt)
        return lo, max(lo, self.last) if isinf(window.hi) else steps(window.hi, self.dt)

    # ------------------------------------------------ at one sample

    def at(self, f: Formula, point: Point) -> All:
        """What ``f`` requires at ``point``, a sample of the trace."""
        if not is_temporal(f):
            return self.keep(f, point, point)
        with self.inside(f):
            look = self.look(f)
            if look and look.always:
                return self.span(look.arg, later(point, look.first), later(point, look.last))
            if look:
                hit, when = self.hit(point, look.first, look.last, f)
                return _both(when, self.at(look.arg, hit)) if when.count else _NEVER
            match f:
                case And(args):
                    return _both(*(self.at(part, point) for part in _grouped(args, all_of)))
                case Or(args):
                    return self.either(*(self.at(part, point) for part in _grouped(args, any_of)))
                case Until(left, right, window):
                    hit, when = self.hit(point, *self.samples(window, f), f)
                    if not when.count:
                        return when
                    return _both(when, self.at(right, hit), self.span(left, point, later(hit, -1)))
                case Since(left, right, window):
                    first, last = self.samples(window, f)
                    hit, when = self.hit(point, -last, -first, f)
                    if not when.count:
                        return when
                    return _both(when, self.at(right, hit), self.span(left, later(hit, 1), point))
                case WeakUntil(left, right, window):
                    _, last = self.samples(window, f)
                    forever = self.span(left, point, later(point, last))
                    return self.either(forever, self.at(Until(left, right, window), point))
                case Release(left, right, window):
                    first, last = self.samples(window, f)
                    forever = self.span(right, later(point, first), later(point, last))
                    freed, when = self.hit(point, 0, max(last - 1, 0), f)
                    if not last or not when.count:
                        return forever
                    return self.either(forever, _both(
                        when, self.at(left, freed), self.span(right, later(point, first), freed)))
                case Not(Since(left, right, window)):  # a release into the past
                    left, right = positive(Not(left)), positive(Not(right))
                    first, last = self.samples(window, f)
                    forever = self.span(right, later(point, -last), later(point, -first))
                    freed, when = self.hit(point, min(1 - last, 0), 0, f)
                    if not last or not when.count:
                        return forever
                    return self.either(forever, _both(
                        when, self.at(left, freed), self.span(right, freed, later(point, -first))))
        raise TypeError(f"not a formula in positive normal form: {f!r}")

    # ------------------------------------------------ at every sample of an interval

    def span(self, f: Formula, start: Point, end: Point) -> All:
        """What ``f`` requires at every sample of the trace from ``start`` to ``end``."""
        if not is_temporal(f):
            return self.keep(f, start, end)
        cases = []
        for begin, begins in self.clipped(start, Point(0, 0), False):
            for until, ends in self.clipped(end, Point(0, self.last), True):
                some = self.when(begin, until, lo=0)
                if some.count and begins.count and ends.count:
                    cases.append(_both(begins, ends, some, self.over(f, begin, until)))
                cases.append(_both(begins, ends, self.when(begin, until, hi=-1)))
        return self.either(*cases)

    def clipped(self, point: Point, limit: Point, above: bool) -> list[tuple[Point, All]]:
        """The cases of the minimum (``above``) or maximum of ``point`` and the constant ``limit``, with constraints."""
        inside = self.when(limit, point, hi=0) if above else self.when(limit, point, lo=0)
        outside = self.when(limit, point, lo=1) if above else self.when(limit, point, hi=-1)
        return [case for case in ((point, inside), (limit, outside)) if case[1].count]

    def over(self, f: Formula, start: Point, end: Point) -> All:
        """What ``f`` requires at every sample from ``start`` to ``end``, samples of the trace with start <= end."""
        if not is_temporal(f):
            return self.keep(f, start, end)
        with self.inside(f):
            look = self.look(f)
            if look and look.always:
                return self.span(look.arg, later(start, look.first), later(end, look.last))
            if look:
                return self.chain(look, f, start, end)
            match f:
                case And(args):
                    return _both(*(self.over(part, start, end) for part in _grouped(args, all_of)))
                case Or(args):
                    return self.clause(f, args, start, end)
                case Until(left, right, window):
                    # each sample needs a hit in its window; up to the last hit, left or right must hold
                    kept = any_of([left, right]) if window.lo == 0 else left
                    return _both(self.over(Eventually(right, window), start, end), self.over(kept, start, end),
                                 self.at(f, end))
                case Since(left, right, window):
                    kept = any_of([left, right]) if window.lo == 0 else left
                    return _both(self.over(Once(right, window), start, end), self.over(kept, start, end),
                                 self.at(f, start))
                case WeakUntil(left, right, window):
                    first, _ = self.samples(window, f)
                    if first:
                        rest = WeakUntil(left, right, Window(0.0, round(window.hi - window.lo, 9)))
                        return _both(self.span(left, start, later(end, first - 1)),
                                     self.span(rest, later(start, first), later(end, first)))
                    return _both(self.over(any_of([left, right]), start, end), self.at(f, end))
                case Release(left, right, window):
                    first, _ = self.samples(window, f)
                    if first:
                        before = Eventually(left, Window(0.0, seconds(first - 1, self.dt)))
                        right = any_of([Always(right, Window(window.lo, window.lo)), before])
                    return _both(self.over(right, start, end), self.at(f, end))
                case Not(Since(left, right, window)):
                    left, right = positive(Not(left)), positive(Not(right))
                    first, _ = self.samples(window, f)
                    if first:
                        after = Once(left, Window(0.0, seconds(first - 1, self.dt)))
                        right = any_of([Historically(right, Window(window.lo, window.lo)), after])
                    return _both(self.over(right, start, end), self.at(f, start))
        raise TypeError(f"not a formula in positive normal form: {f!r}")

    def chain(self, look: _Look, f: Formula, start: Point, end: Point, rest: _Rest | None = None) -> All:
        """A hit in the window of every sample from ``start`` to ``end``; with ``rest``, of those where ``rest`` fails.

        The hits are in order and may coincide, which covers fewer; :func:`links` of them always suffice.
        """
        first, last = look.first, look.last
        if first == last and rest is None:
            begin, until = later(start, first), later(end, first)
            ends = _both(self.exists(begin), self.exists(until))
            return _both(ends, self.over(look.arg, begin, until)) if ends.count else _NEVER
        width = last - first + 1
        low, high = self.range(start)[0] + first, self.range(end)[1] + last
        if low > self.last or high < 0:
            return _NEVER
        count = links(self.difference(start, end)[1] + 1, width)
        hits = [self.time(low, high, f) for _ in range(count)]
        parts = [self.at(look.arg, hit) for hit in hits]
        if rest is None:
            parts += [_gap(start, hits[0], first, last), _gap(end, hits[-1], first, last)]
            parts += [_gap(a, b, 0, width) for a, b in zip(hits, hits[1:], strict=False)]
            return _both(*parts)
        parts += [_gap(start, hits[0], lo=first), _gap(end, hits[-1], hi=last)]
        parts += [_gap(a, b, lo=0) for a, b in zip(hits, hits[1:], strict=False)]
        begins = [start, *(later(hit, 1 - first) for hit in hits)]
        ends_ = [*(later(hit, -last - 1) for hit in hits), end]
        parts += [rest.keep(self, a, b) for a, b in zip(begins, ends_, strict=True)]
        return _both(*parts)

    def runs(self, look: _Look, f: Formula, start: Point, end: Point, rest: _Rest) -> All:
        """Runs of samples at which ``look``, an always, holds; between them ``rest`` is kept.

        Runs whose windows touch require as much as one run over both, so that :func:`most_runs` of them suffice; runs
        may share a sample, which covers fewer.
        """
        width = look.last - look.first + 1
        count = most_runs(self.difference(start, end)[1] + 1, width)
        low, high = self.range(start)[0], self.range(end)[1]
        pairs = [(self.time(low, high, f), self.time(low, high, f)) for _ in range(count)]
        for u, v in pairs:
            self.known[u.variable, v.variable] = 0, high - low
        inner = [point for pair in pairs for point in pair]
        parts = [_gap(start, inner[0], lo=0), _gap(end, inner[-1], hi=0)]
        parts += [_gap(a, b, lo=0) for a, b in zip(inner, inner[1:], strict=False)]
        parts += [self.span(look.arg, later(u, look.first), later(v, look.last)) for u, v in pairs]
        begins, ends = [start, *(later(v, 1) for _, v in pairs)], [*(later(u, -1) for u, _ in pairs), end]
        parts += [rest.keep(self, a, b) for a, b in zip(begins, ends, strict=True)]
        return _both(*parts)

    def clause(self, f: Formula, args: Sequence[Formula], start: Point, end: Point) -> All:
        """A disjunction of which at least one part is temporal, at every sample from ``start`` to ``end``."""
        split = next((a for a in args if isinstance(a, And) and is_temporal(a)), None)
        if split is not None:
            others = [a for a in args if a is not split]
            return _both(*(self.over(any_of([*others, part]), start, end) for part in _grouped(split.args, all_of)))
        state = any_of(a for a in args if not is_temporal(a))
        looks = self.merged([a for a in args if is_temporal(a)], start, end)
        if looks is None:
            raise self.choices_per_sample(f, start, end)
        if state == FALSE and len(looks) == 1:
            alone = looks[0]
            return self.chain(alone, f, start, end) if not alone.always else self.span(
                alone.arg, later(start, alone.first), later(end, alone.last))
        moved = [k for k in looks if k.always and k.first == k.last and not is_temporal(k.arg)]
        some = [k for k in looks if not k.always]
        always = [k for k in looks if k.always and k not in moved]
        if state == FALSE and len(moved) == 1 and len(some) + len(always) == 1:
            rest, main = _Rest(moved[0].arg, moved[0].first), (some or always)[0]
        elif len(looks) == 1:
            rest, main = _Rest(state, 0), looks[0]
        elif state == FALSE and len(moved) == len(looks) == 2:
            rest, main = _Rest(moved[0].arg, moved[0].first), moved[1]
        else:
            raise self.choices_per_sample(f, start, end)
        rule = self.runs if main.always else self.chain
        return self.either(rest.keep(self, start, end), rule(main, f, start, end, rest))

    def choices_per_sample(self, f: Formula, start: Point, end: Point) -> NotDecomposable:
        length = seconds(self.difference(start, end)[1], self.dt)
        above = f"it must hold at every sample of an interval of {number_text(length)} s"
        reason = f"{above}, and each sample would need its own choice between its parts"
        return NotDecomposable(reason, self.users(f))

    def merged(self, parts: Sequence[Formula], start: Point, end: Point) -> list[_Look] | None:
        """The disjuncts, eventuallies of equal windows as one; None if one has no window.

        A window of a single sample that is surely in the trace is both an always and an eventually: see :meth:`steady`.
        """
        out: dict[tuple[int, int], _Look] = {}
        rest: list[_Look] = []
        for part in parts:
            look = self.look(part)
            if look is None:
                return None
            look = self.steady(look, start, end)
            if look.always:
                rest.append(look)
                continue
            window = look.first, look.last
            arg = any_of([out[window].arg, look.arg]) if window in out else look.arg
            out[window] = _Look(False, arg, *window)
        return [*out.values(), *rest]

    def steady(self, look: _Look, start: Point, end: Point) -> _Look:
        """A window of a single sample as whichever operator lets it merge with its argument, else as an always."""
        shift = look.first
        if look.last != shift or self.range(start)[0] + shift < 0 or self.range(end)[1] + shift > self.last:
            return look
        inner = self.look(look.arg)
        if inner and (shift >= 0) == (inner.first >= 0):
            return self.steady(_Look(inner.always, inner.arg, inner.first + shift, inner.last + shift), start, end)
        return replace(look, always=True)


@dataclass(frozen=True)
class _Rest:
    """``state``, to be kept ``shift`` samples after those of an interval."""

    state: Formula
    shift: int

    def keep(self, rules: Rules, start: Point, end: Point) -> All:
        return rules.keep(self.state, later(start, self.shift), later(end, self.shift))


def _grouped(args: Sequence[Formula], joined: Callable[[Sequence[Formula]], Formula]) -> list[Formula]:
    """The parts; those without temporal operators come first, joined to one."""
    state = [a for a in args if not is_temporal(a)]
    whole = [joined(state)] if state else []
    return whole + [a for a in args if is_temporal(a)]
