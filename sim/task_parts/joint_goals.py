"""Goals of all joints of an arm or a hand: what policies see of them, and the reward of coming there and staying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from temporeal.sim.rewards.formula_tracker import FormulaObjective, FormulaTracker
from temporeal.sim.task import Carry

CLOSE = 0.1  # rad (m), of all joints together: the root of the sum of squares


@dataclass(frozen=True)
class Reward:
    """Weights per second."""

    far: float = 1.0  # times the distance of all joints, rad
    near: float = 2.0  # times 1 - tanh(distance / 0.3 rad)
    close: float = 3.0  # times 1 - tanh(distance / 0.05 rad)
    inside: float = 4.0  # while what the formula asks for next holds
    hit: float = 5.0  # once per subgoal of the formula
    speed: float = 0.02  # times the squared joint velocity near the goal
    effort: float = 0.01  # times the squared action
    smooth: float = 0.03  # times the squared change of the action


def way(signals: Mapping[str, Tensor]) -> Tensor:
    """What a policy sees of the task: the way [N, J] to the goal."""
    return 3 * (signals["goal_joint_pos"] - signals["joint_pos"])


class Objective(FormulaObjective):
    """Closer, then still; the formula says when it is there."""

    def __init__(self, tracker: FormulaTracker, reward: Reward, action_dim: int, episode_s: float) -> None:
        super().__init__(tracker, action_dim)
        self.weights, self.episode_s, self.privileged_dim = reward, episode_s, 1

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, tracked = self.weights, self.tracker(signals, carry)
        distance = (signals["goal_joint_pos"] - signals["joint_pos"]).square().sum(-1).clamp(min=1e-12).sqrt()
        near = 1 - torch.tanh(distance / 0.3)
        reward = self.tracker.automaton.dt * (
            -w.far * distance + w.near * near + w.close * (1 - torch.tanh(distance / 0.05)) + w.inside * tracked.inside
            - w.speed * near * signals["joint_vel"].square().sum(-1) - w.effort * action.square().sum(-1)
            - w.smooth * (action - carry["previous"]).square().sum(-1)) + w.hit * tracked.hits
        return reward, tracked.safe <= 0, {**tracked.carry, "previous": action}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """The time, for the critic."""
        return signals["mission_time"][:, None] / self.episode_s
