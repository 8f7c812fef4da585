"""What nobody knows of when commands came, and which joints it makes doubtful.

A setpoint that came at another time than the log says moves place, speed and effort by as much as the joint does in
that time. Where this is much of what residuals scatter, a fit takes it for the joint's own: errors in what drives a
model bias it as errors in a regressor do, mostly to gains that are too low and inertia that is too high, and intervals
that residuals make do not say so. Such joints' forces are left open: as wide as their priors, and not identifiable.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from temporeal.sim.identification.joints import parameters, stepping
from temporeal.sim.identification.joints.problem import Problem
from temporeal.sim.identification.joints.record import JointRecord
from temporeal.sim.identification.record import Marks, Numbers
from temporeal.sim.identification.uncertainty import Laplace

MUCH = 0.5
"""Of the standard deviation of a channel's residuals: a quarter of their variance."""
STIFF_S, LESS = 0.045, 0.25
"""Time constant (viscous / kp) of servos that feel the time of each setpoint, and what is much of theirs. By trial: of
a simulated Franka's seven joints (12 to 50 ms, 0.29 to 0.80 of residuals) armature or ``kp`` were found up to five
times too high or three times too low; of a slower arm (49 and 65 ms, 0.37 and 0.40) within 9 %."""
OF_FORCES = ("armature", "viscous", "kd_share", "frictionloss", "stribeck", "kp")
SHARED = "tool_mass"


def jitter(command: Numbers, dt: float) -> float:
    """Standard deviation [s] of the times of commands [T, J], as held in steps of ``dt`` s: of how long they hold, by
    the square root of 2, and at least what steps round away. Pauses of half a period more or less do not count."""
    changed = np.flatnonzero((np.diff(command, axis=0) != 0).any(1))
    holds = np.diff(changed) * dt
    if len(holds) < 3:
        return 0.0
    usual = holds[np.abs(holds / np.median(holds) - 1) < 0.5]
    return float(max(usual.std() / np.sqrt(2), dt / np.sqrt(12)))


def shares(problem: Problem, theta: Numbers) -> Numbers:
    """[J] of the residuals' scatter at theta [Q] that times of commands may explain, at most over channels."""
    kp = parameters.stepped(problem.mechanism, problem.asked, theta[None])[0, :, stepping.KP]
    moved = np.sqrt(np.mean([shaken(record, kp) ** 2 for record in problem.records], axis=0))
    moved = moved[np.array(problem.signals)]
    residual = problem.residuals(theta[None])[0]
    scatter = residual.std((0, 1)).reshape(len(problem.signals), -1)
    return np.asarray((moved / (scatter + 1e-12)).max(0))


def shaken(record: JointRecord, kp: Numbers) -> Numbers:
    """[3, J] by which place, speed and effort of servos of gains ``kp`` [J] move in the time that is not known."""
    speed, faster = (np.sqrt((record.smooth(order)[record.usable] ** 2).mean(0)) for order in (1, 2))
    return record.jitter * np.stack([speed, faster, kp * speed])


def doubted(problem: Problem, theta: Numbers) -> Marks:
    """[Q] parameters that rest on when commands came, of a fit that ended at theta [Q]."""
    servo = parameters.stepped(problem.mechanism, problem.asked, theta[None])[0]
    stiff = servo[:, stepping.DAMPING] + servo[:, stepping.KD] < STIFF_S * servo[:, stepping.KP]
    doubtful = shares(problem, theta) > np.where(stiff, LESS, MUCH)
    names = {name for name, doubt in zip(problem.mechanism.names, doubtful) if doubt}
    return np.array([any(each.name == f"{kind}[{name}]" for kind in OF_FORCES for name in names)
                     or (bool(names) and each.name == SHARED) for each in problem.asked])


def opened(around: Laplace, doubtful: Marks, sd: Numbers) -> Laplace:
    """``around`` with ``doubtful`` parameters [Q] as wide as their priors (``sd`` [Q]), correlations kept."""
    wider = np.where(doubtful, np.maximum(sd / around.sd, 1.0), 1.0)
    return replace(around, covariance=around.covariance * np.outer(wider, wider), widened=around.widened * wider,
                   shrink=np.where(doubtful, np.maximum(around.shrink, 1.0), around.shrink))
