"""From runs of joints to parameters with uncertainty: all steps in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.fit import Fit, fit
from temporeal.sim.identification.identified_file import JOINTS
from temporeal.sim.identification.joints.mechanism import mechanism
from temporeal.sim.identification.joints.parameters import ADDED, quantities, simulator_parameters
from temporeal.sim.identification.joints.problem import Problem, problem_of
from temporeal.sim.identification.joints.record import JointRecord, check
from temporeal.sim.identification.joints.start import start
from temporeal.sim.identification.joints.timing import doubted, opened
from temporeal.sim.identification.parameters import Quantity, weighed
from temporeal.sim.identification.profile import BOUNDED, Profile, profile
from temporeal.sim.identification.record import CannotTell, Numbers
from temporeal.sim.identification.sampling import Draws, draws
from temporeal.sim.identification.settings import Settings
from temporeal.sim.identification.uncertainty import Laplace, laplace

FEWEST = 12
"""Stretches, without which nothing can be said of how they scatter."""
USUAL = Settings(steps=0)


@dataclass(frozen=True)
class Identified:
    """What was found. draws: None without a sampler. still: joints that did not move, by name. unsure: parameters that
    rest on when commands came (:mod:`.timing`)."""

    robot: str
    problem: Problem
    fit: Fit
    posterior: Laplace
    profile: Profile
    draws: Draws | None
    still: tuple[str, ...]
    unsure: tuple[str, ...] = ()

    format = JOINTS

    @property
    def setting(self) -> float:
        """Physics step [s] that was simulated."""
        return self.problem.records[0].dt

    @property
    def asked(self) -> tuple[Quantity, ...]:
        """What was looked for."""
        return self.problem.asked

    def simulated(self, theta: Numbers) -> dict[str, Numbers]:
        """The simulator's parameters by name, [P, size] each, of vectors theta [P, Q]."""
        return simulator_parameters(self.problem.mechanism, self.asked, theta)

    def hidden(self, quantity: Quantity) -> bool:
        """Whether a parameter cannot be told whatever the fit says: of a joint at rest, where any friction holds it."""
        joint = joint_of(quantity.name)
        return joint in self.still if joint else len(self.still) == len(self.problem.mechanism.names)

    def reason(self, quantity: Quantity, sides: str) -> str:
        """Why the log does not tell a parameter. ``sides``: of its fit, that its profile excludes."""
        kind, forces = quantity.name.partition("[")[0], 2 in self.problem.signals
        if self.hidden(quantity):
            return f"{joint_of(quantity.name) or 'every joint'} did not move: what holds it may be friction"
        if quantity.name in self.unsure:
            late = 1000 * max(record.jitter for record in self.problem.records)
            return (f"when commands came is known to {late:.2g} ms, which may make much of what residuals scatter: "
                    "fits then find gains too low and inertia too high")
        if kind == "kd_share" and not forces:
            return "motion shows viscous, the sum, alone: efforts tell the servo's share"
        if kind == "strength":
            return "the servo never came to its limit, or not for long"
        if kind in ADDED and sides == "one":
            return "the likelihood bounds it on one side only: there is less of it than would show"
        if kind == "stribeck_speed":
            return "no joint's friction at rest shows well enough"
        return f"{BOUNDED[sides]}: too little of the motion depends on it" + (
            "" if forces else ", and without efforts only ratios of forces show")


def joint_of(name: str) -> str:
    """The joint of a parameter; "": all share it."""
    return name.partition("[")[2].removesuffix("]")


def identify(records: Sequence[JointRecord], robot: RobotSpec, settings: Settings = USUAL) -> Identified:
    """Parameters of ``robot``'s joints from logs of their motion."""
    check(records, settings.shortest_s)
    m = mechanism(robot, records[0].dt)
    asked = quantities(m)
    for name, value, sd in settings.known:
        asked = weighed(asked, name, value, sd)
    problem = problem_of(m, asked, records, settings.stretch_s, settings.threads)
    count = sum(map(len, problem.begins))
    if count < FEWEST:
        raise CannotTell(f"{count} stretches of {settings.stretch_s:g} s in which all is measured; {FEWEST} at least "
                         "are needed: a longer run, or shorter stretches")
    found = fit(problem, start(problem), steps=1)  # a Jacobian is what costs
    around = laplace(problem, found)
    doubtful = doubted(problem, found.theta)
    moved = np.any([record.moved() for record in records], axis=0)
    still = tuple(name for name, did in zip(m.names, moved) if not did)
    sampled = draws(problem, found, around, settings.steps, settings.seed) if settings.steps else None
    flat = profile(problem, found, around)
    around = opened(around, doubtful, problem.prior[1])
    unsure = tuple(each.name for each, doubt in zip(asked, doubtful) if doubt)
    return Identified(robot.name, problem, found, around, flat, sampled, still, unsure)
