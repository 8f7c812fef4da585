"""Detect tensors that an ONNX network keeps in another file, which no digest of the artifact covers.

onnxruntime reads such a file wherever its name leads, and a robot need not have the package `onnx`. So the file's
protobuf (onnx.proto, protobuf.dev/programming-guides/encoding) is walked here, without a copy of its tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

CHILDREN: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {}}
"""Fields of each message of onnx.proto that hold tensors, or what holds some."""
GRAPH, NODE, OPERATOR = 7, 1, 4  # fields of ModelProto, GraphProto and NodeProto
NAME, EXTERNAL_DATA, DATA_LOCATION = 8, 13, 14  # fields of TensorProto
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types


def outside(data: bytes) -> str | None:
    """Name of a tensor that the network in ``data`` keeps in another file; None without one. ValueError: not a
    protobuf."""
    waiting = [("model", memoryview(data))]
    while waiting:
        kind, part = waiting.pop()
        name = ""
        elsewhere = False
        for field, value in fields(part):
            child = CHILDREN[kind].get(field)
            if child is not None and isinstance(value, memoryview):
                waiting.append((child, value))
            elif kind == "tensor":
                elsewhere |= field == EXTERNAL_DATA or (field == DATA_LOCATION and value != 0)
                if field == NAME and isinstance(value, memoryview):
                    name = bytes(value).decode(errors="replace")
        if elsewhere:
            return name
    return None


def count(data: bytes, operator: str) -> int:
    """How many nodes of the graph of the network in ``data`` are of ``operator``. ValueError: not a protobuf."""
    graphs = (value for field, value in fields(memoryview(data)) if field == GRAPH and isinstance(value, memoryview))
    nodes = (value for graph in graphs for field, value in fields(graph)
             if field == NODE and isinstance(value, memoryview))
    return sum(isinstance(value, memoryview) and bytes(value) == operator.encode()
               for node in nodes for field, value in fields(node) if field == OPERATOR)


def fields(part: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Number and content of each field of a message; no content for numbers of fixed width."""
    at = 0
    while at < len(part):
        tag, at = varint(part, at)
        field, wire = tag >> 3, tag & 7
        value: int | memoryview = 0
        if wire == VARINT:
            value, at = varint(part, at)
        elif wire == BYTES:
            length, at = varint(part, at)
            value, at = part[at : at + length], at + length
        elif wire in (FIXED64, FIXED32):
            at += 8 if wire == FIXED64 else 4
        # a tag has 32 bits: others' parsers drop what is above, and would read another field than we do
        if field == 0 or tag >> 32 or wire not in (VARINT, FIXED64, BYTES, FIXED32) or at > len(part):
            raise ValueError(f"it is no protobuf: field {field} of wire type {wire}")
        yield field, value


def varint(part: memoryview, at: int) -> tuple[int, int]:
    """The number that begins at ``at``, and where it ends."""
    value = 0
    for k in range(10):  # of 64 bits
        if at + k >= len(part):
            break
        value |= (part[at + k] & 0x7F) << 7 * k
        if part[at + k] < 0x80:
            return value, at + k + 1
    raise ValueError("it is no protobuf: a number without end")
