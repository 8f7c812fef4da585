"""How an actor's episodes begin: the world resets itself, a person is asked, or a second policy makes it so.

    reset=world                                             a simulation; a robot that is where it was
    reset=ask                                               the operator puts things back, then says begin
    reset=outputs/train/place-back-1 reset_formula="..."    a second policy acts until the formula is satisfied
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data.recording.controls import BEGIN, QUIT
from temporeal.policies.robot_learning.success import ByFormula, require_signals
from temporeal.policies.robot_learning.world import RobotWorld, Sample
from temporeal.policies.runs import environments
from temporeal.policies.runs.artifacts import is_artifact, load_artifact
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.run_folders import load_run
from temporeal.policies.runs.tuning_runs.graphs import load_graph
from temporeal.sim.task import MISSION_TIME

if TYPE_CHECKING:
    from temporeal.policies.robot_learning.acting.interventions import Intervention
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task import Task

Begin = Callable[[], Sample | None]
"""The first sample of an episode; None: the operator quits."""
TRIES = 3  # of the second policy, before the operator is asked


def by_asking(world: RobotWorld, intervention: Intervention | None, action_dim: int, tell: Callable[[str], None]
              ) -> Begin:
    """Ask the operator before each episode."""
    def begin() -> Sample | None:
        tell("put things back; then begin" + (" (the key or button for begin)" if intervention else ": press return"))
        return world.reset() if agreed_to(world, intervention, action_dim) else None

    return begin


def agreed_to(world: RobotWorld, intervention: Intervention | None, action_dim: int) -> bool:
    """Wait for the operator's word: begin, or quit."""
    if intervention is None:
        if not sys.stdin.isatty():
            raise BadInput("the operator is to be asked, and nobody is there: standard input is no terminal, and "
                           "intervene=none; reset=world, or a device of the operator (intervene=gamepad)")
        return sys.stdin.readline() != ""
    nothing = np.zeros(action_dim, np.float32)
    while True:
        events = intervention({}, nothing).events
        if BEGIN in events or QUIT in events:
            return BEGIN in events
        time.sleep(world.period_s)


@dataclass
class SecondPolicy:
    """Acts between episodes until the formula of the reset is satisfied.

    Args:
        graph: between raw signals and commands. judge: of the formula. seconds: of one try.
        otherwise: how an episode begins where the policy did not manage, or the world cannot go on.
    """

    world: RobotWorld
    graph: PolicyGraph | OfArtifact
    judge: ByFormula
    seconds: float
    otherwise: Begin
    tell: Callable[[str], None]

    def __call__(self) -> Sample | None:
        """The first sample of an episode."""
        resume: Callable[[], Sample] = getattr(self.world, "resume", self.world.reset)
        for _ in range(TRIES):
            sample = resume()
            if sample.failed:  # nothing to go on from
                return self.otherwise()
            if (found := self.tried(sample)) is not None:
                return found
        self.tell(f"the reset was not achieved in {TRIES} tries of {self.seconds:g} s")
        return self.otherwise()

    @torch.no_grad()
    def tried(self, sample: Sample) -> Sample | None:
        """One try; None: it did not come about."""
        memory: Any = self.graph.initial_memory(1)
        dt = self.world.period_s
        self.judge.begin()
        for step in range(max(1, round(self.seconds / dt))):
            signals = {**sample.signals, MISSION_TIME.name: np.asarray(step * dt, np.float32)}
            verdict = self.judge.update(signals)
            if verdict is not None:
                return sample if verdict else None
            commands, memory = self.graph({name: torch.from_numpy(np.asarray(signals[name]))[None]
                                           for name in self.graph.signals}, memory)
            sample = self.world.step(commands[self.world.command][0].numpy())
            if sample.failed:
                return None
        return None


class OfArtifact:
    """An artifact as a graph between raw signals and raw commands."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact, self.signals = artifact, tuple(artifact.schema)

    def initial_memory(self, n: int) -> Mapping[str, Any]:
        """At an episode's start."""
        return self.artifact.initial_memory(n)

    def __call__(self, signals: Mapping[str, Tensor], memory: Any) -> tuple[dict[str, Tensor], Any]:
        """Commands and the next memory."""
        commands, memory = self.artifact.act_batch({name: value.numpy() for name, value in signals.items()}, memory)
        return {name: torch.as_tensor(value) for name, value in commands.items()}, memory


def second_policy(
    folder: Path, formula: str, seconds: float, world: RobotWorld, task: Task, otherwise: Begin,
    tell: Callable[[str], None],
) -> SecondPolicy:
    """The policy of the run or artifact in ``folder``, for the same robot, rate and command."""
    from temporeal.sim.stl.language.errors import FormulaError
    from temporeal.sim.stl.language.parse import parse

    graph = opened(folder, task)
    try:
        judge = ByFormula(parse(formula, task.schema, dict(task.constants)), task.control_dt)
    except FormulaError as error:
        raise BadInput(f"reset_formula: {error}") from error
    require_signals(judge, world.signals)
    if missing := [name for name in graph.signals if name not in world.signals and name != MISSION_TIME.name]:
        raise BadInput(f"reset={folder}: it reads {', '.join(missing)}, which the world does not measure")
    return SecondPolicy(world, graph, judge, seconds, otherwise, tell)


def opened(folder: Path, task: Task) -> PolicyGraph | OfArtifact:
    """The policy in ``folder``, which takes turns with the one that learns ``task``."""
    graph: PolicyGraph | OfArtifact
    if is_artifact(folder):
        artifact = load_artifact(folder)
        manifest, graph = artifact.manifest, OfArtifact(artifact)
        found = manifest.robot, manifest.commands[0].name, 1.0 / manifest.rate_hz
    else:
        settings = load_run(folder)
        own = environments.make_task(settings)
        found, graph = (own.robot.name, own.command, own.control_dt), load_graph(settings, folder, own)
    for name, mine, theirs in zip(("robot", "command"), (task.robot.name, task.command), found):
        if mine != theirs:
            raise BadInput(f"reset={folder}: its {name} is {theirs}, the task's is {mine}: one robot is both's")
    if not isclose(found[2], task.control_dt, rel_tol=1e-6):
        raise BadInput(f"reset={folder}: its period is {found[2]:g} s, the task's is {task.control_dt:g} s")
    return graph
