"""Hold: an arm or a hand keeps its joints where they were against what pushes it. Any such robot.

The pushes are disturbances of the environment (``randomize=disturbances``): forces on the tool's link. Actions move the
joints' targets (:class:`temporeal.sim.task_parts.joint_maps.JointAction`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from temporeal.sim.draws import between
from temporeal.sim.task import Draw, Task, check_range
from temporeal.sim.task_parts.joint_maps import CONSTANTS, POSITIVE, Joints, Reward, joint_task, joints_of

__all__ = ["CONSTANTS", "FORMULA", "POSITIVE", "Reward", "make"]

FORMULA = "G[0,5] (norm(joint_pos - goal_joint_pos) < close)"


class Start:
    """Joints anywhere in a share of their ranges, where they are to stay."""

    def __init__(self, of: Joints, share: float) -> None:
        self.joints, self.places = of.joints, of.around(share)

    def __call__(self, draw: Draw) -> dict[str, Tensor]:
        """State of K worlds."""
        low, high = self.places
        place = between(low.tolist(), high.tolist(), draw("initial.joints", self.joints))
        return {"joint_pos": place, "goal_joint_pos": place}


def make(
    *, robot: str = "franka", formula: str = FORMULA, constants: Mapping[str, Any] | None = None,
    control_dt: float | None = None, substeps: int | None = None, share: float = 0.3,
    reward: Mapping[str, float] | None = None,
) -> Task:
    """The task.

    Args:
        robot: an arm or a hand: its name, or the path of its folder.
        control_dt: s; None: the robot's own. substeps: None: physics steps of at most 4 ms.
        share: of half of each joint's range, about home, in which it starts.
    """
    check_range("hold", "share", share, 0.0, 1.0, "", above=True)
    of = joints_of("hold", robot)
    return joint_task(of, name="hold", formula=formula, constants=constants, control_dt=control_dt, substeps=substeps,
                      episode_s=5.0, reward=reward, initial=Start(of, share))
