"""Mixtures of Gaussians."""

import pytest
import torch

from temporeal.policies.nets.mixture import Mixture


def test_samples_are_distributed_as_the_mixture_says() -> None:
    rows = 4000
    logits, mean = torch.tensor([0.25, 0.75]).log(), torch.tensor([[-1.0], [2.0]])
    log_std = torch.tensor([[0.1], [0.2]]).log()
    mixture = Mixture(logits.expand(rows, 2), mean.expand(rows, 2, 1), log_std.expand(rows, 2, 1))
    drawn = mixture.sample(torch.Generator().manual_seed(0))[:, 0]
    low = drawn[drawn < 0.5]
    assert len(low) / rows == pytest.approx(0.25, abs=0.02)
    assert float(low.mean()) == pytest.approx(-1.0, abs=0.02)
    assert float(low.std()) == pytest.approx(0.1, abs=0.01)
