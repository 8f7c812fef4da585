"""The ant's task: goals follow one another, the formula judges each, falls end an episode and late goals do not."""

from math import cos, pi, sin

import pytest
import torch

from temporeal.sim.env import make_env
from temporeal.sim.stl.semantics.robustness import satisfied
from temporeal.sim.task import load_task
from temporeal.sim.tasks import ant


def rest(**changes):
    """Signals of one ant that stands still at the origin with its goal 3 m ahead."""
    return {
        "base_pos_w": torch.tensor([[0.0, 0.0, 0.56]]), "base_quat_w": torch.tensor([[1.0, 0.0, 0.0, 0.0]]),
        "base_vel_w": torch.zeros(1, 3), "base_ang_vel_b": torch.zeros(1, 3), "joint_pos": torch.tensor([ant.MIDDLE]),
        "joint_vel": torch.zeros(1, 8), "goal_pos_w": torch.tensor([[3.0, 0.0]]), "goal_age": torch.zeros(1),
        "goals_met": torch.zeros(1), "mission_time": torch.zeros(1), **changes}


def gain(action=None, **changes):
    """Reward and termination of one step after :func:`rest`, with some signals changed."""
    objective = load_task("ant").objective
    memory = objective.start(rest(), {k: torch.zeros(1, *s) for k, s in objective.carry.items()})
    signals = rest(mission_time=torch.full((1,), 0.05), **changes)
    reward, fallen, _ = objective.step(signals, torch.zeros(1, 8) if action is None else action, memory)
    return float(reward), bool(fallen)


def tilted(angle):
    return torch.tensor([[cos(angle / 2), sin(angle / 2), 0.0, 0.0]])


def test_reward_term_by_term():
    w, dt = ant.Reward(), 0.05
    still = dt * w.alive
    assert gain() == (pytest.approx(still), False)
    assert gain(base_vel_w=torch.tensor([[2.0, 5.0, 1.0]]))[0] == pytest.approx(still + dt * w.closer * 2.0)
    assert gain(base_vel_w=torch.tensor([[9.0, 0.0, 0.0]]))[0] == pytest.approx(still + dt * w.closer * w.fastest)
    assert gain(base_vel_w=torch.tensor([[-2.0, 0.0, 0.0]]))[0] == pytest.approx(still - dt * w.closer * 2.0)
    assert gain(goals_met=torch.ones(1))[0] == pytest.approx(still + w.met)
    assert gain(torch.full((1, 8), 0.5))[0] == pytest.approx(still - dt * (w.effort + w.smooth) * 2.0, abs=1e-7)
    assert gain(goal_age=torch.full((1,), 5.0)) == (pytest.approx(still - dt * w.late), False)
    assert gain(base_quat_w=tilted(0.5))[0] == pytest.approx(still - dt * w.tilt * (1 - cos(0.5)), rel=1e-4)
    reward, fallen = gain(base_quat_w=tilted(1.2))
    assert fallen and reward == pytest.approx(still - dt * w.tilt * (1 - cos(1.2)) - w.violated, rel=1e-4)
    assert gain(base_pos_w=torch.tensor([[0.0, 0.0, 0.26]]))[1]


def test_observation_does_not_depend_on_place_and_heading():
    observe = load_task("ant").observe
    gen = torch.Generator().manual_seed(0)
    signals = rest(base_vel_w=torch.randn(1, 3, generator=gen), base_ang_vel_b=torch.randn(1, 3, generator=gen),
                   base_quat_w=tilted(0.3), joint_vel=torch.randn(1, 8, generator=gen))
    memory = {"last_action": torch.randn(1, 8, generator=gen)}
    c, s = cos(1.1), sin(1.1)
    turn = torch.tensor([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    a, b = tilted(0.3)[0, :2].tolist()
    half = (cos(0.55), sin(0.55))
    moved = {**signals, "base_pos_w": signals["base_pos_w"] @ turn.T + torch.tensor([[2.0, -1.0, 0.0]]),
             "base_vel_w": signals["base_vel_w"] @ turn.T,
             "base_quat_w": torch.tensor([[half[0] * a, half[0] * b, half[1] * b, half[1] * a]]),
             "goal_pos_w": signals["goal_pos_w"] @ turn[:2, :2].T + torch.tensor([[2.0, -1.0]])}
    torch.testing.assert_close(observe(moved, memory)[0], observe(signals, memory)[0], rtol=0, atol=1e-5)
    nearer = observe({**signals, "goal_pos_w": torch.tensor([[1.0, 1.0]])}, memory)[0]
    torch.testing.assert_close(nearer[0, -1], torch.tanh(torch.tensor(0.5 * 2**0.5)))


def test_goals_lie_in_the_arena_and_some_metres_apart():
    chance = torch.rand(4000, 2, generator=torch.Generator().manual_seed(1))
    goal = 2 * ant.ARENA * (torch.rand(4000, 2, generator=torch.Generator().manual_seed(2)) - 0.5)
    following = ant.further(chance, goal)
    assert following.abs().max() <= ant.ARENA
    distance = (following - goal).norm(dim=-1)
    inside = (goal.abs() < ant.ARENA - ant.FAR).all(-1)
    assert distance[inside].min() >= ant.NEAR - 1e-4 and distance.max() <= ant.FAR + 1e-4
    ahead = torch.atan2(*(following - goal)[inside].T)
    assert abs(float(ahead.cos().mean())) < 0.1 and abs(float(ahead.sin().mean())) < 0.1


def test_goals_in_the_environment_follow_at_once_and_whatever_the_number_of_worlds():
    task = load_task("ant", constants={"reach": 100.0})  # every goal is met at once
    few, many = (make_env(task, num_worlds=n, seed=7, threads=1) for n in (2, 9))
    few.reset(), many.reset()
    before = few.true_signals()["goal_pos_w"].clone()
    for i in range(8):
        a, b = few.step(torch.zeros(2, 8)), many.step(torch.zeros(9, 8))
        goal = a.info["signals"]["goal_pos_w"].clone()
        assert torch.equal(goal, b.info["signals"]["goal_pos_w"][:2])
        assert (a.info["signals"]["goals_met"] == i + 2).all() and (goal != before).all()
        assert (a.info["signals"]["goal_age"] == 0).all()
        before = goal


def walk(task, speed, seconds=20.0, height=0.5):
    """Signals [T, 1, ...] of an ant that slides towards its goals, and what the objective makes of them."""
    extra, tracker = task.extra, task.objective.tracker
    chances = torch.rand(round(seconds / 0.05) + 1, 1, 2, generator=torch.Generator().manual_seed(3))
    pos = torch.tensor([[0.0, 0.0, height]])
    added = {"goal_pos_w": torch.tensor([[4.0, 0.0]]), "age": torch.zeros(1), "met": torch.zeros(1)}
    memory, trace = {k: torch.zeros(1, *s) for k, s in tracker.carry.items()}, []
    for t, chance in enumerate(chances):
        found, added = extra({"base_pos_w": pos}, chance, added)
        sample = rest(base_pos_w=pos, mission_time=torch.full((1,), 0.05 * t), **found)
        memory = tracker(sample, memory).carry
        trace.append(sample)
        way, distance = ant.towards(sample)
        pos = pos + torch.cat([way * (speed * 0.05), torch.zeros(1, 1)], -1)
    signals = {k: torch.stack([s[k] for s in trace]) for k in trace[0]}
    verdict = satisfied(task.formula, {k: v.numpy() for k, v in signals.items()}, 0.05)[0]
    return signals, bool(verdict[0]), bool(tracker.success(memory)[0])


@pytest.mark.parametrize(("speed", "height", "good"), [(1.2, 0.5, True), (0.5, 0.5, False), (1.2, 0.26, False)])
def test_formula_judges_each_goal_and_the_posture(speed, height, good):
    signals, exact, followed = walk(load_task("ant"), speed, height=height)
    assert exact == followed == good
    if speed == 1.2:
        assert float(signals["goals_met"][-1]) >= 5 and float(signals["goal_age"].max()) < 5


def test_other_formulas_over_the_same_signals():
    task = load_task("ant", formula="F[0,8] (goals_met > 2.5) & G[0,8] (base_pos_w.z > low)")
    assert walk(task, 3.0)[1:] == (True, True)
    assert walk(task, 0.5)[1:] == (False, False)
    reward, fallen, _ = task.objective.step(
        rest(goals_met=torch.full((1,), 3.0)), torch.zeros(1, 8),
        {k: torch.zeros(1, *s) for k, s in task.objective.carry.items()})
    w = ant.Reward()
    assert float(reward) == pytest.approx(0.05 * w.alive + 3 * w.met + w.hit) and not fallen


def test_a_fallen_ant_ends_its_episode():
    env = make_env(load_task("ant"), num_worlds=3, seed=2, threads=1)
    env.reset()
    state = {k: v[1:2].clone() for k, v in env.backend.signals().items() if k in ("base_pos_w", "joint_pos")}
    env.backend.reset(torch.tensor([1]), {**state, "base_quat_w": torch.tensor([[cos(pi / 4), sin(pi / 4), 0.0, 0.0]])})
    step = env.step(torch.zeros(3, 8))
    assert step.terminated.tolist() == [False, True, False] and not step.info["success"][1]


def test_a_late_goal_does_not_end_the_episode_but_breaks_the_formula():
    env = make_env(load_task("ant", constants={"patience": 0.2}), num_worlds=4, seed=2, threads=1)
    env.reset()
    for _ in range(10):
        step = env.step(torch.zeros(4, 8))
    assert not step.terminated.any() and not step.info["success"].any()
    assert (step.info["signals"]["goal_age"] > 0.2).all()


def test_an_ant_without_commands_stays_up():
    env = make_env(load_task("ant"), num_worlds=16, seed=4, threads=1)
    env.reset()
    for _ in range(100):
        step = env.step(torch.zeros(16, 8))
        assert not step.terminated.any()
    assert (step.info["signals"]["base_pos_w"][:, 2] > 0.3).all()
