"""What joints did minus what the simulator says: [P, S, L, C] of P vectors, S stretches, L samples, C channels.

A joint that a servo holds is stable: the simulation runs through the record from its beginning and forgets where it
began, so that no state is set in between and no noise of a measured state gets in. Stretches only say which samples
belong together, for their noise and for how scores hang together.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from temporeal.sim.identification.joints import parameters, stepping
from temporeal.sim.identification.joints.mechanism import Mechanism, Terms, terms
from temporeal.sim.identification.joints.record import JointRecord, starts, stretches
from temporeal.sim.identification.parameters import Quantity, by_name
from temporeal.sim.identification.record import Numbers

SIGNALS = ("joint_pos", "joint_vel", "joint_torque")
"""Of what :mod:`.stepping` predicts, in its order."""


@dataclass(frozen=True)
class Problem:
    """Records of one robot, and how they are cut into stretches.

    Args:
        along: of each record. length: samples of a stretch. begins: of each record, first samples of its stretches.
    """

    asked: tuple[Quantity, ...]
    mechanism: Mechanism
    records: tuple[JointRecord, ...]
    along: tuple[Terms, ...]
    length: int
    begins: tuple[NDArray[np.int64], ...]
    threads: int = 1

    @property
    def signals(self) -> tuple[int, ...]:
        """Which of :data:`SIGNALS` all records have."""
        has = (True, all(record.speed is not None for record in self.records),
               all(record.effort is not None for record in self.records))
        return tuple(k for k, there in enumerate(has) if there)

    @property
    def channels(self) -> tuple[str, ...]:
        """What is compared."""
        return tuple(f"{SIGNALS[k]}[{name}]" for k in self.signals for name in self.mechanism.names)

    @property
    def times(self) -> Numbers:
        """[L] s of a stretch's samples."""
        return np.asarray(np.arange(1, self.length + 1) * self.records[0].step)

    @property
    def started(self) -> tuple[bool, ...]:
        """All channels may be off by something slow that the model leaves out."""
        return (True,) * len(self.channels)

    @property
    def prior(self) -> tuple[Numbers, Numbers]:
        """Means and standard deviations [Q]."""
        return np.array([each.mean for each in self.asked]), np.array([each.sd for each in self.asked])

    def residuals(self, theta: Numbers) -> Numbers:
        """[P, S, L, C] of vectors theta [P, Q]; what is no number is of a step too far."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.compared(theta)

    def compared(self, theta: Numbers) -> Numbers:
        """[P, S, L, C]: what was measured less what is predicted."""
        found = []
        for record, along, begin in zip(self.records, self.along, self.begins):
            out = predicted(self, record, along, theta)
            at = begin[:, None] + np.arange(self.length)
            seen = (record.place, record.speed, record.effort)
            found.append(np.concatenate([measured[at] - out[..., k][:, at] for k, measured in enumerate(seen)
                                         if k in self.signals and measured is not None], -1))
        return np.concatenate(found, 1)


def predicted(problem: Problem, record: JointRecord, along: Terms, theta: Numbers) -> Numbers:
    """[P, T, J, 3] places, speeds and efforts. Chains of joints that a vector does not tell apart from another one's
    are simulated once."""
    m, q = problem.mechanism, by_name(problem.asked, theta)
    params = parameters.stepped(m, problem.asked, theta)
    shared = np.stack([q["command_delay"] / record.dt, parameters.load(m, q, len(theta)), q["stribeck_speed"]], 1)
    out = np.empty((*params.shape[:1], *record.place.shape, 3))
    for chain in m.chains:
        of_chain = np.concatenate([params[:, chain].reshape(len(theta), -1), shared], 1)
        if not along.heavier[:, chain].any():
            of_chain[:, -2] = 0.0
        rows, back = np.unique(of_chain, axis=0, return_inverse=True)
        out[:, :, chain] = run(problem, record, along, chain, rows)[back]
    return out


def run(problem: Problem, record: JointRecord, along: Terms, chain: NDArray[np.int64], rows: Numbers) -> Numbers:
    """[P, T, J, 3] of one chain's J joints, by its parameters: rows [P, J FIELDS + 3]."""
    m, count, joints = problem.mechanism, len(rows), len(chain)
    params = np.ascontiguousarray(rows[:, :-3]).reshape(count, joints, -1)
    late, load, slow = (np.ascontiguousarray(rows[:, k]) for k in (-3, -2, -1))
    pick = np.ix_(np.arange(len(record.place)), chain, [*chain, len(m.names), len(m.names) + 1])
    inertia, heavier = np.ascontiguousarray(along.inertia[:, chain][:, :, chain]), along.heavier[pick]
    bias, own, place = (np.ascontiguousarray(each[:, chain]) for each in (along.bias, along.own, record.smooth()))
    speed = np.ascontiguousarray(record.smooth(1)[:, chain])
    command, begin = np.ascontiguousarray(record.command[:, chain]), starts(record)
    out = np.empty((count, len(place), joints, 3))

    def some(first: int, last: int) -> None:
        stepping.run(params[first:last], late[first:last], load[first:last], slow[first:last], command, inertia, bias,
                     own, heavier, place, speed, begin, m.decay[chain], m.most[chain], record.dt, record.each,
                     m.integrator, out[first:last])

    edges = np.linspace(0, count, min(problem.threads, count) + 1).astype(int)
    if len(edges) == 2:
        some(0, count)
        return out
    with ThreadPoolExecutor(len(edges) - 1) as pool:
        for _ in pool.map(some, edges[:-1], edges[1:]):
            pass
    return out


def problem_of(m: Mechanism, asked: Sequence[Quantity], records: Sequence[JointRecord], stretch_s: float,
               threads: int = 1) -> Problem:
    """Records cut into stretches of ``stretch_s`` seconds; all records have one step."""
    length = max(int(round(stretch_s / records[0].step)), 3)
    along = tuple(terms(m, record.smooth(), record.smooth(1)) for record in records)
    return Problem(tuple(asked), m, tuple(records), along, length, tuple(stretches(each, length) for each in records),
                   threads)
