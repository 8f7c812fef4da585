"""TGPO, temporal grounded policy optimization (Meng, Chen and Fan, arXiv 2510.00225), on tasks that are formulas.

The formula is decomposed into subgoals with time variables and invariants (`temporeal.sim.stl.planning.decompose`). A
policy is conditioned on a *schedule*, a time for each variable, and learns by PPO from dense stage-wise rewards
(`temporeal.sim.rewards.scheduled`). Its critic guides which schedules it learns from: a buffer of schedules is moved by
Metropolis-Hastings, where the energy of a schedule is minus its value, so that the policy sees more of the schedules
that it can keep, and still some of all. At the end of training the best schedules are flown; those that were kept go
into the artifact. On the robot they are scored at the start, and the best is followed; a robot that falls behind scores
them again and may switch.

The paper gives the idea, figures and reviews; no code, coefficients or hyperparameters. Beyond it: mid-episode starts,
many of them at the frontier of what the policy can do (a reverse curriculum as in Florensa et al., arXiv 1707.05300, by
the critic's values instead of success rates), disjunctions (a schedule also names the alternative), always-eventually
and until (as chains of variables), proposals that keep precedence, a bound that ties returns to robustness
(`temporeal.sim.rewards.scheduled.return_bound`), hits before and after their time where others can still be on time,
and hits that are taken back (`temporeal.sim.rewards.schedule_automaton`). """

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.policies.algos import ppo
from temporeal.policies.algos.ppo import OnIteration, Result
from temporeal.policies.nets.actor import Actor, Critic
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.policy_graphs import check_reads
from temporeal.policies.training.ppo_checkpoint import policy_of, read_last
from temporeal.policies.training.ppo_state import Learner, PPOConfig, Rollout
from temporeal.policies.training.progress import Logger, Progress
from temporeal.policies.training.ranks import Ranks
from temporeal.policies.training.schedule_choice import Choosing, observed, seeing, spread_out
from temporeal.sim.maps import PolicyGraph, initial_memory
from temporeal.sim.rewards.scheduled import SCHEDULE
from temporeal.sim.rewards.schedules import draw_schedules, moved
from temporeal.sim.task import Task
from temporeal.sim.types import TaskEnv

SEED = 7_919  # apart from what else a run's seed is for


@dataclass(frozen=True)
class TGPOConfig(PPOConfig):
    """PPO's hyperparameters and those of the schedules. ``configs/algo/tgpo.yaml`` has the same names."""

    rollout_steps: int = 25
    minibatches: int = 8
    gamma: float = 0.997
    gae_lambda: float = 0.98
    entropy_coef: float = 5e-3
    max_std: float | None = 1.0  # the entropy bonus would widen actions that do not matter for ever
    # PPO's 0.01 is too careful: before an obstacle on its straight way a policy stands still until its critic knows
    # that the way around is better, and a budget of time ended before that
    desired_kl: float = 0.03
    final_std: float | None = 0.1
    # a flag that is seldom set would be scaled up by its rarity, and the critic would be wild where it first is
    normalize_observations: bool = False
    mid_episode_starts: float = 0.5  # share of worlds whose episodes start in mid-episode
    # steps after which those are cut off, on average, each as likely at any step. A long mission is mostly waiting: of
    # the phase in which the policy fails at once there would be few samples, if those worlds first had to wait through
    # the others'
    truncate_after: int = 50
    frontier: float = 0.75  # share of those whose place the critic chooses, at the frontier of what the policy can do
    missions: int = 1024  # such starts, chosen anew at every update of the buffer
    places: int = 64  # from which the place of each is chosen
    guided: bool = True  # false: schedules are drawn uniformly, anew at every update (TGPO without star)
    schedule_buffer: int = 1024  # schedules that episodes are drawn from
    uniform: float = 0.25  # share of the buffer that is drawn anew, uniformly, at every update
    every: int = 4  # iterations between updates of buffer and starts
    sweeps: int = 8  # proposals to each schedule in an update
    temperature: float = 0.25  # of the energies, in standard deviations of the buffer's values: 0 would be greedy
    starts: int = 16  # first observations over which a schedule's value is averaged
    candidates: int = 64  # schedules that a deployed policy chooses from
    patience: float = 1.0  # standard deviations of value by which another schedule must be better for a robot behind

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("every", "sweeps", "starts", "candidates", "temperature", "missions", "places", "truncate_after"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if not self.schedule_buffer >= 2:
            raise ValueError(f"schedule_buffer must be at least 2, got {self.schedule_buffer}")
        if not self.patience >= 0:
            raise ValueError(f"patience must not be negative, got {self.patience}")
        for name in ("uniform", "mid_episode_starts", "frontier"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share, 0 to 1, got {getattr(self, name)}")
        if self.candidates > self.schedule_buffer:
            raise ValueError(f"candidates ({self.candidates}) are taken from the buffer: at most schedule_buffer "
                             f"({self.schedule_buffer})")


def train(
    env: TaskEnv, config: TGPOConfig, *, out: Path, seed: int = 0, resume: bool | Path = False,
    progress: Progress | None = None, logger: Logger | None = None, on_iteration: OnIteration | None = None,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> Result:
    """PPO on the time-conditioned policy, while its critic moves the buffer of schedules. See
    `temporeal.policies.algos.ppo.train`.

    Raises:
        SettingsError: the task does not follow schedules.
    """
    return ppo.train(env, config, out=out, seed=seed, resume=resume, progress=progress, logger=logger,
                     on_iteration=on_iteration, ranks=ranks,
                     companion=Allocator(env, config, seed + ranks.index))


class Allocator:
    """The buffer of schedules [M, 1 + V] for the environment's episodes."""

    def __init__(self, env: TaskEnv, config: TGPOConfig, seed: int) -> None:
        if env.task.schedules is None:
            detail = (
                "it is shown and paid by another view; say task.settings.view=scheduled"
                if env.task.name == "stl"
                else "choose one, task=stl/..."
            )
            raise SettingsError(f"algo tgpo learns tasks that are formulas and follows their schedules, task "
                                f"{env.task.name!r} has none: {detail}")
        self.env, self.config = env, config
        self.schedules = env.task.schedules
        self.schedules.frontier_share = config.frontier
        self.alternatives = self.schedules.alternatives
        self.rng = np.random.default_rng((SEED, seed))
        self.schedules.buffer = draw_schedules(self.alternatives, config.schedule_buffer, self.rng)
        env.set_mid_episode_starts(0.0)
        env.reset()
        truth = env.true_signals()
        self.signals = {name: truth[name][: config.starts].clone() for name in env.task.observe.signals}
        self.flown: Tensor | None = None
        self.see = seeing(env.task.observe, env.compiled)
        env.set_mid_episode_starts(config.mid_episode_starts, config.truncate_after)

    def __call__(self, learner: Learner, rollout: Rollout) -> None:
        """Update the buffer after an iteration of PPO."""
        self.flown = None
        if learner.iteration % self.config.every:
            return
        if self.config.guided:
            self.move_buffer(learner)
        else:
            self.schedules.buffer = draw_schedules(self.alternatives, self.config.schedule_buffer, self.rng)
        if self.config.mid_episode_starts and self.config.frontier:
            self.choose_starts(learner)
        self.env.forget_starts()  # those drawn ahead are of the buffers before

    @property
    def finished(self) -> bool:
        """Whether the final flights are those of the current buffer."""
        return self.flown is not None

    @property
    def flights(self) -> int:
        """Missions of each world in a final round, if time allows."""
        return min(ceil(FLIGHTS * self.config.candidates / self.env.num_worlds), MOST)

    def mission_seconds(self, learner: Learner) -> float:
        """Seconds of one mission in all worlds, estimated from the last rollouts (by wall clock, which on a busy
        machine exceeds processor time)."""
        took = median(row["collect_seconds"] for row in learner.history[-LAST:])
        return self.env.task.steps / self.config.rollout_steps * min(took, learner.seconds / learner.iteration)

    def affordable(self, learner: Learner) -> tuple[int, int]:
        """Final rounds, and missions of each world in one. Reduced (first missions, then rounds, then none) if all
        would take more than ``SHARE`` of a budget of seconds, or of all steps without such a budget."""
        missions = int(self.room(learner) / self.mission_costs(learner))
        rounds = min(len(ROUNDS), missions)
        return rounds, min(self.flights, missions // max(rounds, 1))

    def room(self, learner: Learner) -> float:
        """The budget of the final flights: ``SHARE`` of a budget of seconds; else the same share of all steps, final
        ones included, because ``total_steps`` counts those of learning (so that the seed determines the flights)."""
        config = self.config
        return SHARE / (1.0 - SHARE) * config.total_steps if config.max_seconds is None else SHARE * config.max_seconds

    def mission_costs(self, learner: Learner) -> float:
        """The cost of one mission in all worlds of all processes, in the unit of :meth:`room`."""
        if self.config.max_seconds is None:
            return float(self.env.task.steps * self.env.num_worlds * learner.ranks.size)
        return max(self.mission_seconds(learner), 1e-9)

    def needs(self, learner: Learner) -> float:
        """Seconds of the final flights in all worlds."""
        rounds, flights = self.affordable(learner)
        return rounds * flights * self.mission_seconds(learner)

    @torch.no_grad()
    def finish(self, learner: Learner) -> None:
        """Fly the buffer's best schedules deterministically, and keep those that were followed most often.

        Each round has fewer schedules, so that the last ones are flown more often. Without flights the policy would
        choose by value alone, and the highest of many estimates is easily too high: exactly the schedules that its
        critic overestimates.
        """
        env, schedules, config = self.env, self.schedules, self.config
        state, buffer, hidden = env.state_dict(), schedules.buffer, learner.hidden
        obs = learner.obs._replace(actor=learner.obs.actor.clone(), critic=learner.obs.critic.clone())
        rounds, flights = self.affordable(learner)
        self.tell_cut(learner, rounds, flights)
        env.set_mid_episode_starts(0.0)
        self.flown, success = None, torch.ones(1, dtype=torch.bool)
        ppo.take_weights(learner)
        for times in ROUNDS[:rounds]:
            kept = {"buffer": buffer.to(env.device), "signals": self.signals,
                    "flown": None if self.flown is None else self.flown.to(env.device)}
            schedules.buffer, _ = spread_out(
                kept, learner.critic, learner.critic_normalizer, env.task.observe, times * config.candidates)
            env.forget_starts()
            wanted = partial(preferred, learner.critic, learner.critic_normalizer, env.task.observe, schedules.buffer)
            missions = []
            for _ in range(flights):
                learner.hidden = torch.zeros_like(hidden)
                missions.append(flown(env, lambda obs: ppo.act(learner, obs, env.images)[0], wanted))
            followed, success, chosen = (torch.cat(part) for part in zip(*missions))
            self.flown = proved(schedules.buffer, followed, success, chosen).cpu()
        if not bool(success.any()):
            warnings.warn("no schedule that was flown at the end of the training was kept: all are offered to the "
                          "policy, which probably keeps none", stacklevel=1)  # the caller is torch's no_grad
        schedules.buffer, learner.hidden, learner.obs = buffer, hidden, obs
        env.set_mid_episode_starts(config.mid_episode_starts, config.truncate_after)
        env.load_state_dict(state)

    def tell_cut(self, learner: Learner, rounds: int, flights: int) -> None:
        """Warn if fewer final missions are flown than configured."""
        least, most, seconds = rounds * flights, len(ROUNDS) * self.flights, self.config.max_seconds
        if least < most:
            costs = most * self.mission_costs(learner)
            whole = ceil(costs * (1.0 - SHARE) / SHARE if seconds is None else costs / SHARE)
            of, unit = (f"all steps with algo.total_steps={self.config.total_steps}", "steps") if seconds is None else (
                f"algo.max_seconds={seconds:g}", "s")
            warnings.warn(f"at the end of the training each world flies {least} of {most} missions, which show what "
                          f"schedules are kept: more would take over a quarter of {of}; all have room in {whole} "
                          f"{unit}", stacklevel=1)

    def move_buffer(self, learner: Learner) -> None:
        """Move the schedules by Metropolis-Hastings."""
        value = lambda schedules: self.values(learner, schedules)  # noqa: E731
        moved_on = metropolis(self.schedules.buffer, self.alternatives, value, self.config.temperature,
                              self.config.sweeps, self.rng)
        fresh = round(self.config.uniform * len(moved_on))
        if fresh:  # the critic must also know those that it does not like
            places = self.rng.choice(len(moved_on), fresh, replace=False)
            moved_on[places] = draw_schedules(self.alternatives, fresh, self.rng)
        self.schedules.buffer = moved_on

    @torch.no_grad()
    def choose_starts(self, learner: Learner) -> None:
        """Choose mid-episode starts at the frontier, as far as the signals of a start are known.

        For each of some schedules and times: of many places, the one whose value is nearest to halfway between those of
        bad and good places. Missions whose values differ more between places are chosen more often: there the policy
        can go on from some places and not from others. Near a wall, a door or a narrow passage between both, there is
        most to learn, and few episodes get there by themselves.
        """
        missions, places, device = self.config.missions, self.config.places, self.env.device
        generator = torch.Generator().manual_seed(int(self.rng.integers(2**62)))
        draw = lambda _, count: torch.rand(missions * places, count, generator=generator).to(device)  # noqa: E731
        state, memory, legal = self.schedules.places(draw, missions)
        signals, observe = self.schedules.signals(state, memory), self.env.task.observe
        if not set(observe.signals) <= set(signals):
            return
        kept = initial_memory(observe, missions * places, device)
        obs = self.see(signals, {**kept, **{name: value for name, value in memory.items() if name in kept}})
        value = learner.critic(learner.critic_normalizer(obs)).reshape(missions, places)
        pick = frontier(value, legal.reshape(missions, places), generator)
        self.schedules.frontier = tuple({name: x[pick] for name, x in part.items()} for part in (state, memory)) if len(
            pick) else None

    @torch.no_grad()
    def values(self, learner: Learner, schedules: Tensor) -> Tensor:
        """The critic's value of ``schedules`` [M, 1 + V], mean over some starts: [M]."""
        obs = observed(self.env.task.observe, self.signals, schedules.to(self.env.device), self.see)
        m, b = obs.shape[:2]
        return learner.critic(learner.critic_normalizer(obs.flatten(0, 1))).reshape(m, b).mean(-1).cpu()

    def state_dict(self) -> dict[str, Any]:
        """Buffer, starts and generator."""
        state = self.rng.bit_generator.state
        frontier = self.schedules.frontier
        return {"buffer": self.schedules.buffer, "flown": self.flown,
                "frontier": frontier and [{name: x.cpu() for name, x in part.items()} for part in frontier],
                "signals": {name: value.cpu() for name, value in self.signals.items()},
                "rng": [str(state["state"]["state"]), str(state["state"]["inc"]), int(state["has_uint32"]),
                        int(state["uinteger"])]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.schedules.buffer, self.flown = state["buffer"], state["flown"]
        self.schedules.frontier = state["frontier"] and tuple(state["frontier"])
        self.signals = {name: value.to(self.env.device) for name, value in state["signals"].items()}
        inner, inc, has, left = state["rng"]
        self.rng.bit_generator.state = {"bit_generator": "PCG64", "state": {"state": int(inner), "inc": int(inc)},
                                        "has_uint32": has, "uinteger": left}


ROUNDS = (4, 1)  # times the candidates: schedules that are flown at the end of a training
FLIGHTS = 8  # of each schedule that is offered, on average; fewer where each world had to fly more than ...
MOST = 4  # ... missions in a round
SHARE = 0.25  # of a budget of seconds, or of all steps: flights at the end take no more of it
LAST = 20  # rollouts of which the time of the next ones is foretold
SURELY = 0.1  # less often kept than the best: as good
CHUNK = 16  # schedules that are valued at once at the starts of all worlds


def flown(
    env: TaskEnv, act: Callable[[Tensor], Tensor], wanted: Callable[[Mapping[str, Tensor]], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Fly one mission in each world: the drawn schedules [N, 1 + V], whether [N] they were kept, and the alternative
    [N] preferred (``wanted``) by the signals of its start."""
    obs = env.reset()
    truth = env.true_signals()
    choice = wanted({name: truth[name] for name in env.task.observe.signals})
    schedules, running = truth[SCHEDULE].clone(), torch.ones(env.num_worlds, dtype=torch.bool, device=env.device)
    kept = torch.zeros_like(running)
    for _ in range(env.task.steps):
        step = env.step(act(obs.actor))
        obs, ended = step.obs, running & (step.terminated | step.truncated)
        kept |= ended & step.info["success"]
        running &= ~ended
    return schedules, kept, choice


def preferred(
    critic: Critic, normalizer: Normalizer, observe: Any, schedules: Tensor, signals: Mapping[str, Tensor]
) -> Tensor:
    """The alternative [B] of the schedule among ``schedules`` [K, 1 + V] with the greatest value, at each of B starts.
    """
    numbers = schedules[:, 0].unique()
    if len(numbers) == 1:
        return numbers.expand(len(next(iter(signals.values()))))
    best = []
    for number in numbers:
        own = schedules[schedules[:, 0] == number].split(CHUNK)
        best.append(torch.stack([critic(normalizer(obs.flatten(0, 1))).reshape(obs.shape[:2]).amax(0)
                                 for obs in (observed(observe, signals, part) for part in own)]).amax(0))
    return numbers[torch.stack(best).argmax(0)]


def proved(schedules: Tensor, followed: Tensor, kept: Tensor, wanted: Tensor) -> Tensor:
    """The ``schedules`` [K, 1 + V] that were kept about as often as the best in N missions, of which each followed one
    (``followed`` [N, 1 + V]); all of them if none was kept, which does not distinguish them.

    Each is compared in the missions from the starts at which its alternative is ``wanted`` [N]: one that suits few
    starts is seldom kept from all, and the robot chooses it at those few. If nothing was kept from these starts, or no
    alternative is as good as the others where it is wanted, all missions count.
    """
    if not bool(kept.any()):
        return schedules
    stays = torch.zeros(len(schedules), dtype=torch.bool, device=schedules.device)
    for number in schedules[:, 0].unique():
        there = wanted == number
        there = there if bool((there & kept).any()) else torch.ones_like(there)
        stays |= (schedules[:, 0] == number) & good(schedules, followed[there], kept[there])
    return schedules[stays if bool(stays.any()) else good(schedules, followed, kept)]


def good(schedules: Tensor, followed: Tensor, kept: Tensor) -> Tensor:
    """Which [K] of ``schedules`` were kept about as often as the best: by the posterior mean with a uniform prior
    (Laplace's rule). Never one that was not kept at all."""
    same = (followed[:, None] == schedules[None]).all(-1).double()  # [N, K]
    times = kept.double() @ same
    share = torch.where(times > 0, (times + 1.0) / (same.sum(0) + 2.0), 0.0)
    return share >= max(float(share.max()) - SURELY, 1e-9)


def frontier(value: Tensor, legal: Tensor, generator: torch.Generator) -> Tensor:
    """As many starts as missions, of M missions at P places with ``value`` [M, P]: indices m * P + p [at most M].

    Missions are drawn in proportion to the range of their values, from a tenth to nine tenths of the places; each
    starts at the place nearest to the middle of that range among the ``legal`` [M, P] ones. Empty if all values are
    equal.
    """
    low, high = value.quantile(0.1, 1), value.quantile(0.9, 1)
    off = torch.where(legal, (value - 0.5 * (low + high)[:, None]).abs(), torch.inf)
    weight = torch.where(legal.any(1), high - low, 0.0).cpu()
    if not float(weight.sum()) > 0:
        return torch.zeros(0, dtype=torch.int64, device=value.device)
    pick = torch.multinomial(weight, len(value), replacement=True, generator=generator).to(value.device)
    return pick * value.shape[1] + off.argmin(1)[pick]


def metropolis(
    schedules: Tensor, alternatives: Any, value: Any, temperature: float, sweeps: int, rng: np.random.Generator
) -> Tensor:
    """``schedules`` [M, 1 + V] after ``sweeps`` Metropolis-Hastings steps towards prior * exp(value / temperature).

    ``temperature`` is in standard deviations of the values. The prior is that of
    `temporeal.sim.rewards.schedules.draw_schedules`: uniform over alternatives, and over the schedules of each. Every
    fourth proposal is drawn from it and may change the alternative; the others
    (`temporeal.sim.rewards.schedules.moved`) are symmetric and keep the alternative. So both are accepted by the values
    alone.
    """
    now = value(schedules)
    unit = temperature * float(now.std().clamp(min=1e-6))
    for sweep in range(sweeps):
        wanted = draw_schedules(alternatives, len(schedules), rng) if sweep % 4 == 3 else moved(
            alternatives, schedules, rng)
        there = value(wanted)
        accept = torch.from_numpy(np.log(rng.random(len(schedules)) + 1e-300)) < ((there - now) / unit).double()
        schedules = torch.where(accept[:, None], wanted, schedules)
        now = torch.where(accept, there, now)
    return schedules


def load_policy(path: Path, device: str = "cpu") -> tuple[Actor, Normalizer, TGPOConfig]:
    """Actor and normalizer of a checkpoint; :func:`load_graph` gives the policy that chooses its schedule."""
    return policy_of(read_last(path), TGPOConfig, device)


def load_graph(path: Path, task: Task, device: str = "cpu", patience: float | None = None) -> PolicyGraph:
    """The policy of a run between raw signals and raw commands, which chooses among the best schedules of its buffer.

    ``patience`` overrides the run's own (:class:`TGPOConfig`).
    """
    state = read_last(path)
    actor, normalizer, config = policy_of(state, TGPOConfig, device)
    check_reads(path, normalizer, task)
    critic = Critic(state["sizes"]["critic_dim"], config.critic_hidden, config.activation)
    critic_normalizer = Normalizer(state["sizes"]["critic_dim"])
    critic.load_state_dict(state["critic"])
    critic_normalizer.load_state_dict(state["critic_normalizer"])
    schedules, spread = spread_out(state["companion"], critic, critic_normalizer, task.observe, config.candidates)
    patience = config.patience if patience is None else patience
    observe = Choosing(task.observe, critic, critic_normalizer, schedules, patience * spread,
                       task.observe.view.behind)  # type: ignore[union-attr]
    return PolicyGraph(observe, normalizer, actor, task.act).to(device).eval()
