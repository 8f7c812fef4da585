"""The policy of a run as what a learner of another task begins as: what it read is found in what this task shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from temporeal.policies.runs import environments, offline
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.learners import module_of
from temporeal.policies.runs.run_folders import load_run, title_of
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.tuning_runs.bases import JUDGES

if TYPE_CHECKING:
    from torch import nn

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
    from torch.nn import ModuleList

    from temporeal.policies.evaluate.falsification import weights_digest
    from temporeal.policies.training import ppo_checkpoint
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
        began = str(ppo_checkpoint.read_last(run)["began"])
    return WarmStart(str(run), actor, normalizer, config, columns, weights_digest(ModuleList((normalizer, actor))),
                     began)


WORLD = ("robot", "task", "backend", "randomize")
"""Settings that say what a run's episodes are."""


def judges(settings: Settings, configuration: Any) -> list[TaskJudge]:
    """The held-out episodes of each task that a specialist was trained on, each task once."""
    found = dict[str, TaskJudge]()
    for run in configuration.specialists:
        before = load_run(Path(str(run)))
        world = {name: before[name] for name in WORLD}
        title = title_of(before)
        if (key := repr(world)) not in found:
            again = sum(each.title.partition(" of ")[0] == title for each in found.values())
            found[key] = TaskJudge(f"{title} of {run}" if again else title, {**settings, **world})
    return list(found.values())


class TaskJudge:
    """A :class:`temporeal.policies.training.warm_starts.merging.Judge` of the task that ``settings`` describe; its
    episodes are neither the training's nor those of ``temporeal eval``."""

    def __init__(self, title: str, settings: Settings) -> None:
        from temporeal.policies.evaluate.full_horizon import to_full_horizon

        task = to_full_horizon(environments.make_task(settings))
        seeds = {True: settings["seed"] + JUDGES, False: settings["seed"] + 2 * JUDGES}
        self.title = title
        self.judged = {chosen_on: offline.evaluation({**settings, "seed": seed}, task, of_observation)
                       for chosen_on, seed in seeds.items()}

    def success(self, actor: nn.Module, normalizer: nn.Module, episodes: int, *, chosen_on: bool) -> float:
        """The share of ``episodes`` that satisfy the formula."""
        return self.judged[chosen_on](actor.eval(), normalizer, episodes)["success"]


def of_observation(actor: Any, normalizer: Any, env: Any) -> Any:
    """A policy that reads the observation alone."""
    return lambda obs: actor(normalizer(obs))


def require_commands(run: Path, known: Task, task: Task) -> None:
    """Refuse a policy whose actions would be other commands here."""
    told = [f"{what} {before} there, {here} here" for what, before, here in (
        ("command", known.command, task.command), ("numbers of an action", known.act.action_dim, task.act.action_dim),
        ("kind of action", type(known.act).__name__, type(task.act).__name__)) if before != here]
    if told:
        raise BadInput(f"algo.adapt={run}: its actions are other commands: {'; '.join(told)}")
