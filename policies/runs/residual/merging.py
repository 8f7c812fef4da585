"""Export of the residual of an artifact: its graph and the residual's as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.policies.runs import chunks
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.acting import corrected_act
from temporeal.policies.runs.residual.opened import Opened
from temporeal.policies.runs.settings.files import Settings

if TYPE_CHECKING:
    from torch import Tensor

    from temporeal.policies.export.writer import ArtifactSpec
    from temporeal.policies.training.residual.graphs import Residual, ResidualCommandGraph
    from temporeal.robots.artifact.manifest import Manifest
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task

COMMAND = "base_command"
"""The artifact's command, as the residual's graph reads it."""
HELD = "base_memory_"
"""Before the names of the artifact's own memory."""


class Whole:
    """Artifact and residual as one policy, for the writer: memory of both, computed by both in turn."""

    def __init__(self, artifact: Artifact, graph: ResidualCommandGraph) -> None:
        self.artifact, self.graph = artifact, graph
        self.command = artifact.manifest.commands[0].name
        own = tuple(name for name in graph.signals if name != COMMAND)
        self.signals = tuple(dict.fromkeys((*artifact.schema, *own)))

    def initial_memory(self, n: int) -> dict[str, Tensor]:
        """Of ``n`` robots at mission start."""
        import torch

        held = {f"{HELD}{name}": torch.from_numpy(np.array(value)) for name, value in
                self.artifact.initial_memory(n).items()}
        return {**self.graph.initial_memory(n), **held}

    def __call__(
        self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Commands and the next memory."""
        import torch

        held = {name.removeprefix(HELD): value.numpy() for name, value in memory.items() if name.startswith(HELD)}
        seen = {name: signals[name].numpy() for name in self.artifact.schema}
        commands, after = self.artifact.act_batch(seen, held)
        given = torch.from_numpy(np.array(commands[self.command]))
        own = {name: value for name, value in memory.items() if not name.startswith(HELD)}
        found, own = self.graph({**signals, COMMAND: given}, own)
        return found, {**own, **{f"{HELD}{name}": torch.from_numpy(np.array(v)) for name, v in after.items()}}


def export_merged(
    base: Opened, residual: Residual, settings: Settings, env: Env, out: Path, name: str
) -> Artifact:
    """Write both as one artifact."""
    from temporeal.policies.export.merging import merged
    from temporeal.policies.export.writer import export, trace
    from temporeal.policies.training.residual.graphs import ResidualCommandGraph, Rows
    from temporeal.robots.artifact.manifest import POLICY
    from temporeal.robots.signals import SignalSpec

    artifact, folder = base.artifact, base.folder
    assert artifact is not None and folder is not None
    manifest, command = artifact.manifest, artifact.manifest.commands[0]
    if manifest.reflex is not None:
        raise BadInput(f"{base.config.title} has a reflex, two networks that take turns: no one graph could hold it "
                       "and a residual. Correct the policy it protects, and learn the reflex of the whole")
    steps = 1 if manifest.chunk is None else manifest.chunk.steps
    shape = command.shape if manifest.chunk is None else (steps, *command.shape)

    def rows(signals: Mapping[str, Tensor]) -> Tensor:
        return signals[COMMAND].reshape(-1, steps, command.size)

    graph = ResidualCommandGraph(
        Rows(rows, (COMMAND,), (steps, command.size), base.execute, anew=manifest.chunk is not None), base.plain,
        residual).eval()
    whole = Whole(artifact, graph)

    def traced(policy: Any, described: Manifest) -> bytes:
        specs = {each.name: each for each in described.signals} | {COMMAND: SignalSpec(COMMAND, shape)}
        own = replace(described, signals=tuple(specs[each] for each in graph.signals), chunk=None,
                      memory=tuple(each for each in described.memory if not each.name.startswith(HELD)))
        names = {command.name: COMMAND}
        names |= {f"{way}.{each.name}": f"{way}.{HELD}{each.name}" for each in manifest.memory
                  for way in ("memory", "next")}
        return merged((folder / POLICY).read_bytes(), trace(graph, own), names, described)

    more = {**{spec.name: spec for spec in manifest.signals}, **graph.picture_specs}
    spec = spec_of(base.plain, whole.signals, settings, name, more)
    limited = None if all(signal in base.plain.schema for signal in whole.signals) else PICTURED
    golden = golden_trace(whole, corrected_act(base, residual, env), env, limited)
    return export(whole, out, spec, golden, traced=traced)


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
