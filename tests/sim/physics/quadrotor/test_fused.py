"""The fused hover step: the same physics as the backend, L2F's reward and resets, true successors, determinism."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from temporeal.robots.crazyflie.spec import L2F_PARAMETERS
from temporeal.robots.spec import load_robot
from temporeal.sim.backends.quadrotor import make
from temporeal.sim.physics.quadrotor.fused import TARGET, TRAINING, FusedHover, true_hover_action

pytestmark = pytest.mark.slow  # its kernels take a quarter of a minute to compile on a new machine
QUIET = replace(TRAINING, noise_position=0.0, noise_rotation=0.0, noise_velocity=0.0, noise_rate=0.0)


def actions(n, steps, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return 0.334 + 0.3 * torch.randn(steps, n, 4, generator=draw)


def quaternion(rows):
    """Unit quaternions with w >= 0 of rotation matrices [N, 9] with angles below 180 degrees."""
    r = rows.reshape(-1, 3, 3)
    w = 0.5 * (1 + r[:, 0, 0] + r[:, 1, 1] + r[:, 2, 2]).sqrt()
    xyz = torch.stack([r[:, 2, 1] - r[:, 1, 2], r[:, 0, 2] - r[:, 2, 0], r[:, 1, 0] - r[:, 0, 1]], -1)
    return torch.cat([w[:, None], xyz / (4 * w[:, None])], -1)


def test_physics_and_reward_are_those_of_the_backend():
    n = 37
    env = FusedHover(n, seed=3, task=QUIET, threads=1)
    start = env.reset()
    truth = start.critic.clone()
    backend = make(load_robot("crazyflie"), n, "motor_cmd", dt=0.01, threads=1)
    ids = torch.arange(n)
    l2f = {k: torch.tensor(v if len(v) > 1 else v[0]).expand(n, *([len(v)] if len(v) > 1 else []))
           for k, v in L2F_PARAMETERS.items()}  # fmt: skip
    backend.set_params(ids, l2f | {"force_w": truth[:, 22:25] / 10, "torque_b": truth[:, 25:28] / 1000})
    up = torch.tensor([0.0, 0.0, 100.0])  # far from the backend's ground
    backend.reset(ids, {
        "base_pos_w": truth[:, :3] + up, "base_quat_w": quaternion(truth[:, 3:12]), "base_vel_w": truth[:, 12:15],
        "base_ang_vel_b": truth[:, 15:18], "rotor_speed": truth[:, 18:22],
    })  # fmt: skip
    alive = torch.ones(n, dtype=torch.bool)
    for action in actions(n, 15):
        before = {k: v.clone() for k, v in backend.signals().items()}
        step = env.step(action)
        backend.step(0.5 + 0.5 * action.clamp(-1, 1), 1)
        after = backend.signals()
        position = before["base_pos_w"] - up
        cost = (
            5 * position.square().sum(1) + 5 * (1 - before["base_quat_w"][:, 0] ** 2)
            + 0.01 * before["base_vel_w"].square().sum(1)
            + 0.01 * (action.clamp(-1, 1) - 0.334).square().sum(1)
        )  # fmt: skip
        expected = torch.where(step.terminated, torch.zeros(n), 2 - 0.5 * cost)
        assert torch.allclose(step.reward[alive], expected[alive], atol=2e-4)
        final = step.final_obs.critic
        assert torch.allclose(final[alive, :3], (after["base_pos_w"] - up)[alive], atol=5e-5)  # ulp of 100 m: 8e-6
        assert torch.allclose(quaternion(final[:, 3:12])[alive], after["base_quat_w"][alive], atol=2e-4)
        assert torch.allclose(final[alive, 12:15], after["base_vel_w"][alive], atol=1e-4)
        assert torch.allclose(final[alive, 15:18], after["base_ang_vel_b"][alive], atol=2e-3)
        assert torch.allclose(final[alive, 18:22], after["rotor_speed"][alive], atol=1e-5)
        far = (after["base_pos_w"] - up).abs().max(1).values > 0.6
        assert torch.equal(step.terminated[alive], far[alive])
        alive &= ~step.terminated
    assert alive.sum() > n // 2


def run(n, threads=1, steps=80, **options):
    env = FusedHover(n, seed=11, threads=threads, **options)
    out = [tuple(x.clone() for x in env.reset()[:2])]
    for action in actions(2000, steps):
        step = env.step(action[:n])
        out.append(tuple(x.clone() for x in (
            *step.obs[:2], step.reward, step.terminated, step.truncated, *step.final_obs[:2], *step.info.values()
        )))  # fmt: skip
    return out


@pytest.mark.parametrize("options", [{}, {"rotor": True, "history": 3}, {"privileged": False}])
def test_a_world_does_not_depend_on_the_others_or_on_threads(options):
    task = replace(TRAINING, episode_steps=30)
    whole, single = run(1100, 2, task=task, **options), run(1100, 1, task=task, **options)
    part = run(21, task=task, **options)
    ended = torch.zeros(21, dtype=torch.bool)
    for a, b, c in zip(whole, single, part):
        for i, (x, y, z) in enumerate(zip(a, b, c)):
            if i < 7:  # per-episode figures are only valid where an episode ended
                assert torch.equal(x, y)
                assert torch.equal(x[:21], z)
        if len(a) > 2:
            ended |= c[3] | c[4]
    assert ended.all()


def test_step_is_consistent_where_episodes_end():
    n = 64
    env = FusedHover(n, seed=1, task=replace(TRAINING, episode_steps=45), history=2, rotor=True)
    obs = env.reset().actor.clone()
    assert obs.shape == (n, 18 + 4 + 8) and torch.equal(obs[:, 18:22], torch.full((n, 4), 0.5))
    assert torch.equal(obs[:, 22:], torch.zeros(n, 8))
    length, total, seen = torch.zeros(n), torch.zeros(n), {"terminated": 0, "truncated": 0}
    past = [torch.zeros(n, 4), torch.zeros(n, 4)]
    for action in actions(n, 150, seed=4):
        step = env.step(action)
        past = [action.clamp(-1, 1), past[0]]
        done = step.terminated | step.truncated
        assert not (step.terminated & step.truncated).any()
        length, total = length + 1, total + step.reward
        assert torch.equal(step.truncated, (length == 45) & ~step.terminated)
        assert torch.equal(step.final_obs.actor[~done], step.obs.actor[~done])
        assert torch.equal(step.final_obs.critic[~done], step.obs.critic[~done])
        assert torch.equal(step.final_obs.actor[:, 22:], torch.cat(past, 1))
        assert torch.equal(step.final_obs.critic[:, :3].abs().max(1).values > 0.6, step.terminated)
        assert torch.equal(step.reward[step.terminated], torch.zeros(int(step.terminated.sum())))
        assert (step.obs.critic[done, :3].abs() <= 0.2).all()  # new episodes start near the origin
        assert torch.equal(step.obs.actor[done, 22:], torch.zeros(int(done.sum()), 8))
        assert torch.equal(step.info["episode_length"][done], length[done])
        assert torch.allclose(step.info["episode_return"][done], total[done], atol=1e-4)
        past = [torch.where(done[:, None], torch.zeros(n, 4), x) for x in past]
        length, total = length * ~done, total * ~done
        seen["terminated"] += int(step.terminated.sum())
        seen["truncated"] += int(step.truncated.sum())
    assert min(seen.values()) > 10


def test_start_states_have_the_distribution_of_the_task():
    n = 40_000
    start = FusedHover(n, seed=2).reset().critic.double()
    guided = (start[:, :3] == 0).all(1)
    share = float(guided.double().mean())
    assert abs(share - 0.1) < 5 * math.sqrt(0.09 / n)
    level = torch.cat([torch.eye(3).flatten(), torch.zeros(6)]).double()
    assert (start[guided, 3:18] == level).all()
    free = start[~guided]
    k = len(free)
    for columns, bound in ((slice(0, 3), 0.2), (slice(12, 18), 1.0)):
        x = free[:, columns]
        assert float(x.abs().max()) <= bound
        assert float(x.mean(0).abs().max()) < 5 * bound / math.sqrt(3 * k)
        assert float((x.square().mean(0) / bound**2 - 1 / 3).abs().max()) < 5 * math.sqrt(4 / 45 / k)
    # uniform on SO(3) below 90 degrees: the angle's distribution function is (t - sin t) / (pi/2 - 1)
    angle = torch.acos(((free[:, 3] + free[:, 7] + free[:, 11] - 1) / 2).clamp(-1, 1)).sort().values
    assert float(angle.max()) <= math.pi / 2 + 1e-3
    expected = (angle - angle.sin()) / (math.pi / 2 - 1)
    assert float((expected - (torch.arange(k) + 0.5) / k).abs().max()) < 2 / math.sqrt(k)  # Kolmogorov-Smirnov
    axis = torch.stack([free[:, 10] - free[:, 8], free[:, 5] - free[:, 9], free[:, 6] - free[:, 4]], 1)
    axis = axis / axis.norm(dim=1, keepdim=True)
    assert float(axis.mean(0).abs().max()) < 5 / math.sqrt(3 * k)
    assert float((axis.T @ axis / k - torch.eye(3) / 3).abs().max()) < 5 * math.sqrt(4 / 45 / k)
    force, torque = start[:, 22:25] / 10, start[:, 25:28] / 1000
    assert torch.allclose(force.std(0), torch.full((3,), 0.027 * 9.81 / 20).double(), rtol=0.02)
    assert torch.allclose(torque.std(0), torch.full((3,), 0.027 * 9.81 / 10000).double(), rtol=0.02)


def test_sensor_noise_has_its_standard_deviation_and_is_fresh():
    env = FusedHover(20_000, seed=5)
    obs = env.reset()
    first = (obs.actor - obs.critic[:, :18]).clone()
    expected = torch.tensor([0.001] * 12 + [0.002] * 6)
    assert torch.allclose(first.std(0), expected, rtol=0.03)
    assert (first.mean(0).abs() < 5 * expected / math.sqrt(20_000)).all()
    obs = env.step(torch.full((20_000, 4), 0.334)).obs
    second = obs.actor - obs.critic[:, :18]
    correlation = np.corrcoef(torch.cat([first, second], 1).numpy().T) - np.eye(36)
    assert np.abs(correlation).max() < 5.5 / math.sqrt(20_000)


def test_resume_is_bit_exact():
    a = FusedHover(50, seed=9, history=2)
    a.reset()
    plan = actions(50, 60)
    for action in plan[:30]:
        a.step(action)
    saved = a.state_dict()
    b = FusedHover(50, seed=9, history=2)
    b.load_state_dict(saved)
    for action in plan[30:]:
        x, y = a.step(action), b.step(action)
        assert torch.equal(x.obs.actor, y.obs.actor) and torch.equal(x.obs.critic, y.obs.critic)
        assert torch.equal(x.reward, y.reward) and torch.equal(x.terminated, y.terminated)


def test_observation_holds_for_one_more_step():
    env = FusedHover(8)
    env.reset()
    first = env.step(torch.zeros(8, 4)).obs.actor
    kept = first.clone()
    env.step(torch.zeros(8, 4))
    assert torch.equal(first, kept)


def test_target_reward_and_hover_action():
    assert (TARGET.position, TARGET.orientation, TARGET.velocity, TARGET.action) == (40.0, 5.0, 1.0, 1.0)
    assert true_hover_action() == pytest.approx(0.334, abs=1e-3)


def test_a_world_that_diverges_ends():
    env = FusedHover(16, task=QUIET)
    env.reset()
    env._state[0, 0, 3] = float("nan")
    step = env.step(torch.zeros(16, 4))
    assert step.terminated[3] and step.terminated.sum() == 1
    assert torch.isfinite(step.obs.actor).all() and torch.isfinite(step.reward).all()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="num_worlds is 0"):
        FusedHover(0)
    with pytest.raises(ValueError, match="history is -1"):
        FusedHover(1, history=-1)
    with pytest.raises(ValueError, match="no drag"):
        FusedHover(1, params=L2F_PARAMETERS | {"drag": (0.1, 0.1, 0.1)})
    with pytest.raises(ValueError, match="action has shape"):
        FusedHover(2).step(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="does not fit 2 worlds"):
        FusedHover(2).load_state_dict(FusedHover(17).state_dict())
    with pytest.raises(ValueError, match="has seed 0"):
        FusedHover(2).load_state_dict(FusedHover(2, seed=1).state_dict())
