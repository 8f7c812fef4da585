"""Export of a policy that corrects a base: both in one graph."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from temporeal.policies.runs import chunks, environments
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.acting import load_residual
from temporeal.policies.runs.residual.copies import require_same
from temporeal.policies.runs.residual.merging import export_merged
from temporeal.policies.runs.residual.opening import open_base
from temporeal.policies.runs.run_folders import BASE, load_run
from temporeal.policies.runs.settings.files import Settings

if TYPE_CHECKING:
    from temporeal.robots.artifact.runtime import Artifact
    from temporeal.sim.task import Task


def export_corrected(settings: Settings, run: Path, task: Task, out: Path, name: str) -> Artifact | None:
    """Write the policy of ``run``, which corrects a base, as an artifact of single commands. None: it is a graph as any
    other, and exported as such. What has no graph is refused."""
    from temporeal.policies.data.hidden_signals import without

    base = open_base(settings, without(task, settings["algo"].get("hide") or ()), run)
    require_same(base, run)
    if base.graph is not None:
        return None
    if base.policy is None and base.artifact is None:
        raise BadInput(f"{run}: its base, {base.config.title}, is no graph that an artifact could hold. Let a policy "
                       f"learn from both: temporeal train algo=dagger algo.expert={run} task=..., or temporeal data "
                       f"generate expert={run} and a learner of data (docs/how-to/residual.md)")
    residual = load_residual(settings, run, base)
    world = partial(environments.make_env, settings, task=base.task, num_worlds=1, compiled=False)
    if base.artifact is not None:
        return export_merged(base, residual, settings, world(), out, name)
    assert base.policy is not None
    with TemporaryDirectory() as folder:
        # its graph is the one that its own artifact would have: traced beside others, constants are folded otherwise
        place = Path(folder) / "base"
        made = chunks.export_chunks(base.policy, base.plain, place, world(), load_run(run / BASE), name)
        return export_merged(replace(base, artifact=made, folder=place), residual, settings, world(), out, name)
