"""P(satisfied) of a policy: episodes imagined by learned dynamics, judged by the formula itself.

Q of a reward at an episode's end must resolve what one control step of a hundred changes in the probability of success;
a fitted one does not, and gives every policy about the value of the data. Dynamics are judged by one step, whose effect
is large; where a policy goes wrong, the imagined episode shows it, and the formula needs nobody to learn it.

A network reads the margins of the formula's predicates off an observation. How wrong that makes the robustness of
episodes that it has not seen, ``slack``, moves the threshold at which an imagined episode counts: the interval goes
from the share above ``+slack`` to the share above ``-slack``, wider by the spread of the dynamics' members.

Dynamics can be kind: an object follows a gripper that does not hold it. Actions of violated episodes that a member has
not seen are therefore replayed in it, without feedback: ``kindness`` is the share that it takes for satisfied, and the
lower end of the interval is lower by it.

K members, B episodes, T samples, L predicates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.policies.data.transitions import Transitions
from temporeal.policies.evaluate.ope import model_based
from temporeal.policies.evaluate.ope.estimates import Estimate
from temporeal.policies.evaluate.ope.formula_on_steps import FormulaOnSteps
from temporeal.policies.evaluate.ope.members import Resamples
from temporeal.policies.evaluate.ope.model_based import ModelConfig
from temporeal.policies.nets.actor import mlp

Policy = Callable[[Tensor], Tensor]
REPLAYED = 256  # violated episodes at most
HELD_OUT = 0.1  # of the episodes: they say how wrong the margins are
QUANTILE = 0.9  # of the error in robustness of a held-out episode: the slack


class Margins(nn.Module):
    """Squashed margins [..., L] of observations [..., O]."""

    def __init__(self, obs: Tensor, predicates: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.net = mlp(obs.shape[1], hidden, predicates, "silu", 0.1)
        deviation, mean = torch.std_mean(obs, 0)
        self.register_buffer("mean", mean)
        self.register_buffer("scale", torch.where(deviation > 1e-6, 1.0 / deviation.clamp(min=1e-6), 1.0))

    def forward(self, obs: Tensor) -> Tensor:
        """Margins."""
        out: Tensor = self.net((obs - self.mean) * self.scale)
        return out


@dataclass(frozen=True)
class Imagination:
    """What episodes are imagined with, the slack of their robustness, and the dynamics' kindness."""

    model: model_based.Dynamics
    resamples: Resamples
    margins: Margins
    formula: FormulaOnSteps
    slack: float
    kindness: float

    @torch.no_grad()
    def estimate(self, policy: Policy, data: Transitions, config: ModelConfig, seed: int = 0) -> Estimate:
        """P(satisfied) of ``policy`` from the data's initial states."""
        generator = torch.Generator().manual_seed(seed)
        weights = self.resamples.counts.float()
        chosen = torch.multinomial(weights, min(config.starts, weights.shape[1]), True, generator=generator)
        steps = int(data.starts.diff().max()) if config.horizon is None else config.horizon
        found = imagine(self.model, self.margins, self.formula, data.obs[data.starts[:-1]][chosen], steps,
                        lambda _, obs: policy(obs))
        draws, least, most = ((found > threshold).mean(1) for threshold in (0.0, self.slack, -self.slack))
        value, episodes = float(draws.mean()), len(data.starts) - 1
        return Estimate(value, np.full(episodes, value), draws, float(episodes), independent=True,
                        below=value - float(least.mean()) + self.kindness, above=float(most.mean()) - value)


def fit(data: Transitions, formula: FormulaOnSteps, config: ModelConfig, seed: int = 0) -> Imagination:
    """Fit dynamics and margins; neither reward nor end is learned."""
    steps = replace(data, reward=torch.zeros_like(data.reward), mask=torch.ones_like(data.mask))
    model, resamples = model_based.fit(steps, config, seed)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    episodes = len(data.starts) - 1
    out = torch.zeros(episodes, dtype=torch.bool)
    out[torch.randperm(episodes, generator=generator)[:max(1, int(HELD_OUT * episodes))]] = True
    margins = _fit_margins(data.obs, formula.margins, (~out[data.episode]).nonzero().flatten(), config, generator)
    return Imagination(model, resamples, margins, formula, slack_of(margins, data, formula, out),
                       kindness_of(model, resamples, margins, formula, data))


def imagine(
    model: model_based.Dynamics, margins: Margins, formula: FormulaOnSteps, obs: Tensor, steps: int,
    act: Callable[[int, Tensor], Tensor],
) -> np.ndarray:
    """Robustness [K, B] of episodes from ``obs`` [K, B, O] with the actions ``act(step, obs)``."""
    traces = [margins(obs)]
    for step in range(steps):
        obs = model.advance(obs, act(step, obs))[0]
        traces.append(margins(obs))
    return formula.robustness(torch.stack(traces).flatten(1, 2).numpy()).reshape(obs.shape[:2])


def _fit_margins(
    obs: Tensor, target: Tensor, learnt: Tensor, config: ModelConfig, generator: torch.Generator
) -> Margins:
    """Least absolute error of squashed margins on the steps ``learnt``."""
    margins = Margins(obs, target.shape[1], config.hidden)
    optimizer = torch.optim.Adam(margins.parameters(), config.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.updates, 0.05 * config.learning_rate)
    for _ in range(config.updates):
        chosen = learnt[torch.randint(len(learnt), (config.batch,), generator=generator)]
        loss = (margins(obs[chosen]) - target[chosen]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return margins


@torch.no_grad()
def slack_of(margins: Margins, data: Transitions, formula: FormulaOnSteps, episodes: Tensor) -> float:
    """How far the robustness by ``margins`` is from the true one, in nine of ten of ``episodes`` [E] bool."""
    chosen = episodes & (data.starts.diff() == data.starts.diff().max())  # of equal length
    steps = chosen[data.episode]
    if not bool(steps.any()):
        return 1.0
    found, true = (formula.robustness(_traces(values, int(chosen.sum())))
                   for values in (margins(data.obs[steps]), formula.margins[steps]))
    return float(np.quantile(np.abs(found - true), QUANTILE))


@torch.no_grad()
def kindness_of(
    model: model_based.Dynamics, resamples: Resamples, margins: Margins, formula: FormulaOnSteps, data: Transitions
) -> float:
    """Share of violated episodes that replays of their actions satisfy in members that have not learned from them."""
    lengths, steps = data.starts.diff(), int(data.starts.diff().max())
    last = data.starts[1:] - 1
    violated = ((lengths == steps) & (data.reward[last] <= 0)).nonzero().flatten()
    violated = violated[torch.linspace(0, max(len(violated) - 1, 0), min(len(violated), REPLAYED)).long()]
    unseen = (resamples.counts[:, violated] == 0).numpy()
    if not unseen.any():
        return 0.0
    first = data.starts[violated]
    obs = data.obs[first].expand(len(unseen), -1, -1)
    found = imagine(model, margins, formula, obs, steps,
                    lambda step, now: data.action[first + step].expand(len(unseen), -1, -1))
    return float((found[unseen] > 0).mean())


def _traces(values: Tensor, episodes: int) -> np.ndarray:
    """Steps [N T, L] of episodes of equal length as [T, N, L]."""
    return values.reshape(episodes, -1, values.shape[-1]).transpose(0, 1).numpy()
