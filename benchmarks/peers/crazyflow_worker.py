"""The process of crazyflow: a batch of Crazyflies whose rotors it is told the speeds of.

Its first-principles dynamics with its own integrator: rigid body, thrust and torque curves of each rotor, lag of rotors
that speed up and slow down, drag, and what our models lack: a propeller's own inertia. Arrays travel as base64 of
float64 rows.
"""

from __future__ import annotations

import base64
import os
import warnings
from typing import Any

os.environ.update(SCIPY_ARRAY_API="1", JAX_PLATFORMS="cpu",
                  XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
warnings.simplefilter("ignore")

import jax.numpy as jnp  # type: ignore[import-not-found]  # noqa: E402
import numpy as np  # noqa: E402
from crazyflow.control import Control  # type: ignore[import-not-found]  # noqa: E402
from crazyflow.dynamics import Dynamics  # type: ignore[import-not-found]  # noqa: E402
from crazyflow.sim import Sim  # type: ignore[import-not-found]  # noqa: E402

from temporeal_benchmarks.peers.process import serve  # noqa: E402

DRONE = "cf2x_L250"
MADE: dict[str, Any] = {}


def packed(values: Any) -> str:
    """An array as text."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.float64).tobytes()).decode()


def unpacked(text: str, worlds: int) -> Any:
    """Rows [N, ...] of such a text."""
    return np.frombuffer(base64.b64decode(text)).reshape(worlds, -1)


def make(worlds: int, hertz: int) -> str:
    """Keep ``worlds`` of them; the name of the integrator."""
    MADE["sim"] = Sim(n_worlds=worlds, drone=DRONE, control=Control.rotor_vel, dynamics=Dynamics.first_principles,
                      freq=hertz)
    sim = MADE["sim"]
    MADE["torque"] = np.asarray(sim.data.params.rpm2torque)[0]
    sim.step_pipeline.pop("clip_rotor_vel_cmd")  # its limits are its own drone's: ours has the robot's in its commands
    sim._step = sim.build_step_fn()
    return str(sim.integrator)


def describe(rows: str) -> None:
    """Parameters of each world, [N, 24]: mass, arm, inertia [3], thrust over rpm of each rotor [4, 3], torque per
    thrust, hover rpm, time constants up and (at hover) down, drag [3], in this order."""
    sim = MADE["sim"]
    given = unpacked(rows, sim.n_worlds)[:, None]  # [N, 1, 24]
    mass, arm, inertia, thrust = given[..., :1], given[..., 1:2], given[..., 2:5], given[..., 5:17]
    reaction, hover, up, down, drag = (given[..., 17:18], given[..., 18:19], given[..., 19:20], given[..., 20:21],
                                       given[..., 21:24])
    curves = thrust.reshape(*thrust.shape[:2], 4, 3)
    own = MADE["torque"]  # its curve's form, scaled to the robot's torque at hover
    rpm = hover[..., None]
    at_hover = curves[..., :1] + rpm * (curves[..., 1:2] + rpm * curves[..., 2:])  # [N, 1, 4, 1]
    scale = reaction[..., None] * at_hover / (own[0] + rpm * (own[1] + rpm * own[2]))
    diagonal = np.einsum("nmi,ij->nmij", inertia, np.eye(3))
    zero = np.zeros_like(up)
    # rotors that speed up are linear in speed, those that slow down quadratic, as in its identified drone
    lag = np.stack([1 / up, zero, zero, 1 / (2 * hover * down)], -1)
    params = sim.data.params.replace(
        mass=jnp.asarray(mass), L=jnp.asarray(arm), J=jnp.asarray(diagonal), J_inv=jnp.asarray(np.linalg.inv(diagonal)),
        rpm2thrust=jnp.asarray(curves), rpm2torque=jnp.asarray(scale * own), rotor_dyn_coef=jnp.asarray(lag),
        drag_matrix=jnp.asarray(-np.einsum("nmi,ij->nmij", drag, np.eye(3))))
    sim.data = sim.data.replace(params=params)


def step(state: str, setpoints: str, push: str) -> str:
    """One step from ``state`` [N, 17] (position, quaternion xyzw, velocity, rates, rpm) under rpm setpoints [N, 4],
    pushed by force and torque of the world [N, 6]: the next state."""
    sim = MADE["sim"]
    s, u, f = (unpacked(each, sim.n_worlds)[:, None] for each in (state, setpoints, push))
    states = sim.data.states.replace(
        pos=jnp.asarray(s[..., :3]), quat=jnp.asarray(s[..., 3:7]), vel=jnp.asarray(s[..., 7:10]),
        ang_vel=jnp.asarray(s[..., 10:13]), rotor_vel=jnp.asarray(s[..., 13:17]), force=jnp.asarray(f[..., :3]),
        torque=jnp.asarray(f[..., 3:]))
    sim.data = sim.data.replace(states=states, controls=sim.data.controls.replace(rotor_vel=jnp.asarray(u)))
    sim.step(1)
    out = sim.data.states
    return packed(np.concatenate([np.asarray(each)[:, 0] for each in (
        out.pos, out.quat, out.vel, out.ang_vel, out.rotor_vel)], 1))


if __name__ == "__main__":
    serve([make, describe, step])
