"""Sensor model: noise, bias and latency between the true signals and what the policy is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sim.random import normal, stream, uniform

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class SensorConfig:
    """Standard deviations in each signal's own unit; attitude (``*_quat_w``) in rad of a small rotation.

    ``noise``: white, per sample. ``bias``: constant over an episode. ``delay_steps``: the largest age of a sample
    in control steps; each episode draws its own from 0..delay_steps.
    """

    noise: Mapping[str, float] = field(default_factory=dict)
    bias: Mapping[str, float] = field(default_factory=dict)
    delay_steps: int = 0

    @staticmethod
    def parse(raw: Mapping[str, Any] | None, known: tuple[str, ...]) -> SensorConfig:
        """From configuration; an unknown signal or key is an error that lists the legal ones."""
        raw = dict(raw or {})
        unknown = set(raw) - {"noise", "bias", "delay_steps"}
        if unknown:
            raise ValueError(f"sensors: unknown keys {sorted(unknown)}; legal: noise, bias, delay_steps")
        for group in ("noise", "bias"):
            for name, std in dict(raw.get(group) or {}).items():
                if name not in known:
                    raise ValueError(f"sensors.{group}: unknown signal {name!r}; legal: {', '.join(known)}")
                if not float(std) >= 0:
                    raise ValueError(f"sensors.{group}.{name}: a standard deviation is >= 0, got {std}")
        delay = raw.get("delay_steps", 0)
        if not isinstance(delay, int) or isinstance(delay, bool):
            raise ValueError(f"sensors.delay_steps is a whole number of control steps, got {delay!r}")
        if delay < 0:
            raise ValueError(f"sensors.delay_steps is >= 0, got {delay}")
        return SensorConfig(dict(raw.get("noise") or {}), dict(raw.get("bias") or {}), delay)


def perturb(name: str, value: Tensor, delta: Tensor) -> Tensor:
    """``value`` [N, ...] plus ``delta``; a quaternion is turned by the small rotation ``delta`` [N, 3] instead."""
    if not name.endswith("quat_w"):
        return value + delta.reshape(value.shape)
    w, x, y, z = value.unbind(-1)
    a, b, c = (0.5 * delta).unbind(-1)  # first order: (1, delta / 2), renormalized
    turned = torch.stack((w - x * a - y * b - z * c, x + w * a + y * c - z * b,
                          y + w * b + z * a - x * c, z + w * c + x * b - y * a), -1)
    return turned / turned.norm(dim=-1, keepdim=True)


class Sensors:
    """What is measured of the signals in ``shapes``, world by world.

    A value without state: what it remembers and draws are entries of the caller's rows, by the names in ``past``
    (true samples of earlier steps), ``drawn`` (once per episode) and ``noise`` (per sample). Every draw is keyed by
    (seed, world, episode, stream, step).
    """

    def __init__(self, config: SensorConfig, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.config, self.shapes = config, dict(shapes)
        sizes = {n: (3 if n.endswith("quat_w") else max(1, *s, 1)) for n, s in shapes.items()}
        self.ages = range(1, config.delay_steps + 1)
        self.past: Shapes = {f"past.{age}.{n}": s for age in self.ages for n, s in shapes.items()}
        self.noise: Shapes = {f"noise.{n}": (sizes[n],) for n in shapes if config.noise.get(n)}
        self.drawn: Shapes = {f"bias.{n}": (sizes[n],) for n in shapes if config.bias.get(n)}
        if self.ages:
            self.drawn["delay"] = ()

    def draw_episode(self, seed: int, worlds: Tensor, episode: Tensor) -> dict[str, Tensor]:
        """Bias and delay [K, ...] of the worlds [K] in their episodes [K]."""
        out = {}
        for name, shape in self.drawn.items():
            if name == "delay":
                draw = uniform(seed, worlds, episode, stream("sensor.delay"), 1)[:, 0]
                out[name] = torch.floor(draw * (self.config.delay_steps + 1))
            else:
                std = self.config.bias[name.removeprefix("bias.")]
                out[name] = std * normal(seed, worlds, episode, stream(name), *shape)
        return out

    def draw_noise(
        self, seed: int, worlds: Tensor, episode: Tensor, step: Tensor, out: Mapping[str, Tensor]
    ) -> None:
        """Fill ``out[name]`` [K, c] with the standard normal numbers of the sample ``step`` [K]."""
        for name, shape in self.noise.items():
            normal(seed, worlds, episode, stream(name), *shape, step=step, out=out[name])

    def measure(self, truth: Mapping[str, Tensor], rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is measured of the true signals: [N, ...] each."""
        out = {}
        for name in self.shapes:
            value = truth[name]
            for age in self.ages:
                late = (rows["delay"] == age).reshape(-1, *[1] * (value.dim() - 1))
                value = torch.where(late, rows[f"past.{age}.{name}"], value)
            noise, bias = rows.get(f"noise.{name}"), rows.get(f"bias.{name}")
            parts = [] if noise is None else [self.config.noise[name] * noise]
            parts += [] if bias is None else [bias]
            out[name] = perturb(name, value, sum(parts[1:], parts[0])) if parts else value
        return out

    def remember(
        self, truth: Mapping[str, Tensor], rows: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """The earlier samples as of the next step; without ``rows``, as of the start: all like the first."""
        out = {}
        for name in self.past:
            age, signal = name.split(".", 2)[1:]
            older = rows is not None and age != "1"
            out[name] = rows[f"past.{int(age) - 1}.{signal}"] if rows is not None and older else truth[signal]
        return out
