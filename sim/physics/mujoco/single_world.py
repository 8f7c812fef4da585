"""One world of a scene in MuJoCo: an arm or a hand, as a simulated robot process has it. numpy and mujoco, no torch.

    world = World(load_robot("franka"), "joint_pos_cmd", dt=0.001)
    world.reset({"joint_pos": (0, -0.8, 0, -2.4, 0, 1.6, 0.8)})
    world.step(np.array([0.1, -0.8, 0, -2.4, 0, 1.6, 0.8]))
    world.signals()["joint_pos"]

Model, gains, delay and gravity compensation are those of training, because they are built by the same code
(:mod:`temporeal.sim.physics.mujoco.mjcf`). Equal, bit for bit, to one world of the batch
(:mod:`temporeal.sim.physics.mujoco.worlds`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal.sim.physics.mujoco import mjcf, robot_files
from temporeal.sim.physics.mujoco.model import Read, element
from temporeal.sim.physics.mujoco.parameters import SET_CONST, check_values, write_params
from temporeal.sim.physics.mujoco.resets import fill_history, holding_act, holding_ctrl, reset_rows
from temporeal.sim.scene import Scene, as_scene

LIMIT = 1e10  # beyond this MuJoCo itself calls a state bad (mjMAXVAL)
POS, VEL, ACC = (int(getattr(mujoco.mjtStage, f"mjSTAGE_{name}")) for name in ("POS", "VEL", "ACC"))
ENERGY = int(mujoco.mjtEnableBit.mjENBL_ENERGY)


def file_dt(robot: RobotSpec) -> float:
    """The physics step [s] that the robot's model file asks for."""
    return float(robot_files.compiled(robot).opt.timestep)


class World:
    """A robot among the objects of its scene. ``model`` and ``data`` are MuJoCo's own, for a viewer."""

    def __init__(self, what: Scene | RobotSpec, command: str, dt: float) -> None:
        """Build the world at home.

        Args:
            command: the robot's command that the actuators take.
            dt: physics step, s.
        """
        self.nominal = mjcf.build(as_scene(what), command, dt)
        self.scene, self.command, self.dt = self.nominal.scene, command, dt
        self.model = copy.copy(self.nominal.mj)  # parameters are written here; some are meant relative to the nominal
        self.data = mujoco.MjData(self.model)
        self._values = {name: np.array([p.nominal]) for name, p in self.nominal.parameters.items()}
        self.reset({})

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Change parameters (``mass``, ``kp``, ``command_delay``, ...: [count] or []) now; the motion goes on."""
        checked = {name: check_values(self.nominal, name, np.reshape(value, (1, -1)), 1)
                   for name, value in params.items()}
        self._values.update(checked)
        written = write_params(self.nominal, self._field, np.zeros(1, int), self._values, checked)
        if written & SET_CONST:
            mujoco.mj_setConst(self.model, mujoco.MjData(self.model))
        self._apply_wrench()

    def _field(self, name: str) -> np.ndarray:
        """A model field as the per-world array [1, ...] that writers of parameters expect."""
        owner, field = (self.model.opt, name[4:]) if name.startswith("opt.") else (self.model, name)
        value: np.ndarray = getattr(owner, field)[None]
        return value

    def _apply_wrench(self) -> None:
        for g in self.nominal.groups:
            if g.root is not None:
                self.data.xfrc_applied[g.root] = np.concatenate(
                    [self._values[g.prefix + name][0] for name in ("force_w", "torque_w")])

    def params(self) -> dict[str, np.ndarray]:
        """Copies of the parameters by name, [count]."""
        return {name: value[0].copy() for name, value in self._values.items()}

    def reset(self, state: Mapping[str, Any]) -> None:
        """Set the world to ``state``, signals of joints and free bodies, home for the others. Servos hold it there."""
        given = {name: np.asarray(value, dtype=np.float64)[None] for name, value in state.items()}
        qpos, qvel = reset_rows(self.nominal, given, 1)
        ctrl = holding_ctrl(self.nominal, qpos)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:], self.data.ctrl[:] = qpos[0], qvel[0], ctrl[0]
        self.data.act[:] = holding_act(self.nominal, qpos)[0]
        if self.model.nhistory:
            fill_history(self.nominal, self.data.history[None], np.zeros(1, int), ctrl)
        self._apply_wrench()
        stages(self.model, self.data, ACC if self.nominal.forces else self.nominal.stage)

    def holding(self) -> np.ndarray:
        """The command [U] under which the servos rest where the joints are."""
        out: np.ndarray = holding_ctrl(self.nominal, self.data.qpos[None])[0, self.nominal.ctrl]
        return out

    def joint_range(self, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Ends [J] of the joints, rad or m; infinite where there are none."""
        ids = [element(self.model, "joint", name).id for name in names]
        limited, ends = self.model.jnt_limited[ids].astype(bool), self.model.jnt_range[ids]
        return np.where(limited, ends[:, 0], -np.inf), np.where(limited, ends[:, 1], np.inf)

    def damping_columns(self, names: Sequence[str]) -> list[int]:
        """Where the joints' numbers are in the parameters ``damping``, ``armature`` and ``frictionloss``."""
        dofs = self.nominal.groups[0].dofs.tolist()
        return [dofs.index(int(element(self.model, "joint", name).dofadr[0])) for name in names]

    def step(self, command: np.ndarray, substeps: int = 1) -> None:
        """Advance by ``substeps * dt`` under ``command`` [U].

        Raises:
            FloatingPointError: the state left the numbers that MuJoCo can work with.
        """
        command = np.asarray(command, dtype=np.float64)
        if command.shape != self.nominal.ctrl.shape or not np.isfinite(command).all():
            raise ValueError(f"{self.command} must be {len(self.nominal.ctrl)} finite numbers, got {command}")
        self.data.ctrl[self.nominal.ctrl] = command
        mujoco.mj_step(self.model, self.data, substeps)
        # false for NaN
        if not (np.abs(self.data.qpos).max() < LIMIT and np.abs(self.data.qvel).max() < LIMIT):
            raise FloatingPointError(
                f"the simulated {self.scene.robot.name} diverged at {self.data.time} s: reset it")

    def signals(self) -> dict[str, np.ndarray]:
        """The scene's true signals, float32. Forces are those of the last step."""
        stages(self.model, self.data, self.nominal.stage)
        return {name: self._read(read) for name, read in self.nominal.reads.items()}

    def _read(self, read: Read) -> np.ndarray:
        values: np.ndarray = getattr(self.data, read.field)[read.columns]
        if read.norm:
            values = np.linalg.norm(values.reshape(-1, 3), axis=-1)
        return np.array(values, dtype=np.float32).reshape(read.shape)


def stages(model: mujoco.MjModel, data: mujoco.MjData, stage: int) -> None:
    """MuJoCo's pipeline up to ``stage``, sensors included, after its checks of the state, as ``mujoco.batch``."""
    if stage >= POS:
        mujoco.mj_checkPos(model, data)
        mujoco.mj_checkVel(model, data)
    if stage >= ACC:
        mujoco.mj_forward(model, data)
    elif stage >= POS:
        mujoco.mj_fwdPosition(model, data)
        mujoco.mj_sensorPos(model, data)
        energy = model.opt.enableflags & ENERGY
        if energy:
            mujoco.mj_energyPos(model, data)
        if stage >= VEL:
            mujoco.mj_fwdVelocity(model, data)
            mujoco.mj_sensorVel(model, data)
            if energy:
                mujoco.mj_energyVel(model, data)
