"""Exit statuses, and errors that are the user's to correct."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# exit status: done and good; done, and the gate says no; not done: what was given cannot be used; not done: our error
OK, FAILED, BAD_INPUT, CRASHED = 0, 1, 2, 3
NO_BRIDGE = "the package temporeal_bridge is not installed: pip install ros2_ws/src/temporeal_bridge"


class BadInput(ValueError):
    """What the user gave cannot be used; the message names the value, the rule and the legal choices."""


def not_installed(error: ModuleNotFoundError) -> str:
    """What to say where a package is missing."""
    if error.name == "temporeal_bridge":
        return NO_BRIDGE
    return f"the package {error.name} is not installed; `temporeal doctor` says how to get it"


@contextmanager
def bad_input() -> Iterator[None]:
    """What set-up code refuses (it names the legal choices) is the user's input, not a crash."""
    from temporeal.robots.registry import UnknownName

    try:
        yield
    except BadInput:
        raise
    except (ValueError, UnknownName, FileNotFoundError) as error:
        raise BadInput(str(error)) from error
    except ModuleNotFoundError as error:
        raise BadInput(not_installed(error)) from error
