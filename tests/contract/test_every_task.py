"""Every task on the fast backend: sizes, finiteness, determinism, resume, horizon, and what an episode's end means."""

import pytest
import torch
from tests.examples import thinned

from temporeal.robots.registry import UnknownName, names
from temporeal.sim.env import make_env
from temporeal.sim.stl.language.queries import horizon
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.task import load_task

TASKS = names("temporeal.sim.tasks")
FLYING = {"mass": {"kind": "sources"}, "motor_gain": {"kind": "sources", "scale": 0.3},
          "force_w": {"kind": "normal", "std": 0.01}}
JOINTED = {"mass": {"kind": "sources"}, "damping": {"kind": "sources"},
           "kp": {"kind": "sources", "scale": 0.5, "optional": True}}

PLANAR = {"speed_gain": {"kind": "sources"}}


def env_of(task, n=6, seed=3, **kw):
    loaded = load_task(task)
    seen = [name for name in loaded.observe.signals if name in loaded.robot.signals]
    sensors = {"noise": dict.fromkeys(seen, 0.002), "bias": {seen[0]: 0.001}, "delay_steps": 1}
    randomize = {"quadrotor": FLYING, "planar": PLANAR}.get(loaded.robot.kind, JOINTED)
    return make_env(loaded, num_worlds=n, seed=seed, randomize=randomize, sensors=sensors, threads=1, **kw)


def actions(env, steps, seed=0):
    gen = torch.Generator().manual_seed(seed)
    return 0.3 * torch.randn(steps, env.num_worlds, env.action_dim, generator=gen)


@pytest.mark.parametrize("task", thinned(TASKS, keep=["ant", "arm_track", "hold", "hover", "stl", "waypoints"]))
def test_sizes_and_finiteness(task):
    env = env_of(task)
    obs = env.reset()
    assert obs.actor.shape == (6, env.obs_dim) and obs.critic.shape == (6, env.critic_dim)
    for action in actions(env, 60):
        step = env.step(action)
        for value in (*step.obs[:2], *step.final_obs[:2], step.reward):
            assert torch.isfinite(value).all()
        assert step.reward.shape == step.terminated.shape == step.truncated.shape == (6,)
        assert not (step.terminated & step.truncated).any()
    action = torch.zeros(6, env.action_dim)
    action[2, -1] = torch.nan
    step = env.step(action)
    assert step.info["finite"].tolist() == [True, True, False, True, True, True] and env.diverged == 1
    assert all(torch.isfinite(value).all() for value in (*step.obs[:2], *step.final_obs[:2], step.reward))


@pytest.mark.parametrize("task", TASKS)
def test_horizon_fits_the_episode_and_decomposes_on_the_control_grid(task):
    task = load_task(task)
    assert horizon(task.formula) <= task.episode_s + 1e-9
    # a suite's formula is one of alternatives; what is followed in a world is the formula of its own kind
    followed = getattr(task.objective, "formulas", {"": task.formula})
    assert all(decompose(formula, task.control_dt).single().keeps for formula in followed.values())


@pytest.mark.parametrize("task", thinned(TASKS, keep=["reach", "stl"]))
def test_world_sees_the_same_episodes_whatever_the_number_of_worlds(task):
    few, many = env_of(task, 3), env_of(task, 20)
    a, b = few.reset(), many.reset()
    torch.testing.assert_close(a.actor, b.actor[:3], rtol=0, atol=0)
    plan = actions(many, 80)
    for action in plan:
        x, y = few.step(action[:3]), many.step(action)
        torch.testing.assert_close(x.obs.actor, y.obs.actor[:3], rtol=0, atol=1e-6)
        assert torch.equal(x.terminated, y.terminated[:3])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.slow
def test_resume_is_bit_exact(task):
    env, other = env_of(task), env_of(task)
    env.reset()
    plan = actions(env, 70)
    for action in plan[:35]:
        env.step(action)
    other.reset()
    other.load_state_dict(env.state_dict())
    for action in plan[35:]:
        a, b = env.step(action), other.step(action)
        assert torch.equal(a.obs.actor, b.obs.actor) and torch.equal(a.obs.critic, b.obs.critic)
        assert torch.equal(a.reward, b.reward)


@pytest.mark.parametrize("task", thinned(TASKS, keep=["hold", "hover", "joint_target", "reach", "stl", "track"]))
def test_episode_ends_by_truncation_with_the_true_successor(task):
    env = make_env(load_task(task), num_worlds=2, seed=1, threads=1)
    env.reset()
    for _ in range(env.task.steps):
        step = env.step(torch.zeros(2, env.action_dim))
        if (step.terminated | step.truncated).any():
            break
    done = step.terminated | step.truncated
    assert not torch.equal(step.obs.actor[done], step.final_obs.actor[done])
    assert torch.equal(step.obs.actor[~done], step.final_obs.actor[~done])
    assert (env.count[done] == 0).all() and (step.info["length"][done] > 0).all()


def test_unknown_names_are_listed():
    with pytest.raises(UnknownName, match="hover"):
        load_task("hoover")
    with pytest.raises(ValueError, match="its settings are: .*substeps"):
        load_task("hover", substep=3)
    with pytest.raises(ValueError, match="legal: .*progress"):
        load_task("waypoints", reward={"progres": 1.0})
    with pytest.raises(ValueError, match="legal: .*mass"):
        make_env(load_task("hover"), num_worlds=1, randomize={"masss": {"kind": "sources"}})
    with pytest.raises(ValueError, match="legal: sources, uniform"):
        make_env(load_task("hover"), num_worlds=1, randomize={"mass": {"kind": "gauss"}})
    with pytest.raises(ValueError, match="legal: base_pos_w"):
        make_env(load_task("hover"), num_worlds=1, sensors={"noise": {"position": 1.0}})


def test_a_task_that_cannot_be_compiled_says_so_and_runs_as_it_is():
    task = load_task("hover")

    class Odd(type(task.observe)):
        def forward(self, signals, memory):
            obs, memory = super().forward(signals, memory)
            return torch.linalg.qr(obs[:, None])[1][:, 0] if len(obs) else obs, memory

    task.observe.__class__ = Odd
    with pytest.raises(ValueError, match="'hover' cannot be compiled: linalg_qr: .*compiled=false"):
        make_env(task, num_worlds=3)
    assert torch.isfinite(make_env(task, num_worlds=3, compiled=False).reset().actor).all()


@pytest.mark.parametrize("formula", ["G[3,9] (norm(base_pos_w - a) < 0.5)", "F[0,3] (norm(base_pos_w - a) < 0.5)"])
def test_a_mission_of_one_clause_reads_what_it_names(formula):
    task = load_task("waypoints", formula=formula)
    assert "height" not in task.observe.signals
    env = make_env(task, num_worlds=3, randomize=FLYING, threads=1)
    env.reset()
    assert torch.isfinite(env.step(torch.zeros(3, 4)).obs.critic).all()


def test_a_formula_that_cannot_be_judged_is_refused_before_training():
    with pytest.raises(ValueError, match=r"G\[0,5\] \(1 > 0\)' reads no signal.*signals: .*base_pos_w"):
        load_task("hover", formula="G[0,5] (1 > 0)")
    with pytest.raises(ValueError, match="control_dt = 0.03 s: window bound 5 s is no multiple"):
        load_task("hover", control_dt=0.03)
