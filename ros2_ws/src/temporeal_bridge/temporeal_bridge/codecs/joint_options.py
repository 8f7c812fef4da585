"""Options that codecs of arms and hands share.

- ``joints``: the driver's names of the joints, in the order of our signals and commands.
- ``index``: for each component of a command its place in the message; left out, the order is the same.
- ``offset``: rad, the driver's angle where ours is 0. ``sign``: 1 or -1. One number, or one per joint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from temporeal.robots.signals import is_number
from temporeal_bridge.codecs.codec import CodecError, Options, per_options


def per_joint(options: Options, key: str, count: int, default: float) -> np.ndarray:
    """Option ``key`` as [count] numbers: one for all, or one each."""
    given = options.get(key, default)
    values = list(given) if isinstance(given, (list, tuple)) else [given] * count
    if len(values) != count or not all(map(is_number, values)):
        raise CodecError(f"option {key} is {given!r}; a number or a list of {count} is needed")
    return np.array(values, dtype=np.float64)


def signs(options: Options, count: int) -> np.ndarray:
    """Option ``sign`` as [count] numbers."""
    value = per_joint(options, "sign", count, 1.0)
    if not (np.abs(value) == 1.0).all():
        raise CodecError(f"option sign is {options['sign']!r}; legal: 1, -1")
    return value


def joint_names(options: Options) -> list[str]:
    """Option ``joints``: names, each once."""
    joints = options["joints"]
    listed = isinstance(joints, (list, tuple)) and all(isinstance(name, str) and name for name in joints)
    if not listed or not joints or len(set(joints)) != len(joints):
        raise CodecError(f"option joints is {joints!r}; different names are needed")
    return list(joints)


def places(options: Options, count: int) -> np.ndarray:
    """Option ``index`` as [count] places in the message."""
    index = list(options.get("index", range(count)))
    if sorted(index) != list(range(count)):
        raise CodecError(f"option index is {index}; each of 0 to {count - 1} once is needed")
    return np.asarray(index)


@per_options
def order_in_message(options: Options) -> np.ndarray:
    """:func:`places` of the options ``joints`` and ``index``."""
    return places(options, len(joint_names(options)))


@dataclass(frozen=True)
class Shares:
    """Which joints each component of a command drives: one, or several on one tendon, whose angles add up to it.

    Args:
        joints: [J] names, those of a component side by side.
        count: [U] number of joints of each component.
    """

    joints: tuple[str, ...]
    count: np.ndarray

    def spread(self, values: np.ndarray) -> np.ndarray:
        """[..., J] of [..., U]: a component's joints get equal shares."""
        if len(self.count) == len(self.joints):
            return values
        return np.repeat(values / self.count, self.count, axis=-1)

    def gather(self, values: np.ndarray) -> np.ndarray:
        """[..., U] of [..., J]: the sum over a component's joints."""
        if len(self.count) == len(self.joints):
            return values
        return np.asarray(np.add.reduceat(values, np.cumsum(self.count) - self.count, axis=-1))


def shares(entries: Sequence[str | Sequence[str]]) -> Shares:
    """The shares of ``entries``: a joint's name for each component, or the list of those that it drives."""
    parts = [[entry] if isinstance(entry, str) else list(entry) for entry in entries]
    if not all(parts):
        raise CodecError(f"option joints is {list(entries)}; each component needs a joint or more")
    joints = joint_names({"joints": [name for part in parts for name in part]})
    return Shares(tuple(joints), np.array([len(part) for part in parts]))


@per_options
def drives_of(options: Options) -> Shares:
    """The shares of option ``joints``."""
    return shares(options["joints"])
