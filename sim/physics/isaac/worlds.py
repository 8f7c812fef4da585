"""N worlds of a scene in an Isaac simulator: what the backends isaacgym and isaaclab share.

The :class:`Engine` is the simulator behind one small interface; :class:`Worlds` is the backend
(:class:`temporeal.sim.types.Backend`): commands and their delay, resets, signals, parameters, the guard.

What follows from Isaac's rules, for both:

- A reset is written to the simulator with the next step: once per step for all worlds that were reset since. Until
  then Isaac's own tensors are stale; signals after a reset are computed by MuJoCo's kinematics from the new state
  (forces are zero: no step was made).
- A bad world is put back to the state before the step that made it bad, at every step, until it is reset. It stands
  still, and nothing that is not finite stays in the simulation.
- A copy of the state does not continue bit-exactly: contacts and the solver's warm start cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.physics.checks import check_ids, check_state, check_step, check_world
from temporeal.sim.physics.isaac.drives import drives, targets
from temporeal.sim.physics.isaac.plan import Gather, Plan
from temporeal.sim.physics.isaac.shapes import nominal, solids
from temporeal.sim.physics.mujoco.model import Array, Group
from temporeal.sim.physics.mujoco.parameters import WRENCH, check_values, longest_delay, write_params
from temporeal.sim.physics.mujoco.resets import holding_ctrl, reset_rows
from temporeal.sim.physics.mujoco.worlds import Worlds as MuJoCoWorlds
from temporeal.sim.physics.setup import Setup
from temporeal.sim.types import Status

LIMIT = 1e10  # as in backend mujoco: beyond this a state is bad
KINEMATICS = 64  # worlds whose signals after a reset are computed at once
MASS, DRIVES = ("mass", "inertia", "com"), ("damping", "armature", "frictionloss", "kp", "kd", "strength")
ALWAYS = ("command_delay", *WRENCH)


@dataclass(frozen=True)
class States:
    """Joint positions and velocities [N, D], roots of floating actors [N, R, 13]: pos, wxyz, velocities of its frame.

    World frame, positions of each world. float32.
    """

    dof_pos: Tensor
    dof_vel: Tensor
    root: Tensor

    def clone(self) -> States:
        """A copy."""
        return States(self.dof_pos.clone(), self.dof_vel.clone(), self.root.clone())

    def put(self, worlds: Tensor, other: States) -> None:
        """Overwrite the worlds [K] with the rows of ``other``."""
        self.dof_pos[worlds], self.dof_vel[worlds] = other.dof_pos, other.dof_vel
        self.root[worlds] = other.root

    def rows(self, worlds: Tensor) -> States:
        """The worlds [K]."""
        return States(self.dof_pos[worlds], self.dof_vel[worlds], self.root[worlds])


@dataclass(frozen=True)
class Readings:
    """What a simulator gives after a step: states, links [N, L, 13] (as roots), joint and contact forces."""

    states: States
    link: Tensor
    dof_force: Tensor  # [N, D]
    contact: Tensor  # [N, L, 3]


class Engine(Protocol):
    """One Isaac simulation. K chosen worlds, D joints, L links, R floating roots, S shapes that touch."""

    device: torch.device
    capabilities: frozenset[str]
    kinds: tuple[str, ...]
    """Parameters that it can set."""

    def run(
        self, position: Array, effort: Array, substeps: int, dirty: Array, states: States, wrench: Array | None
    ) -> Readings:
        """Write the ``dirty`` [N] worlds' states, then step with targets [1 or substeps, N, D].

        ``wrench`` [N, R, 6]: force and torque on the floating roots' centres of mass, world frame.
        """

    def set_drives(self, worlds: Array, drives: Mapping[str, Array]) -> None:
        """Drive values [K, D] by :data:`temporeal.sim.physics.isaac.drives.DRIVE`."""

    def set_friction(self, worlds: Array, friction: Array) -> None:
        """Friction [K, S]."""

    def set_mass(self, worlds: Array, mass: Array, com: Array, inertia: Array) -> None:
        """Mass [K, L], centre of mass [K, L, 3], inertia about it [K, L, 3, 3]."""

    def close(self) -> None:
        """End the simulation."""


def is_gpu(device: str) -> bool:
    """Whether ``device`` is a GPU; one that is neither that nor the CPU is a ValueError."""
    kind, _, number = device.partition(":")
    if kind == "cpu" or (kind == "cuda" and (not number or number.isdigit())):
        return kind == "cuda"
    raise ValueError(f"device is {device!r}; Isaac runs on 'cpu', 'cuda' or 'cuda:<number>'")


def kinds_of(plan: Plan, kinds: Iterable[str]) -> dict[str, object]:
    """The model's parameters whose kind is among ``kinds``; wrenches on roots that float alone."""
    links = {g.prefix for g in plan.model.groups if g.root is not None} - {g.prefix for g, _ in free_groups(plan)}
    return {n: p for n, p in plan.model.parameters.items()
            if n.rpartition(".")[2] in kinds and n.removesuffix(n.rpartition(".")[2]) not in links}


def free_groups(plan: Plan) -> list[tuple[Group, int]]:
    """Groups whose root floats, with its place among the floating roots."""
    rows = {actor.links[0].bodies[0]: i for i, actor in enumerate(plan.floating)}
    return [(g, rows[g.root]) for g in plan.model.groups if g.root in rows]


def touching(plan: Plan) -> list[int]:
    """Geoms of the shapes that touch, link after link, in the order of the URDFs."""
    return [s.geom for link in plan.links for s in link.shapes if s.touches]


class Worlds:
    """The backend over an :class:`Engine`."""

    snapshot = True  # the state before each step is kept anyway, to put bad worlds back

    def __init__(self, name: str, plan: Plan, engine: Engine, setup: Setup) -> None:
        model, num_worlds = plan.model, setup.num_worlds
        self.name, self.plan, self.model, self.engine = name, plan, model, engine
        self.scene, self.robot, self.command = model.scene, model.scene.robot, setup.command
        self.num_worlds, self.dt, self.seed = num_worlds, float(model.mj.opt.timestep), setup.seed
        self.device, self.capabilities = engine.device, engine.capabilities
        self.parameters = kinds_of(plan, engine.kinds)
        self._values = {n: np.tile(p.nominal, (num_worlds, 1)) for n, p in self.parameters.items()}  # type: ignore[attr-defined]
        self._fields = {name: np.repeat(value, num_worlds, 0) for name, value in nominal(model.mj).items()}
        steps = longest_delay(model.mj) / self.dt if "command_delay" in self.parameters else 0
        self._history = np.zeros((num_worlds, max(round(steps), 1), model.mj.nu))  # newest first, one per physics step
        self._ctrl = np.tile(model.home_ctrl, (num_worlds, 1))
        dofs, roots = len(plan.dofs), len(plan.floating)
        zeros = lambda *shape: torch.zeros(num_worlds, *shape, device=self.device)  # noqa: E731
        self._states = States(zeros(dofs), zeros(dofs), zeros(roots, 13))
        self._before, self._before_memory = self._states.clone(), (self._ctrl.copy(), self._history.copy())
        self._dirty, self._stepped, self._diverged = np.ones(num_worlds, bool), False, 0
        self.bad = torch.zeros(num_worlds, dtype=torch.bool, device=self.device)
        self._out, self._was = ({n: zeros(*s.shape) for n, s in self.scene.signals.items()} for _ in range(2))
        self._kinematics = MuJoCoWorlds(model, replace(
            setup, num_worlds=min(num_worlds, KINEMATICS), device=torch.device("cpu"), threads=1))
        self.reset(torch.arange(num_worlds), {})

    # ---- the protocol

    def reset(self, ids: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set the worlds ``ids`` [K] to ``state`` [K, ...]: signals of joints and free bodies, home for the others."""
        worlds = check_ids(ids, self.num_worlds).cpu().numpy()
        given = {n: torch.as_tensor(v).detach().to("cpu", torch.float64) for n, v in state.items()}
        qpos, qvel = reset_rows(self.model, {n: v.numpy() for n, v in given.items()}, len(worlds))
        if not len(worlds):
            return
        rows = torch.as_tensor(worlds, device=self.device)
        self._states.put(rows, self._states_of(qpos, qvel))
        self._ctrl[worlds] = holding_ctrl(self.model, qpos)
        self._history[worlds] = self._ctrl[worlds, None]
        self._dirty[worlds], self.bad[rows] = True, False
        for first in range(0, len(worlds), KINEMATICS):
            part = slice(first, first + KINEMATICS)
            self._show(rows[part], {n: v[part] for n, v in given.items()})

    def _states_of(self, qpos: Array, qvel: Array) -> States:
        """Isaac's states of MuJoCo's coordinates [K, nq] and [K, nv]."""
        mj, count = self.model.mj, len(qpos)
        joints = np.array([d.joint for d in self.plan.dofs], dtype=int)
        ref = np.array([d.ref for d in self.plan.dofs])
        root = np.zeros((count, len(self.plan.floating), 13))
        for i, actor in enumerate(self.plan.floating):
            q, v = mj.jnt_qposadr[actor.joint], mj.jnt_dofadr[actor.joint]
            root[:, i, :7], root[:, i, 7:10] = qpos[:, q : q + 7], qvel[:, v : v + 3]
            root[:, i, 10:] = rotate(torch.from_numpy(qpos[:, q + 3 : q + 7]), torch.from_numpy(qvel[:, v + 3 : v + 6]))
        give = lambda a: torch.from_numpy(a).to(self.device, torch.float32)  # noqa: E731
        return States(give(qpos[:, mj.jnt_qposadr[joints]] - ref), give(qvel[:, mj.jnt_dofadr[joints]]), give(root))

    def _show(self, worlds: Tensor, state: Mapping[str, Tensor]) -> None:
        """Signals of the worlds [K] just set to ``state``, by MuJoCo's kinematics."""
        self._kinematics.reset(torch.arange(len(worlds)), state)
        signals = self._kinematics.signals()
        for name, gather in self.plan.gathers.items():
            force = gather.what in ("joint_torque", "contact_force")
            self._out[name][worlds] = 0.0 if force else signals[name][: len(worlds)].to(self.device)

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds but the bad ones by ``substeps`` physics steps under ``ctrl`` [N, U]."""
        check_step(self.command, ctrl, (self.num_worlds, len(self.model.ctrl)), substeps)
        given = ctrl.detach().to("cpu", torch.float64).numpy()
        good = ~self.bad.cpu().numpy() & np.isfinite(given).all(1)
        self.bad[:] = torch.from_numpy(~good)
        self._before, self._before_memory = self._states.clone(), (self._ctrl.copy(), self._history.copy())
        self._stepped = True
        self._ctrl[np.ix_(good, self.model.ctrl)] = given[good]
        position, effort = self._targets(substeps)
        readings = self.engine.run(position, effort, substeps, self._dirty, self._states, self._wrench())
        self._dirty[:] = False
        self._remember(substeps, good)
        self._guard(readings)

    def _targets(self, substeps: int) -> tuple[Array, Array]:
        """Targets [1 or substeps, N, D]: several only where a delay makes them differ."""
        delay = np.ceil(self._fields["actuator_delay"] / self.dt - 1e-6).astype(int)  # [N, nu] physics steps
        if not delay.any():
            both = targets(self.plan, self._fields, self._ctrl)
            return both[0][None], both[1][None]
        rows, columns = np.ogrid[: self.num_worlds, : self._ctrl.shape[1]]
        out = []
        for i in range(substeps):
            old = self._history[rows, np.clip(delay - i - 1, 0, self._history.shape[1] - 1), columns]
            out.append(targets(self.plan, self._fields, np.where(delay <= i, self._ctrl, old)))
        return np.stack([p for p, _ in out]), np.stack([e for _, e in out])

    def _remember(self, substeps: int, worlds: Array) -> None:
        kept = self._history[:, : max(self._history.shape[1] - substeps, 0)].copy()
        new = np.repeat(self._ctrl[:, None], min(substeps, self._history.shape[1]), 1)
        self._history[worlds] = np.concatenate((new, kept), 1)[worlds]

    def _wrench(self) -> Array | None:
        out = np.zeros((self.num_worlds, len(self.plan.floating), 6))
        for g, row in free_groups(self.plan):
            out[:, row, :3] = self._values[g.prefix + "force_w"]
            out[:, row, 3:] = self._values[g.prefix + "torque_w"]
        return out if out.any() else None

    def _guard(self, readings: Readings) -> None:
        """Take over the good worlds' states and signals; put the bad ones back to where they were."""
        states = readings.states
        fine = torch.ones_like(self.bad)
        for value in (states.dof_pos, states.dof_vel, states.root):
            fine &= (value.flatten(1).abs() < LIMIT).all(1)  # false for NaN
        self._diverged += int((~fine & ~self.bad).sum())
        self.bad |= ~fine
        self._states = states
        self._out, self._was = self._was, self._out
        for name, gather in self.plan.gathers.items():
            self._out[name].copy_(gathered(gather, readings, self.num_worlds))
        if self.bad.any():
            self._put_back(self.bad.nonzero()[:, 0])

    def _put_back(self, worlds: Tensor) -> None:
        """The worlds [K] to the state before this step."""
        self._states.put(worlds, self._before.rows(worlds))
        for name, out in self._out.items():
            out[worlds] = self._was[name][worlds]
        rows = worlds.cpu().numpy()
        self._ctrl[rows], self._history[rows] = self._before_memory[0][rows], self._before_memory[1][rows]
        self._dirty[rows] = True

    def signals(self) -> dict[str, Tensor]:
        """The scene's signals: float32 [N, ...], overwritten by the next reset or the next but one step."""
        return dict(self._out)

    def params(self) -> dict[str, Tensor]:
        """Copies of the parameters of all worlds, float32 [N, count], [N] where the count is 1."""
        return {n: torch.from_numpy(v.astype(np.float32)[:, 0] if v.shape[1] == 1 else v.astype(np.float32)).to(
            self.device) for n, v in self._values.items()}

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set parameters of the worlds ``ids`` [K]: [K, count] by the names of ``parameters``."""
        worlds = check_ids(ids, self.num_worlds).cpu().numpy()
        for name in params:
            if name in self.model.parameters and name not in self.parameters:
                raise ValueError(f"set_params: this simulator cannot set {name!r} of single worlds while it runs; it "
                                 f"can set: {', '.join(self.parameters)}")
        checked = {n: check_values(self.model, n, torch.as_tensor(v).detach().cpu().numpy(), len(worlds))
                   for n, v in params.items()}
        for name, value in checked.items():
            self._values[name][worlds] = value
        if len(worlds):
            self._write(worlds, checked)

    def _write(self, worlds: Array, names: Iterable[str]) -> None:
        names = set(names)
        values = {name: value[worlds] for name, value in self._values.items()}
        # a quantity that is not set here still takes part where it is written together with another (mass, inertia)
        for name, parameter in self.model.parameters.items():
            values.setdefault(name, np.tile(parameter.nominal, (len(worlds), 1)))
        write_params(self.model, self._fields.__getitem__, worlds, values, names)
        chosen = {name: value[worlds] for name, value in self._fields.items()}
        kinds = {name.rpartition(".")[2] for name in names}
        if kinds & set(DRIVES):
            self.engine.set_drives(worlds, drives(self.plan, chosen))
        if kinds & set(MASS):
            self.engine.set_mass(worlds, *solids(self.plan, chosen))
        if "friction" in kinds:
            self.engine.set_friction(worlds, chosen["geom_friction"][:, touching(self.plan), 0])

    def status(self) -> Status:
        """Bad worlds. Isaac does not report contacts that had no room, so no world is ever flagged as overflowing."""
        return Status(self.bad.clone(), torch.zeros_like(self.bad), {"diverged": self._diverged})

    def state(self) -> dict[str, Tensor]:
        """A copy of the state, on the CPU: enough to go on from there, though not bit-exactly."""
        return self._pack(self._states, (self._ctrl, self._history), self.bad, self._out)

    def _pack(
        self, states: States, memory: tuple[Array, Array], bad: Tensor, signals: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        arrays = {"ctrl": memory[0], "history": memory[1], **{f"param.{n}": v for n, v in self._values.items()}}
        tensors = {"bad": bad, "dof_pos": states.dof_pos, "dof_vel": states.dof_vel, "root": states.root,
                   **{f"signal.{n}": v for n, v in signals.items()}}
        return {n: torch.from_numpy(np.array(v)) for n, v in arrays.items()} | {
            n: v.detach().cpu().clone() for n, v in tensors.items()}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; scene and number of worlds must be the same."""
        check_state(self.state(), state)
        new = {name: value.cpu() for name, value in state.items()}
        changed = [n for n, v in self._values.items() if not np.array_equal(v, new[f"param.{n}"].numpy())]
        for name in changed:
            self._values[name][:] = new[f"param.{name}"].numpy()
        if changed:
            self._write(np.arange(self.num_worlds), changed)
        self._states = States(*(new[n].to(self.device).clone() for n in ("dof_pos", "dof_vel", "root")))
        self._ctrl[:], self._history[:] = new["ctrl"].numpy(), new["history"].numpy()
        self.bad[:], self._dirty[:] = new["bad"].to(self.device), True
        for name, out in self._out.items():
            out.copy_(new[f"signal.{name}"])

    def extract(self, world: int, *, before: bool = False) -> dict[str, Tensor]:
        """The state of one world; ``before``: as it was before the last step."""
        world = check_world(world, self.num_worlds)
        if before and not self._stepped:
            raise ValueError("extract: no step has been made yet, so there is no state before it")
        found = (self._pack(self._before, self._before_memory, torch.zeros_like(self.bad), self._was) if before
                 else self.state())
        return {name: value[world : world + 1].clone() for name, value in found.items()}

    def close(self) -> None:
        """End the simulation."""
        self.engine.close()
        self._kinematics.close()


# ---------------------------------------------------------------- signals from links and joints


def rotate(quat: Tensor, vec: Tensor) -> Tensor:
    """``vec`` [..., 3] turned by ``quat`` [..., 4] wxyz."""
    w, axis = quat[..., :1], quat[..., 1:]
    axis, vec = torch.broadcast_tensors(axis, vec)
    across = 2 * torch.linalg.cross(axis, vec)
    return vec + w * across + torch.linalg.cross(axis, across)


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """The product of quaternions [..., 4] wxyz."""
    w1, x1, y1, z1 = a.unbind(-1)
    w2, x2, y2, z2 = b.unbind(-1)
    return torch.stack((w1 * w2 - x1 * x2 - y1 * y2 - z1 * z2, w1 * x2 + x1 * w2 + y1 * z2 - z1 * y2,
                        w1 * y2 - x1 * z2 + y1 * w2 + z1 * x2, w1 * z2 + x1 * y2 - y1 * x2 + z1 * w2), -1)


def gathered(g: Gather, readings: Readings, count: int) -> Tensor:
    """A signal [N, *shape]."""
    like = readings.link
    rows = list(g.rows)
    if g.what == "joint_pos":
        value = readings.states.dof_pos[:, rows] + like.new_tensor(g.pos)
    elif g.what == "joint_vel":
        value = readings.states.dof_vel[:, rows]
    elif g.what == "joint_torque":
        value = readings.dof_force[:, rows]
    elif g.what == "contact_force":
        value = readings.contact[:, rows].norm(dim=-1)
    else:
        value = _of_frame(g, like, count)
    return value.reshape(count, *g.shape)


def _of_frame(g: Gather, link: Tensor, count: int) -> Tensor:
    pos, quat = link.new_tensor(g.pos), link.new_tensor(g.quat)
    if g.rows[0] < 0:  # fixed to the world
        still = {"pos": pos, "quat": quat}.get(g.what, torch.zeros_like(pos))
        return still.expand(count, -1)
    body = link[:, g.rows[0]]
    lever = rotate(body[:, 3:7], pos)
    if g.what == "pos":
        return body[:, :3] + lever
    if g.what == "quat":
        return multiply(body[:, 3:7], quat)
    if g.what == "lin_vel":
        return body[:, 7:10] + torch.linalg.cross(body[:, 10:], lever)
    if g.what == "ang_vel":
        return body[:, 10:]
    turned = multiply(body[:, 3:7], quat)
    return rotate(turned * turned.new_tensor([1.0, -1, -1, -1]), body[:, 10:])
