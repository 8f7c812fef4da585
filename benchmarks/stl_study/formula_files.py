"""Files of formulas, which may be the user's own: whether they can be used, and digests of what they say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from temporeal.policies.evaluate.suite.catalog import SYSTEMS
from temporeal.policies.runs.errors import BadInput
from temporeal_benchmarks.stl_study import renamed

ASKED = ("system", "formula", "constants", "start", "episode_s")
"""Settings of a formula's file that say what is asked for; the others are for methods."""
OF_METHODS = ("view", "of_view", "reward")
"""Settings of the task that a method has, not a formula's file."""
ROOM = ("slack", "margin")
"""Settings of the task that are TGPO's alone, of which the formula says how large they may be."""


def check_files(tasks: Iterable[str]) -> None:
    """The files of the formulas ``tasks`` can be used."""
    for task in tasks:
        if found := flaw(task):
            raise BadInput(found)


def flaw(task: str) -> str:
    """What is wrong with a formula's file that is the user's own, the formula in it too; empty where nothing is."""
    from temporeal.policies.runs.settings.folders import file_of

    ours = Path(str(files("temporeal.configs"))) / "task" / "stl" / f"{task}.yaml"
    return "" if file_of("task", f"stl/{task}") == ours else _flaw(task, formula_digest(task))


@cache
def _flaw(task: str, digest: str) -> str:
    """:func:`flaw`, of the file that has this ``digest``."""
    from temporeal.policies.runs.settings import compose, folders
    from temporeal.robots.registry import resolve
    from temporeal.sim.task import default_of

    try:
        said = compose.compose([f"task=stl/{task}"])["task"]
    except BadInput as error:
        return str(error)
    system, _, rest = task.partition("_")
    own = (said.get("settings") or {}).get("system", default_of(resolve("temporeal.sim.tasks", said["name"]), "system"))
    if own == system:
        return _flaw_of_formula(task, said)
    other = f", or name it {own}_{rest}.yaml" if own in SYSTEMS else ""
    file = folders.file_of("task", f"stl/{task}")
    return (f"{file}: its name begins with {system!r}, but settings.system is {own!r}: say system: {system}{other}; "
            f"systems: {', '.join(SYSTEMS)}")


def _flaw_of_formula(task: str, said: Mapping[str, Any]) -> str:
    """What is wrong with the formula of a file that says ``said``, whatever a method makes of it."""
    from temporeal.policies.runs import environments
    from temporeal.policies.runs.settings import folders
    from temporeal.robots.registry import guess, resolve
    from temporeal.sim.stl.language.errors import FormulaError
    from temporeal.sim.task import load_task

    given, file = said.get("settings") or {}, folders.file_of("task", f"stl/{task}")
    known = resolve("temporeal.sim.tasks", said["name"]).make.__kwdefaults__
    legal = [name for name in known if name not in OF_METHODS]
    if unknown := [name for name in given if name not in legal]:
        rule = ("each method has its own: leave it out" if unknown[0] in OF_METHODS else
                f"{guess(unknown[0], legal)}legal: {', '.join(legal)}")
        return f"{file}: settings.{unknown[0]}: {rule}"
    asked = {name: value for name, value in given.items() if name in ASKED}
    room = {name: value for name, value in given.items() if name in ROOM}
    try:
        # the view that takes all formulas
        environments.make_task({"task": {**said, "settings": {**asked, "view": "terminal_robustness"}}})
        if room:
            with suppress(FormulaError):  # one that is not TGPO's: its trial says so
                load_task(said["name"], **asked, **room)
    except (BadInput, ValueError) as error:
        return f"{file}: {error}"
    return ""


def formula_digest(task: str) -> str:
    """Of a formula's file, which may be the user's own."""
    from temporeal.policies.runs.settings.folders import file_of

    path = file_of("task", f"stl/{task}")
    if path is None:
        raise BadInput(f"there is no formula {task!r} any more: its file was there when the study began")
    return hashlib.sha256(renamed.file_as_then(path.read_bytes())).hexdigest()[:16]
