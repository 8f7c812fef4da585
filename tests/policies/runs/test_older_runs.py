"""Settings and manifests that an older version wrote, with its names, are read under the names of today.

The files in ``older`` were written by that version; only the path of the run's folder was changed, and the manifest's
SHA-256 computed anew.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from temporeal.policies.algos.tgpo import TGPOConfig
from temporeal.policies.cli.main import main
from temporeal.policies.runs import environments, learners, run_folders
from temporeal.policies.runs.artifacts import artifact_settings
from temporeal.policies.runs.settings import files
from temporeal.policies.runs.settings.compose import override
from temporeal.robots.artifact.manifest import MANIFEST, ArtifactError, decode

OLDER = Path(__file__).parent / "older"
RENAMED = {"explore": "mid_episode_starts", "excerpt": "truncate_after", "bank": "schedule_buffer"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copy(OLDER / run_folders.CONFIG, tmp_path / run_folders.CONFIG)
    return tmp_path


def check_names(settings: dict) -> None:
    assert settings["task"]["settings"]["view"] == "scheduled"
    assert settings["task"]["mid_episode_starts"] == 0.0 and "explore" not in settings["task"]
    algo = settings["algo"]
    assert [algo[name] for name in RENAMED.values()] == [0.5, 50, 1024] and not set(RENAMED) & set(algo)


def test_an_older_run_is_loaded_under_the_names_of_today(run: Path) -> None:
    settings = run_folders.load_run(run)
    check_names(settings)
    assert environments.make_task(settings).name == "stl"
    config = learners.algorithm(settings)[1]
    assert isinstance(config, TGPOConfig) and config.truncate_after == 50


def test_an_older_run_may_be_resumed_with_a_larger_budget(run: Path) -> None:
    older = run_folders.load_run(run)
    run_folders.check_same(older, override(older, ["algo.max_seconds=16"]))


def test_an_older_artifact_is_read_and_names_its_settings_as_today() -> None:
    manifest = decode((OLDER / MANIFEST).read_bytes())
    assert (manifest.robot, manifest.rate_hz, manifest.schema_version) == ("linear", 5.0, 1)
    check_names(artifact_settings(OLDER, SimpleNamespace(manifest=manifest)))


def test_a_manifest_of_an_unknown_version_says_which_are_read() -> None:
    content = {**json.loads((OLDER / MANIFEST).read_bytes()), "schema_version": 0}
    with pytest.raises(ArtifactError, match=r"schema_version 0; this program reads version 1"):
        decode(json.dumps(content).encode())


def test_an_older_run_without_its_checkpoint_ends_in_one_sentence(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run), "--out", str(run / "artifact")]) != 0
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1 and "checkpoint" in error


def test_the_stored_settings_have_the_older_names() -> None:
    """Were they rewritten, the tests above would show nothing."""
    text = (OLDER / run_folders.CONFIG).read_text(encoding="utf-8")
    assert "view: timed" in text and "explore: 0.5" in text and "bank: 1024" in text
    assert files.read(OLDER / run_folders.CONFIG)["algo"]["name"] == "tgpo"
