"""What an episode is made of: drawn, recorded, and played again from the record.

    distribution = EpisodeDistribution(seed, task.initial, backend.parameters, randomization, sensors)
    draws = draw_episodes(distribution, worlds, episode)      # what K worlds begin their episodes with
    record = episode_record(distribution, world=17, episode=3)    # the same numbers, of one world, by name
    EpisodeRecord.from_json(record.to_json()) == record
    replay([record])                                        # the same draws again, without the distribution
    env.begin([record])                                     # the same episode again, in an environment of one world

Every draw is keyed by (seed, world, episode), so that a record is made when it is asked for, not kept while the episode
runs. What changes within an episode (white noise, losses, disturbances) is not in the record: it is keyed by the step,
too, and follows from the settings in ``about``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from temporeal.robots.spec import Parameter
from temporeal.sim.compiler.keyed_random import stream, uniform
from temporeal.sim.curriculum.curriculum import Curriculum
from temporeal.sim.randomization.distributions import Distribution, draw_parameters
from temporeal.sim.randomization.sensors import Sensors
from temporeal.sim.renamed import with_current_names

Draw = Callable[[str, int], Tensor]
Named = dict[str, Tensor]
VERSION = 1


class Draws(NamedTuple):
    """What K worlds begin an episode with, [K, ...] each, by name."""

    worlds: Tensor  # int64
    episode: Tensor  # int64
    parameters: Named  # of the backend
    appearance: Named  # of what cameras see
    sensors: Named  # columns of `Sensors.drawn`
    state: Named  # signals at the start, and what the task's own signals remember
    memory: Named  # of a start in mid-episode
    curriculum: Tensor | None  # [K, D]
    mid_episode: Tensor  # [K] bool: starts in mid-episode


@dataclass(frozen=True)
class EpisodeDistribution:
    """Where the draws of an environment's episodes come from.

    Args:
        initial, mid_episode: of the task (:class:`temporeal.sim.task.Task`).
        mid_episode_starts: share of episodes that start in mid-episode.
        truncate_after: control steps, on average, after which those are cut off, with the same probability at each;
            then the share is one of *worlds*, all of whose episodes start so: by steps, long episodes would crowd out
            the short ones. None: they are not cut off.
        parameters, randomization: of the backend. ``visual``, ``appearance``: the same of the camera rig.
        shown: of the task, its ``appearance``: it overrules what is drawn. None: without cameras.
        chances: how many uniform numbers the task's own signals are given at each sample.
    """

    seed: int
    initial: Callable[[Draw], Named]
    parameters: Mapping[str, Parameter]
    randomization: Mapping[str, Distribution]
    sensors: Sensors
    mid_episode: Callable[[Draw], tuple[Named, Named]] | None = None
    mid_episode_starts: float = 0.0
    truncate_after: int | None = None
    visual: Mapping[str, Parameter] = field(default_factory=dict)
    appearance: Mapping[str, Distribution] = field(default_factory=dict)
    curriculum: Curriculum | None = None
    shown: Callable[[Mapping[str, Tensor]], Named] | None = None
    chances: int = 0


def draw_episodes(distribution: EpisodeDistribution, worlds: Tensor, episode: Tensor) -> Draws:
    """The draws of the worlds [K] for their episodes [K]; each row from its own world and episode alone."""
    seed, curriculum = distribution.seed, distribution.curriculum

    def draw(name: str, count: int) -> Tensor:
        return uniform(seed, worlds, episode, stream(name), count)

    parameters = draw_parameters(distribution.parameters, distribution.randomization, seed, worlds, episode)
    appearance = draw_parameters(distribution.visual, distribution.appearance, seed, worlds, episode)
    values, chosen = None, draw
    if curriculum is not None:
        values = curriculum.draw(worlds, episode)
        parameters = curriculum.apply(values, parameters, distribution.parameters)
        appearance = curriculum.apply(values, appearance, distribution.visual)
        chosen = curriculum.steer(draw, values)
    state, memory = distribution.initial(chosen), Named()
    mid_episode = torch.zeros(len(worlds), dtype=torch.bool, device=worlds.device)
    if distribution.mid_episode_starts and distribution.mid_episode is not None:
        there, memory = distribution.mid_episode(draw)
        of = episode if distribution.truncate_after is None else torch.zeros_like(episode)
        # names of streams key the draws: they stay as they are, whatever is renamed
        mid_episode = uniform(seed, worlds, of, stream("explore"), 1)[:, 0] < distribution.mid_episode_starts
        memory = {k: torch.where(_like(mid_episode, v), v, torch.zeros_like(v)) for k, v in memory.items()}
        state = {k: torch.where(_like(mid_episode, v), there[k], v) for k, v in state.items()}
    if distribution.shown is not None:
        appearance |= distribution.shown(state)
    sensors = distribution.sensors.draw_episode(seed, worlds, episode)
    return Draws(worlds, episode, parameters, appearance, sensors, state, memory, values, mid_episode)


def draw_samples(
    distribution: EpisodeDistribution, worlds: Tensor, episode: Tensor, step: Tensor, column: Mapping[str, Tensor]
) -> None:
    """Fill the columns [K, ...] that are drawn anew at each sample ``step`` [K] of the worlds [K]."""
    distribution.sensors.draw_noise(distribution.seed, worlds, episode, step, column)
    if distribution.chances:
        column["chance"].copy_(
            uniform(distribution.seed, worlds, episode, stream("chance"), distribution.chances, step=step))


def _like(flags: Tensor, value: Tensor) -> Tensor:
    """``flags`` [K] so that it broadcasts against ``value`` [K, ...]."""
    return flags.reshape(-1, *[1] * (value.dim() - 1))


# ---------------------------------------------------------------- records

GROUPS = ("parameters", "appearance", "sensors", "state", "memory")


@dataclass(frozen=True)
class EpisodeRecord:
    """The draws of one episode: numbers by name, nested lists as the tensors are shaped, float32 exactly.

    Args:
        curriculum: values by dimension.
        mid_episode: whether it starts in mid-episode.
        about: what else tells one episode from another: of an environment its task, backend and settings.
    """

    seed: int
    world: int
    episode: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    appearance: Mapping[str, Any] = field(default_factory=dict)
    sensors: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    curriculum: Mapping[str, float] = field(default_factory=dict)
    mid_episode: bool = False
    about: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"version": VERSION, **asdict(self)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> EpisodeRecord:
        """The opposite of :meth:`as_dict`; another version or another set of keys is an error."""
        names, data = {f.name for f in fields(EpisodeRecord)}, with_current_names(data)
        if data.get("version") != VERSION or set(data) != {"version", *names}:
            raise ValueError(f"not the record of an episode of version {VERSION}: keys {sorted(data)}, version "
                             f"{data.get('version')!r}; expected {sorted(names)}")
        data["about"] = with_current_names(data["about"])
        return EpisodeRecord(**{key: value for key, value in data.items() if key != "version"})

    def to_json(self) -> str:
        """As JSON: Python writes each float so that it reads back as it was."""
        return json.dumps(self.as_dict())

    @staticmethod
    def from_json(text: str) -> EpisodeRecord:
        """The opposite of :meth:`to_json`."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"not the record of an episode: {error}") from error
        if not isinstance(data, dict):
            raise ValueError(f"not the record of an episode: {text[:40]!r}")
        return EpisodeRecord.from_dict(data)


def episode_record(
    distribution: EpisodeDistribution, world: int, episode: int, about: Mapping[str, Any] | None = None
) -> EpisodeRecord:
    """The record of one episode of ``distribution``.

    With a curriculum only of a world's present or next episode: earlier ones depend on what the teacher knew then.
    """
    if world < 0 or episode < 0:
        raise ValueError(f"world and episode are at least 0, got {world} and {episode}")
    if distribution.curriculum is not None and not distribution.curriculum.knows(world, episode):
        raise ValueError(f"world {world} has not drawn episode {episode}, or too long ago: with a curriculum only its "
                         f"present and its next episode can be recorded")
    draws = draw_episodes(distribution, torch.tensor([world]), torch.tensor([episode]))
    values = {}
    if distribution.curriculum is not None and draws.curriculum is not None:
        values = dict(zip(distribution.curriculum.names, draws.curriculum[0].tolist()))
    groups = {group: {k: v[0].tolist() for k, v in getattr(draws, group).items()} for group in GROUPS}
    return EpisodeRecord(distribution.seed, world, episode, **groups, curriculum=values,
                         mid_episode=bool(draws.mid_episode[0]), about=dict(about or {}))


def plain(value: Any) -> Any:
    """``value`` as JSON gives it back: mappings, lists, numbers, texts; of others what they print."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, Tensor) or hasattr(value, "tolist"):
        return plain(value.tolist())
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def require_same(what: str, was: Mapping[str, Any], now: Mapping[str, Any], but: Collection[str] = ()) -> None:
    """A ValueError that names each key with both values where ``was`` differs from ``now``, keys ``but`` left out."""
    different = [f"{key}: it has {was.get(key)!r}, here it is {now.get(key)!r}" for key in {**was, **now}
                 if key not in but and (key not in was or key not in now or was[key] != now[key])]
    if different:
        raise ValueError(f"{what} does not fit this environment; {'; '.join(different)}")


def replay(records: Sequence[EpisodeRecord], device: torch.device | str = "cpu") -> Draws:
    """The draws of K recorded episodes, [K, ...]: to set parameters and state with, and to key what is drawn per step.

    All must be of the same seed and have the same names.
    """
    if not records:
        raise ValueError("replay needs at least one record")
    if len({r.seed for r in records}) > 1:
        raise ValueError(f"records of one replay have one seed, got {sorted({r.seed for r in records})}")
    first, groups = records[0], dict[str, Named]()
    for group in (*GROUPS, "curriculum"):
        names = list(getattr(first, group))
        if any(set(getattr(r, group)) != set(names) for r in records):
            raise ValueError(f"records of one replay have the same {group}, got "
                             f"{[sorted(getattr(r, group)) for r in records]}")
        groups[group] = {name: torch.tensor([getattr(r, group)[name] for r in records], dtype=torch.float32,
                                            device=device) for name in names}
    values = groups.pop("curriculum")
    keys = (torch.tensor([getattr(r, key) for r in records], device=device) for key in ("world", "episode"))
    mid_episode = torch.tensor([r.mid_episode for r in records], device=device)
    return Draws(*keys, **groups, curriculum=torch.stack(list(values.values()), -1) if values else None,
                 mid_episode=mid_episode)
