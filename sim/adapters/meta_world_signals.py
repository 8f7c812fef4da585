"""Meta-World's state by its parts, and what a policy that sees pictures is shown besides them. N worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from temporeal.robots.signals import Schema, SignalSpec, schema
from temporeal.sim.adapters.foreign_worlds import Objective
from temporeal.sim.adapters.meta_world_sentences import SENTENCES, UNDRAWN, VOCABULARY
from temporeal.sim.maps import Memory
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION
from temporeal.sim.task import Carry

HAND = SignalSpec("hand_pos_w", (3,), "m", "w")
OPENING = SignalSpec("hand_opening", (), "1")  # of the gripper: 0 closed, 1 open
GOAL = SignalSpec("goal_pos_w", (3,), "m", "w")  # 0 where a body shows it
TARGET = SignalSpec("target_pos_w", (3,), "m", "w")  # of the first object: what cameras have to find
SHOWN = (HAND, OPENING, GOAL)
"""What a policy with cameras is shown: what the robot measures of itself, and the goal that nothing in a picture shows.
"""
STATE = 39  # numbers of the library's state


def tokens_of(envs: Sequence[str]) -> Tensor:
    """The sentence of each of ``envs`` as word numbers [E, L], float32 as environments compute."""
    return torch.tensor([VOCABULARY.encode(SENTENCES[env]).tolist() for env in envs], dtype=torch.float32)


def told_at_start(envs: Sequence[str], seeds: Tensor) -> dict[str, Tensor]:
    """What :class:`Told` remembers in episodes of the ``seeds`` [K]: each is of the environment whose number is the
    seed's remainder."""
    which = seeds.long() % len(envs)
    undrawn = torch.tensor([float(env in UNDRAWN) for env in envs])
    return {INSTRUCTION.name: tokens_of(envs)[which], UNSHOWN: undrawn[which]}


UNSHOWN = "goal_unshown"


class Told:
    """The task's own signals: parts of the library's state (``SawyerXYZEnv._get_obs``), and the instruction as word
    numbers of :data:`temporeal.sim.adapters.meta_world_sentences.VOCABULARY`."""

    chances = 0

    def __init__(self) -> None:
        self.signals: Schema = schema(HAND, OPENING, GOAL, TARGET, INSTRUCTION)
        self.carry: Mapping[str, tuple[int, ...]] = {INSTRUCTION.name: INSTRUCTION.shape, UNSHOWN: ()}

    def __call__(
        self, signals: Mapping[str, Tensor], chance: Tensor, carry: Carry
    ) -> tuple[dict[str, Tensor], Carry]:
        """The signals of this sample; the instruction stays."""
        state = signals["state"]
        parts = {HAND.name: state[:, :3], OPENING.name: state[:, 3], TARGET.name: state[:, 4:7],
                 GOAL.name: carry[UNSHOWN][:, None] * state[:, 36:39], INSTRUCTION.name: carry[INSTRUCTION.name]}
        return parts, carry


class Hand(nn.Module):
    """Shows :data:`SHOWN`. It reads the instruction and the target besides, so that datasets have them."""

    signals = tuple(spec.name for spec in (*SHOWN, TARGET, INSTRUCTION))
    memory: Mapping[str, tuple[int, ...]] = {}
    obs_dim = 3 + 1 + 3

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, 7]."""
        return torch.cat([signals[HAND.name], signals[OPENING.name][:, None], signals[GOAL.name]], -1), dict(memory)

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """Nothing is remembered."""
        return dict(memory)


class StateTold(Objective):
    """The library's reward; the critic is shown its state besides the time."""

    privileged_dim = STATE + 1

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """The state and the time, for the critic."""
        return torch.cat([signals["state"], super().privileged(signals, carry)], -1)


class Motion(nn.Module):
    """The library's state in numbers that a small network can use: what is there now [11], how fast it moves [11], the
    second object [7], and the hand's distance from the object, the object's from the goal, and the goal, [3] each.

    The library stacks two moments, whose difference is lost where each is normalized.

    Args:
        control_dt: between them, s.
    """

    signals = ("state",)
    memory: Mapping[str, tuple[int, ...]] = {}
    obs_dim = 11 + 11 + 7 + 3 * 3

    def __init__(self, control_dt: float) -> None:
        super().__init__()
        self.control_dt = control_dt

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, 38]."""
        state = signals["state"]
        now, goal = state[:, :11], state[:, 36:39]
        speed = (now - state[:, 18:29]) / self.control_dt
        return torch.cat([now, speed, state[:, 11:18], state[:, :3] - state[:, 4:7], state[:, 4:7] - goal, goal],
                         -1), dict(memory)

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """Nothing is remembered."""
        return dict(memory)
