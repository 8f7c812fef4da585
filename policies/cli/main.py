"""The command ``temporeal``: finds the verb's module and runs it.

A verb is a module ``<verb>.py`` in ``policies/cli/verbs`` or a folder of it, with ``SUMMARY`` (one line), ``HELP``
(text with an example) and ``run(argv) -> exit status``. Modules import slow packages (torch, hydra, matplotlib) inside
their functions, so that help and completion answer at once.
"""

from __future__ import annotations

import importlib
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from temporeal.policies.cli.console import complain, plain_warnings, say
from temporeal.policies.runs.errors import BAD_INPUT, CRASHED, OK, BadInput, not_installed
from temporeal.policies.runs.interrupts import Interrupted, interrupt, on_signals
from temporeal.robots.registry import guess

OURS = ("temporeal",)  # packages that are always there: one that is missing is an error of ours
ORDER = (
    "demo", "doctor", "robot", "view", "train", "eval", "falsify", "export", "deploy", "monitor", "replay", "report",
    "actor", "learner", "spec", "data", "excite", "log", "identify", "validate", "bench",
    "completion")
USAGE = """\
temporeal: from a temporal-logic task to a robot that does it.

usage: temporeal VERB [key=value ...] [options]

verbs:
{verbs}

`temporeal VERB --help` explains a verb, with an example. Settings are words such as task=hover seed=2
(Hydra); `temporeal train --config` prints them all. Exit status: 0 good, 1 the result fails its gate, 2 bad input,
3 an error of temporeal itself, 130 interrupted, 143 terminated.

first steps:
  temporeal doctor        is this machine ready?
  temporeal demo          the whole chain in minutes: train, judge, export, fly through ROS 2
"""


def verbs() -> dict[str, str]:
    """The module of each verb, by the verb's name. Lists files, imports nothing."""
    folder = Path(__file__).parent
    found = [path for path in folder.glob("verbs/**/*.py") if "\nSUMMARY = " in path.read_text()]
    return {path.stem: ".".join(("temporeal.policies.cli", *path.relative_to(folder).with_suffix("").parts))
            for path in found}


def verb_names() -> list[str]:
    """Verbs in the order of a first day, then any others by name."""
    found = set(verbs())
    return [v for v in ORDER if v in found] + sorted(found - set(ORDER))


def load_verb(name: str) -> ModuleType:
    """The module of verb ``name``; the error for an unknown name lists the known ones."""
    known = verb_names()
    if name not in known:
        raise BadInput(f"no verb {name!r}; {guess(name, known)}verbs: {', '.join(known)}")
    return importlib.import_module(verbs()[name])


def usage() -> str:
    """The text of ``temporeal --help``."""
    names = verb_names()
    width = max(map(len, names))
    return USAGE.format(verbs="\n".join(f"  {name:{width}}  {load_verb(name).SUMMARY}" for name in names))


def version() -> str:
    """Version of the installed distribution."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("temporeal")
    except PackageNotFoundError:
        return "(runs from its folder, not installed)"


def dispatch(argv: Sequence[str]) -> int:
    """Run the verb that ``argv`` names."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        if len(argv) > 1:
            return dispatch([argv[1], "--help"])
        say(usage())
        return OK if argv else BAD_INPUT
    if argv[0] in ("-V", "--version"):
        say(f"temporeal {version()}")
        return OK
    status: int = load_verb(argv[0]).run(list(argv[1:]))
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return guarded(dispatch, arguments)


def guarded(work: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Exit status of ``work(arguments)``: bad input is one line and 2, an interrupt is 130, SIGTERM is 143.

    The status is the same if nobody reads the output (a closed pipe or descriptor). A crash has its own status: 1 would
    tell a script that the gate failed.
    """
    given = sys.stdout, sys.stderr
    with open(os.devnull, "w") as nowhere:
        sys.stdout, sys.stderr = (Unread(stream or nowhere) for stream in given)
        try:
            return attempted(work, arguments)
        finally:
            sys.stdout, sys.stderr = given


class Unread:
    """A text stream whose reader may leave: the rest is dropped, and the work goes on to its exit status."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, as the stream does."""
        try:
            return int(self._stream.write(text))
        except BrokenPipeError:
            self._leave()
            return len(text)

    def flush(self) -> None:
        """Flush, as the stream does."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._leave()

    def _leave(self) -> None:
        """Redirect the descriptor itself to nowhere, because python flushes once more at exit."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def attempted(work: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Exit status of ``work(arguments)``, whatever it raises."""
    try:
        with on_signals([signal.SIGTERM], interrupt), plain_warnings():
            status = work(arguments)
        sys.stdout.flush()
        return status
    except BadInput as error:
        complain(f"temporeal: {error}")
        return BAD_INPUT
    except SystemExit as stop:  # argparse after --help
        return stop.code if isinstance(stop.code, int) else BAD_INPUT
    except KeyboardInterrupt as stop:
        complain(f"temporeal: {stop if isinstance(stop, Interrupted) else 'interrupted'}")
        return stop.status if isinstance(stop, Interrupted) else 130
    except OSError as error:  # a full disk, a folder that may not be written
        complain(f"temporeal: {error}")
        return BAD_INPUT
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and error.name.split(".")[0] not in OURS:
            complain(f"temporeal: {not_installed(error)}")
            return BAD_INPUT
        if (told := of_their_task(error)) is not None:
            complain(f"{traceback.format_exc()}temporeal: {told}")
            return BAD_INPUT
        complain(f"{traceback.format_exc()}temporeal: this is an error of temporeal itself; please report it with the "
                 f"lines above and: temporeal {shlex.join(arguments)}")
        return CRASHED


def of_their_task(error: Exception) -> str | None:
    """The line of the user's task file that raised ``error``; None: it is no error of theirs."""
    files = sys.modules.get("temporeal.sim.task_files")
    return None if files is None else files.in_task_file(error)


if __name__ == "__main__":
    sys.exit(main())
