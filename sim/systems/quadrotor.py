"""Quadrotor: the Crazyflie by collective thrust and body rates at 50 Hz, in a room of 5 m by 5 m by 2.5 m."""

from __future__ import annotations

from collections.abc import Mapping
from math import radians
from typing import Any

import torch
from torch import Tensor

from robots.crazyflie.spec import GRAVITY, ROTOR_SIGN_X, ROTOR_SIGN_Y, ROTOR_SIGN_YAW
from robots.spec import RobotSpec, load_robot
from sim.backends.quadrotor_adjoint import pack_params, robot_params, torch_step
from sim.maps import AffineAction, rotation
from sim.scene import Scene
from sim.system import OnDevices, Signals, System, between, inside, settings
from sim.task import Draw

CONTROL_DT, SUBSTEPS = 0.02, 4
SLACK = 0.03  # m
HALF, TOP = 2.5, 2.5  # m: half the room's side, its height
FENCE = {"low": (-HALF, -HALF, 0.0), "high": (HALF, HALF, TOP)}
SCALE = (0.2, 5.0, 5.0, 2.0)  # N, rad/s at action 1, as in sim/tasks/waypoints.py
SIGNALS = (("base_pos_w", 3), ("base_quat_w", 4), ("base_vel_w", 3), ("base_ang_vel_b", 3), ("rotor_speed", 4))


class Model:
    """The physics of the backend ``quadrotor`` with the rate loop in front: its state [B, 17].

    Physics steps and their derivatives are compiled (:mod:`sim.backends.quadrotor_adjoint`): float32, on the CPU.
    """

    action_dim = 4

    def __init__(self, robot: RobotSpec, act: AffineAction) -> None:
        p = {name: torch.tensor(parameter.nominal) for name, parameter in robot.parameters.items()}
        self.center, self.scale, self.inertia = act.center, act.scale, p["inertia"]
        self.low, self.high = act.low, act.high
        self.gain, self.curve = p["rate_gain"], p["thrust_curve"]
        self.lever = torch.stack([p["arm"][1], p["arm"][0], p["torque_per_thrust"][0]])
        self.full = float(p["thrust_curve"].sum())
        self.params = torch.from_numpy(pack_params(robot_params(robot), 1))
        self.hover = float(self.speed(p["mass"] * GRAVITY / 4))
        # thrusts of the rotors per share of each torque
        self.mix = torch.tensor([ROTOR_SIGN_Y, [-x for x in ROTOR_SIGN_X], ROTOR_SIGN_YAW])

    def state(self, signals: Signals) -> Tensor:
        """States of the signals; at rest, rotors at hover speed, where velocities or ``rotor_speed`` are not there."""
        hover, rest = torch.full_like(signals["base_quat_w"], self.hover), torch.zeros_like(signals["base_pos_w"])
        return torch.cat([signals.get(name, hover if size == 4 else rest) for name, size in SIGNALS], -1)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """Four physics steps with the rate loop at each."""
        command = torch.minimum(torch.maximum(self.center + self.scale * action.clamp(-1.0, 1.0), self.low), self.high)
        params = self.params.expand(len(state), -1)
        for _ in range(SUBSTEPS):
            state = on_ground(torch_step(state, self.rotors(state, command), params, CONTROL_DT / SUBSTEPS))
        return state

    def rotors(self, state: Tensor, command: Tensor) -> Tensor:
        """Rotor speed setpoints [B, 4]: the rate loop and mixer of sim/backends/quadrotor_physics.py."""
        rates = state[:, 10:13]
        spin = torch.linalg.cross(rates, self.inertia * rates)
        torque = self.inertia * self.gain * (command[:, 1:] - rates) + spin
        roll, pitch, yaw = (0.25 * torque / self.lever).split(1, -1)
        thrust = 0.25 * command[:, :1].clamp(0.0, 4 * self.full) + roll * self.mix[0] + pitch * self.mix[1]
        thrust = (thrust - (thrust.amax(-1, keepdim=True) - self.full).clamp(min=0.0)).clamp(0.0, self.full)
        room = torch.where(self.mix[2] > 0, self.full - thrust, thrust).amin(-1, keepdim=True)
        back = torch.where(self.mix[2] > 0, thrust, self.full - thrust).amin(-1, keepdim=True)
        return self.speed(thrust + torch.minimum(torch.maximum(yaw, -back), room) * self.mix[2])

    def speed(self, thrust: Tensor) -> Tensor:
        """Rotor speeds in [0, 1] that give ``thrust`` N each."""
        c0, c1, c2 = self.curve
        return (((c1 * c1 + 4 * c2 * (thrust - c0)).clamp(min=0.0).sqrt() - c1) / (2 * c2)).clamp(0.0, 1.0)

    def signals(self, state: Tensor) -> dict[str, Tensor]:
        """All signals of the robot, and the rotors' speeds."""
        parts = state.split([size for _, size in SIGNALS], -1)
        return {**{name: part for (name, _), part in zip(SIGNALS, parts)}, "height": state[:, 2]}


def on_ground(state: Tensor) -> Tensor:
    """The plane z = 0, which holds whatever touches it."""
    flies = (state[:, 2:3] > 0) | (state[:, 9:10] > 0)
    zero = torch.zeros_like(state[:, 7:13])
    return torch.cat([state[:, :2], state[:, 2:3].clamp(min=0.0), state[:, 3:7],
                      torch.where(flies, state[:, 7:13], zero), state[:, 13:]], -1)


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


def make() -> System:
    """The system."""
    robot = load_robot("crazyflie")
    act = AffineAction(robot, "ctbr_cmd", center=(robot.parameters["mass"].nominal[0] * GRAVITY, 0.0, 0.0, 0.0),
                       scale=SCALE)
    return System(
        name="quadrotor", scene=Scene(robot), command="ctbr_cmd", backend="quadrotor", control_dt=CONTROL_DT,
        substeps=SUBSTEPS, stop="level", act=act, reads=("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b"),
        observe=observe, size=18, signals=robot.signals, initial=initial, fence=FENCE, pace=1.5,
        slack=SLACK, model=OnDevices(Model(robot, act)))
