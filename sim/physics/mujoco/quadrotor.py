"""N quadrotors in MuJoCo, on CPU threads: what :func:`temporeal.sim.backends.mujoco.make` makes for them.

A second opinion on the backend ``quadrotor``: rigid body, contact and integration are MuJoCo's, the rest is
:mod:`temporeal.sim.physics.quadrotor.rotor`. Computed in float64; tensors that leave are float32 copies.

A world whose command or state is not finite is flagged in ``bad`` [N] and stays as it was before that control step
until it is reset. The other worlds are not affected.
"""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch, SimulationError
from torch import Tensor

from temporeal.sim.physics.checks import check_ids, check_state, check_step, check_world
from temporeal.sim.physics.host import float64
from temporeal.sim.physics.mujoco import quadrotor_model as models
from temporeal.sim.physics.mujoco.log import KINDS, counted, quiet
from temporeal.sim.physics.quadrotor.rotor import SIZES, Rotors, flight_parameters
from temporeal.sim.physics.setup import Setup, every_core
from temporeal.sim.types import Status

HAS = ("deterministic", "full_state", "wrench", "delay", "mass")
COMPONENT_FIRST = ("rotor_speed", "current", "previous")  # the rotors' arrays are [k, N]
STATE_FIELDS = ("qpos", "qvel", "qacc_warmstart", "time")


class QuadrotorWorlds:
    """N worlds of one quadrotor (:class:`temporeal.sim.types.Backend`)."""

    name = "mujoco"
    capabilities = frozenset(HAS)
    snapshot = True  # it costs nothing here: bad worlds are put back

    def __init__(self, setup: Setup) -> None:
        robot, num_worlds, dt = setup.scene.robot, setup.num_worlds, setup.dt
        self.scene, self.robot, self.command, self.num_worlds = setup.scene, robot, setup.command, num_worlds
        self.parameters = flight_parameters(robot)
        self.dt, self.device, self.seed = dt, setup.device, setup.seed
        self.model = models.build(robot, dt)
        self.rotors = Rotors(robot, models.layout(self.model), num_worlds, setup.command, dt)
        self.batch = Batch(self.model, num_worlds, nthread=every_core(setup.threads))
        self._rows = {name: self.batch.bind(name) for name in (*STATE_FIELDS, "ctrl", "qfrc_applied")}
        self._fields = {name: self.batch.expand(name) for name in models.PER_WORLD}
        self._bad = np.zeros(num_worlds, dtype=bool)
        self._before: dict[str, np.ndarray] = {}
        self._counts = np.zeros(len(KINDS), dtype=np.int64)  # of warnings, in worlds that were reset since
        self.bad = torch.from_numpy(self._bad)
        self._write_params(np.arange(num_worlds))
        self.reset(torch.arange(num_worlds), {})

    def reset(self, ids: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set the worlds ``ids`` [K] to ``state`` [K, ...]: any of the signals, home for those left out.

        Rotors turn at ``rotor_speed`` [K, 4] if given, else at hover speed. The previous command becomes what keeps
        the rotors as they are (``motor_cmd``: their speeds, ``ctbr_cmd``: the weight as thrust and zero rates).
        """
        worlds = check_ids(ids, self.num_worlds).cpu().numpy()
        given = {name: float64(value) for name, value in state.items()}
        models.check_reset_names(given)
        values = {n: models.reset_value(self.robot, n, given, len(worlds)) for n in models.STATE_SIGNALS}
        speed = None
        if "rotor_speed" in given:
            speed = models.reset_value(self.robot, "rotor_speed", given, len(worlds))
        if not len(worlds):
            return
        self._counts += self.batch.warning[worlds, :, 1].sum(0)
        self.batch.reset(np.sort(worlds), stage=int(mujoco.mjtStage.mjSTAGE_NONE))
        rows = self._rows
        rows["qpos"][worlds] = np.concatenate([values["base_pos_w"], values["base_quat_w"]], 1)
        rows["qvel"][worlds] = np.concatenate([values["base_vel_w"], values["base_ang_vel_b"]], 1)
        self.rotors.reset(worlds, speed)
        self._bad[worlds] = False

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds but the ``bad`` ones by ``substeps`` physics steps under ``ctrl`` [N, 4]."""
        check_step(self.command, ctrl, (self.num_worlds, 4), substeps)
        self._before = before = self._snapshot()
        given = float64(ctrl)
        self._bad |= ~np.isfinite(given).all(1)
        self.rotors.take(np.where(self._bad[:, None], 0.0, given) if self._bad.any() else given)
        for k in range(substeps):
            self._substep(k * self.dt)
        if self._bad.any():
            self._put_back(before)

    def _substep(self, time: float) -> None:
        rows, rotors = self._rows, self.rotors
        qvel = rows["qvel"].T
        thrust, force = rotors.advance(rows["qpos"].T[3:], qvel[:3], qvel[3:], time)
        rows["ctrl"][:] = thrust.T
        rows["qfrc_applied"][:, :3], rows["qfrc_applied"][:, 3:] = force.T, rotors.params["torque_b"].T
        self._flag("ctrl", "qfrc_applied")  # before MuJoCo sees it: it would only fill its log
        if not self._bad.any():
            self._advance(None)
        elif not self._bad.all():
            self._advance(np.flatnonzero(~self._bad))
        self._flag("qpos", "qvel")

    def _advance(self, ids: np.ndarray | None) -> None:
        try:
            with quiet():
                self.batch.step(ids)
        except SimulationError as error:
            self._bad[np.asarray(error.ids)] = True

    def _flag(self, *names: str) -> None:
        for name in names:
            rows = self._rows[name]
            if not np.abs(rows).max() < models.LIMIT:  # false for NaN too
                self._bad |= ~(np.abs(rows) < models.LIMIT).all(1)

    def _snapshot(self) -> dict[str, np.ndarray]:
        rotors = self.rotors
        return {name: self._rows[name].copy() for name in STATE_FIELDS} | {
            "rotor_speed": rotors.speed.copy(), "current": rotors.current.copy(), "previous": rotors.previous.copy()}

    def _put_back(self, before: Mapping[str, np.ndarray]) -> None:
        """Worlds that went bad: the state before this control step, and no forces that could trip the next guard."""
        bad, rotors = self._bad, self.rotors
        for name in STATE_FIELDS:
            self._rows[name][bad] = before[name][bad]
        self._rows["ctrl"][bad], self._rows["qfrc_applied"][bad] = 0.0, 0.0
        for name, value in (("rotor_speed", rotors.speed), ("current", rotors.current), ("previous", rotors.previous)):
            value[:, bad] = before[name][:, bad]

    def signals(self) -> dict[str, Tensor]:
        """The robot's signals, ``rotor_speed``, ``force_w`` and ``torque_b``: float32 copies, [N, ...] each."""
        qpos, qvel, params = self._rows["qpos"], self._rows["qvel"], self.rotors.params
        values = {
            "base_pos_w": qpos[:, :3], "base_quat_w": qpos[:, 3:], "base_vel_w": qvel[:, :3],
            "base_ang_vel_b": qvel[:, 3:], "height": qpos[:, 2], "rotor_speed": self.rotors.speed.T,
            "force_w": params["force_w"].T, "torque_b": params["torque_b"].T,
        }  # fmt: skip
        return {name: self._tensor(value) for name, value in values.items()}

    def params(self) -> dict[str, Tensor]:
        """Copies of the parameters of all worlds by name, float32 [N, ...] each."""
        return {
            name: self._tensor(value[0] if SIZES[name] == 1 else value.T) for name, value in self.rotors.params.items()
        }

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set physical parameters of the worlds ``ids`` [K]: [K, ...] by the names of ``rotor.SIZES``."""
        worlds = check_ids(ids, self.num_worlds).cpu().numpy()
        self.rotors.set_params(worlds, {name: float64(value) for name, value in params.items()})
        if set(params) & {"mass", "inertia", "arm", "torque_per_thrust"}:
            self._write_params(worlds)

    def _write_params(self, worlds: np.ndarray) -> None:
        if len(worlds):
            models.write_params(self._fields, worlds, self.rotors, self.model)
            self.batch.set_const(np.sort(worlds))

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that a bit-exact continuation needs, float64 on the CPU."""
        rotors = self.rotors
        arrays = {name: self._rows[name] for name in STATE_FIELDS}
        arrays |= {"rotor_speed": rotors.speed, "current": rotors.current, "previous": rotors.previous}
        arrays |= {f"param.{name}": value for name, value in rotors.params.items()}
        return {name: torch.from_numpy(np.array(value)) for name, value in arrays.items()} | {"bad": self.bad.clone()}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; the number of worlds must be the same."""
        check_state(self.state(), state)
        new, rotors = {name: value.detach().cpu().numpy() for name, value in state.items()}, self.rotors
        for name in STATE_FIELDS:
            self._rows[name][:] = new[name]
        rotors.speed[:], rotors.current[:], rotors.previous[:] = new["rotor_speed"], new["current"], new["previous"]
        for name, param in rotors.params.items():
            param[:] = new[f"param.{name}"]
        self._bad[:] = new["bad"]
        rotors.refresh()
        self._write_params(np.arange(self.num_worlds))

    def status(self) -> Status:
        """Bad worlds; nothing here can overflow but contacts, of which a quadrotor has few."""
        return Status(self.bad.clone().to(self.device), torch.zeros_like(self.bad).to(self.device),
                      counted(self._counts + self.batch.warning[:, :, 1].sum(0)))

    def extract(self, world: int, *, before: bool = False) -> dict[str, Tensor]:
        """The state of one world; ``before``: as it was before the last step."""
        world = check_world(world, self.num_worlds)
        if before and not self._before:
            raise ValueError("extract: no step has been made yet, so there is no state before it")
        found = self.state() | ({name: torch.from_numpy(v) for name, v in self._before.items()} if before else {})
        if before:
            found["bad"] = torch.zeros_like(found["bad"])
        return {name: (value[..., world : world + 1] if name in COMPONENT_FIRST or name.startswith("param.")
                       else value[world : world + 1]).clone() for name, value in found.items()}

    def close(self) -> None:
        """End the threads."""
        for name in ("batch", "_rows", "_fields"):
            self.__dict__.pop(name, None)

    def _tensor(self, value: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(value, dtype=np.float32, order="C")).to(self.device)
