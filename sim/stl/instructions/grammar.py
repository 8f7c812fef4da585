"""What an instruction says, and the sentences that say it.

    parse("push the red cube into the tray")      # Instruction("push", "red_cube", "tray")
    sentences(Instruction("open", "drawer"))      # ["open the drawer", "pull the drawer open", ...]

A closed grammar: every sentence is listed, so that each means one instruction and what is ambiguous can be named.
Wordings and combinations that training never sees are public lists, :data:`TEMPLATES` and :func:`held_out`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import product

from temporeal.sim.stl.instructions.vocabulary import InstructionError, Vocabulary, words_of

KINDS = ("reach", "push", "pick", "place", "stack", "open", "press")
COLORS = ("red", "green", "blue", "yellow")
SHAPES = ("cube", "ball", "cylinder")
PLACES = ("tray", "plate", "left_zone", "right_zone")
FIXTURES = {"open": "drawer", "press": "button"}
"""The one target of a kind."""
FLAT_TOPPED = ("cube", "cylinder")
"""Shapes that are stacked, and on which others are."""
SPLITS = ("train", "held_out")

OBJECTS = tuple(f"{color}_{shape}" for color in COLORS for shape in SHAPES)

# kind: wordings of training, wordings that training never sees. {into} and {on} are a place with its preposition.
TEMPLATES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "reach": (
        ("reach the {target}", "move to the {target}", "go to the {target}", "move the gripper to the {target}"),
        ("take the gripper to the {target}", "go and reach the {target}")),
    "push": (
        ("push the {target} {into}", "slide the {target} {into}", "shove the {target} {into}",
         "push the {target} until it is {on}"),
        ("slide the {target} over the table {into}", "shove the {target} until it is {on}",
         "use the gripper to push the {target} {into}")),
    "pick": (
        ("pick up the {target}", "pick the {target} up", "lift the {target}", "take the {target} and lift it"),
        ("lift the {target} up", "raise the {target}", "go to the {target} and pick it up")),
    "place": (
        ("place the {target} {on}", "put the {target} {on}", "pick up the {target} and place it {on}",
         "set the {target} down {on}"),
        ("pick up the {target} and put it {on}", "take the {target} and set it down {on}",
         "lift the {target} and place it {on}")),
    "stack": (
        ("stack the {target} on the {place}", "put the {target} on top of the {place}",
         "place the {target} on the {place}", "pick up the {target} and stack it on the {place}"),
        ("place the {target} on top of the {place}", "take the {target} and put it on the {place}",
         "lift the {target} and stack it on top of the {place}")),
    "open": (
        ("open the drawer", "pull the drawer open", "slide the drawer open", "pull the handle of the drawer"),
        ("pull open the drawer", "use the handle to open the drawer", "take the handle and slide the drawer open")),
    "press": (
        ("press the button", "push the button", "push the button down", "press the button down"),
        ("press down on the button", "use the gripper to press the button", "go to the button and push it down")),
}
HELD_OUT_WORDS = ("over", "raise", "table", "use")
"""Words that only held-out wordings have."""

INTO = {"tray": "into the tray", "plate": "onto the plate", "left_zone": "to the left zone",
        "right_zone": "to the right zone"}
ON = {"tray": "in the tray", "plate": "on the plate", "left_zone": "in the left zone",
      "right_zone": "in the right zone"}

HELD_OUT_TARGETS = ("yellow_cube", "green_ball", "blue_cylinder")
"""Objects that no instruction of training has as its target; scenes of training show them among the others."""
HELD_OUT_PLACES = (("red", "plate"), ("green", "left_zone"), ("blue", "tray"), ("yellow", "right_zone"))
"""Colours of a target that training never brings to a place."""
HELD_OUT_STACKS = (("red", "green"), ("blue", "yellow"))
"""Colours of a target that training never stacks on a colour."""


@dataclass(frozen=True)
class Instruction:
    """What is to be done.

    Args:
        kind: one of :data:`KINDS`.
        target: an object, as ``red_cube``; of ``open`` the drawer, of ``press`` the button.
        place: of ``push`` and ``place`` one of :data:`PLACES`, of ``stack`` the object below, else empty.
    """

    kind: str
    target: str
    place: str = ""

    def __post_init__(self) -> None:
        _require("kind", self.kind, KINDS)
        _require(f"target of {self.kind!r}", self.target, targets(self.kind))
        _require(f"place of {self.kind!r}", self.place, places(self.kind, self.target))

    def __str__(self) -> str:
        return sentences(self)[0]


def _require(what: str, value: object, legal: Sequence[str]) -> None:
    if value not in legal:
        raise InstructionError(f"{what} is one of {', '.join(x or 'nothing' for x in legal)}; got {value!r}")


def targets(kind: str) -> tuple[str, ...]:
    """The targets that instructions of ``kind`` can have."""
    if kind in FIXTURES:
        return (FIXTURES[kind],)
    return tuple(o for o in OBJECTS if shape_of(o) in FLAT_TOPPED) if kind == "stack" else OBJECTS


def places(kind: str, target: str) -> tuple[str, ...]:
    """The places that an instruction of ``kind`` with this target can have."""
    if kind == "stack":
        return tuple(o for o in targets("stack") if o != target)
    return PLACES if kind in ("push", "place") else ("",)


def color_of(name: str) -> str:
    """The colour of an object."""
    return name.partition("_")[0]


def shape_of(name: str) -> str:
    """The shape of an object."""
    return name.partition("_")[2]


def in_words(name: str) -> str:
    """``red_cube`` as it is said: red cube."""
    return name.replace("_", " ")


def held_out(instruction: Instruction) -> bool:
    """Whether training never gives this combination of colour, shape and place."""
    target, place, color = instruction.target, instruction.place, color_of(instruction.target)
    return (target in HELD_OUT_TARGETS or (color, place) in HELD_OUT_PLACES
            or (instruction.kind == "stack" and (color, color_of(place)) in HELD_OUT_STACKS))


def instructions(kinds: Iterable[str] = KINDS) -> list[Instruction]:
    """Every instruction of ``kinds``."""
    return [Instruction(k, target, place) for k in kinds for target in targets(k) for place in places(k, target)]


def sentences(instruction: Instruction, split: str = "train") -> list[str]:
    """What says ``instruction``, in the order of :data:`TEMPLATES`: the wordings of training, or the held-out ones."""
    _require("split", split, SPLITS)
    place = instruction.place
    slots = {"target": in_words(instruction.target), "place": in_words(place), "into": INTO.get(place, ""),
             "on": ON.get(place, "")}
    return [template.format(**slots) for template in TEMPLATES[instruction.kind][SPLITS.index(split)]]


@cache
def meanings() -> dict[str, Instruction]:
    """Every sentence of the suite and what it says."""
    return dict(_said())


def _said() -> Iterator[tuple[str, Instruction]]:
    for instruction, split in product(instructions(), SPLITS):
        for sentence in sentences(instruction, split):
            yield sentence, instruction


def parse(text: str) -> Instruction:
    """What the sentence ``text`` says.

    :class:`InstructionError`: empty, over-long, unknown words, ambiguous (which instructions it may mean), or no
    sentence of the suite (the nearest ones).
    """
    SUITE.encode(text)
    words = words_of(text)
    found = meanings().get(" ".join(words))
    if found is None:
        raise InstructionError(_no_sentence(words))
    return found


def _no_sentence(words: Sequence[str]) -> str:
    """What is wrong with a sentence of known words."""
    text = " ".join(words)
    fuller = [s for s in meanings() if _within(words, s.split())]
    means = list(dict.fromkeys(meanings()[s] for s in fuller))
    if len(means) > 1:
        shown = "; ".join(sorted(fuller, key=len)[:4])
        return f"{text!r} is ambiguous: it may mean {len(means)} instructions, as {shown}. Name colour, shape and place"
    near = fuller[:1] or get_close_matches(text, meanings(), n=3, cutoff=0.0)
    return f"{text!r} is no sentence of the suite; the nearest are: {'; '.join(near)}"


def _within(words: Sequence[str], sentence: Sequence[str]) -> bool:
    """Whether ``sentence`` has all ``words`` in this order."""
    rest = iter(sentence)
    return all(word in rest for word in words)


def require_present(instruction: Instruction, present: Sequence[str]) -> None:
    """:class:`InstructionError` where the scene lacks what ``instruction`` names; it says what the scene has."""
    missing = [name for name in (instruction.target, instruction.place) if name and name not in present]
    if missing:
        raise InstructionError(f"the scene has no {' and no '.join(map(in_words, missing))}; it has: "
                               f"{', '.join(in_words(name) for name in present) or 'nothing'}")


SUITE = Vocabulary(tuple(sorted({word for sentence, _ in _said() for word in sentence.split()})))
"""The words of the suite, held-out wordings included."""
