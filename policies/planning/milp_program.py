"""The mixed-integer program of a :class:`Graph <temporeal.policies.planning.milp_graph.Graph>`, solved by HiGHS."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from temporeal.policies.planning.affine import Array, System
from temporeal.policies.planning.milp_graph import Graph
from temporeal.policies.planning.problem import Problem

if TYPE_CHECKING:
    from temporeal.policies.planners.milp import MILPConfig

ERROR = 4  # status of scipy.optimize.milp: "other", neither solved nor infeasible, unbounded or out of time
LEAST_SECONDS = 0.1  # of a second try of HiGHS, chosen


class SolverFailed(RuntimeError):
    """HiGHS gave no answer to a program: whether a plan exists is unknown."""


class Solution(NamedTuple):
    """The solved program of one robot."""

    actions: Array | None  # [T, A]; None: none was found
    robustness: float  # of the program: at most the exact one; -inf where there is no plan
    bound: float  # no plan of the program is more robust
    status: str  # of the solver
    seconds: float
    variables: int
    binaries: int
    constraints: int


@dataclass
class Rows:
    """Constraints low <= entries <= high, one after the other."""

    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    entry: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, columns: Sequence[int], entries: Sequence[float], low: float, high: float = inf) -> None:
        """Add one constraint."""
        self.row += [len(self.low)] * len(columns)
        self.column += columns
        self.entry += entries
        self.low.append(low)
        self.high.append(high)


class Program:
    """Variables in order: actions [T / hold, A], states [T, D], r, then the z as created; costs; constraints."""

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
        """Add a variable."""
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
        """Add the constraints that make r at most the robustness of vertex ``root``.

        ``z`` of a vertex is its variable, or None if it is required unconditionally. Vertices come after those they
        join, so that in reverse order every vertex that requires another comes before it.
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
        """The z of a vertex that others require."""
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
        """Add margin >= r - M (1 - z), with M as large as r can exceed the margin."""
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
        """The solution by HiGHS."""
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
