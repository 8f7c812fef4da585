"""`temporeal robot new`: a robot's folder from a model file and some answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from temporeal.policies.cli.own_robot.answers import Answers
from temporeal.policies.cli.own_robot.sources import NAMES
from temporeal.policies.cli.own_robot.spec_text import readme, spec_text
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.robots.atomic_files import staged, write_whole
from temporeal.robots.search_path import SPEC
from temporeal.robots.spec import RobotSpec, load_robot, shipped

CONTROL_HZ = {"arm": 25.0, "hand": 20.0, "legged": 50.0, "mobile_base": 20.0, "quadrotor": 50.0}
KINDS = tuple(CONTROL_HZ)
TASKS = {"arm": "experiment=own_arm", "hand": "task=joint_target", "quadrotor": "task=waypoints"}
"""What a README begins to train; the other kinds need a task of their own."""

HEAD = ("Written by `temporeal robot new` from {source}. Data only: change what you know better; "
        "`temporeal robot check` reads it again.")


def make(
    path: Path | None, out: Path, answers: Answers, *, overwrite: bool = False, xacro: Mapping[str, str] | None = None,
) -> tuple[RobotSpec, list[str]]:
    """Write the folder ``out`` of the robot in the model file ``path`` (None: a quadrotor of the answers alone); its
    spec, and what was assumed or changed."""
    check_target(out, overwrite)
    with staged(out) as folder, of_source(folder, out, path), bad_input():
        kind, entries, notes, head = describe(path, folder, answers, xacro or {})
        write_whole(folder / SPEC, spec_text(entries, head).encode())
        robot = replace(load_robot(folder), name=out.name)
        write_whole(folder / "ros.yaml", interface_text(robot, answers).encode())
        notes = [*answers.assumed, *notes, *(f"{name}: {why}" for name, why in robot.defaults.items())]
        write_whole(folder / "README.md", readme(out.name, kind, TASKS.get(kind, ""), notes).encode())
        load_robot(folder)
        notes += doubtful(robot)
    return load_robot(out), notes


def doubtful(robot: RobotSpec) -> list[str]:
    """What of a robot with joints is hardly meant."""
    from temporeal.policies.cli.own_robot.dynamics import physics_of
    from temporeal.policies.cli.own_robot.plausible import doubts

    if robot.motion is None or robot.kind == "quadrotor":
        return []
    return [f"is this meant? {doubt}" for doubt in doubts(robot, physics_of(robot, robot.sources["joint_pos"].names))]


@contextmanager
def of_source(folder: Path, out: Path, path: Path | None) -> Iterator[None]:
    """Inside, what is wrong with the copy in ``folder``, which is about to vanish, is said of the user's own file."""
    try:
        yield
    except BadInput as error:
        text = str(error)
        for name in NAMES.values() if path is not None else ():
            text = text.replace(str(folder / name), str(path))
        raise BadInput(text.replace(str(folder), str(out))) from error


def describe(
    path: Path | None, folder: Path, answers: Answers, xacro: Mapping[str, str]
) -> tuple[str, dict[str, Any], list[str], list[str]]:
    """Copy the model to ``folder``: the robot's kind, the entries of its YAML, notes, and the file's head."""
    from temporeal.policies.cli.own_robot import jointed, mobile_bases, quadrotors
    from temporeal.policies.cli.own_robot.sources import read_source

    source = None if path is None else read_source(path, xacro)
    head = [HEAD.format(source="answers" if path is None else path.name)]
    if source is None or answers.given.get("kind") == "quadrotor":
        return "quadrotor", *quadrotors.entries(source, folder, answers), head
    proposal = jointed.likely_kind(source)
    kind = answers.get("kind", "What kind of robot is it", proposal, list(KINDS))
    if kind == "quadrotor":
        return kind, *quadrotors.entries(source, folder, answers), head
    if kind == "mobile_base":
        return kind, *mobile_bases.entries(source, folder, answers), head
    return kind, *jointed.entries(kind, source, folder, answers), head


def interface_text(robot: RobotSpec, answers: Answers) -> str:
    """``ros.yaml`` from the templates."""
    from temporeal.robots.ros_templates import interfaces, ros_yaml

    legal = interfaces(robot)
    if not legal:
        raise BadInput(f"no interface is known for a {robot.kind} with the commands {', '.join(robot.commands)}")
    return ros_yaml(robot, answers.get("interface", "How does its driver take commands", legal[0], legal))


def check_target(out: Path, overwrite: bool) -> None:
    """``out`` is no robot of the package, and free, or a robot's folder that may be replaced."""
    if out.name in shipped():
        raise BadInput(f"{out}: the package has a robot {out.name!r} itself; choose another name")
    if not out.name.isidentifier():
        raise BadInput(f"{out}: the folder's name is the robot's: letters, digits and underscores, not {out.name!r}")
    if not out.exists() and not out.is_symlink():
        return
    if out.is_symlink() or not out.is_dir() or (any(out.iterdir()) and not (out / SPEC).is_file()):
        raise BadInput(f"{out} is there and is no robot's folder: choose another name or remove it")
    if any(out.iterdir()) and not overwrite:
        raise BadInput(f"the robot {out} is there: --overwrite replaces it, --out FOLDER writes elsewhere")
