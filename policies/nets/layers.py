"""Layers and activations that networks are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "elu": nn.ELU, "relu": nn.ReLU, "silu": nn.SiLU}


def activation(name: str) -> nn.Module:
    """A new activation module by ``name``."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation {name!r} is unknown; legal: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()


def linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """A layer with orthogonal weights times ``gain`` and no bias at start."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def mlp(inputs: int, hidden: Sequence[int], outputs: int, name: str, last_gain: float) -> nn.Sequential:
    """Layers ``inputs -> hidden... -> outputs`` with the activation ``name`` between them."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [linear(inputs, width, math.sqrt(2.0)), activation(name)]
        inputs = width
    return nn.Sequential(*layers, linear(inputs, outputs, last_gain))
