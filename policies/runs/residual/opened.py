"""A base that was opened, and how chunks are inferred in the worlds of an environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import chunks
from temporeal.policies.runs.errors import BadInput

if TYPE_CHECKING:
    from temporeal.policies.training.chunks.policy import ChunkPolicy
    from temporeal.policies.training.residual.base import FrozenBase
    from temporeal.policies.training.residual.settings import BaseConfig
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.sim.env import Env
    from temporeal.sim.maps import PolicyGraph
    from temporeal.sim.task import Task


@dataclass(frozen=True)
class Opened:
    """A base on a task.

    Args:
        task: as worlds must show it. ``plain``: as the residual sees it, without what is recorded for the base.
        make: the base in the worlds of an environment of ``task``.
        folder: of its files; None: it has none.
        graph, policy, artifact: what it is made of, each None where it is not that.
        execute: rows of a chunk that are played.
        digest: of its weights, normalization included.
    """

    config: BaseConfig
    task: Task
    plain: Task
    make: Callable[[Env], FrozenBase]
    folder: Path | None = None
    graph: PolicyGraph | None = None
    policy: ChunkPolicy | None = None
    artifact: Artifact | None = None
    execute: int = 1
    digest: str = ""


def rows_of(env: Env, infer: chunks.Infer, names: tuple[str, ...], ids: Any) -> Any:
    """Commands [K, H, U] of the worlds ``ids`` [K], inferred of what is measured there now; pictures are rendered."""
    import torch

    from temporeal.policies.evaluate.measurement_recorder import measured

    seen = {name: value[ids.numpy()] for name, value in measured(env).items() if name in names}
    if len(seen) < len(names):
        seen |= {name: value.cpu().numpy() for name, value in env.render(ids).items() if name in names}
    if missing := [name for name in names if name not in seen]:
        raise BadInput(f"the base reads {', '.join(missing)}, which task {env.task.name!r} as set does not show "
                       "(pictures: cameras=...)")
    return torch.from_numpy(infer({name: seen[name] for name in names}))
