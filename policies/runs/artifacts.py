"""Artifacts from disk: loaded, checked, and as policies of an environment."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.environments import backend_defaults
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.settings.handed_over import checked
from temporeal.policies.runs.settings.renamed import with_current_names
from temporeal.robots.registry import guess_file

if TYPE_CHECKING:
    from temporeal.policies.training.acting import Act
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.robots.signals import SignalSpec
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task


def is_artifact(folder: Path) -> bool:
    """Whether ``folder`` holds an artifact rather than a run."""
    from temporeal.robots.artifact.manifest import MANIFEST, POLICY

    return any((folder / name).is_file() for name in (MANIFEST, POLICY))


def load_artifact(folder: Path, trust: Path | None = None) -> Artifact:
    """The artifact in ``folder``, checked against its robot and self-tested, first in a process with bounds.

    ``trust``: the file of a public key; an artifact that this key did not sign is refused, and its own need no bounds.
    """
    from temporeal.robots.artifact.manifest import MANIFEST, ArtifactError, added_signals

    if not (folder / MANIFEST).is_file():
        near = "" if folder.exists() else guess_file(folder)
        raise BadInput(f"{folder} is not an artifact (it has no {MANIFEST}); {near}`temporeal export RUN` makes one")
    from temporeal.robots.artifact.loading import load_manifest
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.robots.artifact.trial import tried
    from temporeal.robots.handed_over.robots import named_robot

    with bad_input():
        try:
            manifest = load_manifest(folder, trust)
            robot = named_robot(manifest.robot)
            if trust is None:
                tried(folder, manifest)
            artifact = Artifact.load(folder, robot, task_signals=added_signals(manifest, robot), trust=trust)
            artifact.self_test()
        except ArtifactError as error:
            raise BadInput(str(error) if str(folder) in str(error) else f"{folder}: {error}") from error
        return artifact


def artifact_settings(folder: Path, artifact: Artifact) -> Settings:
    """The settings that the ``artifact`` in ``folder`` was trained with."""
    settings = checked(with_current_names(artifact.manifest.training), str(folder))
    if not {"task", "backend", "randomize", "seed"} <= set(settings):
        raise BadInput(f"{folder} does not hold the settings of its training: it was not written by `temporeal export`")
    return {**settings, "backend": backend_defaults(settings["backend"])}


def artifact_policy(artifact: Artifact, env: Env) -> Act:
    """The artifact's own graph as a policy of ``env``: it reads the measured signals, not the observation.

    ``env`` is of a task :func:`temporeal.policies.evaluate.measurement_recorder.with_recorder`. For rollouts of one
    episode per world: a world that starts a second episode keeps the memory of its first.
    """
    import torch

    from temporeal.policies.evaluate.measurement_recorder import measured

    check_task(artifact, env)
    pictures = [name for name in picture_specs(env) if name in artifact.schema]
    act, memory = env.task.act, artifact.initial_memory(env.num_worlds)

    def policy(obs: Any) -> Any:
        nonlocal memory
        seen = {name: env.images[name].cpu().numpy() for name in pictures}
        commands, memory = artifact.act_batch({**measured(env), **seen}, memory)
        command = torch.as_tensor(commands[act.command]).to(obs.device)
        env.command_override = command  # the action is known only approximately where the action map loses something
        if (acted := memory.get("last_action")) is not None and acted.shape[-1] == act.action_dim:
            return torch.as_tensor(acted).to(obs.device)
        return act.inverse(command, {k.removeprefix("memory."): v for k, v in env.column.items() if k.startswith(
            "memory.")})

    return policy


def check_task(artifact: Artifact, env: Env) -> None:
    """Refuse an artifact that does not fit the task of ``env``: its rate, signals, commands and robot."""
    from temporeal.robots.artifact.manifest import ArtifactError, check_robot
    from temporeal.robots.handed_over.robots import named_robot

    manifest, task = artifact.manifest, env.task
    check_rate(manifest.rate_hz, task)
    observe: Any = task.observe
    pictures = picture_specs(env)
    offered = [*observe.signals, *pictures, task.act.command]
    needed = [*artifact.schema, *[spec.name for spec in manifest.commands]]
    if lacking := [name for name in needed if name not in offered]:
        raise BadInput(f"the artifact needs {', '.join(lacking)}, which task {task.name!r} does not have: "
                       "judge it on the task it was trained for")
    try:
        check_robot(manifest, named_robot(manifest.robot), {**task.schema, **pictures})
    except ArtifactError as error:
        raise BadInput(f"{error}: judge it on the task it was trained for") from error


def check_rate(rate_hz: float, task: Task) -> None:
    """Refuse a policy that gives commands at another rate than ``task`` takes them."""
    if not math.isclose(rate_hz * task.control_dt, 1.0, rel_tol=1e-6):
        raise BadInput(f"the policy runs at {rate_hz:g} Hz, task {task.name!r} as set at {1 / task.control_dt:g} Hz")


def picture_specs(env: Env) -> dict[str, SignalSpec]:
    """The signals of the cameras of ``env``."""
    from temporeal.robots.signals import SignalSpec

    shapes = env.pictures.rig.signals if env.pictures is not None else {}
    return {name: SignalSpec(name, shape, dtype="uint8") if name.endswith("_rgb") else SignalSpec(name, shape, "m")
            for name, shape in shapes.items()}
