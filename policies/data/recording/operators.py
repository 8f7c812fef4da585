"""Who acts while an episode is recorded: a person with a device, a policy, a script. A actions, U command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from temporeal.policies.data.recording.controls import BEGIN, QUIT, SESSION, Controls, Device, layout_of, legend, value
from temporeal.sim.types import Obs


@dataclass(frozen=True)
class Wish:
    """What an operator wants at one control step.

    Args:
        action: [A] in [-1, 1], of the task.
        command: [U] in its units, sent instead of what the action means; None: the action's.
        events: out of :data:`temporeal.policies.data.recording.controls.EVENTS`, in order.
    """

    action: np.ndarray
    command: np.ndarray | None = None
    events: tuple[str, ...] = ()


class Operator(Protocol):
    """Acts. ``words``: what a person must know, or ""."""

    words: str

    def __call__(self, obs: Obs, signals: Mapping[str, np.ndarray]) -> Wish:
        """The next action for the observation (of one world) and the measured signals."""

    def begin(self) -> None:
        """An episode begins: forget the one before."""

    def close(self) -> None:
        """Give its devices back."""


class Handheld:
    """A person with a device; the terminal's keys say what becomes of an episode, too.

    Without the deadman switch the action is zero; what a toggle was switched to stays.

    Args:
        kind: of the robot. ``action_dim``: A.
        speed: the action at full deflection, above 0 to 1.
        terminal: keys beside the device; None: there are none.
    """

    def __init__(
        self, device: Device, kind: str, action_dim: int, speed: float = 1.0, terminal: Device | None = None
    ) -> None:
        self.layout, self.components = layout_of(device.name, kind, action_dim)
        self.device, self.terminal, self.speed = device, terminal, speed
        self.switched = dict.fromkeys(self.layout.toggles, 1.0)
        self.words = legend(self.layout)

    def __call__(self, obs: Obs, signals: Mapping[str, np.ndarray]) -> Wish:
        """What the device says now."""
        now = self.device.read()
        events = [self.layout.events[key] for key in now.pressed if key in self.layout.events]
        if self.terminal is not None:
            events += [SESSION.events[key] for key in self.terminal.read().pressed if key in SESSION.events]
        for component, key in self.layout.toggles.items():
            if now.pressed.count(key) % 2:
                self.switched[component] *= -1.0
        return Wish(np.array([self.component(name, now) for name in self.components], np.float32), None, tuple(events))

    def component(self, name: str, now: Controls) -> float:
        """One component of the action."""
        if name in self.switched:
            return self.switched[name]
        moves = not self.layout.deadman or self.layout.deadman in now.held
        return self.speed * value(self.layout.axes[name], now) if moves and name in self.layout.axes else 0.0

    def begin(self) -> None:
        """Toggles begin at 1: an open gripper."""
        self.switched = dict.fromkeys(self.layout.toggles, 1.0)

    def close(self) -> None:
        """Give the devices back."""
        self.device.close()
        if self.terminal is not None:
            self.terminal.close()


Acts = Callable[[Obs, Mapping[str, np.ndarray]], np.ndarray]
"""``act(obs, signals) -> action [A]`` of one episode."""


class Acting:
    """A policy or an expert by hand. It begins episodes by itself; the terminal's keys may end them.

    Args:
        make: what acts in one episode: it may remember.
    """

    words = ""

    def __init__(self, make: Callable[[], Acts], terminal: Device | None = None) -> None:
        self.make, self.terminal = make, terminal
        self.act = make()

    def __call__(self, obs: Obs, signals: Mapping[str, np.ndarray]) -> Wish:
        """Its action."""
        keys = () if self.terminal is None else self.terminal.read().pressed
        return Wish(self.act(obs, signals), None, (BEGIN, *(SESSION.events[k] for k in keys if k in SESSION.events)))

    def begin(self) -> None:
        """Nothing is remembered."""
        self.act = self.make()

    def close(self) -> None:
        """Give the keys back."""
        if self.terminal is not None:
            self.terminal.close()


class Scripted:
    """A list of wishes, one a control step: the double of a person, for tests."""

    words = ""

    def __init__(self, wishes: Iterable[Wish]) -> None:
        self.wishes: Iterator[Wish] = iter(wishes)

    def __call__(self, obs: Obs, signals: Mapping[str, np.ndarray]) -> Wish:
        """The next one; at the end of the list it quits."""
        return next(self.wishes, Wish(np.zeros(1, np.float32), None, (QUIT,)))

    def begin(self) -> None:
        """Nothing: the list goes on."""

    def close(self) -> None:
        """Nothing."""
