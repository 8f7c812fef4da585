"""Arms, hands and quadrotors of others: what tasks make of their models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from temporeal.robots.spec import load_robot
from temporeal.sim.backends import mujoco
from temporeal.sim.env import make_env
from temporeal.sim.scene import Scene
from temporeal.sim.task import load_task
from temporeal.sim.task_parts.arms.arm import arm, within_jerk
from temporeal.sim.task_parts.arms.clear_postures import Contacts, clear_postures
from temporeal.sim.task_parts.arms.kinematics import postures
from temporeal.sim.task_parts.setpoint_limits import Limiter
from temporeal.sim.task_parts.systems import system_of

AXES = ("0 0 1", "0 1 0", "0 1 0", "1 0 0", "0 1 0", "0.6 0 0.8")
PLACES = ((0, 0, 0.05), (0, 0, 0.15), (0, 0, 0.3), (0.15, 0, 0), (0.15, 0, 0), (0.08, 0, 0))


def urdf(joints: int, size: float, slides: bool) -> str:
    """An arm whose file lists its joints from the tool to the base."""
    links = ['<link name="link0"><inertial><mass value="3"/><inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" '
             'iyz="0"/></inertial></link>']
    found = []
    for i in range(joints):
        kind, ends = ("prismatic", (-0.1, 0.2)) if slides and i == 1 else ("revolute", (-2.5, 2.5))
        place = " ".join(str(size * x) for x in PLACES[i])
        links.append(f'<link name="link{i + 1}"><inertial><mass value="{0.5 * size}"/><inertia ixx="0.01" iyy="0.01" '
                     'izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>')
        found.append(f'<joint name="j{i + 1}" type="{kind}"><parent link="link{i}"/><child link="link{i + 1}"/>'
                     f'<origin xyz="{place}" rpy="{0.1 * i} 0 0.2"/><axis xyz="{AXES[i]}"/>'
                     f'<limit lower="{ends[0]}" upper="{ends[1]}" effort="60" velocity="2.5"/></joint>')
    links.append('<link name="tip"/>')
    found.append(f'<joint name="fixed" type="fixed"><parent link="link{joints}"/><child link="tip"/>'
                 f'<origin xyz="{0.1 * size} 0 0"/></joint>')
    return f'<robot name="other">{"".join(links[::-1])}{"".join(found[::-1])}</robot>'


def other_arm(folder: Path, joints: int = 6, size: float = 1.0, slides: bool = False, **more: object) -> str:
    """The folder of an arm that nobody here knows."""
    names = [f"j{i + 1}" for i in range(joints)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.urdf").write_text(urdf(joints, size, slides))
    (folder / "spec.yaml").write_text(yaml.safe_dump({
        "model": "model.urdf", "kind": "arm", "joints": names, "poses": {"tip": "tip"}, "tool": "tip", "control_hz": 25,
        "commands": {"joint_pos_cmd": {"joints": names, "kp": 500, "kd": 40}}, "damping": 1.0,
        "home": {"j2": 0.0 if slides else -0.4, "j3": 0.9, **({"j5": 0.5} if joints > 4 else {})}, **more}))
    return str(folder)


@pytest.mark.parametrize("slides", [False, True])
def test_the_chain_of_any_arm_is_its_model(tmp_path, slides):
    of = arm("reach", other_arm(tmp_path / "arm", slides=slides))
    low, high = of.range
    joints = low + (high - low) * torch.rand(16, 6, generator=torch.Generator().manual_seed(0))
    backend = mujoco.make(Scene(of.robot), 16, "joint_pos_cmd", dt=0.002, threads=1)
    backend.reset(torch.arange(16), {"joint_pos": joints})
    found = backend.signals()
    pos, quat = of.chain(joints)
    torch.testing.assert_close(pos, found["tip_pos_w"], atol=2e-6, rtol=0)
    torch.testing.assert_close((quat * found["tip_quat_w"]).sum(-1).abs(), torch.ones(16), atol=1e-5, rtol=0)
    step = 1e-3
    for j in range(6):
        ahead, _ = of.chain(joints + step * torch.eye(6)[j])
        behind, _ = of.chain(joints - step * torch.eye(6)[j])
        column = of.chain.jacobian(joints)[:, :3, j]
        torch.testing.assert_close(column, (ahead - behind) / (2 * step), atol=2e-4, rtol=0)
    backend.close()


def test_an_arm_of_few_joints_is_asked_for_positions_only(tmp_path):
    with pytest.warns(UserWarning, match="has 5 joints, too few for any attitude: its goals are positions"):
        task = load_task("reach", robot=other_arm(tmp_path / "arm", joints=5))
    assert (task.act.action_dim, set(task.extra.signals)) == (3, {"goal_pos_w"})
    assert "rotation_angle" not in task.formula_text and "tip_pos_w" in task.formula_text
    env = make_env(task, num_worlds=4, threads=1, compiled=False)
    env.reset()
    assert torch.isfinite(env.step(torch.ones(4, 3)).reward).all()


def test_lengths_and_speeds_are_those_of_the_model(tmp_path):
    small, large = (arm("reach", other_arm(tmp_path / f"arm{size}", size=size)) for size in (0.5, 1.0))
    assert large.scale == pytest.approx(2 * small.scale, rel=1e-3)
    assert large.motion(0.6, 2.0).speed == pytest.approx(2 * small.motion(0.6, 2.0).speed, rel=0.05)
    floors = [load_task("reach", robot=of.robot.name).constants["floor"] for of in (small, large)]
    assert floors[1] == pytest.approx(2 * floors[0], rel=1e-3)


def test_targets_keep_the_jerk_that_the_robot_accepts(tmp_path):
    of, dt = arm("reach", other_arm(tmp_path / "arm", limits={"jerk": 50})), 0.04
    limiter = Limiter(within_jerk(of.limits, dt), dt)
    assert (2 * limiter.change / dt**3 <= 50).all() and (limiter.change > 0).all()


def test_goals_are_poses_without_contact(tmp_path):
    of = arm("reach", other_arm(tmp_path / "arm"))
    found = clear_postures(of, 32, 0.7, lambda joints: torch.ones(len(joints), dtype=torch.bool))
    touching = Contacts(of)
    assert len(found) == 32 and not any(touching(joints) for joints in found)


def test_postures_without_attitude_reach_the_place(tmp_path):
    of = arm("reach", other_arm(tmp_path / "arm", joints=5))
    place, _ = of.chain(torch.tensor([of.home]))
    joints, good = postures(of.chain, place + 0.02, None, of.home, of.range)
    torch.testing.assert_close(of.chain(joints)[0], place + 0.02, atol=2e-4, rtol=0)
    assert good.all()


@pytest.mark.parametrize(("task", "robot", "told"), [
    ("reach", "crazyflie", "is for arms, and robot 'crazyflie' is of kind 'quadrotor'"),
    ("waypoints", "franka", "is for quadrotors, and robot 'franka' is of kind 'arm'"),
    ("lift", None, "needs a gripper, and robot .* names none"),
    ("joint_target", "ant", "is for arms and hands, and robot 'ant' is of kind"),
    ("stl", "ant2", "no system 'ant2'; known: "),
])
def test_a_robot_that_lacks_what_a_task_needs_is_refused(task, robot, told, tmp_path):
    name = robot or other_arm(tmp_path / "arm")
    with pytest.raises((ValueError, KeyError), match=told):
        load_task(task, **{"system" if task == "stl" else "robot": name})


@pytest.mark.parametrize("task", ["arm_track", "hold", "joint_target", "reach"])
def test_tasks_of_arms_take_any_arm(task, tmp_path):
    env = make_env(load_task(task, robot=other_arm(tmp_path / "arm")), num_worlds=4, threads=1, compiled=False)
    env.reset()
    for _ in range(3):
        assert torch.isfinite(env.step(torch.zeros(4, env.action_dim)).reward).all()
    assert env.diverged == 0


def test_any_arm_is_a_system_of_formulas(tmp_path):
    system = system_of(other_arm(tmp_path / "arm"))
    state = system.model.state({"joint_pos": torch.tensor([load_robot(system.name).home["joint_pos"]])})
    after = system.model.step(state, torch.tensor([[0.0, 0.0, 1.0]]))
    assert system.model.signals(after)["tip_pos_w"].shape == (1, 3) and system.size == 15


def test_two_tasks_of_an_arm_stand_on_devices_of_their_own():
    """What is kept of an arm for a process does not follow one task's maps to another device."""
    first, second = load_task("reach"), load_task("reach")
    first.act.to("meta")
    assert all(buffer.device.type == "cpu" for buffer in second.act.buffers())
    assert all(buffer.device.type == "cpu" for buffer in load_task("reach").act.buffers())
