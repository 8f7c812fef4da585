"""A backend behind a Cartesian servo: the tool moves as it is told, and states go on to the bit."""

from __future__ import annotations

import pytest

pytest.importorskip("mujoco")
pytest.importorskip("torch")

import torch

from temporeal.robots.spec import load_robot
from temporeal.sim.backends import mujoco
from temporeal.sim.env import make_env
from temporeal.sim.physics.tool_servo import KEPT, ServoBackend, commanded
from temporeal.sim.scene import Scene
from temporeal.sim.task import load_task

ROBOT = load_robot("franka")
TWIST = torch.tensor([[0.2, 0.0, 0.0, 0.0, 0.0, 0.5], [0.0, 0.0, -0.1, 0.0, 0.0, 0.0], [0.0] * 6])


def servoed(worlds: int = 3) -> ServoBackend:
    return commanded(mujoco.make(Scene(ROBOT), worlds, "tool_vel_cmd", dt=0.004, threads=1))


def test_tools_move_as_they_are_told():
    backend = servoed()
    before = backend.signals()["grip_pos_w"].clone()
    for _ in range(25):
        backend.step(TWIST, 10)
    for _ in range(5):
        backend.step(torch.zeros(3, 6), 10)  # the servos catch up
    moved = backend.signals()["grip_pos_w"] - before
    assert moved[0].tolist() == pytest.approx([0.2, 0, 0], abs=4e-3)
    assert moved[1].tolist() == pytest.approx([0, 0, -0.1], abs=2e-3)
    assert moved[2].abs().max() < 1e-5


def test_a_state_goes_on_to_the_bit_and_a_world_is_taken_with_its_servo():
    backend = servoed()
    for _ in range(5):
        backend.step(TWIST, 10)
    state, one = backend.state(), backend.extract(1)
    backend.step(TWIST, 10)
    then = {name: value.clone() for name, value in backend.signals().items()}
    assert torch.equal(backend.extract(1, before=True)[KEPT], one[KEPT])
    backend.set_state(state)
    backend.step(TWIST, 10)
    assert all(torch.equal(value, then[name]) for name, value in backend.signals().items())
    alone = servoed(1)
    alone.set_state(one)
    alone.step(TWIST[1:2], 10)
    assert torch.equal(alone.signals()["joint_pos"][0], then["joint_pos"][1])
    with pytest.raises(ValueError, match="servo.joints is missing"):
        backend.set_state({name: value for name, value in state.items() if name != KEPT})


def test_a_reset_world_begins_where_it_is_put_and_a_bad_command_spoils_its_own_world():
    backend = servoed()
    for _ in range(5):
        backend.step(TWIST, 10)
    home = torch.tensor(ROBOT.home["joint_pos"])
    backend.reset(torch.tensor([0]), {"joint_pos": home[None] + 0.1})
    wrong = TWIST.clone()
    wrong[1, 2] = torch.nan
    wrong[0] = 0.0
    backend.step(wrong, 10)
    assert backend.signals()["joint_pos"][0].tolist() == pytest.approx((home + 0.1).tolist(), abs=1e-3)
    assert backend.status().bad.tolist() == [False, True, False]


def test_other_commands_have_no_servo_and_a_gpu_is_refused():
    plain = mujoco.make(Scene(ROBOT), 1, "joint_vel_cmd", dt=0.004, threads=1)
    assert commanded(plain) is plain
    plain.command, plain.device = "tool_vel_cmd", torch.device("cuda")
    with pytest.raises(ValueError, match="which runs on the CPU"):
        commanded(plain)


def test_an_environment_of_twists_steps_and_replays():
    env = make_env(load_task("reach", drive="tool"), backend="mujoco", num_worlds=2, seed=1, threads=1, compiled=False)
    env.reset()
    action = torch.ones(2, 6)
    for _ in range(3):
        env.step(action)
    kept = env.state_dict()
    first = env.step(action).reward.clone()
    env.load_state_dict(kept)
    assert torch.equal(env.step(action).reward, first)
