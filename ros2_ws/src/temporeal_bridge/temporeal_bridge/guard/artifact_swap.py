"""An artifact swap while the robot moves: which artifact may succeed which, and how one command becomes the other.

A second controller (``policy_node --takeover``) catches up with the running mission from the step log of the one in
charge (:mod:`temporeal_bridge.controller.step_log`) and asks the guard. Only the policy may change, not the mission
(:func:`unfit`). Then both propose, and the guard sends a mix, ``(1 - w) * old + w * new``. Its weight w rises from 0 to
1 with every command for which both have proposed, along the minimum-jerk polynomial ``w = 6 x^5 - 15 x^4 + 10 x^3``
(T. Flash, N. Hogan, *The coordination of arm movements*, Journal of Neuroscience 5(7), 1985), whose speed and
acceleration are zero at both ends. From one step to the next a command changes by at most what the policies change it,
plus ``15/8 * dt / blend_s`` of their difference.

Raw commands are mixed: thrusts, body rates at one instant, positions and velocities of joints, efforts. These are
vectors, so that a mix of two within limits of place and speed is within them, too. An attitude is none: commands that
are quaternions are refused. All requirements for a command hold for the mix.

When the successor fails, the last difference between what was sent and what the old controller proposed becomes an
offset, which fades out along the same curve over ``blend_s``. The old controller closes its loop at once, and the
command stays continuous.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import Manifest, plain
from temporeal_bridge.link.datagrams import Proposal

MISSION = "mission and monitor stay the same, only the policy is exchanged"
RULES = {
    "robot": "it was made for another one", "commands": "the guard's limits are those of one command",
    "rate_hz": "limits and times of the guard are those of one rate", "formula": MISSION, "constants": MISSION,
    "horizon_s": MISSION}
"""What must be equal, and why."""


def unfit(new: Manifest, now: Manifest) -> str:
    """Why ``new`` may not succeed ``now``, the artifact in charge, during its mission; "": it may."""
    for name, why in RULES.items():
        mine, theirs = (plain(getattr(m, name)) if name != "commands" else [plain_command(c) for c in m.commands]
                        for m in (new, now))
        if mine != theirs:
            return f"its {name} is {mine}, the artifact in charge has {theirs}: {why}"
    if new.chunk is not None:
        return "it gives chunks, and the delay of its worker is not known before: a mission must begin with it"
    if any(command.unit == "wxyz" for command in new.commands):
        return "its command is a quaternion, and a mix of two is none: swap it between missions"
    return ""


def plain_command(command: Any) -> dict[str, Any]:
    """A command's spec as plain values."""
    return {key: plain(value) for key, value in vars(command).items()}


def smooth(x: float) -> float:
    """Share 0 to 1 of the way at share ``x`` of the time: minimum jerk, at rest at both ends."""
    x = min(max(x, 0.0), 1.0)
    return x * x * x * (10.0 + x * (6.0 * x - 15.0))


def steps_of(blend_s: float, period: float) -> int:
    """Mixed commands of a swap that takes ``blend_s``: at least two, so that the first is no leap."""
    return max(ceil(blend_s / period - 1e-9), 2)


@dataclass
class ArtifactSwap:
    """A successor that was accepted, and how far the swap is.

    Args:
        manifest, identity, folder: of the successor's artifact.
        total: mixed commands until it is in charge.
        heard: when it last proposed something usable (at first: when it was accepted).
        newest: its last usable proposal.
        used: step of its proposal that was mixed last.
        count: commands mixed.
        offset: what was sent minus the old controller's proposal, [A].
        back: commands since the successor failed; -1: it has not.
        flight, start_ns: number and time zero of the mission in which it was accepted.
    """

    manifest: Manifest
    identity: str
    folder: str
    total: int
    heard: float
    newest: Proposal | None = None
    used: int = -1
    count: int = 0
    offset: np.ndarray = field(default_factory=lambda: np.zeros(0))
    back: int = -1
    flight: int = -1
    start_ns: int = 0

    @property
    def done(self) -> bool:
        """Whether the last command was the successor's alone."""
        return self.count >= self.total and self.back < 0

    @property
    def over(self) -> bool:
        """Whether nothing is left of a successor that failed."""
        return self.back >= (self.total if self.count else 0)

    def mix(self, asked: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        """The command to send where the old controller proposes ``asked`` [A]; the weight in it, and of what [A].

        The weight rises only with new proposals of the successor, so that an old one does not gain weight.
        """
        if self.back >= 0:
            self.back += 1
            weight, other = 1.0 - smooth(self.back / self.total), asked + self.offset
        elif self.newest is None:
            return asked, 0.0, asked
        else:
            if self.newest.step > self.used:
                self.used, self.count = self.newest.step, self.count + 1
            weight, other = smooth(self.count / self.total), np.asarray(self.newest.values, dtype=float)
        out = asked + weight * (other - asked)
        if self.back < 0:
            self.offset = out - asked
        return out, weight, other

    def fail(self) -> None:
        """The successor failed: what was mixed in fades out."""
        self.back = max(self.back, 0)
