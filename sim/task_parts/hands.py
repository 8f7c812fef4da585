"""What hand tasks share: a palm up with a cube on it, the joints' recent past, the cube's attitude, stored starts.

    python -m temporeal.sim.task_parts.hands        # makes the starts anew: sim/task_parts/grasps/<robot>.npz
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import cos, pi, radians
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import RobotSpec, load_robot
from temporeal.sim.maps import Memory
from temporeal.sim.rotations import product, rotation
from temporeal.sim.scene import Scene, box
from temporeal.sim.task import Draw

COMMAND = "joint_pos_cmd"
JOINTS = 16
HALF = 0.035  # m, of the cube's edges: 7 cm, as in MuJoCo Playground's LEAP tasks
MASS = 0.1  # kg: printed with some filling
FRICTION = (0.3, 0.005, 0.0001)  # below the fingertips' 0.7, which therefore counts; printed palms have 0.2

PALMS = {"leap_hand": (-0.015, 0.038, 0.268), "allegro_hand": (0.007, 0.0, 0.247)}
"""m, world: where a cube lies on the palm, its centre. The mean of the stored starts."""

LEVEL, ASIDE, OVER = radians(30.0), radians(70.0), radians(120.0)
"""Tilts of faces: of one that is level, of one on a side, and of one whose heading is no longer sound. A heading moves
with the tilt's direction by the tangent of half the tilt; at 180 degrees there is none."""

HISTORY = 3  # samples of joint angles and targets that a policy sees (Qi et al., CoRL 2022)
SEES = ("cube", "joints")  # what a policy sees: the cube's pose as well, from a tracker, or the joints alone
GRASPS = Path(__file__).parent / "grasps"


def hand(name: str) -> RobotSpec:
    """The hand ``name``."""
    if name not in PALMS:
        raise UnknownName(f"no hand {name!r}; known: {', '.join(PALMS)}")
    return load_robot(name)


def hand_scene(robot: RobotSpec) -> Scene:
    """The hand, palm up, and a cube. No floor: a cube that fell is out of reach."""
    return Scene(robot, (box("cube", (HALF,) * 3, mass=MASS, pos=PALMS[robot.name], friction=FRICTION),), floor=False)


def check_sees(sees: str) -> str:
    """``sees`` if it is legal."""
    if sees not in SEES:
        raise ValueError(f"sees is {sees!r}; legal: {', '.join(SEES)}")
    return sees


class Targets(Protocol):
    """An action map that keeps joint targets within ``low`` and ``high`` in memory."""

    low: Tensor
    high: Tensor
    memory: Mapping[str, tuple[int, ...]]

    def follow(self, measured: Tensor, memory: Memory) -> Memory:
        """The memory of this sample: at an episode's first one the target is ``measured`` [N, 16]."""


class JointHistory(nn.Module):
    """Joint angles and servo errors of the last :data:`HISTORY` samples, newest first: what a hand feels of its load.

    Angles are scaled to [-1, 1] between the limits. ``memory``: the action map's target, and the samples before.
    """

    def __init__(self, act: Targets) -> None:
        super().__init__()
        self.follow = act.follow
        self.register_buffer("middle", 0.5 * (act.low + act.high))
        self.register_buffer("reach", 0.5 * (act.high - act.low))
        self.middle: Tensor
        self.reach: Tensor
        self.size = HISTORY * 2 * JOINTS
        self.memory = {**act.memory, "past": (self.size - 2 * JOINTS,)}

    def forward(self, joint_pos: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """[N, size] and the next memory. At an episode's first sample the past is the present."""
        after = self.follow(joint_pos, memory)
        now = torch.cat([(joint_pos - self.middle) / self.reach, 5 * (after["target"] - joint_pos)], -1)
        begun = memory["begun"][:, None] > 0.5
        past = torch.where(begun, memory["past"], now.repeat(1, HISTORY - 1))
        found = torch.cat([now, past], -1)
        return found, {**after, "past": found[:, : -2 * JOINTS]}


def cube_place(signals: Mapping[str, Tensor], palm: Tensor) -> Tensor:
    """The cube's centre [N, 3] from ``palm``, in units of 5 cm."""
    place = signals["cube_pos_w"]
    return 20 * (place - palm.to(place.device))


def symmetric_attitude(quat_wxyz: Tensor) -> Tensor:
    """The attitude of a cube with six equal faces: [N, 9], the same for all 24 attitudes that look alike.

    The fourth moments of its axes, sum over i of R_ai^p R_bi^(4-p): a gait that turns it by a quarter ends where it
    began. A tracker that takes one face for another does no harm.
    """
    x, y, z = rotation(quat_wxyz).unbind(-2)
    parts = [x * x * x * x, y * y * y * y, z * z * z * z, x * x * x * y, x * y * y * y, x * x * x * z, x * z * z * z,
             y * y * y * z, y * z * z * z]
    return 2 * torch.stack([p.sum(-1) for p in parts], -1)


def tracked_face(quat_wxyz: Tensor, face: Tensor) -> tuple[Tensor, Tensor]:
    """The face [N, 3] whose heading counts, by its outward normal in the cube's frame; and where it is still ``face``.

    The one most upward takes over when it is level to :data:`LEVEL` and ``face`` on a side, or when ``face`` is tilted
    by more than :data:`OVER`. Zeros: none was before.
    """
    up = rotation(quat_wxyz)[:, 2]
    height = (up * face).sum(-1)
    x, y, z = up.abs().unbind(-1)
    settled = (up.abs().max(-1).values > cos(LEVEL)) & (height < cos(ASIDE))
    kept = (face.abs().sum(-1) > 0.5) & (height > cos(OVER)) & ~settled
    first, second = (x >= y) & (x >= z), y >= z  # of equals one
    most = torch.stack([first, ~first & second, ~first & ~second], -1).float()
    upward = most * torch.where(up < 0, -torch.ones_like(up), torch.ones_like(up))
    return torch.where(kept[:, None], face, upward), kept


def heading(quat_wxyz: Tensor, face: Tensor) -> Tensor:
    """Cosine and sine [N, 2] of where the edges beside ``face`` [N, 3] (one of six) point, once it is tilted level.

    Tilted the shortest way, about a horizontal axis (the twist of the swing-twist decomposition about the vertical): a
    tilt of up to :data:`OVER` in any direction changes nothing, a turn about the vertical changes it by its angle.
    """
    axes = rotation(quat_wxyz)
    normal = (axes * face[:, None]).sum(-1)
    side = (axes * face.abs()[:, None, [2, 0, 1]]).sum(-1)
    level = side[:, :2] - normal[:, :2] * (side[:, 2:] / (1 + normal[:, 2:]).clamp(min=1e-6))
    return level / level.square().sum(-1, keepdim=True).clamp(min=1e-12).sqrt()


def heading_change(before: Tensor, now: Tensor, kept: Tensor) -> Tensor:
    """The turn [N] rad between two headings [N, 2], at most half a turn; where not ``kept`` [N], faces changed.

    Then at most an eighth: between headings of two faces a whole number of quarter turns does not count. 0 from or to
    the heading (0, 0).
    """
    c = (before * now).sum(-1)
    s = before[:, 0] * now[:, 1] - before[:, 1] * now[:, 0]
    c2, s2 = c * c - s * s, 2 * c * s
    return torch.where(kept, torch.atan2(s, c), 0.25 * torch.atan2(2 * c2 * s2, c2 * c2 - s2 * s2))


def cube_motion(signals: Mapping[str, Tensor]) -> Tensor:
    """The cube's velocities [N, 6], scaled."""
    return torch.cat([5 * signals["cube_vel_w"], 0.3 * signals["cube_ang_vel_w"]], -1)


def held(signals: Mapping[str, Tensor], palm: Tensor) -> Tensor:
    """1 where the cube is nearer than 15 cm to ``palm``, [N]: farther away nothing can bring it back."""
    place = signals["cube_pos_w"]
    return ((place - palm.to(place.device)).square().sum(-1) < 0.15**2).float()


# ---------------------------------------------------------------- stored starts


@cache
def grasps(robot: str) -> dict[str, Tensor]:
    """Stored starts of a hand with a cube at rest: joint_pos [G, 16], cube_pos_w [G, 3], cube_quat_w [G, 4]."""
    with np.load(GRASPS / f"{robot}.npz", allow_pickle=False) as found:
        return {name: torch.from_numpy(found[name]) for name in found.files}


def start(robot: str, draw: Draw) -> dict[str, Tensor]:
    """A stored start for each of K worlds, any face of the cube up and any to the front."""
    u = draw("initial.grasp", 1)
    stored = {name: value.to(u.device) for name, value in grasps(robot).items()}
    pick = (u[:, 0] * len(stored["joint_pos"])).long().clamp(max=len(stored["joint_pos"]) - 1)
    state = {name: value[pick] for name, value in stored.items()}
    return {**state, "cube_quat_w": product(state["cube_quat_w"], faces(draw))}


def faces(draw: Draw) -> Tensor:
    """Which faces are up and in front at the start: one of the 24 rotations of a cube onto itself, [K, 4] wxyz."""
    u = draw("initial.faces", 1)
    return symmetries().to(u.device)[(u[:, 0] * 24).long().clamp(max=23)]


@cache
def symmetries() -> Tensor:
    """The 24 rotations of a cube onto itself: quaternions [24, 4] wxyz."""
    quarter = [torch.tensor([[np.cos(pi / 4), *(np.sin(pi / 4) * axis)]], dtype=torch.float32) for axis in np.eye(3)]
    found = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    while True:
        more = torch.cat([found, *(product(found, q.expand_as(found)) for q in quarter)])
        signed = more * torch.where(more[:, :1].abs() > 1e-4, more[:, :1].sign(), torch.ones_like(more[:, :1]))
        fresh = [q for i, q in enumerate(signed) if not (signed[:i] @ q).abs().gt(0.999).any()]
        if len(fresh) == len(found):
            return found
        found = torch.stack(fresh)


def settle(robot: str, wanted: int = 256, tried: int = 480, seed: int = 0) -> dict[str, np.ndarray]:
    """Starts by simulation: cubes laid on the palm, the fingers around home, left to themselves for 3 s.

    The servos hold their first targets for 2 s and then the angles that are measured, as at the start of an episode.
    What lies still, flat and amid the hand is kept.
    """
    from temporeal.sim.backends import mujoco  # only the maker of the file simulates

    spec, rng = hand(robot), np.random.default_rng(seed)
    backend: Any = mujoco.make(hand_scene(spec), tried, COMMAND, dt=0.05 / 10, device="cpu", seed=0, threads=1)
    home = np.array(spec.home["joint_pos"])
    low, high = (np.array(x) for x in (spec.command(COMMAND).low, spec.command(COMMAND).high))
    joints = np.clip(home + rng.uniform(-0.3, 0.3, (tried, JOINTS)), low, high)
    place = np.array(PALMS[robot]) + np.concatenate(
        [rng.uniform(-0.02, 0.02, (tried, 2)), np.full((tried, 1), 0.02)], -1)
    half = 0.5 * rng.uniform(-pi, pi, tried)
    quat = np.stack([np.cos(half), 0 * half, 0 * half, np.sin(half)], -1)
    state = {"joint_pos": joints, "cube_pos_w": place, "cube_quat_w": quat}
    backend.reset(torch.arange(tried), {k: torch.tensor(v, dtype=torch.float32) for k, v in state.items()})
    targets = torch.tensor(joints, dtype=torch.float32)
    backend.step(targets, 400)
    held_now = backend.signals()["joint_pos"].numpy().clip(low, high)
    backend.step(torch.tensor(held_now, dtype=torch.float32), 200)
    now = {k: v.clone() for k, v in backend.signals().items()}
    flat = rotation(now["cube_quat_w"])[:, 2].abs().max(-1).values > 0.97
    slow = (now["cube_vel_w"].norm(dim=-1) < 0.01) & (now["cube_ang_vel_w"].norm(dim=-1) < 0.1)
    amid = (now["cube_pos_w"] - torch.tensor(PALMS[robot])).norm(dim=-1) < 0.04
    good = (flat & slow & amid & ~backend.status().bad).nonzero()[:, 0][:wanted]
    backend.close()
    if len(good) < wanted:
        raise RuntimeError(f"{robot}: {len(good)} of {tried} cubes came to rest, {wanted} are wanted: try more")
    return {name: now[name][good].numpy() for name in state}


def main() -> None:
    """Write the starts of all hands."""
    GRASPS.mkdir(exist_ok=True)
    for robot in PALMS:
        found = settle(robot)
        np.savez_compressed(GRASPS / f"{robot}.npz", **found)
        mean, spread = found["cube_pos_w"].mean(0).round(4), found["cube_pos_w"].std(0).round(4)
        print(f"{robot}: {len(found['joint_pos'])} starts, cube at {mean} ± {spread} m")


if __name__ == "__main__":
    main()
