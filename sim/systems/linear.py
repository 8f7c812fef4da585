"""Linear: a point in an arena of 10 m by 10 m that moves as it is told, at up to 1 m/s along each axis, at 5 Hz."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.linear.spec import SPEED
from temporeal.robots.spec import load_robot
from temporeal.sim.draws import between
from temporeal.sim.maps import AffineAction
from temporeal.sim.scene import Scene
from temporeal.sim.system import Signals, System, flat, inside, settings
from temporeal.sim.task import Draw

CONTROL_DT = 0.2  # s
HALF = 5.0  # m: half the arena's side
SLACK = 0.05  # m
FENCE = {"low": (-HALF, -HALF), "high": (HALF, HALF)}


class Model:
    """The robot itself: position and velocity in the plane, [B, 4]."""

    action_dim = 2
    rollout = None

    def state(self, signals: Signals) -> Tensor:
        """States of ``base_pos_w``, and of ``base_vel_w`` if it is there."""
        pos = signals["base_pos_w"]
        return torch.cat([pos[:, :2], signals.get("base_vel_w", torch.zeros_like(pos))[:, :2]], -1)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """x' = x + dt u."""
        velocity = SPEED * action.clamp(-1.0, 1.0)
        return torch.cat([state[:, :2] + CONTROL_DT * velocity, velocity], -1)

    def signals(self, state: Tensor) -> dict[str, Tensor]:
        """``base_pos_w`` and ``base_vel_w``."""
        return {"base_pos_w": flat(state[:, :2]), "base_vel_w": flat(state[:, 2:])}


def observe(signals: Signals) -> Tensor:
    """The position [N, 2] in halves of the arena."""
    return signals["base_pos_w"][:, :2] / HALF


def initial(draw: Draw, start: Mapping[str, Any]) -> dict[str, Tensor]:
    """At rest in the box from ``low`` to ``high`` [2] m."""
    found = settings("linear", start, low=(-4.5, -4.5), high=(4.5, 4.5))
    inside("linear", found, FENCE)
    return {"base_pos_w": flat(between(found["low"], found["high"], draw("initial.place", 2)))}


def make() -> System:
    """The system."""
    robot = load_robot("linear")
    return System(
        name="linear", scene=Scene(robot), command="vel_cmd", backend="planar", control_dt=CONTROL_DT, substeps=1,
        stop="hold", act=AffineAction(robot, "vel_cmd", center=(0.0, 0.0), scale=(SPEED, SPEED)),
        reads=("base_pos_w",), observe=observe, size=2, signals=robot.signals, initial=initial, fence=FENCE, pace=1.0,
        slack=SLACK, model=Model())
