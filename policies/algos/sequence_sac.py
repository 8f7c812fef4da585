"""Soft actor-critic whose policy decides on a sequence of actions: control at low decision rates.

Patel and Siegelmann, Overcoming Slow Decision Frequencies in Continuous Control: Model-Based Sequence Reinforcement
Learning for Model-Free Control (arXiv 2410.08979): the policy gives J actions for what it sees now; a learned model
fills in the states between them, where critics that know single steps rate the actions. The model is for learning only.

    Q_e(s, a) <- r + gamma (min over a subset of Q'_e (s', a'_1) - alpha log pi(a'_1 | s'))     a' ~ pi(s'), its first
    m(s, a)   <- s'
    pi        <- max over J of E[Q(s_j, a_j) - alpha log pi(a_j | s)],  s_1 = s, s_j+1 = m(s_j, a_j)

Where it is evaluated (``algo.evaluate_steps``) it is so at J rates: looking at each step, each second, ... each J-th;
the mean is the frequency-averaged score.

The abstract and an outline of the method were read, no code. That the derivative stops at the model's states, that the
model's target is a difference of normalized observations, and an actor without a recurrent unit are choices made here.

B rows, O observation, A action, J actions in a sequence, N worlds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.algos.sac import SACConfig, Temperature, by_outputs, cool, where_it_acts
from temporeal.policies.data.transitions import Transitions
from temporeal.policies.nets.bounded_actor import squashed
from temporeal.policies.nets.ensembles import Ensemble, Scratch
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.nets.sequence_actor import Remembering, SequenceActor
from temporeal.policies.training.errors import SettingsError, require
from temporeal.policies.training.off_policy import checkpoints, learner
from temporeal.policies.training.off_policy.critics import Critics, Sizes
from temporeal.policies.training.off_policy.drawing import Batch
from temporeal.policies.training.off_policy.learner import Evaluate, Result
from temporeal.policies.training.off_policy.sight import Sight
from temporeal.policies.training.offline.flat_parameters import Adam
from temporeal.sim.types import VecEnv


@dataclass(frozen=True)
class SequenceSACConfig(SACConfig):
    """Settings. ``configs/algo/sequence_sac.yaml`` has the same names.

    Args:
        sequence: J, actions that are decided on at once.
        decide_every: control steps between decisions where the policy explores and is deployed.
        model_rate: of Adam, for the model.
    """

    privileged: bool = False
    sequence: int = 8
    decide_every: int = 4
    model_rate: float = 3e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, sequence="[1, inf)", decide_every="[1, inf)", model_rate="(0, inf)")
        if self.decide_every > self.sequence:
            raise SettingsError(f"algo.decide_every={self.decide_every}: a decision is on algo.sequence="
                                f"{self.sequence} actions, and no more can be played before the next")
        if self.privileged:
            raise SettingsError("algo.privileged=true: the model fills in what critics see, and that is what the "
                                "policy sees; algo.privileged=false")
        if self.n_step != 1:
            raise SettingsError(f"algo.n_step={self.n_step}: the model learns single steps; algo.n_step=1")
        for name, plain in (("imitation", 0.0), ("ramp_steps", 0), ("base_episodes", 0)):
            if getattr(self, name) != plain:
                raise SettingsError(f"algo.{name}={getattr(self, name)} is not of sequences; algo.{name}={plain}, or "
                                    "algo=sac")


class SequenceSAC:
    """An :class:`temporeal.policies.training.off_policy.learner.Algorithm`."""

    figures = ("critic_loss", "value", "policy_value", "entropy", "temperature", "model_loss")

    def __init__(self, sizes: Sizes, config: SequenceSACConfig, generator: torch.Generator) -> None:
        self.config, self.generator, self.sizes, self.updates = config, generator, sizes, 0
        self.critics, self.actor = Critics(sizes, config, generator), make_actor(sizes, config)
        self.temperature = Temperature(config.temperature)
        self.model = Ensemble(1, sizes.obs_dim + sizes.action_dim, config.hidden, sizes.obs_dim, last_gain=0.01,
                              precision=config.precision)
        self.policy_adam, self.model_adam = (
            Adam(self.actor, rate=config.policy_rate), Adam(self.model, rate=config.model_rate))
        self.temperature_adam = Adam(self.temperature, rate=config.temperature_rate)
        self.scratch, self.model_scratch, self.error = Scratch(), Scratch(), torch.zeros(0)
        self.playing, self.sight, self.reach = Playing(), None, torch.ones(())
        self.modules: Mapping[str, nn.Module] = {
            "quality": self.critics.quality, "target": self.critics.target, "actor": self.actor, "model": self.model,
            "temperature": self.temperature, "playing": self.playing}
        self.optimizers = {"critics": self.critics.adam, "policy": self.policy_adam, "model": self.model_adam,
                           "temperature": self.temperature_adam}

    sight: Sight | None

    def explore(self, obs: Tensor) -> Tensor:
        """The action [N, A] that is due, of a sequence drawn every ``decide_every`` steps."""
        outputs = self.actor.net(obs)[0].unflatten(-1, (self.config.sequence, -1))
        drawn = squashed(outputs, self.noise(len(obs)))[0].flatten(1)
        action, self.playing.hidden = self.actor.played(drawn, self.playing.of(len(obs), self.actor.hidden_dim))
        return action

    def ended(self, worlds: Tensor) -> None:
        """The episodes of ``worlds`` [N] bool are over: the next ones begin with a decision."""
        if len(self.playing.hidden):
            self.playing.hidden = torch.where(worlds[:, None], 0.0, self.playing.hidden)

    def noise(self, rows: int) -> Tensor:
        """Standard normal [rows, J, A]."""
        return torch.randn(rows, self.config.sequence, self.sizes.action_dim, generator=self.generator)

    @torch.no_grad()
    def update(self, batch: Batch) -> Tensor:
        """One step of the critics and of the model and, each so many times, of the policy and the temperature."""
        wanted = self.wanted(batch)
        value = self.critics.fit(batch.pair, wanted, batch.weight)
        self.error = (value - wanted).abs().mean(0)
        self.updates += 1
        found, model_loss = [(value - wanted).square().mean(), value.mean()], self.follow(batch)
        every = self.config.policy_every
        if self.updates % every or self.updates <= self.config.critic_first:
            return torch.stack([*found, *found[1].new_zeros(3), model_loss])
        improved = self.improve(batch)
        return torch.stack([*found, *(figure * every for figure in improved), model_loss])  # means over all updates

    def wanted(self, batch: Batch) -> Tensor:
        """What the critics are to say [B]; the policy goes on with the first action of a sequence."""
        outputs = self.actor.net.ahead(batch.next_obs, self.scratch)[0][:, : 2 * self.sizes.action_dim]
        action, log_prob = squashed(outputs, self.noise(len(outputs))[:, 0])
        value = self.critics.least(torch.cat([batch.next_critic, action], -1))
        if self.config.backup_entropy:
            value -= self.temperature() * log_prob
        return self.critics.bounded(batch.reward + batch.discount * value)

    def follow(self, batch: Batch) -> Tensor:
        """One step of the model towards what came. Returns the mean square of what it was off, per number."""
        change, found = batch.next_obs - batch.obs, list[Tensor]()

        def slope(outputs: Tensor) -> Tensor:
            off = outputs - change
            found.append(off.square().mean())
            return off.mul_(2.0 / off.numel())

        self.model.there_and_back(batch.pair, slope, self.model_scratch)
        self.model_adam.step()
        return found[0]

    def improve(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """One step of the policy and of the temperature. Returns what the policy climbed, its entropy and the
        temperature, means over the sequence."""
        temperature, noise, found = self.temperature(), self.noise(len(batch.obs)), list[Tensor]()

        def slope(outputs: Tensor) -> Tensor:
            each = outputs.unflatten(-1, (self.config.sequence, -1))
            action, log_prob = squashed(each, noise)
            pairs = torch.cat([self.between(batch.obs, action), action], -1).flatten(0, 1)
            value, by_action = self.critics.slope(pairs)
            found.extend([value.mean(), where_it_acts(-log_prob.mean(1), batch)])
            rows = [part.flatten(0, 1) for part in (each, noise, action)]
            of_rows = by_outputs(rows[0], rows[1], rows[2], by_action, temperature)
            return of_rows.reshape(len(each), -1)

        self.actor.net.there_and_back(batch.obs, slope, self.scratch)
        self.policy_adam.step()
        value, entropy = found
        cool(self.temperature_adam, self.config, entropy, self.sizes.action_dim)
        return value, entropy, temperature

    def between(self, obs: Tensor, actions: Tensor) -> Tensor:
        """The states [B, J, O] in which the ``actions`` [B, J, A] would be played, by the model."""
        states = [obs]
        for action in actions.unbind(1)[:-1]:
            pair = torch.cat([states[-1], action], -1)
            states.append(states[-1] + self.model.ahead(pair, self.model_scratch)[0])
        return torch.stack(states, 1)


class Playing(nn.Module):
    """What is being played while exploring: the actor's hidden state [N, H]."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("hidden", torch.zeros(0))
        self.hidden: Tensor

    def of(self, worlds: int, size: int) -> Tensor:
        """That of so many worlds; at first that of a decision."""
        return self.hidden if len(self.hidden) else torch.zeros(worlds, size)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        self.hidden = torch.empty_like(state_dict[f"{prefix}hidden"])  # as many worlds as were saved
        super()._load_from_state_dict(state_dict, prefix, *rest)


def make_actor(sizes: Sizes, config: SequenceSACConfig) -> SequenceActor:
    """The policy's network."""
    return SequenceActor(sizes.obs_dim, sizes.action_dim, config.hidden, config.sequence, config.decide_every,
                         config.precision)


def at_all_rates(evaluate: Evaluate, config: SequenceSACConfig) -> Evaluate:
    """``evaluate`` of the policy where it looks each step, each second, ... each J-th: figures at the rate that is
    deployed, ``success_every_K`` of the others, and the mean of all of them, the frequency-averaged score."""

    def judge(actor: nn.Module, normalizer: nn.Module, episodes: int) -> Mapping[str, float]:
        assert isinstance(actor, SequenceActor)
        found = {every: evaluate(Remembering(actor, every), normalizer, episodes)
                 for every in range(1, config.sequence + 1)}
        scores = {every: float(figures["success"]) for every, figures in found.items()}
        return {**found[config.decide_every], **{f"success_every_{every}": score for every, score in scores.items()},
                "frequency_averaged": sum(scores.values()) / len(scores)}

    return judge


def train(
    env: VecEnv, config: SequenceSACConfig, *, out: Path, seed: int = 0, demonstrations: Transitions | None = None,
    evaluate: Evaluate | None = None, **watched: Any,
) -> Result:
    """Learn in the worlds of ``env``; for the rest see :func:`temporeal.policies.training.off_policy.learner.learn`."""
    return learner.learn(env, config, SequenceSAC, out=out, seed=seed, demonstrations=demonstrations,
                         evaluate=at_all_rates(evaluate, config) if evaluate else None, **watched)


def load_policy(path: Path, device: str = "cpu") -> tuple[nn.Module, Normalizer, SequenceSACConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs), hidden)``."""
    return checkpoints.load_policy(path, SequenceSACConfig, make_actor, device)
