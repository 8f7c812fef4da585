"""``ros.yaml`` of mobile bases: odometry in, a Twist or a TwistStamped out, as diff_drive_controller takes them."""

from __future__ import annotations

from temporeal.robots.ros_interface.text import TemplateError, comment, flow, indented, named, rounded
from temporeal.robots.signals import CommandSpec
from temporeal.robots.spec import RobotSpec

TEMPLATES = {"twist": "geometry_msgs/msg/Twist", "twist_stamped": "geometry_msgs/msg/TwistStamped"}
STATE_HZ, CONTROL_HZ = 50.0, 20.0  # where the spec names none. 50 Hz is diff_drive_controller's publish_rate
RAMP_S = 0.5  # to full speed. Chosen
TURNS = {2: ["x", "yaw"], 3: ["x", "y", "yaw"]}  # what a command of so many components sets


def possible(spec: RobotSpec) -> list[str]:
    """The templates that have a command of the robot's."""
    return list(TEMPLATES) if twists(spec) else []


def twists(spec: RobotSpec) -> list[CommandSpec]:
    """The commands that set the base's speeds."""
    return [c for c in spec.commands.values() if c.unit == "m/s,rad/s" and c.size in TURNS]


def wheel_yaml(spec: RobotSpec, interface: str) -> list[str]:
    """The lines after the head."""
    if interface not in (fitting := possible(spec)):
        raise TemplateError(f"robot {spec.name!r} has no command for {interface!r}: one in m/s,rad/s with 2 components "
                            f"(forward, turn) or 3 (forward, left, turn) is needed; legal: {named(fitting)}")
    rate = max((s.rate_hz for s in spec.signals.values()), default=0.0) or STATE_HZ
    lines = [f"default: {interface}", "", "interfaces:"]
    for name in (interface, *(each for each in TEMPLATES if each != interface)):
        lines += indented(rows(spec, name, rate), 2)
    return [*lines, *safety(spec, rate), "", *simulation(spec, rate)]


def rows(spec: RobotSpec, name: str, rate: float) -> list[str]:
    """One interface."""
    angular = "body" if "base_ang_vel_b" in spec.signals else "absent"
    state = {"topic": "odom", "type": "nav_msgs/msg/Odometry", "codec": "odometry", "rate_hz": rate, "qos": "sensor",
             "options": {"linear": "body", "angular": angular,
                         **({} if "height" in spec.signals else {"height": "absent"})}}
    commands = [f"{c.name}: " + flow({
        "topic": "cmd_vel", "type": TEMPLATES[name], "codec": f"base_{name}", "qos": "command",
        "options": {"axes": TURNS[c.size], **({"frame": "base_link"} if name == "twist_stamped" else {})}})
        for c in twists(spec)]
    return [f"{name}:", f"  description: a base that takes {TEMPLATES[name]} and tells its odometry",
            "  definitions: {}", "  states:", f"    - {flow(state)}", "  commands:", *indented(commands, 4), ""]


def safety(spec: RobotSpec, rate: float) -> list[str]:
    """What the guard demands."""
    control = spec.control_hz or CONTROL_HZ
    sections: list[str] = []
    for c in twists(spec):
        most = [max(-low, high) for low, high in zip(c.low, c.high)]
        sections += [f"{c.name}:", "  stop: {default: damp}",
                     f"  motion: {{speed: {flow([rounded(v / RAMP_S) for v in most])}}}"
                     f"  # of a speed: its whole range (spec) in {RAMP_S:g} s, chosen",
                     "  start: {ramp_s: 0.5}  # chosen"]
    fastest = max(c.high[0] for c in twists(spec))
    return ["# What the guard demands, and how it stops the robot. Each rule is described in",
            "# temporeal_bridge/guard/safety/section.py.", "safety:", *indented([
                f"stale_after_s: {rounded(max(0.1, 4.0 / rate))}  # four samples, at least 0.1 s; chosen",
                f"silent_after_s: {rounded(max(0.1, 3.0 / control))}  # three control periods, at least 0.1 s",
                "stamps_within_s: 0.5  # chosen",
                *comment("geofence: chosen, a large room; set it to yours"),
                "geofence: {signal: base_pos_w, low: [-10.0, -10.0, -0.5], high: [10.0, 10.0, 1.0]}",
                f"jump: {{base_pos_w: {rounded(max(0.1, 8.0 * fastest / rate))}}}"
                "  # eight samples at the command's largest speed",
                "agree: {base_pos_w: {rate: base_vel_w, within: 0.3}}  # chosen",
                "violated: stop  # a mission that cannot be satisfied any more is over",
                "swap: {blend_s: 0.5}  # chosen",
                "commands:", *indented(sections, 2)], 2)]


def simulation(spec: RobotSpec, rate: float) -> list[str]:
    """The simulated robot's sensors and starts."""
    noise = {"base_pos_w": 0.002, "base_quat_w": 0.005, "base_vel_w": 0.01, "base_ang_vel_b": 0.01}
    return ["# The simulated robot. Standard deviations, SI: chosen. Latencies: half a sample.",
            "simulation:", *indented([
                f"noise: {flow({name: std for name, std in noise.items() if name in spec.signals})}",
                f"state_latency_s: {rounded(0.5 / rate)}", f"command_latency_s: {rounded(0.5 / rate)}",
                "start: {position_m: 0.2}  # uniform about home",
                "spread: 0.0  # share of each parameter's range that flights are drawn from"], 2)]
