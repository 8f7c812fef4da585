"""Predictive intervals: what a simulator that knows how uncertain it is says of a flight, and how often it is right.

Each of D draws flies every stretch with parameters of the posterior, one member of the residual ensemble, a start state
that is as wrong as sensors are, and accelerations that nobody explains. These are Ornstein-Uhlenbeck processes in body
axes, of a size for each axis and one time constant for turning and one for pushing. Sizes and time constants are those
with which the simulator's spread grows along a stretch as its errors do on flights that were fitted (of residual
dynamics: on blocks that were held out): first turning, by body rates, then pushing, by what of velocity's errors wrong
attitudes do not explain. Sensors are as wrong as errors are after one step, over the root of 2; attitude for as long as
its errors show (a delay of motion capture behind the gyro lasts as long as what turns the robot).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.signal import lfilter

from temporeal.robots import frames
from temporeal.sim.identification.record import FlightRecord, Numbers
from temporeal.sim.identification.residuals import turned
from temporeal.sim.identification.shooting import POSITION, QUAT, RATES, VELOCITY, Flown
from temporeal.sim.identification.validation import flying
from temporeal.sim.identification.validation.stretches import Stretches, errors, taken
from temporeal.sim.physics.quadrotor.residual.ensemble import Ensemble

DRAWS, COVERED = 100, 0.9
TIMES_S = (0.03, 0.1, 0.3, 1.0)
"""Time constants that are tried."""
UNIT_TURN, UNIT_PUSH, TRIED = 5.0, 1.0, 6
"""rad/s^2 and m/s^2 of which the spread is simulated, and draws of it."""
SAMPLES = 400_000
"""Of all draws together that are in memory at once."""
CHANNELS = ("rates", "velocity", "attitude", "position")


@dataclass(frozen=True)
class LeftOver:
    """What is not explained. sensors: [4, 3] standard deviations of body rates [rad/s], velocity [m/s], attitude [rad],
    position [m]; attitude_s: time constant of attitude's, the others' are white. turning: [3] rad/s^2, with time
    constant turning_s; pushing: [3] m/s^2, with pushing_s."""

    sensors: Numbers
    attitude_s: float
    turning: Numbers
    turning_s: float
    pushing: Numbers
    pushing_s: float

    def named(self) -> dict[str, dict[str, float]]:
        """As in a file."""
        def axes(values: Numbers) -> dict[str, float]:
            return dict(zip("xyz", map(float, values)))

        return {**{name: axes(each) for name, each in zip(CHANNELS, self.sensors)},
                "attitude": {**axes(self.sensors[2]), "seconds": self.attitude_s},
                "turning": {**axes(self.turning), "seconds": self.turning_s},
                "pushing": {**axes(self.pushing), "seconds": self.pushing_s}}


def of_names(what: Mapping[str, Mapping[str, float]]) -> LeftOver:
    """What :meth:`LeftOver.named` said."""
    axes = {name: np.array([each[axis] for axis in "xyz"]) for name, each in what.items()}
    return LeftOver(np.array([axes[name] for name in CHANNELS]), what["attitude"]["seconds"], axes["turning"],
                    what["turning"]["seconds"], axes["pushing"], what["pushing"]["seconds"])


def left_over(how: Flown, reference_v: float, where: Sequence[Stretches], ensemble: Ensemble | None = None,
              seed: int = 0) -> LeftOver:
    """What one parameter vector, with residual dynamics or without, leaves over on stretches of one length."""
    where = [each for each in where if len(each.begin)]
    if not where:
        raise ValueError("no stretch of flight from which could be told what is left over")
    size = np.concatenate([apart(flown(how, reference_v, each, ensemble)[0], each.measured()[:, 1:], each)
                           for each in where])
    size = np.nanmean(size**2, 0)  # [L, 4, 3]
    sensors = np.sqrt(np.nan_to_num(size[0]) / 2)
    ticks = np.unique(np.geomspace(1, len(size), 8).astype(int)) - 1
    rng = np.random.default_rng(seed)
    best = []
    for turning_s in TIMES_S:
        spread = spreads(how, reference_v, where, ensemble, turning_s, slice(3, 6), UNIT_TURN, rng)
        best.append((*grown(size[ticks, 0] - 2 * sensors[0]**2, spread[ticks, 0], size[ticks, 0]), turning_s, spread))
    _, turns, turning_s, spread = min(best, key=lambda each: each[0])
    slow = [(*grown((size[:, 2] - spread[:, 2] * turns)[ticks], 2 * correlated(where[0], seconds)[ticks],
                    size[ticks, 2]), seconds) for seconds in TIMES_S]
    _, tilts, attitude_s = min(slow, key=lambda each: each[0])
    sensors[2] = np.maximum(np.sqrt(tilts), sensors[2])
    wrong = spread[:, 1] * turns.mean()  # of velocity, by attitudes that turning made wrong
    pushed = []
    for pushing_s in TIMES_S:
        other = spreads(how, reference_v, where, ensemble, pushing_s, slice(0, 3), UNIT_PUSH, rng)
        pushed.append((*grown((size[:, 1] - 2 * sensors[1]**2 - wrong)[ticks], other[ticks, 1], size[ticks, 1]),
                       pushing_s))
    _, pushes, pushing_s = min(pushed, key=lambda each: each[0])
    return LeftOver(sensors, attitude_s, UNIT_TURN * np.sqrt(turns), turning_s, UNIT_PUSH * np.sqrt(pushes), pushing_s)


def correlated(where: Stretches, seconds: float) -> Numbers:
    """[L, 3] half the variance of the difference between a process of variance 1 and its start."""
    times = where.dt * np.arange(1, where.steps + 1)
    return np.repeat(1 - np.exp(-times / seconds)[:, None], 3, 1)


def grown(wanted: Numbers, spread: Numbers, scale: Numbers) -> tuple[float, Numbers]:
    """How far ``spread`` [K, 3] times factors is from ``wanted`` [K, 3], relative to ``scale``; and the factors [3]."""
    found = [nnls((spread[1:, k] / scale[1:, k])[:, None], np.maximum(wanted[1:, k] / scale[1:, k], 0.0))
             for k in range(3)]
    return float(sum(left**2 for _, left in found)), np.array([factor[0] for factor, _ in found])


def flown(how: Flown, reference_v: float, where: Stretches, ensemble: Ensemble | None, push: Numbers | None = None
          ) -> Numbers:
    """[D, S, L, 16] with each push [D, T, 6], or with none."""
    count = 1 if push is None else len(push)
    many = Flown(*(np.repeat(getattr(how, name), count, 0) for name in (
        "params", "delay", "exponent", "loss", "rate_bias", "share")))
    out = flying.flown(many, where.record, where.begin, reference_v, flying.Beyond(ensemble, push=push))[0]
    out[..., RATES] += how.rate_bias[:1, None]
    return taken(out, where)


def apart(said: Numbers, other: Numbers, where: Stretches) -> Numbers:
    """[..., S, L, 4, 3] from what is ``said`` to ``other``, [..., S, L, 16] each, in body axes (velocity and position:
    of the start)."""
    start = np.broadcast_to(where.measured()[:, :1, QUAT], (*said.shape[:-1], 4))
    return np.stack([other[..., RATES] - said[..., RATES],
                     frames.rotate_inverse(start, other[..., VELOCITY] - said[..., VELOCITY]),
                     turned(said[..., QUAT], other[..., QUAT]),
                     frames.rotate_inverse(start, other[..., POSITION] - said[..., POSITION])], -2)


def spreads(how: Flown, reference_v: float, where: Sequence[Stretches], ensemble: Ensemble | None, seconds: float,
            which: slice, unit: float, rng: np.random.Generator) -> Numbers:
    """[L, 4, 3] variances by accelerations of the size ``unit`` in the axes ``which``."""
    found = []
    for each in where:
        push = np.zeros((TRIED, len(each.record.command), 6))
        push[..., which] = unit * wandering(each.record, seconds, TRIED, rng)
        plain = np.broadcast_to(flown(how, reference_v, each, ensemble), (TRIED, len(each.begin), each.steps, 16))
        found.append((apart(plain, flown(how, reference_v, each, ensemble, push), each) ** 2).mean(0))
    return np.asarray(np.concatenate(found).mean(0))


def wandering(record: FlightRecord, seconds: float, count: int, rng: np.random.Generator) -> Numbers:
    """[D, T, 3] Ornstein-Uhlenbeck processes of variance 1."""
    keep = np.exp(-record.step / seconds)
    shocks = np.sqrt(1 - keep**2) * rng.standard_normal((count, len(record.command), 3))
    shocks[:, 0] /= np.sqrt(1 - keep**2)
    return np.asarray(lfilter([1.0], [1.0, -keep], shocks, axis=1))


def states(left: LeftOver, where: Stretches, count: int, tilt: Numbers, rng: np.random.Generator) -> Numbers:
    """[D, T, 13] measured states of which those at the starts are as wrong as sensors may be, ``tilt`` [D, T, 3] rad
    of them the attitude."""
    state = np.repeat(where.record.state()[None], count, 0)
    at, size = where.begin, (count, len(where.begin), 3)
    rates, velocity, _, position = (sd * rng.standard_normal(size) for sd in left.sensors)
    state[:, at, 3:7] = frames.multiply(state[:, at, 3:7], frames.from_rotation_vector(-tilt[:, at]))
    state[:, at, :3] += frames.rotate(state[:, at, 3:7], position)
    state[:, at, 7:10] += frames.rotate(state[:, at, 3:7], velocity)
    state[:, at, 10:13] += rates
    return state


def drawn(fly: Callable[[int, np.random.Generator], Flown], reference_v: float, where: Stretches, left: LeftOver,
          rng: np.random.Generator, ensemble: Ensemble | None = None, count: int = DRAWS) -> Numbers:
    """[D, S, L, 16] what sensors may say. ``fly``: that many draws of parameters."""
    most = max(SAMPLES // len(where.record.command), 1)
    return np.concatenate([some_drawn(fly(min(most, count - done), rng), reference_v, where, left, rng, ensemble)
                           for done in range(0, count, most)])


def some_drawn(how: Flown, reference_v: float, where: Stretches, left: LeftOver, rng: np.random.Generator,
               ensemble: Ensemble | None) -> Numbers:
    """As many draws as there are vectors in ``how``."""
    count, shares, record = len(how.params), None, where.record
    if ensemble is not None:
        shares = np.eye(ensemble.members)[rng.integers(0, ensemble.members, count)]
    push = np.concatenate([left.pushing * wandering(record, left.pushing_s, count, rng),
                           left.turning * wandering(record, left.turning_s, count, rng)], -1)
    tilt = left.sensors[2] * wandering(record, left.attitude_s, count, rng)
    out = flying.flown(how, record, where.begin, reference_v, flying.Beyond(
        ensemble, shares, push, states(left, where, count, tilt, rng)))[0]
    out[..., RATES] += how.rate_bias[:, None]
    found = taken(out, where)
    rates, velocity, _, position = (sd * rng.standard_normal((*found.shape[:3], 3)) for sd in left.sensors)
    found[..., RATES] += rates
    found[..., VELOCITY] += frames.rotate(found[..., QUAT], velocity)
    found[..., POSITION] += frames.rotate(found[..., QUAT], position)
    found[..., QUAT] = frames.multiply(found[..., QUAT], frames.from_rotation_vector(taken(tilt, where)))
    return found


def coverage(draws: Numbers, where: Stretches) -> dict[str, Numbers]:
    """[S, L] share of three components that lie within the central 90 % of draws [D, S, L, 16], of each channel."""
    measured = np.broadcast_to(where.measured()[None, :, 1:], draws.shape)
    out = {}
    for name, error in errors(draws, measured).items():
        if name != "force":
            low, high = np.quantile(error, [0.5 - COVERED / 2, 0.5 + COVERED / 2], axis=0)
            out[name] = np.asarray(((low <= 0) & (high >= 0)).mean(-1))
    return out
