"""The report of a task's evaluation: one HTML page and one JSON file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from temporeal.policies.evaluate.evaluation import Evaluation
from temporeal.policies.evaluate.report.learning import Curve
from temporeal.policies.evaluate.report.page import write_json, write_page
from temporeal.policies.evaluate.report.section import Context, Section
from temporeal.policies.evaluate.rollout import Rollout
from temporeal.policies.evaluate.scene_figure import stage_of
from temporeal.sim.task import Task

CORNERS, MOST = 12, 120  # of a circle and of a mesh in the replay, which a browser paints face by face


class Report(NamedTuple):
    """The files of a report."""

    html: Path
    json: Path


def make_report(
    task: Task, judged: Sequence[tuple[str, str, Evaluation, Rollout]], folder: Path, *, require: float | None = None,
    settings: Mapping[str, Any] | None = None, facts: Mapping[str, str] | None = None, name: str = "report",
    title: str | None = None, curves: Sequence[Curve] = (),
) -> Report:
    """Write ``<name>.html`` and ``<name>.json``; ``judged`` is (key, title, evaluation, rollout) per simulator.

    ``title``: the task's name on the page, where it is not its own: all formulas are the task ``stl``. ``curves``: of
    the training.
    """
    title = title or task.name
    # a quadrotor the player draws itself; what another library simulates has no model here
    drawn = task.robot.kind != "quadrotor" and task.robot.model is not None
    sections = [Section(key, title, evaluation, found) for key, title, evaluation, found in judged]
    context = Context(
        title=f"Evaluation of {title}", robot=task.robot.name, formula=task.formula_text, constants=task.constants,
        scene=task.shapes, stage=stage_of(task, corners=CORNERS, most=MOST) if drawn else None,
        arm_m=task.robot.parameters["arm"].nominal[0] if "arm" in task.robot.parameters else 0.1,
        settings=dict(settings or {}), require=require, facts=dict(facts or {}),
        command=task.robot.command(task.command), schema=task.schema, curves=curves)
    extra = {"task": title, "robot": task.robot.name, "require": require, "policy": (settings or {}).get("algo")}
    return Report(write_page(folder / f"{name}.html", sections, context),
                  write_json(folder / f"{name}.json", sections, extra))
