"""Export of a policy that corrects a base: both in one graph."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.policies.runs import chunks, environments
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.acting import corrected_act, load_residual
from temporeal.policies.runs.residual.opening import Opened, open_base
from temporeal.policies.runs.residual.training import require_same
from temporeal.policies.runs.settings.files import Settings

if TYPE_CHECKING:
    from temporeal.policies.export.writer import ArtifactSpec
    from temporeal.policies.training.residual.graphs import Residual
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task


def export_corrected(settings: Settings, run: Path, task: Task, out: Path, name: str) -> Artifact | None:
    """Write the policy of ``run``, which corrects a base, as an artifact of single commands. None: it is a graph as any
    other, and exported as such. What has no graph is refused."""
    from temporeal.policies.data.hidden_signals import without

    base = open_base(settings, without(task, settings["algo"].get("hide") or ()), run)
    require_same(base, run)
    if base.graph is not None:
        return None
    if base.policy is None and base.artifact is None:
        raise BadInput(f"{run}: its base, {base.config.title}, is no graph that an artifact could hold. Let a policy "
                       f"learn from both: temporeal train algo=dagger algo.expert={run} task=..., or temporeal data "
                       f"generate expert={run} and a learner of data (docs/how-to/residual.md)")
    residual = load_residual(settings, run, base)
    env = environments.make_env(settings, task=base.task, num_worlds=1, compiled=False)
    if base.artifact is not None:
        from temporeal.policies.runs.residual.merging import export_merged

        return export_merged(base, residual, settings, env, out, name)
    return export_chunked(base, residual, settings, env, out, name)


def export_chunked(
    base: Opened, residual: Residual, settings: Settings, env: Env, out: Path, name: str
) -> Artifact:
    """A base that gives chunks: the chunk under way is memory."""
    from temporeal.policies.export.writer import export
    from temporeal.policies.training.residual.graphs import ResidualCommandGraph, Rows

    assert base.policy is not None
    task, policy = base.plain, base.policy
    rows = Rows(policy.rows, policy.signals, (policy.horizon, policy.interface.action.size), base.execute)
    graph = ResidualCommandGraph(rows, task, residual).eval()
    spec = spec_of(task, graph.signals, settings, name, {**policy.interface.signals, **graph.picture_specs})
    steps = None if len(graph.signals) == len(set(graph.signals) & set(task.schema)) else PICTURED
    return export(graph, out, spec, golden_trace(graph, corrected_act(base, residual, env), env, steps))


PICTURED = 32  # steps of a golden trace with pictures: an episode of them would be most of the artifact


def spec_of(task: Task, signals: tuple[str, ...], settings: Settings, name: str, more: Any) -> ArtifactSpec:
    """What the artifact states; ``more``: signals that neither the robot nor the task has."""
    from temporeal.policies.export.writer import ArtifactSpec
    from temporeal.sim.stl.language.queries import horizon

    reach = horizon(task.formula)
    return ArtifactSpec(
        robot=task.robot, signals=signals, command=task.command, rate_hz=1 / task.control_dt,
        formula_text=task.formula_text, constants=task.constants,
        horizon_s=reach if isfinite(reach) else task.episode_s, training=settings, seed=settings["seed"],
        stop=task.stop, name=name, task_signals={**task.schema, **more})


def golden_trace(graph: Any, act: Any, env: Env, steps: int | None) -> dict[str, np.ndarray]:
    """One episode of one world under ``act``, the policy as it was trained: what was measured, what the worlds were
    commanded, and the memory that ``graph`` has of it before each step."""
    import torch

    rows, memory, command = list[dict[str, np.ndarray]](), graph.initial_memory(1), env.task.command
    obs = env.reset()
    with torch.no_grad():
        for _ in range(steps or env.task.steps):
            seen = {name: value.copy() for name, value in chunks.measured(env, graph.signals).items()}
            row = {f"signals.{name}": value[0] for name, value in seen.items()}
            row |= {f"memory.{name}": value[0].numpy().copy() for name, value in memory.items()}
            step = env.step(act(obs.actor))
            _, memory = graph({name: torch.from_numpy(value) for name, value in seen.items()}, memory)
            rows.append({**row, f"commands.{command}": env.command[0].numpy().copy()})
            obs = step.obs
            if bool((step.terminated | step.truncated)[0]):
                break
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
