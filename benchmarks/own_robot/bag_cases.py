"""Random bags with defects that real ones have: in their times, names, values and files. Seeded: a number is a bag."""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DT_NS = 20_000_000
DT = 0.02
EPOCH_NS = 1_700_000_000 * 10**9
JOINTS = ("elbow", "shoulder", "wrist")
MAPS = {"h": "/odom:pose.pose.position.z", "v": "/odom:twist.twist.linear.x", "q": "/joint_states:position[elbow]",
        "r": "/joint_states:position[shoulder]", "e": "/joint_states:effort[wrist]", "g": "/goal:data"}
Formula = tuple[Any, ...]
"""``("pred", signal or (signal, signal) for a quotient, op, number)``, ``("not", f)``, ``("and" | "or", f, f)``,
``("G" | "F", a, b, f)`` and ``("U", a, b, f, f)`` with windows in samples."""


@dataclass
class Sent:
    """A message before it is written: topic, receipt and stamp [ns], and what it says."""

    topic: str
    at: int
    stamp: int
    values: dict[str, Any]


@dataclass
class Case:
    """A bag to be written, and how it is to be judged.

    Args:
        number: of the case.
        sent: messages in the order in which they are written.
        formula: over signals of :data:`MAPS`.
        words: options of ``temporeal spec check`` besides the maps.
        storage: ``mcap``, ``mcap-zstd``, ``sqlite3``, or ``humble`` (SQLite without definitions of types).
        cut: share of the file that is left; 1: all.
        defects: their names.
    """

    number: int
    sent: list[Sent]
    formula: Formula
    words: list[str]
    storage: str
    cut: float = 1.0
    defects: list[str] = field(default_factory=list)


# ---------------------------------------------------------------- formulas


def text(f: Formula) -> str:
    """A formula in the language of ``temporeal spec``."""
    match f:
        case ("pred", signal, op, number):
            left = signal if isinstance(signal, str) else f"{signal[0]} / {signal[1]}"
            return f"{left} {op} {number!r}"
        case ("not", a):
            return f"!({text(a)})"
        case ("and" | "or" as op, a, b):
            return f"({text(a)}) {'&' if op == 'and' else '|'} ({text(b)})"
        case ("G" | "F" as op, a, b, inner):
            return f"{op}[{a * DT:.2f},{b * DT:.2f}] ({text(inner)})"
        case ("U", a, b, left, right):
            return f"({text(left)}) U[{a * DT:.2f},{b * DT:.2f}] ({text(right)})"
    raise TypeError(f)


def reads(f: Formula) -> list[str]:
    """The signals of a formula."""
    if f[0] == "pred":
        return [f[1]] if isinstance(f[1], str) else list(f[1])
    return sorted({name for part in f if isinstance(part, tuple) for name in reads(part)})


def random_formula(rng: random.Random, signals: list[str], depth: int = 2) -> Formula:
    """A formula over some of ``signals``."""
    if depth == 0 or rng.random() < 0.15:
        signal: Any = rng.choice(signals)
        if {"h", "v"} <= set(signals) and rng.random() < 0.1:
            signal = ("h", "v")
        return ("pred", signal, rng.choice([">", "<", ">=", "<="]), round(rng.gauss(0.0, 0.6), 6))
    kind = rng.choice(["not", "and", "or", "G", "G", "F", "F", "U"])
    parts = [random_formula(rng, signals, depth - 1) for _ in range(1 if kind in ("not", "G", "F") else 2)]
    low = rng.randrange(0, 20)
    window = () if kind in ("not", "and", "or") else (low, low + rng.randrange(0, 80))
    return (kind, *window, *parts)


# ---------------------------------------------------------------- messages


def healthy(rng: random.Random, seconds: float) -> list[Sent]:
    """A flight without a defect: odometry and joints at 50 Hz, with stamps, and a number at 25 Hz, without."""
    sent, delay = [], rng.randrange(0, 5_000_000)
    wave = {name: (rng.uniform(-0.5, 0.5), rng.uniform(0.2, 1.0), rng.uniform(0.3, 3.0), rng.uniform(0, 6))
            for name in "hvqrg"}

    def at(name: str, t: float) -> float:
        mean, size, rate, phase = wave[name]
        return mean + size * math.sin(rate * t + phase)

    for k in range(round(seconds / DT)):
        stamp, t = EPOCH_NS + k * DT_NS, k * DT
        sent.append(Sent("/odom", stamp + delay, stamp, {"z": at("h", t), "vx": at("v", t)}))
        sent.append(Sent("/joint_states", stamp + delay + 1000, stamp, {
            "name": list(JOINTS), "position": [at("q", t), at("r", t), 0.1], "effort": [0.5, 0.5, 0.5]}))
        if k % 2 == 0:
            sent.append(Sent("/goal", stamp + 2000, 0, {"data": at("g", t)}))
    return sent


Defect = Callable[[random.Random, list[Sent]], list[Sent]]


def of(sent: list[Sent], topic: str) -> list[Sent]:
    """The messages of one topic."""
    return [one for one in sent if one.topic == topic]


def some(rng: random.Random, sent: list[Sent]) -> tuple[str, list[Sent]]:
    """A stamped topic, and its messages."""
    topic = rng.choice(["/odom", "/joint_states"])
    return topic, of(sent, topic)


def stamps_from_zero(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """The clock of a simulator that starts at 0: of one topic, or of both."""
    topics = rng.choice([["/odom"], ["/odom", "/joint_states"]])
    for one in sent:
        one.stamp -= EPOCH_NS if one.topic in topics else 0
    return sent


def no_stamps(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """A driver that leaves the header empty."""
    for one in some(rng, sent)[1]:
        one.stamp = 0
    return sent


def one_unset(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """One message whose header is empty."""
    rng.choice(some(rng, sent)[1]).stamp = 0
    return sent


def jitter(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """Stamps a little off, or far off, their grid."""
    size = rng.choice([0.01, 0.01, 0.3])
    for one in some(rng, sent)[1]:
        one.stamp += round(rng.uniform(-size, size) * DT_NS)
    return sent


def twice(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """A message that is there twice, or another one with its stamp: two publishers."""
    _, mine = some(rng, sent)
    for one in rng.sample(mine, rng.choice([1, 3])):
        values = dict(one.values)
        if rng.random() < 0.5:
            values = {key: [-x for x in value] if key == "position" else -value if isinstance(value, float) else value
                      for key, value in values.items()}
        sent.insert(sent.index(one) + 1, Sent(one.topic, one.at + 500, one.stamp, values))
    return sent


def overtaken(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """Messages that come in another order than they were stamped in."""
    _, mine = some(rng, sent)
    k = rng.randrange(len(mine) - 1)
    mine[k].stamp, mine[k + 1].stamp = mine[k + 1].stamp, mine[k].stamp
    return sent


def clock_jump(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """A publisher's clock that is set in flight, back or forth."""
    topic, mine = some(rng, sent)
    by = round(rng.choice([-5.0, -1.5, -0.3, 0.3, 5.0]) * 1e9)
    for one in mine[rng.randrange(5, len(mine) - 5):]:
        one.stamp += by
    return sent


def recorder_jump(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """The recorder's clock that is set in flight: messages stay in the order in which they are written."""
    by, since = round(rng.choice([-2.0, -0.5, 3.0]) * 1e9), rng.randrange(20, len(sent) - 20)
    for one in sent[since:]:
        one.at += by
    return sent


def lost(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """Messages that did not arrive: a few in a row, or many."""
    _, mine = some(rng, sent)
    count = rng.choice([1, 1, 8, 30])
    since = rng.randrange(2, len(mine) - count - 2)
    gone = {id(one) for one in mine[since : since + count]}
    return [one for one in sent if id(one) not in gone]


def not_a_number(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """NaN in a field: of what may be read, or of what is not."""
    key = rng.choice(["z", "vx", "position", "effort", "effort"])
    mine = of(sent, "/odom" if key in ("z", "vx") else "/joint_states")
    for one in rng.sample(mine, rng.choice([1, len(mine)]) if key == "effort" else rng.choice([1, 4])):
        one.values[key] = [math.nan] * 3 if isinstance(one.values[key], list) else math.nan
    return sent


def empty_field(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """A JointState without efforts, as most are, or a message without positions."""
    mine = of(sent, "/joint_states")
    key, count = rng.choice([("effort", len(mine)), ("effort", 5), ("position", 2)])
    for one in rng.sample(mine, count):
        one.values[key] = []
    return sent


def other_order(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """Joints in another order in each message."""
    for one in of(sent, "/joint_states"):
        order = rng.sample(range(len(one.values["name"])), len(one.values["name"]))
        for key in ("name", "position", "effort"):
            if len(one.values[key]) == len(order):
                one.values[key] = [one.values[key][i] for i in order]
    return sent


def split_joints(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """Two drivers on one topic: each has some of the joints."""
    out = []
    for one in sent:
        if one.topic != "/joint_states" or len(one.values["position"]) != 3 or len(one.values["effort"]) != 3:
            out.append(one)
            continue
        for part in (("elbow", "wrist"), ("shoulder",)):
            rows = [one.values["name"].index(joint) for joint in part]
            out.append(Sent(one.topic, one.at + 100 * len(part), one.stamp, {
                key: [one.values[key][i] for i in rows] for key in ("name", "position", "effort")}))
    return out


def joint_gone(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """A joint that has another name in one message, or in all, or is there twice."""
    mine = of(sent, "/joint_states")
    name = rng.choice(["other", "shoulder"])
    for one in rng.sample(mine, rng.choice([1, len(mine)])):
        one.values["name"] = [name if joint == "elbow" else joint for joint in one.values["name"]]
    return sent


def topic_ends(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """A driver that dies in flight, or never says anything."""
    topic, mine = some(rng, sent)
    kept = {id(one) for one in mine[: rng.choice([0, 1, len(mine) // 2])]}
    return [one for one in sent if one.topic != topic or id(one) in kept]


def nothing(rng: random.Random, sent: list[Sent]) -> list[Sent]:
    """No defect."""
    return sent


DEFECTS: tuple[Defect, ...] = (
    stamps_from_zero, no_stamps, one_unset, jitter, twice, overtaken, clock_jump, recorder_jump, lost, not_a_number,
    empty_field, other_order, split_joints, joint_gone, topic_ends, nothing)


def case(number: int, seed: int = 0) -> Case:
    """Bag ``number`` of a ``seed``."""
    rng = random.Random(f"{seed}/{number}")
    chosen = [DEFECTS[number % len(DEFECTS)], *rng.sample(DEFECTS, rng.choice([0, 0, 1, 2]))]
    sent = healthy(rng, rng.choice([2.0, 3.0]))
    for defect in sorted(chosen, key=DEFECTS.index):  # those that shift stamps before those that copy messages
        sent = defect(rng, sent)
    groups = [["h", "v"], ["q"], ["q", "r"], ["h", "q"], ["h", "g"]]
    formula = random_formula(rng, rng.choice(groups))
    words = ["--dt", str(DT)]
    if rng.random() < 0.7 or len({MAPS[name].split(":")[0] for name in reads(formula)}) > 1:
        words += ["--resample", "hold"]
        words += ["--stale-after", "/goal=0.5"] if "g" in reads(formula) and rng.random() < 0.5 else []
    words += ["--missing", "unknown"] if rng.random() < 0.5 else []
    words += ["--repeated", "drop"] if rng.random() < 0.4 else []
    storage = rng.choice(["mcap", "mcap", "mcap-zstd", "sqlite3", "humble"])
    cut = rng.uniform(0.1, 0.99) if rng.random() < 0.12 else 1.0
    names = [defect.__name__ for defect in chosen] + (["truncated"] if cut < 1 else [])
    return Case(number, sent, formula, words, storage, cut, names)


# ---------------------------------------------------------------- files


TYPES = {"/odom": "nav_msgs/msg/Odometry", "/joint_states": "sensor_msgs/msg/JointState",
         "/goal": "std_msgs/msg/Float64"}


def message(store: Any, one: Sent) -> Any:
    """A message as rosbags has it."""
    import numpy as np

    def make(kind: str, /, **values: Any) -> Any:
        return store.types[kind](**values)

    if one.topic == "/goal":
        return make("std_msgs/msg/Float64", data=one.values["data"])
    header = make("std_msgs/msg/Header", frame_id="w", stamp=make(
        "builtin_interfaces/msg/Time", sec=one.stamp // 10**9, nanosec=one.stamp % 10**9))
    if one.topic == "/joint_states":
        return make("sensor_msgs/msg/JointState", header=header, name=one.values["name"], velocity=np.zeros(0),
                    **{key: np.array(one.values[key], dtype=float) for key in ("position", "effort")})
    zero = make("geometry_msgs/msg/Vector3", x=0.0, y=0.0, z=0.0)
    pose = make("geometry_msgs/msg/Pose", position=make("geometry_msgs/msg/Point", x=0.0, y=0.0, z=one.values["z"]),
                orientation=make("geometry_msgs/msg/Quaternion", x=0.0, y=0.0, z=0.0, w=1.0))
    twist = make("geometry_msgs/msg/Twist", angular=zero,
                 linear=make("geometry_msgs/msg/Vector3", x=one.values["vx"], y=0.0, z=0.0))
    return make("nav_msgs/msg/Odometry", header=header, child_frame_id="b",
                pose=make("geometry_msgs/msg/PoseWithCovariance", pose=pose, covariance=np.zeros(36)),
                twist=make("geometry_msgs/msg/TwistWithCovariance", twist=twist, covariance=np.zeros(36)))


def write(made: Case, folder: Path) -> Path:
    """Write the bag; the file to read, or its folder."""
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    rows = [(one.topic, one.at, bytes(store.serialize_cdr(message(store, one), TYPES[one.topic]))) for one in made.sent]
    path = folder / f"bag{made.number}"
    file = humble(path, rows) if made.storage == "humble" else by_rosbags(path, rows, made.storage, store)
    if made.cut < 1:
        content = file.read_bytes()
        file.write_bytes(content[: int(made.cut * len(content))])
    return file if made.number % 2 or made.storage == "humble" else path


def by_rosbags(path: Path, rows: list[tuple[str, int, bytes]], storage: str, store: Any) -> Path:
    """A bag with definitions, written by rosbags; its file."""
    from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

    plugin = StoragePlugin.SQLITE3 if storage == "sqlite3" else StoragePlugin.MCAP
    writer = Writer(path, version=9, storage_plugin=plugin)
    if storage == "mcap-zstd":
        writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
    with writer:
        by_topic = {topic: writer.add_connection(topic, kind, typestore=store) for topic, kind in TYPES.items()}
        for topic, at, data in rows:
            writer.write(by_topic[topic], at, data)
    return next(file for file in path.iterdir() if file.suffix in (".mcap", ".db3"))


def humble(path: Path, rows: list[tuple[str, int, bytes]]) -> Path:
    """A file of ROS 2 Humble's recorder: tables of messages and topics, and no definitions."""
    path.mkdir(parents=True)
    file = path / f"{path.name}.db3"
    with closing(sqlite3.connect(file)) as base:
        base.execute("CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT NOT NULL, type TEXT NOT NULL, "
                     "serialization_format TEXT NOT NULL, offered_qos_profiles TEXT NOT NULL)")
        base.execute("CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, timestamp INTEGER NOT "
                     "NULL, data BLOB NOT NULL)")
        base.executemany("INSERT INTO topics VALUES(?, ?, ?, 'cdr', '')", [
            (k, topic, kind) for k, (topic, kind) in enumerate(TYPES.items(), start=1)])
        number = {topic: k for k, topic in enumerate(TYPES, start=1)}
        base.executemany("INSERT INTO messages(topic_id, timestamp, data) VALUES(?, ?, ?)",
                         [(number[topic], at, data) for topic, at, data in rows])
        base.commit()
    return file
