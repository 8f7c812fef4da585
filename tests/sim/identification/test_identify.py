"""A simulated robot's parameters are found again, what the log cannot tell is said, and the file holds it all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.robots.spec import load_robot
from temporeal.sim.identification import fit as fitting
from temporeal.sim.identification import identified_file, uncertainty
from temporeal.sim.identification.identify import Identified, identify
from temporeal.sim.identification.noise import Noise
from temporeal.sim.identification.parameters import DRIFT, quantities, rested, weighed
from temporeal.sim.identification.prediction import datasheet, explained, identified, position_error
from temporeal.sim.identification.profile import Profile
from temporeal.sim.identification.record import CannotTell
from temporeal.sim.identification.settings import Settings
from temporeal.sim.identification.synthetic import Flights, flights
from temporeal.sim.identification.verdicts import CONTRADICTS, GIVEN, IDENTIFIED, PRIOR, verdicts
from temporeal_benchmarks.reality.synthetic import counted

ROBOT = load_robot("crazyflie")


@cache
def flown() -> Flights:
    """One robot of the prior, 10 s."""
    return flights(ROBOT, 1, 10.0, 3)


@cache
def found() -> Identified:
    """What its log says."""
    return identify(flown().records, ROBOT, Settings(steps=0))


def test_parameters_are_found_again() -> None:
    told = {each.quantity.name: each for each in verdicts(found())}
    names = [each.name for each in flown().asked]
    for name in ("thrust_to_mass", "tau_up", "tau_down", *(f"torque_to_inertia_{a}" for a in "xyz")):
        k, each = names.index(name), told[name]
        error = float(found().posterior.theta[k] - flown().truth[0, k])
        assert each.status == IDENTIFIED, name
        assert abs(error) < 5 * found().posterior.sd[k], name
        assert abs(error) < 0.1, f"{name}: {error:.3f} of the logarithm"


def test_what_the_log_cannot_tell_keeps_its_prior_and_says_why() -> None:
    told = {each.quantity.name: each for each in verdicts(found())}
    for name in ("mass", "centre_x", "centre_y", "gain_roll", "gain_pitch"):
        each = told[name]
        assert each.status == PRIOR, name
        width = (each.high - each.low) / (each.prior[1] - each.prior[0])
        assert 0.5 < width <= 1 + 1e-9 and each.prior[0] < each.value < each.prior[1], name
        assert each.why
    assert (told["mass"].low, told["mass"].high) == pytest.approx(told["mass"].prior)
    assert "weigh" in told["mass"].why


def contradicted(name: str, away: float, wide: float, plain: float, given: bool = False) -> Identified:
    """What was found, with one parameter ``away`` of its prior's standard deviations from it, known to ``wide`` of
    them (``plain``, were samples independent), and to do with no other."""
    here = found()
    k = [each.name for each in here.asked].index(name)
    one, laplace = here.asked[k], here.posterior
    theta, shrink = laplace.theta.copy(), laplace.shrink.copy()
    theta[k], shrink[k] = one.mean + away * one.sd, wide
    both = [laplace.covariance.copy(), laplace.plain.copy()]
    for matrix, size in zip(both, (wide, plain)):
        matrix[k], matrix[:, k] = 0.0, 0.0
        matrix[k, k] = (size * one.sd) ** 2
    asked = tuple(replace(each, given=given) if each is one else each for each in here.asked)
    return replace(here, problem=replace(here.problem, asked=asked),
                   posterior=replace(laplace, theta=theta, covariance=both[0], plain=both[1], shrink=shrink))


def test_a_profile_is_over_the_priors_range() -> None:
    looked, (mean, sd) = found().profile, found().problem.prior
    np.testing.assert_allclose(looked.at, mean[:, None] + np.outer(sd, [-2, -1, 1, 2]))
    sides = dict(zip((each.name for each in found().asked), looked.sides()))
    assert sides["mass"] == "none" and sides["thrust_to_mass"] == "both" and sides["torque_to_inertia_x"] == "both"
    # a fit above all that was looked at: what lies below is one side
    assert Profile(np.array([9.0]), np.array([[-2.0, -1, 1, 2]]), np.full((1, 4), 99.0)).sides() == ["one"]


def test_a_prior_that_the_log_contradicts_is_not_left_in_place() -> None:
    """As a log of NanoBench: 5 standard deviations away, known to 0.6 of one with correlated samples counted."""
    moved = contradicted("tau_up", -5.0, 0.6, 0.1)
    each = next(each for each in verdicts(moved) if each.quantity.name == "tau_up")
    assert each.status == CONTRADICTS and "5.0 standard deviations" in each.why
    assert each.high < each.prior[0]
    content = identified_file.content(moved, "unknown")
    identified_file.check(content, "here")
    assert content["simulator"]["tau_up"]["value"] == pytest.approx([each.value], rel=1e-5)


def test_a_given_value_that_the_log_contradicts_says_what_the_log_says() -> None:
    """Given 0, the log says x with variance v: the posterior is x / (1 + v), of variance v / (1 + v). x = 12, v = 3:
    6 standard deviations of their difference."""
    moved = contradicted("delay", 12 / 4, (3 / 4) ** 0.5, (3 / 4) ** 0.5, given=True)
    each = next(each for each in verdicts(moved) if each.quantity.name == "delay")
    delay = each.quantity
    assert each.status == CONTRADICTS
    assert each.why == (f"6.0 standard deviations from what was given: the log says "
                        f"{delay.mean + 12 * delay.sd:.3g}")
    calm = next(each for each in verdicts(contradicted("delay", 0.2, 0.9, 0.9, given=True))
                if each.quantity.name == "delay")
    assert calm.status == GIVEN


def test_table_covariance_and_simulator_are_of_one_posterior() -> None:
    content = identified_file.content(found(), "unknown")
    for mean, each in zip(content["covariance"]["mean"], content["parameters"].values()):
        value = np.log(each["value"]) if each["logarithm"] else each["value"]
        assert mean == pytest.approx(value, rel=1e-5, abs=1e-5)
    values = {name: each["value"] for name, each in content["parameters"].items()}
    for name in ("mass", "tau_up", "tau_down", "torque_per_thrust"):
        assert content["simulator"][name]["value"] == pytest.approx([values[name]], rel=1e-5)


@pytest.mark.slow
def test_without_pose_drag_is_not_identifiable() -> None:
    blind = replace(flown().records[0], quat=None, velocity=None, position=None)
    told = {each.quantity.name: each for each in verdicts(identify([blind], ROBOT, Settings(steps=0)))}
    for axis in "xyz":
        assert told[f"drag_to_mass_{axis}"].status == PRIOR
        assert "velocity" in told[f"drag_to_mass_{axis}"].why


@pytest.mark.slow
def test_without_accelerometer_the_motion_tells_the_thrust() -> None:
    deaf = replace(flown().records[0], force=None)
    told = {each.quantity.name: each for each in verdicts(identify([deaf], ROBOT, Settings(steps=0)))}
    k = [each.name for each in flown().asked].index("thrust_to_mass")
    assert told["thrust_to_mass"].status == IDENTIFIED
    assert abs(np.log(told["thrust_to_mass"].value) - flown().truth[0, k]) < 0.1
    for axis in "xyz":
        assert told[f"accelerometer_bias_{axis}"].status == PRIOR
        assert "no accelerometer" in told[f"accelerometer_bias_{axis}"].why


def test_identified_parameters_predict_better_than_the_specs() -> None:
    record = flown().records[0]
    ours = position_error(identified(found().asked, found().posterior.theta), record, 0.5, 3.8)
    assert float(np.sqrt((ours**2).mean())) < 0.5 * float(np.sqrt(
        (position_error(datasheet(ROBOT), record, 0.5, 3.8) ** 2).mean()))


def test_a_score_as_wide_as_the_curvature_leaves_it_and_a_narrower_one_narrows_nothing() -> None:
    rng = np.random.default_rng(0)
    curvature = (lambda a: a @ a.T)(rng.normal(size=(5, 5)))
    np.testing.assert_allclose(uncertainty.widest(curvature, curvature), curvature, atol=1e-9)
    np.testing.assert_allclose(uncertainty.widest(curvature, 0.1 * curvature), curvature, atol=1e-9)
    np.testing.assert_allclose(uncertainty.widest(curvature, 4 * curvature), 4 * curvature, atol=1e-9)


def test_scores_that_repeat_count_once() -> None:
    """Each of 500 independent scores ten times: the sum's variance is ten times that of 5000 independent ones."""
    scores = np.repeat(np.random.default_rng(1).normal(size=(500, 1)), 10, 0)
    independent, real = float((scores**2).sum()), float(uncertainty.long_run(scores, 60)[0, 0])
    assert 7 < real / independent < 12


@pytest.mark.slow
def test_a_noise_that_never_settles_does_not_keep_a_fit_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerometers that are trusted in every other round alone."""
    real, calls = fitting.fitted, [0]

    def restless(*given: Any) -> Noise:
        calls[0] += 1
        noise = real(*given)
        whitening = noise.whitening.copy()
        whitening[3:6] *= 1.0 if calls[0] % 2 else 1e-3
        return replace(noise, whitening=whitening)

    monkeypatch.setattr(fitting, "fitted", restless)
    problem = found().problem
    ended = fitting.fit(replace(problem, begins=tuple(each[:12] for each in problem.begins)), found().fit.theta)
    assert ended.converged and fitting.FROZEN < ended.rounds < fitting.ROUNDS


def test_the_benchmark_counts_every_interval() -> None:
    counts = counted(found(), flown().truth[0], True)
    assert counts.asked + counts.left == len(found().asked)
    assert counts.left >= counts.flagged == counts.hidden == 5
    # a truth far from everything is in no interval
    assert counted(found(), flown().truth[0] + 99, True).left_covered == 0


def test_r2_of_the_mean_is_zero() -> None:
    measured = np.array([1.0, 2.0, 4.0])
    where = np.ones(3, bool)
    assert explained(measured, measured, where) == 1.0
    assert explained(np.full(3, measured.mean()), measured, where) == 0.0


def test_too_short_a_flight_is_refused() -> None:
    record = flown().records[0]
    with pytest.raises(CannotTell, match="5 s at least"):
        identify([record.only(np.arange(1000) < 300)], ROBOT)
    with pytest.raises(CannotTell, match="different steps"):
        identify([record, replace(record, step=0.02)], ROBOT)


@pytest.mark.parametrize(("setting", "value", "said"), [
    ("stretch_s", 9.0, "0.02 to 5 s"), *(("reference_v", volts, "1 to 60 V") for volts in (np.nan, 0.0, -3.0, 230.0)),
    ("seed", -1, "--seed"), ("threads", 0, "--threads"), ("threads", 10**9, "--threads"), ("steps", -1, "--steps"),
    ("known", (("mass", 0.03, 0.001), ("mass", 0.04, 0.001)), "mass: given twice")])
def test_settings_that_mean_nothing_are_refused(setting: str, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Settings(**{setting: value})


def test_a_value_in_another_unit_is_refused() -> None:
    asked = quantities(ROBOT)
    with pytest.raises(ValueError, match=r"mass: 33.2 kg is more than 5 .* range of the robot's spec, .* is it in kg"):
        weighed(asked, "mass", 33.2, 0.3)
    assert weighed(asked, "mass", 0.0332, 0.0003)[0].given


def test_a_gyro_at_rest_tells_its_bias() -> None:
    rng = np.random.default_rng(0)
    rest = np.array([0.03, -0.02, 0.01]) + 0.01 * rng.standard_normal((400, 3))
    asked = rested(weighed(quantities(ROBOT), "gyro_bias_z", 0.0, 0.001), [rest])
    told = {each.name: each for each in asked}
    for axis, bias in (("x", 0.03), ("y", -0.02)):
        assert told[f"gyro_bias_{axis}"].mean == pytest.approx(bias, abs=0.002)
        assert told[f"gyro_bias_{axis}"].sd == pytest.approx(DRIFT, rel=0.05)
    assert told["gyro_bias_z"].mean == 0.0  # as it was given
    assert rested(asked, []) == asked


@pytest.mark.slow
def test_what_a_rest_tells_is_the_prior_of_a_fit() -> None:
    record = replace(flown().records[0].only(np.arange(1000) < 560), rest_rates=np.tile([0.03, -0.02, 0.01], (100, 1)))
    made = identify([record], ROBOT, Settings(steps=0))
    told = {each.quantity.name: each for each in verdicts(made)}
    assert [told[f"gyro_bias_{a}"].quantity.mean for a in "xyz"] == pytest.approx([0.03, -0.02, 0.01])


# ---------------------------------------------------------------- the file


def test_the_file_says_what_was_found(tmp_path: Path) -> None:
    content = identified_file.content(found(), "unknown")
    identified_file.write(tmp_path / "i.yaml", content)
    assert identified_file.read(tmp_path / "i.yaml") == content
    assert set(content["simulator"]) >= {"mass", "inertia", "thrust_curve", "tau_up", "tau_down", "drag"}


SPOILT: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another format": (lambda c: c.update(format="x"), "format 'x'"),
    "another key": (lambda c: c.update(run="rm"), "run"),
    "no number": (lambda c: c["parameters"]["mass"].update(value="1"), "parameters.mass"),
    "not within": (lambda c: c["parameters"]["mass"].update(value=9.0), "not within"),
    "no status": (lambda c: c["parameters"]["mass"].update(status="fine"), "status 'fine'"),
    "another order": (lambda c: c["covariance"]["order"].reverse(), "order"),
    "negative variance": (lambda c: c["covariance"]["matrix"][0].__setitem__(0, -1.0), "negative"),
    "an old version": (lambda c: c.update(version=1), "version 1"),
    "no logs": (lambda c: c.update(logs=[]), "logs is empty"),
    "no seconds": (lambda c: c["logs"][0].update(seconds=-1.0), "seconds is -1.0"),
    "converged as a text": (lambda c: c["fit"].update(converged="yes"), "converged is 'yes'"),
    "rounds as a truth": (lambda c: c["fit"].update(rounds=True), "rounds is True"),
    "no voltage": (lambda c: c["fit"].update(reference_v=float("nan")), "reference_v is nan"),
    "logarithm as a text": (lambda c: c["parameters"]["mass"].update(logarithm="no"), "logarithm is 'no'"),
    "a negative mass": (lambda c: c["parameters"]["mass"].update(low=-1.0), "above 0"),
    "very many digits": (lambda c: c["parameters"]["mass"].update(high=10**400), "are numbers"),
    "more than Python prints": (lambda c: c["parameters"]["mass"].update(high=10**5000), "are numbers"),
    "a status that is a list": (lambda c: c["parameters"]["mass"].update(status=[1]), "status is"),
    "a mean that is none": (lambda c: c["covariance"]["mean"].__setitem__(0, float("nan")), "lists of numbers"),
    "a text as a mean": (lambda c: c["covariance"]["mean"].__setitem__(0, "1"), "lists of numbers"),
    "digits in the matrix": (lambda c: c["covariance"]["matrix"][1].__setitem__(1, 10**400), "lists of numbers"),
    "a matrix that is a number": (lambda c: c["covariance"].update(matrix=3.0), "shapes"),
    "another mean": (lambda c: c["covariance"]["mean"].__setitem__(3, 0.5), "mean of thrust_to_mass is 0.5"),
    "simulator without numbers": (lambda c: c["simulator"]["mass"].update(value=["x"]), "lists of as many"),
    "simulator of nan": (lambda c: c["simulator"]["mass"].update(low=[float("nan")]), "lists of as many"),
    "simulator upside down": (lambda c: c["simulator"]["mass"].update(low=[9.0]), "above high"),
    "sensors of nan": (lambda c: c["sensors"]["gyro_x"].update(white=float("nan")), "white is nan"),
    "rows missing": (lambda c: c["covariance"]["matrix"].pop(), "shapes"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_spoilt_files_are_refused(what: str) -> None:
    spoil, said = SPOILT[what]
    content = identified_file.content(found(), "unknown")
    spoil(content)
    with pytest.raises(identified_file.WrongFile, match=said):
        identified_file.check(content, "here")


@pytest.mark.parametrize("text", ["a: [", f"a: {'9' * 5000}", "3"])
def test_what_is_no_yaml_of_it_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "i.yaml").write_text(text)
    with pytest.raises(identified_file.WrongFile):
        identified_file.read(tmp_path / "i.yaml")
