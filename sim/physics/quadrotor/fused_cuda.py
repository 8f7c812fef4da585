"""The fused hover step on CUDA GPUs: one thread per world, with the scalar functions and the arrays of the CPU.

Tensors for the learner are [rows, worlds], so that a warp's writes are neighbours. Only imported for
``device="cuda"``; ``NUMBA_ENABLE_CUDASIM=1`` runs the kernels in Python, to test them without a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import cuda

from temporeal.sim.compiler import scalar_functions as compiling
from temporeal.sim.compiler import threefry
from temporeal.sim.physics.quadrotor import hover
from temporeal.sim.physics.quadrotor.cuda import (
    four,
    launch,
    load_params,
    on_device,
    physics_on_device,
    put_four,
    put_sixteen,
)
from temporeal.sim.physics.quadrotor.hover import (
    CENTER,
    EPISODE,
    FIELDS,
    FORCE,
    N0,
    RETURN,
    ROWS,
    SCALE,
    START_ROTOR,
    STEPS,
)

if TYPE_CHECKING:
    from torch import Tensor

    from temporeal.sim.physics.quadrotor.fused import FusedHover

ONE = np.float32(1)
WORD = np.uint32
PRIVILEGED = hover.PRIVILEGED


@on_device
def _bits_of(x):
    return np.float32(x).view(np.int32)


@on_device
def _float_of(i):
    return np.int32(i).view(np.float32)


_random = compiling.instantiate(
    threefry, on_device, np.float32, word=WORD, signed=np.int32, real=np.float32, bits_of=_bits_of, float_of=_float_of
)
_called = vars(physics_on_device) | vars(_random) | {"word": WORD}
_task = compiling.instantiate(hover, on_device, np.float32, **{name: _called[name] for name in hover.CALLED})
_clipped, _control_step, _episode_start = _task.clipped, _task.control_step, _task.episode_start
_true_rows, _hidden_rows, _noisy_rows = _task.true_rows, _task.hidden_rows, _task.noisy_rows
_noise, _noise_words = _task.noise, _task.noise_words


@on_device
def load_world(a, i):
    """The ``FIELDS`` numbers of the world whose first is ``a[i]``."""
    return (
        four(a, i, 16) + four(a, i + 64, 16) + four(a, i + 128, 16) + four(a, i + 192, 16) + four(a, i + 256, 16)
        + four(a, i + 320, 16) + (a[i + 384], a[i + 400])
    )  # fmt: skip


@on_device
def load_figures(a):
    """The ``TASK_SIZE`` figures of the task."""
    return (
        four(a, 0, 1) + four(a, 4, 1) + four(a, 8, 1) + four(a, 12, 1) + four(a, 16, 1) + (a[20], a[21], a[22])
    )  # fmt: skip


@on_device
def put_world(a, i, w):
    """Write the world ``w`` where :func:`load_world` reads it."""
    put_sixteen(a, i, 16, w)
    put_four(a, i + 256, 16, w[16:20])
    put_four(a, i + 320, 16, w[20:24])
    a[i + 384], a[i + 400] = w[24], w[25]


@on_device
def observe(n, w, k0, k1, stream, task, known, columns, obs, privileged, critic):
    """Observations of the world ``w`` into column ``n``, without past actions."""
    t = _true_rows(w)
    words = _noise_words(k0, k1, stream, WORD(n), WORD(w[EPISODE]), WORD(w[STEPS]))
    rows = _noisy_rows(t, _noise(words), task)
    put_sixteen(obs, n, columns, rows)
    obs[n + 16 * columns], obs[n + 17 * columns] = rows[16], rows[17]
    if known > ROWS:
        put_four(obs, n + ROWS * columns, columns, w[N0:FORCE])
    if privileged:
        hidden = _hidden_rows(w)
        put_sixteen(critic, n, columns, t)
        put_four(critic, n + 16 * columns, columns, t[16:18] + hidden[0:2])
        put_four(critic, n + 20 * columns, columns, hidden[2:6])
        put_four(critic, n + 24 * columns, columns, hidden[6:10])


@on_device
def start(n, number, k0, k1, noise, initial, task, known, columns, state, obs, privileged, critic):
    """A new episode, the ``number``-th, in world ``n``."""
    w = _episode_start(WORD(number), number, k0, k1, initial, WORD(n), task)
    put_world(state, n // 16 * FIELDS * 16 + n % 16, w)
    observe(n, w, k0, k1, noise, task, known, columns, obs, privileged, critic)
    for i in range(known * columns + n, len(obs), columns):
        obs[i] = (task[START_ROTOR] - task[CENTER]) / task[SCALE]  # keeps the rotors as they are


@cuda.jit
def start_all(state, figures, k0, k1, noise, initial, known, columns, obs, privileged, critic, worlds):
    """A new episode in every world."""
    n = cuda.grid(1)
    if n < worlds:
        number = state[(n // 16 * FIELDS + EPISODE) * 16 + n % 16] + ONE
        start(n, number, k0, k1, noise, initial, load_figures(figures), known, columns, state, obs, privileged, critic)


@cuda.jit
def hover_step(
    state, action, params, figures, dt, k0, k1, noise, initial, known, columns, past, obs, privileged, critic, final,
    final_critic, reward, terminated, truncated, length, total, worlds,
):  # fmt: skip
    """One control step with ``action`` [N, 4]; a world whose episode ends starts a new one.

    Arguments as the fields of :class:`temporeal.sim.physics.quadrotor.fused.FusedHover`; ``past``, ``obs`` and
    ``critic`` are flat, a row of them has ``columns`` numbers; ``known`` rows come before the past actions. Without
    ``privileged``, ``critic`` and ``final_critic`` are not used.
    """
    n = cuda.grid(1)
    if n >= worlds:
        return
    i = n // 16 * FIELDS * 16 + n % 16
    task = load_figures(figures)
    a = _clipped((action[n, 0], action[n, 1], action[n, 2], action[n, 3]))
    w, gain, fell, late = _control_step(load_world(state, i), a, load_params(params, 0, 1), task, dt)
    reward[n], terminated[n], truncated[n] = gain, fell, late
    observe(n, w, k0, k1, noise, task, known, columns, obs, privileged, critic)
    if len(obs) > known * columns:
        put_four(obs, known * columns + n, columns, a)
    for j in range((known + 4) * columns + n, len(obs), columns):
        obs[j] = past[j - 4 * columns]
    if fell or late:
        length[n], total[n] = w[STEPS], w[RETURN]
        for f in range(final.shape[1]):
            final[n, f] = obs[f * columns + n]
        if privileged:
            for f in range(PRIVILEGED):
                final_critic[n, f] = critic[f * columns + n]
        start(n, w[EPISODE] + ONE, k0, k1, noise, initial, task, known, columns, state, obs, privileged, critic)
    else:  # the rest stays
        put_sixteen(state, i, 16, w)
        state[i + 256], state[i + STEPS * 16], state[i + RETURN * 16] = w[16], w[STEPS], w[RETURN]


class CudaHover:
    """Runs the CUDA kernels on torch's current stream."""

    def __init__(self, env: FusedHover, params: np.ndarray, keys: np.ndarray, dt: float) -> None:
        import torch

        self.worlds, self.device, self.keys, self.known = env.num_worlds, env.device, tuple(keys), env.known
        self.state, self.dt = env._state.view(-1), np.float32(dt)
        self.params, self.figures = (torch.from_numpy(x).to(env.device) for x in (params, env.task.packed()))
        self.columns = env._obs.shape[2]
        self.obs, self.privileged = env._obs.flatten(1), env.privileged
        # no empty arrays: what is not used is another's
        self.critic = env._critic.flatten(1) if env.privileged else self.obs
        last = (env._final, env._final_critic if env.privileged else env._final)
        self.out = (*last, env._reward, *env._flags, *env._episode)

    def reset(self, turn: int) -> None:
        """A new episode in every world; observations go to the half ``turn``."""
        launch(
            start_all, self.worlds, self.device, self.state, self.figures, *self.keys, self.known, self.columns,
            self.obs[turn], self.privileged, self.critic[turn], self.worlds,
        )  # fmt: skip

    def step(self, action: Tensor, turn: int) -> None:
        """One control step; observations go to the half ``turn``."""
        launch(
            hover_step, self.worlds, self.device, self.state, action, self.params, self.figures, self.dt, *self.keys,
            self.known, self.columns, self.obs[1 - turn], self.obs[turn], self.privileged, self.critic[turn], *self.out,
            self.worlds,
        )  # fmt: skip
