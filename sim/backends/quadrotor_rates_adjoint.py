"""The differentiable quadrotor under collective thrust and body rates: whole plans forward, their adjoint backward.

    states = rollout(start, commands, params, nominal, dt, substeps)                       # [T + 1, N, 17]
    d_start, d_commands = rollout_vjp(states, commands, params, nominal, dt, substeps, d_states)

What the backend ``quadrotor`` does with the command ``ctbr_cmd``, without its delay: at each of ``substeps`` physics
steps of ``dt`` s the rate loop and the mixer give the rotors' setpoints (with ``nominal``, what the controller on the
robot believes), the body moves, and the plane z = 0 stops what falls on it. Only the states at the control steps are
kept; those between them are computed again going backward. Rows are numpy float32, one per world, as in
:mod:`sim.backends.quadrotor_adjoint`, with the gains of the rate loop in ``params``; a command is thrust [N] and body
rates [rad/s]. :func:`torch_rollout` is all of it for ``torch.autograd``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from sim.backends.quadrotor_adjoint import DIGEST, Array, check, expect, from_blocks, scalar, to_blocks
from sim.backends.quadrotor_kernels import LANES, OPTIONS, load_params, load_state, store_state
from sim.backends.quadrotor_physics import NOMINAL_SIZE, STATE_SIZE

if TYPE_CHECKING:
    from torch import Tensor

_step, _step_vjp = scalar.rates_step, scalar.rates_step_vjp


@njit(forceinline=True, **OPTIONS)
def _believed(a):
    """The nominal parameters as a tuple."""
    return a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]


def _kernels(digest: str) -> tuple[Any, Any]:
    """The kernels; ``digest`` puts the source of what they call into the key of numba's cache."""

    @njit(forceinline=True, **OPTIONS)
    def move(x, commands, ctrl, params, b, nominal, dt):
        """One physics step of the block ``b`` in place: ``x`` [17, 16] flat."""
        for k in range(16):
            j = ctrl + k
            p = load_params(params, b * 560 + k, 16)
            s = _step(
                load_state(x, k), commands[j], commands[j + 16], commands[j + 32], commands[j + 48], p, nominal, dt
            )  # fmt: skip
            store_state(x, k, s)

    @njit(cache=True, **OPTIONS)
    def roll(states, commands, params, nominal, dt, substeps, steps, blocks):
        """Fill ``states`` [T + 1, blocks, 17, 16] from its first entry; ``commands`` [T, blocks, 4, 16]; all flat."""
        _ = digest
        believed = _believed(nominal)
        for t in range(steps):
            for b in range(blocks):
                at, ctrl = (t * blocks + b) * 272, (t * blocks + b) * 64
                x = states[at + blocks * 272 : at + blocks * 272 + 272]
                x[:] = states[at : at + 272]
                for _step_of in range(substeps):
                    move(x, commands, ctrl, params, b, believed, dt)

    @njit(cache=True, **OPTIONS)
    def roll_vjp(states, commands, params, nominal, dt, substeps, steps, blocks, grads, command_grads):
        """``grads`` [T + 1, ...] enter as partial cotangents of each state and leave as total ones; all flat."""
        _ = digest
        believed = _believed(nominal)
        between = np.empty(272 * substeps, np.float32)  # the states at the physics steps of one control step
        tile = np.empty(336, np.float32)  # cotangents of state and command: one array to write, so that it vectorizes
        for t in range(steps - 1, -1, -1):
            for b in range(blocks):
                at, ctrl = (t * blocks + b) * 272, (t * blocks + b) * 64
                between[:272] = states[at : at + 272]
                for i in range(1, substeps):
                    x = between[272 * i : 272 * i + 272]
                    x[:] = between[272 * i - 272 : 272 * i]
                    move(x, commands, ctrl, params, b, believed, dt)
                tile[:272] = grads[at + blocks * 272 : at + blocks * 272 + 272]
                command_grads[ctrl : ctrl + 64] = np.float32(0.0)
                for i in range(substeps - 1, -1, -1):
                    x = between[272 * i : 272 * i + 272]
                    for k in range(16):
                        j = ctrl + k
                        p = load_params(params, b * 560 + k, 16)
                        d = _step_vjp(
                            load_state(x, k), commands[j], commands[j + 16], commands[j + 32], commands[j + 48], p,
                            believed, dt, load_state(tile, k),
                        )  # fmt: skip
                        store_state(tile, k, d)
                        tile[k + 272] = d[17]
                        tile[k + 288] = d[18]
                        tile[k + 304] = d[19]
                        tile[k + 320] = d[20]
                    for k in range(64):
                        command_grads[ctrl + k] += tile[272 + k]
                for k in range(272):
                    grads[at + k] += tile[k]

    return roll, roll_vjp


_roll, _roll_vjp = _kernels(DIGEST)


def rollout(start: Array, commands: Array, params: Array, nominal: Array, dt: float, substeps: int) -> Array:
    """States [T + 1, N, 17] at the control steps, from ``start`` [N, 17] under ``commands`` [T, N, 4].

    ``params`` [N, 35]; ``nominal`` [9] (:func:`sim.backends.quadrotor.controller_params`); ``dt`` in s, of one of the
    ``substeps`` physics steps of a control step.
    """
    steps, worlds = _checked(commands, params, nominal, dt, substeps)
    expect("start", start, (worlds, STATE_SIZE))
    blocks = -(-worlds // LANES)
    states = np.empty((steps + 1, blocks, STATE_SIZE, LANES), np.float32)
    states[0] = to_blocks(start)
    _roll(states.reshape(-1), to_blocks(commands).reshape(-1), to_blocks(params).reshape(-1), nominal, np.float32(dt),
          substeps, steps, blocks)
    return from_blocks(states, worlds)


def rollout_vjp(
    states: Array, commands: Array, params: Array, nominal: Array, dt: float, substeps: int, d_states: Array
) -> tuple[Array, Array]:
    """Cotangents of ``start`` [N, 17] and ``commands`` [T, N, 4] from those of all ``states`` [T + 1, N, 17]."""
    steps, worlds = _checked(commands, params, nominal, dt, substeps)
    expect("states", states, (steps + 1, worlds, STATE_SIZE))
    expect("d_states", d_states, (steps + 1, worlds, STATE_SIZE))
    grads = to_blocks(d_states)
    command_grads = np.empty((steps, grads.shape[1], 4, LANES), np.float32)
    _roll_vjp(to_blocks(states).reshape(-1), to_blocks(commands).reshape(-1), to_blocks(params).reshape(-1), nominal,
              np.float32(dt), substeps, steps, grads.shape[1], grads.reshape(-1), command_grads.reshape(-1))
    return from_blocks(grads[0], worlds), from_blocks(command_grads, worlds)


def torch_rollout(
    start: Tensor, commands: Tensor, params: Tensor, nominal: Tensor, dt: float, substeps: int
) -> Tensor:
    """:func:`rollout` computed on the CPU, differentiable in ``start`` and ``commands``."""
    out: Tensor = _torch_function().apply(start, commands, params, nominal, dt, substeps)
    return out


@cache
def _torch_function() -> Any:
    """The autograd function, made when first asked for: the rest of this module does not need torch."""
    import torch

    class Rollout(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, start: Tensor, commands: Tensor, params: Tensor, nominal: Tensor, dt: float, substeps: int
        ) -> Tensor:
            found = rollout(_array(start), _array(commands), _array(params), _array(nominal), dt, substeps)
            states = torch.from_numpy(found)
            ctx.save_for_backward(states, commands, params, nominal)
            ctx.of = dt, substeps
            return states.to(start)

        @staticmethod
        def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor | None, ...]:
            states, commands, params, nominal = (_array(x) for x in ctx.saved_tensors)
            found = rollout_vjp(states, commands, params, nominal, *ctx.of, _array(d_states))
            d_start, d_commands = (torch.from_numpy(x).to(d_states) for x in found)
            return d_start, d_commands, None, None, None, None

    def _array(x: Tensor) -> Array:
        return x.detach().cpu().numpy().astype(np.float32)

    return Rollout


def _checked(commands: Array, params: Array, nominal: Array, dt: float, substeps: int) -> tuple[int, int]:
    """Control steps and worlds of arrays that fit each other."""
    expect("nominal", nominal, (NOMINAL_SIZE,))
    if substeps < 1:
        raise ValueError(f"substeps is {substeps}; a control step has at least one")
    return check(commands, params, dt)
