"""Hand tasks: the formulas can be met, signals and rewards are what they say, episodes end when they should."""

from math import pi
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.examples import thinned

from temporeal.policies.export.golden_trace import record_golden
from temporeal.policies.export.writer import ArtifactSpec, export
from temporeal.policies.nets.actor import make_actor
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.policies.training.acting import graph_policy
from temporeal.robots.registry import UnknownName
from temporeal.sim import rotations
from temporeal.sim.env import make_env
from temporeal.sim.maps import PolicyGraph
from temporeal.sim.rotations import turn_between
from temporeal.sim.stl.semantics.robustness import satisfied
from temporeal.sim.task import load_task
from temporeal.sim.task_parts import gaits, hands
from temporeal.sim.task_parts.gaits import GaitAction
from temporeal.sim.tasks import cube_reorient, cube_rotate

HANDS = tuple(hands.PALMS)
TASKS = ("cube_rotate", "cube_reorient")


def about_z(angle):
    """Attitudes turned about the vertical by ``angle`` [...] rad."""
    angle = torch.as_tensor(angle, dtype=torch.float32)
    zero = torch.zeros_like(angle)
    return torch.stack([(angle / 2).cos(), zero, zero, (angle / 2).sin()], -1)


def random_attitudes(n, seed=0):
    return cube_reorient.any_attitude(torch.rand(n, 3, generator=torch.Generator().manual_seed(seed)), None)


def run(env, steps, action=None):
    """The last step of ``steps``, and the signals of every sample [T, N, ...] (of the first episode)."""
    trace = [{k: v.clone() for k, v in env.true_signals().items()}]
    for _ in range(steps):
        step = env.step(torch.zeros(env.num_worlds, env.action_dim) if action is None else action)
        trace.append({k: v.clone() for k, v in step.info["signals"].items()})
    return step, {k: torch.stack([s[k] for s in trace]) for k in trace[0]}


# ---------------------------------------------------------------- the cube


def test_a_cube_looks_the_same_in_24_attitudes_and_different_in_others():
    alike, quat = hands.symmetries(), random_attitudes(50)
    assert alike.shape == (24, 4)
    for one in alike:
        look = hands.symmetric_attitude(rotations.product(quat, one.expand_as(quat)))
        torch.testing.assert_close(look, hands.symmetric_attitude(quat), rtol=0, atol=1e-5)
    turned = rotations.product(about_z(torch.full((50,), pi / 8)), quat)
    assert ((hands.symmetric_attitude(turned) - hands.symmetric_attitude(quat)).norm(dim=-1) > 0.2).all()


def test_products_and_inverses_of_attitudes():
    a, b = random_attitudes(20, 1), random_attitudes(20, 2)
    torch.testing.assert_close(rotations.product(rotations.product(a, b), rotations.inverse(b)), a)
    _, angle = turn_between(a, rotations.product(about_z(torch.full((20,), 0.7)), a))
    torch.testing.assert_close(angle, torch.full((20,), 0.7), rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("robot", HANDS)
def test_stored_starts_lie_still_on_the_palm(robot):
    env = make_env(load_task("cube_rotate", robot=robot), num_worlds=64, seed=5, threads=1)
    env.reset()
    palm = torch.tensor(hands.PALMS[robot])
    _, trace = run(env, 20)
    moved = (trace["cube_pos_w"][-1] - trace["cube_pos_w"][0]).norm(dim=-1)
    assert (trace["cube_pos_w"] - palm).norm(dim=-1).max() < 0.05
    assert moved.median() < 0.002 and moved.max() < 0.02
    assert trace["spin"][-1].abs().max() < 0.2
    assert (trace["joint_pos"][-1] - trace["joint_pos"][0]).abs().max() < 0.1


@pytest.mark.slow
def test_starts_show_all_faces_and_all_fingers_places():
    env = make_env(load_task("cube_rotate"), num_worlds=512, seed=1, threads=1)
    env.reset()
    s = env.true_signals()
    up = hands.rotation(s["cube_quat_w"])[:, 2]
    faces = torch.stack([up > 0.9, up < -0.9], -1).reshape(512, 6).float().mean(0)
    assert ((faces > 0.1) & (faces < 0.24)).all()
    assert (s["joint_pos"].std(0) > 0.05).all()


def test_starts_can_be_made_anew_and_alike():
    first, again = (hands.settle("allegro_hand", wanted=6, tried=12, seed=3) for _ in range(2))
    assert {k: v.shape for k, v in first.items()} == {"joint_pos": (6, 16), "cube_pos_w": (6, 3), "cube_quat_w": (6, 4)}
    assert all(np.array_equal(first[k], again[k]) for k in first)
    assert hands.rotation(torch.from_numpy(first["cube_quat_w"]))[:, 2].abs().amax(-1).min() > 0.97
    with pytest.raises(RuntimeError, match="of 12 cubes came to rest, 13 are wanted"):
        hands.settle("allegro_hand", wanted=13, tried=12)


# ---------------------------------------------------------------- the task's signals


def test_turned_counts_the_last_two_seconds_and_spin_everything():
    extra, dt, rate = cube_rotate.Turned(0.05), 0.05, 2.5
    memory = {k: torch.zeros(1, *shape) for k, shape in extra.carry.items()}
    tilted = rotations.product(about_z(0.3)[None], torch.tensor([[0.98, 0.2, 0.0, 0.0]]) / 1.0002)
    for i in range(100):
        quat = rotations.product(about_z(rate * dt * min(i, 60))[None], tilted)
        quat = quat if i % 2 else -quat  # a tracker may give either sign
        added, memory = extra({"cube_quat_w": quat}, torch.zeros(1, 1), memory)
        assert float(added["spin"]) == pytest.approx(rate * dt * min(i, 60), abs=2e-3)
        late = rate * dt * (min(i, 60) - min(max(i - 40, 0), 60))
        assert float(added["turned"]) == pytest.approx(late, abs=2e-3)


def counted(quats):
    """``spin`` and ``turned`` [T, N] of attitudes [T, N, 4]."""
    extra, found = cube_rotate.Turned(0.05), []
    memory = {k: torch.zeros(quats.shape[1], *shape) for k, shape in extra.carry.items()}
    for quat in quats:
        added, memory = extra({"cube_quat_w": quat}, torch.zeros(len(quat), 1), memory)
        found.append(added)
    return tuple(torch.stack([f[k] for f in found]) for k in ("spin", "turned"))


def tilted(towards, angle):
    """Attitudes tilted by ``angle`` [T] rad about the horizontal axis at ``towards`` [T] rad."""
    c, s = (angle / 2).cos(), (angle / 2).sin()
    return torch.stack([c, s * towards.cos(), s * towards.sin(), 0 * s], -1)


def any_face(quats):
    """Attitudes [T, 4] of cubes that stand on any face, [T, 24, 4]."""
    return torch.stack([rotations.product(quats, one.expand_as(quats)) for one in hands.symmetries()], 1)


TIMES = 0.05 * torch.arange(240)


@pytest.mark.parametrize("tilt, hz", thinned(
    [(tilt, hz) for tilt in (5, 20, 45, 55, 60) for hz in (0.5, 3.0, 7.0)],
    keep=[(5, 0.5), (20, 3.0), (45, 7.0), (55, 0.5), (60, 7.0)]))
def test_a_tilt_that_goes_round_is_no_turn(hz, tilt):
    angle = tilt / 180 * pi * (TIMES / 2).clamp(max=1.0)
    spin, turned = counted(any_face(tilted(2 * pi * hz * TIMES, angle)))
    assert spin.abs().max() < 1e-5 and turned.abs().max() < 1e-5


@pytest.mark.parametrize("lean", [(pi / 4, 0.0), (0.9553, pi / 4)])  # on an edge, on a corner
def test_a_cube_that_wobbles_on_an_edge_or_a_corner_does_not_turn(lean):
    base = rotations.product(tilted(torch.zeros(1), torch.tensor([lean[0]])), about_z([lean[1]]))
    wobble = tilted(2 * pi * 3.0 * TIMES, torch.full_like(TIMES, 0.35))
    spin, _ = counted(any_face(rotations.product(wobble, base.expand_as(wobble))))
    assert spin.abs().max() < 0.4 and spin[::20].abs().max() < 1e-5  # it comes back with each third period


@pytest.mark.parametrize("tilt, rate", thinned(
    [(tilt, rate) for tilt in (0.0, 30.0, 60.0, 85.0, 170.0) for rate in (1.0, -1.5, 10.0)],
    keep=[(0.0, 1.0), (30.0, -1.5), (60.0, 10.0), (85.0, 1.0), (170.0, 10.0)]))
def test_a_turn_about_the_vertical_is_exact_at_any_tilt(rate, tilt):
    lean = tilted(torch.tensor([0.4]), torch.tensor([tilt / 180 * pi])).expand(240, 4)
    spin, turned = counted(any_face(rotations.product(about_z(rate * TIMES), lean)))
    torch.testing.assert_close(spin, (rate * TIMES)[:, None].expand_as(spin), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(turned[60:], torch.full_like(turned[60:], 2 * rate), rtol=1e-5, atol=1e-4)


def test_turns_about_a_tilted_axis_of_the_cube_are_whole():
    lean = tilted(torch.tensor([0.4]), torch.tensor([0.5])).expand(201, 4)
    turns = about_z(2 * pi * torch.arange(201) / 50)
    spin, _ = counted(any_face(rotations.product(lean, turns)))
    torch.testing.assert_close(spin[-1], torch.full((24,), 8 * pi), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("ways", thinned(["0000", "0123", "0103321"], keep=["0103321"]))
def test_tips_over_an_edge_are_no_turn_and_what_is_turned_in_between_counts(ways):
    quats, turned = [about_z([0.0])], 0.0
    for way in map(int, ways):
        start, axis = quats[-1], torch.full((20,), way * pi / 2 + turned)
        tips = rotations.product(tilted(axis, pi / 40 * torch.arange(1, 21)), start.expand(20, 4))
        turns = rotations.product(about_z(0.02 * torch.arange(1, 21)), tips[-1:].expand(20, 4))
        quats += [*tips[:, None], *turns[:, None]]
        turned += 0.4
    spin, _ = counted(torch.stack([any_face(q)[0] for q in quats]))
    torch.testing.assert_close(spin[-1], torch.full((24,), turned), rtol=1e-5, atol=1e-4)


def test_a_goal_is_shown_met_and_the_next_one_follows():
    extra = load_task("cube_reorient").extra
    goal, other = about_z([0.5]), torch.tensor([[0.1, 0.4, 0.7]])
    memory = {"goal_quat_w": goal, "age": torch.zeros(1), "met": torch.zeros(1)}
    shown = []
    for angle in (-0.5, 0.0, 0.11, 0.11):
        added, memory = extra({"cube_quat_w": about_z([angle])}, other, memory)
        shown.append(added)
    assert [float(s["goal_age"]) for s in shown] == pytest.approx([0.0, 0.05, 0.1, 0.0])
    assert [float(s["goals_met"]) for s in shown] == [0, 0, 1, 1]
    assert all(torch.equal(s["goal_quat_w"], goal) for s in shown[:3])
    assert torch.equal(shown[3]["goal_quat_w"], cube_reorient.any_attitude(other, goal))


@pytest.mark.slow
def test_goals_that_follow_do_not_depend_on_the_number_of_worlds():
    task = load_task("cube_reorient", constants={"reach": 4.0})  # every goal is met at once
    few, many = (make_env(task, num_worlds=n, seed=7, threads=1) for n in (2, 9))
    few.reset(), many.reset()
    (_, a), (_, b) = run(few, 12), run(many, 12)
    assert torch.equal(a["goal_quat_w"], b["goal_quat_w"][:, :2])
    assert torch.equal(a["goals_met"][:, 0], torch.arange(1.0, 14.0))
    different = (a["goal_quat_w"][1:] - a["goal_quat_w"][:-1]).norm(dim=-1)
    assert (different > 0.01).all()


def test_random_goals_are_uniform_and_goals_about_the_vertical_keep_the_face():
    chance = torch.rand(20000, 3, generator=torch.Generator().manual_seed(3))
    quat = cube_reorient.any_attitude(chance, None)
    torch.testing.assert_close(quat.norm(dim=-1), torch.ones(20000))
    # uniform: E|q_i| of a unit vector in 4-D is 4 / (3 pi), second moments 1/4
    torch.testing.assert_close(quat.square().mean(0), torch.full((4,), 0.25), rtol=0, atol=0.005)
    torch.testing.assert_close(quat.abs().mean(0), torch.full((4,), 4 / (3 * pi)), rtol=0, atol=0.005)
    before = random_attitudes(500, 4)
    turn, angle = turn_between(before, cube_reorient.turned(chance[:500], before))
    assert angle.min() >= cube_reorient.LEAST - 1e-3 and (turn[:, :2].abs() < 2e-3).all()
    assert 0.4 < (turn[:, 2] > 0).float().mean() < 0.6


# ---------------------------------------------------------------- formulas


def kinematic(task, seconds, rate, away=0.0, stop=None):
    """Signals [T, 1, ...] of a cube that turns by ``rate`` rad/s (until ``stop`` s), ``away`` m beside its place."""
    n = round(seconds / task.control_dt) + 1
    time = torch.arange(n) * task.control_dt
    quat = about_z(rate * (time if stop is None else time.clamp(max=stop)))[:, None]
    pos = (torch.tensor(task.constants["palm"]) + torch.tensor([away, 0.0, 0.0])).expand(n, 1, 3)
    signals = {"cube_pos_w": pos, "cube_quat_w": quat, "mission_time": time[:, None]}
    memory = {k: torch.zeros(1, *shape) for k, shape in task.extra.carry.items()}
    if "goal_quat_w" in memory:
        memory["goal_quat_w"] = about_z([0.0 if rate == 0 else 3.0])
    added = []
    for t in range(n):
        chance = torch.tensor([[0.0, 0.0, 0.0]])  # goals about the vertical: half a turn to the right each
        found, memory = task.extra({"cube_quat_w": quat[t]}, chance, memory)
        added.append(found)
    return {**signals, **{k: torch.stack([a[k] for a in added]) for k in added[0]}}


def verdicts(task, signals):
    """Whether the formula is satisfied, and whether the objective says so."""
    tracker = task.objective.tracker
    memory = {k: torch.zeros(1, *shape) for k, shape in tracker.carry.items()}
    for t in range(len(signals["mission_time"])):
        memory = tracker({k: v[t] for k, v in signals.items()}, memory).carry
    exact = satisfied(task.formula, {k: v.numpy() for k, v in signals.items()}, task.control_dt)[0]
    return bool(exact[0]), bool(tracker.success(memory)[0])


@pytest.mark.parametrize(("case", "good"), [
    ({"rate": 1.05}, True), ({"rate": 0.9}, False), ({"rate": 2.0, "away": 0.08}, False),
    ({"rate": 2.0, "stop": 9.0}, False), ({"rate": -1.5}, False)])
def test_rotation_is_judged_over_every_two_seconds(case, good):
    task = load_task("cube_rotate")
    assert verdicts(task, kinematic(task, 12.0, **case)) == (good, good)


@pytest.mark.parametrize(("case", "good"), [
    ({"rate": -0.5}, True), ({"rate": -0.3}, False), ({"rate": -0.5, "away": 0.1}, False)])
def test_goals_are_judged_one_by_one(case, good):
    """Half turns at 0.5 rad/s take under 6 s, at 0.3 rad/s over 9 s."""
    task = load_task("cube_reorient", goals="yaw")
    assert verdicts(task, kinematic(task, 24.0, **case)) == (good, good)


@pytest.mark.slow
def test_the_stored_gait_turns_the_cube_as_the_formula_asks_more_often_than_not():
    """Open loop, from starts that the search did not pick: the task can be done, and the prior is worth having."""
    env = make_env(load_task("cube_rotate", gait="stored"), num_worlds=32, seed=11, threads=1)
    env.reset()
    success = torch.zeros(32, dtype=torch.bool)
    over = torch.zeros(32, dtype=torch.bool)
    for _ in range(env.task.steps):
        step = env.step(torch.zeros(32, 16))
        ended = step.terminated | step.truncated
        success |= step.info["success"] & ended & ~over
        over |= ended
    assert over.all() and success.float().mean() > 0.5


def test_a_gait_is_a_point_of_the_search_and_back():
    robot, found = hands.hand("leap_hand"), gaits.gait("leap_hand")
    again = gaits.of_search(robot, gaits.as_search(robot, found))
    for name, value in found.items():
        np.testing.assert_allclose(again[name], value.numpy(), rtol=1e-6, atol=1e-6)


def test_a_gait_is_entered_from_where_the_joints_are_and_corrected_by_actions():
    robot = hands.hand("leap_hand")
    act = GaitAction(robot, hands.COMMAND, 0.3, 0.05)
    g, measured = gaits.gait("leap_hand"), torch.full((1, 16), 0.2)
    memory = act.follow(measured, {k: torch.zeros(1, *s) for k, s in act.memory.items()})
    action = torch.linspace(-1, 1, 16)[None]
    for t in range(40):
        memory = act.follow(measured + t, memory)
        angle = 2 * pi * float(g["rate"]) * 0.05 * t
        wanted = g["offset"] + g["sine"] * np.sin(angle) + g["cosine"] * np.cos(angle)
        base = measured + min(t / gaits.RAMP, 1.0) * (wanted - measured)
        torch.testing.assert_close(act.phase(memory), torch.tensor([[np.cos(angle), np.sin(angle)]]).float(),
                                   rtol=0, atol=1e-4)
        command = torch.maximum(torch.minimum(base + 0.3 * action, act.high), act.low)
        inside = (command > act.low + 1e-4) & (command < act.high - 1e-4)
        torch.testing.assert_close(act.inverse(command, memory)[inside], action[inside], rtol=0, atol=1e-3)
        memory = act.move(memory, action)
        torch.testing.assert_close(act(action, memory), command, rtol=0, atol=1e-4)


# ---------------------------------------------------------------- episodes and rewards


def objective_case(name, **changes):
    """The objective's step from rest, with some signals changed: reward and whether it ends."""
    task = load_task(name)
    home = torch.tensor([task.robot.home["joint_pos"]])
    signals = {
        "joint_pos": home, "joint_vel": torch.zeros(1, 16), "joint_torque": torch.zeros(1, 16),
        "cube_pos_w": torch.tensor([hands.PALMS["leap_hand"]]), "cube_quat_w": about_z([0.0]),
        "cube_vel_w": torch.zeros(1, 3), "cube_ang_vel_w": torch.zeros(1, 3), "mission_time": torch.zeros(1),
        "spin": torch.zeros(1), "turned": torch.zeros(1), "goal_quat_w": about_z([1.0]),
        "goal_age": torch.zeros(1), "goals_met": torch.zeros(1)}
    objective = task.objective
    memory = objective.start(signals, {k: torch.zeros(1, *s) for k, s in objective.carry.items()})
    action = changes.pop("action", torch.zeros(1, 16))
    signals = {**signals, "mission_time": torch.full((1,), 0.05), **changes}
    reward, ended, after = objective.step(signals, action, memory)
    return SimpleNamespace(reward=float(reward), ended=bool(ended), weights=objective.weights, after=after,
                           objective=objective, signals=signals)


def test_reward_of_the_rotation_term_by_term():
    rest = objective_case("cube_rotate")
    w, dt = rest.weights, 0.05
    assert rest.reward == pytest.approx(0.0, abs=1e-6) and not rest.ended

    def gain(**changes):
        return objective_case("cube_rotate", **changes).reward

    assert gain(spin=torch.full((1,), 0.04)) == pytest.approx(dt * w.turn * 0.8, rel=1e-4)
    assert gain(spin=torch.full((1,), 0.2)) == pytest.approx(dt * w.turn * w.fastest, rel=1e-4)
    assert gain(spin=torch.full((1,), -0.2)) == pytest.approx(-dt * w.turn * w.fastest, rel=1e-4)
    assert gain(turned=torch.full((1,), 2.1)) == pytest.approx(dt * w.steady, rel=1e-4)
    assert gain(cube_vel_w=torch.tensor([[0.1, -0.2, 0.0]])) == pytest.approx(-dt * w.slide * 0.3, rel=1e-4)
    beside = torch.tensor([hands.PALMS["leap_hand"]]) + torch.tensor([[0.03, 0.04, 0.0]])
    assert gain(cube_pos_w=beside) == pytest.approx(-dt * w.centred * 0.05, rel=1e-3)
    tilted = torch.tensor([[np.cos(0.25), np.sin(0.25), 0.0, 0.0]], dtype=torch.float32)
    assert gain(cube_quat_w=tilted) == pytest.approx(-dt * w.tipped * (1 - np.cos(0.5)), rel=1e-3)
    home = torch.tensor([load_task("cube_rotate").robot.home["joint_pos"]])
    assert gain(joint_pos=home + 0.1) == pytest.approx(-dt * w.pose * 16 * 0.01, rel=1e-3)
    assert gain(joint_torque=torch.full((1, 16), 0.1)) == pytest.approx(-dt * w.torque * 0.16, rel=1e-4)
    work = {"joint_torque": torch.full((1, 16), 0.1), "joint_vel": torch.full((1, 16), -0.5)}
    assert gain(**work) == pytest.approx(-dt * (w.torque * 0.16 + w.work * 0.8), rel=1e-4)
    assert gain(action=torch.full((1, 16), 0.5)) == pytest.approx(-dt * w.smooth * 4.0, rel=1e-4)
    dropped = objective_case("cube_rotate", cube_pos_w=torch.tensor([[0.3, 0.0, 0.0]]))
    assert dropped.ended and dropped.reward < -w.dropped


def test_reward_of_the_reorientation_term_by_term():
    rest = objective_case("cube_reorient")
    w, dt = rest.weights, 0.05
    near = dt * w.near * 0.4 / 1.4
    assert rest.reward == pytest.approx(near, rel=1e-4) and not rest.ended
    turned = objective_case("cube_reorient", cube_quat_w=about_z([0.1])).reward
    assert turned == pytest.approx(w.closer * 0.1 + dt * w.near * 0.4 / 1.3, rel=1e-4)
    met = objective_case("cube_reorient", goals_met=torch.ones(1))
    assert met.reward == pytest.approx(near + w.met, rel=1e-4) and float(met.after["fresh"]) == 1
    # the goal that follows is further away: nothing is paid or charged for the jump
    following = {**met.signals, "goal_quat_w": about_z([2.5])}
    reward, _, after = met.objective.step(following, torch.zeros(1, 16), met.after)
    assert float(reward) == pytest.approx(dt * w.near * 0.4 / 2.9, rel=1e-4) and float(after["fresh"]) == 0
    late = objective_case("cube_reorient", goal_age=torch.full((1,), 8.0))
    assert late.ended and late.reward == pytest.approx(near - w.late, rel=1e-4)
    dropped = objective_case("cube_reorient", cube_pos_w=torch.tensor([[0.3, 0.0, 0.0]]),
                             goal_age=torch.full((1,), 9.0))
    assert dropped.ended and -w.dropped - w.late < dropped.reward < -w.dropped


@pytest.mark.parametrize("name", thinned(TASKS, keep=["cube_reorient"]))
def test_a_cube_that_leaves_the_hand_ends_the_episode(name):
    env = make_env(load_task(name), num_worlds=3, seed=2, threads=1)
    env.reset()
    state = {k: v[1:2].clone() for k, v in env.backend.signals().items() if k in ("joint_pos", "cube_quat_w")}
    env.backend.reset(torch.tensor([1]), {**state, "cube_pos_w": torch.tensor([[0.3, 0.3, 0.3]])})
    step = env.step(torch.zeros(3, 16))
    assert step.terminated.tolist() == [False, True, False]
    assert not step.info["success"][1] and step.reward[1] < -10


@pytest.mark.slow
def test_a_goal_that_waits_too_long_ends_the_episode():
    env = make_env(load_task("cube_reorient", constants={"patience": 0.3}), num_worlds=8, seed=2, threads=1)
    env.reset()
    for i in range(1, 7):
        step = env.step(torch.zeros(8, 16))
        assert step.terminated.any() == (i == 6)  # the first sample whose goal is 0.3 s old
    assert step.terminated.float().mean() > 0.8


# ---------------------------------------------------------------- maps and physics


def test_targets_move_by_at_most_a_step_and_begin_where_the_joints_are():
    env = make_env(load_task("cube_rotate", step=0.05), num_worlds=4, seed=0, threads=1)
    env.reset()
    start = env.true_signals()["joint_pos"].clone()
    env.step(torch.full((4, 16), 7.0))
    torch.testing.assert_close(env.command, (start + 0.05).clamp(max=env.task.act.high), rtol=0, atol=1e-6)


def test_history_begins_as_the_present_and_then_shifts():
    task = load_task("cube_rotate", sees="joints")
    assert task.observe.signals == ("joint_pos",) and task.observe.obs_dim == 112
    memory = {k: torch.zeros(1, *s) for k, s in task.observe.memory.items()}
    seen = []
    for i in range(3):
        obs, memory = task.observe({"joint_pos": torch.full((1, 16), 0.1 * i)}, memory)
        memory = task.observe.record(memory, torch.full((1, 16), 0.2 * i))
        seen.append(obs[0])
    assert torch.equal(seen[0][:32], seen[0][32:64]) and torch.equal(seen[0][:32], seen[0][64:96])
    assert torch.equal(seen[2][32:64], seen[1][:32]) and torch.equal(seen[2][64:96], seen[0][:32])
    torch.testing.assert_close(seen[2][96:], torch.full((16,), 0.2))


@pytest.mark.slow
@pytest.mark.parametrize("robot", HANDS)
def test_a_finer_step_moves_the_hand_and_the_cube_alike(robot):
    """Over 0.4 s of strokes against the cube: steps of 8.3 ms against 1 ms."""
    def after(substeps):
        env = make_env(load_task("cube_rotate", robot=robot, substeps=substeps), num_worlds=48, seed=4, threads=1)
        env.reset()
        action = 0.5 * torch.randn(48, 16, generator=torch.Generator().manual_seed(1))
        _, trace = run(env, 8, action)
        return {k: v[-1] for k, v in trace.items()}

    coarse, fine = after(6), after(50)
    joints = (coarse["joint_pos"] - fine["joint_pos"]).abs()
    place = (coarse["cube_pos_w"] - fine["cube_pos_w"]).norm(dim=-1)
    turn = turn_between(coarse["cube_quat_w"], fine["cube_quat_w"])[1]
    moved = (fine["joint_pos"] - hands.start(robot, lambda n, c: torch.zeros(48, c))["joint_pos"]).abs()
    assert moved.median() > 0.05  # the strokes are real
    assert joints.median() < 0.005 and place.median() < 0.002 and turn.median() < 0.03


# ---------------------------------------------------------------- artifacts and wrong input


@pytest.mark.parametrize(("name", "settings"), [
    ("cube_rotate", {"gait": "stored"}), ("cube_rotate", {"sees": "joints", "robot": "allegro_hand"}),
    ("cube_reorient", {})])
def test_a_fresh_policy_exports_and_replays(name, settings, tmp_path):
    task = load_task(name, **settings)
    env = make_env(task, num_worlds=1, seed=0, threads=1, compiled=False)
    torch.manual_seed(0)
    graph = PolicyGraph(task.observe, Normalizer(env.obs_dim), make_actor(env.obs_dim, 16, (32, 32)), task.act)
    golden = record_golden(env, graph_policy(graph), steps=40)
    spec = ArtifactSpec(
        robot=task.robot, signals=graph.signals, command=task.command, rate_hz=20.0, formula_text=task.formula_text,
        constants=task.constants, horizon_s=task.episode_s, training={}, seed=0, stop=task.stop,
        task_signals=task.schema)
    artifact = export(graph, tmp_path / "artifact", spec, golden)
    artifact.self_test(1e-5)
    assert {s.name for s in artifact.manifest.signals} == set(task.observe.signals)


def test_wrong_settings_are_told_the_legal_ones():
    with pytest.raises(UnknownName, match="no hand 'shadow'; known: leap_hand, allegro_hand"):
        load_task("cube_rotate", robot="shadow")
    with pytest.raises(ValueError, match="sees is 'touch'; legal: cube, joints"):
        load_task("cube_rotate", sees="touch")
    with pytest.raises(ValueError, match="gait is 'trot'; legal: none, stored"):
        load_task("cube_rotate", gait="trot")
    with pytest.raises(ValueError, match="no gait is stored for 'shadow', there is one for .*leap_hand; python -m"):
        gaits.gait("shadow")
    with pytest.raises(ValueError, match="goals is 'all'; legal: any, yaw"):
        load_task("cube_reorient", goals="all")
    with pytest.raises(ValueError, match="reach must be positive, as in reach=0.4; got 0"):
        load_task("cube_reorient", constants={"reach": 0})
    with pytest.raises(ValueError, match="legal: .*turn"):
        load_task("cube_rotate", reward={"spin": 1.0})


def test_a_formula_of_ones_own_is_paid_for_its_subgoals():
    task = load_task("cube_rotate", formula="F[0,6] (spin > full) & G[0,6] (norm(cube_pos_w - palm) < away)",
                     constants={"full": 6.0})
    good, bad = kinematic(task, 6.0, 1.1), kinematic(task, 6.0, 0.9)
    assert verdicts(task, good) == (True, True) and verdicts(task, bad) == (False, False)
    memory = {k: torch.zeros(1, *s) for k, s in task.objective.carry.items()}
    rest = objective_case("cube_rotate").signals
    reward, _, _ = task.objective.step({**rest, "spin": torch.full((1,), 7.0)}, torch.zeros(1, 16), memory)
    w = task.objective.weights
    assert float(reward) == pytest.approx(w.hit + 0.05 * w.turn * w.fastest, rel=1e-4)
