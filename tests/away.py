"""A stand-in for tensors on another device: they keep their numbers, and refuse all but being brought to a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

HANDLED = {"to", "cpu", "clone", "detach", "__get__", "__len__", "size", "dim", "__repr__"}


class Away(Tensor):
    """A tensor that is not on the CPU, as device ``meta`` cannot be one: nothing can be brought back from there."""

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.clone()

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__
        if name not in HANDLED:
            raise RuntimeError(f"{name}: expected all tensors to be on the same device, found cpu and another one")
        found = super().__torch_function__(function, types, args, kwargs or {})
        return found.as_subclass(Tensor) if name in ("to", "cpu") else found


def away(state: Any) -> Any:
    """``state``, a mapping, list, tensor or module, with its tensors on the other device."""
    if isinstance(state, torch.nn.Module):
        for module in state.modules():
            for name, value in list(module._buffers.items()):
                module._buffers[name] = away(value)
        return state
    if isinstance(state, Tensor):
        return state.as_subclass(Away)
    if isinstance(state, Mapping):
        return {key: away(value) for key, value in state.items()}
    return [away(value) for value in state] if isinstance(state, (list, tuple)) else state
