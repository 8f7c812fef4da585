"""What both of Isaac's backends must do, tried on the bench arm: called by their tests with a fresh or a used backend.

Tolerances: the doubles simulate with MuJoCo, so a body that nothing touches moves as in backend mujoco to single
precision. Drives differ by intent (Isaac counts a joint's own damping in the drive, fingers are two drives instead of
one tendon): 0.5 mrad over 100 ms, joints at up to 1 rad/s.
"""

from __future__ import annotations

import pytest
import torch

from temporeal.robots.registry import UnknownName
from temporeal.sim.backends import mujoco
from temporeal.sim.capabilities import MissingCapability

DT = 0.002
COMMAND = "joint_pos_cmd"
WORLDS = 3
AWAY = {"joint_pos": (0.1, -0.6, 0.2), "joint_vel": (0.3, -0.4, 0.5), "cube_pos_w": (0.5, 0.3, 0.4)}
FREE = ("cube_pos_w", "cube_quat_w", "cube_vel_w", "cube_ang_vel_w")


def every(backend):
    return torch.arange(backend.num_worlds)


def fresh(backend):
    """At home, all parameters nominal."""
    backend.set_params(every(backend), {n: torch.tensor([p.nominal] * backend.num_worlds, dtype=torch.float64)
                                        for n, p in backend.parameters.items()})
    backend.reset(every(backend), {})
    return backend


def rows(count, **state):
    return {n: torch.tensor([v] * count) for n, v in {**AWAY, **state}.items()}


def held(backend, *command):
    return torch.tensor([command or (0.1, -0.6, 0.2, 0.03)] * backend.num_worlds)


def near(a, b, tolerance, names=None):
    for name in names or a:
        assert (a[name] - b[name]).abs().max() <= tolerance, (name, a[name], b[name])


def copied(backend):
    return {n: v.clone() for n, v in backend.signals().items()}


def moves_like_mujoco(backend, scene):
    """The same states, commands, parameters and delays as in backend mujoco give the same motion."""
    fresh(backend)
    other = mujoco.make(scene, WORLDS, COMMAND, dt=DT, threads=1)
    near(backend.signals(), other.signals(), 1e-6, [n for n in other.signals() if n != "joint_torque"])
    g = torch.Generator().manual_seed(1)
    state = rows(WORLDS) | {"cube_vel_w": torch.randn(WORLDS, 3, generator=g),
                            "cube_quat_w": torch.nn.functional.normalize(torch.randn(WORLDS, 4, generator=g), dim=1)}
    params = {"command_delay": torch.tensor([0.0, 0.005, 0.02]), "kp": torch.tensor([[200.0, 150.0, 80.0]] * WORLDS),
              "cube.torque_w": 1e-3 * torch.randn(WORLDS, 3, generator=g),
              "cube.force_w": torch.randn(WORLDS, 3, generator=g)}
    for x in (backend, other):
        x.set_params(every(x), {n: v for n, v in params.items() if n in x.parameters})
        x.reset(every(x), state)
    skip = ("joint_torque", "finger_force")
    near(backend.signals(), other.signals(), 2e-6, [n for n in other.signals() if n not in skip])
    command = held(backend, 0.3, -0.4, 0.4, 0.02)
    for substeps in (1, 4, 5, 40):  # 40: longer than a message of the worker
        for x in (backend, other):
            x.step(command, substeps)
        near(backend.signals(), other.signals(), 2e-5, FREE)
        near(backend.signals(), other.signals(), 5e-4, ("joint_pos", "grip_pos_w", "grip_quat_w", "cover_pos_w"))
    near(backend.signals(), other.signals(), 5e-3, ("joint_vel", "grip_vel_w", "grip_ang_vel_b", "finger_pos"))
    near(backend.signals(), other.signals(), 0.5, ("joint_torque",))


def rests_on_the_floor(backend):
    """A cube falls onto the floor and stays there."""
    fresh(backend)
    backend.reset(every(backend), rows(WORLDS, cube_pos_w=(0.6, 0.4, 0.06), joint_vel=(0.0, 0.0, 0.0)))
    backend.step(held(backend), 250)
    assert (backend.signals()["cube_pos_w"][:, 2] - 0.02).abs().max() < 1e-3
    assert backend.signals()["cube_vel_w"].abs().max() < 1e-2
    assert backend.signals()["finger_force"].max() == 0.0


def the_gripper_holds(backend):
    """The fingers close on the cube, feel it with the force of their servos, and hold it."""
    fresh(backend)
    still = {"joint_vel": (0.0, 0.0, 0.0)}
    backend.reset(every(backend), rows(WORLDS, **still))
    grip = copied(backend)
    state = {"cube_pos_w": grip["grip_pos_w"], "cube_quat_w": grip["grip_quat_w"]}
    backend.reset(every(backend), {**rows(WORLDS, **still), **state})
    backend.step(held(backend, 0.1, -0.6, 0.2, 0.0), 150)
    # each finger's servo: half the tendon's 2000 N/m; the cube stops it 14 mm from its target
    force = backend.signals()["finger_force"]
    assert (force - 14.0).abs().max() < 1.5
    assert (backend.signals()["cube_pos_w"] - grip["grip_pos_w"]).norm(dim=1).max() < 0.01


def resets_only_the_chosen(backend):
    """Other worlds go on as if nothing had happened; the chosen show their new state at once, and keep it."""
    fresh(backend)
    backend.step(held(backend), 10)
    before = copied(backend)
    ids = torch.tensor([2, 0])
    state = {"joint_pos": torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]), "cube_pos_w": torch.tensor(
        [[0.7, 0.1, 0.5], [0.7, 0.2, 0.6]]), "cube_vel_w": torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])}
    backend.reset(ids, state)
    after = backend.signals()
    for name, value in state.items():
        assert torch.equal(after[name][ids], value), name
        assert torch.equal(after[name][1], before[name][1]), name
    assert (after["grip_pos_w"][[0, 2]] - before["grip_pos_w"][[0, 2]]).abs().max() > 0.01
    assert after["joint_torque"][[0, 2]].abs().max() == 0
    backend.reset(torch.tensor([0]), {"cube_pos_w": torch.tensor([[0.3, 0.3, 0.9]])})  # twice before a step
    backend.step(held(backend), 1)
    expected = torch.tensor([[0.3, 0.3, 0.9], [0.7, 0.1, 0.5]]) + torch.tensor([[0.0, 0, 0], [0.002, 0, 0]])
    assert (backend.signals()["cube_pos_w"][[0, 2]] - expected).abs().max() < 1e-4


def worlds_are_alike(backend):
    """Positions are those of each world, whatever grid the simulator puts them on."""
    fresh(backend)
    backend.reset(every(backend), rows(WORLDS))
    backend.step(held(backend), 20)
    for name, value in backend.signals().items():
        assert (value - value[:1]).abs().max() < 2e-5, name  # single precision on a grid of metres


def a_bad_world_stands_still(backend):
    """A command that is not a number marks its world, which keeps its signals; the others do not notice."""
    fresh(backend)
    backend.reset(every(backend), rows(WORLDS))
    backend.step(held(backend), 5)
    start = backend.state()
    backend.step(held(backend), 5)
    expected = copied(backend)
    backend.set_state(start)
    before = copied(backend)
    command = held(backend)
    command[1, 2] = float("nan")
    backend.step(command, 5)
    assert backend.status().bad.tolist() == [False, True, False] == backend.bad.tolist()
    backend.step(held(backend), 5)
    for name, value in backend.signals().items():
        assert torch.equal(value[1], before[name][1]), name
        assert torch.isfinite(value).all(), name
    backend.set_state(start)
    backend.step(command, 5)
    near({n: v[[0, 2]] for n, v in backend.signals().items()}, {n: v[[0, 2]] for n, v in expected.items()}, 1e-3)
    backend.reset(torch.tensor([1]), {})
    assert not backend.status().bad.any()
    backend.step(held(backend), 5)
    assert not backend.status().bad.any()


def state_comes_back(backend):
    """state, set_state and extract; a continuation agrees to the precision of what Isaac lets one set."""
    fresh(backend)
    backend.reset(every(backend), rows(WORLDS))
    with pytest.raises(IndexError, match="world must lie in"):
        backend.extract(WORLDS)
    backend.set_params(every(backend), {"command_delay": torch.full((WORLDS,), 0.01)})
    backend.step(held(backend, 0.3, -0.5, 0.3, 0.02), 7)
    saved, shown = backend.state(), copied(backend)
    backend.step(held(backend, 0.0, -0.5, 0.3, 0.02), 20)
    expected, before = copied(backend), backend.extract(1, before=True)
    fresh(backend)
    backend.set_state(saved)
    near(backend.signals(), shown, 0.0)
    assert torch.equal(backend.params()["command_delay"], torch.full((WORLDS,), 0.01))
    assert all(torch.equal(saved[n], v) for n, v in backend.state().items())
    backend.step(held(backend, 0.0, -0.5, 0.3, 0.02), 20)
    near(backend.signals(), expected, 1e-3, [n for n in expected if "torque" not in n])
    assert all(torch.equal(saved[n][1:2], v) for n, v in before.items())
    with pytest.raises(ValueError, match="keys"):
        backend.set_state({})


def parameters_take_effect(backend):
    """Each in its direction, in the chosen world only."""
    fresh(backend)
    assert set(backend.params()) == set(backend.parameters)
    ids, command = torch.tensor([1]), held(backend, 0.6, -0.2, 0.6, 0.01)
    start = {**rows(WORLDS, joint_vel=(0.0, 0.0, 0.0), cube_pos_w=(0.7, 0.3, 0.02)), "cube_vel_w": torch.tensor(
        [[1.0, 0.0, 0.0]] * WORLDS), "drawer_vel": torch.ones(WORLDS, 1)}
    settled = ("joint_pos", "joint_vel", "finger_pos", "cube_pos_w", "drawer_pos")
    backend.reset(every(backend), start)
    backend.step(command, 25)
    nominal = copied(backend)
    changes = {"kp": 0.5, "kd": 2.0, "strength": 0.1, "damping": 20.0, "armature": 5.0, "friction": 0.1, "mass": 3.0,
               "inertia": 20.0, "cube.friction": 3.0, "cube.mass": 4.0, "drawer.damping": 10.0, "frictionloss": None}
    tried = {n: f for n, f in changes.items() if n in backend.parameters and f is not None}
    assert {"kp", "kd", "strength", "damping", "armature", "cube.friction", "drawer.damping"} <= set(tried)
    for name, factor in tried.items():
        if name in ("friction", "cube.mass"):
            continue  # below
        fresh(backend)
        backend.set_params(ids, {name: factor * backend.params()[name][ids]})
        backend.reset(every(backend), start)
        backend.step(command, 25)
        moved = max(float((backend.signals()[s][1] - nominal[s][1]).abs().max()) for s in settled)
        alike = max(float((backend.signals()[s][0] - nominal[s][0]).abs().max()) for s in settled)
        assert moved > 1e-3 > 100 * alike, (name, moved, alike)
    if "cube.mass" in backend.parameters:
        force_over_mass(backend)
    with pytest.raises(UnknownName, match="unknown parameter 'mas'"):
        backend.set_params(ids, {"mas": torch.ones(1)})
    with pytest.raises(ValueError, match="cannot set 'gravity_w'"):
        backend.set_params(ids, {"gravity_w": torch.zeros(1, 3)})
    with pytest.raises(ValueError, match="at most 0.024 s"):
        backend.set_params(ids, {"command_delay": torch.ones(1)})


def force_over_mass(backend):
    """A pushed cube of four times the mass and half as much push."""
    fresh(backend)
    air = rows(WORLDS, cube_pos_w=(0.7, 0.3, 1.0))
    mass = torch.tensor([0.1, 0.4, 0.1])
    backend.set_params(every(backend), {"cube.mass": mass, "cube.force_w": torch.tensor(
        [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.5, 0.0]])})
    backend.reset(every(backend), air)
    backend.step(held(backend), 50)
    expected = torch.tensor([1.0, 1.0, 0.5]) / mass * 50 * DT
    assert torch.allclose(backend.signals()["cube_vel_w"][:, 1], expected, rtol=1e-4)
    assert torch.allclose(backend.signals()["cube_vel_w"][:, 2], torch.full((3,), -9.81 * 50 * DT), rtol=1e-4)
    fresh(backend)  # and the push ends with its parameter
    backend.reset(every(backend), air)
    backend.step(held(backend), 50)
    assert backend.signals()["cube_vel_w"][:, :2].abs().max() < 1e-5


def refuses_what_is_wrong(backend):
    """Wrong calls, in the words of the other backends."""
    fresh(backend)
    with pytest.raises(UnknownName, match="cannot set grip_pos_w"):
        backend.reset(torch.tensor([0]), {"grip_pos_w": torch.zeros(1, 3)})
    with pytest.raises(ValueError, match=r"expected \(1, 3\)"):
        backend.reset(torch.tensor([0]), {"joint_pos": torch.zeros(3, 3)})
    with pytest.raises(IndexError, match="ids must lie in"):
        backend.reset(torch.tensor([7]), {})
    with pytest.raises(ValueError, match="more than once"):
        backend.reset(torch.tensor([1, 1]), {})
    with pytest.raises(ValueError, match="expected"):
        backend.step(torch.zeros(WORLDS, 3), 1)
    with pytest.raises(ValueError, match="substeps"):
        backend.step(held(backend), 0)
    backend.reset(torch.zeros(0, dtype=torch.int64), {})
    assert not backend.status().overflow.any() and set(backend.status().warnings) == {"diverged"}


def needs_are_checked(make):
    """Capabilities that Isaac does not have are refused before anything starts."""
    for need in ("deterministic", "full_state", "gravity", "overflow"):
        with pytest.raises(MissingCapability, match=need):
            make(needs=(need,))
    with pytest.raises(ValueError, match="no such capability"):
        make(needs=("teleport",))
    with pytest.raises(ValueError, match="num_worlds"):
        make(num_worlds=0)
    with pytest.raises(ValueError, match="device is 'tpu'"):
        make(device="tpu")


CHECKS = (
    rests_on_the_floor, the_gripper_holds, resets_only_the_chosen, worlds_are_alike, a_bad_world_stands_still,
    state_comes_back, parameters_take_effect, refuses_what_is_wrong)
