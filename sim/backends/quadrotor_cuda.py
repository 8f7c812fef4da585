"""The quadrotor's physics function on CUDA GPUs: one thread per world, the same blocks of 16 as on the CPU.

A warp's 32 lanes read two whole rows of 16 floats, so that every access is coalesced. Only imported for
``device="cuda"``. ``NUMBA_ENABLE_CUDASIM=1`` runs the kernels in Python, to test them without a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import cuda

from sim import compile as compiling
from sim.backends import quadrotor_physics as physics
from sim.backends.quadrotor_physics import DELAY, PARAM_SIZE, STATE_SIZE

if TYPE_CHECKING:
    from torch import Tensor

    from sim.backends.quadrotor import Quadrotor

BEFORE, COMMAND, FIELDS = STATE_SIZE, STATE_SIZE + 4, STATE_SIZE + 8  # as in sim.backends.quadrotor_kernels
THREADS = 128  # per CUDA block: the 70 or so live values of a world leave registers for several blocks on a processor

_device = compiling.instantiate(physics, cuda.jit(device=True), np.float32)
_motor_step, _on_ground = _device.motor_step, _device.on_ground
_rate_loop, _blend = _device.rate_loop, _device.blend


@cuda.jit(device=True)
def load_state(a, i):
    """The state of the world whose first value is ``a[i]``."""
    return (
        a[i], a[i + 16], a[i + 32], a[i + 48], a[i + 64], a[i + 80], a[i + 96], a[i + 112], a[i + 128], a[i + 144],
        a[i + 160], a[i + 176], a[i + 192], a[i + 208], a[i + 224], a[i + 240], a[i + 256],
    )  # fmt: skip


@cuda.jit(device=True)
def load_params(a, i):
    """The parameters of the world whose first value is ``a[i]``."""
    return (
        a[i], a[i + 16], a[i + 32], a[i + 48], a[i + 64], a[i + 80], a[i + 96], a[i + 112], a[i + 128], a[i + 144],
        a[i + 160], a[i + 176], a[i + 192], a[i + 208], a[i + 224], a[i + 240], a[i + 256], a[i + 272], a[i + 288],
        a[i + 304], a[i + 320], a[i + 336], a[i + 352], a[i + 368], a[i + 384], a[i + 400], a[i + 416], a[i + 432],
        a[i + 448], a[i + 464], a[i + 480], a[i + 496], a[i + 512], a[i + 528], a[i + 544],
    )  # fmt: skip


@cuda.jit
def step_motor(state, params, ctrl, nominal, dt, substeps, worlds):
    """Rotor speed setpoints ``ctrl`` [N, 4]; state and commands stay in registers over all substeps."""
    w = cuda.grid(1)
    if w >= worlds:
        return
    i = (w // 16 * FIELDS) * 16 + w % 16
    p = load_params(params, (w // 16 * PARAM_SIZE) * 16 + w % 16)
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
    p = load_params(params, (w // 16 * PARAM_SIZE) * 16 + w % 16)
    believed = (
        nominal[0], nominal[1], nominal[2], nominal[3], nominal[4], nominal[5], nominal[6], nominal[7], nominal[8],
    )  # fmt: skip
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


@cuda.jit(device=True)
def store(state, i, s, ctrl, w):
    """Write the state and both commands of world ``w``."""
    state[i] = s[0]
    state[i + 16] = s[1]
    state[i + 32] = s[2]
    state[i + 48] = s[3]
    state[i + 64] = s[4]
    state[i + 80] = s[5]
    state[i + 96] = s[6]
    state[i + 112] = s[7]
    state[i + 128] = s[8]
    state[i + 144] = s[9]
    state[i + 160] = s[10]
    state[i + 176] = s[11]
    state[i + 192] = s[12]
    state[i + 208] = s[13]
    state[i + 224] = s[14]
    state[i + 240] = s[15]
    state[i + 256] = s[16]
    for j in range(4):
        state[i + (BEFORE + j) * 16] = state[i + (COMMAND + j) * 16]
        state[i + (COMMAND + j) * 16] = ctrl[w, j]


class CudaRunner:
    """Runs the CUDA kernels on torch's current stream."""

    def __init__(self, command: str) -> None:
        import torch

        if not torch.cuda.is_available() or not cuda.is_available():
            raise RuntimeError(
                f"device 'cuda' is not usable here (torch sees a GPU: {torch.cuda.is_available()}, numba sees one: "
                f"{cuda.is_available()}); use device='cpu', or install an NVIDIA driver, a CUDA build of torch and "
                "'numba-cuda[cu12]'"
            )
        self.kernel = step_motor if command == "motor_cmd" else step_ctbr

    def params_changed(self, sim: Quadrotor, count: int) -> None:
        """Nothing is kept aside here."""

    def step(self, sim: Quadrotor, ctrl: Tensor, substeps: int) -> None:
        """Advance the worlds of ``sim``."""
        import torch

        stream = cuda.external_stream(torch.cuda.current_stream(sim.device).cuda_stream)
        arrays = [
            cuda.as_cuda_array(x) for x in (sim._state.view(-1), sim._params.view(-1), ctrl, sim._nominal)
        ]  # fmt: skip
        self.kernel[-(-sim.num_worlds // THREADS), THREADS, stream](
            *arrays, np.float32(sim.dt), substeps, sim.num_worlds
        )

    def read(self, sim: Quadrotor) -> None:
        """Copy the state into the signal tensors of ``sim``."""
        from sim.backends.quadrotor import SIGNAL_SIZES, STATE_FIELDS

        rows: Any = sim._state.transpose(1, 2).reshape(-1, FIELDS)[: sim.num_worlds]
        for name, size in SIGNAL_SIZES.items():
            sim._out[name].copy_(rows[:, STATE_FIELDS[name] : STATE_FIELDS[name] + size])
        sim._out["height"].copy_(rows[:, physics.PZ])
