"""An arm as formulas see it: actions move the tool, which keeps its attitude where the joints suffice, at 25 Hz."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from temporeal.sim.draws import between, one_of
from temporeal.sim.maps import Memory
from temporeal.sim.scene import Scene
from temporeal.sim.system import OnDevices, Signals, System, settings
from temporeal.sim.task import Draw
from temporeal.sim.task_parts.arms.actions import ToolAction, ToolMotion
from temporeal.sim.task_parts.arms.arm import JOINTS, Arm, within_jerk
from temporeal.sim.task_parts.arms.kinematics import postures
from temporeal.sim.task_parts.setpoint_limits import Limiter

CONTROL_DT, SUBSTEPS = 0.04, 10
SPEED = 0.6  # m/s of the tool along each axis at action 1, as in sim/tasks/reach.py
FENCE = {"low": (0.2, -0.6, 0.0), "high": (0.8, 0.6, 0.9)}  # m; with the attitude at home a tool reaches half of it
MIDDLE = (0.5, 0.0, 0.45)  # m
CLEAR = 0.06  # m above the floor: no posture in which learning begins touches it
PLACES = 2048  # where learning puts the tool, those included that it cannot reach
PACE, SLACK = 0.3, 0.01  # m/s, m
REWARD = {"scale": 1.0, "guard": 0.05}  # m
# all of these lengths are of an arm that reaches a metre


class PointAction(ToolAction):
    """Three numbers are a step of the tool's centre; the tool does not turn, if its attitude can be chosen."""

    def __init__(self, of: Arm) -> None:
        speed = of.motion(SPEED, 1.0)
        # a tool that is not to be turned is held by a turn of 0, whatever its joints could do
        motion = ToolMotion(speed.speed, turn=1.0 if of.turns else None, damping=of.damping)
        limiter = Limiter(within_jerk(of.limits, CONTROL_DT), CONTROL_DT)
        super().__init__(of.robot, JOINTS, of.chain, of.home, limiter, motion)
        self.action_dim = 3

    def wanted(self, target: Tensor, action: Tensor) -> Tensor:
        """The step [N, J] rad of ``target`` [N, J] that ``action`` [N, 3] asks for."""
        still = torch.zeros_like(action[:, : self.tool_dim - 3])
        return super().wanted(target, torch.cat([action, still], -1))

    def keep(self, signals: Signals, memory: Memory) -> Memory:
        """The memory of this sample. A method, so that a copy of the maps follows its own targets."""
        return self.follow(signals["joint_pos"], memory)

    def inverse(self, command: Tensor, memory: Memory) -> Tensor:
        """About the action [N, 3] that moves the target of ``memory`` to ``command`` [N, J]."""
        return super().inverse(command, memory)[:, :3]


class Model:
    """Kinematics behind servos: joints, their speeds, their targets and the last steps of these, [B, 4 J].

    Each joint follows its target as a critically damped oscillator of the frequency 2 kp / kd, which its servo is at
    home (robots/franka/spec.py). Friction, and how inertias change with the posture, are left out: 2 mm of the tool.
    """

    action_dim = 3
    rollout = None

    def __init__(self, of: Arm, act: PointAction, kp: Tensor, kd: Tensor) -> None:
        self.act, self.joints, self.tool = act, of.joints, (of.pos, of.quat)
        self.frequency = 2 * kp / kd
        self.decay = torch.exp(-CONTROL_DT * self.frequency)

    def state(self, signals: Signals) -> Tensor:
        """States of ``joint_pos``, and of ``joint_vel`` if it is there: a target is as far ahead as the servos lag."""
        joints = signals["joint_pos"]
        velocity = signals.get("joint_vel", torch.zeros_like(joints))
        return torch.cat([joints, velocity, joints + 2 / self.frequency * velocity, CONTROL_DT * velocity], -1)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """The targets move as the action map says, the joints behind them."""
        joints, speeds, target, step = state.split(self.joints, -1)
        after = self.act.move({"target": target, "step": step}, action.clamp(-1.0, 1.0))
        error = joints - after["target"]
        drive = (speeds + self.frequency * error) * CONTROL_DT
        return torch.cat([after["target"] + self.decay * (error + drive),
                          self.decay * (speeds - self.frequency * drive), after["target"], after["step"]], -1)

    def signals(self, state: Tensor) -> dict[str, Tensor]:
        """The tool's pose, ``joint_pos`` and ``joint_vel``."""
        joints, speeds = state[:, : self.joints], state[:, self.joints : 2 * self.joints]
        place, quat = self.act.chain(joints)
        return {self.tool[0]: place, self.tool[1]: quat, "joint_pos": joints, "joint_vel": speeds}


class Observe:
    """Joints about home, their speeds, the tool's place: [N, 2 J + 3]."""

    def __init__(self, of: Arm) -> None:
        self.home, self.pos, self.scale = of.home, of.pos, 2.5 / of.scale
        self.middle = tuple(of.in_front(torch.tensor([MIDDLE]))[0].tolist())

    def __call__(self, signals: Signals) -> Tensor:
        """[N, size]."""
        place = signals[self.pos]
        home, middle = (torch.tensor(x, device=place.device) for x in (self.home, self.middle))
        return torch.cat([signals["joint_pos"] - home, 0.3 * signals["joint_vel"], self.scale * (place - middle)], -1)


def initial(draw: Draw, start: Mapping[str, Any], of: Arm) -> dict[str, Tensor]:
    """At rest, each joint within ``spread`` rad of home."""
    spread = settings(of.robot.name, start, spread=(0.15,))["spread"][0]
    if not 0.0 <= spread <= 0.5:
        raise ValueError(f"start of system {of.robot.name!r}: spread is 0 to 0.5 rad, got {spread:g}")
    u = draw("initial.joints", of.joints)
    return {"joint_pos": torch.tensor(of.home, device=u.device) + of.spread(spread).to(u.device) * (2 * u - 1)}


class Anywhere:
    """At rest, the tool anywhere in the arena."""

    def __init__(self, of: Arm, fence: Mapping[str, tuple[float, ...]]) -> None:
        self.of, self.fence = of, fence
        self.states: dict[str, Tensor] = {}

    def __call__(self, draw: Draw) -> dict[str, Tensor]:
        """State of K worlds."""
        if not self.states:
            self.states = self.reached()
        return one_of(self.states, draw("initial.place", 1)[:, 0])

    def reached(self) -> dict[str, Tensor]:
        """Postures with the tool all over the arena, its attitude as at home."""
        of, generator = self.of, torch.Generator().manual_seed(0)
        low = (*self.fence["low"][:2], CLEAR * of.scale)
        place = between(low, self.fence["high"], torch.rand(PLACES, 3, generator=generator))
        _, quat = of.chain(torch.tensor([of.home]))
        limits = (torch.tensor(of.limits.low), torch.tensor(of.limits.high))
        joints, good = postures(of.chain, place, quat.expand(PLACES, -1) if of.turns else None, of.home, limits)
        if not bool(good.any()):
            raise ValueError(f"system {of.robot.name!r}: its tool comes nowhere in the arena {self.fence} from home; "
                             "give it another home")
        return {"joint_pos": joints[good]}


def arena(of: Arm) -> dict[str, tuple[float, ...]]:
    """The box around :data:`FENCE` in front of the arm."""
    if of.own:
        return FENCE
    (a, b, c), (x, y, z) = FENCE["low"], FENCE["high"]
    corners = of.in_front(torch.tensor([[u, v, w] for u in (a, x) for v in (b, y) for w in (c, z)]))
    return {"low": tuple(corners.amin(0).tolist()), "high": tuple(corners.amax(0).tolist())}


def model_of(of: Arm, act: PointAction) -> OnDevices | None:
    """What predicts the arm; None where its servos' damping is not known."""
    gains = [of.robot.parameters.get(name) for name in ("kp", "kd")]
    if any(gain is None or min(gain.nominal[: of.joints]) <= 0 for gain in gains):
        return None
    kp, kd = (torch.tensor(gain.nominal[: of.joints]) for gain in gains if gain is not None)
    return OnDevices(Model(of, act, kp, kd))


def arm_system(of: Arm) -> System:
    """The system of an arm."""
    act, fence, robot = PointAction(of), arena(of), of.robot
    return System(
        name=robot.name, scene=Scene(robot), command=JOINTS, backend="mujoco", control_dt=CONTROL_DT, substeps=SUBSTEPS,
        stop="hold", act=act, reads=("joint_pos", "joint_vel", of.pos), observe=Observe(of),
        size=2 * of.joints + 3, signals={name: robot.signals[name] for name in (of.pos, of.quat, of.vel, "joint_pos")},
        initial=partial(initial, of=of), anywhere=Anywhere(of, fence), fence=fence, pace=PACE * of.scale, slack=SLACK,
        reward={name: value * of.scale for name, value in REWARD.items()}, model=model_of(of, act), memory=act.memory,
        follow=act.keep, record=act.move)
