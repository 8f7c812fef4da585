"""Runs as folders: nothing already there is lost, a resumed run is the same run, what cannot be read is named."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.policies.robot_learning import deliveries

from temporeal.policies.cli.main import main
from temporeal.policies.evaluate.judging import EVALUATION_SEED
from temporeal.policies.robot_learning.wire.agreement import FILE, write_agreed
from temporeal.policies.runs import environments, learners, run_folders
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings.compose import compose, override
from temporeal.policies.runs.settings.files import read
from temporeal.policies.runs.training import train


def settings(tmp_path: Path, *words: str) -> dict[str, Any]:
    return {**compose(words), "out": str(tmp_path / "run")}


def test_folder_is_named_after_task_learner_and_seed() -> None:
    assert run_folders.run_folder(compose(["task=hover", "seed=3"])) == Path("outputs/train/hover-ppo-3")
    assert run_folders.run_folder(compose(["out=elsewhere"])) == Path("elsewhere")


@pytest.mark.slow
def test_runs_of_two_formulas_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "task" / "own").mkdir(parents=True)
    text = "name: stl\nrobot: linear\nbackend: planar\nrandomize: none\nsettings: {system: linear}\n"
    for name in ("mine", "yours", "own/third"):
        (tmp_path / "task" / f"{name}.yaml").write_text(text)
    monkeypatch.setenv("TEMPOREAL_CONFIGS", str(tmp_path))
    titles = {name: run_folders.title_of(compose([f"task={name}"])) for name in ("mine", "yours", "own/third")}
    assert titles == {"mine": "mine", "yours": "yours", "own/third": "own-third"}
    assert run_folders.run_folder(compose(["task=mine", "algo=tgpo"])).name == "mine-tgpo-1"
    judged = override(compose(["task=mine"]), ["task=yours"])
    assert run_folders.title_of(judged) == "yours"


def test_a_run_of_before_titles_is_resumed(tmp_path: Path) -> None:
    """The title is a name, no setting: runs of formulas that lay in no folder had none."""
    made = settings(tmp_path, "task=stl/linear_reach")
    older = {**made, "task": {key: value for key, value in made["task"].items() if key != "title"}}
    run_folders.check_same(older, made)


def test_new_run_holds_all_its_settings(tmp_path: Path) -> None:
    made = settings(tmp_path)
    run_folders.open_run(made, tmp_path / "run", overwrite=False)
    assert run_folders.load_run(tmp_path / "run") == made


def test_what_was_learned_beside_a_base_does_not_act_alone(tmp_path: Path) -> None:
    made, run = settings(tmp_path), tmp_path / "run"
    run_folders.open_run(made, run, overwrite=False)
    for scale, refused in (("none", False), (0.2, True), (0.0, True)):
        agreed = replace(deliveries.agreed(), correction={"scale": scale, "base": "hover", "sha256": "0"})
        write_agreed(run / FILE, agreed.plain(), agreed.digest())  # as a learner does
        assert run_folders.load_run(run, corrections=True) == made
        if refused:
            with pytest.raises(BadInput, match="learned on a robot as corrections of hover"):
                run_folders.load_run(run)
        else:
            assert run_folders.load_run(run) == made
    for torn in ("{", "{}", "[1]", '{"agreement": {"correction": 1}}'):
        (run / "agreement.json").write_text(torn)
        with pytest.raises(BadInput, match="does not say what the policy of this run corrects"):
            run_folders.load_run(run)


def test_a_run_of_before_takes_settings_that_its_backend_has_had_since(tmp_path: Path) -> None:
    made = settings(tmp_path, "task=reach")
    assert made["backend"].pop("integrator") == "auto"
    run_folders.open_run(made, tmp_path / "run", overwrite=False)
    loaded = override(run_folders.load_run(tmp_path / "run"), ["backend.integrator=rk4"])
    assert loaded["backend"] == {**made["backend"], "integrator": "rk4"}


def test_a_run_says_what_its_system_brought(tmp_path: Path) -> None:
    made = settings(tmp_path, "task=stl/franka_reach", "algo=tgpo", "task.settings.reward={hit: 30}")
    whole = environments.resolved(made)
    given = whole["task"]["settings"]
    assert given["slack"] == 0.01 and given["reward"]["hit"] == 30.0 and given["reward"]["scale"] < 5.0
    assert environments.resolved(whole) == whole and "slack" not in made["task"]["settings"]
    run_folders.open_run(whole, tmp_path / "run", overwrite=False)
    run_folders.check_same(made, whole)  # a run of before, resumed: the same
    with pytest.raises(BadInput, match="slack of the run is 0.01, now 0.02"):
        run_folders.check_same(read(tmp_path / "run" / "config.yaml"), override(made, ["task.settings.slack=0.02"]))
    baseline = settings(tmp_path, "task=stl/franka_reach", "algo=ppo", "task.settings.view=terminal_robustness")
    assert environments.resolved(baseline)["task"]["settings"]["reward"] == {"sharp": 50.0}  # of an arm's size
    assert environments.resolved(settings(tmp_path, "task=hover"))["task"] == compose(["task=hover"])["task"]


def test_an_experiment_for_another_robot_is_named(tmp_path: Path) -> None:
    made = settings(tmp_path, "task=stl/linear_reach", "algo=tgpo", "experiment=stl_ant")
    with pytest.raises(BadInput, match="backend planar has no such setting; .*does experiment=stl_ant set it"):
        environments.make_env(made, num_worlds=1)


def test_existing_run_is_kept_unless_asked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_folders.open_run(settings(tmp_path), folder, overwrite=False)
    (folder / "checkpoint").write_text("precious")
    with pytest.raises(BadInput, match="resume=true"):
        run_folders.open_run(settings(tmp_path, "seed=2"), folder, overwrite=False)
    assert (folder / "checkpoint").read_text() == "precious"
    run_folders.open_run(settings(tmp_path, "seed=2"), folder, overwrite=True)
    assert not (folder / "checkpoint").exists()
    assert read(folder / "config.yaml")["seed"] == 2


def test_a_run_is_not_lost_to_one_whose_settings_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    run_folders.open_run(settings(tmp_path), folder, overwrite=False)
    (folder / "checkpoint").write_text("precious")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("temporeal.policies.runs.settings.files.write", full)
    with pytest.raises(BadInput, match="No space left"):
        run_folders.open_run(settings(tmp_path, "seed=2"), folder, overwrite=True)
    assert (folder / "checkpoint").read_text() == "precious" and [p.name for p in tmp_path.iterdir()] == ["run"]


def test_what_a_killed_training_left_aside_is_not_taken_for_the_run_before(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_folders.set_aside(folder).mkdir()
    with pytest.raises(ValueError), run_folders.opened_run(settings(tmp_path), folder, overwrite=False):
        raise ValueError
    assert not list(tmp_path.iterdir())


def test_foreign_folder_is_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(BadInput, match="is no run"):
            run_folders.open_run(settings(tmp_path), folder, overwrite)
    assert (folder / "thesis.tex").exists()


@pytest.mark.parametrize("text", ["a: 1", "task: {settings: {}}"])
def test_what_is_no_run_is_not_resumed(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text(text)
    with pytest.raises(BadInput, match="was not written by `temporeal train`"):
        run_folders.open_run(settings(tmp_path, "resume=true"), tmp_path / "run", overwrite=False)


def test_resume_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing to resume"):
        run_folders.open_run(settings(tmp_path, "resume=true"), tmp_path / "run", overwrite=False)


def test_a_merge_that_was_stopped_begins_anew(tmp_path: Path) -> None:
    """It has no checkpoint before its end."""
    for word, told in (("algo.merge=true", ""), ("algo.merge=false", "stopped before its first checkpoint")):
        made = settings(tmp_path, "algo=specialists", word)
        run_folders.open_run(made, tmp_path / "run", overwrite=True)
        with pytest.raises(BadInput, match=told) if told else nullcontext():
            run_folders.open_run({**made, "resume": True}, tmp_path / "run", overwrite=False)


@pytest.mark.parametrize(("word", "told"), [
    ("task=hover", "task of the run is waypoints, now hover"), ("seed=9", "seed of the run is 1, now 9"),
    ("num_worlds=7", "num_worlds of the run is 2048, now 7"), ("processes=3", "processes of the run is 1, now 3"),
    ("task.settings.control_dt=0.01", "task.settings.control_dt of the run is not set, now 0.01"),
    ("backend=mujoco", "backend of the run is quadrotor, now mujoco"),
    ("randomize=none", "randomize of the run is default, now none"),
    ("randomize.parameters.mass.scale=0.5", "randomize.parameters.mass.scale of the run is 1.0, now 0.5"),
    ("curriculum=adr", "curriculum of the run is none, now adr"),
    ("cameras.wrist={width: 64}", "cameras.wrist of the run is not set, now {width:64}"),
    ("renderer=gl", "renderer of the run is auto, now gl")])
def test_resume_refuses_another_run(word: str, told: str, tmp_path: Path) -> None:
    run_folders.open_run(settings(tmp_path), tmp_path / "run", overwrite=False)
    with pytest.raises(BadInput, match=f"resume: {re.escape(told)}"):
        run_folders.open_run(settings(tmp_path, word, "resume=true"), tmp_path / "run", overwrite=False)


def test_resume_refuses_other_ranges_and_another_teacher() -> None:
    words = ["curriculum=adr", "curriculum.parameters.mass={as: scale, low: 0.5, high: 2.0}"]
    old = compose(words)
    for word, told in (("curriculum.parameters.mass.high=3.0", "curriculum.parameters.mass.high of the run is 2.0"),
                       ("curriculum.samples=20", "curriculum.samples of the run is 240, now 20"),
                       ("curriculum=alp_gmm", "curriculum of the run is adr, now alp_gmm")):
        with pytest.raises(BadInput, match=re.escape(told)):
            run_folders.check_same(old, override(old, [word]))
    run_folders.check_same(old, compose(words))


@pytest.mark.slow
def test_a_file_of_a_backend_may_have_grown_since() -> None:
    """What the run did not say was as the backend's ``make`` has it."""
    new = compose(["task=reach", "backend=mujoco_warp"])
    run_folders.check_same({**new, "backend": {"name": "mujoco_warp"}}, new)
    with pytest.raises(BadInput, match="backend.contacts of the run is 0, now 60"):
        run_folders.check_same({**new, "backend": {"name": "mujoco_warp"}}, override(new, ["backend.contacts=60"]))


def test_a_run_of_before_there_were_curricula_had_none() -> None:
    new = compose(["curriculum=adr", "curriculum.parameters.mass={as: scale, low: 0.5, high: 2.0}"])
    old = {key: value for key, value in new.items() if key != "curriculum"}
    run_folders.check_same(old, {**new, "curriculum": compose()["curriculum"]})
    with pytest.raises(BadInput, match="curriculum of the run is none, now adr"):
        run_folders.check_same(old, new)


@pytest.mark.parametrize(("keywords", "told"), [
    ({"num_worlds": 2.5}, "num_worlds=2.5: a whole number"), ({"num_worlds": True}, "num_worlds=True: a whole number"),
    ({"num_worlds": 0}, "num_worlds is at least 1, got 0"), ({"seed": "one"}, "seed is a whole number .*; got 'one'"),
    ({"seed": -1}, "seed is a whole number from 0 to .*; got -1"), ({"seed": 2**63}, "seed is a whole number from 0")])
def test_numbers_that_are_not_whole_are_told(keywords: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        environments.make_env(compose(["task=hover"]), **keywords)


def test_a_training_has_a_seed_to_which_that_of_its_evaluation_can_be_added(tmp_path: Path) -> None:
    learners.check_training_seed(2**63 - 1 - EVALUATION_SEED)
    with pytest.raises(BadInput, match="seed of a training is at most .* got 9223372036854775807"):
        train(compose(["task=hover", f"seed={2**63 - 1}", f"out={tmp_path}"]))


@pytest.mark.parametrize(("task", "backend", "told"), [
    ("reach", {"name": "mujoco", "contacts": 3}, "backend.contacts: backend mujoco has no such setting; legal: "),
    ("reach", {"name": "mujoco_warp", "contact": 3}, "no such setting; legal: contacts, constraints, deterministic"),
    ("reach", {"name": "mujoco_warp", "contacts": "many"}, "backend.contacts=many: expected int"),
    ("hover", {"name": "quadrotor", "shared": 3}, "backend.shared=3: expected bool")])
def test_what_a_backend_does_not_take_is_told(task: str, backend: dict[str, Any], told: str) -> None:
    """A file of the user's own may say anything."""
    with pytest.raises(BadInput, match=told):
        environments.make_env({**compose([f"task={task}"]), "backend": backend}, num_worlds=2)


def test_resume_may_change_how_it_is_computed(tmp_path: Path) -> None:
    again = settings(tmp_path, "threads=1", "resume=true")
    run_folders.open_run(settings(tmp_path), tmp_path / "run", overwrite=False)
    with pytest.raises(BadInput, match="before its first checkpoint; --overwrite"):
        run_folders.open_run(again, tmp_path / "run", overwrite=False)
    (tmp_path / "run" / "checkpoints").mkdir()
    (tmp_path / "run" / "checkpoints" / "00000001.rank0of1.pt").write_text("a checkpoint")
    run_folders.open_run(again, tmp_path / "run", overwrite=False)


def test_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot write to .*file/run"):
        run_folders.open_run(settings(tmp_path), tmp_path / "file" / "run", overwrite=False)


@pytest.mark.parametrize("verb", ["eval", "export"])
def test_what_is_no_run_is_named(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, str(tmp_path / "nowhere")]) == 2
    told = capsys.readouterr().err
    assert "nowhere is not a run" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["task.settings.height=2"], "its settings are: "),
        (["task=hover", "backend=quadrotor", "num_worlds=0"], "num_worlds is at least 1"),
        (["randomize.parameters.mas={kind:normal,std:1}"], "no parameter 'mas'; legal: mass"),
        (["randomize.sensors.noise.base_pos={}"], "base_pos"),
    ],
)
def test_what_the_simulator_refuses_is_bad_input(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 2
    message = capsys.readouterr().err
    assert told in message
    assert not (tmp_path / "run").exists()


def test_override_of_saved_settings() -> None:
    saved = compose(["task=hover", "seed=5"])
    changed = override(saved, ["randomize=none", "threads=1", "task.settings.history=8"])
    assert changed["randomize"] == {"name": "none", "parameters": {}, "sensors": {}}
    assert (changed["threads"], changed["task"]["settings"], changed["seed"]) == (1, {"history": 8}, 5)
    assert saved["task"]["settings"] == {}
    with pytest.raises(BadInput, match="an experiment is what a run starts with"):
        override(saved, ["experiment=demo"])
    with pytest.raises(BadInput, match="did you mean 'threads'"):
        override(saved, ["thread=1"])


def test_a_formula_s_robot_is_that_of_its_system() -> None:
    for word in ("task.settings.system=unicycle", "task.settings.system=quadrotor"):
        system = word.partition("=")[2]
        with pytest.raises(BadInput, match=rf"robot: linear, but its settings.system, {system}, is for robot .*"):
            environments.make_task(compose(["task=stl/linear_reach", word]))
    assert environments.make_task(compose(["task=stl/linear_reach"])).robot.name == "linear"
