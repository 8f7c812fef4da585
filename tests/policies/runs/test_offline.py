"""Runs of learners from data: settings from the dataset, refusals, training, resumption, evaluation and export."""

import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.policies.data.test_views import flown

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.policies.runs import offline
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
from temporeal.policies.runs.exporting import export_run
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.runs.settings.overrides import written
from temporeal.policies.runs.trained import load_trained
from temporeal.policies.runs.training import train

SMALL = ["algo.hidden=[8]", "algo.updates=20", "algo.report_updates=10", "algo.evaluate_updates=20",
         "algo.evaluate_episodes=2", "algo.batch=32"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three short flights of ``hover``, which say what settings they were made with."""
    folder = tmp_path_factory.mktemp("sets")
    _, data, *_ = flown(folder / "bare")
    settings = compose(["task=hover"])
    about = {"settings": {key: settings[key] for key in ("robot", "task", "backend", "randomize")}}
    with DatasetWriter(folder / "hover", replace(data.interface, about=about)) as writer:
        for e in range(3):
            writer.add(data.episode(e))
    return folder / "hover"


def test_a_set_is_learned_judged_resumed_and_exported(dataset: Path, tmp_path: Path) -> None:
    words = [f"dataset={dataset}", "algo=iql", "algo.history=false", *SMALL, f"out={tmp_path / 'run'}"]
    settings = offline.settings_of(words)
    assert settings["task"]["name"] == "hover" and settings["robot"]["name"] == "crazyflie"
    done = train(settings, quiet=True)
    assert done.figures["updates"] == 20 and 0.0 <= done.figures["success"] <= 1.0
    more = train(offline.settings_of([*words, "algo.updates=30", "resume=true"]), quiet=True)
    assert more.figures["updates"] == 30
    judged = evaluate_on(load_trained(done.folder), settings, "quadrotor", EvaluationConfig(episodes=3))
    assert judged.evaluation.satisfied.trials == 3
    artifact = export_run(done.folder, tmp_path / "artifact")
    assert artifact.schema.keys() <= Dataset.open(dataset).interface.signals.keys()


@pytest.mark.parametrize("words, said", [
    (["algo=iql"], "dataset=FOLDER"), (["algo=iql", "dataset=nowhere"], "nowhere: there is no such folder"),
    (["algo=iql", "dataset=SET", "task=waypoints"], "the interfaces differ: rate_hz: 50.0 is needed, 100.0 is there"),
    (["algo=iql", "dataset=SET", "processes=2"], "one process"),
    (["algo=ppo", "dataset=SET"], "reads no episodes; those that do: .*iql"),
    (["algo=iql", "dataset=SET", "algo.weighting=best"], "none, data, return, advantage"),
    (["algo=iql", "dataset=SET", "algo.expectile=high"], "expectile"),
    (["algo=flow", "dataset=SET", "algo.signals=[nope]"], "signals nope are not in the dataset; it has:")])
def test_what_cannot_be_learned_is_refused_before_it_begins(
    words: list[str], said: str, dataset: Path, tmp_path: Path
) -> None:
    given = [word.replace("SET", str(dataset)) for word in words]
    with pytest.raises(BadInput, match=said):
        train(offline.settings_of([*given, f"out={tmp_path / 'run'}"]), quiet=True)
    assert not (tmp_path / "run").exists()


def test_settings_of_the_world_come_from_the_set_and_are_replaced_one_by_one(dataset: Path) -> None:
    settings = offline.settings_of([f"dataset={dataset}", "algo=td3bc", "randomize=none", "algo.alpha=1.0"])
    assert settings["task"]["name"] == "hover" and settings["randomize"]["name"] == "none"
    assert settings["algo"]["alpha"] == 1.0


def test_folders_with_spaces_and_signs_are_named_in_the_grammar_of_settings(dataset: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(dataset, tmp_path / "sp ace" / "a=b, (c)")
    [word] = shlex.split(written(f"dataset={folder}"))  # what `data generate` prints, as the shell reads it
    assert offline.settings_of([word, "algo=iql"])["task"]["name"] == "hover"
    assert offline.named(word) == str(folder)
    assert written("dataset=demos/reach") == "dataset=demos/reach"


def test_a_set_of_ones_own_robot_is_learned_from_without_a_task(dataset: Path, tmp_path: Path) -> None:
    data = Dataset.open(dataset)
    with DatasetWriter(tmp_path / "set", replace(data.interface, robot="my_arm", about={})) as writer:
        writer.add(data.episode(0))
    words = ["algo=flow", f"dataset={tmp_path / 'set'}", "algo.hidden=[8]", "algo.updates=4", f"out={tmp_path / 'run'}"]
    with pytest.raises(BadInput, match="names no task.* not my_arm: give task=NAME.* or algo.evaluate_updates=0"):
        train(offline.settings_of(words), quiet=True)
    done = train(offline.settings_of([*words, "algo.evaluate_updates=0"]), quiet=True)
    assert done.figures["updates"] == 4
