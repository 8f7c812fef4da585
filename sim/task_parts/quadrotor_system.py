"""A quadrotor as formulas see it: by collective thrust and body rates at 50 Hz, in a room of 5 m by 5 m by 2.5 m."""

from __future__ import annotations

from collections.abc import Mapping
from math import radians
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.spec import RobotSpec
from temporeal.sim.draws import between
from temporeal.sim.maps import AffineAction
from temporeal.sim.physics.quadrotor.adjoint import pack_params, robot_params, torch_rollout
from temporeal.sim.physics.quadrotor.parameters import controller_params, hover_speed
from temporeal.sim.rotations import rotation
from temporeal.sim.scene import Scene
from temporeal.sim.system import OnDevices, Signals, System, inside, settings
from temporeal.sim.task import Draw
from temporeal.sim.task_parts.quadrotors import RATES, physics_steps, rates_action

CONTROL_DT, SUBSTEPS = 0.02, 4
SLACK = 0.03  # m
HALF, TOP = 2.5, 2.5  # m: half the room's side, its height
FENCE = {"low": (-HALF, -HALF, 0.0), "high": (HALF, HALF, TOP)}
SIGNALS = (("base_pos_w", 3), ("base_quat_w", 4), ("base_vel_w", 3), ("base_ang_vel_b", 3), ("rotor_speed", 4))


class Model:
    """The physics of the backend ``quadrotor`` with the rate loop in front: its state [B, 17].

    Plans and their derivatives are compiled (:mod:`temporeal.sim.physics.quadrotor.adjoint`): float32, on the CPU.
    """

    action_dim = 4

    def __init__(self, robot: RobotSpec, act: AffineAction, substeps: int) -> None:
        self.substeps = substeps
        self.center, self.scale, self.low, self.high = act.center, act.scale, act.low, act.high
        self.params = torch.from_numpy(pack_params(robot_params(robot), 1))
        self.nominal = torch.from_numpy(controller_params(robot))
        nominal = {name: torch.tensor([robot.parameters[name].nominal]) for name in ("thrust_curve", "motor_gain")}
        self.hover = float(hover_speed({**nominal, "mass": torch.tensor(robot.parameters["mass"].nominal)})[0, 0])

    def state(self, signals: Signals) -> Tensor:
        """States of the signals; at rest, rotors at hover speed, where velocities or ``rotor_speed`` are not there."""
        hover, rest = torch.full_like(signals["base_quat_w"], self.hover), torch.zeros_like(signals["base_pos_w"])
        return torch.cat([signals.get(name, hover if size == 4 else rest) for name, size in SIGNALS], -1)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """A control step: physics steps with the rate loop at each."""
        return self.rollout(state, action[:, None])[0]

    def rollout(self, state: Tensor, actions: Tensor) -> Tensor:
        """The states [T, B, 17] after each of ``actions`` [B, T, 4]."""
        commands = self.center + self.scale * actions.clamp(-1.0, 1.0)
        commands = torch.minimum(torch.maximum(commands, self.low), self.high)
        params = self.params.expand(len(state), -1)
        return torch_rollout(state, commands.transpose(0, 1), params, self.nominal, CONTROL_DT / self.substeps,
                             self.substeps)[1:]

    def signals(self, state: Tensor) -> dict[str, Tensor]:
        """All signals of the robot, and the rotors' speeds."""
        parts = state.split([size for _, size in SIGNALS], -1)
        return {**{name: part for (name, _), part in zip(SIGNALS, parts)}, "height": state[:, 2]}


def observe(signals: Signals) -> Tensor:
    """Place, attitude (9), velocity and body rates: [N, 18]."""
    place = signals["base_pos_w"] / HALF - torch.tensor([0.0, 0.0, 0.5], device=signals["base_pos_w"].device)
    return torch.cat([place, rotation(signals["base_quat_w"]).flatten(1), 0.5 * signals["base_vel_w"],
                      0.2 * signals["base_ang_vel_b"]], -1)


def initial(draw: Draw, start: Mapping[str, Any]) -> dict[str, Tensor]:
    """In the box ``low`` to ``high`` [3] m, near hover: tilted up to ``tilt`` rad, at ``speed`` m/s along each axis."""
    found = settings("quadrotor", start, low=(-0.2, -0.2, 0.8), high=(0.2, 0.2, 1.2), tilt=(radians(10.0),),
                     speed=(0.2,))
    inside("quadrotor", found, FENCE)
    u = draw("initial.flight", 10)
    axis = 2 * u[:, 3:6] - 1
    axis = axis / axis.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    half = 0.5 * found["tilt"][0] * u[:, 6:7]
    return {"base_pos_w": between(found["low"], found["high"], u[:, :3]),
            "base_quat_w": torch.cat([half.cos(), half.sin() * axis], -1),
            "base_vel_w": found["speed"][0] * (2 * u[:, 7:10] - 1)}


def quadrotor_system(robot: RobotSpec, name: str = "") -> System:
    """The system of a quadrotor; ``name``: the robot's where it is empty."""
    act, substeps = rates_action(robot), physics_steps(robot, CONTROL_DT, SUBSTEPS)
    return System(
        name=name or robot.name, scene=Scene(robot), command=RATES, backend="quadrotor", control_dt=CONTROL_DT,
        substeps=substeps, stop="level", act=act, reads=("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b"),
        observe=observe, size=18, signals=robot.signals, initial=initial, fence=FENCE, pace=1.5,
        slack=SLACK, model=OnDevices(Model(robot, act, substeps)))
