"""Isaac Gym Preview 4: N worlds of a scene in PhysX, in a worker process with a Python of its own.

    backend = make(Scene(load_robot("franka")), 4096, "joint_pos_cmd", dt=0.005, device="cuda:0",
                   python="/opt/isaacgym/bin/python")

Isaac Gym needs Python 3.8 or older, an old numpy, and to be imported before torch, one simulation per process: it
cannot share a process with current torch. So the user's own interpreter (``python``, or TEMPOREAL_ISAACGYM_PYTHON) runs
:mod:`temporeal.sim.physics.isaac.gym_worker` (:mod:`temporeal.sim.physics.isaac.gym_process`). What was run where, and
what is left out: docs/reference/backends/isaac.md.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from temporeal.robots.spec import RobotSpec
from temporeal.sim.capabilities import require, require_kind
from temporeal.sim.physics.isaac import urdf
from temporeal.sim.physics.isaac.actors import plan_of
from temporeal.sim.physics.isaac.drives import DRIVE, drives
from temporeal.sim.physics.isaac.gym_process import (
    PROTOCOL,
    IsaacGymError,
    Process,
    end,
    interpreter,
    lay_out,
    map_file,
)
from temporeal.sim.physics.isaac.plan import Actor, Plan
from temporeal.sim.physics.isaac.shapes import filters, nominal
from temporeal.sim.physics.isaac.worlds import ALWAYS, Readings, States, Worlds, is_gpu, rotate, touching
from temporeal.sim.physics.mujoco import mjcf
from temporeal.sim.physics.mujoco.model import Array
from temporeal.sim.physics.setup import every_core, setup_of
from temporeal.sim.scene import Scene
from temporeal.sim.types import Backend

HAS = ("objects", "arms", "wrench", "delay")
KINDS = ("friction", "damping", "armature", "kp", "kd", "strength", *ALWAYS)
MASSES = ("mass", "inertia", "com")  # on the CPU pipeline only
CHUNK = 16  # physics steps per message: targets of each have room
START, REPLY = 180.0, 120.0  # s: loading Isaac Gym takes long; a step of many worlds too


def make(
    what: Scene | RobotSpec, num_worlds: int, command: str, *, dt: float = 0.005, device: str = "cuda:0",
    seed: int = 0, threads: int = 0, needs: Iterable[str] = (), python: str | None = None, spacing: float = 2.0,
    position_iterations: int = 8, velocity_iterations: int = 1, contact_offset: float = 0.002,
    start_timeout: float = START, timeout: float = REPLY,
) -> Backend:  # fmt: skip
    """The backend for ``num_worlds`` worlds of a scene (or of a robot alone).

    Args:
        command: one of the robot's commands.
        dt: physics step, s.
        device: ``cuda:0`` runs PhysX's GPU pipeline, ``cpu`` its CPU pipeline.
        seed: kept for the caller; the physics draws no random numbers.
        threads: PhysX's CPU threads; 0 takes every core this process may use.
        needs: capabilities (:mod:`temporeal.sim.capabilities`) that the caller cannot do without.
        python: interpreter that has isaacgym; else the variable TEMPOREAL_ISAACGYM_PYTHON.
        spacing: between worlds in Isaac Gym's grid, m. They do not touch each other however close.
        position_iterations, velocity_iterations: of PhysX's solver.
        contact_offset: distance at which PhysX makes contacts, m.
        start_timeout, timeout: how long the worker may take to start and to answer, s.
    """
    gpu = is_gpu(device)
    setup = setup_of(what, num_worlds, command, dt, device, seed, threads)
    require_kind("isaacgym", setup.scene.robot.name, setup.scene.robot.kind)
    has = require("isaacgym", (*HAS, "cuda") if gpu else (*HAS, "mass"), needs)
    plan = plan_of(mjcf.build(setup.scene, command, dt))
    settings = {
        "device": device, "spacing": spacing, "position_iterations": position_iterations,
        "velocity_iterations": velocity_iterations, "contact_offset": contact_offset,
        "threads": every_core(threads)}
    engine = GymEngine(plan, num_worlds, settings, interpreter(python), has, start_timeout, timeout)
    try:
        return Worlds("isaacgym", plan, engine, setup)
    except BaseException:
        engine.close()
        raise


class GymEngine:
    """The worker process, seen from here (:class:`temporeal.sim.physics.isaac.worlds.Engine`)."""

    def __init__(
        self, plan: Plan, num_worlds: int, settings: Mapping[str, Any], python: str, has: frozenset[str],
        start_timeout: float, timeout: float,
    ) -> None:  # fmt: skip
        self.plan, self.num_worlds, self.timeout, self.capabilities = plan, num_worlds, timeout, has
        gpu = settings["device"].startswith("cuda")
        self.kinds = KINDS if gpu else (*KINDS, *MASSES)
        self.folder = Path(tempfile.mkdtemp(prefix="temporeal-isaacgym-"))
        self._end = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        if gpu and not torch.cuda.is_available():
            self._end()
            raise IsaacGymError(f"device {settings['device']!r}: torch here sees no CUDA device; use device=cpu")
        self.device = torch.device(settings["device"])
        files = urdf.write(plan, self.folder)
        layout, size = lay_out(self._shapes())
        self.arrays = map_file(self.folder / "arrays", layout, size)
        self._nominal()
        self.worker = Process(python, self.folder, start_timeout)
        self._end.detach()
        self._end = weakref.finalize(self, end, self.worker, self.folder)
        self.versions = self.worker.versions
        message = self._message(settings, files, layout)
        self.worker.ask(message, start_timeout)
        self._com = torch.tensor(np.array([link.com for link in plan.links]), dtype=torch.float32).repeat(
            num_worlds, 1, 1)

    def _shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        n, dofs, links, roots = self.num_worlds, len(self.plan.dofs), len(self.plan.links), len(self.plan.floating)
        state = {"dof_pos": (n, dofs), "dof_vel": (n, dofs), "dof_force": (n, dofs), "root": (n, roots, 13),
                 "link": (n, links, 13), "contact": (n, links, 3), "wrench": (n, roots, 6)}
        given = {"target": (CHUNK, n, dofs), "effort": (CHUNK, n, dofs), "drive": (n, dofs, len(DRIVE)),
                 "friction": (n, len(touching(self.plan))), "mass": (n, links, 13)}
        return {"dirty": ("<u1", (n,)), **{k: ("<f4", v) for k, v in {**state, **given}.items()}}

    def _nominal(self) -> None:
        fields = nominal(self.plan.model.mj)
        self._put_drives(slice(None), drives(self.plan, fields))
        self.arrays["friction"][:] = fields["geom_friction"][:, touching(self.plan), 0]

    def _message(self, settings: Mapping[str, Any], files: Mapping[str, Path], layout: object) -> dict[str, Any]:
        plan, kinds = self.plan, {g.what for g in self.plan.gathers.values()}
        names = [link.name for link in plan.links]
        return {
            "do": "build", "protocol": PROTOCOL, "num_worlds": self.num_worlds, "dt": plan.model.mj.opt.timestep,
            "gravity": list(map(float, plan.model.mj.opt.gravity)), "floor": ground_friction(plan.floor),
            "folder": str(self.folder), "file": str(self.folder / "arrays"), "layout": layout, **settings,
            "forces": "joint_torque" in kinds, "contacts": "contact_force" in kinds,
            "efforts": any(not d.servo for d in plan.dofs),
            "root_links": [names.index(a.links[0].name) for a in plan.floating],
            "actors": [describe(plan, a, files[a.name].name) for a in plan.actors]}

    # ---- the interface

    def run(
        self, position: Array, effort: Array, substeps: int, dirty: Array, states: States, wrench: Array | None
    ) -> Readings:
        """Write states, then step (see :class:`temporeal.sim.physics.isaac.worlds.Engine`)."""
        arrays, varying = self.arrays, len(position) > 1
        arrays["dirty"][:] = dirty
        if dirty.any():
            arrays["dof_pos"][:], arrays["dof_vel"][:] = _cpu(states.dof_pos), _cpu(states.dof_vel)
            arrays["root"][:] = _cpu(self._at_com(states.root, 1))
        if wrench is not None:
            arrays["wrench"][:] = wrench
        for first in range(0, substeps, CHUNK):
            count = min(CHUNK, substeps - first)
            part = slice(first, first + count) if varying else slice(0, 1)
            rows = count if varying else 1
            arrays["target"][:rows], arrays["effort"][:rows] = position[part], effort[part]
            self.worker.ask({"do": "step", "substeps": count, "varying": varying, "wrench": wrench is not None,
                             "dirty": bool(dirty.any()) and first == 0}, self.timeout)
        return self._readings()

    def _readings(self) -> Readings:
        get = lambda name: torch.from_numpy(self.arrays[name].copy()).to(self.device)  # noqa: E731
        link = get("link")
        lever = rotate(link[..., 3:7], self._com.to(self.device))
        link[..., 7:10] -= torch.linalg.cross(link[..., 10:], lever)
        states = States(get("dof_pos"), get("dof_vel"), self._at_com(get("root"), -1))
        return Readings(states, link, get("dof_force"), get("contact"))

    def _at_com(self, root: torch.Tensor, sign: int) -> torch.Tensor:
        """Roots [N, R, 13] whose velocity is that of the centre of mass (1), as PhysX has it, or of the frame (-1)."""
        names = [link.name for link in self.plan.links]
        rows = [names.index(a.links[0].name) for a in self.plan.floating]
        out = root.clone()
        lever = rotate(root[..., 3:7], self._com[:, rows].to(root.device))
        out[..., 7:10] += sign * torch.linalg.cross(root[..., 10:], lever)
        return out

    def set_drives(self, worlds: Array, drives: Mapping[str, Array]) -> None:
        """Drive values [K, D]."""
        self._put_drives(worlds, drives)
        self.worker.ask({"do": "set_drives", "worlds": worlds.tolist()}, self.timeout)

    def _put_drives(self, worlds: Array | slice, drives: Mapping[str, Array]) -> None:
        for i, name in enumerate(DRIVE):  # PhysX 4's joint friction is a share of the joint's force, not a torque
            self.arrays["drive"][worlds, :, i] = drives[name] if name != "friction" else 0.0

    def set_friction(self, worlds: Array, friction: Array) -> None:
        """Friction [K, S]."""
        self.arrays["friction"][worlds] = friction
        self.worker.ask({"do": "set_friction", "worlds": worlds.tolist()}, self.timeout)

    def set_mass(self, worlds: Array, mass: Array, com: Array, inertia: Array) -> None:
        """Mass [K, L], centre of mass [K, L, 3], inertia [K, L, 3, 3]: on the CPU pipeline."""
        self.arrays["mass"][worlds] = np.concatenate((mass[..., None], com, inertia.reshape(*mass.shape, 9)), -1)
        self.worker.ask({"do": "set_mass", "worlds": worlds.tolist()}, self.timeout)
        self._com[torch.from_numpy(worlds)] = torch.from_numpy(com).float()

    def close(self) -> None:
        """End the worker and remove its files; once is enough, more do nothing."""
        self._end()


def ground_friction(floor: float | None) -> float | None:
    """Friction of Isaac's ground for a floor's in MuJoCo; None without a floor.

    A floor with the least friction leaves it to what touches it, where the larger of both counts. Isaac Gym takes the
    mean, so its ground gets 1: things of friction 1 rub as in MuJoCo, the others' differences from that count half.
    """
    return 1.0 if floor is not None and floor <= mjcf.SLIPPERY else floor


def describe(plan: Plan, actor: Actor, file: str) -> dict[str, Any]:
    """An actor as the worker gets it; its pose is that of home."""
    mj, pos, quat = plan.model.mj, actor.links[0].pos, actor.links[0].quat
    if actor.floating:
        first = mj.jnt_qposadr[actor.joint]
        pos, quat = plan.model.home_qpos[first : first + 3], plan.model.home_qpos[first + 3 : first + 7]
    return {
        "name": actor.name, "urdf": file, "floating": actor.floating, "gravity": actor.gravity,
        "pos": list(map(float, pos)), "quat": list(map(float, quat)), "links": [link.name for link in actor.links],
        "dofs": [d.name for d in actor.dofs], "servo": [d.servo for d in actor.dofs],
        "filters": filters(actor),
        "shapes": [sum(s.touches for s in link.shapes) for link in actor.links]}


def _cpu(value: torch.Tensor) -> Array:
    return value.detach().cpu().numpy()


