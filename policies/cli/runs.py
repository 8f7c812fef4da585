"""A training run is a folder: the settings it was made with, its checkpoint, its events. What verbs do with one.

Everything slow is imported inside the functions.
"""

from __future__ import annotations

import inspect
import math
import shutil
import tempfile
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli import settings as config
from temporeal.policies.cli.settings import Settings, of_group
from temporeal.policies.runs.errors import BadInput, not_installed

if TYPE_CHECKING:
    from temporeal.policies.evaluate.rollout import Act
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.sim.env import Env
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task import Task

CONFIG, CHECKPOINTS, FAULTS, EVENTS = "config.yaml", "checkpoints", "faults", "events"  # in a run's folder
# what a run keeps over a resume; the learner knows the rest
SAME = ("robot", "task", "backend", "randomize", "curriculum", "cameras", "augment", "renderer", "seed", "num_worlds",
        "processes")
# what was so where the settings of a run do not say it: they are of before there was such a key
UNSAID: Mapping[str, Any] = {"curriculum": {"name": "none", "kind": "none", "parameters": {}}, "cameras": {},
                             "augment": {}, "renderer": "auto"}
UNSET = "not set"
PHYSICS = ("integrator",)  # settings of a backend that another one is given, too, where it takes them
EVERY_BACKEND = ("what", "num_worlds", "command", "dt", "device", "seed", "threads", "needs")  # of its ``make``
GREATEST_SEED = 2**63 - 1  # the generators' integers; numbers of missions are smaller (temporeal_bridge.mission)
RANK_SEED = 1_000_003  # between the seeds of the processes of one run: their worlds must not be the same


@contextmanager
def bad_input() -> Iterator[None]:
    """What set-up code refuses (it names the legal choices) is the user's input, not a crash."""
    from temporeal.robots.registry import UnknownName

    try:
        yield
    except BadInput:
        raise
    except (ValueError, UnknownName, FileNotFoundError) as error:
        raise BadInput(str(error)) from error
    except ModuleNotFoundError as error:
        raise BadInput(not_installed(error)) from error


def check_writable(folder: Path, option: str = "--out") -> None:
    """Whether a file can be made in ``folder``, or in the nearest folder above it that is there. Makes nothing."""
    try:
        place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror}; choose another with {option}") from error


def run_folder(settings: Mapping[str, Any]) -> Path:
    """Where the run goes."""
    if isinstance(settings["out"], (list, dict)):
        raise BadInput(f"out={settings['out']}: one folder")
    if settings["out"] is not None:
        return Path(str(settings["out"]))
    task = settings["task"]
    return Path("outputs/train") / f"{task.get('title', task['name'])}-{settings['algo']['name']}-{settings['seed']}"


def make_task(settings: Mapping[str, Any]) -> Task:
    """The task that the settings name."""
    from temporeal.sim.task import load_task

    with bad_input():
        return checked_robot(settings["task"], load_task(settings["task"]["name"], **(
            settings["task"].get("settings") or {})))


def checked_robot(said: Mapping[str, Any], task: Task) -> Task:
    """``task``, if its robot is the one that its file names: a formula's robot is that of its system."""
    system, robot = getattr(task.observe, "system", None), said.get("robot", task.robot.name)
    if system is None or robot == task.robot.name:
        return task
    raise BadInput(f"the task says robot: {robot}, but its settings.system, {system.name}, is for robot "
                   f"{task.robot.name}: say robot: {task.robot.name}, or a system of {robot}")


def resolved(settings: Mapping[str, Any]) -> Settings:
    """``settings`` with what the task takes from elsewhere where they do not say it (``resolved`` of its module)."""
    from temporeal.robots.registry import resolve

    group = settings["task"]
    with bad_input():
        find = getattr(resolve("temporeal.sim.tasks", group["name"]), "resolved", None)
        if find is None:
            return dict(settings)
        return {**settings, "task": {**group, "settings": find(**(group.get("settings") or {}))}}


def make_env(
    settings: Mapping[str, Any], *, num_worlds: int | None = None, backend: str | None = None, seed: int | None = None,
    task: Task | None = None, device: str | None = None, training: bool = False, compiled: bool = True,
) -> Env:
    """The environment that the settings describe; keywords replace what an evaluation needs otherwise.

    ``training`` takes the task's share of mid-mission starts (``task.explore``), the curriculum and the augmentation;
    an evaluation never does. Whoever looks at what the observation map is given needs it not ``compiled``.
    """
    from temporeal.sim.env import make_env as build
    from temporeal.sim.rendering.viewpoints import parse_cameras

    task, drawn = task or make_task(settings), settings["randomize"]
    check_device(settings["device"])
    for key, value, least in (("num_worlds", settings["num_worlds"] if num_worlds is None else num_worlds, 1),
                              ("threads", settings["threads"], 0)):
        check_whole(key, value, least)
    check_seed("seed", settings["seed"] if seed is None else seed)
    name = backend or settings["backend"]["name"]
    options = of_group(settings, "backend")
    with bad_input():
        if name != settings["backend"]["name"]:
            options = {key: options[key] for key in PHYSICS if key in options and key in taken(name)}
        check_options(name, options, settings.get("experiment"))
        return build(
            task, backend=name, device=device or settings["device"], options=options,
            num_worlds=settings["num_worlds"] if num_worlds is None else num_worlds,
            seed=settings["seed"] if seed is None else seed, threads=settings["threads"],
            explore=float(settings["task"].get("explore", 0.0)) if training else 0.0,
            compiled=None if compiled and settings.get("compiled", True) else False,
            randomize=drawn.get("parameters"), sensors=drawn.get("sensors"), pushes=drawn.get("pushes"),
            look=drawn.get("cameras"), cameras=parse_cameras(settings.get("cameras")),
            renderer=settings.get("renderer", "auto"),
            augment=settings.get("augment") if training else None,
            curriculum=of_group(settings, "curriculum") if training else None)


def check_whole(key: str, value: object, least: int) -> None:
    """``value`` is a whole number, at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"{key}={value}: a whole number")
    if value < least:
        raise BadInput(f"{key} is at least {least}, got {value}")


def check_seed(name: str, seed: object) -> None:
    """``seed`` is a whole number that 63 bits hold."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= GREATEST_SEED:
        raise BadInput(f"{name} is a whole number from 0 to 2^63 - 1; got {seed!r}")


def check_training_seed(seed: int) -> None:
    """An evaluation of the run can have its own seed, which is greater."""
    from temporeal.policies.evaluate.run_outputs import EVALUATION_SEED

    check_seed("seed", seed)
    if seed > GREATEST_SEED - EVALUATION_SEED:
        raise BadInput(f"seed of a training is at most {GREATEST_SEED - EVALUATION_SEED}: that of its evaluation is by "
                       f"{EVALUATION_SEED} greater, and at most 2^63 - 1; got {seed}")


def check_options(backend: str, options: Mapping[str, Any], experiment: str | None = None) -> None:
    """``options`` are what the backend's ``make`` takes besides what every backend does, and of the right kind.

    ``experiment``: the one that was chosen, which may have set them.
    """
    from temporeal.sim.env import backend_names

    if backend not in backend_names():
        return  # who makes it names the known ones
    make = _make_of(backend)
    given, hints = inspect.signature(make).parameters, typing.get_type_hints(make)
    legal = [name for name in given if name not in EVERY_BACKEND]
    for key, value in options.items():
        if key not in legal:
            told = f"legal: {', '.join(legal)}" if legal else "it has none"
            told += f"; does experiment={experiment} set it for another robot?" if experiment else ""
            raise BadInput(f"backend.{key}: backend {backend} has no such setting; {told}")
        if not fits(value, hints[key]):
            wanted = hints[key].__name__ if isinstance(hints[key], type) else str(hints[key])
            raise BadInput(f"backend.{key}={value}: expected {wanted}")


def taken(backend: str) -> Mapping[str, inspect.Parameter]:
    """What the backend's ``make`` takes."""
    return inspect.signature(_make_of(backend)).parameters


def _make_of(backend: str) -> Any:
    from temporeal.robots.registry import resolve

    return resolve("temporeal.sim.backends", backend).make


def check_device(device: str) -> None:
    """``cpu``, ``cuda`` or ``cuda:<index>``, and usable here."""
    import re

    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise BadInput(f"device={device}: cpu, cuda or cuda:<index>")
    if device != "cpu":
        import torch

        if not torch.cuda.is_available():
            raise BadInput(f"device={device}: torch sees no GPU here; use device=cpu, or ask `temporeal doctor`")


def fits(value: object, hint: Any) -> bool:
    """Whether ``value`` is of the annotated type ``hint``: an int passes for a float, a list for a sequence of ints."""
    choices = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    for choice in choices:
        kind = typing.get_origin(choice) or choice
        if kind is type(None):
            good = value is None
        elif kind in (int, float):
            good = isinstance(value, (int, kind)) and not isinstance(value, bool) and math.isfinite(value)
        elif kind in (bool, str):
            good = isinstance(value, kind)
        elif kind in (tuple, list, Sequence):
            good = isinstance(value, (tuple, list)) and all(fits(item, int) for item in value)
        else:
            good = True  # the class itself must check what is no plain value
        if good:
            return True
    return False


def algorithm(settings: Mapping[str, Any]) -> tuple[ModuleType, Any]:
    """The learner's module and its configuration: the class that its ``train`` takes, filled with the settings."""
    from temporeal.robots.registry import resolve

    with bad_input():
        module = resolve("temporeal.policies.algos", settings["algo"]["name"])
        if not hasattr(module, "train") or "env" not in inspect.signature(module.train).parameters:
            told = (module.__doc__ or "").partition("\n")[0]
            instead = f": python -m {module.__name__} --help" if hasattr(module, "main") else ""
            raise BadInput(f"algo={settings['algo']['name']} does not learn tasks of temporeal.sim.tasks ({told})"
                           f"{instead or planned(settings)}")
        made = typing.get_type_hints(module.train)["config"]
        given = {key: tuple(v) if isinstance(v, list) else v for key, v in of_group(settings, "algo").items()}
        hints = typing.get_type_hints(made)
        legal = [field.name for field in fields(made)]
        for key, value in given.items():
            if key not in legal:
                name = settings["algo"]["name"]
                raise BadInput(f"algo.{key}: {name} has no such setting; legal: {', '.join(legal)}")
            if not fits(value, hints[key]):
                wanted = hints[key].__name__ if isinstance(hints[key], type) else str(hints[key])
                raise BadInput(f"algo.{key}={value}: expected {wanted.replace('collections.abc.', '')}, finite")
        return module, made(**given)


def planned(settings: Mapping[str, Any]) -> str:
    """How to have a planner judged on the task; empty where the algorithm is none, or plans no such tasks."""
    from temporeal.policies.evaluate.suite.suite import METHODS, PLANNER

    method = next((m for m in METHODS.values() if m.kind == PLANNER and m.algo == settings["algo"]["name"]), None)
    if method is None or settings["task"]["name"] != "stl":
        return ""
    name = str(settings["task"].get("title", "stl-NAME")).removeprefix("stl-")
    return (f". It plans for each start and learns nothing: temporeal bench stl-tasks --tasks {name} --methods "
            f"{method.key} judges it")


@contextmanager
def opened_run(settings: Settings, folder: Path, overwrite: bool) -> Iterator[None]:
    """:func:`open_run`, and a training in it. Where it fails before anything is learned, as with settings that do not
    fit each other, all is as it was before: a run that was to be overwritten is back, else there is no folder."""
    open_run(settings, folder, overwrite)
    before = set_aside(folder)
    try:
        yield
    except Exception:
        if not resumes(settings) and {path.name for path in folder.iterdir()} <= {CONFIG, EVENTS}:
            put_back(folder)
        raise
    finally:
        if before.exists():
            shutil.rmtree(before)


def put_back(folder: Path) -> None:
    """The run that :func:`open_run` has set aside, if any, in the place of the new one."""
    shutil.rmtree(folder)
    if set_aside(folder).exists():
        set_aside(folder).rename(folder)


def set_aside(folder: Path) -> Path:
    """Where a run that is overwritten is until the new one is trained."""
    folder = folder.absolute()
    return folder.with_name(f".{folder.name}.overwritten")


def open_run(settings: Settings, folder: Path, overwrite: bool) -> None:
    """Make the run's folder and write its settings; what is already there is never lost silently.

    A run that is overwritten is :func:`set_aside`.
    """
    saved = folder / CONFIG
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is no folder: choose another with out=<folder>")
    if resumes(settings):
        if not saved.exists():
            raise BadInput(f"nothing to resume: {saved} is not there; start without resume=true")
        if not is_run(folder):
            raise BadInput(f"nothing to resume: {saved} was not written by `temporeal train`")
        check_same(config.read(saved), settings)
        if settings["resume"] is True and not any((folder / CHECKPOINTS).glob("*.pt")):
            raise BadInput(f"nothing to resume: the run {folder} was stopped before its first checkpoint; "
                           "--overwrite instead of resume=true starts it anew")
        return
    if folder.exists() and any(folder.iterdir()):
        if not is_run(folder):
            raise BadInput(f"{folder} is there and is no run: choose another folder with out=<folder>")
        if not overwrite:
            raise BadInput(
                f"the run {folder} is there: resume=true goes on, --overwrite starts anew, out=<folder> elsewhere")
    overwritten = False
    try:
        if set_aside(folder).exists():
            shutil.rmtree(set_aside(folder))  # of a training that was killed
        if saved.exists():
            folder.rename(set_aside(folder))
            overwritten = True
        folder.mkdir(parents=True, exist_ok=True)
        config.write({**settings, "resume": None}, saved)
    except OSError as error:
        if overwritten:
            put_back(folder)
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
    with suppress(BadInput, TypeError):  # of a run whose settings are no more: what differs is told below
        old, new = resolved(old), resolved(new)
    for key in SAME:
        before, now = (backend_defaults(x.get(key)) if key == "backend" else x.get(key, UNSAID.get(key))
                       for x in (old, new))
        if (key in old or key in UNSAID) and (found := difference(key, before, now)):
            was, is_now = (UNSET if x is UNSET else config.shown(x) for x in found[1:])
            raise BadInput(f"resume: {found[0]} of the run is {was}, now {is_now}; resume with the settings it was "
                           "started with")


def backend_defaults(chosen: Any) -> Any:
    """A backend's settings, with those that are not said as its ``make`` has them: its file may have grown."""
    with suppress(LookupError, ValueError, AttributeError, TypeError, ImportError):
        given = taken(chosen["name"])
        return {**{name: p.default for name, p in given.items() if name not in EVERY_BACKEND}, **chosen}
    return chosen


def difference(key: str, old: Any, new: Any) -> tuple[str, Any, Any] | None:
    """The first setting below ``key`` that is not the same, and both values; None where all are."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return None if old == new else (key, old, new)
    if old.get("name") != new.get("name"):
        return key, old.get("name"), new.get("name")
    for name in dict.fromkeys((*old, *new)):
        absent = [UNSET if name not in x else x[name] for x in (old, new)]
        if found := difference(f"{key}.{name}", *absent):
            return found
    return None


def is_run(folder: Path) -> bool:
    """Whether ``folder`` holds a run of ours: many a project has a ``config.yaml``; ``--overwrite`` removes runs."""
    try:
        return {"robot", "task", "algo", "seed", "num_worlds"} <= set(config.read(folder / CONFIG))
    except BadInput:
        return False


def load_run(folder: Path) -> Settings:
    """Settings of the run in ``folder``."""
    if not (folder / CONFIG).is_file():
        hint = f"; runs here: {', '.join(known)}" if (known := known_runs()) else "; `temporeal train` makes one"
        raise BadInput(f"{folder} is not a run (it has no {CONFIG}){hint}")
    settings = config.read(folder / CONFIG)
    if not is_run(folder):
        raise BadInput(f"{folder} is not a run: its {CONFIG} was not written by `temporeal train`")
    return {**settings, "backend": backend_defaults(settings.get("backend"))}


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


def title_of(settings: Mapping[str, Any]) -> str:
    """The task of a run as one says it."""
    return str(settings["task"].get("title", settings["task"]["name"]))


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
    observe: Any = env.observe
    offered = [*observe.signals, env.act.command]
    needed = [*artifact.schema, *[spec.name for spec in manifest.commands]]
    lacking = [name for name in needed if name not in offered]
    if lacking:
        raise BadInput(f"the artifact needs {', '.join(lacking)}, which task {task.name!r} does not have: "
                       "judge it on the task it was trained for")
    try:
        check_robot(manifest, load_robot(manifest.robot), task.schema)
    except ArtifactError as error:
        raise BadInput(f"{error}: judge it on the task it was trained for") from error
    act, memory = env.act, artifact.initial_memory(env.num_worlds)

    def policy(obs: Any) -> Any:
        nonlocal memory
        commands, memory = artifact.act_batch(measured(env), memory)
        command = torch.as_tensor(commands[act.command]).to(obs.device)
        env.instead = command  # its action may be known only nearly, where the action map loses something
        if (acted := memory.get("last_action")) is not None and acted.shape[-1] == act.action_dim:
            return torch.as_tensor(acted).to(obs.device)
        return act.inverse(command, {k.removeprefix("memory."): v for k, v in env.column.items() if k.startswith(
            "memory.")})

    return policy


def known_runs(root: Path = Path("outputs/train")) -> list[str]:
    """The runs below ``outputs/train``."""
    return sorted(str(path.parent) for path in root.glob(f"[!.]*/{CONFIG}"))

