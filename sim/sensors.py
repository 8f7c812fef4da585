"""Sensor model: noise, bias and latency between the true signals and what the policy is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sim.random import normal, stream, uniform


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
    """Measures the true signals of N worlds. Every draw is keyed by (seed, world, episode, stream, step)."""

    def __init__(self, config: SensorConfig, names: tuple[str, ...], num_worlds: int, seed: int,
                 device: torch.device | str) -> None:
        self.config, self.names, self.seed, self.device = config, names, seed, device
        self.worlds = torch.arange(num_worlds, device=device)
        self.delay = torch.zeros(num_worlds, dtype=torch.int64, device=device)
        self.bias: dict[str, Tensor] = {}
        self.ring: list[dict[str, Tensor]] = []

    def size(self, name: str, value: Tensor) -> int:
        """Number of random numbers that one sample of a signal takes."""
        return 3 if name.endswith("quat_w") else int(value[0].numel())

    def reset(self, ids: Tensor, episode: Tensor, truth: Mapping[str, Tensor]) -> None:
        """New bias and delay for the worlds ``ids`` [K] (``episode`` [K]); their past is the sample ``truth`` [N]."""
        for name in self.names:
            std = self.config.bias.get(name, 0.0)
            if not std:
                continue
            draw = normal(self.seed, ids, episode, stream(f"bias.{name}"), self.size(name, truth[name]))
            if name not in self.bias:
                self.bias[name] = torch.zeros(len(self.worlds), draw.shape[1], device=self.device)
            self.bias[name][ids] = std * draw
        if self.config.delay_steps:
            draw = uniform(self.seed, ids, episode, stream("sensor.delay"), 1)[:, 0]
            self.delay[ids] = (draw * (self.config.delay_steps + 1)).long()
            if not self.ring:
                self.ring = [{n: truth[n].clone() for n in self.names} for _ in range(self.config.delay_steps + 1)]
            for past in self.ring:
                for name in self.names:
                    past[name][ids] = truth[name][ids]

    def push(self, truth: Mapping[str, Tensor]) -> None:
        """Enter the newest true sample [N, ...] into the delay line."""
        if self.config.delay_steps:
            self.ring = [{n: truth[n].clone() for n in self.names}, *self.ring[:-1]]

    def measure(
        self, truth: Mapping[str, Tensor], episode: Tensor, step: Tensor, ids: Tensor | None = None
    ) -> dict[str, Tensor]:
        """What is measured of the worlds ``ids`` (all by default): [K, ...] each; ``truth`` is [N, ...]."""
        rows = self.worlds if ids is None else ids
        out = {}
        for name in self.names:
            value = truth[name] if ids is None else truth[name][ids]
            for age in range(1, self.config.delay_steps + 1):
                late = self.delay[rows] == age
                past = self.ring[age][name] if ids is None else self.ring[age][name][ids]
                value = torch.where(late.reshape(-1, *[1] * (value.dim() - 1)), past, value)
            std, bias = self.config.noise.get(name, 0.0), self.bias.get(name)
            if std or bias is not None:
                count = self.size(name, truth[name])
                delta = torch.zeros(len(rows), count, device=self.device)
                if std:
                    key = stream(f"noise.{name}")
                    delta = std * normal(self.seed, rows, episode[rows], key, count, step=step[rows])
                if bias is not None:
                    delta = delta + bias[rows]
                value = perturb(name, value, delta)
            out[name] = value
        return out

    def state_dict(self) -> dict[str, Any]:
        """Delay, bias and delay line."""
        ring = [{k: v.clone() for k, v in past.items()} for past in self.ring]
        return {"delay": self.delay.clone(), "bias": {k: v.clone() for k, v in self.bias.items()}, "ring": ring}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.delay = state["delay"].clone()
        self.bias = {k: v.clone() for k, v in state["bias"].items()}
        self.ring = [{k: v.clone() for k, v in past.items()} for past in state["ring"]]
