"""The verbs as one chain: a run is trained, resumed, judged, exported, and the artifact judged like the run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from temporeal.policies.cli.main import main
from temporeal.policies.runs.settings.files import read
from temporeal.robots.artifact.runtime import Artifact


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain") / "run"
    assert main(["train", "experiment=smoke", "seed=3", "--json", "--out", str(folder)]) == 0
    return folder


def judged(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object]]:
    capsys.readouterr()
    status = main(["eval", *words, "--episodes", "20", "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_run_is_complete(run: Path) -> None:
    assert read(run / "config.yaml")["seed"] == 3
    assert list((run / "checkpoints").glob("*.pt"))
    assert list((run / "events").glob("events.*"))


def test_second_start_needs_a_word(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "experiment=smoke", "seed=3", "--out", str(run)]) == 2
    assert "resume=true" in capsys.readouterr().err


def test_resume_goes_on(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "experiment=smoke", "seed=3", "resume=true", "--json", "--out", str(run)]
    assert main([*words, "algo.total_steps=6144"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 6144
    assert read(run / "config.yaml")["algo"]["total_steps"] == 6144
    assert main([*words, "algo.gamma=0.5"]) == 2
    assert "gamma" in capsys.readouterr().err


def test_eval_is_a_gate(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, figures = judged(capsys, str(run), "--require", "0")
    assert (status, figures["passed"]) == (0, True)
    status, figures = judged(capsys, str(run), "--require", "1")
    assert (status, figures["passed"]) == (1, False)
    assert Path(str(figures["report"])).is_file()
    assert main(["eval", str(run), "--require", "1.5"]) == 2
    assert main(["eval", str(run), "--backend", "gazebo"]) == 2
    assert "--backend gazebo: one of isaacgym, " in capsys.readouterr().err


def test_artifact_is_judged_like_the_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exported graph reads raw signals and keeps its own memory, and flies the same episodes the same way."""
    assert main(["export", str(run), "--out", str(tmp_path / "artifact"), "--json"]) == 0
    capsys.readouterr()
    _, of_run = judged(capsys, str(run), "--out", str(tmp_path / "a"))
    _, of_artifact = judged(capsys, str(tmp_path / "artifact"), "--out", str(tmp_path / "b"))
    a, b = of_run["quadrotor"], of_artifact["quadrotor"]
    assert isinstance(a, dict) and isinstance(b, dict)
    assert b["satisfied"] == a["satisfied"]
    # chaos amplifies rounding over hundreds of steps: quantiles agree, not digits
    assert b["robustness"]["mean"] == pytest.approx(a["robustness"]["mean"], abs=0.02)


@pytest.fixture
def of_a_gpu(run: Path, tmp_path: Path) -> Path:
    """The run as if it had been trained on a GPU."""
    folder = Path(shutil.copytree(run, tmp_path / "gpu"))
    text = (folder / "config.yaml").read_text()
    assert "device: cpu" in text
    (folder / "config.yaml").write_text(text.replace("device: cpu", "device: cuda"))
    return folder


@pytest.mark.slow
def test_a_run_of_a_gpu_is_judged_and_exported_where_there_is_none(
    of_a_gpu: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["eval", str(of_a_gpu), "--episodes", "5"]) == 2
    assert "device=cuda: torch sees no GPU here; use device=cpu" in capsys.readouterr().err
    assert main(["eval", str(of_a_gpu), "device=cpu", "--episodes", "5", "--json"]) in (0, 1)
    assert main(["export", str(of_a_gpu), "--out", str(tmp_path / "artifact"), "--json"]) == 0
    assert Artifact.load(tmp_path / "artifact").manifest.training["device"] == "cuda"


@pytest.mark.slow
def test_overrides_of_an_evaluation(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, first = judged(capsys, str(run), "randomize=none", "--seed", "5")
    _, again = judged(capsys, str(run), "randomize=none", "--seed", "5")
    assert first["quadrotor"] == again["quadrotor"]
    _, other = judged(capsys, str(run), "--seed", "5")
    assert other["quadrotor"] != first["quadrotor"]


def test_corrupt_checkpoint_is_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    for path in (copy / "checkpoints").glob("*.pt"):
        path.write_bytes(path.read_bytes()[:-100])
    assert main(["eval", str(copy), "--episodes", "2"]) == 2
    assert "corrupt or cut short" in capsys.readouterr().err
