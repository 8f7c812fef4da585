"""Ctrl-C and SIGTERM: an orderly end now, or at the next good moment."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended the work; the text says what is left of it. The exit status is the shell's: 130, 143."""

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(text or f"stopped by {signal.Signals(number).name}")
        self.number, self.status = number, 128 + number


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
