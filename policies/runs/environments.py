"""The task and the environment that settings describe, and checks of what these take."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.memory import check_memory, rollout_bytes
from temporeal.policies.runs.settings import own_randomization
from temporeal.policies.runs.settings.compose import of_group
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.settings.robots import arguments
from temporeal.policies.runs.settings.values import check_device_name
from temporeal.policies.training.errors import fits

if TYPE_CHECKING:
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task


PHYSICS = ("integrator",)  # settings of a backend that another one is given, too, where it takes them
EVERY_BACKEND = ("what", "num_worlds", "command", "dt", "device", "seed", "threads", "needs")  # of its ``make``
GREATEST_SEED = 2**63 - 1  # the generators' integers; numbers of missions are smaller (temporeal_bridge.mission)


def make_task(settings: Mapping[str, Any]) -> Task:
    """The task of the settings."""
    from temporeal.sim.task import load_task

    with bad_input():
        return checked_robot(settings["task"], load_task(settings["task"]["name"], **arguments(settings["task"])))


def checked_robot(stated: Mapping[str, Any], task: Task) -> Task:
    """``task``, if its robot is the one that its file names: a formula's robot is that of its system."""
    system, robot = getattr(task.observe, "system", None), stated.get("robot", task.robot.name)
    if system is None or robot == task.robot.name:
        return task
    raise BadInput(f"the task says robot: {robot}, but its settings.system, {system.name}, is for robot "
                   f"{task.robot.name}: say robot: {task.robot.name}, or a system of {robot}")


def resolved(settings: Mapping[str, Any]) -> Settings:
    """``settings`` with the defaults that the task takes from elsewhere (``resolved`` of its module)."""
    from temporeal.sim.task_files import task_module

    group = settings["task"]
    with bad_input():
        find = getattr(task_module(group["name"]), "resolved", None)
        if find is None:
            return dict(settings)
        return {**settings, "task": {**group, "settings": find(**(group.get("settings") or {}))}}


def make_env(
    settings: Mapping[str, Any], *, num_worlds: int | None = None, backend: str | None = None, seed: int | None = None,
    task: Task | None = None, device: str | None = None, training: bool = False, compiled: bool = True,
) -> Env:
    """The environment that the settings describe; keywords replace what an evaluation needs otherwise.

    ``training`` takes the task's share of ``mid_episode_starts``, the curriculum and the augmentation;
    an evaluation never does. Whoever looks at what the observation map is given needs it not ``compiled``.
    """
    from temporeal.sim.env import make_env as build
    from temporeal.sim.rendering.cameras import parse_cameras

    task, drawn = task or make_task(settings), settings["randomize"]
    check_device(settings["device"])
    count = settings["num_worlds"] if num_worlds is None else num_worlds
    for key, value, least in (("num_worlds", count, 1), ("threads", settings["threads"], 0)):
        check_whole(key, value, least)
    check_seed("seed", settings["seed"] if seed is None else seed)
    name = backend or settings["backend"]["name"]
    options = of_group(settings, "backend")
    with bad_input():
        own_randomization.check_robot(drawn.get("posterior"), task.robot)
        if name != settings["backend"]["name"]:
            options = {key: options[key] for key in PHYSICS if key in options and key in taken(name)}
        check_options(name, options, settings.get("experiment"))
        make = partial(
            build, task, backend=name, device=device or settings["device"], options=options,
            seed=settings["seed"] if seed is None else seed, threads=settings["threads"],
            mid_episode_starts=float(settings["task"].get("mid_episode_starts", 0.0)) if training else 0.0,
            compiled=None if compiled and settings.get("compiled", True) else False,
            **conditions(drawn), appearance=drawn.get("appearance"),
            cameras=parse_cameras(settings.get("cameras")),
            renderer=settings.get("renderer", "auto"),
            augment=settings.get("augment") if training else None,
            curriculum=of_group(settings, "curriculum") if training else None)
        check_memory(lambda worlds: make(num_worlds=worlds), count, device or settings["device"],
                     rollout_bytes(settings, task) if training else 0)
        return make(num_worlds=count)


def conditions(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """What the settings ``randomize`` say of a machine and its sensors, as environments take it."""
    return {"randomize": drawn.get("parameters"),
            **{name: drawn.get(name) for name in ("sensors", "disturbances", "posterior")}}


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


def check_options(backend: str, options: Mapping[str, Any], experiment: str | None = None) -> None:
    """Check that ``options`` are parameters of the backend's ``make``, and of the right kind.

    ``experiment``: the chosen one, which may have set them.
    """
    from temporeal.sim.backend_factory import backend_names

    if backend not in backend_names():
        return  # who makes it names the known ones
    make = _make_of(backend)
    given, hints = inspect.signature(make).parameters, typing.get_type_hints(make)
    legal = [name for name in given if name not in EVERY_BACKEND]
    for key, value in options.items():
        if key not in legal:
            detail = f"legal: {', '.join(legal)}" if legal else "it has none"
            detail += f"; does experiment={experiment} set it for another robot?" if experiment else ""
            raise BadInput(f"backend.{key}: backend {backend} has no such setting; {detail}")
        if not fits(value, hints[key]):
            wanted = hints[key].__name__ if isinstance(hints[key], type) else str(hints[key])
            raise BadInput(f"backend.{key}={value}: expected {wanted}")


def taken(backend: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of the backend's ``make``."""
    return inspect.signature(_make_of(backend)).parameters


def _make_of(backend: str) -> Any:
    from temporeal.robots.registry import resolve

    return resolve("temporeal.sim.backends", backend).make


def backend_defaults(chosen: Any) -> Any:
    """A backend's settings, completed by the defaults of its ``make``: its file may have grown since."""
    with suppress(LookupError, ValueError, AttributeError, TypeError, ImportError):
        given = taken(chosen["name"])
        return {**{name: p.default for name, p in given.items() if name not in EVERY_BACKEND}, **chosen}
    return chosen


def check_device(device: str) -> None:
    """``cpu``, ``cuda`` or ``cuda:<index>``, and usable here."""
    check_device_name(device)
    if device != "cpu":
        import torch

        if not torch.cuda.is_available():
            raise BadInput(f"device={device}: torch sees no GPU here; use device=cpu, or ask `temporeal doctor`")
