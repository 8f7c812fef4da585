"""The one vectorized environment: task, backend, sensors and randomization in the one step loop."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from temporeal.robots.registry import UnknownName, names, resolve
from temporeal.sim import diverged_worlds
from temporeal.sim.capabilities import require
from temporeal.sim.compiler import vectorize
from temporeal.sim.compiler.devices import lacks_warp, on_device
from temporeal.sim.compiler.expressions import CannotCompile
from temporeal.sim.compiler.keyed_random import stream, uniform
from temporeal.sim.compiler.step_buffers import Compiled, General, Results, distinct, seen_by
from temporeal.sim.compiler.tracing import alike, joined
from temporeal.sim.curriculum.curriculum import parse_curriculum, start_draws
from temporeal.sim.episodes import (
    Draws,
    EpisodeRecord,
    Recipe,
    draw_episodes,
    episode_record,
    plain,
    replay,
    require_same,
    with_todays_names,
)
from temporeal.sim.physics.tool_servo import commanded
from temporeal.sim.randomization.distributions import Distribution, parse_randomization
from temporeal.sim.randomization.disturbances import Disturbances
from temporeal.sim.randomization.sensors import SensorConfig, Sensors
from temporeal.sim.task import Task
from temporeal.sim.types import Backend, Obs, Step

if TYPE_CHECKING:
    from temporeal.sim.rendering.camera_rig import Pictures
    from temporeal.sim.rendering.cameras import Camera, Images


class Env:
    """N worlds of one task on one backend (``temporeal.sim.types.VecEnv``).

    Everything random is keyed by (seed, world, episode), so that world i sees the same episodes whatever N is.
    The signals before a reset are in ``step.info``: ``info["signals"]`` are the true signals [N, ...] of the step
    just made, ``info["success"]``, ``info["length"]`` and ``info["return"]`` are valid where an episode ended;
    ``info["midway"]`` says which of them were not whole: begun in mid-mission, or cut off at random (:meth:`stagger`).

    What a world remembers (memory of the maps, progress of the mission, goals, delayed samples, noise) is a column of
    one table; what a step makes of it (:meth:`_after`, :meth:`_first`) is a function of that world alone. Both are
    compiled (on a CPU :mod:`temporeal.sim.compiler.vectorize`, on a GPU :mod:`temporeal.sim.compiler.vectorize_warp`);
    with ``compiled=False`` they run as tensor operations, and where Warp is missing on a GPU, with a warning.

    A world whose action, simulation, observation or reward is not finite ends (``info["finite"]`` is false there) and
    counts in ``faults``; one whose first observation is not, in its first step. What is seen and rewarded is always
    finite (0 in place of what is not). :meth:`keep_faults` keeps what made it so.
    """

    def __init__(
        self, task: Task, backend: Backend, *, seed: int = 0, randomize: Mapping[str, Any] | None = None,
        sensors: Mapping[str, Any] | None = None, disturbances: Mapping[str, Any] | None = None,
        curriculum: Mapping[str, Any] | None = None, cameras: Sequence[Camera] = (),
        appearance: Mapping[str, Any] | None = None, renderer: str = "auto", augment: Mapping[str, Any] | None = None,
        explore: float = 0.0, compiled: bool | None = None,
    ) -> None:
        if not 0.0 <= explore <= 1.0:
            raise ValueError(f"explore is the share of episodes that start mid-mission, 0 to 1; got {explore}")
        if explore and task.explore is None:
            raise ValueError(f"task {task.name!r} has no mid-mission starts: explore must be 0, got {explore}")
        self.task, self.backend, self.seed, self.explore = task, backend, seed, explore
        self.num_worlds, self.device = backend.num_worlds, backend.device
        self.on_cpu = self.device.type == "cpu"
        self.excerpt: int | None = None
        """Mean number of steps after which episodes that began in mid-mission are cut off, with the same probability at
        each; then ``explore`` is the share of *worlds* that have such episodes only, so that the steps are shared,
        however long missions last and excerpts do not."""
        self.faults = 0
        self.fault_dir: Path | None = None
        self.randomization = parse_randomization(randomize, backend.parameters)
        self.disturbances = Disturbances.parse(disturbances, self.randomization, backend.parameters,
                                               task.control_dt)
        self.disturbed = bool(self.disturbances.names)
        self._see(cameras, appearance, renderer, augment)
        self.observe, self.act = task.observe.to(self.device), task.act.to(self.device)
        self.objective, self.extra = (on_device(part, self.device) for part in (task.objective, task.extra))
        self.worlds = torch.arange(self.num_worlds, device=self.device)
        self.action_dim, self.command_dim = task.act.action_dim, task.robot.command(task.command).size
        self.keys = self.worlds
        """By which world numbers [N] draws are keyed: other than ``worlds`` after :meth:`begin`."""
        self.instead: Tensor | None = None
        """A command [N, U] that the next step sends in place of the one the action maps to."""
        self.obs_dim = task.observe.obs_dim
        self.critic_dim = self.obs_dim + task.objective.privileged_dim
        self.observed = {"obs": self.obs_dim}  # and where nothing is privileged, the critic sees the same tensor
        if task.objective.privileged_dim:
            self.observed["critic"] = self.critic_dim
        extra = task.extra
        self.chances = extra.chances if extra is not None else 0
        seen = {name: tuple(value.shape[1:]) for name, value in backend.signals().items()}
        self.added = {name: spec.shape for name, spec in extra.signals.items()} if extra is not None else {}
        config = SensorConfig.parse(sensors, (*task.scene.signals, *self.added))
        self.sensors = Sensors(config, {name: {**seen, **self.added}[name] for name in task.observe.signals},
                               task.control_dt)
        visual = self.pictures.rig.parameters if self.pictures is not None else {}
        self.curriculum = parse_curriculum(curriculum, {**backend.parameters, **visual}, start_draws(task.initial),
                                           self.num_worlds, seed)
        if compiled is None:
            compiled = bool(getattr(task.observe, "compiles", True))
            if compiled and not self.on_cpu and (why := lacks_warp()):
                compiled = False
                warnings.warn(f"on {self.device} the steps of the environment run as several hundred operations, which "
                              f"takes many times longer: {why}", stacklevel=2)
        self.compiled = compiled
        if hasattr(task.explore, "compiled"):
            task.explore.compiled = compiled
        self._lay_out(seen, compiled)
        self._clear()
        self._begun = False  # whether all worlds have had a first episode
        self._before: Tensor | None = None
        self.about = about(task, backend, randomize=randomize, sensors=sensors, disturbances=disturbances,
                           appearance=appearance, curriculum=curriculum, explore=explore)
        self.replayed: dict[int, EpisodeRecord] = {}  # by world: the running episodes that are from records

    @property
    def recipe(self) -> Recipe:
        """Where the draws of episodes come from."""
        task, visual = self.task, self.pictures.rig.parameters if self.pictures is not None else {}
        return Recipe(self.seed, task.initial, self.backend.parameters, self.randomization, self.sensors, task.explore,
                      self.explore, visual, self.appearance, self.curriculum, self.excerpt is not None)

    def _take(self, ids: Tensor | None = None) -> Images:
        """Pictures now of the worlds ``ids`` (all if left out), augmented where that was asked for."""
        return self.pictures.take(ids, seed=self.seed, episode=self.episode, step=self.count)

    def _see(
        self, cameras: Sequence[Camera], appearance: Mapping[str, Any] | None, renderer: str,
        augment: Mapping[str, Any] | None,
    ) -> None:
        """The cameras, and how what they see differs from episode to episode."""
        self.pictures: Pictures | None = None
        self.appearance: dict[str, Distribution] = {}
        self.images: Images = {}
        if not cameras:
            if appearance:
                raise ValueError(f"randomize.appearance has {', '.join(appearance)}, but there is no camera: name some")
            if augment:
                raise ValueError(f"augment has {', '.join(augment)}, but there is no camera: name some")
            return
        from temporeal.sim.rendering.camera_rig import Pictures

        self.pictures = Pictures(self.backend, cameras, renderer=renderer, augment=augment)
        self.appearance = parse_randomization(appearance, self.pictures.rig.parameters)

    def _lay_out(self, seen: vectorize.Shapes, compiled: bool) -> None:
        """The columns of the table and the functions over them."""
        s, extra = self.sensors, self.task.extra
        kept: dict[str, tuple[int, ...]] = {
            "count": (), "until": (), "time": (), "return": (), "unsound": (), **s.drawn, **s.noise, **s.past,
            **({"chance": (self.chances,)} if self.chances else {}),
            **{f"memory.{k}": tuple(v) for k, v in self.observe.memory.items()},
            **{f"progress.{k}": tuple(v) for k, v in self.objective.memory.items()},
            **{f"extra.{k}": tuple(v) for k, v in (extra.memory.items() if extra is not None else ())},
            **{f"added.{k}": tuple(v) for k, v in self.added.items()}}
        self.drawing = bool(s.noise or self.chances)
        self.columns: vectorize.Shapes = {**kept, **dict.fromkeys(FIGURES, ())}
        truth = {f"truth.{name}": shape for name, shape in seen.items()}
        found = {name: (size,) for name, size in self.observed.items()}
        actions = {"action": (self.action_dim,)}
        memory = tuple(k for k in kept if k.startswith("memory."))
        make = vectorize.kernels_of(self.device) if compiled else vectorize.Plain
        # columns of the maps' memory that always equal those of the objective's, by the functions themselves
        self.twins: dict[str, str] = {}
        pairs = {place: f"progress.{name}" for name in self.observe.memory
                 if kept[place := f"memory.{name}"] == kept.get(f"progress.{name}")}
        try:
            self.twins, known = alike({self._after: {**kept, **truth, **actions}, self._first: {**kept, **truth}},
                                      pairs if compiled else {})
            after, first = ((x,) for x in known) if known else ((), ())
            self._step = make(self._after, self.columns, {**truth, **actions, **found}, (*kept, *truth, *actions),
                              *after)
            self._start = make(self._first, self.columns, {**truth, **found}, (*kept, *truth), *first)
            self._command = make(self._commanded, self.columns, {**actions, "command": (self.command_dim,)},
                                 (*memory, *actions))
        except CannotCompile as error:
            raise CannotCompile(f"task {self.task.name!r} cannot be compiled: {error}. Slower, but as it is: "
                                f"compiled=false") from error

    def _clear(self) -> None:
        n, device = self.num_worlds, self.device
        self.episode = torch.full((n,), -1, dtype=torch.int64, device=device)
        # columns of running episodes; and those of each world's next episode as it starts, one world after the other,
        # because few of them are read at a time
        self.table = vectorize.table(self.columns, n, device)
        self.next = torch.zeros(n, len(self.table), device=device)
        self.column = vectorize.views(self.table, self.columns, n)
        self.own = {**{name: self.column[f"added.{name}"] for name in self.added}, "mission_time": self.column["time"]}
        figures, sizes = self.table[-len(FIGURES) :, :n], (self.command_dim, *self.observed.values())
        self.work: General | Compiled = General(self._command, self._step, self.table, figures, sizes)
        if isinstance(self._step, vectorize.Kernel) and n % vectorize.LANES == 0:
            self.work = Compiled(self._command, self._step, self.table, figures, sizes, list(self.backend.signals()))
        self.starts: dict[str, dict[str, Tensor]] = {"params": {}, "appearance": {}, "state": {}}
        self.base: dict[str, Tensor] = {}  # what episodes were given of the parameters that change within them
        self.ready = torch.zeros(n, dtype=torch.bool, device=device)
        # whether the running episode, and the next one, begins in the middle of the mission
        self.midway, self.midway_next = torch.zeros_like(self.ready), torch.zeros_like(self.ready)

    # ---- functions of a world: from and to named rows

    def _commanded(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """The command of one world's action."""
        action = x["action"].clamp(-1.0, 1.0)
        return {"command": self.act(action, self.observe.record(_group("memory.", x), action))}

    def _after(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """What one world makes of the signals after a step."""
        return self._judged(x)[0]

    def _judged(self, x: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What one world makes of the signals after a step, and what of it is sound: [N] bool by name."""
        truth, memory, progress = _group("truth.", x), self._memory(x), _group("progress.", x)
        sound = {"start": x["unsound"] < 0.5, "action": _finite(x["action"]),
                 **{f"signal {k}": _finite(v) for k, v in truth.items()}}
        # a world that blew up ends here, counted; it must not poison the others
        truth = {k: _clean(v) for k, v in truth.items()}
        count, action = x["count"] + 1.0, x["action"].clamp(-1.0, 1.0)
        truth, kept = self._complete(truth, x, count)
        memory = {**memory, **self.observe.record(memory, action)}
        reward, terminated, progress = self.objective.step(truth, action, progress)
        success = self.objective.success(truth, progress)
        measured, past = self.sensors.sample(truth, x)
        seen = self._seen(measured, truth, memory, progress)
        sound |= {"reward": torch.isfinite(reward), "observation": _finite(seen["obs"])}
        if "critic" in self.observed:
            sound["privileged"] = _finite(seen["critic"][:, self.obs_dim :])
        finite = reduce(torch.logical_and, sound.values())
        seen |= {name: _clean(seen[name]) for name in self.observed}
        terminated = terminated | ~finite
        reward = torch.where(finite, reward, torch.zeros_like(reward))
        over, cut = count >= self.task.steps, count >= x["until"]
        success = success & ~terminated
        if self.task.finite:
            terminated = terminated | over
        ended = terminated | over | cut
        figures = (reward, ended, terminated, ended & ~terminated, finite, success)
        return {
            "count": count, "return": x["return"] + reward, **dict(zip(FIGURES, figures)), **kept,
            **past, **seen}, sound

    def _first(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """What one world makes of the signals at the start of an episode."""
        truth = _group("truth.", x)
        finite = reduce(torch.logical_and, (_finite(v) for v in truth.values()))
        truth, kept = self._complete({k: _clean(v) for k, v in truth.items()}, x, x["count"])
        progress = self.objective.start(truth, _group("progress.", x))
        measured, past = self.sensors.first(truth, x)
        seen = self._seen(measured, truth, self._memory(x), progress)
        # an episode with an unsound beginning ends in its first step, there is no way to end it before
        finite = finite & reduce(torch.logical_and, (_finite(seen[name]) for name in self.observed))
        seen |= {name: _clean(seen[name]) for name in self.observed}
        return {"unsound": ~finite, **past, **kept, **seen}

    def _memory(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the maps remember; what the objective remembers alike (a mission, where nothing disturbs what the maps
        see of it) from there, so that one computation follows it for both."""
        return _group("memory.", joined(x, self.twins))

    def _complete(
        self, truth: dict[str, Tensor], x: dict[str, Tensor], count: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The simulator's signals with the task's own and the time; and what is kept of these."""
        kept: dict[str, Tensor] = {}
        if self.extra is not None:
            added, memory = self.extra(truth, x.get("chance", count[:, None]), _group("extra.", x))
            truth = {**truth, **added}
            kept = {**{f"extra.{k}": v for k, v in memory.items()}, **{f"added.{k}": v for k, v in added.items()}}
        kept["time"] = count * self.task.control_dt
        return {**truth, "mission_time": kept["time"]}, kept

    def _seen(
        self, measured: dict[str, Tensor], truth: dict[str, Tensor], memory: dict[str, Tensor],
        progress: dict[str, Tensor],
    ) -> dict[str, Tensor]:
        """Observations, and the memory after them."""
        actor, memory = self.observe(measured, memory)
        found = {"obs": actor}
        if "critic" in self.observed:
            found["critic"] = torch.cat([actor, self.objective.privileged(truth, progress)], -1)
        return {**found, **{f"memory.{k}": v for k, v in memory.items()},
                **{f"progress.{k}": v for k, v in progress.items()}}

    # ---- the step loop

    def true_signals(self) -> dict[str, Tensor]:
        """The true signals now, [N, ...]: the simulator's, the task's own and ``mission_time``."""
        return {**self.backend.signals(), **self.own}

    @property
    def count(self) -> Tensor:
        """Control steps since the start of each world's mission, int64 [N]."""
        return self.column["count"].long()

    @torch.no_grad()
    def reset(self) -> Obs:
        """A new episode in every world. The first call starts at episode 0."""
        return self._begin_all()

    def _begin_all(self) -> Obs:
        first = self._begin(self.worlds)
        self._begun = True
        if self.pictures is None:
            return first
        self.images = self._take()
        return first._replace(images=self.images)

    @torch.no_grad()
    def begin(self, episodes: Sequence[EpisodeRecord]) -> Obs:
        """Play recorded episodes, one in each world; their first observations.

        What changes within them (noise, losses, disturbances) is as it was, too: given the same actions, the same
        happens. From then on world i goes by the number ``episodes[i].world``: what follows are that world's next
        episodes.

        Raises:
            ValueError: the records are of another task, seed, backend or settings, there are not as many as worlds, or
                this environment has a curriculum (a record holds what the curriculum chose; leave it out).
        """
        if len(episodes) != self.num_worlds:
            raise ValueError(f"begin takes one record for each of the {self.num_worlds} worlds, got {len(episodes)}")
        if self.curriculum is not None:
            raise ValueError("begin: make the environment without curriculum; records hold what it chose")
        but = RECORDED if self.pictures is not None else (*RECORDED, "appearance")
        for record in episodes:
            require_same("the record of an episode", {**record.about, "seed": record.seed},
                         {**self.about, "seed": self.seed}, but)
        before = self.keys, self.episode.clone()
        drawn = replay(episodes, self.device)
        try:
            self.lay_in(drawn)
            first = self._begin_all()
        except Exception:
            self.keys, self.episode = before
            self.ready[:] = False
            raise
        self.replayed = dict(enumerate(episodes))
        return first

    def lay_in(self, drawn: Draws) -> None:
        """The next episode of world i is row i of ``drawn``; from then on it goes by the number ``drawn.worlds[i]``."""
        self.keys = drawn.worlds
        self.episode.copy_(drawn.episode - 1)
        self._lay_in(self.worlds, drawn)

    def _begin(self, ids: Tensor) -> Obs:
        """Set a new episode for the worlds ``ids`` [K]: their first observations [K, ...].

        Starts are drawn ahead, for all worlds that have used theirs, as soon as one is missing: a step resets few
        worlds, and drawing for few costs as much as for all. They are keyed by episode, so when does not matter.
        """
        if not bool(self.ready.index_select(0, ids).all()):
            self._draw_starts((~self.ready).nonzero()[:, 0])
        if self.replayed:
            self.replayed = {w: r for w, r in self.replayed.items() if w not in set(ids.tolist())}
        self.ready.index_fill_(0, ids, False)  # whatever comes of it: what the simulator refuses is not tried again
        self._set(ids)
        self.episode.index_add_(0, ids, torch.ones_like(ids))
        self.midway.index_copy_(0, ids, self.midway_next.index_select(0, ids))
        truth = self.backend.signals()
        some = vectorize.table(self.columns, len(ids), self.device)
        some[:, : len(ids)] = self.next.index_select(0, ids).T
        first = {name: torch.empty(len(ids), size, device=self.device) for name, size in self.observed.items()}
        self._start(some, {**{f"truth.{k}": v.index_select(0, ids) for k, v in truth.items()}, **first})
        self.table[:, : self.num_worlds].index_copy_(1, ids, some[:, : len(ids)])
        return seen_by(*first.values())

    def _set(self, ids: Tensor) -> None:
        """Set parameters and state of the next episodes of the worlds ``ids`` [K] in the simulator."""
        given = {group: {k: v.index_select(0, ids) for k, v in table.items()} for group, table in self.starts.items()}
        params = given["params"]
        base = {name: params[name].reshape(len(ids), -1) for name in set(self.disturbances.names) & set(params)}
        if self.disturbances.names:  # the episode before may have ended in a disturbance, this one may begin in one
            start = self.next[ids, 0].long()  # of the columns, the first: the count
            key, episode = self.keys[ids], self.episode[ids] + 1
            params = params | _flat(self.disturbances.values(self.seed, key, episode, start, params))
        if params:
            self.backend.set_params(ids, params)
        self.backend.reset(ids, given["state"])
        if self.pictures is not None and given["appearance"]:
            self.pictures.rig.set_params(ids, given["appearance"])
        for name, value in base.items():
            self.base.setdefault(name, value.new_zeros(self.num_worlds, value.shape[1]))[ids] = value

    @torch.no_grad()
    def stagger(self) -> None:
        """Cut the running episodes off, each at a step of its own, drawn uniformly: worlds that all began at once are
        in step for ever where episodes last equally long. Episodes so cut off are not whole: in no figures.
        """
        if not self._begun:
            raise RuntimeError("stagger() before the first reset(): no world has an episode yet")
        share = uniform(self.seed, self.keys, self.episode, stream("stagger"), 1)[:, 0]
        count, until = self.column["count"], self.column["until"]
        cut = count + 1.0 + torch.floor(share * (until - count))
        self.midway |= cut < until
        until.copy_(cut)

    def forget_starts(self) -> None:
        """Draw the starts of next episodes anew that were drawn ahead: where they come from has changed."""
        self.ready[:] = False

    def _draw_starts(self, ids: Tensor) -> None:
        """Draw the next episode of the worlds ``ids``."""
        self._lay_in(ids, draw_episodes(self.recipe, self.keys[ids], self.episode[ids] + 1))

    def _lay_in(self, ids: Tensor, drawn: Draws) -> None:
        """Parameters, state and columns of the next episode of the worlds ``ids``: as ``drawn``."""
        extra = {k: v for k, v in drawn.state.items() if f"extra.{k}" in self.columns}
        state = {k: v for k, v in drawn.state.items() if k not in extra}
        for group, table in (("params", drawn.parameters), ("appearance", drawn.appearance), ("state", state)):
            for name, value in table.items():
                if name not in self.starts[group]:
                    self.starts[group][name] = value.new_zeros(self.num_worlds, *value.shape[1:])
                self.starts[group][name][ids] = value
        self.midway_next[ids] = drawn.midway
        some = vectorize.table(self.columns, len(ids), self.device)
        column = vectorize.views(some, self.columns, len(ids))
        for name, value in drawn.memory.items():
            places = [place for place in (f"memory.{name}", f"progress.{name}") if place in column]
            if not places and name != "tick":
                raise ValueError(f"a start of task {self.task.name!r} has memory {name!r}, which neither its maps nor "
                                 f"its objective remember; known: {', '.join(self._remembered())}")
            for place in (*places, *(["count"] if name == "tick" else [])):
                column[place].copy_(value)
        steps = torch.full_like(column["count"], float(self.task.steps))
        column["until"].copy_(steps if self.excerpt is None else torch.where(
            drawn.midway, torch.minimum(column["count"] + self._lengths(drawn, self.excerpt), steps), steps))
        for name, value in (*drawn.sensors.items(), *((f"extra.{k}", v) for k, v in extra.items())):
            column[name].copy_(value)
        self._draw_samples(drawn.worlds, drawn.episode, column["count"].long(), column)
        self.next.index_copy_(0, ids, some[:, : len(ids)].T)
        self.ready[ids] = True

    def _lengths(self, drawn: Draws, mean: int) -> Tensor:
        """Lengths [K] of excerpts, at least 1, geometric with this ``mean``.

        Were all as long, no episode would show what a policy comes to in more steps: there its values would rest on
        nothing but each other.
        """
        u = uniform(self.seed, drawn.worlds, drawn.episode, stream("excerpt"), 1)[:, 0]
        steps = -1.0 / math.log1p(-1.0 / mean) if mean > 1 else 0.0
        return 1.0 + torch.floor(-steps * torch.log1p(-u))

    def _draw_samples(self, keys: Tensor, episode: Tensor, step: Tensor, column: Mapping[str, Tensor]) -> None:
        """Fill the columns that are drawn anew at each sample ``step`` [K] of the worlds with these ``keys`` [K]."""
        self.sensors.draw_noise(self.seed, keys, episode, step, column)
        if self.chances:
            column["chance"].copy_(uniform(self.seed, keys, episode, stream("chance"), self.chances, step=step))

    def step(self, action: Tensor) -> Step:
        """One control step with ``action`` [N, A]."""
        n, work = self.num_worlds, self.work
        if not self._begun:
            raise RuntimeError("step() before the first reset(): no world has an episode yet")
        if not (self.on_cpu and action.is_cpu and action.dtype is torch.float32 and action.is_contiguous()):
            action = action.detach().to(self.device, torch.float32).contiguous()
        if action.shape != (n, self.action_dim):
            raise ValueError(f"an action of {n} worlds has shape {(n, self.action_dim)}, got {tuple(action.shape)}")
        found = work.take()
        work.command(action, found)
        self.command = found.command
        if self.instead is not None:
            self.command, self.instead = self.instead, None
        if self.disturbed:
            self._disturb()
        backend = self.backend
        backend.step(self.command, self.task.substeps)
        truth = backend.signals()
        if self.drawing:
            self._draw_samples(self.keys, self.episode, self.count + 1, self.column)
        if self._before is not None:
            self._before.copy_(self.table)
        self.given_action = action
        work.after(truth, action, found)
        some_ended, some_bad = work.finish(backend.bad, found)
        if some_bad:
            self._give_up(backend.bad)
            some_ended, _ = work.finish(backend.bad, found)
        if self.pictures is not None:
            self.images = self._take()
            found = found._replace(obs=found.obs._replace(images=self.images))
        info = {"signals": {**truth, **self.own}, "success": found.success, "finite": found.finite,
                "length": self.column["count"], "return": self.column["return"], "midway": self.midway}
        obs = found.obs
        after = self._end(found, info) if some_ended else obs
        return Step(after, found.reward, found.terminated, found.truncated, obs, info)

    @torch.no_grad()
    def _end(self, found: Results, info: dict[str, Any]) -> Obs:
        """Begin the next episodes where one ended: the observations to act on; ``info`` then outlives the resets."""
        ids, finite, success = found.ended.nonzero()[:, 0], found.finite, found.success
        clean = _clone if bool(finite.all()) else _clean
        # copies of the backend's tensors: the resets would overwrite them
        info["signals"] = {k: clean(v) for k, v in info["signals"].items()}
        info |= {"length": self.count, "return": self.column["return"].clone(), "midway": self.midway.clone()}
        if clean is _clean:
            self._report(~finite)
        if self.curriculum is not None and len(whole := ids[~self.midway[ids]]):
            self.curriculum.finish(whole, self.episode[whole], success[whole], info["return"][whole])
        return self._next(found.obs, ids)

    def _next(self, obs: Obs, ids: Tensor) -> Obs:
        """``obs`` with the first observations of the next episodes of the worlds ``ids``."""
        first = self._begin(ids)
        after = seen_by(*(old.index_copy(0, ids, new) for old, new in zip(distinct(obs), distinct(first))))
        if self.pictures is None:
            return after
        self.images = {name: value.clone() for name, value in obs.images.items()}
        for name, value in self._take(ids).items():
            self.images[name][ids] = value
        return after._replace(images=self.images)

    def _disturb(self) -> None:
        """Set what changes in mid-episode."""
        if self.keys is not self.worlds:  # of recorded episodes: several may have the number of one world
            values = self.disturbances.values(self.seed, self.keys, self.episode, self.count, self.base)
            self.backend.set_params(self.worlds, _flat(values))
            return
        found = self.disturbances.at(self.seed, self.worlds, self.episode, self.count, self.base)
        if found is not None:
            ids, values = found
            self.backend.set_params(ids, _flat(values))

    def keep_faults(self, folder: Path) -> None:
        """From now on, keep the state before the step of each world that goes wrong in ``folder``
        (:mod:`temporeal.sim.diverged_worlds`).

        Raises :class:`temporeal.sim.capabilities.MissingCapability` where the backend cannot give a world's whole
        state.
        """
        require(type(self.backend).__module__.rpartition(".")[2], self.backend.capabilities, ["full_state"])
        self.fault_dir, self.backend.snapshot = folder, True
        self._before = torch.empty_like(self.table)

    def health(self) -> dict[str, int]:
        """What has gone wrong: ``faults`` and the simulator's ``warnings``, counted since construction, and the number
        of worlds in which contacts or constraints found no room since their last reset, ``overflow``.

        It asks the simulator: for once in a while, not for each step.
        """
        status = self.backend.status()
        warnings, overflow = sum(status.warnings.values()), int(status.overflow.sum())
        return {"faults": self.faults, "warnings": warnings, "overflow": overflow}

    def record(self, world: int) -> EpisodeRecord:
        """What the running episode of ``world`` was made of, for :meth:`begin`."""
        if world in self.replayed:
            return self.replayed[world]
        if not 0 <= world < self.num_worlds:
            raise ValueError(f"world is from 0 to {self.num_worlds - 1}, got {world}")
        return episode_record(self.recipe, int(self.keys[world]), int(self.episode[world]), self.about)

    def before(self) -> dict[str, Tensor]:
        """What each world remembered before what followed from its last step, [N, ...] by column.

        Kept from :meth:`keep_faults` on.
        """
        if self._before is None:
            raise ValueError("what worlds remembered before a step is kept after keep_faults()")
        return {k: v for k, v in vectorize.views(self._before, self.columns, self.num_worlds).items() if k not in FIGURES}

    @torch.no_grad()
    def causes(self, world: int) -> list[str]:
        """What was not sound in the last step of ``world``, before its next episode: the simulator, the action, a
        signal, the reward, what is observed, or its start. Needs :meth:`keep_faults`.
        """
        one = slice(world, world + 1)
        truth = {f"truth.{k}": v[one] for k, v in self.backend.signals().items()}
        columns = {k: v[one] for k, v in self.before().items()}
        sound = self._judged({**columns, **truth, "action": self.given_action[one]})[1]
        given_up = ["simulator"] if bool(self.backend.bad[world]) else []
        return given_up + [name for name, good in sound.items() if not bool(good)]

    @torch.no_grad()
    def relive(self, state: Mapping[str, Tensor], columns: Mapping[str, Tensor], record: EpisodeRecord) -> None:
        """Put an environment of one world where a recorded episode was: the ``state`` of the simulator, what the world
        remembered (:meth:`before`).
        """
        self.begin([record])
        if set(columns) != set(self.column) - set(FIGURES):
            raise ValueError(f"a world of this environment remembers {', '.join(self.column)}, got "
                             f"{', '.join(columns)}")
        self.backend.set_state(state)
        self._require_twins(columns)
        for name, value in columns.items():
            self.column[name].copy_(value)

    def _give_up(self, bad: Tensor) -> None:
        """End the worlds that the simulator could not step."""
        for name, value in (("finite", 0.0), ("ended", 1.0), ("terminated", 1.0), ("truncated", 0.0), ("success", 0.0)):
            self.column[name][bad] = value
        self.column["return"][bad] -= self.column["reward"][bad]
        self.column["reward"][bad] = 0.0

    def _report(self, bad: Tensor) -> None:
        """Count the worlds that went bad, and keep what made them so."""
        worlds = bad.nonzero()[:, 0].tolist()
        self.faults += len(worlds)
        for world in worlds if self.fault_dir is not None else ():
            diverged_worlds.save(self, world, self.fault_dir)

    def state_dict(self) -> dict[str, Any]:
        """All state, for a bit-exact resume."""
        state = {
            "about": self.about, "seed": self.seed, "worlds": self.num_worlds, "faults": self.faults,
            "keys": self.keys.clone(), "backend": self.backend.state(), "episode": self.episode.clone(),
            "ready": self.ready.clone(), "midway": self.midway.clone(),
            "columns": {k: v.clone() for k, v in self.column.items()},
            "base": {k: v.clone() for k, v in self.base.items()}}
        if self.curriculum is not None:
            state["curriculum"] = self.curriculum.state_dict()
        if self.pictures is not None:
            state["appearance"] = self.pictures.rig.state()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            ValueError: it is of another task, backend, seed or number of worlds, or of other settings; nothing changes.
        """
        state = with_todays_names(state)
        self._require_fits(state)
        self.backend.set_state(state["backend"])
        self.faults, self.replayed = state["faults"], {}
        self.keys = self.worlds if torch.equal(state["keys"], self.worlds) else state["keys"].clone()
        self.episode, self.midway = state["episode"].clone(), state["midway"].clone()
        self._begun = bool((self.episode >= 0).all())
        for name, place in self.column.items():
            place.copy_(state["columns"][name])
        self.base = {k: v.clone() for k, v in state["base"].items()}
        if self.curriculum is not None:
            self.curriculum.load_state_dict(state["curriculum"])
        if self.pictures is not None:
            self.pictures.rig.set_state(state["appearance"])
            self.images = self._take()
        # starts that were drawn ahead are drawn again: at the first of them a curriculum's teacher may have known less
        self.ready[:] = False
        if len(ahead := state["ready"].nonzero()[:, 0]):
            self._draw_starts(ahead)

    def _require_fits(self, state: Mapping[str, Any]) -> None:
        """A ValueError where ``state`` is not of an environment like this one."""
        what = "the state of an environment"
        if missing := {"about", "seed", "worlds", "faults", "keys", "columns"} - set(state):
            raise ValueError(f"not {what}: {', '.join(sorted(missing))} missing")
        require_same(what, {**with_todays_names(state["about"]), "seed": state["seed"], "num_worlds": state["worlds"]},
                     {**self.about, "seed": self.seed, "num_worlds": self.num_worlds})
        was, now = ({k: list(v.shape[1:]) for k, v in c.items()} for c in (state["columns"], self.column))
        require_same(what, was, now)
        self._require_twins(state["columns"])
        if ("appearance" in state) != (self.pictures is not None):
            raise ValueError(f"{what} {'with' if 'appearance' in state else 'without'} cameras does not fit this one")

    def _require_twins(self, columns: Mapping[str, Tensor]) -> None:
        """A ValueError where ``columns`` say that the maps remember otherwise what they remember as the objective does:
        they are of an environment with another task."""
        for own, other in self.twins.items():
            if not torch.equal(columns[own], columns[other]):
                raise ValueError(f"{own} and {other} differ, which are always equal in this environment: what it was "
                                 "to be set to is of another task, or of other settings of it")

    def _remembered(self) -> list[str]:
        """The names of what the maps and the objective remember."""
        return sorted({*self.observe.memory, *self.objective.memory, "tick"})


RECORDED = ("explore", "curriculum")
"""Settings of an environment that matter to how an episode was drawn, but not to how its record is played."""

FIGURES = ("reward", "ended", "terminated", "truncated", "finite", "success")
"""The last columns, which a step writes and does not read."""


def about(task: Task, backend: Backend, **settings: Any) -> dict[str, Any]:
    """What an environment is made of, as plain data; ``settings``: those of :class:`Env`."""
    integrator = getattr(getattr(backend, "model", None), "integrator", "auto")
    if integrator != "auto":
        settings["integrator"] = integrator
    return plain({
        "task": task.name, "formula": task.formula_text, "constants": task.constants, "command": task.command,
        "control_dt": task.control_dt, "substeps": task.substeps, "episode_s": task.episode_s,
        "backend": diverged_worlds.backend_name(backend), **{k: v or 0.0 if k == "explore" else v or {}
                                                    for k, v in settings.items()}})


def _group(prefix: str, x: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The entries of ``x`` whose names begin with ``prefix``, without it."""
    return {k.removeprefix(prefix): v for k, v in x.items() if k.startswith(prefix)}


def _finite(value: Tensor) -> Tensor:
    """Whether all of ``value`` [N, ...] is finite: [N] bool."""
    return torch.isfinite(value).reshape(len(value), -1).all(-1)


def _clone(value: Tensor) -> Tensor:
    return value.clone()


def _clean(value: Tensor) -> Tensor:
    """``value`` with 0 in place of what is not finite."""
    return torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)


def _flat(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values [K, count] as a backend takes them: [K] where the count is 1."""
    return {k: v[:, 0] if v.shape[1] == 1 else v for k, v in values.items()}


def _column(flags: Tensor, like: Tensor) -> Tensor:
    """``flags`` [K] so that it broadcasts against ``like`` [K, ...]."""
    return flags.reshape(-1, *[1] * (like.dim() - 1))


OF_KIND = {"quadrotor": "quadrotor", "planar": "planar"}
"""Backend by kind of robot, where it is one of ours."""


def backend_names() -> list[str]:
    """The modules of ``sim/backends`` that make one: those with a ``make`` function (found without importing them)."""
    folder = Path(__file__).parent / "backends"
    return [name for name in names("temporeal.sim.backends") if "\ndef make(" in (folder / f"{name}.py").read_text()]


def make_env(
    task: Task, *, backend: str = "auto", num_worlds: int = 1024, seed: int = 0, device: str = "cpu",
    threads: int = 0, randomize: Mapping[str, Any] | None = None, options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Env:
    """The environment of ``task`` on the backend module ``sim/backends/<backend>.py``.

    ``backend="auto"``: ``quadrotor`` for quadrotors, ``planar`` for what moves in the plane, ``mujoco`` for everything
    else. ``options``: what the backend's own ``make`` takes besides. ``settings``: those of :class:`Env` (``sensors``,
    ``disturbances``, ``curriculum``, ``cameras``, ``appearance``, ``renderer``, ``augment``, ``explore``,
    ``compiled``).
    """
    if num_worlds < 1:
        raise ValueError(f"num_worlds is at least 1, got {num_worlds}")
    if backend == "auto":
        backend = OF_KIND.get(task.robot.kind, "mujoco")
    if backend not in backend_names():
        raise UnknownName(f"no backend {backend!r}; known: {', '.join(backend_names())}")
    built = commanded(resolve("temporeal.sim.backends", backend).make(
        task.scene, num_worlds, task.command, dt=task.control_dt / task.substeps, device=device, seed=seed,
        threads=threads, **dict(options or {})))
    return Env(task, built, seed=seed, randomize=randomize, **settings)
