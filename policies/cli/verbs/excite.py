"""``temporeal excite``: an artifact that excites a robot within limits, for a log that identification can use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overwrite, print_json, say
from temporeal.policies.runs.errors import OK, BadInput, bad_input
from temporeal.robots.registry import guess

if TYPE_CHECKING:
    from temporeal.policies.excitation.writing import Written

SUMMARY = "write an artifact that excites a robot within limits, for a log to identify it from"
HELP = """\
Writes an artifact as `temporeal export` does: a controller that holds the robot, and chirps, steps or sweeps that it
adds as a function of the time since the start. `temporeal deploy` flies it through guard and recorder, and its formula
(box, speed, tilt) is what the monitor watches: leaving it ends the flight. Before it is written it is flown in the
simulator, by the nominal robot and by others that the spec's ranges allow; an excitation that leaves its limits there
is refused.

A quadrotor holds its place and gets chirps of place, thrust and turns, then doublets, and hovers at the end. It must be
in the air, near the center, when the flight starts. command=motor_cmd puts rotor commands in the recording;
command=ctbr_cmd is for drivers that take thrust and rates only: log the motors on board.

Settings are key=value: robot=NAME, out=FOLDER, and those that --settings prints for a robot.

Example:
  temporeal excite robot=crazyflie out=outputs/excite
  temporeal excite robot=crazyflie out=outputs/excite command=ctbr_cmd seconds=90 reach_m=0.4
  temporeal excite robot=crazyflie --settings
  temporeal deploy outputs/excite --sim
"""
OWN = ("robot", "out")


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("excite", HELP)
    p.add_argument("words", nargs="*", metavar="key=value", help="robot=NAME out=FOLDER, and settings")
    p.add_argument("--settings", action="store_true", help="print the settings for the robot, and what they are now")
    add_overwrite(p)
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Plan, rehearse, write."""
    options = parser().parse_intermixed_args(argv)
    given = parsed(options.words)
    from temporeal.policies.excitation import writing
    from temporeal.policies.runs import run_folders
    from temporeal.policies.runs.replacing import refuse_to_replace
    from temporeal.robots.artifact.loading import refuse_other_folder

    with bad_input():
        robot = robot_of(given)
        kind, plan_of = writing.kind_of(robot)
        settings = settings_of(kind, given)
        if options.settings:
            say("\n".join(f"{f.name}={getattr(settings, f.name)}" for f in fields(settings)))
            return OK
        if "out" not in given:
            raise BadInput("out=FOLDER is needed: where the artifact is written")
        out = Path(given["out"])
        plan = plan_of(robot, settings)
        run_folders.check_writable(out.parent)
        refuse_other_folder(out)
        refuse_to_replace(out, options.overwrite, "out=")
        written = writing.write(plan, out)
    if options.json:
        print_json(figures(written, out))
    else:
        say(describe(written, out))
    return OK


def parsed(words: Sequence[str]) -> dict[str, str]:
    """The words by key, each once."""
    out: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise BadInput(f"{word!r}: words are key=value, such as robot=crazyflie")
        if key in out:
            raise BadInput(f"{word}: {key} is given twice")
        out[key] = value
    return out


def robot_of(given: Mapping[str, str]) -> Any:
    """The robot that is named."""
    from temporeal.robots.spec import load_robot, robot_names

    if "robot" not in given:
        raise BadInput(f"robot=NAME is needed, one of {', '.join(robot_names())}, or the path of a robot's folder")
    return load_robot(given["robot"])


def settings_of(kind: type[Any], given: Mapping[str, str]) -> Any:
    """The settings with what is ``given``."""
    from temporeal.robots.signals import is_number

    known, values = {f.name: f for f in fields(kind)}, {}
    for key, text in given.items():
        if key in OWN:
            continue
        if key not in known:
            raise BadInput(f"{key}={text}: no such setting; {guess(key, [*OWN, *known])}known: "
                           f"{', '.join((*OWN, *known))}")
        if isinstance(known[key].default, str):
            values[key] = text
            continue
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not is_number(value):
            raise BadInput(f"{key}={text}: a finite number is needed")
        values[key] = value
    return kind(**values)


def figures(written: Written, out: Path) -> dict[str, Any]:
    """What --json prints."""
    manifest = written.artifact.manifest
    return {"artifact": out, "robot": manifest.robot, "command": manifest.commands[0].name, "rate_hz": manifest.rate_hz,
            "seconds": manifest.horizon_s, "formula": manifest.formula, "constants": manifest.constants,
            "parts": manifest.training["excitation"]["parts"],
            "rehearsal": {"robots": written.rehearsal.commands.shape[1], "least_margin": written.rehearsal.worst}}


def describe(written: Written, out: Path) -> str:
    """The artifact in a few lines, and the next step."""
    manifest, proof = written.artifact.manifest, written.artifact.self_test()
    parts = ", ".join(f"{part['name']} {part['from_s']:.0f}-{part['to_s']:.0f} s"
                      for part in manifest.training["excitation"]["parts"])
    least = ", ".join(f"{name} {value:.3g}" for name, value in written.rehearsal.worst.items())
    return (f"{out}: {manifest.robot}, {manifest.horizon_s:g} s, {manifest.commands[0].name} at {manifest.rate_hz:g} "
            f"Hz\nparts: {parts}\n"
            f"rehearsed with {written.rehearsal.commands.shape[1]} simulated robots; room left to the limits, at "
            f"least: {least}\n"
            f"self-test: {proof.steps} steps, largest difference {proof.max_error:.1e} of a range\n"
            f"next: temporeal deploy {out} --sim")
