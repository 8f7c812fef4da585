"""How verbs talk: results as text or JSON, bad input as one clear line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# exit status: done and good; done, and the gate says no; not done: what was given cannot be used; not done: our error
OK, FAILED, BAD_INPUT, CRASHED = 0, 1, 2, 3


class BadInput(ValueError):
    """What the user gave cannot be used; the message names the value, the rule and the legal choices."""


class Parser(argparse.ArgumentParser):
    """argparse whose errors are :class:`BadInput` and whose help keeps the verb's own text and example."""

    def __init__(self, verb: str, text: str) -> None:
        super().__init__(
            prog=f"temporeal {verb}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False)

    def error(self, message: str) -> Any:
        raise BadInput(f"{message}; see {self.prog} --help")


def add_json(parser: argparse.ArgumentParser) -> None:
    """The switch that every verb with a result has."""
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Settings as words: ``task=hover seed=2``."""
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings, such as task=hover seed=2")


def plain(value: Any) -> Any:
    """``value`` as JSON can hold it: numpy and torch scalars and arrays as numbers and lists, paths as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    return value


def print_json(value: Any) -> None:
    """One JSON object on stdout, for machines."""
    print(json.dumps(plain(value), indent=2))


def say(text: str = "") -> None:
    """A line for a person, at once: long work is often watched through a pipe."""
    print(text, flush=True)


def counter(title: str) -> Callable[[int, int], None]:
    """``progress(done, of)`` for work of known length: redrawn on a terminal, silent elsewhere."""

    def show(done: int, of: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done == of else ""
            print(f"\r{title}: {done} of {of}", end=end, file=sys.stderr, flush=True)

    return show


def complain(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)
