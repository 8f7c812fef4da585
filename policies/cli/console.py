"""How verbs talk: results as text or JSON, bad input as one clear line."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# exit status: done and good; done, and the gate says no; not done: what was given cannot be used; not done: our error
OK, FAILED, BAD_INPUT, CRASHED = 0, 1, 2, 3
NO_BRIDGE = "the package temporeal_bridge is not installed: pip install ros2_ws/src/temporeal_bridge"


class BadInput(ValueError):
    """What the user gave cannot be used; the message names the value, the rule and the legal choices."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended the work; the text says what is left of it. The exit status is the shell's: 130, 143."""

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(text or f"stopped by {signal.Signals(number).name}")
        self.number, self.status = number, 128 + number


def not_installed(error: ModuleNotFoundError) -> str:
    """What to say where a package is missing."""
    if error.name == "temporeal_bridge":
        return NO_BRIDGE
    return f"the package {error.name} is not installed; `temporeal doctor` says how to get it"


@contextmanager
def on_signals(numbers: Iterable[int], handler: Callable[[int, object], None]) -> Iterator[None]:
    """``handler`` for these signals inside, the old ones afterwards. A signal that is ignored stays so: a shell script
    does that to Ctrl-C for what it runs in the background. Only a main thread can; elsewhere nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def stop_asked(quiet: bool = False) -> Iterator[list[int]]:
    """Inside, Ctrl-C and SIGTERM only enter their number into the list, to be heeded when there is a good moment; a
    second one interrupts at once."""
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        if asked:
            raise Interrupted(number)
        asked.append(number)
        if not quiet:  # not through sys.stderr: the signal may have come in the middle of a write to it
            os.write(2, b"\ntemporeal: finishing this iteration and keeping a checkpoint; once more stops at once\n")

    with on_signals([signal.SIGINT, signal.SIGTERM], ask):
        yield asked


def interrupt(number: int, _: object = None) -> None:
    """A signal handler: what is under way cleans up as after Ctrl-C."""
    raise Interrupted(number)


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


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Inside, what our own modules warn of is a line like any other, without the place in the source;
    warnings of others are shown as python does."""
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
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)
