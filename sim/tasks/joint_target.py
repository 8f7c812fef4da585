"""Joint target: bring all joints of an arm or a hand to given positions and hold them there. Any such robot.

Goals lie within a share of the joints' ranges about home; those of an arm touch neither itself nor the floor. Actions
move the joints' targets (:class:`temporeal.sim.task_parts.joint_maps.JointAction`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from temporeal.sim.draws import between
from temporeal.sim.task import Draw, Task, check_range
from temporeal.sim.task_parts.arms.arm import window
from temporeal.sim.task_parts.joint_maps import CONSTANTS, POSITIVE, Joints, Reward, joint_task, joints_of

__all__ = ["CONSTANTS", "POSITIVE", "Reward", "make"]

SECONDS = 3  # to come there; more for a robot whose joints need more
START = 0.1  # of the range about home, in which episodes start


def formula_of(seconds: int) -> str:
    """The formula for a robot that has ``seconds`` to come there."""
    return f"F[0,{seconds}] G[0,1] (norm(joint_pos - goal_joint_pos) < close)"


class Start:
    """Joints near home, their goals anywhere in a share of their ranges."""

    def __init__(self, of: Joints, share: float) -> None:
        self.joints, self.start, self.goals = of.joints, of.around(START), of.around(share)

    def __call__(self, draw: Draw) -> dict[str, Tensor]:
        """State of K worlds."""
        u, v = draw("initial.joints", self.joints), draw("initial.goal", self.joints)
        start, goal = (between(low.tolist(), high.tolist(), x) for (low, high), x in (
            (self.start, u), (self.goals, v)))
        return {"joint_pos": start, "goal_joint_pos": goal}


def make(
    *, robot: str = "franka", formula: str | None = None, constants: Mapping[str, Any] | None = None,
    control_dt: float | None = None, substeps: int | None = None, share: float = 0.5,
    reward: Mapping[str, float] | None = None,
) -> Task:
    """The task.

    Args:
        robot: an arm or a hand: its name, or the path of its folder.
        formula: None: :func:`formula_of` the robot.
        control_dt: s; None: the robot's own. substeps: None: physics steps of at most 4 ms.
        share: of half of each joint's range, about home, in which goals lie.
    """
    check_range("joint_target", "share", share, 0.0, 1.0, "", above=True)
    of = joints_of("joint_target", robot)
    seconds = window(of.seconds(share), SECONDS)
    return joint_task(of, name="joint_target", formula=formula or formula_of(seconds), constants=constants,
                      control_dt=control_dt, substeps=substeps, episode_s=seconds + 1.0, reward=reward,
                      initial=Start(of, share))
