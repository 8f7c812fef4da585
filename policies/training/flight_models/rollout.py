"""Flights of a learned model along stretches of logs, differentiable: what it says of accelerations is integrated.

A model says specific force [m/s^2] and angular acceleration [rad/s^2] in body axes; attitude, velocity and position
follow by kinematics, so that nothing of these needs to be learned. M models (members of an ensemble) fly S stretches at
once. The loss compares rates, velocity, attitude and position at each step with what was measured, and specific force
with the accelerometer, each in units of the error that the physics alone (or another reference) makes there, by a
pseudo-Huber function: a touch or a gust counts less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from temporeal.sim.identification.record import FlightRecord, Numbers
from temporeal.sim.identification.shooting import FORCE, POSITION, QUAT, RATES, VELOCITY
from temporeal.sim.identification.validation.stretches import Stretches
from temporeal.sim.physics.quadrotor.dynamics import GRAVITY

BLOCK_S, FOLD = 4.0, 5
"""Every fifth block of four seconds of a record is held out: neighbouring stretches are alike."""
FLOOR = 0.2
"""Of the last step's error, below which no step's error is taken to be: early ones are noise of the sensors."""


@dataclass(frozen=True)
class Flights:
    """S stretches as tensors. measured: [S, H + L + 1, 16], of H steps before the start. commands: [S, H + L, 4 or 5].
    block: [S] number of the block of a record that a stretch lies in. held_out: [S]. index: [S] their numbers."""

    dt: float
    measured: Tensor
    commands: Tensor
    block: Tensor
    held_out: Tensor
    index: Tensor
    before: int

    def of(self, which: Tensor) -> Flights:
        """Some of them."""
        return Flights(self.dt, self.measured[which], self.commands[which], self.block[which], self.held_out[which],
                       self.index[which], self.before)


@dataclass
class State:
    """[M, S, ...] position, quaternion, velocity (world), body rates; specific force of the step that ended here."""

    position: Tensor
    quat: Tensor
    velocity: Tensor
    rates: Tensor
    force: Tensor | None = None


Model = Callable[[int, State, Tensor, object], tuple[Tensor, Tensor, object]]
"""(step, state, velocity in body axes, memory) -> specific force, angular acceleration [M, S, 3], memory."""


def whole(where: Stretches, before: int = 0, voltage: bool = False) -> Flights:
    """All stretches, to be predicted; ``voltage``: with commands."""
    none = torch.zeros(len(where.begin), dtype=torch.long)
    return Flights(where.dt, torch.from_numpy(where.measured(before)).float(),
                   torch.from_numpy(where.commands(before, voltage)).float(), none, none > 0, none, before)


def flights(where: Sequence[Stretches], before: int = 0, voltage: bool = False) -> Flights:
    """All stretches that lie in one block each; ``voltage``: with commands."""
    measured, commands, blocks, held, first = [], [], [], [], 0
    for each in where:
        block = block_of(each.record)[each.at]
        whole = block[:, 0] == block[:, -1]
        measured.append(each.measured(before)[whole])
        commands.append(each.commands(before, voltage)[whole])
        blocks.append(first + block[whole, 0])
        held.append(block[whole, 0] % FOLD == FOLD // 2)
        first += int(block.max()) + 1 if len(block) else 0
    block = torch.from_numpy(np.concatenate(blocks)).long()
    return Flights(where[0].dt, torch.from_numpy(np.concatenate(measured)).float(),
                   torch.from_numpy(np.concatenate(commands)).float(), block, torch.from_numpy(np.concatenate(held)),
                   torch.arange(len(block)), before)


def block_of(record: FlightRecord) -> NDArray[np.int64]:
    """[T] number of the block that a sample lies in."""
    return (np.arange(len(record.command)) * record.step // BLOCK_S).astype(np.int64)


def held_out(record: FlightRecord) -> FlightRecord:
    """The record of which only held-out blocks are usable."""
    return record.only(block_of(record) % FOLD == FOLD // 2)


def cross(a: Tensor, b: Tensor) -> Tensor:
    """Of vectors [..., 3]."""
    return torch.linalg.cross(a, b, dim=-1)


def rotate(quat: Tensor, vector: Tensor) -> Tensor:
    """``vector`` from body to world, or with the conjugate back."""
    axis = quat[..., 1:]
    twice = 2 * cross(axis, vector)
    return vector + quat[..., :1] * twice + cross(axis, twice)


def conjugate(quat: Tensor) -> Tensor:
    """Of ``quat`` [..., 4]."""
    return torch.cat([quat[..., :1], -quat[..., 1:]], -1)


def turned(quat: Tensor, angle: Tensor) -> Tensor:
    """``quat`` turned by small rotation vectors about its body axes."""
    half, w, axis = 0.5 * angle, quat[..., :1], quat[..., 1:]
    out = torch.cat([w - (axis * half).sum(-1, keepdim=True), axis + w * half + cross(axis, half)], -1)
    return out / out.norm(dim=-1, keepdim=True)


def advanced(state: State, force: Tensor, turning: Tensor, dt: float) -> State:
    """A step of ``dt`` under specific force and angular acceleration in body axes: midpoint in attitude."""
    middle = state.rates + 0.5 * dt * turning
    half = turned(state.quat, 0.5 * dt * state.rates)
    fall = torch.zeros_like(force)
    fall[..., 2] = GRAVITY
    velocity = state.velocity + dt * (rotate(half, force) - fall)
    return State(state.position + 0.5 * dt * (state.velocity + velocity), turned(state.quat, dt * middle), velocity,
                 state.rates + dt * turning, force)


def at_start(which: Flights, models: int, rate_bias: Tensor) -> State:
    """The measured state at the start, for each of ``models``."""
    first = which.measured[:, which.before].expand(models, -1, -1)
    return State(first[..., POSITION], first[..., QUAT], first[..., VELOCITY], first[..., RATES] - rate_bias)


def flown(which: Flights, model: Model, models: int, rate_bias: Tensor, memory: object = None) -> list[State]:
    """The states behind each step."""
    state, out = at_start(which, models, rate_bias), []
    for k in range(which.measured.shape[1] - which.before - 1):
        through = rotate(conjugate(state.quat), state.velocity)
        force, turning, memory = model(k, state, through, memory)
        state = advanced(state, force, turning, which.dt)
        out.append(state)
    return out


def errors(states: Sequence[State], which: Flights, rate_bias: Tensor) -> Tensor:
    """[M, S, L, 15] of rates, velocity, attitude (rotation vector), position, and specific force at each step's
    beginning; 0 where it was not measured."""
    measured = which.measured[None, :, which.before + 1 :]
    quat = torch.stack([state.quat for state in states], 2)
    apart = conjugate(quat)
    w, x = apart[..., :1], apart[..., 1:]
    other = measured[..., QUAT].expand_as(apart)
    vector = w * other[..., 1:] + other[..., :1] * x + cross(x, other[..., 1:])
    scalar = w * other[..., :1] - (x * other[..., 1:]).sum(-1, keepdim=True)
    found = torch.cat([
        measured[..., RATES] - torch.stack([state.rates for state in states], 2) - rate_bias,
        measured[..., VELOCITY] - torch.stack([state.velocity for state in states], 2),
        2 * vector * scalar.sign(),
        measured[..., POSITION] - torch.stack([state.position for state in states], 2),
        felt(states, which)], -1)
    return torch.nan_to_num(found, nan=0.0)


def felt(states: Sequence[State], which: Flights) -> Tensor:
    """[M, S, L, 3] errors of specific force; none of models that are not asked for it."""
    forces = [state.force for state in states if state.force is not None]
    if not forces:
        return torch.zeros(*states[0].rates.shape[:2], len(states), 3)
    return which.measured[None, :, which.before : -1, FORCE] - torch.stack(forces, 2)


def scales(error: Tensor) -> Tensor:
    """[L, 5] sizes of errors [1, S, L, 15] by step and by what is compared; 1 where nothing is."""
    size = error[0].reshape(*error.shape[1:3], 5, 3).square().mean((0, 3)).sqrt()
    size = (size.square() + (FLOOR * size.amax(0)).square()).sqrt()
    return torch.where(size > 0, size, torch.ones_like(size))


def losses(error: Tensor, scale: Tensor) -> Tensor:
    """[M, S] pseudo-Huber loss of errors [M, S, L, 15] in units of ``scale`` [L, 5]."""
    unit = error.reshape(*error.shape[:3], 5, 3) / scale[..., None]
    return ((1 + unit.square()).sqrt() - 1).mean((2, 3, 4))


def rows_of(states: Sequence[State], rate_bias: Tensor) -> Numbers:
    """[S, L, 16] of the only model, in the order of ``stretches``."""
    out = np.full((states[0].position.shape[1], len(states), 16), np.nan)
    for k, state in enumerate(states):
        for where, values in ((RATES, state.rates + rate_bias), (VELOCITY, state.velocity), (QUAT, state.quat),
                              (POSITION, state.position)):
            out[:, k, where] = values[0].double().numpy()
    return out


def needs_pose(records: Sequence[FlightRecord]) -> str | None:
    """Why no model can be learned of these flights, if none can."""
    absent = [each.name for each in records if not each.has_pose]
    return f"no attitude and velocity in {', '.join(absent)}" if absent else None
