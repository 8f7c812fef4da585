"""The description of a robot: signals, commands, limits, home, parameters and files. numpy only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from temporeal.robots.model_files import is_file
from temporeal.robots.registry import UnknownName, guess, guess_file, names, resolve
from temporeal.robots.search_path import VARIABLE, SearchPathError, own_robots, said
from temporeal.robots.signals import CommandSpec, SignalSpec
from temporeal.robots.symmetry import Symmetry


@dataclass(frozen=True)
class Parameter:
    """A physical parameter: nominal value, range over the published sources, unit and sources.

    ``low`` and ``high`` bound each component; randomization draws from this range. ``most`` is the largest value that
    the simulator can take.
    """

    nominal: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    unit: str
    source: str
    most: float = inf

    def __post_init__(self) -> None:
        if not len(self.nominal) == len(self.low) == len(self.high):
            raise ValueError(f"parameter from {self.source!r}: nominal, low and high differ in length")
        if any(not lo <= x <= hi for lo, x, hi in zip(self.low, self.nominal, self.high)):
            raise ValueError(f"parameter from {self.source!r}: nominal {self.nominal} lies outside its range")


@dataclass(frozen=True)
class MotionLimits:
    """Limits of joint motion, [J] each: rad and s (m for sliding joints).

    Braking at ``brake`` must come to rest within ``low`` and ``high``; ``brake <= acceleration``. ``jerk`` and
    ``effort`` (N m or N) are empty where they are unknown.
    """

    speed: tuple[float, ...]
    acceleration: tuple[float, ...]
    brake: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    jerk: tuple[float, ...] = ()
    effort: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        sizes = {len(self.speed), len(self.acceleration), len(self.brake), len(self.low), len(self.high)}
        sizes |= {len(values) for values in (self.jerk, self.effort) if values}
        if len(sizes) > 1:
            raise ValueError(f"limits of motion: one number for each joint in each limit, got {sorted(sizes)} numbers")


RAMP_S, BUILD_S = 0.25, 0.05
"""s: to full speed, and to full acceleration, where no source says how fast. Assumed: a Franka Research 3 takes 0.26 s
and 2 ms, so that arms of its size can follow."""

ASSUMED = {
    "acceleration": f"full speed within {RAMP_S:g} s: no source gives an acceleration",
    "jerk": f"full acceleration within {BUILD_S:g} s: no source gives a jerk"}
"""What :func:`cautious_motion` assumes, by limit: entries for ``RobotSpec.defaults``."""


def cautious_motion(
    speed: tuple[float, ...], low: tuple[float, ...], high: tuple[float, ...], effort: tuple[float, ...] = ()
) -> MotionLimits:
    """Limits of joints of which no source gives acceleration or jerk: see :data:`ASSUMED`."""
    acceleration = tuple(v / RAMP_S for v in speed)
    return MotionLimits(speed, acceleration, acceleration, low, high, tuple(a / BUILD_S for a in acceleration), effort)


@dataclass(frozen=True)
class Gripper:
    """A gripper that one number opens and closes.

    Args:
        command: the arm's command whose last component is the opening.
        joints: the fingers' joints of the model; the signal ``finger_pos`` has their positions in this order.
        bodies: the fingers, as the model's bodies call them: what touches an object that is held.
        open: the opening command of the open gripper (m or rad).
        closed: that of the closed one.
    """

    command: str
    joints: tuple[str, ...]
    bodies: tuple[str, ...]
    open: float
    closed: float


SOURCES = {
    "joint_pos": "positions of the joints (rad or m)", "joint_vel": "their velocities (rad/s or m/s)",
    "joint_torque": "what the actuators exert on the joints (N m or N)",
    "pos": "position of one body or site (m, world)", "quat": "its attitude (wxyz, to world)",
    "lin_vel": "its velocity (m/s, world)", "ang_vel": "its angular velocity (rad/s, world)",
    "ang_vel_b": "its angular velocity (rad/s, its own frame)",
    "contact_force": "size of the contact force on each of the bodies (N)",
    "sensor": "readings of the model's sensors, one after the other"}


DRIVES = {
    "position": "setpoints of position servos (rad or m)",
    "velocity": "the speeds of those setpoints (rad/s or m/s): the robot integrates them, within the joints' range",
    "tool": "the velocity of an arm's tool (m/s, rad/s; base frame): a servo before the robot makes setpoints of it",
    "effort": "what the actuators exert (N m or N); what the robot adds against gravity is its own"}
"""What a command is to the actuators that take it."""


@dataclass(frozen=True)
class Source:
    """Where a simulator finds a signal: ``what`` (one of :data:`SOURCES`) of the model's elements called ``names``."""

    what: str
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.what not in SOURCES:
            raise ValueError(f"a source is one of {', '.join(SOURCES)}; got {self.what!r}")
        if not self.names or (self.what in ("pos", "quat", "lin_vel", "ang_vel", "ang_vel_b") and len(self.names) > 1):
            raise ValueError(f"source {self.what!r} needs {'one name' if self.names else 'names'}, got {self.names}")


@dataclass(frozen=True)
class Changes:
    """Changes that a simulator makes to the model file of a user's robot (:mod:`temporeal.robots.user_robots`), by the
    model's names.

    Args:
        joints: ``damping`` (N m s/rad), ``armature`` (kg m^2), ``frictionloss`` (N m): value by joint.
        history: by actuator, for how many time steps its controls are kept; bounds ``command_delay``.
        exclude: pairs of bodies that do not touch each other.
        packages: folders of ROS packages, for mesh files called ``package://<name>/...``.
    """

    joints: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    history: Mapping[str, int] = field(default_factory=dict)
    exclude: tuple[tuple[str, str], ...] = ()
    packages: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class LinkShapes:
    """Capsules around a robot's links, for who keeps links apart without a simulator.

    Args:
        capsules: by link, rows (x, y, z, x, y, z, radius) in m: the ends of a segment in the link's frame.
        loose: pairs of links that are not watched: their capsules meet where their shapes do not.
    """

    capsules: tuple[tuple[str, tuple[tuple[float, ...], ...]], ...]
    loose: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class RobotSpec:
    """One robot.

    Args:
        name: folder name below ``robots/``.
        kind: ``"arm"``, ``"hand"``, ``"quadrotor"``, ``"mobile_base"``, ``"legged"``; of the shipped ones also
            ``"quadruped"`` and ``"planar"``.
        signals: what its sensors and state estimator give.
        commands: what its actuators take.
        limits: other limits by name (SI), each ``(low, high)``.
        home: state by signal name in which it rests or hovers.
        parameters: physical parameters with their sources.
        model: the MJCF file.
        ros: the ROS 2 interface file (topics, types, rates).
        sources: where a simulator finds each signal in the model (articulated robots; a quadrotor's are its body's).
        actuators: by command, the model's actuators that take its components, in this order.
        license: license of the robot's own files here.
        changes: what a simulator changes in the model file.
        drives: by command what it is to those actuators, out of :data:`DRIVES`; the others are what the model makes of
            them. The model has position servos for all of these.
        tool: name of the tool's pose: signals ``<tool>_pos_w``, ``<tool>_quat_w``, ``<tool>_vel_w``; empty: no tool.
        motion: limits of the joints in ``joint_pos``, in its order; what the robot accepts, not a share of it.
        gripper: the gripper, if it has one.
        control_hz: how often its tasks set a command unless they say otherwise, Hz; 0: no rate is known.
        defaults: limits that no source gives: what was assumed and why, by the limit's name.
        shapes: capsules around its links, where its model's own shapes are not to be read; None: they are.
        symmetry: its mirror image, if it has one: for data that is mirrored.
    """

    name: str
    kind: str
    signals: Mapping[str, SignalSpec]
    commands: Mapping[str, CommandSpec]
    limits: Mapping[str, tuple[float, float]]
    home: Mapping[str, tuple[float, ...]]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    model: Path | None = None
    ros: Path | None = None
    license: str = "Apache-2.0"
    sources: Mapping[str, Source] = field(default_factory=dict)
    actuators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changes: Changes = Changes()
    drives: Mapping[str, str] = field(default_factory=dict)
    tool: str = ""
    motion: MotionLimits | None = None
    gripper: Gripper | None = None
    control_hz: float = 0.0
    defaults: Mapping[str, str] = field(default_factory=dict)
    shapes: LinkShapes | None = None
    symmetry: Symmetry | None = None

    def __post_init__(self) -> None:
        for command, drive in self.drives.items():
            if drive not in DRIVES or command not in self.actuators:
                raise ValueError(f"robot {self.name!r}: drives has {command!r}: {drive!r}; legal: {', '.join(DRIVES)}, "
                                 f"for commands that have actuators: {', '.join(self.actuators)}")
        if self.tool and f"{self.tool}_pos_w" not in self.signals:
            raise ValueError(f"robot {self.name!r}: the tool {self.tool!r} needs the signal {self.tool}_pos_w")
        if self.gripper is not None and self.gripper.command not in self.commands:
            raise ValueError(f"robot {self.name!r}: its gripper's command {self.gripper.command!r} is not one of "
                             f"{', '.join(self.commands)}")
        for name, mirror in (self.symmetry.signals if self.symmetry is not None else {}).items():
            spec = {**self.signals, **self.commands}.get(name)
            if spec is None or spec.size != len(mirror.sign):
                raise ValueError(f"robot {self.name!r}: its symmetry has {len(mirror.sign)} components for {name!r}, "
                                 f"which {'it does not have' if spec is None else f'has {spec.size}'}")

    def command(self, name: str) -> CommandSpec:
        """The command called ``name``; an unknown name lists the known ones."""
        if name not in self.commands:
            known = ", ".join(self.commands) or "none (a URDF's are declared in the .robot.yaml beside it)"
            raise UnknownName(f"robot {self.name!r} has no command {name!r}; known: {known}")
        return self.commands[name]


def robot_names() -> list[str]:
    """Names of the robots: the sub-packages of ``robots``, and the user's own folders
    (:mod:`temporeal.robots.search_path`)."""
    return sorted({*shipped(), *own_folders()})


def shipped() -> list[str]:
    """Names of the robots that come with the package."""
    return [name for name in names("temporeal.robots") if (Path(__file__).parent / name / "spec.py").exists()]


def own_folders() -> dict[str, Path]:
    """Folders of the user's own robots in the search path, by name."""
    found = own_robots()
    for name in set(found).intersection(shipped()):
        raise SearchPathError(f"{found[name]}: the package has a robot {name!r} itself; choose another name for the "
                              "folder")
    return found


LOADED: set[Path] = set()
"""Absolute paths of robots that were loaded in this process: a script that named one may name it again by its run."""


def load_robot(name: str | Path) -> RobotSpec:
    """The spec of robot ``name``: of the package, of a folder in ``TEMPOREAL_PATH``, or of the user's robot folder or
    MJCF or URDF file with this path (:mod:`temporeal.robots.user_robots`).

    Raises:
        UnknownName: no such robot; the message lists the known ones.
        RobotFileError: a file of the robot breaks a rule.
    """
    name = str(name).rstrip("/") or "/"
    if name in shipped():
        spec: RobotSpec = resolve(f"temporeal.robots.{name}", "spec").SPEC
        return spec
    own = own_folders()
    if name in own or is_file(name):
        read: RobotSpec = resolve("temporeal.robots.user_robots", "description").user_robot(
            name, own.get(name))
        LOADED.add(Path(name).absolute())
        return read
    known = robot_names()
    near = guess(name, known) or guess_file(Path(name))
    raise UnknownName(f"no robot {name!r}; {near}known: {', '.join(known)}; or the path of a robot's "
                      f"folder (with spec.yaml), of an .xml or an .urdf file; folders in {VARIABLE} are found by name "
                      f"({said()})")
