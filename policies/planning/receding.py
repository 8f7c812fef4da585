"""Model-predictive control: a planner as a feedback policy that replans during the mission."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from temporeal.policies.planning.problem import Plan, Signals, better, judge, problem
from temporeal.sim.stl.language.propositional import Formula

if TYPE_CHECKING:
    from temporeal.sim.system import Model


class Planner(Protocol):
    """The ``plan`` function of a planning algorithm."""

    def __call__(
        self, model: Model, formula: Formula, dt: float, signals0: Signals, steps: int, config: Any,
        generator: torch.Generator | None = None, *, past: Signals | None = None, start: Tensor | None = None,
    ) -> Plan:
        """Plan actions from the current state; ``start`` is the initial guess."""


class Receding:
    """A planner as a feedback policy for one mission: ``action = policy(signals)`` at each control step.

    Plan to the end of the mission from the measurement, act, measure, replan. The rest of the last plan is the initial
    guess of the next one, and is followed if nothing better is found. Earlier samples count as measured: a subgoal that
    was reached is not required again.

    Args:
        plan: ``plan`` of :mod:`temporeal.policies.planners.cem`, ``npc`` or ``milp``, or one with the same arguments.
        steps: control steps of the mission.
        config: settings of the planner.
        every: control steps between plans; 0: plan once, then follow the plan.
    """

    def __init__(
        self, plan: Planner, model: Model, formula: Formula, dt: float, steps: int, config: Any,
        generator: torch.Generator | None = None, every: int = 1,
    ) -> None:
        if every < 0:
            raise ValueError(f"every is {every}; legal: 0 (plan once), 1 and more control steps")
        self.plan, self.model, self.formula, self.dt = plan, model, formula, dt
        self.steps, self.config, self.generator, self.every = steps, config, generator, every
        self.reset()

    def reset(self) -> None:
        """Forget the mission: the next call is the first of another."""
        self.seen: list[dict[str, Tensor]] = []
        self.ahead: Tensor | None = None  # [B, T - k, A]
        self.predicted: Tensor | None = None  # [B] robustness of what is being followed, as of the last plan

    def __call__(self, signals: Signals) -> Tensor:
        """The actions [B, A] for the current measurement (signals [B, *shape])."""
        done = len(self.seen)
        if done >= self.steps:
            raise ValueError(f"the mission had {self.steps} control steps and is over: reset()")
        if self.ahead is None or self.every and done % self.every == 0:
            self._replan(signals)
        assert self.ahead is not None
        self.seen.append(dict(signals))
        action, self.ahead = self.ahead[:, 0], self.ahead[:, 1:]
        return action

    def _replan(self, signals: Signals) -> None:
        past = {n: torch.stack([s[n] for s in self.seen]) for n in self.seen[0]} if self.seen else None
        left = self.steps - len(self.seen)
        found = self.plan(self.model, self.formula, self.dt, signals, left, self.config, self.generator, past=past,
                          start=self.ahead)
        if self.ahead is not None:
            here = problem(self.model, self.formula, self.dt, signals, left, past)
            found = better(Plan(self.ahead, judge(here, self.ahead)), found)
        self.ahead, self.predicted = found
