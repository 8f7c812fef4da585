"""Robots in the plane, many at once, exactly: points that move at the commanded velocity, and carts that roll and turn.

    backend = make(load_robot("unicycle"), 4096, "twist_cmd", dt=0.2)
    backend.step(ctrl, substeps=1)           # ctrl [4096, 2]: m/s along the heading, rad/s
    backend.signals()["base_pos_w"]          # [4096, 3], z = 0

``signals()`` gives live tensors that the backend owns. A command is limited to the robot's limits, then the gains act.
It is constant over a step, whose end is computed exactly, whatever the number of ``substeps``. There are no walls:
regions to avoid are part of formulas.

A state or command that is not finite, or a position more than 1000 km away, makes the position NaN until a reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import RobotSpec
from temporeal.sim.capabilities import require, require_kind
from temporeal.sim.compiler.thread_pool import ThreadPool
from temporeal.sim.physics.checks import check_ids, check_state, check_step, check_world
from temporeal.sim.physics.planar import kernels
from temporeal.sim.physics.setup import Setup, setup_of
from temporeal.sim.scene import Scene
from temporeal.sim.types import Status

HAS = ("deterministic", "full_state")
MOTIONS = {"vel_cmd": kernels.POINT, "twist_cmd": kernels.CART}
SIZES = {"base_pos_w": 3, "base_quat_w": 4, "base_vel_w": 3}
PLACES = ("pos", "quat", "vel")  # these, as the kernels call them
MISFITS = {kernels.OFF_PLACE: ("base_pos_w", "lie in the plane, its z be 0"),
           kernels.OFF_TURN: ("base_quat_w", "be a turn about z of norm near 1, its x and y be 0"),
           kernels.OFF_SPEED: ("base_vel_w", "lie in the plane, its z be 0")}
LONGEST = 1.0  # s, of one step
MOST = 2.0  # largest gain
TURNED = 3.0  # rad in one step at most, for the series of temporeal.sim.physics.planar.kernels


def make(
    what: Scene | RobotSpec, num_worlds: int, command: str, *, dt: float, device: str = "cpu", seed: int = 0,
    threads: int = 0, needs: Iterable[str] = (),
) -> Planar:
    """The backend for ``num_worlds`` worlds of a planar robot, alone or as a scene without objects.

    Args:
        command: ``"vel_cmd"`` (world velocity [m/s]) or ``"twist_cmd"`` (speed [m/s] and yaw rate [rad/s]).
        dt: physics step, s.
        device: ``"cpu"``, there is no other.
        seed: kept for the caller; the motion draws no random numbers.
        threads: CPU threads; 0 takes every core this process may use.
        needs: capabilities (:mod:`temporeal.sim.capabilities`) that the caller cannot do without.
    """
    setup = setup_of(what, num_worlds, command, dt, device, seed, threads)
    robot = setup.scene.robot
    has = require("planar", HAS, {*needs, *(["objects"] if setup.scene.objects else [])})
    require_kind("planar", robot.name, robot.kind)
    if command not in robot.commands or command not in MOTIONS:
        known = ", ".join(name for name in MOTIONS if name in robot.commands)
        raise UnknownName(f"backend planar has no command {command!r} for robot {robot.name!r}; known: {known}")
    fastest = max(abs(x) for x in (robot.command(command).low[1], robot.command(command).high[1]))
    if command == "twist_cmd" and fastest * MOST * LONGEST > TURNED:
        raise ValueError(f"robot {robot.name!r}: a yaw rate is at most {TURNED / (MOST * LONGEST):g} rad/s here, its "
                         f"limit is {fastest:g} rad/s")
    if not 0.0 < dt <= LONGEST:
        raise ValueError(f"dt is {dt} s; it must lie in (0, {LONGEST:g}]")
    if setup.device.type != "cpu":
        raise ValueError(f"planar robots run on 'cpu', not on {device!r}")
    return Planar(setup, has)


class Planar:
    """N robots in the plane (:class:`temporeal.sim.types.Backend`); build it with :func:`make`."""

    name = "planar"

    def __init__(self, setup: Setup, capabilities: frozenset[str]) -> None:
        num_worlds, robot, command = setup.num_worlds, setup.scene.robot, setup.command
        self.capabilities, self.scene, self.robot, self.command = capabilities, setup.scene, robot, command
        self.num_worlds, self.dt, self.device, self.seed = num_worlds, setup.dt, setup.device, setup.seed
        self.parameters, self.snapshot = robot.parameters, False
        self.bad = torch.zeros(num_worlds, dtype=torch.bool)  # what goes wrong shows in the signals
        self._state = {name: torch.zeros(num_worlds, SIZES[name]) for name in robot.signals}
        self._before = {name: value.clone() for name, value in self._state.items()}
        self._kept = False  # whether that is the state before the last step
        self._values = {name: torch.full((num_worlds,), p.nominal[0]) for name, p in robot.parameters.items()}
        spec, one = robot.command(command), torch.ones(1)
        rows = [self._state.get(name, torch.zeros(1, size)) for name, size in SIZES.items()]  # a point has no attitude
        arrays = (*rows, self._values["speed_gain"], self._values.get("turn_gain", one),
                  torch.tensor([*spec.low, *spec.high]))
        self._pool = ThreadPool(setup.threads, kernels.work_loop, tuple(array.numpy() for array in arrays))
        self._put = partial(kernels.put, taken=np.zeros(num_worlds, dtype=np.bool_),
                            turns="base_quat_w" in self._state, **dict(zip(PLACES, (x.numpy() for x in rows))))
        self.reset(torch.arange(num_worlds), {})

    def reset(self, ids: Tensor, state: Mapping[str, Tensor]) -> None:
        """Set the worlds ``ids`` [K] to ``state`` [K, ...]: any of the signals, home for those left out."""
        if not (isinstance(ids, Tensor) and ids.dtype == torch.int64 and ids.dim() == 1 and ids.is_cpu):
            ids = check_ids(ids, self.num_worlds).cpu()
        if unknown := set(state) - set(self._state):
            raise UnknownName(f"reset: unknown signals {sorted(unknown)}; known: {', '.join(self._state)}")
        rows = {name: self._given(name, state, len(ids)) for name in SIZES}
        flaw, row = self._put(ids.contiguous().numpy(), **{f"new_{PLACES[i]}": x for i, x in enumerate(rows.values())})
        if flaw == kernels.NO_WORLD:
            check_ids(ids, self.num_worlds)
        if flaw != kernels.FITS:
            name, rule = MISFITS[flaw]
            raise ValueError(f"reset: {name} must be finite and {rule}, got {rows[name][row].tolist()}")

    def _given(self, name: str, state: Mapping[str, Tensor], count: int) -> np.ndarray:
        """The rows [K, ...] of ``state``, else of home."""
        if name not in state:
            home = self.robot.home[name] if name in self._state else (0.0,)
            return np.full((count, len(home)), home, dtype=np.float32)
        value = torch.as_tensor(state[name]).detach().to("cpu", torch.float32)
        if value.shape != (count, SIZES[name]):
            raise ValueError(f"reset: {name} has shape {tuple(value.shape)}, expected {(count, SIZES[name])}")
        return value.contiguous().numpy()

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds by ``substeps * dt`` s under the command ``ctrl`` float32 [N, 2]."""
        check_step(self.command, ctrl, (self.num_worlds, 2), substeps)
        time = self.dt * substeps
        if not time <= LONGEST * (1 + 1e-9):
            raise ValueError(f"substeps is {substeps}; substeps * dt = {time:g} s must be at most {LONGEST:g} s")
        ctrl = ctrl.detach().to("cpu", torch.float32).contiguous()
        self._kept = bool(self.snapshot)
        if self._kept:
            for name, value in self._state.items():
                self._before[name].copy_(value)
        self._pool(-(-self.num_worlds // kernels.BLOCK), MOTIONS[self.command], ctrl.data_ptr(), ctrl.numel(),
                   round(time / kernels.NANOSECONDS))

    def signals(self) -> dict[str, Tensor]:
        """The robot's signals, [N, ...] each: live."""
        return dict(self._state)

    def params(self) -> dict[str, Tensor]:
        """The parameters of all worlds by name, [N] each: views, change them with :meth:`set_params` only."""
        return dict(self._values)

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """Set the gains of the worlds ``ids`` [K]: [K] each by the names of :attr:`parameters`."""
        ids = check_ids(ids, self.num_worlds)
        checked = {name: self._check_param(name, value, len(ids)) for name, value in params.items()}
        for name, value in checked.items():
            self._values[name][ids] = value

    def _check_param(self, name: str, value: Tensor, count: int) -> Tensor:
        if name not in self._values:
            raise UnknownName(f"set_params: unknown parameter {name!r}; known: {', '.join(self._values)}")
        value = torch.as_tensor(value).detach().to("cpu", torch.float32)
        if value.shape != (count,):
            raise ValueError(f"set_params: {name} has shape {tuple(value.shape)}, expected {(count,)}")
        if count and not bool(((value > 0) & (value <= MOST)).all()):
            raise ValueError(f"set_params: {name} must be > 0 and at most {MOST:g}, got {value.tolist()[:3]}")
        return value

    def status(self) -> Status:
        """Worlds whose state is not finite; there is nothing that could overflow."""
        bad = ~torch.stack([torch.isfinite(value).all(1) for value in self._state.values()]).all(0)
        return Status(bad, torch.zeros_like(bad), {})

    def state(self) -> dict[str, Tensor]:
        """A copy of everything that a bit-exact continuation needs."""
        return {name: value.clone() for name, value in self._all(self._state).items()}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned; the number of worlds must be the same."""
        mine = self._all(self._state)
        check_state(mine, state)
        for name, value in mine.items():
            value.copy_(state[name])

    def extract(self, world: int, *, before: bool = False) -> dict[str, Tensor]:
        """The state of one world; ``before``: as it was before the last step, which was made with ``snapshot``."""
        world = check_world(world, self.num_worlds)
        if before and not self._kept:
            raise ValueError("extract: the state before a step is kept only where snapshot was true in that step")
        rows = self._all(self._before if before else self._state)
        return {name: value[world : world + 1].clone() for name, value in rows.items()}

    def close(self) -> None:
        """End the threads."""
        self._pool.close()

    def _all(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """State and parameters by the names of :meth:`state`."""
        return {**state, **{f"param.{name}": value for name, value in self._values.items()}}

