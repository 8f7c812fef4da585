"""Where a fit of joints starts: least squares, every sample alike.

Far from the truth all that is left of a stretch is alike over time, and a noise model that may be slow explains it away
(a delay that is 15 ms off looks like a slow error, and gains of a quarter of the true ones then fit as well). With
white noise a wrong delay has nowhere to go.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from temporeal.sim.identification.fit import NUDGE
from temporeal.sim.identification.joints.mechanism import Terms
from temporeal.sim.identification.joints.problem import Problem
from temporeal.sim.identification.record import Numbers

DELAYS = (-1.6, -0.8, 0.0, 0.8, 1.6)
"""Of a prior's standard deviation from its middle: delays that are tried. Lag of servos and delay of commands look much
alike, and a fit that has one for the other does not find back."""
SHORT_S, FEWEST, FEW_STEPS = 8.0, 12, 4
"""Of the log, with this many stretches at least, and steps, with which each delay is tried."""
MOST_STEPS, SETTLED = 8, 0.2
"""Steps, at most; of a prior's standard deviation: a step that moves no parameter further is the last."""
LONGEST = 3.0
"""Of a prior's standard deviation: a step moves no parameter further."""


def start(problem: Problem) -> Numbers:
    """A vector [Q] to fit from: of a few delays each gets some steps on a part of the log, and the best all of it."""
    short, mean, sd = shortened(problem), *problem.prior
    late = [each.name for each in problem.asked].index("command_delay")
    tried = []
    for side in DELAYS:
        theta = mean.copy()
        theta[late] += side * sd[late]
        theta = descended(short, theta, FEW_STEPS)
        tried.append((float(np.log(left(short.residuals(theta[None])[0])).sum()), theta))
    return descended(problem, min(tried, key=lambda each: each[0])[1], MOST_STEPS)


def shortened(problem: Problem) -> Problem:
    """The first seconds of the first log."""
    record, along = problem.records[0], problem.along[0]
    count = min(len(record.place), int(round(SHORT_S / record.step)))
    few = replace(
        record, command=record.command[: count * record.each], place=record.place[:count], usable=record.usable[:count],
        speed=None if record.speed is None else record.speed[:count],
        effort=None if record.effort is None else record.effort[:count])
    begins = problem.begins[0][problem.begins[0] + problem.length <= count]
    if len(begins) < FEWEST:
        return problem
    of = Terms(along.inertia[:count], along.bias[:count], along.own[:count], along.heavier[:count])
    return replace(problem, records=(few,), along=(of,), begins=(begins,))


def descended(problem: Problem, theta: Numbers, steps: int) -> Numbers:
    """``steps`` at most, or until they are small."""
    _, sd = problem.prior
    for _ in range(steps):
        before, theta = theta, stepped(problem, theta)
        if np.abs((theta - before) / sd).max() < SETTLED:
            break
    return theta


def left(residual: Numbers) -> Numbers:
    """[C] root mean square of residuals [S, L, C]; infinite where they are no numbers."""
    size = np.sqrt((residual**2).mean((0, 1))) + 1e-12
    return np.asarray(np.where(np.isfinite(size), size, np.inf))


def stepped(problem: Problem, theta: Numbers) -> Numbers:
    """One step of Gauss and Newton from theta [Q], with slopes to one side; as much of it as is best."""
    mean, sd = problem.prior
    found = problem.residuals(np.concatenate([theta[None], theta + np.diag(NUDGE * sd)]))
    size = left(found[0])
    flat = (found / size).reshape(len(found), -1)
    slope = (flat[1:] - flat[0]) / NUDGE  # in standard deviations of the prior
    off = (theta - mean) / sd
    step = -np.linalg.solve(slope @ slope.T + np.eye(len(sd)), slope @ flat[0] + off)
    step *= min(1.0, LONGEST / float(np.abs(step).max() + 1e-12))
    tried = theta + np.outer(0.5 ** np.arange(5), step * sd)
    costs = ((problem.residuals(tried) / size) ** 2).sum((1, 2, 3)) + (((tried - mean) / sd) ** 2).sum(1)
    costs = np.where(np.isfinite(costs), costs, np.inf)
    best = int(np.argmin(costs))
    return np.asarray(tried[best] if costs[best] < (flat[0] ** 2).sum() + (off**2).sum() else theta)
