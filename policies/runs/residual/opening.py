"""The base that settings name: opened, checked against the task, and made to act in worlds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from temporeal.policies.runs import artifacts, chunks, environments
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.residual.opened import Opened, rows_of
from temporeal.policies.runs.residual.served import served
from temporeal.policies.runs.run_folders import BASE, load_run, title_of
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.tuning_runs.graphs import load_graph
from temporeal.policies.training.residual.settings import SERVED

if TYPE_CHECKING:
    from temporeal.policies.training.residual.base import FrozenBase
    from temporeal.policies.training.residual.settings import BaseConfig
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task


def config_of(settings: Mapping[str, Any]) -> BaseConfig:
    """The settings ``base``, checked."""
    from temporeal.policies.training.residual.settings import base_config

    with bad_input():
        return base_config(settings)


def is_corrected(settings: Mapping[str, Any]) -> bool:
    """Whether what ``settings`` train corrects a base."""
    return bool(settings.get("base")) and config_of(settings).given


def open_base(settings: Settings, task: Task, run: Path | None = None) -> Opened:
    """The base that ``settings`` name, for ``task``; of a ``run`` that was trained: the copy in its folder."""
    config = config_of(settings)
    if config.expert == SERVED:
        return served(config, task)
    if config.expert:
        return by_hand(config, task)
    folder = Path(config.policy) if run is None else run / BASE
    if not folder.exists():
        where = f"base.policy={folder}" if run is None else f"{run}: the copy of its base, {folder},"
        raise BadInput(f"{where} is not there: the folder of a run or of an artifact is needed")
    if artifacts.is_artifact(folder):
        return by_artifact(config, folder, task)
    before = load_run(folder)
    if found := differences(folder, before, settings, task):
        raise BadInput(f"base.policy={folder} does not fit {title_of(settings)}: {'; '.join(found)}")
    if chunks.gives_chunks(before):
        return by_chunks(config, folder, before, task)
    return by_network(config, folder, before, settings, task)


def differences(folder: Path, before: Settings, settings: Settings, task: Task) -> list[str]:
    """What differs between the task of a base and ``task``, in words."""
    then = environments.make_task(before)
    shown = [("task", before["task"]["name"], settings["task"]["name"]), ("robot", then.robot.name, task.robot.name),
             ("command", then.command, task.command), ("action", f"{then.act.action_dim} numbers",
                                                       f"{task.act.action_dim} numbers")]
    found = [f"{what} {was}, here {now}" for what, was, now in shown if was != now]
    if not math.isclose(then.control_dt, task.control_dt, rel_tol=1e-6):
        found.append(f"rate {1 / then.control_dt:g} Hz, here {1 / task.control_dt:g} Hz")
    if not chunks.gives_chunks(before) and then.observe.obs_dim != task.observe.obs_dim:
        found.append(f"observation of {then.observe.obs_dim} numbers, here {task.observe.obs_dim}")
    for name, spec in then.schema.items():
        now = task.schema.get(name)
        if now is not None and (spec.shape, spec.unit) != (now.shape, now.unit):
            found.append(f"signal {name} {list(spec.shape)} {spec.unit}, here {list(now.shape)} {now.unit}")
    return found


def by_network(config: BaseConfig, folder: Path, before: Settings, settings: Settings, task: Task) -> Opened:
    """A run whose policy reads the task's observation."""
    from temporeal.policies.evaluate.falsification import weights_digest
    from temporeal.policies.training.residual.bases import GraphBase

    if settings["algo"].get("hide"):
        raise BadInput(f"algo.hide={list(settings['algo']['hide'])}: base.policy={folder} reads the observation that "
                       "the residual is shown; its artifact reads the signals itself: temporeal export, then "
                       "base.policy=ARTIFACT")
    graph = load_graph({**before, "device": "cpu"}, folder, task)
    shown = task if graph.observe is task.observe else replace(task, observe=cast("Any", graph.observe))
    size, title = task.act.action_dim, config.title

    def make(env: Env) -> FrozenBase:
        if hasattr(graph, "pictures"):
            from temporeal.policies.training.acting import check_pictures

            with bad_input():
                check_pictures(graph, env)
        return GraphBase(graph, env.num_worlds, size, title)

    return Opened(config, shown, shown, make, folder, graph=graph, digest=weights_digest(graph))


def by_chunks(config: BaseConfig, folder: Path, before: Settings, task: Task) -> Opened:
    """A run whose policy gives chunks."""
    from temporeal.policies.evaluate.falsification import weights_digest
    from temporeal.policies.evaluate.measurement_recorder import with_recorder

    policy = chunks.load_chunks(before, folder, task).eval().requires_grad_(False)
    execute, size = execute_of(config, before["algo"]), policy.interface.action.size

    def make(env: Env) -> FrozenBase:
        rows = partial(rows_of, env, chunks.infer_by(policy), policy.signals)
        return chunk_base(config, rows, execute, policy.horizon, size, env)

    return Opened(config, with_recorder(task, policy.signals), task, make, folder, policy=policy, execute=execute,
                  digest=weights_digest(policy))


def chunk_base(config: BaseConfig, rows: Any, execute: int, horizon: int, size: int, env: Env) -> FrozenBase:
    """Chunks of ``rows`` in the worlds of ``env``."""
    from temporeal.policies.training.residual.bases import ChunkBase

    with bad_input():
        return ChunkBase(rows, execute, horizon, env.num_worlds, size, env.action_dim, config.title)


def execute_of(config: BaseConfig, algo: Mapping[str, Any]) -> int:
    """Control steps of a chunk that are played."""
    if config.execute is not None:
        return config.execute
    execute, ensemble = chunks.playing(algo)
    if ensemble is not None:
        raise BadInput(f"{config.title} plays averages of chunks (algo.ensemble={ensemble}), a residual corrects one "
                       "chunk after the other: base.execute=N, the control steps of each that are played")
    return execute


def by_artifact(config: BaseConfig, folder: Path, task: Task) -> Opened:
    """An artifact, run by its own runtime; it replays its golden trace first."""
    from temporeal.policies.evaluate.measurement_recorder import with_recorder
    from temporeal.robots.artifact.manifest import POLICY

    artifact = artifacts.load_artifact(folder)
    shown, size = with_recorder(task, artifact.schema), task.act.action_dim
    artifacts.check_rate(artifact.manifest.rate_hz, task)
    chunk, execute = artifact.manifest.chunk, 1
    if chunk is not None:
        execute = execute_of(config, artifact.manifest.training.get("algo") or {})

    def make(env: Env) -> FrozenBase:
        from temporeal.policies.training.residual.bases import ArtifactBase

        artifacts.check_task(artifact, env)
        if chunk is None:
            return ArtifactBase(artifact, lambda: chunks.measured(env, tuple(artifact.schema)), env.num_worlds, size,
                                config.title)
        infer = chunks.infer_by_artifact(artifact)
        command = artifact.manifest.commands[0]
        return chunk_base(config, partial(rows_of, env, infer, tuple(artifact.schema)), execute, chunk.steps,
                          command.size, env)

    digest = str(artifact.manifest.files.get(POLICY, ""))
    return Opened(config, shown, task, make, folder, artifact=artifact, execute=execute, digest=digest)


def by_hand(config: BaseConfig, task: Task) -> Opened:
    """The task's controller."""
    from temporeal.policies.data.demonstrators.scripted import scripted
    from temporeal.policies.training.residual.controllers import ControllerBase

    try:
        make = scripted(task)
    except ValueError as error:
        raise BadInput(f"base.expert={config.expert}: {error}") from error
    return Opened(config, task, task, lambda env: ControllerBase(make, env.num_worlds, env.action_dim, config.title))
