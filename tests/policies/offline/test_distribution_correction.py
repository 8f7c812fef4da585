"""O-DICE, f-DVL and ReCOIL: on tabular problems their values solve the equations of the papers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from tests.policies.offline import tabular

from temporeal.policies.offline import fdvl, odice, recoil
from temporeal.policies.training.errors import SettingsError

SIZES = {"obs_dim": tabular.STATES, "action_dim": 1}
QUICK = {"hidden": (32,), "learning_rate": 1e-2, "target_rate": 0.2, "gamma": tabular.GAMMA}
EYE = torch.eye(tabular.STATES)


def solved(slope, forward: float) -> np.ndarray:
    """V [S] with ``mean over the data's actions of slope(r + gamma V(s') - V(s)) = (1 - lambda) / lambda``."""
    data = tabular.rows(tabular.BOTH)
    state, nxt = data.obs.argmax(1).numpy(), data.next_obs.argmax(1).numpy()
    value = np.zeros(tabular.STATES)
    for _ in range(60):
        target = data.reward.numpy() + tabular.GAMMA * data.mask.numpy() * value[nxt]
        value = np.array([brentq(lambda v, here: slope(here - v).mean() - (1 - forward) / forward,
                                 target.min() - 50, target.max() + 50, args=(target[state == s],))
                          for s in range(tabular.STATES)])
    return value


def settled(algorithm, updates: int) -> None:
    settle(algorithm, tabular.whole(tabular.rows(tabular.BOTH)), updates)


def settle(algorithm, batch, updates: int) -> None:
    for k in range(updates):
        if k == 2 * updates // 3:
            algorithm.adam.set_rate(1e-3)
        algorithm.update(batch)


def generator() -> torch.Generator:
    torch.manual_seed(0)
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("forward", [0.5, pytest.param(0.6, marks=pytest.mark.slow)])
def test_value_without_backward_gradient_solves_its_equation(forward: float) -> None:
    config = odice.ODICEConfig(**QUICK, forward=forward, backward=0.0)
    algorithm = odice.ODICE(SIZES, config, generator())
    settled(algorithm, 240)
    wanted = solved(lambda e: np.maximum(1.0 + 0.5 * e, 0.0), forward)
    with torch.no_grad():
        assert np.allclose(algorithm.value(EYE)[..., 0], wanted, atol=0.03)


def test_half_forward_is_the_value_of_the_data() -> None:
    """w = 1 on average: with residuals within 2, where the ratio is linear, V is that of the data's policy."""
    assert np.allclose(solved(lambda e: np.maximum(1.0 + 0.5 * e, 0.0), 0.5), tabular.of_policy(
        tabular.rows(tabular.BOTH)), atol=1e-6)


def test_backward_gradient_is_used_where_it_is_orthogonal_to_the_forward_one() -> None:
    algorithm = odice.ODICE(SIZES, odice.ODICEConfig(**QUICK), generator())
    data = tabular.rows(tabular.BOTH)
    value, after = algorithm.value(data.obs)[..., 0], algorithm.value(data.next_obs)[..., 0]
    losses = value.mean(), (data.reward - value).square().mean(), (data.reward + after).square().mean()
    parameters = list(algorithm.value.parameters())
    g_v, g_f, g_b = (torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, retain_graph=True)])
                     for loss in losses)
    algorithm.descend_orthogonally(*losses)
    backward = algorithm.adam.gradient / 0.6 - (0.4 / 0.6) * g_v - g_f
    assert float(backward @ g_f) == pytest.approx(0.0, abs=1e-4 * float(g_f @ g_f))
    assert float(backward @ g_b) > 0.0  # it still goes down the backward loss


def test_ratio_is_the_slope_of_the_conjugate() -> None:
    e = torch.linspace(-4.0, 4.0, 41, dtype=torch.float64).requires_grad_()
    slope, = torch.autograd.grad(odice.conjugate(e).sum(), e)
    assert torch.allclose(slope, odice.ratio(e))
    w = torch.linspace(0.0, 6.0, 601, dtype=torch.float64)[:, None]
    assert torch.allclose((w * e - (w - 1).square()).amax(0), odice.conjugate(e), atol=1e-4)


@pytest.mark.parametrize("divergence, slope", [
    ("chi2", lambda d: np.where(d > 0, 1.0 + 0.5 * d, 0.0)),
    pytest.param("tv", lambda d: 1.0 * (d > 0), marks=pytest.mark.slow),
])
def test_implicit_maximum_solves_its_equation(divergence: str, slope) -> None:
    """At the minimum over V of the loss, its slope changes sign (a quantile has no unique root: TV)."""
    quality = torch.randn(4001, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    value = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([value], 0.02)
    for _ in range(400):
        optimizer.zero_grad()
        fdvl.implicit_maximum(quality, value, 0.75, divergence).backward()
        optimizer.step()
    assert slope(quality.numpy() - value.item()).mean() == pytest.approx(1 / 3, abs=0.02)
    if divergence == "tv":
        assert value.item() == pytest.approx(np.quantile(quality.numpy(), 2 / 3), abs=0.03)


@pytest.mark.slow
def test_fdvl_solves_both_its_equations() -> None:
    config = fdvl.FDVLConfig(**QUICK, forward=0.75)
    algorithm = fdvl.FDVL(SIZES, config, generator())
    settled(algorithm, 600)
    data = tabular.rows(tabular.BOTH)
    with torch.no_grad():
        quality, value = algorithm.quality(data.obs, data.action).mean(0), algorithm.value(EYE)
    state, nxt, action = data.obs.argmax(1), data.next_obs.argmax(1), data.action[:, 0]
    same = ((state[:, None] == state) & (action[:, None] == action)).float()
    wanted = (same * (data.reward + tabular.GAMMA * data.mask * value[nxt])).sum(1) / same.sum(1)
    assert torch.allclose(quality, wanted, atol=0.03)
    for s in range(tabular.STATES):
        rest = (quality - value[s])[state == s]
        slope = torch.where(rest > 0, 1.0 + 0.5 * rest, 0.0).mean()
        jump = float((rest.abs() < 0.05).float().mean())  # f* has a kink at zero: there the slope is anything up to 1
        assert 1 / 3 - jump - 0.05 <= float(slope) <= 1 / 3 + jump + 0.05


EXPERT_STATE = 1
"""All steps that begin there are the expert's."""


def scores(data, mixture: float) -> np.ndarray:
    """Q [S] where the data have one action in each state: setting the derivative of eq. 2 to zero gives
    ``Q = gamma V(s') + 2 (expert's share of the rows - beta (1 - gamma))``, with V = Q; what ends is repeated."""
    state, nxt = data.obs.argmax(1).numpy(), data.next_obs.argmax(1).numpy()
    follows = np.zeros((tabular.STATES, tabular.STATES))
    np.add.at(follows, (state, np.where(data.mask.numpy() > 0, nxt, state)), 1.0)
    follows /= follows.sum(1, keepdims=True)
    reward = 2.0 * ((np.arange(tabular.STATES) == EXPERT_STATE) - mixture * (1.0 - tabular.GAMMA))
    return np.linalg.solve(np.eye(tabular.STATES) - tabular.GAMMA * follows, reward)


def test_recoils_scores_solve_the_dual() -> None:
    data = tabular.rows(tabular.ONE_EACH)
    expert = (data.obs.argmax(1) == EXPERT_STATE).float()
    config = recoil.ReCOILConfig(**QUICK, mixture=float(expert.mean()))
    algorithm = recoil.ReCOIL(SIZES, config, generator())
    with torch.no_grad():
        algorithm.actor.log_std.fill_(-5.0)
    batch = tabular.whole(data, expert=expert)
    settle(algorithm, batch, 240)
    wanted = scores(data, config.mixture)
    with torch.no_grad():
        assert np.allclose(algorithm.quality(data.obs, data.action).mean(0), wanted[data.obs.argmax(1)], atol=0.05)
        assert np.allclose(algorithm.value(EYE), wanted, atol=0.05)


def test_steps_are_drawn_from_the_mixture_of_expert_and_others() -> None:
    data = tabular.rows(tabular.BOTH)
    expert = torch.arange(len(data.starts) - 1) < 2
    found = recoil.mixed(data, expert, 0.3)
    drawn = found.weight[found.episode] / found.weight[found.episode].sum()
    assert float(drawn[expert[data.episode]].sum()) == pytest.approx(0.3)


@pytest.mark.parametrize("success, settings, said", [
    (None, {}, "algo.expert=success: 0 of 10 episodes the dataset marks as successful"),
    (torch.zeros(10), {}, "algo.expert=success: 0 of 10"),
    (torch.full((10,), torch.nan), {}, "0 of 10"),
    (torch.ones(10), {}, "10 of 10 .* some of others"),
    (None, {"expert": "return", "expert_share": 0.99}, "10 of 10"),
])
def test_a_set_without_an_expert_or_without_others_is_refused(success, settings: dict, said: str) -> None:
    data = replace(tabular.rows(tabular.BOTH), success=success)
    with pytest.raises(SettingsError, match=said):
        recoil.experts(data, recoil.ReCOILConfig(**settings))


def test_the_expert_is_who_was_marked_or_earned_most() -> None:
    data = tabular.rows(tabular.BOTH)
    marked = replace(data, success=torch.arange(10) == 4)
    assert recoil.experts(marked, recoil.ReCOILConfig()).nonzero().flatten().tolist() == [4]
    best = recoil.experts(data, recoil.ReCOILConfig(expert="return", expert_share=0.2))
    assert sorted(data.reward[best].tolist(), reverse=True) == pytest.approx([1.0, 0.3])
