"""Samplers against an exact Gaussian flow, and their probabilities against torch.distributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from tests.policies.toy_demonstrations import forks, pictured
from torch import Tensor

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.imitation import act, flow
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla import samplers
from temporeal.policies.vla.protocol import as_flow
from temporeal.policies.vla.samplers import LearnedNoise, Normal, flow_noise, flow_sde

MEAN, STD, DRAWS = 0.7, 0.3, 20_000


class ExactFlow:
    """The exact velocity E[n - a | x] of chunks of one number a ~ N(.7, .3)."""

    def __init__(self, steps: int, rows: int = 1) -> None:
        self.steps, self.horizon, self.mask = steps, rows, torch.ones(1, dtype=torch.bool)
        self.interface = Interface("point", {}, ActionSpec("velocity", (-2.0,), (2.0,)), 10.0)

    def velocity(self, context: Tensor, x: Tensor, t: Tensor) -> Tensor:
        t, var = t[:, None, None], STD**2
        slope = (t - (1 - t) * var) / ((1 - t) ** 2 * var + t**2)
        return -MEAN + slope * (x - (1 - t) * MEAN)


def spread(steps: int, kind: str, a: float = 0.5) -> tuple[float, float]:
    policy: Any = ExactFlow(steps)
    generator, context = torch.Generator().manual_seed(0), torch.zeros(DRAWS, 1)
    if kind == "ode":
        x = samplers.ode(policy, context, torch.randn(DRAWS, 1, 1, generator=generator))
    elif kind == "one":
        x = samplers.decide(policy, context, flow_sde(a), 1, generator).chunk
    else:
        x = samplers.sample(policy, context, flow_sde(a), 1, generator).chunk
    return float(x.mean()), float(x.std())


@pytest.mark.parametrize(("steps", "kind", "a", "std"), [
    (100, "ode", 0.0, 0.294), (100, "all", 0.5, 0.298), (100, "all", 1.0, 0.299), (100, "one", 0.5, 0.295),
    (4, "ode", 0.0, 0.177), (4, "one", 0.5, 0.201), (4, "all", 0.5, 0.238)])
def test_flow_sde_keeps_the_marginals_of_an_exact_gaussian_flow(steps: int, kind: str, a: float, std: float) -> None:
    # .3 is the data's; few steps shrink it, by how much was measured apart from this code (K = 4)
    mean, found = spread(steps, kind, a)
    assert mean == pytest.approx(MEAN, abs=4 * STD / DRAWS**0.5)
    assert found == pytest.approx(std, abs=0.006)


def policy_of(**settings: Any) -> Any:
    """A flow with random weights in the scales of a small dataset."""
    torch.manual_seed(1)
    config = flow.FlowConfig(horizon=8, execute=5, context=16, hidden=(32,), denoise_steps=4, **settings)
    data = forks(20)
    cloning, _ = learner.begin(data, config, flow.Flow, 0, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for value in cloning.actor.parameters():
            value.add_(0.2 * torch.randn(value.shape))
    return as_flow(cloning.actor)


def shown(count: int) -> Mapping[str, Tensor]:
    return {"place_w": torch.rand(count, 2)}


@pytest.mark.parametrize("kind", ["sde", "noise"])
@torch.no_grad()
def test_a_decision_has_the_probability_that_torch_says_and_ratio_one(kind: str) -> None:
    policy = policy_of()
    context = policy.encode(shown(64)).detach()
    step = flow_sde(0.7) if kind == "sde" else flow_noise(LearnedNoise(16, (8, 1)))
    decision = samplers.decide(policy, context, step, 5, torch.Generator().manual_seed(2))
    again = samplers.decision_log_prob(policy, context, step, decision, 5)
    assert float((again - decision.log_prob).exp().sub(1.0).abs().max()) < 1e-5
    for row in range(8):
        t, to = 1.0 - decision.step[row] / 4, 1.0 - (decision.step[row] + 1) / 4
        v = policy.velocity(context[row : row + 1], decision.x[row : row + 1], t[None])[0]
        x0, x1 = decision.x[row] - t * v, decision.x[row] + (1 - t) * v
        level = 0.7 * (t / (1 - (to if t == 1 else t))) ** 0.5
        mean, std = x0 * (1 - to) + x1 * (to - level**2 * 0.25 / (2 * t)), (0.25**0.5 * level).expand(8, 1)
        if kind == "noise":
            mean = decision.x[row] - 0.25 * v
            std = step(context[row : row + 1], samplers.Ends(x0[None], x1[None]), t[None], to[None]).std[0]
            assert bool(((std > 0.08) & (std < 0.16)).all())
        wanted = torch.distributions.Normal(mean, std).log_prob(decision.next[row])[:5].sum()
        assert float(wanted) == pytest.approx(float(decision.log_prob[row]), abs=1e-4)


@torch.no_grad()
def test_correlated_noise_keeps_the_marginals_rows_stay_independent() -> None:
    policy: Any = ExactFlow(100, rows=3)
    step = flow_sde(1.0, samplers.correlated(3, 0.9))
    x = samplers.sample(policy, torch.zeros(DRAWS, 1), step, 3, torch.Generator().manual_seed(0)).chunk[..., 0]
    assert x.std(0).numpy() == pytest.approx(0.299, abs=0.006)
    apart = torch.corrcoef(x.T) - torch.eye(3)
    assert float(apart.abs().max()) < 4 / DRAWS**0.5  # the noise is correlated by .9; what it makes of x must not be


@torch.no_grad()
def test_correlated_noise_has_the_density_that_torch_says() -> None:
    policy, r = policy_of(), 0.8
    context, step = policy.encode(shown(64)).detach(), flow_sde(0.7, samplers.correlated(8, r))
    decision = samplers.decide(policy, context, step, 5, torch.Generator().manual_seed(2))
    again = samplers.decision_log_prob(policy, context, step, decision, 5)
    assert float((again - decision.log_prob).exp().sub(1.0).abs().max()) < 1e-5
    index = torch.arange(8)
    full = r ** (index[:, None] - index).abs().float()
    for row in range(8):
        t, to = 1.0 - decision.step[row] / 4, 1.0 - (decision.step[row] + 1) / 4
        v = policy.velocity(context[row : row + 1], decision.x[row : row + 1], t[None])[0]
        x0, x1 = decision.x[row] - t * v, decision.x[row] + (1 - t) * v
        level = 0.7 * (t / (1 - (to if t == 1 else t))) ** 0.5
        mean = x0 * (1 - to) + x1 * to - level**2 * 0.25 / (2 * t) * full @ x1
        executed = torch.distributions.MultivariateNormal(mean[:5, 0], 0.25 * level**2 * full[:5, :5])
        assert float(executed.log_prob(decision.next[row, :5, 0])) == pytest.approx(
            float(decision.log_prob[row]), abs=1e-3)


def test_errors_of_rows_are_enlarged_by_the_sharpness() -> None:
    policy, errors = policy_of(), torch.randn(4000, 64, 1, generator=torch.Generator().manual_seed(0))
    for r in (0.0, 0.9):
        whitened = torch.linalg.solve_triangular(samplers.correlated(64, r), errors, upper=False) / 0.02
        assert float(whitened.std()) == pytest.approx(samplers.sharpness(0.02, r), rel=0.03)
    for last in (0, 1):
        x, least = torch.zeros(1, 8, 1), 1.0
        for k, (t, to) in enumerate(samplers.levels(1, policy.steps)):
            normal = flow_sde(0.3)(x, samplers.Ends(x, x), t, to)
            least = min(least, float(normal.std.max())) if k >= policy.steps - last or not last else least
        assert samplers.least_std(policy.steps, 0.3, last) == pytest.approx(least, rel=1e-6)


def test_what_is_not_executed_has_no_share_in_the_probability() -> None:
    value, normal = torch.randn(3, 4, 2, requires_grad=True), Normal(torch.zeros(3, 4, 2), torch.ones(3, 4, 2))
    samplers.log_prob(value, normal, torch.tensor([True, False]), 3).sum().backward()
    assert value.grad is not None
    assert torch.equal(value.grad[:, :3, 0], -value.detach()[:, :3, 0])
    assert not value.grad[:, 3].any() and not value.grad[:, :, 1].any()


def test_a_chains_gradient_is_that_of_finite_differences() -> None:
    policy, count = policy_of(), 3
    context, step = policy.encode(shown(count)).detach(), flow_noise(LearnedNoise(16, (8, 1)))
    chain = samplers.sample(policy, context, step, 5, torch.Generator().manual_seed(3))
    found = samplers.chain_log_prob(policy, context, step, chain.xs, 5)
    assert torch.allclose(found, chain.log_prob, atol=1e-4)
    weight = policy.flow.net.last.bias
    (slope,) = torch.autograd.grad(found.sum(), weight)
    with torch.no_grad():
        both = []
        for way in (1e-3, -1e-3):
            weight[0] += way
            both.append(samplers.chain_log_prob(policy, context, step, chain.xs, 5).sum())
            weight[0] -= way
    assert float((both[0] - both[1]) / 2e-3) == pytest.approx(float(slope[0]), rel=1e-2)


def test_the_deployed_chunk_is_the_ode_from_the_policys_own_noise() -> None:
    policy, signals = policy_of(), shown(6)
    with torch.no_grad():
        context = policy.encode(signals)
        x = samplers.ode(policy, context, policy.start(context))
        assert torch.allclose(policy.commands(x, signals), policy.policy.rows(signals), atol=1e-5)
        raw = policy.scale.back(0.5 * x.clamp(-1, 1))
        assert torch.allclose(policy.commands(policy.chunk(raw, signals), signals), raw, atol=1e-5)


def test_what_no_flow_can_be_made_of_is_refused() -> None:
    config = act.ActConfig(horizon=4, execute=2, context=16, width=8, latent=4)
    cloning, _ = learner.begin(forks(8), config, act.Act, 0, torch.Generator())
    with pytest.raises(SettingsError, match="Act has no velocity"):
        as_flow(cloning.actor)
    new = learner.make_policy(pictured(4).interface, flow.FlowConfig(hidden=(8,)), flow.Flow)
    with pytest.raises(SettingsError, match="no statistics"):
        as_flow(new)
