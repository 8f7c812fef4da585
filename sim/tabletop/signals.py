"""What the suite adds to the simulator's signals: the instruction, its kind, and where its target and place are.

``red_cube_pos_w`` and its like are there for every colour and shape, so that the formula of an instruction, which a
monitor watches on the robot, holds over the same signals in simulation. What the scene does not have is
:data:`ABSENT`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from temporeal.robots.signals import Schema, SignalSpec, schema
from temporeal.sim.stl.instructions.grammar import COLORS, FIXTURES, OBJECTS, PLACES, color_of, shape_of
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION
from temporeal.sim.tabletop.objects import BODIES, SHAPE_OF
from temporeal.sim.tabletop.scenes import GOALS, TARGETS
from temporeal.sim.task import Carry

ABSENT = (0.0, 0.0, -1.0)  # m: below the table, of no goal within reach

KIND = SignalSpec("kind", (), "1")
TARGET = SignalSpec("target_pos_w", (3,), "m", "w")
PLACE = SignalSpec("place_pos_w", (3,), "m", "w")


class Asked:
    """The task's own signals. What is remembered is what :class:`temporeal.sim.tabletop.scenes.Start` drew."""

    chances = 0

    def __init__(self) -> None:
        named = (SignalSpec(f"{name}_pos_w", (3,), "m", "w") for name in OBJECTS)
        self.signals: Schema = schema(INSTRUCTION, KIND, TARGET, PLACE, *named)
        self.carry: Mapping[str, tuple[int, ...]] = {
            "tokens": INSTRUCTION.shape, "asked": (), "target_of": (len(TARGETS),), "place_of": (len(GOALS),),
            "colors": (len(BODIES) * len(COLORS),)}

    def __call__(
        self, signals: Mapping[str, Tensor], chance: Tensor, carry: Carry
    ) -> tuple[dict[str, Tensor], Carry]:
        """The signals of this sample; nothing changes within an episode."""
        bodies = [signals[f"{name}_pos_w"] for name in BODIES]
        fixtures = [signals[f"{name}_at_w"] for name in FIXTURES.values()]
        target = chosen([*bodies, *fixtures], carry["target_of"])
        place = chosen([*(signals[f"{name}_pos_w"] for name in PLACES), *bodies, target], carry["place_of"])
        added = {INSTRUCTION.name: carry["tokens"], KIND.name: carry["asked"], TARGET.name: target, PLACE.name: place}
        return {**added, **by_name(bodies, carry["colors"])}, carry


def chosen(places: list[Tensor], which: Tensor) -> Tensor:
    """The one [N, 3] of ``places`` that ``which`` [N, len(places)] marks with 1."""
    return sum((which[:, i : i + 1] * place for i, place in enumerate(places)), torch.zeros_like(places[0]))


def by_name(bodies: list[Tensor], colors: Tensor) -> dict[str, Tensor]:
    """Where [N, 3] each thing that instructions can name is, for bodies of ``colors`` [N, bodies * colours]."""
    absent, out = torch.tensor(ABSENT, device=colors.device), {}
    for name in OBJECTS:
        color, mine = COLORS.index(color_of(name)), [i for i, b in enumerate(BODIES) if SHAPE_OF[b] == shape_of(name)]
        found = [colors[:, i * len(COLORS) + color, None] for i in mine]
        there = sum((has * bodies[i] for has, i in zip(found, mine)), torch.zeros_like(bodies[0]))
        out[f"{name}_pos_w"] = there + (1.0 - sum(found, torch.zeros_like(found[0]))) * absent
    return out
