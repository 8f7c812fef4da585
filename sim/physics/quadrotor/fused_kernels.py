"""CPU kernels of the fused hover step: dynamics, observation with sensor noise, reward, termination and reset.

The task is :mod:`sim.backends.quadrotor_hover`, compiled for vectors of worlds (:mod:`sim.backends.lanes`); here is
what comes from memory and goes there. Episodes that end are collected, and started anew a vector of worlds at a time,
so that drawing initial states fills the lanes too. Tensors for the learner are feature-major, [rows, worlds]: what a
vector of worlds has of a feature is then one store.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from sim import compile as compiling
from sim import counter
from sim.backends import crew, lanes
from sim.backends import quadrotor_hover as hover
from sim.backends import quadrotor_kernels as kernels
from sim.backends import quadrotor_physics as physics
from sim.backends.lanes import ROW, WIDTH
from sim.backends.quadrotor_hover import CENTER, EPISODE, FIELDS, FORCE, N0, RETURN, ROWS, SCALE, START_ROTOR, STEPS
from sim.backends.quadrotor_kernels import CHUNK_SIZE, INNER, OPTIONS
from sim.backends.quadrotor_physics import PARAM_SIZE

TASK_SIZE = hover.TASK_SIZE
TURN, ACTIONS, COUNT = range(crew.JOB, crew.JOB + 3)  # the numbers that the drive takes from the box

_random = compiling.instantiate(counter, njit(**INNER), np.float32, **lanes.TARGET)
_called = vars(kernels.in_lanes) | vars(_random) | lanes.TARGET
_task = compiling.instantiate(hover, njit(**INNER), np.float32, **{name: _called[name] for name in hover.CALLED})
_clipped, _control_step, _episode_start = _task.clipped, _task.control_step, _task.episode_start
_true_rows, _hidden_rows, _noisy_rows = _task.true_rows, _task.hidden_rows, _task.noisy_rows
_noise, _noise_words = _task.noise, _task.noise_words
ONE = np.float32(1)


@njit(**INNER)
def next_words(state, c, keys):
    """The words of the noise that the worlds from ``c`` on will see after a step."""
    steps, episode = lanes.load(state, (c // ROW * FIELDS + STEPS) * ROW + c % ROW, 2)
    return _noise_words(keys[0], keys[1], keys[2], lanes.count_from(c), lanes.word(episode), lanes.word(steps) + 1)


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
        lanes.align_stack()
        task = lanes.scalars(figures, TASK_SIZE)
        columns = obs.shape[1]
        first_action = lanes.spread((task[START_ROTOR] - task[CENTER]) / task[SCALE])  # keeps the rotors as they are
        for i in range(last, last + (first - last) % WIDTH):
            ended[i] = ended[last - 1]
        for i in range(first, last, WIDTH):
            for j in range(i, min(i + WIDTH, last)):
                w = ended[j]
                results[0, w] = state[(w // ROW * FIELDS + STEPS) * ROW + w % ROW]
                results[1, w] = state[(w // ROW * FIELDS + RETURN) * ROW + w % ROW]
                for f in range(len(obs)):
                    final[w, f] = obs[f, w]
                for f in range(len(critic)):
                    final_critic[w, f] = critic[f, w]
            world = lanes.words(ended, i)
            place = (world >> 4) * (FIELDS * ROW) + (world & 15)
            number = lanes.gather(state, place + EPISODE * ROW) + ONE
            episode = lanes.word(number)
            start = _episode_start(episode, number, keys[0], keys[1], keys[3], world, task)
            t, n = _true_rows(start), _noise(_noise_words(keys[0], keys[1], keys[2], world, episode, 0))
            lanes.scatter(state, place, ROW, start)
            lanes.scatter(obs, world, columns, _noisy_rows(t, n, task))
            if known > ROWS:
                lanes.scatter(obs, world + ROWS * columns, columns, start[N0:FORCE])
            for f in range(known, len(obs)):
                lanes.scatter(obs, world + f * columns, columns, (first_action,))
            if len(critic) > 0:
                lanes.scatter(critic, world, columns, t + _hidden_rows(start))

    return restart


DIGEST = compiling.fingerprint(counter, hover, lanes, physics, crew, kernels)
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
        lanes.align_stack()
        p = lanes.scalars(params, PARAM_SIZE)
        task = lanes.scalars(figures, TASK_SIZE)
        columns = obs.shape[1]
        of_noise = keys[0], keys[1], keys[2]
        end = first * ROW
        ahead = next_words(state, first * ROW, of_noise)
        for c in range(first * ROW, last * ROW, WIDTH):
            i = c // ROW * FIELDS * ROW + c % ROW
            a, w = _clipped(lanes.columns(actions, 4 * c)), lanes.load(state, i, FIELDS)
            # random words come one from the other: drawn for the vector after this one, they need not be waited for
            words, ahead = ahead, next_words(state, min(c + WIDTH, last * ROW - WIDTH), of_noise)
            n = _noise(words)
            w, gain, fell, late = _control_step(w, a, p, task, dt)
            lanes.store(state, i, ROW, w[:FORCE])
            lanes.store(state, i + STEPS * ROW, (RETURN - STEPS) * ROW, (w[STEPS], w[RETURN]))  # the rest stays
            lanes.store(reward, c, ROW, (gain,))
            lanes.store_flags(flags, c, fell)
            lanes.store_flags(flags, columns + c, late)
            done = lanes.bits(fell | late)
            ending[end] = c << 16 | done
            end += done != 0
            t = _true_rows(w)
            lanes.store(obs, c, columns, _noisy_rows(t, n, task))
        return end

    @njit(cache=True, **OPTIONS)
    def observe_more(state, actions, known, past, obs, critic, first, last):
        """Rotor speeds and past actions of the blocks ``first`` to ``last``, and what only a critic sees of them.

        A pass of its own: with this in its loop, :func:`advance` takes an eighth longer even where there is none of it.
        """
        _ = digest
        lanes.align_stack()
        columns = obs.shape[1]
        for c in range(first * ROW, last * ROW, WIDTH):
            w = lanes.load(state, c // ROW * FIELDS * ROW + c % ROW, FIELDS)
            if known > ROWS:
                lanes.store(obs, ROWS * columns + c, columns, w[N0:FORCE])
            if len(obs) > known:
                lanes.store(obs, known * columns + c, columns, _clipped(lanes.columns(actions, 4 * c)))
            for f in range(known + 4, len(obs)):
                lanes.store(obs, f * columns + c, columns, lanes.load(past, (f - 4) * columns + c, 1))
            if len(critic) > 0:
                lanes.store(critic, c, columns, _true_rows(w) + _hidden_rows(w))

    @njit(cache=True, **OPTIONS)
    def list_ended(ending, begin, end, worlds, ended):
        """The worlds that ``ending[begin:end]`` tells of into ``ended[begin:]``; where they end there."""
        _ = digest
        n = begin
        for j in range(begin, end):
            done = ending[j] & 0xFFFF
            while done:
                w = (ending[j] >> 16) + lanes.lowest(done)
                done &= done - 1
                ended[n] = w
                n += w < worlds  # not those that fill up the last block
        return n

    return advance, observe_more, list_ended


advance, observe_more, list_ended = _step_kernels(DIGEST)


def _drive(digest: str) -> Any:
    @njit(cache=True, **OPTIONS)
    def drive(
        box, seat, state, params, figures, dt, keys, worlds, known, both_obs, both_critic, final, final_critic, reward,
        flags, results, lists,
    ):  # fmt: skip
        """One control step, for the threads of a :class:`sim.backends.crew.Crew`.

        Arguments as the fields of :class:`sim.backends.quadrotor_fused.FusedHover`: ``known`` rows of an observation
        come before the past actions; ``final`` and ``final_critic``, [N, rows], get the last observations of episodes.
        """
        _ = digest
        blocks = len(state) // (FIELDS * ROW)
        ending, ended = lists[0], lists[1]
        call = crew.next_call(box, seat, 0)
        while call:
            turn, size, actions = box[TURN], box[CHUNK_SIZE], crew.floats(box[ACTIONS], box[COUNT])
            past, obs, critic = both_obs[1 - turn], both_obs[turn], both_critic[turn]
            chunk = crew.claim(box, call, seat)
            while chunk >= 0:
                first, last = chunk * size, min(chunk * size + size, blocks)
                begin = first * ROW
                end = advance(
                    state, actions, params, figures, dt, keys, obs, reward, flags, ending, first, last
                )
                if len(obs) > ROWS or len(critic) > 0:
                    observe_more(state, actions, known, past, obs, critic, first, last)
                end = list_ended(ending, begin, end, worlds, ended)
                restart(
                    state, ended, begin, end, keys, figures, known, obs, critic, final, final_critic, results
                )
                crew.finish(box)
                chunk = crew.claim(box, call, seat)
            call = crew.next_call(box, seat, call)

    return drive


drive = _drive(DIGEST)
