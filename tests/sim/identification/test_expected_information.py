"""Expected information against what is known in closed form: a line through noisy points, parameters that act alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from temporeal.sim.identification.excitation.information import (
    Asked,
    Information,
    expected,
    gathered,
    needed,
    whitening,
)

LINE = tuple(Asked(name, "1", 1.0, True, 100.0, 1.0) for name in ("offset", "slope"))
SECONDS, SAMPLES, SIGMA = 8.0, 10, 0.3


def line() -> Information:
    """y = offset + slope t, ten samples a second in stretches of a second, each with its own clock."""
    times = np.arange(SAMPLES) / SAMPLES
    sensitivity = np.stack([np.ones(SAMPLES), times])[:, None, :, None].repeat(round(SECONDS), 1)
    each = gathered(sensitivity, [whitening(times, (SIGMA, 0.0, 0.0))])
    return Information(LINE, each, 1.0 + np.arange(SECONDS), SECONDS)


def test_a_lines_covariance_is_that_of_least_squares():
    times = np.tile(np.arange(SAMPLES) / SAMPLES, round(SECONDS))
    design = np.stack([np.ones_like(times), times], 1)
    truth = SIGMA**2 * np.linalg.inv(design.T @ design)
    assert np.allclose(line().covariance(SECONDS), truth, rtol=1e-4)


def test_a_precision_twice_as_fine_takes_four_times_as_long():
    found = line()
    sd = found.sd(SECONDS)
    assert np.allclose(found.sd(4 * SECONDS), sd / 2, rtol=1e-3)
    assert needed(found, 1, float(sd[1]) / 2) == pytest.approx(4 * SECONDS, rel=0.03)
    assert needed(found, 1, float(found.sd(3.0)[1]) * 1.001) == 3.0
    assert needed(found, 1, 200.0) == 0.0


def test_noise_of_the_start_tells_nothing_of_an_offset_however_often_it_is_read():
    times = np.arange(1, 101) / 100
    one = gathered(np.ones((1, 1, 100, 1)), [whitening(times, (0.1, 0.5, 0.0))])[0, 0, 0]
    assert one == pytest.approx(1 / (0.5**2 + 0.1**2 / 100), rel=1e-6)


def test_what_acts_alike_is_named_and_what_does_not_act_keeps_its_prior():
    found = line()
    each = np.zeros((len(found.each), 4, 4))
    each[:, :2, :2], each[:, 2, 2] = found.each, found.each[:, 1, 1]
    each[:, 1, 2] = each[:, 2, 1] = found.each[:, 1, 1]  # the third acts as the second does
    each[:, 0, 2] = each[:, 2, 0] = found.each[:, 0, 1]
    asked = (*(replace(one, prior=2.0) for one in LINE), Asked("twin", "1", 1.0, True, 2.0, 1.0),
             Asked("idle", "1", 1.0, True, 2.0, 1.0))
    offset, slope, twin, idle = expected(replace(found, asked=asked, each=each), 0.05)
    assert slope.mixed == ("twin",) and twin.mixed == ("slope",) and not twin.told
    assert twin.sd == pytest.approx(2.0 / np.sqrt(2), rel=0.01) and twin.needed == np.inf and twin.alone < 0.2
    assert (idle.sd, idle.told, idle.needed, idle.mixed) == (2.0, False, np.inf, ())
    assert offset.told and not offset.mixed
