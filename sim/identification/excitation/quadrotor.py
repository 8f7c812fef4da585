"""What excites a quadrotor: chirps of its place along each axis, of thrust and of the turn about each axis, doublets.

Place is a reference for a controller that holds the robot; thrust and turn are added to that controller's own wishes.
At each frequency they are as large as the limits allow: a place's chirp slows down by its speed and the lean that its
acceleration needs, and slow thrust or turns, which move the robot far, are small. The robot comes from where it is to
``center`` first, and hovers there at the end. By rotor commands it then comes down and switches its rotors off: when a
mission ends, a guard cannot let down what it commands no thrust and rates of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import ceil, cos, pi, radians, tan

import numpy as np

from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.excitation import waves
from temporeal.sim.identification.excitation.segments import Segment, segments_of
from temporeal.sim.identification.excitation.waves import CannotExcite, Limits, Numbers
from temporeal.sim.physics.quadrotor.dynamics import GRAVITY

COMMANDS = ("motor_cmd", "ctbr_cmd")
NEEDED = ("mass", "inertia", "thrust_curve", "torque_per_thrust", "tau_up", "arm", "rate_gain")
LEAN = 0.5  # of the tilt that is allowed: what a place's chirp may need; the rest is for holding the robot
ROOM = 0.35  # m of the box that the reference leaves to the controller, and to where the robot was when it began
DRIFT_M, DRIFT_RAD = 0.08, 0.1  # that a thrust's or a turn's chirp moves the robot, uncontrolled, at its frequency
EDGE_S = 0.04  # s, of a doublet
SINK_M_S = 0.3  # of the reference that comes down, at most
LOW_S, FADE_S = 1.0, 0.3  # s at the height from which it falls; in which the thrust goes: a fall of 0.15 m
NEAR_M = 0.1  # of that height, when the thrust goes
LANDS = "landing"
PARTS, PERIODS = 8, 1.0  # of an excitation; of the lowest frequency, in each chirp


@dataclass(frozen=True)
class QuadrotorSettings:
    """What the user asks of an excitation.

    Args:
        seconds: of all before the landing, which motor_cmd has. rate_hz: of commands; 0: the robot's own.
        command: motor_cmd: rotor speeds, which the recording then has, or ctbr_cmd: thrust and body rates, where the
            driver takes no rotor speeds.
        reach_m: amplitude of the place, m, at low_hz; low_hz, high_hz: of the place's chirps.
        thrust: amplitude of the thrust, share of the weight. turn: by which share of hover thrust each rotor differs.
        fast_low_hz, fast_high_hz: of thrust's and turns' chirps.
        box_m: how far from the center, along each axis, the robot may come. speed_m_s, tilt_deg: that it may have.
        floor_m: height above which it stays until it lands.
        land_m: height in the world at which a landing robot's rotors go off: from it it may fall.
        x, y, z: the center, m in the world; None: the robot's home.
        settle_s, quiet_s: until the excitation begins; the hover at its end.
    """

    seconds: float = 60.0
    rate_hz: float = 0.0
    command: str = "motor_cmd"
    reach_m: float = 0.3
    low_hz: float = 0.3
    high_hz: float = 1.5
    thrust: float = 0.15
    turn: float = 0.1
    fast_low_hz: float = 0.8
    fast_high_hz: float = 8.0
    box_m: float = 0.8
    speed_m_s: float = 2.0
    tilt_deg: float = 35.0
    floor_m: float = 0.15
    land_m: float = 0.1
    x: float | None = None
    y: float | None = None
    z: float | None = None
    settle_s: float = 4.0
    quiet_s: float = 3.0


@dataclass(frozen=True)
class QuadrotorPlan:
    """An excitation of T control steps.

    Args:
        rate_hz: of commands. center: [3] m. segments: in their order.
        place, velocity, acceleration: [T, 3] of the reference, from the center, SI.
        thrust: [T] N more than the controller wants. turn: [T, 3] rad/s^2 more than it commands.
        power: [T] share of all that it wants, 1 until the rotors go off.
    """

    robot: RobotSpec
    settings: QuadrotorSettings
    rate_hz: float
    center: Numbers
    segments: tuple[Segment, ...]
    place: Numbers
    velocity: Numbers
    acceleration: Numbers
    thrust: Numbers
    turn: Numbers
    power: Numbers

    @property
    def steps(self) -> int:
        """Number of control steps."""
        return len(self.thrust)

    @property
    def seconds(self) -> float:
        """Of all of it."""
        return self.steps / self.rate_hz

    @property
    def lands_s(self) -> float:
        """When the landing begins; the end, where there is none."""
        first = [part.first for part in self.segments if part.name == LANDS]
        return min([self.steps, *first]) / self.rate_hz

    @property
    def clauses(self) -> dict[str, str]:
        """What a flight of it keeps, in the formulas' language, by what it limits."""
        end, lands, quiet = self.seconds, self.lands_s, round(0.5 * self.settings.quiet_s * self.rate_hz) / self.rate_hz
        fades = end - round(FADE_S * self.rate_hz) / self.rate_hz
        landing = {} if lands == end else {
            "landing": f"G[{lands:g},{end:g}] (abs(base_pos_w.x - center.x) < box & abs(base_pos_w.y - center.y) < box "
                       "& base_pos_w.z - center.z < box)",
            "sinking": f"G[{lands:g},{fades:g}] (base_vel_w.z > -2 * sink)",
            "low end": f"G[{fades:g},{end:g}] (base_pos_w.z < low)"}
        return {
            "place": f"G[0,{lands:g}] (abs(base_pos_w.x - center.x) < box & abs(base_pos_w.y - center.y) < box "
                     "& abs(base_pos_w.z - center.z) < box & base_pos_w.z > floor)",
            "speed": f"G[0,{end:g}] (norm(base_vel_w) < speed)",
            "tilt": f"G[0,{end:g}] (base_quat_w.x * base_quat_w.x + base_quat_w.y * base_quat_w.y < tilt)",
            "quiet end": f"G[{lands - quiet:g},{lands:g}] (norm(base_pos_w - center) < near)", **landing}

    @property
    def constants(self) -> dict[str, float | tuple[float, ...]]:
        """Of the formula. tilt: the square of the sine of half the angle."""
        s = self.settings
        landing = {} if self.lands_s == self.seconds else {"sink": SINK_M_S, "low": s.land_m + NEAR_M}
        return {"center": tuple(map(float, self.center)), "box": s.box_m, "floor": s.floor_m, "speed": s.speed_m_s,
                "tilt": 0.5 * (1 - cos(radians(s.tilt_deg))), "near": 0.5 * s.box_m, **landing}

    @property
    def command(self) -> str:
        """That it is flown by."""
        return self.settings.command


def plan(robot: RobotSpec, settings: QuadrotorSettings) -> QuadrotorPlan:
    """The excitation; a :class:`CannotExcite` says what of it must not be."""
    rate = settings.rate_hz or robot.control_hz or 100.0
    center = np.array([given if given is not None else at for given, at in zip(
        (settings.x, settings.y, settings.z), robot.home["base_pos_w"])])
    check(robot, settings, rate, center)
    dt, whole = 1.0 / rate, round(settings.seconds * rate)
    down = landing(settings.land_m - center[2], rate) if settings.command == "motor_cmd" else np.zeros(0)
    settle, quiet = round(settings.settle_s * rate), round(settings.quiet_s * rate)
    makers = parts(robot, settings, dt)
    edges = np.linspace(settle, whole - quiet, len(makers) + 1).astype(int)
    steps = whole + len(down)
    table = {"place": np.zeros((steps, 3)), "thrust": np.zeros((steps, 1)), "turn": np.zeros((steps, 3))}
    for (_, column, k, make), first, last in zip(makers, edges[:-1], edges[1:]):
        table[column][first:last, k] += make(last - first)
    table["place"][whole:, 2] = down
    names = ("settle", *(name for name, *_ in makers), "quiet", *([LANDS] if len(down) else []))
    segments = segments_of(names, [*np.diff([0, *edges, whole]).tolist(), *([len(down)] if len(down) else [])])
    velocity = waves.derivative(table["place"], dt)
    return QuadrotorPlan(robot, settings, rate, center, segments, table["place"], velocity,
                         waves.derivative(velocity, dt), table["thrust"][:, 0], table["turn"],
                         power(steps, round(FADE_S * rate) if len(down) else 0))


def landing(drop: float, rate: float) -> Numbers:
    """[L] m of the reference that sinks by ``drop`` (negative), and stays while the thrust goes; whole seconds."""
    sinks = 1.875 * abs(drop) / SINK_M_S  # least jerk: 1.875 times as fast in its middle as on average
    count = round(ceil(sinks + LOW_S + FADE_S) * rate)
    return np.asarray(drop * waves.smooth((np.arange(count) + 1) / max(sinks * rate, 1.0)))


def power(steps: int, fades: int) -> Numbers:
    """[T] 1, and down to 0 in the last ``fades``."""
    return np.asarray(np.minimum(1.0, (steps - 1 - np.arange(steps)) / fades)) if fades else np.ones(steps)


Part = tuple[str, str, int, Callable[[int], Numbers]]
"""Name, column of the table and component, and what makes that many samples."""


def parts(robot: RobotSpec, s: QuadrotorSettings, dt: float) -> list[Part]:
    """One after the other: each excites one thing, so that it is seen by itself."""
    weight = robot.parameters["mass"].nominal[0] * GRAVITY
    place = Limits(s.reach_m, 0.6 * s.speed_m_s, GRAVITY * tan(LEAN * radians(s.tilt_deg)))
    hardest = s.turn * turns(robot)

    def moved(count: int) -> Numbers:
        return waves.shrunk(waves.chirp(count, dt, s.low_hz, s.high_hz, place.at), dt, place)

    def lifted(count: int) -> Numbers:
        return waves.chirp(count, dt, s.fast_low_hz, s.fast_high_hz, lambda hz: np.minimum(
            s.thrust * weight, 0.001 * weight + weight / GRAVITY * DRIFT_M * (2 * pi * hz) ** 2))

    def turned(k: int) -> Callable[[int], Numbers]:
        return lambda count: waves.chirp(count, dt, s.fast_low_hz, s.fast_high_hz, lambda hz: np.minimum(
            hardest[k], DRIFT_RAD * (2 * pi * hz) ** 2))

    def pushed(most: float) -> Callable[[int], Numbers]:
        """Several doublets, so short that the robot does not go far."""
        def make(count: int) -> Numbers:
            each = min(count, round(1.0 / dt))
            return np.resize(np.concatenate([most * waves.doublet(each, round(EDGE_S / dt))] * (count // each) + [
                np.zeros(count - count // each * each)]), count)
        return make

    chirps: list[Part] = [(f"place_{a}", "place", k, moved) for k, a in enumerate("xyz")]
    chirps += [("thrust", "thrust", 0, lifted), *((f"turn_{a}", "turn", k, turned(k)) for k, a in enumerate("xyz"))]
    return [*chirps, ("doublets", "thrust", 0, pushed(s.thrust * weight))]


def turns(robot: RobotSpec) -> Numbers:
    """[3] rad/s^2: angular accelerations by rotors whose thrusts differ by all of what each has in a hover."""
    p = {name: np.array(parameter.nominal) for name, parameter in robot.parameters.items()}
    levers = np.array([p["arm"][1], p["arm"][0], p["torque_per_thrust"][0]])
    return np.asarray(p["mass"][0] * GRAVITY * levers / p["inertia"])


def check(robot: RobotSpec, s: QuadrotorSettings, rate: float, center: Numbers) -> None:
    """Refuse what must not be flown."""
    if robot.kind != "quadrotor":
        raise CannotExcite(f"robot {robot.name!r} is a {robot.kind}, no quadrotor")
    if missing := [name for name in NEEDED if name not in robot.parameters]:
        raise CannotExcite(f"robot {robot.name!r}: its spec lacks {', '.join(missing)}, which a controller needs")
    if s.command not in COMMANDS or s.command not in robot.commands:
        legal = [name for name in COMMANDS if name in robot.commands]
        raise CannotExcite(f"command={s.command}: robot {robot.name!r} is excited by "
                           f"{', '.join(legal) or 'none that it has'}")
    for name in (f.name for f in fields(s) if f.name not in ("command", "x", "y", "z", "rate_hz")):
        if not getattr(s, name) > 0:
            raise CannotExcite(f"{name}={getattr(s, name):g}: a number above 0 is needed")
    waves.check_steps(s.seconds, rate)
    waves.check_band(s.low_hz, s.high_hz, rate)
    waves.check_band(s.fast_low_hz, s.fast_high_hz, rate, "fast_")
    least = s.settle_s + s.quiet_s + PARTS * PERIODS / min(s.low_hz, s.fast_low_hz)
    if s.seconds < least:
        raise CannotExcite(f"seconds={s.seconds:g}: with these frequencies {least:.3g} s at least are needed, so that "
                           f"each of {PARTS} parts has {PERIODS:g} period of {min(s.low_hz, s.fast_low_hz):g} Hz")
    check_limits(s, center)


def check_limits(s: QuadrotorSettings, center: Numbers) -> None:
    """Refuse amplitudes that leave no room to the limits."""
    rules = (
        ("reach_m", s.reach_m, s.box_m - ROOM, f"box_m={s.box_m:g} less the {ROOM:g} m that holding the robot takes"),
        ("reach_m", s.reach_m, center[2] - s.floor_m - 0.5 * ROOM,
         f"the center's height {center[2]:g} m less floor_m={s.floor_m:g} and {0.5 * ROOM:g} m"),
        ("land_m", s.land_m, center[2], f"the center's height {center[2]:g} m"),
        ("tilt_deg", s.tilt_deg, 60.0, "the lean from which a quadrotor falls"),
        ("thrust", s.thrust, 0.4, "what leaves the rotors room"), ("turn", s.turn, 0.25, "what leaves the rotors room"))
    for name, value, most, why in rules:
        if value > most + 1e-9:
            raise CannotExcite(f"{name}={value:g}: at most {most:.3g}, {why}")
