"""The mirror image of a user's robot: the entry ``symmetry``.

    symmetry:
      joint_pos: {sign: [-1, 1, -1], offset: [0, 0, 1.5708]}
      motor_cmd: {sign: [1, 1, 1, 1], order: [3, 2, 1, 0]}
      height: {sign: [1]}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from temporeal.robots.model_files import RobotFileError
from temporeal.robots.signals import is_number
from temporeal.robots.spec import RobotSpec
from temporeal.robots.symmetry import Mirror, Symmetry
from temporeal.robots.user_robots.entries import check_keys

PARTS = ("sign", "order", "offset")


def with_symmetry(robot: RobotSpec, where: str, given: Mapping[str, Any]) -> RobotSpec:
    """``robot`` with the symmetry of the file ``where``, whose entries are ``given``."""
    if "symmetry" not in given:
        return robot
    try:
        return replace(robot, symmetry=Symmetry({name: mirror(f"{where}: symmetry.{name}", entry)
                                                 for name, entry in given["symmetry"].items()}))
    except ValueError as error:
        raise RobotFileError(f"{where}: symmetry: {error}" if where not in str(error) else str(error)) from error


def mirror(where: str, entry: Any) -> Mirror:
    """One entry: lists of numbers, as many each as there are components."""
    check_keys(where, entry, PARTS)
    lists = {key: entry.get(key, []) for key in PARTS}
    for key, values in lists.items():
        if not isinstance(values, list) or not all(map(is_number, values)):
            raise RobotFileError(f"{where}: {key} is a list of numbers, got {values!r}")
    if not all(isinstance(index, int) for index in lists["order"]):
        raise RobotFileError(f"{where}: order is a list of whole numbers, got {lists['order']!r}")
    if not lists["sign"]:
        raise RobotFileError(f"{where}: sign is needed, 1 or -1 for each component")
    return Mirror(tuple(map(float, lists["sign"])), tuple(lists["order"]), tuple(map(float, lists["offset"])))
