"""Sensor model: errors, latency, rates and losses between the true signals and what the policy is given.

What is delivered of a sample, in this order:

1. *when*: the true sample as old as the latency of the signal's group (``delay_steps``, ``jitter_steps``);
2. *errors*: scale error, bias, drift and white noise, then quantization (``quantum``), then the sensor's ``range``;
3. *whether*: the last delivered measurement is held where the group's own rate has no sample (``rate_hz``), where the
   message is lost (``dropout``), where the same sample would be delivered again, and where the sensor is ``stuck``.

A function of one world's rows, by tensor operations only: the environment compiles it
(:mod:`temporeal.sim.compiler.vectorize`). What is off costs nothing. Delays are whole control steps here; delays of the
*command* are fractions of one, in the engine's own history (``command_delay``).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, prod, sqrt
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from temporeal.sim.compiler.keyed_random import normal, stream, uniform
from temporeal.sim.randomization.sensor_config import ATTITUDE, Drift, Group, Numbers, SensorConfig

Shapes = dict[str, tuple[int, ...]]
LEAST_CHANCE = 1e-9  # the generator's normal numbers end at 5.9 standard deviations; this is at 6.0
TICK = 1.0 - 1e-4  # of a period of a sensor's own rate, so that a sum of float32 thirds is one


def perturb(name: str, value: Tensor, delta: Tensor) -> Tensor:
    """``value`` [N, ...] plus ``delta``; a quaternion is turned by the small rotation ``delta`` [N, 3] instead."""
    if not name.endswith(ATTITUDE):
        return value + delta.reshape(value.shape)
    w, x, y, z = value.unbind(-1)
    a, b, c = (0.5 * delta).unbind(-1)  # first order: (1, delta / 2), renormalized
    turned = torch.stack((w - x * a - y * b - z * c, x + w * a + y * c - z * b,
                          y + w * b + z * a - x * c, z + w * c + x * b - y * a), -1)
    return turned / turned.norm(dim=-1, keepdim=True)


def threshold(chance: float) -> float:
    """The number below which a standard normal number lies with probability ``chance``."""
    return NormalDist().inv_cdf(min(max(chance, LEAST_CHANCE), 1 - LEAST_CHANCE))


Rows = Mapping[str, Tensor]


class Sensors:
    """What is measured of the signals in ``shapes``, world by world.

    A value without state: what it remembers and draws are entries of the caller's rows, by the names in ``past``
    (as of earlier samples), ``drawn`` (once per episode; a drift and a phase move on from there) and ``noise`` (per
    sample). Every draw is keyed by (seed, world, episode, stream, step).

    Args:
        dt: control period, s. Only drifts and rates need it.
    """

    def __init__(self, config: SensorConfig, shapes: Mapping[str, tuple[int, ...]], dt: float | None = None) -> None:
        self.config, self.shapes, self.dt = config, dict(shapes), dt
        self.sizes = {n: 3 if n.endswith(ATTITUDE) else prod(s) for n, s in shapes.items()}
        self.group = {s: (name, g) for name, g in config.groups.items() for s in g.signals if s in shapes}
        self.groups = dict(self.group.values())
        self.lone = [n for n in shapes if n not in self.group]
        self._check()
        self.past: Shapes = {}
        self.noise: Shapes = {f"noise.{n}": (self.sizes[n],) for n in shapes if config.noise.get(n)}
        self.drawn: Shapes = {f"bias.{n}": (self.sizes[n],) for n in shapes if config.bias.get(n)}
        self._lay_out()
        self._constants: dict[tuple[Numbers, torch.device], Any] = {}

    def _check(self) -> None:
        c = self.config
        for key in ("noise", "bias", "scale", "drift"):
            for name, value in getattr(c, key).items():
                numbers = value.std if isinstance(value, Drift) else value
                if isinstance(numbers, tuple) and name in self.sizes and len(numbers) != self.sizes[name]:
                    raise ValueError(f"sensors.{key}.{name} has {len(numbers)} numbers; legal: one, or "
                                     f"{self.sizes[name]}")
        rates = {name: g.rate_hz for name, g in self.groups.items() if g.rate_hz is not None}
        if self.dt is None and (rates or any(n in self.shapes for n in c.drift)):
            raise ValueError("sensors: drift and rate_hz need the control period dt [s]")
        for name, rate in rates.items():
            if self.dt is not None and rate * self.dt > 1 + 1e-6:
                raise ValueError(f"sensors.groups.{name}.rate_hz is {rate:g}; at most the control rate, "
                                 f"{1 / self.dt:g} Hz")

    def _lay_out(self) -> None:
        """The columns that are switched on."""
        c = self.config
        for age in range(1, max((self._oldest(n) for n in self.shapes), default=0) + 1):
            self.past |= {f"past.{age}.{n}": s for n, s in self.shapes.items() if age <= self._oldest(n)}
        if c.delay_steps and self.lone:
            self.drawn["delay"] = ()
        for name, g in self.groups.items():
            if g.delay_steps[1]:
                self.drawn[f"delay.{name}"] = ()
            if g.rate_hz is not None:
                self.drawn[f"phase.{name}"] = ()
            if g.jitter_steps:
                self.noise[f"jitter.{name}"] = self.past[f"age.{name}"] = ()
            if g.dropout:
                self.noise[f"loss.{name}"] = self.past[f"lost.{name}"] = ()
        for n, shape in self.shapes.items():
            if c.scale.get(n):
                self.drawn[f"scale.{n}"] = (self.sizes[n],)
            if n in c.drift:
                self.drawn[f"drift.{n}"] = self.noise[f"walk.{n}"] = (self.sizes[n],)
            if n in c.stuck:
                self.noise[f"stuck.{n}"] = self.past[f"frozen.{n}"] = ()
            if self._holds(n):
                self.past[f"hold.{n}"] = shape

    def _oldest(self, signal: str) -> int:
        """Greatest age of its samples, control steps."""
        if signal not in self.group:
            return self.config.delay_steps
        g = self.group[signal][1]
        return g.delay_steps[1] + g.jitter_steps

    def _holds(self, signal: str) -> bool:
        """Whether a measurement may be delivered again."""
        g = self.group[signal][1] if signal in self.group else None
        return signal in self.config.stuck or (
            g is not None and bool(g.jitter_steps or g.dropout or g.rate_hz is not None))

    # ---- draws

    def draw_episode(self, seed: int, worlds: Tensor, episode: Tensor) -> dict[str, Tensor]:
        """What is drawn once [K, ...] for the worlds [K] in their episodes [K]."""
        out = {}
        for name, shape in self.drawn.items():
            kind, _, of = name.partition(".")
            if kind in ("delay", "phase"):
                draw = uniform(seed, worlds, episode, stream(f"sensor.{name}"), 1)[:, 0]
                low, high = self.groups[of].delay_steps if of else (0, self.config.delay_steps)
                out[name] = draw if kind == "phase" else low + torch.floor(draw * (high - low + 1))
            elif kind == "drift" and self.config.drift[of].time_s is None:
                out[name] = torch.zeros(len(worlds), *shape, device=worlds.device)
            else:
                std = self.config.drift[of].std if kind == "drift" else getattr(self.config, kind)[of]
                out[name] = self._constant(std, worlds) * normal(seed, worlds, episode, stream(name), *shape)
        return out

    def draw_noise(
        self, seed: int, worlds: Tensor, episode: Tensor, step: Tensor, out: Mapping[str, Tensor]
    ) -> None:
        """Fill ``out[name]`` [K, c] with the standard normal numbers of the sample ``step`` [K]."""
        for name, shape in self.noise.items():
            if shape:
                normal(seed, worlds, episode, stream(name), *shape, step=step, out=out[name])
            else:
                out[name].copy_(normal(seed, worlds, episode, stream(name), 1, step=step)[:, 0])

    # ---- functions of a world's rows

    def first(self, truth: Rows, rows: Rows) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What is measured of the first true sample of an episode, [N, ...] each, and what is remembered of it.

        All earlier samples were like this one, and it is delivered.
        """
        like = next(iter(truth.values()))
        like = like.reshape(len(like), -1)[:, 0]
        measured = {n: self._with_errors(n, truth[n], rows, moved=False) for n in self.shapes}
        kept = {}
        for name in self.past:
            kind, of = name.split(".", 1)
            if kind == "past":
                kept[name] = truth[of.split(".", 1)[1]]
            elif kind == "hold":
                kept[name] = measured[of]
            else:
                kept[name] = self._delay(of, rows, like) if kind == "age" else torch.zeros_like(like)
        return measured, kept

    def sample(self, truth: Rows, rows: Rows) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What is measured at a later sample, and what is remembered (columns of ``past`` and ``drawn``) after it."""
        like = next(iter(truth.values()))
        like = like.reshape(len(like), -1)[:, 0]
        ages, fresh, kept = dict[str, Tensor](), dict[str, list[Tensor]](), dict[str, Tensor]()
        for name, g in self.groups.items():
            ages[name], fresh[name] = self._timing(name, g, rows, kept, like)
        measured = {}
        for n in self.shapes:
            name = self.group[n][0] if n in self.group else None
            value = self._aged(n, truth, rows, rows.get("delay") if name is None else ages[name])
            value = self._with_errors(n, value, rows, moved=True)
            now = list(fresh[name]) if name is not None else []
            if n in self.config.stuck:
                now.append(~self._freezes(n, rows, kept))
            measured[n] = self._delivered(n, value, now, rows)
            if n in self.config.drift:
                kept[f"drift.{n}"] = self._drift(n, rows)
            if self._holds(n):
                kept[f"hold.{n}"] = measured[n]
        for name in self.past:
            if name.startswith("past."):
                age, signal = name.split(".", 2)[1:]
                kept[name] = truth[signal] if age == "1" else rows[f"past.{int(age) - 1}.{signal}"]
        return measured, kept

    def _delay(self, name: str, rows: Rows, like: Tensor) -> Tensor:
        """The group's latency of this episode, [N] control steps."""
        drawn = rows.get(f"delay.{name}")
        return torch.zeros_like(like) if drawn is None else drawn

    def _timing(
        self, name: str, g: Group, rows: Rows, kept: dict[str, Tensor], like: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Age [N] of the group's samples now, and conditions [N] under which they are delivered."""
        age, fresh = self._delay(name, rows, like), []
        if g.jitter_steps:
            z, before = rows[f"jitter.{name}"], rows[f"age.{name}"]
            for i in range(1, g.jitter_steps + 1):
                age = age + (z > threshold(i / (g.jitter_steps + 1)))
            fresh.append(age < before + 1.0)  # else the sample of the step before, or an earlier one
            kept[f"age.{name}"] = age = torch.minimum(age, before + 1.0)
        if g.rate_hz is not None:
            assert self.dt is not None
            phase = rows[f"phase.{name}"] + g.rate_hz * self.dt
            due = phase >= TICK
            kept[f"phase.{name}"] = torch.where(due, phase - 1.0, phase)
            fresh.append(due)
        if g.dropout:
            lost = self._lost(g, rows[f"loss.{name}"], rows[f"lost.{name}"] > 0.5)
            kept[f"lost.{name}"] = lost.float()
            fresh.append(~lost)
        return age, fresh

    @staticmethod
    def _lost(g: Group, z: Tensor, before: Tensor) -> Tensor:
        """Whether the message is lost: two states with memory (Gilbert's model), ``dropout`` of the time in one."""
        if g.burst is None:
            return z < threshold(g.dropout)
        begins = g.dropout / (g.burst * (1 - g.dropout))
        return torch.where(before, z < threshold(1 - 1 / g.burst), z < threshold(begins))

    def _freezes(self, n: str, rows: Rows, kept: dict[str, Tensor]) -> Tensor:
        stuck, z, before = self.config.stuck[n], rows[f"stuck.{n}"], rows[f"frozen.{n}"] > 0.5
        begins = z < threshold(stuck.chance)
        frozen = before | begins if stuck.steps is None else torch.where(
            before, z < threshold(1 - 1 / stuck.steps), begins)
        kept[f"frozen.{n}"] = frozen.float()
        return frozen

    def _aged(self, n: str, truth: Rows, rows: Rows, age: Tensor | None) -> Tensor:
        """The true sample of ``age`` [N] control steps ago."""
        value = truth[n]
        for back in range(1, self._oldest(n) + 1):
            assert age is not None
            late = (age == back).reshape(-1, *[1] * (value.dim() - 1))
            value = torch.where(late, rows[f"past.{back}.{n}"], value)
        return value

    def _with_errors(self, n: str, value: Tensor, rows: Rows, *, moved: bool) -> Tensor:
        """``value`` as the sensor reads it; ``moved``: whether the drift goes on before this sample."""
        c = self.config
        if f"scale.{n}" in rows:
            value = value * (1.0 + rows[f"scale.{n}"].reshape(value.shape))
        parts = [self._constant(c.noise[n], value) * rows[f"noise.{n}"]] if f"noise.{n}" in self.noise else []
        parts += [rows[f"bias.{n}"]] if f"bias.{n}" in self.drawn else []
        parts += [self._drift(n, rows) if moved else rows[f"drift.{n}"]] if n in c.drift else []
        if parts:
            value = perturb(n, value, sum(parts[1:], parts[0]))
        if c.quantum.get(n):
            value = torch.round(value / c.quantum[n]) * c.quantum[n]
        return value.clamp(*c.range[n]) if n in c.range else value

    def _drift(self, n: str, rows: Rows) -> Tensor:
        """The drift one step on: its standard deviation after a second, or at all times, is as configured."""
        drift = self.config.drift[n]
        assert self.dt is not None
        stay = 1.0 if drift.time_s is None else exp(-self.dt / drift.time_s)
        move = sqrt(self.dt) if drift.time_s is None else sqrt(1.0 - stay * stay)
        walk = rows[f"walk.{n}"]
        return stay * rows[f"drift.{n}"] + move * (self._constant(drift.std, walk) * walk)

    def _delivered(self, n: str, value: Tensor, fresh: list[Tensor], rows: Rows) -> Tensor:
        """``value`` where all of ``fresh`` [N] hold, else what was delivered last."""
        if not fresh:
            return value
        now = fresh[0]
        for flag in fresh[1:]:
            now = now & flag
        return torch.where(now.reshape(-1, *[1] * (value.dim() - 1)), value, rows[f"hold.{n}"])

    def _constant(self, value: Numbers, like: Tensor) -> Any:
        """``value`` to multiply with: a number, or a tensor on the device of ``like``."""
        if not isinstance(value, tuple):
            return value
        key = (value, like.device)
        if key not in self._constants:
            self._constants[key] = torch.tensor(value, dtype=torch.float32, device=like.device)
        return self._constants[key]
