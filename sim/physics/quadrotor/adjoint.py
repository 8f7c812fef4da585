"""The differentiable quadrotor: rollouts of whole plans and their adjoint, over blocks of 16 worlds.

    states = rollout(start, commands, params, nominal, dt, substeps)                       # [T + 1, N, 17]
    d_start, d_commands = rollout_vjp(states, commands, params, nominal, dt, substeps, d_states)

The physics of the backend ``quadrotor`` under the command ``ctbr_cmd``, without delay. Each of ``substeps`` physics
steps of ``dt`` s computes the rotors' setpoints by rate loop and mixer (with the controller's parameters ``nominal``),
moves the body, and stops it at the plane z = 0 (:mod:`temporeal.sim.physics.quadrotor.dynamics`,
:mod:`temporeal.sim.physics.quadrotor.vjp`). Only states at control steps are stored; the backward pass recomputes the
states between them and the four Runge-Kutta stages of each.

Rows are numpy float32, one per world: a state has ``physics.STATE_SIZE`` numbers, a packed parameter set
``physics.PARAM_SIZE`` (:func:`pack_params`), a command is thrust [N] and body rates [rad/s]. :func:`torch_rollout` is
the same for ``torch.autograd``. For rotor speed commands with a policy in the loop see
:mod:`temporeal.sim.physics.quadrotor.flight`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from temporeal.sim.compiler import scalar_functions as compiling
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor import kernels, vjp
from temporeal.sim.physics.quadrotor.dynamics import NOMINAL_SIZE, PARAM_SIZE, RATE_GAIN_X, RATE_GAIN_Z, STATE_SIZE
from temporeal.sim.physics.quadrotor.kernels import OPTIONS, load_params, load_state, store_state
from temporeal.sim.physics.quadrotor.layout import BLOCK, PARAMETERS, RECIPROCAL

if TYPE_CHECKING:
    from torch import Tensor

    from temporeal.robots.spec import RobotSpec

Array = np.ndarray
CHECKED = {"mass": 1, "inertia": 3, "thrust_curve": 3, "torque_per_thrust": 1, "tau_up": 1, "tau_down": 1, "arm": 2}
"""Parameters that must be given, with their number of components."""
OPTIONAL = {
    "drag": (0.0,) * 3, "motor_gain": (1.0,) * 4, "wind_w": (0.0,) * 3, "force_w": (0.0,) * 3, "torque_b": (0.0,) * 3,
    "rate_gain": (0.0,) * 3}
"""Parameters that may be left out, with what they are then."""

_inline = njit(forceinline=True, **OPTIONS)
forward = compiling.instantiate(physics, _inline, np.float32)
scalar = compiling.instantiate(vjp, _inline, np.float32, **vars(forward))
DIGEST = compiling.fingerprint(physics, vjp, kernels)
_step, _step_vjp = scalar.rates_step, scalar.rates_step_vjp
ZERO = np.float32(0.0)


@njit(forceinline=True, **OPTIONS)
def _believed(a):
    """The nominal parameters as a tuple."""
    return a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]


@njit(forceinline=True, **OPTIONS)
def store_cotangents(tile, k, d):
    """Write the cotangents ``d`` of a state and a command (17 + 4) into lane ``k`` of ``tile`` [21, 16] flat."""
    store_state(tile, k, d)
    tile[k + 272] = d[17]
    tile[k + 288] = d[18]
    tile[k + 304] = d[19]
    tile[k + 320] = d[20]


@njit(forceinline=True, **OPTIONS)
def _move(x, commands, ctrl, params, b, nominal, dt):
    """One physics step of the block ``b`` in place: ``x`` [17, 16] flat.

    A position is not finite from where a command is not, as in the backend: the mixer's limits would hide it.
    """
    for k in range(16):
        j = ctrl + k
        p = load_params(params, b * 560 + k, 16)
        s = _step(load_state(x, k), commands[j], commands[j + 16], commands[j + 32], commands[j + 48], p, nominal, dt)
        store_state(x, k, s)
        hidden = ZERO * commands[j] + ZERO * commands[j + 16] + ZERO * commands[j + 32] + ZERO * commands[j + 48]
        x[k] = s[0] + hidden


def _kernels(digest: str) -> tuple[Any, Any]:
    """The kernels; ``digest`` puts the source of what they call into the key of numba's cache. They may close over
    nothing else: a compiled function has another key in each process, which would never find them in the cache."""

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
                    _move(x, commands, ctrl, params, b, believed, dt)

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
                    _move(x, commands, ctrl, params, b, believed, dt)
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
                        store_cotangents(tile, k, d)
                    for k in range(64):
                        command_grads[ctrl + k] += tile[272 + k]
                for k in range(272):
                    grads[at + k] += tile[k]

    return roll, roll_vjp


_roll, _roll_vjp = _kernels(DIGEST)


def rollout(start: Array, commands: Array, params: Array, nominal: Array, dt: float, substeps: int) -> Array:
    """States [T + 1, N, 17] at the control steps, from ``start`` [N, 17] under ``commands`` [T, N, 4].

    ``params`` [N, 35]; ``nominal`` [9] (:func:`temporeal.sim.physics.quadrotor.parameters.controller_params`); ``dt``
    in s, of one of the ``substeps`` physics steps of a control step.
    """
    steps, worlds = _checked(commands, params, nominal, dt, substeps)
    _expect("start", start, (worlds, STATE_SIZE))
    blocks = -(-worlds // BLOCK)
    states = np.empty((steps + 1, blocks, STATE_SIZE, BLOCK), np.float32)
    states[0] = to_blocks(start)
    _roll(states.reshape(-1), to_blocks(commands).reshape(-1), to_blocks(params).reshape(-1), nominal, np.float32(dt),
          substeps, steps, blocks)
    return from_blocks(states, worlds)


def rollout_vjp(
    states: Array, commands: Array, params: Array, nominal: Array, dt: float, substeps: int, d_states: Array
) -> tuple[Array, Array]:
    """Cotangents of ``start`` [N, 17] and ``commands`` [T, N, 4] from those of all ``states`` [T + 1, N, 17]."""
    steps, worlds = _checked(commands, params, nominal, dt, substeps)
    _expect("states", states, (steps + 1, worlds, STATE_SIZE))
    _expect("d_states", d_states, (steps + 1, worlds, STATE_SIZE))
    grads = to_blocks(d_states)
    command_grads = np.empty((steps, grads.shape[1], 4, BLOCK), np.float32)
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
        return x.detach().cpu().numpy().astype(np.float32, copy=False)

    return Rollout


# The numpy twin of temporeal.sim.physics.quadrotor.parameters.pack_params, by the same layout: apg trains with this and
# without torch, whose import alone takes as long as a training.
def pack_params(params: Mapping[str, Array | Sequence[float] | float], worlds: int) -> Array:
    """Physical parameters by name (one set, or one per world) packed for the kernels: [N, 35] float32.

    Names and units as in ``robot.parameters`` and the disturbances of the backend. ``command_delay`` is
    accepted and without effect.
    """
    unknown = set(params) - {*CHECKED, *OPTIONAL, "command_delay"}
    missing = set(CHECKED) - set(params)
    if unknown or missing:
        legal = [*CHECKED, *OPTIONAL]
        raise ValueError(f"parameters: unknown {sorted(unknown)}, missing {sorted(missing)}; legal: {legal}")

    def rows(name: str, size: int) -> Array:
        value = np.asarray(params.get(name, OPTIONAL.get(name)), np.float32)
        return np.broadcast_to(value.reshape(-1, size), (worlds, size))

    for name in ("mass", "inertia", "tau_up", "tau_down"):
        if not (np.asarray(params[name]) > 0).all():
            raise ValueError(f"parameters: {name} must be > 0, got {params[name]}")
    p = np.zeros((worlds, PARAM_SIZE), np.float32)
    for name, (field, size) in PARAMETERS.items():
        if name != "command_delay":
            p[:, field : field + size] = rows(name, size)
    for field in RECIPROCAL.values():
        p[:, field] = 1 / p[:, field]
    p[:, physics.INV_JX : physics.INV_JZ + 1] = 1 / rows("inertia", 3)
    if not np.isfinite(p).all():
        raise ValueError("parameters: every value must be finite")
    return p


def robot_params(robot: RobotSpec) -> dict[str, tuple[float, ...]]:
    """Nominal parameters of ``robot`` by name, as :func:`pack_params` takes them."""
    return {name: robot.parameters[name].nominal for name in (*CHECKED, "drag", "motor_gain", "rate_gain")}


def to_blocks(rows: Array) -> Array:
    """Rows [..., N, F] as blocks [..., B, F, 16]; the last block is filled up with the last world."""
    worlds = rows.shape[-2]
    order = np.minimum(np.arange(-(-worlds // BLOCK) * BLOCK), worlds - 1)
    tiles = rows[..., order, :].reshape(*rows.shape[:-2], -1, BLOCK, rows.shape[-1])
    return np.ascontiguousarray(np.swapaxes(tiles, -1, -2), dtype=np.float32)


def from_blocks(blocks: Array, worlds: int) -> Array:
    """Blocks [..., B, F, 16] as rows [..., N, F]."""
    rows = np.swapaxes(blocks, -1, -2)
    return np.ascontiguousarray(rows.reshape(*rows.shape[:-3], -1, rows.shape[-1])[..., :worlds, :])


def _checked(commands: Array, params: Array, nominal: Array, dt: float, substeps: int) -> tuple[int, int]:
    """Control steps and worlds of arrays that fit each other."""
    if commands.ndim != 3 or commands.shape[2] != 4 or 0 in commands.shape:
        raise ValueError(f"commands have shape {commands.shape}, expected [T, N, 4]")
    _expect("params", params, (commands.shape[1], PARAM_SIZE))
    _expect("nominal", nominal, (NOMINAL_SIZE,))
    if not (params[:, RATE_GAIN_X : RATE_GAIN_Z + 1] > 0).all():
        raise ValueError("params: rate_gain must be > 0, there is no control of the body rates without it")
    if not 0.0 < dt <= 0.1:
        raise ValueError(f"dt is {dt} s; it must lie in (0, 0.1]")
    if substeps < 1:
        raise ValueError(f"substeps is {substeps}; a control step has at least one")
    return commands.shape[0], commands.shape[1]


def _expect(name: str, value: Array, shape: tuple[int, ...]) -> None:
    if value.shape != shape:
        raise ValueError(f"{name} has shape {value.shape}, expected {shape}")
