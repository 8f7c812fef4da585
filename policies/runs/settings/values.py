"""Whether a value may replace another: existing keys, kinds, options, and hints for misspelled names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings import renamed
from temporeal.robots.registry import guess
from temporeal.robots.search_path import VARIABLE, said


def check_option(group: str, option: object, known: Mapping[str, list[str]]) -> None:
    """``option`` is a file of ``group``; the experiment may be none."""
    if group == "experiment" and option is None:
        return
    if str(option) not in known[group]:
        raise BadInput(f"{group}={option}: {one_of(group, str(option), known)}")


def one_of(group: str, option: str, known: Mapping[str, list[str]]) -> str:
    """The options of ``group``, with a hint for a misspelled ``option``."""
    listed = ", ".join(known[group]) or "none yet"
    return f"{guess(option, known[group])}{group} is one of {listed}; files of your own: {VARIABLE}, {said()}"


def check_value(key: str, value: object, base: Mapping[str, Any]) -> None:
    """Check that ``key`` (dotted) exists in ``base`` and holds the same kind of value."""
    group, _, rest = key.partition(".")
    if rest == "name" and isinstance(base.get(group), Mapping):
        raise BadInput(f"{key}={value}: choose with {group}={value}, so that its settings come along")
    node: Any = base
    path: list[str] = []
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            place = f"{'.'.join(path)} has" if path else "there is"
            legal = list(node) if isinstance(node, Mapping) else []
            detail = f"{guess(part, legal)}legal: {', '.join(map(str, legal))}" if legal else "it is a single value"
            detail += renamed.hint(key)
            if path == ["task"]:
                detail += f"; what the task itself takes is set below task.settings: task.settings.{rest}=<value>"
            raise BadInput(f"{key}={value}: {place} no setting {part!r}; {detail}")
        node = node[part]
        path.append(part)
    # null is for what is null by default; the learner's own settings are checked against its configuration class
    if not same_kind(node, value) or (value is None and node is not None and group != "algo"):
        raise BadInput(f"{key}={value}: expected {kind(node)} as in {key}={shown(node)}, got {kind(value)}")


def same_kind(old: object, new: object) -> bool:
    """Whether ``new`` may replace ``old``: null takes and is taken by all, an int passes for a float."""
    if old is None or new is None:
        return True
    if isinstance(old, bool) or isinstance(new, bool):
        return isinstance(old, bool) and isinstance(new, bool)
    if isinstance(old, (int, float)) and isinstance(new, (int, float)):
        return isinstance(old, float) or isinstance(new, int)
    return kind(old) == kind(new)


def kind(value: object) -> str:
    """A value's kind, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a number"
    if isinstance(value, (list, tuple)):
        return "a list"
    return "a group of settings" if isinstance(value, Mapping) else "a word"


def shown(value: object) -> str:
    """A value as it is written on the command line."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{shown(v)}" for k, v in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


def hint(word: str, legal: Sequence[Any]) -> str:
    """``; did you mean ...?`` if a legal word is close."""
    found = guess(word, legal).rstrip()
    return f"; {found}" if found else ""


def check_device_name(device: object) -> None:
    """``device`` is written as one is; whether it is there shows later."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", str(device)):
        raise BadInput(f"device={device}: cpu, cuda or cuda:<index>")
