"""What is on a device: parts of tasks (observation map, objective, model of a system), and states."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def on_device(part: Any, device: torch.device) -> Any:
    """A task's part with all tensors and modules in it, at any depth, on ``device``; itself on a CPU."""
    if device.type == "cpu":
        return part
    if isinstance(part, Tensor):
        return part.to(device)
    if isinstance(part, torch.nn.Module):
        return copy.deepcopy(part).to(device)
    if isinstance(part, (list, tuple)):
        return type(part)(on_device(x, device) for x in part)
    if not hasattr(part, "__dict__") or isinstance(part, type) or callable(part) and not hasattr(part, "memory"):
        return part
    placed = copy.copy(part)
    for name, value in vars(part).items():
        object.__setattr__(placed, name, on_device(value, device))
    return placed


def moved(state: Any, device: torch.device | str) -> Any:
    """``state`` (mappings and lists, at any depth) with all tensors in it on ``device``."""
    if isinstance(state, Tensor):
        return state.to(device)
    if isinstance(state, Mapping):
        return {key: moved(value, device) for key, value in state.items()}
    return [moved(value, device) for value in state] if isinstance(state, (list, tuple)) else state
