"""``ros.yaml`` of quadrotors: the interfaces of the Crazyflie's file with another robot's numbers.

Topics, message types, PX4's orders and the sources of all of these are in ``robots/crazyflie/ros.yaml``, read here as
data. Mass, arm length, motors and thrust curve are those of the spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml

from temporeal.robots.model_files import numbers, parse
from temporeal.robots.ros_interface.text import TemplateError, comment, flow, indented, named, rounded
from temporeal.robots.spec import RobotSpec

TEMPLATES = ("px4", "mavros", "crazyswarm2", "odometry")
SHIPPED = Path(__file__).parents[1] / "crazyflie" / "ros.yaml"
FIRMWARE_SHARE = 60000 / 65535  # of full thrust: the most that a Crazyflie's setpoint asks for (its ros.yaml)
FLOOR_M = 0.045  # above where it stands a robot still counts as landed. Chosen, as the Crazyflie's
PX4_NUMBER = {(1, -1): 1, (-1, 1): 2, (1, 1): 3, (-1, -1): 4}  # by the signs of a rotor's x, y: PX4's quadrotor X
HEIGHTS: dict[str, tuple[int, Callable[[list[float]], float]]] = {  # by type of shape: its sizes, half its height
    "sphere": (1, lambda size: size[0]), "box": (3, lambda size: size[2]), "ellipsoid": (3, lambda size: size[2]),
    "cylinder": (2, lambda size: size[1]), "capsule": (2, lambda size: size[0] + size[1])}
TURNED = ("quat", "euler", "axisangle", "xyaxes", "zaxis", "fromto")  # attributes that turn a shape
LARGEST_STAND_M = 0.45  # the guard cuts motors below 0.5 m only (temporeal_bridge.guard.safety.fallback_actions)


def possible(spec: RobotSpec) -> list[str]:
    """The templates that have a command of the robot's."""
    commands = {name: set(shipped()["interfaces"][name]["commands"]) for name in TEMPLATES}
    return [name for name in TEMPLATES if commands[name] & set(spec.commands)]


def shipped() -> dict[str, Any]:
    """The Crazyflie's file."""
    content: dict[str, Any] = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    return content


def flight_yaml(spec: RobotSpec, interface: str, stands_m: float | None = None) -> list[str]:
    """The lines after the head. ``stands_m``: height of the robot's origin where it stands on the ground; None: by the
    model's shapes."""
    stands_m = standing(spec) if stands_m is None else stands_m
    if interface not in (fitting := possible(spec)):
        raise TemplateError(f"robot {spec.name!r} has no command for {interface!r}: its commands are "
                            f"{named(list(spec.commands))}; legal: {named(fitting)}")
    if not 0.0 <= stands_m <= LARGEST_STAND_M:
        raise TemplateError(f"the robot's origin is at {stands_m!r} m where it stands; 0 to {LARGEST_STAND_M:g} m is "
                            "needed")
    content = shipped()
    part = adapted(spec, deepcopy(content["interfaces"][interface]))
    return [f"default: {interface}", "", "interfaces:",
            *indented(comment(f"max_thrust_n: four rotors at full speed by the spec's thrust_curve, "
                              f"{full_thrust(spec):.4g} N; it hovers at {hover_share(spec):.2f} of it",
                              f"(mass {mass(spec):g} kg). thrust_curve: the spec's. Topics and types with their",
                              "sources: robots/crazyflie/ros.yaml"), 2),
            f"  {interface}:", *indented(block(part), 4), "",
            *safety(spec, content["safety"], stands_m), "", *simulation(content["simulation"], stands_m)]


# ---------------------------------------------------------------- the spec's numbers


def parameter(spec: RobotSpec, name: str) -> tuple[float, ...]:
    """A physical parameter's nominal value."""
    if name not in spec.parameters:
        raise TemplateError(f"robot {spec.name!r} has no parameter {name!r}; a quadrotor needs mass and thrust_curve, "
                            f"it has: {named(list(spec.parameters))}")
    return spec.parameters[name].nominal


def mass(spec: RobotSpec) -> float:
    """kg."""
    return parameter(spec, "mass")[0]


def full_thrust(spec: RobotSpec) -> float:
    """Of all rotors at full speed, N."""
    return 4.0 * sum(parameter(spec, "thrust_curve"))


def hover_share(spec: RobotSpec) -> float:
    """Share of the full thrust that carries the robot."""
    share = mass(spec) * 9.81 / full_thrust(spec)
    if not 0.0 < share < 0.9:
        raise TemplateError(f"robot {spec.name!r}: {mass(spec):g} kg on rotors of {full_thrust(spec):.3g} N together: "
                            "it hovers at more than 0.9 of their thrust, or not at all; check mass and thrust_curve")
    return share


def motor_order(spec: RobotSpec) -> list[int]:
    """PX4's number of each of the robot's rotors, by where the model's sites ``rotor1`` to ``rotor4`` are."""
    if spec.model is None:
        raise TemplateError(f"robot {spec.name!r} has no model: where are its rotors?")
    places = {site.get("name", ""): site.get("pos", "").split() for site in parse(spec.model).iter("site")}
    order = []
    for rotor in ("rotor1", "rotor2", "rotor3", "rotor4"):
        try:
            x, y = (float(word) for word in places[rotor][:2])
            order.append(PX4_NUMBER[1 if x > 0 else -1, 1 if y > 0 else -1])
        except (KeyError, ValueError):
            raise TemplateError(f"{spec.model}: the site {rotor!r} with its place is needed: where are the motors?") \
                from None
    if sorted(order) != [1, 2, 3, 4]:
        raise TemplateError(f"{spec.model}: rotors 1 to 4 are PX4's motors {order}; one in each corner is needed")
    return order


def standing(spec: RobotSpec) -> float:
    """How far the shapes of the model's body ``base`` that touch reach below its origin, m; 0: it has none that can be
    read without a simulator."""
    if spec.model is None:
        return 0.0
    bodies = [body for body in parse(spec.model).iter("body") if body.get("name") == "base"]
    lowest = [lower_end(geom) for body in bodies for geom in body.findall("geom") if geom.get("contype") != "0"
              and geom.get("class") != "look"]
    return rounded(max([0.0, *lowest]))


def lower_end(geom: ElementTree.Element) -> float:
    """How far a shape reaches below its body's origin, m; 0 for those whose size is not in the element."""
    text = geom.get("size", "")
    size = list(numbers(f"{geom.tag}: size", text, len(text.split())))
    needed, extent = HEIGHTS.get(geom.get("type", "sphere"), (9, lambda size: 0.0))
    if len(size) < needed or any(key in geom.attrib for key in TURNED):
        return 0.0
    return float(extent(size)) - numbers(f"{geom.tag}: pos", geom.get("pos", "0 0 0"), 3)[2]


# ---------------------------------------------------------------- topics


def adapted(spec: RobotSpec, part: dict[str, Any]) -> dict[str, Any]:
    """An interface of the Crazyflie with the robot's numbers."""
    full = rounded(full_thrust(spec), 6)
    part["commands"] = {name: row for name, row in part["commands"].items() if name in spec.commands}
    for name, row in part["commands"].items():
        options = row["options"]
        if "max_thrust_n" in options:
            options["max_thrust_n"] = full
            limit = full * (FIRMWARE_SHARE if row["codec"] == "legacy_rates" else 1.0)
            if spec.commands[name].high[0] > limit * (1 + 1e-6):
                raise TemplateError(f"command {name!r} asks for up to {spec.commands[name].high[0]:g} N; over this "
                                    f"interface the robot takes {limit:.4g} N: set its high to that in the spec")
        if "order" in options:
            options.update(order=motor_order(spec), thrust_curve=[rounded(c, 6) for c in
                                                                  parameter(spec, "thrust_curve")])
    if "crazyflie_interfaces/msg/LogDataGeneric" in part["definitions"]:
        part["description"] = "Crazyswarm2's C++ server, rate mode, with this robot's thrust"
    return part


class Literal(str):
    """Text over several lines, written as such."""


class Dumper(yaml.SafeDumper):
    """Writes :class:`Literal` with ``|``."""

    def ignore_aliases(self, data: Any) -> bool:
        """Rows that the shipped file shares are written out."""
        return True


Dumper.add_representer(Literal, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|"))


def block(part: Mapping[str, Any]) -> Iterator[str]:
    """The interface's lines: definitions as blocks, rows of topics in one line each."""
    yield f"description: {part['description']}"
    texts = {name: Literal(text) for name, text in (part["definitions"] or {}).items()}
    yield from dumped({"definitions": texts})
    yield "states:"
    yield from (f"  - {flow(row)}" for row in part["states"])
    yield "commands:"
    for name, row in part["commands"].items():
        yield f"  {name}: {flow(row)}"
    yield from dumped({key: part[key] for key in ("autopilot", "rivals") if key in part})


def dumped(content: Mapping[str, Any]) -> list[str]:
    """``content`` as YAML in blocks."""
    return yaml.dump(dict(content), Dumper=Dumper, sort_keys=False, width=10**6).splitlines() if content else []


# ---------------------------------------------------------------- safety and simulation


def safety(spec: RobotSpec, ours: Mapping[str, Any], stands_m: float) -> list[str]:
    """What the guard demands."""
    landed = rounded(stands_m + FLOOR_M)
    silent = max(ours["silent_after_s"], 3.0 / spec.control_hz if spec.control_hz else 0.0)
    level = {**ours["level"], "landed_m": landed}
    stops = {name: {"stop": {"default": "level" if name == "ctbr_cmd" else "silence"}} for name in spec.commands}
    rows = [f"{key}: {flow(ours[key])}"
            for key in ("stale_after_s", "stamps_within_s", "frozen", "jump", "agree", "violated", "swap", "estop")]
    fence = dict(ours["geofence"])
    fence["low"] = [*fence["low"][:2], rounded(min(fence["low"][2], landed - 0.3 + 0.05))]
    return ["# What the guard demands, and how it stops the robot. Each rule is described in",
            "# temporeal_bridge/guard/safety/section.py.", "safety:", *indented([
                "# as the Crazyflie's, whose file gives the reasons:", *rows, "",
                f"silent_after_s: {rounded(silent)}  # three periods of the spec's control_hz, at least 0.1 s",
                *comment("geofence: chosen, a large lab, z from its floor; set it to your room. `level` must come down",
                         "from its top in time"),
                f"geofence: {flow(fence)}",
                f"unlock_below_m: {rounded(landed + 0.04)}  # where it stands, {stands_m:g} m, and 8.5 cm",
                *comment(f"landed_m: where it stands, {stands_m:g} m, and {FLOOR_M:g} m. The thrust that carries it is",
                         f"the spec's mass times g, {mass(spec) * 9.81:.4g} N, until a flight has shown it. The others",
                         "as the Crazyflie's"),
                f"level: {flow(level)}",
                "commands:",
                *(f"  {name}: {flow(row)}" for name, row in stops.items())], 2)]


def simulation(ours: Mapping[str, Any], stands_m: float) -> list[str]:
    """The simulated robot's sensors, firmware and starts."""
    return ["# The simulated robot: noise (standard deviations, SI), latencies, firmware: chosen as the Crazyflie's.",
            "simulation:", *indented([
                *(f"{key}: {flow(value)}" for key, value in ours.items() if key not in ("start", "spread")),
                f"start: {flow(ours['start'])}  # uniform about home; ground_m: {stands_m:g} lets it stand",
                "spread: 0.0  # share of each parameter's range that flights are drawn from"], 2)]
