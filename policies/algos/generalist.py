"""One policy for any formula: PPO on itineraries of drawn formulas (`temporeal.sim.tasks.any_formula`).

TGPO (Meng, Chen and Fan, arXiv 2510.00225) learns one formula, whose schedule its policy is given. Here the policy is
given places, windows and what is to be kept as data (`temporeal.sim.rewards.itinerary_view`): each world has another
formula, and no weight belongs to one. That one subgoal at a time generalizes over what it was never trained on is known
of formulas without time: GenZ-LTL (NeurIPS 2025), DeepLTL (arXiv 2410.04631). As in TGPO many episodes begin in
mid-mission, and are cut off after a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from temporeal.policies.algos import ppo
from temporeal.policies.algos.ppo import OnIteration, Result
from temporeal.policies.nets.actor import Actor
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.ppo_checkpoint import policy_of, read_last
from temporeal.policies.training.ppo_state import PPOConfig
from temporeal.policies.training.progress import Logger, Progress
from temporeal.policies.training.ranks import Ranks
from temporeal.sim.types import TaskEnv


@dataclass(frozen=True)
class GeneralistConfig(PPOConfig):
    """PPO's hyperparameters and those of the starts. ``configs/algo/generalist.yaml`` has the same names."""

    rollout_steps: int = 32
    epochs: int = 3
    minibatches: int = 8
    gamma: float = 0.99
    gae_lambda: float = 0.95
    entropy_coef: float = 2e-3
    max_std: float | None = 1.0
    desired_kl: float = 0.02
    final_kl: float = 0.3
    final_std: float | None = 0.1
    # the numbers of a set's elements have one scale, whichever place they have among them
    normalize_observations: bool = False
    actor_hidden: tuple[int, ...] = (128, 128)
    critic_hidden: tuple[int, ...] = (128, 128)
    mid_episode_starts: float = 0.7  # share of worlds whose episodes start in mid-episode
    truncate_after: int = 60  # steps after which those are cut off, on average

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.truncate_after > 0:
            raise ValueError(f"truncate_after must be positive, got {self.truncate_after}")
        if not 0 <= self.mid_episode_starts <= 1:
            raise ValueError(f"mid_episode_starts is a share, 0 to 1, got {self.mid_episode_starts}")


def train(
    env: TaskEnv, config: GeneralistConfig, *, out: Path, seed: int = 0, resume: bool | Path = False,
    progress: Progress | None = None, logger: Logger | None = None, on_iteration: OnIteration | None = None,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> Result:
    """PPO on programs. See `temporeal.policies.algos.ppo.train`.

    Raises:
        SettingsError: the task gives no programs.
    """
    if env.capabilities.elements is None:
        raise SettingsError(f"algo generalist learns task=any_formula, whose observation is a mission as data; task "
                            f"{env.task.name!r} has one formula: choose algo=tgpo or ppo")
    env.set_mid_episode_starts(config.mid_episode_starts, config.truncate_after)
    return ppo.train(env, config, out=out, seed=seed, resume=resume, progress=progress, logger=logger,
                     on_iteration=on_iteration, ranks=ranks)


def load_policy(path: Path, device: str = "cpu") -> tuple[Actor, Normalizer, GeneralistConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return policy_of(read_last(path), GeneralistConfig, device)
