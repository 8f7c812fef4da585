"""The mirror image of episodes, for robots that declare one (:mod:`temporeal.robots.symmetry`): twice the data.

Every signal and the command need a mirror: the robot's own, one by its unit and frame, or one that the caller gives.
What the policy gave (``policy_action``) has none that would be known here, and is dropped; rewards and success of a
task that is symmetric too stay as they are. A picture is flipped from left to right, which is right for a camera in the
plane of reflection alone: the caller says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from temporeal.policies.data.episodes.checked_episode import ROUNDING
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import RobotSpec
from temporeal.robots.symmetry import Mirror, Symmetry, mirror_of


@dataclass(frozen=True)
class Mirrors:
    """How episodes of one interface are mirrored: ``signals`` by name, ``action``; ``pictures`` are flipped."""

    signals: Mapping[str, Mirror]
    action: Mirror
    pictures: frozenset[str]


def mirrors_of(
    interface: Interface, robot: RobotSpec, same: Collection[str] = (), flip: Collection[str] = ()
) -> Mirrors:
    """The mirrors of every signal and of the command.

    Args:
        same: signals that a reflection does not change, such as the opening of a drawer.
        flip: pictures of cameras in the plane of reflection.
    """
    if robot.symmetry is None:
        raise DataError(f"robot {robot.name!r} declares no symmetry (robots/symmetry.py; symmetry: in spec.yaml): its "
                        "data cannot be mirrored")
    for name in {*same, *flip} - set(interface.signals):
        raise DataError(f"no signal {name!r}; signals: {', '.join(interface.signals)}")
    signals = {name: known(spec, robot.symmetry, name in same) for name, spec in interface.signals.items()
               if name not in flip}
    command = robot.commands.get(interface.action.name)
    action = None if command is None else mirror_of(command, robot.symmetry)
    if action is None:
        raise DataError(f"robot {robot.name!r}: its symmetry does not say how the command {interface.action.name!r} is "
                        f"mirrored; it says so of {', '.join(robot.symmetry.signals)}")
    return Mirrors(signals, action, frozenset(flip))


def known(spec: SignalSpec, symmetry: Symmetry, same: bool) -> Mirror:
    """The mirror of a signal, or a :class:`DataError` that says what to do."""
    if len(spec.shape) > 1 and not same:  # colours or depths [H, W, ...]
        raise DataError(f"picture {spec.name!r}: --flip {spec.name} mirrors it from left to right, which is right for "
                        "a camera in the plane y = 0 that looks along it")
    mirror = Mirror((1,) * max(1, spec.size)) if same else mirror_of(spec, symmetry)
    if mirror is None:
        raise DataError(f"signal {spec.name!r} [{', '.join(map(str, spec.shape))}] {spec.unit}: neither the robot's "
                        f"symmetry nor unit and frame say how it is mirrored; --same {spec.name} if a reflection does "
                        "not change it")
    return mirror


def mirrored(episode: Episode, mirrors: Mirrors) -> Episode:
    """The mirror image of ``episode``."""
    signals = {}
    for name, values in episode.signals.items():
        if name in mirrors.pictures:
            signals[name] = values[:, :, ::-1]
        else:
            mirror = mirrors.signals[name]
            signals[name] = mirror(values) if values.ndim > 1 else mirror(values[:, None])[:, 0]
    return replace(episode, signals=signals, action=mirrors.action(episode.action), policy_action=None,
                   info={**episode.info, "mirrored": True})


def within(episode: Episode, interface: Interface) -> bool:
    """Whether the commands are within their limits: a joint whose range is not symmetric may leave it."""
    low, high = np.array(interface.action.low), np.array(interface.action.high)
    slack = ROUNDING * (high - low)
    return bool(((episode.action >= low - slack) & (episode.action <= high + slack)).all())
