"""A set for LeRobot's own policies, which read one ``observation.state``: the signals behind each other, as float32.

Pictures stay as they are. What each number is stands in ``interface.about["state"]`` (meta/temporeal.json): the signal,
and the place in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.policies.data.episodes.layout import is_picture
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.robots.signals import SignalSpec, schema

STATE = "state"


def of_interface(interface: Interface) -> Interface:
    """The interface with its numbers as one signal."""
    numbers = [spec for spec in interface.signals.values() if not is_picture(spec)]
    if not numbers:
        raise DataError("the set has pictures alone: there is no state to put together")
    names = [f"{spec.name}.{k}" if spec.size > 1 else spec.name for spec in numbers for k in range(spec.size)]
    pictures = [spec for spec in interface.signals.values() if is_picture(spec)]
    return replace(interface, signals=schema(SignalSpec(STATE, (len(names),)), *pictures),
                   about={**interface.about, STATE: names})


def of_episode(episode: Episode, interface: Interface) -> Episode:
    """The episode with its numbers as one signal; ``interface``: of the set that it is from."""
    numbers = [episode.signals[name] for name, spec in interface.signals.items() if not is_picture(spec)]
    state = np.concatenate([np.asarray(each, np.float32).reshape(len(each), -1) for each in numbers], axis=1)
    pictures = {name: episode.signals[name] for name, spec in interface.signals.items() if is_picture(spec)}
    return replace(episode, signals={STATE: state, **pictures})


def write(path: Path, interface: Interface, found: Iterable[Episode]) -> int:
    """Write the dataset ``path``; the number of episodes."""
    with DatasetWriter(path, of_interface(interface)) as writer:
        return writer.add_many(of_episode(each, interface) for each in found)
