"""The base that settings name: opened, checked against the task, and made to act in worlds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from temporeal.policies.runs import artifacts, chunks
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.residual.fitting import check_fit, check_worlds, follows_its_formula, refuse
from temporeal.policies.runs.residual.opened import Opened, rows_of
from temporeal.policies.runs.residual.served import served
from temporeal.policies.runs.residual.transferring import unread
from temporeal.policies.runs.run_folders import BASE, CONFIG, known_runs, load_run
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.tuning_runs.graphs import load_graph
from temporeal.policies.training.residual.settings import SERVED
from temporeal.robots.registry import guess_file

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


def open_base(settings: Settings, task: Task, run: Path | None = None, at: Path | None = None) -> Opened:
    """The base that ``settings`` name, for ``task``; of a ``run`` that was trained: the copy in its folder. ``at``:
    another folder that it is in (:func:`temporeal.policies.runs.residual.scheduled.exported`)."""
    config = config_of(settings)
    if config.expert == SERVED:
        return served(config, task)
    if config.expert:
        return by_hand(config, task)
    folder = at or (Path(config.policy) if run is None else run / BASE)
    require_there(folder, run)
    if artifacts.is_artifact(folder):
        return by_artifact(config, folder, settings, task, trained=run is not None)
    before = load_run(folder)
    check_fit(folder, before, settings, task, trained=run is not None, transfer=config.transfer)
    if chunks.gives_chunks(before):
        return by_chunks(config, folder, before, settings, task)
    return by_network(config, folder, before, settings, task)


def require_there(folder: Path, run: Path | None) -> None:
    """Refuse a ``folder`` that is missing, or holds neither run nor artifact. ``run``: whose copy it is."""
    if folder.exists() and (artifacts.is_artifact(folder) or (folder / CONFIG).is_file()):
        return
    if run is not None:
        raise BadInput(f"{run}: the copy of its base, {folder}, is not there, or is no run and no artifact: train anew")
    known = known_runs()
    hint = f"; runs here: {', '.join(known)}" if known else "; `temporeal train` makes one"
    what, near = f"is no run (it has no {CONFIG}) and no artifact", ""
    if not folder.exists():
        what, near = "is not there", guess_file(folder)
    raise BadInput(f"base.policy={folder} {what}: {near}the folder of a run or of an artifact is needed{hint}")


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


def by_chunks(config: BaseConfig, folder: Path, before: Settings, settings: Settings, task: Task) -> Opened:
    """A run whose policy gives chunks."""
    from temporeal.policies.evaluate.falsification import weights_digest
    from temporeal.policies.evaluate.measurement_recorder import with_recorder

    policy = chunks.load_chunks(before, folder, task, any_robot=config.transfer).eval().requires_grad_(False)
    if config.transfer:
        refuse(folder, settings, unread(policy, task, settings))
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


def by_artifact(config: BaseConfig, folder: Path, settings: Settings, task: Task, *, trained: bool) -> Opened:
    """An artifact, run by its own runtime; it replays its golden trace first. ``trained``: see :func:`check_fit`."""
    from temporeal.policies.evaluate.measurement_recorder import with_recorder
    from temporeal.robots.artifact.manifest import POLICY

    artifact = artifacts.load_artifact(folder)
    told = artifact.manifest.training
    if not trained and "task" in told and (follows_its_formula(told) or not config.transfer):
        check_worlds(folder, artifacts.artifact_settings(folder, artifact), settings)
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
