"""A reflex by the command line: trained for a run, judged, exported, and judged again; what it cannot do it says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from temporeal.policies.cli.main import main
from temporeal.robots.artifact.runtime import Artifact

HOVER = ["task=hover", "num_worlds=64", "threads=1"]
SHORT = ["algo=reflex", "algo.updates=8", "algo.gradient_steps=4", "algo.warmup=3", "algo.batch=32", "algo.every=2",
         "algo.threshold=0.5", "algo.release=0.4"]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reflex") / "policy"
    assert main(["train", *HOVER, "algo.total_steps=1024", "algo.threads=1", "--json", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def run(policy: Path) -> Path:
    folder = policy.parent / "run"
    assert main(["train", *HOVER, *SHORT, f"algo.policy={policy}", "--json", "--out", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_run_and_artifact_are_judged_alike(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--out", str(tmp_path / "artifact"), "--json"]) == 0
    manifest = Artifact.load(tmp_path / "artifact").manifest
    assert manifest.reflex is not None and (manifest.reflex.every, manifest.reflex.threshold) == (2, 0.5)
    assert manifest.training["algo"]["name"] == "reflex"
    figures = []
    for folder in (run, tmp_path / "artifact"):
        capsys.readouterr()
        words = ["--episodes", "20", "--json", "--out", str(tmp_path / f"judged{len(figures)}")]
        assert main(["eval", str(folder), *words]) == 0
        figures.append(json.loads(capsys.readouterr().out)["quadrotor"])
    a, b = figures
    assert a["satisfied"] == b["satisfied"]
    # chaos amplifies rounding over hundreds of steps
    assert b["length_s"]["mean"] == pytest.approx(a["length_s"]["mean"], abs=0.1)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["train", *words, "--json"]) == 2
    return capsys.readouterr().err


@pytest.mark.slow
def test_what_it_cannot_do_it_says(policy: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of, out = f"algo.policy={policy}", f"out={tmp_path / 'other'}"
    assert "algo.policy=RUN" in refused(capsys, *HOVER, *SHORT, out)
    assert "is not a run" in refused(capsys, *HOVER, *SHORT, f"algo.policy={tmp_path}", out)
    assert "was trained on task hover, this is track" in refused(capsys, "task=track", *SHORT, of, out)
    assert "release is at most threshold" in refused(capsys, *HOVER, *SHORT, of, "algo.release=0.9", out)
    assert "reads" in refused(capsys, *HOVER, "task.settings.history=3", *SHORT, of, out)
    assert "does not resume" in refused(capsys, *HOVER, *SHORT, of, "resume=true", f"out={run}")
    assert not (tmp_path / "other").exists()


def test_a_policy_that_was_trained_on_a_gpu_is_added_to(policy: Path, tmp_path: Path) -> None:
    of = Path(shutil.copytree(policy, tmp_path / "gpu"))
    (of / "config.yaml").write_text((of / "config.yaml").read_text().replace("device: cpu", "device: cuda"))
    words = [*HOVER, *SHORT, "algo.updates=1", f"algo.policy={of}", "--json", "--out", str(tmp_path / "run")]
    assert main(["train", *words]) == 0


def test_a_formula_that_keeps_nothing(policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, *HOVER, "task.settings.formula='F[0,4] (height > 0.9)'", *SHORT, f"algo.policy={policy}",
                   f"out={tmp_path / 'other'}")
    assert "G[0,b] p" in told
