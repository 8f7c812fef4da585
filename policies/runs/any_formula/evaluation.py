"""The evaluation of a policy for any formula: held-out formulas, each flown once, judged by the exact robustness.

What the training's task calls success is that a program was followed. Here the whole formula decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from temporeal.policies.runs.errors import BadInput

SEED = 2_000_003  # of the formulas: the training's are 0 and 1,000,003
FORECAST = 0.8  # the share of what is forecast to succeed at least so often is told, too
NOMINAL = "flown without noise, latency and randomization, whatever it trained with; its forecast is of such flights"


@dataclass(frozen=True)
class FormulaEvaluation:
    """What became of formulas of one family.

    Args:
        satisfied: of ``trials``, with the interval ``low`` to ``high``. kinds: (satisfied, flown) of each kind.
        calibration_error: expected, of the forecasts. sure: (satisfied, flown) of those forecast at ``FORECAST`` or
            more.
    """

    family: str
    satisfied: int
    trials: int
    low: float
    high: float
    kinds: dict[str, tuple[int, int]]
    calibration_error: float
    sure: tuple[int, int]

    def lines(self) -> list[str]:
        """For people."""
        out = [f"family {self.family}: satisfied {self.satisfied} of {self.trials} = "
               f"{self.satisfied / self.trials:.3f}, interval [{self.low:.3f}, {self.high:.3f}]"]
        out += [f"  {good:4} of {flown:4}  {kind}" for kind, (good, flown) in sorted(self.kinds.items())]
        good, flown = self.sure
        return [*out, f"  forecast: expected calibration error {self.calibration_error:.3f}; of {flown} forecast at "
                      f"{FORECAST:g} or more {good} were satisfied", f"  {NOMINAL}"]


def is_generalist(settings: Any) -> bool:
    """Whether a run's policy is one for any formula."""
    return bool(settings["algo"]["name"] == "generalist")


def check_asked(settings: Mapping[str, Any], family: str, episodes: int, seed: int | None) -> None:
    """BadInput where there are no such formulas, or the run has seen them."""
    from temporeal.policies.runs.environments import check_seed
    from temporeal.policies.training.generalist import forecast
    from temporeal.sim.stl.distribution.settings import families
    from temporeal.sim.tasks.any_formula import make

    if family not in families():
        raise BadInput(f"--family {family}: legal are {', '.join(families())}")
    if episodes < 1:
        raise BadInput(f"--episodes {episodes}: at least 1")
    if seed is None:
        return
    check_seed("--seed", seed)
    given, default = settings["task"].get("settings") or {}, signature(make).parameters
    seen = {tuple(given.get(name, default[name].default) for name in ("family", "seed")): "it was trained on",
            (forecast.FAMILY, forecast.SEED): "its forecast was calibrated on"}
    if why := seen.get((family, seed)):
        raise BadInput(f"--seed {seed}: those formulas of family {family} are the ones that {why}; take another seed, "
                       "or none")


def evaluate(
    folder: Path, settings: Any, family: str, episodes: int, confidence: float, seed: int | None,
) -> FormulaEvaluation:
    """Fly ``episodes`` fresh formulas of ``family``, each once from its own start."""
    from temporeal.policies.any_formula.generalist import load_judge
    from temporeal.policies.runs.environments import make_task
    from temporeal.policies.training.generalist.flights import fly
    from temporeal.policies.training.generalist.forecast import calibration_error, drawn, planner
    from temporeal.policies.training.policy_graphs import load_graph
    from temporeal.sim.stl.analysis.binomial import clopper_pearson
    from temporeal.sim.stl.itineraries.planner import reading

    check_asked(settings, family, episodes, seed)
    task: Any = make_task(settings)
    graph, (judge, calibration) = load_graph(folder, task), load_judge(folder, task)
    world = task.observe.world
    formulas = drawn(world, episodes, SEED if seed is None else seed, family)
    flights = [flight for chunk in range(0, episodes, ROWS)
               for flight in fly(task, graph, formulas[chunk : chunk + ROWS], world, planner(world, judge))]
    good = [flight.robustness > 0 for flight in flights]
    forecasts = [reading(flight.chance, calibration) for flight in flights]
    flown, satisfied = Counter(each.kind for each in formulas), Counter[str]()
    for each, whether in zip(formulas, good):
        satisfied[each.kind] += whether
    low, high = clopper_pearson(sum(good), episodes, confidence)
    sure = [whether for whether, forecast in zip(good, forecasts) if forecast >= FORECAST]
    return FormulaEvaluation(family, sum(good), episodes, low, high,
                             {kind: (satisfied[kind], count) for kind, count in flown.items()},
                             calibration_error(forecasts, good), (sum(sure), len(sure)))


ROWS = 500
"""Formulas that are flown side by side."""
