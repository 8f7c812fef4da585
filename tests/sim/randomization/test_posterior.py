"""Draws from an identification's posterior: their covariance through the map, their ends, and what is refused."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from temporeal.robots.spec import load_robot
from temporeal.sim.compiler.keyed_random import KeyedDraws
from temporeal.sim.env_config import QUADROTOR
from temporeal.sim.identification.parameters import by_name, quantities, simulator_parameters
from temporeal.sim.physics.quadrotor import identified
from temporeal.sim.physics.quadrotor.rotor import flight_parameters
from temporeal.sim.randomization.distributions import bounds, draw_parameters, parse_randomization
from temporeal.sim.randomization.posterior import FORMAT, VERSION, parse_posterior

ROBOT = load_robot("crazyflie")
PARAMETERS = flight_parameters(ROBOT)
ASKED = tuple(q for q in quantities(ROBOT) if q.name in (*QUADROTOR.needed, QUADROTOR.exponent))
N = 20_000
WORLDS, FIRST = torch.arange(N), torch.zeros(N, dtype=torch.int64)
TOGETHER = {name: {"kind": "posterior"} for name in QUADROTOR.made}


def content(width=0.1, **changed):
    """A posterior a tenth as wide as the prior, of which everything hangs together with everything."""
    rng = np.random.default_rng(7)
    sd = width * np.array([q.sd for q in ASKED])
    mixed = rng.standard_normal((len(ASKED), 3))
    correlation = 0.3 * np.eye(len(ASKED)) + 0.7 * (mixed @ mixed.T) / np.outer(*[np.linalg.norm(mixed, axis=1)] * 2)
    mean = [float(q.mean) if q.name != "delay" else 0.008 for q in ASKED]
    return {"format": FORMAT, "version": VERSION, "robot": "crazyflie", "revision": "", "logs": [
        {"name": "flight", "sha256": ""}], "converged": True, "reference_v": 3.8, "voltage": None,
        "order": [q.name for q in ASKED], "status": {q.name: "identified" for q in ASKED},
        "logarithm": [q.name for q in ASKED if q.log], "mean": mean,
        "covariance": (correlation * np.outer(sd, sd)).tolist(), **changed}


def drawn(what, seed=3, worlds=WORLDS, episode=FIRST):
    posterior = parse_posterior(what, "crazyflie", QUADROTOR)
    distributions = parse_randomization(TOGETHER, PARAMETERS, posterior=posterior)
    return {name: value.double().numpy() for name, value in draw_parameters(
        PARAMETERS, distributions, seed, worlds, episode).items()}


def fitted(made):
    """The coordinates that identification fits, of parameters: those that they show."""
    full = made["thrust_curve"].sum(1)
    lever = np.stack([made["arm"][:, 0]] * 2 + [made["torque_per_thrust"]], 1)
    return {
        "mass": np.log(made["mass"]), "arm": np.log(made["arm"][:, 0]), "tau_up": np.log(made["tau_up"]),
        "tau_down": np.log(made["tau_down"]), "torque_per_thrust": np.log(made["torque_per_thrust"]),
        "thrust_to_mass": np.log(4 * full / made["mass"]), "curve_linear": made["thrust_curve"][:, 1] / full,
        "delay": made["command_delay"], **{f"torque_to_inertia_{a}": np.log(
            lever[:, k] * full / made["inertia"][:, k]) for k, a in enumerate("xyz")},
        **{f"drag_to_mass_{a}": made["drag"][:, k] / made["mass"] for k, a in enumerate("xyz")}}


def test_draws_have_the_files_covariance_through_the_simulators_parameters() -> None:
    what = content()
    found = fitted(drawn(what))
    names = list(found)
    at = [what["order"].index(name) for name in names]
    told = np.array(what["covariance"])[np.ix_(at, at)]
    sample = np.cov(np.array([found[name] for name in names]))
    scale = np.sqrt(np.diag(told))
    assert np.allclose(sample / np.outer(scale, scale), told / np.outer(scale, scale), atol=5 / np.sqrt(N))
    middle = np.array([found[name].mean() for name in names]) - np.array(what["mean"])[at]
    assert np.abs(middle / scale).max() < 5 / np.sqrt(N)


def test_the_map_is_the_one_of_identification_and_gains_follow_the_centre_of_mass() -> None:
    theta = np.random.default_rng(0).normal([q.mean for q in ASKED], [0.1 * q.sd for q in ASKED], (5, len(ASKED)))
    theta[:, [q.name for q in ASKED].index("delay")] = 0.004
    ours = identified.drawn_parameters(by_name(ASKED, theta), None)
    for name, value in simulator_parameters(ASKED, theta).items():
        assert np.array_equal(ours[name], value)
    assert set(ours) == set(QUADROTOR.made)


def test_a_draw_depends_on_seed_world_and_episode_alone() -> None:
    some = torch.tensor([5, 3, 900])
    one, all_ = drawn(content(), worlds=some, episode=torch.zeros(3, dtype=torch.int64)), drawn(content())
    for name, value in one.items():
        assert np.array_equal(value, all_[name][some.numpy()])
    for other in (drawn(content(), seed=4), drawn(content(), episode=FIRST + 1)):
        assert abs(np.corrcoef(other["mass"], all_["mass"])[0, 1]) < 5 / np.sqrt(N)


@pytest.mark.parametrize(("alone", "inertia", "tau_down", "gain"), [
    (False, 1.3460045e-05, 0.11456128, 0.99064517), (True, 1.35209766e-05, 0.11282443, 0.98716825)])
def test_every_machine_draws_the_same_robots(alone: bool, inertia: float, tau_down: float, gain: float) -> None:
    """Where eigenvalues are equal, as of parameters on their own, eigenvectors are whatever a library makes of them."""
    what = content()
    if alone:
        what["covariance"] = np.diag(np.diag(what["covariance"])).tolist()
    made = drawn(what, worlds=WORLDS[1:2], episode=FIRST[1:2])
    found = [made["mass"][0], made["inertia"][0, 0], made["tau_down"][0], made["motor_gain"][0, 0]]
    assert found == pytest.approx([0.03016443, inertia, tau_down, gain], rel=1e-6)


def test_no_command_acts_later_than_the_simulator_keeps_them() -> None:
    posterior = parse_posterior(content(), "crazyflie", QUADROTOR, period=0.008)  # the mean, where half are cut
    late = posterior.draw(KeyedDraws(3, WORLDS, FIRST))["command_delay"].numpy()
    assert late.max() == np.float32(0.008) and abs((late == late.max()).mean() - 0.5) < 2.5 / np.sqrt(N)
    assert posterior.ends["command_delay"][1][0] == 0.008


def test_what_cannot_be_is_cut_off_and_ends_are_where_the_draws_are() -> None:
    made = drawn(content(width=3.0))
    for name in ("mass", "inertia", "tau_up", "tau_down", "arm", "torque_per_thrust"):
        assert made[name].min() > 0, name
    assert made["drag"].min() == 0 and made["command_delay"].min() == 0
    assert made["motor_gain"].min() == pytest.approx(identified.LEAST_GAIN)
    assert (2 * made["inertia"].max(1) <= made["inertia"].sum(1) * (1 + 1e-5)).all()
    linear = made["thrust_curve"][:, 1] / made["thrust_curve"].sum(1)
    assert linear.min() == pytest.approx(identified.LINEAR[0]) and linear.max() == pytest.approx(identified.LINEAR[1])
    posterior = parse_posterior(content(), "crazyflie", QUADROTOR)
    found = parse_randomization({"mass": {"kind": "posterior"}}, PARAMETERS, posterior=posterior)["mass"]
    (low,), (high,) = bounds(found, PARAMETERS["mass"], "mass")
    beyond = np.mean((drawn(content())["mass"] < low) | (drawn(content())["mass"] > high))
    assert 0 < beyond < 0.008


def test_a_battery_turns_rotors_slower_by_the_drawn_exponent() -> None:
    full, low = drawn(content()), drawn(content(voltage=[3.04, 3.04]))  # four fifths of the reference
    posterior = parse_posterior(content(), "crazyflie", QUADROTOR)
    theta = posterior.mean + KeyedDraws(3, WORLDS, FIRST).normal("randomize.posterior", len(ASKED)).double().numpy() @ (
        posterior.root.T)
    slower = 0.8 ** theta[:, posterior.order.index("voltage_exponent")]
    for speed in (0.3, 0.9):  # thrust at a command is what it was at the speed that rotors now have
        command, shrunk = speed ** np.arange(3), (slower * speed)[:, None] ** np.arange(3)
        assert np.allclose((low["thrust_curve"] * command).sum(1), (full["thrust_curve"] * shrunk).sum(1), atol=1e-6)
    assert np.array_equal(full["mass"], low["mass"])


@pytest.mark.parametrize(("changed", "told"), [
    ({"robot": "other"}, "of robot 'other'"), ({"version": 2}, "version 2"), ({"version": True}, "version True"),
    ({"voltage": [0.5, 100.0]}, "within 1.9 to 5.7 V"), ({"converged": 1}, "converged"),
    ({"status": {"mass": "identified"}}, "status"), ({"format": "x"}, "format 'x'"),
    ({"order": ["mass"]}, "lacks arm"), ({"reference_v": True}, "reference_v"), ({"voltage": [4.0, 3.0]}, "voltage"),
    ({"mean": [0.0]}, "mean"), ({"logarithm": []}, "logarithm"), ({"logs": []}, "logs"), ({"more": 1}, "more"),
    ({"mean": [10**400] * len(ASKED)}, "mean"), ({"mean": [900.0] * len(ASKED)}, "no finite numbers")])
def test_what_is_no_posterior_of_this_robot_is_refused(changed, told) -> None:
    with pytest.raises(ValueError, match=told):
        parse_posterior(content(**changed), "crazyflie", QUADROTOR)


def test_a_quantity_that_nobody_knows_and_a_matrix_that_is_no_covariance_are_refused() -> None:
    what = content()
    what["order"][0] = "weight"
    with pytest.raises(ValueError, match="no such quantity: weight"):
        parse_posterior(what, "crazyflie", QUADROTOR)
    for row, column, value in ((0, 0, -1e-3), (0, 1, 0.5), (0, 1, None)):
        what = copy.deepcopy(content())
        what["covariance"][row][column] = value
        with pytest.raises(ValueError, match="covariance"):
            parse_posterior(what, "crazyflie", QUADROTOR)
    what = copy.deepcopy(content())
    (first, _, *_), (_, second, *_), *_ = what["covariance"]
    what["covariance"][0][1] = what["covariance"][1][0] = 2 * np.sqrt(first * second)
    with pytest.raises(ValueError, match="negative variance"):
        parse_posterior(what, "crazyflie", QUADROTOR)


def test_the_kind_needs_a_posterior_that_says_something_of_the_parameter() -> None:
    posterior = parse_posterior(content(), "crazyflie", QUADROTOR)
    for raw, given, told in (
            ({"mass": {"kind": "posterior"}}, None, "needs one"),
            ({"rate_gain": {"kind": "posterior"}}, posterior, "says nothing of 'rate_gain'"),
            ({"motor_gain": {"kind": "posterior", "shared": True}}, posterior, "shared say nothing"),
            ({"mass": {"kind": "posterior", "scale": 0.0}}, posterior, "scale say nothing"),
            ({"thrust_curve": {"kind": "posterior"}, "mass": {"kind": "sources"}}, posterior, "--known mass=VALUE,SD"),
            ({"mass": None, "inertia": {"kind": "posterior"}}, posterior, "would not fly"),
            ({"mass": {"kind": "posterior"}, "arm": {"kind": "posterior", "when": "start"}}, posterior, "when"),
            ({"mass": {"kind": "posterior", "when": {"every_s": 1.0}}}, posterior, "when")):
        with pytest.raises(ValueError, match=told):
            parse_randomization(raw, PARAMETERS, posterior=given)
    tight = replace(PARAMETERS["mass"], most=0.03)
    with pytest.raises(ValueError, match="at most"):
        parse_randomization({"mass": {"kind": "posterior"}}, {**PARAMETERS, "mass": tight}, posterior=posterior)
