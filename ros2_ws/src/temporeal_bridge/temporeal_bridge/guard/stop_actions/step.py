"""What all stop actions share: the state of one that is under way, and the step that it takes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from temporeal.robots.motion.rate_limiter import Array, Motion

Values = Mapping[str, np.ndarray]
"""The newest signals by name."""


@dataclass(frozen=True)
class Stopping:
    """A stop action under way, since when [s].

    Args:
        target: of a hold, by component; NaN: not known yet.
        fastest: of efforts, the joints' speed when it began, as a share of their limit.
        still: of efforts, since when [s] all joints have been slow.
        pressed: of a ramp at rest, for how long [s], in whole periods, the robot has pressed on something.

    ``level`` has more (:class:`temporeal_bridge.guard.stop_actions.level.Levelling`).
    """

    action: str
    since: float
    target: Array | None = None
    fastest: float = -inf
    still: float = inf
    pressed: float = 0.0


class Step(NamedTuple):
    """The next step of a stop action: the command to send (None: nothing), whether the action ends with it, and the
    motion of the command where it continues the last one."""

    command: Array | None
    over: bool
    motion: Motion | None = None
