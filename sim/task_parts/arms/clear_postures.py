"""Postures of an arm in which its links touch neither each other nor the floor: what goals are made of."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import torch
from torch import Tensor

from temporeal.sim.physics.mujoco.mjcf import build
from temporeal.sim.scene import Scene
from temporeal.sim.task_parts.arms.arm import JOINTS, Arm

CLEARANCE = 0.02  # m, of an arm that reaches a metre
TRIES = 20  # times as many postures are drawn as are wanted, at most


def clear_postures(of: Arm, count: int, spread: float, wanted: Callable[[Tensor], Tensor]) -> Tensor:
    """Up to ``count`` postures [C, J] rad, always the same, uniform within ``spread`` rad of home and in the joints'
    ranges, for which ``wanted(joints) -> bool [K]`` holds and whose links are clear of each other and of the floor.

    Pairs of links that are as near as that at home are left out.

    Raises:
        ValueError: there is none.
    """
    low, high = of.range
    home, around, margin = torch.tensor(of.home), of.spread(spread), of.spread(0.1)
    u = torch.rand(TRIES * count, of.joints, generator=torch.Generator().manual_seed(0))
    drawn = torch.clamp(home + around * (2 * u - 1), low + margin, high - margin)
    touching = Contacts(of)
    found = []
    for joints in drawn[wanted(drawn)]:
        if not touching(joints):
            found.append(joints)
        if len(found) == count:
            break
    if not found:
        raise ValueError(f"robot {of.robot.name!r}: no posture within {spread:g} rad of home is clear of the floor and "
                         "of itself, with the tool in front of the arm: it needs another home")
    return torch.stack(found)


class Contacts:
    """Which links of an arm are nearer to each other, or to the floor, than :data:`CLEARANCE`, and are not at home."""

    def __init__(self, of: Arm) -> None:
        self.model = build(Scene(of.robot), JOINTS, dt=0.004).mj
        self.model.geom_margin[:] = CLEARANCE * of.scale
        self.data = mujoco.MjData(self.model)
        joints = of.robot.sources["joint_pos"].names
        self.places = [int(self.model.joint(name).qposadr[0]) for name in joints]
        self.at_home = self._pairs(torch.tensor(of.home))

    def __call__(self, joints: Tensor) -> set[tuple[int, int]]:
        """Pairs of bodies, for the joints [J]."""
        return self._pairs(joints) - self.at_home

    def _pairs(self, joints: Tensor) -> set[tuple[int, int]]:
        self.data.qpos[self.places] = joints.numpy()
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_collision(self.model, self.data)
        bodies = self.model.geom_bodyid[self.data.contact.geom]
        return {(min(a, b), max(a, b)) for a, b in bodies.tolist()}
