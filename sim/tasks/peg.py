"""Peg: an arm puts the peg that it holds into a hole a millimetre wider, without pushing too hard. A Franka by default.

Actions move the tool (:class:`temporeal.sim.task_parts.arms.actions.ToolAction`); the gripper stays closed. The robot
gets joint positions and the opening, at 25 Hz. The block with the hole stands on the table (the floor of the world) and
measures the force on it, as a fixture on a force sensor does.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from math import cos, pi, sin, tan
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import Source
from temporeal.sim.draws import between, one_of
from temporeal.sim.rewards.formula_tracker import FormulaObjective, FormulaTracker
from temporeal.sim.rotations import axes, direction, doubled, pointing_down, rotation
from temporeal.sim.scene import Object, Scene, free_body, numbers
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Draw, Task, task_schema, weights
from temporeal.sim.task_parts.arms.arm import Arm, arm_action, grasping_arm
from temporeal.sim.task_parts.arms.kinematics import postures
from temporeal.sim.task_parts.arms.observations import ArmObserve
from temporeal.sim.task_parts.standing_objects import standing


def formula_of(tool: str) -> str:
    """The formula for an arm with the tool called ``tool``."""
    return f"""\
F[0,7] G[0,1] (hole_pos_w.z - peg_tip_w.z > depth
  & hypot(peg_tip_w.x - hole_pos_w.x, peg_tip_w.y - hole_pos_w.y) < inside)
& G[0,8] (norm(peg_pos_w - {tool}_pos_w) < slip)
& G[0,8] (hole_force < force)"""


FORMULA = formula_of("grip")
CONSTANTS: dict[str, Any] = {
    "depth": 0.03,  # m, of the tip below the hole's mouth
    "inside": 0.01,  # m: a tip that low and that near the hole's axis is in the hole
    "slip": 0.04,  # m, of the peg's centre from the tool's: 20 mm when well held
    "force": 60.0,  # N, on the block
}
POSITIVE = ("depth", "inside", "slip", "force")

WIDTH, LENGTH = 0.02, 0.08  # m, of the peg; its ends are across the fingers' pads and below them
MASS = 0.25  # kg: 7850 kg/m^3, steel
BELOW = 0.02  # m, from the tool's centre to the peg's: the fingers hold its upper half
BLOCK = 0.05  # m, height of the block: the hole goes through
WALL = 0.03  # m, around the hole
SIDES = {"square": 4, "round": 16}  # boxes around the hole
FRICTION = (0.3, 0.003, 0.0001)  # steel on steel, with oil on it; the pads' own counts in the fingers
# Two time steps of 2.5 ms, the stiffest that is stable, and impedances near 1: pressed with 60 N on the rim, the peg
# sinks by a few hundredths of a millimetre. With MuJoCo's defaults (20 ms, 0.9 to 0.95) it would sink by millimetres.
SOLID = 'solref="0.005 1" solimp="0.98 0.998 0.0005"'

TOOL_SPEED, TOOL_TURN = 0.2, 0.6  # m/s, rad/s at action 1
LEASH = 0.012  # rad: 24 to 36 N m of the servos, about 60 N at the tool
PLACE_LOW, PLACE_HIGH = (0.42, -0.15, -0.35), (0.60, 0.15, 0.35)  # m, m, rad: where the block stands
HELD = 0.003  # m, by which the peg may sit off its place in the fingers, along them and across
STARTS = 512  # postures around holes, for starts in the middle


@dataclass(frozen=True)
class Reward:
    """Weights per second."""

    approach: float = 1.0  # times 1 - tanh(5 |mouth - tip| / m)
    beside: float = 1.0  # times 1 - tanh(tip's way to the hole's axis / 2 cm)
    upright: float = 1.0  # times 1 - tanh(angles / 0.5 rad)
    aligned: float = 1.0  # times 1 - tanh(angles / 0.1 rad), and of ``beside``
    centred: float = 1.0  # times 1 - tanh(tip's way to the axis / 2 mm), and of ``aligned``
    low: float = 2.0  # times 1 - tanh(tip's height over the mouth / 3 cm), and of ``centred``
    deep: float = 5.0  # times the share of the depth asked for, of a peg that is in the hole
    inside: float = 3.0  # while the formula's region is held and nothing was broken
    hit: float = 5.0  # once per subgoal of the formula
    push: float = 0.02  # times what the block is pushed with beyond 10 N, N
    broken: float = 5.0  # while what the formula says is to be kept is not
    effort: float = 0.01  # times the squared action
    smooth: float = 0.02  # times the squared change of the action
    lost: float = 5.0  # once, when the peg is out of the fingers: the episode ends


def misfit(signals: Mapping[str, Tensor], square: float) -> tuple[Tensor, Tensor, Tensor]:
    """How the peg stands to the hole, in the hole's frame: the tip [N, 3] m, the peg's axis [N, 2], and its turn.

    The turn as cosine and sine [N, 2] of four times the angle, since a quarter turn brings a square peg onto itself;
    ``square`` is 1 for such a peg, and 0 for one whose turn does not matter.
    """
    hole, peg = rotation(signals["hole_quat_w"]).transpose(-1, -2), rotation(signals["peg_quat_w"])
    tip = (hole @ (signals["peg_tip_w"] - signals["hole_pos_w"])[..., None])[..., 0]
    seen = hole @ peg
    c, s = doubled(doubled(direction(seen[:, 0, 0], seen[:, 1, 0]))).unbind(-1)
    return tip, seen[:, :2, 2], torch.stack([square * c + (1 - square), square * s], -1)


def least(turn: Tensor) -> Tensor:
    """The angle [N] rad, at most an eighth of a turn, by which the peg is to be turned back."""
    return 0.25 * torch.atan2(turn[:, 1], turn[:, 0])


class Seen:
    """The peg and the hole, as a policy sees them: coarsely, and finely where millimetres count."""

    reads = ("peg_tip_w", "peg_quat_w", "hole_pos_w", "hole_quat_w")
    size = 3 + 3 + 2 + 2 + 3 + 6

    def __init__(self, square: float) -> None:
        self.square = square

    def __call__(self, signals: Mapping[str, Tensor]) -> Tensor:
        """[N, size]."""
        tip, tilt, turn = misfit(signals, self.square)
        way = signals["peg_tip_w"] - signals["hole_pos_w"]
        return torch.cat([5 * way, torch.tanh(way / 0.005), 5 * tilt, turn, torch.tanh(tip / 0.03),
                          axes(signals["hole_quat_w"])], -1)


class Objective(FormulaObjective):
    """Over the hole, upright, centred, in; the formula says when it is deep enough.

    An episode ends when the peg is lost, not when the block was pushed too hard, although it cannot succeed any more:
    exploring with the peg in the hole pushes hard, and a policy whose episodes ended there would avoid the hole.
    """

    privileged_dim = 3 + 3 + 1 + 1

    def __init__(
        self, tracker: FormulaTracker, reward: Reward, depth: float, slip: float, square: float, action_dim: int,
        tool: str = "grip",
    ) -> None:
        super().__init__(tracker, action_dim)
        self.weights, self.depth, self.slip, self.square, self.tool = reward, depth, slip, square, tool

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, tracked = self.weights, self.tracker(signals, carry)
        tip, tilt, turn = misfit(signals, self.square)
        off = tip[:, :2].square().sum(-1).sqrt()
        angles = tilt.square().sum(-1).sqrt() + least(turn).abs()
        beside = 1 - torch.tanh(off / 0.02)
        aligned = beside * (1 - torch.tanh(angles / 0.1))
        centred = aligned * (1 - torch.tanh(off / 0.002))
        deep = (-tip[:, 2] / self.depth).clamp(0.0, 1.0) * (off < 0.25 * WIDTH).float()
        near = 1 - torch.tanh(5 * tip.square().sum(-1).sqrt())
        inside = tracked.inside * (1 - tracked.carry["broken"])
        terminated = (signals["peg_pos_w"] - signals[f"{self.tool}_pos_w"]).square().sum(-1) >= self.slip**2
        reward = self.tracker.automaton.dt * (
            w.approach * torch.maximum(near, deep) + w.beside * beside + w.upright * (1 - torch.tanh(angles / 0.5))
            + w.aligned * aligned + w.centred * centred + w.deep * deep
            + w.low * centred * (1 - torch.tanh(tip[:, 2].clamp(min=0.0) / 0.03)) + w.inside * inside
            - w.push * (signals["hole_force"] - 10.0).clamp(min=0.0)
            - w.broken * (tracked.safe <= 0).float() - w.effort * action.square().sum(-1)
            - w.smooth * (action - carry["previous"]).square().sum(-1)) - w.lost * terminated.float()
        reward = reward + w.hit * tracked.hits
        return reward, terminated, {**tracked.carry, "previous": action}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Velocities of tool and peg, the force on the block, the time."""
        return torch.cat([
            signals[f"{self.tool}_vel_w"], signals["peg_vel_w"], 0.05 * signals["hole_force"][:, None],
            signals["mission_time"][:, None] / 8], -1)


def make(
    *, robot: str = "franka", formula: str | None = None, constants: Mapping[str, Any] | None = None,
    control_dt: float = 0.04, substeps: int = 16, clearance: float = 0.001, peg: str = "square",
    reward: Mapping[str, float] | None = None, stiffness: float | None = None,
) -> Task:
    """The task.

    Args:
        robot: an arm with a gripper. ``formula``: None: :func:`formula_of` its tool.
        clearance: by how much the hole is wider than the peg, m. ``peg``: ``square`` or ``round``.
        stiffness: see :class:`temporeal.sim.task_parts.arms.actions.ToolAction`.
    """
    if not 0.0003 <= clearance <= 0.01:
        raise ValueError(f"task 'peg': clearance is 0.0003 to 0.01 m (below, contacts are too soft), got {clearance}")
    if peg not in SIDES:
        raise ValueError(f"task 'peg': peg is one of {', '.join(SIDES)}; got {peg!r}")
    constants = {**CONSTANTS, **dict(constants or {})}
    if not 0 < constants["depth"] < BLOCK:
        raise ValueError(f"task 'peg': depth is above 0 and below the hole's {BLOCK} m, got {constants['depth']}")
    of, gripper = grasping_arm("peg", robot)
    square, text = float(peg == "square"), formula or formula_of(of.robot.tool)
    scene = Scene(of.robot, (peg_object(peg), block(clearance, SIDES[peg])))
    parsed = parse(text, task_schema(scene), constants)
    motion = of.motion(TOOL_SPEED, TOOL_TURN, leash=LEASH, grip=gripper.closed, stiffness=stiffness)
    act = arm_action(of, gripper.command, control_dt, motion)
    return Task(
        name="peg", scene=scene, command=gripper.command, control_dt=control_dt, substeps=substeps, episode_s=8.0,
        formula=parsed, formula_text=text, constants=constants,
        observe=ArmObserve(of, act, Seen.reads, Seen(square), Seen.size), act=act,
        objective=Objective(FormulaTracker(parsed, control_dt), weights(Reward, reward), float(constants["depth"]),
                            float(constants["slip"]), square, act.action_dim, of.robot.tool),
        initial=Start(of), mid_episode=MidEpisode(of, control_dt), stop="hold")


# ---------------------------------------------------------------- what stands there


def peg_object(shape: str) -> Object:
    """The peg: its z points to the tip. A round one has a square head, because two flat pads do not hold a cylinder."""
    half, quarter = WIDTH / 2, LENGTH / 4
    parts = {"head": ("box", (half, half, quarter), -quarter),
             "shank": ("box", (half, half, quarter), quarter) if shape == "square" else
                      ("cylinder", (half, quarter), quarter)}
    geoms = "\n".join(
        f"""<geom name="{name}" type="{kind}" size="{numbers(size)}" pos="0 0 {z}" mass="{MASS / 2}" condim="4"
          friction="{numbers(FRICTION)}" {SOLID} rgba="0.75 0.75 0.8 1"/>""" for name, (kind, size, z) in parts.items())
    mjcf = f"""<mujoco><worldbody><body name="root"><freejoint name="joint"/>{geoms}
      <site name="tip" pos="0 0 {LENGTH / 2}" size="0.002"/></body></worldbody></mujoco>"""
    signals, sources = free_body("peg")
    tip = SignalSpec("peg_tip_w", (3,), "m", "w")
    return Object("peg", mjcf, (0.4, 0.0, 0.3), (0.0, 1.0, 0.0, 0.0), {**signals, tip.name: tip},
                  {**sources, tip.name: Source("pos", ("peg.tip",))})


def block(clearance: float, sides: int) -> Object:
    """The block: boxes around a hole of ``sides`` sides, each touching the circle of the hole's width."""
    inner = 0.5 * (WIDTH + clearance)
    # 1 mm above the table: what it stands on carries none of the force that it measures
    half = (0.5 * WALL, (inner + WALL) * tan(pi / sides), 0.5 * BLOCK - 0.0005)
    boxes = []
    for i in range(sides):
        turn = 2 * pi * i / sides
        away = inner + half[0]
        boxes.append(f"""<geom name="wall{i}" type="box" size="{numbers(half)}" euler="0 0 {turn}"
          pos="{numbers((away * cos(turn), away * sin(turn), 0.5 * BLOCK + 0.0005))}" friction="{numbers(FRICTION)}"
          condim="3" {SOLID} rgba="0.3 0.4 0.55 1"/>""")
    boxes.append(f'<site name="mouth" pos="0 0 {BLOCK}" size="0.002"/>')
    return standing("hole", "\n".join(boxes), mass=2.0, signals={
        "hole_pos_w": (SignalSpec("hole_pos_w", (3,), "m", "w"), Source("pos", ("hole.mouth",))),
        "hole_quat_w": (SignalSpec("hole_quat_w", (4,), "wxyz", "w"), Source("quat", ("hole.mouth",))),
        "hole_force": (SignalSpec("hole_force", (), "N"), Source("contact_force", ("hole.root",)))})


# ---------------------------------------------------------------- starts


def in_fingers(of: Arm, tool_pos: Tensor, tool_quat: Tensor, off: Tensor) -> dict[str, Tensor]:
    """A peg in the fingers, ``off`` [K, 2] m its place across (tool's x) and along (z) them."""
    frame = rotation(tool_quat)
    pos = tool_pos + frame[:, :, 0] * off[:, :1] + frame[:, :, 2] * (BELOW + off[:, 1:])
    return {"peg_pos_w": pos, "peg_quat_w": tool_quat, "finger_pos": of.opened(off, WIDTH / 2)}


class Start:
    """Joints within 0.1 rad of home, the peg in the fingers, the block somewhere on the table."""

    def __init__(self, of: Arm) -> None:
        self.of, self.chain = of, deepcopy(of.chain)

    def __call__(self, draw: Draw) -> dict[str, Tensor]:
        """State of K worlds."""
        of = self.of
        u, v, w = draw("initial.joints", of.joints), draw("initial.hole", 3), draw("initial.peg", 2)
        joints = torch.tensor(of.home, device=u.device) + 0.1 * (2 * u - 1)
        pos, quat = self.chain.to(u.device)(joints)
        return {"joint_pos": joints, "hole_place": placed(of, v), **in_fingers(of, pos, quat, HELD * (2 * w - 1))}


def placed(of: Arm, u: Tensor) -> Tensor:
    """Where the block stands [K, 3] (m, m, rad) for uniform numbers ``u`` [K, 3]."""
    place = between(PLACE_LOW, PLACE_HIGH, u)
    return torch.cat([of.in_front(place[:, :2]), place[:, 2:] + of.heading], -1)


@cache
def mid_episode_states(of: Arm) -> dict[str, Tensor]:
    """Stored states with the peg over the hole or in it."""
    generator = torch.Generator().manual_seed(0)
    place = placed(of, torch.rand(STARTS, 3, generator=generator))
    off = HELD * (2 * torch.rand(STARTS, 2, generator=generator) - 1)
    height = 0.04 - 0.07 * torch.rand(STARTS, generator=generator)  # m, of the tip over the mouth
    # over the hole somewhere near; in it straight
    near = (height > 0.002).float()[:, None] * torch.tensor([0.02, 0.02, 0.2])
    astray = near * (2 * torch.rand(STARTS, 3, generator=generator) - 1)
    quat = pointing_down(place[:, 2] + astray[:, 2])
    tip = torch.cat([place[:, :2] + astray[:, :2], (BLOCK + height)[:, None]], -1)
    tool = tip - in_fingers(of, torch.zeros_like(tip), quat, off)["peg_pos_w"] - LENGTH / 2 * rotation(quat)[:, :, 2]
    joints, good = postures(of.chain, tool, quat, of.home, of.range)
    state = {"joint_pos": joints, "hole_place": place, **in_fingers(of, tool, quat, off)}
    return {name: value[good] for name, value in state.items()}


class MidEpisode:
    """Starts with the peg over the hole or in it."""

    def __init__(self, of: Arm, control_dt: float) -> None:
        self.of, self.control_dt = of, control_dt

    def __call__(self, draw: Draw) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """State and memory of K worlds."""
        u = draw("explore.peg", 2)
        return (one_of(mid_episode_states(self.of), u[:, 0]), {"tick": torch.round(3.0 / self.control_dt * u[:, 1])})
