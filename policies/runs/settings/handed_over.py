"""Settings that were handed over, in a run's folder, an artifact or a counterexample: plain values of known kinds.

They choose among what is installed and what the user has, and set numbers. They name no program, no class, no variable
of the environment and no file: such settings are taken from the user's own command line, files and environment.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from temporeal.policies.runs.errors import BadInput, bad_input

PROGRAMS = {"backend.python": "give backend.python=... yourself, or set TEMPOREAL_ISAACGYM_PYTHON"}
"""Settings that name a program to be started, and where they are taken from instead."""
LOADED = {"base.model": "give base.model=... yourself", "base.map": "give base.map=... yourself",
          "backend.residual_dynamics": "give backend.residual_dynamics=... yourself"}
"""The same of settings that name what a program loads."""

GROUPS = ("robot", "task", "backend", "algo", "randomize", "curriculum")
"""Groups of settings whose ``name`` chooses one of the known ones."""

KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys((*GROUPS, "cameras", "augment", "deploy", "base"), (dict,)),
    **dict.fromkeys(("seed", "num_worlds", "threads", "processes"), (int,)),
    **dict.fromkeys(("device", "renderer", "experiment"), (str,)), "compiled": (bool,)}
"""What the values at the top are, besides null; other keys are those of older versions, or not read."""

BELOW: Mapping[str, tuple[str, ...]] = {"task": ("settings",), "randomize": (
    "parameters", "sensors", "disturbances", "appearance", "posterior"), "curriculum": ("parameters",)}
"""Groups in the groups."""

DEPTH, VALUES = 32, 20_000
WORDS = {dict: "a group of settings", int: "a whole number", str: "a word", bool: "true or false"}


def checked(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``settings`` without programs, if they are plain values; a :class:`BadInput` names what is not.

    ``where``: what was handed over, for messages.
    """
    _check_plain(settings, where)
    _check_kinds(settings, where)
    _check_robots(settings)
    return _without_programs(settings, where)


def _check_plain(settings: Mapping[str, Any], where: str) -> None:
    """Only mappings by name, lists, numbers, words and null; no interpolation and no class."""
    waiting: list[tuple[str, Any, int]] = [("", settings, 0)]
    count = 0
    while waiting:
        key, value, depth = waiting.pop()
        count += 1
        if depth > DEPTH or count > VALUES:
            raise BadInput(f"{where}: its settings have more than {VALUES:,} values, or are nested more than {DEPTH} "
                           "deep")
        if isinstance(value, Mapping):
            for name, item in value.items():
                _check_key(name, key, where)
                waiting.append((f"{key}.{name}".lstrip("."), item, depth + 1))
        elif isinstance(value, list):
            waiting += [(key, item, depth + 1) for item in value]
        elif isinstance(value, str) and ("${" in value or value == "???"):
            raise BadInput(f"{where}: its setting {key} is {value!r}: what was handed over reads no variables and no "
                           "other settings; it holds plain values")
        elif not (value is None or isinstance(value, (bool, int, float, str))):
            raise BadInput(f"{where}: its setting {key} is of type {type(value).__name__}; legal: numbers, words, "
                           "true, false, null, lists and groups of them")


def _check_key(name: object, above: str, where: str) -> None:
    """A key is a word, and none of Hydra's for classes (``_target_``)."""
    if not isinstance(name, str):
        raise BadInput(f"{where}: below {above or 'the top'} the key {name!r} is no word")
    if name.startswith("_") and name.endswith("_"):
        raise BadInput(f"{where}: its setting {above}.{name} names a class or a function; what was handed over names "
                       "none")


def _check_kinds(settings: Mapping[str, Any], where: str) -> None:
    """The top, and the groups' names and groups, are of the kinds that everybody reads them as."""
    for key, kinds in KINDS.items():
        value = settings.get(key)
        if value is not None and (type(value) not in kinds):
            raise BadInput(f"{where}: its setting {key} is {value!r:.60}; legal: {WORDS[kinds[0]]}")
    for group in GROUPS:
        held = settings.get(group) or {}
        if held and not isinstance(held.get("name"), str):
            raise BadInput(f"{where}: its setting {group}.name is {held.get('name')!r:.60}; legal: a word")
        for key in BELOW.get(group, ()):
            if not isinstance(held.get(key) or {}, Mapping):
                raise BadInput(f"{where}: its setting {group}.{key} is {held[key]!r:.60}; legal: a group of settings")


def _check_robots(settings: Mapping[str, Any]) -> None:
    """A robot that is named by a path is below the working directory, or in a folder of the user's."""
    from temporeal.robots.handed_over.robots import check_place, is_path

    task = settings.get("task") or {}
    own = task.get("settings") or {}
    named = ((settings.get("robot") or {}).get("name"), task.get("robot"), own.get("robot"), own.get("system"))
    for name in named:
        if isinstance(name, str) and is_path(name):
            with bad_input():
                check_place(name)


def _without_programs(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    """``settings`` in which nothing names a program; what did is said."""
    found = dict(settings)
    for key, instead in {**PROGRAMS, **LOADED}.items():
        group, _, name = key.partition(".")
        held = found.get(group) or {}
        if held.get(name):
            what = "a program" if key in PROGRAMS else "what a program loads"
            warnings.warn(f"{where}: its setting {key}, {held[name]!r}, names {what} and is left out; {instead}",
                          UserWarning, stacklevel=4)
            found[group] = {**held, name: "" if key in LOADED else None}
    return found


@contextmanager
def described_by(where: object) -> Iterator[None]:
    """Inside, tasks and environments are made of settings that were handed over: whatever makes that impossible is
    theirs, and bad input."""
    try:
        with bad_input():
            yield
    except (TypeError, AttributeError, LookupError, ArithmeticError, RecursionError, MemoryError) as error:
        what = f"{type(error).__name__}: {error}"
        raise BadInput(f"{where}: its settings make no task that can be run: {what}") from error
