"""The one vectorized environment: task, backend, sensors and randomization in the one step loop.

    env = make_env(load_task("hover"), num_worlds=1024, seed=1)
    obs = env.reset()
    step = env.step(action)      # action [N, A] in [-1, 1]; worlds whose episode ends begin their next one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from temporeal.sim.backend_factory import BackendConfig, make_backend
from temporeal.sim.compiler.keyed_random import stream, uniform
from temporeal.sim.compiler.step_buffers import Results, distinct, seen_by
from temporeal.sim.env_config import EnvConfig, about, check_share, make_distribution, make_pictures, shapes_of
from temporeal.sim.episode_queue import EpisodeQueue, Start
from temporeal.sim.episodes import (
    Draws,
    EpisodeRecord,
    draw_samples,
    episode_record,
    replay,
    require_same,
)
from temporeal.sim.randomization.disturbances import Disturbances
from temporeal.sim.renamed import with_current_names
from temporeal.sim.step_functions import StepFunctions, cleaned
from temporeal.sim.step_table import StepTable, is_compiled
from temporeal.sim.task import Task
from temporeal.sim.types import Backend, EnvCapabilities, Obs, Step

if TYPE_CHECKING:
    from temporeal.sim.rendering.cameras import Images


class Env:
    """N worlds of one task on one backend: a :class:`temporeal.sim.types.TaskEnv`.

    Every draw is keyed by (seed, world, episode): world i sees the same episodes whatever N is. ``step.info`` holds
    ``signals``, the true signals [N, ...] of the step just made, before any reset; where an episode ended, ``success``,
    ``length`` and ``return``; and ``mid_episode``, whether an episode is not whole: it began in mid-episode, or was cut
    off at random (:meth:`stagger`).

    A world ends where its action, simulation, observation or reward is not finite (``info["finite"]`` is false there)
    and is counted in ``diverged``; one whose first observation is not finite ends in its first step. Observations and
    rewards are always finite: 0 in place of what is not.

    Attributes:
        distribution: where the draws of episodes come from.
        functions: observation and action map, objective and sensors, as functions of one world.
        table: what worlds keep between steps; ``column``: its parts by name, [N, ...] each.
        keys: the world numbers [N] by which draws are keyed; other than 0, 1, 2, ... after :meth:`begin`.
        episode: number [N] of the running episode.
        mid_episode: whether [N] the running episode began in mid-episode or will be cut off at random.
        command: what the last step sent [N, U]; ``action`` [N, A]: what it was made of.
        command_override: a command [N, U] that the next step sends in place of the one its action maps to.
        rendering: whether each step and reset renders; where not, :meth:`render` gives pictures when they are needed.
        on_divergence: called as ``on_divergence(env, world)`` for each world that diverged, before its next episode
            (:mod:`temporeal.sim.diverged_worlds` writes a file).
    """

    def __init__(self, task: Task, backend: Backend, config: EnvConfig = EnvConfig()) -> None:  # noqa: B008 (frozen)
        self.task, self.backend, self.config = task, backend, config
        self.num_worlds, self.device = backend.num_worlds, backend.device
        self.on_cpu = self.device.type == "cpu"
        self.compiled = is_compiled(task, self.device, config.compiled)
        if task.schedules is not None:
            task.schedules.compiled = self.compiled
        self.pictures = make_pictures(backend, config)
        self.images: Images = {}
        self.distribution = make_distribution(task, backend, config, self.pictures)
        self.disturbances = Disturbances.parse(config.disturbances, self.distribution.randomization, backend.parameters,
                                               task.control_dt)
        self.disturbed = bool(self.disturbances.names)
        self.functions = StepFunctions(task, self.distribution.sensors, self.device)
        self.draws_samples = self.functions.draws_samples
        self.table = StepTable(self.functions, shapes_of(backend), self.num_worlds, self.device,
                               task.robot.command(task.command).size, self.compiled)
        self.queue = EpisodeQueue(self.table)
        self.column = self.table.column
        self.task_signals = {**{name: self.column[f"added.{name}"] for name in self.functions.added},
                             "mission_time": self.column["time"]}
        self.action_dim, self.obs_dim = task.act.action_dim, self.functions.obs_dim
        self.critic_dim = self.obs_dim + task.objective.privileged_dim
        self.worlds = torch.arange(self.num_worlds, device=self.device)
        self.keys = self.worlds
        self.episode = torch.full_like(self.worlds, -1)
        self.mid_episode = torch.zeros_like(self.worlds, dtype=torch.bool)
        self.base: dict[str, Tensor] = {}  # what episodes were given of the parameters that change within them
        self.replayed: dict[int, EpisodeRecord] = {}  # by world: the running episodes that are from records
        self.command_override: Tensor | None = None
        self.rendering = self.pictures is not None
        self.diverged = 0
        self.on_divergence: Callable[[Env, int], None] | None = None
        self.about = about(task, backend, config)
        self._begun = False  # whether all worlds have had a first episode

    # ---- what there is

    @property
    def capabilities(self) -> EnvCapabilities:
        """What this environment offers to learners besides steps: everything."""
        return EnvCapabilities(stagger=self.stagger, health=self.health, curriculum=self.distribution.curriculum,
                               task_env=self, elements=getattr(self.task.observe, "elements", None),
                               randomized=any((self.config.randomize, self.config.sensors, self.config.disturbances)),
                               beside=partial(beside, self.config))

    @property
    def seed(self) -> int:
        """What keys every draw."""
        return self.distribution.seed

    @property
    def count(self) -> Tensor:
        """Control steps since the start of each world's mission, int64 [N]."""
        return self.column["count"].long()

    def true_signals(self) -> dict[str, Tensor]:
        """The true signals now, [N, ...]: the simulator's, the task's own and ``mission_time``."""
        return {**self.backend.signals(), **self.task_signals}

    def subgoal_hits(self) -> Tensor | None:
        """1 + the sample [N, V] at which each subgoal was hit, 0 before; None where the objective has no subgoals."""
        return self.column.get("progress.hit")

    def record(self, world: int, episode: int | None = None) -> EpisodeRecord:
        """What the running episode of ``world`` was made of, for :meth:`begin`. With ``episode``: what that episode of
        the world numbered ``world`` is made of, whoever plays it; any number is one."""
        if episode is not None:
            return episode_record(self.distribution, world, episode, self.about)
        if world in self.replayed:
            return self.replayed[world]
        if not 0 <= world < self.num_worlds:
            raise ValueError(f"world is from 0 to {self.num_worlds - 1}, got {world}")
        return episode_record(self.distribution, int(self.keys[world]), int(self.episode[world]), self.about)

    def health(self) -> dict[str, int]:
        """What has gone wrong: worlds that ``diverged`` and the simulator's ``warnings``, counted since construction,
        and ``overflow``: worlds in which contacts or constraints found no room since their last reset.

        It asks the simulator: for once in a while, not for each step.
        """
        status = self.backend.status()
        warnings, overflow = sum(status.warnings.values()), int(status.overflow.sum())
        return {"diverged": self.diverged, "warnings": warnings, "overflow": overflow}

    # ---- which episodes come next

    def reseed(self, seed: int) -> None:
        """The next :meth:`reset` begins episode 0 of ``seed``, as in a new environment."""
        self.distribution = replace(self.distribution, seed=seed)
        self.episode.fill_(-1)
        self.queue.forget()

    def set_mid_episode_starts(self, share: float, truncate_after: int | None = None) -> None:
        """From the next episodes on, ``share`` of them start in mid-episode: see
        :class:`temporeal.sim.episodes.EpisodeDistribution`."""
        check_share(self.task, share)
        self.distribution = replace(self.distribution, mid_episode_starts=share, truncate_after=truncate_after)
        self.queue.forget()

    def forget_starts(self) -> None:
        """Draw the starts of next episodes anew that were drawn ahead: where they come from has changed."""
        self.queue.forget()

    @torch.no_grad()
    def stagger(self) -> None:
        """Cut the running episodes off, each at a step of its own, drawn uniformly: worlds that all began at once would
        end at once for ever where episodes last equally long. Episodes so cut off count as not whole.
        """
        if not self._begun:
            raise RuntimeError("stagger() before the first reset(): no world has an episode yet")
        share = uniform(self.seed, self.keys, self.episode, stream("stagger"), 1)[:, 0]
        count, until = self.column["count"], self.column["until"]
        cut = count + 1.0 + torch.floor(share * (until - count))
        self.mid_episode |= cut < until
        until.copy_(cut)

    # ---- how episodes begin

    @torch.no_grad()
    def reset(self) -> Obs:
        """A new episode in every world. The first call starts at episode 0."""
        first = self._begin(self.worlds)
        self._begun = True
        if not self.rendering:
            return first
        self.images = self.render()
        return first._replace(images=self.images)

    @torch.no_grad()
    def begin(self, episodes: Sequence[EpisodeRecord]) -> Obs:
        """Play recorded episodes, one in each world; their first observations.

        What changes within them (noise, losses, disturbances) is as it was, too: the same actions have the same
        results. From then on world i goes by the number ``episodes[i].world``: what follows are that world's next
        episodes.

        Raises:
            ValueError: the records are of another task, seed, backend or settings, there are not as many as worlds, or
                this environment has a curriculum (a record holds what the curriculum chose; leave it out).
        """
        if len(episodes) != self.num_worlds:
            raise ValueError(f"begin takes one record for each of the {self.num_worlds} worlds, got {len(episodes)}")
        if self.distribution.curriculum is not None:
            raise ValueError("begin: make the environment without curriculum; records hold what it chose")
        but = RECORDED if self.pictures is not None else (*RECORDED, "appearance")
        for record in episodes:
            require_same("the record of an episode", {**record.about, "seed": record.seed},
                         {**self.about, "seed": self.seed}, but)
        before = self.keys, self.episode.clone()
        drawn = replay(episodes, self.device)
        try:
            self.put_starts(drawn)
            first = self.reset()
        except Exception:
            self.keys, self.episode = before
            self.queue.forget()
            raise
        self.replayed = dict(enumerate(episodes))
        return first

    def put_starts(self, drawn: Draws) -> None:
        """The next episode of world i is row i of ``drawn``; from then on it goes by the number ``drawn.worlds[i]``."""
        self.keys = drawn.worlds
        self.episode.copy_(drawn.episode - 1)
        self.queue.put(self.distribution, self.worlds, drawn)

    def _begin(self, ids: Tensor) -> Obs:
        """Begin the next episode of the worlds ``ids`` [K]: their first observations [K, ...]."""
        if not bool(self.queue.ready.index_select(0, ids).all()):
            self.queue.draw(~self.queue.ready, self.distribution, self.keys, self.episode)
        if self.replayed:
            self.replayed = {w: r for w, r in self.replayed.items() if w not in set(ids.tolist())}
        start = self.queue.take(ids)
        self._place(ids, start)
        self.episode.index_add_(0, ids, torch.ones_like(ids))
        self.mid_episode.index_copy_(0, ids, start.mid_episode)
        return self.table.begin(ids, start.rows, self.backend.signals())

    def _place(self, ids: Tensor, start: Start) -> None:
        """Set parameters and state of the worlds ``ids`` [K] in the simulator."""
        params = start.parameters
        base = {name: params[name].reshape(len(ids), -1) for name in set(self.disturbances.names) & set(params)}
        if self.disturbances.names:  # the episode before may have ended in a disturbance, this one may begin in one
            step = start.rows[:, 0].long()  # of the columns, the first: the count
            key, episode = self.keys[ids], self.episode[ids] + 1
            params = params | _flat(self.disturbances.values(self.seed, key, episode, step, params))
        if params:
            self.backend.set_params(ids, params)
        self.backend.reset(ids, start.state)
        if self.pictures is not None and start.appearance:
            self.pictures.rig.set_params(ids, start.appearance)
        for name, value in base.items():
            self.base.setdefault(name, value.new_zeros(self.num_worlds, value.shape[1]))[ids] = value

    # ---- the step loop

    def step(self, action: Tensor) -> Step:
        """One control step with ``action`` [N, A]."""
        table, backend, work = self.table, self.backend, self.table.work
        if not self._begun:
            raise RuntimeError("step() before the first reset(): no world has an episode yet")
        if not isinstance(action, Tensor):
            raise TypeError(f"an action is a torch.Tensor [N, A], got {type(action).__name__}: torch.as_tensor(action)")
        if not (self.on_cpu and action.is_cpu and action.dtype is torch.float32 and action.is_contiguous()):
            action = action.detach().to(self.device, torch.float32).contiguous()
        if action.shape != (self.num_worlds, self.action_dim):
            raise ValueError(f"an action of {self.num_worlds} worlds has shape {(self.num_worlds, self.action_dim)}, "
                             f"got {tuple(action.shape)}")
        found = work.take()
        work.command(action, found)
        self.action, self.command = action, found.command
        if self.command_override is not None:
            self.command, self.command_override = self.command_override, None
        if self.disturbed:
            self._disturb()
        backend.step(self.command, self.task.substeps)
        truth = backend.signals()
        if self.draws_samples:
            draw_samples(self.distribution, self.keys, self.episode, self.count + 1, self.column)
        if table.before is not None:
            table.before.copy_(table.rows)
        work.after(truth, action, found)
        some_ended, some_bad = work.finish(backend.bad, found)
        if some_bad:
            table.give_up(backend.bad)
            some_ended, _ = work.finish(backend.bad, found)
        if self.rendering:
            self.images = self.render()
            found = found._replace(obs=found.obs._replace(images=self.images))
        info = {"signals": {**truth, **self.task_signals}, "success": found.success, "finite": found.finite,
                "length": self.column["count"], "return": self.column["return"], "mid_episode": self.mid_episode}
        obs = self._end(found, info) if some_ended else found.obs
        return Step(obs, found.reward, found.terminated, found.truncated, found.obs, info)

    def _disturb(self) -> None:
        """Set the parameters that change in mid-episode."""
        if self.keys is not self.worlds:  # of recorded episodes: several may have the number of one world
            values = self.disturbances.values(self.seed, self.keys, self.episode, self.count, self.base)
            self.backend.set_params(self.worlds, _flat(values))
            return
        found = self.disturbances.at(self.seed, self.worlds, self.episode, self.count, self.base)
        if found is not None:
            ids, values = found
            self.backend.set_params(ids, _flat(values))

    @torch.no_grad()
    def _end(self, found: Results, info: dict[str, Any]) -> Obs:
        """Begin the next episodes where one ended: the observations to act on; ``info`` then outlives the resets."""
        ids, finite, success = found.ended.nonzero()[:, 0], found.finite, found.success
        copied = torch.clone if bool(finite.all()) else cleaned
        # copies of the backend's tensors: the resets would overwrite them
        info["signals"] = {k: copied(v) for k, v in info["signals"].items()}
        info |= {"length": self.count, "return": self.column["return"].clone(), "mid_episode": self.mid_episode.clone()}
        if copied is cleaned:
            self._count_diverged(~finite)
        curriculum, whole = self.distribution.curriculum, ids[~self.mid_episode[ids]]
        if curriculum is not None and len(whole):
            curriculum.finish(whole, self.episode[whole], success[whole], info["return"][whole])
        return self.begin_next(found.obs, ids)

    def begin_next(self, obs: Obs, ids: Tensor) -> Obs:
        """Begin the next episodes of the worlds ``ids`` [K]: ``obs`` with their first observations."""
        first = self._begin(ids)
        after = seen_by(*(old.index_copy(0, ids, new) for old, new in zip(distinct(obs), distinct(first))))
        if not self.rendering:
            return after
        self.images = {name: value.clone() for name, value in obs.images.items()}
        for name, value in self.render(ids).items():
            self.images[name][ids] = value
        return after._replace(images=self.images)

    def render(self, ids: Tensor | None = None) -> Images:
        """Pictures now of the worlds ``ids`` [K] (all if left out), augmented where that was asked for; none without
        cameras."""
        if self.pictures is None:
            return {}
        return self.pictures.take(ids, seed=self.seed, episode=self.episode, step=self.count)

    def _count_diverged(self, bad: Tensor) -> None:
        worlds = bad.nonzero()[:, 0].tolist()
        self.diverged += len(worlds)
        if self.on_divergence is not None:
            for world in worlds:
                self.on_divergence(self, world)

    # ---- saving and loading

    def state_dict(self) -> dict[str, Any]:
        """All state, for a bit-exact resume."""
        state = {
            "about": self.about, "seed": self.seed, "worlds": self.num_worlds, "diverged": self.diverged,
            "keys": self.keys.clone(), "backend": self.backend.state(), "episode": self.episode.clone(),
            "ready": self.queue.ready.clone(), "mid_episode": self.mid_episode.clone(),
            "columns": {k: v.clone() for k, v in self.column.items()},
            "base": {k: v.clone() for k, v in self.base.items()}}
        if self.distribution.curriculum is not None:
            state["curriculum"] = self.distribution.curriculum.state_dict()
        if self.pictures is not None:
            state["appearance"] = self.pictures.rig.state()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            ValueError: it is of another task, backend, seed or number of worlds, or of other settings; nothing changes.
        """
        state = with_current_names(state)
        require_fits(state, self)
        self.backend.set_state(state["backend"])
        self.diverged, self.replayed = state["diverged"], {}
        self.keys = self.worlds if torch.equal(state["keys"], self.worlds) else state["keys"].clone()
        self.episode, self.mid_episode = state["episode"].clone(), state["mid_episode"].clone()
        self._begun = bool((self.episode >= 0).all())
        for name, place in self.column.items():
            place.copy_(state["columns"][name])
        self.base = {k: v.clone() for k, v in state["base"].items()}
        if self.distribution.curriculum is not None:
            self.distribution.curriculum.load_state_dict(state["curriculum"])
        if self.pictures is not None:
            self.pictures.rig.set_state(state["appearance"])
            self.images = self.render() if self.rendering else {}
        # starts that were drawn ahead are drawn again: at the first of them a curriculum's teacher may have known less
        self.queue.forget()
        self.queue.draw(state["ready"], self.distribution, self.keys, self.episode)


CONDITIONS = ("randomize", "sensors", "disturbances", "posterior")
"""Settings of an environment that say what a machine and its sensors are like."""
RECORDED = ("mid_episode_starts", "curriculum")
"""Settings of an environment that matter to how an episode was drawn, but not to how its record is played."""


def make_env(
    task: Task, *, backend: str = "auto", num_worlds: int = 1024, device: str = "cpu", threads: int = 0,
    options: Mapping[str, Any] | None = None, **settings: Any,
) -> Env:
    """The environment of ``task`` on the backend module ``sim/backends/<backend>.py``.

    Args:
        backend, num_worlds, device, threads, options: :class:`temporeal.sim.backend_factory.BackendConfig`.
        settings: those of :class:`EnvConfig`, such as ``seed``, ``randomize`` and ``sensors``.
    """
    if unknown := set(settings) - {field.name for field in fields(EnvConfig)}:
        legal = ["backend", "num_worlds", "device", "threads", "options", *(field.name for field in fields(EnvConfig))]
        raise TypeError(f"no option {', '.join(sorted(unknown))}; legal: {', '.join(legal)}")
    config = EnvConfig(**settings)
    chosen = BackendConfig(backend, num_worlds, device, threads, dict(options or {}))
    return Env(task, make_backend(task, chosen, config.seed), config)


def beside(config: EnvConfig, task: Task, num_worlds: int, seed: int = 0) -> Env:
    """New worlds of ``task`` under the randomization, sensors and disturbances of ``config``, without its curriculum
    and cameras: on the CPU, by the robot's own simulator."""
    same = {name: getattr(config, name) for name in CONDITIONS}
    return make_env(task, num_worlds=num_worlds, seed=seed, compiled=False, **same)


def require_fits(state: Mapping[str, Any], env: Env) -> None:
    """A ValueError where ``state`` is not of an environment like ``env``."""
    what = "the state of an environment"
    if missing := {"about", "seed", "worlds", "diverged", "keys", "columns"} - set(state):
        raise ValueError(f"not {what}: {', '.join(sorted(missing))} missing")
    require_same(what, {**with_current_names(state["about"]), "seed": state["seed"], "num_worlds": state["worlds"]},
                 {**env.about, "seed": env.seed, "num_worlds": env.num_worlds})
    was, now = ({k: list(v.shape[1:]) for k, v in c.items()} for c in (state["columns"], env.column))
    require_same(what, was, now)
    env.table.require_twins(state["columns"])
    if ("appearance" in state) != (env.pictures is not None):
        raise ValueError(f"{what} {'with' if 'appearance' in state else 'without'} cameras does not fit this one")


def _flat(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values [K, count] as a backend takes them: [K] where the count is 1."""
    return {k: v[:, 0] if v.shape[1] == 1 else v for k, v in values.items()}
