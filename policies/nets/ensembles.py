"""Feed-forward networks of an ensemble. E members, B rows.

In training their derivative is written by hand: a product, its bias and the activation are one step, and gradients are
added where the optimizer reads them. Autograd alone needs half as long again for networks of this size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from temporeal.policies.nets import normalized_layers
from temporeal.policies.nets.actor import activation

PRECISIONS = ("float32", "bfloat16")


class Ensemble(nn.Module):
    """E networks of one shape: rows [B, I] to [E, B, outputs].

    Args:
        last_gain: of the last layer's orthogonal weights; the others have sqrt(2).
        layer_norm: after each hidden product, before its activation (Ba et al. 2016).
        by_hand: with layer_norm too; without it always. For losses whose ``backward`` is called, not
            ``torch.autograd.grad``.
        precision: of the products between hidden layers in training: float32, or bfloat16, half as long where the
            processor has it (AVX512-BF16); weights, sums over rows and the outputs stay float32.
    """

    def __init__(
        self, members: int, inputs: int, hidden: Sequence[int], outputs: int, *, name: str = "relu",
        last_gain: float = 1.0, layer_norm: bool = False, precision: str = "float32", by_hand: bool = False,
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
        self.by_hand = isinstance(self.activation, nn.ReLU) and (by_hand or not layer_norm)
        self.layers: list[list[Layer]] = []

    def bind(self) -> None:
        """Take the parameters' memory as it is now: their values and gradients stay there (see
        :class:`temporeal.policies.training.offline.flat_parameters.Flat`)."""
        if self.by_hand:
            norms = [*zip(self.scales, self.shifts)] or [()] * len(self.biases)
            self.layers = [[Layer(Part(w.data[e], None if w.grad is None else w.grad[e]), part(b, e),
                                  *(part(each, e) for each in norm))
                            for w, b, norm in zip(self.weights, self.biases, [*norms, ()])]
                           for e in range(self.members)]

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

    def run(self, rows: Tensor) -> tuple[Tensor, list[Kept]]:
        """Outputs, and what :meth:`back` needs of a bound ensemble."""
        out = rows.new_empty(self.members, len(rows), self.outputs)
        return out, [self._forward(layers, rows, each, fresh) for layers, each in zip(self.layers, out)]

    def back(
        self, kept: Sequence[Kept], slope: Tensor, for_layers: bool = True, for_rows: bool = False
    ) -> Tensor | None:
        """Add the gradient of a loss whose derivative by the outputs is ``slope`` [E, B, outputs] to the parameters'
        gradients. Returns that by the rows, if it is wanted."""
        total: Tensor | None = None
        for layers, each, d in zip(self.layers, kept, slope):
            d = self._back(layers, each, d, fresh, for_layers, add=True)
            if for_rows:
                share = torch.mm(d, layers[0].back)
                total = share if total is None else total + share
        return total

    def ahead(self, rows: Tensor, scratch: Take, members: Sequence[int] | None = None) -> Tensor:
        """Outputs [K, B, outputs] of K ``members`` (all) of a bound ensemble, of which nothing is kept."""
        chosen = range(self.members) if members is None else members
        out = rows.new_empty(len(chosen), len(rows), self.outputs)
        for e, each in zip(chosen, out):
            self._forward(self.layers[e], rows, each, scratch)
        return out

    def there_and_back(
        self, rows: Tensor, slope: Callable[[Tensor], Tensor], scratch: Take, members: Sequence[int] | None = None
    ) -> Tensor:
        """Outputs of a bound ensemble; its parameters' gradients become those of a loss whose derivative by a member's
        outputs [B, outputs] is ``slope`` of them. Members follow each other in the same memory. ``members``: only
        these, [K, B, outputs]; calls for others may run at once, in other memory."""
        chosen = range(self.members) if members is None else members
        out = rows.new_empty(len(chosen), len(rows), self.outputs)
        for e, each in zip(chosen, out):
            layers = self.layers[e]
            self._back(layers, self._forward(layers, rows, each, scratch), slope(each), scratch, True, add=False)
        return out

    def by_rows(
        self, rows: Tensor, slope: Callable[[Tensor], Tensor], scratch: Take, columns: slice,
        members: Sequence[int] | None = None, for_layers: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """:meth:`there_and_back` to the rows instead: the derivative [K, B, J] by J ``columns`` of them, of each
        member, beside the outputs; parameters' gradients stay as they are, unless they are wanted ``for_layers``."""
        chosen = range(self.members) if members is None else members
        out = rows.new_empty(len(chosen), len(rows), self.outputs)
        found = rows.new_empty(len(chosen), *rows[:, columns].shape)
        for e, each, share in zip(chosen, out, found):
            layers = self.layers[e]
            kept = self._forward(layers, rows, each, scratch)
            d = self._back(layers, kept, slope(each), scratch, for_layers, add=False)
            torch.mm(d, layers[0].back[:, columns], out=share)
        return out, found

    def _forward(self, layers: Sequence[Layer], rows: Tensor, out: Tensor, take: Take) -> Kept:
        """A member's outputs into ``out`` [B, outputs]. Returns the inputs of its layers, in the types of their
        products, and what was normalized."""
        inputs, norms = [rows], list[Norm]()
        for depth, layer in enumerate(layers[:-1]):
            weight, bias = layer.round() if self._kind(depth) is torch.bfloat16 else (layer.weight, layer.bias)
            place = take(depth, (len(rows), len(bias)), self._kind(depth))
            x = torch.addmm(bias, inputs[-1], weight, out=place)
            if layer.scale is not None:
                norms.append(layer.normalize(cast(x, torch.float32, depth, take), depth, take))
                x = norms[-1].out
            else:
                x.relu_()
            inputs.append(cast(x, self._kind(depth + 1), depth, take))
        torch.addmm(layers[-1].bias, inputs[-1], layers[-1].weight, out=out)
        return Kept(inputs, norms)

    def _back(
        self, layers: Sequence[Layer], kept: Kept, d: Tensor, take: Take, for_layers: bool, add: bool
    ) -> Tensor:
        """From the derivative ``d`` by a member's outputs to that by its first product [B, .]; the parameters'
        gradients are added to, or set. What comes after a layer is not needed any more: its memory is taken."""
        for depth in range(len(layers) - 1, -1, -1):
            layer, x = layers[depth], kept.inputs[depth]
            d = cast(d, self._kind(depth), depth + 1, take)
            if for_layers and layer.weight_grad is not None and layer.bias_grad is not None:
                accumulate(layer.weight_grad, x.t(), d, add)
                layer.bias_grad.add_(d.sum(0)) if add else layer.bias_grad.copy_(d.sum(0))
            if depth:
                weight = layer.back if d.dtype is torch.float32 else layer.rounded.t()
                d = torch.mm(d, weight, out=take(depth, (len(x), x.shape[1]), d.dtype))
                if kept.norms:
                    d = cast(d, torch.float32, depth, take)
                    d = layers[depth - 1].normalize_back(d, kept.norms[depth - 1], for_layers, add)
                else:
                    torch.ops.aten.threshold_backward.grad_input(d, x, 0, grad_input=d)
        return d

    def _kind(self, depth: int) -> torch.dtype:
        """The type of a layer's products."""
        return torch.bfloat16 if self.rounded and 0 < depth < len(self.weights) - 1 else torch.float32


def cast(x: Tensor, kind: torch.dtype, place: int, take: Take) -> Tensor:
    """``x`` [B, .], or what it is in another type."""
    return x if x.dtype is kind else take(place, (len(x), x.shape[1]), kind).copy_(x)


def accumulate(gradient: Tensor, a: Tensor, b: Tensor, add: bool) -> None:
    """The product of two matrices, added to a float32 ``gradient`` or in its place."""
    if a.dtype is torch.float32:
        torch.addmm(gradient, a, b, beta=float(add), out=gradient)
    elif add:
        gradient.add_(torch.mm(a, b))
    else:
        gradient.copy_(torch.mm(a, b))


Take = Callable[[int, tuple[int, int], torch.dtype], Tensor]
"""``take(place, shape, type)``: memory for what is computed at a place of a network."""


def fresh(place: int, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """New memory each time."""
    return torch.empty(shape, dtype=dtype)


class Scratch:
    """Memory that networks of one shape compute in, one after the other. It stays in the processor's cache; a product
    that is written to memory which is not there takes a third longer."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, tuple[int, int], torch.dtype], Tensor] = {}

    def __call__(self, place: int, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """The same memory each time."""
        key = place, shape, dtype
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = torch.empty(shape, dtype=dtype)
        return found


class Norm(NamedTuple):
    """A product [B, J], what it is normalized and rectified [B, J], its mean and one over its deviation [B, 1]."""

    x: Tensor
    out: Tensor
    mean: Tensor
    over: Tensor


class Kept(NamedTuple):
    """Of a member the input [B, .] of each layer, and of each that is normalized, how."""

    inputs: list[Tensor]
    norms: list[Norm]


class Part(NamedTuple):
    """A member's share of a parameter, and its gradient to be added to, if any."""

    value: Tensor
    gradient: Tensor | None


def part(parameter: Tensor, e: int) -> Part:
    """Of a parameter [E, 1, J]: [J]."""
    return Part(parameter.data[e, 0], None if parameter.grad is None else parameter.grad[e, 0])


class Layer:
    """A member's layer: weight [I, J] and bias [J], and of a normalized one scale and shift [J]."""

    def __init__(self, weight: Part, bias: Part, scale: Part | None = None, shift: Part | None = None) -> None:
        (self.weight, self.weight_grad), (self.bias, self.bias_grad) = weight, bias
        self.scale, self.shift = scale, shift
        self.back = self.weight.t()
        self.rounded = self.weight

    def round(self) -> tuple[Tensor, Tensor]:
        """Weight and bias as they are now in bfloat16; the weight is kept for the way back."""
        self.rounded = self.weight.bfloat16()
        return self.rounded, self.bias.bfloat16()

    def normalize(self, x: Tensor, depth: int, take: Take) -> Norm:
        """The product ``x`` [B, J], normalized and rectified."""
        assert self.scale is not None and self.shift is not None
        (rows, width), place = x.shape, -3 * depth - 3  # below the places of products
        found = Norm(x, *(take(place + i, (rows, each), torch.float32) for i, each in enumerate((width, 1, 1))))
        if normalized_layers.serves(width):
            normalized_layers.normalize(x, self.scale.value, self.shift.value, *found[1:])
            return found
        torch.ops.aten.native_layer_norm.out(x, (width,), self.scale.value, self.shift.value, normalized_layers.EPSILON,
                                             out0=found.out, out1=found.mean, out2=found.over)
        found.out.relu_()
        return found

    def normalize_back(self, d: Tensor, norm: Norm, for_layers: bool, add: bool) -> Tensor:
        """From the derivative ``d`` [B, J] by what was normalized and rectified, which is overwritten, to that by the
        product."""
        assert self.scale is not None and self.shift is not None
        grads = [each.gradient for each in (self.scale, self.shift)]
        by_scale, by_shift = (torch.zeros_like(self.scale.value) if grad is None or not for_layers
                              else grad if add else grad.zero_() for grad in grads)
        if normalized_layers.serves(norm.x.shape[1]):
            normalized_layers.back(d, *norm, self.scale.value, by_scale, by_shift)
            return d
        torch.ops.aten.threshold_backward.grad_input(d, norm.out, 0, grad_input=d)
        d, scale, shift = torch.ops.aten.native_layer_norm_backward(
            d, norm.x, (norm.x.shape[1],), norm.mean, norm.over, self.scale.value, self.shift.value, [True] * 3)
        by_scale.add_(scale), by_shift.add_(shift)
        return d


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
        layer_norm: bool = False, precision: str = "float32", by_hand: bool = False, last_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.net = Ensemble(members, obs_dim + action_dim, hidden, 1, name=name, last_gain=last_gain,
                            layer_norm=layer_norm, precision=precision, by_hand=by_hand)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Values [E, B]."""
        return self.net(torch.cat([obs, action], -1))[..., 0]


def _orthogonal(members: int, inputs: int, outputs: int, gain: float) -> Tensor:
    weight = torch.empty(members, inputs, outputs)
    for each in weight:
        nn.init.orthogonal_(each, gain)
    return weight
