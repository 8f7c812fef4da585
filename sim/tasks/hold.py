"""Hold: an arm or a hand keeps its joints where they were against what pushes it. Any such robot.

The pushes are disturbances of the environment (``randomize=disturbances``): forces on the tool's link. Actions move the
joints' targets (:class:`temporeal.sim.task_parts.joint_maps.JointAction`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from temporeal.robots.signals import SignalSpec
from temporeal.sim.draws import between
from temporeal.sim.rewards.formula_tracker import FormulaTracker
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Constant, Draw, Task, check_range, task_schema, weights
from temporeal.sim.task_parts.arms import control_period, physics_steps
from temporeal.sim.task_parts.joint_maps import (
    CLOSE,
    JointAction,
    JointObserve,
    Joints,
    Objective,
    Reward,
    joints_of,
    way,
)

FORMULA = "G[0,5] (norm(joint_pos - goal_joint_pos) < close)"
CONSTANTS: dict[str, Any] = {"close": CLOSE}
POSITIVE = ("close",)


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
    of, given = joints_of("hold", robot), {**CONSTANTS, **dict(constants or {})}
    control_dt = control_dt or control_period(of.robot)
    goal = Constant(SignalSpec("goal_joint_pos", (of.joints,), of.robot.signals["joint_pos"].unit))
    parsed = parse(formula, task_schema(of.robot, goal), given)
    act = JointAction(of, control_dt)
    return Task(
        name="hold", scene=Scene(of.robot, floor=of.robot.kind == "arm"), command=act.command, control_dt=control_dt,
        substeps=substeps or physics_steps(control_dt, 0.004), episode_s=5.0, formula=parsed, formula_text=formula,
        constants=given, observe=JointObserve(of, act, ("goal_joint_pos",), way, of.joints), act=act,
        objective=Objective(FormulaTracker(parsed, control_dt), weights(Reward, reward), act.action_dim, 5.0),
        initial=Start(of, share), extra=goal, stop="hold")
