"""Runs of TGPO and residuals: as a base their policy is exported first, and TGPO itself corrects none.

A policy of TGPO is shown a schedule of its formula, which it chooses itself: its observation is another one than what
is paid. Its artifact reads signals, keeps its schedule in its memory, and gives commands, so a residual corrects it in
any view of the formula.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.exporting import export_run
from temporeal.policies.runs.residual.fitting import check_worlds, follows_its_formula
from temporeal.policies.runs.residual.opening import config_of
from temporeal.policies.runs.run_folders import CONFIG, load_run
from temporeal.policies.runs.settings.files import Settings


def exported(settings: Settings) -> Path | None:
    """An artifact of the run ``base.policy`` for as long as this process is, where TGPO trained it; else None: it is
    opened as it is. A run of another formula than that of the ``settings`` is refused before."""
    config = config_of(settings)
    run = Path(config.policy)
    if not config.policy or not (run / CONFIG).is_file():
        return None
    before = load_run(run)
    if not follows_its_formula(before):
        return None
    check_worlds(run, before, settings)
    folder = Path(tempfile.mkdtemp(prefix="temporeal-base-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    export_run(run, folder / "base")
    return folder / "base"


def check_learner(settings: Mapping[str, Any]) -> None:
    """Refuse TGPO as the learner of a residual, and say why."""
    if follows_its_formula(settings):
        raise BadInput("base with algo=tgpo: TGPO learns which schedule to follow by what its critic says of many "
                       "schedules, at starts and in mid-episode places where no base was asked, and at a base's action "
                       "that would be another under each schedule: its values would be of policies that nobody flies. "
                       "Train algo=tgpo alone, then correct what it learned, which keeps to the schedule it chooses: "
                       "algo=resip base.policy=RUN task.settings.view=terminal_robustness base.reward=formula")


def check_view(settings: Mapping[str, Any], shown: Any) -> None:
    """Refuse worlds that draw schedules at random beside the one that a base follows."""
    if shown.schedules is not None:
        raise BadInput(f"base: task {settings['task']['name']!r} in the view of algo=tgpo is paid by a schedule that "
                       "is drawn at random, and no base follows it: task.settings.view=terminal_robustness (tau_mdp "
                       "and f_mdp are other views)")
