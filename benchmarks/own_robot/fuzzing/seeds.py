"""Small whole examples of what is handed over: a run, its artifact, a recording, and files of settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import identity, to_json

RUN, ARTIFACT, BAG, TABLE = "run", "artifact", "bag", "tables"
SETTINGS = {
    "algo.total_steps": 64, "algo.rollout_steps": 8, "algo.minibatches": 1, "algo.epochs": 1, "algo.actor_hidden": [4],
    "algo.critic_hidden": [4]}
NAMESPACE, POINT = "/cf1", "geometry_msgs/msg/PointStamped"
FORMULA = "formula: G[0,0.5] (height > 0.1)\nconstants: {floor: 0.1}\nsignals: {height: {unit: m}}\ndt: 0.02\n"
SPACE = "wind: {low: 0.0, high: 1.0}\nmass: {low: 0.9, high: 1.1, scale: log}\nmode: {choices: [a, b]}\n"
SIDECAR = """\
kind: arm
joints: [shoulder, elbow]
commands: {joint_pos_cmd: {joints: [shoulder, elbow], kp: [100, 50], kd: 2, strength: 20}}
damping: {elbow: 0.5}
home: {shoulder: 0.3, elbow: -0.5}
poses: {grip: hand}
rate_hz: 500
"""
MODEL = """\
<mujoco model="arm"><worldbody><body name="upper"><joint name="shoulder" range="-90 90"/><geom size="0.1"/>
<body name="hand"><joint name="elbow" range="-90 90"/><geom size="0.1"/></body></body></worldbody></mujoco>
"""


def build(folder: Path) -> Path:
    """The examples in ``folder``, made unless they are there: about five seconds."""
    if not (folder / "done").exists():
        import temporeal as tr

        tr.train("hover", out=folder / RUN, num_worlds=2, settings=SETTINGS, overwrite=True)
        tr.export(folder / RUN, folder / ARTIFACT)
        record(folder)
        tables(folder / TABLE)
        (folder / "done").touch()
    return folder


def record(folder: Path, said: dict[str, Any] | None = None, name: str = BAG) -> None:
    """A recording of a flight that is hardly begun. ``said``: by its guard of the artifact, else the truth."""
    from temporeal_bridge.recording.bag_writer import Bag
    from temporeal_bridge.transports import messages

    bag, text = Bag(folder / name), "std_msgs/msg/String"
    topic = f"{NAMESPACE}/guard/artifact"
    bag.add(topic, text)
    bag.add("/point", POINT)
    content = json.dumps(record_of(folder / ARTIFACT) if said is None else said)
    bag.write(topic, text, 1, messages.encode(text, messages.record(text)(data=content)))
    for k in range(20):
        at = 2 + 20_000_000 * k
        bag.write("/point", POINT, at, messages.encode(POINT, point(at, float(k))))
    bag.close()


def point(at_ns: int, height: float) -> Any:
    """A point at a time."""
    from temporeal_bridge.transports.messages import record

    stamp = record("builtin_interfaces/msg/Time")(sec=at_ns // 10**9, nanosec=at_ns % 10**9)
    return record(POINT)(header=record("std_msgs/msg/Header")(stamp=stamp, frame_id="world"),
                         point=record("geometry_msgs/msg/Point")(x=0.0, y=0.0, z=height))


def record_of(artifact: Path) -> dict[str, Any]:
    """What a guard says of its artifact."""
    manifest = load_manifest(artifact)
    return {"name": manifest.name, "identity": identity(manifest), "robot": manifest.robot, "interface": "crazyswarm2",
            "command": manifest.commands[0].name, "rate_hz": manifest.rate_hz, "manifest": to_json(manifest),
            "folder": str(artifact.absolute()), "renamed": {}}


def tables(folder: Path) -> None:
    """Traces, formulas, spaces and robots as files."""
    from temporeal.robots.spec import load_robot

    folder.mkdir(parents=True, exist_ok=True)
    t = np.arange(20) * 0.02
    np.savez_compressed(folder / "trace.npz", t=t, height=1.0 + t)
    (folder / "trace.csv").write_text("t,height\n" + "".join(f"{x:.2f},{1 + x:.3f}\n" for x in t))
    (folder / "formula.yaml").write_text(FORMULA)
    (folder / "space.yaml").write_text(SPACE)
    (folder / "arm.xml").write_text(MODEL)
    (folder / "arm.robot.yaml").write_text(SIDECAR)
    (folder / "my_arm").mkdir()
    (folder / "my_arm" / "model.xml").write_text(MODEL)
    (folder / "my_arm" / "spec.yaml").write_text(f"model: model.xml\n{SIDECAR}")
    ros = load_robot("crazyflie").ros
    assert ros is not None
    (folder / "ros.yaml").write_text(ros.read_text())
