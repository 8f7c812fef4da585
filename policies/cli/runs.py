"""A training run is a folder: the settings it was made with, its checkpoint, its events. What verbs do with one.

Everything slow is imported inside the functions.
"""

from __future__ import annotations

import inspect
import shutil
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from policies.cli import settings as config
from policies.cli.console import BadInput
from policies.cli.settings import Settings, of_group

if TYPE_CHECKING:
    from policies.evaluate.rollout import Act
    from policies.export.runtime import Artifact
    from sim.env import Env
    from sim.maps import PolicyGraph
    from sim.task import Task

CONFIG = "config.yaml"
SAME = ("robot", "task", "seed", "num_worlds")  # what a run keeps over a resume; the learner knows the rest
RANK_SEED = 1_000_003  # between the seeds of the processes of one run: their worlds must not be the same


@contextmanager
def bad_input() -> Iterator[None]:
    """What set-up code refuses (it names the legal choices) is the user's input, not a crash."""
    from robots.registry import UnknownName

    try:
        yield
    except BadInput:
        raise
    except (ValueError, UnknownName, FileNotFoundError) as error:
        raise BadInput(str(error)) from error
    except ModuleNotFoundError as error:
        raise BadInput(f"the package {error.name} is not installed; `temporeal doctor` says how to get it") from error


def run_folder(settings: Mapping[str, Any]) -> Path:
    """Where the run goes."""
    if settings["out"] is not None:
        return Path(settings["out"])
    return Path("outputs/train") / f"{settings['task']['name']}-{settings['algo']['name']}-{settings['seed']}"


def make_task(settings: Mapping[str, Any]) -> Task:
    """The task that the settings name."""
    from sim.task import load_task

    with bad_input():
        return load_task(settings["task"]["name"], **(settings["task"].get("settings") or {}))


def make_env(
    settings: Mapping[str, Any], *, num_worlds: int | None = None, backend: str | None = None, seed: int | None = None,
    task: Task | None = None, device: str | None = None, training: bool = False,
) -> Env:
    """The environment that the settings describe; keywords replace what an evaluation needs otherwise.

    ``training`` takes the task's share of mid-mission starts (``task.explore``); an evaluation never does.
    """
    from sim.env import make_env as build

    task = task or make_task(settings)
    with bad_input():
        return build(
            task, backend=backend or settings["backend"]["name"], device=device or settings["device"],
            num_worlds=settings["num_worlds"] if num_worlds is None else num_worlds,
            seed=settings["seed"] if seed is None else seed, threads=settings["threads"],
            explore=float(settings["task"].get("explore", 0.0)) if training else 0.0,
            randomize=settings["randomize"].get("parameters"), sensors=settings["randomize"].get("sensors"))


def algorithm(settings: Mapping[str, Any]) -> tuple[ModuleType, Any]:
    """The learner's module and its configuration: the class that its ``train`` takes, filled with the settings."""
    from robots.registry import resolve

    with bad_input():
        module = resolve("policies.algos", settings["algo"]["name"])
        if "env" not in inspect.signature(module.train).parameters:
            told = (module.__doc__ or "").partition("\n")[0]
            raise BadInput(f"algo={settings['algo']['name']} does not learn tasks of sim.tasks ({told}): "
                           f"python -m {module.__name__} --help")
        made = typing.get_type_hints(module.train)["config"]
        given = {key: tuple(v) if isinstance(v, list) else v for key, v in of_group(settings, "algo").items()}
        legal = [field.name for field in fields(made)]
        for key in given:
            if key not in legal:
                name = settings["algo"]["name"]
                raise BadInput(f"algo.{key}: {name} has no such setting; legal: {', '.join(legal)}")
        return module, made(**given)


def open_run(settings: Settings, folder: Path, overwrite: bool) -> None:
    """Make the run's folder and write its settings; what is already there is never lost silently."""
    saved = folder / CONFIG
    if resumes(settings):
        if not saved.exists():
            raise BadInput(f"nothing to resume: {saved} is not there; start without resume=true")
        check_same(config.read(saved), settings)
        return
    if folder.exists() and any(folder.iterdir()):
        if not saved.exists():
            raise BadInput(f"{folder} is there and is no run: choose another folder with out=<folder>")
        if not overwrite:
            raise BadInput(
                f"the run {folder} is there: resume=true goes on, --overwrite starts anew, out=<folder> elsewhere")
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        config.write({**settings, "resume": None}, saved)
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror}; choose another with out=<folder>") from error


def resumes(settings: Mapping[str, Any]) -> bool | Path:
    """Whether to go on: False, True (from the last checkpoint) or the checkpoint file to go on from."""
    value = settings["resume"]
    if value is None or isinstance(value, bool):
        return bool(value)
    if not Path(str(value)).is_file():
        raise BadInput(f"resume={value}: true, false or a checkpoint file that is there")
    return Path(str(value))


def check_same(old: Settings, new: Settings) -> None:
    """A resumed run is the same run: task, learner, worlds and seed may not change."""
    for key in SAME:
        if old.get(key) != new[key]:
            names = [x["name"] if isinstance(x, dict) and x.get("name") else x for x in (old.get(key), new[key])]
            told = f"{names[0]}, now {names[1]}" if names[0] != names[1] else "otherwise set"
            raise BadInput(f"resume: {key} of the run is {told}; resume with the settings it was started with")


def load_run(folder: Path) -> Settings:
    """Settings of the run in ``folder``."""
    if not (folder / CONFIG).is_file():
        hint = f"; runs here: {', '.join(known)}" if (known := known_runs()) else "; `temporeal train` makes one"
        raise BadInput(f"{folder} is not a run (it has no {CONFIG}){hint}")
    return config.read(folder / CONFIG)


def load_graph(settings: Mapping[str, Any], folder: Path, task: Task) -> PolicyGraph:
    """The policy of the run in ``folder`` between raw signals and raw commands of ``task``."""
    from policies.algos.checkpoint import CheckpointError
    from sim.maps import PolicyGraph

    module, _ = algorithm(settings)
    try:
        actor, normalizer, _ = module.load_policy(folder, settings["device"])
    except CheckpointError as error:
        raise BadInput(str(error)) from error
    return PolicyGraph(task.observe, normalizer, actor, task.act).eval()


def load_artifact(folder: Path) -> Artifact:
    """The artifact in ``folder``, checked against its robot and by its own trace."""
    from policies.export.manifest import MANIFEST
    from policies.export.runtime import Artifact
    from robots.spec import load_robot

    if not (folder / MANIFEST).is_file():
        raise BadInput(f"{folder} is not an artifact (it has no {MANIFEST}); `temporeal export RUN` makes one")
    with bad_input():
        artifact = Artifact.load(folder)
        artifact = Artifact.load(folder, load_robot(artifact.manifest.robot))
        artifact.self_test()
        return artifact


def artifact_settings(folder: Path) -> Settings:
    """The settings that the artifact in ``folder`` was trained with."""
    settings = dict(load_artifact(folder).manifest.training)
    if not {"task", "backend", "randomize", "seed"} <= set(settings):
        raise BadInput(f"{folder} does not hold the settings of its training: it was not written by `temporeal export`")
    return settings


def artifact_policy(artifact: Artifact, env: Env) -> Act:
    """The artifact's own graph as a policy of ``env``: it reads the measured signals, not the observation.

    For rollouts of one episode per world: a world that starts a second episode keeps the memory of its first.
    """
    import torch

    measured: dict[str, Any] = {}
    observe: Any = env.observe
    act = env.act
    memory = artifact.initial_memory(env.num_worlds)

    class Spy:
        """The environment's observation map, reporting what it is given for all worlds."""

        def __call__(self, signals: Mapping[str, Any], *rest: Any) -> Any:
            if len(signals[observe.signals[0]]) == env.num_worlds:
                measured.update({name: signals[name].cpu().numpy() for name in artifact.schema})
            return observe(signals, *rest)

        def __getattr__(self, name: str) -> Any:
            return getattr(observe, name)

    def policy(obs: Any) -> Any:
        nonlocal memory
        commands, memory = artifact.act_batch(measured, memory)
        command = torch.as_tensor(commands[act.command]).to(obs.device)
        return act.inverse(command)

    setattr(env, "observe", Spy())  # noqa: B010 (it stands in for the module)
    return policy


def known_runs(root: Path = Path("outputs/train")) -> list[str]:
    """The runs below ``outputs/train``."""
    return sorted(str(path.parent) for path in root.glob(f"*/{CONFIG}"))

