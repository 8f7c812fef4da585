"""A log on an even grid: commands are held, sensors are means around each time, and neither is moved by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.signal import lfilter

from temporeal.policies.data.flight_logs.clocks import lag
from temporeal.policies.data.flight_logs.flight_log import ACCELERATION, COMMAND, IMU, MOTORS, RATES, FlightLog, Stream
from temporeal.policies.data.flight_logs.motion import Even, centred, even, held
from temporeal.robots.spec import load_robot
from temporeal.sim.identification import shooting
from temporeal.sim.identification.parameters import flown, quantities
from temporeal.sim.identification.record import FlightRecord

ASKED = quantities(load_robot("crazyflie"), True, False)
NAMES = [each.name for each in ASKED]
NONE = np.array([], dtype=np.int64)


def test_a_held_command_is_its_mean_from_one_time_to_the_next() -> None:
    """1 from 0 s, 5 from 0.5 s, 2 from 2.25 s on: 1 and 5 by halves, 5, 5 for a quarter and 2 for three."""
    found = held(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.5, 2.25]), np.array([[1.0], [5.0], [2.0]]))
    np.testing.assert_allclose(found, [[3.0], [5.0], [2.75]])
    np.testing.assert_allclose(centred(found), [[3.0], [4.0], [3.875]])


def simulated(theta: np.ndarray, command: np.ndarray, step: float) -> np.ndarray:
    """[P, T] specific force along z of vectors theta [P, Q]."""
    still = np.zeros((len(command), 3))
    record = FlightRecord("", "", step, command, None, still, still, np.ones(len(command), bool))
    return shooting.predicted(flown(ASKED, theta), record, NONE, 3.8)[:, :, 5]


def logged(delay: float) -> tuple[Even, np.ndarray]:
    """12 s at 1 kHz of a robot whose motors are told something else each 2 ms, on the grid; and its parameters [Q].

    Commands have a memory of 30 ms, as a loop that answers a body that turns.
    """
    rng = np.random.default_rng(0)
    level = lfilter([0.36], [1.0, -np.exp(-0.002 / 0.03)], 0.12 * rng.standard_normal((6000, 1)), axis=0)
    command = np.repeat(np.clip(0.6 + level, 0, 1), 2, axis=0) * np.ones(4)
    theta = np.array([each.mean for each in ASKED])
    theta[NAMES.index("delay")], theta[NAMES.index("speed_loss")] = delay, 0.0
    force = np.zeros((len(command), 3))
    force[:, 2] = simulated(theta[None], command, 0.001)[0]
    times = 0.001 * np.arange(len(command))
    streams = {IMU: Stream(IMU, times, {RATES: np.zeros_like(force), ACCELERATION: force}),
               MOTORS: Stream(MOTORS, times, {COMMAND: command})}
    found = even(FlightLog(Path("x"), "test", "crazyflie", streams), {name: np.ones(len(times), bool)
                                                                       for name in streams})
    assert found is not None
    return found, theta


@pytest.mark.parametrize("delay", [0.003, 0.0065])
def test_a_log_at_1_khz_keeps_its_delay(delay: float) -> None:
    found, theta = logged(delay)
    assert found.step == pytest.approx(0.004)
    tried = delay + np.arange(-0.003, 0.003, 0.00025)
    many = np.repeat(theta[None], len(tried), 0)
    many[:, NAMES.index("delay")] = tried
    told = simulated(many, found.values[COMMAND], found.step)[:, 200:]
    error = ((told - found.values[ACCELERATION][200:, 2]) ** 2).mean(1)
    assert abs(tried[error.argmin()] - delay) <= 0.00025 + 1e-9


def test_the_lag_of_the_motors_has_the_delay_in_it() -> None:
    """Two robots of the same motors, of which one is told 6 ms later."""
    early, late = (lag(logged(delay)[0]).figures["offset_s"] for delay in (0.003, 0.009))
    assert late - early == pytest.approx(0.006, abs=0.001)
