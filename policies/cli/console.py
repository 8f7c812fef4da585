"""Shared parts of verbs: options, results as text or JSON, lines on standard error."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from temporeal.policies.runs.errors import BadInput


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are :class:`BadInput` and whose help keeps the verb's own text and example."""

    def __init__(self, verb: str, text: str) -> None:
        super().__init__(
            prog=f"temporeal {verb}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False)

    def error(self, message: str) -> Any:
        raise BadInput(f"{message}; see {self.prog} --help")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``, which every verb with a result has."""
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add ``--trust``, which every verb that takes an artifact has."""
    parser.add_argument("--trust", type=Path, metavar="KEY.pem.pub",
                        help="refuse an artifact that this public key did not sign")


def add_overwrite(parser: argparse.ArgumentParser) -> None:
    """Add ``--overwrite``, which every verb has that writes where the user says."""
    parser.add_argument("--overwrite", action="store_true", help="replace what is there already")


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add settings as words: ``task=hover seed=2``."""
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
    """Print a line at once: long work is often watched through a pipe."""
    print(text, flush=True)


def counter(title: str) -> Callable[[int, int], None]:
    """``progress(done, of)`` for work of known length: redrawn on a terminal, silent elsewhere."""

    def show(done: int, of: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done == of else ""
            print(f"\r{title}: {done} of {of}", end=end, file=sys.stderr, flush=True)

    return show


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Inside, warnings of our own modules are plain lines, without the place in the source; others are shown as python
    does."""
    ours = Path(__file__).parents[2]
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], filename: str, *more: Any, **others: Any) -> None:
            if issubclass(category, UserWarning) and Path(filename).is_relative_to(ours):
                complain(f"temporeal: {message}")
            else:
                usual(message, category, filename, *more, **others)

        warnings.showwarning = show
        yield


def complain(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr, flush=True)
