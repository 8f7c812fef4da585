"""``temporeal data record``: demonstrations by a person or a policy, in simulation or on the bus."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.cli.console import Parser, add_json, add_overrides, complain, print_json, say
from temporeal.policies.runs.errors import OK, BadInput

if TYPE_CHECKING:
    from temporeal.policies.data.recording.controls import Device
    from temporeal.policies.data.recording.live_topics import LiveRobot
    from temporeal_bridge.transports.transport import Transport

SUMMARY = "demonstrations by keyboard, gamepad, SpaceMouse, leader, policy; or live topics"
HELP = """\
Records episodes into a dataset. Each is on disk as soon as it is ended; a recording that is killed loses the open one.

In simulation, in real time at the task's control rate:
  device    keyboard · gamepad · spacemouse · leader (an arm on the bus, in namespace leader=/leader) · policy (with
            policy=RUN, a run or an artifact) · expert (by hand-written controller)
  out       the folder      append=true adds to it      episodes  how many (10)      seconds  the longest
  language  the instruction (the task's sentence)       speed     the action at full deflection, to 1
  realtime  whether to wait for the clock (not for policy and expert)      pictures  h264, av1, lossless or raw
  view      a page that shows the robot, on port=8080 (by default where a person acts; pip install viser)
Other words are settings, as `temporeal train` takes them.

With --bus, from the topics of a robot's interface, whoever commands it; keys as below, or --auto.

Keys of the terminal: b begins an episode, return ends it (the formula judges), y ends it as a success, n as a failure,
x discards it, Q quits. What moves the robot is printed at the start.

Example:
  temporeal data record task=lift device=keyboard out=demos/lift speed=0.5
  temporeal data record task=waypoints device=expert episodes=50 out=demos/mission
  temporeal data record --bus --robot franka --rate 25 --language "put the cup down" --out demos/cups
"""


def add(parser: Parser) -> None:
    """Options."""
    add_overrides(parser)
    parser.add_argument("--bus", action="store_true", help="record live topics instead of a simulation")
    parser.add_argument("--robot", metavar="NAME", help="bus: the robot, whose ros.yaml says which topics")
    parser.add_argument("--interface", metavar="NAME", help="bus: which of its interfaces (its default)")
    parser.add_argument("--namespace", default="/", metavar="/NAME", help="bus: of the robot's topics (%(default)s)")
    parser.add_argument("--signals", type=Path, metavar="FILE", help="bus: more topics and cameras (docs: deploying)")
    parser.add_argument("--command", metavar="NAME", help="bus: the recorded command (the interface's only one)")
    parser.add_argument("--rate", type=float, metavar="HZ", help="bus: samples per second (the robot's control rate)")
    parser.add_argument("--domain", type=int, metavar="N", help="bus: DDS domain ($ROS_DOMAIN_ID, or 0)")
    parser.add_argument("--loopback", action="store_true", help="bus: this machine only")
    parser.add_argument("--transport", default="auto", choices=("auto", "dds", "rclpy"), help="bus: (%(default)s)")
    parser.add_argument("--auto", action="store_true", help="bus: episodes begin by themselves, as soon as data come")
    parser.add_argument("--seconds", type=float, metavar="S", help="bus: the longest episode")
    parser.add_argument("--episodes", type=int, default=10, metavar="N", help="bus: how many (%(default)s)")
    parser.add_argument("--language", default="", metavar="TEXT", help="bus: the instruction")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="bus: the dataset's folder")
    parser.add_argument("--append", action="store_true", help="bus: add to the set that is there")
    add_json(parser)


def run(options: Any) -> int:
    """Record, and print how many episodes there are."""
    if options.bus:
        result = from_bus(options)
    else:
        from temporeal.policies.runs.demonstrating.teleoperation import record, request_of

        check_words(options)
        done = record(request_of(options.overrides), complain if options.json else say)
        result = {"folder": done.folder, "episodes": done.episodes, "discarded": done.discarded,
                  "successes": done.successes, "late_steps": done.late}
    if options.json:
        print_json(result)
    else:
        more = "; ".join(f"{key.replace('_', ' ')} {value}" for key, value in result.items() if key != "folder")
        say(f"{result['folder']}: {more}")
    return OK


def check_words(options: Any) -> None:
    """Options of --bus need it."""
    given = {"--robot": options.robot, "--signals": options.signals, "--auto": options.auto, "--out": options.out,
             "--rate": options.rate, "--command": options.command, "--loopback": options.loopback}
    if wrong := [name for name, value in given.items() if value]:
        raise BadInput(f"{wrong[0]} is for --bus; in simulation write words: task=lift device=keyboard out=FOLDER")


def from_bus(options: Any) -> dict[str, Any]:
    """Record live topics."""
    from math import inf

    from temporeal.policies.data.episodes.writer import DatasetWriter
    from temporeal.policies.data.recording.keyboard import Terminal
    from temporeal.policies.data.recording.live_topics import record
    from temporeal.policies.data.recording.session import Session

    check_bus(options)
    keys: Device | None = Terminal() if sys.stdin.isatty() else None
    transport, session = joined(options), None
    try:
        robot = live_robot(options, transport)
        with DatasetWriter(options.out, robot.interface, options.append) as writer:
            session = Session(writer, options.episodes, options.language, {"device": "bus"},
                              complain if options.json else say)
            session.say(f"listening to {', '.join(row.topic for row in robot.topics.states)}")
            record(robot, session, keys, seconds=options.seconds or inf, automatic=options.auto)
        return {"folder": options.out, "episodes": session.recorded, "discarded": session.discarded,
                "rejected_messages": robot.state.rejected + robot.command.rejected}
    finally:
        transport.close()
        if keys is not None:
            keys.close()
        if session is not None and not session.recorded and not options.append:
            shutil.rmtree(options.out, ignore_errors=True)  # an empty set would be in the way


def joined(options: Any) -> Transport:
    """The bus."""
    from temporeal_bridge.transports.selection import open_transport
    from temporeal_bridge.transports.transport import TransportError

    try:
        return open_transport(options.transport, "temporeal_recorder", options.namespace, domain=options.domain,
                              loopback=options.loopback)
    except TransportError as error:
        raise BadInput(str(error)) from error


def check_bus(options: Any) -> None:
    """What must be there."""
    if options.overrides:
        raise BadInput(f"{options.overrides[0]}: --bus takes options: --robot NAME --out FOLDER")
    if not options.robot or options.out is None:
        raise BadInput("--bus needs --robot NAME and --out FOLDER")
    if not options.auto and not sys.stdin.isatty():
        raise BadInput("there is no terminal whose keys would begin and end episodes: --auto begins them by itself, "
                       "--seconds S ends them")


def live_robot(options: Any, transport: Any) -> LiveRobot:
    """The robot's topics at the rate asked for."""
    from temporeal.policies.data.recording.live_topics import LiveRobot
    from temporeal.robots.spec import load_robot
    from temporeal_bridge.interface.loading import load_interface

    robot = load_robot(options.robot)
    topics = load_interface(robot, options.interface, options.signals)
    rate = robot.control_hz if options.rate is None else options.rate
    if not rate > 0:
        raise BadInput(f"--rate {rate:g}: samples per second, above 0")
    if options.command is None and len(topics.commands) != 1:
        raise BadInput(f"--command says which is recorded: {', '.join(topics.commands)}")
    return LiveRobot(transport, robot, topics, options.command or next(iter(topics.commands)), rate)
