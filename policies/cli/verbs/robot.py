"""``temporeal robot``: robots of your own, from a URDF, xacro or MJCF."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from temporeal.policies.cli.console import Parser, add_json, add_overrides, add_overwrite, print_json, say
from temporeal.policies.runs.errors import FAILED, OK, BadInput, bad_input
from temporeal.robots.registry import guess

SUMMARY = "take in a robot of your own: its model, its limits, its interface, checks"
HELP = """\
  temporeal robot new MODEL --out FOLDER   write a robot's folder from a URDF, xacro or MJCF file
  temporeal robot check ROBOT              read it: model, limits, home, gravity, interface; --bus: names on its bus
  temporeal robot view ROBOT               look at it at home, in the browser or as a PNG
  temporeal robot list                     the robots that are found by name

A robot's folder is data: spec.yaml (joints, commands, limits, home), the model and its meshes, ros.yaml (the ROS 2
interface and what the guard demands) and a README with the next commands. Tasks, `deploy` and all other verbs take it
by its path (robot=my_arm in the folder above it), or by its name where TEMPOREAL_PATH names the folder above it.

`new` asks what neither the file nor the flags nor the file of answers say; without a terminal, or with --yes, it takes
its proposals and lists them. A xacro's Python expressions are evaluated: read a file of somebody else's first. Nothing
else that is handed over runs code.

Example:
  temporeal robot new arm.urdf --out my_arm
  temporeal robot new arm.urdf.xacro --out my_arm --tool tool0 --home 0 -1.2 1.5 0 0.8 0 --package my_meshes=../meshes
  temporeal robot new --kind quadrotor --answers drone.yaml --out my_drone
  temporeal robot check my_arm --bus deploy.namespace=/arm1
"""


def parser() -> Parser:
    """What stands before the options of a part; its help has those, too."""
    p = Parser("robot", HELP)
    p.add_argument("what", help=f"{', '.join(PARTS)}: each has its own --help")
    p.epilog = "\n".join(part(what).format_help() for what in PARTS)
    return p


def part(what: str) -> Parser:
    """The options of a part."""
    add, work = PARTS[what]
    p = Parser(f"robot {what}", str(work.__doc__))
    add(p)
    return p


def add_check(p: Parser) -> None:
    """Options of ``check``."""
    p.add_argument("robot", metavar="ROBOT", help="a robot's name, or the path of its folder or model file")
    p.add_argument("--bus", action="store_true", help="also join the robot's bus, send nothing, and compare names")
    p.add_argument("--seconds", type=float, default=3.0, metavar="S", help="with --bus: how long to listen (3)")
    add_overrides(p)
    add_json(p)


def add_view(p: Parser) -> None:
    """Options of ``view``."""
    p.add_argument("robot", metavar="ROBOT", help="a robot's name, or the path of its folder or model file")
    p.add_argument("--png", type=Path, metavar="FILE", help="write a picture and stop")
    p.add_argument("--seconds", type=float, metavar="S", help="in the browser: stop after so long")
    p.add_argument("--port", type=int, help="port to serve on")
    add_overwrite(p)
    add_json(p)


def add_new(p: Parser) -> None:
    """Options of ``new``."""
    p.add_argument("model", type=Path, nargs="?", metavar="MODEL", help="a .urdf, .xacro or .xml (MJCF) file")
    p.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the robot's folder, of the robot's name")
    p.add_argument("--kind", help="arm, hand, quadrotor, mobile_base or legged")
    p.add_argument("--tool", metavar="LINK", help="arm: the link, body or site that is the tool")
    p.add_argument("--driven", nargs="+", metavar="JOINT", help="the driven joints, in the order of commands")
    p.add_argument("--gripper", nargs="+", metavar="JOINT", help="the joint that opens the gripper; or: none")
    p.add_argument("--home", nargs="+", metavar="X", help="rad or m, in the order of the driven joints")
    p.add_argument("--control-hz", dest="control_hz", type=float, help="how often a policy sets a command")
    p.add_argument("--interface", help="how the driver takes commands (joint_trajectory, ...)")
    p.add_argument("--answers", type=Path, metavar="FILE.yaml", help="answers: kind, tool, driven, gripper, home, "
                   "limits, control_hz, rate_hz, exclude, interface, packages, quadrotor, license")
    p.add_argument("--package", action="append", default=[], metavar="NAME=FOLDER", help="a ROS package of meshes")
    p.add_argument("--xacro", action="append", default=[], metavar="NAME=VALUE", help="an argument of a xacro")
    p.add_argument("--yes", action="store_true", help="ask nothing: take what is proposed")
    add_overwrite(p)
    add_json(p)


def run(argv: Sequence[str]) -> int:
    """One of the parts."""
    if not argv or argv[0] not in PARTS:
        if not argv or not argv[0].startswith("-"):
            word = argv[0] if argv else ""
            raise BadInput(f"{' '.join(['robot', *argv[:1]])}: {guess(word, PARTS)}what to do is one of "
                           f"{', '.join(PARTS)}; see temporeal robot --help")
        parser().parse_args(argv)  # --help, and what is no option
    p, work = part(argv[0]), PARTS[argv[0]][1]
    return work(p.parse_intermixed_args(argv[1:]) if argv[0] == "check" else p.parse_args(argv[1:]))


def new(options: Any) -> int:
    """Write a robot's folder."""
    from temporeal.policies.cli.own_robot.answers import Answers, asked_on_terminal, read_answers
    from temporeal.policies.cli.own_robot.making import make

    flags = {name: getattr(options, name) for name in ("kind", "tool", "driven", "gripper", "control_hz", "interface")}
    if options.home is not None:
        flags["home"] = numbers(options.home)
    if options.package:
        flags["packages"] = dict(pair(word, "--package") for word in options.package)
    given = read_answers(options.answers, flags)
    if options.model is None and given.get("kind") != "quadrotor":
        raise BadInput("robot new needs a MODEL file; only a quadrotor (--kind quadrotor) can do without")
    asks = not options.yes and not options.json and sys.stdin.isatty()
    answers = Answers(given, asked_on_terminal if asks else None)
    robot, notes = make(options.model, options.out, answers, overwrite=options.overwrite,
                        xacro=dict(pair(word, "--xacro") for word in options.xacro))
    if options.json:
        print_json({"robot": options.out.name, "folder": options.out, "kind": robot.kind, "assumed": notes})
        return OK
    say(f"{options.out}: {robot.kind}, commands {', '.join(robot.commands)}")
    for note in notes:
        say(f"  - {note}")
    say(f"\nnext: temporeal robot check {options.out}; more commands in {options.out / 'README.md'}")
    return OK


def numbers(words: list[str]) -> list[float]:
    """``words`` as numbers."""
    try:
        return [float(word) for word in words]
    except ValueError as error:
        raise BadInput(f"--home: {error}") from error


def pair(word: str, flag: str) -> tuple[str, str]:
    """NAME=VALUE as two texts."""
    name, sign, value = word.partition("=")
    if not sign or not name:
        raise BadInput(f"{flag} {word}: NAME=VALUE is needed")
    return name, value


def listed(options: Any) -> int:
    """The robots that are found by name."""
    from temporeal.robots.search_path import VARIABLE, said
    from temporeal.robots.spec import load_robot, own_folders, shipped

    rows = []
    with bad_input():
        own = own_folders()
        for name in [*own, *shipped()]:
            try:
                robot = load_robot(name)
                rows.append({"robot": name, "kind": robot.kind, "from": str(own.get(name, "temporeal")),
                             "commands": list(robot.commands)})
            except ValueError as error:
                rows.append({"robot": name, "kind": "refused", "from": str(own[name]), "commands": [],
                             "why": str(error)})
    if options.json:
        print_json({"robots": rows})
        return OK
    for row in rows:
        say(f"{row['robot']:16}  {row['kind']:11}  {', '.join(row['commands']) or row.get('why', '')}"
            + (f"  ({row['from']})" if row["robot"] in own else ""))
    if not own:
        say(f"\nrobots of your own: {VARIABLE} names the folders above theirs ({said()})")
    return OK


def check(options: Any) -> int:
    """Check a robot; status 1 if a check failed."""
    from dataclasses import asdict
    from itertools import chain

    from temporeal.policies.cli.own_robot.checking import checks, on_bus
    from temporeal.policies.cli.preflight.findings import lines

    if options.overrides and not options.bus:
        raise BadInput(f"{options.overrides[0]}: settings of the bus need --bus")
    found = []
    bus = on_bus(options.robot, options.overrides, options.seconds) if options.bus else ()
    for each in chain(checks(options.robot), bus):
        found.append(each)
        if not options.json:
            say(lines(each))
    failed = [each.name for each in found if each.status == "fail"]
    if options.json:
        print_json({"ok": not failed, "failed": failed, "checks": [asdict(each) for each in found]})
    else:
        say(f"\n{'not ready: ' + ', '.join(failed) if failed else 'ready'}")
    return FAILED if failed else OK


def view(options: Any) -> int:
    """Look at a robot at home."""
    from temporeal.policies.cli.own_robot.viewing import look

    return look(options)


PARTS: Mapping[str, tuple[Callable[[Any], None], Callable[[Any], int]]] = {
    "new": (add_new, new), "check": (add_check, check), "view": (add_view, view), "list": (add_json, listed)}
