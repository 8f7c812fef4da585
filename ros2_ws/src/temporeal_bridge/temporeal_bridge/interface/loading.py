"""Reads a robot's ``ros.yaml``, and a user's file of extra topics, into a checked :class:`Interface`.

A driver need not publish every signal of the robot's spec, and a task has signals that no robot knows (its goal, an
object's pose). Those come from topics of a user's file, ``load_interface(robot, name, extra=path)``:

    definitions: {}
    signals:
      goal_pos_w: {shape: [3], unit: m, frame: w}
    states:       # rate_hz 0: published on change (latched); required once, but never stale
      - {topic: goal, type: geometry_msgs/msg/PointStamped, codec: point, rate_hz: 0, qos: latched,
         options: {signal: goal_pos_w, frame: fr3_link0}}

Cameras are in that file, too: they belong to a place, not to a robot. Their topics are under ``pictures`` (keys of a
state, and ``max_age_s``), their positions in simulation under ``cameras``
(:mod:`temporeal_bridge.simulated_robot.camera_exposures`). Both parts are optional; docs/how-to/deploying.md shows a
file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from temporeal.robots.motion.kinematics import kinematics_of
from temporeal.robots.registry import guess
from temporeal.robots.signals import SignalSpec, is_number
from temporeal.robots.spec import RobotSpec, shipped
from temporeal_bridge.interface.checks import NODE_TOPICS, carried_signals, check_row, check_topics
from temporeal_bridge.interface.interface import (
    ARM,
    Autopilot,
    CommandTopic,
    Interface,
    InterfaceError,
    PictureTopic,
    StateTopic,
    Topic,
    rows_of,
)
from temporeal_bridge.interface.rows import (
    AUTOPILOT,
    COMMAND,
    EXTRA,
    MAY_HAVE,
    PART,
    PARTS,
    PICTURE,
    PICTURES,
    STATE,
    TOP,
    TOPIC,
    checked_row,
    is_text,
    listed,
    located,
    read_yaml,
)
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import resolve_name


def load_interface(
    robot: RobotSpec, name: str | None = None, extra: Path | str | Mapping[str, Any] | None = None
) -> Interface:
    """Interface ``name`` of ``robot`` (None: its default), with the topics of the file ``extra``, or its content.

    Message types that plain ROS 2 lacks are defined on the way.
    """
    file = interface_file(robot)
    given = isinstance(extra, (Path, str))
    more = read_yaml(Path(extra), EXTRA) if isinstance(extra, (Path, str)) else extra
    try:
        return build(robot, read_yaml(file), name, more)
    except InterfaceError as error:
        raise InterfaceError(f"{file}{f', with {extra}' if given else ''}: {error}") from error


def interface_file(robot: RobotSpec) -> Path:
    """The robot's ``ros.yaml``; an InterfaceError where it has none says how to get one."""
    if robot.ros is None and robot.name in shipped():
        raise InterfaceError(f"robot {robot.name!r} exists in simulation only: it has no ROS 2 interface")
    folder = robot.model.parent if robot.model is not None else Path(robot.name)
    file = robot.ros or folder / "ros.yaml"
    if robot.ros is None or not file.exists():
        raise InterfaceError(
            f"nothing says how to speak to robot {robot.name!r} over ROS 2: there is no {file}. `temporeal robot new` "
            "writes one into a folder for the robot, from templates for ros2_control, PX4, MAVROS, Crazyswarm2 and "
            "mobile bases (docs/reference/robots/interfaces.md)")
    return file


def interface_names(robot: RobotSpec) -> tuple[str, ...]:
    """Names of the interfaces in the robot's file."""
    return tuple(read_yaml(interface_file(robot)).get("interfaces") or ())


def build(
    robot: RobotSpec, content: Mapping[str, Any], name: str | None, extra: Mapping[str, Any] | None = None
) -> Interface:
    """The interface from the content of ``ros.yaml`` and of the file ``extra``."""
    checked_row("ros.yaml", content, TOP)
    name = name or content["default"]
    known = content["interfaces"]
    if name not in known:
        raise InterfaceError(f"robot {robot.name!r} has no interface {name!r}; {guess(name, known)}known: "
                             f"{', '.join(known)}")
    part = known[name]
    checked_row(name, part, PARTS, MAY_HAVE)
    define(name, part["definitions"])
    states = tuple(own_chain(robot, StateTopic(**checked_row(f"{name}.states", row, STATE)))
                   for row in part["states"] or ())
    commands = {key: command_topic(f"{name}.commands.{key}", row) for key, row in part["commands"].items()}
    autopilot = autopilot_of(f"{name}.autopilot", part["autopilot"]) if part.get("autopilot") is not None else None
    specs, pictures = dict(robot.signals), tuple[PictureTopic, ...]()
    cameras: Mapping[str, Any] = {}
    if extra is not None:
        more, rows = extra_topics(robot, extra)
        specs, states = {**specs, **more}, (*states, *rows)
        pictures, cameras = picture_topics(extra)
    carried = carried_signals(robot, specs, states, commands, pictures)
    check_topics((*states, *pictures), commands, autopilot)
    rivals = rival_topics(f"{name}.rivals", part.get("rivals") or (), (*states, *pictures), commands, autopilot)
    lost = sorted(set(specs) - set(robot.signals) - set(carried))
    if lost:
        raise InterfaceError(f"extra signals: no topic carries {lost}")
    return Interface(name, states, commands, content["safety"], content["simulation"], carried, autopilot,
                     offers_of(known), pictures, cameras, rivals)


def own_chain(robot: RobotSpec, row: StateTopic) -> StateTopic:
    """The row with the robot's own kinematics, where its option ``tool`` names them ``self``."""
    tool = row.options.get("tool")
    if not isinstance(tool, Mapping) or tool.get("chain") != "self":
        return row
    with located(f"{row.topic}: option tool"):
        return replace(row, options={**row.options, "tool": {**tool, "chain": kinematics_of(robot)}})


def offers_of(interfaces: Mapping[str, Any]) -> dict[str, list[str]]:
    """By command, the interfaces that have it."""
    offers: dict[str, list[str]] = {}
    for key, other in interfaces.items():
        for command in checked_row(key, other, PARTS, MAY_HAVE)["commands"]:
            offers.setdefault(command, []).append(key)
    return offers


def extra_topics(
    robot: RobotSpec, content: Mapping[str, Any]
) -> tuple[dict[str, SignalSpec], tuple[StateTopic, ...]]:
    """Signals and state rows of a user's file of topics."""
    checked_row("extra", content, EXTRA, PICTURES)
    define("extra", content["definitions"])
    specs = {}
    for name, row in (content["signals"] or {}).items():
        if name in robot.signals:
            raise InterfaceError(f"extra signal {name!r} is one of robot {robot.name!r}, which declares it already")
        if not isinstance(row, Mapping) or not {"shape", "unit"} <= set(row) <= {"shape", "unit", "frame", "dtype"}:
            raise InterfaceError(f"extra signal {name!r} has {listed(row)}; shape and unit are needed, frame and dtype "
                                 f"are legal")
        with located(f"extra signal {name!r}"):
            specs[name] = SignalSpec(name, **{**row, "shape": shape_of(row["shape"])})
    return specs, tuple(StateTopic(**checked_row("extra.states", row, STATE)) for row in content["states"] or ())


def shape_of(value: Any) -> Any:
    """A shape as specs have it; other values are left for the spec to refuse."""
    return tuple(value) if isinstance(value, (list, tuple)) else value


def picture_topics(content: Mapping[str, Any]) -> tuple[tuple[PictureTopic, ...], Mapping[str, Any]]:
    """Picture rows and cameras of a user's file of topics."""
    rows, cameras = content.get("pictures") or (), content.get("cameras") or {}
    pictures = tuple(PictureTopic(**checked_row("extra.pictures", row, PICTURE)) for row in rows)
    for row in pictures:
        if row.rate_hz == 0:
            raise InterfaceError(f"{row.topic}: rate_hz is 0; a number above 0 is needed: pictures are sent anew")
        if row.max_age_s < 1.0 / row.rate_hz:
            raise InterfaceError(f"{row.topic}: max_age_s is {row.max_age_s:g}, but between two pictures at "
                                 f"{row.rate_hz:g} Hz there are {1.0 / row.rate_hz:.3g} s already")
    return pictures, cameras


def command_topic(where: str, row: Mapping[str, Any]) -> CommandTopic:
    """A command's row with its companions."""
    row = checked_row(where, row, COMMAND, ("also", *PART))
    others = [checked_row(f"{where}.also", other, COMMAND, PART) for other in row.get("also", ())]
    companions = tuple(CommandTopic(**{**other, **components(other)}) for other in others)
    return CommandTopic(**{**row, **components(row), "also": companions})


def components(row: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Which of the command's components the row carries."""
    return {"components": tuple(row["components"])} if "components" in row else {}


def rival_topics(
    where: str, names: Sequence[Any], states: Sequence[StateTopic], commands: Mapping[str, CommandTopic],
    autopilot: Autopilot | None,
) -> tuple[str, ...]:
    """Topics by which others could command the robot: each once, and none of the interface's or of the nodes' own."""
    between = () if autopilot is None else (autopilot.status, autopilot.orders)
    rows = [*states, *(row for each in commands.values() for row in rows_of(each)), *between]
    taken = {resolve_name(name) for name in (*NODE_TOPICS, *(row.topic for row in rows if row is not None))}
    found = dict[str, str]()
    for name in names:
        if not is_text(name):
            raise InterfaceError(f"{where}: got {name!r}; names of topics are needed")
        with located(where):
            full = resolve_name(name)
        if full in found:
            raise InterfaceError(f"{where}: topic {name!r} is listed twice; each is needed once")
        if full in taken:
            raise InterfaceError(f"{where}: topic {name!r} is one of the interface's, or of the nodes' own; needed are "
                                 "others on which the robot takes commands (topics of the interface's other commands "
                                 "count without being listed)")
        found[full] = name
    return tuple(found.values())


def autopilot_of(where: str, row: Mapping[str, Any]) -> Autopilot:
    """The autopilot's row, checked."""
    row = checked_row(where, row, AUTOPILOT)
    topics = {key: Topic(**checked_row(f"{where}.{key}", row[key], TOPIC)) for key in ("status", "orders")
              if row[key] is not None}
    for topic in topics.values():
        check_row(topic)
    if "status" not in topics:
        raise InterfaceError(f"{where}.status: a topic is needed")
    if row["arm"] not in ARM:
        raise InterfaceError(f"{where}.arm is {row['arm']!r}; legal: {', '.join(ARM)}")
    if row["arm"] == "ask" and "orders" not in topics:
        raise InterfaceError(f"{where}: arm is 'ask', but there is no topic for orders; legal then: never")
    for key in ("silent_after_s", "stream_s", "answer_s", "start_s"):
        if not is_number(row[key]) or not 0 < row[key] < 60:
            raise InterfaceError(f"{where}.{key} is {row[key]!r}; a number of seconds above 0 and below 60 is needed")
    return Autopilot(**{**row, "status": topics["status"], "orders": topics.get("orders")})


def define(where: str, definitions: Mapping[str, str] | None) -> None:
    """Add the message types."""
    with located(f"{where}.definitions"):
        messages.define(dict(definitions or {}))
