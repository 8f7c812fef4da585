"""What tasks need of an arm: kinematics, limits and sizes. All of it from the robot's spec and model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import ceil, pi
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.franka.spec import TOOL_ACCELERATIONS
from temporeal.robots.franka.spec import motion as franka_motion
from temporeal.robots.spec import Gripper, MotionLimits, RobotSpec, load_robot, shipped
from temporeal.sim.task_parts.arms.actions import (
    DAMPING,
    LEAST_RATE,
    EffortAction,
    SpeedAction,
    ToolAction,
    ToolMotion,
    TwistAction,
    impedance_of,
)
from temporeal.sim.task_parts.arms.kinematics import Chain, chain_of
from temporeal.sim.task_parts.setpoint_limits import Limiter

JOINTS = "joint_pos_cmd"  # the command of an arm's joints: setpoints of position servos
SHARE_OF_LIMITS = 0.6  # of the joints' speeds and accelerations: how fast targets move at most
POSE = 6  # joints that a tool needs to come to any attitude, too
ROUNDED = 0.95  # of the limit of jerk: room for rounding
SAMPLES = 512  # postures from which an arm's reach is measured
OWN_LIMITS: Mapping[str, Callable[[float], MotionLimits]] = {"franka": franka_motion}
"""Of robots whose limits of braking depend on how much is left of the others."""


@dataclass(frozen=True, eq=False)
class Jointed:
    """A robot of joints. ``limits``: how their targets may move, :data:`SHARE_OF_LIMITS` of what the robot accepts."""

    robot: RobotSpec
    limits: MotionLimits

    @property
    def home(self) -> tuple[float, ...]:
        """[J] rad or m."""
        return tuple(self.robot.home["joint_pos"])

    @property
    def joints(self) -> int:
        """Number of joints."""
        return len(self.home)

    @property
    def range(self) -> tuple[Tensor, Tensor]:
        """Least and greatest positions that the joints are commanded to, [J] rad or m."""
        command = self.robot.command(JOINTS)
        return torch.tensor(command.low), torch.tensor(command.high)


@dataclass(frozen=True, eq=False)
class Arm(Jointed):
    """An arm with a tool.

    Args:
        chain: kinematics of the tool.
    """

    chain: Chain

    @property
    def turns(self) -> bool:
        """Whether the tool's attitude can be chosen besides its position."""
        return len(self.chain.columns) >= POSE

    @property
    def pos(self) -> str:
        """Signal of the tool's position."""
        return f"{self.robot.tool}_pos_w"

    @property
    def quat(self) -> str:
        """Signal of the tool's attitude."""
        return f"{self.robot.tool}_quat_w"

    @property
    def vel(self) -> str:
        """Signal of the tool's velocity."""
        return f"{self.robot.tool}_vel_w"

    @property
    def own(self) -> bool:
        """Whether the tasks' numbers were chosen for this very arm, and are taken as they are."""
        return self.robot.name in OWN_LIMITS

    @cached_property
    def scale(self) -> float:
        """How far from its first joint the tool comes, m: nine of ten of random postures are nearer. The lengths of
        tasks are those of an arm that reaches a metre, and are multiplied by this."""
        if self.own:
            return 1.0
        low, high = self.range
        u = torch.rand(SAMPLES, self.joints, generator=torch.Generator().manual_seed(0))
        tool, frames = self.chain.frames(low + (high - low) * u)
        return float((tool[:, :3, 3] - frames[0][:, :3, 3]).norm(dim=-1).quantile(0.9))

    @property
    def damping(self) -> float:
        """See :data:`DAMPING`: of an arm that is smaller than a metre it is less."""
        return DAMPING * min(1.0, self.scale)

    def spread(self, angle: float) -> Tensor:
        """[J]: ``angle`` rad of the joints that turn, the same share of half their range of those that slide (m)."""
        low, high = self.range
        half = 0.5 * (high - low)
        out = torch.full_like(half, angle)
        for column, slides in zip(self.chain.columns, self.chain.slides):
            if slides:
                out[column] = angle / pi * half[column]
        return torch.minimum(out, half)

    def seconds(self, angle: float) -> float:
        """How long the slowest joint needs at least for ``angle`` rad (see :meth:`spread`), from rest to rest."""
        way = self.spread(angle)
        speed, change = torch.tensor(self.limits.speed), torch.tensor(self.limits.brake)
        top = torch.minimum(speed, (way * change).sqrt())
        return float((way / top + top / change).max())

    def motion(self, speed: float, turn: float, **others: Any) -> ToolMotion:
        """How actions move the tool: ``speed`` m/s of an arm that reaches a metre, ``turn`` rad/s, or what the joints
        can do at home, if that is less. A tool whose attitude cannot be chosen is not turned."""
        if self.own:
            return ToolMotion(speed, turn, damping=self.damping, **others)
        return ToolMotion(min(speed * self.scale, self._most(slice(0, 3))),
                          min(turn, self._most(slice(3, 6))) if self.turns else None, damping=self.damping, **others)

    def _most(self, rows: slice) -> float:
        """The speed along (about) an axis that the joints' speeds allow at home: the middle one of the three axes."""
        jacobian = self.chain.jacobian(torch.tensor([self.home]))[0, rows].double()
        square = jacobian @ jacobian.T + self.damping**2 * torch.eye(3, dtype=torch.float64)
        needed = (jacobian.T @ torch.linalg.inv(square)).abs() / torch.tensor(self.limits.speed)[:, None]
        return float(1.0 / needed.max(0).values.median())

    def in_front(self, place: Tensor) -> Tensor:
        """Places [K, 2] or [K, 3] m for an arm that reaches a metre along x, as this arm has them where its tool is at
        home."""
        if self.own:
            return place
        tool, _ = self.chain(torch.tensor([self.home]))
        x, y = torch.nn.functional.normalize(tool[0, :2], dim=0).tolist()
        turned = [x * place[:, 0] - y * place[:, 1], y * place[:, 0] + x * place[:, 1], *place[:, 2:].unbind(-1)]
        return self.scale * torch.stack(turned, -1)

    @property
    def heading(self) -> float:
        """The direction from the base to the tool at home, rad about z."""
        tool, _ = self.chain(torch.tensor([self.home]))
        return 0.0 if self.own else float(torch.atan2(tool[0, 1], tool[0, 0]))

    @property
    def fingers(self) -> int:
        """Number of finger joints that are measured."""
        return 0 if self.robot.gripper is None else len(self.robot.gripper.joints)

    def opened(self, like: Tensor, width: float | None = None) -> Tensor:
        """Positions [K, F] m of fingers that are ``width`` m from their middle; None: open. K as in ``like``."""
        home = torch.tensor(self.robot.home["finger_pos"], device=like.device, dtype=like.dtype)
        return (home if width is None else torch.full_like(home, width)).expand(len(like), -1)


def arm(task: str, name: str) -> Arm:
    """The arm ``name`` for ``task``; a ValueError says what it lacks."""
    robot = load_robot(name)
    for lacks, what in (
        (robot.kind != "arm", f"is for arms, and robot {name!r} is of kind {robot.kind!r}"),
        (not robot.tool, f"needs a tool, and robot {name!r} names none: say tool: in its spec.yaml"),
        (robot.motion is None, f"needs limits of motion, and robot {name!r} has none: say limits: in its spec.yaml"),
        (JOINTS not in robot.commands, f"commands positions of joints, and robot {name!r} has no {JOINTS}; its "
                                       f"commands: {', '.join(robot.commands)}"),
    ):
        if lacks:
            raise ValueError(f"task {task!r} {what}")
    if robot.command(JOINTS).size != len(robot.home["joint_pos"]):
        raise ValueError(f"robot {name!r}: {JOINTS} has {robot.command(JOINTS).size} joints, joint_pos has "
                         f"{len(robot.home['joint_pos'])}: they must be the same")
    return _shipped(name) if name in shipped() else _described(robot)


def _described(robot: RobotSpec) -> Arm:
    return Arm(robot, shared_limits(robot, SHARE_OF_LIMITS), chain_of(robot))


@cache
def _shipped(name: str) -> Arm:
    """One for a process: what tasks keep of an arm, such as states to start from, is computed once."""
    return _described(load_robot(name))


def grasping_arm(task: str, name: str) -> tuple[Arm, Gripper]:
    """An arm and its gripper for ``task``, which takes things between two fingers."""
    of = arm(task, name)
    gripper = of.robot.gripper
    if gripper is None:
        raise ValueError(f"task {task!r} needs a gripper, and robot {name!r} names none: say gripper: in its spec.yaml")
    if not of.turns:
        raise ValueError(f"task {task!r} chooses the gripper's attitude, for which robot {name!r} has too few joints: "
                         f"{len(of.chain.columns)} of {POSE}")
    if of.robot.signals["finger_pos"].unit != "m":
        raise ValueError(f"task {task!r} holds things between fingers that slide; those of robot {name!r} turn: "
                         f"{', '.join(gripper.joints)}")
    return of, gripper


def width_of(fingers: Tensor) -> Tensor:
    """How far apart [N] m two fingers at ``fingers`` [N, F] m are. F is 1 where the other one only follows."""
    return 2.0 * fingers.mean(-1)


def shared_limits(robot: RobotSpec, share: float) -> MotionLimits:
    """``share`` of the speeds and accelerations that ``robot`` accepts."""
    if robot.name in OWN_LIMITS:
        return OWN_LIMITS[robot.name](share)
    motion = robot.motion
    if motion is None:
        raise ValueError(f"robot {robot.name!r} has no limits of motion")
    acceleration = tuple(share * a for a in motion.acceleration)
    return replace(motion, speed=tuple(share * v for v in motion.speed), acceleration=acceleration,
                   brake=tuple(map(min, motion.brake, acceleration)))


def within_jerk(limits: MotionLimits, dt: float) -> MotionLimits:
    """``limits`` of targets that are set each ``dt`` s, so that a smooth course through them keeps the jerk, too: it is
    at most twice the acceleration over ``dt`` (:class:`temporeal.sim.task_parts.setpoint_limits.Limiter`)."""
    if not limits.jerk:
        return limits
    acceleration = tuple(min(a, ROUNDED * 0.5 * dt * jerk) for a, jerk in zip(limits.acceleration, limits.jerk))
    return replace(limits, acceleration=acceleration, brake=tuple(map(min, limits.brake, acceleration)))


def window(seconds: float, least: int) -> int:
    """Whole seconds of a formula's window in which what takes ``seconds`` at best is done twice over; ``least`` s."""
    return max(least, ceil(2 * seconds))


def arm_action(
    of: Arm, command: str, control_dt: float, motion: ToolMotion, home: Sequence[float] | None = None
) -> ToolAction:
    """Actions of an arm.

    What the command is, its ``drives`` say. Efforts are of an impedance, at
    :data:`temporeal.sim.task_parts.arms.actions.LEAST_RATE`. ``home``: [J]; None: the robot's.
    """
    drive = of.robot.drives.get(command, "position")
    made: Callable[..., ToolAction] = ToolAction
    if drive == "velocity":
        made = SpeedAction
    if drive == "tool":
        made = partial(TwistAction, accelerations=TOOL_ACCELERATIONS)
    if drive == "effort":
        if control_dt > 1.0 / LEAST_RATE + 1e-9:
            raise ValueError(f"control_dt is {control_dt} s; an impedance made of efforts needs {1 / LEAST_RATE:g} s "
                             "or less: with older speeds its damping shakes the wrist")
        made = partial(EffortAction, kp_kd=impedance_of(of.robot))
    return made(of.robot, command, of.chain, of.home if home is None else home,
                Limiter(within_jerk(of.limits, control_dt), control_dt), motion)


def control_period(robot: RobotSpec) -> float:
    """s between commands: the robot's own, 0.04 where it says none."""
    return 1.0 / robot.control_hz if robot.control_hz else 0.04


def physics_steps(control_dt: float, longest: float) -> int:
    """Physics steps of at most ``longest`` s in a control step."""
    return max(1, ceil(control_dt / longest - 1e-9))
