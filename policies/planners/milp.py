"""Mixed-integer linear programming: the classical planner, exact on linear systems. HiGHS through scipy.

The trajectory and the formula become one program (Raman et al., "Model predictive control with signal temporal logic
specifications", CDC 2014; Belta and Sadraddini, "Formal methods for control synthesis: an optimization perspective",
Annual Review of Control, Robotics, and Autonomous Systems, 2019):

    maximize r  over actions u[t] in [-1, 1], states x[t], r, and one z for each sub-formula and sample that is needed
    x[t+1] = A x[t] + B u[t] + c
    margin of predicate m at t >= r - M (1 - z[m, t])
    a conjunction asks for all its parts:   z[part] >= z[whole]
    a disjunction for one of them:  sum of z[part] >= z[whole],  z[part] in {0, 1}
    z[formula, 0] = 1

A margin is an affine function of the state, or a minimum or maximum of several: |x| is max(x, -x), a box four sides.
Negations are at the predicates, so that one direction of the implications is enough; only the parts of disjunctions
are binary (Kurtz and Lin, "Mixed-integer programming for signal temporal logic with fewer binary variables", L-CSS
2022). M is as small as what can be reached by then allows, and what cannot be true by then, or cannot be false, is
left out.

A disc in the plane is replaced by a polygon, from inside: ``norm(p - a) < r`` asks for the inscribed polygon of
``sides`` sides, ``norm(p - a) > r`` for the outside of the circumscribed one of ``facets`` sides. A plan's robustness
in the program is then at most its exact one (by a factor of at most cos(pi / sides) of the distance), never more: what
is feasible is satisfied. Everything else that is not affine is refused with its name, and so is a model that is not.

That a plan is the best, and that there is none, is HiGHS's word. A plan is judged by the formula itself, but a bound is
not: with its presolve HiGHS has called a plan optimal that, as it found without, was not.

The future only: earlier samples (``past``) count with their exact margins. Robots are planned one after the other.
D state, T steps, A action.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, cos, inf, pi
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array
from torch import Tensor

from temporeal.policies.planners.problem import TIME, Plan, Problem, Signals, better, check_start, judge, problem
from temporeal.sim.stl.language.propositional import (
    Apply,
    Component,
    Constant,
    Expr,
    Formula,
    Predicate,
    Signal,
    expr_text,
    to_text,
)
from temporeal.sim.stl.language.queries import predicates_in, signals_in
from temporeal.sim.stl.language.values import NUMPY_OPERATIONS, numpy_arrays, predicate_margin
from temporeal.sim.stl.rewriting.lower import Fixed, Leaf, Lowered, Merge, Scan, Shift, Slide, inputs, lower

if TYPE_CHECKING:
    from temporeal.sim.system import Model

Array = np.ndarray
OBJECTIVES = ("robustness", "feasible")
ERROR = 4  # status of scipy.optimize.milp: "other", neither solved nor infeasible, unbounded or out of time
LEAST_SECONDS = 0.1  # of a second try of HiGHS, chosen


@dataclass(frozen=True)
class MILPConfig:
    """Settings of the program and of its solver. ``configs/algo/milp.yaml`` has the same names."""

    objective: str = "robustness"  # maximize it; or feasible: any plan of at least ``least``
    least: float | None = 0.001  # robustness below which there is no plan; null: the best, be it negative
    most: float | None = 0.1  # robustness beyond which no more is asked: it proves a plan good enough; null: none
    effort: float = 0.0  # cost of the mean absolute action, in units of robustness
    sides: int = 16  # of the polygon in the place of the inside of a disc
    facets: int = 8  # of the polygon in the place of the outside of a disc; each is a binary variable per sample
    hold: int = 1  # control steps for which an action is kept: fewer variables
    seconds: float = 60.0  # limit of one program; the best plan by then is taken
    gap: float = 0.001  # relative distance to the proven optimum at which the solver stops
    enough: float | None = 0.001  # a start that is this robust is followed on, without a program; null: never
    replan: int = 0  # control steps between plans where the plan is followed; 0: once

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective is {self.objective!r}; legal: {', '.join(OBJECTIVES)}")
        if self.objective == "feasible" and self.least is None:
            raise ValueError("objective feasible asks for a robustness: least is a number")
        if self.objective == "robustness" and None not in (self.least, self.most) and self.least > self.most:  # type: ignore[operator]
            raise ValueError(f"least is {self.least} and most is {self.most}: least <= most")
        for name in ("sides", "facets"):
            if getattr(self, name) < 3:
                raise ValueError(f"{name} is {getattr(self, name)}; a polygon has at least 3")
        for name in ("effort", "gap", "replan"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.hold < 1:
            raise ValueError(f"hold must be at least 1 control step, got {self.hold}")
        if not self.seconds > 0:
            raise ValueError(f"seconds must be positive, got {self.seconds}")


class NotLinear(ValueError):
    """A predicate or a model is no affine function of state and action."""


class SolverFailed(RuntimeError):
    """HiGHS gave no answer to a program, which says nothing of whether there is a plan."""


class Solution(NamedTuple):
    """The program of one robot."""

    actions: Array | None  # [T, A]; None: none was found
    robustness: float  # of the program: at most the exact one; -inf where there is no plan
    bound: float  # no plan of the program is more robust
    status: str  # of the solver
    seconds: float
    variables: int
    binaries: int
    constraints: int


def plan(
    model: Model, formula: Formula, dt: float, signals0: Signals, steps: int, config: MILPConfig,
    generator: torch.Generator | None = None, *, past: Signals | None = None, start: Tensor | None = None,
) -> Plan:
    """The best plan for each of the B robots of ``signals0``; zeros, or ``start``, where the program has none.

    Args:
        model: affine in state and action.
        formula: judged on samples each ``dt`` s, from the first of ``past`` (or from ``signals0``) to step ``steps``.
        generator: not used; planners have it.
        past: samples before, [k, B, *shape].
        start: actions [B, T, A] that are followed already.
    """
    asked = problem(model, formula, dt, signals0, steps, past)
    start = check_start(start, asked)
    idle = asked.state.new_zeros(len(asked.state), steps, model.action_dim) if start is None else start
    found = Plan(idle, judge(asked, idle))
    actions = idle.clone()
    for world, value in enumerate(found.robustness.tolist()):
        if start is not None and config.enough is not None and value >= config.enough:
            continue
        try:
            solution = solve(asked.of(torch.tensor([world], device=idle.device)), config)
        except SolverFailed as error:
            warnings.warn(f"milp: robot {world} has no plan of its own: {error}", stacklevel=2)
            continue
        if solution.actions is not None:
            actions[world] = torch.as_tensor(solution.actions, dtype=idle.dtype, device=idle.device)
    return better(found, Plan(actions, judge(asked, actions)))


def solve(asked: Problem, config: MILPConfig) -> Solution:
    """Write and solve the program of the only robot of ``asked``; a :class:`SolverFailed` where HiGHS cannot."""
    began = time.perf_counter()
    system = linearized(asked)
    lowered = lower(asked.formula, asked.dt)
    graph = Graph(asked, system, lowered, config)
    root = graph.of_formula()
    low, high = graph.low[root], graph.high[root]
    least = max(low, -inf if config.least is None else config.least)
    most = min(high, inf if config.most is None else config.most)
    most = least if config.objective == "feasible" else most
    if high < least or high == -inf:
        return Solution(None, -inf, high, "not reachable", time.perf_counter() - began, 0, 0, 0)
    if most == inf:  # nothing that can be acted on decides
        idle = np.zeros((asked.steps, asked.model.action_dim))
        return Solution(idle, inf, inf, "always satisfied", time.perf_counter() - began, 0, 0, 0)
    program = Program(asked, system, config, least=min(least, most), most=most)
    program.ask(graph, root)
    return program.solved(began)


# ---------------------------------------------------------------- the model as matrices


class System(NamedTuple):
    """x[t+1] = a x[t] + b u[t] + c, and the affine signals of x: rows [*shape, D + 2] (state, time in s, 1)."""

    a: Array  # [D, D]
    b: Array  # [D, A]
    c: Array  # [D]
    start: Array  # [D]
    signals: dict[str, Array]


TOLERANCE = 1e-4  # relative: rounding of a float32 model


@torch.no_grad()
def linearized(asked: Problem) -> System:
    """The matrices of the model about the robot's state, checked to hold elsewhere too, or a :class:`NotLinear`."""
    model, x0 = asked.model, asked.state[:1].double()
    size, acts = x0.shape[1], model.action_dim
    draws = torch.Generator().manual_seed(0)
    elsewhere = torch.randn(8, size, generator=draws), torch.rand(8, acts, generator=draws) * 2 - 1
    x = torch.cat([torch.zeros(1, size), torch.eye(size), torch.zeros(acts, size), elsewhere[0]])
    u = torch.cat([torch.zeros(1 + size, acts), torch.eye(acts), elsewhere[1]])
    x, u = x.to(x0) + x0, u.to(x0)
    c, a, b = _affine(model.step(x, u), x - x0, u, size, f"the model ({type(model).__name__}.step)")
    out = model.signals(x)
    signals = {}
    for name in signals_in(asked.formula):
        if name == TIME:
            signals[TIME] = np.eye(size + 2)[size]
            continue
        flat = out[name].reshape(len(x), -1)
        offset, rows, _ = _affine(flat, x - x0, torch.zeros_like(u), size, f"signal {name!r} of {type(model).__name__}")
        row = np.concatenate([rows, np.zeros((len(rows), 1)), (offset - rows @ _numbers(x0[0]))[:, None]], 1)
        signals[name] = row.reshape(*out[name].shape[1:], size + 2)
    start = _numbers(x0[0])
    return System(a, b, c - a @ start, start, signals)


def _affine(y: Tensor, x: Tensor, u: Tensor, size: int, what: str) -> tuple[Array, Array, Array]:
    """y = c + a x + b u of the first rows (zero, unit vectors), checked on the rest."""
    y, x, u = (_numbers(v) for v in (y, x, u))
    acts = u.shape[1]
    c, a, b = y[0], (y[1 : 1 + size] - y[0]).T, (y[1 + size : 1 + size + acts] - y[0]).T
    error = np.abs(y - (c + x @ a.T + u @ b.T)).max(initial=0.0)
    if not error <= TOLERANCE * (1.0 + np.abs(y).max(initial=0.0)):
        raise NotLinear(f"{what} is not affine in state and action (off by {error:.3g}): milp plans for linear "
                        "systems; take cem or npc")
    clean = [np.where(np.abs(v) < 1e-6, 0.0, v) for v in (a, b)]  # differences of rounded numbers
    return c, clean[0], clean[1]


def _numbers(x: Tensor) -> Array:
    return x.detach().cpu().double().numpy()


# ---------------------------------------------------------------- predicates as affine functions


class Least(NamedTuple):
    """The minimum of several :data:`Terms`."""

    args: tuple[Any, ...]


class Most(NamedTuple):
    """The maximum of several :data:`Terms`."""

    args: tuple[Any, ...]


Terms = Any
"""An affine function [D + 2] of state, time and 1; or a :class:`Least` or :class:`Most` of some."""


@dataclass(frozen=True)
class Shapes:
    """How many sides polygons have."""

    signals: dict[str, Array]
    sides: int
    facets: int


def margin_terms(leaf: Leaf, shapes: Shapes) -> Terms:
    """What is never more than the margin of ``leaf``: the margin itself, but for discs."""
    predicate = leaf.predicate
    gap = Apply("-", (predicate.left, predicate.right))
    equality = predicate.op in ("==", "!=")
    positive = predicate.op in (">", ">=", "!=")
    try:
        return under(Apply("abs", (gap,)) if equality else gap, positive != leaf.negated, shapes)
    except NotLinear as error:
        raise NotLinear(f"predicate {to_text(predicate)}: {error}; milp takes affine functions of the state, abs, min, "
                        "max of them and norms in the plane") from None


def under(e: Expr, positive: bool, shapes: Shapes) -> Terms:
    """A lower bound of ``e``, or with ``positive`` false of ``-e``; exact but for norms."""
    row = affine(e, shapes)
    if row is not None:
        return row if positive else -row
    match e:
        case Apply("neg", (arg,)):
            return under(arg, not positive, shapes)
        case Apply("+" | "-" as op, (left, right)):
            return summed(under(left, positive, shapes), under(right, positive == (op == "+"), shapes))
        case Apply("*" | "/" as op, (left, right)):
            return _multiple(e, op, left, right, positive, shapes)
        case Apply("abs", (arg,)):
            both = (under(arg, True, shapes), under(arg, False, shapes))
            return Most(both) if positive else Least(both)
        case Apply("min" | "max" as op, args):
            kind = Least if (op == "min") == positive else Most
            return kind(tuple(under(a, positive, shapes) for a in args))
        case Apply("norm", (v,)):
            return _norm(e, affine(v, shapes), positive, shapes)
        case Apply("dist", (v, w)):
            return _norm(e, affine(Apply("-", (v, w)), shapes), positive, shapes)
        case Apply("hypot", (x, y)):
            parts = [affine(x, shapes), affine(y, shapes)]
            return _norm(e, None if any(p is None for p in parts) else np.stack(parts), positive, shapes)  # type: ignore[arg-type]
    raise NotLinear(f"{expr_text(e)} is not affine in the state")


def affine(e: Expr, shapes: Shapes) -> Array | None:
    """The rows [*shape, D + 2] of an affine expression; None of another."""
    match e:
        case Signal(name):
            return shapes.signals[name]
        case Constant(value):
            flat = np.asarray(value, float)
            width = next(iter(shapes.signals.values())).shape[-1]
            return np.concatenate([np.zeros((*flat.shape, width - 1)), flat[..., None]], -1)
        case Component(of, index):
            rows = affine(of, shapes)
            return None if rows is None else rows[index]
        case Apply(op, args):
            rows = [affine(a, shapes) for a in args]
            return None if any(r is None for r in rows) else _applied(op, rows)  # type: ignore[arg-type]
    raise TypeError(f"not an expression: {e!r}")


def _applied(op: str, rows: Sequence[Array]) -> Array | None:
    """``op`` of affine functions, where that is one."""
    if op == "+" or op == "-":
        return rows[0] + rows[1] if op == "+" else rows[0] - rows[1]
    if op == "neg":
        return -rows[0]
    fixed = [not r[..., :-1].any() for r in rows]
    if op == "*" and any(fixed):
        factor, other = (rows[0], rows[1]) if fixed[0] else (rows[1], rows[0])
        if factor.ndim <= other.ndim:
            return factor[..., -1:] * other
        return factor[..., -1:] * other[None]
    if op == "/" and fixed[1]:
        return rows[0] / rows[1][..., -1:]
    if not all(fixed):
        return None
    numbers = [r[..., -1] for r in rows]
    value = np.asarray(numbers[0] if len(numbers) > 1 else NUMPY_OPERATIONS[op](numbers[0]))
    for x in numbers[1:]:
        value = np.asarray(NUMPY_OPERATIONS[op](value, x))
    return np.concatenate([np.zeros((*value.shape, rows[0].shape[-1] - 1)), value[..., None]], -1)


def summed(a: Terms, b: Terms) -> Terms:
    """a + b: a minimum plus a minimum is that of all sums."""
    for x, y in ((a, b), (b, a)):
        if isinstance(x, (Least, Most)):
            return type(x)(tuple(summed(part, y) for part in x.args))
    return a + b


def _scaled(a: Terms, by: float) -> Terms:
    return type(a)(tuple(_scaled(x, by) for x in a.args)) if isinstance(a, (Least, Most)) else a * by


def _multiple(e: Expr, op: str, left: Expr, right: Expr, positive: bool, shapes: Shapes) -> Terms:
    for number, other in ((right, left), (left, right))[: 1 if op == "/" else 2]:
        row = affine(number, shapes)
        if row is not None and not row[..., :-1].any():
            by = 1.0 / row[-1] if op == "/" else float(row[-1])
            return _scaled(under(other, positive == (by >= 0), shapes), abs(by))
    raise NotLinear(f"{expr_text(e)} is not affine in the state")


def _norm(e: Expr, rows: Array | None, positive: bool, shapes: Shapes) -> Terms:
    """Bound of the length of a vector of affine functions [n, D + 2], of which two at most may move."""
    if rows is None:
        raise NotLinear(f"{expr_text(e)} is the length of what is not affine in the state")
    moving = rows[:, :-1].any(1)
    fixed, rows = float(np.linalg.norm(rows[~moving, -1])), rows[moving]
    if len(rows) > 2:
        raise NotLinear(f"{expr_text(e)} is a length in {len(rows)} dimensions")
    if len(rows) == 1:
        sides, shrink = [rows[0], -rows[0]], 1.0
    else:
        count = shapes.facets if positive else shapes.sides
        angles = 2 * pi * np.arange(count) / count
        sides, shrink = list(np.stack([np.cos(angles), np.sin(angles)], 1) @ rows), cos(pi / count)
    constant = np.zeros(rows.shape[1])
    constant[-1] = fixed
    if positive:  # |v| >= every n.v with |n| = 1
        return Most((*sides, *([constant] if fixed else [])))
    return Least(tuple(-side / shrink - constant for side in sides))  # |v| <= max n.v / cos(pi / n)


# ---------------------------------------------------------------- formula and samples as one graph


class Graph:
    """Conjunctions and disjunctions of affine functions at samples, each once, and between what values they lie.

    A vertex is the value of a node of the lowered formula at a sample. ``kind`` is "row" (with ``what`` an affine
    function and a sample), "all" or "any" (with ``what`` the vertices it joins) or "number". ``low`` and ``high`` bound
    the robustness over everything that the robot can reach.
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
        """Between what an affine function lies at sample ``t``, over all states that actions in [-1, 1] lead to."""
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
        """The vertex that is so; equal ones are one."""
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
        """The maximum (``most``) or minimum of vertices, without those that can decide nothing."""
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


# ---------------------------------------------------------------- the program


@dataclass
class Rows:
    """Constraints low <= entries <= high, one after the other."""

    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    entry: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, columns: Sequence[int], entries: Sequence[float], low: float, high: float = inf) -> None:
        """One more."""
        self.row += [len(self.low)] * len(columns)
        self.column += columns
        self.entry += entries
        self.low.append(low)
        self.high.append(high)


class Program:
    """Variables in order: actions [T / hold, A], states [T, D], r, then the z as they come; costs; constraints."""

    def __init__(self, asked: Problem, system: System, config: MILPConfig, least: float, most: float) -> None:
        self.asked, self.system, self.config = asked, system, config
        self.size, self.acts, self.steps = len(system.start), asked.model.action_dim, asked.steps
        self.turns = ceil(self.steps / config.hold)
        self.states = self.turns * self.acts
        self.r = self.states + self.steps * self.size
        self.least, self.most = least, most
        feasible = config.objective == "feasible"
        self.low = [-1.0] * self.states + [-inf] * (self.steps * self.size) + [least]
        self.high = [1.0] * self.states + [inf] * (self.steps * self.size) + [least if feasible else most]
        self.whole = [0] * (self.r + 1)
        self.cost = {} if feasible else {self.r: -1.0}
        self.rows = Rows()
        self._dynamics()
        if config.effort:
            self._effort()

    def variable(self, low: float, high: float, whole: bool = False) -> int:
        """A new one."""
        self.low.append(low)
        self.high.append(high)
        self.whole.append(int(whole))
        return len(self.low) - 1

    def state(self, t: int) -> list[int]:
        """The variables of the state after ``t`` >= 1 steps."""
        first = self.states + (t - 1) * self.size
        return list(range(first, first + self.size))

    def _dynamics(self) -> None:
        s = self.system
        for t in range(self.steps):
            turn = t // self.config.hold * self.acts
            fixed = s.c if t else s.c + s.a @ s.start
            for i, own in enumerate(self.state(t + 1)):
                columns, entries = [own], [1.0]
                for other, weight in zip([*self.state(t), *range(turn, turn + self.acts)] if t else
                                         range(turn, turn + self.acts), [*s.a[i], *s.b[i]] if t else s.b[i]):
                    if weight:
                        columns.append(other)
                        entries.append(-float(weight))
                self.rows.add(columns, entries, float(fixed[i]), float(fixed[i]))

    def _effort(self) -> None:
        for action in range(self.states):
            size = self.variable(0.0, 1.0)
            self.cost[size] = self.config.effort / self.states
            self.rows.add([size, action], [1.0, 1.0], 0.0)
            self.rows.add([size, action], [1.0, -1.0], 0.0)

    def ask(self, graph: Graph, root: int) -> None:
        """The constraints that make r at most the robustness of vertex ``root``.

        ``z`` of a vertex is its variable, or None where it is asked for whatever else is. Vertices come after those
        they join, so that from the last to the first all that ask for one come before it.
        """
        asking: dict[int, list[int | None]] = {root: [None]}  # for each vertex the z of those that ask for all of it
        option: dict[int, int] = {}  # the binary of a vertex that is part of a disjunction
        for v in range(root, -1, -1):
            if v not in asking and v not in option or graph.low[v] >= self.most:
                continue
            z = self._literal(asking.get(v, []), option.get(v))
            kind, what = graph.kind[v], graph.what[v]
            if kind == "all":
                for part in what:
                    asking.setdefault(part, []).append(z)
            elif kind == "any":
                if any(None in asking.get(part, []) for part in what):
                    continue
                for part in what:
                    if part not in option:
                        option[part] = self.variable(0.0, 1.0, whole=True)
                columns = [option[part] for part in what]
                self.rows.add([*columns, *([] if z is None else [z])],
                              [1.0] * len(columns) + ([] if z is None else [-1.0]), 1.0 if z is None else 0.0)
            else:
                self._atom(graph, v, z)

    def _literal(self, asking: Sequence[int | None], option: int | None) -> int | None:
        """The z of a vertex that others ask for."""
        if None in asking:
            if option is not None:
                self.low[option] = 1.0
            return None
        wanted = [z for z in asking if z is not None]
        if option is None and len(set(wanted)) == 1:
            return wanted[0]
        own = self.variable(0.0, 1.0) if option is None else option
        for z in set(wanted):
            self.rows.add([own, z], [1.0, -1.0], 0.0)
        return own

    def _atom(self, graph: Graph, v: int, z: int | None) -> None:
        """margin >= r - M (1 - z), M as large as the margin can be below r at most."""
        low = graph.low[v]
        columns, entries, fixed = [self.r], [-1.0], low
        if graph.kind[v] == "row":
            row, sample = graph.what[v]
            t = sample - graph.asked.seen
            fixed = float(row[self.size + 1] + row[self.size] * sample * graph.asked.dt)
            weights = row[: self.size]
            if t == 0:
                fixed += float(weights @ self.system.start)
            else:
                for column, weight in zip(self.state(t), weights):
                    if weight:
                        columns.append(column)
                        entries.append(float(weight))
        if z is None:
            self.rows.add(columns, entries, -fixed)
        elif low == -inf:  # never true
            self.rows.add([z], [1.0], 0.0, 0.0)
        else:
            large = self.most - low
            self.rows.add([*columns, z], [*entries, -large], -large - fixed)

    def solved(self, began: float) -> Solution:
        """Hand it to HiGHS."""
        cost = np.zeros(len(self.low))
        cost[list(self.cost)] = list(self.cost.values())
        rows, begun = self.rows, time.perf_counter()
        matrix = coo_array((rows.entry, (rows.row, rows.column)), shape=(len(rows.low), len(self.low))).tocsr()
        for presolve in (True, False):  # a program in some thousands fails; without presolve most of these are solved
            left = max(self.config.seconds - (time.perf_counter() - begun), LEAST_SECONDS)
            found = milp(cost, integrality=np.array(self.whole), bounds=Bounds(np.array(self.low), np.array(self.high)),
                         constraints=LinearConstraint(matrix, np.array(rows.low), np.array(rows.high)),
                         options={"time_limit": left, "mip_rel_gap": self.config.gap, "presolve": presolve})
            if found.status != ERROR:
                break
        else:
            raise SolverFailed(f"HiGHS failed, with its presolve and without it: {found.message}")
        spent, counts = time.perf_counter() - began, (len(self.low), sum(self.whole), len(rows.low))
        dual, bound = getattr(found, "mip_dual_bound", None), self.most
        if self.cost == {self.r: -1.0} and dual is not None:
            bound = min(bound, -float(dual))
        if found.x is None:
            return Solution(None, -inf, -inf if found.status == 2 else bound, str(found.message), spent, *counts)
        turns = found.x[: self.states].reshape(self.turns, self.acts)
        actions = turns[np.arange(self.steps) // self.config.hold].clip(-1.0, 1.0)
        return Solution(actions, float(found.x[self.r]), bound, str(found.message), spent, *counts)
