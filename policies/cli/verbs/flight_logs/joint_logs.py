"""``temporeal identify`` of arms and hands: which logs are theirs, how they are read, what is said of them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli import recordings
from temporeal.policies.cli.console import complain
from temporeal.policies.runs.errors import BadInput

if TYPE_CHECKING:
    from temporeal.policies.data.episodes.episode import Episode
    from temporeal.robots.spec import RobotSpec
    from temporeal.sim.identification.joints.identify import Identified
    from temporeal.sim.identification.joints.record import JointRecord

SLOWEST_HZ, FASTEST_HZ, USUAL_HZ = 20.0, 100.0, 100.0
"""Of samples, where nobody says: the rate of the robot's topic within these, or the last."""
FLYING = "quadrotor"
SLOWEST_REACH_S = 10.0
"""In which a controller may go to a setpoint, at most."""


def robot_of(options: Any) -> RobotSpec | None:
    """The robot of the first log, if it is one of joints; None: it is a quadrotor, or nobody says."""
    from temporeal.policies.cli.verbs.flight_logs import reading
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.flight_logs import recorded
    from temporeal.policies.data.formats.kinds import ROSBAG

    path, kind = options.logs[0], reading.kind_of(options.logs[0], options)
    if kind not in (ROSBAG, recorded.KIND):
        return None
    with recordings.bridge_input():
        robot = (source(path, options).robot if kind == ROSBAG else
                 reading.robot_of(options.robot or Dataset.open(path).interface.robot))
    return robot if robot is not None and robot.kind != FLYING else None


def check_reach(options: Any, robot: RobotSpec | None) -> None:
    """Refuse a time that none is, or of a flight. ``robot``: of joints; None: of a flight."""
    if options.reach is None:
        return
    if robot is None:
        raise BadInput(f"--reach {options.reach:g}: of joints alone; {options.logs[0]} is of a flight")
    if not 0 <= options.reach <= SLOWEST_REACH_S:
        raise BadInput(f"--reach {options.reach:g}: 0 (at once) to {SLOWEST_REACH_S:g} s are legal")


def source(path: Path, options: Any) -> Any:
    """What of a bag is read, at the rate that is asked for, or at any."""
    from temporeal.policies.cli.data_verbs import import_

    asked = copy(options)
    asked.rate = options.rate if options.rate is not None else USUAL_HZ
    return import_.source_of(path, asked)


def found_in(options: Any, robot: RobotSpec, settings: Any) -> Identified:
    """The parameters of ``robot``'s joints by the logs of ``options``."""
    from temporeal.sim.identification.joints.identify import identify

    for name, given in (("--align", options.align), ("--randomization", options.randomization),
                        ("--residual", options.residual)):
        if given:
            raise BadInput(f"{name}: of quadrotors; {options.logs[0]} is of {robot.name}, whose joints are identified")
    records = [record for path in options.logs for record in records_of(path, options, robot)]
    found = identify(records, robot, settings)
    if found.unsure:
        complain(f"temporeal: {len(found.unsure)} parameters rest on when commands came, which the logs say to "
                 f"{1000 * max(each.jitter for each in records):.2g} ms alone: they are called not identifiable, and "
                 "their values may be far off")
    return found


def records_of(path: Path, options: Any, robot: RobotSpec) -> Iterator[JointRecord]:
    """The runs in the log at ``path``, looked at."""
    from temporeal.policies.data.joint_logs import checks, efforts
    from temporeal.sim.identification.joints.mechanism import mechanism

    names = robot.sources["joint_pos"].names if "joint_pos" in robot.sources else ()
    for record in read(path, options, robot):
        found = list(checks.findings(record, names))
        if record.effort is not None and not any(each.wrong for each in found):
            found += efforts.findings(record, mechanism(robot, record.dt))
        if (wrong := [each for each in found if each.wrong]) and not options.anyway:
            raise BadInput(f"{record.name}: " + "; ".join(f"{each.subject} {each.said}" for each in wrong)
                           + " (--anyway uses the log as it is)")
        for each in found:
            complain(f"temporeal: {record.name}: {each.subject} {each.said}")
        yield checks.without_dead(record, found)


def read(path: Path, options: Any, robot: RobotSpec) -> Iterator[JointRecord]:
    """The runs in the log at ``path``."""
    from temporeal.policies.cli.verbs.flight_logs import reading
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.policies.data.flight_logs import recorded
    from temporeal.policies.data.formats.kinds import ROSBAG
    from temporeal.policies.data.joint_logs import records

    kind = reading.kind_of(path, options)
    if kind not in (ROSBAG, recorded.KIND):
        raise BadInput(f"{path} is of kind {kind}, a flight; {options.logs[0]} is of {robot.name}: one robot at a time")
    with recordings.bridge_input():
        if kind == ROSBAG:
            yield from of_bag(path, options, robot)
            return
        data = Dataset.open(path)
        check_robot(path, options.robot or data.interface.robot, robot)
        yield records.of_dataset(path, robot, data.interface, data.episode(options.episode or 0),
                                 options.reach or 0.0, path.name)


def check_robot(path: Path, name: str, robot: RobotSpec) -> None:
    """Refuse another robot's log."""
    if name != robot.name:
        raise BadInput(f"the logs are of several robots: {path} of {name}, the first one of {robot.name}; identify "
                       "each by itself")


def of_bag(path: Path, options: Any, robot: RobotSpec) -> Iterator[JointRecord]:
    """The parts of a bag; of several windows the one that ``--episode`` names."""
    from temporeal.policies.data.formats import rosbag
    from temporeal.policies.data.joint_logs import records

    how = source(path, options)
    check_robot(path, how.robot.name, robot)
    rate = options.rate if options.rate is not None else rate_of(how.topics)
    each = records.steps_in(rate)
    reading = rosbag.read(path, replace(how, align=replace(how.align, rate_hz=rate * each)))
    for note in reading.notes:
        complain(f"temporeal: {note}")
    parts = [(k, part) for k, part in enumerate(reading.episodes) if options.episode in (None, k)]
    if not parts:
        raise BadInput(f"--episode {options.episode}: {path} has no such part")
    for k, part in parts:
        reach = reach_of(how.topics, reading.interface.action.name) if options.reach is None else options.reach
        yield records.of_fine(path, robot, reading.interface, whole(part), each, reach,
                              path.name if len(parts) == 1 else f"{path.name}, part {k}")


def whole(part: Any) -> Episode:
    """An episode, not one that was rejected."""
    from temporeal.policies.data.formats.found import Rejected

    if isinstance(part, Rejected):
        raise BadInput(str(part))
    found: Episode = part
    return found


def rate_of(topics: Any) -> float:
    """Samples a second of the topic that carries the joints' places."""
    from temporeal_bridge.interface.interface import carried_by

    rates = [row.rate_hz for row in topics.states if "joint_pos" in carried_by(row) and row.rate_hz > 0]
    return min(max(max(rates, default=USUAL_HZ), SLOWEST_HZ), FASTEST_HZ)


def reach_of(topics: Any, command: str) -> float:
    """Seconds in which the robot's controller goes to each command; 0: at once."""
    return max(float(part.options.get("reach_s", 0.0)) for part in topics.commands[command].parts)


def remarks(content: dict[str, Any]) -> list[str]:
    """What is said below the table: the simulator's own numbers of what the table has as a sum, and what it lacks."""
    out = ["", f"{'simulator':22} {'values, joint by joint':s}"]
    for name in ("damping", "kd"):
        if name in content["simulator"]:
            out.append(f"{name:22} " + " ".join(f"{value:.4g}" for value in content["simulator"][name]["value"]))
    lacks = sorted({name.partition("[")[0] for name in content["parameters"]}
                   & {"stribeck", "stribeck_speed", "backlash"})
    lacks += ["command_delay"] if "command_delay" not in content["simulator"] else []
    return [*out, f"MuJoCo's joints do not have: {', '.join(lacks)}" if lacks else ""]
