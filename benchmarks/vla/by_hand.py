"""A policy that understands every sentence of *reach* and *push*, written by hand: it reads where things are.

It proves the chain from a typed sentence to a verdict, worker, cameras and guard included, without training: its
artifact asks for the same instruction, pictures and chunks as a learned one (it looks at no picture). Of N robots, H
rows of a chunk, S sentences.

Half a second passes from one decision to the next, so what is pushed must stay where it is pushed without them: the
hand turns so that its fingers lie across the way, and opens them a little. A flat side then lies on both of them, a
round thing or a corner between them. (With closed fingers that pointed anywhere, 53 of 80 pushes of random scenes were
satisfied, played offline with the deployment's delays.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.export.instructed import instruction_spec
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.robots.artifact.additions import TABLETOP
from temporeal.robots.artifact.manifest import ChunkSpec
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal.sim.stl.instructions import formulas, grammar
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION
from temporeal.sim.task import load_task
from temporeal.sim.task_parts.arms.kinematics import Chain, chain_of, solve

ROBOT, COMMAND, TOOL = load_robot("franka"), "arm_cmd", "grip"
KINDS, RATE_HZ, STEPS, BLOCK = ("reach", "push"), 20.0, 14, 4  # rows of a chunk; of which so many by one Jacobian
CAMERAS: Mapping[str, Mapping[str, Any]] = {
    "front": {"width": 64, "height": 64, "kinds": ["rgb"], "fovy_deg": 32, "pos": [1.15, 0.0, 0.85],
              "quat": [0.6741, 0.2137, 0.2137, 0.6741]},
    "wrist": {"width": 64, "height": 64, "kinds": ["rgb"]}}
PICTURES = {f"{name}_rgb": SignalSpec(f"{name}_rgb", (64, 64, 3), "1", "", "uint8") for name in CAMERAS}
THINGS, PLACES = grammar.OBJECTS, grammar.PLACES
SPEED, PUSHING = 0.25, 0.16  # m/s of the tool: free, and near the table, where it pushes
OVER, BEHIND, AWAY = 0.04, 0.045, 0.03  # m: over what is reached; from the middle of what is pushed to the fingers that
# touch it; more behind it, until the tool is down
LOW, HIGH = 0.03, 0.1  # m: the tool's height when it pushes, and when it passes over things
ASIDE, SLIPPED, ON_LINE = 0.025, 0.02, 0.012  # m: how far from the line through target and place the tool may go down,
# go on pushing, and begin to
AT_LEAST = 0.015  # m: so far behind the middle of what it pushes
OPENED = 0.015  # m, each finger: the gap, 3 cm, is narrower than what is pushed, and the fingers together, 6 cm, wider
LAG_S = 0.14  # s by which the arm is behind its commands: two periods of the guard's spline, and kd / kp of the servos
TURN = 0.04  # rad by which the hand turns in a row, at most
DAMPING = 1e-3


class ByHand(nn.Module):
    """The policy. Decisions are made once a chunk; within it the tool moves in a straight line."""

    horizon = STEPS
    signals = ("joint_pos", "joint_vel", INSTRUCTION.name, *PICTURES, *(f"{name}_pos_w" for name in (*THINGS, *PLACES)))

    def __init__(self) -> None:
        super().__init__()
        rows = [(grammar.SUITE.encode(said), asked) for asked in grammar.instructions(KINDS)
                for split in grammar.SPLITS for said in grammar.sentences(asked, split)]
        self.register_buffer("said", torch.tensor(np.stack([tokens for tokens, _ in rows])))
        self.register_buffer("kind", torch.tensor([float(asked.kind == "push") for _, asked in rows]))
        self.register_buffer("target", one_hot([THINGS.index(asked.target) for _, asked in rows], len(THINGS)))
        self.register_buffer("place", one_hot([PLACES.index(asked.place or PLACES[0]) for _, asked in rows],
                                              len(PLACES)))
        self.said: Tensor
        self.kind: Tensor
        self.target: Tensor
        self.place: Tensor
        self.chain: Chain = chain_of(ROBOT)
        self.register_buffer("grip", torch.full((1,), OPENED))
        self.grip: Tensor
        self.register_buffer("last", one_hot([self.chain.count - 1], self.chain.count))
        self.last: Tensor

    def initial_memory(self, n: int) -> dict[str, Tensor]:
        """None."""
        return {}

    def asked(self, s: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Whether to push [N], where the target is and where its place [N, 3] m."""
        meant = (s[INSTRUCTION.name][:, None] == self.said).all(-1).float()
        things = torch.stack([s[f"{name}_pos_w"] for name in THINGS], 1)
        places = torch.stack([s[f"{name}_pos_w"] for name in PLACES], 1)
        return (meant @ self.kind, ((meant @ self.target)[..., None] * things).sum(1),
                ((meant @ self.place)[..., None] * places).sum(1))

    def goal(self, tool: Tensor, s: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Where the tool goes next [N, 3] m, how fast [N, 1] m/s, and where the hand's front or back looks [N, 2]."""
        push, target, place = self.asked(s)
        over = target + tool.new_tensor([0.0, 0.0, OVER])
        way = (place - target)[:, :2]
        left = way.norm(dim=-1, keepdim=True)
        ahead = way / left.clamp(min=1e-3)
        off = tool[:, :2] - target[:, :2]
        along = (off * ahead).sum(-1, keepdim=True)
        aside = torch.stack([-ahead[:, 1], ahead[:, 0]], -1)
        across = (off * aside).sum(-1, keepdim=True)
        start = target[:, :2] - (BEHIND + AWAY) * ahead
        there = (left < 0.012) | ((left < 0.03) & (tool[:, 2:] > 0.5 * HIGH))
        touching = along > -BEHIND - 0.01
        on_line = (along < -AT_LEAST) & (across.abs() < torch.where(touching, SLIPPED, ON_LINE))
        near = (start - tool[:, :2]).norm(dim=-1, keepdim=True) < 0.03
        lowering = (across.abs() < ASIDE) & (along < -0.5 * BEHIND) & (tool[:, 2:] < 0.75 * HIGH)
        low = (tool[:, 2:] < LOW + 0.012) & (along < -0.005)  # behind: it can go back to the start without rising
        down = ~there & (near | low | lowering)
        pushes = down & low & on_line
        onwards = tool[:, :2] + (left + (-along - BEHIND).clamp(min=0.0)) * ahead - 0.5 * across * aside
        flat = torch.where(pushes, onwards, torch.where(there, tool[:, :2], start))
        raised = (tool[:, 2:] > 0.75 * HIGH) | down  # else up first
        flat = torch.where(raised, flat, tool[:, :2])
        height = torch.where(down, torch.full_like(left, LOW), torch.full_like(left, HIGH))
        pushed = torch.cat([flat, height], -1)
        is_push = push[:, None] > 0.5
        speed = torch.where(down & is_push, torch.full_like(left, PUSHING), torch.full_like(left, SPEED))
        return torch.where(is_push, pushed, over), speed, torch.where(is_push, ahead, torch.zeros_like(ahead))

    def rows(self, s: Mapping[str, Tensor]) -> Tensor:
        """Joint targets and the gripper [N, H, 8]: the tool in a straight line, from where it was sent last."""
        joints, out = s["joint_pos"] + LAG_S * s["joint_vel"], list[Tensor]()
        goal, speed, ahead = self.goal(self.chain(s["joint_pos"])[0], s)
        for k in range(STEPS):
            if k % BLOCK == 0:
                jacobian, (tilt, spin) = self.chain.jacobian(joints), self.turning(joints, ahead)
                tool = self.chain(joints)[0]
            way = goal - tool
            length = way.norm(dim=-1, keepdim=True)
            step = way * torch.minimum(torch.full_like(length, 0.3), speed / RATE_HZ / length.clamp(min=1e-4))
            joints, tool = joints + moved(jacobian, torch.cat([step, tilt], -1)) + spin, tool + step
            out.append(joints)
        rows = torch.stack(out, 1)
        seen = sum(0.0 * s[name].reshape(len_of(rows), -1)[:, :1].float() for name in PICTURES)
        return torch.cat([rows, (self.grip + seen)[:, None].expand(-1, STEPS, 1)], -1)

    def turning(self, joints: Tensor, ahead: Tensor) -> tuple[Tensor, Tensor]:
        """A small turn [N, 3] rad that lets the tool point down, and one of the last joint [N, J] rad, about the
        tool's own axis, that lets the fingers lie across ``ahead`` [N, 2]."""
        pose, _ = self.chain.frames(joints)
        x, z = pose[:, :3, 0], pose[:, :3, 2]
        sine, cosine = x[:, 0] * ahead[:, 1] - x[:, 1] * ahead[:, 0], (x[:, :2] * ahead).sum(-1)
        angle = torch.where(cosine < 0, sine, -sine)  # front and back are alike; the axis points down
        tilt = 0.1 * torch.stack([-z[:, 1], z[:, 0], torch.zeros_like(angle)], -1)
        return tilt, (angle / BLOCK).clamp(-TURN, TURN)[:, None] * self.last

    def forward(self, s: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Any]:
        """Commands by name, and no memory."""
        return {COMMAND: self.rows(s)}, {}


def moved(jacobian: Tensor, motion: Tensor) -> Tensor:
    """The change of the joints [N, J] for a small ``motion`` [N, 6] of the tool: damped least squares."""
    matrix = jacobian @ jacobian.transpose(1, 2) + DAMPING * torch.eye(6)
    return (jacobian.transpose(1, 2) @ solve(matrix, motion)[..., None])[..., 0]


def len_of(rows: Tensor) -> Any:
    """N, as the tracer follows it."""
    return rows.shape[0]


def one_hot(indices: Sequence[int], size: int) -> Tensor:
    """[S, size]."""
    return torch.nn.functional.one_hot(torch.tensor(indices), size).float()


def signals_of(count: int = 8) -> dict[str, np.ndarray]:
    """Signals for a golden trace: scenes as the task draws them."""
    from temporeal.sim.physics.mujoco.single_world import World
    from temporeal.sim.task_parts import numpy_world

    world = numpy_world.of_task(TABLETOP, ROBOT, COMMAND, {"kinds": ",".join(KINDS)})
    body, rng, rows = World(world.scene, COMMAND, 0.002), np.random.default_rng(0), list[dict[str, np.ndarray]]()
    for k in range(count):
        world.tell(("reach the red cube", "push the green cube into the tray")[k % 2])
        body.reset(world.start(rng))
        true = body.signals()
        rows.append({**true, **world.added(true)})
    found = {name: np.stack([row[name] for row in rows]) for name in ByHand.signals if name not in PICTURES}
    return {**found, INSTRUCTION.name: found[INSTRUCTION.name].astype(np.int32),
            **{name: np.zeros((count, *spec.shape), np.uint8) for name, spec in PICTURES.items()}}


def write(path: Path) -> Artifact:
    """The policy as an artifact of the suite."""
    policy, signals = ByHand().eval(), signals_of()
    with torch.no_grad():
        rows = policy.rows({name: torch.from_numpy(value) for name, value in signals.items()}).numpy()
    task = load_task(TABLETOP, kinds=",".join(KINDS))
    schema = {**task.schema, **PICTURES, INSTRUCTION.name: INSTRUCTION}
    training = {"by": "hand", "task": {"name": TABLETOP, "settings": {"kinds": ",".join(KINDS)}}, "cameras": CAMERAS}
    spec = ArtifactSpec(
        robot=ROBOT, signals=policy.signals, command=COMMAND, rate_hz=RATE_HZ, formula_text=task.formula_text,
        constants=task.constants, horizon_s=formulas.horizon_s(KINDS), training=training, seed=0, stop=task.stop,
        name="by hand", task_signals=schema, chunk=ChunkSpec(STEPS, 1.0 / RATE_HZ),
        instruction=instruction_spec([schema[name] for name in policy.signals], grammar.SUITE, TABLETOP))
    return export(policy, path, spec, {**{f"signals.{name}": value for name, value in signals.items()},
                                       f"commands.{COMMAND}": rows})
