"""The state of a reset: positions, velocities, and the controls that hold them."""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np

from temporeal.robots.registry import UnknownName
from temporeal.sim.physics.mujoco import robot_files
from temporeal.sim.physics.mujoco.model import Array, Model


def reset_rows(model: Model, state: Mapping[str, Array], count: int) -> tuple[Array, Array]:
    """qpos [K, nq] and qvel [K, nv] of ``state``: signals [K, ...] by name, home for what is left out."""
    unknown = [name for name in state if name not in model.writes]
    if unknown:
        raise UnknownName(f"reset: cannot set {', '.join(unknown)}; what can be set: {', '.join(model.writes)}")
    rows = {"qpos": np.tile(model.home_qpos, (count, 1)), "qvel": np.zeros((count, model.mj.nv))}
    for name, value in state.items():
        read, spec = model.writes[name], model.scene.signals[name]
        if value.shape != (count, *spec.shape):
            raise ValueError(f"reset: {name} has shape {value.shape}, expected {(count, *spec.shape)}")
        if not np.isfinite(value).all():
            raise ValueError(f"reset: {name} has a non-finite value")
        rows[read.field][:, read.columns] = unit_quaternion(name, value) if spec.unit == "wxyz" else value.reshape(
            count, spec.size)
    for read in (model.writes[name] for name in state):
        if read.attitude is not None:  # after the attitudes are in their places
            vector = rows["qvel"][:, read.columns]
            rows["qvel"][:, read.columns] = into_body(rows["qpos"][:, read.attitude], vector)
    return rows["qpos"], rows["qvel"]


def into_body(quat: Array, vector: Array) -> Array:
    """Vectors [K, 3] of the world in the frames of bodies with attitudes ``quat`` [K, 4] (wxyz, body to world)."""
    w, turn = quat[:, :1], -quat[:, 1:]
    twice = 2.0 * np.cross(turn, vector)
    out: Array = vector + w * twice + np.cross(turn, twice)
    return out


def unit_quaternion(name: str, value: Array) -> Array:
    """``value`` [K, 4] with length 1."""
    norm = np.linalg.norm(value, axis=-1, keepdims=True)
    if len(value) and norm.min() < 1e-3:
        raise ValueError(f"reset: {name} must have a norm near 1, got {norm.min():g}")
    return value / norm


def holding_ctrl(model: Model, qpos: Array) -> Array:
    """Controls [K, nu] under which position servos rest at ``qpos`` [K, nq]; home for the other actuators."""
    mj = model.mj
    out = np.tile(model.home_ctrl, (len(qpos), 1))
    for i in np.flatnonzero(mj.actuator_dyntype == mujoco.mjtDyn.mjDYN_NONE):
        length = robot_files.lengths(mj, i, qpos)
        if length is not None:
            out[:, i] = length
    limited = mj.actuator_ctrllimited.astype(bool)
    low, high = mj.actuator_ctrlrange.T
    out[:, limited] = np.clip(out[:, limited], low[limited], high[limited])
    return out


def holding_act(model: Model, qpos: Array) -> Array:
    """Activations [K, na] under which servos that integrate their setpoint rest at ``qpos`` [K, nq]; 0 for others."""
    mj = model.mj
    out = np.zeros((len(qpos), mj.na))
    for i in np.flatnonzero(mj.actuator_dyntype == mujoco.mjtDyn.mjDYN_INTEGRATOR):
        length = robot_files.lengths(mj, i, qpos)
        if length is not None:
            low, high = mj.actuator_actrange[i] if mj.actuator_actlimited[i] else (-np.inf, np.inf)
            out[:, mj.actuator_actadr[i]] = np.clip(length, low, high)
    return out


def fill_history(model: Model, history: Array, worlds: Array, ctrl: Array) -> None:
    """Fill the actuators' delay buffers as if ``ctrl`` [K, nu] had always been applied.

    A buffer is [free number, cursor, times[n], values[n]] (MuJoCo: mj_initCtrlHistory).
    """
    mj = model.mj
    for i in np.flatnonzero(mj.actuator_history[:, 0] > 0):
        count, first = int(mj.actuator_history[i, 0]), int(mj.actuator_historyadr[i]) + 2
        history[worlds, first + count : first + 2 * count] = ctrl[:, i : i + 1]
