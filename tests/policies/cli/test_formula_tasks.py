"""A task that is a formula, through every verb: what chooses its schedule is what is judged, exported and falsified."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from temporeal.policies.cli import main
from temporeal.policies.runs import environments, run_folders, trained
from temporeal.policies.training.schedule_choice import Choosing

SMALL = [
    "algo=tgpo",
    "task=stl/linear_reach",
    "num_worlds=64",
    "threads=1",
    "algo.threads=1",
    "algo.total_steps=9600",
    "algo.schedule_buffer=64",
    "algo.candidates=8",
    "algo.starts=4",
    "algo.actor_hidden=[16]",
    "algo.critic_hidden=[16]",
]


def verdict(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    capsys.readouterr()
    assert main.main(["eval", *words, "--episodes", "8", "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formula") / "run"
    assert main.main(["train", *SMALL, "--out", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_the_artifact_is_judged_as_the_run_is(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["export", str(run), "--out", str(tmp_path / "artifact")]) == 0
    ours = verdict(capsys, str(run), "--out", str(tmp_path / "a"))["planar"]
    its = verdict(capsys, str(tmp_path / "artifact"), "--out", str(tmp_path / "b"))["planar"]
    for key in ("satisfied", "episodes"):
        assert ours[key] == its[key]  # type: ignore[index]
    margins = [found["robustness"]["quantiles"] for found in (ours, its)]  # type: ignore[index]
    assert margins[0] == pytest.approx(margins[1], abs=1e-3)


def test_view_and_falsify_show_it_what_chooses(run: Path) -> None:
    settings = run_folders.load_run(run)
    task = environments.make_task(settings)
    shown = trained.trained_policy(trained.load_trained(run), settings, task).task
    assert isinstance(shown.observe, Choosing) and not isinstance(task.observe, Choosing)
    assert run_folders.run_folder({**settings, "out": None}).name == "stl-linear_reach-tgpo-1"


@pytest.mark.slow
def test_a_run_is_falsified_and_viewed(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["falsify", str(run), "--budget", "4", "--worlds", "4", "--out", str(tmp_path / "found")]
    assert main.main(words) in (0, 1)
    assert main.main(["view", "--policy", str(run), "--png", str(tmp_path / "view.png")]) == 0
    assert (tmp_path / "view.png").stat().st_size > 5000


@pytest.mark.slow
def test_a_network_that_plans_is_exported_and_judged_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """STL-NPC: trained through the model, then a policy between signals and commands like any other."""
    words = [
        "train",
        "algo=npc",
        "task=stl/linear_reach",
        "task.settings.view=terminal_robustness",
        "num_worlds=1",
        "threads=1",
        "algo.updates=3",
        "algo.batch=8",
        "algo.hidden=[16]",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main.main(words) == 0
    assert main.main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "artifact")]) == 0
    ours = verdict(capsys, str(tmp_path / "run"), "--out", str(tmp_path / "a"))["planar"]
    its = verdict(capsys, str(tmp_path / "artifact"), "--out", str(tmp_path / "b"))["planar"]
    margins = [found["robustness"]["quantiles"] for found in (ours, its)]  # type: ignore[index]
    assert margins[0] == pytest.approx(margins[1], abs=1e-3)
    capsys.readouterr()
    for policy in ("run", "artifact"):
        words = ["eval", str(tmp_path / policy), "--episodes", "8", "--out", str(tmp_path / "c"), "--overwrite"]
        assert main.main(words) == 0
        assert "without STL-NPC's backup policy" in capsys.readouterr().out


def test_a_policy_that_is_all_there_is_has_no_note(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["eval", str(run), "--episodes", "8", "--out", str(tmp_path / "a")]) == 0
    assert "backup" not in capsys.readouterr().out


def test_what_plans_and_does_not_learn_names_the_command_that_judges_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["train", "algo=cem", "task=stl/linear_seq"]) == 2
    assert "temporeal bench stl-tasks --tasks linear_seq --methods cem judges it" in capsys.readouterr().err
    assert main.main(["train", "algo=cem", "task=hover"]) == 2
    assert "stl-tasks" not in capsys.readouterr().err


def test_that_no_schedule_was_kept_is_a_line_without_its_place_in_the_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("temporeal.policies.algos.tgpo.ROUNDS", (1,))
    monkeypatch.setattr("temporeal.policies.algos.tgpo.SHARE", 0.9)  # room for a flight in a short training
    words = [word for word in SMALL if not word.startswith(("task=", "algo.total_steps="))]
    words += ["task=stl/linear_doors", "algo.total_steps=1600"]
    assert main.main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    err = capsys.readouterr().err
    assert "temporeal: no schedule that was flown at the end of the training was kept" in err
    assert "UserWarning" not in err and "tgpo.py" not in err and "warnings.warn" not in err
