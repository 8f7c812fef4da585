"""The channel between this project and a model in another process: framed messages over a Unix socket, no pickle.

A message is a prefix (magic, length of the header, length of the body), a JSON header and a body. The header says what
kind of message it is, its fields, and name, type and shape of each array; the body holds the arrays' bytes, one after
the other, in C order. Every size is checked before memory is taken for it.

Each call has a deadline. A peer that is dead, hangs, or sends what the rules forbid gives a :class:`ChannelError`; the
channel is of no use after it, for what comes next may belong to an older question.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.handed_over.files import Refused
from temporeal.robots.handed_over.texts import from_json

VERSION = 1
CONNECT, REPLY, IDLE = 60.0, 60.0, 24 * 3600.0  # s: until a client comes, until it has read, until it asks again
MAGIC = b"TPRC"
PREFIX = struct.Struct("<4sIQ")  # magic, bytes of the header, bytes of the body
HEADER, BODY = 1 << 20, 1 << 30  # bytes, at most
ARRAYS, DIMENSIONS = 64, 8  # of a message, of an array; at most
DTYPES = ("uint8", "int32", "float32")
PIECE = 1 << 20  # bytes that are received at once
DEPTH = 16  # levels of the header


class ChannelError(RuntimeError):
    """The peer is gone, late, or says what the channel's rules forbid; or it states an error of its own."""


@dataclass(frozen=True)
class Message:
    """A message: its kind, plain fields, and arrays by name."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


class Deadline:
    """A moment in ``seconds`` from now. ``what``: for whom one waits, for messages."""

    def __init__(self, seconds: float, what: str) -> None:
        self.seconds, self.what = seconds, what
        self.end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left; an error where there are none."""
        left = self.end - time.monotonic()
        if left <= 0.0:
            raise ChannelError(f"{self.what} did not answer within {self.seconds:g} s")
        return left


def send(link: socket.socket, message: Message, deadline: Deadline) -> None:
    """Send a message."""
    arrays = {name: contiguous(name, value) for name, value in message.arrays.items()}
    header = json.dumps({"kind": message.kind, "fields": dict(message.fields), "arrays": [
        {"name": name, "dtype": str(value.dtype), "shape": list(value.shape)} for name, value in arrays.items()]})
    data, size = header.encode(), sum(value.nbytes for value in arrays.values())
    check_sizes(len(data), size, len(arrays), "this message")
    try:
        for part in (PREFIX.pack(MAGIC, len(data), size) + data, *(value.tobytes() for value in arrays.values())):
            link.settimeout(deadline.left())
            link.sendall(part)
    except TimeoutError:
        deadline.left()
        raise ChannelError(f"{deadline.what} did not read within {deadline.seconds:g} s") from None
    except OSError as error:
        raise ChannelError(f"{deadline.what} is gone: {error}") from error


def contiguous(name: str, value: np.ndarray) -> np.ndarray:
    """An array as it is sent."""
    if str(value.dtype) not in DTYPES:
        raise ChannelError(f"array {name!r} is of type {value.dtype}; the channel carries {', '.join(DTYPES)}")
    return np.ascontiguousarray(value).reshape(value.shape)


def receive(link: socket.socket, deadline: Deadline, largest: int = BODY) -> Message:
    """The next message, whose arrays have at most ``largest`` bytes."""
    magic, header_size, body_size = PREFIX.unpack(exactly(link, PREFIX.size, deadline))
    if magic != MAGIC:
        raise ChannelError(f"{deadline.what} speaks another protocol: a message begins with {magic!r}, not {MAGIC!r}")
    check_sizes(header_size, body_size, 0, f"a message of {deadline.what}", largest)
    header = parsed(bytes(exactly(link, header_size, deadline)), deadline.what)
    specs = [array_spec(entry, deadline.what) for entry in header["arrays"]]
    expected = sum(np.dtype(dtype).itemsize * prod(shape) for _, dtype, shape in specs)
    if expected != body_size or len({name for name, _, _ in specs}) != len(specs):
        raise ChannelError(f"{deadline.what} states arrays of {expected:,} bytes and sends {body_size:,}")
    arrays = {name: np.frombuffer(exactly(link, np.dtype(dtype).itemsize * prod(shape), deadline), dtype).reshape(shape)
              for name, dtype, shape in specs}
    return Message(header["kind"], header["fields"], arrays)


def check_sizes(header: int, body: int, arrays: int, what: str, largest: int = BODY) -> None:
    """A message within bounds."""
    if header > HEADER or body > largest or arrays > ARRAYS:
        raise ChannelError(f"{what} has a header of {header:,} and a body of {body:,} bytes in {arrays} arrays; at "
                           f"most {HEADER:,}, {largest:,} and {ARRAYS}")


def exactly(link: socket.socket, size: int, deadline: Deadline) -> bytearray:
    """The next ``size`` bytes; memory grows with what comes, not with what was announced."""
    data = bytearray()
    while len(data) < size:
        try:
            link.settimeout(deadline.left())
            piece = link.recv(min(size - len(data), PIECE))
        except TimeoutError:
            continue  # the deadline says so
        except OSError as error:
            raise ChannelError(f"{deadline.what} is gone: {error}") from error
        if not piece:
            raise ChannelError(f"{deadline.what} has closed the channel"
                               f"{f' after {len(data):,} of {size:,} bytes' if data else ''}")
        data += piece
    return data


def parsed(data: bytes, what: str) -> dict[str, Any]:
    """The header of a message."""
    try:
        found = from_json(data, f"the header of {what}", DEPTH)
    except (Refused, UnicodeDecodeError) as error:
        raise ChannelError(str(error)) from error
    if not (isinstance(found, dict) and isinstance(found.get("kind"), str) and isinstance(found.get("fields"), dict)
            and isinstance(found.get("arrays"), list) and len(found["arrays"]) <= ARRAYS):
        raise ChannelError(f"a message of {what} has no kind, no fields or no arrays (at most {ARRAYS})")
    return found


def array_spec(entry: Any, what: str) -> tuple[str, str, tuple[int, ...]]:
    """Name, type and shape of an array that a header states."""
    shape = entry.get("shape") if isinstance(entry, dict) else None
    if not (isinstance(shape, list) and len(shape) <= DIMENSIONS
            and all(type(size) is int and 0 <= size <= BODY for size in shape)
            and entry.get("dtype") in DTYPES and isinstance(entry.get("name"), str)):
        raise ChannelError(f"{what} states the array {str(entry)[:120]}; legal: a name, one of {', '.join(DTYPES)}, "
                           f"and at most {DIMENSIONS} sizes")
    if prod(shape) > BODY:
        raise ChannelError(f"{what} states an array of shape {shape}, more than {BODY:,} bytes")
    return entry["name"], entry["dtype"], tuple(shape)


def answer(link: socket.socket, kind: str, deadline: Deadline, largest: int = 0) -> Message:
    """The next message, if it is of the ``kind`` and its arrays have at most ``largest`` bytes; what the peer states as
    an error is one here."""
    found = receive(link, deadline, largest)
    if found.kind == "error":
        raise ChannelError(f"{deadline.what} says: {str(found.fields.get('message', ''))[:2000]}")
    if found.kind != kind:
        raise ChannelError(f"{deadline.what} sent a message of kind {found.kind[:40]!r} where {kind!r} was asked for")
    return found


@contextmanager
def client_at(path: Path) -> Iterator[socket.socket]:
    """The one client that comes to the socket ``path``. Whatever is raised within is told to it and is the
    end; what is no refusal is printed, too."""
    with listening(path) as door:
        door.settimeout(CONNECT)
        link, _ = door.accept()
    with link:
        try:
            yield link
        except Exception as error:  # whatever a library raises: the client must hear of it
            known = isinstance(error, (ChannelError, Refused))
            if not known:
                traceback.print_exc(file=sys.stderr)
            tell(link, str(error) if known else f"{type(error).__name__}: {error}")


def greeted(link: socket.socket) -> Message:
    """A client's hello, if it speaks this version."""
    hello = answer(link, "hello", Deadline(CONNECT, "the client"))
    if hello.fields.get("version") != VERSION:
        raise ChannelError(f"the client speaks version {hello.fields.get('version')} of the protocol, this is "
                           f"{VERSION}")
    return hello


def tell(link: socket.socket, message: str) -> None:
    """Say why this is the end; where nobody listens any more, nothing is lost."""
    try:
        send(link, Message("error", {"message": message[:4000]}), Deadline(5.0, "the client"))
    except ChannelError:
        pass


def listening(path: Path) -> socket.socket:
    """A socket that listens at ``path``, for its owner alone; the folder must be private, too."""
    check_private(path.parent)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        link.bind(str(path))
    finally:
        os.umask(mask)
    link.listen(1)
    return link


def check_private(folder: Path) -> None:
    """Refuse a folder that others may enter: whoever reaches the socket could answer for the model."""
    found = os.stat(folder)
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ChannelError(f"{folder} has mode {stat.S_IMODE(found.st_mode):o} and owner {found.st_uid}; a socket's "
                           "folder belongs to its user alone (mode 700)")
