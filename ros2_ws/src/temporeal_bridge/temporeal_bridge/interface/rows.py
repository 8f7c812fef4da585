"""Rows of a YAML file: the keys that each must have, and the kinds of their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from temporeal.robots.handed_over.files import Refused, read_text
from temporeal.robots.handed_over.texts import from_yaml
from temporeal.robots.signals import is_number
from temporeal_bridge.interface.interface import Autopilot, InterfaceError, Topic
from temporeal_bridge.transports.transport import TransportError

TOP = ("default", "interfaces", "safety", "simulation")
PARTS = ("description", "definitions", "states", "commands")
MAY_HAVE = ("autopilot", "rivals")  # further parts of an interface
STATE = ("topic", "type", "codec", "rate_hz", "qos", "options")
COMMAND = ("topic", "type", "codec", "qos", "options")
PART = ("components",)  # of a command's row, which it may have
EXTRA = ("definitions", "signals", "states")
PICTURE = (*STATE, "max_age_s")
PICTURES = ("pictures", "cameras")  # parts of a file of extra topics that has cameras
AUTOPILOT = tuple(each.name for each in fields(Autopilot))
TOPIC = tuple(each.name for each in fields(Topic))
RATES_HZ = (0.01, 1e5)  # chosen: slower topics are published on change, and none is faster


def is_text(value: Any) -> bool:
    """Whether it is a non-empty string."""
    return isinstance(value, str) and value != ""


def is_rate(value: Any) -> bool:
    """Whether it is a legal ``rate_hz``."""
    return is_number(value) and (value == 0 or RATES_HZ[0] <= value <= RATES_HZ[1])


def is_map(value: Any) -> bool:
    """Whether it is a mapping from names."""
    return isinstance(value, Mapping) and all(map(is_text, value))


def is_list(value: Any) -> bool:
    """Whether it is a list."""
    return isinstance(value, (list, tuple))


Rule = tuple[str, Callable[[Any], bool]]
TEXT: Rule = ("text", is_text)
MAP: Rule = ("a mapping from names", is_map)
LIST: Rule = ("a list of topics", is_list)
RULES: dict[str, Rule] = {  # by key: what a value must be, and the check
    **dict.fromkeys(("default", "topic", "type", "codec", "qos"), TEXT),
    **dict.fromkeys(("interfaces", "safety", "simulation", "commands", "options"), MAP),
    "rate_hz": (f"a number of Hz, 0 or from {RATES_HZ[0]:g} to {RATES_HZ[1]:g},", is_rate),
    "max_age_s": ("a number of seconds above 0", lambda v: is_number(v) and v > 0),
    "components": ("a list of different places in the command", lambda v: is_list(v) and len(v) > 0 and all(
        type(i) is int and i >= 0 for i in v) and len(set(v)) == len(v)),
    "also": LIST}
OR_NOTHING: dict[str, Rule] = {  # the same, or null
    **dict.fromkeys(("states", "pictures", "rivals"), LIST), **dict.fromkeys(("signals", "cameras", "autopilot"), MAP),
    "definitions": ("a mapping from types to the text of their .msg files",
                    lambda v: is_map(v) and all(isinstance(text, str) for text in v.values()))}


def read_yaml(path: Path, legal: tuple[str, ...] = TOP) -> dict[str, Any]:
    """A YAML file that must be a mapping; ``legal`` keys are named in the error."""
    try:
        content = deepcopy(_parsed(read_text(path), str(path)))
    except OSError as error:
        raise InterfaceError(f"{path} cannot be read: {error.strerror}") from error
    except Refused as error:
        raise InterfaceError(str(error)) from error
    except yaml.YAMLError as error:
        raise InterfaceError(f"{path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise InterfaceError(f"{path}: a mapping with {', '.join(legal)} is needed")
    return content


@lru_cache(maxsize=16)
def _parsed(text: str, where: str) -> Any:
    """A file's content. A guard, a controller and a simulated robot in one process read the same file."""
    return from_yaml(text, where)


def checked_row(
    where: str, row: Mapping[str, Any], legal: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    """``row`` if it has exactly the ``legal`` keys and perhaps ``optional`` ones, with values of the right kind."""
    if not isinstance(row, Mapping) or set(row) - set(optional) != set(legal):
        more = f", and perhaps {sorted(optional)}" if optional else ""
        raise InterfaceError(f"{where}: keys are {listed(row)}, expected exactly {sorted(legal)}{more}")
    for key, value in row.items():
        wanted, good = RULES.get(key) or OR_NOTHING.get(key) or ("", lambda _: True)
        if not good(value) and not (key in OR_NOTHING and value is None):
            raise InterfaceError(f"{where}.{key}: {wanted} is needed, got {value!r}")
    return dict(row)


def listed(row: Any) -> str:
    """The keys of a value that should be a mapping."""
    return str(sorted(map(str, row))) if isinstance(row, Mapping) else repr(row)


@contextmanager
def located(where: str) -> Iterator[None]:
    """Errors in this block become InterfaceErrors at ``where``: options may hold any values."""
    try:
        yield
    except InterfaceError:
        raise
    except KeyError as error:
        raise InterfaceError(f"{where}: the option {error} is missing") from error
    except (ValueError, TransportError) as error:
        raise InterfaceError(f"{where}: {error}") from error
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise InterfaceError(f"{where}: a value is of the wrong kind: {error}") from error
