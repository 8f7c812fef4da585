"""Whether a base fits the task that its residual is trained on.

A residual is trained for a world that its base did not see: randomization, disturbances, tolerances, a time limit or a
reward may differ. What its base's numbers are may not: the robot, the command, the rate, and for a policy that reads
the task's observation the signals that it is made of, by name and order, with its memory. Some tasks show many worlds
in one layout; there :data:`WORLDS` are the settings that say what the numbers are of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs import chunks, environments
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.transferring import elsewhere
from temporeal.policies.runs.run_folders import title_of
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.settings.values import shown

if TYPE_CHECKING:
    from temporeal.sim.task import Task

WORLDS: Mapping[str, tuple[str, ...]] = {
    "metaworld": ("env",), "ogbench": ("env",), "stl": ("system", "formula", "view", "of_view")}
"""Settings of a task that say what its observation is of. ``stl``'s shows the schedule of its formula."""
VIEWS = ("view", "of_view")
"""Those that are about the observation alone: what reads signals itself does not ask."""


def check_fit(
    folder: Path, before: Settings, settings: Settings, task: Task, *, trained: bool, transfer: bool = False
) -> None:
    """Refuse the run in ``folder``, of settings ``before``, as a base on ``task``; all that differs is named.

    Args:
        trained: the residual was trained, on what this base fits, and its worlds may be changed to judge it.
        transfer: it goes on in another task or on another robot (:mod:`temporeal.policies.runs.residual.transferring`).
    """
    if transfer:
        return refuse(folder, settings, list(elsewhere(before, task)))
    found = list(differences(before, settings, task))
    views = VIEWS if chunks.gives_chunks(before) else ()
    found = found if trained else [*found, *other_worlds(before["task"], settings["task"], without=views)]
    goes = bool(found) and all(each.startswith(WHICH) for each in found) and not list(elsewhere(before, task))
    refuse(folder, settings, found, ELSEWHERE if goes else "" if trained else needed(before, settings, task))


def needed(before: Settings, settings: Settings, task: Task) -> str:
    """Which bases fit ``task``; and of a base of another task, the words for its own."""
    name = before["task"]["name"]
    own = f"; this one was trained with task={name}" if name != settings["task"]["name"] else ""
    return (f". Needed is a base of task {title_of(settings)} on robot {task.robot.name} at {1 / task.control_dt:g} Hz"
            f"{own}")


WHICH = ("task ", "robot ", "action ", "task.settings.")
"""How differences begin that say which world it is, and not what numbers mean."""
ELSEWHERE = (". What it commands is the same, and so may be what it reads: base.transfer=true corrects it here all the "
             "same")


FOLLOWS_ITS_FORMULA = "tgpo"
"""The learner whose policy follows its own formula wherever it goes: ``base.transfer`` makes no other of it."""


def follows_its_formula(before: Mapping[str, Any]) -> bool:
    """Whether what the settings ``before`` trained follows its own formula in any world."""
    return bool((before.get("algo") or {}).get("name") == FOLLOWS_ITS_FORMULA)


def check_worlds(folder: Path, before: Settings, settings: Settings) -> None:
    """The same of an artifact, of which the rest is compared where it acts."""
    was, here = before["task"], settings["task"]
    found = list(other_worlds(was, here, without=VIEWS))
    if follows_its_formula(before) and was["name"] != here["name"]:
        found.append(f"algo={FOLLOWS_ITS_FORMULA}, whose policy follows the formula of task {was['name']}, here "
                     f"{here['name']}")
    refuse(folder, settings, found)


def refuse(folder: Path, settings: Settings, found: Sequence[str], instead: str = "") -> None:
    """Refuse the base in ``folder`` for what was ``found``, if anything. ``instead``: what can be done."""
    if found:
        raise BadInput(f"base.policy={folder} does not fit {title_of(settings)}: {'; '.join(found)}{instead}")


def differences(before: Settings, settings: Settings, task: Task) -> Iterator[str]:
    """What differs between the task of a base and ``task``, in words."""
    then = environments.make_task(before)
    told = [("task", before["task"]["name"], settings["task"]["name"]), ("robot", then.robot.name, task.robot.name),
            ("command", then.command, task.command), ("action", f"{then.act.action_dim} numbers",
                                                      f"{task.act.action_dim} numbers")]
    yield from (f"{what} {was}, here {now}" for what, was, now in told if was != now)
    if not math.isclose(then.control_dt, task.control_dt, rel_tol=1e-6):
        yield f"rate {1 / then.control_dt:g} Hz, here {1 / task.control_dt:g} Hz"
    if not chunks.gives_chunks(before):
        yield from other_observation(then.observe, task.observe)
    for name, spec in then.schema.items():
        now = task.schema.get(name)
        if now is not None and (spec.shape, spec.unit) != (now.shape, now.unit):
            yield f"signal {name} {list(spec.shape)} {spec.unit}, here {list(now.shape)} {now.unit}"


def other_observation(then: Any, now: Any) -> Iterator[str]:
    """What differs in the make-up of two observations."""
    if then.obs_dim != now.obs_dim:
        yield f"observation of {then.obs_dim} numbers, here {now.obs_dim}"
    if tuple(then.signals) != tuple(now.signals):
        yield f"observation made of {', '.join(then.signals)}, here of {', '.join(now.signals)}"
    was, here = ({name: tuple(shape) for name, shape in each.memory.items()} for each in (then, now))
    for name in dict.fromkeys((*was, *here)):
        if was.get(name) != here.get(name):
            sizes = ["none" if shape is None else str(list(shape)) for shape in (was.get(name), here.get(name))]
            yield f"memory {name} of the observation {sizes[0]}, here {sizes[1]}"


def other_worlds(
    then: Mapping[str, Any], now: Mapping[str, Any], without: Sequence[str] = ()
) -> Iterator[str]:
    """Settings of one task that say that its observation is of something else, ``without`` some."""
    if then["name"] != now["name"]:
        return
    alike = ALIKE.get(now["name"], same_words)
    for key in (each for each in WORLDS.get(now["name"], ()) if each not in without):
        was, here = ((each.get("settings") or {}).get(key) for each in (then, now))
        if not alike(was, here):
            yield f"task.settings.{key} {shown(said(was))}, here {shown(said(here))}"


def same_words(was: Any, here: Any) -> bool:
    """Whether two settings are said alike."""
    return bool(said(was) == said(here))


def said(value: Any) -> Any:
    """A setting without the spaces and line ends in it."""
    return "".join(value.split()) if isinstance(value, str) else value


def same_sawyer(was: Any, here: Any) -> bool:
    """Whether a policy of Meta-World's environments ``was`` knows what those of ``here`` show: they are among them, or
    have fewer or more starts of the same, as ``peg-hard`` has of ``peg-insert-side-v3``."""
    from temporeal.sim.adapters.meta_world_sentences import MT10
    from temporeal.sim.adapters.meta_world_worlds import original

    known, shows = ({original(part.strip()) for part in (MT10 if text == "mt10" else str(text).split(","))}
                    for text in (was, here))
    return shows <= known


ALIKE: Mapping[str, Callable[[Any, Any], bool]] = {"metaworld": same_sawyer}
"""Where other words are the same world, for a policy."""
