"""Runs that learn from replay: demonstrations beside the simulation, few worlds, resumption, evaluation and export."""

from pathlib import Path
from typing import Any

import pytest
from tests.policies.data.test_views import flown

from temporeal.policies.algos import sac
from temporeal.policies.runs import environments, learners, memory, offline
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.evaluating import EvaluationConfig, evaluate_on
from temporeal.policies.runs.exporting import export_run
from temporeal.policies.runs.settings.compose import compose, override
from temporeal.policies.runs.settings.files import Settings
from temporeal.policies.runs.trained import load_trained
from temporeal.policies.runs.training import train

SMALL = ["algo.hidden=[8]", "algo.warmup=16", "algo.batch=16", "algo.report_steps=48", "algo.critics=2", "num_worlds=4"]


def settings_of(dataset: Path, out: Path, *words: str) -> Settings:
    """Of a small run, which is not worth compiling its worlds."""
    found = offline.settings_of(["task=hover", f"dataset={dataset}", *words, *SMALL, f"out={out}"])
    return {**found, "compiled": False}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three short flights of ``hover``, which name no task."""
    folder = tmp_path_factory.mktemp("sets") / "hover"
    flown(folder)
    return folder


def test_demonstrations_are_learned_from_beside_the_simulation(dataset: Path, tmp_path: Path) -> None:
    settings = settings_of(dataset, tmp_path / "run", "algo=rlpd", "algo.total_steps=48", "algo.evaluate_steps=48",
                           "algo.evaluate_episodes=2")
    assert settings["num_worlds"] == 4  # as was said
    done = train(settings, quiet=True)
    assert done.figures["steps"] == 48 and done.figures["gradient_steps"] == 4 * 32
    assert 0.0 <= done.figures["evaluated_success"] <= 1.0
    more = train({**settings, "algo": {**settings["algo"], "total_steps": 64}, "resume": True}, quiet=True)
    assert more.figures["steps"] == 64
    found = load_trained(done.folder)
    judged = evaluate_on(found, found.settings, "quadrotor", EvaluationConfig(episodes=3))
    assert judged.evaluation.satisfied.trials == 3
    assert "motor_cmd" in export_run(done.folder, tmp_path / "artifact").commands


def test_episodes_begin_at_states_of_the_set_and_a_resumed_run_goes_on_alike(dataset: Path, tmp_path: Path) -> None:
    """A share that falls to nothing over the run, and no step of the set in a batch."""
    words = ("algo=rlpd", "algo.total_steps=96", "algo.demonstrations=0", "algo.snapshots=1.0",
             "algo.snapshot_steps=96", "algo.report_steps=16")
    whole = train(settings_of(dataset, tmp_path / "whole", *words), quiet=True)
    parts = settings_of(dataset, tmp_path / "parts", *words)
    train({**parts, "algo": {**parts["algo"], "total_steps": 48}}, quiet=True)
    again = train({**parts, "resume": True}, quiet=True)
    timed = ("seconds", "eta", "rate", "fraction")
    assert {k: v for k, v in whole.figures.items() if k not in timed} == {
        k: v for k, v in again.figures.items() if k not in timed}


@pytest.mark.slow
def test_a_policy_of_sequences_is_evaluated_at_all_rates_and_exported(tmp_path: Path) -> None:
    settings = compose(["task=hover", "algo=sequence_sac", *SMALL, "algo.total_steps=48", "algo.sequence=3",
                        "algo.decide_every=2", "algo.evaluate_steps=48", "algo.evaluate_episodes=2",
                        f"out={tmp_path / 'run'}"])
    done = train({**settings, "compiled": False}, quiet=True)
    assert 0.0 <= done.figures["evaluated_frequency_averaged"] <= 1.0
    found = load_trained(done.folder)
    judged = evaluate_on(found, found.settings, "quadrotor", EvaluationConfig(episodes=3))
    assert judged.evaluation.satisfied.trials == 3
    artifact = export_run(done.folder, tmp_path / "artifact")  # replays the golden trace, what is played in it
    assert "motor_cmd" in artifact.commands


def test_what_cannot_be_learned_is_refused_before_the_run_has_a_folder(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(dataset, tmp_path / "run", "algo=rlpd")

    def refused(said: str, **changes: Any) -> None:
        algo = {**settings["algo"], **changes.pop("algo", {})}
        with pytest.raises(BadInput, match=said):
            train({**settings, "algo": algo, **changes}, quiet=True)
        assert not (tmp_path / "run").exists()

    refused("signal 'rotor_speed', which the dataset has not .algo.privileged=false", algo={"privileged": True})
    refused("algo.demonstrations=0 of algo.batch=16 are 0 rows: nothing is learned", algo={"demonstrations": 0.0})
    refused("demonstrations=0.5 of each batch are of dataset=FOLDER, and it is not given.* algo=sac", dataset=None)
    refused("algo.warmup=16 .*algo.total_steps=16", algo={"total_steps": 16})
    monkeypatch.setattr(memory, "free_memory", lambda device: 10**9)
    refused(r"algo.size=1000000: 1,000,000 remembered steps need 3.6 GB .*, 1.0 GB are free: at most algo.size=277776$",
            algo={"total_steps": 10**9})
    refused("at most algo.size=277776$", algo={"size": 277777})
    memory.check_replay(sac.SACConfig(size=277776, privileged=False), 4, environments.make_task(settings))


def test_few_worlds_unless_said_otherwise() -> None:
    many = compose(["task=hover"])
    found = override(many, ["algo=td3"])
    assert many["num_worlds"] > 8 and found["algo"]["name"] == "td3" and "num_worlds" not in found["algo"]
    assert compose(["task=hover", "algo=sac"])["num_worlds"] == 8


def test_those_that_take_episodes_are_named() -> None:
    assert {"sac", "td3", "iql", "bc"} <= set(learners.from_data()) and "ppo" not in learners.from_data()
