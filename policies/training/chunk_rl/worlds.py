"""Worlds that play chunks: the decision process that chunk policies are tuned in.

One decision is a chunk, of which E control steps are played (``execute``). Its reward is the sum over them; it ends
early where the episode does, and the world decides anew in its next episode. What comes after an episode that time cut
off counts by its value, where the reward goes on (:class:`temporeal.policies.training.chunk_rl.rewards.Reward`).
Pictures are rendered where a world decides, and nowhere else.

N worlds, K that decide, H rows of a chunk, U numbers of a command, R decisions of a rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from temporeal.policies.training.chunk_rl.rewards import Reward
from temporeal.policies.training.chunk_rl.rollouts import Drawn, Rollout, Seen, drawn_together, seen_together
from temporeal.sim.types import Obs, TaskEnv

if TYPE_CHECKING:
    from temporeal.sim.episodes import EpisodeRecord

Signals = Mapping[str, Tensor]
Draw = Callable[[Tensor, torch.Generator], Drawn]
"""From contexts [K, ...] to chunks, at random."""


class ChunkEnv(TaskEnv, Protocol):
    """The part of :class:`temporeal.sim.env.Env` that playing chunks takes."""

    command_override: Tensor | None
    rendering: bool
    column: dict[str, Tensor]
    worlds: Tensor

    def render(self, ids: Tensor | None = None) -> Mapping[str, Tensor]:
        """Pictures now of the worlds ``ids`` [K]."""

    def begin(self, episodes: Sequence[EpisodeRecord]) -> Obs:
        """Play recorded episodes, one in each world."""

    def record(self, world: int, episode: int | None = None) -> EpisodeRecord:
        """What ``episode`` of the world numbered ``world`` is made of, whoever plays it."""


class Coder(Protocol):
    """The part of a chunk policy that is not tuned. ``horizon``: H."""

    horizon: int

    def initial_memory(self, n: int) -> Signals:
        """What ``n`` worlds remember of episodes that begin, [n, ...] by name."""

    def remembering(self, signals: Signals, memory: Signals) -> tuple[Signals, Signals]:
        """The signals with what is remembered among them, and the memory from here on."""

    def encode(self, signals: Signals) -> Tensor:
        """Raw signals [K, *shape] to the context [K, ...]."""

    def commands(self, x: Tensor, signals: Signals) -> Tensor:
        """The raw commands [K, H, U] of a chunk [K, H, U] in [-1, 1]."""


class ChunkWorlds:
    """N worlds and the policy's fixed part.

    Args:
        measured: the signals [N, *shape] that the policy reads and that are no pictures, as they are measured now.
        pictures: names of those that are.

    Attributes:
        memory: what each world remembers of its episode, [N, ...] by name.
        steps: control steps of all worlds so far.
    """

    def __init__(
        self, env: ChunkEnv, coder: Coder, measured: Callable[[], Signals], pictures: Sequence[str], execute: int,
        reward: Reward,
    ) -> None:
        self.env, self.coder, self.measured, self.pictures = env, coder, measured, tuple(pictures)
        self.execute, self.reward, self.steps = execute, reward, 0
        self.obs: Obs | None = None
        self.memory = {name: value.clone() for name, value in coder.initial_memory(env.num_worlds).items()}
        env.rendering = False

    @property
    def looks_back(self) -> bool:
        """Whether somebody looks at the pictures of episodes that time ends: they are taken before worlds begin anew.
        """
        return bool(self.pictures) and self.reward.goes_on or self.reward.sees

    @property
    def critic_dim(self) -> int:
        """P: the critic's observation of the task, and the share of the episode that is over."""
        return self.env.critic_dim + 1

    @torch.no_grad()
    def context_dim(self) -> int:
        """Numbers of a context, of each of its tokens where it has several."""
        self.begun()
        first = torch.zeros(1, dtype=torch.int64)
        return self.coder.encode(self.signals(first)).shape[-1]

    def begun(self) -> None:
        """Begin the first episodes, if that is not done."""
        if self.obs is None:
            self.begin(self.env.reset())

    @torch.no_grad()
    def rollout(self, draw: Draw, steps: int, generator: torch.Generator, *, once: bool = False) -> Rollout:
        """Play ``steps`` control steps of every world; chunks that are under way at the end are cut.

        ``once``: only the running episodes; worlds whose episode is over wait for the others.
        """
        self.begun()
        table = Table(self, once)
        for _ in range(steps):
            table.decide(draw, generator)
            table.play()
            if not bool(table.alive.any()):
                break
        found = table.finished()
        self.steps += found.steps
        return found

    def begin(self, obs: Obs) -> None:
        """Go on from ``obs``, the first of new episodes in all worlds."""
        self.obs = obs
        self.forget(torch.arange(self.env.num_worlds))
        self.reward.start(self.env.true_signals())

    def forget(self, ids: Tensor) -> None:
        """Episodes of the worlds ``ids`` are over."""
        for name, value in self.coder.initial_memory(len(ids)).items():
            self.memory[name][ids] = value

    def encoded(self, ids: Tensor, signals: Signals) -> tuple[Tensor, Signals]:
        """The context of ``signals`` [K, ...] and of what the worlds ``ids`` remember, and what they do from here on.
        """
        shown, after = self.coder.remembering(signals, {name: value[ids] for name, value in self.memory.items()})
        return self.coder.encode(shown), after

    def signals(self, ids: Tensor) -> Signals:
        """What the policy reads of the worlds ``ids`` now."""
        seen = {name: value[ids] for name, value in self.measured().items()}
        return {**seen, **self.env.render(ids)} if self.pictures else seen

    def seen(self, ids: Tensor, signals: Signals) -> Seen:
        """What the worlds ``ids`` show now, of ``signals`` [K, ...]; they remember it."""
        assert self.obs is not None
        context, after = self.encoded(ids, signals)
        for name, value in after.items():
            self.memory[name][ids] = value
        return Seen(context, self.told(self.obs.critic, self.env.count)[ids])

    def state_dict(self) -> dict[str, Any]:
        """All state, for a bit-exact resume."""
        self.begun()
        assert self.obs is not None
        return {"env": self.env.state_dict(), "reward": dict(self.reward.memory), "steps": self.steps,
                "memory": {name: value.clone() for name, value in self.memory.items()},
                "obs": {"actor": self.obs.actor, "critic": self.obs.critic}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned. ValueError: it is of other worlds."""
        self.env.load_state_dict(state["env"])
        self.obs, self.steps = Obs(state["obs"]["actor"], state["obs"]["critic"]), state["steps"]
        self.reward.start(self.env.true_signals())
        for name, value in self.reward.memory.items():
            value.copy_(state["reward"][name])
        for name, value in self.memory.items():
            value.copy_(state["memory"][name])

    def told(self, critic: Tensor, count: Tensor) -> Tensor:
        """The critic's own signals [N, P] after ``count`` [N] control steps."""
        return torch.cat([critic, (count / self.env.task.steps)[:, None].to(critic.dtype)], -1)


class Table:
    """A rollout in the making: rows of decisions, and which row each world plays."""

    def __init__(self, worlds: ChunkWorlds, once: bool) -> None:
        count = worlds.env.num_worlds
        self.worlds, self.once = worlds, once
        self.row = torch.zeros(count, dtype=torch.int64)
        self.age = torch.full((count,), worlds.execute)  # rows of its chunk that a world has played
        self.alive = torch.ones(count, dtype=torch.bool)
        self.commands: Tensor | None = None  # [N, H, U]
        self.rounds, self.who, self.seen, self.drawn = [0], list[Tensor](), list[Seen](), list[Drawn]()
        self.reward, self.length = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
        self.ended, self.cut = torch.zeros(0, dtype=torch.bool), torch.zeros(0, dtype=torch.bool)
        self.tail = list[tuple[Tensor, Seen]]()
        self.episodes: dict[str, list[Tensor]] = {name: [] for name in ("world", "success", "return", "length")}
        self.total = torch.zeros(count)

    def decide(self, draw: Draw, generator: torch.Generator) -> None:
        """A new chunk in each world that has played its own, or whose episode is new."""
        ids = (self.alive & (self.age >= self.worlds.execute)).nonzero()[:, 0]
        if not len(ids):
            return
        signals = self.worlds.signals(ids)
        seen = self.worlds.seen(ids, signals)
        drawn = draw(seen.context, generator)
        commands = self.worlds.coder.commands(drawn.chunk, signals)
        if self.commands is None:
            self.commands = commands.new_zeros(len(self.age), *commands.shape[1:])
        self.commands[ids] = commands
        self.row[ids] = self.rounds[-1] + torch.arange(len(ids))
        self.age[ids] = 0
        self.rounds.append(self.rounds[-1] + len(ids))
        self.who.append(ids)
        self.seen.append(seen)
        self.drawn.append(drawn)
        for name in ("reward", "length", "ended", "cut"):
            old = getattr(self, name)
            setattr(self, name, torch.cat([old, old.new_zeros(len(ids))]))

    def play(self) -> None:
        """One control step. Worlds that wait hold their last command."""
        worlds, env, alive = self.worlds, self.worlds.env, self.alive
        assert self.commands is not None
        last = self.age.clamp(max=worlds.execute - 1)
        command = self.commands[torch.arange(len(last)), last]
        env.rendering = worlds.looks_back and bool((env.count + 1 >= env.task.steps).any())
        action = worlds.reward.action(command)
        env.command_override = command
        step = env.step(action)
        env.rendering, worlds.obs = False, step.obs
        paid = worlds.reward(step) * alive
        self.total += paid
        self.reward.index_add_(0, self.row, paid)
        self.length.index_add_(0, self.row, alive.long())
        self.age += 1
        over = alive & (step.terminated | step.truncated)
        if bool(over.any()):
            self.end(step, over)

    def end(self, step: Any, over: Tensor) -> None:
        """Episodes end: their decisions do, and the next step begins with a new one."""
        ids, rows = over.nonzero()[:, 0], self.row[over]
        self.ended[rows] = True
        going = ids[step.truncated[ids]] if self.worlds.reward.goes_on else ids[:0]
        if len(going):
            self.cut[self.row[going]] = True
            self.tail.append((self.row[going], self.final(step, going)))
        for name, value in (("world", ids), ("success", step.info["success"][ids]), ("return", self.total[ids]),
                            ("length", step.info["length"][ids].float())):
            self.episodes[name].append(value.clone())
        self.total[ids] = 0.0
        self.worlds.forget(ids)
        self.age[ids] = self.worlds.execute
        if self.once:
            self.alive[ids] = False

    def final(self, step: Any, ids: Tensor) -> Seen:
        """What episodes of ``ids`` showed last: true signals, as sensors are already in the next episode."""
        worlds = self.worlds
        names = tuple(worlds.measured())
        signals = {name: step.info["signals"][name][ids] for name in names}
        pictures = {name: step.final_obs.images[name][ids] for name in worlds.pictures}
        return Seen(worlds.encoded(ids, {**signals, **pictures})[0],
                    worlds.told(step.final_obs.critic, step.info["length"])[ids])

    def finished(self) -> Rollout:
        """The rollout: what is under way is cut here."""
        going = (self.alive & (self.age > 0) & ~self.ended[self.row]).nonzero()[:, 0]
        if len(going):
            self.cut[self.row[going]] = True
            self.tail.append((self.row[going], self.worlds.seen(going, self.worlds.signals(going))))
        seen, tail = seen_together(self.seen), None
        if self.tail:
            tail = torch.cat([rows for rows, _ in self.tail]), seen_together([part for _, part in self.tail])
        episodes = {name: torch.cat(parts) if parts else torch.zeros(0) for name, parts in self.episodes.items()}
        return Rollout(torch.cat(self.who), self.rounds, seen, drawn_together(self.drawn), self.reward, self.length,
                       self.ended, self.cut, tail, episodes)

