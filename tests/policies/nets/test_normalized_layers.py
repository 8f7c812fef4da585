"""The compiled norm is torch's, there and back."""

import pytest
import torch

from temporeal.policies.nets import normalized_layers
from temporeal.policies.nets.normalized_layers import back, normalize, serves


@pytest.mark.parametrize("rows, width", [(5, 16), (1, 48), (7, 128)])
def test_values_and_derivatives_are_those_of_autograd(rows: int, width: int) -> None:
    torch.manual_seed(0)
    x, scale, shift = (torch.randn(*size) for size in ((rows, width), (width,), (width,)))
    x = 3.0 * x + 50.0  # far from zero: a variance of one pass would cancel
    leaves = [each.clone().requires_grad_(True) for each in (x, scale, shift)]
    expected = torch.relu(torch.nn.functional.layer_norm(leaves[0], (width,), *leaves[1:]))
    out, mean, over = torch.empty(rows, width), torch.empty(rows, 1), torch.empty(rows, 1)
    normalize(x, scale, shift, out, mean, over)
    assert torch.allclose(out, expected, atol=1e-4)
    assert torch.allclose(mean[:, 0], x.mean(1)) and torch.allclose(over[:, 0], (x.var(1, correction=0) + 1e-5).rsqrt())
    d = torch.randn(rows, width)
    expected.backward(d)
    by_scale, by_shift = torch.ones(width), torch.full((width,), 2.0)
    back(d, x, out, mean, over, scale, by_scale, by_shift)
    assert torch.allclose(d, leaves[0].grad, atol=1e-4)
    assert torch.allclose(by_scale, leaves[1].grad + 1.0, atol=1e-3)  # they are added to
    assert torch.allclose(by_shift, leaves[2].grad + 2.0, atol=1e-4)


def test_widths_of_whole_vectors_are_served() -> None:
    assert [width for width in (0, 6, 16, 40, 256, 512, 528) if serves(width)] == [16, 256, 512]
    assert normalized_layers.EPSILON == torch.nn.LayerNorm(1).eps
