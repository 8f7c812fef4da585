"""A task's worlds while they run, for viewing: poses, goals, and the state of the formula.

    show = Show(env, stage, lambda: graph_policy(graph))
    moment = show.restart()
    while not moment.over.all():
        moment = show.step()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import cos, radians, sin
from typing import Any, NamedTuple

import mujoco
import numpy as np
import torch
from torch import Tensor

from temporeal.policies.evaluate.rollout import host
from temporeal.policies.evaluate.scene_figure import Figure, Goal, Stage, carrier, rotation
from temporeal.policies.training.acting import Act
from temporeal.sim.env import Env
from temporeal.sim.rendering.backend_pictures import positions
from temporeal.sim.rendering.viewpoints import GROUPS, looking
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.monitoring.monitor import Monitor, Reading
from temporeal.sim.stl.semantics.verdicts import SATISFIED, UNDECIDED, VIOLATED

Array = np.ndarray
ACTIONS = ("zero", "random")


@dataclass(frozen=True)
class Moment:
    """N worlds at one sample. A finished world keeps its final state.

    Args:
        time: of the sample, s since the episode began.
        qpos: [N, nq]. signals: true ones, [N, ...].
        over: bool [N], the episode has ended; terminated: before its time was up.
    """

    time: float
    qpos: Array
    signals: Mapping[str, Array]
    readings: tuple[Reading, ...]
    over: Array
    terminated: Array

    def verdict(self, world: int) -> str:
        """``satisfied``, ``violated`` or ``undecided``. An end before a decision is a violation, as in evaluations."""
        found = self.readings[world].verdict
        return VIOLATED if found == UNDECIDED and self.over[world] else found


class Show:
    """Successive episodes of all worlds at once: finished worlds wait for the others.

    Args:
        policy: makes the policy of an episode, which may carry memory from step to step. None: ``actions``.
        actions: ``zero`` or ``random``, without a policy.

    Attributes:
        looks: parameters of the pictures that the task draws for the running episodes, [N, count] by name.
    """

    def __init__(
        self, env: Env, stage: Stage, policy: Callable[[], Act] | None = None, *, actions: str = "zero"
    ) -> None:
        if actions not in ACTIONS:
            raise ValueError(f"actions are one of {', '.join(ACTIONS)}; got {actions!r}")
        self.env, self.stage, self.task = env, stage, env.task
        self.make_policy = policy or (lambda: idle(env, actions))
        self.monitors = [Monitor(env.task.formula, env.task.control_dt, compiled=False)
                         for _ in range(env.num_worlds)]
        self.read = sorted(signals_in(env.task.formula))
        self.moment: Moment | None = None
        self.looks: dict[str, Tensor] = {}

    @torch.no_grad()
    def restart(self) -> Moment:
        """The first sample of a new episode of every world."""
        self.policy = self.make_policy()  # before the reset: an artifact's looks at what is measured there
        obs = self.env.reset()
        self.actor, self.count, self.looks = obs.actor, 0, self._looks()
        signals = {k: host(v) for k, v in self.env.true_signals().items()}
        for monitor in self.monitors:
            monitor.reset()
        no = np.zeros(self.env.num_worlds, bool)
        self.moment = Moment(0.0, self._qpos(), signals, self._readings(signals, no), no, no)
        return self.moment

    @torch.no_grad()
    def step(self) -> Moment:
        """The sample after one more control step; of a new episode if the last one is over in all worlds."""
        if self.moment is None or self.moment.over.all():
            return self.restart()
        was = self.moment
        step = self.env.step(self.policy(self.actor).clamp(-1.0, 1.0))
        self.actor, self.count = step.obs.actor, self.count + 1
        info: Any = step.info
        signals = {k: np.where(row(was.over, v.dim()), was.signals[k], host(v)) for k, v in info["signals"].items()}
        ended = host(step.terminated | step.truncated) & ~was.over
        qpos = np.where(was.over[:, None], was.qpos, self._qpos())
        if ended.any():  # there the simulator shows the next episode already
            qpos[ended] = self.stage.figure.qpos(signals)[ended]
        readings = self._readings(signals, was.over)
        self.moment = Moment(self.count * self.task.control_dt, qpos, signals, readings, was.over | ended,
                             was.terminated | (ended & host(step.terminated)))
        return self.moment

    def _looks(self) -> dict[str, Tensor]:
        if self.task.appearance is None:
            return {}
        drawn = [self.env.record(world).state for world in range(self.env.num_worlds)]
        return self.task.appearance({name: torch.tensor([state[name] for state in drawn]) for name in drawn[0]})

    def _qpos(self) -> Array:
        return host(positions(self.env.backend, self.stage.figure.model)).astype(np.float64)

    def _readings(self, signals: Mapping[str, Array], over: Array) -> tuple[Reading, ...]:
        for world, monitor in enumerate(self.monitors):
            if not over[world]:
                monitor.update({name: signals[name][world] for name in self.read})
        return tuple(monitor.reading for monitor in self.monitors)


def idle(env: Env, actions: str) -> Act:
    """A policy of zero or random actions."""
    generator = torch.Generator().manual_seed(env.seed & 0x7FFF_FFFF_FFFF_FFFF)

    def act(obs: Tensor) -> Tensor:
        shape = (len(obs), env.action_dim)
        if actions == "zero":
            return torch.zeros(shape, device=obs.device)
        return (2 * torch.rand(shape, generator=generator) - 1).to(obs.device)

    return act


def row(flags: Array, dim: int) -> Array:
    """``flags`` [N], shaped to broadcast against [N, ...] of ``dim`` dimensions."""
    return flags.reshape(-1, *[1] * (dim - 1))


# ---------------------------------------------------------------- where to look from


class Look(NamedTuple):
    """A viewpoint: position of the eye and its target (m, world), and its vertical angle, degrees."""

    eye: Array
    target: Array
    fovy: float = 40.0

    @property
    def quat(self) -> tuple[float, float, float, float]:
        """Attitude wxyz of a camera there, which looks along its -z, x to the right, y up."""
        return looking(self.eye, self.target)


SIDES = {"front": (1.0, 0.0, 0.15), "side": (0.0, -1.0, 0.15), "top": (0.0, -0.02, 1.0)}
"""Names of viewpoints, and the ways from what is looked at to the eye. A fixed robot reaches along x. From the top the
picture is a map: x to the right, y up."""

FRAME = "frame"
"""The viewpoint that is chosen for the scene (:func:`best_way`)."""

USUAL = (0.62, -0.62, 0.48)  # to the eye, where nothing speaks for another way
AZIMUTHS, RISES = range(0, 360, 30), (25.0, 37.0, 50.0)  # of ways to the eye that are tried, degrees
SAMPLES, TRIED = 48, 4  # corners of a body that are looked for, and worlds in which
NEAR, HOME = 0.5, 0.3  # what a picture without empty room, and the usual way, count beside what is seen


def look_at(points: Array, side: str | Array, aspect: float, fovy: float = 40.0) -> Look:
    """The viewpoint from which the points [M, 3] m just fill a picture of width / height ``aspect``.

    ``side``: a name of :data:`SIDES`, or the direction [3] from the points to the eye.
    """
    way = np.array(SIDES[side]) if isinstance(side, str) else side
    way = way / np.linalg.norm(way)
    middle = 0.5 * (points.min(0) + points.max(0))
    look = Look(middle + way, middle, fovy)
    turn = rotation(np.array(look.quat))
    slope = np.tan(np.radians(fovy) / 2) / MARGIN
    across, up, back = ((points - middle) @ turn).T
    middle = middle + 0.5 * (turn[:, :2] @ [across.min() + across.max(), up.min() + up.max()])
    across, up, back = ((points - middle) @ turn).T
    distance = float(np.maximum(np.abs(up) / slope + back, np.abs(across) / (slope * aspect) + back).max())
    return look._replace(eye=middle + max(distance, 1e-2) * way, target=middle)


MARGIN = 1.2  # of a picture around what it shows


def best_way(stage: Stage, moment: Moment, shapes: Sequence[Mapping[str, Any]], aspect: float) -> Array:
    """Direction [3] from the scene to the eye that sees most of its objects, with the scene filling the picture.

    An object counts by its corners that no geom hides (MuJoCo's rays), all bodies equally, in the first worlds shown. A
    scene without objects gets the default direction; one in the plane is seen from above.
    """
    if in_plane(stage):
        return np.array(SIDES["top"])
    usual = np.array(USUAL) / np.linalg.norm(USUAL)
    wanted = objects_of(stage)
    if not wanted:
        return usual
    ways = [np.array([cos(radians(a)) * cos(radians(r)), sin(radians(a)) * cos(radians(r)), sin(radians(r))])
            for r in RISES for a in AZIMUTHS]
    points = room(stage, moment, shapes)
    looks = [look_at(points, way, aspect) for way in ways]
    away = np.array([np.linalg.norm(look.eye - look.target) for look in looks])
    seen = np.array([share_seen(stage, moment, wanted, look.eye) for look in looks])
    level = np.array(ways)[:, :2] / np.linalg.norm(np.array(ways)[:, :2], axis=-1, keepdims=True)
    beside = level @ usual[:2] / np.linalg.norm(usual[:2])
    worth = (seen / np.maximum(seen.max(0), 1e-9)).mean(-1) + NEAR * away.min() / away + HOME * beside
    return ways[int(worth.argmax())]


def objects_of(stage: Stage) -> list[int]:
    """Indices of :attr:`Figure.bodies` that are objects with a position in the simulator's signals."""
    figure, found = stage.figure, []
    for thing in figure.model.scene.objects:
        bodies = [carrier(figure.model, name) for name in thing.signals]
        found += [int(figure.model.mj.body_weldid[b]) for b in bodies if b is not None]
    return [figure.bodies.index(b) for b in dict.fromkeys(found) if b in figure.bodies]


def share_seen(stage: Stage, moment: Moment, wanted: Sequence[int], eye: Array) -> Array:
    """The share [B] of the corners of the bodies ``wanted`` that nothing hides from ``eye`` [3] m."""
    figure, mj, data = stage.figure, stage.figure.model.mj, stage.figure.data
    groups = np.isin(np.arange(mujoco.mjNGROUP), GROUPS).astype(np.uint8)
    hit = np.zeros(1, np.int32)
    seen: list[list[bool]] = [[] for _ in wanted]
    for qpos in moment.qpos[:TRIED]:
        (pos,), (quat,) = figure.poses(qpos[None])
        for body, found in zip(wanted, seen):
            for corner in corners_of(figure, body) @ rotation(quat[body]).T + pos[body]:
                far = float(np.linalg.norm(corner - eye))
                first = mujoco.mj_ray(mj, data, eye, (corner - eye) / far, groups, 1, -1, hit)
                found.append(first < 0 or first > far - max(0.003, 0.004 * far))
    return np.array([np.mean(found) if found else 0.0 for found in seen])


def corners_of(figure: Figure, body: int) -> Array:
    """Some corners [M, 3] m of a body's geoms, in its frame."""
    parts = [part.mesh.vertices for part in figure.parts if part.body == body]
    if not parts:
        return np.zeros((0, 3))
    all_of_it = np.concatenate(parts)
    return all_of_it[np.unique(np.linspace(0, len(all_of_it) - 1, SAMPLES).astype(int))]


def room(stage: Stage, moment: Moment, shapes: Sequence[Mapping[str, Any]]) -> Array:
    """Points [M, 3] m around everything drawn at the start."""
    points = [stage.figure.outline(moment.qpos[:16]), *(p[None] for p in shape_points(shapes))]
    points += [around_goal(goal, stage, moment.signals, w) for goal in stage.goals for w in range(len(moment.qpos[:16]))
               if goal.place or stage.ghost(goal)]
    return np.concatenate(points)


def around_goal(goal: Goal, stage: Stage, signals: Mapping[str, Array], world: int) -> Array:
    """Points [M, 3] m around the drawing of a goal in one world."""
    place, quat = goal_pose(goal, stage, signals, world)
    turn = rotation(quat).T if quat is not None else np.eye(3)
    ball = goal.radius * np.concatenate([np.eye(3), -np.eye(3)]) if goal.place else np.zeros((1, 3))
    return np.concatenate([ball, *(part.mesh.vertices @ turn for part in stage.ghost(goal))]) + place


def roams(stage: Stage) -> bool:
    """Whether the robot is mobile and leaves the picture: its base is free, and there is no arena seen as a whole."""
    robot = stage.figure.model.scene.robot
    return robot.kind != "quadrotor" and "base_pos_w" in robot.signals and not in_plane(stage)


def in_plane(stage: Stage) -> bool:
    """Whether all that happens lies in the plane z = 0."""
    return stage.figure.model.scene.robot.kind == "planar"


def shape_points(shapes: Sequence[Mapping[str, Any]]) -> list[Array]:
    """Points that span a task's shapes."""
    out: list[Array] = []
    for shape in shapes:
        if shape["type"] == "box":
            out += [np.array([(shape["low"], shape["high"])[i >> m & 1][m] for m in range(3)], float) for i in range(8)]
        elif shape["type"] == "path":
            out += [np.array(p, float) for p in shape["points"]]
        elif shape["type"] in ("sphere", "cylinder"):
            center = np.resize(np.append(np.array(shape["center"], float), 0.0), 3)
            tall = float(shape.get("height", 0.0)) * np.array([0, 0, 1])
            reach = float(shape["radius"]) * np.array([1, 1, 1 if shape["type"] == "sphere" else 0])
            out += [center - reach, center + reach + tall]
    return out


def spatial(place: Array) -> Array:
    """Positions [K, 3]; positions [K, 2] are on the floor."""
    flat = np.concatenate([place, np.zeros_like(place[:, :1])], -1) if place.shape[-1] == 2 else place
    return np.nan_to_num(flat, nan=0.0, posinf=0.0, neginf=0.0)


def goal_pose(goal: Goal, stage: Stage, signals: Mapping[str, Array], world: int) -> tuple[Array, Array | None]:
    """Where a goal is drawn, and its attitude (None if free).

    A goal without a position is drawn at the body it is for, or above it if it is drawn as that body's ghost.
    """
    name = goal.place or stage.point
    place = spatial(signals[name][world : world + 1])[0].astype(np.float64) if name else np.zeros(3)
    if not goal.place:
        corners = [part.mesh.vertices for part in stage.ghost(goal)]
        place = place + [0, 0, max((CLEAR * float(np.linalg.norm(c, axis=-1).max()) for c in corners), default=0.0)]
    return place, signals[goal.attitude][world] if goal.attitude else None


CLEAR = 2.8  # radii from a thing to its ghost above it


def ghostly(rgba: Sequence[float]) -> tuple[int, int, int]:
    """The colour of a ghost: the body's, blended with the green of goals."""
    red, green, blue = (round(0.35 * 255 * min(max(c, 0.0), 1.0) + 0.65 * g) for c, g in zip(rgba[:3], GREEN))
    return red, green, blue


GREEN = (64, 190, 120)  # of goals


def size_of(figure: Figure, qpos: Array) -> float:
    """Half the diagonal, m, of the visible part of one world."""
    points = figure.outline(qpos[None])
    return max(float(np.linalg.norm(points.max(0) - points.min(0)) / 2), 1e-2)


def in_words(reading: Reading, verdict: str) -> str:
    """Verdict, and the remaining bounds of robustness."""
    low, high = reading.lower, reading.upper
    if low == high:
        return f"{verdict}, robustness {low:+.3f}"
    if np.isfinite(low) and np.isfinite(high):
        return f"{verdict}, robustness {low:+.3f} to {high:+.3f}"
    if np.isfinite(high):
        return f"{verdict}, robustness at most {high:+.3f}"
    return f"{verdict}, robustness at least {low:+.3f}" if np.isfinite(low) else verdict


COLORS = {SATISFIED: (70, 200, 120), VIOLATED: (255, 110, 95), UNDECIDED: (255, 255, 255)}
