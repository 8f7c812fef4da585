"""Settings of a run, an artifact or a counterexample name no program, class, variable or file: those are the user's."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings import files
from temporeal.policies.runs.settings.handed_over import PROGRAMS, checked, described_by

SETTINGS: dict[str, Any] = {
    "robot": {"name": "crazyflie"}, "task": {"name": "hover", "settings": {"history": 2}},
    "backend": {"name": "isaacgym", "python": None, "spacing": 2.0}, "algo": {"name": "ppo", "actor_hidden": [64, 64]},
    "randomize": {"name": "none", "parameters": {}}, "seed": 1, "num_worlds": 64, "device": "cpu", "out": None}


def changed(**places: Any) -> dict[str, Any]:
    """The settings with values at places such as ``task__name``."""
    out = copy.deepcopy(SETTINGS)
    for place, value in places.items():
        *path, last = place.split("__")
        node = out
        for part in path:
            node = node[part]
        node[last] = value
    return out


def test_what_a_training_wrote_is_taken_as_it_is(tmp_path: Path) -> None:
    files.write(SETTINGS, tmp_path / "config.yaml")
    assert files.read(tmp_path / "config.yaml") == SETTINGS


@pytest.mark.parametrize("text", ["${oc.env:HOME}", "a ${oc.env:HOME} b", "${oc.decode:1}", "${seed}", "???"])
def test_saved_settings_read_no_variable(text: str) -> None:
    """OmegaConf would put the value of a variable of the environment there, for whoever reads the report."""
    with pytest.raises(BadInput, match="reads no variables and no other settings") as error:
        checked(changed(task__settings={"formula": text}), "run")
    assert os.environ["HOME"] not in str(error.value)


@pytest.mark.parametrize("key", ["_target_", "_partial_", "_args_"])
def test_saved_settings_name_no_class(key: str) -> None:
    with pytest.raises(BadInput, match=rf"task\.settings\.{key} names a class or a function"):
        checked(changed(task__settings={key: "os.system"}), "run")


def test_saved_settings_start_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is left out, and that is said; the one that the user's own environment names is started."""
    from temporeal.sim.physics.isaac import gym_process

    program = tmp_path / "program"
    program.write_text("#!/bin/sh\ntouch $0-was-run\n")
    program.chmod(0o755)
    with pytest.warns(UserWarning, match="run: its setting backend.python, .* names a program and is left out"):
        taken = checked(changed(backend__python=str(program)), "run")
    assert taken["backend"]["python"] is None
    monkeypatch.delenv(gym_process.PYTHON, raising=False)
    with pytest.raises(gym_process.IsaacGymError, match="give python=..., or set TEMPOREAL_ISAACGYM_PYTHON"):
        gym_process.interpreter(taken["backend"]["python"])
    monkeypatch.setenv(gym_process.PYTHON, str(program))
    assert gym_process.interpreter(taken["backend"]["python"]) == str(program)
    assert not Path(f"{program}-was-run").exists()


def test_every_setting_that_names_a_program_is_known() -> None:
    """Of all settings of the package, those whose names say so are in the list."""
    from temporeal.policies.runs.settings.compose import compose
    from temporeal.policies.runs.settings.folders import groups

    found = {f"backend.{key}" for option in groups()["backend"] if option != "auto"
             for key in compose(["task=reach", f"backend={option}"])["backend"]
             if any(word in key for word in ("python", "program", "command", "binary", "executable", "interpreter"))}
    assert found == set(PROGRAMS)


def test_residual_dynamics_of_settings_that_were_handed_over_are_not_loaded() -> None:
    """A run's settings name a file of whoever trained it."""
    given = changed(backend={"name": "quadrotor", "residual_dynamics": "/theirs/residual.yaml"})
    with pytest.warns(UserWarning, match="give backend.residual_dynamics=... yourself"):
        found = checked(given, "run")
    assert found["backend"] == {"name": "quadrotor", "residual_dynamics": ""}


@pytest.mark.parametrize(("change", "named"), [
    ({"task": 5}, "task is 5; legal: a group of settings"), ({"task__name": ["a"]}, "task.name is"),
    ({"seed": "1"}, "seed is '1'; legal: a whole number"), ({"num_worlds": True}, "num_worlds is True"),
    ({"device": 0}, "device is 0; legal: a word"), ({"randomize__parameters": [1]}, r"randomize.parameters is \[1\]"),
    ({"task__settings": {1: 2}}, "below task.settings the key 1 is no word"), ({"out": b"x"}, "out is of type bytes")])
def test_values_are_of_the_kinds_that_their_readers_expect(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        checked(changed(**change), "run")


def test_settings_are_not_nested_without_end() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = {"a": deep}
    with pytest.raises(BadInput, match="nested more than 32 deep"):
        checked(changed(task__settings=deep), "run")
    with pytest.raises(BadInput, match="more than 20,000 values"):
        checked(changed(task__settings={"a": [0] * 20_001}), "run")


def test_a_task_that_cannot_be_made_of_them_is_bad_input() -> None:
    with pytest.raises(BadInput, match="run: its settings make no task that can be run: TypeError: no"), (
            described_by("run")):
        raise TypeError("no")
    with pytest.raises(AssertionError), described_by("run"):
        raise AssertionError  # ours


def test_a_run_is_not_signed(tmp_path: Path) -> None:
    from temporeal.policies.runs.trained import load_trained

    files.write(SETTINGS, tmp_path / "config.yaml")
    with pytest.raises(BadInput, match="only artifacts are signed"):
        load_trained(tmp_path, tmp_path / "key.pem.pub")


def test_a_task_of_the_users_runs_only_where_the_user_names_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run says which file its task was; that a file of this name lies about does not run it."""
    from temporeal.policies.runs.environments import make_task

    (tmp_path / "theirs.py").write_text(f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n")
    monkeypatch.chdir(tmp_path)
    for name in ("theirs.py", str(tmp_path / "theirs.py"), "../theirs.py", "theirs", "os.path"):
        with pytest.raises(BadInput, match="runs only where you name it|has no"):
            make_task(checked(changed(task={"name": name}), "run"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("task", [
    {"name": "stl", "settings": {"system": "/etc/robot"}}, {"name": "reach", "robot": "../../elsewhere"},
    {"name": "reach", "settings": {"robot": "/etc/robot"}}])
def test_settings_name_no_robot_elsewhere(task):
    with pytest.raises(BadInput, match="leads neither below the working directory nor to a folder of yours"):
        checked({"task": task}, "run")
