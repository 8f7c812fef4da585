"""Trained policies from disk, those of runs and of artifacts, ready to act in an environment."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import chunks
from temporeal.policies.runs.artifacts import artifact_policy, artifact_settings, is_artifact, load_artifact
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.acting import corrected_policy
from temporeal.policies.runs.residual.opening import is_corrected
from temporeal.policies.runs.run_folders import load_run, read_run, title_of
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.tuning_runs import bases as tuning
from temporeal.policies.runs.tuning_runs.graphs import load_graph

if TYPE_CHECKING:
    from temporeal.policies.runs.pretrained.serving import Served
    from temporeal.policies.training.acting import Act
    from temporeal.policies.training.chunk_rl.tuning import Base
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.sim.env import Env
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task import Task


@dataclass(frozen=True)
class Trained:
    """What was trained: a run, an artifact, or a pretrained model of another library that is served (each None where it
    is not that), with the settings of its training."""

    folder: Path
    settings: Settings
    artifact: Artifact | None = None
    served: Served | None = None

    def results(self, kind: str) -> Path:
        """The folder of results such as ``eval``: in a run; beside an artifact, which is sealed, and beside a model."""
        if self.artifact is not None or self.served is not None:
            return self.folder.with_name(f"{self.folder.name}-{kind}")
        return self.folder / kind


@dataclass(frozen=True)
class TrainedPolicy:
    """A trained policy on a task.

    Args:
        task: as an environment must show it to the policy, to its full horizon.
        act: makes the policy of one batch of episodes, without memory of earlier ones.
        digest: SHA-256 of its weights.
    """

    task: Task
    act: Callable[[Env], Act]
    digest: Callable[[], str]


def require_trained(folder: Path) -> None:
    """Refuse a ``folder`` that holds neither run nor artifact, before anything slow is imported."""
    if not is_artifact(folder):
        read_run(folder)


def load_trained(folder: Path, trust: Path | None = None) -> Trained:
    """The run or artifact in ``folder``.

    ``trust``: the file of a public key; an artifact that this key did not sign is refused, and so is a run, which
    nobody signs.
    """
    if is_artifact(folder):
        artifact = load_artifact(folder, trust)
        return Trained(folder, artifact_settings(folder, artifact), artifact)
    if trust is not None:
        raise BadInput(f"{folder} is not an artifact, and only artifacts are signed: leave --trust out, or export the "
                       "run and sign it: temporeal export RUN --sign KEY.pem")
    return Trained(folder, load_run(folder))


def trained_policy(trained: Trained, settings: Mapping[str, Any], task: Task) -> TrainedPolicy:
    """The policy of ``trained`` on ``task``, which ``settings`` describe."""
    from temporeal.policies.evaluate.falsification import weights_digest
    from temporeal.policies.evaluate.full_horizon import to_full_horizon
    from temporeal.policies.evaluate.measurement_recorder import with_recorder
    from temporeal.policies.training.acting import graph_policy
    from temporeal.robots.artifact.manifest import POLICY

    if trained.served is not None:
        from temporeal.policies.runs.pretrained.serving import served_policy

        return TrainedPolicy(*served_policy(trained.served, settings, task))
    artifact = trained.artifact
    if artifact is None and is_corrected(trained.settings):
        played = settings if is_corrected(settings) else trained.settings  # who judges it may play it otherwise
        own = {**settings, "algo": trained.settings["algo"], "base": played["base"]}
        return TrainedPolicy(*corrected_policy(trained.folder, own, task))
    if chunked := chunks.trained_chunks(trained.folder, artifact, settings, task):
        return TrainedPolicy(*chunked)
    if artifact is None:
        graph = load_graph(settings, trained.folder, task)
        return TrainedPolicy(shown_to(graph, task), lambda env: graph_policy(graph, env), lambda: weights_digest(graph))
    file = trained.folder / POLICY
    return TrainedPolicy(
        to_full_horizon(with_recorder(task, artifact.schema)), lambda env: artifact_policy(artifact, env),
        lambda: hashlib.sha256(file.read_bytes()).hexdigest())


def shown_to(graph: PolicyGraph | Base, task: Task) -> Task:
    """``task`` with the observation map of ``graph``, to its full horizon; to a chunk policy: with what it reads."""
    from temporeal.policies.evaluate.full_horizon import to_full_horizon
    from temporeal.policies.training.chunk_rl.tuning import Base

    if isinstance(graph, Base):
        return tuning.shown_to(graph, task)
    return to_full_horizon(task if graph.observe is task.observe else replace(task, observe=graph.observe))


def base_of(settings: Settings, task: Task) -> PolicyGraph | Base | None:
    """The trained policy on ``task`` that the learner starts from; None where it starts from nothing.

    Such a learner has the setting ``policy``, the folder of the run.
    """
    if "policy" not in settings["algo"]:
        return None
    given, name = settings["algo"]["policy"], settings["algo"]["name"]
    if not given:
        raise BadInput(f"algo={name} starts from a trained policy: algo.policy=RUN, the folder of a run on the same "
                       "task")
    if tuning.tunes_chunks(settings):
        return tuning.base_of(settings, task)
    run = Path(str(given))
    before = load_run(run)
    if before["task"]["name"] != settings["task"]["name"] or before["robot"] != settings["robot"]:
        raise BadInput(f"algo.policy={run} was trained on task {title_of(before)}, this is {title_of(settings)}: give "
                       f"the same task=... as there")
    return load_graph({**before, "device": settings["device"]}, run, task)
