"""``temporeal replay``: fly a recording again, and show every difference from what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, complain, print_json, say
from temporeal.policies.runs.errors import FAILED, OK, BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.robots.spec import RobotSpec
    from temporeal_bridge.interface.interface import Interface
    from temporeal_bridge.replay.comparison import Compared, Replay

SUMMARY = "fly a recording again: every difference from what was sent"
HELP = """\
Runs the real controller and guard, in fake time and without a robot, on the raw bytes of a bag that `temporeal deploy`
recorded, and compares what they propose and send, step by step, with what was proposed and sent; modes and events, too.
Each step gets the state that the recording says it had. A bag whose recorder was killed is replayed as far as it goes.
The artifact is the one that the bag names, or another one: then the differences are what it would have done else, each
step, on the states of the recorded flight. What cannot be repeated: docs/how-to/recording.md.

Exit status: 0 nothing differs, 1 something does, 2 bad input.

Example:
  temporeal replay outputs/deploy/20261122-101500/bag
  temporeal replay bag --artifact outputs/artifact-new --namespace /cf1 --json
"""


BESIDE = "signals.yaml"


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("replay", HELP)
    p.add_argument("bag", type=Path, metavar="BAG", help="folder (or .mcap file) of the recording")
    add_choice(p)
    p.add_argument("--tolerance", type=float, metavar="X",
                   help="a component of a command may differ by this much, in its unit (1e-5)")
    add_json(p)
    return p


def add_choice(p: Parser) -> None:
    """What of a bag is meant, and with which artifact (`temporeal report` has it, too)."""
    p.add_argument("--artifact", type=Path, help="folder of the artifact (default: the one that the bag names)")
    p.add_argument("--robot", help="must be the robot that was flown (default: what the bag says)")
    p.add_argument("--namespace", help="of the robot, where the bag has several")
    p.add_argument("--signals", type=Path, metavar="YAML",
                   help=f"topics of signals that the robot does not have (default: {BESIDE} beside the bag, if needed)")


def run(argv: Sequence[str]) -> int:
    """Replay and compare."""
    options = parser().parse_args(argv)
    if options.tolerance is not None and not 0 <= options.tolerance < float("inf"):
        raise BadInput(f"--tolerance is a number from 0, got {options.tolerance}")
    from temporeal.policies.cli.deployment.requirements import needs_bridge

    needs_bridge()
    from temporeal_bridge.mission import check_fits
    from temporeal_bridge.recording import bags
    from temporeal_bridge.replay.comparison import TOLERANCE, to_json
    from temporeal_bridge.replay.replay import needed, replay

    with refused():
        namespace, told, robot, interface = chosen(options)
        artifact = the_artifact(options, told)
        check_fits(artifact.manifest, robot, interface)
        tolerance = TOLERANCE if options.tolerance is None else options.tolerance
        recording = bags.read(options.bag, needed(interface, namespace), told.get("renamed"))
        found = replay(recording, artifact, robot, interface, namespace, tolerance)
    if options.json:
        print_json({**to_json(found), "tolerance": tolerance, "namespace": namespace,
                    "recorded_artifact": short(told), "artifact": named(artifact)})
    else:
        say(table(found, told, artifact, tolerance))
    return OK if found.equal else FAILED


@contextmanager
def refused() -> Iterator[None]:
    """What the bridge refuses is the user's input."""
    from temporeal.policies.runs import errors
    from temporeal_bridge.transports.transport import TransportError

    try:
        with errors.bad_input():
            yield
    except TransportError as error:
        raise BadInput(str(error)) from error


def chosen(options: Any) -> tuple[str, dict[str, Any], RobotSpec, Interface]:
    """Namespace of the robot, what its guard said of the artifact, the robot and its interface then."""
    from temporeal.robots.spec import load_robot
    from temporeal_bridge.interface.loading import load_interface
    from temporeal_bridge.recording import bags

    namespace, told = bags.robot_of(options.bag, options.namespace)
    if options.robot not in (None, told["robot"]):
        raise BadInput(f"--robot {options.robot}: the bag is of robot {told['robot']!r}")
    robot, signals = load_robot(told["robot"]), options.signals
    interface = load_interface(robot, told["interface"], signals)
    lacks = lacking(told, robot, interface)
    if lacks and signals is None and (signals := beside(options.bag)) is not None:
        interface = load_interface(robot, told["interface"], signals)
        complain(f"temporeal: topics of signals that the robot does not have: as in {signals}, beside the bag")
        lacks = lacking(told, robot, interface)
    if lacks:
        raise BadInput(f"{lacks}. Which topics bring what the robot does not have is not in the bag"
                       f"{f', and {signals} does not say it' if signals else ''}: give the file that was flown with as "
                       f"--signals (it was deploy.signals; `temporeal deploy --sim` leaves {BESIDE} beside the bag)")
    return namespace, told, robot, interface


def lacking(told: Mapping[str, Any], robot: RobotSpec, interface: Interface) -> str:
    """What the artifact that was flown, or its formula, reads and no topic brings; nothing of a manifest that cannot be
    read: who needs it says so."""
    from temporeal.robots.artifact.manifest import build
    from temporeal.sim.stl.language.errors import FormulaError
    from temporeal_bridge.interface.checks import check_reads
    from temporeal_bridge.interface.interface import InterfaceError
    from temporeal_bridge.monitor.formula import formula_of

    try:
        manifest = build(dict(told["manifest"]))
    except (TypeError, KeyError, ValueError, AttributeError):
        return ""
    try:
        check_reads(interface, manifest.signals)
        formula_of(manifest, robot, interface)
    except (InterfaceError, FormulaError) as error:
        return str(error)
    return ""


def beside(bag: Path) -> Path | None:
    """The topics that a simulated flight was flown with, which `temporeal deploy --sim` leaves beside the bag's folder
    (of a single file of it: beside the folder that this is in)."""
    folder = bag.absolute() if bag.is_dir() else bag.absolute().parent
    return next((file for file in (folder.parent / BESIDE, folder / BESIDE) if file.is_file()), None)


def the_artifact(options: Any, told: Mapping[str, Any]) -> Artifact:
    """The artifact that is asked for, else the one that was flown, if it still lies where it was."""
    from temporeal.policies.runs import artifacts
    from temporeal.robots.artifact.manifest import MANIFEST, identity

    if options.artifact is not None:
        return artifacts.load_artifact(options.artifact)
    folder = Path(told["folder"] or "")
    if not told["folder"] or not (folder / MANIFEST).is_file():
        raise BadInput(f"the bag is of artifact {told['name']!r} ({told['identity'][:12]}), which is not in "
                       f"{told['folder'] or 'any folder that it names'} any more: say where it is with --artifact")
    artifact = artifacts.load_artifact(folder)
    if identity(artifact.manifest) != told["identity"]:
        raise BadInput(f"{folder} holds another artifact now ({identity(artifact.manifest)[:12]}) than the one that "
                       f"was flown ({told['identity'][:12]}); give one with --artifact, or this one if you mean it")
    return artifact


def short(told: Mapping[str, Any]) -> dict[str, Any]:
    """The artifact that was flown, without its manifest."""
    return {key: value for key, value in told.items() if key != "manifest"}


def named(artifact: Artifact) -> dict[str, Any]:
    """The artifact that is replayed."""
    from temporeal.robots.artifact.manifest import identity

    return {"name": artifact.manifest.name, "identity": identity(artifact.manifest), "folder": str(artifact.path)}


def table(found: Replay, told: Mapping[str, Any], artifact: Artifact, tolerance: float) -> str:
    """For a person: per flight a line for each kind of commands, then what else differs."""
    from temporeal_bridge.recording.records import remarks

    mine = named(artifact)
    same = mine["identity"] == told["identity"]
    lines = [f"artifact: {mine['name']} ({mine['identity'][:12]})"
             + ("" if same else f", not the one that was flown: {told['name']} ({told['identity'][:12]})")]
    if found.cut:
        lines.append(f"the bag is not whole ({found.cut}): replayed as far as it goes")
    if found.partial:
        lines.append(f"{found.partial} flights began before the recording, or lack their first chunk: they were "
                     "left out")
    lines += [f"left out: {reason}" for reason in found.refused]
    lines += remarks(found.unread)
    lines.append(f"{'flight':>6}  {'commands':12} {'compared':>8} {'differ':>6} {'first':>5} {'missing':>7} "
                 f"{'extra':>5}  largest difference by component")
    for flight in found.flights:
        for name in ("chunks", "proposed", "sent", "own"):
            kind: Compared | None = getattr(flight, name)
            if kind is not None and (kind.count or kind.missing or kind.extra):
                first = "" if kind.first is None else kind.first
                lines.append(
                    f"{flight.flight:6}  {TITLES[name]:12} {kind.count:8} {kind.differing:6} {first:>5} "
                    f"{kind.missing:7} {kind.extra:5}  {' '.join(f'{x:.1e}' for x in kind.largest)}")
        for title, (recorded, replayed) in (("modes", flight.modes), ("events", flight.events)):
            if recorded != replayed:
                lines.append(f"{'':8}{title}: recorded {', '.join(recorded) or 'none'}; "
                             f"replayed {', '.join(replayed) or 'none'}")
        if flight.swapped is not None:
            lines.append(f"{'':8}after step {flight.swapped} another artifact had taken over: compared up to there")
        if flight.mixed:
            lines.append(f"{'':8}{flight.mixed} commands were a mix of two controllers and were not compared as sent")
        if flight.flown_by and mine["identity"][:12] not in flight.flown_by:
            lines.append(f"{'':8}this flight began with {flight.flown_by}")
        if flight.unmade:
            lines.append(f"{'':8}the bag lacks what {flight.unmade} chunks were made of: they were played as recorded")
        if flight.unrecorded:
            lines.append(f"{'':8}the bag lacks {flight.unrecorded} chunks that were used: differences may come from "
                         "that")
        if flight.unasked:
            lines.append(f"{'':8}{flight.unasked} of the operator's: the bag has no message that asked for this stop")
        if flight.unread:
            lines.append(f"{'':8}{flight.unread} steps after the last one that was replayed could not be read as this "
                         "flight's: a clock was set back, or they are somebody else's")
        if flight.guessed or flight.lost:
            lines.append(f"{'':8}the bag lacks the state of {flight.guessed} steps and {flight.lost} steps themselves: "
                         "differences may come from that")
    bad = sum(not flight.equal for flight in found.flights)
    lines.append(f"{len(found.flights)} flights: " + (
        f"the same within {tolerance:g}" if found.equal else f"{bad} differ by more than {tolerance:g}, or otherwise"))
    return "\n".join(lines)


TITLES = {"chunks": "chunk rows", "proposed": "proposed", "sent": "sent", "own": "guard's own"}
