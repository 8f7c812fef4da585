"""Residual dynamics trained on flight logs: what a robot does that its identified physics does not explain.

Members fly each stretch on top of the physics from its measured state, as a policy's training will fly them, and are
fitted to where the robot was (multi-step: errors of a derivative at 100 Hz are mostly noise, and what adds up slowly
matters most). They begin as no residual at all, and keep that where held-out blocks do not get better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.ndimage import uniform_filter1d
from torch import Tensor

from temporeal.policies.training.flight_models import rollout
from temporeal.policies.training.flight_models.descent import Descent, Found, both, descend
from temporeal.policies.training.flight_models.rollout import Flights, State
from temporeal.robots import frames
from temporeal.sim.identification.record import FlightRecord, Numbers
from temporeal.sim.identification.shooting import Flown
from temporeal.sim.identification.validation import flying
from temporeal.sim.identification.validation.stretches import Stretches, stretches
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor.residual.ensemble import GREATEST, Ensemble, whitening

HORIZON_S = 0.5
SEEN, FADED = 0.995, 2.0
"""Quantile of the training data's squared distances up to which the residual counts in full, and how many times as far
it is silent."""
SMOOTH_S = 0.06
"""Of derivatives of which the size of outputs is judged."""
FLOORS = np.array([0.05] * 3 + [0.1] * 3 + [0.01] * 4)
"""Noise of inputs: m/s, rad/s, share of speed."""
LEAST_BOUND = np.array([0.1] * 3 + [0.5] * 3)


@dataclass(frozen=True)
class Shape:
    """Of an ensemble."""

    members: int = 5
    hidden: int = 16


@dataclass(frozen=True)
class Physics:
    """The physics along N stretches as tensors: specific thrust [S, L], angular acceleration by rotors [S, L, 3],
    rotor speeds [S, L, 4], drag to mass [3], inertia [3]."""

    lift: Tensor
    turning: Tensor
    rotors: Tensor
    drag: Tensor
    inertia: Tensor

    def of(self, which: Tensor) -> Physics:
        """Of some stretches."""
        return Physics(self.lift[which], self.turning[which], self.rotors[which], self.drag, self.inertia)


def trained(records: Sequence[FlightRecord], how: Flown, reference_v: float, shape: Shape | None = None,
            descent: Descent | None = None) -> tuple[Ensemble, Found]:
    """The ensemble on top of the physics ``how`` (one vector) along ``records``."""
    shape, descent = shape or Shape(), descent or Descent()
    where, data = enough(records)
    bias = torch.from_numpy(how.rate_bias[0]).float()
    spin = [rotors(each, how, reference_v) for each in where]
    under = physics_of(how, np.concatenate([along(each, values) for each, values in zip(where, spin)]))
    x = np.concatenate([inputs(each, values, how) for each, values in zip(records, spin)])
    mean, whiten = whitening(x, FLOORS)
    far = (((x - mean) @ whiten.T) ** 2).sum(1)
    near = float(np.quantile(far, SEEN))
    bound = bounds(records, spin, how)
    net = Network(shape, mean, whiten, near, FADED * near, bound, descent.seed)
    return net.fitted(data, under, bias, descent)


def enough(records: Sequence[FlightRecord]) -> tuple[list[Stretches], Flights]:
    """Stretches to train on and to hold out, if ``records`` hold such."""
    if why := rollout.needs_pose(records):
        raise ValueError(f"residual dynamics need motion capture: {why}")
    where = [stretches(each, HORIZON_S, HORIZON_S / 2) for each in records]
    if not sum(len(each.begin) for each in where):
        raise ValueError(f"residual dynamics need stretches of {HORIZON_S} s in which all is measured; there is none")
    data = rollout.flights(where)
    both(data)
    return where, data


class Network:
    """The ensemble while it is trained."""

    def __init__(self, shape: Shape, mean: Numbers, whiten: Numbers, near: float, far: float, bound: Numbers,
                 seed: int) -> None:
        generator, m, h = torch.Generator().manual_seed(seed), shape.members, shape.hidden
        self.members, self.fixed = m, (mean, whiten, near, far, bound)
        self.mean, self.whiten, self.bound = (torch.from_numpy(each).float() for each in (mean, whiten, bound))
        self.weights = [torch.randn(m, size, count, generator=generator) / count**0.5 * gain
                        for size, count, gain in ((h, 10, 1.0), (h, h, 1.0), (6, h, 0.0))]
        self.biases = [0.1 * torch.randn(m, h, generator=generator), torch.zeros(m, h), torch.zeros(m, 6)]
        for each in self.parameters():
            each.requires_grad_()

    def parameters(self) -> list[Tensor]:
        """All of them, [M, ...] each."""
        return [*self.weights, *self.biases]

    def __call__(self, x: Tensor) -> Tensor:
        """[M, S, 6] of inputs [M, S, 10]."""
        z = (x - self.mean) @ self.whiten.T
        near, far = self.fixed[2], self.fixed[3]
        fade = ((far - z.square().sum(-1, keepdim=True)) / (far - near)).clamp(0, 1)
        for weight, bias in zip(self.weights, self.biases):
            z = torch.baddbmm(bias[:, None], z, weight.transpose(1, 2))
            z = z * (1 + z * z).rsqrt()
        return z * self.bound * fade

    def fitted(self, data: Flights, under: Physics, bias: Tensor, how: Descent) -> tuple[Ensemble, Found]:
        """Trained on the stretches ``data`` with the physics ``under`` them."""
        def errors(which: Flights, models: int, beyond: bool) -> Tensor:
            along = under.of(which.index)
            return rollout.errors(rollout.flown(which, self.model(along, beyond), models, bias), which, bias)

        with torch.no_grad():
            alone = errors(data.of(~data.held_out), 1, False)
            off = torch.zeros(15)  # the accelerometer's bias, which would else become a push
            off[12:] = alone[0, ..., 12:].mean((0, 1))
            scale = rollout.scales(alone - off)
        found = descend(self.parameters(), lambda which: rollout.losses(errors(which, self.members, True) - off, scale),
                        data, self.members, how)
        return self.ensemble(), found

    def model(self, along: Physics, beyond: bool) -> rollout.Model:
        """Physics, with the ensemble or without."""

        def accelerations(k: int, state: State, through: Tensor, memory: object) -> tuple[Tensor, Tensor, object]:
            force, w = -along.drag * through, state.rates
            force = torch.cat([force[..., :2], force[..., 2:] + along.lift[:, k, None]], -1)
            turning = along.turning[:, k] - rollout.cross(w, along.inertia * w) / along.inertia
            if beyond:
                out = self(torch.cat([through, w, along.rotors[:, k].expand(self.members, -1, -1)], -1))
                force, turning = force + out[..., :3], turning + out[..., 3:]
            return force, turning, memory

        return accelerations

    def ensemble(self) -> Ensemble:
        """As numbers."""
        mean, whiten, near, far, bound = self.fixed
        weights, biases = ([each.detach().double().numpy() for each in part] for part in (self.weights, self.biases))
        return Ensemble(mean, whiten, near, far, bound, (weights[0], weights[1], weights[2]),
                        (biases[0], biases[1], biases[2]))


def rotors(where: Stretches, how: Flown, reference_v: float) -> Numbers:
    """[T, 4] rotor speeds along a record."""
    return np.asarray(flying.flown(how, where.record, where.begin, reference_v)[1][0])


def along(where: Stretches, spin: Numbers) -> Numbers:
    """[S, L, 4] means of rotor speeds in each step of the stretches that lie in one block."""
    block = rollout.block_of(where.record)[where.at]
    at = where.at[block[:, 0] == block[:, -1]]
    ends = np.minimum(np.arange(len(spin)) + 1, len(spin) - 1)
    sums = np.concatenate([np.zeros((1, 4)), np.cumsum(0.5 * (spin + spin[ends]), 0)])
    return np.asarray((sums[at[:, 1:]] - sums[at[:, :-1]]) / where.stride)


def wrench(how: Flown, spin: Numbers) -> tuple[Numbers, Numbers]:
    """Specific thrust [...] and angular acceleration [..., 3] by rotors at speeds [..., 4]."""
    p = how.params[0]
    thrust, *torques = physics.wrench(*np.moveaxis(spin, -1, 0), p)
    return np.asarray(thrust * p[physics.INV_MASS]), np.stack(torques, -1) * p[physics.INV_JX : physics.INV_JZ + 1]


def physics_of(how: Flown, spin: Numbers) -> Physics:
    """The physics along stretches whose rotors turn at ``spin`` [S, L, 4]."""
    p = how.params[0]
    parts: Any = (*wrench(how, spin), spin, p[physics.DRAG_X : physics.DRAG_Z + 1] * p[physics.INV_MASS],
                  p[physics.JX : physics.JZ + 1])
    return Physics(*(torch.from_numpy(np.asarray(each)).float() for each in parts))


def inputs(record: FlightRecord, spin: Numbers, how: Flown) -> Numbers:
    """[U, 10] measured inputs of the residual in all usable samples."""
    assert record.quat is not None and record.velocity is not None
    found = np.concatenate([frames.rotate_inverse(record.quat, record.velocity), record.rates - how.rate_bias[0], spin],
                           1)
    return np.asarray(found[record.usable])


def bounds(records: Sequence[FlightRecord], spin: Sequence[Numbers], how: Flown) -> Numbers:
    """[6] of the size of accelerations that physics leaves, smoothed; they hold what the ensemble may say."""
    found = []
    for record, turns in zip(records, spin):
        assert record.quat is not None and record.velocity is not None
        size = max(int(round(SMOOTH_S / record.step)), 1)
        x, lift = inputs(record, turns, how), wrench(how, turns)
        free = np.gradient(record.velocity, record.step, axis=0) + [0.0, 0.0, physics.GRAVITY]
        felt = frames.rotate_inverse(record.quat, free)
        felt[:, 2] -= lift[0]
        turned = np.gradient(record.rates, record.step, axis=0) - lift[1]
        left = uniform_filter1d(np.concatenate([felt, turned], 1), size, axis=0)[record.usable]
        p = how.params[0]
        left[:, :3] += p[physics.DRAG_X : physics.DRAG_Z + 1] * p[physics.INV_MASS] * x[:, :3]
        found.append(left)
    return np.clip(np.quantile(np.abs(np.concatenate(found)), 0.99, axis=0), LEAST_BOUND, GREATEST)
