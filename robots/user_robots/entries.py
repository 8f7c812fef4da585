"""The YAML of a user's robot: which entries it may have, and what each must be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from temporeal.robots.handed_over.files import read_text
from temporeal.robots.handed_over.texts import from_yaml
from temporeal.robots.model_files import Content, RobotFileError
from temporeal.robots.registry import guess

DYNAMICS = ("damping", "armature", "frictionloss")
BOTH = ("kind", "joints", "commands", *DYNAMICS, "poses", "tool", "gripper", "base", "home", "limits", "defaults",
        "control_hz", "exclude", "capsules", "packages", "rate_hz", "license", "symmetry")
SIDECAR = BOTH
"""Entries of the file beside a model, ``arm.robot.yaml``."""

FOLDER = ("model", *BOTH, "quadrotor", "mobile_base")
"""Entries of a robot folder's ``spec.yaml``."""

COMMAND = ("drives", "actuators", "joints", "kp", "kd", "strength", "low", "high", "unit", "delay_steps")
DRIVES = ("velocity", "effort")
"""What a command of joints may be, but for positions: speeds of the servos' setpoints, or what the motors exert."""

SERVO_ONLY = ("kp", "kd", "strength")
GRIPPER = ("command", "joints", "bodies", "open", "closed")
LIMITS = ("velocity", "acceleration", "jerk", "effort")
MAPPINGS = ("commands", "poses", "home", "packages", "limits", "defaults", "gripper", "capsules", "quadrotor",
            "mobile_base", "symmetry")


def sidecar_path(path: Path) -> Path:
    """``models/arm.xml`` -> ``models/arm.robot.yaml``."""
    return path.with_suffix(".robot.yaml")


def read_entries(path: Path, legal: tuple[str, ...], within: Path | None = None) -> dict[str, Any]:
    """The entries of a YAML file, checked; empty if there is none.

    Args:
        legal: the entries that it may have.
        within: a folder that the file must lie in, links followed.
    """
    if not path.exists():
        return {}
    try:
        given = from_yaml(read_text(path, within=within), str(path)) or {}
    except yaml.YAMLError as error:
        raise RobotFileError(f"{path}: not YAML: {error}") from error
    check_keys(str(path), given, legal)
    for key in ("commands", "poses"):
        for name in given.get(key, {}):
            if not (isinstance(name, str) and name.isidentifier()):
                raise RobotFileError(f"{path}: {key}: a name is an identifier (letters, digits, underscore), got "
                                     f"{name!r}")
    for name, entry in given.get("commands", {}).items():
        check_command(f"{path}: commands.{name}", entry)
    return dict(given)


def check_command(where: str, entry: Any) -> None:
    """Check one entry below ``commands``."""
    check_keys(where, entry, COMMAND)
    if ("actuators" in entry) == ("joints" in entry):
        raise RobotFileError(f"{where}: give either actuators (of the model) or joints (for position servos, with kp)")
    if entry.get("drives", "velocity") not in DRIVES or ("drives" in entry and set(entry) - {"drives", "joints"}):
        raise RobotFileError(f"{where}: drives is one of {', '.join(DRIVES)}, of joints that another command's "
                             f"position servos move, within the joints' limits (limits:); got {dict(entry)}")
    servo = [key for key in SERVO_ONLY if key in entry]
    if "actuators" in entry and servo:
        raise RobotFileError(f"{where}: {servo[0]} is for joints (position servos added here); the model's actuators "
                             "have their own")
    if not entry.get("actuators", entry.get("joints")):
        raise RobotFileError(f"{where}: it drives nothing: list one name at least")
    steps = entry.get("delay_steps", 0)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise RobotFileError(f"{where}: delay_steps is a whole number of time steps >= 0, got {steps!r}")


def check_keys(where: str, given: Any, legal: tuple[str, ...]) -> None:
    """Check that ``given`` is a mapping with ``legal`` keys."""
    if not isinstance(given, Mapping):
        raise RobotFileError(f"{where}: a mapping with {', '.join(legal)} is needed, got {given!r}")
    unknown = [key for key in given if key not in legal]
    if unknown:
        raise RobotFileError(f"{where}: no entry {unknown[0]!r}; {guess(unknown[0], legal)}legal: {', '.join(legal)}")
    for key in MAPPINGS:
        if key in legal and not isinstance(given.get(key, {}), Mapping):
            raise RobotFileError(f"{where}: {key} is a mapping, got {given[key]!r}")


def number(content: Content, where: str, value: Any, rule: str = "a finite number") -> float:
    """``value`` as a number; ``where`` in the robot's YAML and ``rule`` go into the message."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise content.fail(f"{content.beside}: {where}", f"{rule} is needed, got {value!r}")
    return float(value)


def at_least_zero(content: Content, where: str, value: Any) -> float:
    """``value`` as a number >= 0."""
    found = number(content, where, value, "a number >= 0")
    if found < 0:
        raise content.fail(f"{content.beside}: {where}", f"a number >= 0 is needed, got {value!r}")
    return found


def known(content: Content, key: str, wanted: Any, names: Iterable[str]) -> list[str]:
    """``wanted`` as a list of distinct names out of ``names``."""
    where, legal = f"{content.beside}: {key}", list(names)
    if not isinstance(wanted, list) or len({str(word) for word in wanted}) != len(wanted):
        raise content.fail(where, f"a list of different names is needed, got {wanted!r}")
    for word in wanted:
        if word not in legal:
            raise content.fail(where, f"the model has no {word!r}; {guess(word, legal)}known: {', '.join(legal)}")
    return [str(word) for word in wanted]
