"""What a dataset's numbers mean: its signals, its action, its rate, and the hash by which a learner knows it again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from temporeal.robots.signals import Schema

DIFFERS, SEEING = "differs", ("cameras", "randomize")
"""Key of an interface's ``about``: names of settings that were not the same in all sets that were merged. Those of them
that say what was seen from where, ``SEEING``, a merged set does not state."""


class DataError(ValueError):
    """A dataset, an episode or a file of one is not what it must be; the message names dataset, episode and index."""


@dataclass(frozen=True)
class ActionSpec:
    """The command that each step of a dataset holds.

    Args:
        name: of the robot's command.
        low, high: [U] in ``unit``; what lies outside is refused.
        components: a name for each of the U numbers.
    """

    name: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    unit: str = "1"
    components: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """U."""
        return len(self.low)


@dataclass(frozen=True)
class Interface:
    """What the numbers of a dataset mean.

    Args:
        robot: its name.
        signals: of each sample; uint8 [H, W, 3] is a picture.
        action: the command in its units, column ``action`` of the files.
        rate_hz: samples per second.
        task_action: [A] numbers of column ``policy_action``: what the policy of the task ``task`` gave, in [-1, 1];
            0: there is no such column.
        task: the task that gave rewards and the policy's actions; "": none.
        simulator: name and version of what moved the robot: "mujoco 4.0.0", "real". Not part of the hash.
    """

    robot: str
    signals: Schema
    action: ActionSpec
    rate_hz: float
    task_action: int = 0
    task: str = ""
    simulator: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)  # settings of the task, source files: shown, not hashed

    def digest(self) -> str:
        """SHA-256 of names, shapes, units, frames, types, action space and rate."""
        return hashlib.sha256(json.dumps(self.hashed(), sort_keys=True).encode()).hexdigest()

    def hashed(self) -> dict[str, Any]:
        """What :meth:`digest` covers."""
        return {"robot": self.robot, "rate_hz": float(self.rate_hz), "action": asdict(self.action),
                "signals": {name: asdict(spec) for name, spec in self.signals.items()},
                "task_action": self.task_action}


def differences(wanted: Interface, found: Interface) -> list[str]:
    """Sentences on what differs in the hashed part; empty where both are of one interface."""
    a, b = wanted.hashed(), found.hashed()
    out = [f"{key}: {a[key]!r} is needed, {b[key]!r} is there" for key in ("robot", "rate_hz", "task_action")
           if a[key] != b[key]]
    out += [f"action {key}: {value!r} is needed, {b['action'][key]!r} is there" for key, value in a["action"].items()
            if value != b["action"][key]]
    out += [f"signal {name} is missing" for name in a["signals"] if name not in b["signals"]]
    out += [f"signal {name} is not needed" for name in b["signals"] if name not in a["signals"]]
    return out + [f"signal {name}, {key}: {value!r} is needed, {b['signals'][name][key]!r} is there"
                  for name, spec in a["signals"].items() if name in b["signals"]
                  for key, value in spec.items() if value != b["signals"][name][key]]


def require_same(wanted: Interface, found: Interface, who: str) -> None:
    """Refuse a dataset of another interface, by the name of what differs."""
    if said := differences(wanted, found):
        raise DataError(f"{who}: the interfaces differ: {'; '.join(said)}")
