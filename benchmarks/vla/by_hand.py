"""A policy that understands every sentence of *reach* and *push*, written by hand: it reads where things are.

It proves the chain from a typed sentence to a verdict, worker, cameras and guard included, without training: its
artifact asks for the same instruction, pictures and chunks as a learned one (it looks at no picture). Of N robots, H
rows of a chunk, S sentences.
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
KINDS, RATE_HZ, STEPS, BLOCK = ("reach", "push"), 20.0, 14, 8  # rows of a chunk; of which so many by one Jacobian
CAMERAS: Mapping[str, Mapping[str, Any]] = {
    "front": {"width": 64, "height": 64, "kinds": ["rgb"], "fovy_deg": 32, "pos": [1.15, 0.0, 0.85],
              "quat": [0.6741, 0.2137, 0.2137, 0.6741]},
    "wrist": {"width": 64, "height": 64, "kinds": ["rgb"]}}
PICTURES = {f"{name}_rgb": SignalSpec(f"{name}_rgb", (64, 64, 3), "1", "", "uint8") for name in CAMERAS}
THINGS, PLACES = grammar.OBJECTS, grammar.PLACES
SPEED, PUSHING = 0.3, 0.16  # m/s of the tool: free, and against what is pushed
OVER, BEHIND, AWAY = 0.04, 0.045, 0.03  # m: over what is reached; from the middle of what is pushed to the fingers that
# touch it; more behind it, until the tool is down
LOW, HIGH = 0.025, 0.1  # m: the tool's height when it pushes, and when it passes over things
ASIDE, SLIPPED, ON_LINE = 0.025, 0.02, 0.012  # m: how far from the line through target and place the tool may go down,
# go on pushing, and begin to
AT_LEAST = 0.015  # m: so far behind the middle of what it pushes
LEAD_S = 0.05  # s by which commands lead: an arm follows its targets that late
DAMPING = 1e-3


class ByHand(nn.Module):
    """The policy. Decisions are made once a chunk; within it the tool moves in a straight line."""

    horizon = STEPS
    signals = ("joint_pos", INSTRUCTION.name, *PICTURES, *(f"{name}_pos_w" for name in (*THINGS, *PLACES)))

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
        self.register_buffer("grip", torch.zeros(1))
        self.grip: Tensor

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

    def goal(self, tool: Tensor, s: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Where the tool goes next [N, 3] m, and how fast [N, 1] m/s."""
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
        speed = torch.where(pushes & is_push, torch.full_like(left, PUSHING), torch.full_like(left, SPEED))
        return torch.where(is_push, pushed, over), speed

    def rows(self, s: Mapping[str, Tensor]) -> Tensor:
        """Joint targets and a closed gripper [N, H, 8]: the tool in a straight line, pointing where it points."""
        joints, out = s["joint_pos"], list[Tensor]()
        tool = self.chain(joints)[0]
        goal, speed = self.goal(tool, s)
        for k in range(STEPS + round(LEAD_S * RATE_HZ)):
            if k % BLOCK == 0:
                jacobian, turn = self.chain.jacobian(joints), self.straightening(joints)
                tool = self.chain(joints)[0]
            way = goal - tool
            length = way.norm(dim=-1, keepdim=True)
            step = way * torch.minimum(torch.full_like(length, 0.3), speed / RATE_HZ / length.clamp(min=1e-4))
            joints, tool = joints + moved(jacobian, torch.cat([step, turn], -1)), tool + step
            out.append(joints)
        rows = torch.stack(out[-STEPS:], 1)
        seen = sum(0.0 * s[name].reshape(len_of(rows), -1)[:, :1].float() for name in PICTURES)
        return torch.cat([rows, (self.grip + seen)[:, None].expand(-1, STEPS, 1)], -1)

    def straightening(self, joints: Tensor) -> Tensor:
        """A small turn [N, 3] rad that lets the tool point down."""
        pose, _ = self.chain.frames(joints)
        z, down = pose[:, :3, 2], joints.new_tensor([0.0, 0.0, -1.0]).expand(pose.shape[0], 3)
        return 0.05 * torch.stack([z[:, 1] * down[:, 2] - z[:, 2] * down[:, 1],
                                  z[:, 2] * down[:, 0] - z[:, 0] * down[:, 2],
                                  z[:, 0] * down[:, 1] - z[:, 1] * down[:, 0]], -1)

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
