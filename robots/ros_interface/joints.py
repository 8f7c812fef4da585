"""``ros.yaml`` of arms, hands and legged robots: joint states in, commands for ros2_control's controllers out.

Topics are those of ros2_controllers (6.9.0): joint_state_broadcaster's ``joint_states``, and
``<controller>/joint_trajectory`` or ``<controller>/commands`` of a controller that is called like the template.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from temporeal.robots.model_files import RobotFileError, read_model
from temporeal.robots.motion.kinematics import serial_chain
from temporeal.robots.motion.link_shapes import watched
from temporeal.robots.ros_interface.text import TemplateError, comment, flow, indented, inside, named, rounded, shared
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import MotionLimits, RobotSpec

PLACES, SPEEDS, EFFORTS = ("rad", "m"), ("rad/s", "m/s"), ("N m", "N")
KINDS = ("arm", "hand", "legged")
CONTROL_HZ, STATE_HZ = 25.0, 100.0  # where the spec names no rate; 100 Hz is controller_manager's default update rate
SHARE = 0.6  # of speed and acceleration: what the tasks' actions use of an arm's limits
HAND_RAMP_S = 0.1  # a hand's fingers reach full speed in it. Chosen: their targets come in steps
LAG_S, SAG = 0.05, 0.1  # s, rad or m: by how much servos are late, and how far they sag under gravity. Chosen
GRIP_S, GRIP_RAMP_S = 0.8, 0.01  # a gripper's stroke, and the time to its full speed. Chosen as a Franka Hand's
APART_M, HULLS_APART_M = 0.02, 0.005  # between links that must not touch; between capsules around them. Chosen
POSES, ROOM_M, BELOW_M = 4096, 0.05, 0.02  # of the geofence: drawn poses, room around them, below the base. Chosen


@dataclass(frozen=True)
class Controller:
    """A controller of ros2_control that takes one kind of command.

    Args:
        name: of the template; the controller is called ``<name>_controller``.
        units: of its commands.
    """

    name: str
    units: tuple[str, ...]
    description: str

    @property
    def trajectory(self) -> bool:
        """Whether it takes trajectories."""
        return self.name == "joint_trajectory"


CONTROLLERS = {each.name: each for each in (
    Controller("joint_trajectory", PLACES, "ros2_control's joint_trajectory_controller for positions"),
    Controller("forward_position", PLACES, "ros2_control's forward_command_controller for positions"),
    Controller("forward_velocity", SPEEDS, "ros2_control's forward_command_controller for velocities"),
    Controller("forward_effort", EFFORTS, "ros2_control's forward_command_controller for efforts"))}


@dataclass(frozen=True)
class Driver:
    """What the user says about the robot's driver.

    Args:
        joints: the driver's name of a joint, by the model's; others are called alike.
        rate_hz: of its joint states; 0: as the spec says.
        velocity, effort: whether its joint states have these fields.
        gripper: how its gripper is told where to go, out of :data:`GRIPPERS`.
    """

    joints: Mapping[str, str] = field(default_factory=dict)
    rate_hz: float = 0.0
    velocity: bool = True
    effort: bool = False
    gripper: str = "controller"


GRIPPERS = {
    "controller": "by a controller of its own, gripper_controller, of the same kind as the arm's",
    "command": "by control_msgs/msg/GripperCommand on gripper_controller/command",
    "action": "by the action control_msgs/action/GripperCommand, gripper_controller/gripper_cmd (transport rclpy)",
    "joined": "as one of the joints of the arm's controller"}
GRIPPER_MSG, GRIPPER_ACTION = "control_msgs/msg/GripperCommand", "control_msgs/action/GripperCommand"
GRIPPER_FIELDS = ("float64 position", "float64 max_effort")
DEFINED = {"command": (GRIPPER_MSG, GRIPPER_FIELDS), "action": (GRIPPER_ACTION, ("uint8[16] goal_id", *GRIPPER_FIELDS))}
"""Type of the gripper's message, and its fields; of an action those of the request that sends a goal."""

GOAL_SHARE = 0.02  # of the gripper's stroke by which two goals of an action differ. Chosen


class Jointed:
    """A robot's joints and rates as the templates use them."""

    def __init__(self, spec: RobotSpec, driver: Driver) -> None:
        if "joint_pos" not in spec.sources:
            raise TemplateError(f"robot {spec.name!r} has no signal joint_pos: there are no joints to report")
        self.spec, self.driver = spec, driver
        if driver.gripper not in GRIPPERS:
            raise TemplateError(f"no gripper {driver.gripper!r}; legal: {', '.join(GRIPPERS)}")
        if unknown := sorted(set(driver.joints) - set(self.all_joints)):
            raise TemplateError(f"no joints {unknown} to rename; robot {spec.name!r} has: {named(self.all_joints)}")
        self.joints = spec.sources["joint_pos"].names
        declared = spec.signals["joint_pos"].rate_hz
        self.rate_hz = driver.rate_hz or declared or STATE_HZ
        self.control_hz = spec.control_hz or CONTROL_HZ
        self.rate_from = "the driver's" if driver.rate_hz else "the spec's" if declared else \
            "controller_manager's default update_rate"

    def rate_of(self, signal: str) -> float:
        """Of a signal's topic, Hz: the driver's, else the spec's."""
        return self.driver.rate_hz or self.spec.signals[signal].rate_hz or self.rate_hz

    @property
    def all_joints(self) -> list[str]:
        """Names of the joints in all signals."""
        return [n for source in self.spec.sources.values() if source.what == "joint_pos" for n in source.names]

    @cached_property
    def limits(self) -> MotionLimits:
        """The limits of the joints."""
        if self.spec.motion is None:
            raise TemplateError(f"robot {self.spec.name!r} has no limits of motion: velocity and acceleration of "
                                f"{named(self.joints)} are needed in its spec")
        return self.spec.motion

    @property
    def share(self) -> float:
        """Of speed and acceleration that commands may use."""
        return SHARE if self.spec.kind == "arm" else 1.0

    @property
    def gentle(self) -> bool:
        """Whether it must follow its commands: a hand may press on things."""
        return self.spec.kind == "hand"

    @cached_property
    def has_velocity(self) -> bool:
        """Whether velocities are read."""
        return self.driver.velocity and "joint_vel" in self.spec.signals

    def called(self, names: Sequence[str]) -> list[str]:
        """The driver's names."""
        return [self.driver.joints.get(name, name) for name in names]

    def fingers(self, command: CommandSpec) -> bool:
        """Whether the command's last component opens the gripper."""
        return self.spec.gripper is not None and self.spec.gripper.command == command.name

    def driven(self, command: str) -> list[str]:
        """The model's joints that the command's components drive."""
        actuators = self.spec.actuators.get(command, ())
        known = set(self.all_joints)
        if not set(actuators) <= known and self.spec.model is not None:
            targets = {each.name: each.target for each in read_model(self.spec.model).actuators}
            actuators = tuple(name if name in known else targets.get(name, name) for name in actuators)
        if self.fingers(self.spec.commands[command]) and self.spec.gripper is not None:
            actuators = (*actuators[:-1], self.spec.gripper.joints[0])
        if strange := [name for name in actuators if name not in known]:
            raise TemplateError(f"command {command!r}: {strange[0]!r} is no joint of the robot's signals "
                                f"({named(self.all_joints)}): write its row in ros.yaml by hand")
        if list(actuators[: len(self.joints)]) != list(self.joints):
            raise TemplateError(f"command {command!r} drives {named(actuators)}, but joint_pos has "
                                f"{named(self.joints)}: a safety profile needs the joints of joint_pos as the "
                                "command's first components. List the same joints under `joints` of the spec")
        return list(actuators)

    def commands(self, units: Sequence[str]) -> list[CommandSpec]:
        """The commands in these units that joints take."""
        return [command for name, command in self.spec.commands.items()
                if self.spec.actuators.get(name) and set(command.unit.split(",")) <= set(units)
                and self.spec.drives.get(name) != "tool"]


def possible(spec: RobotSpec, driver: Driver | None = None) -> list[str]:
    """The templates that have a command of the robot's. A guard of velocities and efforts needs measured ones."""
    robot = Jointed(spec, driver or Driver())
    return [name for name, each in CONTROLLERS.items()
            if robot.commands(each.units) and (robot.has_velocity or each.units == PLACES)]


def joint_yaml(spec: RobotSpec, interface: str, driver: Driver) -> list[str]:
    """The lines after the head: all templates that the robot's commands permit, ``interface`` being the default."""
    robot = Jointed(spec, driver)
    fitting = possible(spec, driver)
    if interface not in fitting:
        raise TemplateError(f"robot {spec.name!r} has no command for {interface!r}: its commands are "
                            f"{named([f'{c.name} in {c.unit}' for c in spec.commands.values()])}; legal: "
                            f"{named(fitting)}")
    lines, first = [f"default: {interface}", "", "interfaces:"], True
    for name in (interface, *(each for each in fitting if each != interface)):
        lines += indented(interface_lines(robot, CONTROLLERS[name], first), 2)
        first = False
    return [*lines, *safety(robot), "", *simulation(robot)]


# ---------------------------------------------------------------- topics


def interface_lines(robot: Jointed, controller: Controller, first: bool) -> list[str]:
    """One interface; the first one carries the anchor of the states."""
    takes = robot.spec.gripper is not None and controller.units == PLACES and DEFINED.get(robot.driver.gripper)
    return [f"{controller.name}:", f"  description: {controller.description}",
            *(["  definitions:", f"    {takes[0]}: |", *(f"      {field}" for field in takes[1])]
              if takes else ["  definitions: {}"]),
            *(["  states: &states", *indented(state_rows(robot), 4)] if first else ["  states: *states"]),
            "  commands:", *indented(command_rows(robot, controller), 4), ""]


def state_rows(robot: Jointed) -> Iterator[str]:
    """The topics of the joints, and of a base that moves."""
    yield from comment(f"rate_hz: {robot.rate_from}. Joints are found by name, in any order, among others, and in",
                       "several messages; fields that nobody reads may be empty")
    for position, source in robot.spec.sources.items():
        if source.what == "joint_pos":
            yield "- " + flow({
                "topic": "joint_states", "type": "sensor_msgs/msg/JointState", "codec": "joint_state",
                "rate_hz": robot.rate_of(position), "qos": "sensor", "options": state_options(robot, position)})
    if "base_pos_w" in robot.spec.signals:
        yield from comment("where the base is: a state estimator's odometry, its twist in the body frame")
        yield "- " + flow({"topic": "odom", "type": "nav_msgs/msg/Odometry", "codec": "odometry",
                           "rate_hz": robot.rate_hz, "qos": "sensor", "options": {
                               "linear": "body", "angular": "body",
                               **({} if "height" in robot.spec.signals else {"height": "absent"})}})


def state_options(robot: Jointed, position: str) -> dict[str, object]:
    """Options of the JointState that has the signal ``position``, and what else is of the same joints."""
    spec, names = robot.spec, robot.spec.sources[position].names
    same = {source.what: signal for signal, source in spec.sources.items() if source.names == names}
    out: dict[str, object] = {"joints": robot.called(names), "position": position}
    if follows := followers(robot, names):
        out["mimic"] = follows
    if robot.driver.velocity and "joint_vel" in same:
        out["velocity"] = same["joint_vel"]
    if robot.driver.effort and "joint_torque" in same:
        out["effort"] = same["joint_torque"]
    if spec.tool and position == "joint_pos":
        parts = {"position": "pos_w", "attitude": "quat_w", **({"velocity": "vel_w"} if "velocity" in out else {})}
        tool = {key: f"{spec.tool}_{end}" for key, end in parts.items() if f"{spec.tool}_{end}" in spec.signals}
        out["tool"] = {"chain": "self", **tool}
    return out


def followers(robot: Jointed, names: Sequence[str]) -> dict[str, object]:
    """Of the joints ``names`` those that follow another of them, by the model: the driver may leave them out."""
    if robot.spec.model is None:
        return {}
    tied = read_model(robot.spec.model).followers
    rows = {name: (follow.leader, [*follow.coefficients, 0.0, 0.0][:2]) for name, follow in tied.items()
            if name in names and follow.leader in names and follow.leader not in tied
            and not any(follow.coefficients[2:])}
    return {robot.called([name])[0]: {"of": robot.called([leader])[0], "multiplier": factor, "offset": offset}
            for name, (leader, (offset, factor)) in rows.items()}


def command_rows(robot: Jointed, controller: Controller) -> Iterator[str]:
    """The commands' topics."""
    for command in robot.commands(controller.units):
        joints = robot.called(robot.driven(command.name))
        if robot.fingers(command) and robot.driver.gripper != "joined":
            last = command.size - 1
            row = controller_row(robot, controller, f"{controller.name}_controller", joints[:last])
            gripper = gripper_row(robot, controller, joints[last:])
            row |= {"components": list(range(last)), "also": [{**gripper, "components": [last]}]}
        else:
            row = controller_row(robot, controller, f"{controller.name}_controller", joints)
        yield f"{command.name}: {flow(row)}"


def controller_row(robot: Jointed, controller: Controller, name: str, joints: Sequence[str]) -> dict[str, object]:
    """The topic of a controller called ``name``."""
    options: dict[str, object] = {"joints": list(joints)}
    if controller.trajectory:
        options["reach_s"] = rounded(1.0 / robot.control_hz)
    last, kind, codec = (
        ("joint_trajectory", "trajectory_msgs/msg/JointTrajectory", "joint_trajectory") if controller.trajectory
        else ("commands", "std_msgs/msg/Float64MultiArray", "forward_array"))
    return {"topic": f"{name}/{last}", "type": kind, "codec": codec, "qos": "command", "options": options}


def gripper_row(robot: Jointed, controller: Controller, joints: Sequence[str]) -> dict[str, object]:
    """The gripper's topic."""
    if robot.driver.gripper == "controller":
        return controller_row(robot, controller, "gripper_controller", joints)
    if robot.driver.gripper == "action":
        return {"topic": "gripper_controller/gripper_cmd", "type": GRIPPER_ACTION, "codec": "gripper_action",
                "qos": "command", "options": {"max_effort": 0.0, "min_change": rounded(GOAL_SHARE * stroke(robot))}}
    return {"topic": "gripper_controller/command", "type": GRIPPER_MSG, "codec": "gripper_command", "qos": "command",
            "options": {"max_effort": 0.0}}


# ---------------------------------------------------------------- safety


def safety(robot: Jointed) -> list[str]:
    """What the guard demands, with the origin of each number."""
    period, state = 1.0 / robot.control_hz, 1.0 / robot.rate_hz
    fastest = max(robot.limits.speed)
    lines = [
        f"stale_after_s: {rounded(max(0.1, 4.0 * state))}  # four samples, at least 0.1 s; chosen",
        f"silent_after_s: {rounded(max(0.1, 3.0 * period))}  # three periods of the spec's control_hz, at least 0.1 s",
        "stamps_within_s: 0.5  # chosen",
        *fence(robot),
        *comment("No `frozen`: encoders rest in all bits. A robot that is told to move and stands still is found by",
                 "tracking; where sensors never rest, say frozen: {signals: [joint_pos], after_s: 1.0}"),
        *comment("jump: from one sample to the next, at the fastest joint's speed (spec: motion.speed) four samples,",
                 "or 40 ms"),
        f"jump: {{joint_pos: {rounded(max(0.05, fastest * max(0.04, 4.0 * state)))}}}",
        "violated: stop  # a mission that cannot be satisfied any more is over",
        "swap: {blend_s: 0.5}  # chosen",
        "commands:"]
    for command in (c for c in robot.spec.commands.values() if robot.spec.actuators.get(c.name)):
        for units, section in ((PLACES, place_section), (SPEEDS, speed_section), (EFFORTS, effort_section)):
            if command in robot.commands(units) and (robot.has_velocity or units == PLACES):
                lines += indented([f"{command.name}:", *indented(section(robot, command), 2)], 2)
    return ["# What the guard demands, and how it stops the robot. Each rule is described in",
            "# temporeal_bridge/guard/safety/section.py.", "safety:", *indented(lines, 2)]


def fence(robot: Jointed) -> Iterator[str]:
    """The box of the tool."""
    spec = robot.spec
    if not spec.tool:
        yield from comment("No geofence: the spec names no tool.")
        return
    low, high = reached(robot)
    yield from comment(f"geofence: where {spec.tool} comes with joints anywhere in their range (model and spec), and",
                       "not below the plane of the base by more than 2 cm; make it smaller where your room is")
    yield f"geofence: {{signal: {spec.tool}_pos_w, low: {flow(low)}, high: {flow(high)}}}"


def reached(robot: Jointed) -> tuple[list[float], list[float]]:
    """A box around the places of the tool [m]: those of poses drawn over the joints' range, and ROOM_M."""
    chain, limits = serial_chain(robot.spec), robot.limits
    low, high = (np.array(end)[list(chain.columns)] for end in (limits.low, limits.high))
    poses = np.random.default_rng(0).uniform(low, high, (POSES, len(low)))
    home = np.array(robot.spec.home["joint_pos"])[list(chain.columns)]
    places = chain.forward(np.vstack([poses, home]))[:, :3, 3]
    lowest, highest = places.min(axis=0) - ROOM_M, places.max(axis=0) + ROOM_M
    if places[-1, 2] > 0.0:  # it works above the plane of its base
        lowest[2] = max(lowest[2], -BELOW_M)
    return [round(float(x), 2) for x in lowest], [round(float(x), 2) for x in highest]


def widened(robot: Jointed, command: CommandSpec, of_joints: Sequence[float], finger: float) -> float | list[float]:
    """Values of the joints, and of the gripper where the command has one."""
    return shared([*of_joints, *([finger] if robot.fingers(command) else [])])


def stroke(robot: Jointed) -> float:
    """The gripper's way from open to closed, m or rad."""
    gripper = robot.spec.gripper
    return abs(gripper.open - gripper.closed) if gripper is not None else 0.0


def motion(robot: Jointed, command: CommandSpec) -> Iterator[str]:
    """Limits of a place's motion."""
    limits, grip = robot.limits, stroke(robot) / GRIP_S
    ends = [min(inner - low, high - outer) for inner, low, high, outer in zip(
        limits.low, command.low, command.high, limits.high)]
    speed = [robot.share * value for value in limits.speed]
    ramped = [value / HAND_RAMP_S for value in speed] if robot.gentle else [
        robot.share * value for value in limits.acceleration]
    yield "motion:"
    yield f"  margin: {flow(widened(robot, command, [inside(end) for end in ends], 0.0))}" \
          "  # spec: motion.low and high, inside the command's range"
    yield f"  speed: {flow(widened(robot, command, speed, grip))}  # spec: motion.speed{shown(robot)}"
    origin = f"full speed in {HAND_RAMP_S:g} s, chosen" if robot.gentle else \
        f"spec: motion.acceleration{shown(robot)}{assumed(robot, 'acceleration')}"
    yield f"  acceleration: {flow(widened(robot, command, ramped, grip / GRIP_RAMP_S))}  # {origin}"
    if limits.jerk and not robot.gentle:
        jerk = widened(robot, command, limits.jerk, max(limits.jerk))
        yield f"  jerk: {flow(jerk)}  # spec: motion.jerk{assumed(robot, 'jerk')}"


def shown(robot: Jointed) -> str:
    """The share of the limits, for a comment."""
    return f", {robot.share:g} of it" if robot.share != 1.0 else ""


def assumed(robot: Jointed, name: str) -> str:
    """Why the spec's limit is a default, for a comment."""
    return f" ({robot.spec.defaults[name]})" if name in robot.spec.defaults else ""


def late(robot: Jointed, joints: Sequence[float]) -> list[float]:
    """How far behind their commands joints are that move with these speeds: servos and two control periods late, half
    as much again, and sagging."""
    lag = 1.5 * (LAG_S + 2.0 / robot.control_hz)
    return [max(lag * speed, SAG) for speed in joints]


def place_section(robot: Jointed, command: CommandSpec) -> Iterator[str]:
    """A command that says where the joints are to be."""
    speed = [robot.share * value for value in robot.limits.speed]
    if robot.gentle:
        yield from comment("ramp keeps the last command, and with it the grip; hold goes to where the fingers are")
        yield "stop: {default: ramp, operator: hold}"
    else:
        yield "stop: {default: ramp, tracking: hold}"
    yield from motion(robot, command)
    if not robot.gentle:
        yield from comment(f"tracking: 1.5 times what servos {LAG_S:g} s late and two control periods make of the",
                           f"speed above, at least {SAG:g}; a soft arm sags more: measure it")
        yield f"tracking: {{signal: joint_pos, error: {flow(shared(late(robot, speed)))}, " \
              f"after_s: {rounded(max(0.2, 5.0 / robot.control_hz))}}}"
        yield from agreement(robot)
    yield f"start: {{signal: joint_pos, within: {0.5 if robot.gentle else 0.2}, ramp_s: 0.5}}  # chosen"
    if not robot.gentle:
        yield from collision(robot)


def agreement(robot: Jointed) -> Iterator[str]:
    """Places that change as their velocities say."""
    if robot.has_velocity:
        yield "agree: {joint_pos: {rate: joint_vel, within: 0.1}}  # chosen: both are of one message"


def collision(robot: Jointed) -> Iterator[str]:
    """The rule against links that touch, where the model's shapes can be read and the home is free."""
    spec = robot.spec
    try:
        watched(spec, "joint_pos", margin := APART_M if spec.shapes is None else HULLS_APART_M)
    except (RobotFileError, KeyError):
        yield from comment("No self_collision: the model says no shapes of the links that can be read without a",
                           "simulator (of an MJCF: boxes, cylinders, capsules, spheres), and the spec no capsules")
    else:
        where = "capsules of the spec" if spec.shapes is not None else "shapes of the model"
        yield f"self_collision: {{signal: joint_pos, margin: {margin:g}}}  # margin chosen; {where}"


def rate_section(robot: Jointed) -> Iterator[str]:
    """What commands of speeds and efforts have alike."""
    yield "stop: {default: damp}"
    yield from agreement(robot)


def braking(robot: Jointed) -> list[float]:
    """With which joints come to rest: never more than their share of the acceleration."""
    return [min(brake, robot.share * value) for brake, value in zip(robot.limits.brake, robot.limits.acceleration)]


def ends(robot: Jointed, extra: Mapping[str, object]) -> Iterator[str]:
    """How fast joints may be near the ends of their range."""
    limits, share = robot.limits, robot.share
    yield from comment("ends: spec, motion: range, brake and speed" + (f", {share:g} of them" if share < 1.0 else ""))
    yield "ends: " + flow({
        "position": "joint_pos", "range": "joint_pos", "margin": 0.02,
        "brake": shared(braking(robot)), "speed": shared(share * value for value in limits.speed), **extra})


def speed_section(robot: Jointed, command: CommandSpec) -> Iterator[str]:
    """A command that says how fast the joints are to be."""
    limits, share = robot.limits, robot.share
    speed = [share * value for value in limits.speed]
    yield from rate_section(robot)
    jerk = f", acceleration: {flow(shared(limits.jerk))}" if limits.jerk else ""
    yield from comment("motion: of a speed; it changes by the acceleration, and that by the jerk (spec)")
    yield f"motion: {{speed: {flow(shared(share * value for value in limits.acceleration))}{jerk}}}"
    yield from ends(robot, {"late_s": LAG_S})
    slow = [1.5 * share * value * (LAG_S + 2.0 / robot.control_hz) for value in limits.acceleration]
    yield f"tracking: {{signal: joint_vel, error: {flow(shared(max(v, 0.3 * s) for v, s in zip(slow, speed)))}, " \
          f"after_s: {rounded(max(0.2, 5.0 / robot.control_hz))}}}  # as for positions, of the acceleration"
    yield f"start: {{signal: joint_vel, within: 0.3, ramp_s: 0.5, at_rest: {still(robot)}}}  # chosen"
    yield from collision(robot)


def effort_section(robot: Jointed, command: CommandSpec) -> Iterator[str]:
    """A command that says what the motors exert."""
    limits = robot.limits
    yield from rate_section(robot)
    yield "stale_after_s: " + f"{rounded(max(0.03, 2.5 / robot.rate_hz))}  # what damps is the velocity; chosen"
    most = [max(-low, high) for low, high in zip(command.low, command.high)]
    yield f"motion: {{speed: {flow(shared(value / 0.1 for value in most))}}}  # an effort's: all in 0.1 s; chosen"
    yield from comment("gain: damping that exerts the command's whole range at full speed; chosen")
    gain = [value / speed for value, speed in zip(most, limits.speed)]
    yield from ends(robot, {"velocity": "joint_vel", "gain": shared(gain), "period_s": 0.02})
    yield f"start: {{ramp_s: 0.5, at_rest: {still(robot)}}}  # chosen"
    yield from collision(robot)


def still(robot: Jointed) -> str:
    """The rule for a robot that rests."""
    return "{signal: joint_vel, below: 0.1}"


# ---------------------------------------------------------------- simulation


def simulation(robot: Jointed) -> list[str]:
    """The simulated robot's sensors and starts."""
    noise = {"joint_pos": 0.0001, "joint_vel": 0.005, "joint_torque": 0.1, "finger_pos": 0.0002, "base_pos_w": 0.002,
             "base_quat_w": 0.002, "base_vel_w": 0.02, "base_ang_vel_b": 0.02}
    late_s = rounded(min(1.0 / robot.rate_hz, 0.01))
    slides = any(unit == "m" for unit in robot.spec.signals["joint_pos"].unit.split(","))
    return ["# The simulated robot. Standard deviations, SI: chosen. Latencies: one sample, at most 10 ms.",
            "simulation:", *indented([
                f"noise: {flow({name: std for name, std in noise.items() if name in robot.spec.signals})}",
                f"state_latency_s: {late_s}", f"command_latency_s: {late_s}",
                f"start: {{joint_rad: {0.02 if slides else 0.1}}}  # uniform about home",
                "spread: 0.0  # share of each parameter's range that flights are drawn from"], 2)]
