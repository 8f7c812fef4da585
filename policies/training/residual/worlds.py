"""Worlds in which a frozen base acts and a learner corrects it: any learner of single steps, unchanged.

    env = ResidualEnv(make_env(task, num_worlds=64), base, scale=0.3)
    obs = env.reset()                      # [N, O + A]: the observation, and what the base does now
    step = env.step(u)                     # executed: clip(clip(base) + scale * clip(u, -1, 1))

N worlds, O / C observation of actor / critic, A action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from temporeal.policies.training.chunk_rl.rewards import Reward
from temporeal.policies.training.residual.base import FrozenBase, conditioned
from temporeal.policies.training.residual.correction import CorrectedEnv, Correction
from temporeal.sim.types import EnvCapabilities, Obs, Step


class ResidualEnv:
    """Worlds of ``env`` in which ``base`` acts: a :class:`temporeal.sim.types.VecEnv` of the residual's actions.

    ``step.info`` holds, besides what ``env`` gives, what the base did (``base_action`` [N, A]) and what was executed
    (``executed_action`` [N, A]) in the step just made.

    Args:
        scale: of the residual, in units of the action; it may be changed between steps (schedules).
        condition: whether actor and critic see the base's action.
        reward: what is paid instead of the environment's reward; None: that.
        end_at_success: an episode that succeeds is over then, and terminated.
        pictures: whether the residual sees those of the worlds.

    Attributes:
        now: the base, and what it does in the observation that was shown last (``now.action`` [N, A]).
    """

    def __init__(
        self, env: CorrectedEnv, base: FrozenBase, scale: float, *, condition: bool = True,
        reward: Reward | None = None, end_at_success: bool = False, pictures: bool = True,
    ) -> None:
        self.env, self.scale, self.condition, self.now = env, scale, condition, Correction(env, base)
        self.reward, self.end_at_success, self.pictures = reward, end_at_success, pictures
        self.num_worlds, self.device, self.action_dim = env.num_worlds, env.device, env.action_dim
        more = env.action_dim if condition else 0
        self.obs_dim, self.critic_dim = env.obs_dim + more, env.critic_dim + more
        self.inner_obs_dim = env.obs_dim

    @property
    def capabilities(self) -> EnvCapabilities:
        """Those of the worlds; and a residual begins as the base."""
        return replace(self.env.capabilities, zero_start=True)

    def reset(self) -> Obs:
        """A new episode in every world."""
        obs = self.env.reset()
        self.now.begin(torch.arange(self.num_worlds, device=self.device))
        if self.reward is not None:
            self.reward.start(self.env.true_signals())
        self.now.look(obs, self.env.true_signals())
        return self.shown(obs, self.now.action)

    def shown(self, obs: Obs, base: Tensor) -> Obs:
        """What the residual and its critic see, the base's action [N, A] behind what the actor sees."""
        if not self.pictures:
            obs = obs._replace(images={})
        if not self.condition:
            return obs
        actor = conditioned(obs.actor, base, True)
        if obs.critic is obs.actor:
            return obs._replace(actor=actor, critic=actor)
        return obs._replace(actor=actor, critic=torch.cat([actor, obs.critic[:, self.inner_obs_dim :]], -1))

    @torch.no_grad()
    def step(self, action: Tensor) -> Step:
        """One control step with the residual's ``action`` [N, A]."""
        before, executed = self.now.action, self.now.executed(action, self.scale)
        step = self.env.step(executed)
        if self.end_at_success:
            step = self.ended_by_success(step)
        step = replace(step, info={**step.info, "base_action": before, "executed_action": executed})
        if self.reward is not None:
            step = replace(step, reward=self.reward(step))
        final, ended = step.final_obs, (step.terminated | step.truncated).nonzero()[:, 0]
        if not len(ended):
            self.now.look(step.obs, self.env.true_signals())
            seen = self.shown(step.obs, self.now.action)
            return replace(step, obs=seen, final_obs=seen)
        after = self.now.base.after(final, step.info["signals"])  # type: ignore[arg-type]
        following = before if after is None else after
        self.now.begin(ended)
        self.now.look(step.obs, self.env.true_signals())
        following = self.now.action.index_copy(0, ended, following[ended])
        return replace(step, obs=self.shown(step.obs, self.now.action), final_obs=self.shown(final, following))

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
        paid = {} if self.reward is None else {name: value.clone() for name, value in self.reward.memory.items()}
        return {"env": self.env.state_dict(), "now": self.now.state_dict(), "scale": self.scale, "reward": paid}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned. ValueError: it is of other worlds, or of another base."""
        if missing := {"env", "now", "scale", "reward"} - set(state):
            raise ValueError(f"not the state of worlds with a base: {', '.join(sorted(missing))} missing")
        self.env.load_state_dict(state["env"])
        self.now.load_state_dict(state["now"])
        self.scale = state["scale"]
        if self.reward is not None:
            self.reward.start(self.env.true_signals())
            for name, value in self.reward.memory.items():
                value.copy_(state["reward"][name])


def distinct_copies(obs: Obs) -> tuple[Tensor, Tensor]:
    """Copies of what actor and critic see; one, where that is one tensor."""
    actor = obs.actor.clone()
    return actor, actor if obs.critic is obs.actor else obs.critic.clone()
