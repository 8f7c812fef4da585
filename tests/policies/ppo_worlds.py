"""Environments small enough to know the answer, and runs of PPO in processes of their own (tests start this file)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from temporeal.policies.algos import ppo
from temporeal.policies.training import checkpoint, ppo_state
from temporeal.policies.training.ppo_state import Learner, Rollout, allocate, start
from temporeal.policies.training.ranks import Ranks, join
from temporeal.sim.types import EnvCapabilities, Obs, Step

CPU = torch.device("cpu")


class PointMass:
    """Position and velocity [m, m/s]; force in [-1, 1] N on 1 kg for 0.1 s; cost x^2 + v^2 / 10; cut after 50 steps."""

    num_worlds: int
    obs_dim, critic_dim, action_dim, device = 2, 2, 1, CPU
    capabilities = EnvCapabilities()

    def __init__(self, num_worlds: int, seed: int = 0, nan_after: int = 10**9) -> None:
        self.num_worlds, self.nan_after, self.steps = num_worlds, nan_after, 0
        self.generator = torch.Generator().manual_seed(seed)
        self.state, self.count = torch.zeros(num_worlds, 2), torch.zeros(num_worlds, dtype=torch.int64)
        self.total = torch.zeros(num_worlds)

    def draw(self) -> torch.Tensor:
        return torch.rand(self.num_worlds, 2, generator=self.generator) * 2 - 1

    def reset(self) -> Obs:
        self.state = self.draw()
        self.count.zero_()
        self.total.zero_()
        return Obs(self.state, self.state)

    def step(self, action: torch.Tensor) -> Step:
        velocity = self.state[:, 1] + 0.1 * action[:, 0].clamp(-1, 1)
        state = torch.stack([self.state[:, 0] + 0.1 * velocity, velocity], -1)
        reward = -(state[:, 0].square() + 0.1 * state[:, 1].square())
        self.count, self.total, self.steps = self.count + 1, self.total + reward, self.steps + 1
        if self.steps > self.nan_after:
            reward = reward * torch.nan
        ended, total = self.count >= 50, self.total
        self.state = torch.where(ended[:, None], self.draw(), state)
        self.count, self.total = torch.where(ended, 0, self.count), torch.where(ended, 0.0, total)
        new = Obs(self.state, self.state)
        return Step(new, reward, torch.zeros_like(ended), ended, Obs(state, state), {"return": total})

    def state_dict(self) -> dict[str, object]:
        return {"state": self.state, "count": self.count, "total": self.total, "steps": self.steps,
                "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.state, self.count, self.total = (state[k].clone() for k in ("state", "count", "total"))
        self.steps = state["steps"]
        self.generator.set_state(state["generator"])


class Chain:
    """States 0 .. K-1 (one-hot), one further each step whatever the action; reward 1 in state K-1, else 0.

    Without ``ends`` the last state holds: V(k) = gamma^(K-1-k) / (1 - gamma), and time cuts after ``limit`` steps.
    With ``ends`` the step from the last state terminates: V(k) = gamma^(K-1-k).
    """

    action_dim, device = 1, CPU
    capabilities = EnvCapabilities()

    def __init__(self, num_worlds: int, length: int, limit: int, ends: bool) -> None:
        self.num_worlds, self.length, self.limit, self.ends = num_worlds, length, limit, ends
        self.obs_dim = self.critic_dim = length
        self.at, self.count = torch.zeros(num_worlds, dtype=torch.int64), torch.zeros(num_worlds, dtype=torch.int64)

    def values(self, gamma: float) -> torch.Tensor:
        first = gamma ** torch.arange(self.length - 1, -1, -1.0)
        return first if self.ends else first / (1 - gamma)

    def observe(self) -> Obs:
        one_hot = torch.nn.functional.one_hot(self.at, self.length).float()
        return Obs(one_hot, one_hot)

    def reset(self) -> Obs:
        self.at = torch.arange(self.num_worlds) % self.length  # worlds out of step with each other
        self.count = self.at.clone()
        return self.observe()

    def step(self, action: torch.Tensor) -> Step:
        last = self.at == self.length - 1
        self.at, self.count = (self.at + 1).clamp(max=self.length - 1), self.count + 1
        terminated = last & self.ends
        truncated = (self.count >= self.limit) & ~terminated
        final = self.observe()
        done = terminated | truncated
        self.at, self.count = torch.where(done, 0, self.at), torch.where(done, 0, self.count)
        return Step(self.observe(), last.float(), terminated, truncated, final, {})

    def state_dict(self) -> dict[str, object]:
        return {"at": self.at, "count": self.count}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.at, self.count = state["at"].clone(), state["count"].clone()


class Recall:
    """A cue of -1 or 1 is seen in the first of ``steps`` steps; in the last, the reward is the action's agreement.

    The critic sees the cue all along. Without memory no policy gets more than 0 on average.
    """

    obs_dim, critic_dim, action_dim, device = 2, 2, 1, CPU
    capabilities = EnvCapabilities()

    def __init__(self, num_worlds: int, steps: int = 6, seed: int = 0) -> None:
        self.num_worlds, self.steps = num_worlds, steps
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self) -> torch.Tensor:
        return torch.randint(0, 2, (self.num_worlds,), generator=self.generator) * 2.0 - 1.0

    def observe(self) -> Obs:
        clock = self.count / self.steps
        return Obs(torch.stack([torch.where(self.count == 0, self.cue, 0.0), clock], -1),
                   torch.stack([self.cue, clock], -1))

    def reset(self) -> Obs:
        self.cue = self.draw()
        self.count = torch.arange(self.num_worlds) % self.steps
        return self.observe()

    def step(self, action: torch.Tensor) -> Step:
        last = self.count == self.steps - 1
        agreement = action[:, 0].clamp(-1, 1) * self.cue
        reward = torch.where(last, agreement, 0.0)
        self.count = self.count + 1
        final = self.observe()
        self.cue, self.count = torch.where(last, self.draw(), self.cue), torch.where(last, 0, self.count)
        return Step(self.observe(), reward, last, torch.zeros_like(last), final, {"return": agreement})

    def state_dict(self) -> dict[str, object]:
        return {"cue": self.cue, "count": self.count, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.cue, self.count = state["cue"].clone(), state["count"].clone()
        self.generator.set_state(state["generator"])


SMALL = {"rollout_steps": 8, "minibatches": 2, "epochs": 2, "actor_hidden": (16,), "critic_hidden": (16,)}
WORLDS = 32
ITERATION = WORLDS * SMALL["rollout_steps"]  # environment steps


def small(iterations: int, ranks: int = 1, **changes: object) -> ppo_state.PPOConfig:
    """A run of some iterations that takes a moment, with a checkpoint after each."""
    steps = iterations * ITERATION * ranks
    return ppo_state.PPOConfig(**{"total_steps": steps, "checkpoint_seconds": 0.0, **SMALL, **changes})


def kill_at(out: Path, iteration: int, where: str) -> None:
    """Train, and die by SIGKILL at the end of ``iteration``: before its checkpoint, or while it is written."""
    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def on_iteration(learner: Learner) -> None:
        if learner.iteration == iteration:
            if where == "writing":
                os.replace = die
            else:
                die()

    ppo.train(PointMass(WORLDS), small(6), out=out, on_iteration=on_iteration)


def filled(learner: Learner, rollout: Rollout, worlds: slice) -> None:
    """Put known data of the worlds ``worlds`` of 16 into ``rollout``."""
    table = torch.randn(4, 16, rollout.table.shape[-1], generator=torch.Generator().manual_seed(5))
    rollout.table.copy_(table[:, worlds])


def gradient(ranks: Ranks, worlds: slice) -> torch.Tensor:
    """The gradient and figures of the loss on the known data, of which this process has ``worlds``."""
    count = len(range(*worlds.indices(16)))
    learner = start(PointMass(count), small(1, rollout_steps=4), 0, ranks)
    rollout = allocate(learner)
    filled(learner, rollout, worlds)
    table = rollout.table.flatten(0, 1)
    ppo.differentiate(learner, rollout, table, torch.arange(len(table)), torch.zeros(1), ppo.losses)
    ranks.mean_(learner.replicas[0].gradient)
    return learner.replicas[0].gradient


def as_one_of_many(out: Path) -> None:
    """A rank of torchrun: the shared gradient, then a run; leaves what it found in a file of its own."""
    ranks, _ = join("cpu")
    half = slice(8 * ranks.index, 8 * ranks.index + 8)
    shared = gradient(ranks, half)
    seen = []
    env = PointMass(WORLDS, seed=10 + ranks.index)
    result = ppo.train(env, small(3, ranks.size), out=out, ranks=ranks, on_iteration=lambda learner: seen.append(1))
    checkpoint.save(out / f"rank{ranks.index}.pt", {
        "gradient": shared, "actor": result.actor.state_dict(), "normalizer": result.normalizer.state_dict(),
        "rates": [h.get("learning_rate", 0.0) for h in result.history], "listened": len(seen),
        "rows": torch.tensor(env.steps * WORLDS)})


def mean_cost(actor: Callable[[torch.Tensor], torch.Tensor], normalizer: torch.nn.Module) -> float:
    """Mean return of 256 fresh episodes of the point mass with the deterministic policy."""
    env, total = PointMass(256, seed=999), torch.zeros(256)
    obs = env.reset().actor
    with torch.no_grad():
        for _ in range(50):
            step = env.step(actor(normalizer(obs)))
            total, obs = total + step.reward, step.obs.actor
    return float(total.mean())


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "kill":
        kill_at(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        as_one_of_many(Path(sys.argv[2]))
