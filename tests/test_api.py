"""The public API: what it has, what it does not import before it is needed, and that commands take what it makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import temporeal as tr
from temporeal.policies import api

HEAVY = ("torch", "numba", "mujoco", "hydra", "scipy", "matplotlib", "onnxruntime")


def test_every_public_name_is_there_and_documented() -> None:
    for name in tr.__all__:
        assert (getattr(tr, name).__doc__ or "").strip(), name
    assert set(tr.__all__) <= set(dir(tr))


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(AttributeError, match="'nothing'.*make_env"):
        tr.nothing  # noqa: B018


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = ("import sys, temporeal as tr; robot = tr.load_robot('crazyflie')\n"
            "formula = tr.parse('G[0,1] (height > 0.3)', robot.signals); tr.Monitor(formula, 0.01, compiled=False)\n"
            f"print(sorted(set(sys.modules) & set({HEAVY})))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.parametrize(("value", "text"), [
    (None, "null"), (True, "true"), (1e-3, "0.001"), ((1, 2.5), "[1,2.5]"), ({"low": 1, "by": [1]}, "{low:1,by:[1]}"),
    ("hover", "hover"), ("null", "'null'"), ("1", "'1'"), (np.float64(0.5), "0.5"), (np.arange(2), "[0,1]"),
    ("F[0,1] (x > 'a')", r"'F[0,1] (x > \'a\')'")])
def test_values_as_words(value: object, text: str) -> None:
    assert api.literal(value) == text


def test_a_wrong_setting_names_the_legal_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nosuch"):
        tr.train("hover", out=tmp_path / "run", nosuch=1)
    with pytest.raises(ValueError, match="hoover"):
        tr.make_task("hoover")
    assert not (tmp_path / "run").exists()


def test_a_wrong_kind_of_value_is_named_with_what_is_legal() -> None:
    with pytest.raises(TypeError, match="named"):
        tr.train(tr.make_task("hover"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got 3"):
        tr.evaluate(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"no option worlds; legal: .*num_worlds"):
        tr.make_env("hover", worlds=3)
    with pytest.raises(ValueError, match="num_worlds is a whole number from 1, got '3'"):
        tr.make_env("hover", num_worlds="3")
    with pytest.raises(ValueError, match="device is 'tpu'; it must be cpu, cuda"):
        tr.make_env("hover", num_worlds=2, device="tpu")
    env = tr.make_env("hover", num_worlds=2)
    env.reset()
    with pytest.raises(TypeError, match="torch.Tensor"):
        env.step(np.zeros((2, 4)))  # type: ignore[arg-type]


def test_formulas_on_arrays() -> None:
    formula = tr.parse("G[0,1] (height > 0.3)", tr.load_robot("crazyflie").signals)
    assert tr.robustness(formula, {"height": np.full((101, 2), 0.5)}, 0.01)[0] == pytest.approx(0.2)
    for use in (lambda text: tr.Monitor(text, 0.01), lambda text: tr.robustness(text, {}, 0.01)):
        with pytest.raises(ValueError, match="not a formula: 'x > 0'; temporeal.parse"):
            use("x > 0")
    with pytest.raises(ValueError, match="text, got int"):
        tr.parse(3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_run_of_a_script_is_a_run_of_the_commands(tmp_path: Path) -> None:
    run = tr.train("hover", out=tmp_path / "run", num_worlds=16, settings={
        "algo.total_steps": 512, "algo.threads": 1, "algo.minibatches": 1})
    assert tr.evaluate(run.folder, episodes=4).satisfied.trials == 4
    artifact = tr.export(run)
    assert tr.load_artifact(run.folder / "artifact").manifest == artifact.manifest
    from temporeal.policies.cli.main import main

    assert main(["eval", str(run.folder), "--episodes", "4", "--json"]) == 0
    assert main(["export", str(run.folder), "--out", str(tmp_path / "artifact"), "--json"]) == 0


OWN = """
from temporeal.sim.task import load_task

def make():
    return load_task("hover")
"""


@pytest.mark.parametrize(("text", "told"), [
    ("def make(:", "mine.py, line 1: SyntaxError"),
    (OWN.replace("return load", "task = load") + "    return replace(task, initial=lambda draw: draw['start'])\n\n"
     "from dataclasses import replace\n", "mine.py, line 6: TypeError")])
def test_a_mistake_in_a_task_file_names_its_line(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from temporeal.policies.cli.main import main

    file = tmp_path / "mine.py"
    file.write_text(text)
    assert main(["train", f"task={file}", "num_worlds=16", "--out", str(tmp_path / "run")]) == 2
    assert told in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
def test_a_task_in_a_file_runs_only_where_the_file_is_named(tmp_path: Path) -> None:
    from temporeal.policies.cli.main import main

    file, run = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(OWN)
    short = ["algo.total_steps=512", "algo.threads=1", "algo.minibatches=1", "num_worlds=16"]
    assert main(["train", f"task={file}", *short, "--out", str(run), "--json"]) == 0
    command = [sys.executable, "-m", "temporeal.policies.cli.main", "eval", str(run), "--episodes", "2"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2 and "task=FOLDER/mine.py" in refused.stderr
    assert main(["eval", str(run), f"task={file}", "--episodes", "2", "--json"]) == 0
    assert main(["export", str(run), f"task={file}", "--json"]) == 0
    assert tr.load_artifact(run / "artifact").manifest.training["task"]["name"] == "mine.py"


@pytest.mark.parametrize(("text", "why"), [
    (None, "no such Python file"), ("x = 1", "make"), ("def make():\n    return 1 / 0", "line 2.*ZeroDivisionError"),
    ("1 / 0", "line 1.*ZeroDivisionError")])
def test_a_task_file_that_is_none_is_one_line(text: str | None, why: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ValueError, match=why):
        tr.make_task(tmp_path / "mine.py")
