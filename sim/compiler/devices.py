"""Tasks' parts and states on another device, and whether Warp can compile kernels for a GPU."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

WARP = (1, 15)
"""The oldest Warp that compiles our kernels, as mujoco-warp 4.0 asks for; tested with that of ``constraints.txt``."""


@cache
def lacks_warp() -> str:
    """Why kernels cannot be compiled for a GPU and what to do; empty where they can."""
    todo = f"pip install 'warp-lang>={'.'.join(map(str, WARP))}' (it comes with mujoco-warp)"
    if find_spec("warp") is None:
        return f"Warp is not installed: {todo}"
    try:
        version = metadata.version("warp-lang")
    except metadata.PackageNotFoundError:
        return f"there is a package 'warp', but not warp-lang: {todo}"
    parts = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    return "" if tuple(parts) >= WARP else f"Warp {version} is too old: {todo}"


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
    stateful = hasattr(part, "memory") or hasattr(part, "carry")  # a map or an objective, not just a function
    if not hasattr(part, "__dict__") or isinstance(part, type) or callable(part) and not stateful:
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
