"""The simulator along a record is the simulator; parameters reach it as they should; noise is told apart."""

from __future__ import annotations

import numpy as np
import pytest

from temporeal.robots.spec import load_robot
from temporeal.sim.identification import fit, noise, parameters, shooting, uncertainty
from temporeal.sim.identification.record import CannotTell, FlightRecord, check, starts
from temporeal.sim.physics.quadrotor import dynamics as physics

ROBOT = load_robot("crazyflie")
ASKED = parameters.quantities(ROBOT)
NAMES = [each.name for each in ASKED]


def record(count: int = 60, step: float = 0.005) -> FlightRecord:
    """A record with commands that change, and no gap."""
    rng = np.random.default_rng(0)
    command = np.repeat(rng.uniform(0.4, 0.9, (count // 4, 4)), 4, 0)
    still = np.zeros((count, 3))
    return FlightRecord("made", "", step, command, None, still, still, np.ones(count, bool),
                        np.tile([1.0, 0, 0, 0], (count, 1)), still, still)


def mean() -> np.ndarray:
    """The prior's middle, without a delay."""
    out = np.array([each.mean for each in ASKED])
    out[NAMES.index("delay")] = 0.0
    return out


def test_the_kernel_is_the_simulators_own_step() -> None:
    made, how = record(), parameters.flown(ASKED, mean()[None])
    out = shooting.predicted(how, made, np.array([0]), 3.8)[0]
    p, dt = tuple(map(float, how.params[0])), made.step
    state = (0.0, 0.0, 0.0, 1.0, *[0.0] * 9, *map(float, made.command[0]))
    for k in range(20):
        np.testing.assert_allclose(out[k, shooting.RATES], state[physics.WX : physics.WZ + 1], atol=1e-12)
        np.testing.assert_allclose(out[k, shooting.POSITION], state[: physics.PZ + 1], atol=1e-12)
        state = physics.motor_step(state, *map(float, made.command[k]), p, dt, True)


def test_a_delay_of_whole_samples_is_the_command_before() -> None:
    made = record()
    late = mean()
    late[NAMES.index("delay")] = 2 * made.step
    shifted = FlightRecord(**{**vars(made), "command": made.command[np.maximum(np.arange(60) - 2, 0)]})
    a = shooting.predicted(parameters.flown(ASKED, late[None]), made, np.array([10]), 3.8)
    b = shooting.predicted(parameters.flown(ASKED, mean()[None]), shifted, np.array([10]), 3.8)
    np.testing.assert_allclose(a, b, atol=1e-12)


def test_at_rest_in_the_air_an_accelerometer_says_the_thrust_and_nothing_else() -> None:
    made, how = record(), parameters.flown(ASKED, mean()[None])
    out = shooting.predicted(how, made, np.array([0]), 3.8)[0, 0]
    q = parameters.by_name(ASKED, mean()[None])
    speed, linear = made.command[0], q["curve_linear"]
    each = q["thrust_to_mass"] / 4 * (linear * speed + (1 - linear) * speed**2)
    gains = parameters.simulator_parameters(ASKED, mean()[None])["motor_gain"][0]
    np.testing.assert_allclose(out[shooting.FORCE], [0, 0, (gains * each).sum()], rtol=1e-9, atol=1e-12)


def test_what_motion_cannot_tell_changes_no_flight() -> None:
    """A robot of twice the mass, with motors, inertia and drag of twice the strength, flies alike."""
    heavy = mean()
    heavy[NAMES.index("mass")] += np.log(2.0)
    flights = shooting.predicted(parameters.flown(ASKED, np.stack([mean(), heavy])), record(), np.array([0]), 3.8)
    np.testing.assert_allclose(flights[0], flights[1], atol=1e-9)
    made = parameters.simulator_parameters(ASKED, np.stack([mean(), heavy]))
    for name in ("mass", "inertia", "thrust_curve", "drag"):
        np.testing.assert_allclose(2 * made[name][0], made[name][1])


def test_a_priors_90_percent_are_the_specs_range() -> None:
    of_mass = ASKED[NAMES.index("mass")]
    np.testing.assert_allclose(of_mass.interval(of_mass.mean, of_mass.sd), (0.027, 0.034))


def test_known_values_replace_the_prior_and_are_checked() -> None:
    one = parameters.weighed(ASKED, "mass", 0.0332, 0.0003)[0]
    assert one.given
    np.testing.assert_allclose(one.value(one.mean), 0.0332)
    for name, value, sd, said in (("mas", 1, 1, "did you mean"), ("mass", -1, 1, "above 0"), ("mass", 1, 0, "above 0")):
        with pytest.raises((ValueError, LookupError), match=said):
            parameters.weighed(ASKED, name, value, sd)


def test_only_quadrotors_are_identified() -> None:
    with pytest.raises(ValueError, match="for quadrotors"):
        parameters.quantities(load_robot("franka"))


def test_stretches_lie_within_what_is_usable() -> None:
    usable = np.ones(400, bool)
    usable[200] = False
    made = FlightRecord(**{**vars(record(400)), "usable": usable})
    found = starts(made, 30)
    assert found[0] == 100  # half a second behind the begin
    assert all(usable[k : k + 30].all() for k in found)
    assert (np.diff(found) >= 30).all()
    with pytest.raises(CannotTell, match="made: 2 s"):
        check([made], 5.0)


def test_noise_of_known_size_is_found_and_made_independent() -> None:
    rng, times = np.random.default_rng(1), np.arange(1, 26) * 0.01
    walk = np.cumsum(rng.normal(0, 2.0 * np.sqrt(0.01), (400, 25)), 1)
    residual = (walk + rng.normal(0, 0.05, (400, 25)) + rng.normal(0, 0.3, (400, 1)))[..., None]
    found = noise.fitted(residual, times, (True,), np.ones(400))
    white, start, _, steps, _ = found.terms[0]
    np.testing.assert_allclose([white, start, steps], [0.05, 0.3, 2.0], rtol=0.2)
    independent = found.white(residual)[..., 0] * np.sqrt(found.alike[0])
    np.testing.assert_allclose(np.cov(independent.T), np.eye(25), atol=0.35)


def test_autocorrelation_time_of_a_process_of_first_order() -> None:
    """Of x' = a x + noise it is (1 + a) / (1 - a)."""
    rng, x = np.random.default_rng(2), np.zeros(40_000)
    for k in range(1, len(x)):
        x[k] = 0.8 * x[k - 1] + rng.normal()
    np.testing.assert_allclose(noise.autocorrelation_time(x), 9.0, rtol=0.15)
    np.testing.assert_allclose(noise.autocorrelation_time(rng.normal(size=40_000)), 1.0, atol=0.1)


class Wild:
    """A problem of one parameter: residuals are theta - 1, and beyond ``edge`` no numbers."""

    prior = (np.zeros(1), np.full(1, 10.0))

    def __init__(self, edge: float) -> None:
        self.edge = edge

    def residuals(self, theta: np.ndarray) -> np.ndarray:
        out = np.where(theta > self.edge, [[np.inf]], theta - 1)
        return np.repeat(np.repeat(out[:, None, None], 4, 1), 3, 2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("edge", "end"), [(5.0, 1.0), (0.5, 0.5), (-1.0, 0.0)])
def test_a_fit_does_not_go_where_flights_leave_all_numbers_behind(edge: float, end: float) -> None:
    """It goes up to there, and where there is nothing else it stays."""
    flat = noise.Noise(np.zeros((1, 5)), np.eye(3)[None], np.ones(1))
    found = fit.descended(Wild(edge), flat, np.ones(4), np.zeros(1), 20)
    assert found[0] <= edge or edge < 0
    assert abs(found[0] - end) < 0.3


@pytest.mark.filterwarnings("error")
def test_of_a_fit_whose_neighbours_are_no_numbers_nothing_is_said() -> None:
    """Whatever it says of having converged: it did not move because it could not."""
    flat = noise.Noise(np.zeros((1, 5)), np.eye(3)[None], np.ones(1))
    stuck = fit.Fit(np.zeros(1), flat, np.ones(4), np.full((4, 3, 1), np.inf), np.zeros((4, 3)), 2, True)
    with pytest.raises(CannotTell, match="no numbers"):
        uncertainty.laplace(Wild(-1.0), stuck)
