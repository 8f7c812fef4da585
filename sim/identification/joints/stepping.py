"""MuJoCo's step of joints with position servos, along a record, for many parameter vectors at once.

A joint that a servo holds stays within milliradians of where it was measured, so inertia, gravity and Coriolis terms
are taken where the record was (:mod:`.mechanism`), once for all vectors. What is left of a step is MuJoCo's own law
(its documentation, "Computation"): the servo with its limit, viscous damping, friction as a constraint that is soft in
its way, the implicit integrator. Two things are added that MuJoCo's joints do not have, and that are zero there:

- Stribeck: at rest friction is ``stribeck`` more, ``frictionloss + stribeck exp(-(v / speed)^2)`` (Armstrong-Helouvry,
  Dupont and Canudas-de-Wit, Automatica 30(7), 1994, eq. 6, with the exponent 2)
- backlash, as a dead zone: of the distance to its setpoint a servo feels what is beyond half of ``backlash``

J joints of one chain, P vectors, T samples of the record, n physics steps in each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

FIELDS = ("armature", "damping", "frictionloss", "stribeck", "kp", "kd", "strength", "backlash", "softness")
ARMATURE, DAMPING, FRICTION, STRIBECK, KP, KD, STRENGTH, BACKLASH, SOFTNESS = range(len(FIELDS))
"""Of a joint's parameters. ``softness``: MuJoCo's R of its friction constraint, 1 / (kg m^2)."""
PLACE, SPEED, EFFORT = range(3)
"""Of what is predicted for a joint: rad, rad/s, N m (m, m/s, N where it slides); efforts under the command then in
force, where MuJoCo's sensors say that of the step before."""
EULER, IMPLICIT = 0, 1
"""Integrators: Euler's with damping taken implicitly, or with that of servos, too (``implicitfast``)."""
MOST_TURNS, TOGETHER = 60, 4
"""Of the search for which joints stick: each turn solves once; usual are one or two. After ``TOGETHER`` of them one
joint at a time changes, the first that must, which ends (Murty, Linear Algebra and its Applications 7(1), 1974)."""

OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "cache": True}


@njit(**OPTIONS)
def _solve(a: Any, b: Any, x: Any) -> None:
    """x [J] of the symmetric positive definite ``a`` [J, J] and ``b`` [J], by Cholesky; ``a`` is overwritten."""
    n = len(b)
    for j in range(n):
        s = a[j, j]
        for k in range(j):
            s -= a[j, k] * a[j, k]
        root = np.sqrt(s)
        a[j, j] = root
        for i in range(j + 1, n):
            s = a[i, j]
            for k in range(j):
                s -= a[i, k] * a[j, k]
            a[i, j] = s / root
    for i in range(n):
        s = b[i]
        for k in range(i):
            s -= a[i, k] * x[k]
        x[i] = s / a[i, i]
    for i in range(n - 1, -1, -1):
        s = x[i]
        for k in range(i + 1, n):
            s -= a[k, i] * x[k]
        x[i] = s / a[i, i]


@njit(**OPTIONS)
def _friction(inertia: Any, smooth: Any, wanted: Any, bound: Any, p: Any, state: Any, work: Any, b: Any, a: Any,
              force: Any) -> None:
    """Forces of friction [J] that minimize Gauss's cost with MuJoCo's soft bound (its "Constraint model").

    Of each joint the cost is (a - wanted)^2 / (2 R) where it sticks, and linear where it slips; ``state`` [J] (0
    sticks, 1 and -1 slip) is where the search begins, and what it found.
    """
    n = len(smooth)
    for turn in range(MOST_TURNS):
        for i in range(n):
            for k in range(n):
                work[i, k] = inertia[i, k]
            if state[i] == 0 and bound[i] > 0:
                work[i, i] += 1.0 / p[i, SOFTNESS]
                b[i] = smooth[i] + wanted[i] / p[i, SOFTNESS]
            else:
                b[i] = smooth[i] - state[i] * bound[i]
        _solve(work, b, a)
        same = True
        for i in range(n):
            pull = (a[i] - wanted[i]) / p[i, SOFTNESS]
            now = 1 if pull > bound[i] else (-1 if pull < -bound[i] else 0)
            if bound[i] <= 0:
                now = 0
            if now * state[i] < 0:  # from one slip to the other past sticking, or it may go back and forth for ever
                now = 0
            if now != state[i] and (same or turn < TOGETHER):
                state[i], same = now, False
            force[i] = -bound[i] * now if now != 0 or bound[i] <= 0 else -pull
        if same:
            return


@njit(**OPTIONS)
def _held(command: Any, at: Any, joint: Any) -> Any:
    """The mean of a command from ``at`` to ``at + 1``, in physics steps, each held until the next."""
    last, first = len(command) - 1, int(np.floor(at))
    late = at - first
    return ((1.0 - late) * command[min(max(first, 0), last), joint]
            + late * command[min(max(first + 1, 0), last), joint])


@njit(**OPTIONS)
def _between(inertia: Any, bias: Any, own: Any, heavier: Any, load: Any, k: Any, after: Any, each: Any, here: Any,
             change: Any) -> None:
    """Inertia, bias and own of sample k with a load, as columns of ``here`` [J, J + 2], and their change in a step."""
    joints = len(here)
    for j in range(joints):
        for c in range(joints + 2):
            now, then = load * heavier[k, j, c], load * heavier[after, j, c]
            if c < joints:
                now, then = now + inertia[k, j, c], then + inertia[after, j, c]
            elif c == joints:
                now, then = now + bias[k, j], then + bias[after, j]
            else:
                now, then = now + own[k, j], then + own[after, j]
            here[j, c], change[j, c] = now, (then - now) / each


@njit(**OPTIONS)
def run(params: Any, late: Any, load: Any, slow: Any, command: Any, inertia: Any, bias: Any, own: Any, heavier: Any,
        place: Any, speed: Any, start: Any, decay: Any, most: Any, dt: Any, each: Any, integrator: Any, out: Any
        ) -> None:
    """All vectors along a record.

    Args:
        params: [P, J, FIELDS]. late: [P] physics steps by which commands are. load: [P] kg. slow: [P] rad/s of the
            Stribeck term. command: [T n, J]. inertia: [T, J, J], bias: [T, J], own: [T, J] of the actuators' own
            gravity compensation, heavier: [T, J, J + 2] what a kg of load adds to inertia and, the last columns, to
            bias and own. place, speed: [T, J] as measured. start: [T] where the state is set to it. decay: [J] 1/s
            with which friction takes speed away. most: [J] that actuators exert on a joint, all together.
        dt: physics step, s. each: n. out: [P, T, J, 3].
    """
    joints, samples = inertia.shape[1], len(place)
    for i in range(len(params)):
        p = params[i]
        q, v, force, smooth = np.zeros(joints), np.zeros(joints), np.zeros(joints), np.zeros(joints)
        b, a, wanted, bound = np.zeros(joints), np.zeros(joints), np.zeros(joints), np.zeros(joints)
        m, work, effort = np.zeros((joints, joints)), np.zeros((joints, joints)), np.zeros(joints)
        here, change = np.zeros((joints, joints + 2)), np.zeros((joints, joints + 2))
        inner, state = np.zeros(joints), np.zeros(joints, np.int64)
        for k in range(samples):
            if start[k]:
                for j in range(joints):
                    q[j], v[j] = place[k, j], speed[k, j]
            for j in range(joints):
                out[i, k, j, 0], out[i, k, j, 1] = q[j], v[j]
            _between(inertia, bias, own, heavier, load[i], k, min(k + 1, samples - 1), each, here, change)
            for step in range(each):
                for j in range(joints):
                    for c in range(joints):
                        m[j, c] = here[j, c] + step * change[j, c]
                    m[j, j] += p[j, ARMATURE]
                    off = _held(command, k * each + step - late[i], j) - q[j]
                    half = 0.5 * p[j, BACKLASH]
                    off = off - half if off > half else (off + half if off < -half else 0.0)
                    drive = p[j, KP] * off - p[j, KD] * v[j]
                    inner[j] = p[j, DAMPING] + (p[j, KD] if integrator == 1 and abs(drive) < p[j, STRENGTH] else 0.0)
                    drive = min(max(drive, -p[j, STRENGTH]), p[j, STRENGTH])
                    gravity = here[j, joints + 1] + step * change[j, joints + 1]
                    effort[j] = min(max(drive + gravity, -most[j]), most[j])
                    smooth[j] = (effort[j] - gravity - here[j, joints] - step * change[j, joints]
                                 - p[j, DAMPING] * v[j])
                    wanted[j] = -decay[j] * v[j]
                    bound[j] = p[j, FRICTION] + p[j, STRIBECK] * np.exp(-((v[j] / slow[i]) ** 2))
                if step == 0:
                    for j in range(joints):
                        out[i, k, j, 2] = effort[j]
                _friction(m, smooth, wanted, bound, p, state, work, b, a, force)
                for j in range(joints):
                    b[j] = smooth[j] + force[j]
                    m[j, j] += dt * inner[j]
                _solve(m, b, a)
                for j in range(joints):
                    v[j] += dt * a[j]
                    q[j] += dt * v[j]
