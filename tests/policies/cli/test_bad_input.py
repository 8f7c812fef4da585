"""What a careless or hostile user types: one clear line and status 2, and nothing of theirs is removed."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from temporeal.policies.cli import main
from temporeal.policies.cli.verbs import bench, demo, eval
from temporeal.policies.evaluate.report import page
from temporeal.policies.runs import artifacts, environments, evaluating, exporting, run_folders
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.progress import load_judge
from temporeal.policies.runs.settings import files
from temporeal.policies.runs.settings.compose import compose
from temporeal.sim.task import load_task
from temporeal_benchmarks import runner

FORMULA = "task.settings.formula="


@pytest.mark.parametrize(("word", "told"), [
    ("processes=0", "at least 1"), ("device=tpu", "cuda"), ("seed=null", "got null"), ("num_worlds=null", "got null"),
    ("out=[a]", "one folder"), ("algo.max_seconds=soon", "float"), ("algo.max_seconds=-1", "positive"),
    ("algo.gamma=null", "float"), ("algo.learning_rate=inf", "finite"), ("algo.actor_hidden=[wide]", "int"),
    ("algo.memory=-3", "negative"), ("task.settings.control_dt=fast", "a finite number"),
    ("task.settings.substeps=0", "1 to 1000"), ("task.settings.substeps=1.5", "whole number"),
    (FORMULA + "3", "a text"),
    ("task.settings.constants.reach=[1]", "constant reach is a finite number, as in reach=0.2"),
    ("task.settings.formula=G[0,3] (height > floor)", 'write \'task.settings.formula="G[0,3] (height > floor)"\''),
    ("task.settings.constants.reech=0.1", "'reech'"), ("randomize.parameters.mass=3", "a distribution"),
    ("randomize.parameters.mass={kind: normal, std: 1}", "sources, uniform"),
    ("randomize.parameters.mass={kind: uniform, low: -1, high: 1}", "negative"),
    ("randomize.sensors.delay_steps=1.5", "whole number"),
    (FORMULA + "'F[0,20] (norm(base_pos_w - a) < reach)'", "20 s ahead"), (FORMULA + "'height > 0'", "nowhere to fly"),
])
def test_a_wrong_setting_is_one_line(
    word: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["train", word, "experiment=smoke"]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


def test_a_mission_may_have_nothing_to_keep() -> None:
    task = load_task("waypoints", formula="F[0,2] (norm(base_pos_w - a) < reach)")
    env = environments.make_env(compose(["num_worlds=8", "threads=1"]), task=task, training=True)
    obs = env.reset()
    assert obs.actor.shape == (8, task.observe.obs_dim)
    assert not env.step(obs.actor.new_zeros(8, env.action_dim)).terminated.any()


def test_demo_removes_only_what_a_demo_wrote(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "pid").write_text("1")
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(BadInput, match="holds no demo"):
        demo.clear(tmp_path)
    run_folders.open_run(compose(), tmp_path / "again" / "run", overwrite=False)
    (tmp_path / "again" / "notes").write_text("mine")
    demo.clear(tmp_path / "again")
    assert [path.name for path in (tmp_path / "again").iterdir()] == ["notes"]


def test_overwrite_spares_a_project_with_a_config_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 1\ntask: mine\n")
    with pytest.raises(BadInput, match="is no run"):
        run_folders.open_run(compose(), tmp_path, overwrite=True)
    with pytest.raises(BadInput, match=r"config\.yaml: its setting task is 'mine'"):
        run_folders.load_run(tmp_path)


def test_a_crash_has_its_own_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(argv: Any) -> int:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(eval, "run", broken)
    assert main.main(["eval", "somewhere"]) == 3
    assert "report it" in capsys.readouterr().err

    def full(argv: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(eval, "run", full)
    assert main.main(["eval", "somewhere"]) == 2
    assert "No space left" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["eval", "export", "bench", "deploy", "demo"])
def test_an_unwritable_place_is_refused_before_the_work(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: Any, **__: Any) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr(evaluating, "evaluate_on", work)
    monkeypatch.setattr(exporting, "load_graph", work)
    monkeypatch.setattr(artifacts, "load_artifact", work)
    monkeypatch.setattr(bench, "measure", work)
    monkeypatch.setattr(demo, "clear", work)
    run_folders.open_run(compose(), tmp_path / "run", overwrite=False)
    (tmp_path / "file").write_text("precious")
    subject = {"bench": ["quadrotor"], "demo": []}.get(verb, [str(tmp_path / "run")])
    assert main.main([verb, *subject, "--out", str(tmp_path / "file" / "new" / "out")]) == 2
    assert "file/new" in (told := capsys.readouterr().err) and "Not a directory; choose another with --out" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "run"]


def test_export_refuses_a_foreign_folder_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(exporting, "load_graph")
    run_folders.open_run(compose(), tmp_path / "run", overwrite=False)
    (tmp_path / "thesis.tex").write_text("years of work")
    assert main.main(["export", str(tmp_path / "run"), "--out", str(tmp_path)]) == 2
    assert "is not an artifact" in capsys.readouterr().err


def test_a_run_of_an_unknown_algorithm_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One's own, without the variable that says where it is."""
    settings = compose(["task=hover"])
    run = tmp_path / "run"
    run_folders.open_run({**settings, "algo": {**settings["algo"], "name": "mine"}}, run, False)
    assert main.main(["export", str(run)]) == 2
    error = capsys.readouterr().err
    assert "algo=mine: no such algorithm; known: " in error and "TEMPOREAL_PATH" in error and "Traceback" not in error
    with pytest.raises(BadInput, match="algo=mine: no such algorithm"):
        load_judge(run)


def test_export_to_a_full_disk_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "load_graph", lambda *_: None)
    monkeypatch.setattr(exporting, "shown_to", lambda _, task: task)
    monkeypatch.setattr(environments, "make_env", lambda *_, **__: None)
    monkeypatch.setattr("temporeal.policies.export.policy.export_policy", full)
    run_folders.open_run(compose(), tmp_path / "run", overwrite=False)
    assert main.main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "a")]) == 2
    assert capsys.readouterr().err == (
        f"temporeal: {tmp_path}/a cannot be written: No space left on device; what was there before is untouched\n")


@pytest.mark.parametrize("name", ["config.yaml", "report.json", "report.html", "speed.json"])
def test_a_full_disk_leaves_the_old_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    def write(argv: Any) -> int:
        if name == "config.yaml":
            files.write({"seed": 2}, tmp_path / name)
        elif name == "speed.json":
            monkeypatch.setattr(runner, "benchmark", lambda _: SimpleNamespace(run=lambda quick, out: [], OPTIONS={}))
            runner.measure("speed", True, tmp_path, {}, "temporeal bench speed", quiet=True)
        elif name == "report.json":
            page.write_json(tmp_path / name, [])
        else:
            page.write_page(tmp_path / name, [], page.Context("title", "robot", "formula"))
        return 0

    monkeypatch.setattr(eval, "run", write)
    assert main.main(["eval"]) == 0
    before = (tmp_path / name).read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    assert main.main(["eval"]) == 2
    assert f"No space left on device: '{tmp_path / name}'" in capsys.readouterr().err
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]
