"""What of an identification the log tells, what it cannot tell, and why, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from temporeal.sim.identification.identify import Identified
from temporeal.sim.identification.parameters import SCALES, Quantity
from temporeal.sim.identification.uncertainty import SHRUNK

IDENTIFIED, PRIOR, GIVEN = "identified", "not identifiable", "given"
FAR = 3.0
"""Standard deviations of its prior by which a parameter lies beyond what published sources say."""


@dataclass(frozen=True)
class Verdict:
    """Of one parameter.

    Args:
        value, low, high: in its unit, with 90 % between the last two. prior: its 90 %. shrink: posterior's standard
            deviation over the prior's, of what is fitted. status: :data:`IDENTIFIED`, :data:`PRIOR` or :data:`GIVEN`.
        why: in words, where the log does not tell it, or what it tells is odd.
    """

    quantity: Quantity
    value: float
    low: float
    high: float
    prior: tuple[float, float]
    shrink: float
    status: str
    why: str


def verdicts(found: Identified) -> list[Verdict]:
    """Of all parameters, in their order. What is not identifiable keeps its prior's middle and interval."""
    out = []
    for k, (quantity, sides) in enumerate(zip(found.asked, found.profile.sides())):
        mean, sd = float(found.posterior.theta[k]), float(found.posterior.sd[k])
        shrink = 1.0 if hidden(found, quantity) else float(found.posterior.shrink[k])
        flat = shrink > SHRUNK
        prior = quantity.interval(quantity.mean, quantity.sd)
        status = GIVEN if quantity.given and flat else PRIOR if flat else IDENTIFIED
        if flat:
            value, (low, high) = float(quantity.value(quantity.mean)), prior
            why = reason(found, quantity, sides)
        else:
            value, (low, high) = float(quantity.value(mean)), quantity.interval(mean, sd)
            away = (mean - quantity.mean) / quantity.sd
            why = f"{abs(away):.1f} standard deviations of its prior away from it: {BEYOND}" if abs(away) > FAR else ""
        out.append(Verdict(quantity, value, low, high, prior, shrink, status, why))
    return out


def hidden(found: Identified, quantity: Quantity) -> bool:
    """Whether a parameter cannot be told whatever the fit says: with commands that were logged slowly the turning is
    explained by a share that stands for what was not logged, and what is left over would land on the inertia."""
    return found.slow_commands and quantity.name.startswith(("torque_to_inertia", "command_share"))


BEYOND = "no published source says so; is it the robot that it is said to be, and what does the model leave out?"
BALANCE = {"centre_x": "gain_pitch", "gain_pitch": "centre_x", "centre_y": "gain_roll", "gain_roll": "centre_y"}


def reason(found: Identified, quantity: Quantity, sides: str) -> str:
    """Why the log does not tell a parameter."""
    name = quantity.name
    if quantity.given:
        return "as it was given; the log tells no more"
    if name in SCALES:
        return SCALED[name]
    if name in BALANCE:
        return f"acts as {BALANCE[name]} does: only their sum shows"
    if name.startswith("drag") and not all(record.has_pose for record in found.problem.records):
        return "the log has no velocity"
    if name.startswith("accelerometer_bias") and any(record.force is None for record in found.problem.records):
        return "the log has no accelerometer"
    if hidden(found, quantity):
        return "commands were logged more slowly than the loop that makes them: part of their differences never acted"
    if name.startswith("gyro_bias") and not all(record.has_pose for record in found.problem.records):
        return "the log has no attitude, and the robot did not rest"
    return ("the likelihood is flat over the prior's range" if sides == "none" else
            "the likelihood bounds it on one side only" if sides == "one" else
            "the likelihood bounds it less than the prior does") + ": too little of the flight depends on it"


SCALED: Mapping[str, str] = {
    "mass": "motion shows ratios to mass alone; weigh the robot: --known mass=KG,SD",
    "arm": "torque to inertia is what acts; measure it: --known arm=M,SD",
    "torque_per_thrust": "torque to inertia about z is what acts"}


def posterior_of(found: Identified) -> tuple[np.ndarray, np.ndarray]:
    """Means [Q] and covariance [Q, Q] of what is fitted, with the prior in place where the log does not tell.

    A parameter that is not identifiable keeps its correlation with what is; where its variance would exceed the
    prior's, it is scaled back. One that is hidden is as its prior, and independent.
    """
    prior, sd = found.problem.prior
    mean, covariance = found.posterior.theta.copy(), found.posterior.covariance.copy()
    for k, quantity in enumerate(found.asked):
        scale = 0.0 if hidden(found, quantity) else 1.0 / max(float(found.posterior.shrink[k]), 1.0)
        covariance[k] *= scale
        covariance[:, k] *= scale
        if scale == 0.0:
            mean[k], covariance[k, k] = prior[k], sd[k] ** 2
    return mean, covariance
