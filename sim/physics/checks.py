"""What every backend refuses in the same words: world numbers, commands and states that do not fit. torch only."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def check_ids(ids: Tensor, num_worlds: int) -> Tensor:
    """World numbers ``ids`` as int64 [K], in the order given: whole numbers in [0, num_worlds), each once."""
    ids = torch.as_tensor(ids).detach()
    if ids.dim() != 1:
        raise ValueError(f"ids has shape {tuple(ids.shape)}; it must be [K]")
    if len(ids) == 0:
        return ids.to(torch.int64)
    if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        raise ValueError(f"ids are world numbers (int64 [K]), got {ids.dtype}; of a mask take mask.nonzero()[:, 0]")
    ids = ids.to(torch.int64)
    low, high = int(ids.min()), int(ids.max())
    if not (low >= 0 and high < num_worlds):
        raise IndexError(f"ids must lie in [0, {num_worlds}), got {low}..{high}")
    seen = torch.zeros(num_worlds, dtype=torch.bool, device=ids.device)
    seen[ids] = True
    if int(seen.count_nonzero()) != len(ids):
        twice = next(i for i, count in enumerate(torch.bincount(ids).tolist()) if count > 1)
        raise ValueError(f"ids name each world once, got world {twice} more than once")
    return ids


def check_world(world: int, num_worlds: int) -> int:
    """The number of one world."""
    if not 0 <= world < num_worlds:
        raise IndexError(f"world must lie in [0, {num_worlds}), got {world}")
    return world


def check_step(command: str, ctrl: Tensor, shape: tuple[int, int], substeps: int) -> None:
    """A control step of at least one physics step under ``ctrl`` of this ``shape``."""
    if ctrl.shape != shape:
        raise ValueError(f"{command} has shape {tuple(ctrl.shape)}, expected {shape}")
    if substeps < 1:
        raise ValueError(f"substeps is {substeps}; it must be at least 1")


def check_state(mine: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Whether ``state`` has the names and shapes of ``mine``, the state of the backend that is to take it."""
    if set(state) != set(mine):
        raise ValueError(f"set_state: keys {sorted(state)} are not {sorted(mine)}")
    for name, value in state.items():
        if value.shape != mine[name].shape:
            raise ValueError(f"set_state: {name} has shape {tuple(value.shape)}, expected {tuple(mine[name].shape)}: "
                             f"a state fits backends of the same scene, command and number of worlds")
