"""Learning curves: how a training went, from the events in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from temporeal.policies.evaluate.report.charts import curve

SHOWN: Mapping[str, tuple[str, str]] = {
    "evaluated_success": ("Fresh episodes of the deterministic policy that satisfied the formula", "share"),
    "satisfied": ("Episodes that satisfied the formula", "share"), "success": ("Success", "share"),
    "robustness": ("Robustness of whole episodes, mean", ""), "return": ("Return of an episode, mean", ""),
    "length": ("Length of an episode, mean", "steps"), "reward": ("Reward of a step, mean", ""),
    "value": ("Value of what was done, mean", ""), "entropy": ("Entropy of the policy", ""),
    "critic_loss": ("Squared error of the critics", ""),
    "std": ("Standard deviation of the actions", ""), "explained": ("Variance that the critic explains", "share"),
    "kl": ("Change of the policy, KL", ""), "learning_rate": ("Learning rate", "")}
"""Figures of a training that are drawn, the most telling first: title, unit."""
MOST = 6


class Curve(NamedTuple):
    """A figure of the training: ``values`` [M] at ``steps`` [M] of all environments together."""

    title: str
    unit: str
    steps: np.ndarray
    values: np.ndarray


def curves_of(events: Path) -> list[Curve]:
    """The curves in the folder ``events`` of a run; ValueError where a file there cannot be read."""
    from temporeal.policies.training.progress import scalars

    found = scalars(events)
    out = []
    for name, (title, unit) in SHOWN.items():
        rows = np.array(found.get(name, []), float).reshape(-1, 2)
        rows = rows[np.isfinite(rows).all(-1)]
        if len(rows) > 1:
            out.append(Curve(title, unit, rows[:, 0], rows[:, 1]))
    return out[:MOST]


def learning_markup(curves: Sequence[Curve]) -> str:
    """The section of the page; empty without a curve."""
    if not curves:
        return ""
    plots = "".join(
        f'<div class="panel"><h3>{c.title}</h3>'
        f"{curve(c.steps, c.values, title=c.title, across='environment steps', unit=c.unit)}</div>" for c in curves)
    return (f'<h2>Learning curves</h2><div class="grid">{plots}</div><p class="muted">Figures of the training, with '
            "its exploration, randomization and starts in mid-episode: they are no judgement of the policy.</p>")
