"""Worlds that diverged, kept in files: the state before the step, what the step was given, and what was not finite.

    env = make_env(task, backend="mujoco")
    keep(env, Path("outputs/diverged"))                # from now on a file for each
    ...
    found = load("outputs/diverged/lift-seed1-world17-episode3-step42.npz")
    found.about["causes"]                              # such as ["signal joint_vel", "reward"]
    backend = replay(found, make_backend(1))           # a backend of one world, stepped once from there
    step = relive(found, make_env(task, num_worlds=1, seed=1))    # the same step with its rewards and observations
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.handed_over.arrays import read_npz
from temporeal.robots.handed_over.texts import from_json
from temporeal.sim.capabilities import require
from temporeal.sim.env import Env
from temporeal.sim.episodes import EpisodeRecord
from temporeal.sim.types import Backend, Step

KEPT = 100  # files: a task that fails all the time must not fill the disk


@dataclass(frozen=True)
class DivergedWorld:
    """One world in the step in which it diverged.

    Args:
        state: before the step, as ``Backend.set_state`` of a backend with one world takes it.
        command: [1, U] that the step was made with; ``action`` [1, A]: what it was made from.
        about: task, backend, seed, world, episode, step, substeps; ``causes`` (:func:`causes`).
        columns: what the world remembered then, [1, ...] by name (:class:`temporeal.sim.step_table.StepTable`).
        record: of the episode.
    """

    state: dict[str, Tensor]
    command: Tensor
    about: dict[str, Any]
    action: Tensor
    columns: dict[str, Tensor]
    record: EpisodeRecord


def keep(env: Env, folder: Path) -> None:
    """From now on write each world of ``env`` that diverges to ``folder``, up to :data:`KEPT` files.

    Raises:
        MissingCapability: the backend cannot give a world's whole state.
    """
    require(env.backend.name, env.backend.capabilities, ["full_state"])
    env.backend.snapshot = True
    env.table.keep_previous()
    env.on_divergence = partial(save, folder=folder)


def save(env: Env, world: int, folder: Path) -> Path | None:
    """Write ``world``, which diverged in the step just made; None where the folder holds enough of them."""
    folder.mkdir(parents=True, exist_ok=True)
    if sum(1 for _ in folder.glob("*.npz")) >= KEPT:
        return None
    about = {
        "task": env.task.name, "backend": env.backend.name, "seed": env.seed,
        "world": world, "episode": int(env.episode[world]), "step": int(env.count[world]),
        "substeps": env.task.substeps, "command": env.task.command, "dt": env.backend.dt, "causes": causes(env, world)}
    path = folder / (f"{about['task']}-seed{about['seed']}-world{world}-episode{about['episode']}-step{about['step']}"
                     ".npz")
    state = {f"state.{k}": v.cpu().numpy() for k, v in env.backend.extract(world, before=True).items()}
    columns = {f"column.{k}": v[world : world + 1].cpu().numpy() for k, v in env.table.previous().items()}
    given = {"given": env.command, "action": env.action}
    np.savez(path, about=json.dumps(about), record=env.record(world).to_json(),
             **{k: v[world : world + 1].cpu().numpy() for k, v in given.items()}, **state, **columns)
    return path


@torch.no_grad()
def causes(env: Env, world: int) -> list[str]:
    """What was not finite in the last step of ``world``, before its next episode: the simulator, the action, a signal,
    the reward, what is observed, or its start."""
    one = slice(world, world + 1)
    truth = {f"truth.{k}": v[one] for k, v in env.backend.signals().items()}
    columns = {k: v[one] for k, v in env.table.previous().items()}
    finite = env.functions.evaluate({**columns, **truth, "action": env.action[one]})[1]
    given_up = ["simulator"] if bool(env.backend.bad[world]) else []
    return given_up + [name for name, good in finite.items() if not bool(good)]


def load(path: str | Path) -> DivergedWorld:
    """The world in the file ``path``."""
    try:
        data = read_npz(Path(path))
        if missing := {"about", "given", "action", "record"} - set(data):
            raise ValueError(f"{', '.join(sorted(missing))} missing")
        state, columns = ({k.removeprefix(group): torch.from_numpy(data[k]) for k in data if k.startswith(group)}
                          for group in ("state.", "column."))
        return DivergedWorld(state, torch.from_numpy(data["given"]), from_json(str(data["about"]), "about"),
                             torch.from_numpy(data["action"]), columns, EpisodeRecord.from_json(str(data["record"])))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"{path} holds no diverged world: {error}") from error


def replay(found: DivergedWorld, backend: Backend) -> Backend:
    """Set ``backend``, which has one world of the same scene, to the state before the step, and make that step."""
    if backend.num_worlds != 1:
        raise ValueError(f"a diverged world is replayed in one world, the backend has {backend.num_worlds}")
    for name, mine in (("backend", backend.name), ("command", backend.command), ("dt", backend.dt)):
        if found.about[name] != mine:
            raise ValueError(f"the world diverged with {name} {found.about[name]!r}, this backend has {mine!r}")
    backend.set_state(found.state)
    backend.step(found.command.to(backend.device), int(found.about["substeps"]))
    return backend


@torch.no_grad()
def relive(found: DivergedWorld, env: Env) -> Step:
    """Make the step of ``found`` in ``env``, which has one world and the task and settings of the one it was in."""
    if env.num_worlds != 1:
        raise ValueError(f"a diverged world is relived in one world, the environment has {env.num_worlds}")
    env.begin([found.record])
    if set(found.columns) != set(env.functions.columns):
        raise ValueError(f"a world of this environment remembers {', '.join(env.functions.columns)}, got "
                         f"{', '.join(found.columns)}")
    env.backend.set_state(found.state)
    env.table.require_twins(found.columns)
    for name, value in found.columns.items():
        env.column[name].copy_(value)
    env.command_override = found.command.to(env.device)
    return env.step(found.action.to(env.device))
