"""Ctrl-C and SIGTERM: an orderly end now, or at the next good moment."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended the work; the text names what was kept. The exit status is the shell's: 130 or 143."""

    def __init__(self, number: int, text: str = "") -> None:
        super().__init__(text or f"stopped by {signal.Signals(number).name}")
        self.number, self.status = number, 128 + number


@contextmanager
def on_signals(numbers: Iterable[int], handler: Callable[[int, object], None]) -> Iterator[None]:
    """Inside, ``handler`` handles these signals.

    A signal that is ignored stays ignored: a shell script ignores Ctrl-C for what it runs in the background. Python
    handles signals in the main thread only; in others nothing is done.
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
def stop_asked(
    note: str = "finishing this iteration and keeping a checkpoint", quiet: bool = False
) -> Iterator[list[int]]:
    """Inside, the first Ctrl-C or SIGTERM is entered into the list, for a good moment to stop; a second one interrupts.

    ``note``: what is done until then, printed unless ``quiet``.
    """
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        if asked:
            raise Interrupted(number)
        asked.append(number)
        if not quiet:  # not through sys.stderr: the signal may have come in the middle of a write to it
            os.write(2, f"\ntemporeal: {note}; once more stops at once\n".encode())

    with on_signals([signal.SIGINT, signal.SIGTERM], ask):
        yield asked


def interrupt(number: int, _: object = None) -> None:
    """A signal handler that ends the work as Ctrl-C does."""
    raise Interrupted(number)
