"""What a trial depends on: digests of the code and of the method's settings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from temporeal.policies.evaluate.suite.catalog import METHODS
from temporeal_benchmarks import code_digest as digests
from temporeal_benchmarks.stl_study.formula_files import OF_METHODS, formula_digest
from temporeal_benchmarks.stl_study.items import Item

CODE = ("robots", "sim", "policies/algos", "policies/planners", "policies/training", "policies/nets", "policies/runs",
        "configs/config.yaml", "configs/algo", "configs/backend", "configs/robot", "configs/randomize",
        "configs/curriculum", "configs/experiment", "configs/task/stl", "policies/cli/verbs/train.py",
        "benchmarks/stl_study/trial.py", "policies/evaluate/evaluation.py", "policies/evaluate/statistics.py",
        "policies/evaluate/full_horizon.py", "policies/evaluate/partial.py", "policies/evaluate/rollout.py")
"""What trials depend on; files of other systems, methods and formulas are left out (:func:`needed`)."""
ALONE = ("apg", "cem", "milp", "npc", "reflex", "tgpo")  # algorithms that no other one needs
DIGESTED = ("algo=", "algo.", "num_worlds=", *(f"task.settings.{name}=" for name in OF_METHODS))
"""How words begin that are in the digest of a trial's settings."""


def besides(words: Iterable[str]) -> list[str]:
    """The ``words`` of a command line that are not in the digest of settings."""
    return [word for word in words if not word.startswith(DIGESTED)]


def code_digest(item: Item) -> str:
    """Of the sources and settings that a trial depends on."""
    return digests.code_digest(CODE, lambda path: needed(path, item, METHODS[item.method].algo))


def settings_digest(item: Item) -> str:
    """Of all settings of the method, as a trial keeps it (:func:`temporeal_benchmarks.stl_study.trial.digest`)."""
    from temporeal.policies.runs.settings import compose
    from temporeal_benchmarks.stl_study import trial

    key = json.dumps([item.words, _beside_formula(item.task, formula_digest(item.task))], sort_keys=True)
    if key not in _DIGESTS:
        _DIGESTS[key] = trial.digest(compose.compose([*item.words, f"task=stl/{item.task}"]))
    return _DIGESTS[key]


_DIGESTS: dict[str, str] = {}
"""By words and the rest of a formula's file: composing settings takes long, and most files differ in formulas only."""


@cache
def _beside_formula(task: str, digest: str) -> Any:
    """What the file of a formula, which has this ``digest``, says beside the formula."""
    import yaml

    from temporeal.policies.runs.settings.folders import file_of
    from temporeal_benchmarks.stl_study.trial import OF_FORMULA

    said = yaml.safe_load(file_of("task", f"stl/{task}").read_text())
    return {**said, "settings": {k: v for k, v in (said.get("settings") or {}).items() if k not in OF_FORMULA}}


def needed(path: str, item: Item, algo: str) -> bool:
    """Whether a trial depends on the source ``path``."""
    folder, _, name = path.rpartition("/")
    stem = name.rpartition(".")[0]
    if folder in ("policies/algos", "policies/planners"):
        return stem == algo or stem not in ALONE
    if folder == "configs/algo":
        return stem in (algo, "ppo", "__init__")
    if folder == "configs/experiment":
        return f"experiment={stem}" in item.words
    if folder == "configs/task/stl":
        return stem in (item.task, "__init__")
    if folder == "sim/systems":
        return stem in (item.system, "__init__")
    return folder != "sim/tasks" or stem in ("stl", "__init__")
