"""The keyboard: of the terminal, or with pynput of the whole screen.

A terminal reports no release of a key, only repeats while it is held: a key counts as held for :data:`HELD_S` after the
last report, and whatever moves holds the deadman switch, too. pynput reports both, but needs a graphical session.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable
from time import monotonic
from typing import Any

from temporeal.policies.data.recording.controls import Controls

HELD_S = 0.6  # s: chosen: keyboards wait up to 0.5 s before they repeat the first time
NAMES = {" ": "space", "\r": "return", "\n": "return", "\x1b": "escape", "\x7f": "backspace"}
DEADMAN = "space"


class Terminal:
    """The keys typed into a terminal (``descriptor``: its file descriptor), without echo, until :meth:`close`."""

    name = "keyboard"

    def __init__(self, descriptor: int | None = None, clock: Callable[[], float] = monotonic) -> None:
        self.descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        if not os.isatty(self.descriptor):
            raise OSError("the keyboard is that of a terminal, and standard input is none")
        self.clock, self.since = clock, dict[str, float]()
        self._before: list[Any] | None = termios.tcgetattr(self.descriptor)
        tty.setcbreak(self.descriptor)

    def read(self) -> Controls:
        """The keys that are held, and those that were typed since the last time."""
        now, typed = self.clock(), list[str]()
        while select.select([self.descriptor], [], [], 0)[0]:
            text = os.read(self.descriptor, 64).decode(errors="ignore")
            if not text:
                break
            typed += [NAMES.get(letter, letter) for letter in text]
        fresh = [key for key in typed if now - self.since.get(key, -1e9) > HELD_S]
        self.since |= dict.fromkeys(typed, now)
        held = {key for key, at in self.since.items() if now - at <= HELD_S}
        return Controls(held=frozenset(held | {DEADMAN} if held else held), pressed=tuple(dict.fromkeys(fresh)))

    def close(self) -> None:
        """The terminal as it was."""
        if self._before is not None:
            termios.tcsetattr(self.descriptor, termios.TCSADRAIN, self._before)
            self._before = None


class Screen:
    """The keys of a graphical session, by pynput."""

    name = "keyboard"

    def __init__(self) -> None:
        from pynput import keyboard

        self._down: set[str] = set()
        self._typed: list[str] = []
        self._listener = keyboard.Listener(on_press=self._press, on_release=self._release)
        self._listener.start()

    def _press(self, key: Any) -> None:
        name = key_name(key)
        if name not in self._down:  # a held key repeats
            self._typed.append(name)
        self._down.add(name)

    def _release(self, key: Any) -> None:
        self._down.discard(key_name(key))

    def read(self) -> Controls:
        """The keys that are down, and those that went down since the last time."""
        typed, self._typed = self._typed, []
        return Controls(held=frozenset(self._down), pressed=tuple(typed))

    def close(self) -> None:
        """Stop listening."""
        self._listener.stop()


def key_name(key: Any) -> str:
    """pynput's key by the name that the table uses."""
    letter = getattr(key, "char", None)
    name = letter if letter is not None else str(getattr(key, "name", key))
    return {"enter": "return", "esc": "escape"}.get(name, NAMES.get(name, name))
