"""Logs that a command names, inspected; bags with the options of ``temporeal data import``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli import recordings
from temporeal.policies.cli.console import Parser
from temporeal.policies.cli.data_verbs import import_
from temporeal.policies.runs.errors import BadInput

if TYPE_CHECKING:
    from temporeal.policies.data.flight_logs.flight_log import Finding, FlightLog
    from temporeal.policies.data.flight_logs.inspection import Inspection
    from temporeal.policies.data.formats.found import Reading
    from temporeal.robots.spec import RobotSpec


def add(parser: Parser) -> None:
    """Options of every part: which log it is, and, of a bag, whose."""
    parser.add_argument("--kind", metavar="NAME", help="nanobench, usdlog, ulog, dataset, rosbag2 (default: what it "
                        "looks like)")
    parser.add_argument("--align", action="store_true", help="put motion capture onto the IMU's clock, by the offset "
                        "and drift that are estimated (a bag is not imported so)")
    parser.add_argument("--rate", type=float, metavar="HZ", help="samples per second of the grid (default: of the "
                        "fastest source; bags: of the control grid)")
    parser.add_argument("--language", default="", metavar="TEXT", help="the instruction of the episodes")
    import_.add_bags(parser)


def inspected(path: Path, options: Any) -> Inspection:
    """The inspection of the log at ``path``."""
    from temporeal.policies.data.flight_logs import inspection

    with recordings.bridge_input():
        log = log_of(path, options)
        robot = robot_of(options.robot or log.robot)
        found = inspection.inspect(log, robot)
        return inspection.align(found, robot) if options.align else found


def log_of(path: Path, options: Any) -> FlightLog:
    """The log at ``path``."""
    from dataclasses import replace

    from temporeal.policies.data.flight_logs import kinds, recorded
    from temporeal.policies.data.formats.kinds import ROSBAG

    kind = kind_of(path, options)
    if kind == ROSBAG:
        return of_bag(path, options)
    log = recorded.read_episode(path, options.episode) if kind == recorded.KIND else kinds.READERS[kind](path)
    return replace(log, robot=options.robot) if options.robot else log


def kind_of(path: Path, options: Any) -> str:
    """The kind of the log at ``path``: that which is named, or what it looks like."""
    from temporeal.policies.data.flight_logs import kinds

    if options.kind not in (None, *kinds.KINDS):
        raise BadInput(f"--kind {options.kind}: legal are {', '.join(kinds.KINDS)}")
    return str(options.kind or kinds.kind_of(path))


def bag(path: Path, options: Any) -> Reading:
    """The episodes of a bag."""
    from temporeal.policies.data.formats import rosbag

    return rosbag.read(path, import_.source_of(path, options))


def of_bag(path: Path, options: Any) -> FlightLog:
    """One episode of a bag as a log."""
    from dataclasses import replace

    from temporeal.policies.data.flight_logs import recorded
    from temporeal.policies.data.formats.found import Rejected
    from temporeal.policies.data.formats.kinds import ROSBAG
    from temporeal_bridge.recording import bags

    reading = bag(path, options)
    with bags.opened(path) as (_, cut):
        pass
    found = list(reading.episodes)
    if not 0 <= options.episode < len(found):
        raise BadInput(f"--episode {options.episode}: {path} has {len(found)}, from 0 on")
    episode = found[options.episode]
    if isinstance(episode, Rejected):
        raise BadInput(str(episode))
    return replace(recorded.log_of(path, ROSBAG, reading.interface, episode), notes=reading.notes, cut=cut)


def robot_of(name: str) -> RobotSpec | None:
    """The robot of that name; None where nobody names one."""
    from temporeal.policies.data.formats.checks import UNKNOWN_ROBOT
    from temporeal.robots.spec import load_robot

    return load_robot(name) if name not in ("", UNKNOWN_ROBOT) else None


def rows(found: Inspection) -> list[dict[str, Any]]:
    """The findings for machines."""
    return [{"check": each.check, "subject": each.subject, "status": each.status, "defect": each.defect,
             "said": each.said, "figures": dict(each.figures)} for each in found.findings]


def lines(found: Inspection) -> list[str]:
    """The findings for people; columns of which nothing is to be said are one line."""
    quiet = [each for each in found.findings if is_quiet(each)]
    out = [f"{each.status:8} {each.check:12} {each.subject}: {each.said}" for each in found.findings
           if not is_quiet(each)]
    return [*out, f"good     values       {len(quiet)} columns: {quiet[0].said}"] if quiet else out


def is_quiet(each: Finding) -> bool:
    """Whether a column has nothing of its own to say."""
    return each.check == "values" and each.status == "good" and not each.figures
