"""Runs that learn from replay: demonstrations beside the simulation, few worlds, resumption, evaluation and export."""

from pathlib import Path

import pytest
from tests.policies.data.test_views import flown

from temporeal.policies.runs import learners, offline
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
from temporeal.policies.runs.exporting import export_run
from temporeal.policies.runs.settings.compose import compose, override
from temporeal.policies.runs.trained import load_trained
from temporeal.policies.runs.training import train

SMALL = ["algo.hidden=[8]", "algo.warmup=16", "algo.batch=16", "algo.report_steps=32", "algo.critics=2", "num_worlds=4"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three short flights of ``hover``, which name no task."""
    folder = tmp_path_factory.mktemp("sets") / "hover"
    flown(folder)
    return folder


def test_demonstrations_are_learned_from_beside_the_simulation(dataset: Path, tmp_path: Path) -> None:
    words = ["task=hover", f"dataset={dataset}", "algo=rlpd", *SMALL, "algo.evaluate_steps=64",
             "algo.evaluate_episodes=2", f"out={tmp_path / 'run'}"]
    done = train(offline.settings_of([*words, "algo.total_steps=64"]), quiet=True)
    assert done.figures["steps"] == 64 and done.figures["gradient_steps"] == 4 * 48
    assert 0.0 <= done.figures["evaluated_success"] <= 1.0
    more = train(offline.settings_of([*words, "algo.total_steps=96", "resume=true"]), quiet=True)
    assert more.figures["steps"] == 96
    settings = load_trained(done.folder).settings
    judged = evaluate_on(load_trained(done.folder), settings, "quadrotor", EvaluationConfig(episodes=3))
    assert judged.evaluation.satisfied.trials == 3
    assert "motor_cmd" in export_run(done.folder, tmp_path / "artifact").commands


def test_critics_that_are_told_more_than_the_set_holds_are_refused(dataset: Path, tmp_path: Path) -> None:
    words = ["task=hover", f"dataset={dataset}", "algo=td3", *SMALL, f"out={tmp_path / 'run'}"]
    with pytest.raises(BadInput, match="signal 'rotor_speed', which the dataset has not .algo.privileged=false"):
        train(offline.settings_of(words), quiet=True)
    assert not (tmp_path / "run").exists()


def test_few_worlds_unless_said_otherwise() -> None:
    assert compose(["task=hover", "algo=sac"])["num_worlds"] == 8
    assert compose(["task=hover", "algo=sac", "num_worlds=3"])["num_worlds"] == 3
    assert compose(["task=hover"])["num_worlds"] > 8
    found = override(compose(["task=hover"]), ["algo=td3"])
    assert found["algo"]["name"] == "td3" and "num_worlds" not in found["algo"]


def test_those_that_take_episodes_are_named() -> None:
    assert {"sac", "td3", "iql", "bc"} <= set(learners.from_data()) and "ppo" not in learners.from_data()
