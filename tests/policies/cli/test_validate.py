"""``temporeal validate``: how wrong a simulator is, in words, numbers and a page; what cannot be used is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from temporeal.policies.cli.main import main
from temporeal.policies.cli.verbs.flight_logs import identify, joint_logs
from temporeal.policies.cli.verbs.flight_logs import validate as verb
from temporeal.policies.evaluate.flight_prediction import within
from temporeal.policies.evaluate.report import validation_page
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.training.flight_models import learned
from temporeal.policies.training.flight_models.descent import Descent
from temporeal.robots.spec import load_robot
from temporeal.sim.backends.quadrotor import make
from temporeal.sim.compiler.keyed_random import KeyedDraws
from temporeal.sim.env_config import QUADROTOR, EnvConfig, make_distribution
from temporeal.sim.identification import identified_file, parameters, randomization
from temporeal.sim.identification.noise import TERMS
from temporeal.sim.identification.synthetic import flights
from temporeal.sim.identification.validation.stretches import stride_of
from temporeal.sim.physics.quadrotor.residual import residual_file
from temporeal.sim.physics.quadrotor.residual.ensemble import Ensemble
from temporeal.sim.randomization.distributions import draw_parameters
from temporeal.sim.randomization.posterior import parse_posterior
from temporeal.sim.task import load_task
from temporeal_benchmarks.reality.excerpts import NANOBENCH

ROBOT = load_robot("crazyflie")


def content(sha256: str = "0" * 64, share: float = 0.2) -> dict[str, Any]:
    """An identification that found the prior's middle, ``share`` of its width."""
    asked = parameters.quantities(ROBOT)
    mean, sd = np.array([each.mean for each in asked]), share * np.array([each.sd for each in asked])
    told = {}
    for each, x, s in zip(asked, mean, sd):
        low, high = each.interval(x, s)
        told[each.name] = {"unit": each.unit, "value": float(each.value(x)), "low": low, "high": high,
                           "status": "identified", "why": "", "prior_low": each.interval(each.mean, each.sd)[0],
                           "prior_high": each.interval(each.mean, each.sd)[1], "shrink": share,
                           "logarithm": each.log}
    draws = parameters.simulator_parameters(asked, mean + sd * np.random.default_rng(0).normal(size=(500, len(mean))))
    fitted = parameters.simulator_parameters(asked, mean[None])
    under = {name: {"value": fitted[name][0].tolist(), "low": np.quantile(draws[name], 0.05, axis=0).tolist(),
                    "high": np.quantile(draws[name], 0.95, axis=0).tolist()} for name in fitted}
    return {"format": identified_file.FORMAT, "version": identified_file.VERSION, "robot": ROBOT.name, "revision": "x",
            "logs": [{"name": "one", "sha256": sha256, "seconds": 9.0, "step_s": 0.01}],
            "fit": {"converged": True, "rounds": 5, "stretches": 40, "stretch_s": 0.25, "reference_v": 3.8, "draws": 0,
                    "independent_draws": 0.0, "sampled_widths": []}, "parameters": told,
            "covariance": {"order": [each.name for each in asked], "mean": mean.tolist(),
                           "matrix": np.diag(sd**2).tolist()}, "simulator": under,
            "sensors": {"gyro_x": {**dict.fromkeys(TERMS, 0.01), "alike": 1.0}}}


def residual(what: dict[str, Any]) -> residual_file.Residual:
    """Residual dynamics that say nothing, on top of an identification."""
    shapes = ((4, 10), (4, 4), (6, 4))
    net = Ensemble(np.zeros(10), np.eye(10), 5.0, 20.0, np.ones(6), tuple(np.zeros((2, *each)) for each in shapes),
                   tuple(np.zeros((2, each[0])) for each in shapes))
    axes = {"x": 0.1, "y": 0.1, "z": 0.1}
    left = {**dict.fromkeys(("rates", "velocity", "position"), axes),
            **{name: {**axes, "seconds": 0.1} for name in ("attitude", "turning", "pushing")}}
    return residual_file.Residual(ROBOT.name, tuple({k: log[k] for k in residual_file.OF_LOG} for log in what["logs"]),
                                  False, what["simulator"], left, dict.fromkeys(residual_file.OF_TRAINING, 0.0), net)


@cache
def flight() -> Any:
    return flights(ROBOT, 1, 6.0, 3).records[0]


@pytest.mark.parametrize(("words", "said"), [
    ((str(NANOBENCH), "--residual", "r.yaml"), "--identified FILE is needed"),
    ((str(NANOBENCH), "--train", str(NANOBENCH)), "both name"),
    ((str(NANOBENCH), str(NANOBENCH)), "named twice"),
    ((str(NANOBENCH), "--seconds", "0"), "1 to 3600 s"),
    ((str(NANOBENCH), "--voltage", "380"), "1 to 60 V"),
    ((str(NANOBENCH), "--out", "nofolder/p.html"), "there is no folder"),
    (("nothing.csv",), "not there"),
    ((str(NANOBENCH), "--identified", "nothing.yaml"), "nothing.yaml"),
])
def test_what_cannot_be_used_is_refused(words, said, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["validate", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_flight_is_judged_by_files_and_a_fitted_one_is_named(tmp_path: Path, monkeypatch, capsys) -> None:
    record = replace(flight(), digest="a" * 64)
    monkeypatch.setattr(verb, "flights", lambda options, logs: ([record], ROBOT, False))
    what = content("a" * 64)
    identified_file.write(tmp_path / "i.yaml", what)
    residual_file.write(tmp_path / "r.yaml", residual(what), "x")
    page = tmp_path / "p.html"
    words = ["validate", "one", "--identified", str(tmp_path / "i.yaml"), "--residual", str(tmp_path / "r.yaml"),
             "--out", str(page), "--json"]
    assert main(words) == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert "was used for fitting (identified, residual dynamics)" in told.err
    assert "was used for fitting" in page.read_text() and validation_page.is_validation_page(page)
    assert found["said"][0].startswith("After 0.5 s of flight by commands alone, the simulator (identified + residual)")
    same = (found["errors"][name]["position"][-1] for name in ("identified", "identified + residual"))
    assert len(set(same)) == 1  # it says nothing
    assert set(found["left_out"]) == {"intervals of identified", "linear", "LSTM"}
    assert 0 <= found["coverage"]["identified + residual"]["position"][-1] <= 1
    assert found["steps"] == [1, 2, 5, 10, 20, 50] and len(found["errors"]["hold"]["rates"]) == 50
    assert "<script" not in page.read_text() and "http" not in page.read_text().replace("http://www.w3.org", "")


def test_residual_dynamics_of_another_identification_are_refused(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(verb, "flights", lambda options, logs: ([flight()], ROBOT, False))
    other = content()
    other["simulator"]["mass"] = {"value": [0.05], "low": [0.049], "high": [0.051]}
    identified_file.write(tmp_path / "i.yaml", content())
    residual_file.write(tmp_path / "r.yaml", residual(other), "x")
    assert main(["validate", "one", "--identified", str(tmp_path / "i.yaml"), "--residual",
                 str(tmp_path / "r.yaml")]) == 2
    assert "was trained on top of mass" in capsys.readouterr().err


def test_a_log_without_motion_capture_is_judged_by_what_it_measures(monkeypatch, capsys) -> None:
    blind = type(flight())(**{**vars(flight()), "quat": None, "velocity": None, "position": None})
    monkeypatch.setattr(verb, "flights", lambda options, logs: ([blind], ROBOT, False))
    assert main(["validate", "one", "--json"]) == 0
    told = capsys.readouterr()
    assert "no motion capture" in told.err
    found = json.loads(told.out)
    assert set(found["errors"]["nominal"]) == {"rates", "force"} and set(found["errors"]["hold"]) == {"rates"}
    assert not found["logs"][0]["pose"]
    assert "in rates" in found["said"][0] and not found["manoeuvres"]


def test_two_flights_of_one_name_are_two(tmp_path: Path, monkeypatch, capsys) -> None:
    bags = [replace(flight(), name="bag", digest=letter * 64) for letter in "abc"]
    paths = [tmp_path / at / "bag" for at in ("mon/1", "mon/2", "tue/2")]
    assert [each.name for each in verb.apart(bags, paths)] == ["1/bag", "mon/2/bag", "tue/2/bag"]
    monkeypatch.setattr(verb, "flights", lambda options, logs: (bags[1:], ROBOT, False))
    identified_file.write(tmp_path / "i.yaml", content("c" * 64))
    assert main(["validate", str(paths[0]), str(paths[1]), "--identified", str(tmp_path / "i.yaml"), "--json"]) == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert set(found["flights"]) == {"1/bag", "2/bag"} and "temporeal: 2/bag was used for fitting" in told.err
    assert [each["fitted"] for each in found["logs"]] == [[], ["identified"]]
    with pytest.raises(BadInput, match="same flight"):
        verb.apart([bags[0], bags[0]], paths[:2])


def test_logs_of_several_steps_are_refused_and_blind_ones_named(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    slow = replace(flight(), step=0.02, name="slow", digest="d" * 64)
    blind = replace(flight(), velocity=None, name="blind", digest="e" * 64)
    given = {"one": [flight()], "slow": [slow], "blind": [blind]}
    monkeypatch.setattr(verb, "flights", lambda options, logs: (sum((given[str(p)] for p in logs), []), ROBOT, False))
    assert main(["validate", "one", "slow"]) == main(["validate", "one", "--train", "slow"]) == 2
    told = capsys.readouterr().err
    assert told.count("different steps") == 2 and "slow 20 ms" in told
    monkeypatch.setattr(identify, "flights", lambda options: ([blind], ROBOT, False))
    monkeypatch.setattr(joint_logs, "robot_of", lambda options: None)
    assert main(["identify", "one", "--out", "never.yaml", "--residual", "never.r.yaml"]) == 2
    assert "no attitude and velocity in blind" in capsys.readouterr().err
    monkeypatch.setattr(identify, "flights", lambda options: ([flight()], ROBOT, False))
    assert main(["identify", "one", "--out", "never.yaml", "--residual", "never.r.yaml"]) == 2
    assert "20 s at least are needed" in capsys.readouterr().err


def test_randomization_of_the_same_identification_may_fly_with_residual_dynamics(tmp_path: Path) -> None:
    what = content(share=1.0)
    residual_file.write(tmp_path / "r.yaml", residual(what), "x")
    backend = make(ROBOT, 2000, "motor_cmd", dt=0.002, threads=1, residual_dynamics=str(tmp_path / "r.yaml"))
    posterior = parse_posterior(randomization.content(what, (3.4, 4.1)), ROBOT.name, QUADROTOR)
    every = torch.arange(2000)
    drawn = posterior.draw(KeyedDraws(0, every, torch.zeros(2000, dtype=torch.long)))
    backend.set_params(every, {name: value.reshape(2000, *backend.params()[name].shape[1:])
                               for name, value in drawn.items()})
    assert backend.params()["mass"].std() > 0


def test_draws_of_a_posterior_beyond_what_residual_dynamics_are_on_top_of_are_cut(tmp_path: Path) -> None:
    what, count = content(share=1.0), 20_000
    posterior = randomization.content(what, (3.4, 4.1))
    for each in what["simulator"].values():  # as if 3.6 standard deviations were the end: some of 20,000 are beyond
        each.update({end: (np.array(each["value"]) + 0.73 * (np.array(each[end]) - each["value"])).tolist()
                     for end in ("low", "high")})
    residual_file.write(tmp_path / "r.yaml", residual(what), "x")
    backend = make(ROBOT, count, "motor_cmd", dt=0.002, threads=1, residual_dynamics=str(tmp_path / "r.yaml"))
    config = EnvConfig(posterior=posterior, randomize={
        name: {"kind": "posterior"} for name in randomization.drawn_together(posterior)})
    found = make_distribution(load_task("hover"), backend, config, None)
    every = torch.arange(count)
    drawn = draw_parameters(found.parameters, found.randomization, 0, every, torch.zeros_like(every))
    backend.set_params(every, drawn)
    free = parse_posterior(posterior, ROBOT.name, QUADROTOR, period=0.02).draw(KeyedDraws(0, every, 0 * every))
    beyond = (free["mass"][:, 0] - drawn["mass"]).abs() > 0
    assert 0 < beyond.sum() < 0.01 * count  # what was within is as it was
    with pytest.raises(residual_file.WrongResidual, match="mass"):
        backend.set_params(every, {"mass": free["mass"][:, 0]})


@pytest.mark.slow
def test_identify_writes_residual_dynamics_by_which_validate_judges(tmp_path: Path, monkeypatch, capsys) -> None:
    found = flights(ROBOT, 1, 13.0, 3).records[0]
    begin = np.arange(len(found.usable)) < 1200
    real = learned.learned
    monkeypatch.setattr(identify, "flights", lambda options: ([replace(found.only(begin), digest="b" * 64)], ROBOT,
                                                              False))
    monkeypatch.setattr(learned, "learned", lambda model, records, slow, descent: real(
        model, records, slow, Descent(updates=20)))
    monkeypatch.setattr(joint_logs, "robot_of", lambda options: None)
    out, beside = tmp_path / "i.yaml", tmp_path / "r.yaml"
    assert main(["identify", "one", "--out", str(out), "--residual", str(beside), "--steps", "0"]) == 0
    assert "residual dynamics after 20 updates" in capsys.readouterr().err
    assert residual_file.read(beside).logs[0]["sha256"] == "b" * 64
    monkeypatch.setattr(verb, "flights", lambda options, logs: ([flight()], ROBOT, False))
    assert main(["validate", "one", "--identified", str(out), "--residual", str(beside), "--json"]) == 0
    told = capsys.readouterr()
    assert "fitting" not in told.err and "identified + residual" in json.loads(told.out)["errors"]
    make(ROBOT, 3, "motor_cmd", dt=0.002, threads=1, residual_dynamics=str(beside)).step(torch.full((3, 4), 0.6), 5)


def test_sentences_say_who_is_better() -> None:
    assert validation_page.ratio("identified", "hold", "going on", 0.2, [0.1, 0.4], 2, "m") == (
        "With going on it is 0.4 m: 2.0 times as far off.")
    assert validation_page.ratio("identified", "LSTM", "an LSTM", 0.2, [0.1], 1, "m") == (
        "With an LSTM it is 0.1 m: the simulator is worse, 2.0 times as far off.")
    assert "as good" in validation_page.ratio("identified", "LSTM", "an LSTM", 0.2, [0.205], 1, "m")
    assert "no number" in validation_page.ratio("identified", "nominal", "the spec", 0.2, [None], 1, "m")


def intervals_said(**shares: float) -> str:
    result = {"coverage": {"identified": {name: [share] for name, share in shares.items()}},
              "coverage_flights": {"identified": {name: [0.31, 0.99] for name in shares}}}
    return validation_page.honesty(result, "identified", 1, 0.5)[0]


def test_intervals_are_judged_by_each_channel() -> None:
    assert "say how uncertain" in intervals_said(position=0.86, rates=0.95)
    assert "(31 to 99 % by flight)" in intervals_said(position=0.9)
    one = intervals_said(position=0.84, attitude=0.98, rates=0.9)  # 0.907 in the mean
    assert "too narrow in position:" in one and one.endswith("and wider than they need be in attitude.")


@pytest.mark.parametrize(("step", "stride"), [(0.001, 10), (0.004, 3), (0.00999999, 1), (0.01, 1), (0.02, 1)])
def test_a_step_is_of_ten_milliseconds_at_least(step: float, stride: int) -> None:
    assert stride_of(replace(flight(), step=step)) == stride


def test_time_within_reach() -> None:
    assert within(np.array([[0.01, 0.09, 0.2, 0.05], [0.01, 0.02, 0.03, 0.04], [0.5, 0.0, 0.0, 0.0]]), 0.5
                  ).tolist() == [1.0, 2.0, 0.0]
