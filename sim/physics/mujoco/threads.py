"""Many worlds of one model on CPU threads where MuJoCo has no ``mujoco.batch`` (before 3.17): the same calls and bits.

    worlds = engine_class("auto")(model, 64, nthread=2)       # mujoco.batch.Batch, or Threads in its place
    qpos, ctrl = worlds.bind("qpos"), worlds.bind("ctrl")
    worlds.step(nstep=10)

:class:`Threads` has the part of ``mujoco.batch.Batch``'s interface that the backends use. A world is its row of state
(mjSTATE_INTEGRATION); each Python thread has one ``MjData``, loads a world's row into it, lets MuJoCo step ``nstep``
times without Python's lock, and saves the row. Results do not depend on the number of threads.

``mujoco.rollout``, which also steps many worlds in older versions, is not used, because its results are others: it
does not give back the warm start with which a world has to go on, stops a world at its first warning (contacts that
did not fit, say), and an error of MuJoCo's in one of its threads ends the process. Nor would it be faster: called for
one world, so that the warm start can be had, it costs 3.4 us with a free body, where the calls made here cost 2.5.
"""

from __future__ import annotations

import copy
import logging
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import mujoco
import numpy as np

try:
    from mujoco.batch import Batch, SimulationError
except ModuleNotFoundError:
    Batch = None

    class SimulationError(RuntimeError):  # type: ignore[no-redef]
        """MuJoCo raised an error in the simulations ``ids``, which kept the states they had before the call."""

        def __init__(self, ids: np.ndarray, message: str, ncall: int | None = None) -> None:
            self.ids = ids
            super().__init__(f"MuJoCo raised an error in {len(ids)} of {ncall} simulations; {ids[0]}: {message}")


log = logging.getLogger(__name__)

ENGINES = ("auto", "batch", "threads")
WHOLE = int(mujoco.mjtState.mjSTATE_INTEGRATION)
NONE, POS, VEL, ACC = (int(getattr(mujoco.mjtStage, f"mjSTAGE_{name}")) for name in ("NONE", "POS", "VEL", "ACC"))
ENERGY = int(mujoco.mjtEnableBit.mjENBL_ENERGY)
SLEEP = int(getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0))  # since 3.3.8
STATE = {
    "time": "TIME", "qpos": "QPOS", "qvel": "QVEL", "act": "ACT", "history": "HISTORY", "qacc_warmstart": "WARMSTART",
    "ctrl": "CTRL", "qfrc_applied": "QFRC_APPLIED", "xfrc_applied": "XFRC_APPLIED", "eq_active": "EQ_ACTIVE",
    "mocap_pos": "MOCAP_POS", "mocap_quat": "MOCAP_QUAT", "userdata": "USERDATA", "plugin_state": "PLUGIN",
    "plastic": "PLASTIC"}  # fmt: skip
ASSETS = ("mesh_", "hfield_", "tex_", "skin_", "flex_", "name", "path", "text_", "plugin_", "bvh_", "oct_", "numeric_")
"""Model fields that start so are not given values per world."""
SET_CONST = frozenset(getattr(mujoco.MjModel, "_setconst_inputs", (
    "qpos0", "qpos_spring", "body_pos", "body_quat", "body_ipos", "body_iquat", "body_mass", "body_inertia",
    "body_gravcomp", "jnt_pos", "jnt_axis", "dof_armature", "geom_pos", "geom_quat", "site_pos", "site_quat", "cam_pos",
    "cam_quat", "light_pos", "light_dir", "eq_data", "tendon_stiffness", "tendon_damping", "tendon_armature",
    "actuator_cranklength", "actuator_gear")))  # fmt: skip
"""Model fields that mj_setConst derives others from."""
CHUNKS = 4  # per thread, so that who is done early takes over
_TOLD: list[str] = []


def engine_class(name: str) -> Any:
    """The class that steps the worlds: ``batch``, ``threads``, or ``auto`` for ``batch`` where MuJoCo has it."""
    if name not in ENGINES:
        raise ValueError(f"engine is {name!r}; it must be one of {', '.join(ENGINES)}")
    if name == "batch" and Batch is None:
        raise ModuleNotFoundError(f"engine batch needs mujoco >= 3.17 for mujoco.batch, and this is mujoco "
                                  f"{mujoco.__version__}: pip install -U mujoco, or take engine=threads")
    if name == "auto" and Batch is None and not _TOLD:
        _TOLD.append(name)
        log.warning(
            "engine auto: threads, because mujoco %s has no mujoco.batch (it came with 3.17). Results are the same; "
            "each step costs 2 to 20 us more for each world, in Python and one world after the other, and once a "
            "parameter is set each world has its own copy of the model", mujoco.__version__)
    return Threads if name == "threads" or Batch is None else Batch


class Seat:
    """What one thread works with."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self.data = mujoco.MjData(model)
        self.warned, self.info = self.data.warning.number, self.data.warning.lastinfo
        self.outputs: list[tuple[np.ndarray, list[np.ndarray]]] = []  # where they lie, and each world's row


class Threads:
    """``nsim`` worlds of a copy of ``model`` on ``nthread`` threads (0: every core), as ``mujoco.batch.Batch``.

    Attributes:
        state: [N, S] float64, the worlds' rows; :meth:`bind` gives views of them.
        warning: [N, kinds, 2] int32: last info and count of MuJoCo's warnings since the world's last reset.
    """

    def __init__(self, model: mujoco.MjModel, nsim: int, nthread: int = 0) -> None:
        if nsim < 1 or nthread < 0:
            raise ValueError(f"nsim is {nsim} and nthread {nthread}; they must be at least 1 and at least 0")
        if model.opt.enableflags & SLEEP:
            raise ValueError("a model whose bodies sleep has a state beyond its rows: disable <flag sleep> in it")
        self.nsim, self.nthread = nsim, min(nthread or len(os.sched_getaffinity(0)), nsim)
        self.model = copy.copy(model)
        self._models: list[mujoco.MjModel] = [self.model] * nsim
        self._own = self._const = False  # whether each world has a model, and constants of its own
        self._seats = [Seat(self.model) for _ in range(self.nthread)]
        self._layout = _layout(self.model)
        # live; as bits, the same and what was written to the models
        self._expanded: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._bound: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # outputs, and the same to be read only
        self._failed: dict[int, str] = {}
        first = np.empty(mujoco.mj_stateSize(self.model, WHOLE))
        mujoco.mj_getState(self.model, self._seats[0].data, first, WHOLE)
        self.state = np.tile(first, (nsim, 1))
        self.warning = np.zeros((nsim, len(self._seats[0].warned), 2), dtype=np.int32)
        self._rows = list(self.state)
        self._pool = ThreadPoolExecutor(self.nthread - 1) if self.nthread > 1 else None
        if self._pool is not None:
            weakref.finalize(self, self._pool.shutdown, wait=False)

    # ---- arrays

    def bind(self, name: str) -> np.ndarray:
        """A live array [N, ...] of an MjData field: a view of the rows, or an output, to be read only."""
        if name in self._layout:
            first, size = self._layout[name]
            view = self.state[:, first : first + size]
            return view[:, 0] if name == "time" else view.reshape(self.nsim, *_field(self._seats[0].data, name).shape)
        if name not in self._bound:
            template = _field(self._seats[0].data, name)
            out = np.zeros((self.nsim, *template.shape), template.dtype)
            for seat in self._seats:
                seat.outputs.append((_field(seat.data, name), _rows(out)))
            self._bound[name] = out, out.view()
            self._bound[name][1].flags.writeable = False
        return self._bound[name][1]

    def expand(self, name: str) -> np.ndarray:
        """A live array [N, ...] of a model field's values per world; fields of MjOption are ``opt.<name>``."""
        if name not in self._expanded:
            _value(self.model, name)
            self._part()
            live = np.stack([_value(m, name) for m in self._models])
            bits = live.reshape(self.nsim, -1).view(f"u{live.itemsize}")
            self._expanded[name] = live, bits, bits.copy()
        return self._expanded[name][0]

    def expanded(self, name: str) -> np.ndarray | None:
        """Values [N, ...] of a model field, not to be written; None while all worlds share them."""
        if name not in self._expanded and not self._const:
            return None
        out = self._expanded[name][0].view() if name in self._expanded else np.stack(
            [_value(m, name) for m in self._models])
        out.flags.writeable = False
        return out

    def _part(self) -> None:
        """Give each world a model of its own."""
        if not self._own:
            self._models, self._own = [copy.copy(self.model) for _ in range(self.nsim)], True

    def _write_models(self) -> None:
        """What was written to the expanded fields since the last call goes to the worlds' models."""
        for name, (live, bits, written) in self._expanded.items():
            for sim in np.flatnonzero((bits != written).any(1)).tolist():
                _set(self._models[sim], name, live[sim])
                written[sim] = bits[sim]

    # ---- calls

    def step(self, ids: np.ndarray | None = None, nstep: int = 1, stage: int = NONE) -> None:
        """``nstep`` times mj_step in each world, then the stages up to ``stage`` (mjtStage) at the new state."""

        def advance(seat: Seat, sim: int) -> None:
            model, data = self._models[sim], seat.data
            mujoco.mj_setState(model, data, self._rows[sim], WHOLE)
            mujoco.mj_step(model, data, nstep)
            stages(model, data, stage)

        self._each(ids, advance)

    def forward(self, ids: np.ndarray | None = None, stage: int = ACC) -> None:
        """The stages up to ``stage``, by default mj_forward."""

        def compute(seat: Seat, sim: int) -> None:
            mujoco.mj_setState(self._models[sim], seat.data, self._rows[sim], WHOLE)
            stages(self._models[sim], seat.data, stage)

        self._each(ids, compute)

    def reset(self, ids: np.ndarray | None = None, stage: int = ACC) -> None:
        """The model's defaults, then the stages up to ``stage``. Warnings are counted from here."""

        def clear(seat: Seat, sim: int) -> None:
            mujoco.mj_resetData(self._models[sim], seat.data)
            self.warning[sim] = 0
            stages(self._models[sim], seat.data, stage)

        self._each(ids, clear)

    def set_const(self, ids: np.ndarray | None = None) -> None:
        """mj_setConst in each world: what MuJoCo derives from masses, places, ... follows them."""
        self._part()
        self._write_models()
        self._const = True
        sims = _sims(ids, self.nsim)
        for sim in sims:
            mujoco.mj_setConst(self._models[sim], self._seats[0].data)
        for name, (live, bits, written) in self._expanded.items():
            for sim in sims:
                live[sim] = _value(self._models[sim], name)
                written[sim] = bits[sim]

    def error(self, sim: int) -> str:
        """What MuJoCo said when ``sim`` failed in the last call, or ""."""
        return self._failed.get(sim, "")

    def _each(self, ids: np.ndarray | None, work: Callable[[Seat, int], None]) -> None:
        sims = _sims(ids, self.nsim)
        self._write_models()
        self._failed = {}
        size = -(-len(sims) // (CHUNKS * self.nthread))
        todo = deque(sims[k : k + size] for k in range(0, len(sims), size or 1))
        # a thread to each chunk but one, at most: seat 0 is the caller's
        helpers = [self._pool.submit(self._take, k, todo, work) for k in range(1, min(self.nthread, len(todo)))
                   ] if self._pool is not None else []
        try:
            self._take(0, todo, work)
        finally:
            wait(helpers)
        for helper in helpers:
            helper.result()
        if self._failed:
            failed = np.array(sorted(self._failed), dtype=np.int32)
            raise SimulationError(failed, self._failed[int(failed[0])], len(sims))

    def _take(self, seat: int, todo: deque[list[int]], work: Callable[[Seat, int], None]) -> None:
        """Work on chunks of worlds until none is left."""
        for chunk in _taken(todo):
            for sim in chunk:
                try:
                    work(self._seats[seat], sim)
                except mujoco.FatalError as error:
                    self._failed[sim] = str(error)
                    self._seats[seat] = self._another()
                else:
                    self._save(self._seats[seat], sim)

    def _another(self) -> Seat:
        """A seat instead of one whose MjData an error left in the middle of a step."""
        seat = Seat(self.model)
        for name, (out, _) in self._bound.items():
            seat.outputs.append((_field(seat.data, name), _rows(out)))
        return seat

    def _save(self, seat: Seat, sim: int) -> None:
        mujoco.mj_getState(self._models[sim], seat.data, self._rows[sim], WHOLE)
        for source, rows in seat.outputs:
            rows[sim][...] = source
        if seat.warned.any():
            kinds = seat.warned > 0
            self.warning[sim, kinds, 0] = seat.info[kinds]
            self.warning[sim, :, 1] += seat.warned
            seat.warned[:] = 0


def stages(model: mujoco.MjModel, data: mujoco.MjData, stage: int) -> None:
    """MuJoCo's pipeline up to ``stage``, sensors included, after its checks of the state, as the batch does it."""
    if stage >= POS:
        mujoco.mj_checkPos(model, data)
        mujoco.mj_checkVel(model, data)
    if stage >= ACC:
        mujoco.mj_forward(model, data)
    elif stage >= POS:
        mujoco.mj_fwdPosition(model, data)
        mujoco.mj_sensorPos(model, data)
        energy = model.opt.enableflags & ENERGY
        if energy:
            mujoco.mj_energyPos(model, data)
        if stage >= VEL:
            mujoco.mj_fwdVelocity(model, data)
            mujoco.mj_sensorVel(model, data)
            if energy:
                mujoco.mj_energyVel(model, data)


def _layout(model: mujoco.MjModel) -> dict[str, tuple[int, int]]:
    """First column and size in the rows, by field of MjData that is state in this version of MuJoCo."""
    bits = {int(bit): name for name, end in STATE.items()
            if (bit := getattr(mujoco.mjtState, f"mjSTATE_{end}", None)) is not None}
    found, first = {}, 0
    for bit in sorted(bits):  # MuJoCo packs them in this order
        size = mujoco.mj_stateSize(model, bit)
        found[bits[bit]], first = (first, size), first + size
    whole = mujoco.mj_stateSize(model, WHOLE)
    if first != whole:
        raise NotImplementedError(f"mujoco {mujoco.__version__} keeps {whole - first} numbers of state that engine "
                                  "threads does not know; take engine=batch")
    return found


def _field(data: mujoco.MjData, name: str) -> np.ndarray:
    value = getattr(data, name, None)
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{name} is not an array of MjData in mujoco {mujoco.__version__}")
    return value


def _value(model: mujoco.MjModel, name: str) -> np.ndarray:
    """A model field, or an option as [] or [k]."""
    owner, field = (model.opt, name[4:]) if name.startswith("opt.") else (model, name)
    value = getattr(owner, field, None)
    asset = owner is model and field.startswith(ASSETS)
    if owner is model.opt and isinstance(value, (int, float)):
        return np.asarray(value, dtype=np.int32 if isinstance(value, int) else np.float64)
    if asset or not isinstance(value, np.ndarray):
        raise ValueError(f"{name} is not a field of MjModel (opt.<name>: of MjOption) that can differ between worlds "
                         f"in mujoco {mujoco.__version__}")
    return value


def _set(model: mujoco.MjModel, name: str, value: np.ndarray) -> None:
    if name.startswith("opt.") and value.ndim == 0:
        setattr(model.opt, name[4:], value.item())
    else:
        _value(model, name)[...] = value


def _sims(ids: np.ndarray | None, nsim: int) -> list[int]:
    """The worlds ``ids``: whole numbers below ``nsim``, rising; None: all."""
    if ids is None:
        return list(range(nsim))
    ids = np.asarray(ids)
    if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
        raise ValueError(f"ids must be whole numbers [K], got {ids.dtype} {ids.shape}")
    if ids.size and (ids[0] < 0 or ids[-1] >= nsim or not (ids[1:] > ids[:-1]).all()):
        raise ValueError(f"ids must be sorted, unique and in [0, {nsim}), got {ids.tolist()}")
    found: list[int] = ids.tolist()
    return found


def _rows(out: np.ndarray) -> list[np.ndarray]:
    """Each world's part of an output [N, ...], as a view."""
    return [out[sim, ...] for sim in range(len(out))]


def _taken(todo: deque[list[int]]) -> Iterator[list[int]]:
    """The chunks that no other thread has taken."""
    while True:
        try:
            yield todo.popleft()
        except IndexError:
            return
