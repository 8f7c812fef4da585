"""The evaluation of a policy for any formula: held-out formulas, each flown once, judged by the exact robustness.

What the training's task calls success is that a program was followed. Here the whole formula decides. Flights are under
the run's randomization, or the one that is asked for; what is judged are the true signals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import environments
from temporeal.policies.runs.errors import BadInput, bad_input
from temporeal.policies.runs.settings import own_randomization

if TYPE_CHECKING:
    from temporeal.policies.training.generalist.worlds import Make
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task

SEED = 2_000_003  # of the formulas: the training's are 0 and 1,000,003
FORECAST = 0.8  # the share of what is forecast to succeed at least so often is told, too
NOMINAL = "without noise, latency and randomization"
OTHER = "note: the forecast was calibrated under other conditions; take the same, or train anew"


@dataclass(frozen=True)
class FormulaEvaluation:
    """What became of formulas of one family.

    Args:
        satisfied: of ``trials``, with the interval ``low`` to ``high``. kinds: (satisfied, flown) of each kind.
        calibration_error: expected, of the forecasts. sure: (satisfied, flown) of those forecast at ``FORECAST`` or
            more.
        randomize: of the flights, by name and what was changed; "": nominal. calibrated: by name, of those that
            calibrated the forecast. alike: whether both are the same.
    """

    family: str
    satisfied: int
    trials: int
    low: float
    high: float
    kinds: dict[str, tuple[int, int]]
    calibration_error: float
    sure: tuple[int, int]
    randomize: str = ""
    calibrated: str = ""
    alike: bool = True

    def lines(self) -> list[str]:
        """For people."""
        out = [f"family {self.family}: satisfied {self.satisfied} of {self.trials} = "
               f"{self.satisfied / self.trials:.3f}, interval [{self.low:.3f}, {self.high:.3f}]"]
        out += [f"  {good:4} of {flown:4}  {kind}" for kind, (good, flown) in sorted(self.kinds.items())]
        good, flown = self.sure
        out += [f"  forecast: expected calibration error {self.calibration_error:.3f}; of {flown} forecast at "
                f"{FORECAST:g} or more {good} were satisfied",
                f"  flown {in_words(self.randomize)}; the forecast was calibrated {in_words(self.calibrated)}"]
        return out if self.alike else [*out, f"  {OTHER}"]


def in_words(randomize: str) -> str:
    """Conditions of flights."""
    return f"with randomize={randomize}" if randomize else NOMINAL


def name_of(drawn: Mapping[str, Any], words: Sequence[str] = ()) -> str:
    """The name of the settings ``randomize`` and which ``words`` changed them; "" where nothing is drawn."""
    changed = [word for word in words if not word.startswith("randomize=")]
    return " ".join([str(drawn["name"]), *changed]) if any(environments.conditions(drawn).values()) else ""


def is_generalist(settings: Any) -> bool:
    """Whether a run's policy is one for any formula."""
    return bool(settings["algo"]["name"] == "generalist")


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two conditions are; what is empty is left out."""
    return {name: x for name, x in one.items() if x} == {name: x for name, x in other.items() if x}


def check_words(words: Sequence[str]) -> None:
    """BadInput where ``words`` set anything but the randomization: the simulator and the task are the run's."""
    if others := [word for word in words if word.partition("=")[0].lstrip("+~").partition(".")[0] != "randomize"]:
        raise BadInput(f"{others[0]}: a policy for any formula is judged on formulas of its own simulator; legal is "
                       "randomize=NAME, or randomize.KEY=VALUE")


def check_asked(settings: Mapping[str, Any], family: str, episodes: int, seed: int | None) -> None:
    """BadInput where there are no such formulas, or the run has seen them."""
    from temporeal.policies.training.generalist import forecast
    from temporeal.sim.stl.distribution.settings import families
    from temporeal.sim.tasks.any_formula import make

    if family not in families():
        raise BadInput(f"--family {family}: legal are {', '.join(families())}")
    if episodes < 1:
        raise BadInput(f"--episodes {episodes}: at least 1")
    if seed is None:
        return
    environments.check_seed("--seed", seed)
    given, default = settings["task"].get("settings") or {}, signature(make).parameters
    seen = {tuple(given.get(name, default[name].default) for name in ("family", "seed")): "it was trained on",
            (forecast.FAMILY, forecast.SEED): "its forecast was calibrated on"}
    if why := seen.get((family, seed)):
        raise BadInput(f"--seed {seed}: those formulas of family {family} are the ones that {why}; take another seed, "
                       "or none")


def evaluate(
    folder: Path, settings: Any, family: str, episodes: int, confidence: float, seed: int | None,
    words: Sequence[str] = (),
) -> FormulaEvaluation:
    """Fly ``episodes`` fresh formulas of ``family``, each once from its own start. ``words``: another randomization
    than that of the run's ``settings``."""
    from temporeal.policies.any_formula.generalist import load_judge
    from temporeal.policies.runs.settings.compose import override
    from temporeal.policies.training.checkpoint import CheckpointError
    from temporeal.policies.training.generalist.flights import fly
    from temporeal.policies.training.generalist.forecast import calibration_error, drawn, in_conditions, planner
    from temporeal.policies.training.policy_graphs import load_graph
    from temporeal.sim.stl.analysis.binomial import clopper_pearson
    from temporeal.sim.stl.itineraries.planner import reading

    check_words(words)
    check_asked(settings, family, episodes, seed)
    task: Any = environments.make_task(settings)
    flown_in = override(settings, words)["randomize"]
    make = worlds_of(flown_in, task)
    try:
        graph, (judge, calibration) = load_graph(folder, task), load_judge(folder, task)
    except CheckpointError as error:
        raise BadInput(str(error)) from error
    world = task.observe.world
    formulas = drawn(world, episodes, SEED if seed is None else seed, family)
    flights = [flight for chunk in range(0, episodes, ROWS) for flight in fly(
        make, task, graph, formulas[chunk : chunk + ROWS], world, planner(world, judge), seed=DRAWS + chunk)]
    good = [flight.robustness > 0 for flight in flights]
    forecasts = [reading(flight.chance, calibration) for flight in flights]
    flown, satisfied = Counter(each.kind for each in formulas), Counter[str]()
    for each, whether in zip(formulas, good):
        satisfied[each.kind] += whether
    own = settings["randomize"] if in_conditions(folder) else {}
    low, high = clopper_pearson(sum(good), episodes, confidence)
    sure = [whether for whether, forecast in zip(good, forecasts) if forecast >= FORECAST]
    return FormulaEvaluation(family, sum(good), episodes, low, high,
                             {kind: (satisfied[kind], count) for kind, count in flown.items()},
                             calibration_error(forecasts, good), (sum(sure), len(sure)), name_of(flown_in, words),
                             name_of(own), same(environments.conditions(own), environments.conditions(flown_in)))


def worlds_of(drawn: Mapping[str, Any], task: Task) -> Make:
    """Worlds of the robot of ``task`` under the settings ``randomize``."""
    from temporeal.sim.env import beside
    from temporeal.sim.env_config import EnvConfig

    config = EnvConfig(**environments.conditions(drawn))

    def make(place: Task, num_worlds: int, seed: int) -> Env:
        with bad_input():
            own_randomization.check_robot(drawn.get("posterior"), task.robot)
            return beside(config, place, num_worlds, seed)

    return make


ROWS = 500
"""Formulas that are flown side by side."""
DRAWS = 1
"""Seed of what is drawn of machines and sensors: that of flights that calibrate is 0."""
