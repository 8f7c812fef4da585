"""Arguments of the launch files: names, defaults, meanings, and their values from text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import nan

from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.recording.topics import robot_topics
from temporeal_bridge.transports.ros_arguments import meant
from temporeal_bridge.transports.transport import resolve_name

NAMESPACES = {"arm": "arm1", "hand": "hand1", "quadrotor": "cf1", "swarm": "cf"}  # by launch file
ARGUMENTS = {
    "artifact": (None, "folder written by `temporeal export`"),
    "trust": ("", "public key: refuse an artifact that its owner did not sign"),
    "simulate": ("false", "true: start a simulated robot; false: a real one's driver is there"),
    "namespace": ("", "namespace of the robot; of a swarm its beginning, a number follows"),
    "robot": ("", "robot, a folder below robots/ (default: the one in params, else the artifact's)"),
    "interface": ("", "interface of the robot's ros.yaml (default: the one in params)"),
    "signals": ("", "YAML of topics that the robot does not have: a goal, an object's pose, a camera"),
    "transport": ("rclpy", "rclpy, or dds: the same nodes without rclpy"),
    "worker": ("", "folder of a worker_node that runs already; else a policy that gives chunks gets its own worker"),
    "instruction": ("", "what a policy that is told in words, or by a formula, is told first; later: "
                    "mission/instruction"),
    "require": ("0", "least P(satisfied), 0 to 1, that a formula must be forecast to be flown, also a later one; of "
                "policies that fly any formula"),
    "autostart": ("false", "true: start the mission 3 s after the guard is ready"),
    "managed": ("false", "true: the guard waits for `ros2 lifecycle set`; nothing moves before it is active"),
    "priority": ("auto", "normal, realtime, or auto: ahead of ordinary processes where that is permitted"),
    "core": ("", "core reserved for guard and controller (isolcpus); default: any"),
    "awake": ("false", "true: that core never sleeps, and steps are rehearsed: lower latency, a busy core's power"),
    "record": ("true", "record everything to a bag in out"),
    "out": ("outputs/flight", "folder for summaries and the bag"),
    "seed": ("0", "seed of the simulated robot's first flight"),
    "remap": ("", "topics with other names: 'odom:=/mocap/odom gyro:=/imu'; of a swarm without the first /"),
    "use_sim_time": ("false", "true: stamps are compared with /clock (a simulator that publishes it)"),
    "params": ("", "file of parameters (default: that of the launch file)"),
}
ALIKE = 0.85  # similarity from which on one name is meant for the other (difflib); 0.82 is that of namespace and
# launch_ros's ros_namespace
SIMULATIONS = {"sim", "simulation", "simulator", "fake", "mock", "gazebo", "gz", "ignition", "mujoco", "dryrun"}
"""Words in names that mean ``simulate`` elsewhere (`use_sim`, `fake_hardware`): chosen."""
PATHS = ("artifact", "trust", "signals", "worker", "out", "params")  # arguments that name a file or a folder
OF_ROS = ("clock", "parameter_events", "rosout", "tf", "tf_static")  # topics that any node may have
OF_SIMULATION = ("sim/episode", "sim/instruction", "sim/fault", "sim/fault_active", "sim/reset")  # of robot_sim
SWARM = {"count": ("2", "number of quadrotors")}
MOST_ROBOTS = 29  # of a swarm: four processes each, and a recorder; a domain has ports for 120 on one machine (ROS 2's
# page on ROS_DOMAIN_ID, from DDSI-RTPS 9.6.1.1)

Remaps = tuple[tuple[str, str], ...]


class LaunchError(ValueError):
    """The launch arguments are wrong; the message says which, and what is legal."""


def arguments(kind: str) -> dict[str, tuple[str | None, str]]:
    """Default (None: required) and meaning of each argument of launch file ``kind``."""
    own = {"namespace": (NAMESPACES[kind], ARGUMENTS["namespace"][1])}
    return {**ARGUMENTS, **own, **(SWARM if kind == "swarm" else {})}


def boolean(name: str, text: str) -> bool:
    """``true`` or ``false`` as launch files write them."""
    if text.lower() not in ("true", "false"):
        raise LaunchError(f"{name}:={text}; legal: true, false")
    return text.lower() == "true"


def number(name: str, text: str, least: int, most: int | None = None) -> int:
    """A whole number from ``least`` on, up to ``most`` where there is one."""
    if not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
        upto = "on" if most is None else f"to {most}"
        raise LaunchError(f"{name}:={text}; a whole number from {least} {upto} is needed")
    return int(text)


def probability(name: str, text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not 0 <= value <= 1:
        raise LaunchError(f"{name}:={text}; a probability from 0 to 1 is needed")
    return value


def remappings(text: str) -> Remaps:
    """``odom:=/mocap/odom gyro:=/imu`` as pairs."""
    pairs = [tuple(word.partition(":=")[::2]) for word in text.split()]
    if any(not old or not new for old, new in pairs):
        raise LaunchError(f"remap:={text!r}; expected old:=new, several with spaces between them")
    for _, new in pairs:
        resolve_name(new)
    return tuple((old, new) for old, new in pairs)


def check_remaps(remaps: Remaps, names: Sequence[str], interface: Interface) -> None:
    """The old name must be a topic of ours: ROS ignores a misspelt one, even that of the operator's stop. Remappings of
    one node (``~/x``, ``node:x``) pass. A full name may begin with what another launch file puts before the
    namespace."""
    ours = [topics_of(interface, name) for name in names]
    for old, new in remaps:
        if old.startswith("~") or ":" in old or old.removeprefix("/") in OF_ROS:
            continue
        full = [resolve_name(old, name) for name in names]
        if not any(each == topic or old.startswith("/") and each.endswith(topic)
                   for each, topics in zip(full, ours) for topic in topics):
            base = resolve_name("x", names[0]).removesuffix("x")
            legal = ", ".join(sorted(topic.removeprefix(base) for topic in ours[0]))
            raise LaunchError(f"remap:={old}:={new}: no node of this launch file has a topic {old}; they have {legal}")


def topics_of(interface: Interface, namespace: str) -> set[str]:
    """The full names of the topics of one robot's nodes, and of those that they check for publishers."""
    beside = (*interface.rivals, *OF_SIMULATION)
    return {topic for topic, _, _ in robot_topics(interface, [namespace])} | {
        resolve_name(topic, namespace) for topic in beside}


def spelt_out(remaps: Remaps, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """``remaps`` for the recorder of several robots, which knows the topics of each by their full names."""
    for old, new in remaps:
        if old.startswith(("/", "~")) or ":" in old:  # a full name; of one node (~/x, node:x)
            yield old, new
        else:
            yield from ((resolve_name(old, name), resolve_name(new, name)) for name in names)


def misspelt(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an argument whose name is nearly one of ours, and, unless ``simulate`` is given as well, one that means
    ``simulate`` (:data:`SIMULATIONS`), whatever its value.

    Launch ignores undeclared arguments, and ``simulated:=true`` would start a real robot. Other names are legal: this
    launch file can be included in another. ``given``: without the defaults of ``known``.
    """
    given = set(given)
    if "simulate" not in given:
        for name in sorted(name for name in given - set(known) if SIMULATIONS.intersection(words(name))):
            raise LaunchError(f"{name}:= is no argument of this launch file; simulate:= is. Where {name}:= is another "
                              "launch file's that this one is included with, say simulate:=, too")
    for name, other in meant(given, known, ALIKE):
        raise LaunchError(f"{name}:= is no argument of this launch file; {other}:= is")


def words(name: str) -> set[str]:
    """The words of an argument's name, and all of them as one."""
    apart = name.lower().replace("-", "_").split("_")
    return {*apart, "".join(apart)}
