"""Which processes fly a robot, for ROS 2's launch files: the one place that knows, for every kind of robot.

    # launch/arm.launch.py
    def generate_launch_description():
        return description("arm", Path(__file__))

:func:`processes` is a pure function of the launch arguments; only :func:`description` needs ROS 2. The defaults of a
kind (its robot) stand in ``params/<kind>.yaml`` of temporeal_bringup, which each node reads as well; an argument that
is given goes before them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.spec import load_robot
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.launching.preflight import check_mission, check_processes, check_worker
from temporeal_bridge.link.sockets import default_path
from temporeal_bridge.mission import GREATEST
from temporeal_bridge.process.children import LAUNCHED_END_S, WITHOUT
from temporeal_bridge.process.files import fresh
from temporeal_bridge.recording.topics import robot_topics
from temporeal_bridge.simulated_robot import task_topics
from temporeal_bridge.simulated_robot.cameras import cameras_of
from temporeal_bridge.transports.ros_arguments import meant, read_parameters
from temporeal_bridge.transports.transport import resolve_name

PACKAGE = "temporeal_bridge"
NAMESPACES = {"arm": "arm1", "hand": "hand1", "quadrotor": "cf1", "swarm": "cf"}  # by launch file
IN_SIMULATION = {"quadrotor": "odometry"}  # interface of nav_msgs: Crazyswarm2's messages need its package over rclpy
ARGUMENTS = {
    "artifact": (None, "folder that `temporeal export` wrote"),
    "trust": ("", "public key: refuse an artifact that its owner did not sign"),
    "simulate": ("false", "true: start a simulated robot; false: a real one's driver is there"),
    "namespace": ("", "namespace of the robot; of a swarm its beginning, a number follows"),
    "robot": ("", "robot, a folder below robots/ (default: the one in params, else the one that the artifact is for)"),
    "interface": ("", "interface of the robot's ros.yaml (default: the one in params)"),
    "signals": ("", "YAML of topics that the robot does not have: a goal, an object's pose, a camera"),
    "transport": ("rclpy", "rclpy, or dds: the same nodes without rclpy"),
    "worker": ("", "folder of a worker_node that runs already; else a policy that gives chunks gets one of its own"),
    "autostart": ("false", "true: the mission starts by itself, 3 s after the guard is ready"),
    "managed": ("false", "true: the guard waits for `ros2 lifecycle set`; nothing moves before it is active"),
    "priority": ("auto", "normal, realtime, or auto: ahead of ordinary processes where that is permitted"),
    "core": ("", "core that guard and controller have for themselves (isolcpus); default: any"),
    "awake": ("false", "true: that core never sleeps, and steps are rehearsed: sooner, for a busy core's power"),
    "record": ("true", "record everything to a bag in out"),
    "out": ("outputs/flight", "folder for summaries and the bag"),
    "seed": ("0", "seed of the simulated robot's first flight"),
    "remap": ("", "topics that are called otherwise: 'odom:=/mocap/odom gyro:=/imu'; of a swarm without the first /"),
    "use_sim_time": ("false", "true: stamps are compared with /clock (a simulator that publishes it)"),
    "params": ("", "file of parameters (default: that of the launch file)"),
}
ALIKE = 0.85  # of two names: one is meant for the other (difflib); 0.82 are namespace and launch_ros's ros_namespace
SIMULATIONS = {"sim", "simulation", "simulator", "fake", "mock", "gazebo", "gz", "ignition", "mujoco", "dryrun"}
"""A word in the name of what means :data:`ARGUMENTS`' ``simulate`` elsewhere (`use_sim`, `fake_hardware`): chosen."""
PATHS = ("artifact", "trust", "signals", "worker", "out", "params")  # arguments that name a file or a folder
OF_ROS = ("clock", "parameter_events", "rosout", "tf", "tf_static")  # topics that any node may have
OF_SIMULATION = ("sim/episode", "sim/fault", "sim/fault_active", "sim/reset")  # of robot_sim, in no bag
SWARM = {"count": ("2", "number of quadrotors")}
MOST_ROBOTS = 29  # of a swarm: four processes each, and a recorder; a domain has ports for 120 on one machine (ROS 2's
# page on ROS_DOMAIN_ID, from DDSI-RTPS 9.6.1.1)


class LaunchError(ValueError):
    """The launch arguments are wrong; the message says which, and what is legal."""


@dataclass(frozen=True)
class Row:
    """One process: executable of the package, namespace, command line, ROS parameters, remappings."""

    executable: str
    namespace: str
    options: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    remaps: tuple[tuple[str, str], ...] = ()


def arguments(kind: str) -> dict[str, tuple[str | None, str]]:
    """Default (None: must be given) and meaning of each launch argument."""
    own = {"namespace": (NAMESPACES[kind], ARGUMENTS["namespace"][1])}
    return {**ARGUMENTS, **own, **(SWARM if kind == "swarm" else {})}


def processes(kind: str, given: Mapping[str, str], params: Path) -> list[Row]:
    """The processes of launch file ``kind`` (arm, hand, quadrotor, swarm) for the ``given`` arguments, all of them."""
    flags = {name: boolean(name, given[name])
             for name in ("simulate", "autostart", "managed", "awake", "record", "use_sim_time")}
    core = number("core", given["core"], 0) if given["core"] else None
    names = namespaces(kind, given)
    try:
        check_processes(given["transport"], names[-1], given["priority"], core, flags["awake"])
    except ValueError as error:
        raise LaunchError(str(error)) from error
    if flags["managed"] and given["transport"] != "rclpy":
        raise LaunchError(f"managed:=true needs transport:=rclpy, got {given['transport']}: other transports have no "
                          "lifecycle, and the guard would be active at once")
    if flags["simulate"] and flags["use_sim_time"]:
        raise LaunchError("use_sim_time:=true is for simulators that publish /clock; simulate:=true runs in real time")
    defaults = read_parameters(params)
    trust = Path(given["trust"]) if given["trust"] else None
    manifest, out = load_manifest(Path(given["artifact"]), trust), Path(given["out"])
    named = given["robot"] or defaults.get("robot") or manifest.robot
    robot = load_robot(named)
    wanted = "quadrotor" if kind == "swarm" else kind
    if robot.kind != wanted:
        raise LaunchError(f"robot {robot.name} is of kind {robot.kind!r}, this launch file is for {wanted!r}")
    interface = given["interface"] or (IN_SIMULATION.get(wanted, "") if flags["simulate"] else "")
    signals = Path(given["signals"]) if given["signals"] else None
    if flags["simulate"]:
        signals = task_topics.write(manifest, robot, out / "signals.yaml", signals)
    # what every node would refuse, before any is started
    how = load_interface(robot, interface or defaults.get("interface"), signals)
    check_mission(manifest, robot, how)
    try:
        check_worker(given["worker"] or None, manifest)
    except ValueError as error:
        raise LaunchError(str(error)) from error
    if flags["simulate"]:
        cameras_of(how)
    remaps = remappings(given["remap"])
    check_remaps(remaps, names, how)
    if len(names) > 1:
        check_several(flags["awake"], given["worker"], remaps, names[0])
    seed = number("seed", given["seed"], 0, GREATEST - len(names) + 1)
    shared = [*option("--transport", given["transport"]), "--robot", named,
              *option("--interface", interface), *option("--signals", signals)]
    ros = {"use_sim_time": True} if flags["use_sim_time"] else {}
    rows: list[Row] = []
    for index, namespace in enumerate(names):
        folder = out / namespace.strip("/") if kind == "swarm" else out
        rows += of_robot(given, flags, core, shared, namespace, folder, seed + index, manifest.chunk is not None)
    if flags["record"]:
        whose = [word for name in names for word in ("--of", f"/{name.strip('/')}")] if kind == "swarm" else []
        rows.append(Row("recorder", names[0], (*shared, "--out", str(out), "--bag", str(fresh(out / "bag")), *whose)))
    told = {"recorder": tuple(spelt_out(remaps, names))} if kind == "swarm" else {}
    return [Row(row.executable, row.namespace, row.options, {**ros, **row.parameters}, told.get(row.executable, remaps))
            for row in rows]


def namespaces(kind: str, given: Mapping[str, str]) -> list[str]:
    """The robots' namespaces."""
    if kind != "swarm":
        return [given["namespace"]]
    return [f"{given['namespace']}{i + 1}" for i in range(number("count", given["count"], 1, MOST_ROBOTS))]


def check_several(awake: bool, worker: str, remaps: Iterable[tuple[str, str]], first: str) -> None:
    """What is one robot's is refused where there are several, the ``first`` of them called so."""
    if awake:
        raise LaunchError("awake:=true is for one robot on a core, and all robots of this launch file share it: "
                          "leave awake out, or launch each with quadrotor.launch.py and a core of its own")
    if worker:
        raise LaunchError(f"worker:={worker} is for one robot, whose chunks that worker_node gives: leave worker out, "
                          "and each robot gets one of its own, or launch each with quadrotor.launch.py")
    for old, new in remaps:
        if new.startswith("/") and not old.startswith("/"):
            raise LaunchError(
                f"remap:={old}:={new} gives all robots one topic: leave out the first / ({old}:={new[1:]}, in the "
                f"namespace of each), or say it of each robot: /{first.strip('/')}/{old}:=...")


def spelt_out(remaps: Iterable[tuple[str, str]], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """``remaps`` for the recorder of several robots, which knows the topics of each by their full names."""
    for old, new in remaps:
        if old.startswith(("/", "~")) or ":" in old:  # a full name; of one node (~/x, node:x)
            yield old, new
        else:
            yield from ((resolve_name(old, name), resolve_name(new, name)) for name in names)


def of_robot(
    given: Mapping[str, str], flags: Mapping[str, bool], core: int | None, shared: list[str], namespace: str, out: Path,
    seed: int, chunks: bool,
) -> list[Row]:
    """The processes of one robot."""
    simulated = [*shared, "--out", str(out), "--artifact", given["artifact"]]
    trust = option("--trust", given["trust"])
    flown = [*simulated, *trust]
    simulator = ["--priority", given["priority"]]
    first = [*simulator, *([] if core is None else ["--core", str(core)])]
    awake = ["--awake" if flags["awake"] else "--no-awake"]  # before what params say
    worker = Path(given["worker"]) if given["worker"] else default_path(None, namespace).with_suffix(".chunks")
    start = ["--start"] if flags["autostart"] else []
    thinks = ["--no-awake", "--worker", str(worker)] if chunks else awake
    rows = [
        Row("guard_node", namespace, (*flown, *first, *awake), {"autostart": False} if flags["managed"] else {}),
        Row("policy_node", namespace, (*flown, *first, *start, *thinks)),
        Row("monitor_node", namespace, tuple(flown))]
    if flags["simulate"]:
        rows.insert(0, Row("robot_sim", namespace, (*simulated, *simulator, "--seed", str(seed))))
    if chunks and not given["worker"]:
        rows.append(Row("worker_node", namespace, (
            "--artifact", given["artifact"], "--folder", str(worker), "--out", str(out), *trust)))
    return rows


def option(name: str, value: str | Path | None) -> list[str]:
    """The option, if there is a value."""
    return [name, str(value)] if value else []


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


def remappings(text: str) -> tuple[tuple[str, str], ...]:
    """``odom:=/mocap/odom gyro:=/imu`` as pairs."""
    pairs = [tuple(word.partition(":=")[::2]) for word in text.split()]
    if any(not old or not new for old, new in pairs):
        raise LaunchError(f"remap:={text!r}; expected old:=new, several with spaces between them")
    for _, new in pairs:
        resolve_name(new)
    return tuple((old, new) for old, new in pairs)


def check_remaps(remaps: Iterable[tuple[str, str]], names: Sequence[str], interface: Interface) -> None:
    """The old name is a topic of ours: a misspelt one would be passed over, be it that of the operator's stop. What is
    said of one node (``~/x``, ``node:x``) is let pass. A full name may begin with what another launch file puts before
    the namespace."""
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
    """The full names of the topics of one robot's nodes, and of those that they look at."""
    beside = (*interface.rivals, *OF_SIMULATION)
    return {topic for topic, _, _ in robot_topics(interface, [namespace])} | {
        resolve_name(topic, namespace) for topic in beside}


def words(name: str) -> set[str]:
    """The words of an argument's name, and all of them as one."""
    apart = name.lower().replace("-", "_").split("_")
    return {*apart, "".join(apart)}


def misspelt(given: Iterable[str], known: Iterable[str]) -> None:
    """Launch ignores arguments that nobody declares, and ``simulated:=true`` would start a real robot. Others' names
    may well be there, for this launch file can be included in another: refused is what is nearly one of ours, and,
    unless ``simulate`` is given as well, what means it (:data:`SIMULATIONS`), whatever its value.

    ``given``: what was said, without the defaults of ``known``.
    """
    given = set(given)
    if "simulate" not in given:
        for name in sorted(name for name in given - set(known) if SIMULATIONS.intersection(words(name))):
            raise LaunchError(f"{name}:= is no argument of this launch file; simulate:= is. Where {name}:= is another "
                              "launch file's that this one is included with, say simulate:=, too")
    for name, other in meant(given, known, ALIKE):
        raise LaunchError(f"{name}:= is no argument of this launch file; {other}:= is")


def params_of(kind: str, launch_file: Path) -> Path:
    """The parameters beside the launch file: in an installed package, or in the repository."""
    name = f"{'quadrotor' if kind == 'swarm' else kind}.yaml"
    installed = launch_file.parent.parent / "params" / name
    if installed.exists():
        return installed
    return launch_file.resolve().parents[1] / "ros2_ws/src/temporeal_bringup/params" / name


def description(kind: str, launch_file: Path) -> Any:
    """The LaunchDescription of launch file ``kind``.

    Where a process of a single robot ends, the others are stopped, the robot with them; not where a controller ends
    well, for a successor has relieved it (:mod:`temporeal_bridge.guard.artifact_swap`), nor where it is the
    monitor or the recorder.
    Those of a swarm are left alone: one robot's process must not bring the others down. What ended early is told as an
    error, and where one failed launch's own exit status is 1, at once or in the end.
    """
    from launch import LaunchDescription
    from launch.actions import DeclareLaunchArgument, OpaqueFunction, Shutdown
    from launch.logging import get_logger
    from launch.substitutions import LaunchConfiguration
    from launch_ros.actions import Node

    known = arguments(kind)

    def ended(executable: str) -> Any:
        def react(event: Any, context: Any) -> Any:
            told = f"{executable} ended with status {event.returncode}"
            relieved = executable == "policy_node" and not event.returncode
            if relieved or (context.is_shutdown and kind == "swarm"):
                return None
            if not context.is_shutdown and (kind == "swarm" or executable in WITHOUT):
                without = WITHOUT.get(executable, "its robot is stopped, or left to its own watchdog")
                return fail(context, f"{told}: {without}")
            if event.returncode and not context.is_shutdown:
                raise LaunchError(told)  # else `ros2 launch` ends with status 0
            return Shutdown(reason=told)
        return react

    def fail(context: Any, told: str) -> None:
        """All go on, and launch ends with status 1: it does once its loop was told of an exception
        (``LaunchService.run_async``). To raise one would end them all."""
        get_logger("launch").error(told)
        context.asyncio_loop.call_exception_handler({"message": told})

    def check(context: Any) -> None:
        misspelt(context.launch_configurations, known)

    def start(context: Any) -> list[Any]:
        given = {name: LaunchConfiguration(name).perform(context) for name in known}
        given |= {name: os.path.expanduser(given[name]) for name in PATHS}  # a shell leaves the ~ of out:=~/x
        params = Path(given["params"]) if given["params"] else params_of(kind, launch_file)
        return [
            Node(package=PACKAGE, executable=row.executable, name=row.executable, namespace=row.namespace,
                 output="screen", arguments=list(row.options), remappings=list(row.remaps),
                 parameters=[str(params), *filter(None, [dict(row.parameters)])], sigterm_timeout=str(LAUNCHED_END_S),
                 on_exit=ended(row.executable))
            for row in processes(kind, given, params)]

    declared = [DeclareLaunchArgument(name, default_value=default, description=text)
                for name, (default, text) in known.items()]
    return LaunchDescription([OpaqueFunction(function=check), *declared, OpaqueFunction(function=start)])
