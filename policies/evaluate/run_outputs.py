"""What the command line needs in one call each: export a policy, write the report of what was judged."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from temporeal.policies.evaluate.evaluation import Evaluation, Reference
from temporeal.policies.evaluate.report.page import Context, Section, write_json, write_page
from temporeal.policies.evaluate.rollout import Rollout, graph_policy, record_golden
from temporeal.policies.evaluate.scene_figure import stage_of
from temporeal.policies.export.writer import export
from temporeal.policies.training.reflex_policy import ReflexGraph
from temporeal.robots.artifact.runtime import Artifact
from temporeal.sim.env import Env
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.task import Task

EVALUATION_SEED = 0x5EED_0000
"""Added to a training seed: the episodes of an evaluation are drawn from streams that training never saw."""


CORNERS, MOST = 12, 120  # of a circle and of a mesh in the replay, which a browser paints face by face


class Judged(NamedTuple):
    """An evaluation with what it was made from and the wall time of the rollout, s."""

    evaluation: Evaluation
    rollout: Rollout
    seconds: float


class Report(NamedTuple):
    """The files of a report."""

    html: Path
    json: Path


def export_policy(
    graph: PolicyGraph, task: Task, path: str | Path, env: Env, *, training: Mapping[str, Any], seed: int,
    git_revision: str | None = None, name: str | None = None,
) -> Artifact:
    """Write ``graph`` as an artifact, its golden trace recorded in ``env`` (one world, sensors as in training).

    A formula without an end has the episode as its horizon.
    """
    golden = record_golden(env, graph_policy(graph))
    reach = horizon(task.formula)
    policy, layer = graph, {}
    if isinstance(graph, ReflexGraph):
        policy, layer = graph.at(True), {"reflex": graph.spec, "between": graph.at(False)}
    return export(
        policy, path, robot=task.robot, signals=graph.signals, command=task.command, rate_hz=1 / task.control_dt,
        formula_text=task.formula_text, constants=task.constants,
        horizon_s=reach if isfinite(reach) else task.episode_s, training=training, seed=seed, golden=golden,
        stop=task.stop, name=name or task.name, git_revision=git_revision, task_signals=dict(task.schema), **layer)


def reference_of(task: Task) -> Reference | None:
    """The position to be held over time, where the task has one: a reference module, or the constant ``home``."""
    module = getattr(task.observe, "reference", None)
    if module is not None:
        module = copy.deepcopy(module).cpu()  # an environment on a GPU took the task's there

        def moving(seconds: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                position: np.ndarray = module(torch.as_tensor(seconds, dtype=torch.float32)).numpy()
            return position

        return moving
    home = task.constants.get("home")
    if "base_pos_w" not in task.schema or np.shape(home) != (3,):
        return None  # a posture, say, of an arm
    return lambda seconds: np.broadcast_to(np.asarray(home, float), (*seconds.shape, 3))


def make_report(
    task: Task, judged: Sequence[tuple[str, str, Evaluation, Rollout]], folder: Path, *, require: float | None = None,
    settings: Mapping[str, Any] | None = None, facts: Mapping[str, str] | None = None, name: str = "report",
) -> Report:
    """Write ``<name>.html`` and ``<name>.json``; ``judged`` is (key, title, evaluation, rollout) per simulator."""
    sections = [Section(key, title, evaluation, found) for key, title, evaluation, found in judged]
    context = Context(
        title=f"Evaluation of {task.name}", robot=task.robot.name, formula=task.formula_text, constants=task.constants,
        scene=task.shapes, stage=None if task.robot.kind == "quadrotor" else stage_of(task, corners=CORNERS, most=MOST),
        arm_m=task.robot.parameters["arm"].nominal[0] if "arm" in task.robot.parameters else 0.1,
        settings=dict(settings or {}), require=require, facts=dict(facts or {}))
    extra = {"task": task.name, "robot": task.robot.name, "require": require}
    return Report(write_page(folder / f"{name}.html", sections, context),
                  write_json(folder / f"{name}.json", sections, extra))
