"""``temporeal identify``: from a log to a file and a table; what cannot be used is refused in words."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.sim.randomization.test_posterior import content as posterior_content

from temporeal.policies.cli.main import main
from temporeal.policies.cli.verbs.flight_logs import identify as verb
from temporeal.policies.cli.verbs.flight_logs.identify import known
from temporeal.policies.data.episodes.interface import ActionSpec, DataError
from temporeal.policies.data.flight_logs.inspection import inspect
from temporeal.policies.data.flight_logs.records import record_of
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.spec import load_robot
from temporeal.sim.identification import fit, identified_file
from temporeal.sim.identification.synthetic import flights
from temporeal_benchmarks.reality.excerpts import NANOBENCH, USDLOG, clean


@pytest.mark.parametrize(("words", "said"), [
    ((str(NANOBENCH), str(NANOBENCH)), "named twice"),
    ((str(NANOBENCH), "--known", "mass=0.03"), "NAME=VALUE,SD"),
    ((str(NANOBENCH), "--known", "mas=0.03,0.001", "--steps", "0"), "did you mean 'mass'?"),
    ((str(NANOBENCH), "--stretch", "9"), "0.02 to 5 s"),
    (("nothing.csv",), "not there"),
    *(((str(NANOBENCH), "--voltage", volts), "1 to 60 V are legal") for volts in ("nan", "0", "-3")),
    ((str(NANOBENCH), "--seed", "-1"), "seed (--seed) is -1"),
    ((str(NANOBENCH), "--known", "mass=33.2,0.3"), "is it in kg"),
    ((str(NANOBENCH), "--known", "mass=0.03,0.001", "--known", "mass=0.04,0.001"), "mass: given twice"),
    ((str(NANOBENCH), "--rate", "100"), "of bags alone"),
    ((str(NANOBENCH), "--episode", "3"), "of datasets and bags alone"),
    ((str(NANOBENCH), "--reach", "0.1"), "of joints alone"),
    ((str(NANOBENCH), "--out", "nofolder/i.yaml"), "there is no folder nofolder"),
    ((str(NANOBENCH), "--out", "."), "is a folder"),
    ((str(NANOBENCH), "--randomization", "r.yaml", "--residual", "./r.yaml"), "the file of --randomization, too"),
    ((str(NANOBENCH), "--randomization", "identified.yaml"), "the file of --out, too"),
    ((str(NANOBENCH), "--out", str(NANOBENCH), "--overwrite"), "the file of --out, too"),
])
def test_what_cannot_be_used_is_refused(words, said, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["identify", *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "identified.yaml").exists()


def test_a_file_that_is_there_is_not_replaced(tmp_path, capsys) -> None:
    (tmp_path / "i.yaml").write_text("mine")
    assert main(["identify", str(NANOBENCH), "--out", str(tmp_path / "i.yaml")]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_a_folder_that_one_may_not_write_in_is_refused_beforehand(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    assert main(["identify", str(NANOBENCH), "--out", str(tmp_path / "i.yaml")]) == 2
    assert f"you may not write in {tmp_path}" in capsys.readouterr().err


def test_what_is_odd_about_a_randomization_is_said(tmp_path, capsys) -> None:
    found = posterior_content()
    order, robot = found["order"], load_robot("crazyflie")
    status = {**dict.fromkeys(order, "identified"), "tau_up": "contradicts its prior",
              "torque_to_inertia_x": "not identifiable"}
    mean = [50.0 if name == "tau_down" else each for name, each in zip(order, found["mean"])]
    wide = {name: {"low": list(p.low), "high": [2 * high for high in p.high]} for name, p in robot.parameters.items()}
    verb.write_randomization(tmp_path / "r.yaml", {
        **found, "fit": {"converged": False, "reference_v": 3.8}, "simulator": {**wide, "command_delay": {}},
        "covariance": {"order": order, "mean": mean, "matrix": found["covariance"]},
        "parameters": {name: {"status": status[name], "logarithm": name in found["logarithm"]} for name in order},
    }, None, robot)
    said = capsys.readouterr().err
    assert "did not converge: randomize= refuses it" in said and "contrary to its prior: tau_up\n" in said
    assert "mean of tau_down: " in said and "10 standard deviations" in said and "inertia is drawn from" in said
    assert "drawn more widely than the robot's spec has it: mass (" in said and "inertia (" not in said


@pytest.mark.slow
def test_a_fit_without_an_end_warns(tmp_path, monkeypatch, capsys) -> None:
    """It ends in its first round here."""
    monkeypatch.setattr(fit, "ROUNDS", 1)
    monkeypatch.setattr(verb, "flights", lambda options: (flights(load_robot("crazyflie"), 1, 6.0, 3).records,
                                                          load_robot("crazyflie"), False))
    assert main(["identify", "any", "--kind", "nanobench", "--out", str(tmp_path / "i.yaml"), "--steps", "0"]) == 0
    told = capsys.readouterr()
    assert "not converged after 1 rounds" in told.err and "NOT CONVERGED" in told.out
    assert not identified_file.read(tmp_path / "i.yaml")["fit"]["converged"]
    assert [each.name for each in tmp_path.iterdir()] == ["i.yaml"]


def test_known_values() -> None:
    assert known("mass=0.0332,0.0003") == ("mass", 0.0332, 0.0003)
    for text in ("mass", "mass=a,b", "mass=1,2,3"):
        with pytest.raises(BadInput, match="NAME=VALUE,SD"):
            known(text)


def test_a_record_has_the_logs_numbers_on_one_grid() -> None:
    found = inspect(clean(USDLOG), load_robot("crazyflie"))
    record, _ = record_of(found)
    assert not record.has_pose
    assert 0 <= record.command.min() <= record.command.max() <= 1
    assert record.usable.sum() > 1000
    assert len(record.digest) == 64
    assert np.abs(record.force[record.usable].mean(0)[2] - 9.81) < 1.5


def test_a_log_without_motors_is_refused() -> None:
    found = inspect(clean(USDLOG), load_robot("crazyflie"))
    rates = ActionSpec("ctbr_cmd", (0.0,) * 4, (1.0,) * 4, "1")
    for command, said in ((None, "no commands"), (rates, "ctbr_cmd")):
        with pytest.raises(DataError, match=said):
            record_of(replace(found, log=replace(found.log, command=command)))


@pytest.mark.slow
def test_a_flight_becomes_a_file(tmp_path, capsys) -> None:
    out = tmp_path / "i.yaml"
    assert main(["identify", str(NANOBENCH), "--out", str(out), "--steps", "5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["parameters"]["mass"]["status"] == "not identifiable"
    assert told["parameters"]["drag_to_mass_x"]["status"] == "identified"
    assert told["parameters"]["torque_to_inertia_x"]["status"] == "not identifiable"
    assert out.exists()
    faster = told["parameters"]["tau_up"]  # than any source says: the stand-in for what was logged slowly
    assert faster["status"] == "contradicts its prior" and faster["high"] < faster["prior_low"]
    assert told["simulator"]["tau_up"]["value"] == pytest.approx([faster["value"]])
