"""What a page of an evaluation is made of: judged sets of episodes, and what they have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporeal.policies.evaluate.evaluation import Evaluation
from temporeal.policies.evaluate.report.learning import Curve
from temporeal.policies.evaluate.rollout import Rollout
from temporeal.policies.evaluate.scene_figure import Stage
from temporeal.robots.signals import CommandSpec, SignalSpec


@dataclass(frozen=True)
class Section:
    """One judged set of episodes: a simulator, or recorded flights.

    Args:
        key: short name for JSON and the command line, such as ``"native"``.
        title: for people, such as ``"Own simulator (quadrotor)"``.
        seconds: wall time that the rollout took, None if unknown.
    """

    key: str
    title: str
    evaluation: Evaluation
    rollout: Rollout
    seconds: float | None = None


@dataclass(frozen=True)
class Context:
    """What the page says about the whole.

    Args:
        scene: shapes to draw, as in `temporeal.sim.task.Task.shapes`.
        stage: what moves, None for a quadrotor, which the player draws itself.
        arm_m: distance of a rotor from the centre along x, to draw the drone.
        settings: configuration to show (plain JSON data).
        require: probability that was asked for, None if none.
        facts: further lines for the head of the page, name -> text.
        command: what the policy gives; schema: the signals' specs: units of the plots over time.
        curves: of the training, where they are known.
    """

    title: str
    robot: str
    formula: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    scene: Sequence[Mapping[str, Any]] = ()
    stage: Stage | None = None
    arm_m: float = 0.0325
    settings: Mapping[str, Any] = field(default_factory=dict)
    require: float | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    command: CommandSpec | None = None
    schema: Mapping[str, SignalSpec] = field(default_factory=dict)
    curves: Sequence[Curve] = ()

    @property
    def plane(self) -> bool:
        """Whether all that happens lies in a plane, which is looked at from above."""
        return self.stage is not None and self.stage.figure.model.scene.robot.kind == "planar"
