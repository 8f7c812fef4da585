"""Scenes in MuJoCo: assembly, where signals are read and written, parameters, and the backend's own ways."""

from __future__ import annotations

import warnings
from dataclasses import replace

import mujoco as mj
import numpy as np
import pytest
import torch

from temporeal.robots.registry import UnknownName
from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import Parameter, RobotSpec, Source, load_robot
from temporeal.sim.backends import mujoco
from temporeal.sim.env import make_env
from temporeal.sim.physics.checks import check_ids
from temporeal.sim.physics.mujoco import mjcf
from temporeal.sim.physics.mujoco.log import quiet
from temporeal.sim.physics.mujoco.parameters import check_values, longest_delay
from temporeal.sim.physics.mujoco.resets import into_body
from temporeal.sim.randomization.distributions import parse_distribution
from temporeal.sim.randomization.disturbances import WrenchDisturbances
from temporeal.sim.scene import Object, Scene, box, fixed_body
from temporeal.sim.task import load_task
from temporeal.sim.task_parts import hands

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
    assert floor.condim[0] == 3 and floor.friction.tolist() == [1e-5] * 3  # what touches it decides
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
    assert into_body(quat.double().numpy(), rate.double().numpy())[0] == pytest.approx(turned, abs=1e-12)
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
    assert check_values(model, "damping", damping, 1).tolist() == [[0.1, 0.25]]
    assert damping[0, 0] != 0.1


@pytest.mark.parametrize(("name", "value", "message"), [
    ("cube.mass", [0.0], "cube.mass must be > 0, got 0"), ("damping", [[-0.1, 0.1]], "damping must be >= 0, got -0.1"),
    ("cube.friction", [float("nan")], "cube.friction has a non-finite value"),
    ("cube.mass", [1e38], "cube.mass is at most 1e[+]06 kg, got 1e[+]38"),
    ("cube.inertia", [[1e-9, 1e-9, 1.0]], "cube.inertia has the principal moments 1e-09, 1e-09, 1 kg m.2, which no"),
    ("cube.inertia", [[1e-5, 1e-5, 2.001e-5]], "each is at most the sum of the other two"),
    ("inertia", [[1.0] * 10 + [2.1, 1.0]], "principal moments 1, 1, 2.1"),
    ("cube.force_w", [[1.0, 2.0]], r"cube.force_w has shape \(1, 2\), expected \(1, 3\)"),
])  # fmt: skip
def test_a_wrong_parameter_is_named(scene, name, value, message):
    with pytest.raises(ValueError, match=message):
        check_values(build(scene), name, np.array(value), 1)


def test_a_flat_body_is_one_of_matter(scene):
    """Its largest moment is the sum of the other two, and float32 rounds it up."""
    flat = np.array([[0.1, 0.2, 0.3]], np.float32).astype(np.float64)
    assert flat[0, 2] > flat[0, 0] + flat[0, 1]
    assert check_values(build(scene), "cube.inertia", flat, 1).tolist() == flat.tolist()


@pytest.mark.parametrize("dt", [float("nan"), float("inf"), 0.0, -0.002, 0.2])
def test_a_physics_step_is_a_short_time(scene, dt):
    with pytest.raises(ValueError, match=rf"dt is {dt} s; it must lie in \(0, 0.1\]"):
        mujoco.make(scene, 2, "cmd", dt=dt)


def test_the_integrator_is_the_models_or_as_said(scene):
    kind = mj.mjtIntegrator
    assert build(scene).mj.opt.integrator == kind.mjINT_EULER
    assert mjcf.build(Scene(load_robot("ant")), "torque_cmd", 0.01).mj.opt.integrator == kind.mjINT_RK4
    found = {name: mjcf.build(scene, "cmd", DT, name).mj.opt.integrator for name in mjcf.INTEGRATORS}
    assert found == {"euler": kind.mjINT_EULER, "rk4": kind.mjINT_RK4, "implicit": kind.mjINT_IMPLICIT,
                     "implicitfast": kind.mjINT_IMPLICITFAST}
    with pytest.raises(ValueError, match="integrator is 'leapfrog'; it must be one of auto, euler, rk4"):
        mujoco.make(scene, 1, "cmd", dt=DT, integrator="leapfrog")
    with pytest.raises(ValueError, match="integrator is 'rk4'; quadrotors have their own: auto"):
        mujoco.make(load_robot("crazyflie"), 1, "rate_cmd", integrator="rk4")
    assert mujoco.make(scene, 1, "cmd", dt=DT, integrator="rk4").model.mj.opt.integrator == kind.mjINT_RK4


def test_what_was_simulated_with_another_integrator_does_not_fit():
    task = load_task("stl", system="ant", formula="F[0,5] (base_pos_w.x > 3)")
    own, fast, same = (make_env(task, num_worlds=1, seed=1, threads=1, compiled=False, options=options)
                       for options in ({}, {"integrator": "implicitfast"}, {"integrator": "implicitfast"}))
    for env in (own, fast, same):
        env.reset()
    with pytest.raises(ValueError, match="integrator"):
        own.load_state_dict(fast.state_dict())
    same.load_state_dict(fast.state_dict())
    assert "integrator" not in own.about  # records of before fit


def test_a_delay_is_bounded_by_the_history_the_model_keeps(tmp_path):
    model = build(Scene(robot(tmp_path, SERVO_ONLY)))
    assert longest_delay(model.mj) == pytest.approx(5 * DT)
    check_values(model, "command_delay", np.array([5 * DT]), 1)
    with pytest.raises(ValueError, match="command_delay is at most 0.01 s, .* got 0.012"):
        check_values(model, "command_delay", np.array([6 * DT]), 1)
    drawn = {"kind": "uniform", "low": 0.0, "high": 5 * DT}
    parse_distribution("randomize.command_delay", drawn, "command_delay", model.parameters["command_delay"])
    with pytest.raises(ValueError, match="randomize.command_delay: command_delay is at most 0.01 s in this simulator, "
                                         "and uniform reaches 0.012; narrow it"):
        parse_distribution("randomize.command_delay", drawn | {"high": 6 * DT}, "command_delay",
                           model.parameters["command_delay"])


# ---------------------------------------------------------------- forces on links

FIXED = SERVO_ONLY.replace('<body name="ball" pos="0 0 1"><freejoint/>', '<body name="ball" pos="0 0 1">').replace(
    MODEL[MODEL.index("  <keyframe>") : MODEL.index("</keyframe>") + 11].replace("0.5 0.2", "0.2"), "")


def fixed(folder, text=FIXED, **other):
    signals = schema(SignalSpec("joint_pos", (1,), "rad"), SignalSpec("rod_pos_w", (3,), "m", "w"))
    sources = {"joint_pos": Source("joint_pos", ("hinge",)), "rod_pos_w": Source("pos", ("rod",))}
    return robot(folder, text, **{"signals": signals, "sources": sources, **other})


def test_a_wrench_acts_on_the_link_that_carries_a_frame_of_a_fixed_robot(tmp_path):
    """At rest the servo bears it: kp (ctrl - q) = 0.15 m cos(q) f_z - torque_y, in that world only."""
    sim = mujoco.make(Scene(fixed(tmp_path)), 3, "cmd", dt=DT, threads=1)
    assert {n for n in sim.parameters if n.endswith(("force_w", "torque_w"))} == {"rod.force_w", "rod.torque_w"}
    sim.set_params(torch.arange(3), {"gravity_w": torch.zeros(3, 3)})
    sim.set_params(torch.tensor([1]), {"rod.force_w": torch.tensor([[0.0, 0.0, 3.0]])})
    sim.set_params(torch.tensor([2]), {"rod.torque_w": torch.tensor([[0.0, 0.5, 0.0]])})
    sim.reset(torch.arange(3), {})
    sim.step(torch.zeros(3, 1), 5000)
    q = sim.signals()["joint_pos"][:, 0].tolist()
    assert q[0] == pytest.approx(0.0, abs=1e-6)
    assert 20 * q[1] == pytest.approx(-0.15 * np.cos(q[1]) * 3.0, rel=1e-3)
    assert 20 * q[2] == pytest.approx(0.5, rel=1e-3)
    sim.close()


def test_what_flies_and_what_is_taken_by_an_object_is_no_link(scene, tmp_path):
    assert not [n for n in build(scene).parameters if n.startswith("ball.")]  # the robot's own force_w is the ball's
    rod = box("rod", (0.02,) * 3, mass=0.1, free=False)
    assert "rod.force_w" not in build(Scene(fixed(tmp_path), (rod,))).parameters


@pytest.mark.parametrize(("name", "wanted"), [
    ("franka", {"grip"}), ("leap_hand", {"index_tip", "middle_tip", "ring_tip", "thumb_tip"}), ("ant", {""})])
def test_the_links_of_the_shipped_robots(name, wanted):
    spec = load_robot(name)
    parameters = mjcf.build(Scene(spec), next(iter(spec.commands)), DT).parameters
    assert {n.removesuffix("force_w").removesuffix(".") for n in parameters if n.endswith("force_w")} == wanted


def test_an_arm_is_pushed_where_it_grips():
    sim = mujoco.make(Scene(load_robot("franka")), 2, "arm_cmd", dt=DT, threads=1)
    raw = {"hit": {"interval_s": [0.2, 0.3], "duration_s": 0.1, "force_n": 60, "on": "grip"}}
    assert WrenchDisturbances.parse(raw, sim.parameters, 0.02).names == ("grip.force_w",)
    still = sim.signals()["grip_pos_w"].clone()
    sim.set_params(torch.tensor([1]), {"grip.force_w": torch.tensor([[0.0, 60.0, 0.0]])})
    sim.step(torch.tensor([*load_robot("franka").home["joint_pos"], 0.04]).repeat(2, 1), 150)
    away = (sim.signals()["grip_pos_w"] - still)[:, 1].tolist()
    assert abs(away[0]) < 1e-4 and away[1] > 0.005
    sim.close()


def test_keyframes_none_of_which_is_home_are_told(tmp_path):
    text = FIXED.replace("</mujoco>", '<keyframe><key name="up" qpos="0.7 0.1"/><key qpos="0 0"/></keyframe></mujoco>')
    with pytest.warns(UserWarning, match="no keyframe of .*swing.xml is called 'home' .they are: 'up', ''., so home"):
        assert build(Scene(fixed(tmp_path, text))).home_qpos.tolist() == [0.0, 0.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build(Scene(fixed(tmp_path, text.replace('"up"', '"home"')))).home_qpos.tolist() == [0.7, 0.1]
        assert build(Scene(fixed(tmp_path))).home_qpos.tolist() == [0.0, 0.0]


# ---------------------------------------------------------------- friction


def test_what_lies_on_the_floor_decides_how_far_it_slides(tmp_path):
    """From v = 1 m/s to rest within v^2 / (2 mu g), and farther by what the contact gives way."""
    mu = torch.tensor([0.1, 0.3, 1.0, 1.5])
    slab = box("slab", (0.04, 0.04, 0.01), mass=0.1, pos=(0, -1, 0.01))  # flat: it does not topple
    sim = mujoco.make(Scene(robot(tmp_path), (slab,)), 4, "cmd", dt=DT, threads=1)
    sim.set_params(torch.arange(4), {"slab.friction": mu})
    sim.reset(torch.arange(4), {"slab_vel_w": torch.tensor([[1.0, 0.0, 0.0]] * 4)})
    sim.step(torch.zeros(4, 1), 750)
    assert sim.signals()["slab_pos_w"][:, 0].tolist() == pytest.approx((1 / (2 * mu * 9.81)).tolist(), rel=0.02)
    assert float(sim.signals()["slab_vel_w"].norm(dim=-1).max()) < 1e-3
    sim.close()


def test_in_a_grasp_the_pads_decide():
    """Pads have priority: 2 x 70 N x mu of theirs hold 0.5 kg, whatever the cube's friction is."""
    franka = load_robot("franka")
    sim = mujoco.make(Scene(franka, (box("cube", (0.02,) * 3, mass=0.5),)), 4, "arm_cmd", dt=DT, threads=1)
    worlds, pads = torch.arange(4), torch.tensor([1.0, 1.0, 0.02, 0.02])
    nominal = sim.params()["friction"]
    sim.set_params(worlds, {"friction": nominal * pads[:, None], "cube.friction": torch.tensor([0.02, 1.5, 0.02, 1.5]),
                            "gravity_w": torch.zeros(4, 3)})
    sim.reset(worlds, {"cube_pos_w": sim.signals()["grip_pos_w"].clone(), "finger_pos": torch.full((4, 2), 0.021)})
    closed = torch.tensor([*franka.home["joint_pos"], 0.0]).repeat(4, 1)
    sim.step(closed, 500)
    sim.set_params(worlds, {"gravity_w": torch.tensor([[0.0, 0.0, -9.81]] * 4)})
    sim.step(closed, 250)
    away = (sim.signals()["cube_pos_w"] - sim.signals()["grip_pos_w"]).norm(dim=-1)
    assert (away[:2] < 2e-3).all() and (away[2:] > 0.3).all()
    sim.close()


@pytest.mark.parametrize("name", ["leap_hand", "allegro_hand"])
def test_between_fingertips_and_a_cube_the_larger_friction_acts(name):
    """What ``configs/randomize/hand.yaml`` draws: tips 0.5 to 0.8, the cube 0.09 to 0.9."""
    model = mjcf.build(hands.hand_scene(load_robot(name)), "joint_pos_cmd", DT).mj
    tip, cube = (next(i for i in range(model.ngeom) if model.geom(i).name.endswith(end) and model.geom_contype[i])
                 for end in ("index_tip", "cube.geom"))
    assert model.geom_priority[tip] == model.geom_priority[cube]
    model.opt.gravity[:] = 0.0
    for tips, cubes in ((0.5, 0.09), (0.8, 0.3), (0.5, 0.9)):
        model.geom_friction[tip, 0], model.geom_friction[cube, 0] = tips, cubes
        data = mj.MjData(model)
        mj.mj_forward(model, data)
        where = model.jnt_qposadr[model.body_jntadr[model.geom_bodyid[cube]]]
        data.qpos[where : where + 3] = data.geom_xpos[tip] + [0.0, 0.0, hands.HALF + 0.01]
        mj.mj_forward(model, data)
        found = [c.friction[0] for c in data.contact[: data.ncon] if set(c.geom) == {tip, cube}]
        assert found and found == pytest.approx([max(tips, cubes)] * len(found))


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
    with quiet(), quiet():
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
