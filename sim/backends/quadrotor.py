"""Many quadrotors at once: the physics of :mod:`temporeal.sim.physics.quadrotor.dynamics`, on CPU threads or a GPU.

    backend = make(load_robot("crazyflie"), 1024, "ctbr_cmd", dt=0.002)
    backend.step(ctrl, substeps=10)          # ctrl [1024, 4]: a control step of 20 ms
    backend.signals()["base_pos_w"]          # [1024, 3]

``signals()`` fills tensors that the backend owns: they are valid until the next ``signals()`` call. ``force_w`` and
``torque_b`` are live views of the parameters.

Commands are taken as given, except that rotor speed setpoints are limited to [0, 1] and the mixer limits thrusts. A
command that is not finite makes the position of its world not finite until a reset. With ``ctbr_cmd`` the rate loop and
mixer of the robot's own controller run at every physics step, with the robot's *nominal* parameters: the controller on
the robot does not know the true ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import RobotSpec
from temporeal.sim.capabilities import require, require_kind
from temporeal.sim.physics.checks import check_ids, check_state, check_step, check_world
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor.layout import (
    BLOCK,
    COMMAND,
    COMMANDS,
    FIELDS,
    PARAMETERS,
    POSITIVE,
    SIGNALS,
    shape_of,
)
from temporeal.sim.physics.quadrotor.parameters import controller_params, hover_speed, nominal_params, pack_params
from temporeal.sim.physics.quadrotor.residual import residual_file
from temporeal.sim.physics.quadrotor.residual.member import CHOICES, DRAWN, Members
from temporeal.sim.physics.quadrotor.residual.residual_file import Residual
from temporeal.sim.physics.quadrotor.rotor import flight_parameters
from temporeal.sim.physics.quadrotor.runners import Arrays, ResidualRunner, as_command, checked_device, runner_of
from temporeal.sim.physics.setup import Setup, setup_of
from temporeal.sim.scene import Scene
from temporeal.sim.types import Status

HAS = ("deterministic", "full_state", "wrench", "delay", "mass", "cuda")
LONGEST_STEP = 0.1  # s


def make(
    what: Scene | RobotSpec, num_worlds: int, command: str, *, dt: float, device: str = "cpu", seed: int = 0,
    threads: int = 0, needs: Iterable[str] = (), shared: bool = False, residual_dynamics: str = "",
    residual_members: str = DRAWN,
) -> Quadrotor:
    """The backend for ``num_worlds`` worlds of a quadrotor, alone or as a scene without objects.

    Args:
        command: ``"motor_cmd"`` (normalized rotor speed setpoints) or ``"ctbr_cmd"`` (thrust [N], body rates [rad/s]).
        dt: physics step, s.
        device: ``"cpu"`` or ``"cuda"``.
        seed: kept for the caller; the physics draws no random numbers.
        threads: CPU threads; 0 takes every core this process may use.
        needs: capabilities (:mod:`temporeal.sim.capabilities`) that the caller cannot do without.
        shared: with ``motor_cmd`` on a CPU, take a kernel half as fast again while all worlds have the same parameters
            without drag and delay. It rounds differently, so a world's last bits depend on whether the others are like
            it: such a backend is not ``deterministic``.
        residual_dynamics: a file of ``temporeal identify --residual``: what the robot's logs show beyond the physics,
            and the physics under it, which take the place of the spec's nominal ones; "": none.
        residual_members: ``"drawn"``: in each episode another member of its ensemble flies; ``"mean"`` of them.
    """
    setup = setup_of(what, num_worlds, command, dt, device, seed, threads)
    robot = setup.scene.robot
    has = require("quadrotor", set(HAS) - {"deterministic"} if shared else HAS,
                  {*needs, *(["objects"] if setup.scene.objects else [])})
    require_kind("quadrotor", robot.name, robot.kind)
    if command not in COMMANDS:
        raise UnknownName(f"backend quadrotor has no command {command!r}; known: {', '.join(COMMANDS)}")
    if not 0.0 < dt <= LONGEST_STEP:
        raise ValueError(f"dt is {dt} s; it must lie in (0, {LONGEST_STEP:g}]")
    place = checked_device(device)
    if residual_members not in CHOICES:
        raise UnknownName(f"residual_members is {residual_members!r}; known: {', '.join(CHOICES)}")
    if residual_dynamics and (shared or place.type != "cpu"):
        raise ValueError("residual_dynamics are for device cpu, without shared: the kernels on a GPU and those for "
                         f"worlds that are all alike know none; got device {device}, shared {shared}")
    worn = residual_of(Path(residual_dynamics), robot) if residual_dynamics else None
    return Quadrotor(setup, has, shared, worn, residual_members)


def residual_of(path: Path, robot: RobotSpec) -> Residual:
    """The residual dynamics of a file, if they are of ``robot``; said aloud if they are of slowly logged commands."""
    found = residual_file.read(path)
    found.of_spec(robot, str(path))
    if found.slow_commands:
        warnings.warn(f"{path} was trained on commands that were logged more slowly than the robot's loop makes them: "
                      "it holds part of that loop, which a policy that commands motors replaces", stacklevel=3)
    return found


class Quadrotor:
    """N quadrotors (:class:`temporeal.sim.types.Backend`); build it with :func:`make`.

    The state is one flat array of blocks (:mod:`temporeal.sim.physics.quadrotor.layout`), padded to whole blocks.
    """

    name = "quadrotor"

    def __init__(self, setup: Setup, capabilities: frozenset[str], shared: bool, residual: Residual | None = None,
                 residual_members: str = DRAWN) -> None:
        n, device, robot = setup.num_worlds, setup.device, setup.scene.robot
        self.capabilities, self.scene, self.robot, self.command = capabilities, setup.scene, robot, setup.command
        self.num_worlds, self.dt, self.device, self.seed = n, setup.dt, device, setup.seed
        self.parameters, self.snapshot = flight_parameters(robot), False
        blocks = -(-n // BLOCK)
        self._state = torch.zeros(blocks, FIELDS, BLOCK, device=device)
        self._before = torch.zeros_like(self._state)
        self._kept = False  # whether that is the state before the last step
        self.bad = torch.zeros(n, dtype=torch.bool, device=device)  # what goes wrong shows in the signals
        self._params = torch.zeros(blocks, physics.PARAM_SIZE, BLOCK, device=device)
        self._nominal = torch.from_numpy(controller_params(robot)).to(device)
        self.residual = residual
        under = {} if residual is None else {name: each["value"] for name, each in residual.physics.items()}
        self._values = {name: torch.tensor(value, device=device).expand(n, -1).clone().reshape(n, *shape_of(name))
                        for name, value in (nominal_params(robot) | under).items()}
        self._out = {name: torch.zeros(n, size, device=device) for name, (_, size) in SIGNALS.items()}
        self._out["height"] = torch.zeros(n, device=device)
        arrays = Arrays(n, setup.dt, self._state, self._params, self._nominal, self._out)
        if residual is None:
            self._members, self.runner = None, runner_of(arrays, setup.command, setup.threads, shared)
        else:
            self._members = Members(residual_members, residual.ensemble.members, n, setup.seed)
            self.runner = ResidualRunner(arrays, setup.command, setup.threads, residual.ensemble, self._members.shares)
        self._scatter_params(torch.arange(n, device=device), padding=True)
        self.reset(torch.arange(n, device=device), {})
        self._state[-1, :, _used(n) :] = self._state[-1, :, :1]

    def reset(self, ids: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set the worlds ``ids`` [K] to ``state`` [K, ...]: any of the signals, home for those left out.

        Rotors turn at ``rotor_speed`` [K, 4] if given, else at hover speed. The previous command becomes what keeps
        the rotors as they are (``motor_cmd``: their speeds, ``ctbr_cmd``: the weight as thrust and zero rates).
        ``height`` is part of the position and is not read.
        """
        ids = check_ids(ids, self.num_worlds).to(self.device)
        unknown = set(state) - set(SIGNALS) - {"height"}
        if unknown:
            raise UnknownName(f"reset: unknown signals {sorted(unknown)}; known: {', '.join(SIGNALS)}")
        params = {name: self._values[name][ids] for name in ("mass", "thrust_curve", "motor_gain")}
        values = {n: self._reset_value(n, size, state, params, len(ids)) for n, (_, size) in SIGNALS.items()}
        _require_finite("reset", values)
        values["base_quat_w"] = _unit_quaternion(values["base_quat_w"])
        values["rotor_speed"] = values["rotor_speed"].clamp(0, 1)
        before = values["rotor_speed"] if self.command == "motor_cmd" else _hold_rates(params)
        fields = [(SIGNALS[name][0], value) for name, value in values.items()] + [(COMMAND, before)]
        places = torch.cat([torch.arange(first, first + value.shape[1]) for first, value in fields]).to(self.device)
        rows = torch.cat([value for _, value in fields], 1)
        self._state[(ids // BLOCK)[:, None], places, (ids % BLOCK)[:, None]] = rows
        if self._members is not None:
            self._members.draw(ids)

    def _reset_value(
        self, name: str, size: int, state: Mapping[str, Tensor], params: Mapping[str, Tensor], count: int
    ) -> Tensor:
        if name in state:
            value = state[name].to(self.device, torch.float32)
            if value.shape != (count, size):
                raise ValueError(f"reset: {name} has shape {tuple(value.shape)}, expected {(count, size)}")
            return value
        if name == "rotor_speed":
            return hover_speed(params)
        return torch.tensor(self.robot.home[name], device=self.device).expand(count, size)

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds by ``substeps`` physics steps under the command ``ctrl`` float32 [N, 4]."""
        check_step(self.command, ctrl, (self.num_worlds, 4), substeps)
        ctrl = as_command(ctrl, self.device)
        self._kept = bool(self.snapshot)
        if self._kept:
            self._before.copy_(self._state)
        self.runner.step(ctrl, substeps)

    def signals(self) -> dict[str, Tensor]:
        """The robot's signals, ``rotor_speed``, ``force_w`` and ``torque_b``, [N, ...] each.

        Tensors of the backend, overwritten by the next call.
        """
        self.runner.read()
        return self._out | {"force_w": self._values["force_w"], "torque_b": self._values["torque_b"]}

    def params(self) -> dict[str, Tensor]:
        """The parameters of all worlds by name, [N, ...] each: views, change them with :meth:`set_params` only."""
        return dict(self._values)

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set physical parameters of the worlds ``ids`` [K]: [K, ...] by the names of :data:`PARAMETERS`."""
        ids = check_ids(ids, self.num_worlds).to(self.device)
        checked = {name: self._check_param(name, value, len(ids)) for name, value in params.items()}
        _require_finite("set_params", checked)
        positive = {name: checked[name] for name in POSITIVE if name in checked}
        if positive and not bool((_together(positive) > 0).all()):
            name = next(n for n, v in positive.items() if not (v > 0).all())
            raise ValueError(f"set_params: {name} must be > 0, got {float(positive[name].min())}")
        if "command_delay" in checked and not bool((checked["command_delay"] >= 0).all()):
            raise ValueError(f"set_params: command_delay must be >= 0 s, got {float(checked['command_delay'].min())}")
        if self.residual is not None:
            for name, value in checked.items():  # all of them before any is written
                self.residual.of_physics(name, value.double().numpy(), "residual_dynamics")
        for name, value in checked.items():
            self._values[name][ids] = value
        self._scatter_params(ids)

    def accepts(self, name: str, ends: Iterable[Iterable[float]]) -> None:
        """Refuse draws of a parameter between ``ends`` that residual dynamics are not on top of."""
        if self.residual is not None:
            for values in ends:
                self.residual.of_physics(name, np.array([list(values)]), "residual_dynamics")

    def limits(self) -> dict[str, tuple[Tensor, Tensor]]:
        """By parameter, the least and greatest [size] that residual dynamics are on top of: draws without an end are
        cut to them."""
        return {} if self.residual is None else {
            name: (torch.from_numpy(least), torch.from_numpy(most))
            for name, (least, most) in self.residual.limits().items()}

    def _check_param(self, name: str, value: Tensor, count: int) -> Tensor:
        if name not in PARAMETERS:
            raise UnknownName(f"set_params: unknown parameter {name!r}; known: {', '.join(PARAMETERS)}")
        value = torch.as_tensor(value).to(self.device, torch.float32)
        if value.shape != (count, *shape_of(name)):
            raise ValueError(f"set_params: {name} has shape {tuple(value.shape)}, expected {(count, *shape_of(name))}")
        return value

    def _scatter_params(self, ids: Tensor, padding: bool = False) -> None:
        packed = pack_params({name: value[ids] for name, value in self._values.items()})
        self._params[ids // BLOCK, :, ids % BLOCK] = packed
        if padding:
            self._params[-1, :, _used(self.num_worlds) :] = self._params[-1, :, :1]
        self.runner.params_changed(self._values)

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that a bit-exact continuation needs."""
        drawn = {} if self._members is None else self._members.state()
        return {"state": self._state.clone()} | {f"param.{n}": v.clone() for n, v in self._values.items()} | drawn

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; the number of worlds must be the same."""
        check_state(self.state(), state)
        self._state.copy_(state["state"])
        for name, value in self._values.items():
            value.copy_(state[f"param.{name}"])
        if self._members is not None:
            self._members.set_state(state)
        self._scatter_params(torch.arange(self.num_worlds, device=self.device))

    def status(self) -> Status:
        """Worlds whose state is not finite; there is nothing that could overflow."""
        bad = ~torch.isfinite(self._state).all(1).reshape(-1)[: self.num_worlds]
        return Status(bad, torch.zeros_like(bad), {})

    def extract(self, world: int, *, before: bool = False) -> dict[str, Tensor]:
        """The state of one world; ``before``: as it was before the last step, which was made with ``snapshot``."""
        world = check_world(world, self.num_worlds)
        if before and not self._kept:
            raise ValueError("extract: the state before a step is kept only where snapshot was true in that step")
        block = (self._before if before else self._state)[world // BLOCK, :, world % BLOCK]
        state = block[None, :, None].repeat(1, 1, BLOCK)
        drawn = {} if self._members is None else self._members.state()
        return {"state": state} | {f"param.{n}": v[world : world + 1].clone() for n, v in self._values.items()} | {
            name: value[world : world + 1] for name, value in drawn.items()}

    def close(self) -> None:
        """End the threads."""
        self.runner.close()


def _used(num_worlds: int) -> int:
    """Worlds in the last block."""
    return (num_worlds - 1) % BLOCK + 1


def _together(values: Mapping[str, Tensor]) -> Tensor:
    """All ``values`` [K, ...] side by side: one check of many small tensors instead of many."""
    return torch.cat([value.flatten(1) if value.dim() > 1 else value[:, None] for value in values.values()], 1)


def _require_finite(what: str, values: Mapping[str, Tensor]) -> None:
    if values and not bool(torch.isfinite(_together(values)).all()):
        name = next(n for n, v in values.items() if not torch.isfinite(v).all())
        raise ValueError(f"{what}: {name} has a non-finite value")


def _unit_quaternion(value: Tensor) -> Tensor:
    norm = value.norm(dim=-1, keepdim=True)
    if len(value) and not (norm > 1e-3).all():
        raise ValueError(f"reset: base_quat_w must have a norm near 1, got {float(norm.min())}")
    return value / norm


def _hold_rates(params: Mapping[str, Tensor]) -> Tensor:
    """The ``ctbr_cmd`` that carries the weight and turns nowhere, [K, 4]."""
    return torch.nn.functional.pad((physics.GRAVITY * params["mass"]).unsqueeze(-1), (0, 3))
