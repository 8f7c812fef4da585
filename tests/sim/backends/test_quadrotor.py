"""The quadrotor backend: agreement with the float64 physics, determinism, parameters, delays, state, bad input."""

import numpy as np
import pytest
import torch

from temporeal.robots.crazyflie.spec import L2F_PARAMETERS, MAX_THRUST
from temporeal.robots.registry import UnknownName
from temporeal.robots.spec import load_robot
from temporeal.sim.backends.quadrotor import make
from temporeal.sim.physics.quadrotor import dynamics as q
from temporeal.sim.physics.quadrotor.kernels import STEP_MOTOR, STEP_SHARED
from temporeal.sim.physics.quadrotor.parameters import controller_params, hover_speed, nominal_params, pack_params

ROBOT = load_robot("crazyflie")
DT = 0.002


def spread_params(n, seed=0):
    """Random parameters per world within the robot's ranges, with disturbances and delays."""
    draw = torch.Generator().manual_seed(seed)

    def between(low, high):
        low, high = torch.tensor(low), torch.tensor(high)
        return low + (high - low) * torch.rand(n, len(low), generator=draw)

    out = {name: between(p.low, p.high) for name, p in ROBOT.parameters.items()}
    out |= {"wind_w": between((-2.0,) * 3, (2.0,) * 3), "force_w": between((-0.02,) * 3, (0.02,) * 3)}
    out |= {"torque_b": between((-1e-5,) * 3, (1e-5,) * 3), "command_delay": between((0.0,), (0.01,))}
    return {name: x[:, 0] if x.shape[1] == 1 else x for name, x in out.items()}


def commands(n, command, steps=20):
    draw = torch.Generator().manual_seed(1)
    u = torch.rand(steps, n, 4, generator=draw)
    if command == "motor_cmd":
        return 0.5 + 0.4 * u
    return torch.cat([MAX_THRUST * (0.4 + 0.4 * u[..., :1]), 4 * u[..., 1:] - 2], -1)


def flown(n, command, threads=1, steps=20, worlds=None):
    """Backend after ``steps`` control steps; ``worlds``: the rows of the parameters and commands it gets."""
    worlds = torch.arange(n) if worlds is None else worlds
    backend = make(ROBOT, len(worlds), command, dt=DT, threads=threads)
    backend.set_params(torch.arange(len(worlds)), {k: v[worlds] for k, v in spread_params(n).items()})
    backend.reset(torch.arange(len(worlds)), {})
    for ctrl in commands(n, command, steps):
        backend.step(ctrl[worlds], 5)
    return backend


def copied(backend):
    return {name: x.clone() for name, x in backend.signals().items()}


def reference(command, n, steps):
    """The same flight by the plain Python function in float64."""
    params = {k: v.double() for k, v in spread_params(n).items()}
    packed, nominal = pack_params(params), tuple(controller_params(ROBOT).astype(float))
    hover = hover_speed(params)
    all_commands = commands(n, command, steps).double()
    out = []
    for w in range(n):
        p = tuple(packed[w].tolist())
        s = (0.0, 0.0, 1.0, 1.0, *(0.0,) * 9, *hover[w].tolist())
        weight = q.GRAVITY * float(params["mass"][w])
        before = hover[w].tolist() if command == "motor_cmd" else [weight, 0.0, 0.0, 0.0]
        for ctrl in all_commands[:, w].tolist():
            for i in range(5):
                u = [q.blend(i * DT, DT, p[q.DELAY], old, new) for old, new in zip(before, ctrl)]
                if command == "ctbr_cmd":
                    u = q.rate_loop(s, *u, p, nominal)
                s = q.on_ground(q.motor_step(s, *u, p, DT, True))
            before = ctrl
        out.append(s)
    return np.array(out)


@pytest.mark.parametrize("command", ["motor_cmd", "ctbr_cmd"])
def test_compiled_kernels_follow_the_float64_function(command):
    n = 19  # a full block and a started one
    signals = flown(n, command).signals()
    expected = reference(command, n, 20)
    # float32 over 100 steps; rates reach 10 rad/s
    assert np.allclose(signals["base_pos_w"], expected[:, :3], atol=2e-5)
    assert np.allclose(signals["base_quat_w"], expected[:, 3:7], atol=1e-4)
    assert np.allclose(signals["base_vel_w"], expected[:, 7:10], atol=2e-4)
    assert np.allclose(signals["base_ang_vel_b"], expected[:, 10:13], atol=3e-3)
    assert np.allclose(signals["rotor_speed"], expected[:, 13:], atol=5e-5)
    assert torch.equal(signals["height"], signals["base_pos_w"][:, 2])


@pytest.mark.parametrize("command", ["motor_cmd", "ctbr_cmd"])
def test_a_world_does_not_depend_on_the_others_or_on_threads(command):
    n = 1100  # enough for two chunks
    whole = copied(flown(n, command, threads=2))
    single = copied(flown(n, command, threads=1))
    some = torch.tensor([0, 3, 17, 500, 1099])
    part = copied(flown(n, command, worlds=some))
    for name, x in whole.items():
        assert torch.equal(x, single[name]), name
        assert torch.equal(x[some], part[name]), name


def test_shared_parameters_take_the_same_path_as_equal_ones():
    n = 33
    shared = make(ROBOT, n, "motor_cmd", dt=DT, threads=1, shared=True)
    assert "deterministic" not in shared.capabilities
    ids = torch.arange(n)
    bare = {"drag": torch.zeros(n, 3)}
    shared.set_params(ids, bare)
    assert shared.runner.what == STEP_SHARED
    general = make(ROBOT, n, "motor_cmd", dt=DT, threads=1)
    general.set_params(ids, bare)
    assert general.runner.what == STEP_MOTOR
    general.set_params(ids[-1:], {"mass": torch.tensor([0.03])})
    assert general.runner.what == STEP_MOTOR
    shared.set_params(ids[:1], {"mass": torch.tensor([0.03])})
    assert shared.runner.what == STEP_MOTOR
    shared.set_params(ids[:1], {"mass": shared.params()["mass"][1:2].clone()})
    assert shared.runner.what == STEP_SHARED
    for ctrl in commands(n, "motor_cmd"):
        shared.step(ctrl, 5)
        general.step(ctrl, 5)
    for name in ("base_pos_w", "base_vel_w", "base_ang_vel_b"):
        assert torch.allclose(shared.signals()[name][:-1], general.signals()[name][:-1], atol=3e-3), name
    gap = shared.signals()["base_pos_w"][-1] - general.signals()["base_pos_w"][-1]
    assert gap.norm() > 1e-3  # the lighter one left


def test_hover_holds_with_nominal_and_with_l2f_parameters():
    for params in ({}, {k: torch.tensor([v[0] if len(v) == 1 else v]) for k, v in L2F_PARAMETERS.items()}):
        backend = make(ROBOT, 1, "ctbr_cmd", dt=DT)
        backend.set_params(torch.tensor([0]), params)
        backend.reset(torch.tensor([0]), {})
        speed = backend.signals()["rotor_speed"].clone()
        motor = make(ROBOT, 1, "motor_cmd", dt=DT)
        motor.set_params(torch.tensor([0]), params)
        motor.reset(torch.tensor([0]), {})
        motor.step(speed, 500)
        assert torch.allclose(motor.signals()["base_pos_w"], torch.tensor([[0.0, 0.0, 1.0]]), atol=2e-3)


def test_l2f_hovers_at_its_published_speed():
    params = {k: torch.tensor([v[0] if len(v) == 1 else v]) for k, v in L2F_PARAMETERS.items()}
    assert torch.allclose(hover_speed(params) * 21702, torch.full((1, 4), 14475.0), atol=2)


def test_reset_sets_chosen_worlds_only():
    backend = make(ROBOT, 20, "ctbr_cmd", dt=DT)
    backend.step(torch.zeros(20, 4), 10)
    before = copied(backend)
    pos = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    quat = torch.tensor([[0.0, 2.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    speed = torch.full((2, 4), 0.25)
    backend.reset(torch.tensor([18, 2]), {"base_pos_w": pos, "base_quat_w": quat, "rotor_speed": speed})
    after = backend.signals()
    assert torch.equal(after["base_pos_w"][[18, 2]], pos)
    assert torch.equal(after["base_quat_w"][18], torch.tensor([0.0, 1.0, 0.0, 0.0]))
    assert torch.equal(after["rotor_speed"][[18, 2]], speed)
    assert torch.equal(after["base_vel_w"][[18, 2]], torch.zeros(2, 3))
    others = [w for w in range(20) if w not in (2, 18)]
    assert torch.equal(after["base_pos_w"][others], before["base_pos_w"][others])


def test_state_round_trip_continues_bit_exactly():
    a = flown(40, "ctbr_cmd")
    saved = a.state()
    rest = commands(40, "ctbr_cmd", 10).flip(0)
    for ctrl in rest:
        a.step(ctrl, 5)
    expected = copied(a)
    b = make(ROBOT, 40, "ctbr_cmd", dt=DT)
    b.set_state(saved)
    for ctrl in rest:
        b.step(ctrl, 5)
    for name, x in expected.items():
        assert torch.equal(x, b.signals()[name]), name
    assert torch.equal(a.state()["state"], b.state()["state"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mass", 0.02), ("inertia", (2e-5, 2e-5, 4e-5)), ("thrust_curve", (0.0, 0.0, 0.15)),
        ("torque_per_thrust", 0.004), ("tau_up", 0.05), ("tau_down", 0.05), ("arm", (0.02, 0.02)),
        ("drag", (0.1, 0.1, 0.1)), ("motor_gain", (0.9, 1.0, 1.1, 1.0)), ("rate_gain", (5.0, 5.0, 2.0)),
        ("wind_w", (3.0, 0.0, 0.0)), ("force_w", (0.01, 0.0, 0.0)), ("torque_b", (0.0, 0.0, 1e-5)),
        ("command_delay", 0.02),
    ],
)  # fmt: skip
def test_each_parameter_takes_effect_in_its_world_only(name, value):
    backend = make(ROBOT, 3, "ctbr_cmd", dt=DT)
    backend.set_params(torch.tensor([1]), {name: torch.tensor([value])})
    for i in range(6):
        thrust = 0.9 if i % 2 else 0.5
        backend.step(torch.tensor([[thrust * MAX_THRUST, 2.0, -1.0, 1.5]]).expand(3, 4), 10)
    pose = torch.cat([backend.signals()[s] for s in ("base_pos_w", "base_quat_w")], -1)
    assert torch.equal(pose[0], pose[2])
    assert (pose[1] - pose[0]).abs().max() > 1e-5
    assert torch.allclose(backend.params()[name][1], torch.tensor(value))


def test_command_delay_keeps_the_previous_command():
    backend = make(ROBOT, 4, "motor_cmd", dt=DT)
    delay = torch.tensor([0.0, 0.004, 0.005, 0.01])
    backend.set_params(torch.arange(4), {"command_delay": delay})
    backend.reset(torch.arange(4), {"rotor_speed": torch.full((4, 4), 0.5)})
    up = torch.ones(4, 4)
    backend.step(up, 5)
    speed = backend.signals()["rotor_speed"][:, 0]
    tau = nominal_params(ROBOT)["tau_up"][0]
    # after reset the previous command holds the speed; a rotor lags for what is left of the 10 ms
    expected = 1 - 0.5 * torch.exp(-(0.01 - delay) / tau)
    assert torch.allclose(speed, expected, atol=2e-5)
    backend.step(up, 5)  # the previous command is now the same: the delay has no effect
    later = 1 - (1 - speed) * torch.exp(torch.tensor(-0.01 / tau))
    assert torch.allclose(backend.signals()["rotor_speed"][:, 0], later, atol=2e-5)


def test_it_lands_stays_and_takes_off_again():
    backend = make(ROBOT, 1, "ctbr_cmd", dt=DT)
    backend.step(torch.tensor([[0.0, 0.0, 0.0, 0.0]]), 1000)
    s = copied(backend)
    assert s["height"][0] == 0 and torch.equal(s["base_vel_w"], torch.zeros(1, 3))
    backend.step(torch.tensor([[MAX_THRUST, 0.0, 0.0, 0.0]]), 250)
    assert backend.signals()["height"][0] > 0.05


def test_signals_are_the_robots_and_the_privileged_ones():
    backend = make(ROBOT, 5, "ctbr_cmd", dt=DT)
    backend.set_params(torch.tensor([4]), {"force_w": torch.tensor([[1.0, 2.0, 3.0]])})
    signals = backend.signals()
    assert set(signals) == set(ROBOT.signals) | {"rotor_speed", "force_w", "torque_b"}
    for name, spec in ROBOT.signals.items():
        assert signals[name].shape == (5, *spec.shape) and signals[name].dtype == torch.float32
    assert torch.equal(signals["force_w"][4], torch.tensor([1.0, 2.0, 3.0]))


def test_bad_input_is_named():
    with pytest.raises(UnknownName, match="no command 'thrust'; known: motor_cmd, ctbr_cmd"):
        make(ROBOT, 1, "thrust", dt=DT)
    with pytest.raises(ValueError, match="num_worlds is 0"):
        make(ROBOT, 0, "motor_cmd", dt=DT)
    with pytest.raises(ValueError, match="dt is 0"):
        make(ROBOT, 1, "motor_cmd", dt=0)
    with pytest.raises(ValueError, match="threads is -1"):
        make(ROBOT, 1, "motor_cmd", dt=DT, threads=-1)
    with pytest.raises(ValueError, match="device is 'mps'; it must be cpu, cuda"):
        make(ROBOT, 1, "motor_cmd", dt=DT, device="mps")
    backend = make(ROBOT, 2, "motor_cmd", dt=DT)
    one = torch.tensor([0])
    with pytest.raises(ValueError, match="has shape"):
        backend.step(torch.zeros(3, 4), 1)
    with pytest.raises(ValueError, match="substeps is 0"):
        backend.step(torch.zeros(2, 4), 0)
    with pytest.raises(UnknownName, match="unknown parameter 'weight'; known: mass"):
        backend.set_params(one, {"weight": torch.ones(1)})
    with pytest.raises(ValueError, match="mass must be > 0"):
        backend.set_params(one, {"mass": torch.tensor([-1.0])})
    with pytest.raises(ValueError, match="drag has a non-finite value"):
        backend.set_params(one, {"drag": torch.full((1, 3), float("nan"))})
    with pytest.raises(IndexError, match=r"ids must lie in \[0, 2\)"):
        backend.reset(torch.tensor([2]), {})
    with pytest.raises(UnknownName, match="unknown signals"):
        backend.reset(one, {"position": torch.zeros(1, 3)})
    with pytest.raises(ValueError, match="norm near 1"):
        backend.reset(one, {"base_quat_w": torch.zeros(1, 4)})
    with pytest.raises(ValueError, match="set_state: state has shape"):
        backend.set_state(make(ROBOT, 20, "motor_cmd", dt=DT).state())
