"""The robot that a run is for: the one that the task's file names, or ``robot=...``, where the task takes any of a
kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.settings.files import Settings

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

AUTO = "auto"  # the task's own


def named_robot(parsed: Sequence[Override]) -> tuple[str, list[Override]]:
    """The robot that the words name last, "" where they name none, and the other words."""
    mine = [word for word in parsed if word.key_or_group == "robot"]
    others = [word for word in parsed if word.key_or_group != "robot"]
    robot = str(mine[-1].value()) if mine else AUTO
    return "" if robot == AUTO else checked(robot), others


def checked(robot: str) -> str:
    """``robot``, if it can be read: the name of one, or the path of its folder or file."""
    from temporeal.robots.registry import UnknownName
    from temporeal.robots.spec import load_robot

    with bad_input():
        try:
            load_robot(robot)
        except UnknownName as error:
            raise BadInput(f"robot={robot}: {error}") from error
    return robot


def with_robot(settings: Settings, robot: str) -> Settings:
    """``settings`` of a run for ``robot``; "": for the robot that the task's file names."""
    from temporeal.sim.task_files import settings_of

    task = settings["task"]
    own = str(task.get("robot", robot))
    robot = robot or own
    given = dict(task.get("settings") or {})
    takes: tuple[str, ...] = ("robot",)
    if robot != own:  # otherwise nothing is asked of the task's module, with which torch is imported
        with bad_input():
            takes = settings_of(task["name"])
    if "system" in takes:  # a formula is of a system, which every arm and quadrotor is
        given["system"] = robot
    elif "robot" not in takes:
        raise BadInput(f"robot={robot}: task {task['name']} is for robot {own}; leave robot out. Which tasks take any "
                       "robot of a kind: docs/how-to/adding-a-robot.md")
    return {**settings, "robot": {"name": robot}, "task": {**task, "robot": robot, "settings": given}}


def arguments(task: Mapping[str, Any]) -> dict[str, Any]:
    """What the task's ``make`` is given: its settings, and the robot where it takes one."""
    from temporeal.sim.task_files import for_robot

    given = task.get("settings") or {}
    return for_robot(task["name"], str(task["robot"]), given) if "robot" in task else dict(given)
