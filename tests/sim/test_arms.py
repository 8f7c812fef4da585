"""Arms: kinematics against MuJoCo and finite differences, attitudes, actions that move the tool, the judge."""

from math import pi

import pytest
import torch

from robots.franka.spec import HIGH, HOME, LOW, OPEN, SPEED
from robots.signals import SignalSpec, schema
from robots.spec import Source, load_robot
from sim.arms import (
    SHARE_OF_SPEED,
    ArmObserve,
    about_z,
    axes,
    between,
    cross,
    franka_action,
    franka_chain,
    one_of,
    one_thread,
    pointing_down,
    postures,
    product,
    quaternion,
    solve,
    standing,
    turn_between,
)
from sim.backends import mujoco
from sim.judge import Judge
from sim.maps import StepAction, rotation
from sim.mission import NEVER
from sim.scene import Scene
from sim.stl.parse import parse
from sim.stl.robustness import satisfied

ROBOT = load_robot("franka")
DT = 0.04


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_joints(n, seed=0, margin=0.1):
    low, high = torch.tensor(LOW) + margin, torch.tensor(HIGH) - margin
    return low + (high - low) * torch.rand(n, 7, generator=generator(seed))


def random_quats(n, seed=0):
    return torch.nn.functional.normalize(torch.randn(n, 4, generator=generator(seed)), dim=-1)


def same_attitude(a, b, atol):
    torch.testing.assert_close((a * b).sum(-1).abs(), torch.ones(len(a)), atol=atol, rtol=0)


# ---------------------------------------------------------------- kinematics


def test_the_chain_is_the_model_that_mujoco_compiles():
    joints, chain = random_joints(64), franka_chain()
    backend = mujoco.make(Scene(ROBOT), 64, "arm_cmd", dt=0.002, device="cpu", seed=0, threads=1)
    backend.reset(torch.arange(64), {"joint_pos": joints})
    found = backend.signals()
    pos, quat = chain(joints)
    torch.testing.assert_close(pos, found["grip_pos_w"], atol=2e-6, rtol=0)
    same_attitude(quat, found["grip_quat_w"], 1e-6)
    backend.close()


def test_jacobian_is_the_derivative_of_the_pose():
    chain = franka_chain().double()
    joints, h = random_joints(8, 1).double(), 1e-6
    jacobian = chain.jacobian(joints)
    for i in range(7):
        ahead, behind = joints.clone(), joints.clone()
        ahead[:, i] += h
        behind[:, i] -= h
        (p, q), (a, b) = chain(ahead), chain(behind)
        torch.testing.assert_close(jacobian[:, :3, i], (p - a) / (2 * h), atol=1e-6, rtol=0)
        # for small turns the vector part of the quaternion is half the rotation vector
        between_them = product(q, b * torch.tensor([1.0, -1.0, -1.0, -1.0]))
        turn = 2 * between_them[:, 1:] * between_them[:, :1].sign() / (2 * h)
        torch.testing.assert_close(jacobian[:, 3:, i], turn, atol=1e-6, rtol=0)


def test_linear_systems_and_cross_products():
    a = torch.randn(16, 6, 9, generator=generator())
    matrix, right = a @ a.transpose(1, 2) + 0.1 * torch.eye(6), torch.randn(16, 6, generator=generator(1))
    torch.testing.assert_close(solve(matrix, right), torch.linalg.solve(matrix, right), atol=1e-4, rtol=1e-4)
    x, y = torch.randn(2, 16, 3, generator=generator(2))
    torch.testing.assert_close(cross(x, y), torch.linalg.cross(x, y))


def test_quaternions_of_matrices_and_back():
    half_turns = torch.tensor([[0.0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0.6, 0.8, 0], [1, 0, 0, 0]])
    quats = torch.cat([random_quats(200), half_turns])
    found = quaternion(rotation(quats))
    same_attitude(found, quats, 1e-6)
    assert (found[:, 0] >= 0).all()
    x, y = axes(quats).reshape(-1, 3, 2).unbind(-1)
    torch.testing.assert_close(torch.stack([x, y, cross(x, y)], -1), rotation(quats), atol=1e-6, rtol=0)


def test_the_turn_between_two_attitudes_leads_from_one_to_the_other():
    a, b = random_quats(200, 3), random_quats(200, 4)
    vector, angle = turn_between(a, b)
    torch.testing.assert_close(vector.norm(dim=-1), angle, atol=1e-5, rtol=0)
    assert (angle <= pi + 1e-6).all()
    turn = torch.cat([(angle / 2).cos()[:, None], (angle / 2).sin()[:, None] * vector / angle[:, None]], -1)
    same_attitude(product(turn, a), b, 1e-5)
    for signs in ((-1, 1), (1, -1)):  # a quaternion and its negative are one attitude
        torch.testing.assert_close(turn_between(signs[0] * a, signs[1] * b)[1], angle, atol=1e-5, rtol=0)
    vector, angle = turn_between(a, a)
    assert angle.max() < 1e-3 and torch.isfinite(vector).all()


def test_products_and_turns_about_the_vertical():
    a, b = random_quats(50, 5), random_quats(50, 6)
    torch.testing.assert_close(rotation(product(a, b)), rotation(a) @ rotation(b), atol=1e-5, rtol=0)
    angle = torch.tensor([0.0, 0.3, -1.2, pi])
    frame = rotation(pointing_down(angle))
    torch.testing.assert_close(frame[:, :, 2], torch.tensor([0.0, 0, -1]).expand(4, 3), atol=1e-6, rtol=0)
    turned = rotation(about_z(angle)) @ torch.tensor([0.0, -1, 0])  # at angle 0 the fingers move along -y
    torch.testing.assert_close(frame[:, :, 1], turned, atol=1e-6, rtol=0)


def test_places_and_stored_states_are_picked_by_uniform_numbers():
    u = torch.tensor([[0.0, 0.0], [0.5, 0.25], [0.999999, 0.999999]])
    torch.testing.assert_close(between((1.0, -2.0), (3.0, 2.0), u),
                               torch.tensor([[1.0, -2], [2, -1], [3, 2]]), atol=1e-5, rtol=0)
    stored = {"a": torch.arange(4.0)}
    assert one_of(stored, torch.tensor([0.0, 0.26, 0.99999999, 0.5]))["a"].tolist() == [0, 1, 3, 2]


def test_postures_meet_poses_that_can_be_reached_and_say_which():
    chain = franka_chain()
    pos, quat = chain(torch.tensor(HOME) + 0.4 * (2 * torch.rand(32, 7, generator=generator()) - 1))
    pos[-1] = torch.tensor([1.5, 0.0, 0.3])  # an arm's length too far
    before = torch.get_num_threads()
    joints, good = postures(chain, pos, quat, HOME, (LOW, HIGH))
    assert torch.get_num_threads() == before
    assert good[:-1].float().mean() > 0.9 and not good[-1]
    found, attitude = chain(joints[good])
    torch.testing.assert_close(found, pos[good], atol=1e-4, rtol=0)
    assert turn_between(attitude, quat[good])[1].max() < 1e-3
    assert (joints >= torch.tensor(LOW)).all() and (joints <= torch.tensor(HIGH)).all()


def test_threads_come_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), one_thread():
        assert torch.get_num_threads() == 1
        raise RuntimeError
    assert torch.get_num_threads() == before


# ---------------------------------------------------------------- actions


def action_map(**kw):
    return franka_action(ROBOT, kw.pop("command", "arm_cmd"), DT, speed=0.5, turn=1.5, **kw)


def begun(act, joints, opening=OPEN):
    measured = torch.cat([joints, torch.full((len(joints), len(act.low) - 7), opening)], -1)
    memory = {name: torch.zeros(len(joints), *shape) for name, shape in act.memory.items()}
    return act.follow(measured, memory)


def test_an_action_moves_the_tool_by_what_it_says():
    act, joints = action_map(), torch.tensor(HOME) + 0.1 * torch.randn(40, 7, generator=generator())
    memory = begun(act, joints)
    # a tenth of the reach: no joint is at its speed limit, and the damping of the least squares takes little
    action = torch.cat([0.1 * torch.randn(40, 6, generator=generator(1)).clamp(-1, 1), torch.zeros(40, 1)], -1)
    after = act.move(memory, action)
    (pos, quat), (there, turned) = act.chain(joints), act.chain(after["target"][:, :7])
    wanted = 0.5 * DT * action[:, :3]
    turn, _ = turn_between(quat, turned)
    assert (there - pos - wanted).norm(dim=-1).max() < 0.15 * wanted.norm(dim=-1).max()
    assert (turn - 1.5 * DT * action[:, 3:6]).norm(dim=-1).max() < 0.15 * 1.5 * DT * action[:, 3:6].norm(dim=-1).max()


def test_what_does_not_move_the_tool_goes_home():
    act = action_map()
    elbow = torch.tensor(HOME) + torch.tensor([0.3, 0, -0.3, 0, 0.2, 0, 0])
    memory, pos = begun(act, elbow[None]), act.chain(elbow[None])[0]
    for _ in range(200):
        memory = act.move(memory, torch.zeros(1, 7))
    joints = memory["target"][:, :7]
    assert (act.chain(joints)[0] - pos).norm() < 0.02
    assert (joints - act.home).norm() < 0.8 * (elbow - act.home).norm()


def test_no_joint_moves_faster_than_its_step_and_the_direction_stays():
    act, joints = action_map(), random_joints(100, 3)
    memory = begun(act, joints)
    action = torch.sign(torch.randn(100, 7, generator=generator(2)))
    moved = act.move(memory, 3.0 * action)["target"][:, :7] - memory["target"][:, :7]
    step = SHARE_OF_SPEED * DT * torch.tensor(SPEED)
    assert (moved.abs() <= step + 1e-6).all() and ((moved.abs() / step).max(-1).values > 0.99).any()
    # beyond 1 an action counts as 1
    torch.testing.assert_close(moved, act.move(memory, action)["target"][:, :7] - memory["target"][:, :7])


def test_targets_stay_within_the_limits():
    act, memory = action_map(), begun(action_map(), torch.tensor([HIGH, LOW]))
    for _ in range(20):
        memory = act.move(memory, torch.ones(2, 7))
    assert (memory["target"] <= act.high).all() and (memory["target"] >= act.low).all()
    assert torch.equal(act(torch.ones(2, 7), memory), memory["target"])


def test_the_gripper_is_commanded_or_fixed():
    joints = torch.tensor([HOME])
    act = action_map()
    actions = torch.cat([torch.zeros(3, 6), torch.tensor([[-1.0], [0.0], [1.0]])], -1)
    openings = act.move(begun(act, joints.expand(3, 7)), actions)["target"][:, 7].tolist()
    assert openings == pytest.approx([0.0, OPEN / 2, OPEN])
    fixed = action_map(grip=0.01)
    assert fixed.action_dim == 6
    assert float(fixed.move(begun(fixed, joints), torch.ones(1, 6))["target"][0, 7]) == pytest.approx(0.01)
    assert action_map(command="joint_pos_cmd").action_dim == 6
    with pytest.raises(ValueError, match="joint_pos_cmd' has no gripper"):
        action_map(command="joint_pos_cmd", grip=0.0)


def test_a_leash_keeps_targets_near_the_joints():
    act = action_map(leash=0.02)
    joints = torch.tensor([HOME])
    memory, action = begun(act, joints), torch.tensor([[0.0, 0, -1, 0, 0, 0, 1]])
    measured = torch.cat([joints, torch.full((1, 1), OPEN)], -1)
    for _ in range(30):  # the arm is held fast
        memory = act.follow(measured, act.move(memory, action))
    away = (memory["target"][:, :7] - joints).abs()
    assert away.max() == pytest.approx(0.02, abs=1e-6) and memory["target"][0, 7] == pytest.approx(OPEN)
    free = action_map()
    memory = begun(free, joints)
    for _ in range(30):
        memory = free.follow(measured, free.move(memory, action))
    assert (memory["target"][:, :7] - joints).abs().max() > 0.1
    with pytest.raises(ValueError, match="leash is how far .* positive or None, got 0"):
        action_map(leash=0.0)


def test_the_inverse_is_the_action_that_was_taken():
    for act in (action_map(), action_map(grip=0.0)):
        joints = torch.tensor(HOME) + 0.02 * torch.randn(20, 7, generator=generator(4))
        memory = begun(act, joints)
        action = 0.2 * torch.randn(20, act.action_dim, generator=generator(5)).clamp(-1, 1)
        found = act.inverse(act.move(memory, action)["target"], memory)
        torch.testing.assert_close(found, action, atol=0.05, rtol=0)


def test_moving_targets_begin_at_what_is_measured_and_stop_at_the_limits():
    act = StepAction(ROBOT, "joint_pos_cmd", [0.1] * 7)
    measured = torch.tensor([HOME, HIGH]) + torch.tensor([[0.0], [0.5]])
    memory = {name: torch.zeros(2, *shape) for name, shape in act.memory.items()}
    first = act.follow(measured, memory)
    torch.testing.assert_close(first["target"], torch.tensor([HOME, HIGH]))  # never outside the limits
    assert torch.equal(act.follow(measured + 1, first)["target"], first["target"])  # and then it is memory
    moved = act.move(first, torch.tensor([[0.5] * 7, [9.0] * 7]))
    torch.testing.assert_close(moved["target"], torch.tensor([[q + 0.05 for q in HOME], list(HIGH)]))
    assert torch.equal(act(torch.zeros(2, 7), moved), moved["target"])
    with pytest.raises(ValueError, match="7 components, got step"):
        StepAction(ROBOT, "joint_pos_cmd", [0.1] * 6)


def test_what_a_policy_sees_of_an_arm():
    act = action_map()
    observe = ArmObserve(act, ("grip_pos_w", "goal"), lambda s: 2 * s["goal"], 3)
    assert observe.signals == ("joint_pos", "joint_vel", "finger_pos", "grip_pos_w", "grip_quat_w", "goal")
    plain = ArmObserve(action_map(command="joint_pos_cmd"), (), lambda s: s["joint_pos"], 7)
    assert plain.obs_dim == observe.obs_dim - 3 + 7 - 2 - 1 and "finger_pos" not in plain.signals
    signals = {"joint_pos": torch.tensor([HOME]) + 0.1, "joint_vel": torch.ones(1, 7), "finger_pos": torch.tensor(
        [[0.01, 0.03]]), "grip_pos_w": torch.tensor([[0.4, 0.1, 0.2]]), "grip_quat_w": about_z(torch.tensor([0.0])),
        "goal": torch.tensor([[1.0, 2.0, 3.0]])}
    memory = {name: torch.zeros(1, *shape) for name, shape in observe.memory.items()}
    obs, after = observe(signals, memory)
    assert obs.shape == (1, observe.obs_dim)
    expected = [*[0.1] * 7, *[0.3] * 7, *[0.0] * 7, 0.25, 0.75, 0.4, 0.1, 0.2, 1, 0, 0, 1, 0, 0, 2, 4, 6, *[0] * 7]
    torch.testing.assert_close(obs[0], torch.tensor(expected), atol=1e-6, rtol=0)
    assert after["target"][0, 7] == pytest.approx(0.02)
    # the next sample sees how far the joints are behind their targets, and the action
    after = observe.record(after, torch.full((1, 7), 0.5))
    obs, _ = observe(signals, after)
    torch.testing.assert_close(obs[0, 14:21], 10 * (after["target"] - torch.cat(
        [signals["joint_pos"], torch.full((1, 1), 0.02)], -1))[0, :7])
    assert (obs[0, -7:] == 0.5).all()


# ---------------------------------------------------------------- things that stand


def test_what_stands_is_put_where_a_reset_says_and_stays_there():
    elements = '<geom name="geom" type="box" size="0.05 0.05 0.05" pos="0 0 0.06"/><site name="top" pos="0.01 0 0.11"/>'
    thing = standing("thing", elements, mass=2.0, signals={
        "top_w": (SignalSpec("top_w", (3,), "m", "w"), Source("pos", ("thing.top",)))})
    scene = Scene(ROBOT, (thing,))
    assert set(thing.signals) == {"thing_place", "top_w"}
    backend = mujoco.make(scene, 2, "joint_pos_cmd", dt=0.002, device="cpu", seed=0, threads=1)
    place = torch.tensor([[0.5, 0.1, 0.3], [0.5, -0.2, pi / 2]])
    backend.reset(torch.arange(2), {"thing_place": place})
    found = backend.signals()
    torch.testing.assert_close(found["thing_place"], place)
    torch.testing.assert_close(found["top_w"][1], torch.tensor([0.5, -0.19, 0.11]), atol=1e-6, rtol=0)
    # the arm leans on it with all the force it has: from above, from the side
    down = torch.tensor(HOME) + torch.tensor([0.15, 1.2, 0, 0, 0, 0, 0])
    for _ in range(10):
        backend.step(down.expand(2, 7).clamp(torch.tensor(LOW), torch.tensor(HIGH)), 50)
    assert not backend.status().bad.any()
    assert (backend.signals()["thing_place"] - place).abs().max() < 2e-4
    backend.close()


# ---------------------------------------------------------------- the formula's judge

SCHEMA = schema(SignalSpec("x", (), "m"), SignalSpec("y", (), "m"))
FORMULA = "F[0,3] G[0,1] (x > 0) & G[0,4] (y > 0)"


def verdicts(x, y, slack=0.0, formula=FORMULA):
    judge = Judge(parse(formula, SCHEMA, {}), 0.5, slack)
    memory = {name: torch.zeros(1, *shape) for name, shape in judge.memory.items()}
    out = []
    for a, b in zip(x, y):
        verdict = judge({"x": torch.tensor([a]), "y": torch.tensor([b])}, memory)
        memory = verdict.memory
        out.append(verdict)
    return judge, out


def test_a_subgoal_is_hit_once_after_it_was_held():
    judge, out = verdicts([-1.0, 1, -1, 1, 1, 1, 1, -1, -1], [1.0] * 9)
    assert [float(v.hits) for v in out] == [0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert [bool(v.done) for v in out] == [False] * 5 + [True] * 4
    assert bool(judge.success(out[-1].memory)) and all(float(v.safe) == 1.0 for v in out)


def test_what_is_broken_stays_broken():
    judge, out = verdicts([1.0] * 9, [1.0, 1, -0.5, 1, 1, 1, 1, 1, 1])
    assert float(out[2].safe) == -0.5 and float(out[3].safe) == 1.0
    assert bool(out[-1].done) and not bool(judge.success(out[-1].memory))


def test_slack_asks_for_more_than_the_formula():
    x = [0.1] * 9
    assert bool(verdicts(x, [1.0] * 9)[1][-1].done) and not bool(verdicts(x, [1.0] * 9, slack=0.2)[1][-1].done)


def test_nothing_to_keep_is_safe_and_nothing_to_reach_is_done():
    _, out = verdicts([1.0] * 9, [1.0] * 9, formula="F[0,3] (x > 0)")
    assert float(out[0].safe) == pytest.approx(NEVER)
    judge, out = verdicts([1.0] * 9, [1.0] * 9, formula="G[0,4] (y > 0)")
    assert bool(out[0].done) and bool(judge.success(out[-1].memory))


def test_success_implies_that_the_formula_is_satisfied():
    n, formula = 300, parse(FORMULA, SCHEMA, {})
    judge = Judge(formula, 0.5)
    traces = {name: torch.randn(9, n, generator=generator(i)) + shift
              for i, (name, shift) in enumerate((("x", 0.5), ("y", 1.8)))}
    memory = {name: torch.zeros(n, *shape) for name, shape in judge.memory.items()}
    for t in range(9):
        memory = judge({k: v[t] for k, v in traces.items()}, memory).memory
    found, true = judge.success(memory), satisfied(formula, traces, 0.5)[0]
    assert 0.1 < found.float().mean() < 0.9 and not (found & ~true).any()
    assert (found == true).float().mean() > 0.99  # for this formula the earliest hit is the right one
