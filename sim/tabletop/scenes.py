"""What an episode asks for and shows: an instruction, a sentence that says it, and a scene that admits many others.

The instruction is drawn first, so that a split is exactly its list of instructions; then the scene is dressed to have
what it names: the target's colour on a body of its shape, other colours on the others, no two things alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from temporeal.sim.rotations import about_z, pointing_down
from temporeal.sim.stl.instructions.grammar import (
    COLORS,
    FIXTURES,
    KINDS,
    PLACES,
    SUITE,
    Instruction,
    color_of,
    held_out,
    instructions,
    parse,
    sentences,
    shape_of,
)
from temporeal.sim.stl.instructions.vocabulary import InstructionError
from temporeal.sim.tabletop.objects import BODIES, HEIGHTS, RGB, SHAPE_OF, size_of
from temporeal.sim.task import Draw
from temporeal.sim.task_parts.arms.arm import Arm
from temporeal.sim.task_parts.arms.kinematics import postures

SPLITS = ("train", "held_out_combinations", "held_out_wordings")
TARGETS = (*BODIES, *FIXTURES.values())
"""What ``target_pos_w`` can be the position of."""
GOALS = (*PLACES, *BODIES, "")
"""What ``place_pos_w`` can be the position of; the last one: of the target itself, where nothing else is named."""

SPOTS = ((0.41, -0.17), (0.41, 0.0), (0.41, 0.17), (0.51, -0.085), (0.51, 0.085))  # m
APART, NEAR = 0.02, 0.3  # m: how far things are from their spots; rad: how far they are turned
STANDS = ((0.60, 0.068), (0.60, -0.068))  # m, of tray and plate, or of plate and tray
SHIFTED = 0.015  # m: how far these are from there
READY = (0.42, 0.0, 0.25)  # m, where the tool waits: over the table, which the wrist's camera sees
WAKE = 0.1  # rad: how far joints are from there


@dataclass(frozen=True)
class Choices:
    """The I instructions of a split as tables.

    Args:
        listed: the instructions.
        table: int64 [I, 6], of each what :func:`row_of` says.
        of_kind: of each kind that is asked for, where its instructions begin and how many they are.
        tokens: [I, S, L] the word numbers of its wordings; ``wordings`` [I]: how many there are.
    """

    listed: tuple[Instruction, ...]
    table: Tensor
    of_kind: tuple[tuple[int, int], ...]
    tokens: Tensor
    wordings: Tensor


SHAPES = tuple(dict.fromkeys(SHAPE_OF.values()))
BODIES_OF = {shape: [i for i, body in enumerate(BODIES) if SHAPE_OF[body] == shape] for shape in SHAPES}


def choices(kinds: Sequence[str], split: str) -> Choices:
    """The instructions of ``kinds`` that ``split`` gives, as far as the table has the bodies for them."""
    if split not in SPLITS:
        raise ValueError(f"task 'tabletop': split is one of {', '.join(SPLITS)}; got {split!r}")
    found = [instructions_of(kind, split) for kind in kinds]
    if empty := [kind for kind, listed in zip(kinds, found) if not listed]:
        raise ValueError(f"task 'tabletop': split={split} has no instruction of kind {', '.join(empty)}: each is what "
                         f"it is; take other kinds ({'+'.join(kinds_of(split))}), or another split")
    listed = [i for of_kind in found for i in of_kind]
    firsts = [sum(map(len, found[:k])) for k in range(len(found))]
    tokens, wordings = tokens_of(listed, "held_out" if split == SPLITS[2] else "train")
    return Choices(tuple(listed), torch.tensor([row_of(i) for i in listed]),
                   tuple(zip(firsts, map(len, found))), tokens, wordings)


def instructions_of(kind: str, split: str) -> list[Instruction]:
    """What ``split`` asks of ``kind``."""
    return [i for i in instructions([kind]) if possible(i) and held_out(i) == (split == SPLITS[1])]


def kinds_of(split: str) -> list[str]:
    """The kinds of which ``split`` has instructions."""
    return [kind for kind in KINDS if instructions_of(kind, split)]


def possible(instruction: Instruction) -> bool:
    """Whether there are two bodies where an instruction names two things."""
    needed = [shape_of(name) for name in (instruction.target, instruction.place) if shape_of(name) in SHAPES]
    return all(needed.count(shape) <= len(BODIES_OF[shape]) for shape in needed)


def row_of(instruction: Instruction) -> list[int]:
    """Kind, shape and colour of the target, place, shape and colour of what is below a stack; -1: none."""
    target, place = instruction.target, instruction.place
    return [KINDS.index(instruction.kind), number(SHAPES, shape_of(target)), number(COLORS, color_of(target)),
            number(PLACES, place), number(SHAPES, shape_of(place)), number(COLORS, color_of(place))]


def number(names: Sequence[str], name: str) -> int:
    """The place of ``name`` among ``names``, -1 where it is not there."""
    return names.index(name) if name in names else -1


def tokens_of(listed: Sequence[Instruction], wordings: str) -> tuple[Tensor, Tensor]:
    """Word numbers [I, S, L] of all wordings, and how many [I] there are."""
    said = [sentences(i, wordings) for i in listed]
    most = max(map(len, said))
    rows = [[SUITE.encode(s[k % len(s)]).tolist() for k in range(most)] for s in said]
    return torch.tensor(rows, dtype=torch.float32), torch.tensor([len(s) for s in said])


def picked(u: Tensor, count: Tensor | int) -> Tensor:
    """Whole numbers [K] from 0 to ``count`` - 1, for uniform numbers ``u`` [K]."""
    most = torch.as_tensor(count) - 1
    return torch.minimum((u * count).long(), most)


def one_hot(index: Tensor, size: int) -> Tensor:
    """[K, size]."""
    return torch.nn.functional.one_hot(index, size).float()


@cache
def ready(of: Arm) -> tuple[float, ...]:
    """Where an arm waits [J] rad: the tool over the table, pointing down; at home where it cannot."""
    x, y, z = of.in_front(torch.tensor([READY]))[0].tolist()
    place = torch.tensor([[x, y, of.scale * z]])
    down = pointing_down(torch.tensor([of.heading])) if of.turns else None
    low, high = of.range
    joints, good = postures(of.chain, place, down, of.home, (low.tolist(), high.tolist()))
    return tuple(joints[0].tolist()) if bool(good) else of.home


class Start:
    """The first state of an episode and what it asks for. ``of``: the arm; joints within 0.1 rad of :func:`ready`."""

    def __init__(self, of: Arm, chosen: Choices) -> None:
        self.of, self.chosen = of, chosen

    def __call__(self, draw: Draw) -> dict[str, Tensor]:
        """State and memory of K worlds."""
        of, u = self.of, draw("initial.joints", self.of.joints)
        state = {"joint_pos": torch.tensor(ready(of), device=u.device) + WAKE * (2 * u - 1),
                 **({"finger_pos": of.opened(u)} if of.fingers else {}),
                 "drawer_pos": torch.zeros_like(u[:, 0]), "button_pos": torch.zeros_like(u[:, 0])}
        return {**state, **self.things(draw), **self.places(draw), **self.asked(draw)}

    def told(self, sentence: str) -> Start:
        """The same, of episodes that ask for what ``sentence`` says, in its words.

        :class:`temporeal.sim.stl.instructions.vocabulary.InstructionError` where it is no sentence of the suite, or the
        table never has two things as it names them.
        """
        asked = parse(sentence)
        if not possible(asked):
            raise InstructionError(f"{sentence!r}: the table has no two things as these; of one shape it has two cubes")
        tokens = torch.tensor([[SUITE.encode(sentence).tolist()]], dtype=torch.float32)
        return Start(self.of, Choices((asked,), torch.tensor([row_of(asked)]), ((0, 1),), tokens, torch.tensor([1])))

    def things(self, draw: Draw) -> dict[str, Tensor]:
        """Where the bodies lie: each near a spot of its own."""
        order = draw("initial.spots", len(SPOTS)).argsort(-1)[:, : len(BODIES)]
        u = draw("initial.things", 3 * len(BODIES)).reshape(-1, len(BODIES), 3)
        flat = torch.tensor(SPOTS, device=u.device)[order] + APART * (2 * u[:, :, :2] - 1)
        out = {}
        for i, name in enumerate(BODIES):
            height = torch.full_like(u[:, 0, :1], size_of(self.of) * HEIGHTS[name])
            out[f"{name}_pos_w"] = torch.cat([self.of.in_front(flat[:, i]), height], -1)
            out[f"{name}_quat_w"] = about_z(NEAR * (2 * u[:, i, 2] - 1) + self.of.heading)
        return out

    def places(self, draw: Draw) -> dict[str, Tensor]:
        """Tray and plate, on either side."""
        u = draw("initial.places", 5)
        stands = torch.tensor(STANDS, device=u.device)
        swapped = (u[:, 0] < 0.5).long()
        shift = SHIFTED * (2 * u[:, 1:] - 1)
        return {"tray_place": self.of.in_front(stands[swapped] + shift[:, :2]),
                "plate_place": self.of.in_front(stands[1 - swapped] + shift[:, 2:])}

    def asked(self, draw: Draw) -> dict[str, Tensor]:
        """The instruction, the colours, and which body is meant: memory of :class:`..signals.Asked`."""
        u = draw("initial.instruction", 4)
        firsts, counts = torch.tensor(self.chosen.of_kind, device=u.device).unbind(-1)
        kind = picked(u[:, 0], len(firsts))
        index = firsts[kind] + picked(u[:, 1], counts[kind])
        row = self.chosen.table.to(u.device)[index]
        wording = picked(u[:, 2], self.chosen.wordings.to(u.device)[index])
        bodies = bodies_meant(row, u[:, 3])
        return {"tokens": self.chosen.tokens.to(u.device)[index, wording], "asked": row[:, 0].float(),
                "target_of": one_hot(target_index(row, bodies[0]), len(TARGETS)),
                "place_of": one_hot(place_index(row, bodies[1]), len(GOALS)),
                "colors": one_hot(colors_of(row, bodies, draw("initial.colors", 1 + len(BODIES))),
                                  len(COLORS)).flatten(1)}


def bodies_meant(row: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Which body [K] is the target, and which is below a stack; -1: none. Of two cubes either one, by ``u`` [K]."""
    table = torch.tensor([[BODIES_OF[s][0], BODIES_OF[s][-1]] for s in SHAPES] + [[-1, -1]], device=row.device)
    either = (u < 0.5).long()
    return table[row[:, 1], either], table[row[:, 4], 1 - either]


def target_index(row: Tensor, body: Tensor) -> Tensor:
    """The target [K] among TARGETS: the body, or what its kind alone has."""
    fixed = [TARGETS.index(FIXTURES[kind]) if kind in FIXTURES else 0 for kind in KINDS]
    return torch.where(body >= 0, body, torch.tensor(fixed, device=row.device)[row[:, 0]])


def place_index(row: Tensor, under: Tensor) -> Tensor:
    """The place [K] among GOALS."""
    on_body = torch.where(under >= 0, under + len(PLACES), len(GOALS) - 1)
    return torch.where(row[:, 3] >= 0, row[:, 3], on_body)


def colors_of(row: Tensor, bodies: tuple[Tensor, Tensor], u: Tensor) -> Tensor:
    """Colours [K, bodies] as numbers: what the instruction names as it names it, the others by ``u`` [K, bodies + 1].

    The two cubes, alone alike in shape, differ in colour.
    """
    found = picked(u[:, : len(BODIES)], len(COLORS))
    for body, color in ((bodies[1], row[:, 5]), (bodies[0], row[:, 2])):
        here = one_hot(body.clamp(min=0), len(BODIES)).bool() & (body >= 0)[:, None]
        found = torch.where(here, color[:, None], found)
    first, second = found[:, 0], found[:, 1]
    alike, shift = first == second, 1 + picked(u[:, len(BODIES)], len(COLORS) - 1)
    second_named = (bodies[0] == 1) | (bodies[1] == 1)  # the other cube changes then: where both are named, they differ
    cubes = [torch.where(alike & second_named, (second + shift) % len(COLORS), first),
             torch.where(alike & ~second_named, (first + shift) % len(COLORS), second)]
    return torch.cat([torch.stack(cubes, -1), found[:, 2:]], -1)


def appearance(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The colours of an episode as parameters of the pictures, [K, 3] each."""
    palette = torch.tensor([RGB[color] for color in COLORS], device=state["colors"].device)
    colors = state["colors"].reshape(-1, len(BODIES), len(COLORS)) @ palette
    return {f"color.{name}.geom": colors[:, i] for i, name in enumerate(BODIES)}


def present(colors: Tensor) -> list[str]:
    """What the scene of one world with ``colors`` [bodies * colours] has, as instructions name it."""
    numbers = colors.reshape(len(BODIES), len(COLORS)).argmax(-1).tolist()
    things = [f"{COLORS[number]}_{SHAPE_OF[body]}" for body, number in zip(BODIES, numbers)]
    return [*things, *PLACES, *FIXTURES.values()]

