"""One policy for any formula: PPO on itineraries of drawn formulas (`temporeal.sim.tasks.any_formula`).

TGPO (Meng, Chen and Fan, arXiv 2510.00225) learns one formula, whose schedule its policy is given. Here the policy is
given places, windows and what is to be kept as data (`temporeal.sim.rewards.itinerary_view`): each world has another
formula, and no weight belongs to one. That one subgoal at a time generalizes over what it was never trained on is known
of formulas without time: GenZ-LTL (NeurIPS 2025), DeepLTL (arXiv 2410.04631). As in TGPO many episodes begin in
mid-mission, and are cut off after a while.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporeal.policies.algos import ppo
from temporeal.policies.algos.ppo import OnIteration, Result
from temporeal.policies.nets.actor import Actor
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.training.generalist.curriculum import Curriculum
from temporeal.policies.training.generalist.forecast import calibrated, deterministic, judge_of
from temporeal.policies.training.generalist.judge import Judge, experience, learn
from temporeal.policies.training.ppo_checkpoint import policy_of, read_last
from temporeal.policies.training.ppo_state import Learner, PPOConfig, Rollout, columns_of
from temporeal.policies.training.progress import Logger, Progress
from temporeal.policies.training.ranks import Ranks
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.task import Missions, Task
from temporeal.sim.task_parts.formula_bank import ROW
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
    curriculum: float = 0.0  # share of episodes whose formulas are drawn by how unsure the critic is of them
    judged_steps: int = 500  # of each world at the end, from which the judge of legs learns; cut off nowhere
    calibration: int = 400  # formulas of the validation family that are flown at the end, which calibrate the forecast

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("truncate_after", "judged_steps", "calibration"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("mid_episode_starts", "curriculum"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share, 0 to 1, got {getattr(self, name)}")


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
    env.capabilities.beside(env.task, 1, seed)  # a simulator that cannot calibrate the forecast is refused now
    return ppo.train(env, config, out=out, seed=seed, resume=resume, progress=progress, logger=logger,
                     on_iteration=on_iteration, ranks=ranks, companion=Forecaster(env, config, seed))


class Forecaster:
    """Chooses which formulas are flown, and learns the judge of legs and its calibration when the policy is done
    (`temporeal.policies.training.generalist`)."""

    def __init__(self, env: TaskEnv, config: GeneralistConfig, seed: int) -> None:
        self.env, self.config, self.seed, self.kept = env, config, seed, dict[str, Any]()
        self.curriculum = Curriculum(drawn_of(env.task).count, config.curriculum)
        env.set_mid_episode_starts(config.mid_episode_starts, config.truncate_after)

    @property
    def finished(self) -> bool:
        """Whether the judge has learned."""
        return bool(self.kept)

    def __call__(self, learner: Learner, rollout: Rollout) -> None:
        """Choose formulas. What was learned of another policy is of no use any more."""
        self.kept = {}
        if self.config.curriculum and learner.iteration > 1:  # the first rollout has no advantages
            batch = columns_of(learner, rollout.table)
            self.curriculum.update(self.env.column[f"extra.{ROW}"][:, 0], (batch.target - batch.value).abs(),
                                   rollout.terminated | rollout.truncated)
            drawn_of(self.env.task).weights = self.curriculum.weights()

    def needs(self, learner: Learner) -> float:
        """Seconds of :meth:`finish`, about: as long as as many steps took before, and the judge's own time."""
        steps = self.config.judged_steps * self.env.num_worlds + self.config.calibration * self.env.task.steps
        return FINISH * steps * learner.seconds / max(learner.steps / learner.ranks.size, 1.0)

    def finish(self, learner: Learner) -> None:
        """Fly, learn the judge, calibrate."""
        env, config = self.env, self.config
        state, obs, hidden = env.state_dict(), learner.obs, learner.hidden
        obs = obs._replace(actor=obs.actor.clone(), critic=obs.critic.clone())
        env.set_mid_episode_starts(JUDGED_STARTS)
        task = env.task
        graph = copy.deepcopy(PolicyGraph(task.observe, learner.normalizer, learner.actor, task.act)).cpu()
        judge = judge_of(task)
        act = deterministic(learner.actor, learner.normalizer)
        with squeezed(task):
            seen = experience(env, act, judge, task.observe.position, config.judged_steps)
        learn(judge, seen, self.seed)
        offers = env.capabilities
        correction, flights = calibrated(offers.beside, task, graph, task.observe.world, judge, config.calibration)
        satisfied = sum(each.robustness > 0 for each in flights) / len(flights)
        self.kept = {"judge": judge.net.state_dict(), "calibration": correction, "validation": satisfied,
                     "randomized": offers.randomized}
        learner.obs, learner.hidden = obs, hidden
        env.set_mid_episode_starts(config.mid_episode_starts, config.truncate_after)
        env.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """The curriculum; once the training is over judge, calibration and the share of the validation's formulas that
        were satisfied."""
        return {"curriculum": self.curriculum.state_dict(), **self.kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.kept = {name: value for name, value in state.items() if name != "curriculum"}
        if "curriculum" in state:
            self.curriculum.load_state_dict(state["curriculum"])
            drawn_of(self.env.task).weights = self.curriculum.weights()


@contextmanager
def squeezed(task: Task) -> Iterator[None]:
    """Inside, the task's windows are changed at random, and its formulas are drawn alike."""
    missions = drawn_of(task)
    before = missions.weights
    missions.squeeze, missions.weights = SQUEEZE, None
    try:
        yield
    finally:
        missions.squeeze, missions.weights = None, before


def drawn_of(task: Task) -> Missions:
    """The formulas of a task that draws some."""
    if task.missions is None:
        raise SettingsError(f"task {task.name!r} draws no formulas")
    return task.missions


FINISH = 0.5  # of the time that as many steps of training take
SQUEEZE = (0.4, 1.3)  # of windows in what the judge learns from: it must know what is too short
JUDGED_STARTS = 0.5  # share of episodes from which the judge learns that begin in mid-episode


def load_policy(path: Path, device: str = "cpu") -> tuple[Actor, Normalizer, GeneralistConfig]:
    """The policy in a checkpoint file, or in the last one of a run's folder: ``actor(normalizer(obs))``."""
    return policy_of(read_last(path), GeneralistConfig, device)


def load_judge(path: Path, task: Task) -> tuple[Judge, dict[str, float]]:
    """The judge of legs in a checkpoint, and the calibration of its chances.

    Raises:
        CheckpointError: the training was not finished.
    """
    state = read_last(path)
    if "judge" not in (state["companion"] or {}):
        raise CheckpointError(f"{path} has no forecast yet: its training was stopped before its end; resume it")
    judge = judge_of(task)
    judge.net.load_state_dict(state["companion"]["judge"])
    return judge.eval(), dict(state["companion"]["calibration"])
