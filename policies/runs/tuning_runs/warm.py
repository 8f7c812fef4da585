"""The policy of a run as what a learner of another task begins as: what it read is found in what this task shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from temporeal.policies.runs import environments
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.learners import module_of
from temporeal.policies.runs.run_folders import load_run
from temporeal.policies.runs.settings.files import Settings

if TYPE_CHECKING:
    from temporeal.policies.training.warm_starts.ppo_start import WarmStart
    from temporeal.sim.maps import ObserveMap
    from temporeal.sim.task import Task

LEARNER = "ppo"


def warm_starts(settings: Settings, task: Task, configuration: Any) -> list[WarmStart]:
    """The generalist ``algo.adapt`` and the specialists for ``task``."""
    runs = [run for run in (configuration.adapt, *configuration.specialists) if run]
    return [warm_start(settings, task, str(run)) for run in runs]


def warm_start(settings: Settings, task: Task, folder: str) -> WarmStart:
    """The policy of the run ``folder`` for ``task``."""
    from temporeal.policies.training.checkpoint import CheckpointError
    from temporeal.policies.training.warm_starts.by_name import correspondence
    from temporeal.policies.training.warm_starts.ppo_start import WarmStart

    run = Path(folder)
    before = load_run(run)
    if before["algo"]["name"] != LEARNER:
        raise BadInput(f"algo.adapt={run} was trained by algo={before['algo']['name']}; "
                       f"algo={settings['algo']['name']} goes on from runs of algo={LEARNER}. Policies that give "
                       "chunks go on by algo.policy=RUN of their tuners, with algo.adapters, too")
    known = environments.make_task(before)
    require_commands(run, known, task)
    with bad_input():
        maps = cast("ObserveMap", known.observe), cast("ObserveMap", task.observe)
        columns = correspondence(*maps, (known.schema, task.schema), str(run))
        try:
            actor, normalizer, config = module_of(LEARNER).load_policy(run)
        except CheckpointError as error:
            raise BadInput(str(error)) from error
    return WarmStart(str(run), actor, normalizer, config, columns)


def require_commands(run: Path, known: Task, task: Task) -> None:
    """Refuse a policy whose actions would be other commands here."""
    told = [f"{what} {before} there, {here} here" for what, before, here in (
        ("command", known.command, task.command), ("numbers of an action", known.act.action_dim, task.act.action_dim),
        ("kind of action", type(known.act).__name__, type(task.act).__name__)) if before != here]
    if told:
        raise BadInput(f"algo.adapt={run}: its actions are other commands: {'; '.join(told)}")
