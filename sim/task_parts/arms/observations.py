"""What policies of arms see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from temporeal.sim.maps import Memory
from temporeal.sim.rotations import axes
from temporeal.sim.task_parts.arms.actions import ToolAction
from temporeal.sim.task_parts.arms.arm import Arm


class ArmObserve(nn.Module):
    """What a policy sees: the arm (joints, servo errors, last step, fingers, tool), the task's part, the last action.

    Args:
        of: the arm.
        act: the action map, whose target is memory here. Where its command has a gripper, fingers are seen.
        home: [J] rad: joints are seen relative to it. None: the arm's.
        reads: the signals of ``part``.
        part: ``part(signals) -> [N, size]``: what is seen of the task.
    """

    def __init__(
        self, of: Arm, act: ToolAction, reads: Sequence[str], part: Callable[[Mapping[str, Tensor]], Tensor],
        size: int, home: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.follow, self.move, self.part, self.joints = act.follow, act.move, part, act.joints
        self.pos, self.quat = of.pos, of.quat
        own_gripper = of.robot.gripper if act.gripper else None
        self.fingers = 0 if own_gripper is None else len(own_gripper.joints)
        self.opened = 1.0 if own_gripper is None else abs(own_gripper.open - own_gripper.closed)
        own = ("joint_pos", "joint_vel", *(["finger_pos"] if self.fingers else []), self.pos, self.quat)
        self.signals = tuple(dict.fromkeys((*own, *reads)))
        self.register_buffer("home", torch.tensor(of.home if home is None else home))
        self.register_buffer("longest", act.limiter.longest.clone())
        self.home: Tensor
        self.longest: Tensor
        self.memory = {**act.memory, "last_action": (act.action_dim,)}
        self.obs_dim = 4 * self.joints + self.fingers + 3 + 6 + size + act.action_dim

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, O] and the next memory."""
        joints, fingers = signals["joint_pos"], [signals["finger_pos"]] if self.fingers else []
        measured = torch.cat([joints, *(f.mean(-1, keepdim=True) for f in fingers)], -1)
        after = self.follow(measured, memory, signals["joint_vel"])
        return torch.cat([
            joints - self.home, 0.3 * signals["joint_vel"], 10 * (after["target"][:, : self.joints] - joints),
            after["step"] / self.longest, *(f / self.opened for f in fingers), signals[self.pos],
            axes(signals[self.quat]), self.part(signals), memory["last_action"]], -1), after

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with ``action`` entered."""
        return {**self.move(memory, action), "last_action": action}
