"""Whether a base goes on in another task or on another robot (``base.transfer=true``): what it reads and what it
commands must be the same there, by name, shape, unit and frame; which task it is need not.

A policy of chunks reads signals and gives commands of a robot: these are compared, and how the task observes them is
not its affair. A policy of the task's observation is asked, as :mod:`temporeal.policies.training.warm_starts.by_name`
does: each number of both observations must be the same function of the signals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from temporeal.policies.runs import chunks, environments
from temporeal.policies.runs.learners import module_of
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.tuning_runs.bases import pictures_of

if TYPE_CHECKING:
    from temporeal.policies.training.chunks.policy import ChunkPolicy
    from temporeal.robots.signals import SignalSpec
    from temporeal.sim.maps import ObserveMap
    from temporeal.sim.task import Task


def elsewhere(before: Settings, task: Task) -> Iterator[str]:
    """What of the task that a base was trained on keeps it from going on in ``task``, in words."""
    then = environments.make_task(before)
    yield from other_commands(then, task)
    if not math.isclose(then.control_dt, task.control_dt, rel_tol=1e-6):
        yield f"rate {1 / then.control_dt:g} Hz, here {1 / task.control_dt:g} Hz"
    if chunks.gives_chunks(before):
        return
    if hasattr(module_of(before["algo"]["name"]), "load_graph") and then.name != task.name:
        yield f"algo={before['algo']['name']}, whose policy knows the formula of task {then.name}, here {task.name}"
    reads = cast("ObserveMap", then.observe).signals
    yield from other_signals({name: then.schema[name] for name in reads if name in then.schema}, task.schema)
    yield from other_numbers(then, task)
    yield from other_action(then.act, task.act)


def other_commands(then: Task, now: Task) -> Iterator[str]:
    """What differs between two tasks' commands."""
    if then.command != now.command:
        yield f"command {then.command}, here {now.command}"
        return
    was, here = (each.robot.command(each.command) for each in (then, now))
    for what in ("size", "unit", "low", "high"):
        before, after = (plain(getattr(each, what)) for each in (was, here))
        if before != after:
            yield f"{what} of {then.command} {before}, here {after}"


def plain(value: Any) -> Any:
    """Arrays as lists."""
    return [round(float(x), 6) for x in value] if hasattr(value, "__iter__") and not isinstance(value, str) else value


def other_signals(reads: Mapping[str, SignalSpec], shows: Mapping[str, SignalSpec]) -> Iterator[str]:
    """What differs of the signals that a base reads from those that the worlds show."""
    if missing := [name for name in reads if name not in shows]:
        yield f"it reads {', '.join(missing)}, which is not here"
    for name, spec in reads.items():
        if (here := shows.get(name)) is None:
            continue
        for what in ("shape", "unit", "frame"):
            was, now = getattr(spec, what), getattr(here, what)
            if was != now:
                yield f"{what} of {name} {was}, here {now}"


def other_numbers(then: Task, now: Task) -> Iterator[str]:
    """Numbers of two observations that are not the same function of the signals and of the memory."""
    from temporeal.policies.training.warm_starts.by_name import made_of, probes, shown

    was, here = cast("ObserveMap", then.observe), cast("ObserveMap", now.observe)
    sizes = [{name: tuple(shape) for name, shape in each.memory.items()} for each in (was, here)]
    if was.obs_dim != here.obs_dim or set(was.signals) != set(here.signals) or sizes[0] != sizes[1]:
        yield (f"observation of {was.obs_dim} numbers, made of {', '.join(was.signals)}, here of {here.obs_dim}, made "
               f"of {', '.join(here.signals)}")
        return
    drawn = probes({**now.schema, **then.schema})
    if any(then.schema[name].shape != now.schema[name].shape for name in was.signals):
        return  # told already
    apart = (shown(was, drawn) != shown(here, drawn)).any(0).nonzero()[:, 0].tolist()
    if apart:
        names = dict.fromkeys(name for number in apart for name in made_of(was, drawn, number))
        yield f"{len(apart)} numbers of the observation, of {', '.join(names)}, are made otherwise here"


def other_action(then: Any, now: Any) -> Iterator[str]:
    """What differs between two action maps: their kind, size and constants."""
    import torch

    if type(then) is not type(now) or then.action_dim != now.action_dim:
        yield (f"action {type(then).__name__} of {then.action_dim} numbers, here {type(now).__name__} of "
               f"{now.action_dim}")
        return
    was, here = then.state_dict(), now.state_dict()
    names = [name for name in dict.fromkeys((*was, *here))
             if name not in was or name not in here or not torch.equal(was[name], here[name])]
    names += [name for name in dict.fromkeys((*vars(then), *vars(now))) if not name.startswith("_")
              and any(isinstance(vars(each).get(name), (int, float)) for each in (then, now))
              and vars(then).get(name) != vars(now).get(name)]
    if names:
        yield f"{', '.join(names)} of {type(then).__name__}"


def unread(policy: ChunkPolicy, task: Task, settings: Settings) -> list[str]:
    """What a policy of chunks reads that ``task``, with the cameras of ``settings``, does not show, in words."""
    reads = {name: policy.interface.signals[name] for name in policy.signals}
    shows = {**task.schema, **pictures_of(settings)}
    pictured = [name for name, spec in reads.items() if spec.dtype == "uint8"]
    found = list(other_signals({name: spec for name, spec in reads.items() if name not in pictured}, shows))
    return found + [f"it sees {name}, which no camera shows here" for name in pictured if name not in shows]
