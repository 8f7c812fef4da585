"""The processes of ROS 2's launch files: the one place that knows them, for every kind of robot.

    # launch/arm.launch.py
    def generate_launch_description():
        return description("arm", Path(__file__))

:func:`processes` is a pure function of the launch arguments; only :func:`description` needs ROS 2. The defaults of a
kind (its robot) are in ``params/<kind>.yaml`` of temporeal_bringup, which each node reads as well; launch arguments
take precedence.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.handed_over.robots import named_robot
from temporeal.robots.spec import load_robot
from temporeal_bridge.interface.loading import interface_names, load_interface
from temporeal_bridge.launching.arguments import (
    MOST_ROBOTS,
    PATHS,
    LaunchError,
    Remaps,
    arguments,
    boolean,
    check_remaps,
    misspelt,
    number,
    probability,
    remappings,
    spelt_out,
)
from temporeal_bridge.launching.preflight import check_mission, check_processes, check_worker
from temporeal_bridge.link.sockets import default_path
from temporeal_bridge.mission import GREATEST
from temporeal_bridge.process.children import LAUNCHED_END_S, WITHOUT
from temporeal_bridge.process.files import fresh
from temporeal_bridge.simulated_robot import task_topics
from temporeal_bridge.simulated_robot.camera_exposures import cameras_of
from temporeal_bridge.transports.ros_arguments import read_parameters

PACKAGE = "temporeal_bridge"
IN_SIMULATION = {"quadrotor": "odometry"}  # interface of nav_msgs: Crazyswarm2's messages need its package over rclpy
FLAGS = ("simulate", "autostart", "managed", "awake", "record", "use_sim_time")


@dataclass(frozen=True)
class Row:
    """One process: executable of the package, namespace, command line, ROS parameters, remappings."""

    executable: str
    namespace: str
    options: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    remaps: Remaps = ()


@dataclass(frozen=True)
class Plan:
    """What the robots of one launch file have in common.

    Args:
        given: the launch arguments. flags: those that are true or false. core: that of guard and controller.
        shared: options of all nodes on the bus.
        chunks: whether the policy gives chunks. require: least P(satisfied) of a formula.
    """

    given: Mapping[str, str]
    flags: Mapping[str, bool]
    core: int | None
    shared: Sequence[str]
    chunks: bool
    require: float


def processes(kind: str, given: Mapping[str, str], params: Path) -> list[Row]:
    """The processes of launch file ``kind`` (arm, hand, quadrotor, swarm) for all of its arguments. Arguments that a
    node would refuse are refused here, before any is started."""
    flags = {name: boolean(name, given[name]) for name in FLAGS}
    core = number("core", given["core"], 0) if given["core"] else None
    names = namespaces(kind, given)
    check_settings(given, flags, core, names[-1])
    defaults = read_parameters(params)
    trust = Path(given["trust"]) if given["trust"] else None
    manifest, out = load_manifest(Path(given["artifact"]), trust), Path(given["out"])
    chosen = given["robot"] or defaults.get("robot")
    robot = load_robot(chosen) if chosen else named_robot(manifest.robot)
    wanted = "quadrotor" if kind == "swarm" else kind
    if robot.kind != wanted:
        raise LaunchError(f"robot {robot.name} is of kind {robot.kind!r}, this launch file is for {wanted!r}")
    usual = IN_SIMULATION.get(wanted, "") if flags["simulate"] else ""
    interface = given["interface"] or (usual if usual in interface_names(robot) else "")
    signals = Path(given["signals"]) if given["signals"] else None
    if flags["simulate"]:
        signals = task_topics.write(manifest, robot, out / "signals.yaml", signals)
    loaded = load_interface(robot, interface or defaults.get("interface"), signals)
    check_mission(manifest, robot, loaded, [given["instruction"]] if given["instruction"] else [])
    require = probability("require", given["require"])
    if require and manifest.formulas is None:
        raise LaunchError(f"require:={given['require']}: the policy {manifest.name!r} has no forecast; it takes no "
                          "formula")
    try:
        check_worker(given["worker"] or None, manifest)
    except ValueError as error:
        raise LaunchError(str(error)) from error
    if flags["simulate"]:
        cameras_of(loaded)
    remaps = remappings(given["remap"])
    check_remaps(remaps, names, loaded)
    if len(names) > 1:
        check_several(flags["awake"], given["worker"], remaps, names[0])
    seed = number("seed", given["seed"], 0, GREATEST - len(names) + 1)
    shared = [*option("--transport", given["transport"]), "--robot", robot.name,
              *option("--interface", interface), *option("--signals", signals)]
    plan = Plan(given, flags, core, shared, manifest.chunk is not None, require)
    rows: list[Row] = []
    for index, namespace in enumerate(names):
        rows += of_robot(plan, namespace, out / namespace.strip("/") if kind == "swarm" else out, seed + index)
    if flags["record"]:
        whose = [word for name in names for word in ("--of", f"/{name.strip('/')}")] if kind == "swarm" else []
        rows.append(Row("recorder", names[0], (*shared, "--out", str(out), "--bag", str(fresh(out / "bag")), *whose)))
    ros = {"use_sim_time": True} if flags["use_sim_time"] else {}
    full = {"recorder": tuple(spelt_out(remaps, names))} if kind == "swarm" else {}
    return [Row(row.executable, row.namespace, row.options, {**ros, **row.parameters}, full.get(row.executable, remaps))
            for row in rows]


def check_settings(given: Mapping[str, str], flags: Mapping[str, bool], core: int | None, namespace: str) -> None:
    """Settings that are legal alone and together."""
    try:
        check_processes(given["transport"], namespace, given["priority"], core, flags["awake"])
    except ValueError as error:
        raise LaunchError(str(error)) from error
    if flags["managed"] and given["transport"] != "rclpy":
        raise LaunchError(f"managed:=true needs transport:=rclpy, got {given['transport']}: other transports have no "
                          "lifecycle, and the guard would be active at once")
    if flags["simulate"] and flags["use_sim_time"]:
        raise LaunchError("use_sim_time:=true is for simulators that publish /clock; simulate:=true runs in real time")


def namespaces(kind: str, given: Mapping[str, str]) -> list[str]:
    """The robots' namespaces."""
    if kind != "swarm":
        return [given["namespace"]]
    return [f"{given['namespace']}{i + 1}" for i in range(number("count", given["count"], 1, MOST_ROBOTS))]


def check_several(awake: bool, worker: str, remaps: Remaps, first: str) -> None:
    """Settings for one robot are refused where there are several, the ``first`` of them in this namespace."""
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
                f"namespace of each), or name each robot's: /{first.strip('/')}/{old}:=...")


def of_robot(plan: Plan, namespace: str, out: Path, seed: int) -> list[Row]:
    """The processes of one robot."""
    given, flags = plan.given, plan.flags
    simulated = [*plan.shared, "--out", str(out), "--artifact", given["artifact"]]
    trust = option("--trust", given["trust"])
    flown = [*simulated, *trust]
    simulator = ["--priority", given["priority"]]
    first = [*simulator, *([] if plan.core is None else ["--core", str(plan.core)])]
    awake = ["--awake" if flags["awake"] else "--no-awake"]  # overrides params
    worker = Path(given["worker"]) if given["worker"] else default_path(None, namespace).with_suffix(".chunks")
    start = ["--start"] if flags["autostart"] else []
    policy = ["--no-awake", "--worker", str(worker)] if plan.chunks else awake
    rows = [
        Row("guard_node", namespace, (*flown, *first, *awake), {"autostart": False} if flags["managed"] else {}),
        Row("policy_node", namespace, (*flown, *first, *start, *policy, *option(
            "--instruction", given["instruction"]), *(["--require", str(plan.require)] if plan.require else []))),
        Row("monitor_node", namespace, tuple(flown))]
    if flags["simulate"]:
        rows.insert(0, Row("robot_sim", namespace, (*simulated, *simulator, "--seed", str(seed))))
    if plan.chunks and not given["worker"]:
        rows.append(Row("worker_node", namespace, (
            "--artifact", given["artifact"], "--folder", str(worker), "--out", str(out), *trust)))
    return rows


def option(name: str, value: str | Path | None) -> list[str]:
    """The option, if there is a value."""
    return [name, str(value)] if value else []


def params_of(kind: str, launch_file: Path) -> Path:
    """The parameters beside the launch file: in an installed package, or in the repository."""
    name = f"{'quadrotor' if kind == 'swarm' else kind}.yaml"
    installed = launch_file.parent.parent / "params" / name
    if installed.exists():
        return installed
    return launch_file.resolve().parents[1] / "ros2_ws/src/temporeal_bringup/params" / name


def description(kind: str, launch_file: Path) -> Any:
    """The LaunchDescription of launch file ``kind``.

    When a process of a single robot ends, the others are stopped, and the robot with them; not when a controller ends
    well, for a successor has relieved it (:mod:`temporeal_bridge.guard.artifact_swap`), nor when it is the monitor or
    the recorder. The processes of a swarm go on: one robot's process must not bring the others down. Processes that
    ended early are logged as errors, and where one failed launch's own exit status is 1, at once or in the end.
    """
    from launch import LaunchDescription
    from launch.actions import DeclareLaunchArgument, OpaqueFunction, Shutdown
    from launch.logging import get_logger
    from launch.substitutions import LaunchConfiguration
    from launch_ros.actions import Node

    known = arguments(kind)

    def ended(executable: str) -> Any:
        def react(event: Any, context: Any) -> Any:
            how = f"{executable} ended with status {event.returncode}"
            relieved = executable == "policy_node" and not event.returncode
            if relieved or (context.is_shutdown and kind == "swarm"):
                return None
            if not context.is_shutdown and (kind == "swarm" or executable in WITHOUT):
                without = WITHOUT.get(executable, "its robot is stopped, or left to its own watchdog")
                return fail(context, f"{how}: {without}")
            if event.returncode and not context.is_shutdown:
                raise LaunchError(how)  # else `ros2 launch` ends with status 0
            return Shutdown(reason=how)
        return react

    def fail(context: Any, text: str) -> None:
        """All go on, and launch ends with status 1: it does once its loop got an exception
        (``LaunchService.run_async``). Raising one would end them all."""
        get_logger("launch").error(text)
        context.asyncio_loop.call_exception_handler({"message": text})

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
