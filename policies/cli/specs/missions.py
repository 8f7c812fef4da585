"""``temporeal spec say``: a mission in words as a formula; ``temporeal spec tell``: the formula as its sentence."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overwrite, print_json, say
from temporeal.policies.cli.specs.formulas import assumed
from temporeal.policies.cli.specs.spec_file import assigned_names, given, read_yaml, semantics_of
from temporeal.policies.runs.errors import OK, BadInput, bad_input

if TYPE_CHECKING:
    from temporeal.sim.stl.instructions.missions.places import Places

LARGEST = 2**20
SAY, TELL = "say", "tell"
SAY_HELP = """\
A mission in words, over places with names, as a formula of Signal Temporal Logic with its constants: YAML that
temporeal spec check and every other reader of formulas takes. The sentence is told back above it, with all its times.

MAP.yaml:
  places:
    red: {ball: [1.0, 2.0, 1.0], radius: 0.4}          # m
    post: {pillar: [0, 2], radius: 0.3}                # at any height
    table: {box: [0, 0, 0.4], half: [0.6, 0.4, 0.4]}   # middle, half sides
    goal: {ball: goal_pos_w, radius: 0.3}              # the middle is a signal
  position: base_pos_w                                 # the robot's (this one)
  within: 30                                           # s, for a visit without a time (30)

Example:
  temporeal spec say --places map.yaml "visit red, then goal within ten seconds, never over the table" -o mission.yaml
  temporeal spec say --places map.yaml "for 60 s, be at red every 20 s, and do not enter post before goal" --json
"""
TELL_HELP = """\
The sentence of a mission's formula, where spec say makes such formulas: they name their places, at_red = ...

Example:
  temporeal spec tell mission.yaml
"""


def say_parser() -> Parser:
    """Options of ``spec say``."""
    p = Parser("spec say", SAY_HELP)
    p.add_argument("text", metavar="SENTENCE", help="the mission")
    p.add_argument("--places", type=Path, required=True, metavar="MAP.yaml", help="the places by name")
    p.add_argument("-o", "--out", type=Path, metavar="FILE.yaml", help="the file to write (default: print it)")
    add_overwrite(p)
    add_json(p)
    return p


def tell_parser() -> Parser:
    """Options of ``spec tell``."""
    p = Parser("spec tell", TELL_HELP)
    p.add_argument("formula", metavar="FORMULA", help="the file of the formula")
    add_json(p)
    return p


def say_mission(argv: Sequence[str]) -> int:
    """Print or write the formula of a sentence."""
    from temporeal.policies.runs.replacing import refuse_to_replace

    options = say_parser().parse_args(argv)
    if options.out is not None and options.out.suffix not in (".yaml", ".yml"):
        raise BadInput(f"-o {options.out}: a mission is .yaml")
    refuse_to_replace(options.out, options.overwrite, "-o")
    with bad_input():
        return _said(options, places_of(options.places))


def places_of(path: Path) -> Places:
    """The map of places of a file."""
    from temporeal.policies.cli.traces.csv_files import text_of
    from temporeal.robots.handed_over.files import Refused, read
    from temporeal.sim.stl.instructions.missions.places import places
    from temporeal.sim.stl.instructions.missions.words import reserved

    if not path.is_file():
        raise BadInput(f"--places {path} is not there; it is a YAML file of places by name")
    try:
        data = read_yaml(text_of(read(path, LARGEST), str(path)), f"{path} is no YAML")
        return places(data, reserved())
    except (OSError, Refused) as error:
        raise BadInput(str(error)) from error
    except BadInput:
        raise
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from error


def _said(options: Namespace, where: Places) -> int:
    from temporeal.sim.stl.instructions.missions.reading import read
    from temporeal.sim.stl.instructions.missions.telling import sentence
    from temporeal.sim.stl.instructions.missions.writing import formula_constants, formula_text

    found = read(options.text, where)
    text, constants = formula_text(found.mission, where), formula_constants(found.mission, where)
    lines = _yaml([sentence(found.mission), *found.assumed], text, constants)
    if options.out is not None:
        try:
            options.out.write_text(lines, encoding="utf-8")
        except OSError as error:
            raise BadInput(f"cannot write {options.out}: {error.strerror}") from error
    if options.json:
        print_json({"sentence": sentence(found.mission), "assumed": found.assumed, "formula": text,
                    "constants": constants, "horizon_s": found.mission.end, "file": options.out})
    else:
        say(lines.rstrip() if options.out is None else f"{options.out}: {sentence(found.mission)}")
        if options.out is not None:
            say("\n".join(f"  {line}" for line in [*found.assumed, f"it takes {found.mission.end:g} s at most"]))
    return OK


def _yaml(comments: Sequence[str], text: str, constants: Mapping[str, Any]) -> str:
    """The file of a mission."""
    lines = [*(f"# {comment}" for comment in comments), "formula: |", *(f"  {line}" for line in text.split("\n")),
             "constants:", *(f"  {name}: {json.dumps(value)}" for name, value in constants.items())]
    return "\n".join(lines) + "\n"


def tell_mission(argv: Sequence[str]) -> int:
    """Print the sentence of a formula."""
    from temporeal.sim.stl.instructions.missions.recognizing import mission_of
    from temporeal.sim.stl.instructions.missions.telling import sentence
    from temporeal.sim.stl.language.conventions import RTAMT

    options = tell_parser().parse_args(argv)
    spec = given(options.formula)
    if not isinstance(spec.formula, str):
        raise BadInput(f"{spec.source}: a mission's formula is text, which names its places")
    if semantics_of(spec) != RTAMT:
        raise BadInput(f"{spec.source}: sentences are of the default semantics; it has {dict(spec.semantics)}")
    signals = {**assumed(spec), **spec.signals}
    named = assigned_names(spec.formula)
    with bad_input():
        found = mission_of(spec.formula, spec.constants, {n: s for n, s in signals.items() if n not in named})
    if options.json:
        print_json({"sentence": sentence(found), "horizon_s": found.end})
    else:
        say(sentence(found))
    return OK
