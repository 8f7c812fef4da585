"""The ensemble of critics is as many networks of their own, in any number of threads."""

from __future__ import annotations

import pytest
import torch

from temporeal.policies.nets.ensembles import Quality, Scratch
from temporeal.policies.training.off_policy.critics import Critics, Sizes
from temporeal.policies.training.off_policy.settings import OffPolicyConfig
from temporeal.policies.training.offline.flat_parameters import Adam

pytestmark = pytest.mark.usefixtures("one_thread")
SIZES = Sizes(3, 3, 2)


def made(**settings: object) -> Critics:
    """Critics with random parameters, scales and shifts of the norm among them."""
    torch.manual_seed(0)
    config = OffPolicyConfig(**{"hidden": (8, 6), "critics": 3, "subset": 3, "learning_rate": 0.01, **settings})
    found = Critics(SIZES, config, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for p in found.quality.parameters():
            p += 0.3 * torch.randn(p.shape)
    return found


def alone(critics: Critics, e: int) -> Quality:
    """Member ``e`` as a network of its own, for autograd."""
    one = Quality(3, 2, critics.config.hidden, members=1, layer_norm=critics.config.layer_norm)
    one.load_state_dict({name: value[None, e] if value.ndim == 3 else value
                         for name, value in critics.quality.state_dict().items()})
    return one


@pytest.mark.parametrize("layer_norm, hidden", [(True, (8, 6)), (True, (16, 48)), (True, (16, 6)), (False, (8, 6))])
def test_derivatives_by_hand_are_those_of_autograd_for_each_network_alone(
    layer_norm: bool, hidden: tuple[int, ...]
) -> None:
    """Norms of 16 n numbers are compiled, others are torch's."""
    critics = made(layer_norm=layer_norm, hidden=hidden)
    pair, wanted = torch.randn(5, 5), torch.randn(5)
    apart = [alone(critics, e) for e in range(3)]
    steps = [Adam(network, rate=0.01) for network in apart]
    for network in apart:
        network.net.layers = []  # autograd, not the derivative by hand
        found = network(pair[:, :3], pair[:, 3:])[0]
        (found - wanted).square().mean().backward()
    with torch.no_grad():
        value = critics.fit(pair, wanted)
    for e, (network, step) in enumerate(zip(apart, steps)):
        with torch.no_grad():
            assert torch.allclose(value[e], network(pair[:, :3], pair[:, 3:])[0], atol=1e-6)
        for (name, mine), theirs in zip(critics.quality.named_parameters(), network.parameters()):
            assert torch.allclose(mine.grad[e], theirs.grad[0], atol=1e-5), name
        step.step()
        for mine, theirs in zip(critics.quality.parameters(), network.parameters()):
            assert torch.allclose(mine[e], theirs[0], atol=1e-4)  # Adam is of one's sign where a gradient is tiny


def test_errors_are_weighted() -> None:
    twice, weighted = made(), made()
    pair, wanted = torch.randn(3, 5), torch.randn(3)
    with torch.no_grad():
        twice.fit(pair[[0, 0, 1]], wanted[[0, 0, 1]])
        weighted.fit(pair, wanted, torch.tensor([2.0, 1.0, 0.0]))
    assert torch.allclose(twice.adam.gradient, weighted.adam.gradient, atol=1e-5)


@pytest.mark.parametrize("climbs, hidden", [("least", (8, 6)), ("mean", (8, 6)), ("least", (16, 32))])
def test_the_policy_climbs_what_is_said(climbs: str, hidden: tuple[int, ...]) -> None:
    critics = made(policy_value=climbs, hidden=hidden)
    pair = torch.randn(7, 5)
    with torch.no_grad():
        value, slope = critics.slope(pair)
    action = pair[:, 3:].clone().requires_grad_(True)
    each = critics.quality.net.plain(torch.cat([pair[:, :3], action], -1))[..., 0]
    expected = each.amin(0) if climbs == "least" else each.mean(0)
    expected.sum().backward()
    assert torch.allclose(value, expected, atol=1e-6) and torch.allclose(slope, action.grad, atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_threads_change_no_bit(precision: str) -> None:
    found = [made(threads=threads, precision=precision, hidden=(16, 16)) for threads in (1, 2)]
    pair, wanted = torch.randn(9, 5), torch.randn(9)
    with torch.no_grad():
        for _ in range(3):
            a, b = (critics.fit(pair, wanted) for critics in found)
            assert torch.equal(a, b)
        assert all(torch.equal(x, y) for x, y in zip(*(critics.slope(pair) for critics in found)))
    assert torch.equal(*(critics.adam.values for critics in found))


def test_bfloat16_with_a_norm_is_nearly_float32() -> None:
    exact, rounded = (made(precision=p, hidden=(64, 64)) for p in ("float32", "bfloat16"))
    pair, wanted = torch.randn(32, 5), torch.randn(32)
    with torch.no_grad():
        values = [critics.fit(pair, wanted) for critics in (exact, rounded)]
    a, b = exact.adam.gradient, rounded.adam.gradient
    assert 0.0 < float((a - b).norm() / a.norm()) < 0.03
    assert float((values[0] - values[1]).abs().max()) < 0.1


def test_targets_are_the_least_of_a_subset_drawn_anew() -> None:
    critics = made(critics=4, subset=2)
    critics.average.move(1.0)
    pair = torch.randn(6, 5)
    each = critics.target.net.plain(pair)[..., 0].detach()
    pairs = {frozenset(int((row - found).abs().argmin()) for row, found in zip(each.T, critics.least(pair)))
             for _ in range(40)}
    assert len(pairs) > 3 and all(len(members) <= 2 for members in pairs)
    whole = made(critics=4, subset=4)
    whole.average.move(1.0)
    assert torch.allclose(whole.least(pair), whole.target.net.plain(pair)[..., 0].amin(0), atol=1e-6)


def test_targets_follow_by_their_rate() -> None:
    critics = made(target_rate=0.25)
    before, pair = critics.average.target.values.detach().clone(), torch.randn(4, 5)
    with torch.no_grad():
        critics.fit(pair, torch.zeros(4))
    assert torch.allclose(critics.average.target.values.data, before + 0.25 * (critics.adam.values.data - before),
                          atol=1e-6)


def test_outputs_ahead_are_those_of_chosen_members() -> None:
    critics = made()
    pair = torch.randn(4, 5)
    with torch.no_grad():
        found = critics.quality.net.ahead(pair, Scratch(), [2, 0])
        assert torch.allclose(found, critics.quality.net.plain(pair)[[2, 0]], atol=1e-6)
