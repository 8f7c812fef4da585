"""The robot behind ROS 2 that ``temporeal actor --ros ARTIFACT`` asks for, and who judges its episodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.robot_learning.ros_world import ByMonitor, Episodes, open_world
from temporeal.policies.robot_learning.ros_world_base import CorrectedWorld
from temporeal.policies.robot_learning.ros_world_resets import Simulated, Standing
from temporeal.policies.robot_learning.success import FORMULA, Judge, judge_of
from temporeal.policies.robot_learning.world import WorldError
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.artifact.runtime import Artifact

if TYPE_CHECKING:
    from temporeal.policies.robot_learning.words import Common
    from temporeal.policies.robot_learning.world import RobotWorld
    from temporeal.sim.task import Task


def open_ros(
    common: Common, artifact: Path, correct: float | None, put_back: bool, trust: Path | None = None
) -> tuple[RobotWorld, Judge]:
    """The world, and the judge.

    Args:
        artifact: that guard and monitor run.
        correct: the artifact acts, and the policy's command is added with this scale; None: the policy acts alone.
        put_back: the robot is ``robot_sim``, which is ordered to a start; else it stands where somebody put it.
    """
    from temporeal_bridge.link.datagrams import LinkError
    from temporeal_bridge.transports.transport import TransportError

    task, deploy = common.task, common.settings["deploy"]
    try:
        with bad_input():
            base = Artifact.load(artifact, trust=trust)
            require_mission(base.manifest, task)
            world = open_world(
                artifact, deploy["namespace"], transport=deploy["transport"], domain=deploy["domain"],
                loopback=deploy["loopback"], interface=deploy["interface"],
                signals=None if deploy["signals"] is None else Path(deploy["signals"]), trust=trust,
                reset=Simulated if put_back else Standing, episodes=Episodes(after="silence" if put_back else "stop"))
    except (TransportError, LinkError, WorldError) as error:
        raise BadInput(str(error)) from error
    judge = ByMonitor(world) if common.success == FORMULA else judge_of(common.success, common.threshold, task)
    if correct is None:
        return world, judge
    try:
        return CorrectedWorld(world, base, resting(task), correct), judge
    except BadInput:
        world.close()
        raise


def resting(task: Task) -> Any:
    """The command [U] of the task's action 0."""
    import torch

    act: Any = task.act
    if getattr(act, "memory", None):
        raise BadInput(f"task {task.name}: its actions move a target, so that none of its commands stands for no "
                       "correction; --correct takes tasks whose actions are commands, such as waypoints")
    return act(torch.zeros(1, act.action_dim))[0].numpy()


def require_mission(manifest: Manifest, task: Task) -> None:
    """Refuse an artifact whose monitor would judge another mission than the one that is learned: formulas are compared
    as they are read, with their constants in them."""
    from temporeal.sim.stl.language.errors import FormulaError
    from temporeal.sim.stl.language.parse import parse

    try:
        same = parse(manifest.formula, task.schema, dict(manifest.constants)) == task.formula
    except FormulaError:  # of signals or constants that the task has not
        same = False
    if not same:
        raise BadInput("the artifact's formula is not the task's: the monitor would judge another mission. Artifact: "
                       f"{manifest.formula} with {dict(manifest.constants)}; task: {task.formula_text} with "
                       f"{dict(task.constants)}")
