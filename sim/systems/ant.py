"""Ant: a quadruped by the torques of its eight joints, at 20 Hz, in an arena of 16 m by 16 m. It has no model."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.ant.spec import ANKLE, HEIGHT, LEAST, MOST
from temporeal.robots.spec import load_robot
from temporeal.sim.draws import between
from temporeal.sim.maps import AffineAction
from temporeal.sim.rotations import about_z, rotation
from temporeal.sim.scene import Scene
from temporeal.sim.system import Signals, System, flat, inside, settings
from temporeal.sim.task import Draw

CONTROL_DT, SUBSTEPS = 0.05, 5
HALF = 8.0  # m: half the arena's side
FENCE = {"low": (-HALF, -HALF), "high": (HALF, HALF)}
# m: to walk is to be learned from what a metre is worth, and a hit must be worth more than the way to what is next
REWARD = {"scale": 10.0, "progress": 20.0, "hit": 20.0, "done": 20.0, "broken": 20.0, "late": 10.0}
MIDDLE = tuple(q for down in ANKLE for q in (0.0, down * 0.5 * (LEAST + MOST)))  # rad: the joints' ranges' middles
READS = ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b", "joint_pos", "joint_vel")


def observe(signals: Signals) -> Tensor:
    """Place, height, attitude (9), place and velocities in the body's frame, joints: [N, 37]."""
    place, turn = signals["base_pos_w"], rotation(signals["base_quat_w"])
    velocity = (turn.transpose(-1, -2) @ signals["base_vel_w"][..., None])[..., 0]
    middle = torch.tensor(MIDDLE, device=place.device)
    there = (turn.transpose(-1, -2) @ place[..., None])[..., 0]
    return torch.cat([
        place[:, :2] / HALF, 2 * there / HALF, 4 * (place[:, 2:] - HEIGHT), turn.flatten(1), velocity,
        0.5 * signals["base_ang_vel_b"], 2 * (signals["joint_pos"] - middle), 0.2 * signals["joint_vel"]], -1)


def initial(draw: Draw, start: Mapping[str, Any]) -> dict[str, Tensor]:
    """At rest in the box ``low`` to ``high`` [2] m, headed within ``heading`` [2] rad; joints off by up to 0.1 rad."""
    found = settings("ant", start, low=(-0.5, -0.5), high=(0.5, 0.5), heading=(-pi, pi))
    inside("ant", found, FENCE)
    u, (low, high) = draw("initial.ant", 11), found["heading"]
    joints = torch.tensor([q for down in ANKLE for q in (0.0, down)], device=u.device)
    still = u.new_zeros(len(u), 3)
    return {"base_pos_w": flat(between(found["low"], found["high"], u[:, :2]), HEIGHT), "base_vel_w": still,
            "base_quat_w": about_z(low + (high - low) * u[:, 2]), "base_ang_vel_b": still,
            "joint_pos": joints + 0.1 * (2 * u[:, 3:] - 1), "joint_vel": torch.zeros_like(u[:, 3:])}


def fallen(signals: Signals) -> Tensor:
    """Whether [N] the torso is tilted by more than 60 degrees."""
    return rotation(signals["base_quat_w"])[:, 2, 2] < 0.5


def make() -> System:
    """The system."""
    robot = load_robot("ant")
    return System(
        name="ant", scene=Scene(robot), command="torque_cmd", backend="mujoco", control_dt=CONTROL_DT,
        substeps=SUBSTEPS, stop="hold", act=AffineAction(robot, "torque_cmd", center=(0.0,) * 8, scale=(1.0,) * 8),
        reads=READS, observe=observe, size=37,
        signals={name: robot.signals[name] for name in ("base_pos_w", "base_quat_w", "base_vel_w")},
        initial=initial, fence=FENCE, pace=0.8, reward=REWARD,
        body=("base_pos_w", "base_quat_w"), lost=fallen)
