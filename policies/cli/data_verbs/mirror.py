"""``temporeal data mirror``: the mirror image of every episode, for robots that have one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, counter
from temporeal.policies.cli.specs.dataset_options import add_out, written
from temporeal.policies.runs.errors import OK, BadInput
from temporeal.robots.handed_over.files import Refused
from temporeal.robots.registry import UnknownName

if TYPE_CHECKING:
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.episodes.episode import Episode
    from temporeal.robots.spec import RobotSpec

SUMMARY = "double a dataset by reflection, for robots that declare a symmetry"
HELP = """\
Writes every episode and its reflection in the plane y = 0 of the robot's base into a new dataset. The robot declares
how its joints or motors change (its symmetry); positions, velocities, forces, turns and attitudes change by their unit
and frame. Episodes whose mirror image needs commands beyond the robot's limits get none, and are counted.

What the task's policy gave is dropped, as nothing says how it is mirrored: learners take it from the command.

Example:
  temporeal data mirror demos --out doubled
  temporeal data mirror demos --flip wrist_rgb --same drawer_opening --out doubled
"""


def add(parser: Parser) -> None:
    """Options."""
    parser.add_argument("folder", type=Path, metavar="SET", help="the dataset's folder")
    add_out(parser)
    parser.add_argument("--same", action="append", default=[], metavar="SIGNAL", help="a reflection does not change it")
    parser.add_argument("--flip", action="append", default=[], metavar="PICTURE",
                        help="flip it from left to right: of a camera in the plane of reflection")
    parser.add_argument("--robot", metavar="NAME", help="whose symmetry it is (the dataset's robot)")
    parser.add_argument("--only", action="store_true", help="the mirror images without the originals")
    add_json(parser)


def run(options: Any) -> int:
    """Write them."""
    from dataclasses import replace

    from temporeal.policies.data.curation.copying import originals, own_interface, write
    from temporeal.policies.data.curation.mirroring import mirrored, mirrors_of, within
    from temporeal.policies.data.episodes.dataset import Dataset

    data = Dataset.open(options.folder)
    interface = replace(own_interface(data), task_action=0)
    mirrors = mirrors_of(interface, robot_of(data, options.robot), options.same, options.flip)
    refused: list[int] = []

    def both() -> Iterator[Episode]:
        for number, episode in enumerate(originals(data, range(data.episodes))):
            if not options.only:
                yield replace(episode, policy_action=None)
            image = mirrored(episode, mirrors)
            if within(image, interface):
                yield image
            else:
                refused.append(number)

    count = write(options.out, interface, both(), f"mirror of {data.folder.name}",
                  counter("episodes"), data.episodes * (1 if options.only else 2))
    written(options, {"out": options.out, "episodes": count, "without an image": refused})
    return OK


def robot_of(data: Dataset, given: str | None) -> RobotSpec:
    """The robot that was named, else the dataset's, which may name no file."""
    from temporeal.robots.handed_over.robots import named_robot
    from temporeal.robots.spec import load_robot

    try:
        return named_robot(data.interface.robot) if given is None else load_robot(given)
    except (UnknownName, Refused) as error:
        raise BadInput(f"{data.folder} is of robot {data.interface.robot!r}: {error}; --robot says whose symmetry it "
                       "is") from error
