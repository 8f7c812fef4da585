"""CPU kernels of the fused hover step: dynamics, observation with sensor noise, reward, termination and reset.

The task is :mod:`temporeal.sim.physics.quadrotor.hover`, compiled for vectors of worlds
(:mod:`temporeal.sim.compiler.simd`); this module loads and stores. Episodes that end are collected and restarted a
vector of worlds at a time, so that drawing initial states fills the lanes too. Tensors for the learner are
feature-major, [rows, worlds]: a vector of worlds writes each feature by one store.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from temporeal.sim.compiler import scalar_functions as compiling
from temporeal.sim.compiler import simd, thread_pool, threefry
from temporeal.sim.compiler.simd import BLOCK, WIDTH
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor import hover, kernels, layout
from temporeal.sim.physics.quadrotor.dynamics import PARAM_SIZE
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
from temporeal.sim.physics.quadrotor.kernels import CHUNK_SIZE, INNER, OPTIONS

TASK_SIZE = hover.TASK_SIZE
TURN, ACTIONS, COUNT = range(thread_pool.JOB, thread_pool.JOB + 3)  # what the work loop takes from the queue

_random = compiling.instantiate(threefry, njit(**INNER), np.float32, **simd.TARGET)
_called = vars(kernels.vectorized) | vars(_random) | simd.TARGET
_task = compiling.instantiate(hover, njit(**INNER), np.float32, **{name: _called[name] for name in hover.CALLED})
_clipped, _control_step, _episode_start = _task.clipped, _task.control_step, _task.episode_start
_true_rows, _hidden_rows, _noisy_rows = _task.true_rows, _task.hidden_rows, _task.noisy_rows
_noise, _noise_words = _task.noise, _task.noise_words
ONE = np.float32(1)


@njit(**INNER)
def next_words(state, c, keys):
    """The words of the noise that the worlds from ``c`` on will see after a step."""
    steps, episode = simd.load(state, (c // BLOCK * FIELDS + STEPS) * BLOCK + c % BLOCK, 2)
    return _noise_words(keys[0], keys[1], keys[2], simd.count_from(c), simd.word(episode), simd.word(steps) + 1)


def _restart_kernel(digest: str) -> Any:
    """The kernel; ``digest`` puts the source of what it calls into the key of numba's cache."""

    @njit(cache=True, **OPTIONS)
    def restart(
        state, ended, first, last, keys, figures, known, obs, critic, final, final_critic, results
    ):  # fmt: skip
        """A new episode in the worlds ``ended[first:last]``; their columns of ``obs`` and ``critic`` are overwritten.

        Before, what the last step left goes to ``final`` and ``final_critic``, [N, rows], and ``results``: length and
        return of the episode.
        ``ended`` has room for whole vectors of worlds from ``first`` on.
        """
        _ = digest
        simd.align_stack()
        task = simd.scalars(figures, TASK_SIZE)
        columns = obs.shape[1]
        first_action = simd.spread((task[START_ROTOR] - task[CENTER]) / task[SCALE])  # keeps the rotors as they are
        for i in range(last, last + (first - last) % WIDTH):
            ended[i] = ended[last - 1]
        for i in range(first, last, WIDTH):
            for j in range(i, min(i + WIDTH, last)):
                w = ended[j]
                results[0, w] = state[(w // BLOCK * FIELDS + STEPS) * BLOCK + w % BLOCK]
                results[1, w] = state[(w // BLOCK * FIELDS + RETURN) * BLOCK + w % BLOCK]
                for f in range(len(obs)):
                    final[w, f] = obs[f, w]
                for f in range(len(critic)):
                    final_critic[w, f] = critic[f, w]
            world = simd.words(ended, i)
            place = (world >> 4) * (FIELDS * BLOCK) + (world & 15)
            number = simd.gather(state, place + EPISODE * BLOCK) + ONE
            episode = simd.word(number)
            start = _episode_start(episode, number, keys[0], keys[1], keys[3], world, task)
            t, n = _true_rows(start), _noise(_noise_words(keys[0], keys[1], keys[2], world, episode, 0))
            simd.scatter(state, place, BLOCK, start)
            simd.scatter(obs, world, columns, _noisy_rows(t, n, task))
            if known > ROWS:
                simd.scatter(obs, world + ROWS * columns, columns, start[N0:FORCE])
            for f in range(known, len(obs)):
                simd.scatter(obs, world + f * columns, columns, (first_action,))
            if len(critic) > 0:
                simd.scatter(critic, world, columns, t + _hidden_rows(start))

    return restart


DIGEST = compiling.fingerprint(threefry, hover, simd, physics, layout, thread_pool, kernels)
restart = _restart_kernel(DIGEST)


def _step_kernels(digest: str) -> tuple[Any, ...]:
    @njit(cache=True, **OPTIONS)
    def advance(
        state, actions, params, figures, dt, keys, obs, reward, flags, ending, first, last
    ):  # fmt: skip
        """One control step of the blocks ``first`` to ``last`` without resets.

        Writes ``world << 16 | lanes`` for the vectors of worlds, from ``world`` on, in which episodes ended to
        ``ending[first * 16]`` and on; returns where these end.
        """
        _ = digest
        simd.align_stack()
        p = simd.scalars(params, PARAM_SIZE)
        task = simd.scalars(figures, TASK_SIZE)
        columns = obs.shape[1]
        of_noise = keys[0], keys[1], keys[2]
        end = first * BLOCK
        ahead = next_words(state, first * BLOCK, of_noise)
        for c in range(first * BLOCK, last * BLOCK, WIDTH):
            i = c // BLOCK * FIELDS * BLOCK + c % BLOCK
            a, w = _clipped(simd.columns(actions, 4 * c)), simd.load(state, i, FIELDS)
            # random words come one from the other: drawn for the vector after this one, they need not be waited for
            words, ahead = ahead, next_words(state, min(c + WIDTH, last * BLOCK - WIDTH), of_noise)
            n = _noise(words)
            w, gain, fell, late = _control_step(w, a, p, task, dt)
            simd.store(state, i, BLOCK, w[:FORCE])
            simd.store(state, i + STEPS * BLOCK, (RETURN - STEPS) * BLOCK, (w[STEPS], w[RETURN]))  # the rest stays
            simd.store(reward, c, BLOCK, (gain,))
            simd.store_flags(flags, c, fell)
            simd.store_flags(flags, columns + c, late)
            done = simd.bits(fell | late)
            ending[end] = c << 16 | done
            end += done != 0
            t = _true_rows(w)
            simd.store(obs, c, columns, _noisy_rows(t, n, task))
        return end

    @njit(cache=True, **OPTIONS)
    def observe_more(state, actions, known, past, obs, critic, first, last):
        """Rotor speeds and past actions of the blocks ``first`` to ``last``, and what only a critic sees of them.

        A pass of its own: with this in its loop, :func:`advance` takes an eighth longer even where there is none of it.
        """
        _ = digest
        simd.align_stack()
        columns = obs.shape[1]
        for c in range(first * BLOCK, last * BLOCK, WIDTH):
            w = simd.load(state, c // BLOCK * FIELDS * BLOCK + c % BLOCK, FIELDS)
            if known > ROWS:
                simd.store(obs, ROWS * columns + c, columns, w[N0:FORCE])
            if len(obs) > known:
                simd.store(obs, known * columns + c, columns, _clipped(simd.columns(actions, 4 * c)))
            for f in range(known + 4, len(obs)):
                simd.store(obs, f * columns + c, columns, simd.load(past, (f - 4) * columns + c, 1))
            if len(critic) > 0:
                simd.store(critic, c, columns, _true_rows(w) + _hidden_rows(w))

    @njit(cache=True, **OPTIONS)
    def list_ended(ending, begin, end, worlds, ended):
        """List the worlds of ``ending[begin:end]`` in ``ended[begin:]``; returns where the list ends."""
        _ = digest
        n = begin
        for j in range(begin, end):
            done = ending[j] & 0xFFFF
            while done:
                w = (ending[j] >> 16) + simd.lowest(done)
                done &= done - 1
                ended[n] = w
                n += w < worlds  # not those that fill up the last block
        return n

    return advance, observe_more, list_ended


advance, observe_more, list_ended = _step_kernels(DIGEST)


def _work_loop(digest: str) -> Any:
    @njit(cache=True, **OPTIONS)
    def work_loop(
        queue, worker, state, params, figures, dt, keys, worlds, known, both_obs, both_critic, final, final_critic,
        reward, flags, results, lists,
    ):  # fmt: skip
        """One control step, for the threads of a :class:`temporeal.sim.compiler.thread_pool.ThreadPool`.

        Arguments as the fields of :class:`temporeal.sim.physics.quadrotor.fused.FusedHover`: ``known`` rows of an
        observation come before the past actions; ``final`` and ``final_critic``, [N, rows], get the last observations
        of episodes.
        """
        _ = digest
        blocks = len(state) // (FIELDS * BLOCK)
        ending, ended = lists[0], lists[1]
        call = thread_pool.next_call(queue, worker, 0)
        while call:
            turn, size, actions = queue[TURN], queue[CHUNK_SIZE], thread_pool.floats(queue[ACTIONS], queue[COUNT])
            past, obs, critic = both_obs[1 - turn], both_obs[turn], both_critic[turn]
            chunk = thread_pool.claim(queue, call, worker)
            while chunk >= 0:
                first, last = chunk * size, min(chunk * size + size, blocks)
                begin = first * BLOCK
                end = advance(
                    state, actions, params, figures, dt, keys, obs, reward, flags, ending, first, last
                )
                if len(obs) > ROWS or len(critic) > 0:
                    observe_more(state, actions, known, past, obs, critic, first, last)
                end = list_ended(ending, begin, end, worlds, ended)
                restart(
                    state, ended, begin, end, keys, figures, known, obs, critic, final, final_critic, results
                )
                thread_pool.finish(queue)
                chunk = thread_pool.claim(queue, call, worker)
            call = thread_pool.next_call(queue, worker, call)

    return work_loop


work_loop = _work_loop(DIGEST)
