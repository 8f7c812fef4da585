"""Golden vectors that others wrote: bytes of eProsima's Fast CDR, type hashes of ROS 2's own generator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from temporeal_bridge.transports import messages

ROOT = Path(__file__).parents[3]
ROWS = json.loads((ROOT / "tests/golden/fastcdr_messages.json").read_text())["messages"]
HASHES = {row["type"]: row["type_hash"] for row in ROWS if "type_hash" in row}
by_type = pytest.mark.parametrize("row", ROWS, ids=lambda row: row["type"].replace("/msg/", "."))


def store_with(definitions: dict[str, str]) -> Any:
    """A type store of its own, so that no other test sees these definitions."""
    out, new = get_typestore(Stores.ROS2_JAZZY), {}
    for name, text in definitions.items():
        new.update(get_types_from_msg(text, name))
    out.register(new)
    return out


@pytest.fixture(scope="module")
def jazzy() -> Any:
    return store_with({row["type"]: row["definition"] for row in ROWS if "definition" in row})


@pytest.fixture(autouse=True)
def private_types(jazzy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "store", lambda: jazzy)


def built(store: Any, name: str, fields: dict[str, Any]) -> Any:
    """The record of type ``name`` from plain values; every field must be given, and no other."""
    kinds = dict(store.get_msgdef(name).fields)
    assert set(kinds) == set(fields), name
    return store.types[name](**{key: value_of(store, kinds[key], value) for key, value in fields.items()})


def value_of(store: Any, kind: Any, value: Any) -> Any:
    """A value of a field: numbers in a sequence become an array of their type."""
    node, inside = kind
    if node == Nodetype.NAME:
        return built(store, inside, value)
    if node == Nodetype.BASE:
        return float(value) if inside[0].startswith("float") else value
    element = inside[0]
    if element[0] == Nodetype.BASE and element[1][0] != "string":
        dtype = "uint8" if element[1][0] == "char" else element[1][0]  # ROS's char is a number
        return np.array([float(x) if x == "nan" else x for x in value], dtype=dtype)
    return [value_of(store, element, one) for one in value]


@by_type
def test_what_we_write_of_these_values_is_what_fast_cdr_wrote(row: dict[str, Any], jazzy: Any) -> None:
    assert messages.encode(row["type"], built(jazzy, row["type"], row["fields"])).hex() == row["cdr_hex"]


@by_type
def test_what_fast_cdr_wrote_is_read_and_written_again(row: dict[str, Any]) -> None:
    data = bytes.fromhex(row["cdr_hex"])
    again = messages.decode(row["type"], data)
    assert messages.encode(row["type"], again) == data
    # as it comes off the wire: filled up to 4 bytes
    filled = messages.decode(row["type"], data + bytes(-len(data) % 4))
    assert messages.encode(row["type"], filled) == data


@pytest.mark.parametrize("name", sorted(row["type"] for row in ROWS if "type_hash" in row))
def test_type_hashes_are_those_of_ros(name: str) -> None:
    assert messages.type_hash.__wrapped__(name) == HASHES[name]


def test_definitions_of_robots_have_the_hash_that_ros_computed() -> None:
    """A field too many, or of another type, in a ros.yaml: a real node would not take the message."""
    found = {}
    for file in sorted(ROOT.glob("robots/*/ros.yaml")):
        for part in yaml.safe_load(file.read_text())["interfaces"].values():
            store = store_with(part["definitions"])
            found.update({name: (file.parent.name, store.hash_rihs01(name))
                          for name in part["definitions"] if name in HASHES})
    assert "crazyflie_interfaces/msg/LogDataGeneric" in found
    assert {name: hash for name, (_, hash) in found.items()} == {name: HASHES[name] for name in found}


def test_garbage_in_the_padding_is_not_read(jazzy: Any) -> None:
    """Fast CDR leaves what was in memory between fields: here 3 bytes after a text of 9 characters."""
    row = next(row for row in ROWS if row["type"] == "geometry_msgs/msg/TwistStamped")
    data = bytearray.fromhex(row["cdr_hex"])
    end = data.index(b"fr3_link0\0") + len(b"fr3_link0\0")
    assert data[end:end + 2] == b"\0\0"
    data[end:end + 2] = b"\xb9\x3f"
    assert messages.encode(row["type"], messages.decode(row["type"], bytes(data))).hex() == row["cdr_hex"]
