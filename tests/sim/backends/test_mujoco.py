"""The MuJoCo backend: physics by hand, the backend contract, and agreement with the other quadrotor backend."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import load_robot
from temporeal.sim.backends import mujoco as backend
from temporeal.sim.backends import quadrotor
from temporeal.sim.physics.mujoco.quadrotor_model import Robot
from temporeal.sim.physics.quadrotor import rotor

SPEC = load_robot("crazyflie")
MASS = SPEC.parameters["mass"].nominal[0]
WEIGHT = 9.81 * MASS
STATE = ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b", "rotor_speed")


def make(num_worlds, command="ctbr_cmd", threads=1, dt=0.002):
    return backend.make(SPEC, num_worlds, command, dt=dt, threads=threads)


def every(sim):
    return torch.arange(sim.num_worlds)


def random_state(n, seed=0, height=5.0):
    g = torch.Generator().manual_seed(seed)
    uniform = lambda k, r: (2 * torch.rand(n, k, generator=g) - 1) * r  # noqa: E731
    return {
        "base_pos_w": uniform(3, 1.0) + torch.tensor([0.0, 0.0, height]),
        "base_quat_w": torch.nn.functional.normalize(torch.randn(n, 4, generator=g), dim=1),
        "base_vel_w": uniform(3, 2.0), "base_ang_vel_b": uniform(3, 6.0),
        "rotor_speed": torch.rand(n, 4, generator=g),
    }  # fmt: skip


def random_command(n, command, seed=0):
    g = torch.Generator().manual_seed(seed + 100)
    spec = SPEC.commands[command]
    low, high = torch.tensor(spec.low), torch.tensor(spec.high)
    return low + (high - low) * torch.rand(n, 4, generator=g)


def random_params(n, seed=0):
    """Within the published ranges, with disturbances and a delay that ends inside a physics step."""
    g = torch.Generator().manual_seed(seed + 200)
    out = {}
    for name, p in SPEC.parameters.items():
        low, high = torch.tensor(p.low), torch.tensor(p.high)
        value = low + (high - low) * torch.rand(n, len(p.low), generator=g)
        out[name] = value[:, 0] if len(p.low) == 1 else value
    for name, scale in (("wind_w", 2.0), ("force_w", 0.02), ("torque_b", 2e-5)):
        out[name] = scale * torch.randn(n, 3, generator=g)
    return out | {"command_delay": 0.02 * torch.rand(n, generator=g)}


def snapshot(sim, names=STATE):
    return {name: value.clone() for name, value in sim.signals().items() if name in names}


def assert_equal(a, b):
    for name in a:
        assert torch.equal(a[name], b[name]), name


# --- physics


def test_home_hovers_at_hover_speed():
    sim = make(2, "motor_cmd")
    hover = sim.signals()["rotor_speed"].clone()
    c0, c1, c2 = SPEC.parameters["thrust_curve"].nominal
    assert hover.numpy() * (c1 + c2 * hover.numpy()) + c0 == pytest.approx(np.full((2, 4), WEIGHT / 4), rel=1e-6)
    sim.step(hover, 500)
    out = sim.signals()
    assert out["base_pos_w"].numpy() == pytest.approx(np.tile([0, 0, 1], (2, 1)), abs=1e-5)
    assert out["base_vel_w"].abs().max() < 1e-5


def test_free_fall_is_analytic():
    sim = make(1, "motor_cmd")
    sim.set_params(every(sim), {"drag": torch.zeros(1, 3), "thrust_curve": torch.tensor([[0.0, 0.0, 0.15]])})
    velocity = torch.tensor([[0.3, -0.2, 1.0]])
    sim.reset(
        every(sim),
        {"base_pos_w": torch.tensor([[0.0, 0.0, 5.0]]), "base_vel_w": velocity, "rotor_speed": torch.zeros(1, 4)},
    )
    sim.step(torch.zeros(1, 4), 250)
    out, t = sim.signals(), 0.5
    assert out["base_pos_w"][0].numpy() == pytest.approx([0.3 * t, -0.2 * t, 5 + t - 0.5 * 9.81 * t * t], abs=1e-6)
    assert out["base_vel_w"][0].numpy() == pytest.approx([0.3, -0.2, 1.0 - 9.81 * t], abs=1e-6)


def test_a_motor_step_response_is_exponential():
    sim = make(1, "motor_cmd")
    for start, end, name in ((0.2, 0.8, "tau_up"), (0.8, 0.2, "tau_down")):
        sim.reset(every(sim), {"rotor_speed": torch.full((1, 4), start)})
        sim.step(torch.full((1, 4), end), 50)
        tau = SPEC.parameters[name].nominal[0]
        expected = end + (start - end) * np.exp(-0.1 / tau)
        assert sim.signals()["rotor_speed"].numpy() == pytest.approx(np.full((1, 4), expected), abs=1e-6)


def test_drag_gives_terminal_velocity_of_the_wind():
    sim = make(1, "motor_cmd")
    wind = torch.tensor([[1.0, -2.0, 0.5]])
    sim.set_params(every(sim), {"wind_w": wind, "drag": torch.full((1, 3), 0.1)})
    hover = sim.signals()["rotor_speed"].clone()
    sim.step(hover, 2000)  # 4 s, time constant m / drag = 0.32 s
    assert sim.signals()["base_vel_w"].numpy() == pytest.approx(wind.numpy(), abs=1e-3)


def test_drag_acts_along_the_body_axes():
    # body x points along world y: only the y drag (body y = -world x) brakes a motion along world x
    half = np.sqrt(0.5)
    quat, velocity = np.array([[half, 0, 0, half]]).T, np.array([[2.0, 0.0, 0.0]]).T
    force = rotor.drag_force(quat, velocity, np.array([[5.0, 7.0, 9.0]]).T)
    assert force[:, 0] == pytest.approx([-14.0, 0, 0], abs=1e-12)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_rate_command_turns_the_body_that_way(axis):
    sim = make(1)
    sim.reset(every(sim), {"base_pos_w": torch.tensor([[0.0, 0.0, 100.0]])})
    command = torch.tensor([[WEIGHT, 0.0, 0.0, 0.0]])
    command[0, 1 + axis] = 1.0
    sim.step(command, 1000)  # motor lag makes the loop ring for about a second
    rates = sim.signals()["base_ang_vel_b"][0]
    assert float(rates[axis]) == pytest.approx(1.0, abs=0.02)
    assert rates[[i for i in range(3) if i != axis]].abs().max() < 0.02


def test_positive_yaw_rate_turns_the_nose_left():
    sim = make(1)
    sim.step(torch.tensor([[WEIGHT, 0.0, 0.0, 1.0]]), 250)
    w, _, _, z = sim.signals()["base_quat_w"][0].tolist()
    assert 2 * w * z > 0.1  # y component of the nose direction: it started along x


def test_disturbances_act_in_their_frames():
    sim = make(1, "motor_cmd")
    hover = sim.signals()["rotor_speed"].clone()
    half = 0.5**0.5
    force, torque = torch.tensor([[0.01, 0.0, 0.0]]), torch.tensor([[1e-6, 0.0, 0.0]])
    sim.set_params(every(sim), {"drag": torch.zeros(1, 3), "force_w": force, "torque_b": torque})
    sim.reset(every(sim), {"base_quat_w": torch.tensor([[half, 0.0, 0.0, half]])})  # nose along world y
    sim.step(hover, 5)
    out, t = sim.signals(), 0.01
    assert float(out["base_vel_w"][0, 0]) == pytest.approx(0.01 / MASS * t, rel=1e-4)
    assert float(out["base_ang_vel_b"][0, 0]) == pytest.approx(1e-6 / 16.8e-6 * t, rel=1e-4)
    assert out["base_ang_vel_b"][0, 1:].abs().max() < 1e-7


# --- mixer


def test_the_mixer_gives_what_was_asked_where_it_fits():
    robot = rotor.belief(SPEC, make(1).rotors.belief.layout)
    rng = np.random.default_rng(0)
    thrust, torque = rng.uniform(0.2, 0.28, 200), rng.uniform(-1, 1, (3, 200)) * np.array([[8e-4], [8e-4], [1e-4]])
    rotors = rotor.mix(thrust, torque, robot)
    layout, (ax, ay) = robot.layout, robot.arm
    assert rotors.sum(0) == pytest.approx(thrust, rel=1e-12)
    assert (layout.y * ay * rotors).sum(0) == pytest.approx(torque[0], abs=1e-15)
    assert (-layout.x * ax * rotors).sum(0) == pytest.approx(torque[1], abs=1e-15)
    assert (layout.yaw * robot.reaction * rotors).sum(0) == pytest.approx(torque[2], abs=1e-15)


def test_the_mixer_gives_up_yaw_first_then_thrust():
    robot = rotor.belief(SPEC, make(1).rotors.belief.layout)
    full = robot.full_thrust
    rotors = rotor.mix(np.array([4 * full]), np.array([[2e-3], [0.0], [1e-3]]), robot)
    assert rotors.min() >= 0 and rotors.max() <= full + 1e-15
    layout = robot.layout
    assert (layout.y * robot.arm[1] * rotors).sum() == pytest.approx(2e-3, rel=1e-9)  # roll survives whole
    assert (layout.yaw * rotors).sum() == pytest.approx(0.0, abs=1e-15)  # yaw is gone
    assert rotors.sum() < 4 * full - 1e-3  # thrust gave way


# --- contract


@pytest.mark.parametrize("command", ["motor_cmd", "ctbr_cmd"])
def test_state_round_trip_continues_bit_exactly(command):
    sim = make(5, command)
    sim.set_params(every(sim), random_params(5))
    sim.reset(every(sim), random_state(5))
    sim.step(random_command(5, command), 7)
    saved = sim.state()
    sim.step(random_command(5, command, 1), 30)
    expected = snapshot(sim)
    other = make(5, command)
    for target in (sim, other):
        target.set_state(saved)
        target.step(random_command(5, command, 1), 30)
        assert_equal(snapshot(target), expected)


def test_worlds_do_not_depend_on_their_number_or_on_threads():
    state, params, command = random_state(67), random_params(67), random_command(67, "ctbr_cmd")
    outs = []
    for count, threads in ((67, 1), (67, 2), (3, 1)):
        sim = make(count, threads=threads)
        sim.set_params(every(sim), {k: v[:count] for k, v in params.items()})
        sim.reset(every(sim), {k: v[:count] for k, v in state.items()})
        for _ in range(3):
            sim.step(command[:count], 10)
        outs.append(snapshot(sim))
    assert_equal(outs[0], outs[1])
    assert_equal({k: v[:3] for k, v in outs[0].items()}, outs[2])


@pytest.mark.parametrize("command", ["motor_cmd", "ctbr_cmd"])
def test_the_single_robot_is_one_world_of_the_batch(command):
    state, params = random_state(3), random_params(3)
    sim = make(3, command)
    sim.set_params(every(sim), params)
    sim.reset(every(sim), state)
    robot = Robot(SPEC, command, params={k: v[1].numpy() for k, v in params.items()})
    robot.reset({k: v[1].numpy() for k, v in state.items()})
    for i in range(4):
        ctrl = random_command(3, command, i)
        sim.step(ctrl, 10)
        robot.step(ctrl[1].numpy(), 10)
    batch = sim.signals()
    for name, value in robot.signals().items():
        assert np.array_equal(value, batch[name][1].numpy()), name


def test_every_parameter_takes_effect_in_its_world_only():
    names = [*SPEC.parameters, *rotor.DISTURBANCES]
    n = len(names) + 1  # the last world stays nominal
    sim = make(n)
    start = {k: v[:1].expand(n, -1) for k, v in random_state(1).items()}
    for i, name in enumerate(names):
        value = sim.params()[name][i : i + 1]
        changed = value + 0.01 if name in rotor.DISTURBANCES else value * 1.2
        changed = changed * torch.tensor([1.0, 0.9, 0.8, 0.7]) if name == "motor_gain" else changed
        sim.set_params(torch.tensor([i]), {name: changed})
    sim.reset(every(sim), start)
    command = torch.tensor([[0.3, 3.0, -2.0, 1.0]]).expand(n, 4)
    sim.step(command, 10)
    out = torch.cat([v for k, v in snapshot(sim).items()], 1)
    alone = make(1)
    alone.reset(every(alone), random_state(1))
    alone.step(command[:1], 10)
    assert torch.equal(out[-1:], torch.cat([v for k, v in snapshot(alone).items()], 1))
    same = [name for i, name in enumerate(names) if torch.equal(out[i], out[-1])]
    assert same == []


def test_reset_touches_only_its_worlds_and_fills_in_home():
    sim = make(4)
    sim.reset(every(sim), random_state(4))
    sim.step(random_command(4, "ctbr_cmd"), 10)
    before = snapshot(sim)
    sim.reset(torch.tensor([2, 0]), {"base_pos_w": torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])})
    after = snapshot(sim)
    assert_equal({k: v[[1, 3]] for k, v in before.items()}, {k: v[[1, 3]] for k, v in after.items()})
    assert after["base_pos_w"][2].tolist() == [1, 2, 3] and after["base_pos_w"][0].tolist() == [4, 5, 6]
    assert after["base_quat_w"][2].tolist() == [1, 0, 0, 0] and after["base_ang_vel_b"][0].tolist() == [0, 0, 0]


def test_the_delay_applies_the_previous_command_first():
    # 10 substeps with a delay of 6 of them = 6 substeps of the old command, then 4 of the new one
    old, new = torch.tensor([[0.3, 1.0, 0.0, 0.0]]), torch.tensor([[0.35, -1.0, 2.0, 0.5]])
    delayed, plain = make(1), make(1)
    delayed.set_params(every(delayed), {"command_delay": torch.tensor([0.012])})
    for sim in (delayed, plain):
        sim.set_state({**sim.state(), "current": old.double().T, "previous": old.double().T})
    delayed.step(new, 10)
    plain.step(old, 6)
    plain.step(new, 4)
    for name, value in snapshot(plain).items():  # 0.012 in float32 is not quite 6 steps: hence not bit-equal
        assert torch.allclose(value, delayed.signals()[name], atol=1e-6), name


@pytest.mark.parametrize("poison", ["command", "force"])
def test_a_world_that_goes_bad_is_flagged_and_frozen_and_others_go_on(poison):
    n = 5
    sim, clean = make(n), make(n)
    for s in (sim, clean):
        s.reset(every(s), random_state(n))
        s.step(random_command(n, "ctbr_cmd"), 10)
    frozen = snapshot(sim)
    command = random_command(n, "ctbr_cmd", 1)
    poisoned = command.clone()
    if poison == "command":
        poisoned[3, 2] = float("nan")
    else:
        sim.set_params(torch.tensor([3]), {"force_w": torch.full((1, 3), 3e38)})
    for _ in range(2):
        sim.step(poisoned, 10)
        clean.step(command, 10)
    assert sim.bad.tolist() == [False, False, False, True, False]
    out, expected = snapshot(sim), snapshot(clean)
    others = [0, 1, 2, 4]
    assert_equal({k: v[others] for k, v in out.items()}, {k: v[others] for k, v in expected.items()})
    assert_equal({k: v[3] for k, v in out.items()}, {k: v[3] for k, v in frozen.items()})
    sim.set_params(torch.tensor([3]), {"force_w": torch.zeros(1, 3)})
    sim.reset(torch.tensor([3]), {})
    sim.step(command, 10)
    assert not sim.bad.any() and torch.isfinite(sim.signals()["base_pos_w"]).all()


def test_bad_input_is_refused_by_name():
    sim = make(2)
    with pytest.raises(UnknownName, match="motor_cmd, ctbr_cmd"):
        make(2, "joint_cmd")
    with pytest.raises(ValueError, match="substeps is 0"):
        sim.step(torch.zeros(2, 4), 0)
    with pytest.raises(ValueError, match="expected"):
        sim.step(torch.zeros(3, 4), 1)
    with pytest.raises(UnknownName, match="color"):
        sim.set_params(every(sim), {"color": torch.zeros(2)})
    with pytest.raises(ValueError, match="mass must be > 0"):
        sim.set_params(every(sim), {"mass": torch.tensor([0.03, 0.0])})
    with pytest.raises(IndexError, match="2"):
        sim.reset(torch.tensor([2]), {})
    with pytest.raises(UnknownName, match="speed"):
        sim.reset(every(sim), {"speed": torch.zeros(2)})
    with pytest.raises(ValueError, match="base_quat_w"):
        sim.reset(every(sim), {"base_quat_w": torch.zeros(2, 4)})
    with pytest.raises(ValueError, match="qpos"):
        sim.set_state(make(3).state())
    with pytest.raises(ValueError, match="finite"):
        Robot(SPEC).step(np.array([0.3, np.nan, 0, 0]), 1)


# --- agreement with the backend that was written apart from this one


def pair(n, command, dt):
    """Both backends with the same random parameters and from the same random state."""
    ours, theirs = make(n, command, dt=dt), quadrotor.make(SPEC, n, command, dt=dt, threads=1)
    for sim in (ours, theirs):
        sim.set_params(every(sim), random_params(n))
        sim.reset(every(sim), random_state(n))
    return ours, theirs


# |difference| after one step of 2 ms from states up to 10 rad/s with rotors anywhere in [0, 1]. What is left is float32
# in one of them (about 5e-7), drag that this backend holds over a step (dt^2), MuJoCo's quaternion update (dt^3) and
# rotor thrust that it holds at its mid-step value (dt^3).
ONE_STEP = {"base_pos_w": 2e-6, "base_quat_w": 5e-6, "base_vel_w": 5e-5, "base_ang_vel_b": 2e-4, "rotor_speed": 5e-7}
# after 0.5 s with random commands and parameters, at up to 9 m/s and 80 rad/s
ROLLOUT = {"base_pos_w": 2e-3, "base_quat_w": 5e-4, "base_vel_w": 6e-3, "base_ang_vel_b": 1e-2, "rotor_speed": 1e-4}


@pytest.mark.parametrize("command", ["motor_cmd", "ctbr_cmd"])
def test_single_steps_agree_with_the_quadrotor_backend(command):
    ours, theirs = pair(500, command, 0.002)
    ctrl = random_command(500, command)
    ours.step(ctrl, 1)
    theirs.step(ctrl, 1)
    a, b = snapshot(ours), snapshot(theirs)
    for name, tolerance in ONE_STEP.items():
        assert (a[name] - b[name]).abs().max() <= tolerance, name


def test_the_difference_of_a_step_shrinks_with_the_square_of_the_step():
    difference = []
    for dt in (0.004, 0.002):
        ours, theirs = pair(500, "motor_cmd", dt)
        ctrl = random_command(500, "motor_cmd")
        ours.step(ctrl, 1)
        theirs.step(ctrl, 1)
        difference.append(float((snapshot(ours)["base_vel_w"] - snapshot(theirs)["base_vel_w"]).abs().max()))
    assert 3.5 < difference[0] / difference[1] < 4.5


@pytest.mark.parametrize("command", [pytest.param("motor_cmd", marks=pytest.mark.slow), "ctbr_cmd"])
def test_rollouts_of_half_a_second_agree_with_the_quadrotor_backend(command):
    n = 200
    ours, theirs = pair(n, command, 0.002)
    for i in range(25):
        ctrl = random_command(n, command, i)
        if command == "motor_cmd":  # open loop: near hover, so that the flight does not amplify small differences
            ctrl = 0.8 + 0.05 * (ctrl - 0.5)
        ours.step(ctrl, 10)
        theirs.step(ctrl, 10)
    a, b = snapshot(ours), snapshot(theirs)
    sign = torch.sign((a["base_quat_w"] * b["base_quat_w"]).sum(1, keepdim=True))  # q and -q are one attitude
    a["base_quat_w"] = a["base_quat_w"] * sign
    for name, tolerance in ROLLOUT.items():
        assert (a[name] - b[name]).abs().max() <= tolerance, name
