"""Datasets as transitions: signals to observations, commands to actions in [-1, 1]. S samples, N episodes, M steps.

Episodes are padded and go through the maps together, step by step: the maps have memory. Nothing loops over samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.data import learnable
from temporeal.policies.data.episodes.interface import ActionSpec, DataError, Interface, require_same
from temporeal.policies.data.episodes.layout import ACTION, HAS_ACTION, POLICY_ACTION, REWARD, is_picture
from temporeal.policies.data.objective_rewards import StepRewards
from temporeal.policies.data.transitions import Transitions
from temporeal.sim.maps import initial_memory
from temporeal.sim.task import MISSION_TIME

if TYPE_CHECKING:
    from temporeal.policies.data.episodes.dataset import Dataset
    from temporeal.sim.task import Task

NO_REWARD = "relabel them (temporeal data relabel), or learn with algo.reward=formula"
ROWS = 1 << 20
"""Padded samples that go through the maps at once: some hundred megabytes."""


@dataclass(frozen=True)
class Padded:
    """N episodes, padded to the longest: S samples.

    Args:
        signals: name -> float32 [S, N, ...], the mission's time among them.
        command: [S, N, U], in its units; the last of an episode repeated after it.
        policy_action: [S, N, A] in [-1, 1]; None: the dataset has none.
    """

    signals: Mapping[str, Tensor]
    command: Tensor
    policy_action: Tensor | None


class View(Protocol):
    """What a learner is shown of a dataset."""

    @property
    def names(self) -> tuple[str, ...]:
        """Signals that are read."""

    def check(self, interface: Interface) -> None:
        """:class:`DataError` if a dataset of this interface cannot be shown so, by the name of what differs."""

    def __call__(self, episodes: Padded, action: ActionSpec) -> tuple[Tensor, Tensor]:
        """Observations [S, N, O] and actions [S, N, A] in [-1, 1]."""

    def obs_names(self, interface: Interface) -> tuple[str, ...]:
        """A name for each of the O numbers; () where unknown."""


@dataclass(frozen=True)
class TaskView:
    """The task's own observation map, its memory included, and the inverse of its action map where the dataset does not
    hold what the task's policy gave."""

    task: Task

    @property
    def names(self) -> tuple[str, ...]:
        """Signals that the map reads, without the mission's time, which the samples' order gives."""
        return tuple(name for name in self.task.observe.signals if name != MISSION_TIME.name)

    def check(self, interface: Interface) -> None:
        """The robot, the rate, the command and the signals that the map reads are the task's."""
        seen = {name: spec for name, spec in interface.signals.items() if name in self.names}
        wanted = interface_of(self.task, self.names, interface)
        require_same(wanted, replace(interface, signals=seen), f"task {self.task.name!r} and the dataset")

    @torch.no_grad()
    def __call__(self, episodes: Padded, action: ActionSpec) -> tuple[Tensor, Tensor]:
        """Observations [S, N, O] and actions [S, N, A]."""
        observe, act = self.task.observe, self.task.act
        samples, count = episodes.command.shape[:2]
        memory, seen, given = initial_memory(observe, count), [], []
        for k in range(samples):
            signals = {name: values[k] for name, values in episodes.signals.items()}
            obs, memory = observe(signals, memory)
            chosen = (episodes.policy_action[k] if episodes.policy_action is not None
                      else act.inverse(episodes.command[k], memory)).clamp(-1.0, 1.0)
            memory = {**memory, **observe.record(memory, chosen)}
            seen.append(obs)
            given.append(chosen)
        return torch.stack(seen), torch.stack(given)

    def obs_names(self, interface: Interface) -> tuple[str, ...]:
        """Those that the map gives its numbers (``names``), which most do not."""
        return tuple(getattr(self.task.observe, "names", ()))


@dataclass(frozen=True)
class FlatView:
    """Signals beside each other, and the command between its limits as [-1, 1]."""

    names: tuple[str, ...]

    def check(self, interface: Interface) -> None:
        """The signals are there, and the command has finite limits."""
        if missing := [name for name in self.names if name not in interface.signals]:
            raise DataError(f"the dataset has no signals {missing}; it has: {', '.join(interface.signals)}")
        if not interface.task_action and not np.isfinite([*interface.action.low, *interface.action.high]).all():
            raise DataError(f"action {interface.action.name!r} has no finite limits, which make it a number in [-1, 1]")

    def __call__(self, episodes: Padded, action: ActionSpec) -> tuple[Tensor, Tensor]:
        """Observations [S, N, O] and actions [S, N, A]."""
        obs = torch.cat([episodes.signals[name].flatten(2) if episodes.signals[name].ndim > 2
                         else episodes.signals[name][..., None] for name in self.names], -1)
        if episodes.policy_action is not None:
            return obs, episodes.policy_action.clamp(-1.0, 1.0)
        low, high = torch.tensor(action.low), torch.tensor(action.high)
        return obs, ((2.0 * episodes.command - low - high) / (high - low).clamp(min=1e-12)).clamp(-1.0, 1.0)

    def obs_names(self, interface: Interface) -> tuple[str, ...]:
        """``signal`` or ``signal[i]``."""
        sizes = {name: int(np.prod(interface.signals[name].shape)) for name in self.names}
        return tuple(name if not interface.signals[name].shape else f"{name}[{i}]"
                     for name, size in sizes.items() for i in range(size))


def task_view(task: Task) -> TaskView:
    """What the task's policy sees and gives."""
    return TaskView(task)


def flat_view(names: Sequence[str]) -> FlatView:
    """The signals ``names``, beside each other."""
    return FlatView(tuple(names))


def interface_of(task: Task, names: Sequence[str], like: Interface) -> Interface:
    """The interface of ``task`` with the signals ``names``; ``like``: has the policy's action or not."""
    command = task.robot.command(task.command)
    return replace(
        like, robot=task.robot.name, rate_hz=1.0 / task.control_dt, signals={n: task.schema[n] for n in names},
        action=replace(like.action, name=command.name, low=tuple(map(float, command.low)),
                       high=tuple(map(float, command.high)), unit=command.unit),
        task_action=task.act.action_dim if like.task_action else 0)


def transitions(
    dataset: Dataset, view: View, *, reward: StepRewards | None = None,
    episodes: Sequence[int] | None = None, weight: np.ndarray | None = None,
) -> Transitions:
    """All steps of ``dataset`` as ``view`` shows them.

    The last step of an episode that does not hold the final state has no successor: it is left out, unless it ended
    the task.

    Args:
        reward: of the steps, and where they end the task; None: as in the data.
        episodes: which; None: all.
        weight: [episodes], how often each is drawn.
    """
    view.check(dataset.interface)
    chosen = np.arange(dataset.episodes) if episodes is None else np.asarray(episodes, dtype=np.int64)
    lengths = np.diff(dataset.starts)[chosen]
    if not len(chosen) or not lengths.sum():
        raise DataError(f"{dataset.folder}: it holds no episodes")
    if reward is None and REWARD not in dataset.columns:
        raise DataError(f"{dataset.folder}: its episodes have no reward; {NO_REWARD}")
    parts = [_steps(dataset, view, chosen[part], reward) for part in _together(lengths)]
    counts = torch.cat([part["count"] for part in parts])
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0] if name != "count"}
    records = [dataset.records[int(e)] for e in chosen]
    success = [np.nan if r.success is None else float(r.success) for r in records]
    bad = learnable.unusable(joined["reward"], 1)
    if bool(bad.any()):
        first = int(torch.repeat_interleave(torch.from_numpy(chosen), counts)[bad][0])
        raise DataError(f"{dataset.folder}: episode {first}: its reward is not known at each step, or is huge "
                        f"({float(joined['reward'][bad][0]):g}); {NO_REWARD}")
    return Transitions(
        **joined, episode=torch.repeat_interleave(torch.arange(len(counts)), counts),
        starts=torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]),
        weight=None if weight is None else torch.as_tensor(weight, dtype=torch.float32),
        success=torch.tensor(success), obs_names=view.obs_names(dataset.interface),
        sample=torch.cat([int(dataset.starts[e]) + torch.arange(int(n)) for e, n in zip(chosen, counts)]))


def _together(lengths: np.ndarray) -> Iterator[slice]:
    """Slices of episodes whose padded samples are :data:`ROWS` at most."""
    begin, longest = 0, 0
    for i, length in enumerate(lengths.tolist()):
        longest = max(longest, length)
        if i > begin and longest * (i + 1 - begin) > ROWS:
            yield slice(begin, i)
            begin, longest = i, length
    yield slice(begin, len(lengths))


def _last_has_action(dataset: Dataset, last: np.ndarray) -> np.ndarray:
    """Whether the samples ``last`` [N] have a command; of a foreign set all have."""
    if HAS_ACTION not in dataset.columns:
        return np.ones(len(last), bool)
    found: np.ndarray = np.asarray(dataset.column(HAS_ACTION))[last].astype(bool)
    return found


def _require_numbers(dataset: Dataset, episodes: Padded, chosen: np.ndarray) -> None:
    """Refuse what is NaN, infinite or huge in the ``chosen`` episodes, by episode and index."""
    given = {**episodes.signals, ACTION: episodes.command}
    if episodes.policy_action is not None:
        given[POLICY_ACTION] = episodes.policy_action
    for name, values in given.items():
        bad = learnable.unusable(values, 2)
        if bool(bad.any()):
            episode, index = (int(place) for place in bad.T.nonzero()[0])
            raise learnable.refusal(values[index, episode], name,
                                    f"{dataset.folder}: episode {int(chosen[episode])}, index {index}")


def _steps(
    dataset: Dataset, view: View, chosen: np.ndarray, reward: StepRewards | None
) -> dict[str, Tensor]:
    """Columns of the steps of the ``chosen`` episodes, and how many each has."""
    starts, lengths = dataset.starts[chosen], np.diff(dataset.starts)[chosen]
    rows = starts[:, None] + np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)  # [N, S]

    def column(key: str) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(np.asarray(dataset.column(key))[rows.T]))

    spec = dataset.interface
    read = view.names if reward is None else [name for name, of in spec.signals.items() if not is_picture(of)]
    clock = torch.arange(rows.shape[1])[:, None].expand(rows.T.shape) / spec.rate_hz
    padded = Padded({MISSION_TIME.name: clock, **{name: column(name).float() for name in dict.fromkeys(read)}},
                    column(ACTION).float(), column(POLICY_ACTION).float() if spec.task_action else None)
    k = torch.arange(rows.shape[1])[:, None]
    _require_numbers(dataset, padded, chosen)
    obs, action = view(padded, spec.action)
    steps = torch.from_numpy(lengths - ~_last_has_action(dataset, starts + lengths - 1))
    ended = torch.tensor([bool(dataset.records[int(e)].terminated) for e in chosen])
    if reward is None:
        earned = column(REWARD).float()
    else:
        earned, over = reward(padded.signals, action)
        over &= k < torch.from_numpy(lengths) - 1
        steps = torch.where(over.any(0), over.int().argmax(0) + 1, steps)
        ended = ended | over.any(0)
    count = torch.where(ended, steps, torch.minimum(steps, torch.from_numpy(lengths) - 1))
    held = (k < count).T  # [N, S]
    following = torch.cat([obs[1:], obs[-1:]])
    mask = 1.0 - ((k == steps - 1) & ended).float()
    return {"obs": obs.transpose(0, 1)[held], "action": action.transpose(0, 1)[held], "reward": earned.T[held],
            "next_obs": following.transpose(0, 1)[held], "mask": mask.T[held], "count": count}
