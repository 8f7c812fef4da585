"""The colcon packages, the launch files, the command lines, and what the robot side must not import."""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.bridge.conftest import write_artifact

from temporeal.policies.runs.settings.compose import compose
from temporeal_bridge.transports import ros_arguments

ROOT = Path(__file__).parents[2]
PACKAGES = sorted((ROOT / "ros2_ws" / "src").glob("*/package.xml"))
ENV = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'ros2_ws/src/temporeal_bridge'}"}
EMAIL = re.compile(r"[-a-zA-Z0-9_%+]+(\.[-a-zA-Z0-9_%+]+)*@[-a-zA-Z0-9%]+(\.[-a-zA-Z0-9%]+)*\.[a-zA-Z]{2,}")


@pytest.mark.parametrize("path", PACKAGES, ids=lambda p: p.parent.name)
def test_package_xml(path):
    """With an invalid e-mail address colcon would treat it as plain Python, and ROS would not find it."""
    root = ET.parse(path).getroot()
    assert root.findtext("name") == path.parent.name
    assert EMAIL.fullmatch(root.find("maintainer").attrib["email"])
    assert root.findtext("export/build_type") == "ament_python"
    assert re.fullmatch(r"\d+\.\d+\.\d+", root.findtext("version"))
    setup = (path.parent / "setup.py").read_text()
    assert f'version="{root.findtext("version")}"' in setup and f'NAME = "{path.parent.name}"' in setup
    assert (path.parent / "resource" / path.parent.name).is_file()
    assert f"$base/lib/{path.parent.name}" in (path.parent / "setup.cfg").read_text()


def test_both_packages_are_there():
    assert [p.parent.name for p in PACKAGES] == ["temporeal_bridge", "temporeal_bringup"]


def colcon(*arguments: str, cwd: Path, home: Path) -> str:
    """What colcon says: the one of this environment, else of the shell. The user's own settings are not looked at."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which("colcon", path=beside)
    assert found is not None, "colcon is not installed: make install, or pip install -c constraints.txt '.[dev]'"
    done = subprocess.run([found, "--log-base", os.devnull, *arguments], cwd=cwd, capture_output=True, text=True,
                          env={**os.environ, "COLCON_HOME": str(home), "PYTHONPATH": str(ROOT / "src")}, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_colcon_sees_ament_python(tmp_path):
    out = colcon("list", cwd=ROOT / "ros2_ws", home=tmp_path)
    assert {tuple(line.split()[::2]) for line in out.splitlines()} == {
        ("temporeal_bridge", "(ros.ament_python)"), ("temporeal_bringup", "(ros.ament_python)")}


@pytest.mark.slow
def test_colcon_builds_the_workspace(tmp_path):
    """A copy, as nothing may be left here. What it installs is where `ros2 run` and `ros2 launch` look, and runs."""
    for folder in ("ros2_ws/src", "launch"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    workspace = tmp_path / "ros2_ws"
    colcon("build", "--event-handlers", "desktop_notification-", cwd=workspace, home=tmp_path / "home")
    installed = workspace / "install" / "temporeal_bridge"
    for row in ("share/temporeal_bringup/launch/quadrotor.launch.py",
                "share/ament_index/resource_index/packages/temporeal_bringup"):
        assert (workspace / "install" / "temporeal_bringup" / row).is_file()

    def sourced(command: str) -> str:
        done = subprocess.run(["bash", "-c", f". install/setup.bash && {command}"], cwd=workspace, text=True,
                              capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "usage: guard_node" in sourced(f"{installed}/lib/temporeal_bridge/guard_node --help")
    where = sourced(f"{sys.executable} -c 'from temporeal_bridge import guard_node; print(guard_node.__file__)'")
    assert installed in Path(where.strip()).parents


@pytest.mark.parametrize("path", sorted((ROOT / "launch").glob("*.launch.py")), ids=lambda p: p.name)
def test_launch_files_compile_and_ship(path, tmp_path):
    py_compile.compile(str(path), cfile=str(tmp_path / "out.pyc"), doraise=True)
    assert (ROOT / "ros2_ws/src/temporeal_bringup/launch" / path.name).read_text() == path.read_text()
    for executable in re.findall(r'node\("(\w+)"', path.read_text()):
        assert (ROOT / "ros2_ws/src/temporeal_bridge/temporeal_bridge" / f"{executable}.py").exists()


def test_launch_is_no_python_package():
    """An __init__.py here would hide ROS 2's own `launch`."""
    assert not (ROOT / "launch" / "__init__.py").exists()


def run(*arguments: str, code: int = 0) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=ENV, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_no_torch_on_the_robot():
    """Every module of the bridge but those that simulate, in a process of its own."""
    out = run("-c", """
import importlib, pkgutil, sys
import temporeal_bridge as bridge

found = [module.name for module in pkgutil.walk_packages(bridge.__path__, "temporeal_bridge.")]
for name in found:
    if not name.endswith(("rclpy_transport", "rclpy_actions", "plants", "camera_sim")):
        importlib.import_module(name)
heavy = {'torch', 'mujoco', 'numba', 'temporeal.sim.backends', 'temporeal.policies'}
print(len(found) > 60, sorted(heavy & set(sys.modules)))
""")
    assert out.strip() == "True []"


WITHOUT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "mujoco", "numba"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
from temporeal.policies.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("words", "code", "told"), [
    (("monitor", "{}", "--wait", "0.5"), 2, "no message on"),
    (("doctor", "--artifact", "{}", "--seconds", "0.5"), 1, "recorded commands")],
    ids=["monitor", "doctor"])
def test_verbs_of_the_robot_load_a_trained_artifact_without_torch(words, code, told, tmp_path):
    """Its task's signals are the artifact's own word: to make the task again takes what a robot does not have."""
    from temporeal_bridge.transports.dds import free_domain

    artifact = write_artifact(tmp_path / "artifact", training={"task": {"name": "waypoints"}})
    bus = f"deploy.domain={free_domain()}", "deploy.loopback=true"
    assert told in run("-c", WITHOUT, *(word.format(artifact) for word in words), *bus, code=code)


@pytest.mark.parametrize("verb", [pytest.param("train", marks=pytest.mark.slow), "eval"])
def test_a_verb_that_needs_a_package_says_which(tmp_path, verb):
    artifact = write_artifact(tmp_path / "artifact", training=compose(["task=waypoints"]))
    told = run("-c", WITHOUT, verb, *([str(artifact)] if verb == "eval" else []), code=2)
    assert re.search("temporeal: the package (torch|numba|mujoco) is not installed; `temporeal doctor` says how", told)


def test_errors_of_a_node_are_one_line_and_status_2(tmp_path):
    out = run("-m", "temporeal_bridge.monitor_node", "--artifact", str(tmp_path), "--transport", "dds", "--loopback",
              "--domain", "300", code=2)
    assert out.strip().splitlines() == [
        "monitor_node: error: domain is '300'; a DDS domain is a whole number from 0 to 232"]


@pytest.mark.slow
def test_an_artifact_that_is_none_is_named(tmp_path):
    from temporeal_bridge.transports.dds import free_domain

    out = run("-m", "temporeal_bridge.policy_node", "--artifact", str(tmp_path), "--transport", "dds", "--loopback",
              "--domain", str(free_domain()), code=2)
    assert "is not an artifact" in out and str(tmp_path) in out


def test_ros_arguments(tmp_path):
    own, ros = ros_arguments.split(
        ["--a", "1", "--ros-args", "-r", "odom:=/mocap/odom", "-r", "__ns:=/cf2", "-r", "__node:=pilot",
         "-p", "seed:=3", "--", "--b"])
    assert own == ["--a", "1", "--b"]
    parsed = ros_arguments.parse(ros)
    assert (parsed.node, parsed.namespace, parsed.remaps) == ("pilot", "/cf2", (("odom", "/mocap/odom"),))
    file = tmp_path / "p.yaml"
    file.write_text("/**:\n  ros__parameters:\n    peer_timeout: 2.5\n    start: true\n    use_sim_time: false\n")
    parameters = {**parsed.parameters, **ros_arguments.parse(["--params-file", str(file)]).parameters}
    legal = ["--seed", "--peer-timeout", "--start"]
    assert ros_arguments.as_options(parameters, legal) == ["--seed=3", "--peer-timeout=2.5", "--start"]
    ros_arguments.misspelt(parameters, legal)  # use_sim_time is ROS's own
    with pytest.raises(ValueError, match="-p trsut:=.* no such parameter; did you mean trust:="):
        ros_arguments.misspelt({"trsut": "key.pem"}, [*legal, "--trust"])


@pytest.mark.parametrize("bad", [["-r", "odom"], ["-r"], ["-p", ":=3"], ["-p", "a:=["],
                                 ["--params-file", "/nowhere.yaml"]])
def test_bad_ros_arguments(bad):
    with pytest.raises(ValueError, match=r"--ros-args|--params-file"):
        ros_arguments.parse(bad)


@pytest.mark.parametrize("text", ["[1]", "a: 1", "a: {ros__parameters: null}", "a: {ros__parameters: [1]}",
                                  "a: {ros__parameters: {1: 2}}", "a: {ros__parameters: {}, b: 3}", '"'])
def test_a_file_of_parameters_that_is_none(text, tmp_path):
    file = tmp_path / "params.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=f"--params-file {file}: "):
        ros_arguments.read_parameters(file)
