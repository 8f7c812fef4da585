"""Settings that were called otherwise before: those of older runs and artifacts are read under the names of today."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

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
    own = _part(found, "task.settings")
    own.update(of_worlds.task_settings(own))
    return found


def hint(key: str) -> str:
    """What a dotted ``key`` that there is no more is called now; empty where it never was."""
    return f"; it is now called {KEYS[key]}" if key in KEYS else ""


def _part(settings: dict[str, Any], group: str) -> dict[str, Any]:
    """The mapping below the dotted ``group``; an empty one where there is none."""
    node: Any = settings
    for part in group.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}
