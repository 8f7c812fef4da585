"""Several training processes that behave as one: their shared state, and the operations that keep them equal.

Start with ``torchrun --nproc-per-node 2 ...``; gloo carries CPU tensors, nccl GPU tensors. A single process needs none
of this.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from temporeal.policies.nets.normalizer import Moments, merge


@dataclass(frozen=True)
class Ranks:
    """This process' ``index`` among ``size``; index 0 logs, shows progress and decides when to stop."""

    index: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        return self.index == 0

    def mean_(self, values: Tensor) -> None:
        """Replace ``values`` by their mean over the processes, bit-equal on all of them."""
        if self.size > 1:
            dist.all_reduce(values)
            values.div_(self.size)

    def merged(self, local: Moments) -> Moments:
        """Moments of the rows of all processes: the exact merge, in the order of the ranks."""
        if self.size == 1:
            return local
        flat = torch.cat([local.rows[None], local.mean, local.var])
        parts = [torch.empty_like(flat) for _ in range(self.size)]
        dist.all_gather(parts, flat)
        width = len(local.mean)
        each = [Moments(p[0], p[1 : 1 + width], p[1 + width :]) for p in parts]
        total = each[0]
        for part in each[1:]:
            total = merge(total, part)
        return total

    def gathered(self, rows: Tensor) -> Tensor:
        """``rows`` [M, C] of all processes, concatenated in the order of the ranks; M may differ, C not."""
        if self.size == 1:
            return rows
        counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(self.size)]
        dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device))
        padded = rows.new_zeros(int(max(counts)), rows.shape[1])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        return torch.cat([part[: int(count)] for part, count in zip(parts, counts)])

    def of_first(self, value: float, device: torch.device) -> float:
        """The first process' ``value`` (clocks and files differ between processes; loops and schedules must not)."""
        if self.size == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=device)
        dist.broadcast(shared, 0)
        return float(shared.item())

    def copy_from_first(self, tensors: list[Tensor]) -> None:
        """Overwrite ``tensors`` by those of the first process."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()


def join(device: str = "cpu") -> tuple[Ranks, torch.device]:
    """Join the processes started by torchrun, with the device of this one; a single process without torchrun."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return Ranks(), torch.device(device)
    missing = [k for k in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if k not in os.environ]
    if missing:
        raise ValueError(
            f"WORLD_SIZE is {size} but {', '.join(missing)} not set: start with torchrun, or unset WORLD_SIZE")
    here = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if device.startswith("cuda") else torch.device(device)
    if here.type == "cuda":
        torch.cuda.set_device(here)
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if here.type == "cuda" else "gloo")
    return Ranks(dist.get_rank(), dist.get_world_size()), here
