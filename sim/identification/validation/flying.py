"""The simulator flown along a record with residual dynamics, pushes and states of each flight's own.

As :mod:`temporeal.sim.identification.shooting`, whose parts this uses; the ensemble acts during each step of the
integrator, as in the training simulator's kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from temporeal.sim.compiler import scalar_functions as compiling
from temporeal.sim.identification import shooting
from temporeal.sim.identification.record import FlightRecord, Numbers
from temporeal.sim.identification.shooting import INNER, OPTIONS, SIZE, Flown
from temporeal.sim.physics.quadrotor import dynamics as physics
from temporeal.sim.physics.quadrotor.residual import scalar
from temporeal.sim.physics.quadrotor.residual.ensemble import Ensemble

_residual = compiling.instantiate(scalar, njit(**INNER), float)
_rotation, _inputs, _accelerations, _acting = (
    _residual.rotation, _residual.inputs, _residual.accelerations, _residual.acting)
_step, _derivative = shooting.plain.motor_step, shooting.plain.derivative
_params, _setpoints, _write = shooting._params, shooting._setpoints, shooting._write


@dataclass(frozen=True)
class Beyond:
    """What acts beyond the physics in P flights.

    Args:
        ensemble: residual dynamics, or none. shares: [P, M] of its members. push: [P or 1, T, 6] accelerations in body
            axes, m/s^2 and rad/s^2. state: [P or 1, T, 13] measured; None: as in the record.
    """

    ensemble: Ensemble | None = None
    shares: Numbers | None = None
    push: Numbers | None = None
    state: Numbers | None = None


NOTHING = Beyond()


@njit(**INNER)
def _pushed(s: Any, p: Any, push: Any, net: Any, hidden: Any, members: Any, scratch: Any) -> Any:
    """``p`` with what the ensemble and the push do to the state ``s``."""
    r = _rotation(s)
    x, y, z, a, b, c = push[0], push[1], push[2], push[3], push[4], push[5]
    if members > 0:
        _inputs(s, p, r, scratch)
        at = _accelerations(net, hidden, members, scratch)
        x, y, z = x + scratch[at], y + scratch[at + 1], z + scratch[at + 2]
        a, b, c = a + scratch[at + 3], b + scratch[at + 4], c + scratch[at + 5]
    return _acting(p, r, x, y, z, a, b, c)


def _kernel(digest: str) -> Any:
    """The kernel; ``digest`` puts the source of what it calls into the key of numba's cache."""

    @njit(cache=True, **OPTIONS)
    def fly(params: Any, delays: Any, factors: Any, bias: Any, shares: Any, command: Any, states: Any, start: Any,
            dt: Any, substeps: Any, net: Any, hidden: Any, members: Any, pushes: Any, out: Any, rotors: Any) -> None:
        """As in ``shooting``; states [P or 1, T, 13], members [P, M], pushes [P or 1, T, 6], rotors [P, T, 4]."""
        _ = digest
        count = members.shape[1]
        scratch = np.zeros(scalar.INPUTS + 2 * hidden + count + 2 * scalar.OUTPUTS)
        for i in range(len(params)):
            p, factor = _params(params[i]), factors[i]
            state, push = states[i % len(states)], pushes[i % len(pushes)]
            for m in range(count):
                scratch[scalar.INPUTS + 2 * hidden + m] = members[i, m]
            late, wide = delays[i] / dt, 1.0 / substeps
            n0, n1, n2, n3 = _setpoints(command, factor[0], -late, wide, shares[i])
            s = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, n0, n1, n2, n3)
            for k in range(len(command)):
                if start[k]:
                    m = state[k]
                    s = (
                        m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8], m[9], m[10] - bias[i, 0],
                        m[11] - bias[i, 1], m[12] - bias[i, 2], s[13], s[14], s[15], s[16],
                    )  # fmt: skip
                q = _pushed(s, p, push[k], net, hidden, count, scratch)
                _write(out[i, k], s, _derivative(s, n0, n1, n2, n3, q, True))
                rotors[i, k, 0], rotors[i, k, 1], rotors[i, k, 2], rotors[i, k, 3] = s[13], s[14], s[15], s[16]
                for j in range(substeps):
                    if j > 0:
                        q = _pushed(s, p, push[k], net, hidden, count, scratch)
                    u0, u1, u2, u3 = _setpoints(command, factor[k], k + j * wide - late, wide, shares[i])
                    s = _step(s, u0, u1, u2, u3, q, dt * wide, True)

    return fly


fly = _kernel(compiling.fingerprint(physics, shooting, scalar))


def flown(how: Flown, record: FlightRecord, begin: NDArray[np.int64], reference_v: float, beyond: Beyond = NOTHING
          ) -> tuple[Numbers, Numbers]:
    """What sensors would say [P, T, SIZE], and rotor speeds [P, T, 4]; between stretches the former is of no use.

    ``begin``: first samples of the stretches.
    """
    count, length = len(how.params), len(record.command)
    start = np.zeros(length, dtype=np.bool_)
    start[begin] = True
    params, factors, substeps = shooting.prepared(how, record, reference_v)
    out, rotors = np.empty((count, length, SIZE)), np.empty((count, length, 4))
    ensemble = beyond.ensemble
    net = np.zeros(0) if ensemble is None else ensemble.packed()
    members = np.zeros((count, 0))
    if ensemble is not None:
        mean = np.full((count, ensemble.members), 1.0 / ensemble.members)
        members = mean if beyond.shares is None else np.ascontiguousarray(beyond.shares)
    push = np.zeros((1, length, 6)) if beyond.push is None else beyond.push
    state = record.state()[None] if beyond.state is None else beyond.state
    fly(params, how.delay, factors, how.rate_bias, how.share, record.command, state, start, record.step, substeps, net,
        0 if ensemble is None else ensemble.hidden, members, push, out, rotors)
    return out, rotors
