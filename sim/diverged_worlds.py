"""A world that went wrong, kept so that it can be looked at: its state before the step, what it was given, and why.

    env = make_env(task, backend="mujoco")
    env.keep_faults(Path("outputs/faults"))
    ...
    fault = load("outputs/faults/lift-seed1-world17-episode3-step42.npz")
    fault.about["causes"]                        # such as ["signal joint_vel", "reward"]
    backend = replay(fault, make_backend(1))     # a backend of one world, stepped once from there
    step = relive(fault, make_env(task, num_worlds=1, seed=1))    # the same step with its rewards and observations
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.episodes import EpisodeRecord

if TYPE_CHECKING:
    from temporeal.sim.env import Env
    from temporeal.sim.types import Backend, Step

KEPT = 100  # files: a task that fails all the time must not fill the disk


@dataclass(frozen=True)
class Fault:
    """What is known of it.

    Args:
        state: of the world before the step, as ``Backend.set_state`` of a backend with one world takes it.
        command: [1, U] that the step was made with.
        about: task, backend, seed, world, episode, step, substeps; ``causes``: what was not sound
            (:meth:`temporeal.sim.env.Env.causes`).
        action: [1, A] that the command was made from.
        columns: what the world remembered then, [1, ...] by name (:meth:`temporeal.sim.env.Env.before`).
        record: of the episode.
    """

    state: dict[str, Tensor]
    command: Tensor
    about: dict[str, Any]
    action: Tensor
    columns: dict[str, Tensor]
    record: EpisodeRecord


def save(env: Env, world: int, folder: Path) -> Path | None:
    """Write the fault of ``world`` in the step just made; None where the folder holds enough of them."""
    folder.mkdir(parents=True, exist_ok=True)
    if sum(1 for _ in folder.glob("*.npz")) >= KEPT:
        return None
    about = {
        "task": env.task.name, "backend": backend_name(env.backend), "seed": env.seed,
        "world": world, "episode": int(env.episode[world]), "step": int(env.count[world]),
        "substeps": env.task.substeps, "command": env.task.command, "dt": env.backend.dt, "causes": env.causes(world)}
    path = folder / (f"{about['task']}-seed{about['seed']}-world{world}-episode{about['episode']}-step{about['step']}"
                     ".npz")
    state = {f"state.{k}": v.cpu().numpy() for k, v in env.backend.extract(world, before=True).items()}
    columns = {f"column.{k}": v[world : world + 1].cpu().numpy() for k, v in env.before().items()}
    given = {"given": env.command, "action": env.given_action}
    np.savez(path, about=json.dumps(about), record=env.record(world).to_json(),
             **{k: v[world : world + 1].cpu().numpy() for k, v in given.items()}, **state, **columns)
    return path


def backend_name(backend: Backend) -> str:
    """The name by which ``backend`` is made."""
    module = sys.modules[type(backend).__module__]
    return getattr(module, "BACKEND", module.__name__.rpartition(".")[2])


def load(path: str | Path) -> Fault:
    """The fault in the file ``path``."""
    try:
        data = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path} holds no fault of a simulated world: {error}") from error
    if not isinstance(data, np.lib.npyio.NpzFile):
        raise ValueError(f"{path} holds no fault of a simulated world: it is one array")
    with data:
        if missing := {"about", "given", "action", "record"} - set(data.files):
            raise ValueError(f"{path} holds no fault of a simulated world: {', '.join(sorted(missing))} missing")
        state, columns = ({k.removeprefix(group): torch.from_numpy(data[k]) for k in data.files if k.startswith(group)}
                          for group in ("state.", "column."))
        return Fault(state, torch.from_numpy(data["given"]), json.loads(str(data["about"])),
                     torch.from_numpy(data["action"]), columns, EpisodeRecord.from_json(str(data["record"])))


def replay(fault: Fault, backend: Backend) -> Backend:
    """Set ``backend``, which has one world of the same scene, to the state before the step, and make that step."""
    if backend.num_worlds != 1:
        raise ValueError(f"a fault is replayed in one world, the backend has {backend.num_worlds}")
    for name, mine in (("backend", backend_name(backend)), ("command", backend.command), ("dt", backend.dt)):
        if fault.about[name] != mine:
            raise ValueError(f"the fault happened with {name} {fault.about[name]!r}, this backend has {mine!r}")
    backend.set_state(fault.state)
    backend.step(fault.command.to(backend.device), int(fault.about["substeps"]))
    return backend


def relive(fault: Fault, env: Env) -> Step:
    """Make the step of ``fault`` in ``env``, which has one world and the task and settings of the one it was in."""
    if env.num_worlds != 1:
        raise ValueError(f"a fault is relived in one world, the environment has {env.num_worlds}")
    env.relive(fault.state, fault.columns, fault.record)
    env.instead = fault.command.to(env.device)
    return env.step(fault.action.to(env.device))
