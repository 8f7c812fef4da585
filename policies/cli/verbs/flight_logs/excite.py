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
    from temporeal.robots.spec import RobotSpec
    from temporeal.sim.identification.record import FlightRecord

SUMMARY = "an artifact that excites a robot within limits; what its log will tell"
HELP = """\
Writes an artifact as `temporeal export` does: a controller that holds the robot, and chirps, steps or sweeps that it
adds as a function of the time since the start. `temporeal deploy` flies it through guard and recorder, and its formula
(place, speed, tilt) is what the monitor watches: leaving it ends the flight. Before it is written it is flown in the
simulator, by the nominal robot and by others that the spec's ranges allow; an excitation that leaves its limits there
is refused.

A quadrotor holds its place and gets chirps of place, thrust and turns, then doublets, and hovers. It must be in the
air, within box_m - 0.35 m of the center, when the flight starts. command=motor_cmd puts rotor commands in the
recording; it then sinks to land_m and switches its rotors off; a stop before that lets it fall. command=ctbr_cmd is for
drivers that take thrust and rates only: log the motors on board; the guard lands it at the end, and at any stop. Joints
of arms and hands get multisines and slow sweeps about home, and come home at the end. An arm is alone in simulation:
clear its surroundings.

--information says what is to be expected of the log: the standard deviation of each parameter after the excitation, how
long it must be for a wanted precision, and which parameters it cannot tell apart (Fisher's information, sensors as
assumed; a real log tells less). With --log, the same of a flight that was recorded.

Settings are key=value: robot=NAME, out=FOLDER, and those that --settings prints for a robot.

Example:
  temporeal excite robot=crazyflie out=outputs/excite
  temporeal excite robot=crazyflie out=outputs/excite command=ctbr_cmd seconds=90 reach_m=0.4
  temporeal excite robot=franka out=outputs/excite share=0.2
  temporeal excite robot=crazyflie seconds=120 --information --precision 0.02
  temporeal excite robot=crazyflie --information --log log15
  temporeal deploy outputs/excite --sim
"""
OWN = ("robot", "out")
ENDS = {
    "motor_cmd": "at the end it sinks to land_m and its rotors go off; a stop before that is silence: IT FALLS",
    "ctbr_cmd": "at the end, and at a stop, the guard levels and lands it",
    "joint_pos_cmd": "at the end it is at home, and held there; a stop holds it where it is"}


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("excite", HELP)
    p.add_argument("words", nargs="*", metavar="key=value", help="robot=NAME out=FOLDER, and settings")
    p.add_argument("--information", action="store_true", help="what the log will tell; nothing is written without "
                                                                        "out=")
    p.add_argument("--precision", type=float, default=0.05, metavar="SHARE",
                   help="that is wanted: standard deviation over the value; of what may be 0, over the prior's 90 %% "
                        "range (%(default)s)")
    p.add_argument("--log", type=Path, metavar="LOG", help="with --information: of this flight, a log, a bag or a "
                   "dataset")
    p.add_argument("--anyway", action="store_true", help="use a --log in which something is wrong")
    p.add_argument("--settings", action="store_true", help="print the settings for the robot, and what they are now")
    p.add_argument("--sign", type=Path, metavar="KEY.pem", help="sign the artifact with this secret key (Ed25519)")
    add_overwrite(p)
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Plan, rehearse, write."""
    options = parser().parse_intermixed_args(argv)
    given = parsed(options.words)
    from temporeal.policies.excitation import writing

    check(options, given)
    with bad_input():
        robot = robot_of(given)
        kind, plan_of = writing.kind_of(robot)
        settings = settings_of(kind, given)
        if options.settings:
            say("\n".join(f"{f.name}={getattr(settings, f.name)}" for f in fields(settings)))
            return OK
        plan = None if options.log is not None else plan_of(robot, settings)
        told = expectation(options, given, plan) if options.information else None
        written = None if "out" not in given else write(plan, Path(given["out"]), options)
    if options.json:
        print_json({**({} if written is None else figures(written, Path(given["out"]))),
                    **({} if told is None else {"expected": told})})
        return OK
    for text in ([] if told is None else [table(told, options.precision)]) + (
            [] if written is None else [describe(written, Path(given["out"]))]):
        say(text)
    return OK


def check(options: Any, given: Mapping[str, str]) -> None:
    """What is asked for goes together."""
    if not 0 < options.precision < 1:
        raise BadInput(f"--precision {options.precision:g}: a share between 0 and 1 is needed, such as 0.05")
    if options.log is not None:
        if not options.information:
            raise BadInput("--log is of --information: what a recorded flight tells")
        if more := [key for key in given if key != "robot"]:
            raise BadInput(f"{more[0]}={given[more[0]]}: a flight that was recorded has no settings; give robot= and "
                           "--log alone")
    elif options.anyway:
        raise BadInput("--anyway is of --log: it uses a flight in which something is wrong")
    if options.sign is not None and "out" not in given:
        raise BadInput("--sign signs what is written: give out=FOLDER, too")
    if "out" not in given and not (options.information or options.settings):
        raise BadInput("out=FOLDER is needed: where the artifact is written")


def write(plan: Any, out: Path, options: Any) -> Written:
    """Rehearse and write the artifact, and sign it if asked to."""
    from temporeal.policies.excitation import writing
    from temporeal.policies.runs import run_folders
    from temporeal.policies.runs.replacing import refuse_to_replace
    from temporeal.robots.artifact.loading import refuse_other_folder
    from temporeal.robots.artifact.signature import secret_key, sign

    if options.sign is not None:
        secret_key(options.sign)
    run_folders.check_writable(out.parent)
    refuse_other_folder(out)
    refuse_to_replace(out, options.overwrite, "out=")
    written = writing.write(plan, out)
    if options.sign is not None:
        sign(out, options.sign)
    return written


def expectation(options: Any, given: Mapping[str, str], plan: Any) -> dict[str, Any]:
    """What is to be expected of the planned flight, or of the recorded one, as --json prints it."""
    from math import isfinite

    from temporeal.policies.excitation import expectation
    from temporeal.sim.identification.excitation.information import expected

    found = expectation.of_plan(plan) if options.log is None else expectation.of_log(*recorded(options, given["robot"]))
    return {"seconds": found.seconds, "precision": options.precision, "parameters": {
        each.asked.name: {
            "value": each.asked.value, "unit": each.asked.unit, "relative": each.asked.relative,
            "prior_sd": each.asked.prior, "sd": each.sd, "sd_if_others_were_known": each.alone, "told": each.told,
            "needed_s": each.needed if isfinite(each.needed) else None, "mixed_up_with": list(each.mixed)}
        for each in expected(found, options.precision)}}


def recorded(options: Any, name: str) -> tuple[FlightRecord, RobotSpec, bool]:
    """The flight of --log as ``temporeal identify`` takes it: it refuses what is wrong, and reads bags. Whether its
    commands were logged slowly comes last."""
    from temporeal.policies.cli.verbs.flight_logs import identify

    words = ["--robot", name, *(["--anyway"] if options.anyway else []), "--", str(options.log)]
    (record,), robot, slow = identify.flights(identify.parser().parse_args(words))
    return record, robot, slow


def table(told: Mapping[str, Any], precision: float) -> str:
    """What is to be expected, for people."""
    after = f"after {told['seconds']:.0f} s"
    rows = [f"{'parameter':22} {'value':>9} {'unit':8} {'before':>8} {after:>12} {'needed':>8}  remark"]
    for name, each in told["parameters"].items():
        before, after = (f"{100 * each[key]:.3g} %" if each["relative"] else f"{each[key]:.2g}"
                         for key in ("prior_sd", "sd"))
        rows.append(f"{name:22} {each['value']:>9.4g} {each['unit']:8} {before:>8} {after:>12} {time_of(each):>8}  "
                    + remark(each, told["seconds"]))
    return "\n".join([*map(str.rstrip, rows), "before, after: standard deviations; needed: seconds of such a flight "
                      f"for {100 * precision:g} % of the value, or, of what may be 0, of the prior's 90 % range", ""])


def time_of(each: Mapping[str, Any]) -> str:
    """How long it takes, in words."""
    return "never" if each["needed_s"] is None else f"{each['needed_s']:.0f} s"


def remark(each: Mapping[str, Any], seconds: float) -> str:
    """What limits a parameter that is not told, or not in this time."""
    needed = each["needed_s"]
    if needed == 0:
        return "so well known before"
    parts = [] if each["told"] else ["this flight tells little of it"]
    if each["mixed_up_with"] and (needed is None or needed > seconds):
        parts.append(f"mixed up with {', '.join(each['mixed_up_with'])}")
    return "; ".join(parts)


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


def robot_of(given: Mapping[str, str]) -> RobotSpec:
    """The robot that is named."""
    from temporeal.robots.spec import load_robot, robot_names

    if "robot" not in given:
        raise BadInput(f"robot=NAME is needed, one of {', '.join(robot_names())}, or the path of a robot's folder")
    return load_robot(given["robot"])


def settings_of(kind: type[Any], given: Mapping[str, str]) -> Any:
    """The settings with what is ``given``."""
    from temporeal.robots.signals import is_number

    known = {f.name: f for f in fields(kind)}
    values: dict[str, str | float] = {}
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
            f"{ENDS[manifest.commands[0].name]}\n"
            + next_step(manifest.robot, out))


def next_step(robot: str, out: Path) -> str:
    """The next command."""
    from temporeal.robots.spec import load_robot

    if load_robot(robot).ros is None:
        return f"temporeal deploy {out} needs a ROS 2 interface, ros.yaml, which robot {robot!r} does not have"
    return f"next: temporeal deploy {out} --sim"
