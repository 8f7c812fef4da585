"""Worlds in which a frozen base acts and a learner corrects it: any learner of single steps, unchanged.

    env = ResidualEnv(make_env(task, num_worlds=64), base, scale=0.3)
    obs = env.reset()                      # [N, O + A]: the observation, and what the base does now
    step = env.step(u)                     # executed: clip(clip(base) + scale * clip(u, -1, 1))

N worlds, O / C observation of actor / critic, A action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from temporeal.policies.training.chunk_rl.rewards import Reward
from temporeal.policies.training.residual.base import Acted, FrozenBase, command_of, conditioned, corrected
from temporeal.sim.types import EnvCapabilities, Obs, Step, TaskEnv


class CorrectedEnv(TaskEnv, Protocol):
    """The part of :class:`temporeal.sim.env.Env` that a corrected base takes."""

    command_override: Tensor | None
    column: dict[str, Tensor]
    num_worlds: int

    def begin_next(self, obs: Obs, ids: Tensor) -> Obs:
        """Begin the next episodes of the worlds ``ids`` [K]: ``obs`` with their first observations."""


class ResidualEnv:
    """Worlds of ``env`` in which ``base`` acts: a :class:`temporeal.sim.types.VecEnv` of the residual's actions.

    ``step.info`` holds, besides what ``env`` gives, what the base did (``base_action`` [N, A]) and what was executed
    (``executed_action`` [N, A]) in the step just made.

    Args:
        scale: of the residual, in units of the action; it may be changed between steps (schedules).
        condition: whether actor and critic see the base's action.
        reward: what is paid instead of the environment's reward; None: that.
        end_at_success: an episode that succeeds is over then, and terminated.

    Attributes:
        acted: what the base does in the observation that was shown last.
    """

    def __init__(
        self, env: CorrectedEnv, base: FrozenBase, scale: float, *, condition: bool = True,
        reward: Reward | None = None, end_at_success: bool = False,
    ) -> None:
        if base.action_dim != env.action_dim:
            raise ValueError(f"{base.title} gives {base.action_dim} numbers of an action, the worlds take "
                             f"{env.action_dim}")
        self.env, self.base, self.scale, self.condition = env, base, scale, condition
        self.reward, self.end_at_success = reward, end_at_success
        self.num_worlds, self.device, self.action_dim = env.num_worlds, env.device, env.action_dim
        more = env.action_dim if condition else 0
        self.obs_dim, self.critic_dim = env.obs_dim + more, env.critic_dim + more
        self.inner_obs_dim = env.obs_dim
        self.acted = Acted(torch.zeros(env.num_worlds, env.action_dim, device=env.device))

    @property
    def capabilities(self) -> EnvCapabilities:
        """Those of the worlds."""
        return self.env.capabilities

    def reset(self) -> Obs:
        """A new episode in every world."""
        obs = self.env.reset()
        self.base.begin(torch.arange(self.num_worlds, device=self.device))
        if self.reward is not None:
            self.reward.start(self.env.true_signals())
        return self.shown(self.look(obs), self.acted.action)

    def look(self, obs: Obs) -> Obs:
        """``obs``, in which the base has made up its mind."""
        self.acted = self.base.act(obs, self.env.true_signals())
        return obs

    def shown(self, obs: Obs, base: Tensor) -> Obs:
        """What the residual and its critic see, the base's action [N, A] behind what the actor sees."""
        if not self.condition:
            return obs
        actor = conditioned(obs.actor, base, True)
        if obs.critic is obs.actor:
            return obs._replace(actor=actor, critic=actor)
        return obs._replace(actor=actor, critic=torch.cat([actor, obs.critic[:, self.inner_obs_dim :]], -1))

    @torch.no_grad()
    def step(self, action: Tensor) -> Step:
        """One control step with the residual's ``action`` [N, A]."""
        before, executed = self.acted.action, corrected(self.acted.action, action, self.scale)
        self.env.command_override = command_of(self.env.task, self.acted, executed, memory_of(self.env.column))
        step = self.env.step(executed)
        if self.end_at_success:
            step = self.ended_by_success(step)
        step = replace(step, info={**step.info, "base_action": before, "executed_action": executed})
        if self.reward is not None:
            step = replace(step, reward=self.reward(step))
        ended = (step.terminated | step.truncated).nonzero()[:, 0]
        final = step.final_obs
        if len(ended):
            after = self.base.after(final, step.info["signals"]) if self.condition else before  # type: ignore[arg-type]
            self.base.begin(ended)
            obs = self.look(step.obs)
            following = self.acted.action.index_copy(0, ended, after[ended])
            return replace(step, obs=self.shown(obs, self.acted.action), final_obs=self.shown(final, following))
        seen = self.shown(self.look(step.obs), self.acted.action)
        return replace(step, obs=seen, final_obs=seen if final is step.obs else self.shown(final, self.acted.action))

    def ended_by_success(self, step: Step) -> Step:
        """``step`` whose successful episodes are over: the next ones begin."""
        won = (step.info["success"] > 0.5) & ~(step.terminated | step.truncated)
        ids = won.nonzero()[:, 0]
        if not len(ids):
            return step
        # what the worlds overwrite where the next episodes begin
        info: dict[str, Any] = {name: value.clone() if isinstance(value, Tensor) else
                                {key: each.clone() for key, each in value.items()}
                                for name, value in step.info.items()}
        final = Obs(*distinct_copies(step.final_obs), step.final_obs.images)
        start = final if step.obs is step.final_obs else step.obs
        return replace(step, obs=self.env.begin_next(start, ids), final_obs=final,
                       terminated=step.terminated | won, info=info)

    def state_dict(self) -> dict[str, object]:
        """All state, for a bit-exact resume."""
        return {"env": self.env.state_dict(), "base": self.base.state_dict(), "scale": self.scale,
                "reward": {} if self.reward is None else {k: v.clone() for k, v in self.reward.memory.items()},
                "acted": tuple(None if each is None else each.clone() for each in self.acted)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned. ValueError: it is of other worlds, or of another base."""
        if missing := {"env", "base", "acted"} - set(state):
            raise ValueError(f"not the state of worlds with a base: {', '.join(sorted(missing))} missing")
        self.env.load_state_dict(state["env"])
        self.base.load_state_dict(state["base"])
        self.scale, self.acted = state["scale"], Acted(*state["acted"])
        if self.reward is not None:
            self.reward.start(self.env.true_signals())
            for name, value in self.reward.memory.items():
                value.copy_(state["reward"][name])


def memory_of(column: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The observation map's memory [N, ...] in the ``column`` of an environment."""
    return {name.removeprefix("memory."): value for name, value in column.items() if name.startswith("memory.")}


def distinct_copies(obs: Obs) -> tuple[Tensor, Tensor]:
    """Copies of what actor and critic see; one, where that is one tensor."""
    actor = obs.actor.clone()
    return actor, actor if obs.critic is obs.actor else obs.critic.clone()
