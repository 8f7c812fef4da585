"""Logs that are in the project's signals already: an episode of a dataset, or of a bag (``formats/rosbag.py``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.policies.data.flight_logs.flight_log import (
    ACCELERATION,
    ATTITUDE,
    BATTERY,
    COMMAND,
    IMU,
    MOCAP,
    MOTORS,
    POSITION,
    RATES,
    VELOCITY,
    VOLTAGE,
    FlightLog,
    Numbers,
    Stream,
)

KIND = "dataset"
SOURCES = {MOCAP: (POSITION, ATTITUDE, VELOCITY), IMU: (ACCELERATION, RATES), BATTERY: (VOLTAGE,)}
ROTORS = 4


def read_episode(path: Path, number: int = 0) -> FlightLog:
    """Episode ``number`` of a dataset."""
    data = Dataset.open(path)
    return log_of(path, KIND, data.interface, data.episode(number))


def log_of(path: Path, kind: str, interface: Interface, episode: Episode) -> FlightLog:
    """An episode as a log: all of its sources have the times of its grid."""
    times = np.arange(episode.samples) / interface.rate_hz
    streams = {}
    for name, signals in SOURCES.items():
        values = {signal: numbers(episode, signal) for signal in signals if signal in interface.signals}
        if values:
            streams[name] = Stream(name, times, values)
    spec = interface.action
    commanded = spec.size == ROTORS and spec.name.startswith("motor_") and bool(
        np.isfinite([*spec.low, *spec.high]).all())
    if commanded:
        streams[MOTORS] = Stream(MOTORS, times[: episode.steps], {COMMAND: np.asarray(episode.action, np.float64)})
    if not streams:
        known = ", ".join(signal for signals in SOURCES.values() for signal in signals)
        raise DataError(f"{path} has none of the signals that are judged: {known}; it has: "
                        f"{', '.join(interface.signals)}")
    return FlightLog(path, kind, interface.robot, streams, spec if commanded else None)


def numbers(episode: Episode, signal: str) -> Numbers:
    """A signal [S, *shape]."""
    return np.asarray(episode.signals[signal], np.float64)
