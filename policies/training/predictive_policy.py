"""Planning networks: the actions of a whole mission, or of its next chunk, from the states at the start and now.

B or N robots, T steps, A action, D state.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recomputed

from temporeal.policies.nets.actor import mlp
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.planning.problem import (
    Signals,
    part_ends,
    rollout,
)
from temporeal.policies.planning.splines import basis

if TYPE_CHECKING:
    from temporeal.policies.algos.npc import NPCConfig
    from temporeal.sim.system import Model
    from temporeal.sim.task import Task


class Policy(nn.Module):
    """States to actions. The input is the state at the start of the mission and, with ``chunk``, the current state and
    time.

    The start serves as memory: with it, earlier actions follow from the time, so that a mission may pass a state twice.
    """

    def __init__(self, state_dim: int, action_dim: int, steps: int, config: NPCConfig) -> None:
        super().__init__()
        self.steps, self.action_dim = steps, action_dim
        self.chunk = min(config.chunk or steps, steps)
        self.first, self.now = Normalizer(state_dim), Normalizer(state_dim)
        self.register_buffer("spline", basis(self.chunk, config.knots, config.spline, torch.zeros(())))
        self.spline: Tensor
        inputs = state_dim if self.chunk == steps else 2 * state_dim + 1
        self.net = mlp(inputs, config.hidden, self.spline.shape[1] * action_dim, config.activation, 0.1)

    def forward(self, first: Tensor, now: Tensor, step: int | Tensor) -> Tensor:
        """Actions [B, chunk, A] from the state ``now`` [B, D] at control step ``step`` (or [B]) of a mission that began
        in ``first``."""
        seen = self.first(first)
        if self.chunk < self.steps:
            phase = torch.zeros_like(seen[:, 0]) + 2.0 * step / self.steps - 1.0
            seen = torch.cat([seen, self.now(now), phase[:, None]], -1)
        knots = torch.tanh(self.net(seen)).unflatten(-1, (self.spline.shape[1], self.action_dim))
        return (self.spline @ knots).clamp(-1.0, 1.0)


def act(
    policy: Policy, model: Model, first: Tensor, state: Tensor, step: int, steps: int, *, segment: int = 0,
    truncate: int = 0,
) -> tuple[Tensor, Tensor]:
    """Actions [B, T, A] and states [T + 1, B, D] of ``policy`` over ``steps`` steps from control step ``step`` on.

    ``first`` [B, D]: state at the start of the mission; ``state`` [B, D]: now. Differentiable; ``segment`` and
    ``truncate`` as in :func:`temporeal.policies.planning.problem.rollout`, rounded up to whole chunks.
    """
    if policy.chunk == policy.steps:
        actions = policy(first, first, 0)[:, step : step + steps]
        return actions, rollout(model, state, actions, segment=segment, truncate=truncate)

    def leg(state: Tensor, begin: int, end: int) -> tuple[Tensor, Tensor]:
        actions, states = [], []
        while begin < end:
            ahead = min(policy.chunk - begin % policy.chunk, end - begin)
            actions.append(policy(first, state, begin)[:, :ahead])
            states.append(rollout(model, state, actions[-1])[1:])
            state, begin = states[-1][-1], begin + ahead
        return torch.cat(actions, 1), torch.cat(states)

    whole = [-(-size // policy.chunk) * policy.chunk for size in (segment, truncate)]
    taken, passed, ends = [], [state[None]], part_ends(steps, *whole)
    for begin, end in zip([0, *ends[:-1]], ends):
        if whole[1] and begin and begin % whole[1] == 0:
            state = state.detach()
        call = partial(recomputed, leg, use_reentrant=False) if segment and torch.is_grad_enabled() else leg
        actions, states = call(state, step + begin, step + end)
        taken.append(actions)
        passed.append(states)
        state = states[-1]
    return torch.cat(taken, 1), torch.cat(passed)


class Seen(nn.Module):
    """Observation map of a planning network on its robot: the input [N, 2 D + 1] of its next call.

    The state at the start of the mission, that at the start of the chunk, and the control step.
    """

    def __init__(self, task: Task, policy: Policy) -> None:
        super().__init__()
        self.system, self.chunk = task.observe.system, policy.chunk
        size = len(policy.first.mean)
        given = self.system.model.signals(torch.zeros(1, size))
        self.signals = tuple(dict.fromkeys((*self.system.reads, *given)))
        self.memory = {"tick": (), "first": (size,), "begin": (size,), **self.system.memory}
        self.obs_dim = 2 * size + 1

    def forward(self, signals: Signals, memory: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Observation [N, 2 D + 1] and the next memory."""
        kept = self.system.follow(signals, {name: memory[name] for name in self.system.memory})
        state, tick = self.system.model.state(signals), memory["tick"]
        first = torch.where((tick == 0)[:, None], state, memory["first"])
        begin = torch.where((_inside(tick, self.chunk) == 0)[:, None], state, memory["begin"])
        after = {**kept, "tick": tick + 1.0, "first": first, "begin": begin}
        return torch.cat([first, begin, tick[:, None]], -1), after

    def record(self, memory: Mapping[str, Tensor], action: Tensor) -> dict[str, Tensor]:
        """The memory with ``action`` stored, if the system remembers any."""
        return {**memory, **self.system.record({name: memory[name] for name in self.system.memory}, action)}


def _inside(tick: Tensor, chunk: int) -> Tensor:
    """Control steps since the chunk began. Not ``remainder``, which compiled maps
    (:mod:`temporeal.sim.compiler.vectorize`) lack."""
    return tick - chunk * torch.floor(tick / chunk)


class Next(nn.Module):
    """Observations of :class:`Seen` to the action [N, A] of this control step."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, obs: Tensor) -> Tensor:
        """The action; after the mission its last one."""
        size, steps, chunk = (obs.shape[-1] - 1) // 2, self.policy.steps, self.policy.chunk
        tick = obs[:, -1].clamp(max=float(steps - 1))
        inside = _inside(tick, chunk)
        ahead = self.policy(obs[:, :size], obs[:, size : 2 * size], tick - inside)
        picked = (torch.arange(chunk, device=obs.device, dtype=obs.dtype) == inside[:, None]).to(obs.dtype)
        return (ahead * picked[..., None]).sum(1)
