"""A table of defects: each, injected into a clean excerpt of a flight, is found, named, and blamed on its cause."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    ATTITUDE,
    COMMAND,
    MARKED,
    POSITION,
    RATES,
    VELOCITY,
    WRONG,
    FlightLog,
    Numbers,
    Stream,
)
from temporeal_benchmarks.reality.defects import TABLE, Defect, inspected, told
from temporeal_benchmarks.reality.excerpts import NANOBENCH, USDLOG, Change, both, clean, times, values


@pytest.mark.parametrize("path", [NANOBENCH, USDLOG], ids=lambda path: path.name)
def test_a_clean_log_has_no_finding(path: Path) -> None:
    found = inspected(clean(path))
    assert found.of(WRONG, MARKED) == []
    assert found.verdict == "good"


def flipped(quat: Numbers) -> Numbers:
    """q and -q, by chance, as estimators write them."""
    return quat * np.where(np.random.default_rng(0).random(len(quat)) < 0.5, -1.0, 1.0)[:, None]


def rotated(log: FlightLog) -> FlightLog:
    """All of motion capture in a world that is turned by 40 degrees about z."""
    from temporeal.robots import frames

    turn = np.array([np.cos(np.radians(20)), 0, 0, np.sin(np.radians(20))])
    turned = [values(name, lambda found: frames.rotate(turn, found)) for name in (POSITION, VELOCITY)]
    return both(values(ATTITUDE, lambda q: frames.multiply(turn, q)), *turned)(log)


@pytest.mark.parametrize("change", [values(ATTITUDE, flipped), rotated,
                                    lambda log: replace(log, streams=dict(reversed(log.streams.items()))),
                                    values(RATES, lambda w: w + 0.05), times("mocap", lambda t: t + 0.01)])
def test_what_is_no_defect_is_not_called_one(change: Change) -> None:
    """Signs of quaternions, where north is, the order of sources, a bias, a sample of delay."""
    found = inspected(change(clean(NANOBENCH)))
    assert found.of(WRONG, MARKED) == []


@pytest.mark.parametrize("samples", [2, 5, 50, 300])
@pytest.mark.parametrize("path", [NANOBENCH, USDLOG], ids=lambda path: path.name)
def test_a_short_log_tells_little_and_nothing_wrong(path: Path, samples: int) -> None:
    log = clean(path)
    short = replace(log, streams={name: Stream(name, each.times[:samples], {k: v[:samples] for k, v in
                                                                           each.values.items()})
                                  for name, each in log.streams.items()})
    assert inspected(short).of(WRONG, MARKED) == []


@pytest.mark.parametrize("fill", [0.0, np.nan, 1.0, 1e30])
def test_a_log_of_nothing_is_never_good(fill: float) -> None:
    log = clean(NANOBENCH)
    for signal in (POSITION, ATTITUDE, VELOCITY, RATES, ACCELERATION, COMMAND):
        log = values(signal, lambda found: np.full_like(found, fill))(log)
    assert inspected(log).verdict != "good"


@pytest.mark.parametrize("defect", TABLE, ids=[f"{each.path.parent.name}: {each.name}" for each in TABLE])
def test_an_injected_defect_is_found_and_named(defect: Defect) -> None:
    found, said = told(defect)
    assert found, said
