"""The differentiable quadrotor: steps forward, and their adjoint backward, over blocks of 16 worlds.

    states = rollout(start, commands, params, dt)                     # [T + 1, N, 17]
    d_start, d_commands = rollout_vjp(states, commands, params, dt, d_states)

The same physics function as the backend ``quadrotor`` (:mod:`sim.backends.quadrotor_physics`), in free flight: the
ground plane and the command delay of the backend are not part of it. Only the states are kept going forward; the four
Runge-Kutta stages are computed again going backward. Rows are numpy float32, one per world: a state is
``physics.STATE_SIZE`` numbers, a packed parameter set ``physics.PARAM_SIZE`` (:func:`pack_params`), a command four
rotor speed setpoints in [0, 1]. With the rate loop in front and for ``torch.autograd``:
:mod:`sim.backends.quadrotor_rates_adjoint`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from sim import compile as compiling
from sim.backends import quadrotor_physics as physics
from sim.backends import quadrotor_vjp
from sim.backends.quadrotor_kernels import LANES, OPTIONS, load_params, load_state, store_state
from sim.backends.quadrotor_physics import PARAM_SIZE, STATE_SIZE

if TYPE_CHECKING:
    from robots.spec import RobotSpec

Array = np.ndarray
CHECKED = {"mass": 1, "inertia": 3, "thrust_curve": 3, "torque_per_thrust": 1, "tau_up": 1, "tau_down": 1, "arm": 2}
"""Parameters that must be given, with their number of components."""
OPTIONAL = {
    "drag": (0.0,) * 3, "motor_gain": (1.0,) * 4, "wind_w": (0.0,) * 3, "force_w": (0.0,) * 3, "torque_b": (0.0,) * 3,
    "rate_gain": (0.0,) * 3}
"""Parameters that may be left out, with what they are then."""

_inline = njit(forceinline=True, **OPTIONS)
_physics = compiling.instantiate(physics, _inline, np.float32)
scalar = compiling.instantiate(quadrotor_vjp, _inline, np.float32, **vars(_physics))
DIGEST = compiling.fingerprint(physics, quadrotor_vjp)
_motor_step, _motor_step_vjp = _physics.motor_step, scalar.motor_step_vjp


def _kernels(digest: str) -> tuple[Any, Any]:
    """The kernels; ``digest`` puts the source of what they call into the key of numba's cache."""

    @njit(cache=True, **OPTIONS)
    def roll(states, commands, params, dt, steps, blocks):
        """Fill ``states`` [T + 1, blocks, 17, 16] from its first entry; ``commands`` [T, blocks, 4, 16]; all flat."""
        _ = digest
        for t in range(steps):
            for b in range(blocks):
                at, ctrl = (t * blocks + b) * 272, (t * blocks + b) * 64
                # in place, because two places in one array at an unknown distance would not vectorize
                x = states[at + blocks * 272 : at + blocks * 272 + 272]
                x[:] = states[at : at + 272]
                for k in range(16):
                    j = ctrl + k
                    p = load_params(params, b * 560 + k, 16)
                    s = _motor_step(
                        load_state(x, k), commands[j], commands[j + 16], commands[j + 32], commands[j + 48], p, dt, True
                    )  # fmt: skip
                    store_state(x, k, s)

    @njit(cache=True, **OPTIONS)
    def roll_vjp(states, commands, params, dt, steps, blocks, grads, command_grads):
        """``grads`` [T + 1, ...] enter as partial cotangents of each state and leave as total ones; all flat."""
        _ = digest
        tile = np.empty(336, np.float32)  # cotangents of state and command: one array to write, so that it vectorizes
        for t in range(steps - 1, -1, -1):
            for b in range(blocks):
                at, ctrl = (t * blocks + b) * 272, (t * blocks + b) * 64
                tile[:272] = grads[at + blocks * 272 : at + blocks * 272 + 272]
                for k in range(16):
                    j = ctrl + k
                    p = load_params(params, b * 560 + k, 16)
                    d = _motor_step_vjp(
                        load_state(states, at + k), commands[j], commands[j + 16], commands[j + 32], commands[j + 48],
                        p, dt, True, load_state(tile, k),
                    )  # fmt: skip
                    store_state(tile, k, d)
                    tile[k + 272] = d[17]
                    tile[k + 288] = d[18]
                    tile[k + 304] = d[19]
                    tile[k + 320] = d[20]
                for i in range(272):
                    grads[at + i] += tile[i]
                command_grads[ctrl : ctrl + 64] = tile[272:]

    return roll, roll_vjp


_roll, _roll_vjp = _kernels(DIGEST)


def rollout(start: Array, commands: Array, params: Array, dt: float) -> Array:
    """States [T + 1, N, 17] from ``start`` [N, 17] under ``commands`` [T, N, 4]; ``params`` [N, 35]; ``dt`` in s."""
    steps, worlds = check(commands, params, dt)
    expect("start", start, (worlds, STATE_SIZE))
    blocks = -(-worlds // LANES)
    states = np.empty((steps + 1, blocks, STATE_SIZE, LANES), np.float32)
    states[0] = to_blocks(start)
    _roll(
        states.reshape(-1), to_blocks(commands).reshape(-1), to_blocks(params).reshape(-1), np.float32(dt), steps,
        blocks)
    return from_blocks(states, worlds)


def rollout_vjp(
    states: Array, commands: Array, params: Array, dt: float, d_states: Array
) -> tuple[Array, Array]:
    """Cotangents of ``start`` [N, 17] and ``commands`` [T, N, 4] from those of all ``states`` [T + 1, N, 17]."""
    steps, worlds = check(commands, params, dt)
    expect("states", states, (steps + 1, worlds, STATE_SIZE))
    expect("d_states", d_states, (steps + 1, worlds, STATE_SIZE))
    grads = to_blocks(d_states)
    command_grads = np.empty((steps, grads.shape[1], 4, LANES), np.float32)
    _roll_vjp(
        to_blocks(states).reshape(-1), to_blocks(commands).reshape(-1), to_blocks(params).reshape(-1), np.float32(dt),
        steps, grads.shape[1], grads.reshape(-1), command_grads.reshape(-1),
    )  # fmt: skip
    return from_blocks(grads[0], worlds), from_blocks(command_grads, worlds)


def step(state: Array, command: Array, params: Array, dt: float) -> Array:
    """The state [N, 17] after one step of ``dt`` [s] under ``command`` [N, 4]; ``params`` [N, 35]."""
    return rollout(state, command[None], params, dt)[1]


def step_vjp(state: Array, command: Array, params: Array, dt: float, d_next: Array) -> tuple[Array, Array]:
    """Cotangents of ``state`` [N, 17] and ``command`` [N, 4] from that of the next state ``d_next`` [N, 17]."""
    pair = np.stack([state, state])  # the adjoint reads only the state before the step
    d_state, d_command = rollout_vjp(pair, command[None], params, dt, np.stack([np.zeros_like(d_next), d_next]))
    return d_state, d_command[0]


def pack_params(params: Mapping[str, Array | Sequence[float] | float], worlds: int) -> Array:
    """Physical parameters by name (one set, or one per world) packed for the kernels: [N, 35] float32.

    Names and units as in ``robot.parameters`` and the disturbances of the backend. ``rate_gain`` has an effect where
    the rate loop is in front; ``command_delay`` is accepted and has none.
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
    p[:, physics.INV_MASS] = 1 / rows("mass", 1)[:, 0]
    p[:, physics.JX : physics.JZ + 1] = rows("inertia", 3)
    p[:, physics.INV_JX : physics.INV_JZ + 1] = 1 / rows("inertia", 3)
    p[:, physics.C0 : physics.C2 + 1] = rows("thrust_curve", 3)
    p[:, physics.REACTION] = rows("torque_per_thrust", 1)[:, 0]
    p[:, physics.RATE_UP] = 1 / rows("tau_up", 1)[:, 0]
    p[:, physics.RATE_DOWN] = 1 / rows("tau_down", 1)[:, 0]
    p[:, physics.ARM_X : physics.ARM_Y + 1] = rows("arm", 2)
    for name, first in (("drag", physics.DRAG_X), ("motor_gain", physics.GAIN0), ("wind_w", physics.WIND_X),
                        ("force_w", physics.FORCE_X), ("torque_b", physics.TORQUE_X),
                        ("rate_gain", physics.RATE_GAIN_X)):
        size = len(OPTIONAL[name])
        p[:, first : first + size] = rows(name, size)
    if not np.isfinite(p).all():
        raise ValueError("parameters: every value must be finite")
    return p


def robot_params(robot: RobotSpec) -> dict[str, tuple[float, ...]]:
    """Nominal parameters of ``robot`` by name, as :func:`pack_params` takes them."""
    return {name: robot.parameters[name].nominal for name in (*CHECKED, "drag", "motor_gain", "rate_gain")}


def to_blocks(rows: Array) -> Array:
    """Rows [..., N, F] as blocks [..., B, F, 16]; the last block is filled up with the last world."""
    worlds = rows.shape[-2]
    order = np.minimum(np.arange(-(-worlds // LANES) * LANES), worlds - 1)
    tiles = rows[..., order, :].reshape(*rows.shape[:-2], -1, LANES, rows.shape[-1])
    return np.ascontiguousarray(np.swapaxes(tiles, -1, -2), dtype=np.float32)


def from_blocks(blocks: Array, worlds: int) -> Array:
    """Blocks [..., B, F, 16] as rows [..., N, F]."""
    rows = np.swapaxes(blocks, -1, -2)
    return np.ascontiguousarray(rows.reshape(*rows.shape[:-3], -1, rows.shape[-1])[..., :worlds, :])


def check(commands: Array, params: Array, dt: float) -> tuple[int, int]:
    if commands.ndim != 3 or commands.shape[2] != 4 or 0 in commands.shape:
        raise ValueError(f"commands have shape {commands.shape}, expected [T, N, 4]")
    expect("params", params, (commands.shape[1], PARAM_SIZE))
    if not 0.0 < dt <= 0.1:
        raise ValueError(f"dt is {dt} s; it must lie in (0, 0.1]")
    return commands.shape[0], commands.shape[1]


def expect(name: str, value: Array, shape: tuple[int, ...]) -> None:
    if value.shape != shape:
        raise ValueError(f"{name} has shape {value.shape}, expected {shape}")
