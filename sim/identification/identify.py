"""From flights to parameters with uncertainty: the one place that does all steps in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.fit import Fit, fit
from temporeal.sim.identification.parameters import (
    SCALES,
    Quantity,
    quantities,
    rested,
    simulator_parameters,
    weighed,
)
from temporeal.sim.identification.profile import BOUNDED, Profile, profile
from temporeal.sim.identification.record import CannotTell, FlightRecord, Numbers, check, one_step
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

    format = "temporeal identified quadrotor"

    @property
    def setting(self) -> float:
        """Voltage at which a command is a setpoint."""
        return self.problem.reference_v

    def simulated(self, theta: Numbers) -> dict[str, Numbers]:
        """The simulator's parameters by name, [P, size] each, of vectors theta [P, Q]."""
        return simulator_parameters(self.asked, theta)

    @property
    def asked(self) -> tuple[Quantity, ...]:
        """What was looked for."""
        return self.problem.asked

    def hidden(self, quantity: Quantity) -> bool:
        """Whether a parameter cannot be told whatever the fit says: with commands that were logged slowly the turning
        is explained by a share that stands for what was not logged, and what is left over would land on the inertia."""
        return self.slow_commands and quantity.name.startswith(("torque_to_inertia", "command_share"))

    def reason(self, quantity: Quantity, sides: str) -> str:
        """Why the log does not tell a parameter. ``sides``: of its fit, that its profile excludes."""
        name, records = quantity.name, self.problem.records
        if name in SCALES:
            return SCALED[name]
        if name in BALANCE:
            return f"only {BALANCE[name]} shows"
        if name.startswith("drag") and not all(record.has_pose for record in records):
            return "the log has no velocity"
        if name.startswith("accelerometer_bias") and any(record.force is None for record in records):
            return "the log has no accelerometer"
        if self.hidden(quantity):
            return ("commands were logged more slowly than the loop that makes them: part of their differences never "
                    "acted")
        if name.startswith("gyro_bias"):
            if any(record.rest_rates is not None for record in records):
                return "as the gyro said while the robot rested, which is its prior here; the flight tells no more"
            if not all(record.has_pose for record in records):
                return "the log has no attitude, and the robot did not rest"
        return f"{BOUNDED[sides]}: too little of the flight depends on it"


PITCH, ROLL = "gain_pitch - centre_x / arm", "gain_roll - centre_y / arm"
BALANCE = {"centre_x": PITCH, "gain_pitch": PITCH, "centre_y": ROLL, "gain_roll": ROLL}
SCALED: Mapping[str, str] = {
    "mass": "motion shows ratios to mass alone; weigh the robot: --known mass=KG,SD",
    "arm": "torque to inertia is what acts; measure it: --known arm=M,SD",
    "torque_per_thrust": "torque to inertia about z is what acts"}


def identify(records: Sequence[FlightRecord], robot: RobotSpec, settings: Settings = USUAL, *,
             slow_commands: bool = False) -> Identified:
    """Parameters of ``robot`` from its flights.

    Args:
        slow_commands: commands were logged more slowly than the robot's attitude loop makes them.
    """
    check(records, settings.shortest_s)
    one_step(records, "identify them one by one")
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
    sampled = draws(problem, found, around, settings.steps, settings.seed) if settings.steps else None
    return Identified(robot.name, problem, found, around, profile(problem, found, around), sampled, slow_commands)
