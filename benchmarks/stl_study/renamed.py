"""Names of settings that have changed since trials were kept: digests are of the names of then, so that they stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from temporeal.policies.training import renamed as of_learners
from temporeal.sim import renamed as of_worlds

OF_FILES = {b"\nmid_episode_starts:": b"\nexplore:"}


def file_as_then(content: bytes) -> bytes:
    """The ``content`` of a formula's file by the names of then."""
    for now, then in OF_FILES.items():
        content = content.replace(now, then)
    return content


def algorithm_as_then(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The ``settings`` of an algorithm by the names of then."""
    then = {now: old for old, now in of_learners.SETTINGS.items()}
    return {then.get(key, key): value for key, value in settings.items()}


def task_as_then(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The ``settings`` of a task by the names of then."""
    then = {now: old for old, now in of_worlds.VIEWS.items()}
    return {key: then.get(value, value) if key == "view" else value for key, value in settings.items()}


def words_today(words: Sequence[str]) -> list[str]:
    """The ``words`` of a command line of then as one would write them today."""
    keys = {f"algo.{old}": f"algo.{now}" for old, now in of_learners.SETTINGS.items()}
    out = []
    for word in words:
        key, sign, value = word.partition("=")
        value = of_worlds.VIEWS.get(value, value) if key == "task.settings.view" else value
        out.append(f"{keys.get(key, key)}{sign}{value}")
    return out
