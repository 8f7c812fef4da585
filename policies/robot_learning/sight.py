"""The pictures that a policy on a robot sees: those of the cameras in the settings.

They travel as uint8, once a sample, among an episode's signals, and are remembered as in training: each once, not
again as what is seen next (:mod:`temporeal.policies.training.off_policy.pictures`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from temporeal.policies.runs.errors import BadInput, bad_input

if TYPE_CHECKING:
    from torch import Tensor

    from temporeal.policies.runs.settings.files import Settings
    from temporeal.robots.signals import SignalSpec
    from temporeal.sim.task import Task

NOTHING = "none"


def seen_by_policy(settings: Settings, module: Any, word: str | None) -> tuple[SignalSpec, ...]:
    """The pictures in colour of the cameras in ``settings``, which the learner ``module`` must be able to see.

    ``word``: names of those that the policy sees, with commas between; "none"; None: all.
    """
    from temporeal.policies.nets.encoders import is_picture
    from temporeal.policies.runs.tuning_runs.bases import pictures_of

    with bad_input():
        found = {name: spec for name, spec in pictures_of(settings).items() if is_picture(spec)}
    names = list(found) if word is None else [] if word == NOTHING else word.split(",")
    if unknown := [name for name in names if name not in found]:
        there = ", ".join(found) or "nothing (cameras.front={width: 64, height: 64})"
        raise BadInput(f"seen={word}: the cameras do not show {', '.join(unknown)}; they show: {there}; "
                       f"{NOTHING}: the policy sees no picture")
    if settings.get("cameras") and not found:
        raise BadInput(f"cameras: {', '.join(settings['cameras'])}: a policy reads pictures in colour, and there are "
                       "none: kinds=[rgb]")
    if names and not getattr(module, "SEES", False):
        raise BadInput(f"cameras: algo={settings['algo']['name']} learns from the observation alone and does not see "
                       "pictures; algo=sac, td3 and rlpd do")
    return tuple(found[name] for name in names)


def told_policy(task: Task, settings: Settings, pictures: tuple[SignalSpec, ...]) -> Task:
    """The task without the signals of ``algo.hide``, which the policy must find in its ``pictures``."""
    from temporeal.policies.data.hidden_signals import without

    hidden = settings["algo"].get("hide") or ()
    if hidden and not pictures:
        raise BadInput(f"algo.hide={list(hidden)} are signals to be found in pictures, and the policy sees none: "
                       "cameras.front.width=64 cameras.front.height=64, or leave algo.hide out")
    with bad_input():
        return without(task, hidden)


def looked_at(signals: Mapping[str, np.ndarray], names: Mapping[str, Any]) -> dict[str, Tensor]:
    """The pictures ``names`` of a sample, uint8 [1, H, W, 3] each."""
    return {name: torch.from_numpy(np.asarray(signals[name]))[None] for name in names}
