"""The copy of a base in the folder of the run that corrects it."""

from __future__ import annotations

from pathlib import Path

from temporeal.policies.runs import run_folders
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.opened import Opened


def keep(base: Opened, folder: Path) -> None:
    """Copy the base to the run's ``folder``, which then needs no other; and say what it was trained on, once."""
    from temporeal.policies.training.checkpoint import LARGEST
    from temporeal.policies.training.chunk_rl.tuning import copy_base
    from temporeal.robots.artifact.manifest import MANIFEST
    from temporeal.robots.atomic_files import write_whole
    from temporeal.robots.handed_over.files import read

    to = folder / run_folders.BASE
    if base.folder is not None and base.folder != to:
        if base.artifact is not None:
            for name in (MANIFEST, *base.artifact.manifest.files):
                to.mkdir(exist_ok=True)
                write_whole(to / name, read(base.folder / name, LARGEST, within=base.folder))
        else:
            copy_base(base.folder, to)
    if base.digest and (to / DIGEST).is_file():
        require_same(base, folder)  # what it was trained on does not change
    elif base.digest:
        to.mkdir(exist_ok=True)
        write_whole(to / DIGEST, f"{base.digest}\n".encode())


DIGEST = "weights.sha256"
"""In the copy of a base: SHA-256 of its weights and normalization, as they were when the residual was trained."""


def require_same(base: Opened, run: Path) -> None:
    """Refuse a base whose weights or normalization are not those that the residual of ``run`` was trained on."""
    file = run / run_folders.BASE / DIGEST
    if base.digest and (not file.is_file() or file.read_text().strip() != base.digest):
        raise BadInput(f"{run}: the weights or the normalization of its base, {run / run_folders.BASE}, are not those "
                       "that the residual was trained on; train the residual anew")
