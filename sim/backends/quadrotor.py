"""Many quadrotors at once: the backend over :mod:`temporeal.sim.physics.quadrotor.dynamics`, on CPU threads or a CUDA
GPU.

    backend = make(load_robot("crazyflie"), 1024, "ctbr_cmd", dt=0.002)
    backend.step(ctrl, substeps=10)          # ctrl [1024, 4]: a control step of 20 ms
    backend.signals()["base_pos_w"]          # [1024, 3]

``signals()`` fills tensors that the backend owns: they are valid until the next ``signals()`` call. ``force_w`` and
``torque_b`` are live views of the parameters. Copy what must last.

A command is taken as given, except that rotor speed setpoints are limited to [0, 1] and the mixer limits thrusts. What
is not finite makes the position of its world not finite, until a reset.
In ``ctbr_cmd`` mode the rate loop and mixer of the robot's own controller run at every physics step; they use the
robot's *nominal* parameters, because the controller on the robot does not know the true ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import RobotSpec
from temporeal.sim.capabilities import require
from temporeal.sim.compiler.thread_pool import Crew
from temporeal.sim.physics.checks import check_ids, check_state, check_world
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor import kernels as kernels
from temporeal.sim.physics.quadrotor.kernels import COMMAND, FIELDS, LANES
from temporeal.sim.physics.quadrotor.rotor import flight_parameters
from temporeal.sim.scene import Scene, as_scene
from temporeal.sim.types import Status

HAS = ("deterministic", "full_state", "wrench", "delay", "mass", "cuda")
COMMANDS = ("motor_cmd", "ctbr_cmd")
SIGNAL_SIZES = {"base_pos_w": 3, "base_quat_w": 4, "base_vel_w": 3, "base_ang_vel_b": 3, "rotor_speed": 4}
STATE_FIELDS = {
    "base_pos_w": physics.PX, "base_quat_w": physics.QW, "base_vel_w": physics.VX,
    "base_ang_vel_b": physics.WX, "rotor_speed": physics.N0,
}  # fmt: skip
PARAM_FIELDS = {
    "mass": (physics.INV_MASS, 1), "inertia": (physics.JX, 3), "thrust_curve": (physics.C0, 3),
    "torque_per_thrust": (physics.REACTION, 1), "tau_up": (physics.RATE_UP, 1), "tau_down": (physics.RATE_DOWN, 1),
    "arm": (physics.ARM_X, 2), "drag": (physics.DRAG_X, 3), "motor_gain": (physics.GAIN0, 4),
    "rate_gain": (physics.RATE_GAIN_X, 3), "wind_w": (physics.WIND_X, 3), "force_w": (physics.FORCE_X, 3),
    "torque_b": (physics.TORQUE_X, 3), "command_delay": (physics.DELAY, 1),
}  # fmt: skip
"""Parameter name -> (first field, components) in the packed parameter set."""
DISTURBANCES = ("wind_w", "force_w", "torque_b", "command_delay")
POSITIVE = ("mass", "inertia", "torque_per_thrust", "tau_up", "tau_down", "arm")
RECIPROCAL = {"mass": physics.INV_MASS, "tau_up": physics.RATE_UP, "tau_down": physics.RATE_DOWN}


def make(
    what: Scene | RobotSpec, num_worlds: int, command: str, *, dt: float, device: str = "cpu", seed: int = 0,
    threads: int = 0, needs: Iterable[str] = (), shared: bool = False,
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
    """
    scene = as_scene(what)
    robot = scene.robot
    has = require("quadrotor", set(HAS) - {"deterministic"} if shared else HAS,
                  {*needs, *(["objects"] if scene.objects else [])})
    if robot.kind != "quadrotor":
        raise ValueError(f"backend quadrotor simulates quadrotors; robot {robot.name!r} is of kind {robot.kind!r}")
    if command not in COMMANDS:
        raise UnknownName(f"backend quadrotor has no command {command!r}; known: {', '.join(COMMANDS)}")
    if num_worlds < 1:
        raise ValueError(f"num_worlds is {num_worlds}; it must be at least 1")
    if not 0.0 < dt <= 0.1:
        raise ValueError(f"dt is {dt} s; it must lie in (0, 0.1]")
    place = checked_device(device)
    if place.type == "cpu":
        return Quadrotor(scene, num_worlds, command, dt, place, seed, CpuRunner(command, threads, shared), has)
    from temporeal.sim.physics.quadrotor.cuda import CudaRunner

    return Quadrotor(scene, num_worlds, command, dt, place, seed, CudaRunner(command), has)


def checked_device(device: str) -> torch.device:
    """The device called ``device``, if there are kernels for it and it is there."""
    place = torch.device(device)
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f"the quadrotor runs on 'cpu' or 'cuda', not on {device!r}")
    if place.type == "cuda":
        from temporeal.sim.physics.quadrotor.cuda import require_gpu

        require_gpu()
    return place


def nominal_params(robot: RobotSpec) -> dict[str, tuple[float, ...]]:
    """The parameters of ``robot`` by name, disturbances zero."""
    given = {name: robot.parameters[name].nominal for name in PARAM_FIELDS if name not in DISTURBANCES}
    return given | {name: (0.0,) * PARAM_FIELDS[name][1] for name in DISTURBANCES}


def controller_params(robot: RobotSpec) -> np.ndarray:
    """What the rate loop and mixer on the robot believe: the ``NOM_...`` values, float32 [NOMINAL_SIZE]."""
    p = {name: robot.parameters[name].nominal for name in ("inertia", "thrust_curve", "torque_per_thrust", "arm")}
    if p["thrust_curve"][2] <= 0:
        raise ValueError(f"thrust_curve {p['thrust_curve']} of {robot.name!r}: its quadratic coefficient must be > 0")
    return np.array(
        [*p["inertia"], *p["thrust_curve"], *p["torque_per_thrust"], *p["arm"]], dtype=np.float32
    )  # fmt: skip


def pack_params(params: Mapping[str, Tensor]) -> Tensor:
    """Parameters by name, [K, ...] each, in the form the derivative uses: [K, PARAM_SIZE]."""
    count = len(params["mass"])
    out = params["mass"].new_zeros(count, physics.PARAM_SIZE)
    for name, (field, size) in PARAM_FIELDS.items():
        out[:, field : field + size] = params[name].reshape(count, size)
    for field in RECIPROCAL.values():
        out[:, field] = out[:, field].reciprocal()
    out[:, physics.INV_JX : physics.INV_JZ + 1] = params["inertia"].reciprocal()
    return out


def hover_speed(params: Mapping[str, Tensor]) -> Tensor:
    """Rotor speed [K, 4] at which four equal rotors carry the weight: each thrust is m g / 4 by its own curve."""
    c0, c1, c2 = params["thrust_curve"].unsqueeze(-1).unbind(-2)
    thrust = (0.25 * physics.GRAVITY * params["mass"]).unsqueeze(-1) / params["motor_gain"]
    root = (c1 * c1 + 4 * c2 * (thrust - c0)).clamp_min(0).sqrt()
    return ((root - c1) / (2 * c2)).clamp(0, 1)


class Quadrotor:
    """N quadrotors (:class:`temporeal.sim.types.Backend`); build it with :func:`make`.

    State lives in one flat array of blocks (:mod:`temporeal.sim.physics.quadrotor.kernels`), padded to whole blocks.
    """

    def __init__(
        self, scene: Scene, num_worlds: int, command: str, dt: float, device: torch.device, seed: int, runner: Any,
        capabilities: frozenset[str],
    ) -> None:
        robot, self.capabilities = scene.robot, capabilities
        self.scene, self.robot, self.command, self.num_worlds = scene, robot, command, num_worlds
        self.parameters, self.snapshot = flight_parameters(robot), False
        self.dt, self.device, self.seed = dt, device, seed
        self.runner = runner
        blocks = -(-num_worlds // LANES)
        self._blocks = blocks
        self._state = torch.zeros(blocks, FIELDS, LANES, device=device)
        self._before = torch.zeros_like(self._state)
        self._kept = False  # whether that is the state before the last step
        self.bad = torch.zeros(num_worlds, dtype=torch.bool, device=device)  # what goes wrong shows in the signals
        self._params = torch.zeros(blocks, physics.PARAM_SIZE, LANES, device=device)
        self._nominal = torch.from_numpy(controller_params(robot)).to(device)
        self._values = {
            name: torch.tensor(value, device=device).expand(num_worlds, -1).clone().reshape(num_worlds, *_shape(name))
            for name, value in nominal_params(robot).items()
        }
        self._out = {
            name: torch.zeros(num_worlds, size, device=device) for name, size in SIGNAL_SIZES.items()
        } | {"height": torch.zeros(num_worlds, device=device)}
        runner.start(self)
        self._scatter_params(torch.arange(num_worlds, device=device), padding=True)
        self.reset(torch.arange(num_worlds, device=device), {})
        self._state[-1, :, _lanes(num_worlds) :] = self._state[-1, :, :1]

    def reset(self, ids: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set the worlds ``ids`` [K] to ``state`` [K, ...]: any of the signals, home for those left out.

        Rotors turn at ``rotor_speed`` [K, 4] if given, else at hover speed. The previous command becomes what keeps
        the rotors as they are (``motor_cmd``: their speeds, ``ctbr_cmd``: the weight as thrust and zero rates).
        ``height`` is part of the position and is not read.
        """
        ids = check_ids(ids, self.num_worlds).to(self.device)
        unknown = set(state) - set(SIGNAL_SIZES) - {"height"}
        if unknown:
            raise UnknownName(f"reset: unknown signals {sorted(unknown)}; known: {', '.join(SIGNAL_SIZES)}")
        params = {name: self._values[name][ids] for name in ("mass", "thrust_curve", "motor_gain")}
        values = {n: self._reset_value(n, size, state, params, len(ids)) for n, size in SIGNAL_SIZES.items()}
        _require_finite("reset", values)
        values["base_quat_w"] = _unit_quaternion(values["base_quat_w"])
        values["rotor_speed"] = values["rotor_speed"].clamp(0, 1)
        before = values["rotor_speed"] if self.command == "motor_cmd" else _hold_rates(params)
        fields = [(STATE_FIELDS[name], value) for name, value in values.items()] + [(COMMAND, before)]
        places = torch.cat([torch.arange(first, first + value.shape[1]) for first, value in fields]).to(self.device)
        rows = torch.cat([value for _, value in fields], 1)
        self._state[(ids // LANES)[:, None], places, (ids % LANES)[:, None]] = rows

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
        if ctrl.shape != (self.num_worlds, 4):
            raise ValueError(f"{self.command} has shape {tuple(ctrl.shape)}, expected {(self.num_worlds, 4)}")
        if substeps < 1:
            raise ValueError(f"substeps is {substeps}; it must be at least 1")
        ctrl = as_command(ctrl, self.device)
        self._kept = bool(self.snapshot)
        if self._kept:
            self._before.copy_(self._state)
        self.runner.step(self, ctrl, substeps)

    def signals(self) -> dict[str, Tensor]:
        """The robot's signals, ``rotor_speed``, ``force_w`` and ``torque_b``, [N, ...] each.

        Tensors of the backend, overwritten by the next call.
        """
        self.runner.read(self)
        return self._out | {"force_w": self._values["force_w"], "torque_b": self._values["torque_b"]}

    def params(self) -> dict[str, Tensor]:
        """The parameters of all worlds by name, [N, ...] each: views, change them with :meth:`set_params` only."""
        return dict(self._values)

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set physical parameters of the worlds ``ids`` [K]: [K, ...] by the names of :data:`PARAM_FIELDS`."""
        ids = check_ids(ids, self.num_worlds).to(self.device)
        checked = {name: self._check_param(name, value, len(ids)) for name, value in params.items()}
        _require_finite("set_params", checked)
        positive = {name: checked[name] for name in POSITIVE if name in checked}
        if positive and not bool((_together(positive) > 0).all()):
            name = next(n for n, v in positive.items() if not (v > 0).all())
            raise ValueError(f"set_params: {name} must be > 0, got {float(positive[name].min())}")
        if "command_delay" in checked and not bool((checked["command_delay"] >= 0).all()):
            raise ValueError(f"set_params: command_delay must be >= 0 s, got {float(checked['command_delay'].min())}")
        for name, value in checked.items():
            self._values[name][ids] = value
        self._scatter_params(ids)

    def _check_param(self, name: str, value: Tensor, count: int) -> Tensor:
        if name not in PARAM_FIELDS:
            raise UnknownName(f"set_params: unknown parameter {name!r}; known: {', '.join(PARAM_FIELDS)}")
        value = torch.as_tensor(value).to(self.device, torch.float32)
        if value.shape != (count, *_shape(name)):
            raise ValueError(f"set_params: {name} has shape {tuple(value.shape)}, expected {(count, *_shape(name))}")
        return value

    def _scatter_params(self, ids: Tensor, padding: bool = False) -> None:
        packed = pack_params({name: value[ids] for name, value in self._values.items()})
        self._params[ids // LANES, :, ids % LANES] = packed
        if padding:
            self._params[-1, :, _lanes(self.num_worlds) :] = self._params[-1, :, :1]
        self.runner.params_changed(self, len(ids))

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that a bit-exact continuation needs."""
        return {"state": self._state.clone()} | {f"param.{name}": v.clone() for name, v in self._values.items()}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; the number of worlds must be the same."""
        check_state(self.state(), state)
        self._state.copy_(state["state"])
        for name, value in self._values.items():
            value.copy_(state[f"param.{name}"])
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
        block = (self._before if before else self._state)[world // LANES, :, world % LANES]
        state = block[None, :, None].repeat(1, 1, LANES)
        return {"state": state} | {f"param.{n}": v[world : world + 1].clone() for n, v in self._values.items()}

    def close(self) -> None:
        """End the threads."""
        self.runner.close()


def _shape(name: str) -> tuple[int, ...]:
    size = PARAM_FIELDS[name][1]
    return () if size == 1 else (size,)


def _lanes(num_worlds: int) -> int:
    """Lanes in use of the last block."""
    return (num_worlds - 1) % LANES + 1


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


def as_command(values: Tensor, device: torch.device) -> Tensor:
    """``values`` as contiguous float32 on ``device``: themselves, at little cost, if they are."""
    if values.dtype is torch.float32 and values.device == device and values.is_contiguous():
        return values
    return values.detach().to(device, torch.float32).contiguous()


class WholeBlocks:
    """Gives commands [N, 4] of N worlds as rows for whole blocks of worlds, which is what the CPU kernels read."""

    def __init__(self, num_worlds: int) -> None:
        self._rows = torch.zeros(-(-num_worlds // LANES) * LANES, 4) if num_worlds % LANES else None

    def __call__(self, commands: Tensor) -> Tensor:
        """``commands`` itself where no block is left open."""
        if self._rows is None:
            return commands
        self._rows[: len(commands)] = commands
        return self._rows


class CpuRunner:
    """Runs the CPU kernels over chunks of blocks on threads."""

    def __init__(self, command: str, threads: int, shared: bool) -> None:
        self.threads = threads
        self.general = kernels.STEP_MOTOR if command == "motor_cmd" else kernels.STEP_CTBR
        self.shared = shared and command == "motor_cmd"
        self.what = self.general

    def start(self, sim: Quadrotor) -> None:
        """Take the arrays of ``sim``, which stay the same from now on."""
        self._shared = np.zeros(physics.PARAM_SIZE, dtype=np.float32)
        self._whole = WholeBlocks(sim.num_worlds)
        out = [sim._out[name].numpy() for name in ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b")]
        out += [sim._out["height"].numpy(), sim._out["rotor_speed"].numpy()]
        arrays = (sim._state.view(-1).numpy(), sim._params.view(-1).numpy(), self._shared, sim._nominal.numpy())
        self._crew = Crew(self.threads, kernels.drive, (*arrays, np.float32(sim.dt), *out))

    def params_changed(self, sim: Quadrotor, count: int) -> None:
        """Take the faster kernel while all worlds have one parameter set without drag and delay, if it may be taken."""
        if not self.shared:
            return
        values = sim._values
        alike = all(bool((x == x[:1]).all()) for x in values.values())
        simple = alike and not (values["drag"].any() or values["command_delay"].any())
        self.what = kernels.STEP_SHARED if simple else self.general
        self._shared[:] = sim._params[0, :, 0].numpy()

    def step(self, sim: Quadrotor, ctrl: Tensor, substeps: int) -> None:
        """Advance the worlds of ``sim``."""
        rows = self._whole(ctrl)
        self._crew(sim._blocks, self.what, substeps, rows.data_ptr(), rows.numel())

    def read(self, sim: Quadrotor) -> None:
        """Copy the state into the signal tensors of ``sim``."""
        self._crew(sim._blocks, kernels.READ, 0, 0, 0)

    def close(self) -> None:
        """End the threads."""
        self._crew.close()
