"""Whether logged efforts are what the joints' model says: another sign, another unit, a motor's current.

Wrong efforts make wrong gains, and sure ones: they are what gives all forces their scale. Nobody knows yet what a robot
exerts, so efforts are held against two things that have little in common, with the numbers of the robot's model: the
logged distance to the setpoint, by a servo whose gain is about that of the model, and what the motion takes: links as
in the model, and motors' inertia and friction within the wide ranges of their priors. Efforts are wrong where they are
explained much better as some other multiple of themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.optimize import lsq_linear

from temporeal.policies.data.joint_logs.checks import Finding
from temporeal.sim.identification.joints.mechanism import Mechanism, terms
from temporeal.sim.identification.joints.parameters import ranges
from temporeal.sim.identification.joints.record import JointRecord
from temporeal.sim.identification.record import Numbers

SHARES = np.geomspace(0.03, 30.0, 13)
"""Multiples of the model's that are tried for logged efforts, with both signs."""
FAR = 4.0
"""Factors up and down of what efforts are, from which on they are wrong; nearer to 1 they are odd. A current is a tenth
or less of most motors' torque."""
TOLD, BETTER = 0.6, 0.3
"""Share of efforts' variance that some multiple explains at least, and by how much more than efforts as they are."""
APART, LATE_S = 1.3, 0.05
"""Factor up and down within which a servo's gain is that of its range, and motors' inertia and friction of theirs; how
late commands are at most."""
CREEP = 0.02
"""rad/s or m/s, from which on friction has its full size."""
MOST = 600
"""Samples at most for which the motion's forces are computed."""


def findings(record: JointRecord, m: Mechanism) -> Iterator[Finding]:
    """Of the efforts of one record, joint by joint; none without efforts, or where all are constant (left out)."""
    if record.effort is None or not np.ptp(record.effort[record.usable], axis=0).any():
        return
    use = np.flatnonzero(record.usable)
    use = use[:: max(len(use) // MOST, 1)]
    place, speed, faster = (record.smooth(order)[use] for order in range(3))
    along, told = terms(m, place, speed), smooth(record, record.command[:: record.each][: len(record.place)])[use]
    efforts = smooth(record, record.effort)[use]  # a stiff servo's jump with each setpoint
    known = np.einsum("tjk,tk->tj", along.inertia, faster) + along.bias + along.own
    for j in map(int, np.flatnonzero(record.moved())):
        name, effort = f"joint_torque[{m.names[j]}]", efforts[:, j]
        if not np.ptp(record.effort[record.usable, j]):
            yield Finding(name, f"is {effort[0]:.4g} all the time while the joint moves: a dead channel")
            continue
        tried = (multiple(effort, known[:, j], *by_motion(m, j, speed[:, j], faster[:, j])),
                 multiple(effort, np.zeros(len(use)), *by_servo(m, j, (told - place)[:, j], speed[:, j])))
        if found := judged(name, [each for each in tried if each is not None]):
            yield found


def smooth(record: JointRecord, values: Numbers) -> Numbers:
    """[T, J] without what is faster than the places that inertia is taken of."""
    return replace(record, place=values).smooth()


def judged(name: str, factors: list[float]) -> Finding | None:
    """What is said of a joint's efforts, which are ``factors`` times what predictions say, the surest first."""
    if not factors or 1.0 in factors or len({(each > 0, abs(each) > 1) for each in factors if each > 0}) > 1:
        return None
    near = factors[0]
    said = f"is about {near:.2g} times what the model says: "
    if near < 0:
        return Finding(name, f"{said}the opposite sign?")
    if not 1 / FAR < near < FAR:
        return Finding(name, f"{said}another unit, a motor's current, or before the gear?")
    return Finding(name, f"{said}kp and all forces rest on it; is its unit right?", wrong=False)


def multiple(effort: Numbers, known: Numbers, parts: Numbers, low: Numbers, high: Numbers) -> float | None:
    """Which multiple of a model's efforts [N] are: 1, unless another one explains much more of them; None: none does.

    Args:
        known: [N] of the model. parts: [N, K] that it has ``low`` to ``high`` [K] of, and some constant.
    """
    basis = np.concatenate([parts - parts.mean(0), np.ones((len(parts), 1))], 1)
    scale = np.sqrt((basis**2).mean(0)) + 1e-12
    ends = (np.append(low, -np.inf) * scale, np.append(high, np.inf) * scale)
    known, effort = known - known.mean(), effort - effort.mean()

    def explained(share: float) -> float:
        target = effort / share - known
        found = lsq_linear(basis / scale, target, ends, max_iter=50)
        return 1 - 2 * float(found.cost) / float((effort / share) @ (effort / share))

    tried = {float(each): explained(each) for each in (1.0, *SHARES, *-SHARES)}
    most = max(tried.values())
    if most < TOLD:
        return None
    return 1.0 if tried[1.0] > most - BETTER else max(tried, key=lambda each: tried[each])


def by_servo(m: Mechanism, j: int, off: Numbers, speed: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Of :func:`multiple`: a servo's gain on the distance to its setpoint, and its damping and lateness on speed."""
    span = ranges(m, j)
    low, high = span["kp"]
    most = APART * high * LATE_S + APART * span.get("kd", (0.0, 0.0))[1]
    return np.stack([off, speed], 1), np.array([low / APART, -most]), np.array([high * APART, 0.0])


def by_motion(m: Mechanism, j: int, speed: Numbers, faster: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Of :func:`multiple`: motors' inertia, viscous and Coulomb friction, beside what links take."""
    spans = np.array([ranges(m, j)[name] for name in ("armature", "damping", "frictionloss")])
    return np.stack([faster, speed, np.tanh(speed / CREEP)], 1), spans[:, 0] / APART, spans[:, 1] * APART
