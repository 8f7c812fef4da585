"""Planners as methods: gradient planning and CEM, each formula by itself, in the system's model, by exact robustness.

Both search from the true state for the actions of the whole mission. Where the model is the simulator (linear,
unicycle) they plan once, as the comparisons of others do; elsewhere again each second, from where the robot is.

- ``gradient``: Adam on the actions, one for each step, by the gradient of the smooth robustness through the model, from
  rest and from random slow sequences; the best iterate by exact robustness is the plan. It is the backup policy of
  STL-NPC without a network (:func:`temporeal.policies.algos.npc.backup`).
- ``cem``: the cross-entropy method over knots of an action spline (:mod:`temporeal.policies.planners.cem`).

A search ends with a plan that is robust enough, or after its steps; none has a budget of time, which is measured. A
step of Adam takes 0.03 s for the quadrotor (a mission of 961 control steps) and 4 s for the arm (one of 610), which has
a third of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from temporeal.policies.algos import npc
from temporeal.policies.planners import cem
from temporeal.policies.planning.receding import Planner, Receding
from temporeal.sim.stl.distribution.settings import World
from temporeal.sim.task_parts.systems import system_of
from temporeal_benchmarks.any_formula.flights import ACTIONS, Mission, Pilot, Signals

PLANNERS: Mapping[str, Planner] = {"gradient": npc.plan, "cem": cem.plan}
GRADIENT = npc.NPCConfig(
    margin=0.05, backup_below=0.05, temperature=0.1, temperature_end=0.02, backup_steps=300, backup_rate=0.05,
    backup_restarts=7)
CEM = cem.CEMConfig(population=512, iterations=120, knots=40, enough=0.05)
"""Of ``temporeal bench stl-tasks``, whose missions are as long."""
OF_ROBOT: Mapping[str, tuple[float, int]] = {
    "linear": (1.0, 0), "unicycle": (1.0, 0), "quadrotor": (1.0, 50), "franka": (0.2, 25)}
"""By robot: lengths of its formulas in those of the plane, and control steps between plans."""
STEPS = {"franka": 100}
"""Of Adam, where they are others."""
SEARCH = ("margin", "backup_below", "temperature", "temperature_end", "method", "backup_steps", "backup_rate",
          "backup_restarts", "replan")
"""Settings of STL-NPC that planning alone takes."""


@dataclass(frozen=True)
class Planning:
    """A planner for one robot, as a method of :mod:`temporeal_benchmarks.any_formula.flights`."""

    name: str
    config: Any
    world: World
    gives: str = ACTIONS
    at_once: int = 1

    @property
    def identity(self) -> Mapping[str, Any]:
        """The settings of the search."""
        said = asdict(self.config)
        return {name: said[name] for name in SEARCH} if self.name == "gradient" else said

    @property
    def budget(self) -> str:
        """What a plan may take, in words."""
        if self.name == "gradient":
            return f"at most {self.config.backup_steps} steps of Adam on {1 + self.config.backup_restarts} sequences"
        return f"at most {self.config.iterations} rounds of {self.config.population} sequences"

    def shortest(self) -> Planning:
        """The same with a single step of its search."""
        least = {"backup_steps": 1} if self.name == "gradient" else {"iterations": 1}
        return replace(self, config=replace(self.config, **least, replan=0))

    def begin(self, missions: Sequence[Mission], signals: Signals) -> Pilot:
        """A plan, and what follows it; draws are keyed by the formula's index."""
        (mission,) = missions
        model = system_of(self.world.system).model
        if model is None:
            raise ValueError(f"system {self.world.system} has no model to plan with")
        generator = torch.Generator().manual_seed(mission.index)
        return Pilot(Receding(PLANNERS[self.name], model, mission.formula, self.world.dt, mission.steps, self.config,
                              generator, every=self.config.replan))


def planner(name: str, world: World) -> Planning:
    """The planner called ``name``, with settings that fit the robot."""
    scale, every = OF_ROBOT[world.system]
    if name == "cem":
        return Planning(name, replace(CEM, enough=scale * 0.05, replan=every), world)
    steps = STEPS.get(world.system, GRADIENT.backup_steps)
    lengths = {each: scale * getattr(GRADIENT, each)
               for each in ("margin", "backup_below", "temperature", "temperature_end")}
    return Planning(name, replace(GRADIENT, backup_steps=steps, replan=every, **lengths), world)
