"""The policy of a run as what a learner of another task begins as: what it read is found in what this task shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from temporeal.policies.runs import chunks, environments, offline
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.learners import module_of
from temporeal.policies.runs.run_folders import load_run, title_of
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.tuning_runs.bases import JUDGES

if TYPE_CHECKING:
    from torch import nn

    from temporeal.policies.training.warm_starts.chunk_merging import ChunkStart
    from temporeal.policies.training.warm_starts.ppo_start import WarmStart
    from temporeal.sim.maps import ObserveMap
    from temporeal.sim.task import Task

LEARNER = "ppo"


def warm_starts(settings: Settings, task: Task, configuration: Any) -> list[WarmStart] | list[ChunkStart]:
    """The generalist ``algo.adapt`` and the specialists for ``task``."""
    runs = [str(run) for run in (configuration.adapt, *configuration.specialists) if run]
    if configuration.execute is not None:
        return [chunk_start(settings, task, run) for run in runs]
    return [warm_start(settings, task, run) for run in runs]


def chunk_start(settings: Settings, task: Task, folder: str) -> ChunkStart:
    """The policy of the run ``folder``, which gives chunks, for ``task``, and the one that it was tuned from."""
    from temporeal.policies.training.checkpoint import CheckpointError
    from temporeal.policies.training.chunk_rl.tuning import BASE, digest
    from temporeal.policies.training.policy_graphs import CONFIG, gives_chunks, learner_of
    from temporeal.policies.training.warm_starts.chunk_merging import ChunkStart

    run = Path(folder)
    before, began = load_run(run), ""
    if not chunks.gives_chunks(before):
        raise BadInput(f"algo.execute={settings['algo']['execute']} plays chunks, and algo={before['algo']['name']} of "
                       f"{run} gives single commands: merge runs of one kind; algo.execute=null for runs of "
                       f"algo={LEARNER}")
    policy = chunks.load_chunks(before, run, task)
    if (run / BASE / CONFIG).is_file():
        try:
            began = digest(learner_of(run / BASE).load_chunks(run / BASE)) if gives_chunks(run / BASE) else ""
        except CheckpointError as error:
            raise BadInput(str(error)) from error
    return ChunkStart(str(run), policy, digest(policy), began, str(before["algo"].get("policy") or ""))


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
        here = "merges" if settings["algo"].get("merge") else "goes on from"
        raise BadInput(f"{run} was trained by algo={before['algo']['name']}; algo={settings['algo']['name']} {here} "
                       f"runs of algo={LEARNER}. {of_chunks(settings, before)}")
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


def of_chunks(settings: Settings, before: Settings) -> str:
    """What is there for policies that give chunks."""
    if not chunks.gives_chunks(before):
        return "Policies that give chunks go on by algo.policy=RUN of their tuners, with algo.adapters, too"
    if settings["algo"].get("merge"):
        return "Its policy gives chunks: algo.adapt is to be the run that it was tuned from (algo.policy there)"
    merge = "algo.merge=true averages those that were tuned from algo.adapt; " if "merge" in settings["algo"] else ""
    return f"Its policy gives chunks: {merge}algo.policy=RUN of a tuner goes on from it, with algo.adapters, too"


WORLD = ("robot", "task", "backend", "randomize")
"""Settings that say what a run's episodes are."""
SEEING = ("cameras", "renderer")
"""And, of policies that give chunks, what it sees of them."""


def judges(settings: Settings, configuration: Any) -> list[TaskJudge]:
    """The held-out episodes of each task that a specialist was trained on, each task once."""
    found, groups = dict[str, TaskJudge](), WORLD if configuration.execute is None else (*WORLD, *SEEING)
    for run in configuration.specialists:
        before = load_run(Path(str(run)))
        world = {name: before[name] for name in groups if name in before}
        title = title_of(before)
        if (key := repr(world)) not in found:
            again = sum(each.title.partition(" of ")[0] == title for each in found.values())
            found[key] = TaskJudge(f"{title} of {run}" if again else title, {**settings, **world})
    return list(found.values())


class TaskJudge:
    """A :class:`temporeal.policies.training.warm_starts.merging.Judge` of the task that ``settings`` describe; its
    episodes are neither the training's nor those of ``temporeal eval``."""

    def __init__(self, title: str, settings: Settings) -> None:
        self.title, self.settings, self.task = title, settings, environments.make_task(settings)
        self.judged = dict[bool, Any]()

    def success(self, actor: nn.Module, normalizer: nn.Module, episodes: int, *, chosen_on: bool) -> float:
        """The share of ``episodes`` that satisfy the formula."""
        if chosen_on not in self.judged:
            seed = self.settings["seed"] + (JUDGES if chosen_on else 2 * JUDGES)
            self.judged[chosen_on] = judge_of(actor, {**self.settings, "seed": seed}, self.task)
        figures: dict[str, float] = self.judged[chosen_on](actor.eval(), normalizer, episodes)
        return figures["success"]


def judge_of(policy: nn.Module, settings: Settings, task: Task) -> Callable[[nn.Module, nn.Module, int], Any]:
    """How policies of the kind of ``policy`` are judged on ``task``."""
    from temporeal.policies.evaluate.full_horizon import to_full_horizon
    from temporeal.policies.training.chunks.policy import ChunkPolicy

    if not isinstance(policy, ChunkPolicy):
        return offline.evaluation(settings, to_full_horizon(task), of_observation)
    return offline.evaluation(settings, chunks.shown_to(policy.signals, task),
                              lambda actor, normalizer, env: chunks.policy_act(actor, settings, env))


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
