"""Small changes of frozen layers, so that what a policy knew is not overwritten: low rank, and learned scales.

    W = (1 + s) W0 + U D,   b = (1 + s) b0          s [out], U [out, R], D [R, in]; W0 and b0 never change

U D is LoRA (Hu et al. 2021, arXiv 2106.09685) of rank R; s scales each output of a layer, as modulation of a frozen
network does: (IA)^3 (Liu et al. 2022, arXiv 2205.05638), Learning to Modulate (Schmied et al. 2023, arXiv 2306.14884;
there the modulators are chosen from a pool by task, here one set is learned for the one new task). U and s begin at 0:
the policy begins as the old one, bit for bit.

The layers hold the merged weights at every moment: acting, checkpoints, evaluation and export see plain layers and know
nothing of this. The gradient of W, however it was found, gives those of the small parts:

    dU = dW D^T,   dD = U^T dW,   ds = sum over inputs of dW W0, + db b0
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.training.errors import SettingsError


class Adapter(nn.Module):
    """The small parts of one layer, and what it was.

    Args:
        layer: whose weights are written; its gradients are read.
        rank: R; 0: no low rank. modulate: whether s is learned.
    """

    def __init__(self, layer: nn.Linear, rank: int, modulate: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.layer = [layer]  # not a part of this module: it has its own state
        outputs, inputs = layer.weight.shape
        self.register_buffer("weight", layer.weight.detach().clone())
        self.register_buffer("bias", torch.zeros(outputs) if layer.bias is None else layer.bias.detach().clone())
        self.weight: Tensor
        self.bias: Tensor
        down = torch.randn(rank, inputs, generator=generator) / math.sqrt(inputs)
        self.down, self.up = nn.Parameter(down), nn.Parameter(torch.zeros(outputs, rank))
        self.scale = nn.Parameter(torch.zeros(outputs), requires_grad=modulate)

    @torch.no_grad()
    def take_gradients(self) -> None:
        """From the layer's, to the small parts. A layer that was given other weights meanwhile (a learner that went
        back to its best policy) is the frozen one from there on, with small parts that begin anew."""
        layer = self.layer[0]
        if layer.weight.grad is None:
            return
        if not torch.equal(layer.weight, self.merged()):
            self.weight.copy_(layer.weight)
            self.bias.copy_(self.bias if layer.bias is None else layer.bias)
            self.up.zero_()
            self.scale.zero_()
        slope = layer.weight.grad
        self.up.grad, self.down.grad = slope @ self.down.T, self.up.T @ slope
        if self.scale.requires_grad:
            own = (slope * self.weight).sum(1)
            fixed = layer.bias is None or layer.bias.grad is None
            self.scale.grad = own if fixed else own + layer.bias.grad * self.bias  # type: ignore[operator]

    def merged(self) -> Tensor:
        """W."""
        return (1.0 + self.scale)[:, None] * self.weight + self.up @ self.down

    @torch.no_grad()
    def merge(self) -> None:
        """Write the layer's weights."""
        layer = self.layer[0]
        layer.weight.copy_(self.merged())
        if layer.bias is not None:
            layer.bias.copy_((1.0 + self.scale) * self.bias)


class AdaptedAdam:
    """Adam on the small parts of ``layers`` and on ``others``; all else stays as it is. As
    :class:`torch.optim.Adam` is used: ``param_groups``, ``step``, ``zero_grad``, ``state`` and its dictionary.

    Args:
        layers: whose gradients come from a backward pass, as ever.
        others: parameters that are learned as they are.
        seed: of the first D.
    """

    def __init__(
        self, layers: Sequence[nn.Linear], others: Iterable[nn.Parameter], learning_rate: float, *, rank: int,
        modulate: bool, seed: int = 0, eps: float = 1e-8,
    ) -> None:
        if not layers:
            raise SettingsError("algo.adapters: the policy has no layer that could be adapted")
        if not rank and not modulate:
            raise SettingsError("algo.adapters=0 and algo.modulate=false leave nothing to learn of the policy: "
                                "algo.adapters=4, or algo.modulate=true")
        generator = torch.Generator().manual_seed(seed)
        self.adapters = nn.ModuleList(Adapter(layer, rank, modulate, generator) for layer in layers)
        self.others = list(others)
        small = [value for value in self.adapters.parameters() if value.requires_grad and value.numel()]
        self.adam = torch.optim.Adam([*small, *self.others], learning_rate, eps=eps, foreach=True)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Of the small parts and the others."""
        return self.adam.param_groups

    @property
    def state(self) -> Any:
        """Adam's."""
        return self.adam.state

    def zero_grad(self) -> None:
        """Forget all gradients."""
        self.adam.zero_grad()
        for adapter in self.adapters:
            for value in adapter.layer[0].parameters():  # type: ignore[union-attr, index]
                value.grad = None

    def step(self) -> None:
        """One step, and the merged weights."""
        for adapter in self.adapters:
            adapter.take_gradients()  # type: ignore[operator]
        self.adam.step()
        for adapter in self.adapters:
            adapter.merge()  # type: ignore[operator]

    def state_dict(self) -> dict[str, Any]:
        """The small parts, what the layers were, and Adam's state."""
        return {"adapters": self.adapters.state_dict(), "adam": self.adam.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them back; the layers are those of the module, which has its own."""
        self.adapters.load_state_dict(state["adapters"])
        self.adam.load_state_dict(state["adam"])

    @property
    def learned(self) -> int:
        """Numbers that are learned of the adapted layers."""
        return sum(value.numel() for value in self.adapters.parameters() if value.requires_grad)


def layers_of(*modules: nn.Module) -> list[nn.Linear]:
    """The linear layers of ``modules``, each once."""
    found = dict.fromkeys(layer for module in modules for layer in module.modules() if isinstance(layer, nn.Linear))
    return list(found)


def optimizer(
    modules: Sequence[nn.Module], weights: Sequence[nn.Parameter], learning_rate: float, *, rank: int, modulate: bool,
    seed: int = 0,
) -> AdaptedAdam | torch.optim.Adam:
    """Adam on ``weights`` of ``modules``; with a ``rank`` or ``modulate``, on small parts of their linear layers
    instead."""
    if not rank and not modulate:
        return torch.optim.Adam(weights, learning_rate, foreach=True)
    learned = {id(value) for value in weights}
    layers = [layer for layer in layers_of(*modules) if id(layer.weight) in learned]
    return AdaptedAdam(layers, [], learning_rate, rank=rank, modulate=modulate, seed=seed)
