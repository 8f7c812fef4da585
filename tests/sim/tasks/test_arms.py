"""Reach, lift, push, peg, drawer: feasible by hand, rewards and endings as stated, sound starts, artifacts."""

from __future__ import annotations

from dataclasses import asdict
from math import tanh
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from tests.examples import thinned
from tests.sim.tasks.arm_experts import EXPERTS, about_up, moves, peg_expert

from temporeal.policies.export.golden_trace import record_golden
from temporeal.policies.export.policy import export_policy
from temporeal.policies.nets.actor import make_actor
from temporeal.policies.training.acting import graph_policy
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.franka.spec import HOME, OPEN
from temporeal.sim.env import make_env
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.rotations import about_z, pointing_down, rotation
from temporeal.sim.stl.semantics.robustness import satisfied
from temporeal.sim.task import load_task
from temporeal.sim.tasks import drawer, lift, peg, push, reach

TASKS = ("reach", "lift", "push", "peg", "drawer")
MID_EPISODE = ("lift", "peg", "drawer")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def env_of(task, worlds, seed=1, **kw):
    return make_env(load_task(task) if isinstance(task, str) else task, num_worlds=worlds, seed=seed, threads=1, **kw)


def episodes(env, act):
    """Success [N] of one episode per world, its length, and the true signals [T, N, ...] of them all from time 0."""
    env.reset()
    n = env.num_worlds
    done, success, length = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool), torch.zeros(n)
    trace = [{k: v.clone() for k, v in env.true_signals().items()}]
    for i in range(env.task.steps):
        step = env.step(act(env.true_signals()))
        trace.append({k: v.clone() for k, v in step.info["signals"].items()})
        ended = (step.terminated | step.truncated) & ~done
        success |= ended & step.info["success"]
        length[ended] = i + 1.0
        done |= ended
    assert done.all() and env.diverged == 0
    return success, length, {k: torch.stack([t[k] for t in trace]) for k in trace[0]}


# ---------------------------------------------------------------- feasibility


@pytest.mark.parametrize("name, worlds", thinned(
    [(name, worlds) for name in TASKS for worlds in (16, 128)], keep=[("reach", 16)]))
def test_a_controller_by_hand_does_it(name, worlds):
    env = env_of(name, worlds)
    success, length, trace = episodes(env, EXPERTS[name](env.task, worlds))
    assert success.float().mean() >= 0.95
    # the verdict of the episode is that of the formula itself
    whole = length == env.task.steps
    verdict = torch.as_tensor(satisfied(env.task.formula, trace, env.task.control_dt)[0])
    assert torch.equal(success[whole], verdict[whole]) and whole.float().mean() >= 0.95


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.slow
def test_doing_nothing_does_not_do_it(name):
    env = env_of(name, 3)
    still = torch.zeros(3, env.action_dim)
    success, length, _ = episodes(env, lambda s: still)
    assert not success.any() and (length == env.task.steps).all()


@pytest.mark.parametrize(
    ("kind", "clearance"), [("square", 0.0005), ("round", 0.001)])
@pytest.mark.slow
def test_pegs_of_other_shapes_and_clearances_fit(kind, clearance):
    task = load_task("peg", peg=kind, clearance=clearance)
    success, _, _ = episodes(env_of(task, 8), peg_expert(task, 8))
    assert success.float().mean() >= 0.75


# ---------------------------------------------------------------- one task on any machinery


@pytest.mark.parametrize(("name", "settings"), thinned(
    [*((name, {}) for name in TASKS), ("reach", {"stiffness": 0.2}), ("peg", {"stiffness": 0.2})],
    keep=[("push", {}), ("drawer", {}), ("reach", {"stiffness": 0.2})]))
def test_compiled_maps_are_the_plain_ones(name, settings):
    task = load_task(name, **settings)
    a, b = (env_of(task, 5, compiled=c, mid_episode_starts=0.5 if name in MID_EPISODE else 0.0) for c in (True, False))
    x, y = a.reset(), b.reset()
    torch.testing.assert_close(x.critic, y.critic, atol=2e-5, rtol=1e-5)
    plan = 0.3 * torch.randn(12, 5, a.action_dim, generator=generator())
    for action in plan:
        x, y = a.step(action), b.step(action)
        torch.testing.assert_close(x.obs.critic, y.obs.critic, atol=5e-4, rtol=1e-3)
        torch.testing.assert_close(x.reward, y.reward, atol=1e-4, rtol=1e-3)
        assert torch.equal(x.terminated, y.terminated)


@pytest.mark.parametrize("name", MID_EPISODE)
@pytest.mark.slow
def test_mid_episode_starts_are_keyed_by_the_world(name):
    few, many = env_of(name, 3, mid_episode_starts=0.7), env_of(name, 20, mid_episode_starts=0.7)
    assert torch.equal(few.reset().critic, many.reset().critic[:3])
    assert (many.count > 0).any() and (many.count == 0).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_a_fresh_policy_exports_and_its_artifact_tests_itself(name, tmp_path):
    torch.manual_seed(0)
    task = load_task(name)
    actor = make_actor(task.observe.obs_dim, task.act.action_dim, (16, 16))
    for parameter in actor.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    graph = PolicyGraph(task.observe, torch.nn.Identity(), actor, task.act)
    made = export_policy(graph, task, tmp_path / "a", env_of(task, 1, compiled=False), training={}, seed=1)
    assert made.self_test(1e-5).steps >= 10
    assert {m.name for m in made.manifest.memory} == {*task.act.memory, "last_action"}
    golden = record_golden(env_of(task, 1, seed=2, compiled=False), graph_policy(graph), steps=30)
    artifact = Artifact.load(tmp_path / "a", task.robot, task_signals=task.schema)
    for k in range(30):
        got = artifact.act({n: golden[f"signals.{n}"][k] for n in graph.signals})[task.command]
        np.testing.assert_allclose(got, golden[f"commands.{task.command}"][k], atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", thinned(MID_EPISODE, keep=["lift"]))
def test_mid_episode_starts_are_sound(name):
    env = env_of(name, 128, mid_episode_starts=1.0)
    env.reset()
    before = {k: v.clone() for k, v in env.true_signals().items()}
    assert (env.count < env.task.steps - 25).all()
    ended = torch.zeros(128, dtype=torch.bool)
    for _ in range(10):
        step = env.step(torch.full((128, env.action_dim), 0.0) if name != "lift" else torch.tensor([[0.0] * 6 + [-1]])
                        .expand(128, 7))
        ended |= step.terminated
    assert not ended.any() and env.diverged == 0
    now = env.true_signals()
    moved = {"lift": "cube_pos_w", "peg": "peg_pos_w", "drawer": "handle_pos_w"}[name]
    assert (now[moved] - before[moved]).norm(dim=-1).max() < 0.02  # nothing is flung out of what it overlaps
    if name == "lift":
        around = before["finger_pos"].sum(-1) < 0.05
        assert 0.3 < around.float().mean() < 0.7 and lift.grasped(now)[around].mean() > 0.95
        over = (before["grip_pos_w"] - before["cube_pos_w"])[~around]
        assert over[:, :2].norm(dim=-1).max() < 0.01 and over[:, 2].max() > 0.08
    if name == "peg":
        assert now["hole_force"].max() < env.task.constants["force"]
        tip, _, _ = peg.misfit(before, 1.0)
        assert (tip[:, 2] < -0.01).any() and (tip[:, 2] > 0.02).any()


@pytest.mark.parametrize("name", TASKS)
def test_starts_are_where_the_task_says(name):
    env = env_of(name, 256)
    env.reset()
    s = env.true_signals()
    low, high = {"reach": (None, None), "lift": (lift.PLACE_LOW, lift.PLACE_HIGH),
                 "push": (push.PLACE_LOW, push.PLACE_HIGH),
                 "peg": (peg.PLACE_LOW, peg.PLACE_HIGH), "drawer": (drawer.PLACE_LOW, drawer.PLACE_HIGH)}[name]
    place = {"reach": None, "lift": s.get("cube_pos_w"), "peg": s.get("hole_place"),
             "push": s.get("cube_pos_w"), "drawer": s.get("cabinet_place")}[name]
    if place is not None:
        place, low, high = place[:, : len(low)], torch.tensor(low), torch.tensor(high)
        assert (place >= low - 1e-6).all() and (place <= high + 1e-6).all()
        assert (place.std(0) > 0.2 * (high - low)).all()
    home = torch.tensor(drawer.READY if name == "drawer" else HOME)
    assert (s["joint_pos"] - home).abs().max() <= 0.15 + 1e-6
    if name == "peg":
        assert ((s["peg_pos_w"] - s["grip_pos_w"]).norm(dim=-1) - peg.BELOW).abs().max() < 0.0035


# ---------------------------------------------------------------- rewards by hand


def row(task, **signals):
    """One sample of all signals of the task: zeros where not given."""
    out = {name: torch.zeros(1, *spec.shape) for name, spec in task.schema.items()}
    for name, value in signals.items():
        out[name] = torch.as_tensor(value, dtype=torch.float32).reshape(out[name].shape)
    return out


def reward_of(task, action, **signals):
    """Reward and end of a step whose sample is this, with no action before it."""
    objective = task.objective
    memory = {name: torch.zeros(1, *shape) for name, shape in objective.carry.items()}
    reward, terminated, _ = objective.step(row(task, **signals), torch.tensor([action]), memory)
    return float(reward) / task.control_dt, bool(terminated)


DOWN = pointing_down(torch.zeros(1))[0]
UP = about_z(torch.zeros(1))[0]


def test_reward_of_reach():
    task, w = load_task("reach"), reach.Reward()
    at = {"grip_pos_w": (0.5, 0.0, 0.4), "grip_quat_w": DOWN, "goal_pos_w": (0.5, 0.0, 0.4), "goal_quat_w": DOWN}
    best, ended = reward_of(task, [0.0] * 6, **at)
    assert best == pytest.approx(w.near + w.close + w.aligned + w.inside, rel=1e-4) and not ended
    away, _ = reward_of(task, [0.0] * 6, **{**at, "grip_pos_w": (0.5, 0.0, 0.3)})
    near = 1 - tanh(1.0)
    assert away == pytest.approx(-0.1 * w.far + near * (w.near + w.aligned) + w.close * (1 - tanh(5.0)), rel=1e-4)
    effort, _ = reward_of(task, [0.5] * 6, **at)
    assert best - effort == pytest.approx(6 * 0.25 * (w.effort + w.smooth), rel=1e-3)
    low, ended = reward_of(task, [0.0] * 6, **{**at, "grip_pos_w": (0.5, 0.0, 0.02), "goal_pos_w": (0.5, 0.0, 0.02)})
    assert ended and low == pytest.approx(best - w.violated / task.control_dt, rel=1e-4)


def test_reward_of_lift():
    task, w = load_task("lift"), lift.Reward()
    held = {"grip_quat_w": DOWN, "cube_quat_w": UP, "finger_pos": (lift.HALF, lift.HALF)}
    at = {**held, "grip_pos_w": (0.5, 0, 0.3), "cube_pos_w": (0.5, 0, 0.3), "goal_pos_w": (0.5, 0, 0.3)}
    best, ended = reward_of(task, [0.0] * 7, **at)
    everything = w.approach + w.above + w.grasped + w.lifted + w.carry + w.fine + w.inside
    assert best == pytest.approx(everything, rel=1e-4) and not ended
    lying = {**held, "finger_pos": (OPEN, OPEN), "grip_pos_w": (0.5, 0, 0.12), "cube_pos_w": (0.5, 0, 0.02),
             "goal_pos_w": (0.5, 0, 0.3)}
    found, _ = reward_of(task, [0.0] * 7, **lying)
    assert found == pytest.approx(w.approach * (1 - tanh(0.5)) + w.above, rel=1e-4)
    # a cube that is up but not in the fingers earns nothing for its height
    thrown, _ = reward_of(task, [0.0] * 7, **{**at, "grip_pos_w": (0.5, 0.1, 0.3), "goal_pos_w": (0.5, 0, 0.6)})
    assert thrown == pytest.approx(w.approach * (1 - tanh(0.5)) + w.above, rel=1e-4)
    _, ended = reward_of(task, [0.0] * 7, **{**lying, "grip_pos_w": (0.5, 0, 0.004)})
    assert ended


def test_reward_of_push():
    task, w = load_task("push"), push.Reward()
    cube = torch.tensor([[0.5, 0.0, push.HALF]])
    behind = push.push_place(cube, torch.tensor([[0.6, 0.0, push.HALF]]))[0]
    assert behind.tolist() == pytest.approx([0.5 - push.BEHIND, 0.0, push.HALF])
    at = {"grip_quat_w": DOWN, "cube_quat_w": UP, "cube_pos_w": cube[0].tolist(), "grip_pos_w": behind.tolist(),
          "goal_pos_w": (0.502, 0.0, push.HALF)}
    best, ended = reward_of(task, [0.0] * 6, **at)
    there = w.near * (1 - tanh(5 * 0.002)) + w.fine * (1 - tanh(30 * 0.002)) + w.inside
    assert best == pytest.approx(w.approach + w.above + there, rel=1e-3) and not ended
    apart, _ = reward_of(task, [0.0] * 6, **{**at, "goal_pos_w": (0.6, 0.0, push.HALF)})
    assert apart == pytest.approx(w.approach + w.above + w.near * (1 - tanh(0.5)) + w.fine * (1 - tanh(3.0)), rel=1e-3)
    _, ended = reward_of(task, [0.0] * 6, **{**at, "grip_pos_w": (0.45, 0.0, 0.004)})
    assert ended


def test_goals_of_push_are_apart_from_the_cube_and_in_reach():
    env = env_of("push", 256)
    env.reset()
    s = env.true_signals()
    away = (s["goal_pos_w"] - s["cube_pos_w"])[:, :2].norm(dim=-1)
    assert (away >= push.WAY[0] - 1e-5).all() and (away <= 2**0.5 * push.WAY[1]).all()
    low, high = torch.tensor(push.GOAL_LOW), torch.tensor(push.GOAL_HIGH)
    assert ((s["goal_pos_w"][:, :2] >= low - 1e-6) & (s["goal_pos_w"][:, :2] <= high + 1e-6)).all()


def test_reward_of_peg():
    task, w = load_task("peg"), peg.Reward()
    turn = about_z(torch.tensor([0.3]))[0]
    mouth = torch.tensor([0.5, 0.1, peg.BLOCK])

    def standing_at(*off, yaw=0.3, force=0.0, action=0.0):
        tip = mouth + rotation(turn[None])[0] @ torch.tensor(off)
        pos = tip + torch.tensor([0, 0, peg.LENGTH / 2])
        return reward_of(task, [action] * 6, peg_tip_w=tip, peg_pos_w=pos,
                         grip_pos_w=pos + torch.tensor([0, 0, peg.BELOW]), hole_pos_w=mouth, hole_quat_w=turn,
                         peg_quat_w=pointing_down(torch.tensor([yaw]))[0], hole_force=force)

    best, ended = standing_at(0.0, 0.0, -0.035)
    everything = w.approach + w.beside + w.upright + w.aligned + w.centred + w.low + w.deep + w.inside
    assert best == pytest.approx(everything, rel=1e-4) and not ended
    over, _ = standing_at(0.0, 0.0, 0.1)
    assert over == pytest.approx(
        w.approach * (1 - tanh(0.5)) + w.beside + w.upright + w.aligned + w.centred + w.low * (1 - tanh(10 / 3)),
        rel=1e-4)
    lower, _ = standing_at(0.0, 0.0, 0.01)
    assert lower - over == pytest.approx(
        w.approach * (tanh(0.5) - tanh(0.05)) + w.low * (tanh(10 / 3) - tanh(1 / 3)), rel=1e-3)
    for quarter in (1, 2, 3):  # a square peg fits four times
        assert standing_at(0.0, 0.0, 0.1, yaw=0.3 + quarter * np.pi / 2)[0] == pytest.approx(over, rel=1e-3)
    beside, _ = standing_at(0.02, 0.0, 0.1)
    share = 1 - tanh(1.0)
    far = 1 - tanh(5 * float(np.hypot(0.02, 0.1)))
    assert beside == pytest.approx(
        w.approach * far + w.upright + share * (w.beside + w.aligned), rel=1e-4)  # tanh(10) is 1
    crooked, _ = standing_at(0.0, 0.0, 0.1, yaw=0.4)
    assert over - crooked == pytest.approx(
        (w.aligned + w.centred + w.low * (1 - tanh(10 / 3))) * tanh(1.0) + w.upright * tanh(0.2), rel=1e-3)
    # as low beside the block as in it: no depth is paid for
    outside, _ = standing_at(0.06, 0.0, -0.035)
    assert outside < w.approach + w.upright + 0.1 * w.deep
    pushed, ended = standing_at(0.0, 0.0, -0.035, force=50.0)
    assert best - pushed == pytest.approx(40 * w.push, rel=1e-3) and not ended
    broken, ended = standing_at(0.0, 0.0, -0.035, force=61.0)
    assert best - broken == pytest.approx(51 * w.push + w.broken + w.inside, rel=1e-3) and not ended


def test_reward_of_drawer():
    task, w = load_task("drawer"), drawer.Reward()
    yaw = torch.tensor([0.2])
    at = {"handle_pos_w": (0.7, 0.0, 0.225), "handle_quat_w": about_z(yaw)[0], "grip_pos_w": (0.7, 0.0, 0.225),
          "grip_quat_w": pointing_down(yaw - np.pi / 2)[0], "finger_pos": (drawer.BAR, drawer.BAR)}
    shut, ended = reward_of(task, [0.0] * 7, **at)
    there = w.approach + w.near + w.aligned + w.gripped
    assert shut == pytest.approx(there, rel=1e-4) and not ended
    other, _ = reward_of(task, [0.0] * 7, **{**at, "grip_quat_w": pointing_down(yaw + np.pi / 2)[0]})
    assert other == pytest.approx(shut, rel=1e-3)  # fingers are alike
    wide, _ = reward_of(task, [0.0] * 7, **{**at, "finger_pos": (OPEN, OPEN)})
    assert shut - wide == pytest.approx(w.gripped, rel=1e-4)
    half, _ = reward_of(task, [0.0] * 7, **at, drawer_pos=0.075, drawer_vel=0.15)
    assert half - shut == pytest.approx(0.5 * w.opened + 0.5 * w.pulling, rel=1e-3)
    opened, _ = reward_of(task, [0.0] * 7, **at, drawer_pos=0.16, drawer_vel=0.15)
    assert opened - shut == pytest.approx(w.opened + w.inside, rel=1e-3)
    for change in ({"drawer_vel": 1.1}, {"drawer_vel": -1.1}, {"grip_pos_w": (0.7, 0.0, 0.04)}):
        assert reward_of(task, [0.0] * 7, **{**at, **change})[1]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "module"), [("reach", reach), ("lift", lift), ("peg", peg), ("drawer", drawer)])
def test_every_weight_of_a_reward_matters(name, module):
    env = env_of(name, 2)
    _, _, trace = episodes(env, EXPERTS[name](env.task, 2))
    memory = {k: torch.zeros(2, *shape) for k, shape in env.task.objective.carry.items()}
    action = 0.3 * torch.ones(2, env.action_dim)

    def total(task):
        out, kept = 0.0, dict(memory)
        last = len(trace["mission_time"]) - 1
        for t in range(last + 1):
            signals = {k: v[t] for k, v in trace.items()}
            if t == last:  # an accident, for the weights of accidents
                signals |= {"grip_pos_w": signals["grip_pos_w"] * torch.tensor([1.0, 1.0, 0.0])}
                signals |= {"hole_force": torch.full((2,), 99.0)} if name == "peg" else {}
            reward, _, kept = task.objective.step(signals, action, kept)
            out += float(reward.sum())
        return out

    plain = total(env.task)
    for weight, value in asdict(module.Reward()).items():
        changed = total(load_task(name, reward={weight: value + 1.0}))
        assert changed != pytest.approx(plain, abs=1e-4), weight


# ---------------------------------------------------------------- contacts


@pytest.mark.parametrize("kind", ["square", "round"])
@pytest.mark.slow
def test_a_peg_beside_the_hole_does_not_go_through_the_block(kind):
    task = load_task("peg", peg=kind, constants={"force": 1e4, "slip": 1.0})  # so that episodes go on
    off = (0.003, 0.0) if kind == "square" else (0.004, 0.004)
    _, _, trace = episodes(env_of(task, 4), peg_expert(task, 4, off, pressed=True))
    tip, _, _ = peg.misfit({k: v.flatten(0, 1) for k, v in trace.items()}, 1.0)
    assert trace["hole_force"].max() > 60.0  # it was pressed
    assert tip[:, 2].min() > -0.0005  # and did not sink in: half a millimetre is a corner of a tilted peg
    assert (trace["hole_place"] - trace["hole_place"][0]).abs().max() < 5e-4  # nor did the block give way


def test_the_force_on_the_block_is_what_it_is_pushed_with():
    task = load_task("peg", constants={"force": 1e4, "slip": 1.0})
    env = env_of(task, 4)
    _, _, trace = episodes(env, peg_expert(task, 4))
    over = (trace["peg_tip_w"][..., 2] - trace["hole_pos_w"][..., 2]) > 0.001
    assert (trace["hole_force"][over] == 0).all() and trace["hole_force"].max() > 0


@pytest.mark.slow
def test_too_hard_a_push_fails_and_a_lost_peg_ends_the_episode():
    task = load_task("peg")
    success, length, trace = episodes(env_of(task, 6), peg_expert(task, 6, (0.004, 0.0), pressed=True))
    assert not success.any() and (length == task.steps).all()
    pushed = trace["hole_force"].max(0).values >= task.constants["force"]
    verdict = torch.as_tensor(satisfied(task.formula, trace, task.control_dt)[0])
    assert pushed.any() and not verdict[pushed].any()
    objective = task.objective
    memory = {name: torch.zeros(1, *shape) for name, shape in objective.carry.items()}
    held = row(task, grip_pos_w=(0.5, 0, 0.3), peg_pos_w=(0.5, 0, 0.28), hole_quat_w=UP, peg_quat_w=DOWN)
    lost = {**held, "peg_pos_w": torch.tensor([[0.5, 0, 0.25]])}
    rewards = [objective.step(s, torch.zeros(1, 6), memory)[:2] for s in (held, lost)]
    assert [bool(end) for _, end in rewards] == [False, True]
    once = objective.weights.lost + task.control_dt * objective.weights.broken  # it is also what the formula forbids
    assert float(rewards[0][0] - rewards[1][0]) == pytest.approx(once, rel=1e-3)


def test_the_drawer_opens_only_when_it_is_pulled():
    env = env_of("drawer", 4)
    env.reset()
    for _ in range(50):
        env.step(torch.zeros(4, 7))
    assert env.true_signals()["drawer_pos"].abs().max() < 1e-4
    # a touch from the front leaves it shut: the range of its rails ends there
    task = env.task

    def push(s):
        ahead = s["handle_pos_w"] + torch.tensor([0.0, 0.0, -0.03]) - s["grip_pos_w"]
        return moves(task, ahead, torch.zeros(4, 3), 0.5, -torch.ones(4))

    _, _, trace = episodes(env_of("drawer", 4), push)
    assert trace["drawer_pos"].min() > -0.002 and trace["drawer_vel"].abs().max() < 1.0


@pytest.mark.slow
def test_a_hooked_drawer_opens_too():
    """Without gripping: closed fingers between bar and front."""
    task = load_task("drawer")

    def hook(s):
        into, _, turn = rotation(s["handle_quat_w"])[:, :, 0], *drawer.misfit(s)[1:]
        behind = s["handle_pos_w"] + 0.027 * into - s["grip_pos_w"]
        over = behind[:, :2].norm(dim=-1) < 0.006
        low = (s["handle_pos_w"] - s["grip_pos_w"])[:, 2] > -0.012
        behind[:, 2] += torch.where(over | low, 0.0, 0.07)
        pull = -0.04 * into * (s["drawer_pos"] < 0.18)[:, None]
        return moves(task, torch.where(low[:, None], pull, behind), about_up(-drawer.least(turn)), 0.25,
                     -torch.ones(len(low)))

    success, _, _ = episodes(env_of(task, 8), hook)
    assert success.float().mean() >= 0.75


# ---------------------------------------------------------------- what sensors can supply


def lab():
    """What ``randomize=arm`` says."""
    return yaml.safe_load((Path(__file__).parents[3] / "configs/randomize/arm.yaml").read_text())


@pytest.mark.parametrize("name", ["lift", *(pytest.param(name, marks=pytest.mark.slow) for name in ("peg", "drawer"))])
def test_what_is_seen_of_things_has_errors_and_a_camera_is_late(name):
    env = env_of(name, 4, sensors=lab()["sensors"])
    config, arm = env.distribution.sensors.config, load_task("reach").robot.signals
    things = [s for s in env.task.observe.signals if s not in arm and s not in env.functions.added]
    assert things and all(np.min(config.bias[s]) > 0 for s in things)
    seen = [s for s in things if not s.startswith("hole")]  # that stands: measured once
    assert all(np.min(config.noise[s]) > 0 and env.distribution.sensors.group[s][1].delay_steps[1] >= 1 for s in seen)
    assert not any("drawer" in s for s in things)


@pytest.mark.slow
def test_errors_of_the_peg_leave_it_a_chance_and_need_a_search():
    """Tip and hole are together off by about the play, 0.5 mm to each side."""
    bias = env_of("peg", 4, sensors=lab()["sensors"]).distribution.sensors.config.bias
    off = float(np.hypot(bias["peg_tip_w"], bias["hole_pos_w"]))
    assert 0.0005 < off < 0.001


def test_the_opening_is_seen_in_the_poses_of_handle_and_cabinet():
    env = env_of("drawer", 64, mid_episode_starts=1.0)
    env.reset()
    s = env.true_signals()
    assert s["drawer_pos"].max() > 0.1
    seen = drawer.opening_seen(s["handle_pos_w"], s["cabinet_place"])
    torch.testing.assert_close(seen, s["drawer_pos"], atol=1e-5, rtol=0)
    part = drawer.Seen()
    torch.testing.assert_close(part(s)[:, -1], 5 * s["drawer_pos"], atol=5e-5, rtol=0)
    off = {**s, "handle_pos_w": s["handle_pos_w"] + 0.01, "drawer_pos": s["drawer_pos"] + 9.0}
    assert ((part(off) - part(s))[:, -1].abs() < 5 * 0.015).all()


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(("settings", "message"), [
    ({"clearance": 0.0}, "clearance is 0.0003 to 0.01 m"), ({"peg": "hexagonal"}, "one of square, round; got 'hexa"),
    ({"constants": {"depth": 0.06}}, "depth is above 0 and below the hole's 0.05 m"),
    ({"reward": {"depth": 1.0}}, "unknown weights .*legal: .*deep"), ({"constants": {"slipp": 0.1}}, "names 'slipp'"),
    ({"clearence": 0.001}, "its settings are: .*clearance")])
def test_settings_of_peg_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        load_task("peg", **settings)


def test_settings_of_drawer_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"opening is above 0 and below the travel of 0\.22 m, got 0\.3"):
        load_task("drawer", constants={"opening": 0.3})


def test_a_formula_of_ones_own_is_judged():
    task = load_task("drawer", formula="F[0,4] (drawer_pos > 0.05) & G[0,6] (drawer_vel < 0.5)")
    env = env_of(task, 8)
    success, _, _ = episodes(env, EXPERTS["drawer"](task, 8))
    assert success.all()
