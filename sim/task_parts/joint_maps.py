"""Joints of arms and hands: actions that move their targets, what policies see of them, the reward of goals for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal.sim.maps import Limited, Memory, begin
from temporeal.sim.rewards.formula_tracker import FormulaObjective, FormulaTracker
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Constant, Draw, Task, task_schema, weights
from temporeal.sim.task_parts.arms.arm import (
    JOINTS,
    SHARE_OF_LIMITS,
    Jointed,
    control_period,
    physics_steps,
    shared_limits,
    within_jerk,
)
from temporeal.sim.task_parts.setpoint_limits import Limiter

KINDS = ("arm", "hand")


class Joints(Jointed):
    """The joints of an arm or a hand."""

    def around(self, share: float) -> tuple[Tensor, Tensor]:
        """Least and greatest positions within ``share`` of half the range, at most that many rad, from home."""
        low, high = self.range
        reach, home = share * 0.5 * (high - low).clamp(max=2.0), torch.tensor(self.home)
        return torch.maximum(home - reach, low), torch.minimum(home + reach, high)

    def seconds(self, share: float) -> float:
        """How long the slowest joint needs at least from one end of :meth:`around` to the other, from rest to rest."""
        low, high = self.around(share)
        speed, change, way = torch.tensor(self.limits.speed), torch.tensor(self.limits.brake), high - low
        top = torch.minimum(speed, (way * change).sqrt()).clamp(min=1e-6)
        return float((way / top + top / change).max())


def joints_of(task: str, name: str) -> Joints:
    """The joints of robot ``name`` for ``task``; a ValueError says what it lacks."""
    robot = load_robot(name)
    if robot.kind not in KINDS:
        raise ValueError(f"task {task!r} is for arms and hands, and robot {name!r} is of kind {robot.kind!r}")
    if robot.motion is None:
        raise ValueError(f"task {task!r} needs limits of motion, and robot {name!r} has none: say limits: in "
                         "its spec.yaml")
    if robot.command(JOINTS).size != len(robot.home["joint_pos"]):
        raise ValueError(f"robot {name!r}: {JOINTS} has {robot.command(JOINTS).size} joints, joint_pos has "
                         f"{len(robot.home['joint_pos'])}: they must be the same")
    return Joints(robot, shared_limits(robot, SHARE_OF_LIMITS))


class JointAction(Limited):
    """Actions [N, J] are how fast the joints' targets move, as a share of their speeds; the target is the command.

    Targets move as the robot accepts it (:class:`temporeal.sim.task_parts.setpoint_limits.Limiter`). They are memory of
    the observation map; the first one is what is measured.
    """

    def __init__(self, of: Joints, dt: float) -> None:
        super().__init__(of.robot, JOINTS)
        self.limiter = Limiter(within_jerk(of.limits, dt), dt)
        self.memory = {"target": (of.joints,), "begun": (), "step": (of.joints,)}

    def follow(self, measured: Tensor, memory: Memory) -> Memory:
        """The memory of this sample: at an episode's first one the target is ``measured`` [N, J]."""
        return begin(self, measured, memory)

    def move(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with the target moved by ``action`` [N, J]."""
        wanted = self.limiter.longest * action.clamp(-1.0, 1.0)
        step = self.limiter(memory["target"], memory["step"], wanted)
        return {**memory, "step": step, "target": memory["target"] + step}

    def forward(self, action: Tensor, memory: Memory) -> Tensor:
        """Command [N, J]: the target, moved already."""
        return memory["target"]

    def inverse(self, command: Tensor, memory: Memory) -> Tensor:
        """The action [N, J] that moves the target of ``memory`` to ``command`` [N, J], if it can be reached."""
        return (command - memory["target"]) / self.limiter.longest


class JointObserve(nn.Module):
    """Joints about home, their speeds, servo errors, the last step, the task's part, the last action.

    Args:
        reads: the signals of ``part``, which sees of the task ``part(signals) -> [N, size]``.
    """

    def __init__(
        self, of: Joints, act: JointAction, reads: Sequence[str], part: Callable[[Mapping[str, Tensor]], Tensor],
        size: int,
    ) -> None:
        super().__init__()
        self.follow, self.move, self.part = act.follow, act.move, part
        self.signals = tuple(dict.fromkeys(("joint_pos", "joint_vel", *reads)))
        self.register_buffer("home", torch.tensor(of.home))
        self.register_buffer("longest", act.limiter.longest.clone())
        self.home: Tensor
        self.longest: Tensor
        self.memory = {**act.memory, "last_action": (act.action_dim,)}
        self.obs_dim = 5 * of.joints + size

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, O] and the next memory."""
        joints = signals["joint_pos"]
        after = self.follow(joints, memory)
        return torch.cat([
            joints - self.home, 0.3 * signals["joint_vel"], 10 * (after["target"] - joints),
            after["step"] / self.longest, self.part(signals), memory["last_action"]], -1), after

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with ``action`` entered."""
        return {**self.move(memory, action), "last_action": action}


# ---------------------------------------------------------------- goals of all joints

CONSTANTS: dict[str, Any] = {"close": 0.1}  # rad (m), of all joints together: the root of the sum of squares
POSITIVE = ("close",)
STEP = 0.004  # s, of the physics at most


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


def joint_task(
    of: Joints, *, name: str, formula: str, constants: Mapping[str, Any] | None, control_dt: float | None,
    substeps: int | None, episode_s: float, reward: Mapping[str, float] | None,
    initial: Callable[[Draw], dict[str, Tensor]],
) -> Task:
    """A task with a goal ``goal_joint_pos`` for all joints.

    Args:
        control_dt: s; None: the robot's own. substeps: None: physics steps of at most :data:`STEP`.
    """
    given, dt = {**CONSTANTS, **dict(constants or {})}, control_dt or control_period(of.robot)
    goal = Constant(SignalSpec("goal_joint_pos", (of.joints,), of.robot.signals["joint_pos"].unit))
    parsed = parse(formula, task_schema(of.robot, goal), given)
    act = JointAction(of, dt)
    return Task(
        name=name, scene=Scene(of.robot, floor=of.robot.kind == "arm"), command=act.command, control_dt=dt,
        substeps=substeps or physics_steps(dt, STEP), episode_s=episode_s, formula=parsed, formula_text=formula,
        constants=given, observe=JointObserve(of, act, ("goal_joint_pos",), way, of.joints), act=act,
        objective=Objective(FormulaTracker(parsed, dt), weights(Reward, reward), act.action_dim, episode_s),
        initial=initial, extra=goal, stop="hold")
