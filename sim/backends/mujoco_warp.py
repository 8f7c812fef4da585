"""Arms, hands, legs and objects in MuJoCo Warp: thousands of worlds on an NVIDIA GPU, in float32.

    backend = make(Scene(load_robot("franka")), 4096, "joint_pos_cmd", dt=0.002, device="cuda")
    backend.step(ctrl, substeps=10)          # ctrl [4096, 7]: one launch of a CUDA graph, no wait
    backend.signals()["grip_pos_w"]          # [4096, 3] on the GPU

The scene, its parameters and what a reset means are those of the backend ``mujoco``; quadrotors have the backend
``quadrotor``. A step is recorded once and launched as a whole (:mod:`temporeal.sim.physics.warp.simulation`); recorded
again only when a parameter is first set or the substeps change. ``device="cpu"`` is Warp's CPU device: the same code
without graphs, one thread, for checks; for training on a CPU take backend ``mujoco``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

import mujoco
import numpy as np
import torch
from torch import Tensor

from temporeal.robots.spec import RobotSpec
from temporeal.sim.capabilities import require, require_kind
from temporeal.sim.physics.checks import check_ids, check_state, check_step, check_world
from temporeal.sim.physics.host import float64
from temporeal.sim.physics.mujoco import mjcf
from temporeal.sim.physics.mujoco.model import Model
from temporeal.sim.physics.mujoco.parameters import check_values
from temporeal.sim.physics.mujoco.resets import fill_history, holding_act, holding_ctrl, reset_rows
from temporeal.sim.physics.mujoco.worlds import VIEWS
from temporeal.sim.physics.setup import Setup, setup_of
from temporeal.sim.scene import Scene
from temporeal.sim.types import Backend, Status

try:
    import mujoco_warp as mjw
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"backend mujoco_warp needs {error.name}: pip install mujoco-warp", name=error.name
                              ) from error

from temporeal.sim.compiler.warp_graphs import Graphs
from temporeal.sim.physics.warp.capacity import measure
from temporeal.sim.physics.warp.parameters import WorldParameters
from temporeal.sim.physics.warp.simulation import KINDS, Simulation

HAS = ("objects", "arms", "full_state", "wrench", "delay", "gravity", "mass", "overflow")
LOST = int(mjw.OverflowType.ALL & ~(mjw.OverflowType.ITERATIONS | mjw.OverflowType.LS_ITERATIONS))
SLOW = 256  # worlds on a CPU from which on a warning names the faster backend
UNREAD = ("JOINTLIMITPOS", "JOINTLIMITVEL", "TENDONLIMITPOS", "TENDONLIMITVEL", "GEOMDIST", "GEOMNORMAL", "GEOMFROMTO")
"""Sensors that need constraints or collisions at the new state, which a step does not compute."""


def make(
    what: Scene | RobotSpec, num_worlds: int, command: str, *, dt: float = 0.002, device: str = "cpu", seed: int = 0,
    threads: int = 0, needs: Iterable[str] = (), contacts: int = 0, constraints: int = 0,
    deterministic: bool | None = None, integrator: str = "auto",
) -> Backend:
    """The backend for ``num_worlds`` worlds of a scene (or of a robot alone).

    Args:
        command: one of the robot's commands.
        dt: physics step, s.
        device: ``"cuda"``, ``"cuda:1"``, or ``"cpu"`` (Warp's CPU device: slow, to check).
        seed: kept for the caller; the physics draws no random numbers.
        threads: CPU threads that derive constants when masses change; 0 takes MuJoCo's choice.
        needs: capabilities (:mod:`temporeal.sim.capabilities`) that the caller cannot do without.
        contacts, constraints: room per world; 0 measures the scene's need (:mod:`temporeal.sim.physics.warp.capacity`).
        deterministic: on a GPU, bit-equal results in each run and for any number of worlds, at a cost; None: where it
            is among ``needs``. On the CPU they always are.
        integrator: as of :func:`temporeal.sim.backends.mujoco.make`.
    """
    setup, needs = setup_of(what, num_worlds, command, dt, device, seed, threads), tuple(needs)
    scene, place = setup.scene, setup.device
    for name, value in (("contacts", contacts), ("constraints", constraints)):
        if value < 0:
            raise ValueError(f"{name} is {value}; it must be 0 (chosen here) or more")
    require_kind("mujoco_warp", scene.robot.name, scene.robot.kind)
    ordered = "deterministic" in needs if deterministic is None else deterministic
    able = (*HAS, *(("deterministic",) if ordered or place.type == "cpu" else ()),
            *(("cuda",) if place.type == "cuda" else ()))
    has = require(f"mujoco_warp on {place}", able, needs)
    if place.type == "cpu" and num_worlds > SLOW:
        warnings.warn(f"mujoco_warp on a CPU is for checks; {num_worlds} worlds step faster with backend=mujoco",
                      stacklevel=2)
    graphs = Graphs(place)
    model = mjcf.build(scene, command, dt, integrator)
    refuse_unread(model)
    capacity = measure(model).given(contacts, constraints)
    return MuJoCoWarp(Simulation(model, num_worlds, graphs, capacity, ordered), setup, has)


def refuse_unread(model: Model) -> None:
    """Refuse signals from sensors that are not brought up to date after a step."""
    kinds = {int(getattr(mujoco.mjtSensor, f"mjSENS_{name}")): name.lower() for name in UNREAD}
    for signal, source in model.scene.sources.items():
        for name in source.names if source.what == "sensor" else ():
            if (kind := int(model.mj.sensor(name).type[0])) in kinds:
                raise ValueError(f"backend mujoco_warp cannot give signal {signal!r}: its sensor {name!r} is of kind "
                                 f"{kinds[kind]}; backend mujoco can")


class MuJoCoWarp:
    """N worlds of one scene (:class:`temporeal.sim.types.Backend`); build it with :func:`make`."""

    name = "mujoco_warp"
    snapshot = True  # copied on the device in each step: bad worlds are put back

    def __init__(self, simulation: Simulation, setup: Setup, capabilities: frozenset[str]) -> None:
        self.simulation, self.capabilities, self.model = simulation, capabilities, simulation.model
        self.scene, self.robot, self.command = setup.scene, setup.scene.robot, setup.command
        self.num_worlds, self.seed, self.dt, self.device = (
            setup.num_worlds, setup.seed, simulation.dt, simulation.device)
        self.parameters, self.bad = self.model.parameters, simulation.flag["bad"]
        self._params = WorldParameters(simulation, setup.threads)
        self._warned = self._stepped = False
        self.reset(torch.arange(self.num_worlds), {})

    def reset(self, ids: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set the worlds ``ids`` [K] to ``state`` [K, ...]: signals of joints and free bodies, home for the others.

        Actuators hold the joints where they are: a servo's control is its joint's position; others are at home.
        """
        worlds = self._worlds(ids)
        qpos, qvel = reset_rows(self.model, _arrays(state), len(worlds))
        if not len(worlds):
            return
        state_of, rest, flag = self.simulation.state, self.simulation.rest, self.simulation.flag
        ctrl = holding_ctrl(self.model, qpos)
        rows = {"qpos": qpos, "qvel": qvel, "ctrl": ctrl}
        if "act" in state_of:
            rows["act"] = holding_act(self.model, qpos)
        if "history" in state_of:
            rows["history"] = np.tile(rest["history"].double().cpu().numpy(), (len(worlds), 1))
            fill_history(self.model, rows["history"], np.arange(len(worlds)), ctrl)
        chosen, given = torch.from_numpy(worlds).to(self.device), self._on_device(rows)
        for name, view in state_of.items():
            new = given[name] if name in given else rest[name]
            view.index_copy_(0, chosen, new.expand(len(worlds), *view.shape[1:]))
        if any(wrench.any() for _, wrench in self._params.wrenches(worlds)):  # else it is at rest
            self._params.apply_wrench(worlds)
        for name, value in (("bad", False), ("flags", 0)):
            flag[name].index_fill_(0, chosen, value)
        flag["fresh"].zero_().index_fill_(0, chosen, True)
        self.simulation.begin()

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds but the bad ones by ``substeps`` physics steps under ``ctrl`` [N, U]."""
        check_step(self.command, ctrl, (self.num_worlds, len(self.model.ctrl)), substeps)
        self._stepped = True
        self.simulation.step(ctrl, substeps)

    def signals(self) -> dict[str, Tensor]:
        """The scene's signals: float32 [N, ...] on the device, overwritten by the next step or reset."""
        return dict(self.simulation.signals)

    def views(self) -> dict[str, Tensor]:
        """Warp's own arrays, float32 [N, ...], without copies: state (what is written there is simulated), sensors."""
        state, sensors = self.simulation.state, self.simulation.sensors
        return {name: state[name] for name in VIEWS if name in state} | (
            {} if sensors is None else {"sensordata": sensors})

    def params(self) -> dict[str, Tensor]:
        """Copies of the parameters of all worlds, float32 [N, count], [N] where the count is 1."""
        return self._params.copies()

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set parameters of the worlds ``ids`` [K]: [K, count] by the names of ``parameters``.

        The first time that a parameter is set, its model fields get an entry per world and graphs are recorded again.
        """
        worlds = self._worlds(ids)
        self._params.set(worlds, {n: check_values(self.model, n, float64(v), len(worlds)) for n, v in params.items()})

    def status(self) -> Status:
        """Bad worlds, worlds in which something had no room, and how many steps of worlds exceeded each limit."""
        sim = self.simulation
        overflow = (sim.flag["flags"] & LOST) != 0
        if not self._warned and bool(overflow.any()):
            self._warned = True
            warnings.warn(f"mujoco_warp: contacts or constraints of {int(overflow.sum())} worlds had no room and were "
                          f"left out ({sim.capacity}); give more: make(..., contacts=, constraints=)", stacklevel=2)
        return Status(sim.flag["bad"].clone(), overflow, dict(zip(KINDS, sim.counts.tolist())))

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that a bit-exact continuation needs; parameters in float64 on the CPU."""
        sim = self.simulation
        return ({name: value.clone() for name, value in sim.state.items()}
                | {name: sim.flag[name].clone() for name in ("bad", "flags")}
                | {f"param.{name}": torch.from_numpy(value.copy()) for name, value in self._params.values.items()}
                | {f"signal.{name}": value.clone() for name, value in sim.signals.items()})

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; scene and number of worlds must be the same."""
        check_state(self.state(), state)
        sim = self.simulation
        new = {n: state[f"param.{n}"].cpu().numpy() for n in self._params.values}
        changed = {n: new[n] for n, v in self._params.values.items() if not np.array_equal(v, new[n])}
        self._params.set(np.arange(self.num_worlds), changed)
        for name, value in (*sim.state.items(), *((n, sim.flag[n]) for n in ("bad", "flags"))):
            value.copy_(state[name])
        for name, out in sim.signals.items():
            out.copy_(state[f"signal.{name}"])

    def extract(self, world: int, *, before: bool = False) -> dict[str, Tensor]:
        """The state of one world; ``before``: as it was before the last step."""
        world = check_world(world, self.num_worlds)
        if before and not self._stepped:
            raise ValueError("extract: no step has been made yet, so there is no state before it")
        found = {name: value[world : world + 1].clone() for name, value in self.state().items()}
        if before:
            sim = self.simulation
            found |= {name: value[world : world + 1].clone() for name, value in sim.before.items()}
            found |= {f"signal.{name}": value[world : world + 1].clone() for name, value in sim.signals_before.items()}
            found["bad"] = torch.zeros_like(found["bad"])
        return found

    def close(self) -> None:
        """Give back graphs, device memory and threads; memory lives as long as a view of it is held."""
        if "simulation" in vars(self):  # the first close
            self.simulation.graphs.drop()
            del self.simulation, self._params

    def _on_device(self, rows: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        """Arrays [K, width] on the device, by one copy."""
        sizes = [value.shape[1] for value in rows.values()]
        return dict(zip(rows, self.simulation.tensor(np.concatenate(list(rows.values()), 1)).split(sizes, 1)))

    def _worlds(self, ids: Tensor) -> np.ndarray:
        worlds: np.ndarray = check_ids(torch.as_tensor(ids).cpu(), self.num_worlds).numpy()
        return worlds


def _arrays(values: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Tensors on the host in float64, by one copy."""
    tensors = [torch.as_tensor(value).detach() for value in values.values()]
    if not tensors:
        return {}
    place = tensors[0].device
    flat = float64(torch.cat([value.to(place, torch.float64).reshape(-1) for value in tensors]))
    parts = np.split(flat, np.cumsum([value.numel() for value in tensors])[:-1])
    return {name: part.reshape(value.shape) for name, part, value in zip(values, parts, tensors)}
