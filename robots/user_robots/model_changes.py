"""What a simulator changes in the model of a user's robot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from temporeal.robots.handed_over.files import inside
from temporeal.robots.model_files import QPOS_SIZE, Content, frames
from temporeal.robots.spec import Changes
from temporeal.robots.user_robots.entries import DYNAMICS, at_least_zero, known


def changes(content: Content, beside: Mapping[str, Any], actuators: Mapping[str, tuple[str, ...]]) -> Changes:
    """Joint dynamics, lengths of control histories, excluded contacts, folders of packages."""
    history: dict[str, int] = {}
    for command_name, entry in (beside.get("commands") or {}).items():
        for name in actuators[command_name]:
            history[name] = max(history.get(name, 0), entry.get("delay_steps", 0))
    return Changes(
        joints={key: joint_values(content, key, beside[key]) for key in DYNAMICS if key in beside},
        history={name: steps for name, steps in history.items() if steps},
        exclude=excluded(content, beside.get("exclude", [])), packages=packages(content, beside.get("packages", {})))


def joint_values(content: Content, key: str, given: Any) -> dict[str, float]:
    """A number >= 0 for each hinge and slide, or for the named ones."""
    plain = [joint.name for joint in content.joints if QPOS_SIZE[joint.kind] == 1]
    values = dict(given) if isinstance(given, Mapping) else dict.fromkeys(plain, given)
    known(content, key, list(values), plain)
    for name, value in values.items():
        at_least_zero(content, f"{key}, {name!r}", value)
    return {name: float(value) for name, value in values.items()}


def excluded(content: Content, given: Any) -> tuple[tuple[str, str], ...]:
    """Pairs of bodies that do not touch each other."""
    where = f"{content.beside}: exclude"
    if not isinstance(given, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in given):
        raise content.fail(where, f"a list of pairs of bodies, [[a, b], ...], is needed, got {given!r}")
    legal = frames(content)
    return tuple((str(a), str(b)) for a, b in (known(content, "exclude", pair, legal) for pair in given))


def packages(content: Content, given: Mapping[str, Any]) -> dict[str, Path]:
    """Folders of ROS packages; relative ones start at the model's folder."""
    found = {}
    for name, folder in given.items():
        found[str(name)] = place = content.path.parent / str(folder)
        if content.folder is not None:
            inside(content.folder, place)
        if not place.is_dir():
            raise content.fail(f"{content.beside}: packages.{name}", f"there is no folder {place}")
    return found
