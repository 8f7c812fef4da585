"""Differentiable closed-loop flight along a reference: the pieces between two evaluations of a policy.

One control step of N worlds is: the policy reads ``obs[t]`` and gives ``action[t]``; :func:`fly` moves the states,
takes the cost, ends worlds that left the fence and writes ``obs[t + 1]``; backward, :func:`fly_vjp` turns the
cotangents of ``obs[t + 1]`` and of the state after the step into those of ``action[t]`` and of the state before it. The
policy's matrix products stay outside.

A *reference row* is what a state should be at one control step: position (3), quaternion wxyz (4), velocity (3), body
rates (3). An *observation* row is, in this order: position and velocity relative to the reference, as
[position (3), rotation matrix row-major (9), velocity (3), body rates relative to the reference (3)], with noise; for
each preview step the reference position there relative to the present one (3); the last actions, newest first. A
*feature* row (what a critic may know) is the same 18 without noise, rotor speeds in [-1, 1] (4), disturbance force (3)
and torque (3) in units of their scale, and the previews.

The state arrays are blocks as in :mod:`temporeal.sim.physics.quadrotor.kernels`, flat; everything else is one row per
world, and the number of worlds is a multiple of 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from temporeal.sim.physics.quadrotor.adjoint import DIGEST, forward, scalar, store_cotangents
from temporeal.sim.physics.quadrotor.dynamics import FORCE_X, N0, QW, QX, QY, QZ, TORQUE_X, VX, WX
from temporeal.sim.physics.quadrotor.kernels import OPTIONS, load_params, load_state, store_state

REFERENCE = 13  # numbers of a reference row
SENSED = 18  # numbers of an observation before previews and actions
HIDDEN = 10  # rotor speeds, force and torque in a feature row
# order of the packed objective
POSITION, ATTITUDE, VELOCITY, RATE, ACTION, HOVER, CEILING, FENCE, CYCLIC, FORCE_SCALE, TORQUE_SCALE = range(11)
OBJECTIVE_SIZE = 11

motor_step, _motor_step_vjp = forward.motor_step, scalar.motor_step_vjp
_rotation, _rotation_vjp = scalar.rotation, scalar.rotation_vjp
HALF = np.float32(0.5)
ONE = np.float32(1.0)
TWO = np.float32(2.0)
ZERO = np.float32(0.0)


@njit(**OPTIONS)
def _row(step, length, cyclic):
    """Row of the reference at ``step``: from the beginning again, or the last one."""
    return step % length if cyclic > 0 else min(step, length - 1)


@njit(**OPTIONS)
def observe_world(states, params, b, k, objective, reference, step, preview, noise, obs, features):
    """Observation and feature row of the world in lane ``k`` of block ``b``, without the past actions."""
    w, x = b * 16 + k, b * 272 + k
    r = reference[_row(step, len(reference), objective[CYCLIC])]
    rot = _rotation(states[x + QW * 16], states[x + QX * 16], states[x + QY * 16], states[x + QZ * 16])
    for i in range(3):
        features[w, i] = states[x + i * 16] - r[i]
        features[w, 12 + i] = states[x + (VX + i) * 16] - r[7 + i]
        features[w, 15 + i] = states[x + (WX + i) * 16] - r[10 + i]
    for i, value in enumerate(rot):
        features[w, 3 + i] = value
    for i in range(SENSED):
        obs[w, i] = features[w, i] + noise[w, i]
    for i in range(4):
        features[w, SENSED + i] = TWO * states[x + (N0 + i) * 16] - ONE
    for i in range(3):
        features[w, SENSED + 4 + i] = params[b * 560 + (FORCE_X + i) * 16 + k] * objective[FORCE_SCALE]
        features[w, SENSED + 7 + i] = params[b * 560 + (TORQUE_X + i) * 16 + k] * objective[TORQUE_SCALE]
    for j in range(len(preview)):
        ahead = reference[_row(step + preview[j], len(reference), objective[CYCLIC])]
        for i in range(3):
            obs[w, SENSED + 3 * j + i] = ahead[i] - r[i]
            features[w, SENSED + HIDDEN + 3 * j + i] = ahead[i] - r[i]


@njit(**OPTIONS)
def squared(states, x, first, r, offset):
    """Squared distance of three state numbers from the reference."""
    total = ZERO
    for i in range(3):
        e = states[x + (first + i) * 16] - r[offset + i]
        total += e * e
    return total


@njit(**OPTIONS)
def alignment(states, x, r):
    """Inner product of the quaternion with that of the reference: cosine of half the angle between them."""
    return (
        states[x + QW * 16] * r[3] + states[x + QX * 16] * r[4]
        + states[x + QY * 16] * r[5] + states[x + QZ * 16] * r[6]
    )


@njit(**OPTIONS)
def world_cost(states, x, r, action, w, objective):
    """Cost of the state after the step and of the action that led to it, below its ceiling."""
    effort = ZERO
    for i in range(4):
        e = action[w, i] - objective[HOVER]
        effort += e * e
    aligned = alignment(states, x, r)
    return (
        objective[POSITION] * squared(states, x, 0, r, 0) + objective[ATTITUDE] * (ONE - aligned * aligned)
        + objective[VELOCITY] * squared(states, x, VX, r, 7) + objective[RATE] * squared(states, x, WX, r, 10)
        + objective[ACTION] * effort
    )  # fmt: skip


@njit(**OPTIONS)
def add_features_vjp(states, x, d, w, grads):
    """Add the cotangent of the 18 sensed numbers, row ``d[w]``, to that of the state."""
    for i in range(3):
        grads[x + i * 16] += d[w, i]
        grads[x + (VX + i) * 16] += d[w, 12 + i]
        grads[x + (WX + i) * 16] += d[w, 15 + i]
    q = _rotation_vjp(
        states[x + QW * 16], states[x + QX * 16], states[x + QY * 16], states[x + QZ * 16],
        d[w, 3], d[w, 4], d[w, 5], d[w, 6], d[w, 7], d[w, 8], d[w, 9], d[w, 10], d[w, 11],
    )  # fmt: skip
    for i in range(4):
        grads[x + (QW + i) * 16] += q[i]


def _forward_kernels(digest: str) -> tuple[Any, ...]:
    """The kernels; ``digest`` puts the source of what they call into the key of numba's cache."""

    @njit(cache=True, **OPTIONS)
    def observe(states, params, objective, reference, steps, preview, noise, obs, features):
        """Observation and feature rows of all worlds at reference ``steps`` [N]; past actions are left alone."""
        _ = digest
        for b in range(len(steps) // 16):
            for k in range(16):
                observe_world(
                    states, params, b, k, objective, reference, steps[b * 16 + k], preview, noise, obs, features
                )  # fmt: skip

    @njit(cache=True, **OPTIONS)
    def fly(
        t, states, params, action, dt, objective, reference, steps, preview, noise, obs, features, cost, alive, history
    ):
        """Control step ``t``: entries ``t + 1`` of ``states``, ``obs``, ``features``, ``alive`` and ``cost[t]``."""
        _ = digest
        now, after = states[t], states[t + 1]
        for b in range(len(steps) // 16):
            x = after[b * 272 : b * 272 + 272]
            x[:] = now[b * 272 : b * 272 + 272]
            for k in range(16):
                p = load_params(params, b * 560 + k, 16)
                w = b * 16 + k
                s = motor_step(
                    load_state(x, k), HALF + HALF * action[t, w, 0], HALF + HALF * action[t, w, 1],
                    HALF + HALF * action[t, w, 2], HALF + HALF * action[t, w, 3], p, dt, True,
                )  # fmt: skip
                store_state(x, k, s)
            for k in range(16):
                w, i = b * 16 + k, b * 272 + k
                step = steps[w] + t + 1
                observe_world(
                    after, params, b, k, objective, reference, step, preview, noise[t + 1], obs[t + 1], features[t + 1]
                )
                r = reference[_row(step, len(reference), objective[CYCLIC])]
                cost[t, w] = min(world_cost(after, i, r, action[t], w, objective), objective[CEILING])
                far = max(max(abs(after[i] - r[0]), abs(after[i + 16] - r[1])), abs(after[i + 32] - r[2]))
                alive[t + 1, w] = alive[t, w] if far <= objective[FENCE] else ZERO
        first = obs.shape[2] - 4 * history
        if history > 0:
            for w in range(len(steps)):
                for i in range(4):
                    obs[t + 1, w, first + i] = action[t, w, i]
                for i in range(first, obs.shape[2] - 4):
                    obs[t + 1, w, i + 4] = obs[t, w, i]

    return observe, fly


def _backward_kernels(digest: str) -> tuple[Any, ...]:
    @njit(cache=True, **OPTIONS)
    def fly_vjp(
        t, states, params, action, dt, objective, reference, steps, weight, cost, d_obs, past, grads, d_action,
        history,
    ):  # fmt: skip
        """Adjoint of :func:`fly` at ``t`` for the objective ``sum(weight * cost)``, ``weight`` [T, N].

        ``grads`` (blocks of 17) enters as the cotangent of the state after the step but for its cost and its
        observation, and leaves as that of the state before it. ``d_obs`` [N, O] is the cotangent of ``obs[t + 1]``.
        ``past`` [N, 4 H] enters as the total cotangent of the past actions at ``t + 2``, leaves as that at ``t + 1``.
        ``d_action`` [N, 4] receives that of the action.
        """
        _ = digest
        after, now = states[t + 1], states[t]
        tile = np.empty(336, np.float32)  # cotangents of state and command: one array to write, so that it vectorizes
        first = d_obs.shape[1] - 4 * history
        if history > 0:
            for w in range(len(steps)):
                for i in range(4 * history - 4):
                    past[w, i] = d_obs[w, first + i] + past[w, i + 4]
                for i in range(4 * history - 4, 4 * history):
                    past[w, i] = d_obs[w, first + i]
        for b in range(len(steps) // 16):
            for k in range(16):
                w, x = b * 16 + k, b * 272 + k
                add_features_vjp(after, x, d_obs, w, grads)
                r = reference[_row(steps[w] + t + 1, len(reference), objective[CYCLIC])]
                h = TWO * weight[t, w] if cost[t, w] < objective[CEILING] else ZERO
                for i in range(3):
                    grads[x + i * 16] += h * objective[POSITION] * (after[x + i * 16] - r[i])
                    grads[x + (VX + i) * 16] += h * objective[VELOCITY] * (after[x + (VX + i) * 16] - r[7 + i])
                    grads[x + (WX + i) * 16] += h * objective[RATE] * (after[x + (WX + i) * 16] - r[10 + i])
                turn = -h * objective[ATTITUDE] * alignment(after, x, r)
                for i in range(4):
                    grads[x + (QW + i) * 16] += turn * r[3 + i]
                    d_action[w, i] = h * objective[ACTION] * (action[t, w, i] - objective[HOVER])
            tile[:272] = grads[b * 272 : b * 272 + 272]
            for k in range(16):
                p = load_params(params, b * 560 + k, 16)
                w = b * 16 + k
                d = _motor_step_vjp(
                    load_state(now, b * 272 + k), HALF + HALF * action[t, w, 0], HALF + HALF * action[t, w, 1],
                    HALF + HALF * action[t, w, 2], HALF + HALF * action[t, w, 3], p, dt, True, load_state(tile, k),
                )  # fmt: skip
                store_cotangents(tile, k, d)
            grads[b * 272 : b * 272 + 272] = tile[:272]
            for k in range(16):
                for i in range(4):
                    w = b * 16 + k
                    d_action[w, i] += HALF * tile[(17 + i) * 16 + k]
                    if history > 0:
                        d_action[w, i] += past[w, i]

    @njit(cache=True, **OPTIONS)
    def features_vjp(states, d_features, grads):
        """``grads`` [blocks of 17] receives the cotangent of the states from that of their feature rows."""
        _ = digest
        grads[:] = ZERO
        for b in range(len(d_features) // 16):
            for k in range(16):
                w, x = b * 16 + k, b * 272 + k
                add_features_vjp(states, x, d_features, w, grads)
                for i in range(4):
                    grads[x + (N0 + i) * 16] = TWO * d_features[w, SENSED + i]

    return fly_vjp, features_vjp


observe, fly = _forward_kernels(DIGEST)
fly_vjp, features_vjp = _backward_kernels(DIGEST)
