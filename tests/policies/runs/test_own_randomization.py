"""``randomize=mine.yaml``: the numbers are in the settings, the draws in the environment; what is none is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.sim.randomization.test_posterior import content

from temporeal.policies.cli.main import main
from temporeal.policies.cli.verbs.flight_logs import identify as verb
from temporeal.policies.runs import run_folders
from temporeal.policies.runs.environments import make_env
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.settings.compose import compose, override
from temporeal.robots.spec import load_robot
from temporeal.sim.env import Env
from temporeal.sim.env_config import QUADROTOR
from temporeal.sim.identification import identified_file, randomization
from temporeal.sim.identification.synthetic import flights


def written(folder: Path, **changed: Any) -> str:
    """The word that names a file there."""
    (folder / "mine.yaml").write_text(yaml.safe_dump({**content(), **changed}))
    return f"randomize={folder / 'mine.yaml'}"


def env_of(*words: str) -> Env:
    return make_env(compose(["task=hover", "num_worlds=64", *words]), compiled=False)


def test_the_settings_hold_the_posterior_and_name_no_file(tmp_path: Path) -> None:
    word = written(tmp_path)
    made = compose(["task=hover", word])
    assert made["randomize"]["name"] == "mine" and made["randomize"]["posterior"] == content()
    assert str(tmp_path) not in yaml.safe_dump(made)
    assert made["randomize"]["sensors"] == compose(["task=hover"])["randomize"]["sensors"]
    assert made["randomize"]["parameters"]["rate_gain"]["kind"] == "sources", "no flight shows it"
    assert {made["randomize"]["parameters"][name]["kind"] for name in QUADROTOR.made} == {"posterior"}
    later = override(compose(["task=hover"]), [word, "randomize.parameters.mass=null"])["randomize"]
    assert later["parameters"]["mass"] is None and later["posterior"] == content()
    assert "posterior" not in compose(["task=hover", word, "randomize=none"])["randomize"], "the last word counts"
    run_folders.open_run({**made, "out": str(tmp_path / "run")}, tmp_path / "run", overwrite=False)
    assert run_folders.load_run(tmp_path / "run")["randomize"] == made["randomize"]


def test_inertia_is_as_sources_have_it_where_a_log_does_not_tell_it(tmp_path: Path) -> None:
    status = {**content()["status"], "torque_to_inertia_z": "not identifiable"}
    made = compose(["task=hover", written(tmp_path, status=status)])["randomize"]["parameters"]
    assert made["inertia"] == compose(["task=hover"])["randomize"]["parameters"]["inertia"]
    assert made["arm"]["kind"] == made["thrust_curve"]["kind"] == "posterior"


def test_a_word_that_would_say_nothing_is_refused_and_another_kind_replaces_it_whole(tmp_path: Path) -> None:
    word = written(tmp_path)
    with pytest.raises(BadInput, match="scale say nothing"):
        env_of(word, "randomize.parameters.mass.scale=0.0")
    made = compose(["task=hover", word, "randomize.parameters.arm={kind: sources}"])["randomize"]["parameters"]
    assert made["mass"] == {"kind": "posterior"} and made["arm"] == {"kind": "sources"}


@pytest.mark.parametrize(("name", "mean", "told"), [
    ("tau_up", 50.0, "mean of tau_up: .* more than 10 standard deviations"), ("mass", -20.0, "mean of mass"),
    ("thrust_to_mass", 2.2, "no robot that flies"), ("delay", 0.03, "control period of task 'hover', 10 ms")])
def test_means_of_no_such_robot_are_refused(name: str, mean: float, told: str, tmp_path: Path) -> None:
    means = [mean if each == name else old for each, old in zip(content()["order"], content()["mean"])]
    with pytest.raises(BadInput, match=told):
        env_of(written(tmp_path, mean=means))


def test_a_fit_that_did_not_converge_is_refused_and_contradictions_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="did not converge"):
        compose(["task=hover", written(tmp_path, converged=False)])
    status = {**content()["status"], "tau_up": "contradicts its prior"}
    with pytest.warns(UserWarning, match="contrary to what sources or you say: tau_up, drawn"):
        compose(["task=hover", written(tmp_path, status=status)])


def test_worlds_and_records_have_the_draws(tmp_path: Path) -> None:
    env = env_of(written(tmp_path))
    env.reset()
    mass, curve = env.backend.params()["mass"], env.backend.params()["thrust_curve"]
    assert 0.001 < float(mass.std() / mass.mean()) < 0.02
    record = env.record(7)
    assert record.parameters["mass"] == pytest.approx(float(mass[7]))
    assert record.parameters["thrust_curve"] == pytest.approx(curve[7].tolist())
    assert record.about["posterior"]["robot"] == "crazyflie"
    assert "posterior" not in env_of().record(0, 0).about, "records of before name none"


@pytest.mark.parametrize(("changed", "told"), [
    ({"robot": "other"}, "of robot 'other'"), ({"version": 9}, "version 9"), ({"order": ["mas"]}, "mas"),
    ({"revision": "${oc.env:HOME}"}, "reads no variables"), ({"covariance": [[1.0]]}, "covariance")])
def test_a_file_that_is_none_of_this_robot_is_refused(changed: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=told):
        env_of(written(tmp_path, **changed))


def test_what_is_no_file_and_no_quadrotor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing.yaml"):
        compose(["task=hover", "randomize=nothing.yaml"])
    (tmp_path / "code.yaml").write_text("!!python/object/apply:os.system [true]")
    with pytest.raises(BadInput, match="code.yaml"):
        compose(["task=hover", f"randomize={tmp_path / 'code.yaml'}"])
    with pytest.raises(BadInput, match="of quadrotors so far"):
        make_env(compose(["task=reach", "num_worlds=1", written(tmp_path)]))


@pytest.mark.slow
def test_flights_become_a_file_that_a_training_draws_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    robot = load_robot("crazyflie")
    records = flights(robot, 1, 8.0, 3).records
    monkeypatch.setattr(verb, "flights", lambda options: (records, robot, False))
    mine, found = tmp_path / "mine.yaml", tmp_path / "i.yaml"
    words = ["identify", "any", "--kind", "nanobench", "--out", str(found), "--steps", "0", "--randomization"]
    assert main([*words, str(found)]) == 2 and main([*words, str(tmp_path / "mine.json")]) == 2
    assert main([*words, str(mine)]) == 0
    told, identified = yaml.safe_load(mine.read_text()), identified_file.read(found)
    assert told == randomization.content(identified, randomization.voltage_of(records))
    assert 3.5 < told["voltage"][0] < told["voltage"][1] < 4.1
    assert (drawn := env_of(f"randomize={mine}")).reset() is not None
    low, high = (identified["simulator"]["tau_up"][key][0] for key in ("low", "high"))
    share = np.mean([low <= float(each) <= high for each in drawn.backend.params()["tau_up"]])
    assert 0.7 < share <= 1, "64 draws, of which nine in ten lie within"
    assert env_of(f"randomize={found}").reset() is not None, "an identification is one, too"
    assert main(["train", "task=hover", f"randomize={mine}", "num_worlds=64", "algo.rollout_steps=8",
                 "algo.total_steps=2048", "algo.minibatches=2", f"out={tmp_path / 'run'}"]) == 0
    assert run_folders.load_run(tmp_path / "run")["randomize"]["posterior"] == told
