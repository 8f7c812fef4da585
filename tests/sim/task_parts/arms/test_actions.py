"""Actions that move the tool: what the robot is sent stays within what it accepts, whatever the actions are."""

import pytest
import torch
from tests.examples import thinned
from tests.sim.task_parts.arms.samples import generator, random_joints

from temporeal.robots.franka.spec import (
    ACCELERATION,
    END_HIGH,
    END_LOW,
    ENVELOPE,
    HIGH,
    HOME,
    JERK,
    LOW,
    OFFSET,
    OPEN,
    SPEED,
    TOOL_ACCELERATIONS,
    motion,
)
from temporeal.robots.spec import load_robot
from temporeal.sim.env import make_env
from temporeal.sim.maps import StepAction
from temporeal.sim.rotations import turn_between
from temporeal.sim.task import load_task
from temporeal.sim.task_parts.arms.actions import IMPEDANCE, ToolMotion
from temporeal.sim.task_parts.arms.arm import SHARE_OF_LIMITS, arm, arm_action
from temporeal.sim.tasks.reach import DRIVES, Way

ROBOT = load_robot("franka")
ARM = arm("reach", "franka")
DT = 0.04


def action_map(**kw):
    return arm_action(ARM, kw.pop("command", "arm_cmd"), DT, ToolMotion(0.5, 1.5, **kw))


def begun(act, joints, opening=OPEN):
    measured = torch.cat([joints, torch.full((len(joints), act.gripper), opening)], -1)
    memory = {name: torch.zeros(len(joints), *shape) for name, shape in act.memory.items()}
    return act.follow(measured, memory)


def test_an_action_moves_the_tool_by_what_it_says():
    act, joints = action_map(), torch.tensor(HOME) + 0.1 * torch.randn(40, 7, generator=generator())
    memory = begun(act, joints)
    # a little of the reach: no joint is at its limits, and the damping of the least squares takes little
    action = torch.cat([0.03 * torch.randn(40, 6, generator=generator(1)).clamp(-1, 1), torch.zeros(40, 1)], -1)
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


def followed(act, joints, actions):
    """Targets [T + 1, N, 7] while the actions [T, N, A] are taken, the arm following at once."""
    memory, targets = begun(act, joints), [joints]
    for action in actions:
        memory = act.move(memory, action)
        memory = act.follow(memory["target"], memory)
        targets.append(memory["target"][:, :7])
    return torch.stack(targets).double()


def accepted_speed(joints):
    """Lowest and highest speed that the robot accepts at the joints [..., 7]: Franka's FCI documentation."""
    speed, k, c = (torch.tensor(x, dtype=torch.float64) for x in (SPEED, ENVELOPE, OFFSET))
    low, high = torch.tensor(END_LOW), torch.tensor(END_HIGH)
    down, up = ((k * room.clamp(min=0.0)).sqrt() - c for room in (joints - low, high - joints))
    return -torch.minimum(speed, down.clamp(min=0.0)), torch.minimum(speed, up.clamp(min=0.0))


def assert_accepted(targets):
    """That the robot accepts the setpoints as control points of a uniform cubic B-spline, from rest."""
    points = torch.cat([targets[:1]] * 3 + [targets])
    change = (points[2:] - 2 * points[1:-1] + points[:-2]) / DT**2  # what the spline's acceleration is linear between
    assert (change.abs() <= SHARE_OF_LIMITS * torch.tensor(ACCELERATION) + 2e-2).all()
    assert ((change[1:] - change[:-1]) / DT).abs().max() < 0.1 * min(JERK)
    a, b, c, d = points[:-3], points[1:-2], points[2:-1], points[3:]
    for u in torch.linspace(0, 1, 11, dtype=torch.float64):
        at = ((1 - u)**3 * a + (3 * u**3 - 6 * u**2 + 4) * b + (-3 * u**3 + 3 * u**2 + 3 * u + 1) * c + u**3 * d) / 6
        speed = ((1 - u)**2 * (b - a) + (-2 * u**2 + 2 * u + 1) * (c - b) + u**2 * (d - c)) / (2 * DT)
        low, high = accepted_speed(at)
        assert ((speed >= low - 1e-3) & (speed <= high + 1e-3)).all()


def wild(kind, steps=150, n=64):
    """Actions [T, N, 7] that a broken policy could take."""
    sign = torch.sign(torch.randn(steps, n, 7, generator=generator(7)))
    if kind == "held":
        return sign[:1].expand(steps, -1, -1)
    if kind == "flapping":
        return sign[:1] * torch.tensor([1.0, -1.0]).repeat(steps // 2)[:, None, None]
    return {"random": sign, "bursts": sign[::10].repeat_interleave(10, 0)}[kind]


@pytest.mark.parametrize("kind, leash", thinned(
    [(kind, leash) for kind in ("held", "flapping", "random", "bursts") for leash in (None, 0.06)],
    keep=[("held", None), ("flapping", 0.06), ("random", 0.06), ("bursts", None)]))
def test_the_robot_accepts_the_targets_of_whatever_actions(kind, leash):
    actions = wild(kind)
    targets = followed(action_map(leash=leash), random_joints(actions.shape[1], 3), actions)
    assert_accepted(targets)
    assert (targets[-1] - targets[0]).abs().max() > 0.05  # and they do move


@pytest.mark.parametrize("noise, speed", [(0.006, 0.0), (0.05, 0.0), (0.0, 2.0), (0.0, 4.0), (0.001, 2.0)])
def test_the_robot_accepts_the_targets_of_an_arm_that_is_shaken_or_pushed(noise, speed):
    act, n = action_map(leash=0.012), 32
    joints = random_joints(n, 3, margin=0.5)
    memory, targets = begun(act, joints), [joints]
    shaken = torch.randn(60, n, 7, generator=generator(9))
    for k, action in enumerate(wild("bursts", 60, n)):
        measured = memory["target"][:, :7] + noise * shaken[k] + (speed * DT if 20 <= k < 30 else 0.0)
        memory = act.follow(torch.cat([measured, torch.full((n, 1), OPEN)], -1), act.move(memory, action))
        targets.append(memory["target"][:, :7])
    assert_accepted(torch.stack(targets).double())


def test_the_first_command_does_not_jump():
    act = action_map()
    for at in (END_HIGH, END_LOW):
        joints = torch.tensor([at])
        targets = followed(act, joints, wild("random", 30, 1))
        assert_accepted(targets)
        assert (targets[0] - torch.tensor([at])).abs().max() == 0


def test_a_leash_that_holds_targets_fast_is_refused():
    with pytest.raises(ValueError, match="leash of 0.012 rad targets could hardly move"):
        arm_action(ARM, "arm_cmd", 0.2, ToolMotion(0.2, 0.6, leash=0.012))


def test_targets_come_to_rest_before_the_ends():
    act = action_map()
    limits, reached = motion(SHARE_OF_LIMITS), []
    for sign in (1.0, -1.0):  # every joint is sent to its end, at its top speed
        at, step = torch.tensor([HOME]), torch.zeros(1, 7)
        for _ in range(400):
            step = act.limiter(at, step, torch.full((1, 7), sign))
            at = at + step
        reached.append(at[0])
    torch.testing.assert_close(reached[0], torch.tensor(limits.high), atol=2e-3, rtol=0)
    torch.testing.assert_close(reached[1], torch.tensor(limits.low), atol=2e-3, rtol=0)
    assert (reached[0] <= act.high[:7]).all() and (reached[1] >= act.low[:7]).all()


def test_joints_beyond_the_ends_move_inwards_only():
    act = action_map()
    for at, out in ((HIGH, 1.0), (LOW, -1.0)):
        begin = torch.tensor([at])
        assert (act.limiter(begin, torch.zeros(1, 7), torch.full((1, 7), out)) == 0).all()
        inwards = act.limiter(begin, torch.zeros(1, 7), torch.full((1, 7), -out))
        assert (inwards * out < 0).all()


def test_the_direction_of_a_step_stays():
    limiter = action_map().limiter
    wanted = torch.randn(50, 7, generator=generator(8))
    at = torch.tensor(HOME).expand(50, 7)
    step = limiter(at, torch.zeros(50, 7), wanted)
    torch.testing.assert_close(step / step.norm(dim=-1, keepdim=True), wanted / wanted.norm(dim=-1, keepdim=True))
    assert ((step.abs() / limiter.change).max(-1).values - 1).abs().max() < 1e-5


def test_beyond_one_an_action_counts_as_one():
    act, joints = action_map(), random_joints(100, 3)
    memory, action = begun(act, joints), torch.sign(torch.randn(100, 7, generator=generator(2)))
    torch.testing.assert_close(act.move(memory, 3.0 * action)["target"], act.move(memory, action)["target"])


def test_targets_do_not_leave_the_limits():
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
    assert away.max() == pytest.approx(0.02, abs=1e-4) and memory["target"][0, 7] == pytest.approx(OPEN)
    wild_memory, targets = begun(act, joints), [joints]
    for action in wild("bursts", n=1):
        wild_memory = act.follow(measured, act.move(wild_memory, action))
        targets.append(wild_memory["target"][:, :7])
    assert_accepted(torch.stack(targets).double())
    assert (torch.stack(targets) - joints).abs().max() < 0.0201
    free, action = action_map(), torch.tensor([[0.0, 0, -1, 0, 0, 0, 1]])
    memory = begun(free, joints)
    for _ in range(30):
        memory = free.follow(measured, free.move(memory, action))
    assert (memory["target"][:, :7] - joints).abs().max() > 0.1
    with pytest.raises(ValueError, match="leash is how far .* positive or None, got 0"):
        action_map(leash=0.0)


def sent(act, joints, actions, shaken=0.0):
    """Commands [T + 1, N, 7] while the actions [T, N, A] are taken, the arm following at once, its joints shaken."""
    memory, found = begun(act, joints), [joints]
    for action in actions:
        memory = act.move(memory, action)
        command = act(action, memory)
        noise = shaken * torch.randn(len(joints), 7, generator=generator(len(found)))
        memory = act.follow(torch.cat([command[:, :7] + noise, command[:, 7:]], -1), memory)
        found.append(command[:, :7])
    return torch.stack(found).double()


@pytest.mark.parametrize("leash", thinned([None, 0.06], keep=[0.06]))
def test_the_stiffest_arm_is_one_without_the_choice(leash):
    actions = wild("bursts")
    plain, soft = action_map(leash=leash), action_map(leash=leash, stiffness=0.2)
    assert soft.action_dim == plain.action_dim + 1
    joints, one = random_joints(actions.shape[1], 3), torch.ones(*actions.shape[:2], 1)
    torch.testing.assert_close(sent(soft, joints, torch.cat([actions, one], -1)), sent(plain, joints, actions),
                               atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind, shaken", thinned(
    [(kind, shaken) for kind in ("held", "flapping", "random") for shaken in (0.0, 0.006)],
    keep=[("held", 0.006), ("flapping", 0.0), ("random", 0.006)]))
def test_the_robot_accepts_the_commands_of_an_arm_of_any_stiffness(kind, shaken):
    actions = wild(kind)
    stiffness = torch.sign(torch.randn(*actions.shape[:2], 1, generator=generator(11)))
    act, joints = action_map(leash=0.06, stiffness=0.1), random_joints(actions.shape[1], 3, margin=0.5)
    commands = sent(act, joints, torch.cat([actions, stiffness], -1), shaken)
    assert_accepted(commands)
    assert (commands[-1] - commands[0]).abs().max() > 0.05


@pytest.mark.parametrize("share", thinned([0.2, 0.6, 1.0], keep=[0.2, 1.0]))
def test_an_arm_gives_way_as_far_as_its_stiffness_says(share):
    """In MuJoCo, a constant torque on each joint in turn: tau = s kp (target - q), the law that the map states."""
    import mujoco as mj

    model = mj.MjModel.from_xml_path(str(ROBOT.model))
    model.dof_frictionloss[:] = 0.0  # it holds an arm anywhere within what it takes to move it
    act = action_map(command="joint_pos_cmd", stiffness=0.1)
    wanted = 2.0 * (share - 0.1) / 0.9 - 1.0  # of the last action
    action = torch.tensor([[0.0] * 6 + [wanted]])
    joints = [mj.mj_name2id(model, mj.mjtObj.mjOBJ_JOINT, name) for name in ROBOT.sources["joint_pos"].names]
    motors = [mj.mj_name2id(model, mj.mjtObj.mjOBJ_ACTUATOR, name) for name in ROBOT.actuators["joint_pos_cmd"]]
    places, kp = model.jnt_qposadr[joints], model.actuator_gainprm[motors, 0]

    def rest(torque):
        """Where the joints come to rest, rad."""
        data = mj.MjData(model)
        data.qpos[places] = HOME
        data.qfrc_applied[model.jnt_dofadr[joints]] = torque
        memory = {name: torch.zeros(1, *shape) for name, shape in act.memory.items()}
        for _ in range(round(3.0 / DT)):
            memory = act.move(act.follow(torch.tensor(data.qpos[places], dtype=torch.float32)[None], memory), action)
            data.ctrl[motors] = act(action, memory)[0].numpy()
            mj.mj_step(model, data, round(DT / model.opt.timestep))
        assert abs(data.qvel[model.jnt_dofadr[joints]]).max() < 2e-3
        return data.qpos[places].copy()

    torque = torch.tensor([20.0, 20.0, 20.0, 20.0, 5.0, 5.0, 5.0]).double().numpy()
    given = rest(torque) - rest(0.0 * torque)
    assert given == pytest.approx(torque / (share * kp), rel=0.03, abs=2e-4)


def test_a_stiffness_that_is_no_share_is_refused():
    for wrong in (0.0, 1.0, -0.5):
        with pytest.raises(ValueError, match="stiffness is the least share .* above 0 and below 1, or None; got"):
            action_map(stiffness=wrong)


def test_the_inverse_is_the_action_that_was_taken():
    for act in (action_map(), action_map(grip=0.0), action_map(stiffness=0.3)):
        joints = torch.tensor(HOME) + 0.02 * torch.randn(20, 7, generator=generator(4))
        memory = begun(act, joints)
        action = 0.04 * torch.randn(20, act.action_dim, generator=generator(5)).clamp(-1, 1)
        found = act.inverse(act.move(memory, action)["target"], memory)
        if act.stiffness is not None:  # how stiff it was a command does not tell
            assert (found[:, -1] == 1).all()
            found, action = found[:, :-1], action[:, :-1]
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


def test_speeds_move_the_joints_as_targets_would():
    """A robot that integrates them at once goes where one goes that is told the targets."""
    fast, slow = action_map(command="joint_vel_cmd"), action_map(command="joint_pos_cmd")
    place = torch.tensor(HOME) + 0.1 * torch.randn(5, 7, generator=generator())
    told, memory = begun(slow, place), begun(fast, place)
    for k in range(50):
        action = torch.randn(5, 6, generator=generator(k)).clamp(-1, 1)
        memory, told = fast.move(memory, action), slow.move(told, action)
        place = place + DT * fast(action, memory)
        assert torch.allclose(place, slow(action, told), atol=1e-4)
        memory, told = fast.follow(place, memory), slow.follow(place, told)


def test_a_speed_that_was_lost_is_no_drift():
    """The robot got nothing for a while: what is asked for next is of where it is, and within its limits of motion."""
    act, joints = action_map(command="joint_vel_cmd"), torch.tensor(HOME)[None]
    memory, north = begun(act, joints), torch.tensor([[1.0, 0, 0, 0, 0, 0]])
    for _ in range(40):
        memory = act.follow(joints, act.move(memory, north))
    (before, _), speed = act.chain(joints), act(north, act.move(memory, north))
    (after, _) = act.chain(joints + 0.01 * speed)
    assert (after - before)[0] == pytest.approx([0.005, 0, 0], abs=5e-4)


def test_a_twist_is_what_the_action_says_and_changes_slowly():
    act = action_map(command="tool_vel_cmd")
    memory, action = begun(act, torch.tensor(HOME)[None]), torch.tensor([[1.0, -0.5, 0, 0, 0, 1.0]])
    sent = []
    for _ in range(20):
        memory = act.move(memory, action)
        sent.append(act(action, memory))
    steps = torch.diff(torch.cat([torch.zeros(1, 6), *sent]), dim=0)
    assert (steps.abs() <= DT * torch.tensor(TOOL_ACCELERATIONS) + 1e-6).all()
    assert sent[-1][0] == pytest.approx([0.5, -0.25, 0, 0, 0, 1.5])
    assert act.inverse(sent[-1], memory)[0] == pytest.approx(action[0])


@pytest.mark.parametrize("command", ["joint_vel_cmd", "tool_vel_cmd"])
def test_a_speed_has_no_stiffness(command):
    with pytest.raises(ValueError, match=f"command '{command}' is a speed: it has no stiffness"):
        action_map(command=command, stiffness=0.5)


def effort_map(**kw):
    return arm_action(ARM, "joint_effort_cmd", 0.004, ToolMotion(0.5, 1.5, **kw))


def test_efforts_are_those_of_a_joint_impedance():
    act, joints = effort_map(), torch.tensor(HOME)[None]
    memory = {name: torch.zeros(1, *shape) for name, shape in act.memory.items()}
    memory = act.follow(joints, memory, torch.zeros(1, 7))
    still = act(torch.zeros(1, 6), act.move(memory, torch.zeros(1, 6)))
    assert still.abs().max() < 1e-2  # the pull home, in one step
    speed = torch.tensor([[0.1, -0.2, 0.0, 0.3, 0.0, 0.0, 1.0]])
    memory = act.follow(joints + 0.01, memory, speed)
    kp, kd = (torch.tensor(row) for row in IMPEDANCE["franka"])
    assert torch.allclose(act(torch.zeros(1, 6), memory), -0.01 * kp - kd * speed, atol=1e-4)
    far = act.follow(joints + 1.0, memory, speed)
    assert torch.equal(act(torch.zeros(1, 6), far).abs() <= torch.tensor(ROBOT.command("joint_effort_cmd").high),
                       torch.ones(1, 7, dtype=torch.bool))


def test_an_effort_is_as_stiff_as_its_action_says():
    act, joints = effort_map(stiffness=0.25), torch.tensor(HOME)[None]
    memory = {name: torch.zeros(1, *shape) for name, shape in act.memory.items()}
    memory = act.follow(joints, memory, torch.zeros(1, 7))
    memory = act.follow(joints + 0.01, memory, torch.full((1, 7), 0.1))
    hard, soft = (act(torch.tensor([[0.0] * 6 + [s]]), memory) for s in (1.0, -1.0))
    kp, kd = (torch.tensor(row) for row in IMPEDANCE["franka"])
    assert act.action_dim == 7
    assert torch.allclose(hard, -0.01 * kp - 0.1 * kd, atol=1e-4)
    assert torch.allclose(soft, -0.0025 * kp - 0.05 * kd, atol=1e-4)  # a quarter as stiff, half as damped
    assert torch.allclose(act(act.inverse(hard, memory), memory), hard, atol=1e-3)


def test_efforts_need_a_rate_and_speeds_of_the_joints():
    with pytest.raises(ValueError, match="control_dt is 0.04 s; an impedance made of efforts needs 0.004 s or less"):
        arm_action(ARM, "joint_effort_cmd", 0.04, ToolMotion(0.5, 1.5))
    act = effort_map()
    with pytest.raises(ValueError, match="give follow\\(\\) speed"):
        act.follow(torch.zeros(1, 7), {name: torch.zeros(1, *shape) for name, shape in act.memory.items()})


@pytest.mark.parametrize("drive", thinned(DRIVES, keep=["position", "tool"]))
def test_reach_can_be_done_with_each_drive(drive):
    """A policy that goes straight to the goal: within a millimetre or two, whatever the robot is commanded with."""
    task = load_task("reach", drive=drive)
    env = make_env(task, backend="mujoco", num_worlds=4, seed=1, threads=1, compiled=False)
    env.reset()
    for _ in range(task.steps - 2):
        there = Way(ARM)(env.true_signals())
        env.step((torch.cat([1.5 * there[:, :3], 1.5 * there[:, 3:]], -1)).clamp(-1, 1))
    there = Way(ARM)(env.true_signals())
    assert there[:, :3].norm(dim=-1).max() / 5 < 0.004 and there[:, 3:].norm(dim=-1).max() < 0.01


def test_an_unknown_drive_lists_the_known_ones():
    with pytest.raises(ValueError, match="drive is 'torque'; legal: position, velocity, effort, tool"):
        load_task("reach", drive="torque")
