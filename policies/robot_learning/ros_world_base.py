"""A world in which a frozen base moves the robot, and what a learner says is a correction.

    sent = base(signals) + scale * (command - rest)

``rest`` is the command of the learner's action 0: so action 0, and scale 0 whatever the learner says, are the base bit
for bit. What the guard sent instead is told to the learner as the correction that it amounts to:

    correction = rest + (executed - base) / scale

so the learner sees an ordinary robot whose resting command does what the base does, and any off-policy learner of
commands learns a residual (Johannink et al. 2019, arXiv 1812.03201; Ankile et al. 2024, ResiP, arXiv 2407.16677). The
base is an artifact, which is read with the checks of a controller, and whose memory counts control steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from temporeal.policies.robot_learning.corrections import correction
from temporeal.policies.robot_learning.world import RobotWorld, Sample, WorldError
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalError

FASTER = 1e-6  # of a rate: rounding


class CorrectedWorld:
    """``world`` with ``base`` in it; see :class:`temporeal.policies.robot_learning.world.RobotWorld`.

    Args:
        rest: [U], the command that corrects nothing.
        scale: share of the learner's command that is added, 0 to 1.

    Attributes:
        correction: what of it the learner must be of, too.
    """

    def __init__(self, world: RobotWorld, base: Artifact, rest: np.ndarray, scale: float) -> None:
        require_base(world, base)
        self.correction = correction(base.manifest, scale)
        self.world, self.base, self.scale = world, base, scale
        self.rest = np.asarray(rest, dtype=np.float64).reshape(-1)
        self.robot, self.command, self.period_s = world.robot, world.command, world.period_s
        self.signals, self.name = world.signals, f"{world.name}, moved by {base.manifest.name}"
        self.asked = self.rest

    def reset(self) -> Sample:
        """See :class:`RobotWorld`. The base begins anew."""
        self.base.reset()
        sample = self.world.reset()
        self.asked = self._asks(sample)
        return sample

    def step(self, command: np.ndarray) -> Sample:
        """See :class:`RobotWorld`: ``command`` is what a correction of the learner's is, and so is the sample's."""
        asked = self.asked
        said = np.asarray(command, dtype=np.float64).reshape(-1)
        sample = self.world.step(asked + self.scale * (said - self.rest))
        if not sample.failed:
            self.asked = self._asks(sample)
        if sample.command is None or not sample.changed:
            return replace(sample, command=said)
        if not self.scale:
            return replace(sample, command=self.rest)
        executed = np.asarray(sample.command, dtype=np.float64).reshape(-1)
        return replace(sample, command=self.rest + (executed - asked) / self.scale)

    def hold(self) -> None:
        """See :class:`RobotWorld`."""
        self.world.hold()

    def close(self) -> None:
        """See :class:`RobotWorld`."""
        self.world.close()

    def _asks(self, sample: Sample) -> np.ndarray:
        try:
            found = self.base.act(sample.signals)[self.command]
        except SignalError as error:
            raise WorldError(f"the base cannot act: {error}") from error
        return np.asarray(found, dtype=np.float64).reshape(-1)


def require_base(world: RobotWorld, base: Artifact) -> None:
    """Refuse a base that is of something else than the world, by the names of what differs."""
    manifest = base.manifest
    differs = [f"{name} is {theirs} of the base and {ours} of the world" for name, theirs, ours in (
        ("robot", manifest.robot, world.robot.name), ("command", manifest.commands[0].name, world.command))
        if theirs != ours]
    if abs(manifest.rate_hz * world.period_s - 1.0) > FASTER:
        differs.append(f"rate is {manifest.rate_hz:g} Hz of the base and {1.0 / world.period_s:g} Hz of the world")
    differs += [f"signal {spec.name} is read by the base and not measured" for spec in manifest.signals
                if spec.name not in world.signals]
    if manifest.chunk is not None:
        differs.append("the base gives chunks, one command at a time is needed")
    if differs:
        raise BadInput(f"the base {manifest.name!r} does not fit: {'; '.join(differs)}")
