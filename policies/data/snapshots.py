"""Starts at states of recorded episodes: an episode begins where a teacher's trajectory has been.

Zhao et al. 2024, SnapshotRL (arXiv 2403.00673): all samples are as likely here, without its classification of states.

A start is what the simulator is set to (signals of the dataset, velocities where the simulator takes them), and what
the task's maps and its objective would remember there: the episode is run through both. Contacts, the inner states of
actuators and disturbances are in no dataset: they begin at rest. S samples, N episodes, G starts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface
from temporeal.policies.data.episodes.layout import is_picture
from temporeal.policies.data.objective_rewards import by
from temporeal.policies.data.views import Padded, TaskView, transitions
from temporeal.sim.draws import one_of
from temporeal.sim.maps import initial_memory

if TYPE_CHECKING:
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.sim.env import Env
    from temporeal.sim.task import Task

Draw = Callable[[str, int], Tensor]


@dataclass(frozen=True)
class Snapshots:
    """G starts in mid-episode, [G, ...] each, as :class:`temporeal.sim.task.Task` has them.

    Args:
        state: of the simulator and of the task's own signals; ``memory``: with ``tick``, steps since the mission began.
        plain: the task's own starts.
        resting: shapes of signals in ``state`` that those leave at zero: velocities.
    """

    state: Mapping[str, Tensor]
    memory: Mapping[str, Tensor]
    plain: Callable[[Draw], dict[str, Tensor]]
    resting: Mapping[str, tuple[int, ...]]

    def initial(self, draw: Draw) -> dict[str, Tensor]:
        """The task's own starts, with all signals that snapshots have."""
        found = self.plain(draw)
        like = next(iter(found.values()))
        return {**found, **{name: like.new_zeros(len(like), *shape) for name, shape in self.resting.items()}}

    def mid_episode(self, draw: Draw) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """State and memory of K worlds, each start as likely as any."""
        u = draw("snapshots", 1)[:, 0]
        return one_of(self.state, u), one_of(self.memory, u)


@dataclass(frozen=True)
class SnapshotView:
    """A sample as one row of all that a start there needs; ``names``: signals that are read."""

    task: Task
    names: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]

    def check(self, interface: Interface) -> None:
        """As of the policy's view."""
        TaskView(self.task).check(interface)

    @torch.no_grad()
    def __call__(self, episodes: Padded, action: ActionSpec) -> tuple[Tensor, Tensor]:
        """Rows [S, N, W] and actions [S, N, A]."""
        observe, objective = self.task.observe, self.task.objective
        given = TaskView(self.task)(episodes, action)[1]
        count, rows = given.shape[1], list[Tensor]()
        memory = initial_memory(observe, count)
        carry = {name: torch.zeros(count, *shape) for name, shape in objective.carry.items()}
        try:
            for k in range(len(given)):
                signals = {name: values[k] for name, values in episodes.signals.items()}
                held = {**signals, **memory, **carry, "tick": torch.full((count,), float(k))}
                rows.append(torch.cat([held[name].reshape(count, -1) for name in self.shapes], -1))
                memory = observe(signals, memory)[1]
                memory = {**memory, **observe.record(memory, given[k])}
                carry |= objective.step(signals, given[k - 1], carry)[2] if k else objective.start(signals, carry)
        except KeyError as error:
            raise DataError(f"a start there needs the signal {error.args[0]!r}, which the dataset has not; it has: "
                            f"{', '.join(self.names)}") from error
        return torch.stack(rows), given

    def obs_names(self, interface: Interface) -> tuple[str, ...]:
        """None."""
        return ()


def snapshots_of(dataset: Dataset, task: Task, settable: Collection[str]) -> Snapshots:
    """Each sample of the episodes of ``dataset`` that were not judged a failure as a start of ``task``.

    Args:
        settable: signals that a reset of the simulator takes beside those that the task's starts set.
    """
    signals, started = dataset.interface.signals, task.initial(lambda _, count: torch.rand(1, count))
    if missing := [name for name in started if name not in signals]:
        raise DataError(f"algo.snapshots: the starts of task {task.name!r} are set by {', '.join(missing)}, which the "
                        f"dataset has not; it has: {', '.join(signals)}")
    moving = {name: tuple(signals[name].shape) for name in signals
              if name in settable and name not in started and signals[name].unit in ("m/s", "rad/s")}
    state = {**{name: tuple(value.shape[1:]) for name, value in started.items()}, **moving}
    memory = {**dict(task.observe.memory), **dict(task.objective.carry), "tick": ()}
    if both := set(state) & set(memory):
        raise DataError(f"algo.snapshots: {', '.join(sorted(both))} of task {task.name!r} are signals and memory alike")
    episodes = [e for e, record in enumerate(dataset.records) if record.success is not False]
    if not episodes:
        raise DataError(f"algo.snapshots: {dataset.folder} holds no episode but failures: a teacher's are successes")
    view = SnapshotView(task, tuple(n for n, of in signals.items() if not is_picture(of)), {**state, **memory})
    rows = transitions(dataset, view, reward=by(task.objective), episodes=episodes).obs
    parts = rows.split([prod(shape) for shape in view.shapes.values()], -1)
    found = {name: part.reshape(-1, *shape) for part, (name, shape) in zip(parts, view.shapes.items())}
    return Snapshots({name: found[name] for name in state}, {name: found[name] for name in memory}, task.initial,
                     moving)


def begin_at_snapshots(env: Env, dataset: Dataset) -> None:
    """The mid-episode starts of ``env`` are states of ``dataset``; how many there are is said elsewhere
    (:meth:`temporeal.sim.env.Env.set_mid_episode_starts`)."""
    if share := env.distribution.mid_episode_starts:
        raise DataError(f"task.mid_episode_starts={share:g} are the task's own, algo.snapshots those of the dataset: "
                        "task.mid_episode_starts=0, or algo.snapshots=0")
    settable = getattr(getattr(env.backend, "model", None), "writes", ())
    found = snapshots_of(dataset, env.task, settable)
    env.task = replace(env.task, initial=found.initial, mid_episode=found.mid_episode)
    env.distribution = replace(env.distribution, initial=found.initial, mid_episode=found.mid_episode)
