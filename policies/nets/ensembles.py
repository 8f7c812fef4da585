"""Feed-forward networks of an ensemble. E members, B rows.

In training their derivative is written by hand: a product, its bias and the activation are one step, and gradients are
added where the optimizer reads them. Autograd alone needs half as long again for networks of this size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import activation

PRECISIONS = ("float32", "bfloat16")


class Ensemble(nn.Module):
    """E networks of one shape: rows [B, I] to [E, B, outputs].

    Args:
        last_gain: of the last layer's orthogonal weights; the others have sqrt(2).
        layer_norm: after each hidden product, before its activation (Ba et al. 2016).
        precision: of the products between hidden layers in training: float32, or bfloat16, half as long where the
            processor has it (AVX512-BF16); weights, sums over rows and the outputs stay float32.
    """

    def __init__(
        self, members: int, inputs: int, hidden: Sequence[int], outputs: int, *, name: str = "relu",
        last_gain: float = 1.0, layer_norm: bool = False, precision: str = "float32",
    ) -> None:
        super().__init__()
        if precision not in PRECISIONS:
            raise ValueError(f"precision {precision!r}: one of {', '.join(PRECISIONS)}")
        self.rounded = precision == "bfloat16"
        widths = [inputs, *hidden, outputs]
        gains = [math.sqrt(2.0)] * len(hidden) + [last_gain]
        self.members, self.outputs = members, outputs
        self.weights = nn.ParameterList(
            [_orthogonal(members, *sizes, gain) for *sizes, gain in zip(widths, widths[1:], gains)])
        self.biases = nn.ParameterList([torch.zeros(members, 1, width) for width in widths[1:]])
        self.scales = nn.ParameterList([torch.ones(members, 1, width) for width in hidden] if layer_norm else [])
        self.shifts = nn.ParameterList([torch.zeros(members, 1, width) for width in hidden] if layer_norm else [])
        self.activation = activation(name)
        self.by_hand = isinstance(self.activation, nn.ReLU) and not layer_norm
        self.layers: list[list[Layer]] = []

    def bind(self) -> None:
        """Take the parameters' memory as it is now: their values and gradients stay there (see
        :class:`temporeal.policies.training.offline.flat_parameters.Flat`)."""
        if self.by_hand:
            self.layers = [[Layer(w.data[e], b.data[e, 0], None if w.grad is None else w.grad[e],
                                  None if b.grad is None else b.grad[e, 0])
                            for w, b in zip(self.weights, self.biases)] for e in range(self.members)]

    @property
    def bound(self) -> bool:
        """Whether the parameters are where :meth:`bind` found them."""
        return bool(self.layers) and self.layers[0][0].weight.data_ptr() == self.weights[0].data_ptr()

    def __getstate__(self) -> dict[str, Any]:
        """A copy has its own memory and is not bound."""
        return {**self.__dict__, "layers": []}

    def forward(self, rows: Tensor) -> Tensor:
        """Outputs [E, B, outputs] of ``rows``."""
        if not self.bound:
            return self.plain(rows)
        if torch.is_grad_enabled():
            return _ByHand.apply(rows, self.weights[0], self)  # type: ignore[no-any-return, no-untyped-call]
        return self.run(rows)[0]

    def plain(self, rows: Tensor) -> Tensor:
        """:meth:`forward` in differentiable operations, for autograd and for export."""
        return torch.stack([self._member(e, rows) for e in range(self.members)])

    def _member(self, e: int, x: Tensor) -> Tensor:
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            x = x @ weight[e] + bias[e]
            if layer < last:
                if len(self.scales):
                    x = nn.functional.layer_norm(x, x.shape[-1:]) * self.scales[layer][e] + self.shifts[layer][e]
                x = self.activation(x)
        return x

    def run(self, rows: Tensor) -> tuple[Tensor, Kept]:
        """Outputs, and what :meth:`back` needs of a bound ensemble."""
        out, kept = rows.new_empty(self.members, len(rows), self.outputs), []
        for e, layers in enumerate(self.layers):
            inputs = [rows]
            for depth, layer in enumerate(layers[:-1]):
                if self.rounded and depth:
                    layer.round()
                    inputs.append(torch.addmm(layer.rounded_bias, inputs[-1], layer.rounded).relu_())
                else:
                    x = torch.addmm(layer.bias, inputs[-1], layer.weight).relu_()
                    inputs.append(x.bfloat16() if self.rounded else x)
            torch.addmm(layers[-1].bias, inputs[-1].float(), layers[-1].weight, out=out[e])
            kept.append(inputs)
        return out, kept

    def back(self, kept: Kept, slope: Tensor, for_layers: bool = True, for_rows: bool = False) -> Tensor | None:
        """Add the gradient of a loss whose derivative by the outputs is ``slope`` [E, B, outputs] to the parameters'
        gradients. Returns that by the rows, if it is wanted."""
        total: Tensor | None = None
        for layers, inputs, d in zip(self.layers, kept, slope):
            for depth in range(len(layers) - 1, -1, -1):
                layer, x = layers[depth], inputs[depth]
                between = self.rounded and 0 < depth < len(layers) - 1
                if for_layers and layer.weight_grad is not None and layer.bias_grad is not None:
                    if between:
                        layer.weight_grad.add_(torch.mm(x.t(), d))
                    else:
                        layer.weight_grad.addmm_(x.float().t(), d.float())
                    layer.bias_grad.add_(d.sum(0))
                if depth:
                    d = torch.mm(d, layer.rounded.t()) if between else torch.mm(d, layer.back).to(x.dtype)
                    torch.ops.aten.threshold_backward.grad_input(d, x, 0, grad_input=d)
            if for_rows:
                share = torch.mm(d.float(), layers[0].back)
                total = share if total is None else total + share
        return total


Kept = list[list[Tensor]]
"""By member the input [B, .] of each layer."""


class Layer:
    """A member's layer: weight [I, J] and bias [J], and their gradients to be added to, if any."""

    def __init__(self, weight: Tensor, bias: Tensor, weight_grad: Tensor | None, bias_grad: Tensor | None) -> None:
        self.weight, self.bias, self.back = weight, bias, weight.t()
        self.weight_grad, self.bias_grad = weight_grad, bias_grad
        self.rounded, self.rounded_bias = weight, bias

    def round(self) -> None:
        """Take weight and bias as they are now to bfloat16."""
        self.rounded, self.rounded_bias = self.weight.bfloat16(), self.bias.bfloat16()


class _ByHand(torch.autograd.Function):
    """A bound ensemble's outputs in a graph of autograd."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, anchor: Tensor, ensemble: Ensemble) -> Tensor:
        """``anchor``: a parameter of the ensemble, whose gradient stands for that of all."""
        out, ctx.kept = ensemble.run(rows)
        ctx.ensemble = ensemble
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, None, None]:  # type: ignore[override]
        """The gradient by the rows, if it is wanted."""
        for_rows, for_layers = ctx.needs_input_grad[:2]
        return ctx.ensemble.back(ctx.kept, slope, for_layers, for_rows), None, None


class Value(nn.Module):
    """V(s): rows [B, O] to [B]."""

    def __init__(
        self, obs_dim: int, hidden: Sequence[int], name: str = "relu", layer_norm: bool = False,
        precision: str = "float32",
    ) -> None:
        super().__init__()
        self.net = Ensemble(1, obs_dim, hidden, 1, name=name, layer_norm=layer_norm, precision=precision)

    def forward(self, obs: Tensor) -> Tensor:
        """Values [B]."""
        return self.net(obs)[0, :, 0]


class Quality(nn.Module):
    """Q(s, a) of an ensemble of E: rows [B, O] and [B, A] to [E, B]."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden: Sequence[int], *, members: int = 2, name: str = "relu",
        layer_norm: bool = False, precision: str = "float32",
    ) -> None:
        super().__init__()
        self.net = Ensemble(members, obs_dim + action_dim, hidden, 1, name=name, layer_norm=layer_norm,
                            precision=precision)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Values [E, B]."""
        return self.net(torch.cat([obs, action], -1))[..., 0]


def _orthogonal(members: int, inputs: int, outputs: int, gain: float) -> Tensor:
    weight = torch.empty(members, inputs, outputs)
    for each in weight:
        nn.init.orthogonal_(each, gain)
    return weight
