"""Demonstrations of a stated quality as a dataset: which expert, how well, how many, from one seed.

    done = generate(request_of(["task=lift", "quality=medium", "episodes=500", "seed=1", "out=SET"]))
    done.success            # share of episodes that satisfy the formula, with its interval
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import environments, run_folders
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.runs.settings.files import Settings

if TYPE_CHECKING:
    import numpy as np

    from temporeal.policies.data.demonstrators.collecting import Batch
    from temporeal.policies.data.demonstrators.qualities import Expert, Recipe
    from temporeal.policies.data.episodes.episode import Episode
    from temporeal.policies.data.episodes.interface import Interface
    from temporeal.policies.evaluate.statistics import Proportion
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task

OWN = ("quality", "episodes", "expert", "severity", "noise", "lasts", "tail", "goals", "pictures")
"""Words that are not settings of the task."""
SCRIPTED = "scripted"
STORED = ("robot", "task", "backend", "randomize", "cameras", "renderer", "seed")
"""Settings that a set tells of itself."""
WORLDS, FEW_WORLDS = 128, 16  # at once; few where each has a renderer or a simulator of its own
PILOT, HALVINGS = 64, 5  # episodes of a trial for the severity of medium, and how often its range is halved
HALF = 0.5  # the share of episodes that medium satisfies
PILOT_SEED = 0x9107  # added to the seed: trials are of other episodes


@dataclass(frozen=True)
class Request:
    """What is to be generated.

    Args:
        settings: of the task, as ``temporeal train`` takes them.
        expert: ``scripted``, or folders of runs or artifacts, the best one first; the others fly in medium, too.
        severity: of medium; None: found, so that it succeeds about every second time.
        noise: of noisy, one of several for each episode; None: its usual one. lasts: s, its correlation time.
        tail: control steps that an episode goes on after its first success; None: to its end. Of tasks with a signal
            ``success``.
        goals: of play, one after another in an episode.
        pictures: how they are kept (:class:`temporeal.policies.data.episodes.writer.DatasetWriter`).
    """

    settings: Settings
    out: Path
    quality: str = "expert"
    episodes: int = 100
    expert: tuple[str, ...] = (SCRIPTED,)
    severity: float | None = None
    goals: int = 4
    pictures: str = "h264"
    noise: tuple[float, ...] | None = None
    lasts: float | None = None
    tail: int | None = None


@dataclass(frozen=True)
class Generated:
    """What was generated. ``success``: None where nothing was judged. ``mean_return``: over episodes."""

    folder: Path
    episodes: int
    steps: int
    seconds: float
    success: Proportion | None
    mean_return: float | None
    severity: float | None


def request_of(words: Sequence[str]) -> Request:
    """The request that a command's ``words`` make."""
    from temporeal.policies.data.demonstrators.qualities import QUALITIES

    own = {key: value for key, _, value in (word.partition("=") for word in words) if key in OWN}
    others = [word for word in words if word.partition("=")[0] not in OWN]
    if not any(word.startswith("num_worlds=") for word in others):
        few = any(word.startswith(("cameras", "task=ogbench")) for word in others)
        others.append(f"num_worlds={min(number(own, 'episodes', 100), FEW_WORLDS if few else WORLDS)}")
    settings = compose(others)
    if settings["out"] is None:
        raise BadInput("out=FOLDER is needed: where the dataset is written")
    quality = own.get("quality", "expert")
    if quality not in QUALITIES:
        raise BadInput(f"quality={quality}: legal are {', '.join(QUALITIES)}")
    severity = None if own.get("severity") in (None, "auto") else fraction(own, "severity")
    expert = experts_in(own.get("expert", SCRIPTED), quality)
    return Request(settings, Path(str(settings["out"])), quality, number(own, "episodes", 100), expert, severity,
                   number(own, "goals", 4), own.get("pictures", "h264"), noise_of(own, quality),
                   lasts_of(own, quality), tail_of(own, quality))


def experts_in(text: str, quality: str) -> tuple[str, ...]:
    """What ``expert=`` names: ``scripted``, or folders with commas between them."""
    from temporeal.policies.data.demonstrators.qualities import PARTS

    found = tuple(part.strip() for part in text.split(","))
    if not all(found) or (len(found) > 1 and SCRIPTED in found):
        raise BadInput(f"expert={text}: {SCRIPTED}, or folders of runs or artifacts, as in RUN,RUN: the best one first")
    if len(found) > 1 and "medium" not in PARTS.get(quality, (quality,)):
        raise BadInput(f"expert={text}: several experts are for quality=medium and mixed; quality={quality} is by one")
    return found


def noise_of(own: Mapping[str, str], quality: str) -> tuple[float, ...] | None:
    """The noise that is executed, of quality noisy."""
    if "noise" not in own:
        return None
    if quality != "noisy":
        raise BadInput(f"noise={own['noise']}: of quality=noisy, this is {quality}; medium has severity=")
    return tuple(fraction({"noise": part}, "noise") for part in own["noise"].split(","))


def lasts_of(own: Mapping[str, str], quality: str) -> float | None:
    """The correlation time of that noise, s."""
    if "lasts" not in own:
        return None
    if quality != "noisy":
        raise BadInput(f"lasts={own['lasts']}: of the noise of quality=noisy, this is {quality}")
    return fraction(own, "lasts")


def tail_of(own: Mapping[str, str], quality: str) -> int | None:
    """Steps that an episode goes on after its first success."""
    if "tail" in own and quality == "play":
        raise BadInput("tail: an episode of quality=play has no end at a success")
    return number(own, "tail", 1) if "tail" in own else None


def number(own: Mapping[str, str], key: str, default: int) -> int:
    """The whole number ``key``, at least 1."""
    text = own.get(key, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise BadInput(f"{key}={text}: a whole number from 1")
    return int(text)


def fraction(own: Mapping[str, str], key: str) -> float:
    """The number ``key`` from 0 to 1."""
    try:
        value = float(own[key])
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise BadInput(f"{key}={own[key]}: a number from 0 to 1{', or auto' if key == 'severity' else ''}")
    return value


def generate(request: Request, progress: Callable[[int, int], None] | None = None) -> Generated:
    """Write the dataset. ``progress(done, of)`` counts episodes."""
    from temporeal.policies.data.demonstrators.qualities import PARTS

    run_folders.check_writable(request.out, "out=FOLDER")
    if request.out.is_dir() and any(request.out.iterdir()):
        raise BadInput(f"out={request.out} is not empty: name another folder")
    started = time.perf_counter()
    with bad_input():
        worlds = Worlds(request)
        severity = request.severity
        if severity is None and "medium" in PARTS.get(request.quality, (request.quality,)):
            severity = severity_of(worlds)
        worlds.severity = severity
        return written(worlds, progress, started)


class Worlds:
    """The environment of a request, its expert, and episodes of any quality. ``severity``: of medium."""

    def __init__(self, request: Request) -> None:
        from temporeal.policies.data.demonstrators import collecting
        from temporeal.policies.evaluate.measurement_recorder import with_recorder
        from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION

        self.request, self.severity = request, request.severity
        self.task, self.makers = experts_of(request)
        self.goal_s = self.task.episode_s
        self.plays_on = request.quality == "play" and self.task.name == "ogbench"  # its oracle draws the goals
        self.steps = self.task.steps * (request.goals if request.quality == "play" else 1)
        self.names = collecting.read_by_formula(self.task)
        if request.tail is not None and "success" not in self.names:
            raise BadInput(f"tail={request.tail}: the formula of task {self.task.name} reads no signal success: "
                           f"{self.task.formula_text}")
        spoken = (INSTRUCTION.name,) if INSTRUCTION.name in self.task.schema else ()
        env_task = collecting.prolonged(with_recorder(self.task, (*self.names, *spoken)), self.steps)
        self.env = environments.make_env(request.settings, task=env_task)
        self.seed = int(request.settings["seed"])

    def recipe(self, severity: float) -> Recipe:
        """How demonstrators are made."""
        from temporeal.policies.data.demonstrators.qualities import LASTS, NOISY, Recipe

        paced = self.request.expert == (SCRIPTED,)
        expert, *lesser = (lambda worlds, make=make: self.pictured(make) for make in self.makers)
        noise = (NOISY,) if self.request.noise is None else self.request.noise
        lasts = LASTS if self.request.lasts is None else self.request.lasts
        return Recipe(self.task, expert, paced, tuple(lesser), severity, self.goal_s, noise, lasts)

    def pictured(self, make: MakeExpert) -> Expert:
        """An expert. Policies that look only where they infer, or not at all, turn pictures off: the set is to have
        those of each sample."""
        made = make(self.env)
        self.env.rendering = self.env.pictures is not None
        return made

    def batches(self, quality: str, count: int, seed: int, severity: float) -> Iterator[Batch]:
        """Batches of ``quality`` with ``count`` episodes in all, or some more."""
        import torch

        from temporeal.policies.data.demonstrators.collecting import collect
        from temporeal.policies.evaluate.measurement_recorder import measured

        self.env.reseed(seed)
        for k in range(ceil(count / self.env.num_worlds)):
            generator = torch.Generator().manual_seed(1_000_003 * seed + k)
            made = "expert" if self.plays_on else quality
            demonstrator = self.recipe(severity).make(made, self.env.num_worlds, generator)
            yield collect(self.env, demonstrator, measured, self.names, self.steps, self.request.tail)


MakeExpert = Callable[["Env"], "Expert"]
"""Makes the expert of a batch of episodes."""


def experts_of(request: Request) -> tuple[Task, list[MakeExpert]]:
    """The task, as an environment must show it, and what makes each of the experts."""
    from temporeal.policies.data.demonstrators.scripted import scripted

    if request.expert == (SCRIPTED,):
        task = environments.make_task(shown_oracle(request))
        make = scripted(task)

        def by_hand(env: Env) -> Expert:
            controller = make(env.num_worlds)
            return lambda obs, signals, pace: controller(signals, pace)

        return task, [by_hand]
    (task, first), *others = (learned(request, folder) for folder in request.expert)
    for folder, (other, _) in zip(request.expert[1:], others):
        if shown_by(other) != shown_by(task):
            raise BadInput(f"expert={folder} sees the task otherwise than {request.expert[0]}: {shown_by(other)}, not "
                           f"{shown_by(task)}")
    return task, [first, *(make for _, make in others)]


def learned(request: Request, folder: str) -> tuple[Task, MakeExpert]:
    """The task as the policy in ``folder`` sees it, and what makes the policy."""
    from temporeal.policies.runs.trained import load_trained, trained_policy

    trained = load_trained(Path(folder))
    if trained.settings["task"]["name"] != request.settings["task"]["name"]:
        raise BadInput(f"expert={folder} was trained on task {trained.settings['task']['name']}, this is "
                       f"{request.settings['task']['name']}")
    own = {} if trained.artifact is not None else {"algo": trained.settings["algo"]}  # how a run plays its chunks
    settings = {**request.settings, **own}
    policy = trained_policy(trained, settings, environments.make_task(settings))

    def make(env: Env) -> Expert:
        act = policy.act(env)
        return lambda obs, signals, pace: act(obs.actor)

    return policy.task, make


def shown_by(task: Task) -> str:
    """The observation map in words."""
    return f"{type(task.observe).__name__} of {task.observe.obs_dim} numbers"


def shown_oracle(request: Request) -> Settings:
    """The settings with which a task whose expert is an oracle of its simulator shows what that does."""
    task = request.settings["task"]
    if task["name"] != "ogbench" or request.quality != "play":
        return request.settings
    return {**request.settings, "task": {**task, "settings": {**task["settings"], "oracle": "play"}}}


def severity_of(worlds: Worlds) -> float:
    """The severity at which medium satisfies about half the episodes: bisected on trials with another seed. Success is
    assumed to fall with it; the trial nearest to a half is taken."""
    low, high, tried = 0.0, 1.0, list[tuple[float, float]]()
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        wins = [flag for batch in worlds.batches("medium", PILOT, worlds.seed + PILOT_SEED, middle)
                for flag in batch.success.tolist()]
        share = sum(wins) / len(wins)
        tried.append((abs(share - HALF), middle))
        low, high = (middle, high) if share > HALF else (low, middle)
    return min(tried)[1]


def written(worlds: Worlds, progress: Callable[[int, int], None] | None, started: float) -> Generated:
    """Generate and write the episodes, and in the set's metadata what was reached."""
    import numpy as np

    from temporeal.policies.data.episodes import interface_file, layout
    from temporeal.policies.data.episodes.writer import DatasetWriter
    from temporeal.policies.evaluate.statistics import proportion
    from temporeal.robots.atomic_files import write_whole

    request, interface, told = worlds.request, None, list[tuple[bool | None, float, int]]()
    writer: DatasetWriter | None = None
    stream = episodes(worlds)
    try:
        for chunk in stream:
            if writer is None:
                interface = interface_of(worlds, chunk[0])
                writer = DatasetWriter(request.out, interface, pictures=request.pictures)
            told += [(one.success, float(one.info["return"]), one.steps) for one in chunk]
            writer.add_many(chunk)
            if progress is not None:
                progress(len(told), request.episodes)
    finally:
        if writer is not None:
            writer.close()
    assert interface is not None
    judged = [bool(success) for success, _, _ in told if success is not None]
    success = proportion(np.array(judged)) if judged else None
    done = Generated(request.out, len(told), sum(steps for _, _, steps in told), time.perf_counter() - started, success,
                     float(np.mean([earned for _, earned, _ in told])) if judged else None, worlds.severity)
    about = {**interface.about, "generated": {**interface.about["generated"], **facts(done)}}
    write_whole(request.out / layout.OURS, json_bytes(interface_file.to_json(replace(interface, about=about))))
    return done


def facts(done: Generated) -> dict[str, Any]:
    """What was reached, as plain data."""
    success = {} if done.success is None else {
        "success": done.success.estimate, "success_low": done.success.low, "success_high": done.success.high,
        "confidence": done.success.confidence, "mean_return": done.mean_return}
    return {"steps": done.steps, "severity": done.severity, **success}


def json_bytes(value: Any) -> memoryview:
    """JSON, readable."""
    import json

    return memoryview(json.dumps(value, indent=1).encode())


def episodes(worlds: Worlds) -> Iterator[list[Episode]]:
    """The episodes of the request, by batches."""
    from temporeal.policies.data.demonstrators.collecting import episodes_of
    from temporeal.policies.data.demonstrators.qualities import PARTS
    from temporeal.policies.data.demonstrators.scripted import said

    request = worlds.request
    parts = PARTS.get(request.quality, (request.quality,))
    for k, quality in enumerate(parts):
        wanted = request.episodes * (k + 1) // len(parts) - request.episodes * k // len(parts)
        if not wanted:
            continue
        for round_, batch in enumerate(worlds.batches(quality, wanted, worlds.seed + k, worlds.severity or 0.0)):
            info = {"quality": quality, "seed": worlds.seed + k, "round": round_}
            batch = declared(worlds.task, with_truth(worlds, batch))
            words = batch.signals.get("instruction")
            language = said(worlds.task, None if words is None else words[0], worlds.env.num_worlds)
            chunk = list(episodes_of(batch, language, info, judged=request.quality != "play"))
            yield chunk[: wanted - round_ * worlds.env.num_worlds]


def with_truth(worlds: Worlds, batch: Batch) -> Batch:
    """``batch``, with what the formula reads as signals of their own where the sensors change it."""
    from temporeal.policies.data.demonstrators.collecting import TRUE

    if not distorted(worlds.env):
        return replace(batch, signals={**{name: batch.truth[name] for name in batch.truth}, **batch.signals})
    return replace(batch, signals={**batch.signals, **{f"{TRUE}{name}": value for name, value in batch.truth.items()}})


def declared(task: Task, batch: Batch) -> Batch:
    """``batch``, whole numbers where the task declares them: environments compute in float32."""
    whole = {name: spec.dtype for name, spec in task.schema.items() if spec.dtype != "float32"}
    return replace(batch, signals={name: values.astype(whole[name]) if name in whole else values
                                   for name, values in batch.signals.items()})


def distorted(env: Env) -> bool:
    """Whether sensors have noise, bias or delay."""
    sensors = env.functions.sensors
    return bool(sensors.noise or sensors.drawn or sensors.past)


def interface_of(worlds: Worlds, episode: Episode) -> Interface:
    """What the numbers of the set mean."""
    from temporeal.policies.data.episodes.interface import ActionSpec, Interface
    from temporeal.robots.signals import schema

    task, request = worlds.task, worlds.request
    command = task.robot.command(task.command)
    specs = [spec_of(task, name, values) for name, values in episode.signals.items()]
    return Interface(
        robot=task.robot.name, signals=schema(*specs),
        action=ActionSpec(command.name, tuple(map(float, command.low)), tuple(map(float, command.high)), command.unit),
        rate_hz=1.0 / task.control_dt, task_action=task.act.action_dim, task=task.name, simulator=simulator(worlds.env),
        about={"settings": {key: request.settings[key] for key in STORED if key in request.settings},
               "formula": task.formula_text,
               "generated": {"quality": request.quality, "expert": ",".join(request.expert),
                             "episodes": request.episodes, "seed": worlds.seed, "worlds": worlds.env.num_worlds}})


def spec_of(task: Task, name: str, values: np.ndarray) -> Any:
    """What a signal of the set is: as the task declares it, or a picture."""
    from temporeal.policies.data.demonstrators.collecting import TRUE
    from temporeal.robots.signals import SignalSpec

    if name in task.schema:
        return task.schema[name]
    if (own := name.removeprefix(TRUE)) in task.schema:
        return replace(task.schema[own], name=name)
    kind = values.dtype.name
    return SignalSpec(name, tuple(values.shape[1:]), "1" if kind == "uint8" else "m", dtype=kind)


def simulator(env: Env) -> str:
    """Name and version of what moved the robot."""
    from importlib.metadata import PackageNotFoundError, version

    name = env.backend.name
    package = {"mujoco_warp": "mujoco-warp", "quadrotor": "temporeal", "planar": "temporeal"}.get(name, name)
    try:
        return f"{name} {version(package)}"
    except PackageNotFoundError:
        return name
