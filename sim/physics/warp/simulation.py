"""Worlds of one scene in MuJoCo Warp: model and data on the device, and a control step as a sequence of kernels.

The kernels of a step (command, substeps, guard, sensors at the new state, signals) are recorded once as a CUDA graph
(:class:`temporeal.sim.compiler.warp_graphs.Graphs`) and launched as a whole.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from temporeal.sim.compiler.warp_graphs import Graphs
from temporeal.sim.physics.mujoco.model import Model
from temporeal.sim.physics.warp.capacity import Capacity

try:
    import mujoco_warp as mjw
    import warp as wp
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"backend mujoco_warp needs {error.name}: pip install mujoco-warp", name=error.name
                              ) from error

from temporeal.sim.physics.warp import kernels

STATE = ("time", "qpos", "qvel", "act", "history", "plastic", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied",
         "eq_active", "mocap_pos", "mocap_quat", "userdata")  # fmt: skip
"""Arrays of mujoco_warp's Data that a step starts from; all others are computed in it."""
MOVED = ("time", "qpos", "qvel", "act", "history", "plastic", "qacc_warmstart", "ctrl")
"""Those of them that a step changes; all float32."""
KINDS = tuple(str(mjw.OverflowType(1 << i).name).lower() for i in range(int(mjw.OverflowType.ALL).bit_length()))
EARLY = 0.01  # of dt, by which a delay is shortened: in float32 its end must not fall before the sample it is to hit


def put_model(model: Model) -> Any:
    """mujoco_warp's model; a ValueError names what it lacks."""
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


class Simulation:
    """Model, data and recorded steps of ``num_worlds`` worlds.

    Attributes:
        state: arrays [N, ...] that a step starts from, by name: views of Warp's memory. ``before``: as they were
            before the last step. ``rest``: as MuJoCo's own reset leaves them, without N.
        signals, signals_before: [N, ...] by name, now and before the last step.
        flag: [N] each: ``bad`` worlds; ``fresh`` ones, that were just reset; ``flags``, which limits were exceeded.
        counts: how many steps of worlds exceeded each limit of :data:`KINDS`.
    """

    def __init__(self, model: Model, num_worlds: int, graphs: Graphs, capacity: Capacity, deterministic: bool) -> None:
        self.model, self.num_worlds, self.graphs = model, num_worlds, graphs
        self.device, self.dt, self.capacity = graphs.torch_device, float(model.mj.opt.timestep), capacity
        with graphs.scope():
            self._put(deterministic)
            self._lay_out()

    def _put(self, deterministic: bool) -> None:
        """Model and data on the device."""
        capacity, mj = self.capacity, self.model.mj
        self.m = m = put_model(self.model)
        m.opt.warn_overflow = 0  # printing from kernels stalls the GPU; status() has them
        m.opt.deterministic = int(mjw.DeterminismType.ALL if deterministic else mjw.DeterminismType.NONE)
        m.opt.graph_conditional = self.device.type == "cpu" or wp.is_conditional_graph_supported()
        for name in ("actuator_delay", "sensor_delay"):
            view = as_tensor(getattr(m, name))
            if view is not None:
                view.copy_(self.shortened(view))
        self.d = mjw.make_data(mj, nworld=self.num_worlds, nconmax=capacity.contacts, njmax=capacity.constraints,
                               nccdmax=capacity.convex)

    def shortened(self, delay: Tensor) -> Tensor:
        """Delays [s] that end within the step in which they are to end."""
        return (delay - EARLY * self.dt).clamp_min(0.0)

    def _lay_out(self) -> None:
        """State, flags and signals: views of Warp's memory, or memory of our own with views for Warp's kernels."""
        n, mj, d = self.num_worlds, self.model.mj, self.d
        views = {name: as_tensor(getattr(d, name)) for name in STATE}
        self.state = {name: view for name, view in views.items() if view is not None}
        self.sensors = as_tensor(d.sensordata)
        self.before = {name: self.state[name].clone() for name in MOVED if name in self.state}
        self._pairs = [(flat(before), flat(self.state[name])) for name, before in self.before.items()]
        rest = mujoco.MjData(mj)  # as MuJoCo's own reset leaves it
        self.rest = {name: self.tensor(np.asarray(getattr(rest, name))).reshape(view.shape[1:]).to(view.dtype)
                     for name, view in self.state.items()}
        self.given = torch.zeros(n, len(self.model.ctrl), device=self.device)
        self._columns = wp.array(self.model.ctrl, dtype=int)
        flags = {"bad": torch.bool, "fresh": torch.bool, "flags": torch.int32}
        self.flag = {name: torch.zeros(n, dtype=kind, device=self.device) for name, kind in flags.items()}
        self.counts = torch.zeros(len(KINDS), dtype=torch.int32, device=self.device)
        self._wp = {name: wp.from_torch(value) for name, value in {**self.flag, "counts": self.counts,
                                                                   "given": self.given}.items()}
        table, places, size = self._signal_table()
        self._rows = wp.array(table, dtype=int, ndim=2)
        self._buffers = tuple(torch.zeros(size, device=self.device) for _ in range(2))  # now, before the step
        self.signals, self.signals_before = (
            {name: buffer[first : first + n * int(np.prod(shape))].view(n, *shape)
             for name, (first, shape) in places.items()} for buffer in self._buffers)
        self._warp_buffers = tuple(wp.from_torch(buffer) for buffer in self._buffers)

    def _signal_table(self) -> tuple[np.ndarray, dict[str, tuple[int, tuple[int, ...]]], int]:
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

    # ---- work

    def begin(self) -> None:
        """Sensors and signals of the worlds that were just reset."""
        self._run("fresh", self._begin)

    def _begin(self) -> None:
        if self.model.forces:
            mjw.forward(self.m, self.d)
        else:
            self._sense()
        self._gather("fresh", True)

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds but the bad ones under ``ctrl`` [N, U]."""
        self.given.copy_(ctrl)
        self._run(("step", substeps), lambda: self._advance(substeps))

    def _advance(self, substeps: int) -> None:
        """One control step, as kernels: what the graph of a step holds."""
        d, flag, n = self.d, self._wp, self.num_worlds
        for before, now in self._pairs:
            wp.copy(before, now)
        wp.copy(self._warp_buffers[1], self._warp_buffers[0])
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
        m, kept = self.m, self.m.opt.disableflags
        if not (self._remembers or (last and self.model.forces)):
            m.opt.disableflags |= int(mjw.DisableBit.SENSOR)
        try:
            mjw.step(m, self.d)
        finally:
            m.opt.disableflags = kept

    @property
    def _remembers(self) -> bool:
        """Whether the engine delays sensors, which then must be computed in each physics step."""
        return bool(self.model.mj.nsensor and (self.model.mj.sensor_history[:, 0] > 0).any())

    def _sense(self) -> None:
        """Sensors of positions and velocities at the present state. Those of forces keep what the last step gave."""
        m, d, stage = self.m, self.d, self.model.stage
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
        d = self.d
        wp.launch(kernels.gather, (self.num_worlds, self._rows.shape[0]),
                  [d.qpos, d.qvel, d.sensordata, self._rows, self._wp[flag], wanted], [self._warp_buffers[0]])

    def _run(self, key: object, work: Callable[[], None]) -> None:
        self.graphs.run(key, work, self._rehearse)

    def _rehearse(self, work: Callable[[], None]) -> None:
        """Do ``work`` and undo it."""
        touched = [*self.state.values(), *self.before.values(), *self.flag.values(), self.counts,
                   *self._buffers, *([] if self.sensors is None else [self.sensors])]
        kept = [value.clone() for value in touched]
        work()
        for value, old in zip(touched, kept):
            value.copy_(old)

    def tensor(self, value: np.ndarray) -> Tensor:
        """``value`` as float32 on the device."""
        return torch.from_numpy(np.ascontiguousarray(value, dtype=np.float32)).to(self.device)


def as_tensor(array: Any) -> Tensor | None:
    """A Warp array as a tensor over the same memory; None where there is nothing."""
    return wp.to_torch(array) if array is not None and array.size else None


def flat(value: Tensor) -> Any:
    """The same memory [N, ...] for Warp, as rows [N, K]."""
    return wp.from_torch(value.view(len(value), -1))
