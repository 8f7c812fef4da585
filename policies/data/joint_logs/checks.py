"""What is wrong with a log of joints, joint by joint and by name: another unit, another order, a dead channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from temporeal.sim.identification.joints.record import STILL, JointRecord
from temporeal.sim.identification.record import Numbers

FOLLOWS = (0.2, 3.0)
"""How far a joint goes for each rad that its setpoint goes, if it follows: degrees would be 57, their inverse 0.017."""
DERIVES = (0.6, 1.6)
"""Of a logged speed for each rad/s that its place shows."""
LIKE = 0.7
"""Correlation from which on another setpoint is named as the one that a joint follows."""


@dataclass(frozen=True)
class Finding:
    """subject: the channel. said: in words. wrong: nothing may be learned from the log as it is; else the channel is
    left out, or the user should know."""

    subject: str
    said: str
    wrong: bool = True


def findings(record: JointRecord, names: Sequence[str]) -> Iterator[Finding]:
    """Of one record of joints ``names``."""
    use = record.usable
    told, went = record.command[:: record.each][: len(use)][use], record.smooth()[use]
    moves = np.ptp(told, axis=0) > STILL
    for j in np.flatnonzero(moves & (np.ptp(record.place[use], axis=0) == 0)):
        yield Finding(f"joint_pos[{names[j]}]", f"is {went[0, j]:.4g} all the time while its setpoint goes through "
                      f"{np.ptp(told[:, j]):.3g}: a joint that is held, or a dead channel")
    moved = moves & (np.ptp(record.place[use], axis=0) > 0)
    for j in np.flatnonzero(moved):
        other = follows(told, went, j, moved)
        slope = gain(told[:, j], went[:, j])
        if other != j:
            yield Finding(f"joint_pos[{names[j]}]", f"follows the setpoint of {names[other]}, not its own: another "
                          "order of the joints?")
        elif not FOLLOWS[0] < slope < FOLLOWS[1]:
            yield Finding(f"joint_pos[{names[j]}]", f"goes {slope:.3g} for each rad of its setpoint: another unit?")
    if record.speed is not None:
        yield from of_speed(record, record.speed, names)
    if record.effort is not None and not np.ptp(record.effort[use], axis=0).any():
        yield Finding("joint_torque", "is constant: no effort is measured; left out", wrong=False)


def of_speed(record: JointRecord, speed: Numbers, names: Sequence[str]) -> Iterator[Finding]:
    """Of logged speeds, which must be what places show."""
    use, shown = record.usable, record.smooth(1)[record.usable]
    if not np.ptp(speed[use], axis=0).any():
        yield Finding("joint_vel", "is constant: no speed is measured; left out", wrong=False)
        return
    for j in np.flatnonzero(record.moved()):
        slope = gain(shown[:, j], speed[use, j])
        if not DERIVES[0] < slope < DERIVES[1]:
            yield Finding(f"joint_vel[{names[j]}]", f"is {slope:.3g} times what joint_pos shows: another unit, or "
                          "another joint's")


def follows(told: Numbers, went: Numbers, j: int, moved: Numbers) -> int:
    """Whose setpoint joint ``j`` follows: its own, unless another one is clearly more like it."""
    like = np.array([correlation(told[:, k], went[:, j]) if moved[k] else 0.0 for k in range(told.shape[1])])
    best = int(np.argmax(like))
    return best if like[best] > LIKE and like[best] > like[j] + 0.2 else j


def correlation(a: Numbers, b: Numbers) -> float:
    """Of two series."""
    a, b = a - a.mean(), b - b.mean()
    return float(a @ b / np.sqrt((a @ a) * (b @ b) + 1e-300))


def gain(a: Numbers, b: Numbers) -> float:
    """By which ``b`` changes with ``a``: the ratio of how far they scatter, with the sign of their correlation."""
    return float(np.sign(correlation(a, b)) * b.std() / (a.std() + 1e-300))


def without_dead(record: JointRecord, found: Sequence[Finding]) -> JointRecord:
    """The record without channels that measure nothing: those that are found by name of the whole channel."""
    dead = {each.subject for each in found if not each.wrong}
    return replace(record, speed=None if "joint_vel" in dead else record.speed,
                   effort=None if "joint_torque" in dead else record.effort)
