"""Uniform numbers as places and choices."""


import torch

from temporeal.sim.draws import between, one_of


def test_places_and_stored_states_are_picked_by_uniform_numbers():
    u = torch.tensor([[0.0, 0.0], [0.5, 0.25], [0.999999, 0.999999]])
    torch.testing.assert_close(between((1.0, -2.0), (3.0, 2.0), u),
                               torch.tensor([[1.0, -2], [2, -1], [3, 2]]), atol=1e-5, rtol=0)
    stored = {"a": torch.arange(4.0)}
    assert one_of(stored, torch.tensor([0.0, 0.26, 0.99999999, 0.5]))["a"].tolist() == [0, 1, 3, 2]
