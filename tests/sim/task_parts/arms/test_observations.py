"""What a policy sees of an arm."""


import pytest
import torch

from temporeal.robots.franka.spec import (
    HOME,
    SPEED,
)
from temporeal.robots.spec import load_robot
from temporeal.sim.rotations import about_z
from temporeal.sim.task_parts.arms.actions import ToolMotion
from temporeal.sim.task_parts.arms.arm import SHARE_OF_LIMITS, arm, arm_action
from temporeal.sim.task_parts.arms.observations import ArmObserve

ROBOT = load_robot("franka")
ARM = arm("reach", "franka")
DT = 0.04


def action_map(**kw):
    return arm_action(ARM, kw.pop("command", "arm_cmd"), DT, ToolMotion(0.5, 1.5, **kw))


def test_what_a_policy_sees_of_an_arm():
    act = action_map()
    observe = ArmObserve(ARM, act, ("grip_pos_w", "goal"), lambda s: 2 * s["goal"], 3)
    assert observe.signals == ("joint_pos", "joint_vel", "finger_pos", "grip_pos_w", "grip_quat_w", "goal")
    plain = ArmObserve(ARM, action_map(command="joint_pos_cmd"), (), lambda s: s["joint_pos"], 7)
    assert plain.obs_dim == observe.obs_dim - 3 + 7 - 2 - 1 and "finger_pos" not in plain.signals
    signals = {"joint_pos": torch.tensor([HOME]) + 0.1, "joint_vel": torch.ones(1, 7), "finger_pos": torch.tensor(
        [[0.01, 0.03]]), "grip_pos_w": torch.tensor([[0.4, 0.1, 0.2]]), "grip_quat_w": about_z(torch.tensor([0.0])),
        "goal": torch.tensor([[1.0, 2.0, 3.0]])}
    memory = {name: torch.zeros(1, *shape) for name, shape in observe.memory.items()}
    memory["step"] = 0.5 * DT * SHARE_OF_LIMITS * torch.tensor([SPEED])
    obs, after = observe(signals, memory)
    assert obs.shape == (1, observe.obs_dim)
    expected = [*[0.1] * 7, *[0.3] * 7, *[0.0] * 7, *[0.5] * 7,
                0.25, 0.75, 0.4, 0.1, 0.2, 1, 0, 0, 1, 0, 0, 2, 4, 6, *[0] * 7]
    torch.testing.assert_close(obs[0], torch.tensor(expected), atol=1e-6, rtol=0)
    assert after["target"][0, 7] == pytest.approx(0.02)
    # the next sample sees how far the joints are behind their targets, and the action
    after = observe.record(after, torch.full((1, 7), 0.5))
    obs, _ = observe(signals, after)
    torch.testing.assert_close(obs[0, 14:21], 10 * (after["target"] - torch.cat(
        [signals["joint_pos"], torch.full((1, 1), 0.02)], -1))[0, :7])
    assert (obs[0, -7:] == 0.5).all()
