"""What an operator's device reports, and the one table that says what it means for each kind of robot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from temporeal.policies.data.episodes.interface import DataError

BEGIN, END, SUCCESS, FAILURE, DISCARD, QUIT = "begin", "end", "success", "failure", "discard", "quit"
EVENTS = (BEGIN, END, SUCCESS, FAILURE, DISCARD, QUIT)
"""What an operator can say of an episode. ``end``: the formula judges; ``success``, ``failure``: the operator has."""


@dataclass(frozen=True)
class Controls:
    """A device now.

    Args:
        axes: -1 to 1, by the device's own names.
        held: buttons or keys that are down.
        pressed: those that went down since the last time.
    """

    axes: Mapping[str, float] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    pressed: tuple[str, ...] = ()


class Device(Protocol):
    """A device that an operator holds. ``name``: as the table below calls it."""

    name: str

    def read(self) -> Controls:
        """Its state now; at once."""

    def close(self) -> None:
        """Give it back."""


@dataclass(frozen=True)
class Layout:
    """What a device's axes and keys mean for one kind of robot.

    Args:
        axes: component of the action -> ``name`` or ``-name`` of an axis, or ``plus/minus`` of two keys.
        toggles: component -> the key that switches it between 1 and -1; it begins at 1.
        deadman: the key without which nothing moves; "": the device returns to rest by itself.
        events: key -> one of :data:`EVENTS`.
    """

    axes: Mapping[str, str]
    toggles: Mapping[str, str]
    deadman: str
    events: Mapping[str, str]


COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "arm": ("x", "y", "z", "roll", "pitch", "yaw", "grip"),  # of the tool, in the base's frame: forward, left, up
    "quadrotor": ("thrust", "roll", "pitch", "yaw"),  # thrust about hovering, body rates: right, forward, left
    "mobile_base": ("speed", "turn")}
"""By kind of robot, what the components of a task's action are to an operator."""

KEYS = {"b": BEGIN, "return": END, "y": SUCCESS, "n": FAILURE, "x": DISCARD, "Q": QUIT}
PAD = {"start": BEGIN, "y": END, "a": SUCCESS, "b": FAILURE, "x": DISCARD, "back": QUIT}
CAP = {"right": SUCCESS}

LAYOUTS: Mapping[str, Mapping[str, Layout]] = {
    "keyboard": {
        "arm": Layout({"x": "w/s", "y": "a/d", "z": "r/f", "roll": "o/u", "pitch": "i/k", "yaw": "j/l"}, {"grip": "g"},
                      "space", KEYS),
        "quadrotor": Layout({"thrust": "r/f", "roll": "d/a", "pitch": "w/s", "yaw": "q/e"}, {}, "space", KEYS),
        "mobile_base": Layout({"speed": "w/s", "turn": "a/d"}, {}, "space", KEYS)},
    "gamepad": {
        "arm": Layout({"x": "-left_y", "y": "-left_x", "z": "-right_y", "yaw": "-right_x",
                       "roll": "dpad_right/dpad_left", "pitch": "dpad_up/dpad_down"}, {"grip": "left_shoulder"},
                      "right_shoulder", PAD),
        "quadrotor": Layout({"thrust": "-left_y", "yaw": "-left_x", "pitch": "-right_y", "roll": "right_x"}, {},
                            "right_shoulder", PAD),
        "mobile_base": Layout({"speed": "-left_y", "turn": "-right_x"}, {}, "right_shoulder", PAD)},
    "spacemouse": {
        "arm": Layout({"x": "y", "y": "-x", "z": "z", "roll": "roll", "pitch": "pitch", "yaw": "-yaw"},
                      {"grip": "left"}, "", CAP),
        "quadrotor": Layout({"thrust": "z", "roll": "x", "pitch": "y", "yaw": "-yaw"}, {}, "", CAP),
        "mobile_base": Layout({"speed": "y", "turn": "-yaw"}, {}, "", CAP)},
}
"""By device and kind of robot. Names of gamepads are SDL's, of a SpaceMouse pyspacemouse's (x right, y forward)."""
SAME_KIND = {"planar": "mobile_base"}
SESSION = Layout({}, {}, "", KEYS)
"""The keys of the terminal beside a device that has too few."""


def layout_of(device: str, kind: str, action_dim: int) -> tuple[Layout, tuple[str, ...]]:
    """What ``device`` means for a robot of ``kind``, and the components of its action of ``action_dim`` numbers.

    An arm's action without a turn has three numbers and a gripper's behind them: (x, y, z, grip).
    """
    kind = SAME_KIND.get(kind, kind)
    if device not in LAYOUTS:
        raise DataError(f"no device {device!r}; known: {', '.join(LAYOUTS)}")
    if kind not in COMPONENTS:
        raise DataError(f"a {device} has no layout for a robot of kind {kind!r}; kinds: {', '.join(COMPONENTS)}. A "
                        "policy, an expert or a leader arm can act instead (device=policy, expert, leader)")
    whole = COMPONENTS[kind]
    cases = {len(whole): whole, **({3: whole[:3], 4: (*whole[:3], "grip"), 6: whole[:6]} if kind == "arm" else {})}
    if action_dim not in cases:
        raise DataError(f"an action of {action_dim} numbers is not one that a {device} gives a robot of kind {kind!r}: "
                        f"{', '.join(map(str, sorted(cases)))}")
    return LAYOUTS[device][kind], cases[action_dim]


def value(term: str, controls: Controls) -> float:
    """What ``term`` of a layout says now, -1 to 1."""
    if "/" in term:
        plus, minus = term.split("/")
        return float(plus in controls.held) - float(minus in controls.held)
    sign, name = (-1.0, term[1:]) if term.startswith("-") else (1.0, term)
    return sign * float(np.clip(controls.axes.get(name, 0.0), -1.0, 1.0))


def legend(layout: Layout) -> str:
    """The layout in words, for the operator."""
    moves = [f"{component} {term}" for component, term in {**layout.axes, **layout.toggles}.items()]
    hold = [f"hold {layout.deadman} to move"] if layout.deadman else []
    return "; ".join([*hold, *moves, *(f"{key}: {event}" for key, event in layout.events.items())])
