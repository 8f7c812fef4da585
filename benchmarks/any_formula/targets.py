"""What a policy for any formula must reach, and what others published: tables of data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SEEDS = (1, 2, 3)
"""Trainings of each robot; the worst counts."""


@dataclass(frozen=True)
class Target:
    """Of one robot. ``share``: of held-out formulas that are satisfied; ``minutes``: of two cores that its training may
    take, None where nothing is demanded."""

    share: float
    minutes: float | None


TARGETS: Mapping[str, Target] = {
    "linear": Target(0.97, 30.0), "unicycle": Target(0.93, 30.0), "quadrotor": Target(0.92, 90.0),
    "franka": Target(0.90, 90.0), "ant": Target(0.75, None)}
UNSEEN = 0.05  # of unseen structures fewer than of held-out draws, at most
TRAINED = 20  # formulas that TGPO is trained on, one by one
BELOW_TGPO = 0.03  # fewer than TGPO that was trained on each formula, at most
DECISION_MS = 50.0  # of one core, from a formula to its first command
ECE = 0.05  # expected calibration error of the forecast
REQUIRE, FLOWN = 0.8, 0.97  # forecast below which a formula is refused; share that is satisfied of those flown
TYPED, TYPED_SATISFIED = 20, 18  # formulas in a row over the ROS 2 nodes

TELOGRAF = ("TeLoGraF (Meng and Fan, ICML 2025), read off a figure of its repository (+-.01): best of 1,024 samples by "
            "true robustness on 128 formulas of its own distribution, other robot models; not run here")
OF_OTHERS = ("a baseline of TeLoGraF's authors, read off a figure of their repository (+-.01), on 128 formulas of "
             "their distribution, other robot models; not run here")
TIME = "time of a plan as TeLoGraF's authors publish it, on a machine and formulas of their own; not run here"
PUBLISHED: tuple[tuple[str, float, str, str], ...] = (
    ("linear.telograf", 0.49, "1", TELOGRAF),
    ("linear.telograd", 0.51, "1", TELOGRAF),
    ("linear.gradient", 0.94, "1", OF_OTHERS),
    ("linear.cem", 0.33, "1", OF_OTHERS),
    ("linear.ltldog", 0.37, "1", OF_OTHERS),
    ("dubins.telograf", 0.46, "1", TELOGRAF),
    ("dubins.telograd", 0.62, "1", TELOGRAF),
    ("dubins.gradient", 0.60, "1", OF_OTHERS),
    ("panda.telograf", 0.58, "1", TELOGRAF),
    ("panda.telograd", 0.83, "1", TELOGRAF),
    ("pointmaze.telograf", 0.94, "1", TELOGRAF),
    ("pointmaze.telograd", 0.98, "1", TELOGRAF),
    ("antmaze.telograf", 0.98, "1", TELOGRAF),
    ("antmaze.telograd", 0.99, "1", TELOGRAF),
    ("linear.gradient.plan", 4.9, "s", TIME),
    ("linear.telograf.plan", 1.4, "s", TIME),
    ("linear.telograf_fast.plan", 0.13, "s", TIME),
)
"""Figure, value, unit, what it is."""
