"""What simulators of others need to fly a task of ours: the robot's own controller, and a backend's interface.

A policy gives thrust and body rates; the robot's firmware makes rotor speeds of them (rate loop and mixer with nominal
parameters, as :mod:`temporeal.sim.physics.quadrotor.rotor` has it), delayed by ``command_delay``. What happens then is
the simulator's: :class:`Worlds` leaves it to ``advance``. Arrays are component first, [k, N], float64; world ENU,
body FLU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from temporeal.robots import frames
from temporeal.sim.physics.checks import check_ids, check_step
from temporeal.sim.physics.quadrotor.identified import SIGN_X, SIGN_Y, SIGN_YAW
from temporeal.sim.physics.quadrotor.rotor import SIZES, Layout, Rotors, flight_parameters, rate_loop
from temporeal.sim.scene import Scene
from temporeal.sim.types import Status

COMMAND = "ctbr_cmd"
POSE = {"base_pos_w": 3, "base_quat_w": 4, "base_vel_w": 3, "base_ang_vel_b": 3}
"""Signals of the state, with their components."""


class Worlds(ABC):
    """N quadrotors of somebody else's simulator (:class:`temporeal.sim.types.Backend`, but for saving its state)."""

    name = "foreign"
    capabilities = frozenset(("deterministic", "wrench", "delay", "mass"))
    snapshot = False

    def __init__(self, scene: Scene, num_worlds: int, dt: float) -> None:
        self.scene, self.robot, self.command = scene, scene.robot, COMMAND
        self.num_worlds, self.dt, self.seed, self.device = num_worlds, dt, 0, torch.device("cpu")
        self.parameters = flight_parameters(self.robot)
        self.rotors = Rotors(self.robot, layout(), num_worlds, COMMAND, dt)
        self.pose = {name: np.zeros((size, num_worlds)) for name, size in POSE.items()}
        self.bad = torch.zeros(num_worlds, dtype=torch.bool)
        self.reset(torch.arange(num_worlds), {})

    @abstractmethod
    def advance(self, setpoints: np.ndarray) -> None:
        """One step of ``dt`` under rotor speed setpoints [4, N], normalized: changes ``pose`` and ``rotors.speed``."""

    def changed(self, ids: np.ndarray) -> None:  # noqa: B027 (nothing to do for most)
        """Parameters of the worlds ``ids`` are others now."""

    def reset(self, ids: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set the worlds ``ids`` to ``state`` [K, ...], home where a signal is left out, rotors at hover speed."""
        worlds = check_ids(ids, self.num_worlds).numpy()
        for name, values in self.pose.items():
            given = state.get(name, torch.tensor(self.robot.home[name]).expand(len(worlds), -1))
            values[:, worlds] = given.double().numpy().T
        self.rotors.reset(worlds, state["rotor_speed"].double().numpy() if "rotor_speed" in state else None)
        self.bad[ids] = False

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds by ``substeps`` steps under ``ctrl`` [N, 4]."""
        check_step(self.command, ctrl, (self.num_worlds, 4), substeps)
        self.rotors.take(ctrl.double().numpy())
        with np.errstate(all="ignore"):  # a world that flies off is the formula's affair
            for k in range(substeps):
                command = self.rotors.applied(k * self.dt)
                self.advance(rate_loop(command, self.pose["base_ang_vel_b"], self.rotors.params["rate_gain"],
                                       self.rotors.belief))
        self.bad = torch.from_numpy(~np.all([np.isfinite(each).all(0) for each in self.pose.values()], axis=0))

    def lag(self, setpoints: np.ndarray) -> np.ndarray:
        """Rotor speeds [4, N] after a step of a first-order lag, exact for a setpoint that is held."""
        rotors = self.rotors
        left = np.where(setpoints > rotors.speed, rotors.left_up, rotors.left_down) ** 2
        rotors.speed = setpoints + (rotors.speed - setpoints) * left
        return rotors.speed

    def signals(self) -> dict[str, Tensor]:
        """The robot's signals, ``rotor_speed``, ``force_w`` and ``torque_b``, [N, ...] float32."""
        params = self.rotors.params
        values = {**self.pose, "rotor_speed": self.rotors.speed, "force_w": params["force_w"],
                  "torque_b": params["torque_b"]}
        out = {name: torch.from_numpy(each.T.astype(np.float32, order="C")) for name, each in values.items()}
        return out | {"height": out["base_pos_w"][:, 2].clone()}

    def params(self) -> dict[str, Tensor]:
        """Parameters of all worlds by name, [N, ...]."""
        return {name: torch.from_numpy((each[0] if SIZES[name] == 1 else each.T).astype(np.float32, order="C"))
                for name, each in self.rotors.params.items()}

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set physical parameters of the worlds ``ids`` [K], [K, ...] each."""
        worlds = check_ids(ids, self.num_worlds).numpy()
        self.rotors.set_params(worlds, {name: value.double().numpy() for name, value in params.items()})
        self.changed(worlds)

    def status(self) -> Status:
        """Worlds whose state is not finite."""
        return Status(self.bad.clone(), torch.zeros_like(self.bad), {})

    def state(self) -> dict[str, Tensor]:
        """Nobody saves these worlds."""
        raise NotImplementedError("worlds of the transfer matrix are flown once")

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """As :meth:`state`."""
        raise NotImplementedError("worlds of the transfer matrix are flown once")

    def extract(self, world: int, *, before: bool = False) -> dict[str, Tensor]:
        """As :meth:`state`."""
        raise NotImplementedError("worlds of the transfer matrix are flown once")

    def close(self) -> None:  # noqa: B027 (nothing to do for most)
        """Give processes back."""


def layout() -> Layout:
    """Where the Crazyflie's rotors are, and how they turn."""
    return Layout(*(sign[:, None] for sign in (SIGN_X, SIGN_Y, SIGN_YAW)))


def turned(quat: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Attitudes [4, N] turned by rotation vectors [3, N] of the body."""
    return np.asarray(frames.multiply(quat.T, frames.from_rotation_vector(angle.T)).T)


def to_world(quat: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """[3, N] of the body's axes along the world's."""
    return np.asarray(frames.rotate(quat.T, vector.T).T)


def to_body(quat: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """[3, N] of the world's axes along the body's."""
    return np.asarray(frames.rotate_inverse(quat.T, vector.T).T)
