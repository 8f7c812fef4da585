"""A show of worlds that somebody else steps: a recording, for example."""

from __future__ import annotations

import numpy as np

from temporeal.policies.evaluate.rollout import host
from temporeal.policies.evaluate.viewer.viewer import Moment, Show


class Followed(Show):
    """The worlds of ``env`` as they are: :meth:`restart` after a reset, :meth:`step` after a step of theirs."""

    def restart(self) -> Moment:
        """The first sample of an episode that has begun."""
        self.count, self.looks = 0, self._looks()
        for monitor in self.monitors:
            monitor.reset()
        return self._now()

    def step(self) -> Moment:
        """The sample after one more control step."""
        self.count += 1
        return self._now()

    def _now(self) -> Moment:
        signals, no = {k: host(v) for k, v in self.env.true_signals().items()}, np.zeros(self.env.num_worlds, bool)
        self.moment = Moment(self.count * self.task.control_dt, self._qpos(), signals, self._readings(signals, no), no,
                             no)
        return self.moment
