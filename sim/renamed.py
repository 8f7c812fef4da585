"""What was called otherwise in files of older versions: old name -> name of today. Without torch: settings read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RECORDS = {"pushes": "disturbances", "cameras": "appearance", "look": "appearance", "explore": "mid_episode_starts",
           "midway": "mid_episode", "faults": "diverged"}
"""Keys of records of episodes and of states of environments."""

VIEWS = {"timed": "scheduled", "plain": "terminal_robustness", "history": "tau_mdp", "flags": "f_mdp"}
"""Views of a formula (:mod:`temporeal.sim.rewards.views`)."""

SETTINGS = {"task.explore": "task.mid_episode_starts", "randomize.pushes": "randomize.disturbances",
            "randomize.cameras": "randomize.appearance"}
"""Settings of a run, dotted."""

REMOVED = {"backend.engine": "mujoco.batch steps the worlds"}
"""Settings of a run that are no more, dotted, and what holds instead. None of them changed a result."""


def task_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` of a task (keywords of its ``make``) with the values of today."""
    return {key: VIEWS.get(value, value) if key == "view" else value for key, value in settings.items()}


def with_current_names(data: Mapping[str, Any], renamed: Mapping[str, str] = RECORDS) -> dict[str, Any]:
    """``data`` with keys by the names of today."""
    return {renamed.get(key, key): value for key, value in data.items()}
