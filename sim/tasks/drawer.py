"""Drawer: an arm pulls a drawer open by its handle, and leaves it open. A Franka by default.

Actions move the tool and open or close the gripper (:class:`temporeal.sim.task_parts.arms.actions.ToolAction`); the
robot gets joint positions and the opening, at 25 Hz. The cabinet stands on the floor of the world. Its handle is a bar
along the drawer's width, away from the front far enough for a finger: it can be gripped or hooked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import pi
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.franka.spec import HOME
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import Source
from temporeal.sim.draws import between, one_of
from temporeal.sim.rewards.formula_tracker import FormulaObjective, FormulaTracker
from temporeal.sim.rotations import axes, direction, doubled, pointing_down, rotation
from temporeal.sim.scene import Object, Scene, numbers
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Draw, Task, task_schema, weights
from temporeal.sim.task_parts.arms.arm import Arm, arm_action, grasping_arm, width_of
from temporeal.sim.task_parts.arms.kinematics import postures
from temporeal.sim.task_parts.arms.observations import ArmObserve
from temporeal.sim.task_parts.standing_objects import standing


def formula_of(tool: str) -> str:
    """The formula for an arm with the tool called ``tool``."""
    return f"""\
F[0,5] G[0,1] (drawer_pos > opening)
& G[0,6] ({tool}_pos_w.z > floor)
& G[0,6] (drawer_vel < speed & drawer_vel > -speed)"""


FORMULA = formula_of("grip")
CONSTANTS: dict[str, Any] = {
    "opening": 0.15,  # m
    "floor": 0.05,  # m
    "speed": 1.0,  # m/s: faster, and it slams
}
POSITIVE = ("opening", "speed")

READY = (*HOME[:6], -pi / 4)  # rad, of the Franka: home, the fingers along x, as they straddle the handle

WIDTH, DEPTH, TOP = 0.36, 0.30, 0.25  # m, of the cabinet
FRONT, MIDDLE = 0.12, 0.18  # m, of the drawer's front: how high it is, and where its middle is
TRAVEL = 0.22  # m
BACK = 0.01  # m, thickness of the front
BAR, GAP = 0.006, 0.05  # m: half the thickness of the handle's bar, and its axis from the front
HANDLE = 0.225  # m, height of the bar: high enough for the hand, 10 cm to each side and 4 cm up, to pass over the top
STRADDLE = 0.015  # m: an opening of the fingers that has room between bar and front
REACH = 0.06  # m, half the length of the bar
MASS = 1.5  # kg, of the drawer and what is in it
FRICTION, DAMPING = 4.0, 15.0  # N and N s/m, of the rails: a kitchen drawer on rollers is pulled with 5 to 10 N
# as stiff as 2.5 ms steps allow: the bar is pinched with 70 N on each side
SOLID = 'solref="0.005 1" solimp="0.95 0.99 0.001"'

TOOL_SPEED, TOOL_TURN = 0.5, 1.5  # m/s, rad/s at action 1
LEASH = 0.05  # rad: about 150 N at the tool
PLACE_LOW, PLACE_HIGH = (0.72, -0.15, -0.35), (0.80, 0.15, 0.35)  # m, m, rad: of the middle of the front, closed
STARTS = 512  # postures around handles, for starts in the middle


@dataclass(frozen=True)
class Reward:
    """Weights per second."""

    approach: float = 1.5  # times 1 - tanh(5 |handle - tool| / m)
    near: float = 1.0  # times 1 - tanh(|handle - tool| / 2 cm)
    aligned: float = 0.5  # times 1 - tanh(angles / 0.3 rad)
    gripped: float = 1.0  # while the bar is between the fingers and they are on it
    opened: float = 6.0  # times the share of the opening asked for
    pulling: float = 2.0  # times the drawer's speed outwards, up to 0.3 m/s, until it is open, in 0.3 m/s
    inside: float = 3.0  # while what the formula asks for next holds
    hit: float = 5.0  # once per subgoal of the formula
    effort: float = 0.01  # times the squared action
    smooth: float = 0.02  # times the squared change of the action
    violated: float = 5.0  # once, when the tool is on the floor or the drawer slams: the episode ends


def misfit(signals: Mapping[str, Tensor], name: str = "grip") -> tuple[Tensor, Tensor, Tensor]:
    """The handle [N, 3] m in the frame of the tool ``name``, the tool's axis [N, 2] and the turn of its fingers [N, 2].

    Both in the handle's frame, whose x points into the cabinet. The turn as cosine and sine of twice the angle by
    which the fingers are off the way across the bar: the two fingers are alike.
    """
    tool, handle = rotation(signals[f"{name}_quat_w"]), rotation(signals["handle_quat_w"]).transpose(-1, -2)
    place = (tool.transpose(-1, -2) @ (signals["handle_pos_w"] - signals[f"{name}_pos_w"])[..., None])[..., 0]
    seen = handle @ tool
    return place, seen[:, :2, 2], doubled(direction(seen[:, 0, 1], seen[:, 1, 1]))


def least(turn: Tensor) -> Tensor:
    """The angle [N] rad, at most a quarter turn, by which the fingers are to be turned back."""
    return 0.5 * torch.atan2(turn[:, 1], turn[:, 0])


def gripped(signals: Mapping[str, Tensor], tool: str = "grip") -> Tensor:
    """1 where the bar is between the fingers and they are on it."""
    place, _, _ = misfit(signals, tool)
    opening = width_of(signals["finger_pos"])
    between_them = (place[:, 2].abs() < 0.012) & (place[:, 1].abs() < 0.01) & (place[:, 0].abs() < REACH)
    return (between_them & (opening < 2 * BAR + 0.004) & (opening > 2 * BAR - 0.004)).float()


def opening_seen(handle: Tensor, place: Tensor) -> Tensor:
    """How far [N] m the drawer is open, from where the handle [N, 3] m and the cabinet [N, 3] (m, m, rad) are."""
    ahead = torch.stack([place[:, 2].cos(), place[:, 2].sin()], -1)
    return (ahead * (place[:, :2] - handle[:, :2])).sum(-1) - (BACK + GAP)


class Seen:
    """The handle and how far the drawer is open, as a policy sees them: from tracked poses of handle and cabinet.

    No sensor on the drawer's rails: kitchens have none. ``drawer_pos`` is the truth, for formula and reward.
    """

    reads = ("handle_pos_w", "handle_quat_w", "cabinet_place")
    size = 3 + 3 + 3 + 2 + 2 + 6 + 1

    def __init__(self, tool: str = "grip") -> None:
        self.tool = tool

    def __call__(self, signals: Mapping[str, Tensor]) -> Tensor:
        """[N, size]."""
        place, tilt, turn = misfit(signals, self.tool)
        return torch.cat([
            5 * (signals["handle_pos_w"] - signals[f"{self.tool}_pos_w"]), 5 * place, torch.tanh(place / 0.02),
            turn, tilt, axes(signals["handle_quat_w"]),
            5 * opening_seen(signals["handle_pos_w"], signals["cabinet_place"])[:, None]], -1)


class Objective(FormulaObjective):
    """To the handle, then pull; the formula says when it is open."""

    privileged_dim = 3 + 1 + 1 + 1

    def __init__(
        self, tracker: FormulaTracker, reward: Reward, opening: float, action_dim: int, tool: str = "grip"
    ) -> None:
        super().__init__(tracker, action_dim)
        self.weights, self.opening, self.tool = reward, opening, tool

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, tracked = self.weights, self.tracker(signals, carry)
        place, tilt, turn = misfit(signals, self.tool)
        away = place.square().sum(-1).sqrt()
        angles = tilt.square().sum(-1).sqrt() + least(turn).abs()
        share = (signals["drawer_pos"] / self.opening).clamp(0.0, 1.0)
        pulling = (signals["drawer_vel"] / 0.3).clamp(0.0, 1.0) * (share < 1).float()
        terminated = tracked.safe <= 0
        reward = self.tracker.automaton.dt * (
            w.approach * (1 - torch.tanh(5 * away)) + w.near * (1 - torch.tanh(away / 0.02))
            + w.aligned * (1 - torch.tanh(angles / 0.3)) + w.gripped * gripped(signals, self.tool) + w.opened * share
            + w.pulling * pulling + w.inside * tracked.inside - w.effort * action.square().sum(-1)
            - w.smooth * (action - carry["previous"]).square().sum(-1)) - w.violated * terminated.float()
        reward = reward + w.hit * tracked.hits
        return reward, terminated, {**tracked.carry, "previous": action}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Velocity of the tool and of the drawer, whether the handle is gripped, the time."""
        return torch.cat([
            signals[f"{self.tool}_vel_w"], signals["drawer_vel"][:, None], gripped(signals, self.tool)[:, None],
            signals["mission_time"][:, None] / 6], -1)


def make(
    *, robot: str = "franka", formula: str | None = None, constants: Mapping[str, Any] | None = None,
    control_dt: float = 0.04, substeps: int = 16, reward: Mapping[str, float] | None = None,
    stiffness: float | None = None,
) -> Task:
    """The task. ``robot``: an arm with a gripper. ``formula``: None: :func:`formula_of` its tool. ``stiffness``: see
    :class:`temporeal.sim.task_parts.arms.actions.ToolAction`."""
    constants = {**CONSTANTS, **dict(constants or {})}
    if not 0 < constants["opening"] < TRAVEL:
        raise ValueError(f"task 'drawer': opening is above 0 and below the travel of {TRAVEL} m, "
                         f"got {constants['opening']}")
    of, gripper = grasping_arm("drawer", robot)
    tool, home, text = of.robot.tool, ready(of), formula or formula_of(of.robot.tool)
    scene = Scene(of.robot, (cabinet(),))
    parsed = parse(text, task_schema(scene), constants)
    motion = of.motion(TOOL_SPEED, TOOL_TURN, leash=LEASH, stiffness=stiffness)
    act = arm_action(of, gripper.command, control_dt, motion, home)
    return Task(
        name="drawer", scene=scene, command=gripper.command, control_dt=control_dt, substeps=substeps, episode_s=6.0,
        formula=parsed, formula_text=text, constants=constants,
        observe=ArmObserve(of, act, Seen.reads, Seen(tool), Seen.size, home), act=act,
        objective=Objective(FormulaTracker(parsed, control_dt), weights(Reward, reward), float(constants["opening"]),
                            act.action_dim, tool),
        initial=Start(of), mid_episode=MidEpisode(of, control_dt), stop="hold")


def cabinet() -> Object:
    """The cabinet: a box that the drawer comes out of, towards -x. Its place is that of the closed front's middle."""
    inside = (DEPTH / 2, WIDTH / 2, (TOP - 0.002) / 2)
    half, up = 0.16, HANDLE - MIDDLE  # m: half the front's width, the bar over its middle
    bar = f'type="box" condim="4" friction="0.6 0.005 0.0001" {SOLID} rgba="0.2 0.2 0.22 1"'
    look = 'contype="0" conaffinity="0" rgba="0.85 0.75 0.6 1"'
    elements = f"""
      <geom name="body" type="box" size="{numbers(inside)}" pos="{DEPTH / 2} 0 {TOP / 2}" rgba="0.7 0.55 0.4 1"/>
      <body name="drawer" pos="0 0 {MIDDLE}">
        <inertial pos="0.1 0 0" mass="{MASS}" diaginertia="0.01 0.01 0.02"/>
        <joint name="slide" type="slide" axis="-1 0 0" range="0 {TRAVEL}" frictionloss="{FRICTION}"
          damping="{DAMPING}" solreflimit="0.005 1" solimplimit="0.95 0.99 0.001"/>
        <geom name="front" type="box" size="{numbers((BACK / 2, half, FRONT / 2))}" pos="{-BACK / 2} 0 0"
          rgba="0.85 0.75 0.6 1"/>
        <geom name="left" type="box" size="0.12 0.005 0.03" pos="0.12 0.14 0" {look}/>
        <geom name="right" type="box" size="0.12 0.005 0.03" pos="0.12 -0.14 0" {look}/>
        <geom name="bottom" type="box" size="0.12 0.14 0.004" pos="0.12 0 -0.03" {look}/>
        <geom name="bar" {bar} size="{numbers((BAR, REACH, BAR))}" pos="{-BACK - GAP} 0 {up}"/>
        <geom name="post1" {bar} size="{numbers((GAP / 2, BAR, BAR))}" pos="{-BACK - GAP / 2} {REACH - BAR} {up}"/>
        <geom name="post2" {bar} size="{numbers((GAP / 2, BAR, BAR))}" pos="{-BACK - GAP / 2} {BAR - REACH} {up}"/>
        <site name="handle" pos="{-BACK - GAP} 0 {up}" size="0.004"/>
      </body>"""
    joint = ("cabinet.slide",)
    return standing("cabinet", elements, mass=20.0, signals={
        "drawer_pos": (SignalSpec("drawer_pos", (), "m"), Source("joint_pos", joint)),
        "drawer_vel": (SignalSpec("drawer_vel", (), "m/s"), Source("joint_vel", joint)),
        "handle_pos_w": (SignalSpec("handle_pos_w", (3,), "m", "w"), Source("pos", ("cabinet.handle",))),
        "handle_quat_w": (SignalSpec("handle_quat_w", (4,), "wxyz", "w"), Source("quat", ("cabinet.handle",)))})


# ---------------------------------------------------------------- starts


@cache
def ready(of: Arm) -> tuple[float, ...]:
    """Where an arm waits [J] rad: at home, the fingers along x, as they straddle the handle."""
    if of.own:
        return READY
    tool, _ = of.chain(torch.tensor([of.home]))
    joints, good = postures(of.chain, tool, pointing_down(torch.tensor([0.5 * pi + of.heading])), of.home, of.range)
    return tuple(joints[0].tolist()) if bool(good) else of.home


def placed(of: Arm, u: Tensor) -> Tensor:
    """Where the cabinet stands [K, 3] (m, m, rad) for uniform numbers ``u`` [K, 3]."""
    place = between(PLACE_LOW, PLACE_HIGH, u)
    return torch.cat([of.in_front(place[:, :2]), place[:, 2:] + of.heading], -1)


class Start:
    """Joints within 0.1 rad of ready, the gripper open, the cabinet somewhere in front, the drawer closed."""

    def __init__(self, of: Arm) -> None:
        self.of = of

    def __call__(self, draw: Draw) -> dict[str, Tensor]:
        """State of K worlds."""
        of = self.of
        u, v = draw("initial.joints", of.joints), draw("initial.cabinet", 3)
        return {"joint_pos": torch.tensor(ready(of), device=u.device) + 0.1 * (2 * u - 1), "finger_pos": of.opened(u),
                "cabinet_place": placed(of, v), "drawer_pos": torch.zeros_like(u[:, 0])}


@cache
def mid_episode_states(of: Arm) -> dict[str, Tensor]:
    """Stored states with the handle between the fingers or below them, the drawer closed or partly open."""
    generator = torch.Generator().manual_seed(0)
    place = placed(of, torch.rand(STARTS, 3, generator=generator))
    u = torch.rand(STARTS, 4, generator=generator)
    opened = 0.12 * (u[:, 0] - 0.5).clamp(min=0.0) * 2
    over = 0.10 * (u[:, 1] - 0.5).clamp(min=0.0) * 2  # m, of the tool over the bar
    along = 0.04 * (2 * u[:, 2] - 1)
    ahead = torch.stack([place[:, 2].cos(), place[:, 2].sin()], -1)
    aside = torch.stack([-ahead[:, 1], ahead[:, 0]], -1)
    flat = place[:, :2] - (BACK + GAP + opened)[:, None] * ahead + along[:, None] * aside
    tool = torch.cat([flat, (HANDLE + over)[:, None]], -1)
    quat = pointing_down(place[:, 2] + 0.5 * pi)
    joints, good = postures(of.chain, tool, quat, ready(of), of.range)
    state = {"joint_pos": joints, "cabinet_place": place, "drawer_pos": opened,
             "finger_pos": of.opened(joints, STRADDLE)}
    return {name: value[good] for name, value in state.items()}


class MidEpisode:
    """Starts with the tool at the handle."""

    def __init__(self, of: Arm, control_dt: float) -> None:
        self.of, self.control_dt = of, control_dt

    def __call__(self, draw: Draw) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """State and memory of K worlds."""
        u = draw("explore.drawer", 2)
        return (one_of(mid_episode_states(self.of), u[:, 0]), {"tick": torch.round(2.0 / self.control_dt * u[:, 1])})
