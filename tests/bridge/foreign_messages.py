"""What a stranger may publish on our own topics: bytes, numbers and JSON that no node of ours can have said there."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from temporeal_bridge.recording.bags import Message
from temporeal_bridge.transports import messages

TEXT, NUMBERS, HEADER = "std_msgs/msg/String", "std_msgs/msg/Float64MultiArray", "std_msgs/msg/Header"


def text(topic: str, content: Any) -> Message:
    data = content if isinstance(content, str) else json.dumps(content)
    return Message(0, topic, TEXT, messages.encode(TEXT, messages.record(TEXT)(data=data)))


def numbers(topic: str, *values: float) -> Message:
    return Message(0, topic, NUMBERS, messages.encode(NUMBERS, messages.array64(np.array(values, dtype=float))))


def mode(frame: str) -> Message:
    return Message(0, "mission", HEADER, messages.encode(HEADER, messages.header(5, frame)))


NAN, INF = float("nan"), float("inf")
EVENT = {"mode": "active", "flight": 3, "t": 1.5, "code": "operator", "reason": "why"}
FOREIGN = [
    (text("guard/event", "x"), "Expecting value"),
    (text("guard/event", "[" * 100_000), "recursion"),
    (text("guard/event", []), "a JSON list is no object"),
    (text("guard/event", "null"), "a JSON NoneType is no object"),
    (text("guard/event", {"hello": 1}), "it has no 'flight'"),
    (text("guard/event", {**EVENT, "flight": "x"}), "could not convert string to float: 'x'"),
    (text("guard/event", {**EVENT, "flight": INF}), "inf is no whole number below 2"),
    (text("guard/event", {**EVENT, "flight": 1.5}), "1.5 is no whole number"),
    (text("guard/event", {**EVENT, "t": "a"}), "'a' is no finite number"),
    (text("guard/event", {**EVENT, "t": 1e300}), "no mission lasts"),
    (text("guard/event", {**EVENT, "reason": None}), "its reason is None, and not text"),
    (numbers("guard/event", 1.0), "JSON object must be str"),
    (mode(""), "'' begins with no mode of the guard: waiting, ready"),
    (mode("flying 3"), "'flying 3' begins with no mode"),
    (mode("active x"), "invalid literal"),
    (Message(0, "mission", HEADER, bytes((0, 1, 0, 0))), "4 bytes are not a std_msgs/msg/Header"),
    (numbers("policy/step"), "not enough values"),
    (numbers("policy/step", *[NAN] * 6), "nan is no whole number"),
    (numbers("policy/step", 3, INF, 0, 0.4, 7, 7), "inf is no whole number"),
    (numbers("policy/step", 3, 21, 0, 0.4), "4 numbers are no record of a step"),
    (numbers("policy/step", 3, 21, 22, 0.4, 7), "5 numbers are no record of a step"),
    (numbers("policy/step", 3, 1e15, 0, 0.4, 7, 7), "6 numbers are no record of a step"),
    (numbers("guard/command"), "0 numbers are no record of a command"),
    (numbers("guard/command", *[INF] * 20), "20 numbers are no record of a command"),
    (numbers("guard/command", *[NAN] * 20), "20 numbers are no record of a command"),
    (numbers("policy/chunk", 1, 2), "2 numbers are no record of a chunk"),
    (numbers("guard/swap"), "not enough values"),
    (numbers("guard/swap", 3, 20, 0.5, 1, 2, 3), "6 numbers are no record of a mix"),
    (numbers("guard/swap", 3, 20, 1.5, 1, 2), "5 numbers are no record of a mix"),
    (text("monitor/verdict", []), "a JSON list is no object"),
    (text("monitor/verdict", {"flight": None, "verdict": "satisfied"}), "float"),
    (text("monitor/verdict", {"flight": 3, "verdict": 7}), "its verdict is 7, and not text"),
    (text("monitor/verdict", {"flight": 3, "verdict": "satisfied", "lower": "x"}), "'x' is no finite number"),
    (text("monitor/drift", {"ratio": 0.8, "low": 0.7, "high": "inf"}), "'inf' is no finite number"),
    (text("guard/artifact", []), "a JSON list is no object"),
]
