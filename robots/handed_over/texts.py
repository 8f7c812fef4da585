"""JSON, YAML and XML of somebody else's, parsed with bounds on their depth and on what they unfold to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any
from xml.etree import ElementTree

import yaml

from temporeal.robots.handed_over.files import Refused

DEPTH = 64  # levels of lists and mappings; our own files have at most 12
NODES = 100_000  # values of a YAML file, references unfolded: half a second of PyYAML's time
ELEMENTS, XML_DEPTH = 200_000, 400  # of a robot's model; the largest public ones have some thousands, at most 60 deep
INTEGERS = 2**63  # a whole number is below it, as everywhere else a number of a file goes
SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast; safe once the depth is known
FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]{1,3}$")
"""Numbers of YAML 1.2 (10.3.2) that YAML 1.1, which PyYAML reads, takes for texts: 3e-05 has no dot, 1.5e5 no sign."""


class Loader(SAFE):  # type: ignore[misc]
    """PyYAML's safe loader, with :data:`FLOAT`."""


class Dumper(yaml.SafeDumper):
    """What writes plain values so that :func:`from_yaml` reads them as they were: a text that looks like a number in
    quotes."""


for each in (Loader, Dumper):
    each.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))
LOADER: Any = Loader


def from_json(data: bytes | str, where: str, depth: int = DEPTH) -> Any:
    """The value of a JSON text: finite numbers, at most ``depth`` levels."""
    try:
        value = json.loads(data, parse_constant=not_finite, parse_float=finite, parse_int=whole)
    except RecursionError as error:
        raise Refused(f"{where}: it is nested too deeply, more than {depth} levels") from error
    except ValueError as error:
        raise Refused(f"{where} is not JSON: {error}") from error
    if too_deep(value, depth):
        raise Refused(f"{where}: it is nested too deeply, more than {depth} levels")
    return value


def not_finite(text: str) -> Any:
    """The error for NaN and infinity, which JSON does not have."""
    raise ValueError(f"JSON has no {text}")


def finite(text: str) -> float:
    """The number that ``text`` is."""
    if not isfinite(value := float(text)):
        raise ValueError(f"{text[:40]} is not finite in double precision")
    return value


def whole(text: str) -> int:
    """The whole number that ``text`` is."""
    if len(text) > 20 or not -INTEGERS <= int(text) < 2 * INTEGERS:
        raise ValueError(f"{text[:40]} is no whole number of 64 bits")
    return int(text)


def too_deep(value: Any, depth: int = DEPTH) -> bool:
    """Whether lists and mappings are nested more than ``depth`` levels."""
    level = [value]
    for _ in range(depth + 1):
        level = [item for node in level for item in children(node)]
        if not level:
            return False
    return True


def children(node: Any) -> Iterator[Any]:
    """What a list or mapping holds."""
    if isinstance(node, Mapping):
        yield from node.values()
    elif isinstance(node, (list, tuple)):
        yield from node


def from_yaml(text: str, where: str, loader: Any = LOADER) -> Any:
    """The value of a YAML text: plain values, at most :data:`DEPTH` levels and :data:`NODES` values.

    Args:
        loader: :class:`Loader`, or a class made of it.

    Raises:
        Refused: the text breaks a bound.
        yaml.YAMLError: it is not YAML.
    """
    check_yaml(text, where)
    made = loader(text)
    try:
        return made.get_single_data()
    except (ValueError, RecursionError, OverflowError) as error:  # a date or number that there is none
        raise yaml.YAMLError(f"a value cannot be read: {error}") from error
    finally:
        made.dispose()


def check_yaml(text: str, where: str) -> None:
    """The depth and the number of values of a YAML text, references unfolded, are within bounds."""
    sizes: dict[str, int] = {}  # values below each anchor
    path: list[tuple[str | None, int]] = []  # anchor of each open list or mapping, values before it
    count = 0
    event: Any
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in [name for name, _ in path]:
                raise Refused(f"{where}, line {line_of(event)}: *{event.anchor} refers to what it is in")
            count += sizes.get(str(event.anchor), 1)
        elif isinstance(event, yaml.NodeEvent):
            count += 1
            if isinstance(event, yaml.CollectionStartEvent):
                path.append((event.anchor, count - 1))
            elif event.anchor is not None:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionEndEvent):
            name, before = path.pop()
            if name is not None:
                sizes[name] = count - before
        if len(path) > DEPTH or count > NODES:
            rule = (f"is nested too deeply, more than {DEPTH} levels" if len(path) > DEPTH else
                    f"has more than {NODES:,} values, references unfolded")
            raise Refused(f"{where}, line {line_of(event)}: it {rule}")


def line_of(event: Any) -> int:
    """The line of an event of YAML's parser, from 1."""
    return int(event.start_mark.line) + 1


def from_xml(data: bytes, where: str) -> ElementTree.Element:
    """The root element of an XML text of at most :data:`ELEMENTS` elements, :data:`XML_DEPTH` deep.

    Raises:
        Refused: the text breaks a bound.
        ElementTree.ParseError: it is not XML. Entities that unfold to much are refused by expat (since 2.4.1).
    """
    parser: Any = ElementTree.XMLPullParser(("start", "end"))
    depth = count = 0
    root: ElementTree.Element | None = None
    for start in range(0, max(len(data), 1), 1 << 16):
        parser.feed(data[start : start + (1 << 16)])
        for event, element in parser.read_events():
            root = element if root is None else root
            depth += 1 if event == "start" else -1
            count += event == "start"
            if depth > XML_DEPTH or count > ELEMENTS:
                raise Refused(f"{where}: it has more than {ELEMENTS:,} elements, or is nested too deeply, more than "
                              f"{XML_DEPTH} levels")
    parser.close()
    if root is None:
        raise Refused(f"{where}: it has no element")
    return root
