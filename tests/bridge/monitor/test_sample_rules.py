"""The monitor's samples by the rules of all readers: one clock per topic, late messages are counted, and only what the
formula reads can lose a sample."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.interface.state_input import Source
from temporeal_bridge.mission import MissionStatus
from temporeal_bridge.monitor.held_samples import HeldSamples
from temporeal_bridge.monitor.mission_monitor import MissionMonitor
from temporeal_bridge.transports import messages

ROBOT = load_robot("crazyflie")
INTERFACE = load_interface(ROBOT)
DT = 20_000_000
NAN = float("nan")


class Flown:
    """A mission over ``G[0,0.2] (height > 0.5)`` that begins at ``start`` [ns]."""

    def __init__(self, artifact: Path, start: int = 0, wanted: tuple[str, ...] | None = None) -> None:
        manifest = replace(load_manifest(artifact), formula="G[0,0.2] (height > 0.5)", rate_hz=50.0, horizon_s=0.2)
        self.told: list[str] = []
        self.start = start
        self.monitor = MissionMonitor(manifest, ROBOT, INTERFACE, lambda _: None, warn=self.told.append, wanted=wanted)

    def see(self, stamp: int, height: float, topic: int = 0, **other: float) -> None:
        """A state with a stamp; it arrives 1 ms later. ``other``: NaN for what is in it besides."""
        state = INTERFACE.states[topic]
        signals = {"base_pos_w": np.array([0, 0, height]), "base_quat_w": np.array([1.0, 0, 0, 0]),
                   "base_vel_w": np.full(3, other.get("velocity", 0.0)),
                   "base_ang_vel_b": np.full(3, other.get("rates", 0.0))}
        message = STATE_CODECS[state.codec].encode(signals, stamp, ("w", "b"), state.options)
        self.monitor.take(topic, state.type, messages.encode(state.type, message), self.start + stamp + 1_000_000)

    def judged(self) -> tuple[str, int, int]:
        """Verdict, lost and late samples, with no more to come."""
        self.monitor.advance(self.start + 10**10)
        result = self.monitor.flights[-1]
        return result["verdict"], result["lost"], result["late"]


@pytest.fixture
def flown(artifact: Path) -> Flown:
    out = Flown(artifact)
    out.monitor.on_status(MissionStatus("active", 0, 0), 0)
    return out


def test_stamps_from_zero_are_times(flown: Flown) -> None:
    """A simulator's clock starts at 0. Once that stamp was none, and the state after it older than its receipt."""
    for k in range(15):
        flown.see(k * DT, 1.0 if k != 4 else 0.1)
        flown.see(k * DT, 1.0, topic=1)
    assert flown.judged() == ("violated", 0, 0)


def test_the_clock_is_that_of_the_receipt_until_a_stamp_is_set() -> None:
    held = HeldSamples()
    held.add(900, lambda: {"x": np.array(1.0)})
    held.restart(0)
    held.add(20, lambda: {"x": np.array(2.0)})
    assert [held.at(time, 1e9)["x"] for time in (0, 10, 20)] == [1.0, 1.0, 2.0]


def test_late_messages_are_counted_and_told_once(flown: Flown) -> None:
    for k in range(15):
        flown.see(k * DT + DT, 1.0)
        flown.see(k * DT + DT, -1.0)  # another publisher's, with the same stamp
    assert flown.monitor.late == 15
    assert len(flown.told) == 1
    assert "odom repeats a stamp or goes back" in flown.told[0]


@pytest.mark.parametrize("wanted", [None, ("height",)])
def test_only_what_the_formula_reads_can_lose_a_sample(artifact: Path, wanted: tuple[str, ...] | None) -> None:
    """Velocities that are NaN, and a gyroscope that is silent or wrong, refuse no formula over heights."""
    flown = Flown(artifact, wanted=wanted)
    flown.monitor.on_status(MissionStatus("active", 0, 0), 0)
    for k in range(15):
        flown.see(k * DT, 1.0, velocity=NAN)
        flown.see(k * DT, 1.0, topic=1, rates=NAN)
    assert flown.judged() == ("satisfied", 0, 0)


def test_what_it_reads_is_lost_where_it_is_wrong(flown: Flown) -> None:
    for k in range(15):
        flown.see(k * DT, NAN)
        flown.see(k * DT, 1.0, topic=1)
    verdict, lost, _ = flown.judged()
    assert (verdict, lost > 0, flown.monitor.rejected > 0) == ("undecided", True, True)


def test_a_nodes_state_repeats_by_the_same_clock() -> None:
    source = Source(INTERFACE.states[0], {})
    for stamp, repeats in ((0, False), (0, False), (DT, False), (DT, True), (0, True), (2 * DT, False)):
        assert source.repeats(stamp) is repeats
        source.stamp = source.stamp if repeats else stamp
