"""The robot that something handed over names: one of the package's or of the user's, never a file elsewhere."""

from __future__ import annotations

from pathlib import Path

from temporeal.robots.handed_over.files import Refused, lies_in
from temporeal.robots.search_path import VARIABLE, folders
from temporeal.robots.spec import LOADED, RobotSpec, load_robot


def named_robot(name: str) -> RobotSpec:
    """The robot ``name``, as an artifact, a run or a recording calls it.

    Raises:
        Refused: it is a path to a file that lies neither below the working directory nor in a folder of the user's.
        ValueError, UnknownName: as :func:`temporeal.robots.spec.load_robot`.
    """
    if is_path(name):
        check_place(name)
    return load_robot(name)


def is_path(name: str) -> bool:
    """Whether ``name`` says where a robot's file or folder is, and not how the robot is called."""
    return any(mark in name for mark in ("/", "\\", ".", "~", "\0"))


def check_place(name: str) -> None:
    """The place is below the working directory, in a folder of ``TEMPOREAL_PATH``, links followed, or that of a robot
    which this process has loaded already: its script named it."""
    try:
        found = Path(name).absolute() in LOADED or lies_in(Path(name), Path.cwd(), *folders())
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a name with a null byte
        raise Refused(f"the robot {name!r} is no path that can be followed: {error}") from error
    if found:
        return
    raise Refused(f"the robot {name!r} is named by a path that leads neither below the working directory nor to a "
                  f"folder of yours: add its folder to {VARIABLE} if it is")
