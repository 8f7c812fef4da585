"""What the launch files start, with a double of `launch`: nodes, options that exist, namespaces, remappings."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
from dataclasses import replace
from math import prod
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from temporeal.robots.artifact.formulas import JUDGE
from temporeal.robots.artifact.manifest import (
    ADDED_VERSION,
    CHUNK_VERSION,
    GOLDEN,
    POLICY,
    ChunkSpec,
    Manifest,
    MemorySpec,
    decode,
    encode,
)
from temporeal.robots.spec import load_robot
from temporeal_bridge import guard_node, monitor_node, policy_node, recorder, robot_sim, worker_node
from temporeal_bridge.guard.safety.fallback_actions import LONGEST
from temporeal_bridge.guard_node import RESCUE_S
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.launching import arguments, launch_files
from temporeal_bridge.process.children import END_S, LAUNCHED_END_S, LINGER_S, WITHOUT
from temporeal_bridge.process.command_line import parser
from temporeal_bridge.transports.transport import TransportError

ROOT = Path(__file__).parents[3]
NODES = {"guard_node": guard_node, "policy_node": policy_node, "monitor_node": monitor_node, "recorder": recorder,
         "robot_sim": robot_sim, "worker_node": worker_node}
REAL = ["guard_node", "policy_node", "monitor_node", "recorder"]
ROBOTS = {"arm": ("franka", "joint_pos_cmd"), "hand": ("leap_hand", "joint_pos_cmd"),
          "quadrotor": ("crazyflie", "ctbr_cmd"), "swarm": ("crazyflie", "ctbr_cmd")}

spec = importlib.util.spec_from_file_location("launch_double", Path(__file__).with_name("launch_double.py"))
double = importlib.util.module_from_spec(spec)
sys.modules["launch_double"] = double  # for its dataclasses
spec.loader.exec_module(double)


@pytest.fixture
def made(tmp_path):
    """Writes the manifest of an artifact for a kind of robot: all that launch files look at."""
    def make(kind: str, robot: str | None = None, chunk: ChunkSpec | None = None, training: dict | None = None) -> Path:
        name, command = ROBOTS[kind]
        robot = load_robot(robot or name)
        spec = robot.commands.get(command) or next(iter(robot.commands.values()))
        manifest = Manifest(
            name="made", robot=robot.name, signals=tuple(robot.signals.values())[:1],
            commands=(spec,), rate_hz=50.0, memory=(), formula="G[0,1] (mission_time > -1)",
            constants={}, horizon_s=1.0, stop="hold", training=training or {}, versions={}, seed=0, git_revision="test",
            created="", files={POLICY: "", GOLDEN: ""})
        if chunk:
            manifest = replace(manifest, chunk=chunk, schema_version=CHUNK_VERSION)
        path = tmp_path / f"{robot.name}-artifact"
        path.mkdir(exist_ok=True)
        (path / "manifest.json").write_bytes(encode(manifest))
        return path
    return make


def launched(kind: str, artifact: Path, **given: object) -> dict[str, list]:
    """Nodes by executable."""
    out: dict[str, list] = {}
    for made in double.launched(ROOT / "launch" / f"{kind}.launch.py", artifact=artifact, **given):
        out.setdefault(made.executable, []).append(made)
    return out


def no_more_signals(folder: Path) -> Path:
    """A file of topics that brings none."""
    path = folder / "goal.yaml"
    path.write_text("{definitions: {}, signals: {}, states: []}")
    return path


def understood(made, monkeypatch) -> argparse.Namespace:
    """The command line as the node's own parser reads it, as the process would: an unknown option ends it."""
    seen = []

    def stop(parsed, arguments, *_, **__):
        seen.append(parsed.parse_args(arguments))
        return 0

    module = NODES[made.executable]
    monkeypatch.setattr(module, "run", stop if module is not worker_node else lambda args, _: seen.append(args))
    assert module.main(list(made.arguments)) == 0
    return seen[0]


def test_every_kind_has_its_file_and_parameters():
    files = sorted(path.name for path in (ROOT / "launch").glob("*.launch.py"))
    assert files == [f"{kind}.launch.py" for kind in sorted(arguments.NAMESPACES)]
    installed = ROOT / "ros2_ws/src/temporeal_bringup"
    assert sorted(path.stem for path in (installed / "params").glob("*.yaml")) == ["arm", "hand", "quadrotor"]
    for kind in arguments.NAMESPACES:
        from_repository = launch_files.params_of(kind, ROOT / "launch" / f"{kind}.launch.py")
        from_package = launch_files.params_of(kind, installed / "launch" / f"{kind}.launch.py")
        assert from_repository.exists() and from_repository.samefile(from_package)
        content = yaml.safe_load(from_repository.read_text())["/**"]["ros__parameters"]
        legal = [word for action in parser("node", "")._actions for word in action.option_strings]
        assert {f"--{name}" for name in content} <= set(legal)
        assert not {"robot", "interface"} & set(content)  # the artifact names the one, the robot the other


@pytest.mark.parametrize("simulate", [False, True])
@pytest.mark.parametrize("kind", arguments.NAMESPACES)
def test_each_node_understands_what_it_is_told(kind, simulate, made, tmp_path, monkeypatch):
    artifact = made(kind)
    signals, root = no_more_signals(tmp_path), "" if kind == "swarm" else "/"
    nodes = launched(kind, artifact, simulate=str(simulate).lower(), out=tmp_path / "out", seed=7, autostart="true",
                     remap=f"estop:={root}lab/estop mission/stop:={root}lab/stop", signals=signals,
                     priority="realtime", core="1", awake=str(kind != "swarm").lower())
    assert sorted(nodes) == sorted(REAL + ["robot_sim"] * simulate)
    names = ["cf1", "cf2"] if kind == "swarm" else [arguments.NAMESPACES[kind]]
    for executable, rows in nodes.items():
        assert [row.namespace for row in rows] == (names[:1] if executable == "recorder" else names)
        for i, row in enumerate(rows):
            args = understood(row, monkeypatch)
            assert (row.package, row.name) == ("temporeal_bridge", executable)
            remaps = [("estop", f"{root}lab/estop"), ("mission/stop", f"{root}lab/stop")]
            if kind == "swarm" and executable == "recorder":  # it has the topics of all
                remaps = [(f"/{name}/{old}", f"/{name}/{new}") for old, new in remaps for name in names]
            assert row.remappings == remaps
            assert Path(row.parameters[0]).is_file() and len(row.parameters) == 1
            own = tmp_path / "out" / names[i] if kind == "swarm" and executable != "recorder" else tmp_path / "out"
            assert (args.transport, args.signals, args.out) == ("rclpy", signals, own)
            if executable != "recorder":
                assert args.artifact == artifact
            if executable in ("guard_node", "policy_node", "robot_sim"):
                assert args.priority == "realtime"
                assert args.core == (None if executable == "robot_sim" else 1)
                assert getattr(args, "awake", None) == (None if executable == "robot_sim" else kind != "swarm")
            flies = simulate and kind in ("quadrotor", "swarm")
            assert args.interface == ("odometry" if flies else None)
    assert all(understood(row, monkeypatch).start for row in nodes["policy_node"])
    assert understood(nodes["recorder"][0], monkeypatch).of == (
        [f"/{name}" for name in names] if kind == "swarm" else None)  # its own namespace, wherever that is pushed
    if simulate:
        assert [understood(row, monkeypatch).seed for row in nodes["robot_sim"]] == [7 + i for i in range(len(names))]


def test_nothing_starts_by_itself_and_the_recorder_can_be_left_out(made, monkeypatch):
    nodes = launched("arm", made("arm"), record="false")
    assert sorted(nodes) == sorted(REAL[:3])
    args = understood(nodes["policy_node"][0], monkeypatch)
    assert not args.start and args.worker is None and args.priority == "auto"


def test_a_formula_must_be_likely_enough(made, monkeypatch, tmp_path):
    """Of policies that fly any formula, which alone have a forecast; each controller of a swarm is told."""
    from tests.bridge.instruction.flown_formulas import formulas

    artifact, of = made("quadrotor"), formulas()
    manifest = decode((artifact / "manifest.json").read_bytes())
    signals = (load_robot("crazyflie").signals[of.position], of.spec)
    memory = tuple(MemorySpec(name, shape, (0.0,) * prod(shape)) for name, shape in of.memory.items())
    manifest = replace(manifest, signals=signals, memory=memory, formulas=of, files={**manifest.files, JUDGE: ""},
                       schema_version=ADDED_VERSION)
    (artifact / "manifest.json").write_bytes(encode(manifest))
    asked = {"instruction": "F[0,4] (norm(base_pos_w - [0.5, 0.3, 1.2]) < 0.3)", "simulate": "true",
             "out": tmp_path / "out"}
    for kind, count in (("quadrotor", 1), ("swarm", 2)):
        flown = [launched(kind, artifact, **asked, **more)["policy_node"] for more in ({"require": "0.85"}, {})]
        told = [[understood(node, monkeypatch).require for node in nodes] for nodes in flown]
        assert told == [[0.85] * count, [0.0] * count]


def test_who_is_to_be_trusted_is_told_to_each_node_that_loads_the_artifact(made, tmp_path, monkeypatch):
    """The folder is read before a node is started: what is not signed by that key starts none."""
    from temporeal.robots.artifact.manifest import ArtifactError
    from temporeal.robots.artifact.signature import make_key, sign

    pytest.importorskip("cryptography")
    artifact, key = made("arm", chunk=ChunkSpec(10, 0.02)), tmp_path / "team.pem"
    public = make_key(key)
    with pytest.raises(ArtifactError, match="not signed"):
        launched("arm", artifact, trust=public)
    sign(artifact, key)
    nodes = launched("arm", artifact, trust=public, simulate="true", signals=no_more_signals(tmp_path))
    trusting = {name for name, rows in nodes.items() if str(public) in rows[0].arguments}
    assert trusting == {"guard_node", "policy_node", "monitor_node", "worker_node"}
    assert all(understood(nodes[name][0], monkeypatch).trust == public for name in trusting)


def test_a_policy_of_chunks_gets_a_worker_and_both_meet(made, tmp_path, monkeypatch):
    artifact = made("arm", chunk=ChunkSpec(10, 0.02))
    nodes = launched("arm", artifact)
    worker = understood(nodes["worker_node"][0], monkeypatch)
    assert worker.artifact == artifact
    assert worker.folder == understood(nodes["policy_node"][0], monkeypatch).worker
    with pytest.MonkeyPatch.context() as patch:  # `launch_ros` always adds this
        row = nodes["worker_node"][0]
        row.arguments = [*row.arguments, "--ros-args", "-r", "__node:=worker_node", "-r", "__ns:=/arm1"]
        assert understood(row, patch).folder == worker.folder
    there = launched("arm", artifact, worker=tmp_path / "there")
    assert "worker_node" not in there
    assert understood(there["policy_node"][0], monkeypatch).worker == tmp_path / "there"


def test_the_goal_of_a_simulated_task_is_on_a_topic_that_all_know(made, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    artifact = made("arm", training={"task": {"name": "reach"}})
    manifest = (artifact / "manifest.json")
    content = launch_files.load_manifest(artifact)
    reach = robot_sim.resolve("temporeal.sim.tasks", "reach")
    manifest.write_bytes(encode(replace(content, signals=(*content.signals, reach.GOAL_POS, reach.GOAL_QUAT))))
    nodes = launched("arm", artifact, simulate="true", out=tmp_path / "out")
    for row in (row for rows in nodes.values() for row in rows):
        assert understood(row, monkeypatch).signals == tmp_path / "out" / "signals.yaml"
    carried = load_interface(load_robot("franka"), None, tmp_path / "out" / "signals.yaml").carried
    assert carried["goal_pos_w"].shape == (3,) and carried["goal_quat_w"].unit == "wxyz"
    with pytest.raises(ValueError, match="the policy reads signal 'goal_pos_w'"):
        launched("arm", artifact, out=tmp_path / "real")
    assert not (tmp_path / "real").exists()


def test_the_guard_waits_for_its_activation(made):
    nodes = launched("arm", made("arm"), managed="true")
    assert nodes["guard_node"][0].parameters[1] == {"autostart": False}
    assert len(nodes["policy_node"][0].parameters) == 1


def test_simulated_time_of_others(made):
    nodes = launched("arm", made("arm"), use_sim_time="true")
    assert all(row.parameters[1] == {"use_sim_time": True} for rows in nodes.values() for row in rows)


@pytest.mark.parametrize("robot", ["allegro_hand", "shadow_hand"])
def test_another_robot_of_the_kind(made, monkeypatch, robot):
    nodes = launched("hand", made("hand", robot), robot=robot, namespace="/left")
    args = understood(nodes["guard_node"][0], monkeypatch)
    assert args.robot == robot and nodes["guard_node"][0].namespace == "/left"


@pytest.mark.parametrize(("kind", "given", "words"), [
    ("arm", {"simulate": "maybe"}, "simulate:=maybe; legal: true, false"),
    ("arm", {"robot": "crazyflie"}, "robot crazyflie is of kind 'quadrotor', this launch file is for 'arm'"),
    ("arm", {"transport": "ros1"}, "unknown transport 'ros1'"),
    ("arm", {"managed": "true", "transport": "dds"}, "managed:=true needs transport:=rclpy"),
    ("arm", {"simulate": "true", "use_sim_time": "true"}, "runs in real time"),
    ("swarm", {"count": "0"}, "count:=0; a whole number from 1 to 29 is needed"),
    ("swarm", {"count": "1000000"}, "count:=1000000; a whole number from 1 to 29 is needed"),
    ("swarm", {"seed": str(2**53)}, f"a whole number from 0 to {2**53 - 1} is needed"),
    ("swarm", {"namespace": ""}, "'/2/mission' is not a topic name"),
    ("arm", {"namespace": "a b"}, "'/a b/mission' is not a topic name"),
    ("arm", {"namespace": "/1x"}, "'/1x/mission' is not a topic name"),
    ("arm", {"priority": "high"}, "priority high; legal: normal, realtime, auto"),
    ("arm", {"core": "4096"}, "core 4096: this machine has cores 0 to"),
    ("arm", {"worker": "/dev/shm/theirs"}, "worker /dev/shm/theirs: the policy 'made' gives one command at a time"),
    ("arm", {"remap": "odom:=:="}, "'/:=' is not a topic name"),
    ("arm", {"seed": "-1"}, "seed:=-1"),
    ("quadrotor", {"require": "80"}, "require:=80; a probability from 0 to 1 is needed"),
    ("quadrotor", {"require": "nan"}, "require:=nan; a probability"),
    ("swarm", {"require": "likely"}, "require:=likely; a probability"),
    ("quadrotor", {"require": "0.8"}, "require:=0.8: the policy 'made' has no forecast; it takes no formula"),
    ("arm", {"remap": "odom"}, "expected old:=new"),
    ("arm", {"remap": "odm:=/x"}, "no node of this launch file has a topic odm; they have /diagnostics, estop, "),
    ("swarm", {"remap": "/cf3/odom:=/x"}, "no node of this launch file has a topic /cf3/odom; they have .* odom, "),
    ("arm", {"awake": "true"}, "name it"),
    ("arm", {"awake": "true", "core": "1", "priority": "normal"}, "awake needs real-time"),
    ("swarm", {"awake": "true", "core": "1"}, "awake:=true is for one robot on a core"),
    ("swarm", {"remap": "gyro:=imu odom:=/mocap/odom"},
     r"remap:=odom:=/mocap/odom gives all robots one topic: leave out the first / \(odom:=mocap/odom, .* /cf1/odom:="),
    ("swarm", {"remap": "cmd_vel_legacy:=/x"}, "gives all robots one topic"),
], ids=range(28))
def test_wrong_arguments_are_named(kind, given, words, made):
    with pytest.raises((arguments.LaunchError, TransportError), match=words):
        launched(kind, made(kind), **given)


def test_robots_of_a_swarm_do_not_share_a_worker(made, tmp_path):
    artifact = made("swarm", chunk=ChunkSpec(15, 0.04))
    with pytest.raises(arguments.LaunchError, match=f"worker:={tmp_path} is for one robot, .*: leave worker out"):
        launched("swarm", artifact, worker=tmp_path)
    assert len(launched("swarm", artifact)["worker_node"]) == 2
    alone, = launched("swarm", artifact, worker=tmp_path, count=1, remap="odom:=/mocap/odom")["policy_node"]
    assert str(tmp_path) in alone.arguments and alone.remappings == [("odom", "/mocap/odom")]


def test_each_robot_of_a_swarm_may_have_a_topic_of_its_own_elsewhere(made):
    remaps = [(f"/cf{i}/odom", f"/mocap/cf{i}/odom") for i in (1, 2)]
    nodes = launched("swarm", made("swarm"), remap=" ".join(f"{old}:={new}" for old, new in remaps))
    assert all(row.remappings == remaps for rows in nodes.values() for row in rows)


@pytest.mark.parametrize("given", [{"simulated": "true"}, {"simulat": "true"}, {"artefact": "x"}, {"namespaces": "x"}])
def test_an_argument_that_is_nearly_one_of_ours_starts_no_robot(given, made):
    with pytest.raises(arguments.LaunchError, match=f"{next(iter(given))}:= is no argument"):
        launched("arm", made("arm"), **given)


@pytest.mark.parametrize("name", [
    "sim", "use_sim", "simulation", "fake", "use_fake_hardware", "mock", "gazebo", "dry_run", "dry-run", "SIM",
    "use_mujoco", "is_simulation"])
def test_a_simulation_by_another_name_starts_no_real_robot(name, made):
    with pytest.raises(arguments.LaunchError, match=f"{name}:= is no argument .* simulate:= is.* say simulate:=, too"):
        launched("arm", made("arm"), autostart="true", **{name: "true"})


def test_arguments_of_a_launch_file_that_includes_this_one_are_let_pass(made):
    assert launched("arm", made("arm"), robot_name="x", ros_namespace="/lab")
    assert launched("arm", made("arm"), use_fake_hardware="false", simulate="false")  # the driver's, said of ours, too


@pytest.mark.parametrize("old", [
    "estop", "/arm1/estop", "/lab/arm1/estop", "/tf", "sim/reset", "goal", "~/set_parameters", "guard_node:estop"])
def test_a_topic_of_ours_and_what_any_node_may_have_is_remapped(old, made, tmp_path):
    """Another launch file may put /lab before the namespace, and a task's signals have topics."""
    signals = tmp_path / "goal.yaml"
    signals.write_text(yaml.safe_dump({"definitions": {}, "signals": {"goal": {"shape": [3], "unit": "m"}}, "states": [
        {"topic": "goal", "type": "std_msgs/msg/Float64MultiArray", "codec": "array", "rate_hz": 0, "qos": "latched",
         "options": {"signal": "goal", "shape": [3]}}]}))
    nodes = launched("arm", made("arm"), remap=f"{old}:=/there", signals=signals)
    assert all(row.remappings == [(old, "/there")] for rows in nodes.values() for row in rows)


def test_a_path_that_begins_at_home_is_not_taken_by_its_letters(made, tmp_path, monkeypatch):
    """A shell leaves the ~ of out:=~/flight as it is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    artifact = made("arm")
    shutil.copy(launch_files.params_of("arm", ROOT / "launch" / "arm.launch.py"), tmp_path / "mine.yaml")
    rows = launched("arm", f"~/{artifact.name}", out="~/flight", params="~/mine.yaml")
    args = understood(rows["guard_node"][0], monkeypatch)
    assert (args.artifact, args.out) == (artifact, tmp_path / "flight")
    assert rows["guard_node"][0].parameters == [str(tmp_path / "mine.yaml")]


def test_what_the_nodes_would_refuse_is_refused_before_any_is_started(made):
    with pytest.raises(ValueError, match="robot crazyflie is of kind 'quadrotor', this launch file is for 'arm'"):
        launched("arm", made("quadrotor"))
    with pytest.raises(ValueError, match="no interface 'nonsense'"):
        launched("arm", made("arm"), interface="nonsense")


def test_the_artifact_names_the_robot_and_who_names_another_is_told(made):
    hand = made("hand", "allegro_hand")
    for nodes in launched("hand", hand).values():
        assert all("allegro_hand" in node.arguments for node in nodes)
    with pytest.raises(ValueError, match="the artifact is for robot 'allegro_hand', this robot is 'leap_hand'"):
        launched("hand", hand, robot="leap_hand")


def test_a_process_that_failed_fails_the_launch_and_one_that_ended_ends_it(made):
    nodes = launched("arm", made("arm"))

    def ended(executable: str, returncode: int, is_shutdown: bool = False):
        return nodes[executable][0].on_exit(SimpleNamespace(returncode=returncode), double.Context({}, is_shutdown))

    assert ended("guard_node", 0) == double.Shutdown(reason="guard_node ended with status 0")
    assert ended("policy_node", 0) is None  # a successor has relieved it
    for executable in nodes:
        if executable not in WITHOUT:
            with pytest.raises(arguments.LaunchError, match=f"{executable} ended with status 2"):
                ended(executable, 2)
        assert ended(executable, -2, is_shutdown=True) == double.Shutdown(reason=f"{executable} ended with status -2")


@pytest.mark.parametrize("kind, executables", [
    ("arm", tuple(WITHOUT)), ("swarm", ("guard_node", "policy_node", "monitor_node", "recorder"))])
def test_the_others_go_on_and_the_launch_has_failed(kind, executables, made, caplog):
    """Without its monitor or recorder a robot flies on, without one of its own processes the rest of a swarm does."""
    nodes = launched(kind, made("quadrotor" if kind == "swarm" else kind))
    for executable in executables:
        for returncode in (-9, 0):
            context, relieved = double.Context({}), executable == "policy_node" and not returncode
            assert nodes[executable][0].on_exit(SimpleNamespace(returncode=returncode), context) is None
            assert len(context.failed) == (0 if relieved else 1)
            told = f"{executable} ended with status {returncode}"
            assert any(told in row.message and row.levelname == "ERROR" for row in caplog.records) != relieved
        ending = double.Context({}, is_shutdown=True)
        nodes[executable][0].on_exit(SimpleNamespace(returncode=-2), ending)
        assert ending.failed == []


def test_a_guard_has_the_time_to_stop_its_robot_and_a_recorder_to_finish_its_bag(made):
    told = [yaml.safe_load(path.read_text())["safety"] for path in (ROOT / "robots").glob("*/ros.yaml")]
    levels = [safety["level"] for safety in told if "level" in safety]
    slowest = max(LONGEST * level["max_s"] + level["blind_s"] for level in levels)
    assert float(launched("arm", made("arm"))["guard_node"][0].sigterm_timeout) == LAUNCHED_END_S
    assert LAUNCHED_END_S > END_S > LINGER_S > RESCUE_S > slowest > 0


def test_a_second_launch_has_a_bag_of_its_own(made, tmp_path, monkeypatch):
    for name in ("bag", "bag-2", "bag-3"):
        recorder = launched("arm", made("arm"), out=tmp_path / "out")["recorder"][0]
        assert understood(recorder, monkeypatch).bag == tmp_path / "out" / name
        (tmp_path / "out" / name).mkdir(parents=True)


def test_what_is_no_artifact_starts_nothing(made, tmp_path):
    artifact = made("arm")
    shutil.rmtree(artifact)
    with pytest.raises(ValueError, match="is not an artifact"):
        launched("arm", artifact)
