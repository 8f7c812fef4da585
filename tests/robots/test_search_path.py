"""Folders of the user's own: robots, tasks and algorithms found by name."""

from __future__ import annotations

import os

import pytest

from temporeal.robots import registry
from temporeal.robots.registry import UnknownName, names, resolve
from temporeal.robots.search_path import VARIABLE, SearchPathError, own_configs
from temporeal.robots.spec import load_robot, robot_names

ARM = """<mujoco><worldbody><body><joint name="elbow" range="-1 1"/><geom size="0.1"/></body></worldbody></mujoco>"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Two folders of the user's own, with a robot each, a task, an algorithm and a configuration."""
    for folder in ("one/robots/my_arm", "two/my_rover"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "model.xml").write_text(ARM)
        (tmp_path / folder / "spec.yaml").write_text("model: model.xml\nkind: arm\n")
    for file, text in (("one/tasks/dance.py", "def make(): return 'danced'"), ("one/algos/guess.py", "x = 1"),
                       ("two/configs/task/dance.yaml", "name: dance")):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    monkeypatch.setenv(VARIABLE, os.pathsep.join(str(tmp_path / folder) for folder in ("one", "two")))
    return tmp_path


def test_robots_are_found_by_name_and_by_path(mine):
    assert {"my_arm", "my_rover", "franka"} <= set(robot_names())
    robot = load_robot("my_arm")
    assert robot.name == "my_arm" and robot.model == mine / "one/robots/my_arm/model.xml"
    by_path = load_robot(mine / "two" / "my_rover")
    assert by_path.name == str(mine / "two" / "my_rover") and by_path.home == robot.home


def test_modules_are_found_by_name_and_run_once(mine):
    assert "dance" in names("temporeal.sim.tasks") and "guess" in names("temporeal.policies.algos")
    task = resolve("temporeal.sim.tasks", "dance")
    assert task.make() == "danced" and task is resolve("temporeal.sim.tasks", "dance")
    assert "dance" not in names("temporeal.robots")
    assert own_configs() == [mine / "two" / "configs"]


def test_a_name_that_is_not_found_says_what_the_variable_is(mine, monkeypatch):
    with pytest.raises(UnknownName, match="no robot 'other'; known: .*franka.*my_arm.*TEMPOREAL_PATH.*now .*two"):
        load_robot("other")
    with pytest.raises(UnknownName, match="no 'jump'; known: .*dance.*TEMPOREAL_PATH"):
        resolve("temporeal.sim.tasks", "jump")
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(UnknownName, match="TEMPOREAL_PATH are found by name .now not set"):
        load_robot("my_arm")


def test_names_that_are_taken_and_folders_that_are_not_there(mine, monkeypatch):
    (mine / "two" / "tasks").mkdir()
    (mine / "two" / "tasks" / "hover.py").write_text("")
    with pytest.raises(SearchPathError, match="hover.py: temporeal.sim.tasks has 'hover' itself"):
        resolve("temporeal.sim.tasks", "hover")
    (mine / "two" / "tasks" / "hover.py").rename(mine / "two" / "tasks" / "dance.py")
    with pytest.raises(SearchPathError, match="two have the name 'dance'.*rename"):
        names("temporeal.sim.tasks")
    (mine / "one" / "franka").mkdir()
    (mine / "one" / "franka" / "spec.yaml").write_text("")
    with pytest.raises(SearchPathError, match="franka.*has a robot 'franka' itself"):
        robot_names()
    monkeypatch.setenv(VARIABLE, str(mine / "three"))
    with pytest.raises(SearchPathError, match="TEMPOREAL_PATH: there is no folder .*three"):
        load_robot("franka_2")


def test_a_file_that_fails_is_not_kept(mine):
    (mine / "one" / "tasks" / "broken.py").write_text("1 / 0")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            resolve("temporeal.sim.tasks", "broken")
    assert registry.own("temporeal.sim.tasks")["broken"].name == "broken.py"


def test_tasks_and_settings_are_found_by_name_on_the_command_line(mine, tmp_path, monkeypatch):
    from temporeal.policies.runs.environments import make_task
    from temporeal.policies.runs.errors import BadInput
    from temporeal.policies.runs.settings.compose import compose

    (mine / "one" / "tasks" / "rest.py").write_text(
        "from temporeal.sim.tasks import hover\ndef make(**settings):\n    return hover.make(**settings)\n")
    (mine / "two" / "configs" / "task" / "dance.yaml").unlink()
    (mine / "two" / "configs" / "randomize").mkdir()
    (mine / "two" / "configs" / "randomize" / "lab.yaml").write_text("name: lab\nparameters: {}\n")
    settings = compose(["task=rest", "randomize=lab"])
    assert settings["task"]["name"] == "rest.py" and settings["randomize"]["name"] == "lab"
    assert make_task(settings).name == "hover"
    with pytest.raises(BadInput, match="task=nap: task is one of .*TEMPOREAL_PATH, now .*two"):
        compose(["task=nap"])
