"""Messages between actor and learner, and files of them: plain arrays and JSON, no pickle.

A message's bytes are those of :mod:`temporeal.policies.pretrained.serving.channel`: a prefix with sizes, a JSON header
with name, type and shape of each array, then the arrays. A file, and what is appended to one, ends in its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from temporeal.policies.pretrained.serving.channel import (
    DTYPES,
    MAGIC,
    PREFIX,
    ChannelError,
    Message,
    array_spec,
    check_sizes,
    contiguous,
    parsed,
)

__all__ = ["DIGEST", "DTYPES", "LARGEST", "ROOM", "Message", "MessageError", "Published", "array_of", "decode",
           "encode", "sealed", "text_of", "unsealed", "whole_of"]
LARGEST = 1 << 28  # bytes of a message: an hour of state, or 1,300 pictures of 256 x 256
ROOM = 1 << 16  # bytes of a message beside its arrays: prefix and header
DIGEST = hashlib.sha256().digest_size


class MessageError(ValueError):
    """Bytes that are no message, or not the one that must be here; says whose and what."""


@dataclass(frozen=True)
class Published:
    """Weights as they are handed out: the bytes of a message, and the digest by which an actor knows that it has them.
    """

    digest: str
    data: bytes


def encode(message: Message, largest: int = LARGEST) -> bytes:
    """The bytes of a message, at most ``largest``."""
    try:
        arrays = {name: contiguous(name, value) for name, value in message.arrays.items()}
        header = json.dumps({"kind": message.kind, "fields": dict(message.fields), "arrays": [
            {"name": name, "dtype": str(value.dtype), "shape": list(value.shape)} for name, value in arrays.items()]},
            allow_nan=False).encode()
        size = sum(value.nbytes for value in arrays.values())
        check_sizes(len(header), size, len(arrays), f"a message of kind {message.kind!r}", largest)
    except (ChannelError, ValueError, TypeError) as error:
        raise MessageError(str(error)) from error
    return b"".join((PREFIX.pack(MAGIC, len(header), size), header, *(value.tobytes() for value in arrays.values())))


def decode(data: bytes, who: str, kind: str, largest: int = LARGEST) -> Message:
    """The message of ``kind`` in ``data``, which ``who`` sent. Arrays are copies: theirs to keep."""
    if len(data) < PREFIX.size:
        raise MessageError(f"{who} sent {len(data)} bytes, a message has at least {PREFIX.size}")
    magic, header_size, body_size = PREFIX.unpack(data[: PREFIX.size])
    if magic != MAGIC:
        raise MessageError(f"{who} speaks another protocol: a message begins with {magic!r}, not {MAGIC!r}")
    try:
        check_sizes(header_size, body_size, 0, f"a message of {who}", largest)
        if len(data) != PREFIX.size + header_size + body_size:
            raise MessageError(f"{who} announced {PREFIX.size + header_size + body_size:,} bytes and sent "
                               f"{len(data):,}: it is cut short, or has bytes too many")
        header = parsed(data[PREFIX.size : PREFIX.size + header_size], who)
        specs = [array_spec(entry, who) for entry in header["arrays"]]
    except ChannelError as error:
        raise MessageError(str(error)) from error
    names, stated = [name for name, _, _ in specs], sum(np.dtype(t).itemsize * prod(s) for _, t, s in specs)
    if stated != body_size or len(set(names)) != len(names):
        raise MessageError(f"{who} states arrays of {stated:,} bytes ({', '.join(names)[:200]}) and sends "
                           f"{body_size:,}")
    if header["kind"] != kind:
        raise MessageError(f"{who} sent a message of kind {header['kind'][:40]!r} where {kind!r} is needed")
    return Message(header["kind"], header["fields"], dict(_arrays(data, PREFIX.size + header_size, specs)))


def _arrays(data: bytes, at: int, specs: list[tuple[str, str, tuple[int, ...]]]) -> Any:
    for name, dtype, shape in specs:
        count = prod(shape)
        yield name, np.frombuffer(data, dtype, count, at).reshape(shape).copy()
        at += count * np.dtype(dtype).itemsize


def sealed(data: bytes) -> bytes:
    """``data`` with its digest."""
    return data + hashlib.sha256(data).digest()


def unsealed(raw: bytes, where: str) -> bytes:
    """What :func:`sealed` was given."""
    data, digest = raw[:-DIGEST], raw[-DIGEST:]
    if len(raw) <= DIGEST or hashlib.sha256(data).digest() != digest:
        raise MessageError(f"{where} is corrupt or cut short: its {len(raw):,} bytes do not end in their SHA-256")
    return data


def array_of(message: Message, name: str, dtype: str, shape: tuple[int, ...], who: str) -> np.ndarray:
    """The array ``name`` of a message, of this type and shape, finite."""
    found = message.arrays.get(name)
    if found is None:
        raise MessageError(f"{who}: the array {name!r} is missing; there are {', '.join(message.arrays) or 'none'}")
    if str(found.dtype) != dtype or found.shape != shape:
        raise MessageError(f"{who}: the array {name!r} is {found.dtype} {list(found.shape)}, {dtype} {list(shape)} is "
                           "needed")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise MessageError(f"{who}: the array {name!r} is not finite")
    return found


def text_of(fields: Mapping[str, Any], name: str, who: str, longest: int = 200) -> str:
    """The text ``name`` among the fields of a message."""
    found = fields.get(name)
    if not isinstance(found, str) or len(found) > longest:
        raise MessageError(f"{who}: {name} is {str(found)[:60]!r}; a text of at most {longest} letters is needed")
    return found


def whole_of(fields: Mapping[str, Any], name: str, who: str, low: int, high: int) -> int:
    """The whole number ``name`` among the fields of a message."""
    found = fields.get(name)
    if type(found) is not int or not low <= found <= high:
        raise MessageError(f"{who}: {name} is {str(found)[:60]}; a whole number from {low} to {high} is needed")
    return found
