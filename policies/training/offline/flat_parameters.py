"""Parameters of several networks in one vector: one optimizer step, one Polyak average, whatever their number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from temporeal.policies.nets.ensembles import Ensemble


class Flat:
    """The parameters of ``modules`` and their gradients as views of two vectors, ``values`` and ``gradient``.

    The modules go on as before; ``backward`` adds to ``gradient``.
    """

    def __init__(self, *modules: nn.Module) -> None:
        self.parameters = [p for module in modules for p in module.parameters()]
        self.values = nn.Parameter(torch.cat([p.detach().flatten() for p in self.parameters]))
        self.gradient = torch.zeros_like(self.values.data)
        self.values.grad = self.gradient
        for p, value, gradient in zip(self.parameters, self._views(self.values.data), self._views(self.gradient)):
            p.data, p.grad = value, gradient
        for part in (part for module in modules for part in module.modules() if isinstance(part, Ensemble)):
            part.bind()

    def _views(self, vector: Tensor) -> Iterable[Tensor]:
        parts = vector.split([p.numel() for p in self.parameters])
        return [part.view(p.shape) for part, p in zip(parts, self.parameters)]


class Adam(Flat):
    """Adam (Kingma and Ba 2015) on the parameters of ``modules``, in one fused operation."""

    BETAS, EPSILON = (0.9, 0.999), 1e-8

    def __init__(self, *modules: nn.Module, rate: float, weight_decay: float = 0.0) -> None:
        super().__init__(*modules)
        self.rate, self.weight_decay = rate, weight_decay
        self.first, self.second = torch.zeros_like(self.gradient), torch.zeros_like(self.gradient)
        self.steps = torch.zeros(())

    def set_rate(self, rate: float) -> None:
        """Another learning rate."""
        self.rate = rate

    @torch.no_grad()
    def step(self) -> None:
        """One step down ``gradient``. (torch's optimizer classes take longer around it than it takes.)"""
        adam([self.values], [self.gradient], [self.first], [self.second], [], [self.steps], fused=True, amsgrad=False,
             beta1=self.BETAS[0], beta2=self.BETAS[1], lr=self.rate, weight_decay=self.weight_decay, eps=self.EPSILON,
             maximize=False)

    def state_dict(self) -> dict[str, Any]:
        """Moments, steps and learning rate."""
        return {"first": self.first, "second": self.second, "steps": self.steps, "rate": self.rate}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set them."""
        for name in ("first", "second", "steps"):
            getattr(self, name).copy_(state[name])
        self.rate = state["rate"]


def descend(loss: Tensor, *groups: Adam) -> None:
    """One step down ``loss`` in the parameters of ``groups``; other networks in it stay as they are."""
    for group in groups:
        group.gradient.zero_()
    loss.backward(inputs=[p for group in groups for p in group.parameters])
    for group in groups:
        group.step()


@contextmanager
def held(network: nn.Module) -> Iterator[None]:
    """What ``network`` computes inside is differentiated by its inputs and not by its parameters."""
    network.requires_grad_(False)
    try:
        yield
    finally:
        network.requires_grad_(True)


class Average:
    """Exponential moving average of networks' parameters: ``target += rate (network - target)`` (Polyak)."""

    def __init__(self, network: nn.Module, target: nn.Module) -> None:
        """``network`` has its parameters in an :class:`Adam` already; ``target`` begins as its copy."""
        target.load_state_dict(network.state_dict())
        self.target = Flat(target.requires_grad_(False))
        sources = [p.data for p in network.parameters()]
        first, size = sources[0], len(self.target.values)
        self.network = first.as_strided((size,), (1,), first.storage_offset())
        if any(a.data_ptr() + a.nbytes != b.data_ptr() for a, b in pairwise(sources)):
            raise ValueError("the network's parameters do not lie in a row: give them to an Adam first")

    @torch.no_grad()
    def move(self, rate: float) -> None:
        """One step of the average."""
        self.target.values.data.lerp_(self.network, rate)
