"""Demonstrations of learners that correct a base from replay: the base's own episodes, played in their worlds."""

from __future__ import annotations

import torch
from torch import Tensor

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.training.errors import SettingsError
from temporeal.sim.types import VecEnv

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
    def joined(name: str) -> Tensor:
        return torch.cat([getattr(first, name), getattr(second, name)])

    count, steps = len(first.starts) - 1, first.steps
    return Transitions(joined("obs"), joined("action"), joined("reward"), joined("next_obs"), joined("mask"),
                       episode=torch.cat([first.episode, second.episode + count]),
                       starts=torch.cat([first.starts[:-1], second.starts + steps]))
