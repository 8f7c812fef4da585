"""From a robot's true state to what its sensors report: noise and latency."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from temporeal.robots.frames import from_rotation_vector, multiply
from temporeal.robots.spec import RobotSpec

Signals = Mapping[str, np.ndarray]


def measured(
    robot: RobotSpec, true: Signals, noise: Mapping[str, float], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """The true signals with normal noise: ``noise`` is the standard deviation by signal, in its unit (of orientations:
    rad about each axis). All signals draw, so that one signal's noise does not depend on another's."""
    sizes = {name: 3 if spec.unit == "wxyz" else spec.size for name, spec in robot.signals.items()}
    drawn, first, out = rng.standard_normal(sum(sizes.values())), 0, {}
    for name, spec in robot.signals.items():
        value, std = np.asarray(true[name], dtype=float), float(noise.get(name, 0.0))
        error, first = std * drawn[first : first + sizes[name]], first + sizes[name]
        if std:
            turned = spec.unit == "wxyz"
            value = multiply(value, from_rotation_vector(error)) if turned else value + error.reshape(value.shape)
        out[name] = value
    return with_height(out)


def with_height(signals: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The height of a flying robot is its position's z: one measurement, not two."""
    return {**signals, "height": signals["base_pos_w"][2]} if "height" in signals else signals


class DelayLine:
    """States on their way from the sensors. ``latency_s``: how old they are when they are published."""

    def __init__(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self.states: deque[tuple[float, Signals]] = deque()

    def restart(self, true: Signals | None = None) -> None:
        """A new flight; ``true``: the state that it was held in before time 0 (None: it is held still)."""
        self.states = deque() if true is None else deque([(-self.latency_s, true)])

    def push(self, time: float, true: Signals) -> Signals:
        """The state that is published at ``time`` [s], when the true one is ``true``."""
        self.states.append((time, true))
        while len(self.states) > 1 and self.states[1][0] <= time - self.latency_s + 1e-9:
            self.states.popleft()
        return self.states[0][1]
