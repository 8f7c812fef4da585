"""A person beside the robot: takes over, lets go, and says what became of an episode.

While a person intervenes, their action is executed; the step is marked, and goes into replay and demonstrations alike
(HIL-SERL, Luo et al. 2024, arXiv 2410.21845, section III). Devices are those that record demonstrations
(:mod:`temporeal.policies.data.recording`): a hand on keyboard, gamepad or SpaceMouse intervenes while it moves
something or holds the deadman switch; a leader arm between two presses of the space bar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from temporeal.policies.data.recording.controls import Controls, Device, Layout, value
from temporeal.policies.data.recording.operators import Handheld, Operator, Wish
from temporeal.sim.types import Obs

NOTHING = Obs(torch.zeros(1, 0), torch.zeros(1, 0))  # operators are given an observation, and people read none
TOGGLE = "space"  # on the terminal: a leader arm takes over, or lets go


@dataclass(frozen=True)
class Heard:
    """What a person did in a control step.

    Args:
        action: [A] in [-1, 1], in place of the policy's; command: [U], that an action is to come as near to as it
            can. Both None: the policy acts.
        events: out of :data:`temporeal.policies.data.recording.controls.EVENTS`.
    """

    action: np.ndarray | None = None
    command: np.ndarray | None = None
    events: tuple[str, ...] = ()

    @property
    def intervenes(self) -> bool:
        """Whether the person acts."""
        return self.action is not None or self.command is not None


class Intervention(Protocol):
    """A person, asked once a control step; at once. ``words``: what they must know."""

    words: str

    def __call__(self, signals: Mapping[str, np.ndarray], proposed: np.ndarray) -> Heard:
        """What they do, where the policy would give the action ``proposed`` [A]."""

    def begin(self) -> None:
        """An episode begins."""

    def close(self) -> None:
        """Give the devices back."""


class Watched:
    """A device, with what it last said."""

    def __init__(self, device: Device) -> None:
        self.device, self.name, self.last = device, device.name, Controls()

    def read(self) -> Controls:
        """Its state now."""
        self.last = self.device.read()
        return self.last

    def close(self) -> None:
        """Give it back."""
        self.device.close()


class ByHand:
    """A person with keyboard, gamepad or SpaceMouse."""

    def __init__(
        self, device: Device, kind: str, action_dim: int, speed: float = 1.0, terminal: Device | None = None
    ) -> None:
        self.watched = Watched(device)
        self.hand = Handheld(self.watched, kind, action_dim, speed, terminal)
        self.words, self.acting = self.hand.words, False

    def __call__(self, signals: Mapping[str, np.ndarray], proposed: np.ndarray) -> Heard:
        """What the hand does. A gripper stays as the policy had it when the hand takes over."""
        if not self.acting:
            self.hand.switched = {name: 1.0 if proposed[self.hand.components.index(name)] >= 0.0 else -1.0
                                  for name in self.hand.switched}
        wish = self.hand(NOTHING, signals)
        self.acting = moves(self.hand.layout, self.watched.last)
        return Heard(np.clip(wish.action, -1.0, 1.0) if self.acting else None, None, wish.events)

    def begin(self) -> None:
        """Nobody intervenes."""
        self.acting = False
        self.hand.begin()

    def close(self) -> None:
        """Give the devices back."""
        self.hand.close()


def moves(layout: Layout, now: Controls) -> bool:
    """Whether a device in this state moves something, or its deadman switch is held. The keys of a terminal hold that
    switch whichever they are: what only says what became of an episode moves nothing."""
    turned = any(value(term, now) != 0.0 for term in layout.axes.values())
    toggled = any(key in now.held or key in now.pressed for key in layout.toggles.values())
    held = bool(layout.deadman) and layout.deadman in now.held and not any(key in now.held for key in layout.events)
    return turned or toggled or held


class ByOperator:
    """An operator of recordings, who acts between two presses of the space bar: a leader arm, or a test's double."""

    def __init__(self, operator: Operator, keys: Device | None) -> None:
        self.operator, self.keys, self.acting = operator, keys, False
        self.words = f"{operator.words}; {TOGGLE}: take over, or let go".removeprefix("; ")

    def __call__(self, signals: Mapping[str, np.ndarray], proposed: np.ndarray) -> Heard:
        """What the operator does."""
        wish: Wish = self.operator(NOTHING, signals)
        if self.keys is not None and self.keys.read().pressed.count(TOGGLE) % 2:
            near = getattr(self.operator, "near", None)  # a follower that is elsewhere would jump
            self.acting = not self.acting and (near is None or near(signals))
        if not self.acting:
            return Heard(events=wish.events)
        return Heard(None if wish.command is not None else np.clip(wish.action, -1.0, 1.0), wish.command, wish.events)

    def begin(self) -> None:
        """Nobody intervenes."""
        self.acting = False
        self.operator.begin()

    def close(self) -> None:
        """Give the devices back."""
        self.operator.close()


class Shared:
    """Keys that two read: each is given what went down since it last asked."""

    def __init__(self, device: Device) -> None:
        self.device, self.name = device, device.name
        self.waiting: dict[int, list[str]] = {}

    def of(self, reader: int) -> SharedKeys:
        """The keys for one reader."""
        self.waiting[reader] = []
        return SharedKeys(self, reader)

    def read(self, reader: int) -> Controls:
        """The device's state, with what went down since this reader asked."""
        now = self.device.read()
        for typed in self.waiting.values():
            typed += now.pressed
        mine, self.waiting[reader] = tuple(self.waiting[reader]), []
        return replace(now, pressed=mine)


@dataclass
class SharedKeys:
    """One reader's view of shared keys."""

    shared: Shared
    reader: int
    name: str = "keyboard"

    def read(self) -> Controls:
        """The state now."""
        return self.shared.read(self.reader)

    def close(self) -> None:
        """Give the device back; once is enough."""
        if self.shared.waiting.pop(self.reader, None) is not None and not self.shared.waiting:
            self.shared.device.close()


def intervention_of(name: str, task: Any, speed: float, leader: str, interface: str | None, domain: int | None
                    ) -> Intervention | None:
    """The person that ``intervene=`` names: none, keyboard, gamepad, spacemouse or leader."""
    import sys

    from temporeal.policies.data.recording.keyboard import Terminal
    from temporeal.policies.runs.demonstrating import teleoperation
    from temporeal.policies.runs.errors import BadInput

    if name == "none":
        return None
    if name not in teleoperation.BY_HAND:
        raise BadInput(f"intervene={name}: legal are none, {', '.join(teleoperation.BY_HAND)}")
    keys: Device | None = Terminal() if sys.stdin.isatty() else None
    try:
        if name == "leader":
            if keys is None:
                raise BadInput("intervene=leader: the space bar of a terminal says when the leader acts, and standard "
                               "input is none")
            shared = Shared(keys)
            arm = teleoperation.leader_on(leader, interface, domain, task, shared.of(0))
            return ByOperator(arm, shared.of(1))
        device = teleoperation.device_of(name, keys)
        return ByHand(device, task.robot.kind, task.act.action_dim, speed, None if device is keys else keys)
    except BaseException:
        if keys is not None:
            keys.close()
        raise
