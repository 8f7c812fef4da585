"""What controller and guard send each other, and its bytes. All times are CLOCK_MONOTONIC of this machine [s]."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

HELLO, BEGIN, COMMAND, END, FAIL, TAKEOVER = range(6)
"""Kinds: the controller is there (text: digest of its artifact) · a mission begins (stamp: its time zero) · a command
(values) · the mission is over (text: what then) · the controller cannot go on (text: why) · a second controller asks to
take over (text: :func:`temporeal_bridge.link.artifact_offer.offer` of its artifact)."""

MAGIC = b"TPL2"
HEAD = struct.Struct("<4sB3xqqqdddII")
ANSWER = struct.Struct("<4sqqII")
LARGEST = 1 << 16
LONGEST_TEXT = 4096  # bytes; the message of a policy's exception may have any length


class LinkError(RuntimeError):
    """The link cannot be used; the message says why and what to do."""


class Proposal(NamedTuple):
    """A datagram of the controller.

    Args:
        kind: one of HELLO, BEGIN, COMMAND, END, FAIL, TAKEOVER.
        flight: number of the mission; -1 outside one.
        step: number of this control step, from 0.
        stamp_ns: time zero of the mission, ns since the epoch.
        seen: arrival of the state behind the command, on the topic that paces the controller.
        at: sending time.
        values: the command [A] in its own units.
        text: see the kinds.
        successor: whether it comes from the successor, not from the controller in charge. Not sent: the guard's end of
            the link knows.
        oldest: arrival of the oldest part of that state, of all topics with a rate.
    """

    kind: int
    flight: int = -1
    step: int = -1
    stamp_ns: int = 0
    seen: float = 0.0
    at: float = 0.0
    values: Any = ()
    text: str = ""
    successor: bool = False
    oldest: float = inf


@dataclass(frozen=True)
class Answer:
    """A datagram of the guard: its mode, its mission (number and time zero), and the reason for the mode.

    A successor gets ``blending`` (propose from now on), ``refused``, or an answer as the controller in charge, which it
    then is. The controller that was replaced gets ``relieved``.
    """

    mode: str
    flight: int = -1
    stamp_ns: int = 0
    reason: str = ""


def pack(p: Proposal) -> bytes:
    """A proposal as a datagram."""
    values, text = np.asarray(p.values, dtype="<f8").reshape(-1), p.text.encode()
    if p.kind != TAKEOVER:
        text = text[:LONGEST_TEXT]
    head = HEAD.pack(MAGIC, p.kind, p.flight, p.step, p.stamp_ns, p.seen, p.at, p.oldest, len(values), len(text))
    return head + values.tobytes() + text


def unpack(data: bytes) -> Proposal:
    """The proposal in a datagram, or :class:`LinkError`."""
    if len(data) < HEAD.size or data[:4] != MAGIC:
        raise LinkError(f"{len(data)} bytes are not a proposal")
    _, kind, flight, step, stamp, seen, at, oldest, values, text = HEAD.unpack_from(data)
    if kind > TAKEOVER or len(data) != HEAD.size + 8 * values + text:
        raise LinkError(f"{len(data)} bytes are not a proposal of kind {kind}, {values} values and a text of {text}")
    end = HEAD.size + 8 * values
    return Proposal(kind, flight, step, stamp, seen, at, np.frombuffer(data[HEAD.size : end], dtype="<f8"),
                    data[end:].decode(errors="replace"), oldest=oldest)


def pack_answer(a: Answer) -> bytes:
    """An answer as a datagram."""
    mode, reason = a.mode.encode(), a.reason.encode()[:LONGEST_TEXT]
    return ANSWER.pack(MAGIC, a.flight, a.stamp_ns, len(mode), len(reason)) + mode + reason


def unpack_answer(data: bytes) -> Answer:
    """The answer in a datagram, or :class:`LinkError`."""
    if len(data) < ANSWER.size or data[:4] != MAGIC:
        raise LinkError(f"{len(data)} bytes are not an answer")
    _, flight, stamp, mode, reason = ANSWER.unpack_from(data)
    if len(data) != ANSWER.size + mode + reason:
        raise LinkError(f"an answer with {mode} and {reason} bytes of text has {len(data)} bytes")
    text = data[ANSWER.size :]
    return Answer(text[:mode].decode(errors="replace"), flight, stamp, text[mode:].decode(errors="replace"))
