"""`temporeal robot`: a folder from a URDF, xacro or MJCF; nothing is asked that the file, flags or answers say."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest
import yaml

from temporeal.policies.cli.main import main
from temporeal.policies.cli.own_robot import dynamics, jointed
from temporeal.policies.cli.own_robot.answers import Answers
from temporeal.policies.cli.own_robot.copying import copy_model
from temporeal.policies.cli.own_robot.making import make
from temporeal.policies.cli.own_robot.sources import read_source
from temporeal.policies.cli.preflight import robot as bus
from temporeal.policies.cli.preflight.listening import CommandHeard, Heard
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.model_files import read_model
from temporeal.robots.spec import load_robot
from temporeal.sim.physics.mujoco.robot_files import compiled
from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport

SIX = Path(__file__).parents[3] / "examples" / "six_axis.urdf"
HOME = [0.0, -0.4, -1.2, 0.0, -1.5, 0.3]
CORNERS = np.array([[0, 0, 0], [0.1, 0, 0], [0, 0.1, 0], [0, 0, 0.1]])
FACES = [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]
BOX = bytes(80) + (4).to_bytes(4, "little") + b"".join(
    np.concatenate([np.zeros(3), CORNERS[face].ravel()]).astype("<f4").tobytes() + bytes(2) for face in FACES)
LINK = """<link name="{}"><inertial><mass value="1"/><inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/>
  </inertial>{}</link>"""
JOINT = """<joint name="{}" type="{}"><parent link="{}"/><child link="{}"/><origin xyz="0 0 0.2"/><axis xyz="0 1 0"/>{}
  </joint>"""
# children first, a gripper with a mimic joint, a joint without limits, one whose limits are equal
GRIPPING = "<robot name='r'>" + "".join([
    *(LINK.format(name, "") for name in ("fixed", "upper", "fore", "hand", "left", "right")),
    JOINT.format("right_finger", "prismatic", "hand", "right", '<mimic joint="left_finger"/>'
                 '<limit lower="0" upper="0.05" effort="20" velocity="0.1"/>'),
    JOINT.format("left_finger", "prismatic", "hand", "left",
                 '<limit lower="0" upper="0.05" effort="20" velocity="0.1"/>'),
    JOINT.format("wrist", "continuous", "fore", "hand", ""),
    JOINT.format("elbow", "revolute", "upper", "fore", '<limit lower="1" upper="1" effort="9" velocity="2"/>'),
    JOINT.format("shoulder", "revolute", "fixed", "upper", '<limit lower="-2" upper="2" effort="30" velocity="1.5"/>'),
]) + "</robot>"


@pytest.fixture(scope="module")
def six(tmp_path_factory) -> Path:
    """The folder of the example's arm, its home given."""
    out = tmp_path_factory.mktemp("robots") / "six"
    make(SIX, out, Answers({"home": HOME}))
    return out


def test_a_folder_is_whole_and_says_what_was_assumed(six):
    assert {path.name for path in six.iterdir()} == {"spec.yaml", "model.urdf", "ros.yaml", "README.md"}
    robot = load_robot(six)
    assert (robot.kind, robot.tool, robot.control_hz) == ("arm", "tool", 25.0)
    assert robot.sources["tool_pos_w"].names == ("tool0",) and robot.home["joint_pos"] == tuple(HOME)
    motion = robot.motion
    assert motion is not None and motion.speed[0] == 2.5 and motion.effort == (60.0, 60.0, 40.0, 15.0, 15.0, 10.0)
    text = (six / "spec.yaml").read_text()
    line = next(line for line in text.splitlines() if line.startswith("  acceleration: {"))
    assert line.endswith("# assumed: see defaults") and "  velocity: {base_turn: 2.5" in text
    assert set(yaml.safe_load(text)["defaults"]) == {"acceleration", "jerk", "armature", "gains"}
    assert "temporeal train experiment=own_arm robot=six" in (six / "README.md").read_text()


def test_servos_settle_without_overshoot_and_hold_the_weight(six):
    robot = load_robot(six)
    model = compiled(robot)
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    at = np.array([model.joint(name).qposadr[0] for name in robot.sources["joint_pos"].names])
    model.opt.timestep = 0.002
    mujoco.mj_step(model, data, 500)
    rest, step = data.qpos[at].copy(), 0.05
    assert np.abs(rest - HOME).max() < 0.011
    data.ctrl += step
    most = np.zeros(len(at))
    for _ in range(500):
        mujoco.mj_step(model, data)
        most = np.maximum(most, data.qpos[at] - rest)
    moved = data.qpos[at] - rest
    assert moved == pytest.approx(step, rel=0.1)  # gravity is another there
    assert (most <= moved + 0.01 * step).all()


def test_gains_follow_the_formula():
    kp, kd = dynamics.servo_gains(np.array([2.0, 0.1]), np.array([8.0, 0.0]))
    w = np.sqrt(8.0 / (0.01 * 2.0))
    assert kp == pytest.approx([2 * w * w, 0.1 * w * w]) and kd == pytest.approx([4 * w, 0.2 * w])
    assert dynamics.servo_gains(np.ones(1), np.zeros(1))[0] == [225.0]
    assert dynamics.servo_gains(np.ones(1), np.full(1, 1e3))[0] == [3600.0]


def test_nothing_is_asked_that_somebody_said(tmp_path):
    asked: list[str] = []

    def ask(question: str, proposal: str) -> str:
        asked.append(question)
        return ""

    make(SIX, tmp_path / "a", Answers({}, ask))
    assert len(asked) == 5 and asked[0].startswith("What kind of robot is it (arm, hand")
    asked.clear()
    make(SIX, tmp_path / "b", Answers({
        "kind": "arm", "tool": "forearm", "gripper": ["none"], "driven": ["elbow_bend", "base_turn", "shoulder_lift"],
        "home": {"elbow_bend": 1.0}, "interface": "forward_position"}, ask))
    assert not asked
    robot = load_robot(tmp_path / "b")
    assert robot.home["joint_pos"] == (1.0, 0.0, 0.0) and robot.sources["tool_pos_w"].names == ("forearm",)
    assert robot.sources["joint_pos"].names[0] == "elbow_bend"


def test_a_wrong_answer_is_asked_again():
    given = iter(["toaster", "hand"])
    assert Answers({}, lambda question, proposal: next(given)).get("kind", "Kind", "arm", ["arm", "hand"]) == "hand"
    with pytest.raises(BadInput, match="kind: 'toaster' is not one of arm"):
        Answers({}, lambda question, proposal: "toaster").get("kind", "Kind", "arm", ["arm"])


def test_a_proposed_home_is_within_the_ranges_and_holds(tmp_path):
    make(SIX, tmp_path / "arm", Answers({}))
    robot = load_robot(tmp_path / "arm")
    physics = dynamics.physics_of(robot, robot.sources["joint_pos"].names)
    assert robot.motion is not None and not physics.touching()
    assert (np.abs(physics.gravity()) < 0.5 * np.array(robot.motion.effort)).all()
    assert physics.data.body("tool0").xpos[2] > 0.2


def test_a_gripper_followers_and_joints_without_a_range(tmp_path):
    (tmp_path / "arm.urdf").write_text(GRIPPING)
    assert [joint.name for joint in read_model(tmp_path / "arm.urdf").joints] == [
        "shoulder", "elbow", "wrist", "right_finger", "left_finger"]  # as the compiled model has them
    _, notes = make(tmp_path / "arm.urdf", tmp_path / "gripping", Answers({}))
    robot = load_robot(tmp_path / "gripping")
    assert robot.sources["joint_pos"].names == ("shoulder", "elbow", "wrist")
    assert robot.gripper is not None and robot.gripper.joints == ("left_finger", "right_finger")
    assert robot.gripper.bodies == ("left", "right") and (robot.gripper.open, robot.gripper.closed) == (0.05, 0.0)
    assert robot.actuators["arm_cmd"] == ("shoulder", "elbow", "wrist", "left_finger")
    assert robot.home["finger_pos"] == pytest.approx((0.05, 0.05))
    assert any(note.startswith("elbow range: none") for note in notes)
    assert robot.commands["joint_pos_cmd"].low[1:] == pytest.approx((-2 * np.pi,) * 2, abs=1e-3)
    assert robot.motion is not None and robot.motion.speed == (1.5, 2.0, 1.0) and "wrist" in robot.defaults["velocity"]
    model = compiled(robot)
    assert [model.joint(i).name for i in range(3)] == ["shoulder", "elbow", "wrist"]


def test_two_fingers_that_nothing_ties_are_closed_by_one_command(tmp_path):
    (tmp_path / "arm.urdf").write_text(GRIPPING.replace('<mimic joint="left_finger"/>', "").replace(
        'lower="0" upper="0.05" effort="20"', 'lower="-0.05" upper="0" effort="20"', 1))
    _, notes = make(tmp_path / "arm.urdf", tmp_path / "gripping", Answers({}))
    robot = load_robot(tmp_path / "gripping")
    assert "left_finger follows right_finger now: one command closes both fingers" in notes
    assert robot.gripper is not None and robot.gripper.joints == ("right_finger", "left_finger")
    assert robot.home["finger_pos"] == pytest.approx((-0.05, 0.05)) and robot.gripper.open == -0.05


def test_inertias_of_no_solid_are_raised_and_said(tmp_path):
    text = SIX.read_text()
    moments = re.search(r'<inertia ixx="[^"]+" ixy="0" ixz="0" iyy="[^"]+" iyz="0" izz="[^"]+"/>', text)
    for xx, yy, zz in ((-1e-3, 1e-3, 1e-3), (1.0, 0.1, 0.1)):
        wrong = f'<inertia ixx="{xx}" ixy="0" ixz="0" iyy="{yy}" iyz="0" izz="{zz}"/>'
        (tmp_path / "arm.urdf").write_text(text.replace(moments[0], wrong))
        _, notes = make(tmp_path / "arm.urdf", tmp_path / "arm", Answers({"home": HOME}), overwrite=True)
        assert any(note.startswith("1 inertias were none of a solid") for note in notes)
        compiled(load_robot(tmp_path / "arm"))


@pytest.mark.parametrize(("count", "mass", "kind"), [(1, 1.0, "arm"), (4, 0.05, "hand"), (4, 2.0, "legged")])
def test_the_kind_is_proposed_by_the_structure(tmp_path, count, mass, kind):
    link = LINK.replace('value="1"', f'value="{mass}"')
    limit = '<limit lower="-1" upper="1" effort="9" velocity="2"/>'
    names = [(f"{i}{j - 1}" if j else "root", f"{i}{j}") for i in range(count) for j in range(3)]
    parts = [link.format(below, "") + JOINT.format(f"j{below}", "revolute", above, below, limit)
             for above, below in names]
    (tmp_path / "r.urdf").write_text(f"<robot name='r'>{link.format('root', '')}{''.join(parts)}</robot>")
    assert jointed.likely_kind(read_source(tmp_path / "r.urdf", {})) == kind


def test_meshes_are_copied_and_nothing_outside_is_named(tmp_path):
    (tmp_path / "pkg" / "meshes" / "other").mkdir(parents=True)
    for name in ("box.stl", "other/box.stl"):
        (tmp_path / "pkg" / "meshes" / name).write_bytes(BOX)
    shape = '<collision><geometry><mesh filename="{}"/></geometry></collision>'
    text = ("<robot name='r'>" + LINK.format("root", "")
            + LINK.format("link", shape.format("package://pkg/meshes/box.stl") + shape.format("meshes/other/box.stl")
                          + '<visual><geometry><mesh filename="package://pkg/meshes/gone.dae"/></geometry></visual>')
            + JOINT.format("j", "revolute", "root", "link", '<limit lower="-1" upper="1" effort="9" velocity="2"/>')
            + "<gazebo><plugin filename='libgazebo.so'/></gazebo></robot>")
    (tmp_path / "pkg" / "r.urdf").write_text(text)
    (tmp_path / "out").mkdir()
    model, notes = copy_model(read_source(tmp_path / "pkg" / "r.urdf", {}), tmp_path / "out", {})
    assert sorted(path.name for path in (tmp_path / "out" / "files").iterdir()) == ["box.stl", "box_1.stl"]
    written = model.read_text()
    assert "package://" not in written and "gazebo" not in written and len(notes) == 1 and "gone" not in written
    (tmp_path / "pkg" / "r.urdf").write_text(text.replace("meshes/other", "meshes/missing"))
    with pytest.raises(BadInput, match="there is no file .*missing"):
        copy_model(read_source(tmp_path / "pkg" / "r.urdf", {}), tmp_path / "out", {})


def test_an_mjcf_keeps_its_home_and_its_servos_and_loses_its_motors(tmp_path):
    mjcf = """<mujoco><compiler meshdir="m"/><asset><mesh file="box.stl"/></asset><worldbody><body name="a">
      <joint name="j" range="-60 60"/><geom type="mesh" mesh="box"/><site name="tcp" pos="0.2 0 0"/></body></worldbody>
      <actuator>{}</actuator><keyframe><key name="home" qpos="0.5"/></keyframe></mujoco>"""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "box.stl").write_bytes(BOX)
    for tag, more in (("position", 'kp="20"'), ("motor", "")):
        (tmp_path / "r.xml").write_text(mjcf.format(f'<{tag} name="drive" joint="j" ctrlrange="-1 1" {more}/>'))
        make(tmp_path / "r.xml", tmp_path / tag, Answers({}))
        robot = load_robot(tmp_path / tag)
        assert robot.home["joint_pos"] == (0.5,) and robot.tool == "tool"
        assert robot.actuators["joint_pos_cmd"] == (("drive",) if tag == "position" else ("j",))
        assert compiled(robot).nu == 1


def test_a_quadrotor_of_a_few_numbers(tmp_path, capsys):
    (tmp_path / "quad.yaml").write_text("kind: quadrotor\nquadrotor: {mass: 2, arm_length: 0.25, max_thrust: 9.5}\n")
    assert main(["robot", "new", "--answers", str(tmp_path / "quad.yaml"), "--out", str(tmp_path / "quad")]) == 0
    robot = load_robot(tmp_path / "quad")
    assert robot.parameters["arm"].nominal == pytest.approx((0.25 / np.sqrt(2),) * 2, rel=1e-4)
    assert robot.parameters["thrust_curve"].nominal == (0.0, 0.0, 9.5) and robot.ros is not None
    assert main(["robot", "check", str(tmp_path / "quad"), "--json"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out[out.index('{\n  "ok"'):])
    assert found["ok"] and any("1.94 times the weight" in check["found"] for check in found["checks"])


def test_check_says_what_is_wrong(six, tmp_path, capsys, monkeypatch):
    assert main(["robot", "check", str(six), "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {check["name"] for check in checks} >= {"robot", "commands", "tool", "limits", "assumed", "model", "home",
                                                  "gravity", "interface"}
    weak = yaml.safe_load((six / "spec.yaml").read_text())
    weak["limits"]["effort"] = 1.0
    monkeypatch.setenv("TEMPOREAL_PATH", str(tmp_path))
    (tmp_path / "weak").mkdir()
    (tmp_path / "weak" / "model.urdf").write_bytes((six / "model.urdf").read_bytes())
    (tmp_path / "weak" / "spec.yaml").write_text(yaml.safe_dump(weak))
    assert main(["robot", "check", "weak", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failed"] == ["gravity"]
    assert main(["robot", "list", "--json"]) == 0
    rows = {row["robot"]: row for row in json.loads(capsys.readouterr().out)["robots"]}
    assert rows["weak"]["from"] == str(tmp_path / "weak") and rows["franka"]["from"] == "temporeal"


def test_what_is_on_the_bus_is_compared_with_the_interface(six, capsys, monkeypatch):
    """Nothing is received here: what was asked for is told."""
    asked: list[object] = []

    def silent(transport: object, interface: Interface, command: str, seconds: float) -> Heard:
        asked.extend([interface.name, command, seconds])
        row = interface.commands[command]
        return Heard(0.0, seconds, 0.0, (), (CommandHeard(row, f"/{row.topic}"),), "/doctor", "/", ("/doctor",))

    monkeypatch.setattr(bus, "open_transport", lambda *given, **more: MemoryTransport(Bus(), "doctor"))
    monkeypatch.setattr(bus, "listen", silent)
    main(["robot", "check", str(six), "--bus", "--seconds", "2", "--json"])
    assert asked == ["joint_trajectory", "joint_pos_cmd", 2.0]
    names = [check["name"] for check in json.loads(capsys.readouterr().out)["checks"]]
    assert names.index("interface") < names.index("joint_trajectory_controller/joint_trajectory heard")


def test_a_folder_is_replaced_only_if_it_is_a_robots_and_somebody_says_so(six, tmp_path):
    with pytest.raises(BadInput, match="--overwrite replaces it"):
        make(SIX, six, Answers({"home": HOME}))
    make(SIX, six, Answers({"home": HOME}), overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(BadInput, match="is no robot's folder"):
        make(SIX, tmp_path / "mine", Answers({}), overwrite=True)
    with pytest.raises(BadInput, match="the package has a robot 'franka'"):
        make(SIX, tmp_path / "franka", Answers({}))
    with pytest.raises(BadInput, match="letters, digits and underscores"):
        make(SIX, tmp_path / "my-arm", Answers({}))
    with pytest.raises(BadInput, match=r"tool: did you mean 'tool0'\? 'tool9' is not one of"):
        make(SIX, tmp_path / "arm", Answers({"tool": "tool9"}))
    assert not (tmp_path / "arm").exists() and not list(tmp_path.glob(".arm*"))


@pytest.mark.parametrize(("old", "new", "told"), [
    ("stale_after_s: 0.1 ", "stale_after: 0.1 ", "fail  safety .*there is no key 'stale_after'"),
    ("margin: 0.005", "margin: -1", "fail  safety .*self_collision.margin is -1"),
    ("joints: [base_turn", "joints: [base_trn", "warn  interface .*no joint 'base_trn'; did you mean 'base_turn'"),
    ("speed: [1.5", "speed: [9.5", "warn  safety .*the guard lets base_turn move at 9.5/s, its limit is 2.5/s"),
    ("codec: joint_state", "codec: joint_sate", "fail  interface .*did you mean 'joint_state'"),
    ("default: joint_trajectory", "default: joint_trajectry", "fail  interface .*did you mean 'joint_trajectory'")])
@pytest.mark.slow
def test_check_reads_what_the_guard_and_the_codecs_read(
    old: str, new: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("temporeal_bridge")
    make(SIX, tmp_path / "six", Answers({}))
    file = tmp_path / "six/ros.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    assert main(["robot", "check", str(tmp_path / "six")]) == int("fail" in told)
    assert re.search(told, capsys.readouterr().out)


def test_what_is_hardly_meant_is_asked(tmp_path: Path) -> None:
    """Degrees for radians, links without mass, and joints that nobody drives."""
    text = SIX.read_text()
    assert 'lower="-3.1" upper="3.1"' in text
    (tmp_path / "six.urdf").write_text(text.replace('lower="-3.1" upper="3.1"', 'lower="-180" upper="180"'))
    _, notes = make(tmp_path / "six.urdf", tmp_path / "six", Answers({"home": [0, -0.4, -1.2, 0, -1.6, 0]}))
    assert any("base_turn: a range of -180 to 180 rad is 57 turns: degrees?" in note for note in notes)
    two = "".join(f'<body name="{n}" pos="{x} 0 0"><joint name="{n}1" axis="0 0 1" range="-1 1"/><geom size=".05"/>'
                  "</body>" for x, n in enumerate("ab"))
    (tmp_path / "two.xml").write_text(f"<mujoco><worldbody>{two}</worldbody></mujoco>")
    _, notes = make(tmp_path / "two.xml", tmp_path / "two", Answers({"tool": "a"}))
    assert any("not driven, so that they hang loose: b1" in note for note in notes)


def test_an_error_names_the_file_that_was_given(tmp_path: Path) -> None:
    (tmp_path / "six.urdf").write_text(SIX.read_text().replace('velocity="2.5"', 'velocity="-2.5"', 1))
    told = f'{tmp_path / "six.urdf"}: <joint name="base_turn">: <limit velocity=-2.5>'
    with pytest.raises(BadInput, match=re.escape(told)):
        make(tmp_path / "six.urdf", tmp_path / "six", Answers({}))
    with pytest.raises(BadInput, match="control_hz: a number of Hz above 0 is needed, got 0"):
        make(SIX, tmp_path / "six", Answers({"control_hz": 0}))
    assert not list(tmp_path.glob("six/*"))


@pytest.mark.parametrize(("words", "told"), [
    (["new", "--out", "x"], "robot new needs a MODEL file"),
    (["new", "gone.urdf", "--out", "x"], "there is no model file gone.urdf"),
    (["new", str(SIX), "--out", "x", "--home", "1", "two"], "could not convert string to float"),
    (["new", str(SIX), "--out", "x", "--home", "1", "2"], "home: 6 numbers .base_turn.*are needed"),
    (["new", str(SIX), "--out", "x", "--kind", "toaster"], "kind: 'toaster' is not one of arm, hand"),
    (["new", str(SIX), "--out", "x", "--package", "meshes"], "NAME=VALUE is needed"),
    (["check", "gone"], "no robot 'gone'; known: .*TEMPOREAL_PATH"),
    (["check", "franka", "deploy.namespace=/a"], "settings of the bus need --bus"),
    (["view", "franka", "--png", "x.jpg"], "the ending .png"),
    (["dance"], "robot dance: what to do is one of new, check, view, list"),
])  # fmt: skip
def test_mistakes_are_one_line(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["robot", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(told, said), said


def test_a_xacro_is_read_where_xacro_is_installed(tmp_path, monkeypatch):
    (tmp_path / "arm.urdf.xacro").write_text("<robot/>")
    monkeypatch.setitem(sys.modules, "xacro", None)
    with pytest.raises(BadInput, match="pip install xacro"):
        read_source(tmp_path / "arm.urdf.xacro", {})

    class Xacro:
        @staticmethod
        def process_file(path: str, mappings: dict[str, str]):
            class Document:
                @staticmethod
                def toxml() -> str:
                    return SIX.read_text().replace("six_axis", mappings["name"])

            return Document()

    monkeypatch.setitem(sys.modules, "xacro", Xacro)
    assert read_source(tmp_path / "arm.urdf.xacro", {"name": "mine"}).root.get("name") == "mine"
