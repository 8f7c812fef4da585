"""Trained policies from disk: those of runs and of artifacts, ready to act in an environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.environments import backend_defaults, check_device
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.learners import algorithm
from temporeal.policies.runs.run_folders import load_run, title_of
from temporeal.policies.runs.settings.files import Settings

if TYPE_CHECKING:
    from temporeal.policies.evaluate.rollout import Act
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.sim.env import Env
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task import Task


def load_graph(settings: Mapping[str, Any], folder: Path, task: Task) -> PolicyGraph:
    """The policy of the run in ``folder`` between raw signals and raw commands of ``task``."""
    from temporeal.policies.training import policy_graphs
    from temporeal.policies.training.checkpoint import CheckpointError

    algorithm(settings)
    check_device(settings["device"])
    try:
        return policy_graphs.load_graph(folder, task, settings["device"])
    except CheckpointError as error:
        raise BadInput(str(error)) from error


def base_of(settings: Mapping[str, Any], task: Task) -> PolicyGraph | None:
    """The trained policy that the learner starts from, on ``task``; None where it starts from nothing.

    Such a learner has the setting ``policy``, the folder of the run.
    """
    if "policy" not in settings["algo"]:
        return None
    given, name = settings["algo"]["policy"], settings["algo"]["name"]
    if not given:
        raise BadInput(f"algo={name} starts from a trained policy: algo.policy=RUN, the folder of a run on the same "
                       "task")
    run = Path(str(given))
    trained = load_run(run)
    if trained["task"]["name"] != settings["task"]["name"] or trained["robot"] != settings["robot"]:
        raise BadInput(f"algo.policy={run} was trained on task {title_of(trained)}, this is {title_of(settings)}: say "
                       f"task=... as it was said there")
    return load_graph({**trained, "device": settings["device"]}, run, task)


def shown_to(graph: PolicyGraph, task: Task) -> Task:
    """``task`` as the policy in ``graph`` is judged and recorded in it: with its observation map, to the end."""
    from temporeal.policies.evaluate.full_horizon import lasting

    return lasting(task if graph.observe is task.observe else replace(task, observe=graph.observe))


def seen_by(folder: Path, is_artifact: bool, settings: Mapping[str, Any], task: Task) -> Task:
    """``task`` as an environment must show it to the artifact, or to the policy of the run, in ``folder``."""
    from temporeal.policies.evaluate.full_horizon import lasting
    from temporeal.policies.evaluate.measurement_recorder import witnessed

    if is_artifact:
        return lasting(witnessed(task, load_artifact(folder).schema))
    return shown_to(load_graph(settings, folder, task), task)


def load_artifact(folder: Path, trust: Path | None = None) -> Artifact:
    """The artifact in ``folder``, checked against its robot and by its own trace; with ``trust``, the file of a public
    key, only one that it signed.
    """
    from temporeal.robots.artifact.manifest import MANIFEST, ArtifactError, added_signals, load_manifest
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.robots.spec import load_robot

    if not (folder / MANIFEST).is_file():
        raise BadInput(f"{folder} is not an artifact (it has no {MANIFEST}); `temporeal export RUN` makes one")
    with bad_input():
        try:
            manifest = load_manifest(folder, trust)
            robot = load_robot(manifest.robot)
            artifact = Artifact.load(folder, robot, task_signals=added_signals(manifest, robot), trust=trust)
            artifact.self_test()
        except ArtifactError as error:
            raise BadInput(str(error) if str(folder) in str(error) else f"{folder}: {error}") from error
        return artifact


def artifact_settings(folder: Path, artifact: Artifact | None = None) -> Settings:
    """The settings that the artifact in ``folder`` was trained with. ``artifact``: it, where it is loaded already."""
    settings = dict((artifact or load_artifact(folder)).manifest.training)
    if not {"task", "backend", "randomize", "seed"} <= set(settings):
        raise BadInput(f"{folder} does not hold the settings of its training: it was not written by `temporeal export`")
    return {**settings, "backend": backend_defaults(settings["backend"])}


def artifact_policy(artifact: Artifact, env: Env) -> Act:
    """The artifact's own graph as a policy of ``env``: it reads the measured signals, not the observation.

    ``env`` is of a :func:`temporeal.policies.evaluate.measurement_recorder.witnessed` task, which keeps what was
    measured. For rollouts of one episode per world: a world that starts a second episode keeps the memory of its first.
    """
    import torch

    from temporeal.policies.evaluate.measurement_recorder import measured
    from temporeal.robots.artifact.manifest import ArtifactError, check_robot
    from temporeal.robots.spec import load_robot

    manifest, task = artifact.manifest, env.task
    if not math.isclose(manifest.rate_hz * task.control_dt, 1.0, rel_tol=1e-6):
        rate = 1 / task.control_dt
        raise BadInput(f"the artifact runs at {manifest.rate_hz:g} Hz, task {task.name!r} as set at {rate:g} Hz")
    observe: Any = task.observe
    offered = [*observe.signals, task.act.command]
    needed = [*artifact.schema, *[spec.name for spec in manifest.commands]]
    lacking = [name for name in needed if name not in offered]
    if lacking:
        raise BadInput(f"the artifact needs {', '.join(lacking)}, which task {task.name!r} does not have: "
                       "judge it on the task it was trained for")
    try:
        check_robot(manifest, load_robot(manifest.robot), task.schema)
    except ArtifactError as error:
        raise BadInput(f"{error}: judge it on the task it was trained for") from error
    act, memory = task.act, artifact.initial_memory(env.num_worlds)

    def policy(obs: Any) -> Any:
        nonlocal memory
        commands, memory = artifact.act_batch(measured(env), memory)
        command = torch.as_tensor(commands[act.command]).to(obs.device)
        env.command_override = command  # its action may be known only nearly, where the action map loses something
        if (acted := memory.get("last_action")) is not None and acted.shape[-1] == act.action_dim:
            return torch.as_tensor(acted).to(obs.device)
        return act.inverse(command, {k.removeprefix("memory."): v for k, v in env.column.items() if k.startswith(
            "memory.")})

    return policy
