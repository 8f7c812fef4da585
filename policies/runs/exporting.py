"""Export a run, or a model of stable-baselines3, as an artifact."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from temporeal.policies.runs import chunks, environments
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.progress import load_progress
from temporeal.policies.runs.residual.exporting import export_corrected
from temporeal.policies.runs.residual.opening import is_corrected
from temporeal.policies.runs.run_folders import load_run, read_run, title_of
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.settings.handed_over import described_by
from temporeal.policies.runs.trained import shown_to
from temporeal.policies.runs.tuning_runs.graphs import load_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from temporeal.policies.export.success import ExportedClassifier
    from temporeal.robots.artifact.formulas import FormulaSpec
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.sim.task import Task


def export_run(
    run: Path, out: Path, name: str | None = None, task_file: str | Path | None = None, *, instruction: str = "",
    int8: bool = False, drift: str = "",
) -> Artifact:
    """Write the policy of ``run`` as an artifact to the folder ``out``.

    ``name`` in the manifest: else the task's. ``task_file``: the file of the user's task, if the run was trained on
    one. ``instruction``: a sentence that is baked in. ``int8``: products in 8-bit numbers. ``drift``: what its
    flights are compared with, ``trained`` or the path of an ``identified.yaml``.
    """
    from temporeal.policies.export.policy import export_policy
    from temporeal.policies.runs.settings.compose import override

    settings = override(load_run(run), [] if task_file is None else [f"task={task_file}"])
    with described_by(run):
        task = environments.make_task(settings)
        here = {**settings, "device": "cpu"}  # an artifact runs on a CPU, wherever the run was trained
        if drift and (chunks.gives_chunks(settings) or is_corrected(here)):
            raise BadInput("--drift is for policies that give one command at a time, and correct no other artifact")
        if chunks.gives_chunks(settings):
            return _export_chunks(here, run, task, out, name or title_of(settings), instruction, int8)
        if is_corrected(here):
            with writable(out), bad_input():
                made = export_corrected(here, run, task, out, name or title_of(settings))
            if made is not None:
                return made
        if instruction or int8:
            raise BadInput("instruction=... and --int8 are for policies that give chunks; this run's gives one command "
                           "at a time, in microseconds")
        graph, forecast = load_graph(here, run, task), _forecast(settings, run, task)
        env = environments.make_env(here, task=shown_to(graph, task), num_worlds=1, compiled=False)
    with writable(out), bad_input():
        return export_policy(graph, task, out, env, training=settings, seed=settings["seed"],
                             name=name or title_of(settings), drift=drift, forecast=forecast)


def _forecast(settings: Settings, run: Path, task: Task) -> tuple[nn.Module, FormulaSpec] | None:
    """Judge and data of a policy that takes any formula; None of others."""
    if settings["algo"]["name"] != "generalist":
        return None
    from temporeal.policies.export.formulas import forecast_of
    from temporeal.policies.training.checkpoint import CheckpointError

    try:
        return forecast_of(run, task)
    except CheckpointError as error:
        raise BadInput(str(error)) from error


def export_classifier(run: Path, out: Path) -> ExportedClassifier:
    """Write the classifier of success that ``run`` learned as a folder that actors take."""
    from temporeal.policies.export.success import export_success
    from temporeal.policies.progress.success_classifier import SuccessClassifier

    model, settings = load_progress(run), read_run(run)
    if not isinstance(model, SuccessClassifier):
        raise BadInput(f"{run}: algo={settings['algo']['name']} learned a model of progress, and no policy: there is "
                       f"nothing to export; temporeal data progress {run} SET judges it")
    with writable(out), bad_input():
        return export_success(model, out, settings)


def _export_chunks(
    settings: Settings, run: Path, task: Task, out: Path, name: str, instruction: str, int8: bool
) -> Artifact:
    """Write the policy of a run whose policies give chunks."""
    policy = chunks.load_chunks(settings, run, task)
    env = environments.make_env(settings, task=chunks.shown_to(policy.signals, task), num_worlds=1)
    with writable(out), bad_input():
        return chunks.export_chunks(policy, task, out, env, settings, name, instruction=instruction, int8=int8)


def export_model(
    model: Path, out: Path, overrides: Sequence[str], normalize: Path | Literal[False] | None = None,
    name: str | None = None,
) -> Artifact:
    """Write a model that stable-baselines3 saved as an artifact; ``overrides`` say what it was trained on.

    ``normalize``: the file of ``VecNormalize.save``; False: there was none; None: the model's file shows it.
    """
    from temporeal.policies.runs.settings.compose import compose

    bare = [] if any(word.startswith("randomize=") for word in overrides) else ["randomize=none"]
    settings = compose([*bare, *overrides])
    with writable(out), bad_input():
        from temporeal.policies.export.external_policies import export_sb3
        from temporeal.sim.adapters.worlds import recipe

        made = recipe(
            settings["task"]["name"], backend=settings["backend"]["name"],
            randomize=settings["randomize"].get("parameters"), sensors=settings["randomize"].get("sensors"),
            **(settings["task"].get("settings") or {}))
        return export_sb3(model, out, made, normalize=normalize, seed=settings["seed"], name=name)


@contextmanager
def writable(out: Path) -> Iterator[None]:
    """Inside, a file that cannot be written is the user's to correct."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}; what was there before is untouched") from error
