"""N worlds of a scene in MuJoCo, stepped by ``mujoco.batch`` on CPU threads.

Physics in float64; a step runs in C with Python's lock released, bit-identical for any number of threads and worlds.
Signals are float32 tensors of the backend's own, filled at each step; :meth:`Worlds.views` are torch tensors over
MuJoCo's memory, without copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch, SimulationError
from torch import Tensor

from temporeal.sim.physics.checks import check_ids, check_state, check_step, check_world
from temporeal.sim.physics.host import float64
from temporeal.sim.physics.mujoco.log import KINDS, restore, silence
from temporeal.sim.physics.mujoco.model import Model, Read
from temporeal.sim.physics.mujoco.parameters import SET_CONST, WRENCH, check_values, write_params
from temporeal.sim.physics.mujoco.resets import fill_history, holding_act, holding_ctrl, reset_rows
from temporeal.sim.physics.mujoco.vectorized import After, Before
from temporeal.sim.physics.setup import Setup, every_core
from temporeal.sim.types import Status

HAS = ("objects", "arms", "deterministic", "full_state", "wrench", "gravity", "mass", "overflow", "delay")
VIEWS = ("time", "qpos", "qvel", "act", "ctrl", "qacc_warmstart", "xfrc_applied", "mocap_pos", "mocap_quat")
LIMIT = 1e10  # beyond this MuJoCo itself calls a state bad (mjMAXVAL)
FULL = ("mjWARN_CONTACTFULL", "mjWARN_CNSTRFULL")  # what had no room was left out


class Worlds:
    """N worlds of one scene (:class:`temporeal.sim.types.Backend`)."""

    name = "mujoco"
    capabilities = frozenset(HAS)
    snapshot = True  # it costs nothing here: bad worlds are put back

    def __init__(self, model: Model, setup: Setup) -> None:
        num_worlds = setup.num_worlds
        self.model, self.scene, self.robot = model, model.scene, model.scene.robot
        self.command, self.num_worlds, self.device, self.seed = setup.command, num_worlds, setup.device, setup.seed
        self.dt, self.parameters = float(model.mj.opt.timestep), model.parameters
        self.batch = Batch(model.mj, num_worlds, nthread=every_core(setup.threads))
        self._rows = self.batch.state  # [N, S]: each world's whole state
        self._field = {name: self.batch.bind(name) for name in ("qpos", "qvel", "ctrl", "xfrc_applied")}
        if any(read.field == "sensordata" for read in model.reads.values()):
            self._field["sensordata"] = self.batch.bind("sensordata")
        self._before = np.empty_like(self._rows)
        self._stepped = False
        self._bad, self._overflow = np.zeros(num_worlds, dtype=bool), np.zeros(num_worlds, dtype=bool)
        self.bad = torch.from_numpy(self._bad)
        self._warned = np.zeros((num_worlds, len(FULL)), dtype=np.int64)
        self._counts = np.zeros(len(KINDS), dtype=np.int64)  # of warnings, in worlds that were reset since
        self._values = {name: np.tile(p.nominal, (num_worlds, 1)) for name, p in model.parameters.items()}
        self._lay_out()
        self.reset(torch.arange(num_worlds), {})

    def _lay_out(self) -> None:
        """Where signals are read from and written to: two sets of tensors that take turns, now and before."""
        shapes = {name: spec.shape for name, spec in self.scene.signals.items()}
        self._out, self._was = ({n: torch.zeros(self.num_worlds, *s) for n, s in shapes.items()} for _ in range(2))
        columns = np.arange(max(self.model.mj.nq, self.model.mj.nv, self.model.mj.nsensordata))
        reads = {name: (self._field[read.field], columns[: self._field[read.field].shape[1]][read.columns])
                 for name, read in self.model.reads.items() if not read.norm}
        state = [(self._field[f], columns[: self._field[f].shape[1]], None) for f in ("qpos", "qvel")]
        self._after, self._after_was = (
            After([*state, *((*read, out[name].numpy()) for name, read in reads.items())], self.num_worlds, LIMIT)
            for out in (self._out, self._was))
        self._put = Before(self._rows, self._before, self._bad, self._field["ctrl"], self.model.ctrl)
        self._sources = [(name, self._field[read.field], read) for name, read in self.model.reads.items()]
        self._norms = [source for source in self._sources if source[2].norm]

    # ---- the protocol

    def reset(self, ids: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set the worlds ``ids`` [K] to ``state`` [K, ...]: signals of joints and free bodies, home for the others.

        Actuators hold the joints where they are: a servo's control is its joint's position; others are at home.
        """
        worlds = check_ids(ids, self.num_worlds).cpu().numpy()
        qpos, qvel = reset_rows(self.model, {n: float64(v) for n, v in state.items()}, len(worlds))
        if not len(worlds):
            return
        order = np.argsort(worlds)  # MuJoCo needs them sorted
        worlds, qpos, qvel = worlds[order], qpos[order], qvel[order]
        self._counts += self.batch.warning[worlds, :, 1].sum(0)
        self.batch.reset(worlds, stage=int(mujoco.mjtStage.mjSTAGE_NONE))
        self._field["qpos"][worlds], self._field["qvel"][worlds] = qpos, qvel
        ctrl = holding_ctrl(self.model, qpos)
        self._field["ctrl"][worlds] = ctrl
        if self.model.mj.na:
            self.batch.bind("act")[worlds] = holding_act(self.model, qpos)
        if self.model.mj.nhistory:
            fill_history(self.model, self.batch.bind("history"), worlds, ctrl)
        self._apply_wrench(worlds)
        self._bad[worlds], self._overflow[worlds] = False, False
        self._warned[worlds] = self._full()[worlds]
        stage = int(mujoco.mjtStage.mjSTAGE_ACC) if self.model.forces else self.model.stage
        if "sensordata" in self._field:
            self._run(lambda: self.batch.forward(worlds, stage=stage))
        self._read_some(worlds)

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds but the bad ones by ``substeps`` physics steps under ``ctrl`` [N, U]."""
        check_step(self.command, ctrl, (self.num_worlds, len(self.model.ctrl)), substeps)
        plain = ctrl.dtype is torch.float32 and ctrl.is_cpu and ctrl.is_contiguous()
        given = ctrl if plain else ctrl.detach().to("cpu", torch.float32).contiguous()
        self._stepped = True
        sound = self._put(given.data_ptr())
        if not plain:
            self._field["ctrl"][:, self.model.ctrl] = float64(ctrl)
        if sound:
            sound = self._run(lambda: self.batch.step(nstep=substeps, stage=self.model.stage))
        else:
            self._bad |= ~np.isfinite(float64(ctrl)).all(1)
            ids = np.flatnonzero(~self._bad)
            if len(ids):
                self._run(lambda: self.batch.step(ids, nstep=substeps, stage=self.model.stage))
        self._out, self._was = self._was, self._out
        self._after, self._after_was = self._after_was, self._after
        sound = self._after() and sound
        for name, source, read in self._norms:
            self._out[name].numpy().reshape(self.num_worlds, -1)[:] = _values(source, read)
        if not sound:
            self._guard()

    def _run(self, work: Callable[[], object]) -> bool:
        """Whether no world failed in ``work``."""
        silence()
        try:
            work()
        except SimulationError as error:
            self._bad[np.asarray(error.ids)] = True
            return False
        finally:
            restore()
        return True

    def _guard(self) -> None:
        """Flag worlds that left the numbers MuJoCo can work with, and put back their states and signals before it."""
        # the comparisons are false for NaN
        for name in ("qpos", "qvel"):
            self._bad |= ~(np.abs(self._field[name]) < LIMIT).all(1)
        if self._bad.any():
            self._rows[self._bad] = self._before[self._bad]
            for name, out in self._out.items():
                out[self.bad] = self._was[name][self.bad]

    def _read_some(self, worlds: np.ndarray) -> None:
        """The signals of the worlds ``worlds`` [K] alone."""
        for name, source, read in self._sources:
            self._out[name].numpy().reshape(self.num_worlds, -1)[worlds] = _values(source[worlds], read)

    def signals(self) -> dict[str, Tensor]:
        """The scene's signals: float32 [N, ...], overwritten by the next reset or the next but one step."""
        if self.device.type == "cpu":
            return dict(self._out)
        return {name: value.to(self.device) for name, value in self._out.items()}

    def views(self) -> dict[str, Tensor]:
        """MuJoCo's own state, float64 [N, ...], without copies: what is written there is simulated."""
        return {name: torch.from_numpy(self.batch.bind(name)) for name in VIEWS if self.batch.bind(name).size}

    def params(self) -> dict[str, Tensor]:
        """Copies of the parameters of all worlds, float32 [N, count], [N] where the count is 1."""
        return {n: torch.from_numpy(v.astype(np.float32)[:, 0] if v.shape[1] == 1 else v.astype(np.float32)).to(
            self.device) for n, v in self._values.items()}

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set parameters of the worlds ``ids`` [K]: [K, count] by the names of ``parameters``."""
        worlds = check_ids(ids, self.num_worlds).cpu().numpy()
        checked = {n: check_values(self.model, n, float64(v), len(worlds)) for n, v in params.items()}
        for name, value in checked.items():
            self._values[name][worlds] = value
        if len(worlds):
            self._write(np.sort(worlds), checked)

    def _write(self, worlds: np.ndarray, names: Iterable[str]) -> None:
        names = set(names)
        values = {name: value[worlds] for name, value in self._values.items()}
        written = write_params(self.model, self.batch.expand, worlds, values, names)
        if written & SET_CONST:
            self.batch.set_const(worlds)
        if any(name.endswith(tuple(WRENCH)) for name in names):
            self._apply_wrench(worlds)

    def _apply_wrench(self, worlds: np.ndarray) -> None:
        for g in self.model.groups:
            if g.root is not None:
                for first, name in ((0, "force_w"), (3, "torque_w")):
                    self._field["xfrc_applied"][worlds, g.root, first : first + 3] = self._values[g.prefix + name][
                        worlds]

    def status(self) -> Status:
        """Bad worlds, worlds whose contacts did not all fit, and MuJoCo's warning counters."""
        overflow = self._overflow | (self._full() > self._warned).any(1)
        counts = self._counts + self.batch.warning[:, :, 1].sum(0)
        warnings = {k.removeprefix("mjWARN_").lower(): int(c) for k, c in zip(KINDS, counts)}
        return Status(torch.from_numpy(self._bad.copy()).to(self.device), torch.from_numpy(overflow).to(self.device),
                      warnings)

    def _full(self) -> np.ndarray:
        kinds = [int(getattr(mujoco.mjtWarning, name)) for name in FULL]
        return np.array(self.batch.warning[:, kinds, 1], dtype=np.int64)

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that a bit-exact continuation needs, float64 on the CPU."""
        arrays = {"rows": self._rows, "bad": self._bad, "overflow": self.status().overflow.cpu().numpy(),
                  **{f"param.{n}": v for n, v in self._values.items()}}
        # signals of the last step made: forces cannot be had from the state
        return {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()} | {
            f"signal.{name}": value.clone() for name, value in self._out.items()}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; scene and number of worlds must be the same."""
        check_state(self.state(), state)
        new = {name: value.cpu().numpy() for name, value in state.items()}
        changed = [n for n, v in self._values.items() if not np.array_equal(v, new[f"param.{n}"])]
        for name in changed:
            self._values[name][:] = new[f"param.{name}"]
        self._write(np.arange(self.num_worlds), changed)
        self._rows[:], self._bad[:], self._overflow[:] = new["rows"], new["bad"], new["overflow"]
        self._warned[:] = self._full()
        for name, out in self._out.items():
            out.copy_(state[f"signal.{name}"])

    def extract(self, world: int, *, before: bool = False) -> dict[str, Tensor]:
        """The state of one world; ``before``: as it was before the last step."""
        world = check_world(world, self.num_worlds)
        if before and not self._stepped:
            raise ValueError("extract: no step has been made yet, so there is no state before it")
        found = {name: value[world : world + 1].clone() for name, value in self.state().items()}
        if before:
            found["rows"] = torch.from_numpy(self._before[world : world + 1].copy())
            found["bad"] = torch.zeros_like(found["bad"])
            found |= {f"signal.{name}": value[world : world + 1].clone() for name, value in self._was.items()}
        return found

    def close(self) -> None:
        """End the threads. They live as long as anybody holds one of :meth:`views`."""
        for name in ("batch", "_rows", "_field", "_sources", "_norms", "_put", "_after", "_after_was"):
            self.__dict__.pop(name, None)


def _values(source: np.ndarray, read: Read) -> np.ndarray:
    """What ``read`` finds in the rows [K, ...] of its field, flat [K, size]."""
    values: np.ndarray = source[:, read.columns]
    return np.linalg.norm(values.reshape(len(values), -1, 3), axis=-1) if read.norm else values
