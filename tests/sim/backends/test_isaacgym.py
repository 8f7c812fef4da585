"""Backend isaacgym on the strict double of Isaac Gym, in a worker process as it is; on the real one if it is given.

With TEMPOREAL_ISAACGYM_PYTHON set to an interpreter that has Isaac Gym, the tests of the protocol run on that.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from tests.sim.doubles import FOLDER, REAL, behaviour, isaacgym_backend
from tests.sim.doubles.bench_arm import arm, cube, drawer, scene, table

from temporeal.robots.signals import schema
from temporeal.robots.spec import RobotSpec, Source
from temporeal.sim.backends import isaacgym
from temporeal.sim.physics.isaac import gym_process, rotations, urdf
from temporeal.sim.physics.isaac.actors import plan_of
from temporeal.sim.physics.isaac.drives import UNLIMITED, drives, targets
from temporeal.sim.physics.isaac.shapes import filters, nominal
from temporeal.sim.physics.mujoco import mjcf
from temporeal.sim.scene import Object, Scene

WORLDS, COMMAND, DT = behaviour.WORLDS, behaviour.COMMAND, behaviour.DT
WRONG = FOLDER / "wrong_isaacgym.py"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The shared backend with its scene."""
    made = scene(tmp_path_factory.mktemp("arm"))
    backend = isaacgym_backend(made, WORLDS, COMMAND, dt=DT)
    yield backend, made
    backend.close()


# ---- the protocol


@pytest.mark.parametrize("check", behaviour.CHECKS, ids=lambda check: check.__name__)
def test_protocol(world, check):
    check(world[0])


@pytest.mark.skipif(bool(os.environ.get(REAL)), reason="PhysX is not MuJoCo: the double alone moves like it")
def test_it_moves_like_mujoco(world):
    behaviour.moves_like_mujoco(*world)


def test_needs_are_checked(tmp_path):
    made = scene(tmp_path)
    behaviour.needs_are_checked(lambda **given: isaacgym.make(
        made, **{"num_worlds": 2, "command": COMMAND, "device": "cpu", "python": "none", **given}))


@pytest.mark.slow
def test_two_at_once_and_origins_in_the_tensors(world, tmp_path):
    """A second worker beside the first, whose tensors count positions from the grid's origin: found out, subtracted."""
    first = behaviour.fresh(world[0])
    second = isaacgym_backend(world[1], WORLDS, COMMAND, dt=DT, misbehave={"world_frame": True})
    try:
        for backend in (first, second):
            behaviour.fresh(backend).reset(behaviour.every(backend), behaviour.rows(WORLDS))
            backend.step(behaviour.held(backend), 20)
        behaviour.near(first.signals(), second.signals(), 1e-4, ("cube_pos_w", "grip_pos_w", "cube_quat_w"))
        behaviour.resets_only_the_chosen(second)
    finally:
        second.close()
    behaviour.worlds_are_alike(first)


@pytest.mark.slow
def test_a_world_that_diverges_is_put_back(tmp_path):
    made = Scene(arm(tmp_path), (cube(),))
    # the first simulate finds out where origins are: the sixth is the fifth step
    backend = isaacgym_backend(made, 2, COMMAND, dt=DT, misbehave={"nan_at": [6, 1]})
    try:
        backend.step(behaviour.held(backend), 4)
        before = behaviour.copied(backend)
        backend.step(behaviour.held(backend), 1)
        assert backend.status().bad.tolist() == [False, True]
        assert backend.status().warnings == {"diverged": 1}
        for name, value in backend.signals().items():
            assert torch.equal(value[1], before[name][1]) and torch.isfinite(value).all(), name
        seen = backend.extract(1, before=True)
        assert torch.equal(seen["signal.joint_pos"][0], before["joint_pos"][1]) and not seen["bad"].any()
        backend.step(behaviour.held(backend), 3)  # the double is finite again: the world was put back, and stands still
        assert torch.equal(backend.signals()["cube_pos_w"][1], before["cube_pos_w"][1])
        backend.reset(torch.tensor([1]), {})
        backend.step(behaviour.held(backend), 3)
        assert not backend.status().bad.any() and torch.isfinite(backend.signals()["joint_pos"]).all()
    finally:
        backend.close()


# ---- the process


def small(tmp_path, misbehave, **settings):
    return isaacgym_backend(Scene(arm(tmp_path), (cube(),)), 1, COMMAND, dt=DT, misbehave=misbehave, **settings)


def gone(pid):
    """Whether the process has ended and been waited for: no zombie."""
    return not Path(f"/proc/{pid}").exists()


def test_an_exception_in_the_worker_comes_with_its_traceback(tmp_path):
    backend = small(tmp_path, {"raise_at": 3})
    pid, folder = backend.engine.worker.pid, backend.engine.folder
    with pytest.raises(isaacgym.IsaacGymError, match="told to fail here") as error:
        backend.step(behaviour.held(backend), 5)
    assert "in _misbehave" in str(error.value) and "failed (step)" in str(error.value)
    assert gone(pid)
    with pytest.raises(isaacgym.IsaacGymError, match="make a new backend"):
        backend.step(behaviour.held(backend), 5)
    backend.close()
    backend.close()
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize("what, told", [("die_at", r"died \(exit status 7\)"), ("hang_at", r"in time \(step\)")])
def test_a_worker_that_dies_or_hangs_is_an_error(tmp_path, what, told):
    backend = small(tmp_path, {what: 3}, timeout=5.0)
    pid = backend.engine.worker.pid
    with pytest.raises(isaacgym.IsaacGymError, match=told):
        backend.step(behaviour.held(backend), 5)
    assert gone(pid)
    backend.close()


def test_slow_and_impossible_starts(tmp_path, monkeypatch):
    with pytest.raises(isaacgym.IsaacGymError, match=r"did not answer in time \(start"):
        small(tmp_path, {"sleep_at_import": 60}, start_timeout=0.3)
    with pytest.raises(isaacgym.IsaacGymError, match="libpython3.8.so.1.0(.|\n)*LD_LIBRARY_PATH"):
        small(tmp_path, {"no_import": True})
    with pytest.raises(isaacgym.IsaacGymError, match="not an interpreter"):
        small(tmp_path, {}, python="/nowhere/python")
    with pytest.raises(isaacgym.IsaacGymError, match="died"):
        small(tmp_path, {}, python="/bin/false")
    monkeypatch.delenv(REAL, raising=False)
    with pytest.raises(isaacgym.IsaacGymError, match=f"{REAL}=.*bin/python"):
        isaacgym.make(scene(tmp_path), 1, COMMAND, device="cpu")


ORPHAN = """
import os, sys, tempfile
from pathlib import Path
from temporeal.sim.scene import Scene
from tests.sim.doubles import isaacgym_backend
from tests.sim.doubles.bench_arm import arm
backend = isaacgym_backend(Scene(arm(Path(sys.argv[1]))), 1, "joint_pos_cmd", dt=0.002, misbehave={})
print(backend.engine.worker.pid, backend.engine.folder, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_the_worker_ends_with_its_parent(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.path.join(os.getcwd(), "src")}
    done = subprocess.run([sys.executable, "-c", ORPHAN, str(tmp_path)], capture_output=True, text=True,
                          env=environment, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid = int(done.stdout.split()[0])
    end = time.monotonic() + 20
    while time.monotonic() < end and not ended(pid):
        time.sleep(0.05)
    assert ended(pid)


def ended(pid):
    """Whether the process is gone, or is a zombie that its new parent has not waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_the_worker_is_python_3_8():
    """Its syntax, and that it imports nothing but the standard library, numpy, torch and isaacgym."""
    tree = ast.parse(gym_process.WORKER.read_text(), feature_version=(3, 8))
    found = {a.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    found |= {n.module.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    standard = {"json", "mmap", "os", "struct", "sys", "threading", "time", "traceback"}
    assert found <= standard | {"numpy", "torch", "isaacgym"}, found


def test_the_worker_does_not_find_our_modules(tmp_path):
    """Python puts a script's folder first on sys.path; modules there could be found instead of NVIDIA's."""
    code = "import sys; sys.argv = ['x', '0', '1', '1']; import runpy; m = runpy.run_path(sys.path.pop()); " \
           "sys.path.insert(0, m['HERE']); m['forget_own_folder'](); print(m['HERE'] in sys.path)"
    line = f"import sys; sys.path.append({str(gym_process.WORKER)!r}); {code}"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# ---- the double notices each rule that is broken


@pytest.fixture(scope="module")
def broken():
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    done = subprocess.run([sys.executable, str(WRONG)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


RULES = {
    "two_sims": "one sim per process", "misspelt_setting": "no attribute",
    "tensor_before_prepare": "before prepare_sim", "simulate_before_prepare": "before prepare_sim",
    "envs_that_touch": "collision group", "actor_after_prepare": "before prepare_sim",
    "acquired_twice": "acquired twice", "refresh_before_simulate": "no simulate yet",
    "refresh_without_fetch": "fetch_results", "refresh_after_setter": "after setters", "setter_twice": "twice between",
    "int64_indices": "int64", "env_indices_for_actors": "fixed base", "wrong_count": "1 different actor indices",
    "index_twice": "2 different actor indices", "dof_state_of_actor_without_dofs": "no dofs",
    "part_of_a_tensor": "must be the full", "not_contiguous": "contiguous", "float64": "float64",
    "forgotten_reference": "freed memory", "link_without_inertia": "no inertial",
    "quaternion_wxyz_in_a_pose": "unit length", "dof_forces_without_sensors": "not enabled",
    "stiff_effort_drive": "stiffness", "gpu_mass": "GPU pipeline", "torch_before_isaacgym": "before"}


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_the_double_notices(broken, rule):
    assert RULES[rule] in broken[rule], broken[rule]


@pytest.mark.slow
def test_the_double_shows_states_late(broken):
    assert set(broken) == {*RULES, "stale"}
    assert broken["stale"][0] < 1.0 < 4.9 < broken["stale"][1]


# ---- what Isaac loads


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    made = Scene(arm(tmp_path_factory.mktemp("arm")), (cube(), drawer(), table()), base_pos=(0.1, 0.2, 0.3))
    return plan_of(mjcf.build(made, COMMAND, DT))


def test_actors_are_trees_of_bodies(plan):
    kinds = {a.name: (len(a.links), len(a.dofs), a.floating, a.gravity) for a in plan.actors}
    assert kinds == {"stand": (6, 5, False, False), "cube_root": (1, 0, True, True), "drawer_root": (2, 1, False, True),
                     "table_root": (1, 0, False, True)}
    fore = next(link for link in plan.links if link.name == "fore")
    assert [s.kind for s in fore.shapes] == ["cylinder", "sphere", "sphere", "box"]  # the cover is part of it


def test_urdf_masses_and_frames_are_the_models(plan, tmp_path):
    """Read back by MuJoCo: masses, centres, inertias and, at a random state, every link where the model has it."""
    mj, files = plan.model.mj, urdf.write(plan, tmp_path)
    spec = mujoco.MjSpec.from_file(str(files["stand"]))
    spec.compiler.fusestatic = False
    frame = spec.worldbody.bodies[0]
    frame.pos, frame.quat = plan.actors[0].links[0].pos, plan.actors[0].links[0].quat
    back = spec.compile()
    ours, theirs = mujoco.MjData(mj), mujoco.MjData(back)
    values = np.random.default_rng(0).uniform(0.0, 0.04, 5)
    for name, value in zip(("turn", "lift", "bend", "left", "right"), values):
        ours.qpos[mj.joint(name).qposadr] = theirs.qpos[back.joint(name).qposadr] = value
    for model, data in ((mj, ours), (back, theirs)):
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
    for link in plan.actors[0].links:
        a, b = mj.body(link.name).id, back.body(link.name).id
        assert back.body_mass[b] == pytest.approx(mj.body_mass[a], rel=1e-6)
        assert theirs.xipos[b] == pytest.approx(ours.xipos[a], abs=1e-6)
        world = [d.ximat[i].reshape(3, 3) @ np.diag(m.body_inertia[i]) @ d.ximat[i].reshape(3, 3).T
                 for m, d, i in ((mj, ours, a), (back, theirs, b))]
        assert world[0] == pytest.approx(world[1], abs=1e-8)


def test_the_tendon_of_a_gripper_is_a_drive_of_each_finger(plan):
    values = drives(plan, nominal(plan.model.mj))
    fingers = [i for i, d in enumerate(plan.dofs) if d.name in ("left", "right")]
    assert values["stiffness"][0, fingers] == pytest.approx([1000, 1000])
    assert values["effort"][0, fingers] == pytest.approx([30, 30])
    assert values["velocity"][0, fingers] == pytest.approx([1.5, 1.5])  # 30 N against the joint's 20 N s/m
    position, _ = targets(plan, nominal(plan.model.mj), np.array([[0.1, 0.2, 0.3, 0.05]]))
    by_name = {d.name: x for d, x in zip(plan.dofs, position[0])}
    assert by_name == pytest.approx(
        {"lift": 0.1, "turn": 0.2, "bend": 0.3, "left": 0.04, "right": 0.04, "drawer_slide": 0})


def test_an_actuator_of_one_finger_drives_both_where_they_move_alike(tmp_path):
    robot = arm(tmp_path)
    robot.model.write_text(robot.model.read_text().replace('tendon="fingers" kp', 'joint="left" kp'))
    plan = plan_of(mjcf.build(Scene(robot), COMMAND, DT))
    values = drives(plan, nominal(plan.model.mj))
    fingers = [i for i, d in enumerate(plan.dofs) if d.name in ("left", "right")]
    assert values["stiffness"][0, fingers] == pytest.approx([1000, 1000])
    assert values["effort"][0, fingers] == pytest.approx([30, 30])
    robot.model.write_text(robot.model.read_text().replace('joint="left" kp', 'joint="left" gear="2" kp').replace(
        "<equality>", "<!--").replace("</equality>", "-->"))
    alone = plan_of(mjcf.build(Scene(robot), COMMAND, DT))
    values = drives(alone, nominal(alone.model.mj))
    assert values["stiffness"][0, fingers] == pytest.approx([8000, 0])  # gear 2: 2 * 2000 N/m * 2
    assert values["effort"][0, fingers] == pytest.approx([120, UNLIMITED])
    assert values["damping"][0, fingers] == pytest.approx([20, 20])


def test_equalities_without_a_counterpart_are_refused(tmp_path):
    robot = arm(tmp_path)
    text = robot.model.read_text()
    for wrong in ('polycoef="0 2 0 0 0"', 'polycoef="0.1 1 0 0 0"'):
        robot.model.write_text(text.replace('polycoef="0 1 0 0 0"', wrong))
        with pytest.raises(ValueError, match="no such constraint"):
            plan_of(mjcf.build(Scene(robot), COMMAND, DT))
    robot.model.write_text(text.replace("<equality>", "<!--").replace("</equality>", "-->"))
    with pytest.raises(ValueError, match="not tied to move alike"):
        plan_of(mjcf.build(Scene(robot), COMMAND, DT))


def test_filters_keep_excluded_links_apart(plan):
    bits = dict(zip([link.name for link in plan.actors[0].links], filters(plan.actors[0])))
    apart = {frozenset(p) for p in plan.actors[0].apart}
    names = list(bits)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            assert bool(bits[a] & bits[b]) == (frozenset((a, b)) in apart)


@pytest.mark.parametrize("angles", [(0.1, 0.2, 0.3), (0.4, np.pi / 2, -1.0), (-2.0, -np.pi / 2, 0.5), (3.0, 0.0, -3.0)])
def test_roll_pitch_yaw(angles):
    quat = np.array([1.0, 0, 0, 0])
    for angle, axis in zip(angles, np.eye(3)):
        step = np.concatenate(([np.cos(angle / 2)], np.sin(angle / 2) * axis))
        quat = rotations.times(step, quat)
    again = np.array([1.0, 0, 0, 0])
    for angle, axis in zip(rotations.roll_pitch_yaw(quat), np.eye(3)):
        again = rotations.times(np.concatenate(([np.cos(angle / 2)], np.sin(angle / 2) * axis)), again)
    assert rotations.matrix(again) == pytest.approx(rotations.matrix(quat), abs=1e-9)


def thing(inside):
    """A scene with a robot that is one box, and an object with ``inside``."""
    return Object("thing", f'<mujoco><worldbody><body name="root">{inside}</body></worldbody></mujoco>')


REFUSED = {
    "ball joint": '<joint name="j" type="ball"/><geom size="0.1"/>',
    "2 joints": '<joint name="a"/><joint name="b" axis="0 1 0"/><geom size="0.1"/>',
    "ellipsoid": '<freejoint/><geom type="ellipsoid" size="0.1 0.2 0.3"/>',
    "gravity compensation": '<freejoint/><geom size="0.1"/><body gravcomp="0.5"><joint/><geom size="0.1"/></body>',
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_isaac_cannot_express_is_refused(tmp_path, why):
    with pytest.raises(ValueError, match=why):
        plan_of(mjcf.build(Scene(arm(tmp_path), (thing(REFUSED[why]),)), COMMAND, DT))


def test_sensors_and_unknown_names_are_refused(tmp_path):
    robot = arm(tmp_path)
    path = tmp_path / "with_sensor.xml"
    path.write_text(robot.model.read_text().replace("<keyframe>", '<sensor><clock name="clock"/></sensor><keyframe>'))
    specs = schema(*robot.signals.values(), type(robot.signals["joint_pos"])("clock", (1,), "s"))
    sensing = RobotSpec(**{**robot.__dict__, "model": path, "signals": specs,
                           "sources": {**robot.sources, "clock": Source("sensor", ("clock",))}})
    with pytest.raises(ValueError, match="sensors clock"):
        plan_of(mjcf.build(Scene(sensing), COMMAND, DT))


def test_a_mesh_is_written_as_it_is(tmp_path):
    """A user's robot may have meshes: MuJoCo reads back the same solid."""
    corners = "0 0 0  0.1 0 0  0 0.2 0  0 0 0.3"
    text = f"""<mujoco><asset><mesh name="m" vertex="{corners}"/></asset><worldbody>
      <body name="b"><freejoint/><geom type="mesh" mesh="m"/></body></worldbody></mujoco>"""
    mj = mujoco.MjModel.from_xml_string(text)
    urdf.write_stl(mj, 0, tmp_path / "m.stl")
    (tmp_path / "back.xml").write_text('<mujoco><asset><mesh name="m" file="m.stl"/></asset><worldbody><body>'
                                       '<freejoint/><geom type="mesh" mesh="m"/></body></worldbody></mujoco>')
    back = mujoco.MjModel.from_xml_path(str(tmp_path / "back.xml"))
    assert back.body_mass[1] == pytest.approx(mj.body_mass[1], rel=1e-5)
    assert back.body_inertia[1] == pytest.approx(mj.body_inertia[1], rel=1e-4)


@pytest.mark.parametrize(("floor", "ground"), [(None, None), (1e-5, 1.0), (0.0, 1.0), (0.4, 0.4)])
def test_the_ground_of_a_floor_that_has_no_friction(floor, ground):
    """PhysX 4 takes the mean of two shapes: with 0 things would rub with half of their own."""
    assert isaacgym.ground_friction(floor) == ground
