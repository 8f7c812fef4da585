"""What ``temporeal log import`` takes of a log: its episodes, each judged before it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli import recordings
from temporeal.policies.cli.verbs.flight_logs import reading
from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.flight_logs import conversion, inspection, recorded
from temporeal.policies.data.formats import checks
from temporeal.policies.data.formats.found import Reading, Rejected
from temporeal.policies.data.formats.kinds import ROSBAG

if TYPE_CHECKING:
    from temporeal.policies.data.episodes.episode import Episode
    from temporeal.policies.data.flight_logs.inspection import Inspection
    from temporeal.robots.spec import RobotSpec


def of_log(path: Path, options: Any, found: dict[str, Inspection]) -> Reading:
    """The episodes of a log, whose inspections go into ``found``; refused where something is wrong."""
    with recordings.bridge_input():
        kind = reading.kind_of(path, options)
        if kind == recorded.KIND:
            raise DataError("it is a dataset already: temporeal data merge copies it")
        if kind == ROSBAG:
            return of_bag(path, options, found)
        one = found[str(path)] = reading.inspected(path, options)
        if why := refused(one, options):
            raise DataError(why)
        return conversion.reading_of(one, options.rate, options.gap, options.shortest)


def of_bag(path: Path, options: Any, found: dict[str, Inspection]) -> Reading:
    """The episodes of a bag, each of which is judged by itself when it is read."""
    from temporeal_bridge.recording import bags

    if options.align:
        raise DataError("--align cannot import a bag: its topics are put onto one grid as they are, and none is moved; "
                        "temporeal log inspect --align says whether a line would put them right")
    read = reading.bag(path, options)
    with bags.opened(path) as (_, cut):
        pass
    robot = reading.robot_of(options.robot or read.interface.robot)
    return read._replace(episodes=judged(path, options, read, robot, cut, found))


def judged(path: Path, options: Any, read: Reading, robot: RobotSpec | None, cut: str, found: dict[str, Inspection]
           ) -> Iterator[Episode | Rejected]:
    """The episodes of a bag that can be used, with what was found in their ``info``; why the others cannot."""
    for number, episode in enumerate(read.episodes):
        if isinstance(episode, Rejected):
            yield episode
            continue
        where = f"{path}, episode {number}"
        try:
            log = recorded.log_of(path, ROSBAG, read.interface, episode)
            one = found[where] = inspection.inspect(replace(log, cut=cut), robot)
        except checks.DAMAGED as error:
            yield checks.rejected(where, error)
            continue
        why = refused(one, options)
        yield Rejected(where, why) if why else replace(episode, info={**episode.info, **conversion.verdict_of(one)})


def refused(one: Inspection, options: Any) -> str:
    """Why a log or an episode is not imported; "": it is."""
    wrong = [] if options.anyway else one.of("wrong")
    return "; ".join(f"{each.subject}: {each.said}" for each in wrong) + " (--anyway imports it as it is)" * bool(wrong)
