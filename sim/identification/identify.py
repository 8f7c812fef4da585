"""From flights to parameters with uncertainty: the one place that does all steps in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.fit import Fit, fit
from temporeal.sim.identification.parameters import Quantity, quantities, rested, weighed
from temporeal.sim.identification.profile import Profile, profile
from temporeal.sim.identification.record import CannotTell, FlightRecord, check
from temporeal.sim.identification.residuals import Problem, problem_of
from temporeal.sim.identification.sampling import Draws, draws
from temporeal.sim.identification.settings import Settings
from temporeal.sim.identification.start import start
from temporeal.sim.identification.uncertainty import Laplace, laplace

FEWEST = 12
"""Stretches, without which nothing can be said of how they scatter."""
USUAL = Settings()


@dataclass(frozen=True)
class Identified:
    """What was found. draws: None without a sampler."""

    robot: str
    problem: Problem
    fit: Fit
    posterior: Laplace
    profile: Profile
    draws: Draws | None
    slow_commands: bool

    @property
    def asked(self) -> tuple[Quantity, ...]:
        """What was looked for."""
        return self.problem.asked


def identify(records: Sequence[FlightRecord], robot: RobotSpec, settings: Settings = USUAL, *,
             slow_commands: bool = False) -> Identified:
    """Parameters of ``robot`` from its flights.

    Args:
        slow_commands: commands were logged more slowly than the robot's attitude loop makes them.
    """
    check(records, settings.shortest_s)
    if len({round(record.step, 6) for record in records}) > 1:
        raise CannotTell("the logs have grids of different steps: " + ", ".join(
            f"{record.name} {1000 * record.step:.3g} ms" for record in records) + "; identify them one by one")
    asked = quantities(robot, not slow_commands, all(record.voltage is not None for record in records))
    for name, value, sd in settings.known:
        asked = weighed(asked, name, value, sd)
    asked = rested(asked, [record.rest_rates for record in records if record.rest_rates is not None])
    problem = problem_of(asked, records, settings.stretch_s, settings.reference_v, settings.threads)
    count = sum(map(len, problem.begins))
    if count < FEWEST:
        raise CannotTell(f"{count} stretches of {settings.stretch_s:g} s in which all is measured; {FEWEST} at least "
                         "are needed: a longer flight, or shorter stretches")
    found = fit(problem, start(problem))
    around = laplace(problem, found)
    if not np.isfinite(around.covariance).all():
        raise CannotTell("the fit ended where the simulator's flights are no numbers: is it the robot that it is said "
                         "to be?")
    sampled = draws(problem, found, around, settings.steps, settings.seed) if settings.steps else None
    return Identified(robot.name, problem, found, around, profile(problem, found, around), sampled, slow_commands)
