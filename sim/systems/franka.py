"""Franka: an arm whose actions move the point between its fingertips, which keeps its attitude, at 25 Hz."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.franka.spec import HOME, KD, KP, motion
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal.sim.draws import between, one_of
from temporeal.sim.maps import Memory
from temporeal.sim.scene import Scene
from temporeal.sim.system import OnDevices, Signals, System, settings
from temporeal.sim.task import Draw
from temporeal.sim.task_parts.arm_actions import SHARE_OF_LIMITS, ToolAction, ToolMotion
from temporeal.sim.task_parts.arm_kinematics import franka_chain, postures
from temporeal.sim.task_parts.setpoint_limits import Limiter

CONTROL_DT, SUBSTEPS = 0.04, 10
SPEED = 0.6  # m/s of the tool along each axis at action 1, as in sim/tasks/reach.py
FENCE = {"low": (0.2, -0.6, 0.0), "high": (0.8, 0.6, 0.9)}  # m; with this attitude the tool reaches half of it
MIDDLE = (0.5, 0.0, 0.45)  # m
CLEAR = 0.06  # m above the floor: no posture in which learning begins touches it
PLACES = 2048  # where learning puts the tool, those included that it cannot reach
SLACK = 0.01  # m
REWARD = {"scale": 1.0, "guard": 0.05}  # m
READS = ("joint_pos", "joint_vel", "grip_pos_w")


class PointAction(ToolAction):
    """Three numbers are a step of the tool's centre; the tool does not turn."""

    def __init__(self, robot: RobotSpec, command: str) -> None:
        limiter = Limiter(motion(SHARE_OF_LIMITS), CONTROL_DT)
        super().__init__(robot, command, franka_chain(), HOME, limiter, ToolMotion(SPEED, turn=1.0))
        self.action_dim = 3

    def wanted(self, target: Tensor, action: Tensor) -> Tensor:
        """The step [N, 7] rad of ``target`` [N, 7] that ``action`` [N, 3] asks for."""
        return super().wanted(target, torch.cat([action, torch.zeros_like(action)], -1))

    def keep(self, signals: Signals, memory: Memory) -> Memory:
        """The memory of this sample. A method, so that a copy of the maps follows its own targets."""
        return self.follow(signals["joint_pos"], memory)

    def inverse(self, command: Tensor, memory: Memory) -> Tensor:
        """About the action [N, 3] that moves the target of ``memory`` to ``command`` [N, 7]."""
        return super().inverse(command, memory)[:, :3]


class Model:
    """Kinematics behind servos: joints, their speeds, their targets and the last steps of these, [B, 28].

    Each joint follows its target as a critically damped oscillator of the frequency 2 kp / kd, which its servo is at
    home (robots/franka/spec.py). Friction, and how inertias change with the posture, are left out: 2 mm of the tool.
    """

    action_dim = 3
    rollout = None

    def __init__(self, act: PointAction) -> None:
        self.act = act
        self.frequency = 2 * torch.tensor(KP) / torch.tensor(KD)
        self.decay = torch.exp(-CONTROL_DT * self.frequency)

    def state(self, signals: Signals) -> Tensor:
        """States of ``joint_pos``, and of ``joint_vel`` if it is there: a target is as far ahead as the servos lag."""
        joints = signals["joint_pos"]
        velocity = signals.get("joint_vel", torch.zeros_like(joints))
        return torch.cat([joints, velocity, joints + 2 / self.frequency * velocity, CONTROL_DT * velocity], -1)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """The targets move as the action map says, the joints behind them."""
        joints, speeds, target, step = state.split(7, -1)
        after = self.act.move({"target": target, "step": step}, action.clamp(-1.0, 1.0))
        error = joints - after["target"]
        drive = (speeds + self.frequency * error) * CONTROL_DT
        return torch.cat([after["target"] + self.decay * (error + drive),
                          self.decay * (speeds - self.frequency * drive), after["target"], after["step"]], -1)

    def signals(self, state: Tensor) -> dict[str, Tensor]:
        """``grip_pos_w``, ``grip_quat_w``, ``joint_pos`` and ``joint_vel``."""
        place, quat = self.act.chain(state[:, :7])
        return {"grip_pos_w": place, "grip_quat_w": quat, "joint_pos": state[:, :7], "joint_vel": state[:, 7:14]}


def observe(signals: Signals) -> Tensor:
    """Joints about home, their speeds, the tool's place: [N, 17]."""
    place = signals["grip_pos_w"]
    home, middle = (torch.tensor(x, device=place.device) for x in (HOME, MIDDLE))
    return torch.cat([signals["joint_pos"] - home, 0.3 * signals["joint_vel"], 2.5 * (place - middle)], -1)


def initial(draw: Draw, start: Mapping[str, Any]) -> dict[str, Tensor]:
    """At rest, each joint within ``spread`` rad of home."""
    spread = settings("franka", start, spread=(0.15,))["spread"][0]
    if not 0.0 <= spread <= 0.5:
        raise ValueError(f"start of system 'franka': spread is 0 to 0.5 rad, got {spread:g}")
    u = draw("initial.joints", 7)
    return {"joint_pos": torch.tensor(HOME, device=u.device) + spread * (2 * u - 1)}


@cache
def reached() -> dict[str, Tensor]:
    """Postures with the tool all over the arena, its attitude as at home."""
    generator, chain, limits = torch.Generator().manual_seed(0), franka_chain(), motion(SHARE_OF_LIMITS)
    place = between((*FENCE["low"][:2], CLEAR), FENCE["high"], torch.rand(PLACES, 3, generator=generator))
    _, quat = chain(torch.tensor([HOME]))
    joints, good = postures(chain, place, quat.expand(PLACES, -1), HOME, (limits.low, limits.high))
    return {"joint_pos": joints[good]}


def anywhere(draw: Draw) -> dict[str, Tensor]:
    """At rest, the tool anywhere in the arena."""
    return one_of(reached(), draw("initial.place", 1)[:, 0])


def make() -> System:
    """The system."""
    robot = load_robot("franka")
    act = PointAction(robot, "joint_pos_cmd")
    return System(
        name="franka", scene=Scene(robot), command="joint_pos_cmd", backend="mujoco", control_dt=CONTROL_DT,
        substeps=SUBSTEPS, stop="hold", act=act, reads=READS, observe=observe, size=17,
        signals={name: robot.signals[name] for name in ("grip_pos_w", "grip_quat_w", "grip_vel_w", "joint_pos")},
        initial=initial, anywhere=anywhere, fence=FENCE, pace=0.3, slack=SLACK, reward=REWARD,
        model=OnDevices(Model(act)), memory=act.memory,
        follow=act.keep, record=act.move)
