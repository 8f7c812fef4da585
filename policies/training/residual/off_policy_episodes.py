"""Demonstrations of learners that correct a base from replay: the base's own episodes, and recorded ones relabelled.

N worlds, M steps, E episodes, A action, O / C observation of actor / critics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.residual.base import FrozenBase
from temporeal.sim.types import Obs, VecEnv

Rows = list[tuple[Tensor, Tensor, float, Tensor, float]]
"""Steps: what was seen, the action, the reward, what was seen next, and the mask."""


@torch.no_grad()
def own_episodes(
    env: VecEnv, episodes: int, failures: float, privileged: bool, generator: torch.Generator
) -> tuple[Transitions, int]:
    """Episodes of the base in the worlds of a residual, as many of each world: those of the first to end would be the
    short ones. And the control steps that they took.

    Args:
        failures: share of those without success that is kept.
        privileged: steps show what the critics see.
    """
    if not env.capabilities.zero_start:
        raise SettingsError(f"algo.base_episodes={episodes} are of the base that a residual corrects, and these worlds "
                            "have none: base=..., or algo.base_episodes=0")
    each = -(-episodes // env.num_worlds)
    rows: list[list[Rows]] = [[[]] for _ in range(env.num_worlds)]
    kept, successes, taken = list[Rows](), list[float](), 0
    obs, still = env.reset(), torch.zeros(env.num_worlds, env.action_dim)
    while any(len(own) <= each for own in rows):
        seen = (obs.critic if privileged else obs.actor).clone()  # the worlds may overwrite it
        step = env.step(still)
        taken += env.num_worlds
        after = (step.final_obs.critic if privileged else step.final_obs.actor).clone()
        for world, own in enumerate(rows):
            if len(own) > each:
                continue
            own[-1].append((seen[world], still[world], float(step.reward[world]), after[world],
                            1.0 - float(step.terminated[world])))
            if step.terminated[world] or step.truncated[world]:
                won = float(step.info["success"][world])
                if won or float(torch.rand((), generator=generator)) < failures:
                    kept.append(own[-1])
                    successes.append(won)
                own.append([])
        obs = step.obs
    if not kept:
        raise SettingsError(f"none of {each * env.num_worlds} episodes of the base succeeds, and "
                            f"algo.base_failures={failures:g} keeps none of those that fail")
    return gathered(kept, successes), taken


def gathered(episodes: list[Rows], successes: list[float]) -> Transitions:
    """Steps of ``episodes`` as tensors."""
    obs, action, reward, after, mask = zip(*(row for own in episodes for row in own))
    lengths = torch.tensor([len(own) for own in episodes])
    starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    return Transitions(torch.stack(obs), torch.stack(action), torch.tensor(reward), torch.stack(after),
                       torch.tensor(mask), torch.arange(len(lengths)).repeat_interleave(lengths), starts,
                       success=torch.tensor(successes))


def both(first: Transitions, second: Transitions) -> Transitions:
    """The episodes of one, then those of the other; which ones are drawn more often is no longer said."""
    together = {name: torch.cat([getattr(first, name), getattr(second, name)])
                for name in ("obs", "action", "reward", "next_obs", "mask")}
    count, steps = len(first.starts) - 1, first.steps
    return Transitions(**together, episode=torch.cat([first.episode, second.episode + count]),
                       starts=torch.cat([first.starts[:-1], second.starts + steps]))


@torch.no_grad()
def relabelled(
    data: Transitions, make: Callable[[int], FrozenBase], scale: float, obs_dim: int,
    signals: Mapping[str, Tensor] | None = None, condition: bool = True,
) -> Transitions:
    """Recorded steps as those of a residual: its action is what has to be added to the base's for the recorded one, and
    what is seen ends with the base's action (before what critics alone see).

    The base of ``make(E)`` acts in all episodes at once, and begins where each of them does: one that goes on from the
    episode before gives other actions than in deployment (residual-offpolicy-rl#5).

    Args:
        scale: of the residual; a recorded action that is further from the base's is cut.
        obs_dim: O, numbers that the actor sees, with which the observations begin.
        signals: [M, ...] true ones, where the base reads them.
    """
    lengths = data.starts.diff()
    base = make(len(lengths))
    base.begin(torch.arange(len(lengths)))
    acts = torch.zeros_like(data.action)
    for t in range(int(lengths.max())):
        at = data.starts[:-1] + lengths.clamp(max=t + 1) - 1  # episodes that are over stay at their last step
        told = {name: value[at] for name, value in (signals or {}).items()}
        action = base.act(Obs(data.obs[at, :obs_dim], data.obs[at]), told).action
        if action is None:
            raise SettingsError(f"{base.title} gives commands, and of recorded steps it is unknown which action each "
                                "stands for: leave dataset=... out, or take a base that gives actions")
        acts[at[t < lengths]] = action[t < lengths].clamp(-1.0, 1.0)
    following = torch.cat([acts[1:], acts[-1:]])
    ends = data.starts[1:] - 1
    following[ends] = acts[ends]  # none follows there: values are asked for where time has cut an episode, and no more
    u = ((data.action.clamp(-1.0, 1.0) - acts) / scale).clamp(-1.0, 1.0)
    seen, after = ((with_base(data.obs, acts, obs_dim), with_base(data.next_obs, following, obs_dim)) if condition
                   else (data.obs, data.next_obs))
    return Transitions(seen, u, data.reward, after, data.mask, data.episode, data.starts, data.weight, data.success)


def with_base(obs: Tensor, base: Tensor, obs_dim: int) -> Tensor:
    """Observations [M, C] with the base's action [M, A] behind the actor's part, [M, C + A]."""
    return torch.cat([obs[:, :obs_dim], base, obs[:, obs_dim:]], -1)
