"""A task's worlds as they run, to be looked at: poses, goals, and what the formula says of each while it runs.

    show = Show(env, stage, lambda: graph_policy(graph))
    moment = show.restart()
    while not moment.over.all():
        moment = show.step()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import mujoco
import numpy as np
import torch
from torch import Tensor

from policies.evaluate.figure import Figure, Goal, Stage, rotation
from policies.evaluate.rollout import Act, host
from sim.env import Env
from sim.pictures import positions
from sim.stl.monitor import SATISFIED, UNDECIDED, VIOLATED, Monitor, Reading
from sim.stl.syntax import signals_in

Array = np.ndarray
ACTIONS = ("zero", "random")


@dataclass(frozen=True)
class Moment:
    """N worlds at one sample. A world that is over stays as it was at its end.

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
    """One episode after another, all worlds at once: those that end wait for the others.

    Args:
        policy: makes the policy of an episode; it may carry memory from step to step. None: ``actions``.
        actions: ``zero`` or ``random``, where there is no policy.
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

    @torch.no_grad()
    def restart(self) -> Moment:
        """The first sample of a new episode of every world."""
        self.policy = self.make_policy()  # before the reset: an artifact's looks at what is measured there
        obs = self.env.reset()
        self.actor, self.count = obs.actor, 0
        signals = {k: host(v) for k, v in self.env.true_signals().items()}
        for monitor in self.monitors:
            monitor.reset()
        no = np.zeros(self.env.num_worlds, bool)
        self.moment = Moment(0.0, self._qpos(), signals, self._readings(signals, no), no, no)
        return self.moment

    @torch.no_grad()
    def step(self) -> Moment:
        """The sample after one more control step; of a new episode where the last one is over in all worlds."""
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

    def _qpos(self) -> Array:
        return host(positions(self.env.backend, self.stage.figure.model)).astype(np.float64)

    def _readings(self, signals: Mapping[str, Array], over: Array) -> tuple[Reading, ...]:
        for world, monitor in enumerate(self.monitors):
            if not over[world]:
                monitor.update({name: signals[name][world] for name in self.read})
        return tuple(monitor.reading for monitor in self.monitors)


def idle(env: Env, actions: str) -> Act:
    """A policy that does nothing, or anything."""
    generator = torch.Generator().manual_seed(env.seed & 0x7FFF_FFFF_FFFF_FFFF)

    def act(obs: Tensor) -> Tensor:
        shape = (len(obs), env.action_dim)
        if actions == "zero":
            return torch.zeros(shape, device=obs.device)
        return (2 * torch.rand(shape, generator=generator) - 1).to(obs.device)

    return act


def row(flags: Array, dim: int) -> Array:
    """``flags`` [N] so that it broadcasts against [N, ...] of ``dim`` dimensions."""
    return flags.reshape(-1, *[1] * (dim - 1))


# ---------------------------------------------------------------- where to look from


class Look(NamedTuple):
    """A viewpoint: where the eye is, what it looks at (m, world), and its vertical angle, degrees."""

    eye: Array
    target: Array
    fovy: float = 40.0

    @property
    def quat(self) -> tuple[float, float, float, float]:
        """Attitude wxyz of a camera there, which looks along its -z, x to the right, y up."""
        back = (self.eye - self.target) / np.linalg.norm(self.eye - self.target)
        side = np.array([-back[1], back[0], 0.0])
        side = side / np.linalg.norm(side) if np.linalg.norm(side) > 1e-6 else np.array([0.0, -1.0, 0.0])
        return quaternion(np.stack([side, np.cross(back, side), back], -1))


SIDES = {"frame": (0.62, -0.62, 0.48), "front": (1.0, 0.0, 0.15), "side": (0.0, -1.0, 0.15), "top": (0.02, 0.0, 1.0)}
"""Names of viewpoints, and the ways from what is looked at to the eye. A fixed robot reaches along x."""


def look_at(points: Array, side: str, aspect: float, fovy: float = 40.0) -> Look:
    """The viewpoint from which the points [M, 3] m just fill a picture of width / height ``aspect``."""
    way = np.array(SIDES[side]) / np.linalg.norm(SIDES[side])
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


def room(stage: Stage, moment: Moment, shapes: Sequence[Mapping[str, Any]]) -> Array:
    """Points [M, 3] m around all that is drawn at the start."""
    points = [stage.figure.outline(moment.qpos[:16]), *(p[None] for p in shape_points(shapes))]
    points += [spatial(moment.signals[goal.place][:16]) for goal in stage.goals if goal.place]
    return np.concatenate(points)


def roams(stage: Stage) -> bool:
    """Whether the robot walks about: its base is free."""
    robot = stage.figure.model.scene.robot
    return robot.kind != "quadrotor" and "base_pos_w" in robot.signals


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
    """Places [K, 3]; those [K, 2] lie on the floor."""
    flat = np.concatenate([place, np.zeros_like(place[:, :1])], -1) if place.shape[-1] == 2 else place
    return np.nan_to_num(flat, nan=0.0, posinf=0.0, neginf=0.0)


def goal_pose(goal: Goal, stage: Stage, signals: Mapping[str, Array], world: int) -> tuple[Array, Array | None]:
    """Where a goal is drawn: one without a place is shown where the thing is that it is for. Attitude: None if free."""
    name = goal.place or stage.point
    place = spatial(signals[name][world : world + 1])[0] if name else np.zeros(3)
    return place, signals[goal.attitude][world] if goal.attitude else None


def size_of(figure: Figure, qpos: Array) -> float:
    """Half the diagonal, m, of what is seen in one world."""
    points = figure.outline(qpos[None])
    return max(float(np.linalg.norm(points.max(0) - points.min(0)) / 2), 1e-2)


def quaternion(mat: Array) -> tuple[float, float, float, float]:
    """wxyz of a rotation matrix [3, 3]."""
    out = np.empty(4)
    mujoco.mju_mat2Quat(out, np.ascontiguousarray(mat).ravel())
    w, x, y, z = (float(v) for v in out)
    return w, x, y, z


def in_words(reading: Reading, verdict: str) -> str:
    """Verdict, and where the robustness can still end."""
    low, high = reading.lower, reading.upper
    if low == high:
        return f"{verdict}, robustness {low:+.3f}"
    if np.isfinite(low) and np.isfinite(high):
        return f"{verdict}, robustness {low:+.3f} to {high:+.3f}"
    if np.isfinite(high):
        return f"{verdict}, robustness at most {high:+.3f}"
    return f"{verdict}, robustness at least {low:+.3f}" if np.isfinite(low) else verdict


COLORS = {SATISFIED: (70, 200, 120), VIOLATED: (255, 110, 95), UNDECIDED: (255, 255, 255)}
