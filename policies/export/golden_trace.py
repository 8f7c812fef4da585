"""Golden traces: what one world measured and was commanded in one episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.training.acting import CARRIED, Act

Row = dict[str, np.ndarray]
"""Arrays of one control step by name."""


def record_golden(env: Any, policy: Act, steps: int | None = None, pictures: Sequence[str] = ()) -> Row:
    """Record a golden trace for `temporeal.policies.export.writer.export` in one episode.

    ``env`` has one world, not compiled, and is used for nothing else. Each array is [T, *shape], from the first step of
    an episode to its end (or ``steps``): ``signals.<name>``, the *measured* signals (noise and latency included) that
    entered the environment's observation map; ``memory.<name>``, the memory of that map (and of a recurrent network)
    at that step; ``commands.<name>``, what the action map sent to the simulator. ``pictures``: names of those that
    the policy reads, further signals.
    """
    if env.num_worlds != 1:
        raise ValueError(f"a golden trace is recorded with one world, the environment has {env.num_worlds}")
    seen: list[Row] = []
    observe = env.functions.observe
    env.functions.observe = _Spy(observe, lambda signals, memory: seen.append({
        **{f"signals.{k}": world0(signals[k]) for k in observe.signals},
        **{f"memory.{k}": world0(memory[k]) for k in observe.memory}}))
    try:
        sent, kept = _flown(env, policy, steps or env.task.steps, pictures)
    finally:
        env.functions.observe = observe
    if len(seen) < len(sent):
        raise ValueError("the environment's maps are compiled, so their inputs cannot be recorded: make it with "
                         "compiled=False")
    return {**_stacked(seen[: len(sent)]), **_stacked(kept), f"commands.{env.task.command}": np.stack(sent)}


@torch.no_grad()
def _flown(env: Any, policy: Act, steps: int, pictures: Sequence[str]) -> tuple[list[np.ndarray], list[Row]]:
    """Commands of each step of an episode, and what a policy saw and a recurrent one carried before it."""
    sent: list[np.ndarray] = []
    kept: list[Row] = []
    carried = getattr(policy, CARRIED, None)
    obs = env.reset()
    for _ in range(steps):
        held = carried(1) if carried is not None else {}
        kept.append({**{f"memory.{k}": world0(v) for k, v in held.items()},
                     **{f"signals.{k}": world0(env.images[k]) for k in pictures}})
        step = env.step(policy(obs.actor))
        sent.append(world0(env.command))
        obs = step.obs
        if bool((step.terminated | step.truncated)[0]):
            break
    return sent, kept


def _stacked(rows: list[Row]) -> Row:
    """The rows of all steps as [T, *shape] by name."""
    return {name: np.stack([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def world0(value: Tensor) -> np.ndarray:
    """A copy of the first world's part of ``value`` [N, *shape]: the simulator may reuse the memory."""
    array: np.ndarray = value[0].detach().cpu().numpy().copy()
    return array


class _Spy:
    """An observation map that reports its arguments and is otherwise the one it wraps."""

    def __init__(self, observe: Any, report: Callable[[Any, Any], None]) -> None:
        self._observe, self._report = observe, report

    def __call__(self, signals: Any, memory: Any) -> Any:
        self._report(signals, memory)
        return self._observe(signals, memory)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observe, name)
