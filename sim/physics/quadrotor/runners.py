"""Steps the state array of many quadrotors: by the CPU kernels on threads, or by the CUDA kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.compiler.thread_pool import ThreadPool
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor import kernels
from temporeal.sim.physics.quadrotor.layout import BLOCK
from temporeal.sim.physics.quadrotor.residual.ensemble import Ensemble


@dataclass(frozen=True)
class Arrays:
    """The arrays of N quadrotors, which stay where they are, and their physics step ``dt`` [s]."""

    num_worlds: int
    dt: float
    state: Tensor  # [B, FIELDS, BLOCK]
    params: Tensor  # [B, PARAM_SIZE, BLOCK]
    nominal: Tensor  # [NOMINAL_SIZE]
    signals: Mapping[str, Tensor]  # [N, ...] each, and height [N]


def read_into(arrays: Arrays) -> list[np.ndarray]:
    """What the kernels read the state into, in their order."""
    return [arrays.signals[name].numpy() for name in (
        "base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b", "height", "rotor_speed")]


class CpuRunner:
    """Runs the CPU kernels over chunks of blocks on threads.

    ``shared``: take the faster kernel while all worlds have one parameter set without drag and delay.
    """

    def __init__(self, arrays: Arrays, command: str, threads: int, shared: bool) -> None:
        self.arrays, self.shared = arrays, shared and command == "motor_cmd"
        self.general = kernels.STEP_MOTOR if command == "motor_cmd" else kernels.STEP_CTBR
        self.what = self.general
        self._blocks, self._whole = len(arrays.state), WholeBlocks(arrays.num_worlds)
        self._shared = np.zeros(physics.PARAM_SIZE, dtype=np.float32)
        self._pool = ThreadPool(threads, kernels.work_loop, (
            arrays.state.view(-1).numpy(), arrays.params.view(-1).numpy(), self._shared, arrays.nominal.numpy(),
            np.float32(arrays.dt), *read_into(arrays)))

    def params_changed(self, values: Mapping[str, Tensor]) -> None:
        """The parameters of all worlds are now ``values`` [N, ...] by name: choose the kernel."""
        if not self.shared:
            return
        alike = all(bool((x == x[:1]).all()) for x in values.values())
        simple = alike and not (values["drag"].any() or values["command_delay"].any())
        self.what = kernels.STEP_SHARED if simple else self.general
        self._shared[:] = self.arrays.params[0, :, 0].numpy()

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds under ``ctrl`` [N, 4]."""
        rows = self._whole(ctrl)
        self._pool(self._blocks, self.what, substeps, rows.data_ptr(), rows.numel())

    def read(self) -> None:
        """Copy the state into the signal tensors."""
        self._pool(self._blocks, kernels.READ, 0, 0, 0)

    def close(self) -> None:
        """End the threads."""
        self._pool.close()


class ResidualRunner(CpuRunner):
    """Runs the CPU kernels with residual dynamics ``ensemble``; ``shares`` [B, M, BLOCK] of its members in each world
    may be changed between steps."""

    def __init__(self, arrays: Arrays, command: str, threads: int, ensemble: Ensemble, shares: Tensor) -> None:
        from temporeal.sim.physics.quadrotor.residual import kernels as with_residual

        super().__init__(arrays, command, threads, False)
        self._pool.close()
        self._pool = ThreadPool(threads, with_residual.work_loop, (
            arrays.state.view(-1).numpy(), arrays.params.view(-1).numpy(), arrays.nominal.numpy(),
            np.float32(arrays.dt), ensemble.packed().astype(np.float32), ensemble.hidden, ensemble.members,
            shares.view(-1).numpy(), *read_into(arrays)))


def runner_of(arrays: Arrays, command: str, threads: int, shared: bool) -> Any:
    """What steps ``arrays``: a :class:`CpuRunner`, or its like on a GPU."""
    if arrays.state.device.type == "cpu":
        return CpuRunner(arrays, command, threads, shared)
    from temporeal.sim.physics.quadrotor.cuda import CudaRunner

    return CudaRunner(arrays, command)


def checked_device(device: torch.device | str) -> torch.device:
    """``device``, if there are kernels for it and it is there."""
    place = torch.device(device)
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f"the quadrotor runs on 'cpu' or 'cuda', not on {str(device)!r}")
    if place.type == "cuda":
        from temporeal.sim.physics.quadrotor.cuda import require_gpu

        require_gpu()
    return place


def as_command(values: Tensor, device: torch.device) -> Tensor:
    """``values`` as contiguous float32 on ``device``: themselves, at little cost, if they are."""
    if values.dtype is torch.float32 and values.device == device and values.is_contiguous():
        return values
    return values.detach().to(device, torch.float32).contiguous()


class WholeBlocks:
    """Gives commands [N, 4] of N worlds as rows for whole blocks of worlds, which is what the CPU kernels read."""

    def __init__(self, num_worlds: int) -> None:
        self._rows = torch.zeros(-(-num_worlds // BLOCK) * BLOCK, 4) if num_worlds % BLOCK else None

    def __call__(self, commands: Tensor) -> Tensor:
        """``commands`` itself where the last block is full."""
        if self._rows is None:
            return commands
        self._rows[: len(commands)] = commands
        return self._rows
