"""Which topics of a flight are recorded, and with which quality of service."""

from __future__ import annotations

from collections.abc import Sequence

from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.transports.transport import QOS, QoS, is_action

MISSION = "std_msgs/msg/Header"
STARTS = "mission/start"
SIMULATED = "sim/episode"  # only a simulated robot says which episode it is in
PICTURES = QoS(reliable=False, depth=30)  # a megabyte each: one second of a camera, for when the disk is slow
RARE = QoS(depth=1000)  # published once: must not get lost among many others
KEPT = QoS(depth=1000, latched=True)  # ... perhaps before we subscribed: a depth of 1 would keep the last mode only
RECORDED_TOPICS = (
    ("policy/step", "std_msgs/msg/Float64MultiArray", QOS["deep"]),
    ("policy/chunk", "std_msgs/msg/Float64MultiArray", QOS["deep"]),
    ("policy/event", "std_msgs/msg/String", RARE),
    ("policy/forecast", "std_msgs/msg/String", QOS["deep"]),
    ("guard/command", "std_msgs/msg/Float64MultiArray", QOS["deep"]),
    ("guard/swap", "std_msgs/msg/Float64MultiArray", QOS["deep"]),
    ("guard/event", "std_msgs/msg/String", RARE),
    ("guard/artifact", "std_msgs/msg/String", KEPT),
    ("mission", MISSION, KEPT),
    ("policy/instruction", "std_msgs/msg/String", KEPT),
    # requests of others to the nodes: best effort, which matches every publisher
    (STARTS, "std_msgs/msg/UInt64", QOS["deep"]),
    ("mission/stop", "std_msgs/msg/Empty", QOS["deep"]),
    ("mission/reset", "std_msgs/msg/Empty", QOS["deep"]),
    ("mission/instruction", "std_msgs/msg/String", QOS["deep"]),
    ("estop", "std_msgs/msg/Bool", QOS["deep"]),
    ("monitor/robustness", "std_msgs/msg/Float64MultiArray", QOS["deep"]),
    ("monitor/verdict", "std_msgs/msg/String", KEPT),
    ("monitor/drift", "std_msgs/msg/String", KEPT),
    (SIMULATED, "std_msgs/msg/UInt64", KEPT),
)
"""Topics of the nodes themselves, in the robot's namespace."""


def robot_topics(interface: Interface, namespaces: Sequence[str]) -> list[tuple[str, str, QoS]]:
    """All topics of robots in ``namespaces``: states, pictures, the autopilot's status and orders, commands with their
    companions, proposals and reasons, mission, stops, monitor, diagnostics."""
    deep = QOS["deep"]
    rows = [(row.topic, row.type, KEPT if row.qos == "latched" else deep) for row in interface.states]
    rows += [(row.topic, row.type, PICTURES) for row in interface.pictures]
    if interface.autopilot is not None:
        pilot = interface.autopilot
        rows += [(row.topic, row.type, deep) for row in (pilot.status, pilot.orders) if row is not None]
    rows += [(row.topic, row.type, deep) for command in interface.commands.values()
             for row in (*command.also, command) if not is_action(row.type)]  # who subscribes to that is its server
    out = {("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray"): deep}
    for namespace in namespaces:
        base = f"/{namespace.strip('/')}".rstrip("/")
        # an absolute name is the same for all robots
        out |= {(name if name.startswith("/") else f"{base}/{name}", kind): qos
                for name, kind, qos in (*rows, *RECORDED_TOPICS)}
    return [(name, kind, qos) for (name, kind), qos in out.items()]
