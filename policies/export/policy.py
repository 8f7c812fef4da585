"""Export a policy graph as an artifact of its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from torch import nn

from temporeal.policies.export.drift import drift_of
from temporeal.policies.export.formulas import judged, traced
from temporeal.policies.export.golden_trace import record_golden
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.policies.nets.seeing_graph import SeeingGraph
from temporeal.policies.training.acting import graph_policy
from temporeal.policies.training.reflex_policy import ReflexGraph
from temporeal.robots.artifact.formulas import FormulaSpec
from temporeal.robots.artifact.runtime import Artifact
from temporeal.sim.env import Env
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.task import Task

GOLDEN_PICTURES = 32  # steps of a golden trace with pictures: an episode of them would be most of the artifact
GOLDEN_FORMULAS = 500  # of one of formulas: an episode of them is minutes long


def export_policy(
    graph: PolicyGraph, task: Task, path: str | Path, env: Env, *, training: Mapping[str, Any], seed: int,
    git_revision: str | None = None, name: str | None = None, drift: str = "",
    forecast: tuple[nn.Module, FormulaSpec] | None = None,
) -> Artifact:
    """Write ``graph`` as an artifact, its golden trace recorded in ``env`` (one world, sensors as in training).

    The horizon of a formula with an unbounded window is the episode. ``drift``: see
    :func:`temporeal.policies.export.drift.drift_of`. ``forecast``: the judge, and what formulas may be, of a policy
    that takes any.
    """
    seen = graph.picture_specs if isinstance(graph, SeeingGraph) else {}
    steps = GOLDEN_PICTURES if seen else None if forecast is None else GOLDEN_FORMULAS
    golden = record_golden(env, graph_policy(graph, env), steps, tuple(seen))
    reach = horizon(task.formula)
    spec = ArtifactSpec(
        robot=task.robot, signals=graph.signals, command=task.command, rate_hz=1 / task.control_dt,
        formula_text=task.formula_text, constants=task.constants,
        horizon_s=reach if isfinite(reach) else task.episode_s, training=training, seed=seed, stop=task.stop,
        name=name or task.name, git_revision=git_revision, task_signals={**task.schema, **seen},
        drift=drift_of(drift, env, task.command))
    if forecast is not None:
        judge, formulas = forecast
        return export(graph, path, replace(spec, formulas=formulas), {**golden, **judged(judge, golden, formulas)},
                      judge=partial(traced, judge))
    if isinstance(graph, ReflexGraph):
        return export(graph.at(True), path, replace(spec, reflex=graph.spec), golden, between=graph.at(False))
    return export(graph, path, spec, golden)
