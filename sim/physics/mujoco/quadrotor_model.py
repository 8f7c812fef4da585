"""A quadrotor in MuJoCo: its model with physical parameters, and one robot to fly. numpy and mujoco, no torch.

    robot = Robot(load_robot("crazyflie"), "ctbr_cmd")
    robot.reset({"base_pos_w": (0, 0, 0.5)})
    robot.step(np.array([0.31, 0, 0, 0]), substeps=10)      # 20 ms
    robot.signals()["base_pos_w"]

Rigid body, contact and integration are MuJoCo's; rotors, rate loop, drag and disturbances come from
:mod:`temporeal.sim.physics.quadrotor.rotor`, as rotor thrusts in ``ctrl`` and as a force in ``qfrc_applied`` (of a free
joint: force in the world, torque in the body).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import RobotSpec
from temporeal.sim.physics.quadrotor.rotor import SIZES, Layout, Rotors

ROTORS = ("rotor1", "rotor2", "rotor3", "rotor4")
STATE_SIGNALS = {"base_pos_w": 3, "base_quat_w": 4, "base_vel_w": 3, "base_ang_vel_b": 3}
RESETTABLE = (*STATE_SIGNALS, "rotor_speed")
LIMIT = 1e10  # beyond this MuJoCo itself calls a state bad (mjMAXVAL)


def build(robot: RobotSpec, dt: float = 0.002) -> mujoco.MjModel:
    """The compiled MJCF of ``robot`` with physics step ``dt`` [s].

    Rotor thrusts are not limited again (the rotor speeds are), and a diverging state stays as it is instead of being
    reset behind the caller's back.
    """
    if robot.kind != "quadrotor":
        raise ValueError(f"this backend simulates quadrotors; robot {robot.name!r} is of kind {robot.kind!r}")
    if robot.model is None or not robot.model.exists():
        raise FileNotFoundError(f"robot {robot.name!r}: its MJCF {robot.model} does not exist")
    model = mujoco.MjModel.from_xml_path(str(robot.model))
    for kind, name in (("body", "base"), *(("site", n) for n in ROTORS), *(("actuator", n) for n in ROTORS)):
        if mujoco.mj_name2id(model, getattr(mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), name) < 0:
            raise ValueError(f"{robot.model}: a quadrotor model needs a {kind} named {name!r}")
    if (model.nq, model.nv, model.nu) != (7, 6, 4):
        raise ValueError(
            f"{robot.model}: expected one free body and four rotors, got nq, nv, nu = {model.nq, model.nv, model.nu}"
        )
    model.opt.timestep = dt
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    model.actuator_ctrllimited[:] = 0
    return model


def layout(model: mujoco.MjModel) -> Layout:
    """Signs of the rotors' positions and reaction torques, as the model has them."""
    position, gear = model.site_pos[sites(model)], model.actuator_gear[actuators(model)]
    return Layout(np.sign(position[:, :1]), np.sign(position[:, 1:2]), np.sign(gear[:, 5:6]))


def sites(model: mujoco.MjModel) -> list[int]:
    """Site ids of M1..M4."""
    return [model.site(name).id for name in ROTORS]


def actuators(model: mujoco.MjModel) -> list[int]:
    """Actuator ids of M1..M4."""
    return [model.actuator(name).id for name in ROTORS]


def write_params(fields: Mapping[str, np.ndarray], ids: np.ndarray, rotors: Rotors, model: mujoco.MjModel) -> None:
    """Write what MuJoCo simulates of the parameters of the worlds ``ids`` [K] into its fields.

    Args:
        fields: ``body_mass`` [N, nbody], ``body_inertia`` [N, nbody, 3], ``site_pos`` [N, nsite, 3] and
            ``actuator_gear`` [N, nu, 6].
        model: gives ids by name.
    """
    body, signs = model.body("base").id, rotors.belief.layout
    params = {name: rotors.params[name][:, ids] for name in ("mass", "inertia", "arm", "torque_per_thrust")}
    fields["body_mass"][ids, body] = params["mass"][0]
    fields["body_inertia"][ids, body] = params["inertia"].T
    for i, (site, actuator) in enumerate(zip(sites(model), actuators(model))):
        fields["site_pos"][ids, site, 0] = signs.x[i] * params["arm"][0]
        fields["site_pos"][ids, site, 1] = signs.y[i] * params["arm"][1]
        fields["actuator_gear"][ids, actuator, 5] = signs.yaw[i] * params["torque_per_thrust"][0]


PER_WORLD = ("body_mass", "body_inertia", "site_pos", "actuator_gear")


def reset_value(robot: RobotSpec, name: str, state: Mapping[str, Any], count: int) -> np.ndarray:
    """Signal ``name`` of ``state`` (or home) as float64 [K, size], checked; a quaternion with length 1."""
    size = STATE_SIGNALS.get(name, 4)
    if name not in state:
        return np.tile(np.array(robot.home[name], dtype=np.float64), (count, 1))
    value = np.asarray(state[name], dtype=np.float64)
    if value.shape != (count, size):
        raise ValueError(f"reset: {name} has shape {value.shape}, expected {(count, size)}")
    if not np.isfinite(value).all():
        raise ValueError(f"reset: {name} has a non-finite value")
    if name != "base_quat_w":
        return value
    norm = np.sqrt((value * value).sum(1, keepdims=True))
    if not (norm > 1e-3).all():
        raise ValueError(f"reset: base_quat_w must have a length near 1, got {norm.min()}")
    unit: np.ndarray = value / norm
    return unit


def check_reset_names(state: Mapping[str, Any]) -> None:
    """Refuse a signal that no reset can set; ``height`` is part of the position and is not read."""
    unknown = sorted(set(state) - {*RESETTABLE, "height"})
    if unknown:
        raise UnknownName(f"reset: unknown signals {unknown}; known: {', '.join(RESETTABLE)}")


class Robot:
    """One robot: what a simulated robot process flies. Equal, bit for bit, to one world of the batch backend.

    ``model`` and ``data`` are MuJoCo's own, for a viewer.
    """

    def __init__(
        self,
        robot: RobotSpec,
        command: str = "ctbr_cmd",
        dt: float = 0.002,
        seed: int = 0,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Build the robot at home.

        Args:
            command: ``"motor_cmd"`` (normalized rotor speed setpoints) or ``"ctbr_cmd"`` (thrust N, body rates rad/s).
            dt: physics step, s.
            seed: kept for the caller; the physics draws no random numbers.
            params: other than nominal parameters by name, shapes as in ``robot.parameters`` ([] or [k]).
        """
        self.robot, self.command, self.dt, self.seed = robot, command, dt, seed
        self.model = build(robot, dt)
        self.rotors = Rotors(robot, layout(self.model), 1, command, dt)
        self.data = mujoco.MjData(self.model)
        self.set_params(params or {})
        self.reset()

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Change parameters (mass, wind_w, ...) now; the motion goes on."""
        world = np.zeros(1, dtype=np.int64)
        self.rotors.set_params(world, {name: np.asarray(value)[None] for name, value in params.items()})
        if not params or set(params) & {"mass", "inertia", "arm", "torque_per_thrust"}:
            write_params({name: getattr(self.model, name)[None] for name in PER_WORLD}, world, self.rotors, self.model)
            mujoco.mj_setConst(self.model, mujoco.MjData(self.model))

    def params(self) -> dict[str, np.ndarray]:
        """A copy of the parameters by name, [] or [k]."""
        return {name: self.rotors.params[name][:, 0].reshape(_shape(name)).copy() for name in SIZES}

    def reset(self, state: Mapping[str, Any] | None = None) -> None:
        """Set the robot to ``state`` (any of :data:`RESETTABLE`, without a world axis), home for what is left out.

        Rotors turn at ``rotor_speed`` if given, else at hover speed.
        """
        state = {name: np.asarray(value)[None] for name, value in (state or {}).items()}
        check_reset_names(state)
        values = [reset_value(self.robot, name, state, 1)[0] for name in STATE_SIGNALS]
        speed = reset_value(self.robot, "rotor_speed", state, 1) if "rotor_speed" in state else None
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = np.concatenate(values[:2]), np.concatenate(values[2:])
        self.rotors.reset(np.zeros(1, dtype=np.int64), speed)

    def step(self, command: np.ndarray, substeps: int) -> None:
        """Advance by ``substeps * dt`` under ``command`` [4]."""
        command = np.asarray(command, dtype=np.float64)
        if command.shape != (4,) or not np.isfinite(command).all():
            raise ValueError(f"{self.command} must be 4 finite numbers, got {command}")
        if substeps < 1:
            raise ValueError(f"substeps is {substeps}; it must be at least 1")
        data, rotors = self.data, self.rotors
        rotors.take(command[None])
        for k in range(substeps):
            qvel = data.qvel[:, None]
            thrust, force = rotors.advance(data.qpos[3:, None], qvel[:3], qvel[3:], k * self.dt)
            data.ctrl[:] = thrust[:, 0]
            data.qfrc_applied[:3], data.qfrc_applied[3:] = force[:, 0], rotors.params["torque_b"][:, 0]
            mujoco.mj_step(self.model, data)
        if not (np.abs(data.qpos).max() < LIMIT and np.abs(data.qvel).max() < LIMIT):
            raise FloatingPointError(f"the simulated {self.robot.name} diverged at {data.time} s: reset it")

    def signals(self) -> dict[str, np.ndarray]:
        """The true signals, float32: the robot's own, ``rotor_speed`` [4], ``force_w`` [3] and ``torque_b`` [3]."""
        q, v = self.data.qpos, self.data.qvel
        values = {
            "base_pos_w": q[:3], "base_quat_w": q[3:], "base_vel_w": v[:3], "base_ang_vel_b": v[3:], "height": q[2],
            "rotor_speed": self.rotors.speed[:, 0],
            "force_w": self.rotors.params["force_w"][:, 0], "torque_b": self.rotors.params["torque_b"][:, 0],
        }  # fmt: skip
        return {name: np.array(value, dtype=np.float32) for name, value in values.items()}


def _shape(name: str) -> tuple[int, ...]:
    return () if SIZES[name] == 1 else (SIZES[name],)
