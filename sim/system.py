"""A robot as formulas see it: its commands, observation and starts, and a model that predicts it.

    system = resolve("temporeal.sim.systems", "linear").make()         # sim/systems/<name>.py
    system.observe(signals)                                  # [N, size], to learn from
    system.model.step(state, action)                         # what planners look ahead with
    states_after(system.model, state, actions)               # the same over many steps

N worlds, K of them, A action, B states of a model, D numbers each.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Protocol

import torch
from torch import Tensor

from temporeal.robots.signals import SignalSpec
from temporeal.sim.compiler.devices import on_device
from temporeal.sim.maps import ActionMap, Memory
from temporeal.sim.scene import Scene
from temporeal.sim.task import Draw

Signals = Mapping[str, Tensor]


class Model(Protocol):
    """A differentiable prediction of one control step, without a simulator; of any batch and floating type.

    Attributes:
        rollout: ``rollout(state, actions)``, as :func:`states_after`, of a model that computes many steps faster than
            one by one; else None.
    """

    action_dim: int
    rollout: Callable[[Tensor, Tensor], Tensor] | None

    def state(self, signals: Signals) -> Tensor:
        """States [B, D] of measured signals [B, ...]; what the signals do not tell is as at an episode's start."""

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """States [B, D] one control step later, under actions [B, A] in [-1, 1] (clipped)."""

    def signals(self, state: Tensor) -> dict[str, Tensor]:
        """The signals [B, ...] that formulas of the system read."""


def states_after(model: Model, state: Tensor, actions: Tensor) -> Tensor:
    """The states [T, B, D] after each of ``actions`` [B, T, A], from ``state`` [B, D]."""
    if model.rollout is not None:
        return model.rollout(state, actions)
    out = []
    for action in actions.unbind(1):
        state = model.step(state, action)
        out.append(state)
    return torch.stack(out)


class OnDevices:
    """A model with one copy of its constants per device; each call uses the copy on the device of its arguments. Copies
    are separate from the task's maps, which the environment moves."""

    def __init__(self, model: Model) -> None:
        self.action_dim, self.copies = model.action_dim, {torch.device("cpu"): copy.deepcopy(model)}
        self.rollout = None if model.rollout is None else self._rollout

    def at(self, place: Tensor) -> Model:
        """The copy on the device of ``place``."""
        if place.device not in self.copies:
            self.copies[place.device] = on_device(self.copies[torch.device("cpu")], place.device)
        return self.copies[place.device]

    def state(self, signals: Signals) -> Tensor:
        """States [B, D] of ``signals``."""
        return self.at(next(iter(signals.values()))).state(signals)

    def step(self, state: Tensor, action: Tensor) -> Tensor:
        """States [B, D] one control step later."""
        return self.at(state).step(state, action)

    def _rollout(self, state: Tensor, actions: Tensor) -> Tensor:
        """The states [T, B, D] after each of ``actions`` [B, T, A], of a model that has them at once."""
        return states_after(self.at(state), state, actions)

    def signals(self, state: Tensor) -> dict[str, Tensor]:
        """The signals [B, ...] of ``state``."""
        return self.at(state).signals(state)


def remember(signals: Signals, memory: Memory) -> Memory:
    """The memory as it is."""
    return memory


def record(memory: Memory, action: Tensor) -> Memory:
    """The memory as it is."""
    return memory


@dataclass(frozen=True)
class System:
    """One robot as formulas see it.

    Args:
        scene: the robot, alone. ``command``: what its policy gives. ``backend``: where it is simulated.
        control_dt: s; ``substeps`` physics steps make one control step.
        stop: what the robot does when a mission is over (:class:`temporeal.sim.task.Task`).
        act: actions in [-1, 1] to commands.
        reads: the signals of ``observe``, which makes [N, ``size``] numbers of about [-1, 1] of them.
        signals: that formulas may name.
        initial: ``initial(draw, start) -> state`` of K worlds: ``start`` are the settings of a task's file.
        anywhere: ``anywhere(draw) -> state`` of K worlds all over the arena, for learning. None: ``initial`` draws
            them; its settings are then ``low`` and ``high``.
        fence: the arena, m, ``low`` and ``high`` corners: drawn, and checked for starts.
        pace: about how fast a distance in a formula can shrink, in its unit per s: mid-episode starts from which there
            is no time left are discarded. Infinite: not known.
        slack: default of how much deeper than asked a subgoal must hold, in its unit. A policy at the edge of a region
            leaves it at the first disturbance.
        reward: defaults of the scheduled view's reward (:class:`temporeal.sim.rewards.scheduled.Reward`) that fit the
            arena's size.
        body: signals of position and attitude of a robot that must first learn to move: the scheduled view then also
            gives the direction to go in the robot's frame.
        lost: whether [N] robots are beyond recovery, such as fallen over. In the scheduled view their episode ends, at
            the cost of a broken invariant. Verdicts are not affected.
        model: None: no prediction is accurate enough.
        memory: what ``act`` remembers, shapes by name; ``follow(signals, memory)`` and ``record(memory, action)`` keep
            it, and an observation map calls them where :class:`temporeal.sim.maps.ObserveMap` says.
    """

    name: str
    scene: Scene
    command: str
    backend: str
    control_dt: float
    substeps: int
    stop: str
    act: ActionMap
    reads: tuple[str, ...]
    observe: Callable[[Signals], Tensor]
    size: int
    signals: Mapping[str, SignalSpec]
    initial: Callable[[Draw, Mapping[str, Any]], dict[str, Tensor]]
    fence: Mapping[str, tuple[float, ...]]
    anywhere: Callable[[Draw], dict[str, Tensor]] | None = None
    pace: float = inf
    slack: float = 0.0
    reward: Mapping[str, float] = field(default_factory=dict)
    body: tuple[str, str] | None = None
    lost: Callable[[Signals], Tensor] | None = None
    model: Model | None = None
    memory: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    follow: Callable[[Signals, Memory], Memory] = remember
    record: Callable[[Memory, Tensor], Memory] = record


def settings(system: str, start: Mapping[str, Any], **shapes: tuple[float, ...]) -> dict[str, tuple[float, ...]]:
    """The settings ``start`` of a task, defaults from ``shapes``; a ValueError where they are not legal.

    Each has as many finite numbers as its default. ``high`` is at least ``low``; of any other pair the second is at
    least the first.
    """
    if unknown := set(start) - set(shapes):
        raise ValueError(f"start of system {system!r}: unknown settings {sorted(unknown)}; legal: {', '.join(shapes)}")
    found = {name: _numbers(system, name, start.get(name, default), len(default)) for name, default in shapes.items()}
    pairs = [(f"{name}[0] and {name}[1]", *((x,) for x in value)) for name, value in found.items()
             if len(value) == 2 and name not in ("low", "high")]
    if {"low", "high"} <= set(found):
        pairs.append(("low and high", found["low"], found["high"]))
    for name, low, high in pairs:
        if any(a > b for a, b in zip(low, high)):
            raise ValueError(f"start of system {system!r}: of {name} the first must not be above the second, got "
                             f"{low} and {high}")
    return found


def _numbers(system: str, name: str, value: Any, count: int) -> tuple[float, ...]:
    given = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if len(given) != count or not all(isinstance(x, (int, float)) and not isinstance(x, bool) and isfinite(x)
                                      for x in given):
        wanted = f"{count} finite numbers" if count > 1 else "a finite number"
        raise ValueError(f"start of system {system!r}: {name} is {wanted}, got {value!r}")
    return tuple(float(x) for x in given)


def inside(system: str, found: Mapping[str, tuple[float, ...]], fence: Mapping[str, tuple[float, ...]]) -> None:
    """A ValueError where the box of starts, ``low`` to ``high``, is not inside the arena ``fence``."""
    for low, x, y, high in zip(fence["low"], found["low"], found["high"], fence["high"]):
        if x < low or y > high:
            raise ValueError(f"start of system {system!r}: low {found['low']} and high {found['high']} must lie within "
                             f"the arena, {fence['low']} to {fence['high']}")


def flat(place: Tensor, height: float = 0.0) -> Tensor:
    """``place`` [K, 2] at ``height``: [K, 3]."""
    return torch.nn.functional.pad(place, (0, 1), value=height)
