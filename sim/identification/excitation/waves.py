"""Signals that excite, as samples [T] on an even grid, each zero at both ends: chirps, multisines, doublets, sweeps.

Their rates of change are those of the samples: differences over the step, which is also how a guard judges commands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import pi

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

LEAST_HZ, MOST_HZ, MOST_STEPS = 5.0, 1000.0, 60_000
"""Commands a second; of an excitation: ten minutes at 100 Hz, whose golden trace has 7 MB."""
TAPER = 0.1
"""Share of a signal's time, at each end, in which it is faded in and out."""


class CannotExcite(ValueError):
    """An excitation that must not be made: the message names the value, the rule and what is legal."""


@dataclass(frozen=True)
class Limits:
    """The most that a signal may be, change per second, and change that rate per second."""

    amplitude: float = np.inf
    rate: float = np.inf
    acceleration: float = np.inf

    def at(self, hz: Numbers) -> Numbers:
        """The amplitude of a sine of each frequency [T] that keeps all three."""
        omega = 2 * pi * hz
        return np.minimum(np.minimum(self.amplitude, self.rate / omega), self.acceleration / omega**2)


def check_steps(seconds: float, rate_hz: float) -> None:
    """Refuse what is no rate of commands, or more of them than an artifact should hold."""
    if not LEAST_HZ <= rate_hz <= MOST_HZ:
        raise CannotExcite(f"rate_hz={rate_hz:g}: {LEAST_HZ:g} to {MOST_HZ:g} commands a second are legal")
    if not 0 < seconds * rate_hz <= MOST_STEPS:
        raise CannotExcite(f"seconds={seconds:g}: {rate_hz:g} commands a second are at most {MOST_STEPS} commands, so "
                           f"above 0 and at most {MOST_STEPS / rate_hz:g} s are legal")


def check_band(low_hz: float, high_hz: float, rate_hz: float, what: str = "") -> None:
    """Refuse frequencies that a control rate cannot make."""
    if not 0 < low_hz <= high_hz:
        raise CannotExcite(f"{what}low_hz={low_hz:g} and {what}high_hz={high_hz:g}: 0 < low <= high is needed")
    if high_hz >= 0.5 * rate_hz:
        raise CannotExcite(f"{what}high_hz={high_hz:g}: commands at {rate_hz:g} Hz make frequencies below half of "
                           f"that, {0.5 * rate_hz:g} Hz")


def faded(count: int) -> Numbers:
    """[count] from 0 to 1 and back, smooth."""
    at = np.minimum(np.arange(count), np.arange(count)[::-1]) / max(TAPER * (count - 1), 1.0)
    return np.asarray(np.sin(0.5 * pi * np.minimum(at, 1.0)) ** 2)


def chirp(count: int, dt: float, low_hz: float, high_hz: float, most: Callable[[Numbers], Numbers]) -> Numbers:
    """A sine whose frequency rises evenly per octave, of the amplitude ``most(frequency)``."""
    share = np.arange(count) / max(count - 1, 1)
    hz = low_hz * (high_hz / low_hz) ** share
    phase = 2 * pi * np.concatenate([[0.0], np.cumsum(0.5 * (hz[1:] + hz[:-1]))]) * dt
    return np.asarray(most(hz) * faded(count) * np.sin(phase))


def multisine(count: int, dt: float, lines_hz: Numbers, share: Callable[[Numbers], Numbers]) -> Numbers:
    """Sines of all of ``lines_hz`` at once, of relative amplitudes ``share(frequency)``, with Schroeder's phases, which
    keep the peak low (IEEE Trans. Information Theory 16(1), 1970). Its peak is 1."""
    hz, amplitude = lines_hz, share(lines_hz)
    below = np.cumsum(amplitude**2) / (amplitude**2).sum()
    phase = -2 * pi * np.concatenate([[0.0], np.cumsum(below)[:-1]])
    times = np.arange(count)[:, None] * dt
    out = (amplitude * np.sin(2 * pi * hz * times + phase)).sum(1) * faded(count)
    return np.asarray(out / np.abs(out).max())


def doublet(count: int, edge: int) -> Numbers:
    """Half of the middle +1, half -1, with edges of ``edge`` samples; a quarter at rest before and after."""
    corners = np.array([0.25, 0.5, 0.75]) * count
    steps = [smooth((np.arange(count) - c) / max(edge, 1) + 0.5) for c in corners]
    return np.asarray(steps[0] - 2 * steps[1] + steps[2])


def smooth(share: Numbers) -> Numbers:
    """From 0 to 1 while ``share`` does, with the least jerk (Flash and Hogan, J. Neuroscience 5(7), 1985)."""
    s = np.clip(share, 0.0, 1.0)
    return np.asarray(s**3 * (10 - 15 * s + 6 * s**2))


def sweep(dt: float, reach: float, speed: float, acceleration: float) -> Numbers:
    """From 0 to ``reach``, to -reach and back to 0, each way at the constant ``speed`` but for its two ends."""
    stops = np.array([0.0, reach, -reach, 0.0])
    return np.concatenate([a + way(dt, b - a, speed, acceleration) for a, b in zip(stops[:-1], stops[1:])])


def way(dt: float, length: float, speed: float, acceleration: float) -> Numbers:
    """From rest at 0 to rest at ``length``, at most at ``speed``: [T], the last sample is there."""
    far = abs(length)
    top = min(speed, (acceleration * far) ** 0.5)
    build = top / acceleration
    whole = far / top + build
    count = int(np.ceil(whole / dt)) + 1
    t = np.minimum(np.arange(1, count + 1) * dt, whole)
    out = np.where(t < build, 0.5 * acceleration * t**2, top * (t - 0.5 * build))
    out = np.where(t > whole - build, far - 0.5 * acceleration * (whole - t) ** 2, out)
    return np.asarray(np.sign(length) * out)


def shrunk(values: Numbers, dt: float, limits: Limits) -> Numbers:
    """``values`` [T], made smaller as a whole where they pass a limit."""
    most = np.array(peaks(values, dt))
    allowed = np.array([limits.amplitude, limits.rate, limits.acceleration])
    return np.asarray(values * min(1.0, float((allowed / np.maximum(most, 1e-12)).min())))


def peaks(values: Numbers, dt: float) -> tuple[float, float, float]:
    """Largest absolute value, rate and acceleration of samples [T] that come from rest at 0 and go there."""
    padded = np.concatenate([[0.0, 0.0], values, [0.0, 0.0]])
    return (float(np.abs(values).max(initial=0.0)), float(np.abs(np.diff(padded)).max() / dt),
            float(np.abs(np.diff(padded, 2)).max() / dt**2))


def derivative(values: Numbers, dt: float) -> Numbers:
    """Central differences of [T, ...] over time."""
    return np.asarray(np.gradient(values, dt, axis=0))
