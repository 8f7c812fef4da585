"""PPO: advantages by hand, solvable chains, small tasks, exact resumption, several processes as one."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from temporeal.policies.algos import ppo
from temporeal.policies.algos.ppo import train
from temporeal.policies.nets.actor import Gaussian
from temporeal.policies.training import checkpoint, ppo_reports, ppo_state
from temporeal.policies.training.advantages import gae
from temporeal.policies.training.errors import NonFiniteError, SettingsError
from temporeal.policies.training.ppo_state import Batch, Learner, PPOConfig, allocate, columns_of, start
from temporeal.policies.training.progress import Lines, Live, summary, tensorboard
from temporeal.policies.training.ranks import Ranks
from temporeal.sim.types import VecEnv

pytestmark = pytest.mark.usefixtures("one_thread")

WORLDS_FILE = Path(__file__).parents[1] / "ppo_worlds.py"
SPEC = importlib.util.spec_from_file_location("ppo_worlds", WORLDS_FILE)
assert SPEC is not None and SPEC.loader is not None
worlds = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(worlds)


def launch(*arguments: object, module: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run ppo_worlds.py in a process of its own."""
    root = WORLDS_FILE.parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, *module, str(WORLDS_FILE), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    """All parameters and buffers equal, bit for bit."""
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


# ---------------------------------------------------------------- advantages


def test_gae_by_hand() -> None:
    # gamma 1/2, lambda 1/2, so each step passes on a quarter. World 0: nothing ends. World 1: its episode is cut by
    # time after step 1, where the true successor is worth 8. World 2: it terminates after step 0
    reward = torch.tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    value = torch.tensor([[4.0, 4.0, 4.0], [2.0, 2.0, 2.0], [6.0, 6.0, 6.0]])
    next_value = torch.tensor([[2.0, 2.0, 0.0], [6.0, 8.0, 6.0], [10.0, 10.0, 10.0]])
    done = torch.tensor([[False, False, True], [False, True, False], [False, False, False]])
    # delta_2 = 3 + 5 - 6 = 2 in all worlds
    # world 0: delta_1 = 2 + 3 - 2 = 3, A_1 = 3 + 2/4 = 3.5; delta_0 = 1 + 1 - 4 = -2, A_0 = -2 + 3.5/4 = -1.125
    # world 1: A_1 = 2 + 4 - 2 = 4, cut from what follows; A_0 = -2 + 4/4 = -1
    # world 2: A_1 = 3.5 as in world 0; A_0 = 1 + 0 - 4 = -3
    expected = torch.tensor([[-1.125, -1.0, -3.0], [3.5, 4.0, 3.5], [2.0, 2.0, 2.0]])
    assert torch.equal(gae(reward, value, next_value, done, 0.5, 0.5), expected)


class Table(torch.nn.Module):
    """A critic that knows: the value of each one-hot state."""

    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        self.values = values

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return obs @ self.values


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("gae_lambda", [0.0, 0.9, 1.0])
def test_true_values_leave_no_advantage(ends: bool, gae_lambda: float) -> None:
    # Bellman's equation at every step, those where time or the task ends an episode included. A truncation that took
    # the value of the next episode's first state, or 0, would leave an advantage of several units there
    env = worlds.Chain(8, length=5, limit=7, ends=ends)
    config = PPOConfig(rollout_steps=20, gamma=0.9, gae_lambda=gae_lambda, normalize_observations=False,
                       scale_rewards=False, normalize_advantages="none")
    learner = start(env, config, 0, Ranks())
    known = Table(env.values(0.9))
    learner.replicas = [replica._replace(critic=known, forward=None) for replica in learner.replicas]
    rollout = allocate(learner)
    ppo.collect(learner, rollout)
    ppo.estimate_advantages(learner, rollout)
    assert rollout.terminated.any() == ends and rollout.truncated.any() != ends
    batch = columns_of(learner, rollout.table)
    torch.testing.assert_close(batch.advantage, torch.zeros_like(batch.advantage), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_the_critic_learns_the_values_of_a_chain_that_time_cuts(tmp_path: Path) -> None:
    env = worlds.Chain(64, length=5, limit=7, ends=False)
    config = PPOConfig(total_steps=64 * 16 * 60, rollout_steps=16, gamma=0.9, minibatches=2, schedule="constant",
                       learning_rate=5e-3, normalize_observations=False, scale_rewards=False)
    learners = []
    train(env, config, out=tmp_path, on_iteration=learners.append)
    learned = learners[-1].critic(torch.eye(5)).detach()
    torch.testing.assert_close(learned, env.values(0.9), atol=0.3, rtol=0)  # 6.6 to 10


@pytest.mark.slow
def test_the_same_values_are_found_under_scaled_rewards(tmp_path: Path) -> None:
    env = worlds.Chain(64, length=5, limit=7, ends=True)
    config = PPOConfig(total_steps=64 * 16 * 60, rollout_steps=16, gamma=0.9, minibatches=2, schedule="constant",
                       learning_rate=5e-3)
    learners = []
    train(env, config, out=tmp_path, on_iteration=learners.append)
    learner = learners[-1]
    learned = learner.critic(learner.critic_normalizer(torch.eye(5))) / learner.return_moments.scale
    torch.testing.assert_close(learned.detach(), env.values(0.9), atol=0.05, rtol=0)


def test_gradient_of_the_clipped_objective_by_hand() -> None:
    # one action, standard deviation 1, old mean 0: ratio = exp(m a - m^2 / 2). Mean m = 1 at actions 1 and -1:
    # ratios exp(1/2) = 1.65 and exp(-3/2) = 0.22. With advantages 1 and 1 the first is clipped at 1.2 (no gradient),
    # the second is not, as it may still rise: dL/dm = -(ratio (a - m)) A / 2 = 0.22 * 2 / 2
    class Constant(torch.nn.Module):
        def __init__(self, value: float) -> None:
            super().__init__()
            self.value = torch.nn.Parameter(torch.tensor(value))
            self.log_std = torch.nn.Parameter(torch.zeros(1))

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return self.value.expand(len(obs), 1)

    class Value(Constant):
        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return self.value.expand(len(obs))

    actor, critic = Constant(1.0), Value(3.0)
    action = torch.tensor([[1.0], [-1.0]])
    old = Gaussian(torch.zeros(2, 1), torch.zeros(1))
    batch = Batch(torch.zeros(2, 1), torch.zeros(2, 1), action, old.mean, old.log_prob(action), torch.ones(2),
                  target=torch.tensor([1.0, 1.0]), value=torch.zeros(2), first=torch.zeros(2))
    figures = ppo.losses(actor, critic, batch, torch.zeros(2, 0), torch.zeros(1),
                         PPOConfig(entropy_coef=0.0))
    figures[0].backward()
    low = float(torch.exp(torch.tensor(-1.5)))
    torch.testing.assert_close(actor.value.grad, torch.tensor(low))
    # loss, KL(old || new) = m^2 / 2, policy loss, value loss
    expected = torch.tensor([-(1.2 + low) / 2 + 0.5 * 4.0, 0.5, -(1.2 + low) / 2, 4.0])
    torch.testing.assert_close(figures.detach(), expected)
    clipped = ppo.losses(actor, critic, batch, torch.zeros(2, 0), torch.zeros(1), PPOConfig(value_clip=0.5))
    # 0 + 0.5 is as near to 3 as the clip allows; the larger of the errors counts
    assert clipped[3].item() == 4.0


# ---------------------------------------------------------------- learning


POINT_MASS = PPOConfig(total_steps=64 * 32 * 60, rollout_steps=32, actor_hidden=(32, 32), critic_hidden=(32, 32))
# returns: -161 without any force, sum of E (x0 + 0.1 k v0)^2 + v0^2 / 10; -4.4 by this spring and damper
SPRING_AND_DAMPER = torch.tensor([[-3.0], [-3.0]])


def good() -> float:
    """The return of spring and damper, less 0.6."""
    return worlds.mean_cost(lambda obs: obs @ SPRING_AND_DAMPER, torch.nn.Identity()) - 0.6


def test_the_largest_seed_is_one(tmp_path: Path) -> None:
    """What the drawing of minibatches is seeded with is a multiple of it, in as many bits."""
    config = replace(POINT_MASS, total_steps=64 * 32)
    assert train(worlds.PointMass(64, seed=1), config, out=tmp_path, seed=2**63 - 1).history


@pytest.mark.parametrize("most", [None, 0.8])
def test_the_deviation_grows_to_its_limit(tmp_path: Path, most: float | None) -> None:
    config = replace(POINT_MASS, total_steps=64 * 32 * 12, entropy_coef=0.5, max_std=most)
    train(worlds.PointMass(64, seed=1), config, out=tmp_path)
    actor, _, _ = ppo.load_policy(tmp_path)
    std = actor.log_std.exp()
    assert (std > 0.85).all() if most is None else torch.allclose(std, torch.tensor(0.8))


def test_the_deviation_falls_over_the_second_half(tmp_path: Path) -> None:
    """What is deployed does not explore: at the end of the training, the policy hardly does."""
    config = replace(POINT_MASS, total_steps=64 * 32 * 12, entropy_coef=0.5, max_std=0.8, final_std=0.1)
    stds = [row["std"] for row in train(worlds.PointMass(64, seed=1), config, out=tmp_path).history]
    limits = [0.8 * 0.125 ** max(2 * k / 12 - 1, 0) for k in range(12)]
    assert all(std <= limit * 1.00001 for std, limit in zip(stds, limits)) and max(stds) > 0.7
    assert stds[-1] == pytest.approx(0.8 * 0.125 ** (2 * 11 / 12 - 1), rel=1e-5)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_point_mass_learns_to_stop_at_the_origin(tmp_path: Path, seed: int) -> None:
    result = train(worlds.PointMass(64, seed=seed), POINT_MASS, out=tmp_path, seed=seed)
    assert worlds.mean_cost(result.actor, result.normalizer) > good()
    assert result.history[-1]["explained"] > 0.5
    assert result.history[-1]["return"] > result.history[5]["return"]


@pytest.mark.slow
def test_bfloat16_learns_too(tmp_path: Path) -> None:
    result = train(worlds.PointMass(64), replace(POINT_MASS, precision="bfloat16"), out=tmp_path)
    assert worlds.mean_cost(result.actor, result.normalizer) > good()


def recalled(memory: int, out: Path) -> float:
    """Mean agreement of the deterministic action with the cue, in [-1, 1]."""
    config = PPOConfig(total_steps=128 * 12 * 40, rollout_steps=12, memory=memory, actor_hidden=(16,),
                       critic_hidden=(16,), learning_rate=3e-3, max_learning_rate=5e-3, entropy_coef=1e-3)
    actor, normalizer, _ = train(worlds.Recall(128), config, out=out)
    env = worlds.Recall(128, seed=7)
    obs, hidden, found = env.reset(), torch.zeros(128, memory), []
    with torch.no_grad():
        for _ in range(18):
            action, hidden = actor(normalizer(obs.actor), hidden)
            step = env.step(action)
            hidden[step.terminated] = 0.0
            obs = step.obs
            found.append(step.info["return"][step.terminated])
    return float(torch.cat(found[6:]).mean())  # the worlds that began after their cue are through


@pytest.mark.slow
def test_a_recurrent_actor_remembers(tmp_path: Path) -> None:
    assert recalled(8, tmp_path) > 0.9


def recurrent_rollout() -> tuple[Learner, ppo_state.Rollout]:
    """A learner whose actions depend on its hidden state, and a rollout in which episodes end in all worlds."""
    learner = start(worlds.Recall(worlds.WORLDS, steps=3), worlds.small(1, memory=4, threads=1), 0, Ranks())
    torch.nn.init.normal_(learner.actor.head.weight)  # type: ignore[union-attr, arg-type]
    rollout = allocate(learner)
    ppo.collect(learner, rollout)
    return learner, rollout


def test_a_recurrent_actor_forgets_where_an_episode_ends() -> None:
    learner, rollout = recurrent_rollout()
    ended = (rollout.terminated | rollout.truncated)[-1]
    assert 0 < int(ended.sum()) < worlds.WORLDS
    assert not learner.hidden[ended].any() and learner.hidden[~ended].abs().sum(-1).min() > 0


def test_a_recurrent_update_starts_from_the_actions_that_were_taken() -> None:
    """Unrolled over the rollout, the actor repeats its actions, across the beginnings of episodes too."""
    learner, rollout = recurrent_rollout()
    ppo.estimate_advantages(learner, rollout)
    batch, done = columns_of(learner, rollout.table), rollout.terminated | rollout.truncated
    assert torch.equal(batch.first[1:] > 0, done[:-1]) and not batch.first[0].any() and batch.first.any()
    with torch.no_grad():
        repeated = learner.actor.unroll(batch.obs, rollout.hidden, batch.first > 0)  # type: ignore[union-attr, operator]
    torch.testing.assert_close(repeated, batch.mean, rtol=0, atol=1e-5)


def stable_baselines(seed: int, steps: int) -> float:
    """Return of stable-baselines3's PPO on the same task, with its defaults for continuous control."""
    import gymnasium
    import numpy as np
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecEnv as Baselines

    class View(Baselines):
        def __init__(self) -> None:
            self.world = worlds.PointMass(64, seed=seed)
            box = gymnasium.spaces.Box
            super().__init__(64, box(-np.inf, np.inf, (2,)), box(-1.0, 1.0, (1,)))

        def reset(self) -> np.ndarray:
            return self.world.reset().actor.numpy()

        def step_async(self, actions: np.ndarray) -> None:
            self.actions = torch.from_numpy(actions)

        def step_wait(self):  # type: ignore[no-untyped-def]
            step = self.world.step(self.actions)
            infos = [{"TimeLimit.truncated": True, "terminal_observation": f} if cut else {}
                     for cut, f in zip(step.truncated.tolist(), step.final_obs.actor.numpy())]
            return step.obs.actor.numpy(), step.reward.numpy(), step.truncated.numpy(), infos

        def close(self) -> None: ...

        def get_attr(self, name, indices=None):  # type: ignore[no-untyped-def]
            return [None] * 64

        def set_attr(self, *_, **__):  # type: ignore[no-untyped-def]
            ...

        def env_method(self, *_, **__):  # type: ignore[no-untyped-def]
            ...

        def env_is_wrapped(self, *_, **__):  # type: ignore[no-untyped-def]
            return [False] * 64

    model = PPO("MlpPolicy", View(), n_steps=32, batch_size=512, n_epochs=4, seed=seed,
                policy_kwargs={"net_arch": [32, 32]}, device="cpu")
    model.learn(steps)

    def actor(obs: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(model.predict(obs.numpy(), deterministic=True)[0])

    return worlds.mean_cost(actor, torch.nn.Identity())


@pytest.mark.slow
def test_not_worse_than_stable_baselines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from statistics import mean, variance
    from time import process_time

    ours, theirs, seconds = [], [], [0.0, 0.0]
    for seed in range(5):
        began = process_time()
        result = train(worlds.PointMass(64, seed=seed), POINT_MASS, out=tmp_path / str(seed), seed=seed)
        between = process_time()
        theirs.append(stable_baselines(seed, POINT_MASS.total_steps))
        seconds = [seconds[0] + between - began, seconds[1] + process_time() - between]
        ours.append(worlds.mean_cost(result.actor, result.normalizer))
    with capsys.disabled():
        print(f"\npoint mass, {POINT_MASS.total_steps} steps, 5 seeds: return {mean(ours):.2f} in "
              f"{seconds[0] / 5:.1f} CPU s; stable-baselines3 {mean(theirs):.2f} in {seconds[1] / 5:.1f} CPU s")
    # both end at the optimum: not worse by more than two standard errors of the difference
    assert mean(ours) >= mean(theirs) - 2 * ((variance(ours) + variance(theirs)) / 5) ** 0.5


# ---------------------------------------------------------------- resuming


@pytest.mark.slow
@pytest.mark.parametrize("where", ["before", "writing"])
def test_a_run_that_was_killed_ends_as_if_it_had_not_been(tmp_path: Path, where: str) -> None:
    process = launch("kill", tmp_path / "killed", 4, where)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert checkpoint.iterations(tmp_path / "killed" / "checkpoints", 1) == [2, 3]
    resumed, whole = [], []
    train(worlds.PointMass(worlds.WORLDS), worlds.small(6), out=tmp_path / "killed", resume=True,
          on_iteration=resumed.append)
    train(worlds.PointMass(worlds.WORLDS), worlds.small(6), out=tmp_path / "whole", on_iteration=whole.append)
    assert len(resumed) == 3 and len(whole) == 6
    for name in ("actor", "critic", "normalizer", "critic_normalizer", "return_moments"):
        assert same(getattr(resumed[-1], name), getattr(whole[-1], name)), name
    assert torch.equal(resumed[-1].env.state, whole[-1].env.state)
    assert [h["iteration"] for h in resumed[-1].history] == [1, 2, 3, 4, 5, 6]


def test_a_recurrent_run_resumes_exactly(tmp_path: Path) -> None:
    def run(out: str, iterations: int, resume: bool) -> torch.nn.Module:
        env = worlds.Recall(worlds.WORLDS)
        return train(env, worlds.small(iterations, memory=4), out=tmp_path / out, resume=resume).actor

    run("parts", 3, False)
    assert same(run("parts", 6, True), run("whole", 6, False))


def test_an_earlier_checkpoint_can_be_named(tmp_path: Path) -> None:
    train(worlds.PointMass(worlds.WORLDS), worlds.small(4), out=tmp_path)
    earlier = checkpoint.file_of(tmp_path / "checkpoints", 3, 0, 1)
    seen = []
    train(worlds.PointMass(worlds.WORLDS), worlds.small(4), out=tmp_path, resume=earlier, on_iteration=seen.append)
    assert len(seen) == 1


@pytest.mark.parametrize(("change", "message"), [
    ({"config": {"gamma": 0.5}}, "gamma 0.99 -> 0.5"), ({"seed": 3}, "seed 0 -> 3"),
    ({"worlds": 16}, "num_worlds 32 -> 16"),
])
def test_another_run_cannot_be_resumed(tmp_path: Path, change: dict[str, object], message: str) -> None:
    train(worlds.PointMass(worlds.WORLDS), worlds.small(2), out=tmp_path)
    config = worlds.small(3, **change.get("config", {}))
    env = worlds.PointMass(change.get("worlds", worlds.WORLDS))
    with pytest.raises(checkpoint.CheckpointError, match=message):
        train(env, config, out=tmp_path, seed=change.get("seed", 0), resume=True)


def test_a_run_is_not_resumed_on_another_kind_of_device(tmp_path: Path) -> None:
    train(worlds.PointMass(worlds.WORLDS), worlds.small(2), out=tmp_path)
    for file in (tmp_path / "checkpoints").glob("*.pt"):
        checkpoint.save(file, {**checkpoint.load(file), "cuda_rng": torch.zeros(16, dtype=torch.uint8)})
    with pytest.raises(checkpoint.CheckpointError, match="device differs .device 'cuda' -> 'cpu'."):
        train(worlds.PointMass(worlds.WORLDS), worlds.small(3), out=tmp_path, resume=True)


def test_the_policy_of_a_run_is_loaded(tmp_path: Path) -> None:
    result = train(worlds.PointMass(worlds.WORLDS), worlds.small(3), out=tmp_path)
    actor, normalizer, config = ppo.load_policy(tmp_path)
    assert same(actor, result.actor) and same(normalizer, result.normalizer) and config == worlds.small(3)
    with pytest.raises(checkpoint.CheckpointError, match="holds no checkpoint"):
        ppo.load_policy(tmp_path.parent)


def test_a_run_of_before_a_setting_goes_on_and_is_judged(tmp_path: Path) -> None:
    whole = train(worlds.PointMass(worlds.WORLDS), worlds.small(4), out=tmp_path / "whole").actor
    train(worlds.PointMass(worlds.WORLDS), worlds.small(2), out=tmp_path / "old")
    for file in (tmp_path / "old" / "checkpoints").glob("*.pt"):
        state = checkpoint.load(file)
        assert state["config"].pop("stagger") is False
        checkpoint.save(file, state)
    assert ppo.load_policy(tmp_path / "old")[2] == worlds.small(2)
    assert same(train(worlds.PointMass(worlds.WORLDS), worlds.small(4), out=tmp_path / "old", resume=True).actor, whole)


def staggered() -> VecEnv:
    from temporeal.sim.env import make_env
    from temporeal.sim.task import load_task

    task = load_task("stl", formula="F[0,4] (norm(base_pos_w) < 0.5)", view="terminal_robustness")
    return make_env(task, num_worlds=32, seed=1, threads=1)


def test_a_staggered_run_ends_few_episodes_at_once_and_resumes_exactly(tmp_path: Path) -> None:
    def run(out: str, iterations: int, resume: bool = False) -> Learner:
        seen: list[Learner] = []
        config = worlds.small(iterations, stagger=True, rollout_steps=8)
        train(staggered(), config, out=tmp_path / out, resume=resume, on_iteration=seen.append)
        return seen[-1]

    whole = run("whole", 4)
    first = run("parts", 1)  # 8 of 20 steps: some worlds are still in the episode that is cut off
    assert 0 < int(first.env.mid_episode.sum()) < 32 and first.env.count.unique().numel() > 5
    assert whole.env.count.unique().numel() > 5
    again = run("parts", 4, resume=True)
    assert same(again.actor, whole.actor) and torch.equal(again.env.column["until"], whole.env.column["until"])


# ---------------------------------------------------------------- running


def test_a_loss_that_is_not_a_number_stops_the_run_and_leaves_the_evidence(tmp_path: Path) -> None:
    env = worlds.PointMass(worlds.WORLDS, nan_after=20)  # in the third rollout of 8 steps
    path = tmp_path / "nonfinite.rank0.pt"
    with pytest.raises(NonFiniteError, match=f"non-finite inputs: .*target.*{path}"):
        train(env, worlds.small(6), out=tmp_path)
    evidence = checkpoint.load(path)
    assert evidence["iteration"] == 2 and torch.isnan(evidence["batch"]["target"]).any()
    assert all(torch.isfinite(v).all() for v in evidence["actor"].values())
    assert checkpoint.iterations(tmp_path / "checkpoints", 1) == [1, 2]


def test_the_number_of_threads_of_the_machine_does_not_matter(tmp_path: Path) -> None:
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(train(worlds.PointMass(worlds.WORLDS), worlds.small(3), out=tmp_path / str(threads)))
        assert torch.get_num_threads() == threads
    assert same(results[0].actor, results[1].actor)


def test_workers_compute_the_gradient_of_one(tmp_path: Path) -> None:
    gradients = []
    for threads in (1, 3):
        learner = start(worlds.PointMass(16), worlds.small(1, rollout_steps=4, threads=threads), 0, Ranks())
        rollout = allocate(learner)
        worlds.filled(learner, rollout, slice(None))
        table = rollout.table.flatten(0, 1)
        ppo.differentiate(learner, rollout, table, torch.arange(64), torch.zeros(1), ppo.losses)
        gradients.append(learner.replicas[0].gradient)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_two_processes_are_one(tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    process = launch("ranks", tmp_path, module=launcher)
    assert process.returncode == 0, process.stderr[-3000:]
    first, second = (checkpoint.load(tmp_path / f"rank{i}.pt") for i in (0, 1))
    # the same 16 worlds in two halves or in one piece
    torch.testing.assert_close(first["gradient"], worlds.gradient(Ranks(), slice(0, 16)), rtol=1e-4, atol=1e-6)
    for name in ("actor", "normalizer"):
        assert all(torch.equal(first[name][k], second[name][k]) for k in first[name]), name
    assert first["rates"] == second["rates"] and len(set(first["rates"])) > 1
    assert first["normalizer"]["count"] == first["rows"] + second["rows"]
    assert (first["listened"], second["listened"]) == (3, 0)
    assert checkpoint.iterations(tmp_path / "checkpoints", 2) == [2, 3]


def test_figures_are_those_of_whole_episodes() -> None:
    sums: dict[str, torch.Tensor] = {}
    info = {
        "success": torch.tensor([True, True, False, True]),
        "mid_episode": torch.tensor([True, False, False, False]),
    }
    ppo_reports.count_episodes(sums, info, torch.tensor([0]))
    assert not sums
    ppo_reports.count_episodes(sums, info, torch.tensor([0, 1, 2]))
    assert {k: float(v) for k, v in sums.items()} == {"success": 1.0, "count": 2.0}


@pytest.mark.parametrize(("schedule", "kl", "expected"), [
    ("constant", 1.0, 1e-3), ("linear", 1.0, 0.75e-3), ("adaptive", 0.021, 1e-3 / 1.5), ("adaptive", 0.004, 1.5e-3),
    ("adaptive", 0.01, 1e-3), ("adaptive", 0.0, 1e-3),
])
def test_learning_rate_schedules(schedule: str, kl: float, expected: float) -> None:
    config = worlds.small(4, schedule=schedule, learning_rate=1e-3)
    learner = start(worlds.PointMass(worlds.WORLDS), config, 0, Ranks())
    learner.steps = worlds.ITERATION
    assert ppo.next_learning_rate(learner, kl) == pytest.approx(expected)


def test_the_desired_divergence_falls_over_the_budget() -> None:
    config = worlds.small(4, desired_kl=0.01, final_kl=0.2, learning_rate=1e-3)
    learner = start(worlds.PointMass(worlds.WORLDS), config, 0, Ranks())
    learner.steps = 2 * worlds.ITERATION  # half of it: 0.006 is desired
    assert ppo.next_learning_rate(learner, 0.0121) == pytest.approx(1e-3 / 1.5)
    assert ppo.next_learning_rate(learner, 0.0119) == ppo.next_learning_rate(learner, 0.0031) == 1e-3
    assert ppo.next_learning_rate(learner, 0.0029) == pytest.approx(1.5e-3)


def test_what_the_companions_end_takes_is_no_time_to_learn_in() -> None:
    config = worlds.small(4, total_steps=10**9, max_seconds=100.0, max_std=1.0, final_std=0.1)
    learner = start(worlds.PointMass(worlds.WORLDS), config, 0, Ranks())
    learner.companion, learner.iteration = SimpleNamespace(needs=lambda _: 20.0), ppo.FINISH_ESTIMATED
    ppo.estimate_finish(learner)
    for seconds, fraction, std in ((40.0, 0.5, 1.0), (60.0, 0.75, 0.1**0.5), (80.0, 1.0, 0.1)):
        learner.seconds = seconds
        assert ppo_state.fraction_spent(learner) == pytest.approx(fraction) and ppo.widest(learner) == pytest.approx(
            std
        )


class Flies:
    """A companion that says what was kept when its end began."""

    def __init__(self, out: Path) -> None:
        self.out, self.kept, self.finished = out, [], False

    def __call__(self, learner: Learner, rollout: ppo_state.Rollout) -> None:
        self.finished = False

    def finish(self, learner: Learner) -> None:
        self.kept.append(checkpoint.iterations(self.out / "checkpoints", 1)[-1])
        self.finished = True

    def needs(self, learner: Learner) -> float:
        return 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"finished": self.finished}

    def load_state_dict(self, state: Any) -> None:
        self.finished = state["finished"]


def test_the_companions_end_is_for_runs_whose_budget_is_spent(tmp_path: Path) -> None:
    """One that is stopped keeps its checkpoint at once; it may go on, and a spent one has kept it before."""
    def run(iterations: int, **how: Any) -> list[int]:
        companion = Flies(tmp_path)
        train(worlds.PointMass(worlds.WORLDS), worlds.small(iterations), out=tmp_path, companion=companion, **how)
        return companion.kept

    assert run(4, on_iteration=lambda one: one.iteration >= 2) == []
    assert checkpoint.iterations(tmp_path / "checkpoints", 1)[-1] == 2
    assert run(4, resume=True, on_iteration=lambda one: one.iteration >= 4) == []  # stopped at its end
    assert run(4, resume=True) == [4]
    assert run(4, resume=True) == []  # that was all
    assert run(5, resume=True) == [5]


def test_budgets_and_the_callers_wish_end_a_run(tmp_path: Path) -> None:
    def iterations(config: PPOConfig, wish: int = 99) -> int:
        env = worlds.PointMass(worlds.WORLDS)
        return len(train(env, config, out=tmp_path, on_iteration=lambda one: one.iteration >= wish).history)

    assert iterations(worlds.small(3)) == 3
    assert iterations(worlds.small(9), wish=2) == 2
    assert iterations(worlds.small(10**6, max_seconds=1e-9)) == 1


@pytest.mark.slow
def test_more_workers_than_rows(tmp_path: Path) -> None:
    config = worlds.small(2, rollout_steps=2, minibatches=32, threads=3, value_clip=0.2)
    result = train(worlds.PointMass(worlds.WORLDS), config, out=tmp_path)
    assert all(torch.isfinite(p).all() for p in result.actor.parameters())


def test_minibatch_standardization_is_of_each_minibatch(tmp_path: Path) -> None:
    learner = start(worlds.PointMass(16), worlds.small(1, rollout_steps=4), 0, Ranks())
    width, draw = allocate(learner).table.shape[-1], torch.Generator().manual_seed(0)
    table = torch.randn(64, width, generator=draw) * 3 + 5  # five of a draw that are close together round to more
    chosen = torch.tensor([3, 50, 7, 21, 9])
    ppo._standardize_chosen(learner, table, 0, chosen)
    got = columns_of(learner, table[chosen]).advantage
    torch.testing.assert_close(got.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(got.var(correction=0), torch.tensor(1.0))


@pytest.mark.parametrize(("name", "value", "legal"), [
    ("schedule", "cosine", "constant, linear, adaptive"), ("precision", "half", "float32, bfloat16"),
    ("gamma", 1.5, "within"), ("rollout_steps", 0, "positive"), ("actor_hidden", [], "at least one"),
    ("max_std", 0.5, "at least init_std"), ("final_std", 0.1, "at most that, or null"),
])
def test_bad_settings_name_the_legal_ones(name: str, value: object, legal: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{legal}"):
        PPOConfig(**{name: value})


def test_more_minibatches_than_worlds_of_a_recurrent_actor(tmp_path: Path) -> None:
    env: VecEnv = worlds.Recall(1)
    with pytest.raises(ValueError, match="minibatches is 2"):
        train(env, worlds.small(1, memory=4), out=tmp_path)


def test_an_environment_that_cannot_stagger_its_episodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="stagger: Recall cannot"):
        train(worlds.Recall(4), worlds.small(1, stagger=True), out=tmp_path)


# ---------------------------------------------------------------- what is shown


def test_plain_lines_and_tensorboard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tensorboard(tmp_path / "events") as logger:
        result = train(worlds.PointMass(worlds.WORLDS), worlds.small(8), out=tmp_path, logger=logger,
                       progress=Lines("point mass", every=0.0))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and all(line.startswith("point mass: steps ") and " k  rate " in line for line in lines)
    assert "return" in lines[-1] and "learning rate" in lines[-1] and "left 0:00" in lines[-1]
    events = EventAccumulator(str(tmp_path / "events")).Reload()
    assert [e.step for e in events.Scalars("steps")] == [worlds.ITERATION * i for i in range(1, 9)]
    assert events.Scalars("reward")[-1].value == pytest.approx(result.history[-1]["reward"], rel=1e-5)


def test_summary_shows_what_exists() -> None:
    metrics = {"steps": 2e6, "rate": 1e5, "seconds": 3725.0, "eta": 59.6, "success": 0.5}
    assert summary(metrics) == {"steps": "2.00 M", "rate": "100 k/s", "elapsed": "1:02:05", "left": "1:00",
                                "success": "50.0%"}


def test_the_configuration_file_has_every_setting_and_no_other() -> None:
    import yaml

    written = yaml.safe_load((WORLDS_FILE.parents[2] / "configs" / "algo" / "ppo.yaml").read_text())
    assert set(written) == {f.name for f in fields(PPOConfig)}
    PPOConfig(**written)


def test_the_live_table_shows_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with Live("point mass") as live:
        live({"steps": 2e6, "rate": 1e5, "seconds": 20.0, "eta": 10.0, "fraction": 0.67, "success": 0.5})
    shown = capsys.readouterr().out
    assert "point mass" in shown and "100 k/s" in shown and "50.0%" in shown
