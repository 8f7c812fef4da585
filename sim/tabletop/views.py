"""Where the suite's cameras stand: in front of the robot, over the whole table, and beside the tool.

For an arm of its own numbers (:attr:`temporeal.sim.task_parts.arms.arm.Arm.own`) these are those of
``configs/experiment/tabletop.yaml`` and of its model. Before another one the front camera is where :meth:`Arm.in_front`
puts things, and the wrist's moves with the tool's frame, whose z axis points away from the arm.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import cos, sin

import torch

from temporeal.sim.rotations import product
from temporeal.sim.scene import View
from temporeal.sim.task_parts.arms.arm import Arm

FRONT = View((1.15, 0.0, 0.85), (0.6741, 0.2137, 0.2137, 0.6741), 32.0)
WRIST = View((0.07, 0.0, -0.073), (0.1295, 0.6951, 0.6951, 0.1295), 58.0)
"""The FR3's own (robots/franka/model.xml), in the frame of its tool."""


def views_of(of: Arm) -> Mapping[str, View]:
    """The views of both cameras, by name."""
    (frame,) = of.robot.sources[of.pos].names
    side = min(1.0, of.scale)
    wrist = View((side * WRIST.pos[0], side * WRIST.pos[1], side * WRIST.pos[2]), WRIST.quat, WRIST.fovy_deg, frame)
    if of.own:
        return {"front": FRONT, "wrist": wrist}
    x, y, z = of.in_front(torch.tensor([FRONT.pos]))[0].tolist()
    turn = torch.tensor([cos(0.5 * of.heading), 0.0, 0.0, sin(0.5 * of.heading)])
    w, *ijk = product(turn, torch.tensor(FRONT.quat)).tolist()
    return {"front": View((x, y, z), (w, *ijk), FRONT.fovy_deg), "wrist": wrist}
