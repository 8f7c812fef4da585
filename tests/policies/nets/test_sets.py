"""Networks that read a set."""

from __future__ import annotations

import torch

from temporeal.policies.nets.actor import make_actor, make_critic

ELEMENTS = (5, 4)


def observations(rows: int) -> torch.Tensor:
    return torch.randn(rows, 7 + 20, generator=torch.Generator().manual_seed(1))


def test_the_order_of_elements_does_not_matter() -> None:
    torch.manual_seed(0)
    actor, critic = make_actor(27, 2, (16,), elements=ELEMENTS), make_critic(27, (16,), "silu", ELEMENTS)
    obs = observations(6)
    order = torch.tensor([3, 0, 4, 1, 2])
    other = torch.cat([obs[:, :7], obs[:, 7:].unflatten(1, ELEMENTS)[:, order].flatten(1)], 1)
    for net in (actor, critic):
        torch.testing.assert_close(net(other), net(obs))
    assert not torch.allclose(actor(obs), actor(obs.flip(0)))


def test_absent_elements_are_as_if_they_were_not_there() -> None:
    torch.manual_seed(0)
    whole = make_actor(27, 2, (16,), elements=ELEMENTS)
    fewer = make_actor(27 - 8, 2, (16,), elements=(3, 4))
    fewer.load_state_dict(whole.state_dict())
    obs = observations(6)
    obs[:, 7 + 12 :] = 0.0
    torch.testing.assert_close(whole(obs), fewer(obs[:, : 7 + 12]))


def test_none_at_all_is_a_number() -> None:
    obs = torch.zeros(2, 27)
    assert bool(make_critic(27, (16,), "silu", ELEMENTS)(obs).isfinite().all())
