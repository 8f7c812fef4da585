"""Scenes in MuJoCo: assembly, where signals are read and written, parameters, and the backend's own ways."""

from __future__ import annotations

from dataclasses import replace

import mujoco as mj
import numpy as np
import pytest
import torch

from robots.registry import UnknownName
from robots.signals import CommandSpec, SignalSpec, schema
from robots.spec import Parameter, RobotSpec, Source
from sim.backends import mjcf, mujoco
from sim.backends.checks import check_ids
from sim.scene import Object, Scene, box, fixed_body

DT = 0.002
MODEL = """<mujoco model="swing">
  <compiler angle="radian" autolimits="true"/>
  <default>
    <geom contype="0" conaffinity="0" condim="1" priority="3" friction="0.1 0.1 0.1"/>
    <joint damping="0.1"/>
  </default>
  <worldbody>
    <body name="post" pos="1 0 0.5">
      <body name="rod"><joint name="hinge" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.02"/>
      </body>
    </body>
    <body name="ball" pos="0 0 1"><freejoint/><geom size="0.1" mass="0.5" contype="1" conaffinity="1"/></body>
    <body pos="0 1 1"><joint name="slide" type="slide" axis="0 0 1"/><geom size="0.05"/></body>
  </worldbody>
  <actuator>
    <motor name="push" joint="slide" ctrlrange="-1 1"/>
    <position name="servo" joint="hinge" kp="20" kv="1" ctrlrange="-1 1" forcerange="-9 9" nsample="5"/>
  </actuator>
  <keyframe><key name="other" qpos="0 0 0 1 1 0 0 0 0"/><key name="home" qpos="0.2 0 0 2 1 0 0 0 0.1" ctrl="0.5 0.2"/>
  </keyframe>
</mujoco>"""

SERVO_ONLY = MODEL.replace('<motor name="push" joint="slide" ctrlrange="-1 1"/>', "").replace("0.5 0.2", "0.2")


def robot(folder, text=MODEL, **other):
    path = folder / "swing.xml"
    path.write_text(text)
    given = {
        "signals": schema(
            SignalSpec("joint_pos", (2,), "rad"), SignalSpec("ball_pos_w", (3,), "m", "w"),
            SignalSpec("ball_ang_vel_w", (3,), "rad/s", "w"), SignalSpec("ball_quat_w", (4,), "wxyz", "w")),
        "sources": {"joint_pos": Source("joint_pos", ("slide", "hinge")), "ball_pos_w": Source("pos", ("ball",)),
                    "ball_ang_vel_w": Source("ang_vel", ("ball",)), "ball_quat_w": Source("quat", ("ball",))},
        "commands": {"cmd": CommandSpec("cmd", (1,), "rad", low=(-1.0,), high=(1.0,))},
        "actuators": {"cmd": ("servo",)}}  # fmt: skip
    return RobotSpec("swing", "arm", limits={}, home={}, model=path, **{**given, **other})


@pytest.fixture
def scene(tmp_path):
    return Scene(robot(tmp_path), (box("cube", (0.02,) * 3, mass=0.1, pos=(0, -1, 0.02), friction=(0.7, 0.01, 0.001)),))


def build(scene):
    return mjcf.build(scene, "cmd", DT)


# ---------------------------------------------------------------- assembly


def test_the_defaults_of_a_robots_file_are_for_the_robot(scene):
    model = build(scene).mj
    floor, cube = model.geom("floor"), model.geom("cube.geom")
    for geom in (floor, cube):
        assert geom.contype[0] == geom.conaffinity[0] == 1 and geom.priority[0] == 0
    assert floor.condim[0] == 3 and floor.friction.tolist() == [1.0, 0.005, 0.0001]
    assert cube.condim[0] == 4 and cube.friction.tolist() == [0.7, 0.01, 0.001]
    assert model.geom("floor").type[0] == mj.mjtGeom.mjGEOM_PLANE


def test_a_floor_is_added_where_there_is_none(scene, tmp_path):
    assert build(replace(scene, floor=False)).mj.ngeom == build(scene).mj.ngeom - 1
    text = MODEL.replace("<worldbody>", '<worldbody><geom name="ground" type="plane" size="5 5 1"/>')
    own = build(Scene(robot(tmp_path, text))).mj
    assert [own.geom(i).name for i in range(own.ngeom)].count("floor") == 0


def test_home_is_the_robots_key_by_name_whatever_joints_have_names(scene):
    model = build(scene)
    hinge, slide = model.mj.joint("hinge").qposadr[0], model.mj.joint("slide").qposadr[0]
    ball = model.mj.jnt_qposadr[model.mj.body_jntadr[model.mj.body("ball").id]]
    assert (model.home_qpos[hinge], model.home_qpos[slide]) == (0.2, 0.1)
    assert model.home_qpos[ball : ball + 3].tolist() == [0, 0, 2]
    assert model.home_ctrl.tolist() == [0.5, 0.2]
    cube = model.mj.jnt_qposadr[model.mj.body_jntadr[model.mj.body("cube.root").id]]
    assert model.home_qpos[cube : cube + 7].tolist() == [0, -1, 0.02, 1, 0, 0, 0]


def test_a_base_pose_moves_what_is_fixed_and_leaves_what_is_free(scene):
    half = 0.5**0.5
    moved = build(replace(scene, base_pos=(0.0, 0.0, 0.3), base_quat=(half, 0.0, 0.0, half))).mj
    assert moved.body("post").pos == pytest.approx([0, 1, 0.8])
    assert moved.body("post").quat == pytest.approx([half, 0, 0, half])
    assert moved.body("ball").pos == pytest.approx([0, 0, 1])


def test_a_model_that_mujoco_refuses_says_which(scene):
    bad = Object("thing", '<mujoco><worldbody><body name="root"><freejoint/></body></worldbody></mujoco>')
    with pytest.raises(ValueError, match="robot 'swing' with objects thing: MuJoCo refuses the model"):
        build(Scene(scene.robot, (bad,)))
    other = Object("thing", '<mujoco><worldbody><body name="base"/></worldbody></mujoco>')
    with pytest.raises(ValueError, match="one body called 'root'"):
        build(Scene(scene.robot, (other,)))
    with pytest.raises(FileNotFoundError, match="model file"):
        build(Scene(replace(scene.robot, model=scene.robot.model.parent / "none.xml")))


def test_a_diverging_state_is_not_reset_by_mujoco(scene):
    assert build(scene).mj.opt.disableflags & mj.mjtDisableBit.mjDSBL_AUTORESET
    assert build(scene).mj.opt.timestep == DT


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize(("signal", "source", "message"), [
    ("joint_pos", Source("joint_pos", ("slide", "knee")), "no joint 'knee'; it has: hinge"),
    ("ball_pos_w", Source("pos", ("tip",)), "no site or body 'tip'; it has: "),
    ("ball_pos_w", Source("sensor", ("touch",)), "no sensor 'touch'"),
])  # fmt: skip
def test_a_source_that_the_model_lacks_lists_what_there_is(tmp_path, signal, source, message):
    spec = robot(tmp_path)
    with pytest.raises(UnknownName, match=message):
        build(Scene(replace(spec, sources={**spec.sources, signal: source})))


def test_a_signal_of_another_size_than_its_source_is_refused(tmp_path):
    spec = robot(tmp_path)
    with pytest.raises(ValueError, match="'joint_pos' has shape .2,., but joint_pos of hinge gives 1 numbers"):
        build(Scene(replace(spec, sources={**spec.sources, "joint_pos": Source("joint_pos", ("hinge",))})))


def test_a_command_needs_its_actuators(tmp_path):
    spec = robot(tmp_path)
    with pytest.raises(ValueError, match="has 1 components, its actuators are not named"):
        build(Scene(replace(spec, actuators={})))
    with pytest.raises(ValueError, match="neither an actuator nor a joint 'motor'"):
        build(Scene(replace(spec, actuators={"cmd": ("motor",)})))


def test_an_angular_velocity_is_written_in_the_bodys_frame_and_read_in_the_worlds(scene):
    sim = mujoco.make(scene, 1, "cmd", dt=DT, threads=1)
    quat = torch.nn.functional.normalize(torch.tensor([[0.9, 0.3, -0.2, 0.1]]), dim=1)
    rate = torch.tensor([[1.0, -2.0, 3.0]])
    for state in ({"ball_quat_w": quat, "ball_ang_vel_w": rate}, {"ball_ang_vel_w": rate, "ball_quat_w": quat}):
        sim.reset(torch.tensor([0]), state)
        assert torch.allclose(sim.signals()["ball_ang_vel_w"], rate, atol=1e-6)
    turned = np.zeros(3)
    mj.mju_rotVecQuat(turned, rate[0].double().numpy(), (quat[0] * torch.tensor([1, -1, -1, -1])).double().numpy())
    assert mjcf.into_body(quat.double().numpy(), rate.double().numpy())[0] == pytest.approx(turned, abs=1e-12)
    sim.close()


def test_a_reset_holds_servos_where_they_are_and_leaves_motors_at_home(scene):
    sim = mujoco.make(scene, 2, "cmd", dt=DT, threads=1)
    sim.reset(torch.tensor([1]), {"joint_pos": torch.tensor([[0.05, 0.7]])})
    ctrl = sim.views()["ctrl"]
    assert ctrl[0].tolist() == [0.5, 0.2] and ctrl[1].tolist() == pytest.approx([0.5, 0.7])
    sim.reset(torch.tensor([1]), {"joint_pos": torch.tensor([[0.05, 1.7]])})
    assert float(sim.views()["ctrl"][1, 1]) == 1.0  # its range ends there
    sim.close()


# ---------------------------------------------------------------- parameters


def test_groups_do_not_mix_the_robot_with_objects(scene):
    model = build(scene)
    mine, cube = model.groups
    names = [model.mj.body(int(i)).name for i in mine.bodies]
    assert names == ["post", "rod", "ball", ""]
    assert (mine.prefix, cube.prefix) == ("", "cube.") and cube.bodies.tolist() == [model.mj.body("cube.root").id]
    assert [model.mj.geom(int(i)).name for i in cube.geoms] == ["cube.geom"]
    assert len(mine.geoms) == 1  # the ball: the rod touches nothing
    assert len(model.parameters["damping"].nominal) == 2 and "cube.damping" not in model.parameters
    assert "gravity_w" in model.parameters and "cube.gravity_w" not in model.parameters
    assert mine.root == model.mj.body("ball").id


def test_a_heavier_body_of_the_same_shape_has_more_inertia(scene):
    sim = mujoco.make(scene, 2, "cmd", dt=DT, threads=1)
    before = sim.batch.expand("body_inertia")[1].copy()
    sim.set_params(torch.tensor([1]), {"cube.mass": torch.tensor([0.3])})
    body = sim.model.mj.body("cube.root").id
    assert sim.batch.expand("body_mass")[:, body].tolist() == pytest.approx([0.1, 0.3])
    assert sim.batch.expand("body_inertia")[1, body] == pytest.approx(3 * before[body])
    assert sim.batch.expand("body_subtreemass")[1, 0] - sim.batch.expand("body_subtreemass")[0, 0] == pytest.approx(0.2)
    sim.close()


def test_the_range_of_a_parameter_is_the_published_one_and_must_fit_the_model(tmp_path):
    nominal = (20.0,)
    wide = Parameter(nominal, (10.0,), (30.0,), "N m/rad", "somewhere")
    assert build(Scene(robot(tmp_path, SERVO_ONLY, parameters={"kp": wide}))).parameters["kp"] is wide
    other = replace(wide, nominal=(21.0,))
    with pytest.raises(ValueError, match="'kp' is .21.0,. in its spec and .20.0,. in its model"):
        build(Scene(robot(tmp_path, SERVO_ONLY, parameters={"kp": other})))


def test_float32_of_a_nominal_value_is_the_nominal_value(scene):
    model = build(scene)
    damping = np.array([[0.1, 0.25]], np.float32).astype(np.float64)
    assert mjcf.check_values(model, "damping", damping, 1).tolist() == [[0.1, 0.25]]
    assert damping[0, 0] != 0.1


@pytest.mark.parametrize(("name", "value", "message"), [
    ("cube.mass", [0.0], "cube.mass must be > 0, got 0"), ("damping", [[-0.1, 0.1]], "damping must be >= 0, got -0.1"),
    ("cube.friction", [float("nan")], "cube.friction has a non-finite value"),
    ("cube.force_w", [[1.0, 2.0]], r"cube.force_w has shape \(1, 2\), expected \(1, 3\)"),
])  # fmt: skip
def test_a_wrong_parameter_is_named(scene, name, value, message):
    with pytest.raises(ValueError, match=message):
        mjcf.check_values(build(scene), name, np.array(value), 1)


def test_a_delay_is_bounded_by_the_history_the_model_keeps(tmp_path):
    model = build(Scene(robot(tmp_path, SERVO_ONLY)))
    assert mjcf.longest_delay(model) == pytest.approx(5 * DT)
    mjcf.check_values(model, "command_delay", np.array([5 * DT]), 1)
    with pytest.raises(ValueError, match="command_delay is at most 0.01 s, .* got 0.012"):
        mjcf.check_values(model, "command_delay", np.array([6 * DT]), 1)


# ---------------------------------------------------------------- the backend


def test_views_are_mujocos_own_memory(scene):
    sim = mujoco.make(scene, 2, "cmd", dt=DT, threads=1)
    views = sim.views()
    assert views["qpos"].dtype == torch.float64 and views["qpos"].shape == (2, sim.model.mj.nq)
    views["qvel"][1, -6] = 2.0  # the cube, sideways
    x = sim.signals()["cube_pos_w"][1, 0].clone()
    sim.step(torch.full((2, 1), 0.2), 1)
    assert sim.signals()["cube_pos_w"][1, 0] > x + 1e-3
    sim.close()


def test_some_signals_are_read_afresh_after_another_backends_state(scene):
    """What sensors gave is not part of MuJoCo's state: a reset of one world must not bring back stale readings."""
    first, second = (mujoco.make(scene, 2, "cmd", dt=DT, threads=1) for _ in range(2))
    first.reset(torch.arange(2), {"ball_ang_vel_w": torch.full((2, 3), 4.0)})
    first.step(torch.full((2, 1), 0.2), 3)
    second.set_state(first.state())
    second.reset(torch.tensor([0]), {})
    assert torch.equal(second.signals()["ball_ang_vel_w"][1], first.signals()["ball_ang_vel_w"][1])
    first.close()
    second.close()


def test_the_log_is_as_it_was_after_a_step(scene):
    was = mj.MjLogConfig.get()
    with mujoco.quiet(), mujoco.quiet():
        assert not mj.MjLogConfig.get().logto_console and not mj.MjLogConfig.get().logto_file
    now = mj.MjLogConfig.get()
    assert (now.logto_console, now.logto_file, now.logfile) == (was.logto_console, was.logto_file, was.logfile)


def test_worlds_are_named_once_by_number():
    assert check_ids(torch.tensor([2, 0]), 3).tolist() == [2, 0]
    assert check_ids([], 3).tolist() == [] and check_ids([1], 3).dtype == torch.int64
    with pytest.raises(ValueError, match=r"torch.bool; of a mask take mask.nonzero"):
        check_ids(torch.tensor([True, False, True]), 3)
    with pytest.raises(ValueError, match="world 2 more than once"):
        check_ids(torch.tensor([2, 0, 2]), 3)
    with pytest.raises(IndexError, match=r"\[0, 3\), got -1..2"):
        check_ids(torch.tensor([2, -1]), 3)


def test_a_fixed_object_gives_its_pose(scene):
    signals, sources = fixed_body("shelf")
    shelf = Object("shelf", '<mujoco><worldbody><body name="root"><geom size="0.1"/></body></worldbody></mujoco>',
                   pos=(0.5, 1.0, 2.0), quat=(0.0, 0.0, 0.0, 1.0), signals=signals, sources=sources)
    sim = mujoco.make(Scene(scene.robot, (shelf,)), 1, "cmd", dt=DT, threads=1)
    assert sim.signals()["shelf_pos_w"].tolist() == [[0.5, 1.0, 2.0]]
    assert sim.signals()["shelf_quat_w"].tolist() == [[0, 0, 0, 1]]
    with pytest.raises(UnknownName, match="cannot set shelf_pos_w; what can be set: joint_pos"):
        sim.reset(torch.tensor([0]), {"shelf_pos_w": torch.zeros(1, 3)})
    sim.close()
