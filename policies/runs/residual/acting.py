"""The corrected policy of a run in an environment, alone and beside its base."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.copies import require_same
from temporeal.policies.runs.residual.opened import Opened
from temporeal.policies.runs.residual.opening import config_of, open_base

if TYPE_CHECKING:
    from torch import Tensor

    from temporeal.policies.training.acting import Act
    from temporeal.policies.training.residual.graphs import Residual
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task


def corrected_act(base: Opened, residual: Residual | None, env: Env) -> Act:
    """The policy of one batch of episodes of ``env``; without ``residual`` its base."""
    from temporeal.policies.training.residual.correction import correcting_act

    env.rendering = env.rendering and any(
        hasattr(each, "pictures") for each in (base.graph, getattr(residual, "actor", None)))
    frozen = base.make(env)
    if residual is None:
        return correcting_act(cast("Any", env), frozen, None, 0.0, base.config.condition)
    hidden: dict[str, Tensor] = {}

    def u(seen: Tensor) -> Tensor:
        nonlocal hidden
        size = int(getattr(residual.actor, "hidden_dim", 0))
        held = hidden or {"hidden": seen.new_zeros(len(seen), size)}
        found, hidden = residual.of_seen(seen, env.images, held)
        return found

    return correcting_act(cast("Any", env), frozen, u, residual.scale, residual.condition)


def load_residual(settings: Mapping[str, Any], run: Path, base: Opened) -> Residual:
    """What the run learned, played at the scale that ``settings`` say."""
    from temporeal.policies.training import policy_graphs
    from temporeal.policies.training.checkpoint import CheckpointError

    try:
        return policy_graphs.load_residual(run, base.plain, config_of(settings))
    except CheckpointError as error:
        raise BadInput(str(error)) from error
    except (TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError) as error:
        raise BadInput(f"{run}: its last checkpoint holds no residual of this version ({type(error).__name__}: "
                       f"{error}): train anew, or judge the artifact that was exported then") from error


def corrected_policy(
    run: Path, settings: Mapping[str, Any], task: Task, *, corrected: bool = True
) -> tuple[Task, Callable[[Env], Act], Callable[[], str]]:
    """The corrected policy of ``run`` on ``task``; not ``corrected``: its base. ``task`` as an environment must show
    it, what makes the policy of a batch of episodes, and SHA-256 of the weights."""
    from temporeal.policies.data.hidden_signals import without
    from temporeal.policies.evaluate.falsification import weights_digest
    from temporeal.policies.evaluate.full_horizon import to_full_horizon

    task = without(task, settings["algo"].get("hide") or ())
    base = open_base(dict(settings), task, run)
    require_same(base, run)
    residual = load_residual(settings, run, base) if corrected else None

    def digest() -> str:
        own = "" if residual is None else weights_digest(residual)
        return hashlib.sha256(f"{base.digest} {own} {base.config.scale}".encode()).hexdigest()

    return to_full_horizon(base.task), lambda env: corrected_act(base, residual, env), digest
