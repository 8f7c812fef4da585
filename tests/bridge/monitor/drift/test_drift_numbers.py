"""Prediction, whitening, sequential test and detector on streams made by hand: numbers that theory gives."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from tests.bridge.monitor.drift.quadrotors import DT, G, hover, level, spec, velocities

from temporeal.robots.artifact.additions import DriftSpec
from temporeal_bridge.monitor.drift.detector import BASELINE_S, IGNORED, MEAN_TIME_S, TESTS, Detector
from temporeal_bridge.monitor.drift.evidence import BLOCK_S, GUST, Evidence
from temporeal_bridge.monitor.drift.sequential import MOST_SHARE, Cusum, threshold
from temporeal_bridge.monitor.drift.thrust import NOMINAL, QUICK, SLOW, PredictedThrust


def test_thrust_after_a_step_is_that_of_the_lag_by_hand():
    """From n = 0.5 to 0.9 in 0.1 s with tau 0.1 s: 0.9 - 0.4 exp(-t / 0.1); 4 * 10 n^2 over 1 kg, integrated."""
    rotors = PredictedThrust(spec(), "motor_cmd")
    rotors.tell(0.0, np.full((1, 4), 0.5))
    assert rotors.advance(1.0)[:, 0] == pytest.approx([10.0] * 3)
    rotors.tell(1.0, np.full((1, 4), 0.9))
    t, tau = 0.1, 0.1
    integral = 0.81 * t - 2 * 0.9 * 0.4 * tau * (1 - exp(-t / tau)) + 0.16 * tau / 2 * (1 - exp(-2 * t / tau))
    told = sum(rotors.advance(1.0 + 0.02 * (k + 1))[NOMINAL, 0] for k in range(5))
    assert told == pytest.approx(40 * integral, rel=1e-6)
    assert rotors.speed[NOMINAL][0, 0] == pytest.approx(0.9 - 0.4 * exp(-1))


def test_a_collective_command_is_what_it_says_once_the_rotors_turn():
    rotors = PredictedThrust(spec(believed_curve=(0.0, 2.0, 8.0), thrust_curve=(0.0, 2.0, 8.0)), "ctbr_cmd", 2)
    rotors.tell(0.0, np.array([[9.81, 0, 0, 0], [20.0, 1, 1, 1]]))
    assert rotors.advance(0.5)[NOMINAL] == pytest.approx([0.5 * 9.81, 0.5 * 20.0])


def test_the_three_tracks_have_their_own_delay_and_lag():
    rotors = PredictedThrust(spec(delay=(0.0, 0.1, 0.2), tau_up=(0.05, 0.1, 0.2)), "motor_cmd")
    rotors.tell(0.0, np.zeros((1, 4)))
    rotors.tell(1.0, np.ones((1, 4)))
    rotors.advance(1.3)
    speeds = [rotors.speed[k][0, 0] for k in (NOMINAL, QUICK, SLOW)]
    assert speeds == pytest.approx([1 - exp(-0.2 / 0.1), 1 - exp(-0.3 / 0.05), 1 - exp(-0.1 / 0.2)])


def test_motors_with_the_simulators_constants_give_the_simulators_velocity():
    """A Crazyflie that is thrown with motors that jump: the predicted integral is what the physics does."""
    torch = pytest.importorskip("torch")
    from temporeal.robots.spec import load_robot
    from temporeal.sim.backends.quadrotor import make

    robot = load_robot("crazyflie")
    p = {name: each.nominal for name, each in robot.parameters.items()}
    up, down, drag = p["tau_up"][0], p["tau_down"][0], p["drag"][2]
    rotors = PredictedThrust(DriftSpec("", p["mass"][0], p["thrust_curve"], p["thrust_curve"], (up,) * 3, (down,) * 3,
                                       (0.0,) * 3, (drag,) * 3, (1.0, 1.0, 1.0), 0.02), "motor_cmd")
    backend = make(robot, 1, "motor_cmd", dt=0.002, threads=1)
    backend.reset(torch.tensor([0]), {"rotor_speed": torch.full((1, 4), 0.7)})
    total, rng = 0.0, np.random.default_rng(0)
    rotors.tell(0.0, np.full((1, 4), 0.7))
    for k in range(20):
        told = np.full((1, 4), rng.uniform(0.3, 1.0))
        rotors.tell(DT * k, told)
        before = backend.signals()["base_vel_w"][0, 2].item()
        backend.step(torch.tensor(told, dtype=torch.float32), 10)
        after = backend.signals()["base_vel_w"][0, 2].item()
        total += rotors.advance(DT * (k + 1))[NOMINAL, 0] - (G + drag / p["mass"][0] * (before + after) / 2) * DT
    assert after == pytest.approx(total, abs=2e-3) and abs(after) > 0.1


def test_blocks_are_unbiased_and_as_uncertain_as_they_say_and_independent():
    """2000 robots with 10 % less thrust: the mean of k, its variance and the correlation of neighbours. The bounds are
    five standard errors."""
    count, steps, rng = 2000, 40, np.random.default_rng(0)
    seen = velocities(np.full((steps, count), -0.1), steps, 0.02, GUST, rng)
    evidence, blocks = Evidence(spec(), count), []
    for k in range(steps):
        block = evidence.take(DT, hover(count), (seen[k], seen[k + 1]), (level(count),) * 2, np.ones(count, bool))
        if block.done.all():
            blocks.append(((block.share + 0.1) * np.sqrt(block.information), block.information))
    z = np.array([each for each, _ in blocks])
    assert len(z) == steps * DT / BLOCK_S
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert z.var() == pytest.approx(1.0, abs=5 * np.sqrt(2 / z.size))
    assert abs(np.mean(z[:-1] * z[1:])) < 5 / np.sqrt(z[1:].size)
    # by hand: noise at the ends of many blocks cancels, and gusts alone are left: (0.2 g)^2 / (0.018 * 0.2)
    assert np.mean([i for _, i in blocks[1:]]) == pytest.approx((0.2 * G) ** 2 / (GUST * 0.2), rel=0.02)


def test_the_bound_follows_from_the_stated_mean_time():
    assert threshold(3600.0, 0.2, 4) == pytest.approx(log(72_000))


def test_the_cusum_keeps_the_mean_time_that_its_bound_states():
    """At the edge of what does not matter, with a bound for 200 increments: the mean time to an alarm is at least that,
    and not ten times as much. Alarms come at a rate of less than 1 / 200: of 400 robots in 50 increments fewer than 100
    (less than 140 with chance)."""
    count, bound = 4000, log(200)
    test, rng = Cusum(-1, bound, count), np.random.default_rng(1)
    waited, alive = 0, np.ones(count, dtype=bool)
    for _ in range(100):
        waited += int(alive.sum())
        share = -0.05 + rng.normal(0.0, 0.05, count)
        edge, beyond = np.full(count, -0.05), np.full(count, -0.12)
        alive &= ~test.take(0.0, share, np.full(count, 400.0), edge, beyond, alive)
    alarms = count - int(alive.sum())
    assert 0 < alarms and waited / alarms >= 200


def test_the_cusum_finds_where_the_change_was_and_no_block_decides_alone():
    test = Cusum(-1, 8.0)
    edge, beyond, which = np.array([-0.05]), np.array([-0.12]), np.array([True])
    rows = [0.0] * 10 + [-0.9] * 10
    alarms = [bool(test.take(0.2 * k, np.array([row]), np.array([1e4]), edge, beyond, which)[0])
              for k, row in enumerate(rows)]
    assert alarms.index(True) == 10 + MOST_SHARE  # each is worth a third of the bound, and that is not above it
    assert test.since[0] == pytest.approx(2.0)
    assert test.cross[0] / test.information[0] == pytest.approx(-0.9)


def flown(share: np.ndarray, ratio: tuple[float, float, float] = (0.8, 1.0, 1.25), seed: int = 0, **changes: object):
    """What is noticed of robots with ``share`` [T, N]."""
    steps, count = share.shape
    seen = velocities(share, steps, 0.02, GUST, np.random.default_rng(seed))
    detector, found = Detector(spec(ratio=ratio, **changes), count), []
    for k in range(steps):
        found += detector.take(DT * (k + 1), DT, hover(count), (seen[k], seen[k + 1]), (level(count),) * 2,
                               np.ones(count, dtype=bool))
    return found


def test_a_loss_of_15_percent_is_noticed_and_told_with_its_size_and_time():
    share = np.zeros((400, 50))
    share[200:] = -0.15
    found = flown(share)
    assert sorted(n for n, _ in found) == list(range(50))
    assert {each.kind for _, each in found} == {"change"}
    delays = [each.at - 4.0 for _, each in found]
    assert min(delays) > 0.0 and max(delays) <= 2.0
    assert np.mean([each.ratio for _, each in found]) == pytest.approx(0.85, abs=0.01)
    assert np.mean([each.low <= 0.85 <= each.high for _, each in found]) >= 0.8
    assert np.mean([each.since for _, each in found]) == pytest.approx(4.0, abs=0.2)


def test_a_robot_that_was_never_the_one_trained_for_is_noticed_by_its_level():
    """Within the range nothing is said, beyond it all are; a change against its own beginning there is none."""
    assert flown(np.full((400, 20), -0.1)) == []
    found = flown(np.full((400, 20), -0.3))
    assert sorted(n for n, _ in found) == list(range(20)) and {each.kind for _, each in found} == {"level"}
    assert np.mean([each.ratio for _, each in found]) == pytest.approx(0.7, abs=0.015)


def test_more_thrust_is_noticed_as_more():
    share = np.zeros((300, 10))
    share[150:] = 0.2
    assert all(each.ratio > 1.1 for _, each in flown(share)) and len(flown(share)) == 10


def test_nothing_is_said_of_what_does_not_matter():
    """Forty minutes of robots whose thrust wanders by four fifths of what is ignored. At one alarm in ten hours each
    less than 0.1 are expected."""
    time = DT * np.arange(2000)[:, None]
    share = 0.8 * IGNORED * np.sin(2 * np.pi * time / 9.0 + np.linspace(0, 6, 60))
    share -= share[: round(BASELINE_S / DT)].mean(axis=0)  # the beginning is the middle, not a crest
    assert flown(np.clip(share, -IGNORED, IGNORED)) == []


def test_noise_that_is_larger_than_stated_is_found_out():
    """Three times the stated noise, and gusts of nine times the density: without the check of the noise one robot in
    six raised an alarm in 20 s."""
    steps, count = 1000, 60
    seen = velocities(np.zeros((steps, count)), steps, 0.06, 9 * GUST, np.random.default_rng(2))
    detector, found = Detector(spec(ratio=(0.8, 1.0, 1.25)), count), []
    for k in range(steps):
        found += detector.take(DT * (k + 1), DT, hover(count), (seen[k], seen[k + 1]), (level(count),) * 2,
                               np.ones(count, dtype=bool))
    assert found == []


def test_one_bump_is_no_drift():
    share = np.zeros((400, 5))
    share[200:205] = -3.0  # 30 m/s^2 for a tenth of a second: it touched a wall
    assert flown(share) == []


def test_the_mean_time_between_false_alarms_is_more_than_an_hour():
    assert MEAN_TIME_S >= 3600.0 and Detector(spec()).bound == pytest.approx(log(len(TESTS) * MEAN_TIME_S / BLOCK_S))
