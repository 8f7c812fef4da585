"""Which trials there are: formulas, methods and seeds, each with its budget and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from temporeal.policies.evaluate.suite import averages, catalog
from temporeal.policies.evaluate.suite.catalog import METHODS, SYSTEMS
from temporeal.policies.runs.errors import BadInput
from temporeal_benchmarks.options import seeds as asked_seeds

SEEDS = (1, 2, 3)
EPISODES = catalog.STARTS
CPU_CLOCK = "algo.clock=cpu"
ENDLESS = 10**12  # updates or steps: the budget of time is what ends a training
QUICK_TASKS, QUICK_SEEDS = ("linear_reach", "linear_seq"), (1,)
QUICK_WITHOUT = (catalog.HOME,)  # methods that there is no time for
QUICK_BUDGET, QUICK_EPISODES = 30.0, 256  # s of training, starts


@dataclass(frozen=True)
class Item:
    """A trial to be made."""

    task: str
    method: str
    seed: int
    quick: bool = False

    @property
    def system(self) -> str:
        """The robot."""
        return averages.system_of(self.task)

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.task}-{self.method}-{self.seed}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.task}, {METHODS[self.method].title}, seed {self.seed}"

    @property
    def budget_s(self) -> float:
        """CPU time of its training, or of its planning: on a core of its own, that is wall time."""
        return QUICK_BUDGET if self.quick else SYSTEMS[self.system].budget_s

    @property
    def episodes(self) -> int:
        """Fresh starts that it is judged on."""
        return QUICK_EPISODES if self.quick else EPISODES

    @property
    def words(self) -> list[str]:
        """Settings besides formula, seed and folder."""
        method, system = METHODS[self.method], SYSTEMS[self.system]
        replan = [f"algo.replan={system.replan}"]
        budget = [f"algo.max_seconds={self.budget_s}", CPU_CLOCK]
        own = {catalog.LEARNER: [*system.words, *budget, f"algo.total_steps={ENDLESS}", "algo.threads=1"],
               catalog.MODEL: [*budget, f"algo.updates={ENDLESS}", *replan],
               catalog.PLANNER: replan}[method.kind]
        return ["threads=1", *method.words, *own, *system.of.get(self.method, ())]


def selection(
    tasks: Sequence[str], quick: bool, systems: Sequence[str] | None, methods: Sequence[str] | None,
    wanted: Sequence[str] | None, seeds: Sequence[str] | None,
) -> list[Item]:
    """The trials asked for, all of the first seed first; ``tasks``: those that there are."""
    known = [system for system in SYSTEMS if any(averages.system_of(task) == system for task in tasks)]
    robots = chosen("systems", systems, known)
    own = [task for task in tasks if averages.system_of(task) in robots]
    default = [task for task in QUICK_TASKS if task in own] if quick and systems is None else _few(own, quick)
    formulas = chosen("tasks", wanted, own, default)
    numbers = asked_seeds(seeds, QUICK_SEEDS if quick else SEEDS)
    usual = [method for method in METHODS if not (quick and method in QUICK_WITHOUT)]
    which = chosen("methods", methods, list(METHODS), usual)
    items = [Item(task, method, seed, quick) for seed in numbers for task in formulas for method in which
             if METHODS[method].systems is None or averages.system_of(task) in METHODS[method].systems]
    if not items:
        reasons = "; ".join(f"{method} is for {', '.join(METHODS[method].systems or SYSTEMS)}" for method in which)
        raise BadInput(f"there is nothing to do: none of {', '.join(formulas) or 'no formula'} is of a system that a "
                       f"method takes ({reasons})")
    return items


def _few(tasks: Sequence[str], quick: bool) -> list[str]:
    """Of a quick run on named systems: the two first formulas of each."""
    if not quick:
        return list(tasks)
    by_system: dict[str, list[str]] = {}
    for task in tasks:
        by_system.setdefault(averages.system_of(task), []).append(task)
    return [task for found in by_system.values() for task in found[:2]]


def chosen(
    option: str, given: Sequence[str] | None, known: Sequence[str], default: Sequence[str] | None = None
) -> list[str]:
    """What is ``given``, checked, in the order of ``known``; the default where nothing is."""
    if given is None:
        return list(known if default is None else default)
    unknown = [word for word in given if word not in known]
    if unknown or not given:
        problem = f"there is no {unknown[0]!r}" if unknown else "name at least one"
        raise BadInput(f"--{option}: {problem}; legal: {', '.join(known)}")
    return [word for word in known if word in given]


def suite_tasks() -> list[str]:
    """The formulas that there are, of systems of the suite."""
    from temporeal.policies.runs.settings.folders import groups

    names = [name.removeprefix("stl/") for name in groups()["task"] if name.startswith("stl/")]
    order = list(SYSTEMS)
    return sorted((n for n in names if averages.system_of(n) in SYSTEMS),
                  key=lambda n: (order.index(averages.system_of(n)), averages.steps_of(n) or 0, n))
