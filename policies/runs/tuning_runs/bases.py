"""Runs that tune the chunk policy of another run in simulation: their settings, what they begin with, their judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from temporeal.policies.runs import chunks, environments, offline
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.learners import learns_from_data, module_of
from temporeal.policies.runs.progress import load_progress
from temporeal.policies.runs.run_folders import load_run, read_run, title_of
from temporeal.policies.runs.settings.compose import compose, override
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.settings.handed_over import checked
from temporeal.policies.training.residual.settings import PRESETS

if TYPE_CHECKING:
    from torch import Tensor

    from temporeal.policies.training.chunk_rl.tuning import Base
    from temporeal.policies.training.chunk_rl.worlds import ChunkEnv
    from temporeal.policies.training.chunks.policy import ChunkPolicy
    from temporeal.policies.training.progress_models.protocol import ProgressModel
    from temporeal.robots.signals import SignalSpec
    from temporeal.sim.task import Task

WORLDS = 256  # of a tuning, unless said: a decision is of many numbers, and gradients of few worlds are noise
APART = 125_000  # between the seed of a tuning and that of its episodes: those of the same seed were demonstrated
BESIDE = 250_000  # between the seeds of both halves of the worlds, where they overlap
JUDGES = 500_000  # between the seed of a training and that of the episodes that choose its best policy


def tunes_chunks(settings: Mapping[str, Any]) -> bool:
    """Whether the algorithm that ``settings`` name makes, in simulation, a chunk policy of another run's."""
    return chunks.gives_chunks(settings) and not learns_from_data(module_of(settings["algo"]["name"]))


NAMED = ("algo.policy=", "algo.adapt=")
"""Words that name the run whose chunk policy is tuned, or merged with others."""
CORRECTING = tuple(f"algo={name}" for name in PRESETS)
"""Words for learners whose run is named otherwise."""


def settings_of(words: Sequence[str]) -> Settings:
    """The settings of a command's ``words``; where they tune a run, or merge runs that give chunks, and name no task,
    the run says which task it is about, with its cameras."""
    if correcting := [word for word in words if word in CORRECTING]:
        for word in (each for each in words if each.startswith("algo.policy=")):
            raise BadInput(f"{word}: {correcting[-1]} corrects what base.policy=RUN names: "
                           f"base.policy={offline.named(word)}")
    named = [offline.named(word) for word in words if word.startswith(NAMED)]
    groups = (*offline.WORLD, "cameras", "renderer")
    of_world = [word for word in words if part_of(word) in groups]
    rest = [word for word in words if word not in of_world]
    if not named or not named[-1]:
        return offline.settings_of(words)
    played, merges = merging_chunks(compose(rest), named[-1])
    if not tunes_chunks(played):
        return offline.settings_of(words)
    before = load_run(Path(named[-1]))
    with bad_input():
        held = checked({group: before[group] for group in groups if group in before}, named[-1])
    if any(word.startswith("task=") for word in words) and compose(words)["task"]["name"] != held["task"]["name"]:
        return compose(words)  # refused where the run is read: a policy is tuned on the task that it was made for
    worlds = {} if merges or any(part_of(word) == "num_worlds" for word in words) else {"num_worlds": WORLDS}
    return override({**played, **held, **worlds}, [word for word in of_world if not word.startswith("task=")])


def merging_chunks(settings: Settings, run: str) -> tuple[Settings, bool]:
    """``settings``, and whether they merge what was tuned from the chunk policy of ``run``; then with
    ``algo.execute`` and ``algo.ensemble``, where nothing is said, as that run plays its chunks."""
    algo = settings["algo"]
    if not algo.get("merge"):
        return settings, False
    if algo.get("execute") is None and chunks.gives_chunks(before := read_run(Path(run))):
        execute, ensemble = chunks.playing(before["algo"])
        algo = {**algo, "execute": execute, "ensemble": ensemble if algo.get("ensemble") is None else algo["ensemble"]}
    return {**settings, "algo": algo}, algo.get("execute") is not None


def part_of(word: str) -> str:
    """The part of the settings that a ``word`` of a command is about."""
    return word.partition("=")[0].partition(".")[0]


def base_of(settings: Settings, task: Task) -> Base:
    """What the learner that ``settings`` name begins with."""
    from temporeal.policies.nets.encoders import is_picture
    from temporeal.policies.training.chunk_rl.tuning import Base

    run = Path(str(settings["algo"]["policy"]))
    before = load_run(run)
    if not chunks.gives_chunks(before):
        raise BadInput(f"algo.policy={run}: algo={before['algo']['name']} gives single commands; algo="
                       f"{settings['algo']['name']} tunes policies that give chunks: algo=flow, algo=vla; "
                       "algo=residual any of them")
    if before["task"]["name"] != settings["task"]["name"]:
        raise BadInput(f"algo.policy={run} was trained on task {title_of(before)}, this is {title_of(settings)}")
    policy = chunks.load_chunks(before, run, task)
    pictures = tuple(name for name, spec in policy.interface.signals.items() if is_picture(spec))
    return Base(policy, run, measuring(policy.signals, pictures), pictures, judge(settings, task, policy),
                progress=progress_of(settings, task),
                beside=lambda: beside(settings, policy))


def progress_of(settings: Settings, task: Task) -> ProgressModel | None:
    """The model of ``algo.reward=progress``; None: another reward. :class:`BadInput` names what it reads that ``task``
    and the cameras of ``settings`` do not show, or show otherwise."""
    from temporeal.policies.data.episodes.interface import differences

    run = str(settings["algo"].get("progress_model") or "")
    if not run:
        return None
    model = load_progress(Path(run))
    if (learned := model.interface) is not None:
        seen = {**task.schema, **pictures_of(settings)}
        rate = learned.rate_hz if isclose(learned.rate_hz * task.control_dt, 1.0) else 1.0 / task.control_dt
        here = replace(learned, robot=task.robot.name, rate_hz=rate,
                       signals={name: seen[name] for name in learned.signals if name in seen})
        if said := differences(learned, here):
            raise BadInput(f"algo.progress_model={run} does not fit {title_of(settings)}: {'; '.join(said)}")
    return model


def pictures_of(settings: Mapping[str, Any]) -> dict[str, SignalSpec]:
    """The pictures that the cameras of ``settings`` give, as a dataset has them."""
    from temporeal.robots.signals import SignalSpec
    from temporeal.sim.rendering.cameras import parse_cameras

    found = dict[str, SignalSpec]()
    for camera in parse_cameras(settings.get("cameras")):
        size = (camera.height, camera.width)
        if "rgb" in camera.kinds:
            found[f"{camera.name}_rgb"] = SignalSpec(f"{camera.name}_rgb", (*size, 3), "1", dtype="uint8")
        if "depth" in camera.kinds:
            found[f"{camera.name}_depth"] = SignalSpec(f"{camera.name}_depth", size, "m")
    return found


def beside(settings: Settings, policy: ChunkPolicy) -> ChunkEnv:
    """As many worlds again."""
    task = shown(policy, environments.make_task(settings))
    env = environments.make_env(settings, task=task, seed=settings["seed"] + BESIDE, training=True)
    return cast("ChunkEnv", env)


def shown_to(base: Base, task: Task) -> Task:
    """``task`` whose worlds record what the policy of ``base`` reads."""
    return shown(base.policy, task)


def shown(policy: ChunkPolicy, task: Task) -> Task:
    """``task`` whose worlds record what ``policy`` reads."""
    from temporeal.policies.evaluate.measurement_recorder import with_recorder

    return with_recorder(task, policy.signals)


def measuring(
    names: Sequence[str], pictures: Sequence[str]
) -> Callable[[ChunkEnv], Callable[[], Mapping[str, Tensor]]]:
    """What reads the signals ``names`` but ``pictures`` of an environment, as they are measured now."""
    from temporeal.policies.evaluate.measurement_recorder import PREFIX

    columns = {name: f"memory.{PREFIX}{name}" for name in names if name not in pictures}

    def of(env: ChunkEnv) -> Callable[[], Mapping[str, Tensor]]:
        if missing := [name for name, column in columns.items() if column not in env.column]:
            raise BadInput(f"the policy reads {', '.join(missing)}, which task {env.task.name!r} as set does not show")
        seen = set(env.render(env.worlds[:1])) if pictures else set()
        if unseen := [name for name in pictures if name not in seen]:
            given = ", ".join(sorted(seen)) or "none"
            raise BadInput(f"the policy sees {', '.join(unseen)}; cameras here give: {given}")
        return lambda: {name: env.column[column] for name, column in columns.items()}

    return of


def judge(settings: Settings, task: Task, policy: ChunkPolicy) -> Callable[[ChunkPolicy, int], Mapping[str, float]]:
    """The deterministic policy on fresh episodes, by the task's formula."""
    shown, apart = chunks.shown_to(policy.signals, task), {**settings, "seed": settings["seed"] + JUDGES}
    found = offline.evaluation(apart, shown, lambda actor, normalizer, env: chunks.policy_act(actor, settings, env))
    return lambda now, episodes: found(now, now, episodes)
