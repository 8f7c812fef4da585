"""Checks of a task's option file: its keys, its robot, backend and randomization, its number of worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings import renamed
from temporeal.policies.runs.settings.files import Settings, flaw, place_of
from temporeal.policies.runs.settings.folders import file_of
from temporeal.policies.runs.settings.values import hint, one_of
from temporeal.robots.model_files import is_file

AUTO, AUTOMATIC = "auto", ("robot", "backend", "randomize")
"""The option of these groups that stands for the one which the task's own file names."""

OF_TASK = ("name", "title", "robot", "backend", "randomize", "num_worlds", "settings", "mid_episode_starts")
"""What the file of a task may say: its module in ``temporeal.sim.tasks``; how runs are titled, where not by the file's
name; the
groups that come with it; how many worlds suit it; what its ``make`` takes; the share of starts in mid-mission."""

WORLDS = 2048
"""``num_worlds``, where the files of learner and task do not say how many suit them, nor an experiment, nor the command
line."""


def check_task(
    task: object, automatic: Sequence[str], chosen: Sequence[str], experiment: str | None = None
) -> None:
    """The task's file says what is taken from it, nothing else, and names a task that there is. So does what an
    ``experiment`` makes of it."""
    file = file_of("task", chosen[-1]) if chosen else None
    given = task if isinstance(task, Mapping) else {}
    missing = [group for group in automatic if group not in given]
    if missing:
        if file is not None and (found := flaw(file)):
            raise BadInput(f"{file}, {found}")
        raise BadInput(f"{file or 'task'}: the file of a task says {', '.join(f'{group}: ...' for group in missing)}; "
                       "docs/how-to/learning-formulas.md has a whole one")
    for key in given:
        if key not in OF_TASK:
            place = place_of(f"task.{key}", [f"task={option}" for option in chosen])
            if experiment is not None and ", line " not in place:  # no file that was chosen says it
                place = f"{file_of('experiment', experiment)}: "
            near = renamed.hint(f"task.{key}") or hint(str(key), OF_TASK)
            raise BadInput(f"{place}the file of a task has no setting {key!r}{near}; legal: {', '.join(OF_TASK)}")
    if not isinstance(given.get("settings", {}), Mapping | None):
        raise BadInput(f"{file or 'task'}: settings is {given['settings']!r}; legal: a group, as in "
                       "settings: {system: ...}")
    check_name(str(given.get("name")), str(file or "task"))


def check_own_options(
    task: Mapping[str, Any], automatic: Sequence[str], chosen: Sequence[str], known: Mapping[str, list[str]]
) -> None:
    """What the task's file says of the groups that are ``automatic`` are options that there are."""
    from temporeal.robots.spec import robot_names  # numpy: not for --help

    for group in automatic:
        option = str(task[group])
        legal = {"robot": robot_names()} if group == "robot" else known
        if option not in (AUTO, *legal[group]) and not (group == "robot" and is_file(option)):
            place = place_of(f"task.{group}", [f"task={name}" for name in chosen])
            raise BadInput(f"{place}{group}: {option}: {one_of(group, option, legal)}")


def check_name(name: str, file: str) -> None:
    """The task's ``name`` is a module of ``temporeal.sim.tasks``; a file that says none has its own for it."""
    from temporeal.robots.registry import names
    from temporeal.sim.task_files import FOREIGN

    known = [*names("temporeal.sim.tasks"), *FOREIGN]
    if name in known:
        return
    if (unnamed := file_of("task", name)) is not None:
        raise BadInput(f"{unnamed}: a task's file needs name: ..., a module of temporeal.sim.tasks (name: stl for a "
                       f"formula); known: {', '.join(known)}")
    raise BadInput(f"{file}: there is no task {name!r}{hint(name, known)}; known: {', '.join(known)}")


def own_worlds(settings: Settings) -> int:
    """How many worlds suit the learner, as its file says it, else the task, as its file does; taken out of both: how
    many there are is the settings' to say."""
    found = WORLDS
    for group in ("task", "algo"):
        worlds = settings.get(group, {}).pop("num_worlds", found)
        if isinstance(worlds, bool) or not isinstance(worlds, int) or worlds < 1:
            raise BadInput(f"the file of {group} {settings[group]['name']!r} says num_worlds: {worlds!r}; a whole "
                           "number from 1")
        found = worlds
    return found


def titled(settings: Settings, chosen: Sequence[Any]) -> Settings:
    """``settings`` whose task has a title: its file's name, where that is not the task's. Many files have one task's
    name, such as all formulas."""
    if chosen and str(chosen[-1]) != settings["task"]["name"]:
        settings["task"].setdefault("title", str(chosen[-1]).replace("/", "-"))
    return settings
