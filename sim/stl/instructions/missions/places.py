"""Places by name: the words of a mission that stand for regions.

    position: base_pos_w                           # the signal of the robot's position (this one where it is left out)
    within: 30                                     # s, for a visit without a time (30)
    places:
      red: {ball: [1.0, 2.0, 1.0], radius: 0.4}    # norm(base_pos_w - red) < red_r
      post: {pillar: [0, 2], radius: 0.3}          # at any height
      table: {box: [0, 0, 0.4], half: [0.6, 0.4, 0.4]}   # middle and half sides; of two numbers: at any height
      goal: {ball: goal_pos_w, radius: 0.3}        # the middle is a signal of three numbers, which may move

Lengths are m. Forms of the predicates are those that a planner reads (:mod:`temporeal.sim.stl.itineraries.regions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from temporeal.robots.registry import guess
from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.instructions.missions.meaning import LEAVE, LONGEST_S, OVER, MissionError, Place, words
from temporeal.sim.stl.language.operations import FUNCTIONS
from temporeal.sim.stl.language.text import WORDS, number_text

KEYS = ("position", "within", "places")
SHAPES = {"ball": "radius", "pillar": "radius", "box": "half"}
"""Kinds of regions, each with the key of its size."""
MOST_PLACES, LONGEST_NAME, FARTHEST = 100, 40, 1000.0
WITHIN_S = 30.0
NAME = re.compile(r"[a-z][a-z0-9]*([ _-][a-z0-9]+)*")
SIGNAL = re.compile(r"[A-Za-z]\w*")
FORM = "a place is {ball: [x, y, z], radius: r}, {pillar: [x, y], radius: r} or {box: [x, y, z], half: [a, b, c]}, m"


@dataclass(frozen=True)
class Shape:
    """A ball, a pillar or a box, m. ``center``: numbers, or the name of a signal of three;
    ``size``: the radius, or half the sides."""

    kind: str
    center: tuple[float, ...] | str
    size: tuple[float, ...]


@dataclass(frozen=True)
class Places:
    """Shapes by their names as identifiers (``landing_pad``), the signal of the robot's position, and the time in s of
    a visit that says none."""

    shapes: Mapping[str, Shape]
    position: str = "base_pos_w"
    within: float = WITHIN_S

    def schema(self) -> dict[str, SignalSpec]:
        """The signals that a mission may read."""
        bound = [shape.center for shape in self.shapes.values() if isinstance(shape.center, str)]
        return {name: SignalSpec(name, (3,), "m", "w") for name in (self.position, *bound)}

    def require(self, names: Iterable[str]) -> None:
        """A :class:`MissionError` where one of ``names`` is no place."""
        for name in names:
            if name not in self.shapes:
                raise MissionError(f"there is no place {words(name)!r}; {guess(name, self.shapes)}known: {self.said()}")

    def said(self) -> str:
        """All names, as they are said."""
        return ", ".join(map(words, self.shapes))


def places(data: Any, reserved: Iterable[str] = ()) -> Places:
    """The places of the content of a YAML file. ``reserved``: words that a name may not have."""
    if not isinstance(data, dict) or not isinstance(data.get("places"), dict) or not data["places"]:
        raise MissionError(f"a map of places has the key places with a name and a shape on each line; {FORM}")
    if unknown := [str(key) for key in data if key not in KEYS]:
        raise MissionError(f"unknown key {', '.join(unknown)}; known: {', '.join(KEYS)}")
    if len(data["places"]) > MOST_PLACES:
        raise MissionError(f"there are {len(data['places'])} places; at most {MOST_PLACES} are legal")
    position, within = data.get("position", "base_pos_w"), data.get("within", WITHIN_S)
    if not isinstance(position, str) or not SIGNAL.fullmatch(position):
        raise MissionError(f"position is the name of a signal of three numbers, as base_pos_w; got {position!r:.60}")
    if not _number(within) or not 0 < within <= LONGEST_S:
        raise MissionError(f"within is a number of seconds above 0, up to {LONGEST_S:g}; got {within!r:.60}")
    shapes: dict[str, Shape] = {}
    for name, value in data["places"].items():
        ident = _name(name, set(reserved))
        if ident in shapes:
            raise MissionError(f"place {name!r} is there twice")
        shapes[ident] = _shape(str(name), value)
    found = Places(shapes, position, float(within))
    _check_names(found)
    return found


def _name(name: object, reserved: set[str]) -> str:
    """The identifier of a place's name."""
    if not isinstance(name, str) or len(name) > LONGEST_NAME or not NAME.fullmatch(name):
        raise MissionError(f"place {name!r:.60}: a name is words of small letters and digits, at most {LONGEST_NAME} "
                           "characters, as 'landing pad'")
    ident = re.sub("[ -]", "_", name)
    if taken := sorted(set(ident.split("_")) & reserved):
        raise MissionError(f"place {name!r}: {taken[0]!r} is a word of the language of missions; choose another name")
    return ident


def _shape(name: str, value: Any) -> Shape:
    kinds = [kind for kind in SHAPES if isinstance(value, dict) and kind in value]
    if len(kinds) != 1 or set(value) != {kinds[0], SHAPES[kinds[0]]}:
        raise MissionError(f"place {name!r}: {FORM}; got {value!r:.80}")
    kind = kinds[0]
    center, size = value[kind], value[SHAPES[kind]]
    if isinstance(center, str):
        if not SIGNAL.fullmatch(center) or center in WORDS:
            raise MissionError(f"place {name!r}: {kind} is a middle, or the name of a signal, as goal_pos_w; got "
                               f"{center!r:.60}")
    else:
        center = _numbers(name, kind, center, (2, 3) if kind != "ball" else (3,), -FARTHEST)
    if kind != "box":
        return Shape(kind, center, _numbers(name, "radius", [size], (1,), 0.0))
    half = _numbers(name, "half", size, (2, 3), 0.0)
    if len(half) == 3 and len(center) == 2:
        raise MissionError(f"place {name!r}: a box of three half sides has a middle of three numbers; got {center!r}")
    return Shape(kind, center, half)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def _numbers(name: str, key: str, value: Any, counts: tuple[int, ...], above: float) -> tuple[float, ...]:
    if isinstance(value, (list, tuple)) and len(value) in counts and all(
            _number(x) and above < x < FARTHEST for x in value):
        return tuple(map(float, value))
    many = " or ".join(map(str, counts))
    raise MissionError(f"place {name!r}: {key} is {many} number(s) between {above:g} and {FARTHEST:g} m; got "
                       f"{value!r:.60}")


def _check_names(found: Places) -> None:
    """A :class:`MissionError` where two things would have one name, or two places one shape."""
    signals = set(found.schema())
    taken: dict[str, str] = {}
    for ident, shape in found.shapes.items():
        for name in (*constants(ident, shape), label(Place(ident)), label(Place(ident, OVER))):
            if name in taken or name in signals or name in WORDS or name in FUNCTIONS:
                other = f", as for {words(taken[name])!r}" if name in taken else ""
                raise MissionError(f"place {words(ident)!r}: the formula would call two things {name!r}{other}; choose "
                                   "another name")
            taken[name] = ident
    spelled: dict[str, str] = {}
    for ident in found.shapes:
        other = spelled.setdefault(ident.replace("_", ""), ident)
        if other != ident:
            raise MissionError(f"{words(other)!r} and {words(ident)!r} sound alike; choose another name")
    seen: dict[Shape, str] = {}
    for ident, shape in found.shapes.items():
        if shape in seen:
            raise MissionError(f"{words(seen[shape])} and {words(ident)} are the same region; give it one name")
        seen[shape] = ident


# ---------------------------------------------------------------- as a formula's predicates


def constants(ident: str, shape: Shape) -> dict[str, float | list[float]]:
    """The named numbers of a place."""
    center = {} if isinstance(shape.center, str) else {ident: list(shape.center)}
    size = shape.size[0] if shape.kind != "box" else list(shape.size)
    return {**center, f"{ident}_{'half' if shape.kind == 'box' else 'r'}": size}


def footprint(place: Place, shape: Shape) -> Place:
    """``place``, and for a region that has no ends upwards to be over it is to be in it."""
    endless = shape.kind == "pillar" or (shape.kind == "box" and len(shape.size) == 2)
    return Place(place.name) if place.what == OVER and endless else place


def label(place: Place) -> str:
    """The name of its predicate."""
    return f"{'over' if place.what == OVER else 'at'}_{place.name}"


def literal(place: Place) -> str:
    """What keeps a ban: ``!at_red``, ``!over_table``; ``at_room``, which is not to be left."""
    return label(place) if place.what == LEAVE else f"!{label(place)}"


def predicate(place: Place, found: Places) -> str:
    """Where the robot is in, or over, a place."""
    shape, own, at = found.shapes[place.name], found.position, place.name
    center = shape.center if isinstance(shape.center, str) else at
    flat = place.what == OVER
    if shape.kind == "box":
        sides = "xy" if flat or len(shape.size) == 2 else "xyz"
        return "max(" + ", ".join(f"abs({own}.{x} - {center}.{x}) - {at}_half.{x}" for x in sides) + ") < 0"
    if shape.kind == "pillar" or flat:
        return f"hypot({own}.x - {center}.x, {own}.y - {center}.y) < {at}_r"
    return f"norm({own} - {center}) < {at}_r"


def seconds(value: float) -> str:
    """A time, as a formula and a sentence write it."""
    return number_text(value)
