"""Networks, distributions and normalizers: mathematics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from temporeal.policies.nets.actor import Gaussian, make_actor
from temporeal.policies.nets.encoders import axes_by_products
from temporeal.policies.nets.normalizer import Moments, Normalizer, merge, moments
from temporeal.sim.rotations import rotation

TORCH = torch.Generator().manual_seed(0)


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=TORCH)


def test_gaussian_is_the_normal_distribution() -> None:
    log_std, mean, action, other = rows(3), rows(7, 3), rows(7, 3), rows(7, 3)
    ours, old = Gaussian(mean, log_std), Gaussian(other, log_std + 0.3)
    theirs = Normal(mean, log_std.exp())
    torch.testing.assert_close(ours.log_prob(action), theirs.log_prob(action).sum(-1))
    torch.testing.assert_close(ours.entropy().expand(7), theirs.entropy().sum(-1))
    expected = kl_divergence(Normal(other, (log_std + 0.3).exp()), theirs).sum(-1)
    torch.testing.assert_close(ours.kl_from(old), expected)


def test_moments_of_far_data_keep_their_variance() -> None:
    data = rows(6, 500, 2) * torch.tensor([1e-2, 3.0]) + torch.tensor([1e3, -5.0])
    exact = data.numpy().astype(np.float64).reshape(-1, 2)
    got = moments(data)
    np.testing.assert_allclose(got.mean, exact.mean(0), rtol=1e-6)
    # float32 at 1000 resolves 6e-5: the slices' means are that exact
    np.testing.assert_allclose(got.var, exact.var(0), rtol=1e-3)
    assert got.rows == 3000


@pytest.mark.parametrize("sizes", [(1, 1), (3, 500), (400, 2), (17, 41, 5)])
def test_merged_moments_are_those_of_all_rows(sizes: tuple[int, ...]) -> None:
    parts = [rows(n, 4).double() * (i + 1) + i for i, n in enumerate(sizes)]
    total = moments(parts[0])
    for part in parts[1:]:
        total = merge(total, moments(part))
    everything = torch.cat(parts)
    torch.testing.assert_close(total.mean, everything.mean(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(total.var, everything.var(0, correction=0), rtol=1e-12, atol=1e-12)


def test_merging_nothing_changes_nothing() -> None:
    nothing = Moments(torch.tensor(0.0), torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64))
    some = moments(rows(10, 4).double())
    for got in (merge(nothing, some), merge(some, nothing)):
        for value, expected in zip(got, some):
            torch.testing.assert_close(value, expected.to(value.dtype))
    assert torch.isfinite(merge(nothing, nothing).mean).all()


def test_normalizer_standardizes_what_it_has_seen() -> None:
    normalizer = Normalizer(2)
    data = rows(4000, 2) * torch.tensor([5.0, 0.1]) + torch.tensor([-3.0, 40.0])
    for part in data.split(700):
        normalizer.update(moments(part))
    out = normalizer(data)
    torch.testing.assert_close(out.mean(0), torch.zeros(2), atol=1e-3, rtol=0)
    torch.testing.assert_close(out.std(0), torch.ones(2), atol=1e-3, rtol=0)
    normalizer.normalize_(data)
    assert torch.equal(data, out)
    assert normalizer(torch.full((1, 2), 1e9)).max() == normalizer.limit


def test_normalizer_passes_a_constant_feature_unscaled() -> None:
    normalizer = Normalizer(1)
    normalizer.update(moments(torch.full((100, 1), 0.1)))
    torch.testing.assert_close(normalizer(torch.tensor([[0.6]])), torch.tensor([[0.5]]))


def test_frozen_normalizer_stays() -> None:
    normalizer = Normalizer(1)
    normalizer.freeze()
    normalizer.update(moments(rows(10, 1)))
    assert normalizer.count == 0


def test_normalizer_names_components_that_are_not_finite() -> None:
    bad = torch.zeros(5, 3)
    bad[2, 1] = torch.nan
    with pytest.raises(ValueError, match=r"\[1\]"):
        Normalizer(3).update(moments(bad))


def test_unrolled_window_is_the_steps_one_by_one() -> None:
    actor = make_actor(3, 2, (8,), hidden_dim=5)
    obs, hidden, first = rows(6, 4, 3), rows(4, 5), torch.zeros(6, 4, dtype=torch.bool)
    first[2, 1] = first[5, 3] = True
    expected, state = [], hidden
    for t in range(6):
        state = torch.where(first[t][:, None], 0.0, state)
        action, state = actor(obs[t], state)
        expected.append(action)
    torch.testing.assert_close(actor.unroll(obs, hidden, first), torch.stack(expected))


@pytest.mark.parametrize(("change", "message"), [
    ({"name": "swish"}, "legal: tanh, elu, relu, silu"), ({"init_std": 0.0}, "init_std"),
])
def test_bad_network_settings_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_actor(3, 2, (8,), **change)


@pytest.mark.parametrize("shape", [(7,), (7, 2)])
def test_axes_by_products_are_the_first_two_of_the_rotation(shape: tuple[int, ...]) -> None:
    quat = torch.nn.functional.normalize(rows(*shape, 4), dim=-1)
    torch.testing.assert_close(axes_by_products(quat), rotation(quat)[..., :2].flatten(-2))
