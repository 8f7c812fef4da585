"""Settings: every option composes; bad words are refused with the legal choices named."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.examples import thinned

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.learners import module_of
from temporeal.policies.runs.settings import compose as compose_module
from temporeal.policies.runs.settings.compose import compose, of_group, override, section
from temporeal.policies.runs.settings.files import read, write
from temporeal.policies.runs.settings.folders import groups
from temporeal.policies.runs.settings.overrides import DOTTED, Opened, open_word
from temporeal.policies.runs.settings.tasks import AUTO, AUTOMATIC, WORLDS
from temporeal.policies.runs.settings.values import same_kind
from temporeal.robots.registry import names, resolve
from temporeal.robots.spec import robot_names
from temporeal.sim.task_files import FOREIGN, settings_of

OPTIONS = [(group, option) for group, options in groups().items() for option in options]
# of the many files of one task the first; tests/sim/tasks/test_stl.py reads all
TASKS = list({task.partition("/")[0]: task for task in reversed(groups()["task"])}.values())


def test_every_group_has_options() -> None:
    assert set(groups()) == {
        "robot", "task", "backend", "algo", "randomize", "curriculum", "experiment", "deploy"}
    assert all(groups().values())


# sizes and starts of one learner: files of settings with its name
VARIANTS = {"vla_small": "vla", "vla_base": "vla", "vla_few_shot": "vla", "rlpd": "sac",
            "resfit": "td3", "resfit_robot": "td3", "resip": "ppo"}
FIRST_AND_LAST = {(group, option) for group, options in groups().items() for option in (*options[:2], options[-1])}


@pytest.mark.parametrize(("group", "option"), thinned(
    [x for x in OPTIONS if x[1] != AUTO and x[0] != "robot"], keep=lambda choice: choice in FIRST_AND_LAST))
@pytest.mark.slow
def test_every_option_composes(group: str, option: str) -> None:
    settings = compose([f"{group}={option}"])
    chosen = settings[group] if group == "experiment" else settings[group]["name"]
    assert chosen == VARIANTS.get(option, option.partition("/")[0])


@pytest.mark.parametrize("task", thinned([task for task in TASKS if task not in FOREIGN],  # those bring their own robot
                                         keep=["hover", "reach", "stl/ant_choice"]))
def test_a_task_names_its_robot_backend_and_randomization(task: str) -> None:
    settings = compose([f"task={task}"])
    for group in AUTOMATIC:
        assert settings[group]["name"] == settings["task"][group] != AUTO
        assert compose([f"task={task}", f"{group}={AUTO}"])[group] == settings[group]
    assert compose([f"task={task}", f"robot={settings['task']['robot']}"]) == settings
    if {"robot", "system"} & set(settings_of(settings["task"]["name"])):
        return  # it takes any of a kind
    others = [robot for robot in robot_names() if robot != settings["task"]["robot"]]
    robot = others[TASKS.index(task) % len(others)]  # each in its turn
    with pytest.raises(BadInput, match=f"task {settings['task']['name']} is for robot {settings['task']['robot']}"):
        compose([f"task={task}", f"robot={robot}"])


@pytest.mark.slow
def test_choices_exist_as_modules() -> None:
    assert set(groups()["robot"]) - {AUTO} == set(robot_names())
    assert {task.partition("/")[0] for task in groups()["task"]} == {*names("temporeal.sim.tasks"), *FOREIGN}
    for algo in groups()["algo"]:
        module = module_of(VARIANTS.get(algo, algo))
        assert hasattr(module, "train") or hasattr(module, "plan")  # a planner learns nothing
    for backend in set(groups()["backend"]) - {AUTO}:
        assert hasattr(resolve("temporeal.sim.backends", backend), "make")


def test_what_is_composed_belongs_to_who_asked() -> None:
    """Hydra's work is kept; what somebody does to the settings is not."""
    first = compose(["task=waypoints"])
    first["task"]["settings"]["formula"], first["algo"]["actor_hidden"][0] = "spoilt", -1
    again = compose(["task=waypoints"])
    assert again["task"]["settings"].get("formula") != "spoilt" and again["algo"]["actor_hidden"][0] > 0


def test_overrides_take_effect() -> None:
    settings = compose(["task=hover", "seed=7", "device=cuda"])
    assert settings["task"]["name"] == "hover"
    assert (settings["seed"], settings["device"]) == (7, "cuda")
    assert compose()["seed"] == 1


def test_open_places_take_new_keys() -> None:
    settings = compose(["task.settings.slack=0.05", "randomize.parameters.wind_w={kind:normal,std:1.5}"])
    assert settings["task"]["settings"] == {"slack": 0.05}
    assert settings["randomize"]["parameters"]["wind_w"] == {"kind": "normal", "std": 1.5}


CUBE = {"kind": "scale", "low": 0.5, "high": 2}


@pytest.mark.parametrize("name", [
    "cube.mass", '"cube.mass"', "'cube.mass'", "*.mass", '"*.mass"', "left finger.com", "camera.wrist.turn"])
@pytest.mark.parametrize("place", ["randomize.parameters", "randomize.appearance", "curriculum.parameters"])
def test_names_with_dots_are_one_name(name: str, place: str) -> None:
    bare, last = name.strip("\"'"), DOTTED[place][0]
    assert open_word(f"{place}.{name}={{low: 1}}") == Opened(f"{place}.{name}={{low: 1}}", (*place.split("."), bare),
                                                           {"low": 1})
    word = open_word(f"{place}.{name}.{last}.a.b=2")
    assert word is not None and word.path == (*place.split("."), bare, last, "a", "b") and word.value == 2


def test_saved_settings_take_names_with_dots() -> None:
    words = ["randomize.parameters.cube.mass={kind: scale, low: 0.5, high: 3}", "randomize.parameters.cube.mass.high=2"]
    saved = compose(["task=lift", "randomize=arm"])
    changed = override(saved, words)
    assert changed["randomize"]["parameters"] == {**saved["randomize"]["parameters"], "cube.mass": CUBE}
    assert changed == compose(["task=lift", "randomize=arm", *words])


def test_what_a_named_distribution_has_is_set_below_its_name() -> None:
    words = ["randomize=arm", "randomize.parameters.cube.mass={kind: scale, low: 0.5, high: 2}",
             "randomize.parameters.*.com.low=-0.02", "randomize.parameters.gravity_w.components.2={kind: constant}",
             "randomize.parameters.force_w.when={every_s: [1, 2]}", "randomize.parameters.mass=null",
             'randomize.parameters."weights.low".kind=sources', "randomize.sensors.groups.camera.delay_steps=[0,3]"]
    found = compose(words)["randomize"]
    parameters = found["parameters"]
    assert parameters["cube.mass"] == CUBE and parameters["mass"] is None
    assert parameters["*.com"] == {"kind": "add", "low": -0.02, "high": 0.01, "optional": True}
    assert parameters["gravity_w"] == {"components": {"2": {"kind": "constant"}}}
    assert parameters["force_w"] == {"when": {"every_s": [1, 2]}} and parameters["weights.low"] == {"kind": "sources"}
    assert found["sensors"]["groups"]["camera"]["delay_steps"] == [0, 3]
    assert found["sensors"]["groups"]["camera"]["optional"] is True


def test_the_keys_that_end_a_name_are_those_of_what_is_named() -> None:
    from temporeal.sim.curriculum.dimensions import KEYS
    from temporeal.sim.randomization.distributions import COMMON, TAKES

    assert set(DOTTED["randomize.parameters"]) == {*COMMON, *(key for keys in TAKES.values() for key in keys)}
    assert DOTTED["randomize.appearance"] == DOTTED["randomize.parameters"]
    assert set(DOTTED["curriculum.parameters"]) == set(KEYS)


def own_files(folder: Path, **texts: str) -> None:
    for place, text in texts.items():
        path = folder / place.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".yaml").write_text(text)


def test_a_folder_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "my, 'own' files", tmp_path / "others"
    own_files(first, randomize__lab="defaults: [arm]\nparameters:\n  cube.mass: {kind: scale, low: 0.5, high: 2}\n",
              experiment__mine="# @package _global_\ndefaults:\n  - override /task: lift\n"
                               "  - override /randomize: lab\nnum_worlds: 3\n")
    own_files(second, backend__big="name: mujoco_warp\ncontacts: 90\n")
    monkeypatch.setenv("TEMPOREAL_CONFIGS", f"{first}{os.pathsep}{second}")
    assert {"lab", "arm"} <= set(groups()["randomize"]) and "big" in groups()["backend"]
    settings = compose(["experiment=mine", "backend=big"])
    assert settings["randomize"]["parameters"]["cube.mass"] == CUBE and settings["randomize"]["name"] == "lab"
    assert settings["randomize"]["sensors"] == compose(["randomize=arm"])["randomize"]["sensors"]
    assert (settings["task"]["name"], settings["num_worlds"]) == ("lift", 3)
    assert settings["backend"] == {"name": "mujoco_warp", "contacts": 90}
    assert override(compose(), ["randomize=lab"])["randomize"] == settings["randomize"]


def test_as_many_worlds_as_the_task_s_file_names_unless_somebody_says_it() -> None:
    assert compose()["num_worlds"] == WORLDS == 2048
    assert compose(["task=stl/ant_reach"])["num_worlds"] == 128
    assert compose(["task=stl/ant_reach", "num_worlds=7"])["num_worlds"] == 7
    assert compose(["task=stl/quadrotor_seq"])["num_worlds"] == 768
    assert compose(["experiment=reach"])["num_worlds"] == 256
    assert compose(["experiment=reach", "num_worlds=auto"])["num_worlds"] == 2048
    assert compose(["experiment=smoke", "task=stl/ant_reach", "num_worlds=auto"])["num_worlds"] == 128
    # what suits a task is not a setting of it: runs of before go on though their file says more now
    assert "num_worlds" not in compose(["task=stl/ant_reach"])["task"]
    assert "num_worlds" not in override(compose(), ["task=stl/ant_reach"])["task"]
    with pytest.raises(BadInput, match=r"task has no setting 'num_worlds'"):
        compose(["task=stl/ant_reach", "task.num_worlds=64"])


@pytest.mark.parametrize("value", ["0", "-5", "1.5", "true", "lots", "null", "'1,2'", "'{x'"])
def test_a_task_s_file_says_a_whole_number_of_worlds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    own_files(tmp_path, task__mine="name: hover\nrobot: crazyflie\nbackend: quadrotor\nrandomize: none\n"
                                   f"settings: {{}}\nmid_episode_starts: 0.0\nnum_worlds: {value}\n")
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path))
    with pytest.raises(BadInput, match="the file of task 'hover' says num_worlds: .*; a whole number from 1"):
        compose(["task=mine"])


@pytest.mark.parametrize(("files", "told"), [
    ({"randomize__arm": ""}, ["arm.yaml", "randomize=arm already exists", "another name"]),
    ({"randomise__lab": ""}, ["no group 'randomise'", "did you mean 'randomize'?", "groups: algo"]),
    ({"lab": ""}, ["lab.yaml", "in the folder of its group"]), ({}, ["no folder", "nowhere"])])
def test_what_would_be_left_out_of_a_folder_is_told(
    files: dict[str, str], told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_files(tmp_path, **files)
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path if files else tmp_path / "nowhere"))
    with pytest.raises(BadInput) as error:
        compose(["task=hover"])
    for part in told:
        assert part in str(error.value)


def commands(text: str) -> list[list[str]]:
    """The words of each ``temporeal train`` in ``text``, be it in comments or in a block."""
    plain = re.sub(r"(?m)^# ?", "", text).replace("\\\n", " ")
    return [shlex.split(line)[2:] for line in plain.splitlines() if line.strip().startswith("temporeal train ")]


ROOT = Path(__file__).parents[3]
EXAMPLES = {f"{path.stem}-{i}": words
            for path in (*sorted((ROOT / "configs").rglob("*.yaml")), ROOT / "docs/how-to/curricula.md",
                         ROOT / "docs/how-to/randomization.md")
            for i, words in enumerate(commands(path.read_text()))}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.slow
def test_examples_of_the_files_run(name: str) -> None:
    from temporeal.policies.runs.environments import make_env

    env = make_env(compose(EXAMPLES[name]), num_worlds=2, training=True, compiled=False)
    assert env.num_worlds == 2


def test_there_is_an_example_of_each_curriculum() -> None:
    assert {f"{kind}-0" for kind in groups()["curriculum"] if kind != "none"} <= set(EXAMPLES)


def test_room_and_the_like_of_a_backend_are_set() -> None:
    warp = compose(["task=reach", "backend=mujoco_warp", "backend.contacts=60", "backend.deterministic=true"])
    assert warp["backend"] == {"name": "mujoco_warp", "contacts": 60, "constraints": 0, "deterministic": True,
                               "integrator": "auto"}


@pytest.mark.parametrize("backend", sorted(set(groups()["backend"]) - {AUTO}))
def test_settings_of_backends_are_those_of_their_make_with_its_defaults(backend: str) -> None:
    from temporeal.policies.runs.environments import EVERY_BACKEND

    make = inspect.signature(resolve("temporeal.sim.backends", backend).make).parameters
    legal = {name: p.default for name, p in make.items() if name not in EVERY_BACKEND}
    assert of_group(compose(["task=hover", f"backend={backend}"]), "backend") == legal


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("task=hoover", ["task is one of", "hover, ", "did you mean 'hover'?"]),
        ("backnd=mujoco", ["no setting 'backnd'", "legal:", "did you mean 'backend'?"]),
        ("task.settings={slack: 0.05}", ["set what is below task.settings", "task.settings.<name>=<value>"]),
        ("seed.value=1", ["seed has no setting 'value'", "single value"]),
        ("deploy.tranport=dds", ["deploy has no setting 'tranport'", "did you mean 'transport'?"]),
        ("seed=one", ["expected a whole number as in seed=1", "got a word"]),
        ("seed=1.5", ["expected a whole number", "got a number"]),
        ("task.name=hover", ["choose with task=hover"]),
        ("seed=1,2", ["sweep", "key=[1,2]"]),
        ("+colour=red", ["not added or deleted"]),
        ("~seed", ["not added or deleted"]),
        ("randomize.parameters.mass=1,2", ["sweep", "key=[1,2]"]),
        ("randomize.parameters.mass={kind", ["is not a setting"]),
        ("randomize.parameters.cube..mass=1", ["cube..mass is not a name", "randomize.parameters.<name>=<value>"]),
        ('randomize.parameters."cube.mass=1', ["is not a name"]),
        ("hover", ["'hover' is not a setting", "task=hover"]),
        ("experiment=none", ["experiment is one of"]),
    ],
)
def test_bad_words_are_refused(word: str, told: list[str]) -> None:
    with pytest.raises(BadInput) as error:
        compose([word])
    for part in told:
        assert part in str(error.value)


FORMULAS = ["G[0,3] (grip_pos_w.z > floor)", "grip_pos_w.z > floor", "max(1,2)", "a,b", 'F[0,1] ("my signal" > 1)',
            "it's [odd]", "ends(with\\"]


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("key", ["task.settings.formula", "task.formula"])
def test_a_text_that_the_grammar_refuses_is_told_as_it_is_typed(key: str, text: str) -> None:
    """What is told is pasted into a shell, and is then what was meant."""
    with pytest.raises(BadInput) as error:
        compose(["task=reach", f"{key}={text}"])
    typed = re.split("for the shell: write |for a text ", str(error.value))[-1]
    shell = subprocess.run(["/bin/sh", "-c", f"printf %s {typed}"], capture_output=True, text=True, check=True)
    assert compose(["task=reach", shell.stdout])["task"]["settings"] == {"formula": text}


@pytest.mark.parametrize(("word", "told"), [
    ("task.settings.constants.center=[0,1", "a list as task.settings.constants.center=[1,2]"),
    ("out='a", "close the quote, out='...'"), ("a b=f[1]", "write key=value, as in task=hover"),
    ("=f[1]", "write key=value"),
    ("task.formula='height > 0'", "below task.settings: task.settings.formula=<value>"),
])
def test_a_word_that_quotes_do_not_mend_is_told_what_does(word: str, told: str) -> None:
    with pytest.raises(BadInput) as error:
        compose([word])
    assert told in str(error.value) and "for the shell" not in str(error.value)


@pytest.mark.parametrize("words,told", [
    (["task=reach", "robot=nobody"], "no robot 'nobody'; known: "),
    (["task=ant", "robot=shadow_hand"], "task ant is for robot ant; leave robot out"),
    (["task=reach", "robot.name=franka"], "choose with robot=franka"),
])
def test_a_robot_that_a_run_cannot_be_for_is_refused(words: list[str], told: str) -> None:
    with pytest.raises(BadInput) as error:
        compose(words)
    assert told in str(error.value)


def test_the_robot_that_is_named_reaches_the_task() -> None:
    settings = compose(["task=stl/linear_reach", "robot=franka"])
    assert settings["robot"] == {"name": "franka"} and settings["task"]["settings"]["system"] == "franka"


def test_a_task_may_be_for_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """``robot: models/arm.xml`` in ``configs/task/<name>.yaml``."""
    composed = compose_module._compose
    monkeypatch.setattr(compose_module, "_compose", lambda *words: (
        lambda found: {**found, "task": {**found["task"], "robot": "models/arm.xml"}})(composed(*words)))
    assert compose(["task=ant"])["robot"] == {"name": "models/arm.xml"}
    with pytest.raises(BadInput, match="task ant is for robot models/arm.xml"):
        compose(["task=ant", "robot=franka"])


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [(1, 2, True), (1, 2.0, False), (1.0, 2, True), (True, 1, False), (1, True, False), (None, "x", True),
     ("x", None, True), ([1], [2, 3], True), ([1], 2, False), ("cpu", "cuda", True), ("cpu", 3, False),
     ({}, {"a": 1}, True), ({}, 1, False)],
)
def test_same_kind(old: object, new: object, fits: bool) -> None:
    assert same_kind(old, new) is fits


def test_write_and_read_are_inverse(tmp_path: Path) -> None:
    settings = compose(["task=hover"])
    write(settings, tmp_path / "config.yaml")
    assert read(tmp_path / "config.yaml") == settings


def test_unreadable_settings_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a: [1")
    with pytest.raises(BadInput, match=r"config\.yaml"):
        read(tmp_path / "config.yaml")


@pytest.mark.parametrize("domain", ["42", "", "rubbish"])
def test_domain_is_left_to_the_nodes(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They read ROS_DOMAIN_ID as ROS does (empty is 0); a training never fails over it."""
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    assert compose()["deploy"]["domain"] is None
    assert compose(["deploy.domain=5"])["deploy"]["domain"] == 5


@pytest.mark.parametrize("word", ["out=here", "task=hover", "algo.learning_rate=0.1"])
def test_a_section_refuses_what_it_would_ignore(word: str) -> None:
    """``temporeal deploy ARTIFACT out=here`` wrote to outputs/deploy all the same."""
    assert section("deploy", ["deploy=rclpy", "deploy.domain=5"])["domain"] == 5
    key = re.escape(word.partition("=")[0])
    with pytest.raises(BadInput, match=rf"of the settings only those of 'deploy' are read here.* --{key}"):
        section("deploy", [word])


def test_an_application_may_use_hydra_itself() -> None:
    """Composing inside a program that has initialized Hydra for its own configuration leaves that in place."""
    code = """
from hydra import initialize_config_module, compose
from temporeal.policies.runs.settings.compose import compose as compose_settings
with initialize_config_module("temporeal.configs.task", version_base="1.3"):
    compose_settings()
    print(compose("hover").name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ})
    assert done.stdout.strip() == "hover", done.stderr


def test_the_composed_settings_are_printed_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    from temporeal.policies.cli.main import main

    assert main(["train", "--config", "task=hover", "--out", "x"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == {**compose(["task=hover"]), "out": "x"}
    assert main(["train", "--config", "--json", "task=hover"]) == 0
    assert json.loads(capsys.readouterr().out) == compose(["task=hover"])


@pytest.mark.parametrize(("text", "line", "told"), [
    ("name: stl\nrobot: [linear\n", 3, "this is not YAML: while parsing a flow sequence, expected"),
    ("name: stl\nrobot: linear\n\tx: 1\n", 3, "character '.t' that cannot start any token"),
    ("name: a\nname: b\n", 2, "found duplicate key name"), ("- a\n- b\n", 1, "settings are lines `key: value`"),
    ("5\n", 1, "settings are lines `key: value`"), ("just words\n", 1, "settings are lines `key: value`"),
    ("name: stl\nrobot: linear\nsettings:\n  a: ${nope.x}\n", 4, "Interpolation key 'nope.x' not found"),
    ('name: stl\nsettings:\n  a: "${x"\n', 3, "")])
def test_a_broken_file_of_ones_own_is_bad_input_with_file_and_line(
    text: str, line: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_files(tmp_path, task__stl__mine=text)
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path))
    with pytest.raises(BadInput) as error:
        compose(["task=stl/mine"])
    said = str(error.value)
    assert said.startswith(f"{tmp_path / 'task/stl/mine.yaml'}, line {line}: ") and re.search(told, said)
    assert said.rstrip()[-1] != ":" and "\n" not in said


def test_of_broken_files_that_which_was_asked_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_files(tmp_path, task__stl__linear_first="a: [", task__stl__linear_mine="name: stl\nrobot: {{\nbackend: x\n")
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path))
    with pytest.raises(BadInput, match=r"linear_mine\.yaml, line "):
        compose(["task=stl/linear_mine"])


def test_a_task_of_ones_own_says_what_is_taken_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_files(tmp_path, task__mine="name: hover\nrobot: crazyflie\n", task__empty="")
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path))
    with pytest.raises(BadInput, match=r"task/mine\.yaml: the file of a task says backend: \.\.\., randomize: \.\.\."):
        compose(["task=mine"])
    with pytest.raises(BadInput, match=r"task/empty\.yaml: the file of a task says robot"):
        compose(["task=empty"])


WHOLE = (
    "name: stl\nrobot: linear\nbackend: planar\nrandomize: none\nsettings: {system: linear}\nmid_episode_starts: 0.0\n"
)


def test_what_an_experiment_makes_of_a_task_is_told_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = "# @package _global_\ndefaults:\n  - override /task: stl/linear_"
    own_files(tmp_path, task__stl__linear_bad=WHOLE + "num_wrolds: 64\n",
              task__stl__linear_noname=WHOLE.replace("name: stl\n", ""), experiment__chooses=head + "bad\n",
              experiment__unnamed=head + "noname\n", experiment__says="# @package _global_\ntask:\n  typo: 33\n")
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path))
    for words, told in ((["experiment=chooses"], r"experiment/chooses\.yaml: .* no setting 'num_wrolds'"),
                        (["experiment=unnamed"], r"linear_noname\.yaml: .*needs name: \.\.\."),
                        (["task=stl/linear_reach", "experiment=says"], r"experiment/says\.yaml: .* no setting 'typo'")):
        with pytest.raises(BadInput, match=told):
            compose(words)


@pytest.mark.parametrize(("text", "told"), [
    (WHOLE.replace("robot: linear", "robot: lnear"),
     r", line 2: robot: lnear: did you mean 'linear'\? robot is one of "),
    (WHOLE.replace("backend: planar", "backend: warp"), r", line 3: backend: warp: backend is one of .*, planar, ")])
def test_what_a_task_s_file_names_is_there(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_files(tmp_path, task__stl__linear_mine=text)
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path))
    with pytest.raises(BadInput, match=re.escape(str(tmp_path / "task/stl/linear_mine.yaml")) + told):
        compose(["task=stl/linear_mine"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            WHOLE + "num_wrolds: 64\n",
            r", line 7: .* no setting 'num_wrolds'; did you mean 'num_worlds'\?; legal: name, ",
        ),
        (
            WHOLE.replace("episode_starts", "episode_satrts"),
            r", line 6: .* no setting 'mid_episode_satrts'; did you mean 'mid_episode_starts'\?; legal: ",
        ),
        (
            WHOLE.replace("name: stl\n", ""),
            r": a task's file needs name: \.\.\., .*name: stl for a formula.*known: ant, ",
        ),
        (WHOLE.replace("{system: linear}", "3"), r": settings is 3; legal: a group, .*settings: \{system"),
        (WHOLE.replace("name: stl", "name: hovr"), r": there is no task 'hovr'; did you mean 'hover'\?; known: ant, "),
    ],
)
def test_a_task_s_file_says_what_such_files_say_and_nothing_else(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = compose(["task=hover"])
    own_files(tmp_path, task__stl__linear_mine=text, task__stl__linear_good=WHOLE + "title: mine\nnum_worlds: 64\n")
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path))
    for composed in (compose, lambda words: override(saved, words)):
        with pytest.raises(BadInput, match=re.escape(str(tmp_path / "task/stl/linear_mine.yaml")) + told):
            composed(["task=stl/linear_mine"])
        assert composed(["task=stl/linear_good"])["task"]["title"] == "mine"  # a neighbour does it no harm


def test_overrides_of_saved_settings_with_a_broken_reference_are_bad_input() -> None:
    saved = {**compose(["task=hover"]), "out": "${nowhere.x}"}
    with pytest.raises(BadInput, match=r"nowhere\.x' not found .in out"):
        override(saved, ["seed=2"])


@pytest.mark.parametrize("task", ["linear_bias2", "linear_imp", "linear_sides"])
def test_tasks_that_documents_measure_are_there(monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    """docs/notes/learning-formulas.md names them with this folder."""
    from temporeal.policies.runs.environments import make_task

    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(Path(__file__).parents[3] / "benchmarks" / "configs"))
    made = make_task(compose([f"task=stl/{task}", "algo=tgpo"]))
    assert len({route.count for route in made.objective.automaton.routes}) > 1  # what they are there for


OLD = {"randomize": {"name": "none", "pushes": {"interval_s": 1.0}, "cameras": {}},
       "backend": {"name": "mujoco", "engine": "threads", "integrator": "rk4"}}


def test_settings_of_before_are_read_under_the_names_of_today(tmp_path: Path) -> None:
    write(OLD, tmp_path / "config.yaml")
    found = read(tmp_path / "config.yaml")
    assert found["randomize"] == {"name": "none", "disturbances": {"interval_s": 1.0}, "appearance": {}}
    assert found["backend"] == {"name": "mujoco", "integrator": "rk4"}


@pytest.mark.parametrize(("word", "told"), [
    ("randomize.pushes.interval_s=1", "randomize.pushes is now called randomize.disturbances"),
    ("backend.engine=threads", "backend.engine is no more: mujoco.batch steps the worlds")])
def test_a_word_of_before_is_told_its_name_of_today(word: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        compose(["task=reach", "backend=mujoco", word])


def test_a_file_of_ones_own_with_a_key_of_before_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_files(tmp_path, randomize__lab="parameters: {}\nsensors: {}\npushes: {interval_s: 1.0}\n")
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path))
    with pytest.raises(BadInput, match="randomize.pushes is now called randomize.disturbances"):
        compose(["task=hover", "randomize=lab"])
