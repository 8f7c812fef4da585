"""Formulas that an operator types, checked: of signals that topics bring, about places, no longer than in training.

The text is a formula, or what a mission's YAML file has: ``formula`` and ``constants``. It is checked where it enters
(``temporeal deploy --formula``, the operator's message) and again by the controller and the monitor. Nothing in it is
run: it is a formula of :mod:`temporeal.sim.stl`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import yaml

from temporeal.robots.artifact.formulas import LARGEST, FormulaSpec
from temporeal.robots.artifact.manifest import ArtifactError, Manifest
from temporeal.robots.handed_over.files import Refused
from temporeal.robots.handed_over.texts import from_json, from_yaml
from temporeal.robots.signals import SignalSpec, is_number
from temporeal.robots.spec import RobotSpec
from temporeal.sim.stl.instructions.vocabulary import InstructionError
from temporeal.sim.stl.itineraries.asked import Asked
from temporeal.sim.stl.itineraries.moving import every_region
from temporeal.sim.stl.itineraries.planner import ways_of
from temporeal.sim.stl.itineraries.program import LEGS, SIZE
from temporeal.sim.stl.itineraries.regions import Region
from temporeal.sim.stl.itineraries.search import inner
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula, to_text
from temporeal.sim.stl.language.queries import children, constants_in, horizon, is_temporal, signals_in
from temporeal.sim.stl.language.text import number_text
from temporeal_bridge.interface.interface import Interface

LONGEST = 20_000  # characters of a text
MOST_CONSTANTS, MOST_NUMBERS, MOST_NODES = 200, 16, 2000  # of a text; of a constant; of a formula, written out
KEYS = ("formula", "constants")
MAPPING = re.compile(r"^\s*(\{|['\"]?(formula|constants)['\"]?\s*:)", re.MULTILINE)  # a text that is no bare formula

Constants = dict[str, Any]


@dataclass(frozen=True)
class Typed:
    """A mission that was typed.

    Args:
        text: in its one form (:func:`canonical`). mission: the manifest with the formula that is judged: what was
            typed, and what the policy always keeps. ways: its alternatives as regions. notes: what differs from what
            the policy was trained on, sentences.
    """

    text: str
    mission: Manifest
    ways: tuple[Asked, ...]
    notes: tuple[str, ...]

    @property
    def bound(self) -> tuple[str, ...]:
        """Signals that regions are bound to."""
        return tuple(dict.fromkeys(region.bound for region in every_region(self.ways) if region.bound))


def content_of(text: str) -> tuple[str, Constants]:
    """The formula's text and its constants; InstructionError where the text has none."""
    if len(text) > LONGEST:
        raise InstructionError(f"the formula has {len(text)} characters, at most {LONGEST} are legal")
    if not MAPPING.search(text):
        if not text.strip():
            raise InstructionError("the formula is empty; \"F[0,10] (norm(base_pos_w - a) < 0.4)\", for example")
        return text.strip(), {}
    found = mapping_of(text)
    unknown = sorted(map(str, set(found) - set(KEYS))) if isinstance(found, dict) else []
    if not isinstance(found, dict) or unknown or not isinstance(found.get("formula"), str):
        raise InstructionError(f"a mission has the key formula, a text, and constants; {', '.join(KEYS)} are legal"
                               + (f", got {', '.join(unknown)}" if unknown else ""))
    return found["formula"].strip(), constants_of(found.get("constants") or {})


def mapping_of(text: str) -> Any:
    """The value of a text in JSON or YAML."""
    if text.lstrip().startswith("{"):
        with suppress(Refused):
            return from_json(text, "the mission")
    try:
        return from_yaml(text, "the mission")
    except yaml.YAMLError as error:
        raise InstructionError(f"the mission is no YAML: {error}") from error


def constants_of(given: Any) -> Constants:
    """Numbers and vectors by name."""
    if not isinstance(given, Mapping) or len(given) > MOST_CONSTANTS:
        raise InstructionError(f"constants are at most {MOST_CONSTANTS} numbers and vectors by name")
    out = Constants()
    for name, value in given.items():
        vector = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        if not isinstance(name, str) or not name.isidentifier() or not 0 < len(vector) <= MOST_NUMBERS or not all(
                map(is_number, vector)):
            raise InstructionError(f"constant {str(name):.40} is a number, or up to {MOST_NUMBERS} of them; got "
                                   f"{value!r:.60}")
        if max(map(abs, vector)) > LARGEST:
            raise InstructionError(f"constant {name:.40} is {value!r:.60}; numbers up to {LARGEST:g} are legal")
        out[name] = [float(x) for x in vector] if isinstance(value, Sequence) else float(value)
    return out


def canonical(text: str) -> str:
    """The mission as one line of JSON: how it is published and compared. What cannot be read stays as it is."""
    try:
        formula, constants = content_of(text)
    except ValueError:
        return text[:LONGEST]
    return json.dumps({"formula": formula, "constants": constants}, sort_keys=True)


def typed(manifest: Manifest, robot: RobotSpec, interface: Interface, text: str) -> Typed:
    """The mission in ``text``, for a policy that takes formulas.

    Raises:
        InstructionError, FormulaError: it cannot be flown; the message says which part, and what is legal.
    """
    of, schema = formulas_of(manifest), {**interface.carried, **robot.signals}
    keep = kept_by(of, schema)
    formula, constants = content_of(text)
    both = {**constants, **of.constants}
    if taken := sorted(name for name in constants if both[name] != constants[name]):
        raise InstructionError(f"constants {', '.join(taken)} are the policy's own, "
                               f"{', '.join(f'{name} = {of.constants[name]:g}' for name in taken)}: use other names")
    asked = sized(parse(formula, schema, constants))
    reach = horizon(asked)
    if not isfinite(reach):
        raise InstructionError("the formula has a window without an end; missions end: give each window one")
    if reach > of.horizon_s + 1e-9:
        raise InstructionError(f"the formula is decided after {reach:g} s; the policy {manifest.name!r} was trained "
                               f"for at most {of.horizon_s:g} s")
    kept = f"({to_text(asked)}) & G[0,{number_text(reach)}] ({to_text(keep)})"
    whole = parse(kept, schema, both)
    check_carried(whole, interface)
    try:
        ways = ways_of(whole, 1.0 / manifest.rate_hz, of.position)
    except ArithmeticError as error:
        raise InstructionError(f"the formula's numbers are too large to plan with: {error}") from error
    mission = replace(manifest, formula=kept, constants=both, horizon_s=reach)
    return Typed(canonical(text), mission, ways, notes_of(ways, of, schema))


def formulas_of(manifest: Manifest) -> FormulaSpec:
    """What the policy's formulas may be."""
    of = manifest.formulas
    if of is None:
        raise InstructionError(f"the policy {manifest.name!r} takes no formula: it was trained for its own, "
                               f"{manifest.formula:.200}")
    if (of.size, of.legs) != (SIZE, LEGS):
        raise ArtifactError(f"formulas: the policy {manifest.name!r} reads programs of {of.size} numbers and {of.legs} "
                            f"places, this version writes {SIZE} and {LEGS}: export it again from its run")
    return of


def kept_by(of: FormulaSpec, schema: Mapping[str, SignalSpec]) -> Formula:
    """The arena: ``keep`` read by itself, as what is put between brackets may close them; an ArtifactError where it is
    no formula of a state."""
    try:
        found = parse(of.keep, schema, of.constants)
    except FormulaError as error:
        raise ArtifactError(f"formulas: keep, {of.keep!r:.200}, is no formula: {error}") from error
    if is_temporal(found):
        raise ArtifactError(f"formulas: keep, {of.keep!r:.200}, is a formula of a state, without temporal operators")
    return found


def sized(formula: Formula) -> Formula:
    """``formula``, if it is not too large written out, names of parts make large ones of short texts, and its numbers
    are not."""
    sizes: dict[int, int] = {}

    def size(part: Formula) -> int:
        if id(part) not in sizes:
            sizes[id(part)] = 1 + sum(map(size, children(part)))
        return sizes[id(part)]

    if (found := size(formula)) > MOST_NODES:
        raise InstructionError(f"the formula has {found} parts, written out; at most {MOST_NODES} are legal")
    if (largest := max((abs(x) for values in constants_in(formula) for x in values), default=0.0)) > LARGEST:
        raise InstructionError(f"the formula has the number {largest:g}; numbers up to {LARGEST:g} are legal")
    return formula


def check_carried(formula: Formula, interface: Interface) -> None:
    """All that the formula reads is on a topic."""
    unseen = sorted(set(signals_in(formula)) - set(interface.state))
    if unseen:
        raise InstructionError(f"the formula reads {', '.join(unseen)}, which no topic of interface {interface.name!r} "
                               f"carries; carried: {', '.join(interface.state)}")


def notes_of(ways: Sequence[Asked], of: FormulaSpec, schema: Mapping[str, SignalSpec]) -> tuple[str, ...]:
    """Sizes that were not trained on; an InstructionError where a place has no room, or moves as no position does."""
    reached = {region for asked in ways for region in asked.regions if region is not None}
    avoided = {keep.region for asked in ways for keep in asked.keeps if not keep.region.inside}
    for region in sorted(reached, key=str):
        if inner(region) <= of.slack:
            raise InstructionError(f"the place around {where(region)} has a half width of {inner(region):g} m; the "
                                   f"policy counts as inside from {of.slack:g} m on")
    for name in {region.bound for region in every_region(ways)} - {""}:
        if schema[name].shape != (3,):
            raise InstructionError(f"signal {name!r} is no place: its shape is {list(schema[name].shape)}")
    found = []
    for regions, (least, most), word in ((reached, of.radius, "place"), (avoided, of.avoid_radius, "obstacle")):
        sizes = sorted({round(inner(region), 3) for region in regions if inner(region) < 100.0})
        other = [size for size in sizes if not least - 1e-6 <= size <= most + 1e-6]
        if other:
            found.append(f"{word}s with a half width of {', '.join(f'{size:g}' for size in other)} m; trained on "
                         f"{least:g} to {most:g} m")
    return tuple(found)


def where(region: Region) -> str:
    """The middle of a region, in words."""
    at = ", ".join(f"{x:g}" for x, half in zip(region.center, region.half) if half < 500.0)
    return f"{region.bound}, now ({at})" if region.bound and any(region.center) else region.bound or f"({at})"
