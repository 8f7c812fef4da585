"""Unicycle: a cart in an arena of 10 m by 10 m, at -0.2 to 1 m/s along its heading and up to 1.5 rad/s, at 5 Hz."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.spec import load_robot
from temporeal.robots.unicycle.spec import BACK, FASTEST, TURN
from temporeal.sim.draws import between
from temporeal.sim.maps import AffineAction
from temporeal.sim.rotations import about_z
from temporeal.sim.scene import Scene
from temporeal.sim.system import Signals, System, flat, inside, settings
from temporeal.sim.task import Draw

CONTROL_DT = 0.2  # s
HALF = 5.0  # m: half the arena's side
SLACK = 0.05  # m
FENCE = {"low": (-HALF, -HALF), "high": (HALF, HALF)}
MEAN, SPREAD = 0.5 * (FASTEST + BACK), 0.5 * (FASTEST - BACK)  # m/s: action 0, and from there to 1


def heading(quat: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine [N] of the heading of an attitude [N, 4] that is a turn about z."""
    w, z = quat[:, 0], quat[:, 3]
    return w * w - z * z, 2 * w * z


class Model:
    """The robot itself: position (2), half the heading's cosine and sine (w and z of the attitude), speed: [B, 5]."""

    action_dim = 2
    rollout = None

    def state(self, signals: Signals) -> Tensor:
        """States of ``base_pos_w`` and ``base_quat_w``, and of ``base_vel_w`` if it is there."""
        pos, quat = signals["base_pos_w"], signals["base_quat_w"]
        ahead, aside = heading(quat)
        velocity = signals.get("base_vel_w", torch.zeros_like(pos))
        speed = ahead * velocity[:, 0] + aside * velocity[:, 1]
        return torch.cat([pos[:, :2], quat[:, :1], quat[:, 3:], speed[:, None]], -1)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """Along an arc: the chord's direction is the mean heading."""
        x, y, w, z, _ = state.unbind(-1)
        action = action.clamp(-1.0, 1.0)
        speed, half = MEAN + SPREAD * action[:, 0], 0.5 * CONTROL_DT * TURN * action[:, 1]
        c, s, chord = half.cos(), half.sin(), CONTROL_DT * speed * torch.sinc(half / pi)
        ahead, aside = w * w - z * z, 2 * w * z
        x, y = x + chord * (ahead * c - aside * s), y + chord * (aside * c + ahead * s)
        w, z = w * c - z * s, z * c + w * s
        norm = (w * w + z * z).sqrt()
        return torch.stack([x, y, w / norm, z / norm, speed], -1)

    def signals(self, state: Tensor) -> dict[str, Tensor]:
        """``base_pos_w``, ``base_quat_w`` and ``base_vel_w``."""
        zero = torch.zeros_like(state[:, 0])
        quat = torch.stack([state[:, 2], zero, zero, state[:, 3]], -1)
        ahead, aside = heading(quat)
        velocity = torch.stack([state[:, 4] * ahead, state[:, 4] * aside, zero], -1)
        return {"base_pos_w": flat(state[:, :2]), "base_quat_w": quat, "base_vel_w": velocity}


def observe(signals: Signals) -> Tensor:
    """The position in halves of the arena, cosine and sine of the heading: [N, 4]."""
    ahead, aside = heading(signals["base_quat_w"])
    return torch.cat([signals["base_pos_w"][:, :2] / HALF, ahead[:, None], aside[:, None]], -1)


def initial(draw: Draw, start: Mapping[str, Any]) -> dict[str, Tensor]:
    """At rest in the box from ``low`` to ``high`` [2] m, headed within ``heading`` [2] rad."""
    found = settings("unicycle", start, low=(-4.5, -4.5), high=(4.5, 4.5), heading=(-pi, pi))
    inside("unicycle", found, FENCE)
    share, (low, high) = draw("initial.place", 3), found["heading"]
    return {"base_pos_w": flat(between(found["low"], found["high"], share[:, :2])),
            "base_quat_w": about_z(low + (high - low) * share[:, 2])}


def make() -> System:
    """The system."""
    robot = load_robot("unicycle")
    return System(
        name="unicycle", scene=Scene(robot), command="twist_cmd", backend="planar", control_dt=CONTROL_DT, substeps=1,
        stop="hold", act=AffineAction(robot, "twist_cmd", center=(MEAN, 0.0), scale=(SPREAD, TURN)),
        reads=("base_pos_w", "base_quat_w"), observe=observe, size=4, signals=robot.signals, initial=initial,
        fence=FENCE, pace=0.8, slack=SLACK, model=Model())
