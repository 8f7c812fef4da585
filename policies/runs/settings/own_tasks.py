"""Settings of a task that is a file of the user's: ``task=my_task.py``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.settings.folders import file_of

if TYPE_CHECKING:
    from temporeal.robots.spec import RobotSpec


def is_task_file(word: str) -> bool:
    """Whether ``word`` names a Python file for a task."""
    return word.startswith("task=") and word.endswith(".py")


def located(word: str) -> str:
    """``task=<name>`` of a file in the user's search path as ``task=<file>``, unless a settings file has this name."""
    from temporeal.robots.registry import own

    name = word.removeprefix("task=")
    if not word.startswith("task=") or file_of("task", name) is not None:
        return word
    with bad_input():
        return f"task={own('temporeal.sim.tasks').get(name, name)}"


def read(words: Sequence[str]) -> str:
    """Run the file that the last such word names; the task's name."""
    from temporeal.sim.task_files import read_task_file

    file = Path([word for word in words if is_task_file(word)][-1].removeprefix("task="))
    with bad_input():
        return read_task_file(file)


def words_for(name: str, words: Sequence[str]) -> list[str]:
    """The words that compose all but the task. Unless they say otherwise: no randomization, a backend by the robot."""
    from temporeal.sim.backend_factory import backend_for

    groups = {word.partition("=")[0] for word in words}
    if "robot" in groups:
        raise BadInput(f"robot=...: the task in {name} names its own robot; leave robot out")
    backend = [] if "backend" in groups else [f"backend={backend_for(_robot(name))}"]
    randomize = [] if "randomize" in groups else ["randomize=none"]
    return ["task=hover", *backend, *randomize, *(word for word in words if not word.startswith("task="))]


def put(name: str, settings: Settings) -> Settings:
    """Composed ``settings`` with task ``name`` in place of the one that they were composed with."""
    robot, task = _robot(name), settings["task"]
    own = {"name": name, "title": Path(name).stem, "robot": robot.name, "settings": task["settings"],
           "mid_episode_starts": task["mid_episode_starts"]}
    return {**settings, "robot": {"name": robot.name}, "task": own}


def renamed(name: str, task: Settings) -> Settings:
    """The saved settings ``task`` of a run, if file ``name`` is the one that it was trained on."""
    if task["name"] != name:
        raise BadInput(f"task={name}: the run was trained on task {task['name']}, not on a file of this name")
    return task


def _robot(name: str) -> RobotSpec:
    from temporeal.sim.task import load_task

    with bad_input():
        return load_task(name).robot
