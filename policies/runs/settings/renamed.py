"""Settings that were called otherwise before: those of older runs and artifacts are read under the names of today."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.training import renamed as of_learners
from temporeal.sim import renamed as of_worlds

KEYS = {**of_worlds.SETTINGS, **{f"algo.{old}": f"algo.{new}" for old, new in of_learners.SETTINGS.items()}}
"""Dotted keys: old name -> name of today."""


def with_current_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Saved ``settings`` under the names of today."""
    found = copy.deepcopy(dict(settings))
    for old, new in KEYS.items():
        group, _, name = old.rpartition(".")
        held = _part(found, group)
        if name in held and (group != "algo" or held.get("name") == "tgpo"):
            held[new.rpartition(".")[2]] = held.pop(name)
    for old in of_worlds.REMOVED:
        group, _, name = old.rpartition(".")
        _part(found, group).pop(name, None)
    own = _part(found, "task.settings")
    own.update(of_worlds.task_settings(own))
    return found


def hint(key: str) -> str:
    """What a dotted ``key`` that there is no more, or what it is below, is called now; empty where it never was."""
    for old, new in KEYS.items():
        if key == old or key.startswith(f"{old}."):
            return f"; {old} is now called {new}"
    return f"; {key} is no more: {of_worlds.REMOVED[key]}" if key in of_worlds.REMOVED else ""


def refuse_old_names(settings: Mapping[str, Any]) -> None:
    """A :class:`BadInput` where composed ``settings``, from a file of the user's, have a key of before."""
    for old, new in of_worlds.SETTINGS.items():
        group, _, name = old.rpartition(".")
        if name in _part(dict(settings), group):
            raise BadInput(f"{old} is now called {new}")


def _part(settings: dict[str, Any], group: str) -> dict[str, Any]:
    """The mapping below the dotted ``group``; an empty one where there is none."""
    node: Any = settings
    for part in group.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}
