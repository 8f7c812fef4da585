"""An episode on its way from the actor to the learner. T steps, O observation, A action, U command."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from temporeal.policies.robot_learning.wire.agreement import UNCORRECTED, Agreement
from temporeal.policies.robot_learning.wire.messages import Message, MessageError, array_of, text_of, whole_of

ID = re.compile(r"\d{20}-[0-9a-f]{12}")
PREFIX = "signal."  # of the names of arrays that are signals
OUTCOMES = {"success": True, "failure": False, "unknown": None}
ROUNDING = 1e-6  # of an action's range
COMMAND_ROUNDING = 1e-4  # of a command's range, by which what was executed may lie outside of it
GREATEST = 1e6  # of observations, rewards and signals, in absolute value: what is beyond was not measured


class OutOfRange(MessageError):
    """An episode of the right shape whose numbers no robot measures or executes: it is not learned from."""


@dataclass(frozen=True)
class Episode:
    """What was done and what came of it.

    Args:
        id: of this episode and no other, sorted by time: delivered twice, it counts once.
        agreement: digest of what it was made under.
        obs: [T + 1, O] as the policy was shown.
        action: [T, A] in [-1, 1], whose command was *executed*. proposed: [T, A], what the policy or the person gave.
        command: [T, U] as executed.
        reward: [T]. intervened: uint8 [T], 1 where a person acted.
        signals: name -> [T + 1, *shape], as measured.
        terminated: nothing is worth anything after it; else time cut it, or it was stopped.
        success: whether it did what was asked; None: nobody judged.
        updates: of the weights that it began with. late: cycles.
    """

    id: str
    agreement: str
    obs: np.ndarray
    action: np.ndarray
    proposed: np.ndarray
    command: np.ndarray
    reward: np.ndarray
    intervened: np.ndarray
    signals: Mapping[str, np.ndarray]
    terminated: bool
    success: bool | None
    updates: int = 0
    late: int = 0

    @property
    def steps(self) -> int:
        """T."""
        return len(self.action)


ARRAYS = ("obs", "action", "proposed", "command", "reward", "intervened")


def to_message(episode: Episode) -> Message:
    """As it is sent and kept."""
    outcome = next(word for word, value in OUTCOMES.items() if value is episode.success)
    return Message("episode", {
        "id": episode.id, "agreement": episode.agreement, "steps": episode.steps, "terminated": episode.terminated,
        "outcome": outcome, "updates": episode.updates, "late": episode.late},
        {**{name: getattr(episode, name) for name in ARRAYS},
         **{f"{PREFIX}{name}": value for name, value in episode.signals.items()}})


def from_message(message: Message, agreed: Agreement, who: str) -> Episode:
    """The episode of a message, each array of the agreed name, type and shape, in the agreed range."""
    found = unranged(message, agreed, who)
    require_range(found, agreed, who)
    return found


def require_range(episode: Episode, agreed: Agreement, who: str) -> None:
    """Refuse numbers that are out of range: an action beyond [-1, 1], a command beyond its limits, and what is beyond
    :data:`GREATEST`, which would poison what is learned of all that came before."""
    who = f"{who}, episode {episode.id}"
    for name in ("action", "proposed"):
        _within(getattr(episode, name), -1.0 - ROUNDING, 1.0 + ROUNDING, f"{who}: {name} lies in [-1, 1]")
    low, high = np.asarray(agreed.interface.action.low), np.asarray(agreed.interface.action.high)
    room = COMMAND_ROUNDING * (np.where(np.isfinite(high - low), high - low, 0.0)) + ROUNDING
    if agreed.correction["scale"] != UNCORRECTED["scale"]:  # what a guard cut of it is told divided by the scale
        room = np.full_like(room, np.inf)
    _within(episode.command, np.maximum(low - room, -GREATEST), np.minimum(high + room, GREATEST),
            f"{who}: command {agreed.interface.action.name} lies in its limits")
    floats = {f"{PREFIX}{name}": value for name, value in episode.signals.items() if value.dtype.kind == "f"}
    for name, value in {"obs": episode.obs, "reward": episode.reward, **floats}.items():
        _within(value, -GREATEST, GREATEST, f"{who}: {name} lies in [{-GREATEST:g}, {GREATEST:g}]")
    if episode.intervened.max() > 1:
        raise OutOfRange(f"{who}: intervened is 0 or 1, got {int(episode.intervened.max())}")


def _within(found: np.ndarray, low: np.ndarray | float, high: np.ndarray | float, rule: str) -> None:
    outside = ~((found >= low) & (found <= high))  # also where a number is none
    if outside.any():
        raise OutOfRange(f"{rule}, got {float(found[outside][0]):g} at {np.argwhere(outside)[0].tolist()}")


def unranged(message: Message, agreed: Agreement, who: str) -> Episode:
    """The episode of a message, each array of the agreed name, type and shape, finite, in whatever range."""
    fields, interface = message.fields, agreed.interface
    identity = text_of(fields, "id", who)
    if not ID.fullmatch(identity):
        raise MessageError(f"{who}: {identity[:60]!r} is no identity of an episode (20 digits, 12 hexadecimal ones)")
    who = f"{who}, episode {identity}"
    if (digest := text_of(fields, "agreement", who)) != agreed.digest():
        raise MessageError(f"{who} was made under another agreement, {digest[:12]}, this is {agreed.digest()[:12]}")
    steps = whole_of(fields, "steps", who, 1, agreed.steps)
    size, action = interface.action.size, interface.task_action
    shapes = {"obs": (steps + 1, agreed.observation), "action": (steps, action), "proposed": (steps, action),
              "command": (steps, size), "reward": (steps,)}
    arrays = {name: array_of(message, name, "float32", shape, who) for name, shape in shapes.items()}
    arrays["intervened"] = array_of(message, "intervened", "uint8", (steps,), who)
    signals = {name: array_of(message, f"{PREFIX}{name}", spec.dtype, (steps + 1, *spec.shape), who)
               for name, spec in interface.signals.items()}
    if unknown := set(message.arrays) - set(ARRAYS) - {f"{PREFIX}{name}" for name in signals}:
        raise MessageError(f"{who}: nobody asked for the arrays {', '.join(sorted(unknown))[:200]}")
    outcome, terminated = text_of(fields, "outcome", who), fields.get("terminated")
    if outcome not in OUTCOMES or not isinstance(terminated, bool):
        raise MessageError(f"{who}: outcome is {outcome[:40]!r}, one of {', '.join(OUTCOMES)}; terminated is "
                           f"{str(terminated)[:40]}, true or false")
    return Episode(identity, digest, **arrays, signals=signals, terminated=terminated, success=OUTCOMES[outcome],
                   updates=whole_of(fields, "updates", who, 0, 1 << 62), late=whole_of(fields, "late", who, 0, 1 << 31))
