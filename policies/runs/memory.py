"""The memory that worlds take, estimated before it is taken: a process that takes too much is killed without a word."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput

if TYPE_CHECKING:
    from temporeal.policies.training.off_policy.settings import OffPolicyConfig
    from temporeal.sim.env import Env

MANY = 1 << 18  # worlds: fewer fit anywhere, and are not worth a look
PROBE = 64  # worlds that are made to see what one takes
CGROUP = Path("/sys/fs/cgroup")


def check_memory(make: Callable[[int], Env], num_worlds: int, device: str, more: int = 0) -> None:
    """Refuse ``num_worlds`` that need more memory than there is, before they are made.

    Args:
        make: makes the environment with so many worlds.
        more: bytes of each world that somebody else will keep, such as a learner's rollout.
    """
    if num_worlds < MANY:
        return
    free = free_memory(device)
    each = bytes_of_world(make) + more
    if free is not None and each * num_worlds > free:
        needed = f"{each * num_worlds / 1e9:.3g} GB of memory ({each:,} bytes each)"
        raise BadInput(f"{num_worlds:,} worlds need at least {needed}, {free / 1e9:.3g} GB are free: at most "
                       f"{free // each:,}")


def check_replay(
    config: OffPolicyConfig, num_worlds: int, task: Any, device: str = "cpu",
    cameras: Mapping[str, Mapping[str, Any]] | None = None, by_hand: int = 0,
) -> None:
    """Refuse to remember more steps of ``task`` than there is memory for, pictures of ``cameras`` and checkpoints
    counted. ``by_hand``: steps of interventions beside, at most ``algo.size``, which no checkpoint holds."""
    from temporeal.policies.training.off_policy.learner import times_of
    from temporeal.policies.training.off_policy.replay import COPIES, bytes_of_step

    told = task.objective.privileged_dim if config.privileged and not cameras else 0
    state = task.observe.obs_dim + (task.observe.obs_dim + told if told else 0)
    row = bytes_of_step(state, task.act.action_dim, bytes_of_pictures(cameras or {}))
    free, each = free_memory(device), COPIES * row
    steps, beside = times_of(config, num_worlds) * num_worlds, min(by_hand, config.size)
    needed = each * steps + row * beside
    if free is None or needed <= free:
        return
    room = free // row
    most = max((room - by_hand) // COPIES, room // (COPIES + bool(by_hand)), room - COPIES * config.total_steps)
    more = f" and {beside:,} of interventions" if beside else ""
    raise BadInput(f"algo.size={config.size}: {steps:,} remembered steps{more} need {needed / 1e9:,.1f} GB of memory "
                   f"({each:,} bytes each, with the copies for a checkpoint), {free / 1e9:,.1f} GB are free: at most "
                   f"algo.size={most // num_worlds * num_worlds}")


def bytes_of_world(make: Callable[[int], Env]) -> int:
    """What a world takes in tensors, at least: the difference between environments of two sizes."""
    sizes = []
    for count in (PROBE, 2 * PROBE):
        before = tensors()
        env = make(count)
        sizes.append(sum(size for place, size in tensors().items() if place not in before))
        env.backend.close()
    return max(1, (sizes[1] - sizes[0]) // PROBE)


def tensors() -> dict[int, int]:
    """Bytes of all that tensors are views of, by its place in memory."""
    import torch

    storages = [each.untyped_storage() for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def free_memory(device: str) -> int | None:
    """Bytes that this process can still take on ``device``; None where nobody says."""
    if device != "cpu":
        import torch

        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    allowed = [free]
    for most, taken in ((CGROUP / "memory.max", CGROUP / "memory.current"), (
            CGROUP / "memory/memory.limit_in_bytes", CGROUP / "memory/memory.usage_in_bytes")):
        limit, used = number(most), number(taken)
        if limit is not None and used is not None:
            allowed.append(max(0, limit - used))
    return min(allowed)


def number(file: Path) -> int | None:
    """The whole number in a file of the kernel's."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def bytes_of_pictures(cameras: Mapping[str, Mapping[str, Any]]) -> int:
    """One of each of ``cameras``, in colour."""
    return sum(3 * int(each["width"]) * int(each["height"]) for each in cameras.values())


def rollout_bytes(settings: Mapping[str, Any], task: Any) -> int:
    """Bytes of a world in a learner's rollout, at least: what it saw, did and got at each step of ``task``."""
    steps = (settings.get("algo") or {}).get("rollout_steps")
    numbers = task.observe.obs_dim + task.objective.privileged_dim + task.act.action_dim + 3
    return (4 * numbers + bytes_of_pictures(settings.get("cameras") or {})) * steps if isinstance(steps, int) else 0
