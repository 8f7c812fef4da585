"""Worlds with a frozen base: at scale 0 they are the base's, bit for bit; they resume; successes end them."""

import pytest
import torch

from temporeal.policies.training.chunk_rl.rewards import make_reward
from temporeal.policies.training.residual.base import Acted, corrected
from temporeal.policies.training.residual.worlds import ResidualEnv
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

WORLDS = 5


class Remembering:
    """Pulls to the goal by the observation, and counts the steps of each episode; with ``commands``: as commands."""

    title = "a test's base"

    def __init__(self, env, commands=False):
        self.env, self.commands, self.action_dim = env, commands, env.action_dim
        self.age = torch.zeros(env.num_worlds)

    def begin(self, ids):
        self.age[ids] = 0.0

    def of(self, obs):
        return 1.5 * torch.sin(obs.actor[:, : self.action_dim] + 0.1 * self.age[:, None])

    def act(self, obs, signals):
        action = self.of(obs)
        self.age += 1.0
        if not self.commands:
            return Acted(action)
        limits = self.env.task.robot.command(self.env.task.command)
        return Acted(action, torch.tensor(limits.high) * action / 1.7)

    def after(self, obs, signals):
        return self.of(obs)

    def state_dict(self):
        return {"age": self.age.clone()}

    def load_state_dict(self, state):
        self.age = state["age"].clone()


def made(task="joint_target", seconds=0.2):
    from dataclasses import replace

    task = load_task(task)
    return make_env(replace(task, episode_s=seconds), num_worlds=WORLDS, seed=3, threads=1)


def zeros(env):
    return torch.zeros(WORLDS, env.action_dim)


def test_what_is_executed_by_hand():
    base, u = torch.tensor([[2.0, -0.5, 0.9]]), torch.tensor([[-5.0, 0.5, 1.0]])
    assert torch.allclose(corrected(base, u, 0.3), torch.tensor([[0.7, -0.35, 1.0]]))


@pytest.mark.parametrize("commands", [False, True])
def test_scale_0_is_the_base_bit_for_bit_whatever_the_residual_says(commands):
    plain, inner = made(), made()
    base, env = Remembering(plain, commands), ResidualEnv(inner, Remembering(inner, commands), 0.0)
    obs, mine = plain.reset(), env.reset()
    base.begin(torch.arange(WORLDS))
    for k in range(12):  # beyond an episode's end
        assert torch.equal(mine.actor[:, : inner.obs_dim], obs.actor)
        acted = base.act(obs, plain.true_signals())
        plain.command_override = acted.command
        one, two = plain.step(acted.action), env.step(torch.full_like(zeros(env), (-1.0) ** k))
        assert torch.equal(one.reward, two.reward) and torch.equal(one.truncated, two.truncated)
        assert torch.equal(plain.command, inner.command)
        base.begin((one.terminated | one.truncated).nonzero()[:, 0])
        obs, mine = one.obs, two.obs
    assert torch.equal(plain.episode, inner.episode) and int(plain.episode[0]) > 0


@pytest.mark.parametrize("commands", [False, True])
def test_a_residual_moves_what_is_executed_and_the_information_says_both(commands):
    inner = made()
    env = ResidualEnv(inner, Remembering(inner, commands), 0.3)
    env.reset()
    before, u = env.now.action, torch.full_like(zeros(env), 0.5)
    step = env.step(u)
    assert torch.equal(step.info["base_action"], before)
    assert torch.equal(step.info["executed_action"], corrected(before, u, 0.3))
    assert torch.equal(inner.action, step.info["executed_action"])
    unmoved = made()
    still = ResidualEnv(unmoved, Remembering(unmoved, commands), 0.0)
    still.reset()
    still.step(u)
    assert not torch.equal(inner.command, unmoved.command)


def test_actor_and_critic_see_what_the_base_does():
    inner = made()
    env = ResidualEnv(inner, Remembering(inner), 0.3)
    obs = env.reset()
    size, seen = inner.obs_dim, env.now.action.clamp(-1.0, 1.0)
    assert obs.actor.shape == (WORLDS, env.obs_dim) and obs.critic.shape == (WORLDS, env.critic_dim)
    assert torch.equal(obs.actor[:, size:], seen) and torch.equal(obs.critic[:, size : env.obs_dim], seen)
    bare = ResidualEnv(made(), Remembering(inner), 0.3, condition=False)
    assert (bare.obs_dim, bare.critic_dim) == (inner.obs_dim, inner.critic_dim)


def test_the_true_successor_shows_what_the_base_would_have_done_there():
    inner = made()
    env = ResidualEnv(inner, Remembering(inner), 0.3)
    env.reset()
    for _ in range(30):
        step = env.step(zeros(env))
        if bool(step.truncated.all()):
            break
        wanted = env.now.action.clamp(-1.0, 1.0)
        assert torch.equal(step.final_obs.actor[:, inner.obs_dim :], wanted)
    assert bool(step.truncated.all())
    age = 0.1 * float(inner.task.steps)
    there = (1.5 * torch.sin(step.final_obs.actor[:, : env.action_dim] + age)).clamp(-1.0, 1.0)
    assert torch.allclose(step.final_obs.actor[:, inner.obs_dim :], there)
    assert torch.equal(env.now.base.age, torch.ones(WORLDS))  # the next episode's first step


@pytest.mark.parametrize("reward", ["sparse", "formula"])
def test_worlds_resume_bit_for_bit(reward):
    env, again = ((lambda inner: ResidualEnv(inner, Remembering(inner), 0.3, reward=make_reward(reward, inner, None, 1)
                                             ))(made()) for _ in range(2))
    env.reset()
    generator = torch.Generator().manual_seed(0)
    actions = torch.randn(14, WORLDS, env.action_dim, generator=generator)
    for u in actions[:7]:
        env.step(u)
    state = env.state_dict()
    wanted = [env.step(u) for u in actions[7:]]
    again.reset()
    again.load_state_dict(state)
    for u, one in zip(actions[7:], wanted):
        two = again.step(u)
        assert torch.equal(one.obs.critic, two.obs.critic) and torch.equal(one.reward, two.reward)


def test_an_episode_that_succeeds_is_over_and_paid_once():
    inner = made("hold", 4.0)  # begins where it is to stay: it succeeds soon after the formula's horizon
    paid = make_reward("sparse", inner, None, 1)
    env = ResidualEnv(inner, Still(inner), 0.0, reward=paid, end_at_success=True)
    env.reset()
    total, ends = torch.zeros(WORLDS), torch.zeros(WORLDS)
    for _ in range(inner.task.steps + 5):
        step = env.step(zeros(env))
        total, ends = total + step.reward, ends + step.terminated
        over = step.terminated
        assert torch.equal(step.reward > 0, over)
        assert bool((step.info["success"][over] > 0.5).all())
        assert bool((env.now.base.age[over] == 1).all())
    assert float(ends.sum()) > 0 and torch.equal(total, ends)


class Still(Remembering):
    def of(self, obs):
        return torch.zeros(WORLDS, self.action_dim)


def test_a_base_of_other_dimensions_is_refused():
    inner = made()
    base = Remembering(inner)
    base.action_dim += 1
    with pytest.raises(ValueError, match=f"gives {base.action_dim} numbers of an action, the worlds take"):
        ResidualEnv(inner, base, 0.3)
