"""What actor and learner must agree on before a step is learned from: signals, action, rate, robot, task, scales.

Published real-robot results fail most often on exactly this: another order, scale, rate or normalization on the two
sides, and nothing says so. Both sides make the agreement from their own settings, and compare all of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.data.episodes.layout import is_picture
from temporeal.policies.robot_learning.wire.messages import DTYPES
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.run_folders import AGREEMENT
from temporeal.robots.atomic_files import write_whole
from temporeal.robots.handed_over.files import Refused
from temporeal.robots.handed_over.texts import from_json
from temporeal.robots.signals import schema

if TYPE_CHECKING:
    from temporeal.policies.training.off_policy.settings import OffPolicyConfig
    from temporeal.robots.signals import SignalSpec
    from temporeal.sim.task import Task

VERSION = 2  # of messages and of what is agreed
FILE = AGREEMENT  # beside the episodes: what they are of
UNCORRECTED = {"scale": "none", "base": "none", "sha256": "none"}
"""The correction where the policy moves the robot alone: without a base."""


@dataclass(frozen=True)
class Agreement:
    """All that must be equal.

    Args:
        interface: signals, command, rate, robot.
        observation: O, numbers that the policy is shown.
        task: its name, settings and formula.
        learner: algorithm, widths, normalization: what makes weights fit.
        judged: what the reward is, and who judges success.
        steps: of the longest episode.
        correction: scale, name and SHA-256 of the base that the policy corrects; its keys are always these.
    """

    interface: Interface
    observation: int
    task: Mapping[str, Any]
    learner: Mapping[str, Any]
    judged: Mapping[str, Any]
    steps: int
    correction: Mapping[str, Any] = field(default_factory=lambda: dict(UNCORRECTED))

    @property
    def pictures(self) -> dict[str, tuple[int, ...]]:
        """Shapes (H, W, 3) of the pictures that the policy sees, by name."""
        return {name: spec.shape for name, spec in self.interface.signals.items() if is_picture(spec)}

    @property
    def largest(self) -> int:
        """Bytes of the arrays of the longest episode."""
        signals = sum(np.dtype(spec.dtype).itemsize * spec.size for spec in self.interface.signals.values())
        step = 4 * (self.observation + 2 * self.interface.task_action + self.interface.action.size + 1) + 1
        return (self.steps + 1) * (step + signals)

    def plain(self) -> dict[str, Any]:
        """As it is hashed and sent: plain values."""
        found: dict[str, Any] = json.loads(json.dumps({
            "version": VERSION, "interface": self.interface.hashed(), "observation": self.observation,
            "task": dict(self.task), "learner": dict(self.learner), "judged": dict(self.judged), "steps": self.steps,
            "correction": dict(self.correction)}))
        return found

    def digest(self) -> str:
        """SHA-256 of it."""
        return hashlib.sha256(json.dumps(self.plain(), sort_keys=True).encode()).hexdigest()


def differences(
    wanted: Any, found: Any, name: str = "", sides: tuple[str, str] = ("the learner", "the actor")
) -> Iterator[str]:
    """Sentences on what differs between two :meth:`Agreement.plain`, by dotted names. ``sides``: whose."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in dict.fromkeys((*wanted, *found)):
            dotted = f"{name}.{key}" if name else str(key)
            if key not in wanted or key not in found:
                yield f"{dotted[:120]} is {f'not of {sides[0]}' if key not in wanted else f'missing at {sides[1]}'}"
            else:
                yield from differences(wanted[key], found[key], dotted, sides)
    elif wanted != found:
        yield f"{name} is {str(wanted)[:80]} at {sides[0]} and {str(found)[:80]} at {sides[1]}"


def write_agreed(file: Path, agreed: Mapping[str, Any], digest: str) -> None:
    """Write down what the episodes beside ``file`` are of: an :meth:`Agreement.plain` and its digest."""
    write_whole(file, json.dumps({"digest": digest, "agreement": dict(agreed)}).encode())


def read_agreed(file: Path, mend: str) -> tuple[Mapping[str, Any], str] | None:
    """What :func:`write_agreed` was given; None: there is no file. ``mend``: what to do where it is damaged."""
    try:
        found = from_json(file.read_bytes(), str(file))
    except FileNotFoundError:
        return None
    except (OSError, Refused) as error:
        raise BadInput(f"{file} cannot be read: {error}; {mend}") from error
    digest, agreed = (found.get("digest"), found.get("agreement")) if isinstance(found, Mapping) else (None, None)
    if not isinstance(digest, str) or not isinstance(agreed, Mapping):
        raise BadInput(f"{file} is damaged: an object with digest, a text, and agreement, an object, is needed; {mend}")
    return agreed, digest


def agreement(
    task: Task, settings: Mapping[str, Any], config: OffPolicyConfig, judged: Mapping[str, Any], steps: int,
    correction: Mapping[str, Any] | None = None, pictures: Sequence[SignalSpec] = (),
) -> Agreement:
    """The agreement of a task as its policy sees it, beside the ``pictures`` that it sees, and of the ``correction``
    that its commands are, if any."""
    command, act = task.robot.command(task.command), task.act
    interface = Interface(
        task.robot.name, schema(*(carried(task.schema[name]) for name in read_by(task)), *pictures),
        ActionSpec(command.name, tuple(map(float, command.low)), tuple(map(float, command.high)), command.unit),
        1.0 / task.control_dt, task_action=act.action_dim, task=task.name)
    group = {key: value for key, value in settings["task"].items() if key in ("name", "robot", "settings")}
    learner = {"algorithm": settings["algo"]["name"], "hidden": list(config.hidden), "precision": config.precision,
               "normalization": "running mean and deviation" if config.normalize_observations else "none"}
    learner |= {"keypoints": config.keypoints, "hide": list(config.hide)} if pictures else {}
    observe: Any = task.observe
    return Agreement(interface, int(observe.obs_dim), {**group, "formula": task.formula_text}, learner, judged, steps,
                     correction or UNCORRECTED)


def read_by(task: Task) -> tuple[str, ...]:
    """The signals that the policy and the formula read, without the time, which the actor counts itself."""
    from temporeal.sim.stl.language.queries import signals_in
    from temporeal.sim.task import MISSION_TIME

    observe: Any = task.observe
    names = dict.fromkeys((*observe.signals, *sorted(signals_in(task.formula))))
    return tuple(name for name in names if name != MISSION_TIME.name)


def carried(spec: SignalSpec) -> SignalSpec:
    """A signal that messages can carry."""
    if spec.dtype not in DTYPES:
        raise BadInput(f"signal {spec.name} is of type {spec.dtype}; actor and learner exchange {', '.join(DTYPES)}")
    return spec
