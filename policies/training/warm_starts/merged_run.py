"""The run that merges policies, of either kind: it searches the weights, judges, and writes what came of it, once.

A run that was stopped before that left nothing, and begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from torch import nn

from temporeal.policies.training import offline_learner
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.progress import Logger
from temporeal.policies.training.warm_starts import chunk_merging, merging
from temporeal.policies.training.warm_starts.chunk_merging import ChunkStart
from temporeal.policies.training.warm_starts.merging import Each, Found, Judge
from temporeal.policies.training.warm_starts.ppo_start import WarmStart


class Config(Protocol):
    """What is asked of settings. ``execute``: None: the policies give single commands."""

    @property
    def weights(self) -> Sequence[float]: ...
    @property
    def choices(self) -> Sequence[float]: ...
    @property
    def episodes(self) -> int: ...
    @property
    def execute(self) -> int | None: ...
    @property
    def threads(self) -> int: ...


def run(
    config: Config, policies: Sequence[WarmStart] | Sequence[ChunkStart], judges: Sequence[Judge], out: Path,
    resume: bool | Path, logger: Logger | None, on_iteration: Callable[[Any], bool | None] | None,
    keep: Callable[[Found], None],
) -> tuple[nn.Module, nn.Module, list[dict[str, float]]]:
    """The policy, its normalizer and the figures of all evaluations. ``keep``: writes the checkpoint."""
    if resume and any((out / "checkpoints").glob("*.pt")):
        raise SettingsError("algo.merge=true is done here, nothing to resume: it is judged anew with --overwrite")
    history: list[dict[str, float]] = []

    def each(figures: dict[str, float]) -> bool:
        history.append(figures)
        if logger is not None:
            logger(len(history), figures)
        return on_iteration is not None and bool(on_iteration(None))

    with offline_learner.threads(config.threads):
        found = searched(config, policies, judges, each)
    if found is None:  # it was asked to stop
        return *network_of(policies[0]), history
    merging.write(found, [one.run for one in policies], judges, config.episodes, out)
    keep(found)
    last = {f"weight_{i}": weight for i, weight in enumerate(found.weights)}
    mean = sum(found.success[-1]) / max(len(judges), 1)
    return found.actor, found.normalizer, [*history, {**last, "merged_success": mean}]


def searched(
    config: Config, policies: Sequence[WarmStart] | Sequence[ChunkStart], judges: Sequence[Judge], each: Each
) -> Found | None:
    """The merged policy; None where ``each`` ended the search."""
    how: dict[str, Any] = {"weights": config.weights, "choices": config.choices, "episodes": config.episodes,
                           "each": each}
    if config.execute is not None:
        return chunk_merging.merge(cast("Sequence[ChunkStart]", policies), judges, execute=config.execute, **how)
    return merging.merge(cast("Sequence[WarmStart]", policies), judges, **how)


def network_of(policy: WarmStart | ChunkStart) -> tuple[nn.Module, nn.Module]:
    """A policy, and what normalizes its observations."""
    if isinstance(policy, ChunkStart):
        return policy.policy, nn.Identity()
    return policy.actor, policy.normalizer
