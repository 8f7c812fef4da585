"""Temporeal: from a temporal-logic task to a robot that does it.

The public API. Names are imported when they are first used: ``import temporeal`` imports no torch and no simulator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from temporeal.policies.api import evaluate, export, load_artifact, make_env, make_task, train
    from temporeal.robots.spec import load_robot
    from temporeal.sim.stl.language.parse import parse
    from temporeal.sim.stl.monitoring.monitor import Monitor
    from temporeal.sim.stl.semantics.robustness import robustness

__all__ = ["Monitor", "evaluate", "export", "load_artifact", "load_robot", "make_env", "make_task", "parse",
           "robustness", "train"]

_FROM = {
    "Monitor": "sim.stl.monitoring.monitor",
    "evaluate": "policies.api",
    "export": "policies.api",
    "load_artifact": "policies.api",
    "load_robot": "robots.spec",
    "make_env": "policies.api",
    "make_task": "policies.api",
    "parse": "sim.stl.language.parse",
    "robustness": "sim.stl.semantics.robustness",
    "train": "policies.api",
}
"""Module of each public name."""


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module 'temporeal' has no attribute {name!r}; it has: {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"temporeal.{_FROM[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
