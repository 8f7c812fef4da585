"""Quadrotors by the equations of gym-pybullet-drones, written from their paper.

Panerati et al., "Learning to Fly - a Gym Environment with PyBullet Physics for Reinforcement Learning of Multi-agent
Quadcopter Control", arXiv 2103.02142: thrust k_F P^2 and torque k_M P^2 of each rotor at P rpm, drag
-k_D sum(2 pi P / 60) v, ground effect k_G k_F (r / 4h)^2 P^2, and their explicit integration (velocity, then position).
Constants of ground effect and propeller are those of its Crazyflie (``cf2x.urdf``). Theirs has no lag of the rotors:
the robot's is taken, and its k_F, k_D so that both robots hover at the same speed and drag as much there. Above and
below hover the quadratic curve differs from the robot's. Their 240 Hz do not divide a control step of 20 ms: 250 Hz.
"""

from __future__ import annotations

import numpy as np

from temporeal.robots.crazyflie.spec import MAX_RPM
from temporeal.sim.physics.quadrotor.rotor import GRAVITY
from temporeal.sim.scene import Scene
from temporeal_benchmarks.reality.simulators.worlds import Worlds, layout, to_body, to_world, turned

GROUND, RADIUS = 11.36859, 2.31348e-2  # k_G [1]; r [m]
THRUST_TO_WEIGHT = 2.25
CLIP_M = 0.25 * RADIUS * np.sqrt(15 * GROUND / 4)  # their least height: a ground effect of 15 parts of 4 k_F P^2
RAD_S = 2 * np.pi / 60


class PybulletDrones(Worlds):
    """N quadrotors."""

    name = "pybullet-drones"

    def __init__(self, scene: Scene, num_worlds: int, dt: float) -> None:
        self.k_f = self.k_d = np.zeros(0)
        super().__init__(scene, num_worlds, dt)
        self.changed(np.arange(num_worlds))

    def changed(self, ids: np.ndarray) -> None:
        """Constants [.., N] of all worlds: k_F [4, N] N/rpm^2, k_D [3, N] N s/m per rad/s."""
        every, params = np.arange(self.num_worlds), self.rotors.params
        hover = self.rotors.hover_speed(every) * MAX_RPM  # [4, N]
        self.k_f = 0.25 * GRAVITY * params["mass"] / np.maximum(hover, 1.0) ** 2
        self.k_d = params["drag"] / np.maximum((RAD_S * hover).sum(0), 1.0)

    def advance(self, setpoints: np.ndarray) -> None:
        """One explicit step."""
        params, pose, signs = self.rotors.params, self.pose, layout()
        quat, velocity, rates = pose["base_quat_w"], pose["base_vel_w"], pose["base_ang_vel_b"]
        rpm = self.lag(setpoints) * MAX_RPM
        thrust = self.k_f * rpm**2 * self.ground(quat)
        inertia, arm = params["inertia"], params["arm"]
        torque = np.stack([arm[1] * (signs.y * thrust).sum(0), -arm[0] * (signs.x * thrust).sum(0),
                           params["torque_per_thrust"][0] * (signs.yaw * self.k_f * rpm**2).sum(0)])
        torque += params["torque_b"] - np.cross(rates, inertia * rates, axis=0)
        drag = -self.k_d * (RAD_S * rpm).sum(0) * to_body(quat, velocity - params["wind_w"])
        body = drag + np.array([[0.0], [0.0], [1.0]]) * thrust.sum(0)
        force = to_world(quat, body) + params["force_w"]
        velocity += self.dt * (force / params["mass"] - np.array([[0.0], [0.0], [GRAVITY]]))
        rates += self.dt * torque / inertia
        pose["base_pos_w"] += self.dt * velocity
        pose["base_quat_w"] = turned(quat, self.dt * rates)

    def ground(self, quat: np.ndarray) -> np.ndarray:
        """Factor [N] on thrust by the ground effect: none where the robot is upside down. All rotors are taken to be
        at the height of the middle."""
        upright = 1 - 2 * (quat[1] ** 2 + quat[2] ** 2) > 0
        height = np.maximum(self.pose["base_pos_w"][2], CLIP_M)
        return np.asarray(1 + np.where(upright, GROUND * (RADIUS / (4 * height)) ** 2, 0.0))
