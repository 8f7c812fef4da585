"""Arms, hands, legs and objects in MuJoCo Warp: thousands of worlds on an NVIDIA GPU, in float32.

    backend = make(Scene(load_robot("franka")), 4096, "joint_pos_cmd", dt=0.002, device="cuda")
    backend.step(ctrl, substeps=10)          # ctrl [4096, 7]: one launch of a CUDA graph, no wait
    backend.signals()["grip_pos_w"]          # [4096, 3] on the GPU

The scene, its parameters and what a reset means are those of :mod:`temporeal.sim.backends.mujoco`
(:mod:`temporeal.sim.physics.mujoco.mjcf`);
quadrotors have :mod:`temporeal.sim.backends.quadrotor`. A step (command, substeps, guard, sensors at the new state,
signals) is
recorded once and launched as a whole; recorded again only when a parameter is first set or the substeps change.
``device="cpu"`` is Warp's CPU device: the same code without graphs, one thread, to check it; for training on a CPU
take backend ``mujoco``.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from temporeal.robots.spec import RobotSpec
from temporeal.sim.capabilities import require
from temporeal.sim.physics.mujoco import mjcf
from temporeal.sim.scene import Scene, as_scene
from temporeal.sim.types import Backend, Status

try:
    import mujoco_warp as mjw
    import warp as wp
    from mujoco.batch import Batch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"backend mujoco_warp needs {error.name}: pip install mujoco-warp 'mujoco>=3.17' (Python 3.11 or later)",
        name=error.name) from error

from temporeal.sim.backends.mujoco import VIEWS
from temporeal.sim.compiler.warp_graphs import Graphs
from temporeal.sim.physics.checks import check_ids, check_state, check_world
from temporeal.sim.physics.warp import kernels as kernels
from temporeal.sim.physics.warp.capacity import Room, measure

HAS = ("objects", "arms", "full_state", "wrench", "delay", "gravity", "mass", "overflow")
STATE = ("time", "qpos", "qvel", "act", "history", "plastic", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied",
         "eq_active", "mocap_pos", "mocap_quat", "userdata")  # fmt: skip
"""Arrays of mujoco_warp's Data that a step starts from; all others are computed in it."""
MOVED = ("time", "qpos", "qvel", "act", "history", "plastic", "qacc_warmstart", "ctrl")
"""Those of them that a step changes; all float32."""
DERIVED = ("body_subtreemass", "body_invweight0", "dof_invweight0", "tendon_invweight0", "actuator_acc0")
"""What MuJoCo derives from masses, inertias and armatures, and Warp keeps per world."""
KINDS = tuple(str(mjw.OverflowType(1 << i).name).lower() for i in range(int(mjw.OverflowType.ALL).bit_length()))
LOST = int(mjw.OverflowType.ALL & ~(mjw.OverflowType.ITERATIONS | mjw.OverflowType.LS_ITERATIONS))
EARLY = 0.01  # of dt, by which a delay is shortened: in float32 its end must not fall before the sample it is to hit
SLOW = 256  # worlds on a CPU from which on we say that another backend is faster
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
    if num_worlds < 1:
        raise ValueError(f"num_worlds is {num_worlds}; it must be at least 1")
    for name, value in (("contacts", contacts), ("constraints", constraints), ("threads", threads)):
        if value < 0:
            raise ValueError(f"{name} is {value}; it must be 0 (chosen here) or more")
    scene, place, needs = as_scene(what), torch.device(device), tuple(needs)
    if scene.robot.kind == "quadrotor":
        raise ValueError(f"backend mujoco_warp has jointed robots; for quadrotor {scene.robot.name!r}, whose rotors "
                         "MuJoCo does not model, take backend=quadrotor (it has device=cuda, too)")
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
    room = measure(model).given(contacts, constraints)
    return MuJoCoWarp(model, num_worlds, command, graphs, seed, threads, room, ordered, has)


def refuse_unread(model: mjcf.Model) -> None:
    """Refuse signals from sensors that are not brought up to date after a step."""
    kinds = {int(getattr(mujoco.mjtSensor, f"mjSENS_{name}")): name.lower() for name in UNREAD}
    for signal, source in model.scene.sources.items():
        for name in source.names if source.what == "sensor" else ():
            if (kind := int(model.mj.sensor(name).type[0])) in kinds:
                raise ValueError(f"backend mujoco_warp cannot give signal {signal!r}: its sensor {name!r} is of kind "
                                 f"{kinds[kind]}; backend mujoco can")


def on_device(model: mjcf.Model) -> Any:
    """mujoco_warp's model; what it lacks is named."""
    mj = copy.deepcopy(model.mj)
    mj.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # Warp resets nothing and knows no such flag
    mj.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD)  # here: boxes meet in closed form, as in C
    try:
        if mj.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP:
            raise NotImplementedError("mjENBL_SLEEP: which bodies sleep would be missing in the state.")
        return mjw.put_model(mj)
    except (NotImplementedError, ValueError) as error:
        scene = model.scene
        things = "".join(f", {thing.name}" for thing in scene.objects)
        raise ValueError(f"backend mujoco_warp cannot simulate {scene.robot.name}{things}: {error} Change that option "
                         "of the model, or take backend=mujoco") from error


class MuJoCoWarp:
    """N worlds of one scene (:class:`temporeal.sim.types.Backend`); build it with :func:`make`."""

    snapshot = True  # copied on the device in each step: bad worlds are put back

    def __init__(
        self, model: mjcf.Model, num_worlds: int, command: str, graphs: Graphs, seed: int, threads: int, room: Room,
        ordered: bool, has: frozenset[str],
    ) -> None:  # fmt: skip
        self.model, self.scene, self.robot = model, model.scene, model.scene.robot
        self.command, self.num_worlds, self.seed = command, num_worlds, seed
        self.device, self.dt, self.room = graphs.torch_device, float(model.mj.opt.timestep), room
        self.capabilities, self.parameters, self._graphs = has, model.parameters, graphs
        with graphs.scope():
            self._put(ordered)
            self._lay_out()
        # the same model on the host: what parameters write, and the constants that follow from it, in float64
        self._mirror = Batch(model.mj, num_worlds, nthread=threads)
        self._fields: dict[str, Tensor] = {}
        self._values = {name: np.tile(p.nominal, (num_worlds, 1)) for name, p in model.parameters.items()}
        self._params: dict[str, Tensor] = {}
        self._told = self._stepped = False
        self.reset(torch.arange(num_worlds), {})

    def _put(self, ordered: bool) -> None:
        """Model and data on the device."""
        room, mj = self.room, self.model.mj
        self._m = m = on_device(self.model)
        m.opt.warn_overflow = 0  # printing from kernels stalls the GPU; status() tells
        m.opt.deterministic = int(mjw.DeterminismType.ALL if ordered else mjw.DeterminismType.NONE)
        m.opt.graph_conditional = self.device.type == "cpu" or wp.is_conditional_graph_supported()
        for name in ("actuator_delay", "sensor_delay"):
            view = self._torch(getattr(m, name))
            if view is not None:
                view.copy_(self._shortened(view))
        self._d = mjw.make_data(mj, nworld=self.num_worlds, nconmax=room.contacts, njmax=room.constraints,
                                nccdmax=room.convex)

    def _shortened(self, delay: Tensor) -> Tensor:
        return (delay - EARLY * self.dt).clamp_min(0.0)

    @staticmethod
    def _torch(array: Any) -> Tensor | None:
        """A Warp array as a tensor over the same memory; None where there is nothing."""
        return wp.to_torch(array) if array is not None and array.size else None

    def _lay_out(self) -> None:
        """State, flags and signals: views of Warp's memory, or memory of our own with views for Warp's kernels."""
        n, mj, d = self.num_worlds, self.model.mj, self._d
        views = {name: self._torch(getattr(d, name)) for name in STATE}
        self._state = {name: view for name, view in views.items() if view is not None}
        self._sensors = self._torch(d.sensordata)
        self._before = {name: self._state[name].clone() for name in MOVED if name in self._state}
        self._pairs = [(flat(before), flat(self._state[name])) for name, before in self._before.items()]
        rest = mujoco.MjData(mj)  # as MuJoCo's own reset leaves it
        self._rest = {name: self._tensor(np.asarray(getattr(rest, name))).reshape(view.shape[1:]).to(view.dtype)
                      for name, view in self._state.items()}
        self._given = torch.zeros(n, len(self.model.ctrl), device=self.device)
        self._columns = wp.array(self.model.ctrl, dtype=int)
        flags = {"bad": torch.bool, "fresh": torch.bool, "flags": torch.int32}
        self._flag = {name: torch.zeros(n, dtype=kind, device=self.device) for name, kind in flags.items()}
        self._counts = torch.zeros(len(KINDS), dtype=torch.int32, device=self.device)
        self._wp = {name: wp.from_torch(value) for name, value in {**self._flag, "counts": self._counts,
                                                                   "given": self._given}.items()}
        self.bad = self._flag["bad"]
        table, places, size = self._table()
        self._rows = wp.array(table, dtype=int, ndim=2)
        self._signals = tuple(torch.zeros(size, device=self.device) for _ in range(2))  # now, before the step
        self._out, self._was = ({name: memory[first : first + n * int(np.prod(shape))].view(n, *shape)
                                 for name, (first, shape) in places.items()} for memory in self._signals)
        self._memory = tuple(wp.from_torch(memory) for memory in self._signals)

    def _table(self) -> tuple[np.ndarray, dict[str, tuple[int, tuple[int, ...]]], int]:
        """Rows for the kernel that gathers the signals; where each lies in their memory, and its size."""
        sources = {"qpos": kernels.FROM_QPOS, "qvel": kernels.FROM_QVEL, "sensordata": kernels.FROM_SENSORS}
        rows: list[tuple[int, ...]] = []
        places, start = {}, 0
        for name, read in self.model.reads.items():
            size = {"qpos": self.model.mj.nq, "qvel": self.model.mj.nv}.get(read.field, self.model.mj.nsensordata)
            columns = np.arange(size)[read.columns][:: 3 if read.norm else 1]
            source = kernels.FROM_NORM if read.norm else sources[read.field]
            rows += [(source, int(c), start, len(columns), i) for i, c in enumerate(columns)]
            places[name] = (start, read.shape)
            start += self.num_worlds * len(columns)
        return np.array(rows, dtype=np.int32).reshape(-1, 5), places, start

    # ---- the protocol

    def reset(self, ids: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set the worlds ``ids`` [K] to ``state`` [K, ...]: signals of joints and free bodies, home for the others.

        Actuators hold the joints where they are: a servo's control is its joint's position; others are at home.
        """
        worlds = self._check_ids(ids)
        qpos, qvel = mjcf.reset_rows(self.model, _arrays(state), len(worlds))
        if not len(worlds):
            return
        ctrl = mjcf.holding_ctrl(self.model, qpos)
        rows = {"qpos": qpos, "qvel": qvel, "ctrl": ctrl}
        if "act" in self._state:
            rows["act"] = mjcf.holding_act(self.model, qpos)
        if "history" in self._state:
            rows["history"] = np.tile(self._rest["history"].double().cpu().numpy(), (len(worlds), 1))
            mjcf.fill_history(self.model, rows["history"], np.arange(len(worlds)), ctrl)
        chosen, given = torch.from_numpy(worlds).to(self.device), self._tensors(rows)
        for name, view in self._state.items():
            new = given[name] if name in given else self._rest[name]
            view.index_copy_(0, chosen, new.expand(len(worlds), *view.shape[1:]))
        if any(wrench.any() for _, wrench in self._wrenches(worlds)):  # else it is at rest
            self._apply_wrench(worlds)
        for name, value in (("bad", False), ("flags", 0)):
            self._flag[name].index_fill_(0, chosen, value)
        self._flag["fresh"].zero_().index_fill_(0, chosen, True)
        self._run("fresh", self._begin)

    def _begin(self) -> None:
        """Sensors and signals of the worlds that were just reset."""
        if self.model.forces:
            mjw.forward(self._m, self._d)
        else:
            self._sense()
        self._gather("fresh", True)

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds but the bad ones by ``substeps`` physics steps under ``ctrl`` [N, U]."""
        if ctrl.shape != self._given.shape:
            raise ValueError(f"{self.command} has shape {tuple(ctrl.shape)}, expected {tuple(self._given.shape)}")
        if substeps < 1:
            raise ValueError(f"substeps is {substeps}; it must be at least 1")
        self._given.copy_(ctrl)
        self._stepped = True
        self._run(("step", substeps), lambda: self._advance(substeps))

    def _advance(self, substeps: int) -> None:
        """One control step, as kernels: what the graph of a step holds."""
        d, flag, n = self._d, self._wp, self.num_worlds
        for before, now in self._pairs:
            wp.copy(before, now)
        wp.copy(self._memory[1], self._memory[0])
        wp.launch(kernels.take_command, n, [flag["given"], self._columns], [flag["bad"], d.ctrl])
        d.overflow.zero_()
        for i in range(substeps):
            self._physics(last=i == substeps - 1)
        wp.launch(kernels.guard, n, [d.qpos, d.qvel, d.overflow], [flag["bad"], flag["flags"], flag["counts"]])
        for before, now in self._pairs:
            wp.launch(kernels.put_back, now.shape, [flag["bad"], before], [now])
        self._sense()
        self._gather("bad", False)

    def _physics(self, last: bool) -> None:
        """One physics step; its sensors are computed where something reads them: forces after the last one."""
        m, kept = self._m, self._m.opt.disableflags
        if not (self._remembers or (last and self.model.forces)):
            m.opt.disableflags |= int(mjw.DisableBit.SENSOR)
        try:
            mjw.step(m, self._d)
        finally:
            m.opt.disableflags = kept

    @property
    def _remembers(self) -> bool:
        """Whether the engine delays sensors, which then must be computed in each physics step."""
        return bool(self.model.mj.nsensor and (self.model.mj.sensor_history[:, 0] > 0).any())

    def _sense(self) -> None:
        """Sensors of positions and velocities at the present state. Those of forces keep what the last step gave."""
        m, d, stage = self._m, self._d, self.model.stage
        if stage < int(mujoco.mjtStage.mjSTAGE_POS):
            return
        mjw.fwd_kinematics(m, d)
        if self._reads("ACTUATORPOS", "ACTUATORVEL"):
            mjw.transmission(m, d)
        mjw.sensor_pos(m, d)
        if stage < int(mujoco.mjtStage.mjSTAGE_VEL):
            return
        if self._reads("ACTUATORVEL", "TENDONVEL"):
            mjw.fwd_velocity(m, d)
        else:
            mjw.com_vel(m, d)
        mjw.sensor_vel(m, d)

    def _reads(self, *kinds: str) -> bool:
        return bool(np.isin(self.model.mj.sensor_type, [getattr(mujoco.mjtSensor, f"mjSENS_{k}") for k in kinds]).any())

    def _gather(self, flag: str, wanted: bool) -> None:
        d = self._d
        wp.launch(kernels.gather, (self.num_worlds, self._rows.shape[0]),
                  [d.qpos, d.qvel, d.sensordata, self._rows, self._wp[flag], wanted], [self._memory[0]])

    def _run(self, key: object, work: Callable[[], None]) -> None:
        self._graphs.run(key, work, self._rehearse)

    def _rehearse(self, work: Callable[[], None]) -> None:
        """Do ``work`` and undo it."""
        touched = [*self._state.values(), *self._before.values(), *self._flag.values(), self._counts,
                   *self._signals, *([] if self._sensors is None else [self._sensors])]
        kept = [value.clone() for value in touched]
        work()
        for value, old in zip(touched, kept):
            value.copy_(old)

    def signals(self) -> dict[str, Tensor]:
        """The scene's signals: float32 [N, ...] on the device, overwritten by the next step or reset."""
        return dict(self._out)

    def views(self) -> dict[str, Tensor]:
        """Warp's own arrays, float32 [N, ...], without copies: state (what is written there is simulated), sensors."""
        sensors = {} if self._sensors is None else {"sensordata": self._sensors}
        return {name: self._state[name] for name in VIEWS if name in self._state} | sensors

    # ---- parameters

    def params(self) -> dict[str, Tensor]:
        """Copies of the parameters of all worlds, float32 [N, count], [N] where the count is 1."""
        for name, value in self._values.items():
            if name not in self._params:
                self._params[name] = self._tensor(value[:, 0] if value.shape[1] == 1 else value)
        return {name: value.clone() for name, value in self._params.items()}

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set parameters of the worlds ``ids`` [K]: [K, count] by the names of ``parameters``.

        The first time that a parameter is set, its model fields get an entry per world and graphs are recorded anew.
        """
        worlds = self._check_ids(ids)
        checked = {n: mjcf.check_values(self.model, n, _numpy(v), len(worlds)) for n, v in params.items()}
        for name, value in checked.items():
            self._values[name][worlds] = value
        self._write(worlds, checked)

    def _write(self, worlds: np.ndarray, names: Iterable[str]) -> None:
        """Model fields of the worlds from their parameters ``names``, by way of the model on the host."""
        names = set(names)
        for name in names:
            self._params.pop(name, None)
        if not len(worlds) or not names:
            return
        worlds = np.sort(worlds)  # as MuJoCo wants them
        values = {name: value[worlds] for name, value in self._values.items()}
        written = mjcf.write_params(self.model, self._mirror.expand, worlds, values, names)
        if written & set(self.model.mj._setconst_inputs):
            self._mirror.set_const(worlds)
            written |= {name for name in DERIVED if self._mirror.expanded(name) is not None}
        chosen = torch.from_numpy(worlds).to(self.device)
        for name in sorted(written):
            rows = self._tensor(np.asarray(self._mirror.expanded(name))[worlds])
            self._upload(name, chosen, rows)
        if any(name.endswith(tuple(mjcf.WRENCH)) for name in names):
            self._apply_wrench(worlds)

    def _upload(self, name: str, chosen: Tensor, rows: Tensor) -> None:
        field = self._field(name)
        if field is not None:
            field[chosen] = self._shortened(rows) if name == "actuator_delay" else rows.reshape(-1, *field.shape[1:])

    def _field(self, name: str) -> Tensor | None:
        """The model field ``name`` [N, ...]; what all worlds share is first repeated for each."""
        if name not in self._fields:
            holder, _, attribute = name.rpartition(".")
            owner = self._m.opt if holder == "opt" else self._m
            shared = getattr(owner, attribute, None)
            if not getattr(shared, "_is_batched", False):
                raise ValueError(f"backend mujoco_warp cannot set {name!r} per world: mujoco_warp has it for all alike")
            if not shared.size:
                return None
            self._fields[name] = own = wp.to_torch(shared)[:1].repeat(
                self.num_worlds, *[1] * (wp.to_torch(shared).dim() - 1))
            array: Any = wp.from_torch(own, dtype=shared.dtype)
            array._is_batched = True  # what mujoco_warp marks its own arrays with
            self._graphs.drop()
            setattr(owner, attribute, array)
        return self._fields[name]

    def _apply_wrench(self, worlds: np.ndarray) -> None:
        chosen = torch.from_numpy(worlds).to(self.device)
        for root, wrench in self._wrenches(worlds):
            self._state["xfrc_applied"][chosen, root] = self._tensor(wrench)

    def _wrenches(self, worlds: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Bodies on which forces and torques act, and these [K, 6]."""
        for g in self.model.groups:
            if g.root is not None:
                yield g.root, np.concatenate([self._values[g.prefix + n][worlds] for n in ("force_w", "torque_w")], 1)

    # ---- health and state

    def status(self) -> Status:
        """Bad worlds, worlds in which something had no room, and how many steps of worlds met each limit of Warp's."""
        overflow = (self._flag["flags"] & LOST) != 0
        if not self._told and bool(overflow.any()):
            self._told = True
            warnings.warn(f"mujoco_warp: contacts or constraints of {int(overflow.sum())} worlds had no room and were "
                          f"left out ({self.room}); give more: make(..., contacts=, constraints=)", stacklevel=2)
        warned = dict(zip(KINDS, self._counts.tolist()))
        return Status(self._flag["bad"].clone(), overflow, warned)

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that a bit-exact continuation needs; parameters in float64 on the CPU."""
        return ({name: value.clone() for name, value in self._state.items()}
                | {name: self._flag[name].clone() for name in ("bad", "flags")}
                | {f"param.{name}": torch.from_numpy(value.copy()) for name, value in self._values.items()}
                | {f"signal.{name}": value.clone() for name, value in self._out.items()})

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; scene and number of worlds must be the same."""
        check_state(self.state(), state)
        new = {n: state[f"param.{n}"].cpu().numpy() for n in self._values}
        changed = [n for n, v in self._values.items() if not np.array_equal(v, new[n])]
        for name in changed:
            self._values[name][:] = new[name]
        self._write(np.arange(self.num_worlds), changed)
        for name, value in (*self._state.items(), *((n, self._flag[n]) for n in ("bad", "flags"))):
            value.copy_(state[name])
        for name, out in self._out.items():
            out.copy_(state[f"signal.{name}"])

    def extract(self, world: int, *, before: bool = False) -> dict[str, Tensor]:
        """The state of one world; ``before``: as it was before the last step."""
        world = check_world(world, self.num_worlds)
        if before and not self._stepped:
            raise ValueError("extract: no step has been made yet, so there is no state before it")
        found = {name: value[world : world + 1].clone() for name, value in self.state().items()}
        if before:
            found |= {name: value[world : world + 1].clone() for name, value in self._before.items()}
            found |= {f"signal.{name}": value[world : world + 1].clone() for name, value in self._was.items()}
            found["bad"] = torch.zeros_like(found["bad"])
        return found

    def close(self) -> None:
        """Give graphs, device memory and threads back; memory of which somebody holds a view lives as long as that."""
        self._graphs.drop()
        for name in ("_mirror", "_d", "_m", "_fields"):
            self.__dict__.pop(name, None)

    # ---- from and to the host

    def _tensor(self, value: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(value, dtype=np.float32)).to(self.device)

    def _tensors(self, rows: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        """Arrays [K, width] on the device, by one copy."""
        sizes = [value.shape[1] for value in rows.values()]
        return dict(zip(rows, self._tensor(np.concatenate(list(rows.values()), 1)).split(sizes, 1)))

    def _check_ids(self, ids: Tensor) -> np.ndarray:
        worlds: np.ndarray = check_ids(torch.as_tensor(ids).cpu(), self.num_worlds).numpy()
        return worlds


def flat(value: Tensor) -> Any:
    """The same memory [N, ...] for Warp, as rows [N, K]."""
    return wp.from_torch(value.view(len(value), -1))


def _arrays(values: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Tensors on the host in float64, by one copy."""
    tensors = [torch.as_tensor(value).detach() for value in values.values()]
    if not tensors:
        return {}
    place = tensors[0].device
    flat = _numpy(torch.cat([value.to(place, torch.float64).reshape(-1) for value in tensors]))
    parts = np.split(flat, np.cumsum([value.numel() for value in tensors])[:-1])
    return {name: part.reshape(value.shape) for name, part, value in zip(values, parts, tensors)}


def _numpy(value: Tensor) -> np.ndarray:
    array: np.ndarray = torch.as_tensor(value).detach().to(torch.float64).cpu().numpy()
    return array
