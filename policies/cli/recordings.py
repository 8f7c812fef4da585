"""Which robot of a recording is meant, and its interface then; options that commands on recordings share."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from temporeal.policies.cli.console import Parser, complain
from temporeal.policies.runs.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from temporeal.robots.spec import RobotSpec
    from temporeal_bridge.interface.interface import Interface


BESIDE = "signals.yaml"


def add_choice(p: Parser) -> None:
    """Options that choose the robot and the artifact of a bag."""
    p.add_argument("--artifact", type=Path, help="folder of the artifact (default: the one that the bag names)")
    p.add_argument("--robot", help="must be the robot that was flown (default: what the bag says)")
    p.add_argument("--namespace", help="of the robot, where the bag has several")
    p.add_argument("--signals", type=Path, metavar="YAML",
                   help=f"topics of signals that the robot does not have (default: {BESIDE} beside the bag, if needed)")


@contextmanager
def bridge_input() -> Iterator[None]:
    """What the bridge refuses is the user's to correct."""
    from temporeal.policies.runs import errors
    from temporeal_bridge.transports.transport import TransportError

    try:
        with errors.bad_input():
            yield
    except TransportError as error:
        raise BadInput(str(error)) from error


class Recorded(NamedTuple):
    """A robot of a recording: its namespace, what its guard recorded of the artifact, and its interface then."""

    namespace: str
    mission: Mapping[str, Any]
    robot: RobotSpec
    interface: Interface


def chosen(options: Any) -> Recorded:
    """The robot that ``options`` choose, with its interface at the flight."""
    from temporeal.robots.handed_over.robots import named_robot
    from temporeal_bridge.interface.loading import load_interface
    from temporeal_bridge.recording import bags

    namespace, mission = bags.robot_of(options.bag, options.namespace)
    if options.robot not in (None, mission["robot"]):
        raise BadInput(f"--robot {options.robot}: the bag is of robot {mission['robot']!r}")
    robot, signals = named_robot(mission["robot"]), options.signals
    interface = load_interface(robot, mission["interface"], signals)
    lacks = lacking(mission, robot, interface)
    if lacks and signals is None and (signals := beside(options.bag)) is not None:
        interface = load_interface(robot, mission["interface"], signals)
        complain(f"temporeal: topics of signals that the robot does not have: from {signals}, beside the bag")
        lacks = lacking(mission, robot, interface)
    if lacks:
        raise BadInput(f"{lacks}. The bag does not say which topics carry signals that the robot does not have"
                       f"{f', and neither does {signals}' if signals else ''}: give the file of the flight as --signals"
                       f" (it was deploy.signals; `temporeal deploy --sim` leaves {BESIDE} beside the bag)")
    return Recorded(namespace, mission, robot, interface)


def lacking(mission: Mapping[str, Any], robot: RobotSpec, interface: Interface) -> str:
    """What the recorded artifact, or its formula, reads and no topic carries; empty if its manifest cannot be read,
    which is reported where it is needed."""
    from temporeal.robots.artifact.manifest import build
    from temporeal.sim.stl.language.errors import FormulaError
    from temporeal_bridge.instruction.sentences import missions_of
    from temporeal_bridge.interface.checks import check_reads
    from temporeal_bridge.interface.interface import InterfaceError
    from temporeal_bridge.mission import own_signals
    from temporeal_bridge.monitor.formula import formula_of

    try:
        manifest = build(dict(mission["manifest"]))
    except (TypeError, LookupError, ValueError, AttributeError, ArithmeticError):
        return ""
    try:
        check_reads(interface, manifest.signals, own=tuple(own_signals(manifest)))
        for said in missions_of(manifest, robot, interface, ()):
            formula_of(said, robot, interface)
    except (InterfaceError, FormulaError) as error:
        return str(error)
    return ""


def beside(bag: Path) -> Path | None:
    """The topics of a simulated flight, which `temporeal deploy --sim` leaves beside the bag (of a single file: beside
    its folder)."""
    folder = bag.absolute() if bag.is_dir() else bag.absolute().parent
    return next((file for file in (folder.parent / BESIDE, folder / BESIDE) if file.is_file()), None)
