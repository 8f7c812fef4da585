"""Mixed-integer linear programming: the classical planner, exact on linear systems. HiGHS through scipy.

Trajectory and formula become one program (Raman et al., "Model predictive control with signal temporal logic
specifications", CDC 2014; Belta and Sadraddini, "Formal methods for control synthesis: an optimization perspective",
Annual Review of Control, Robotics, and Autonomous Systems, 2019):

    maximize r  over actions u[t] in [-1, 1], states x[t], r, and one z for each needed sub-formula and sample
    x[t+1] = A x[t] + B u[t] + c
    margin of predicate m at t >= r - M (1 - z[m, t])
    a conjunction requires all its parts:   z[part] >= z[whole]
    a disjunction requires one of them:  sum of z[part] >= z[whole],  z[part] in {0, 1}
    z[formula, 0] = 1

Negations are at the predicates, so one direction of the implications is enough; only the parts of disjunctions are
binary (Kurtz and Lin, "Mixed-integer programming for signal temporal logic with fewer binary variables", L-CSS 2022).
M is as small as the reachable states allow, and parts that the reachable states decide are left out.

Margins are affine functions of the state, minima and maxima of them, and norms in the plane
(:mod:`temporeal.policies.planning.affine`). A plan's robustness in the program is at most its exact one (by a factor of
at most cos(pi / sides) of the distance): a feasible plan satisfies the formula. Other predicates and models are refused
by name.

Optimality and infeasibility are HiGHS's claims. Plans are judged by the formula itself, bounds are not: with its
presolve HiGHS has called a plan optimal that, without presolve, it found not to be.

The program covers the future only: earlier samples (``past``) count with their exact margins. Robots are planned one
after the other. D state, T steps, A action.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.planning.affine import linearized
from temporeal.policies.planning.milp_graph import Graph
from temporeal.policies.planning.milp_program import Program, Solution, SolverFailed
from temporeal.policies.planning.problem import Plan, Problem, Signals, better, check_start, judge, problem
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.rewriting.lower import lower

if TYPE_CHECKING:
    from temporeal.sim.system import Model


OBJECTIVES = ("robustness", "feasible")


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


def plan(
    model: Model, formula: Formula, dt: float, signals0: Signals, steps: int, config: MILPConfig,
    generator: torch.Generator | None = None, *, past: Signals | None = None, start: Tensor | None = None,
) -> Plan:
    """The best plan for each of the B robots of ``signals0``; zeros, or ``start``, if the program has none.

    Args:
        model: affine in state and action.
        formula: judged on samples each ``dt`` s, from the first of ``past`` (or from ``signals0``) to step ``steps``.
        generator: unused; part of the planners' interface.
        past: samples before, [k, B, *shape].
        start: actions [B, T, A] of the plan followed so far.
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
    """Write and solve the program of the only robot of ``asked``; a :class:`SolverFailed` if HiGHS fails."""
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
