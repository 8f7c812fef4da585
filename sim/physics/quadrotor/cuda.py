"""The quadrotor's physics function on CUDA GPUs: one thread per world, the same blocks of 16 as on the CPU.

A warp's 32 lanes read two whole rows of 16 floats, so that every access is coalesced. Only imported for
``device="cuda"``. ``NUMBA_ENABLE_CUDASIM=1`` runs the kernels in Python, to test them without a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import cuda

from temporeal.sim.compiler import scalar_functions as compiling
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor.dynamics import DELAY, PARAM_SIZE
from temporeal.sim.physics.quadrotor.layout import COMMAND, FIELDS, SIGNALS

if TYPE_CHECKING:
    from torch import Tensor

    from temporeal.sim.physics.quadrotor.runners import Arrays

THREADS = 128  # per CUDA block: the 70 or so live values of a world leave registers for several blocks on a processor

on_device = cuda.jit(device=True)
physics_on_device = compiling.instantiate(physics, on_device, np.float32)
_motor_step, _on_ground = physics_on_device.motor_step, physics_on_device.on_ground
_rate_loop, _blend = physics_on_device.rate_loop, physics_on_device.blend


@on_device
def four(a, i, stride):
    """``a[i]``, ``a[i + stride]``, ... four of them; tuples of them add up to longer ones."""
    return a[i], a[i + stride], a[i + 2 * stride], a[i + 3 * stride]


@on_device
def put_four(a, i, stride, x):
    """Write the four numbers ``x`` where :func:`four` reads them (a loop over a tuple would branch for each)."""
    a[i], a[i + stride], a[i + 2 * stride], a[i + 3 * stride] = x[0], x[1], x[2], x[3]


@on_device
def put_sixteen(a, i, stride, x):
    """Write the first 16 numbers of ``x``."""
    put_four(a, i, stride, x[0:4])
    put_four(a, i + 4 * stride, stride, x[4:8])
    put_four(a, i + 8 * stride, stride, x[8:12])
    put_four(a, i + 12 * stride, stride, x[12:16])


@on_device
def load_state(a, i):
    """The state of the world whose first value is ``a[i]``."""
    return four(a, i, 16) + four(a, i + 64, 16) + four(a, i + 128, 16) + four(a, i + 192, 16) + (a[i + 256],)


@on_device
def load_params(a, i, stride):
    """Parameters at ``a[i]``, ``a[i + stride]``, ...: 16 for those of one world, 1 for a set of all worlds."""
    return (
        four(a, i, stride) + four(a, i + 4 * stride, stride) + four(a, i + 8 * stride, stride)
        + four(a, i + 12 * stride, stride) + four(a, i + 16 * stride, stride) + four(a, i + 20 * stride, stride)
        + four(a, i + 24 * stride, stride) + four(a, i + 28 * stride, stride)
        + (a[i + 32 * stride], a[i + 33 * stride], a[i + 34 * stride])
    )  # fmt: skip


@cuda.jit
def step_motor(state, params, ctrl, nominal, dt, substeps, worlds):
    """Rotor speed setpoints ``ctrl`` [N, 4]; state and commands stay in registers over all substeps."""
    w = cuda.grid(1)
    if w >= worlds:
        return
    i = (w // 16 * FIELDS) * 16 + w % 16
    p = load_params(params, (w // 16 * PARAM_SIZE) * 16 + w % 16, 16)
    s = load_state(state, i)
    b = i + COMMAND * 16  # the last command given is now the previous one
    for step in range(substeps):
        time = np.float32(step) * dt
        s = _on_ground(
            _motor_step(
                s,
                _blend(time, dt, p[DELAY], state[b], ctrl[w, 0]),
                _blend(time, dt, p[DELAY], state[b + 16], ctrl[w, 1]),
                _blend(time, dt, p[DELAY], state[b + 32], ctrl[w, 2]),
                _blend(time, dt, p[DELAY], state[b + 48], ctrl[w, 3]),
                p, dt, True,
            )
        )  # fmt: skip
    store(state, i, s, ctrl, w)


@cuda.jit
def step_ctbr(state, params, ctrl, nominal, dt, substeps, worlds):
    """Collective thrust and body rates ``ctrl`` [N, 4]."""
    w = cuda.grid(1)
    if w >= worlds:
        return
    i = (w // 16 * FIELDS) * 16 + w % 16
    p = load_params(params, (w // 16 * PARAM_SIZE) * 16 + w % 16, 16)
    believed = four(nominal, 0, 1) + four(nominal, 4, 1) + (nominal[8],)
    s = load_state(state, i)
    b = i + COMMAND * 16
    for step in range(substeps):
        time = np.float32(step) * dt
        u0, u1, u2, u3 = _rate_loop(
            s,
            _blend(time, dt, p[DELAY], state[b], ctrl[w, 0]),
            _blend(time, dt, p[DELAY], state[b + 16], ctrl[w, 1]),
            _blend(time, dt, p[DELAY], state[b + 32], ctrl[w, 2]),
            _blend(time, dt, p[DELAY], state[b + 48], ctrl[w, 3]),
            p, believed,
        )  # fmt: skip
        s = _on_ground(_motor_step(s, u0, u1, u2, u3, p, dt, True))
    store(state, i, s, ctrl, w)


@on_device
def store(state, i, s, ctrl, w):
    """Write the state and the command of world ``w``; one that is not finite shows in the position (as on CPUs)."""
    put_sixteen(state, i, 16, s)
    zero = np.float32(0.0)
    state[i] = s[0] + (zero * ctrl[w, 0] + zero * ctrl[w, 1] + zero * ctrl[w, 2] + zero * ctrl[w, 3])
    state[i + 256] = s[16]
    for j in range(4):
        state[i + (COMMAND + j) * 16] = ctrl[w, j]


def require_gpu() -> None:
    """Say what to do where no GPU can be used."""
    import torch

    if not torch.cuda.is_available() or not cuda.is_available():
        raise RuntimeError(
            f"device 'cuda' is not usable here (torch sees a GPU: {torch.cuda.is_available()}, numba sees one: "
            f"{cuda.is_available()}); use device='cpu', or install an NVIDIA driver, a CUDA build of torch and "
            "'numba-cuda[cu12]'"
        )


def launch(kernel: Any, worlds: int, device: Any, *arguments: Any) -> None:
    """Run ``kernel`` with a thread per world on torch's current stream of ``device``; tensors become CUDA arrays."""
    import torch

    with torch.cuda.device(device):  # numba launches on the GPU whose context is the active one
        stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
        arrays = [cuda.as_cuda_array(x) if isinstance(x, torch.Tensor) else x for x in arguments]
        kernel[-(-worlds // THREADS), THREADS, stream](*arrays)


class CudaRunner:
    """Runs the CUDA kernels on torch's current stream."""

    def __init__(self, arrays: Arrays, command: str) -> None:
        self.arrays, self.kernel = arrays, step_motor if command == "motor_cmd" else step_ctbr

    def params_changed(self, values: object) -> None:
        """Nothing is kept aside here."""

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """Advance all worlds under ``ctrl`` [N, 4]."""
        a = self.arrays
        launch(
            self.kernel, a.num_worlds, a.state.device, a.state.view(-1), a.params.view(-1), ctrl, a.nominal,
            np.float32(a.dt), substeps, a.num_worlds,
        )  # fmt: skip

    def read(self) -> None:
        """Copy the state into the signal tensors."""
        a = self.arrays
        rows: Any = a.state.transpose(1, 2).reshape(-1, FIELDS)[: a.num_worlds]
        for name, (first, size) in SIGNALS.items():
            a.signals[name].copy_(rows[:, first : first + size])
        a.signals["height"].copy_(rows[:, physics.PZ])

    def close(self) -> None:
        """Nothing to end: kernels run on the caller's stream."""
