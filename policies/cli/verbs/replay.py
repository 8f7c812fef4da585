"""``temporeal replay``: fly a recording again, and show every difference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_trust, print_json, say
from temporeal.policies.cli.recordings import add_choice, bridge_input, chosen
from temporeal.policies.runs.errors import FAILED, OK, BadInput
from temporeal.robots.handed_over.files import lies_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from temporeal.robots.artifact.runtime import Artifact
    from temporeal_bridge.replay.comparison import Compared, Replay


SUMMARY = "fly a recording again and show every difference"
HELP = """\
Runs the real controller and guard, in simulated time and without a robot, on the raw bytes of a bag that `temporeal
deploy` recorded, and compares their proposals, commands, modes and events with the recorded ones, step by step. Each
step gets its recorded state. A bag whose recorder was killed is replayed as far as it goes. The artifact is the one
that the bag names, or another: then the differences are what it would have done on the states of the recorded flight.
What cannot be repeated: docs/how-to/recording.md.

Exit status: 0 nothing differs, 1 something does, 2 bad input.

Example:
  temporeal replay outputs/deploy/20261122-101500/bag
  temporeal replay bag --artifact outputs/artifact-new --namespace /cf1 --json
"""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("replay", HELP)
    p.add_argument("bag", type=Path, metavar="BAG", help="folder (or .mcap file) of the recording")
    add_choice(p)
    p.add_argument("--tolerance", type=float, metavar="X",
                   help="a component of a command may differ by this much, in its unit (1e-5)")
    add_trust(p)
    add_json(p)
    return p


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

    with bridge_input():
        namespace, mission, robot, interface = chosen(options)
        artifact = the_artifact(options, mission)
        check_fits(artifact.manifest, robot, interface)
        tolerance = TOLERANCE if options.tolerance is None else options.tolerance
        recording = bags.read(options.bag, needed(interface, namespace), mission.get("renamed"))
        found = replay(recording, artifact, robot, interface, namespace, tolerance)
    if options.json:
        print_json({**to_json(found), "tolerance": tolerance, "namespace": namespace,
                    "recorded_artifact": short(mission), "artifact": named(artifact)})
    else:
        say(table(found, mission, artifact, tolerance))
    return OK if found.equal else FAILED


def the_artifact(options: Any, mission: Mapping[str, Any]) -> Artifact:
    """The artifact that was asked for, else the one that was flown, if it is still where it was."""
    from temporeal.policies.runs import artifacts
    from temporeal.robots.artifact.manifest import MANIFEST, identity

    if options.artifact is not None:
        return artifacts.load_artifact(options.artifact, options.trust)
    folder = Path(mission["folder"] or "")
    if mission["folder"] and not lies_in(folder, Path.cwd(), options.bag.absolute().parent):
        raise BadInput(f"the bag is of artifact {mission['name']!r} in {folder}, which is neither beside the bag nor "
                       "below the working directory: say yourself where it is, with --artifact")
    if not mission["folder"] or not (folder / MANIFEST).is_file():
        raise BadInput(f"the bag is of artifact {mission['name']!r} ({mission['identity'][:12]}), which is not in "
                       f"{mission['folder'] or 'any folder that it names'} any more: say where it is with --artifact")
    artifact = artifacts.load_artifact(folder, options.trust)
    if identity(artifact.manifest) != mission["identity"]:
        raise BadInput(f"{folder} holds another artifact now ({identity(artifact.manifest)[:12]}) than the one that "
                       f"was flown ({mission['identity'][:12]}); give one with --artifact, or this one if you mean it")
    return artifact


def short(mission: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded artifact, without its manifest."""
    return {key: value for key, value in mission.items() if key != "manifest"}


def named(artifact: Artifact) -> dict[str, Any]:
    """The replayed artifact."""
    from temporeal.robots.artifact.manifest import identity

    return {"name": artifact.manifest.name, "identity": identity(artifact.manifest), "folder": str(artifact.path)}


def table(found: Replay, mission: Mapping[str, Any], artifact: Artifact, tolerance: float) -> str:
    """Per flight a line for each kind of command, and what else differs."""
    from temporeal_bridge.recording.records import remarks

    mine = named(artifact)
    same = mine["identity"] == mission["identity"]
    lines = [f"artifact: {mine['name']} ({mine['identity'][:12]})"
             + ("" if same else f", not the one that was flown: {mission['name']} ({mission['identity'][:12]})")]
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
