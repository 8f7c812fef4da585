"""Actions of arms that move the tool, for each kind of command: positions, speeds, the tool's velocity, efforts."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.spec import RobotSpec
from temporeal.sim.maps import Limited, Memory, begin
from temporeal.sim.task_parts.arms.kinematics import Chain, solve
from temporeal.sim.task_parts.setpoint_limits import Limiter

SAME = 1e-6  # rad
DAMPING = 0.05  # of the least squares, m and rad: near a singularity a joint moves slowly instead of wildly
HOMEWARD = 0.5  # 1/s: share of the way home, in what does not move the tool
# N m/rad, N m s/rad: franka_ros2's own joint impedance (43357d1, franka_fr3_moveit_config, fr3_ros_controllers.yaml)
IMPEDANCE = {
    "franka": ((600.0, 600.0, 600.0, 600.0, 250.0, 150.0, 50.0), (30.0, 30.0, 30.0, 30.0, 10.0, 10.0, 5.0))}
LEAST_RATE = 250.0  # Hz, for it


@dataclass(frozen=True)
class ToolMotion:
    """How actions move a tool.

    Args:
        speed: of the tool at action 1, m/s. ``turn``: the same, rad/s. None: actions move the tool's centre only, and
            its attitude is what comes of it, as of an arm of five joints.
        homeward: share of the way home that is wanted, 1/s.
        leash: rad, how far targets may be from the measured joints; one beyond is drawn back as fast as the limiter
            allows. Bounds the force against what stands in the way, which a target that runs on would raise without
            end. None: no bound.
        grip: m, the opening that is commanded throughout. None: actions command it.
        stiffness: the least share, above 0 and below 1, of the servos' stiffness. None: it is no part of the action.
        damping: of the least squares, m and rad.
    """

    speed: float
    turn: float | None
    homeward: float = HOMEWARD
    leash: float | None = None
    grip: float | None = None
    stiffness: float | None = None
    damping: float = DAMPING

    def __post_init__(self) -> None:
        if self.leash is not None and not self.leash > 0:
            raise ValueError("leash is how far targets may be from the joints, rad: positive or None, got "
                             f"{self.leash}")
        if self.stiffness is not None and not 0 < self.stiffness < 1:
            raise ValueError(f"stiffness is the least share of the servos' own, above 0 and below 1, or None; got "
                             f"{self.stiffness}")


class ToolAction(Limited):
    """Actions move the tool: six numbers are a step of its centre (m) and a turn (rad, rotation vector), base frame;
    three are a step alone (``ToolMotion.turn``).

    Differential kinematics on the targets of the joints (damped least squares: Nakamura and Hanafusa, J. Dyn. Sys.,
    1986) gives the joints' steps; what does not move the tool draws them towards ``home``. The targets move as the
    robot accepts it (:class:`temporeal.sim.task_parts.setpoint_limits.Limiter`), whatever the actions are. A seventh
    number, where the command has a gripper behind the joints, is its opening: -1 closed, 1 open; unless ``grip`` fixes
    it.

    **Variable impedance** (``stiffness``; H. Zhang, G. Solak, A. Ajoudani, arXiv 2503.21989, have it in the action of a
    Cartesian impedance controller): the last number says how stiff the arm is, from ``stiffness`` at -1 to its servos'
    own at 1. At a share s of it the command is ``measured + s (target - measured)``, of which a servo
    ``kp (command - q) - kd q'`` makes ``s kp (target - q) - kd q'``: a driver that takes positions and nothing else
    needs no more. That is the stiffness that is felt over control steps; within one the servo's own is. The damping
    stays: a soft arm is slow. Commands move as the robot accepts it, too.

    Args:
        chain: the arm's kinematics. ``home``: [J] rad.
        limiter: how the joints' targets may move, once in a control step.
    """

    def __init__(
        self, robot: RobotSpec, command: str, chain: Chain, home: Sequence[float], limiter: Limiter, motion: ToolMotion
    ) -> None:
        super().__init__(robot, command)
        dt, leash, grip, stiffness = limiter.dt, motion.leash, motion.grip, motion.stiffness
        self.chain = deepcopy(chain)  # the arm's own stays where it is when this map goes to another device
        self.limiter, self.joints, self.pull = limiter, len(home), motion.homeward * dt
        self.gripper = max(len(self.low) - self.joints, 0)
        own = robot.gripper
        # of the gripper's command: closed and open, in this order
        self.closed, self.open = (own.closed, own.open) if own is not None and own.command == command else (
            (self.low[-1].item(), self.high[-1].item()))
        if leash is not None and not bool((limiter.within(torch.tensor([leash])) > 0.25 * leash).all()):
            raise ValueError(f"on a leash of {leash} rad targets could hardly move: with steps that far apart braking "
                             f"takes all of it; take a shorter control_dt")
        if grip is not None and not self.gripper:
            raise ValueError(f"command {command!r} has no gripper whose opening could be {grip} m")
        self.leash, self.grip, self.stiffness, self.damping = leash, grip, stiffness, motion.damping
        self.tool_dim = 3 if motion.turn is None else 6  # numbers of an action that move the tool
        self.action_dim = self.tool_dim + (self.gripper if grip is None else 0) + (stiffness is not None)
        scale = [motion.speed * dt] * 3 + ([] if motion.turn is None else [motion.turn * dt] * 3)
        for name, value in (("home", home), ("scale", scale)):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32))
        self.home: Tensor
        self.scale: Tensor
        self.memory = {"target": (self.joints + self.gripper,), "begun": (), "step": (self.joints,),
                       **({} if leash is None and stiffness is None else {"measured": (self.joints,)}),
                       **({} if leash is None else {"moved": (self.joints,)}),
                       **({} if stiffness is None else {"sent": (len(self.low),), "sent_step": (self.joints,)})}

    def follow(self, measured: Tensor, memory: Memory, speed: Tensor | None = None) -> Memory:
        """The memory of this sample: at an episode's first one the target is ``measured`` [N, U]. ``speed``: of the
        joints [N, J], rad/s, for those that command efforts."""
        joints = measured[:, : self.joints]
        after = begin(self, measured, memory)
        begun = memory["begun"][:, None] > 0.5
        # where the joints are, even beyond the limits: the first command must not jump, and the limiter brings them in
        target = torch.cat([torch.where(begun, memory["target"][:, : self.joints], joints),
                            after["target"][:, self.joints :]], -1)
        after = {**after, "target": target}
        if self.stiffness is not None:
            after = {**after, "measured": joints, "sent": torch.where(begun, memory["sent"], target)}
        if self.leash is None:
            return after
        moved = (joints - memory["measured"]) * memory["begun"][:, None]
        return {**after, "measured": joints, "moved": moved}

    def move(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with the target moved by ``action`` [N, A]."""
        action, target = action.clamp(-1.0, 1.0), memory["target"][:, : self.joints]
        step = self.limiter(target, memory["step"], self.wanted(target, action), self.bounds(memory))
        opening = self.opening(action)
        after = {**memory, "step": step, "target": torch.cat([target + step, opening], -1)}
        if self.stiffness is None:
            return after
        last = self.soft(memory, target + step, action[:, -1:])
        return {**after, "sent_step": last, "sent": torch.cat([memory["sent"][:, : self.joints] + last, opening], -1)}

    def soft(self, memory: Memory, target: Tensor, action: Tensor) -> Tensor:
        """The step [N, J] of the command whose joints are to come to ``target`` [N, J], as stiff as ``action`` [N, 1]
        says. One that is and was the target itself moves along with it, as the robot accepts it already."""
        least, sent, last = float(self.stiffness or 1.0), memory["sent"][:, : self.joints], memory["sent_step"]
        share = least + (1.0 - least) * 0.5 * (1.0 + action)
        give = (1.0 - share) * (target - memory["measured"])
        apart = torch.cat([give, sent - memory["target"][:, : self.joints], last - memory["step"]], -1).abs()
        stiff = apart.amax(-1, keepdim=True) < SAME
        return torch.where(stiff, target - sent, self.limiter(sent, last, target - give - sent))

    def wanted(self, target: Tensor, action: Tensor) -> Tensor:
        """The step [N, J] of ``target`` [N, J] that ``action`` [N, A] asks for."""
        jacobian = self.chain.jacobian(target)[:, : self.tool_dim]
        rest = self.pull * (self.home - target)
        tool = self.scale * action[:, : self.tool_dim] - (jacobian @ rest[:, :, None])[:, :, 0]
        square = jacobian @ jacobian.transpose(1, 2) + self.damping**2 * torch.eye(self.tool_dim, device=action.device)
        return rest + (jacobian.transpose(1, 2) @ solve(square, tool)[:, :, None])[:, :, 0]

    def bounds(self, memory: Memory) -> tuple[Tensor, Tensor] | None:
        """The least and the greatest step [N, J] that let a target stop at its leash's end if its joint goes on so."""
        if self.leash is None:
            return None
        away = memory["target"][:, : self.joints] - memory["measured"]
        return memory["moved"] - self._slack(self.leash + away), memory["moved"] + self._slack(self.leash - away)

    def _slack(self, room: Tensor) -> Tensor:
        """The step [N, J] relative to the joints that ``room`` [N, J] rad of leash allows: back if negative."""
        return torch.where(room > 0, self.limiter.within(room), room)

    def opening(self, action: Tensor) -> Tensor:
        """What ``action`` [N, A] commands the gripper, [N, 1] m ([N, 0] where there is none)."""
        if self.grip is not None:
            return torch.full_like(action[:, :1], self.grip)
        middle, half = 0.5 * (self.closed + self.open), 0.5 * (self.open - self.closed)
        return middle + half * action[:, self.tool_dim : self.tool_dim + self.gripper]

    def forward(self, action: Tensor, memory: Memory) -> Tensor:
        """Command [N, U]: the target, moved already, or what is sent for it."""
        return memory["target"] if self.stiffness is None else memory["sent"]

    def inverse(self, command: Tensor, memory: Memory) -> Tensor:
        """About the action [N, A] that moves the target of ``memory`` to ``command`` [N, U], as stiff as can be."""
        target = memory["target"][:, : self.joints]
        jacobian = self.chain.jacobian(target)[:, : self.tool_dim]
        moved = (jacobian @ (command[:, : self.joints] - target)[:, :, None])[:, :, 0]
        parts = [moved / self.scale]
        if self.grip is None:
            middle, half = 0.5 * (self.closed + self.open), 0.5 * (self.open - self.closed)
            parts.append((command[:, self.joints :] - middle) / half)
        if self.stiffness is not None:
            parts.append(torch.ones_like(moved[:, :1]))
        return torch.cat(parts, -1)


class RateAction(ToolAction):
    """As :class:`ToolAction`, for a robot that keeps its setpoints itself and takes their speeds: what they are is not
    known here. Targets are the joints as they are measured, so that nothing drifts where a command was lost, or was
    less than what was asked for."""

    def __init__(self, robot: RobotSpec, command: str, *args: Any) -> None:
        super().__init__(robot, command, *args)
        if self.stiffness is not None or self.leash is not None:
            raise ValueError(f"command {command!r} is a speed: it has no stiffness and no leash")
        self.control_dt = self.limiter.dt

    def follow(self, measured: Tensor, memory: Memory, speed: Tensor | None = None) -> Memory:
        """The memory of this sample: where the joints ``measured`` [N, J] are."""
        return {**memory, "target": measured[:, : self.joints], "begun": torch.ones_like(memory["begun"])}


class SpeedAction(RateAction):
    """The command is how fast the joints [J] move, rad/s; they keep the limits of the robot's motion."""

    def forward(self, action: Tensor, memory: Memory) -> Tensor:
        """Command [N, J]."""
        return memory["step"] / self.control_dt

    def inverse(self, command: Tensor, memory: Memory) -> Tensor:
        """About the action [N, 6] of ``command`` [N, J]."""
        return super().inverse(memory["target"] + self.control_dt * command, memory)


class TwistAction(RateAction):
    """The command is the tool's velocity [6] m/s and rad/s in the base's frame, for a Cartesian servo.

    Args:
        accelerations: [6] m/s^2 and rad/s^2, how fast the command changes at most.
    """

    def __init__(self, *args: Any, accelerations: Sequence[float]) -> None:
        super().__init__(*args)
        self.register_buffer("change", self.control_dt * torch.tensor(accelerations))
        self.change: Tensor
        self.memory |= {"twist": (6,)}

    def move(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with the velocity changed towards that of ``action`` [N, 6]."""
        wanted = self.limit(self.scale * action.clamp(-1.0, 1.0) / self.control_dt)
        step = torch.minimum(torch.maximum(wanted - memory["twist"], -self.change), self.change)
        return {**memory, "twist": memory["twist"] + step}

    def forward(self, action: Tensor, memory: Memory) -> Tensor:
        """Command [N, 6]."""
        return memory["twist"]

    def inverse(self, command: Tensor, memory: Memory) -> Tensor:
        """The action [N, 6] that leads to ``command`` [N, 6]."""
        return command * self.control_dt / self.scale


class EffortAction(ToolAction):
    """As :class:`ToolAction`, for a robot that takes the efforts of its joints [J] N m and adds what gravity needs.

    The command is that of a joint impedance at the policy's rate: ``s kp (target - q) - sqrt(s) kd q'``, with the
    joints as they were observed. ``s`` is 1, or, with ``stiffness``, as stiff as the last action says: the damping
    ratio stays.

    Args:
        kp_kd: [J] N m/rad and [J] N m s/rad.
    """

    def __init__(
        self, robot: RobotSpec, command: str, chain: Chain, home: Sequence[float], limiter: Limiter, motion: ToolMotion,
        kp_kd: tuple[Sequence[float], Sequence[float]],
    ) -> None:
        super().__init__(robot, command, chain, home, limiter, replace(motion, stiffness=None))
        self.least = motion.stiffness
        self.action_dim += self.least is not None
        for name, value in zip(("kp", "kd"), kp_kd):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32))
        self.kp: Tensor
        self.kd: Tensor
        self.memory |= {"measured": (self.joints,), "speed": (self.joints,)}

    def follow(self, measured: Tensor, memory: Memory, speed: Tensor | None = None) -> Memory:
        """See :meth:`ToolAction.follow`."""
        if speed is None:
            raise ValueError("an effort is made of the joints' speeds: give follow() speed [N, J], rad/s")
        return {**super().follow(measured, memory), "measured": measured[:, : self.joints], "speed": speed}

    def share(self, action: Tensor) -> Tensor:
        """How stiff [N, 1] the ``action`` [N, A] asks the arm to be."""
        if self.least is None:
            return torch.ones_like(action[:, :1])
        return self.least + (1.0 - self.least) * 0.5 * (1.0 + action[:, -1:].clamp(-1.0, 1.0))

    def forward(self, action: Tensor, memory: Memory) -> Tensor:
        """Command [N, J], within the robot's limits."""
        share = self.share(action)
        away = memory["target"] - memory["measured"]
        return self.limit(share * self.kp * away - share.sqrt() * self.kd * memory["speed"])

    def inverse(self, command: Tensor, memory: Memory) -> Tensor:
        """About the action [N, A] of ``command`` [N, J], as stiff as can be."""
        away = (command + self.kd * memory["speed"]) / self.kp
        action = super().inverse(memory["measured"] + away, memory)
        return action if self.least is None else torch.cat([action, torch.ones_like(action[:, :1])], -1)


def impedance_of(robot: RobotSpec) -> tuple[Sequence[float], Sequence[float]]:
    """Stiffness and damping that efforts are made of."""
    if robot.name not in IMPEDANCE:
        raise ValueError(f"no impedance is known for robot {robot.name!r}, so that nothing makes efforts of what the "
                         f"policy wants: take drive position; known: {', '.join(IMPEDANCE)}")
    return IMPEDANCE[robot.name]
