"""The stop `level` of a robot that has just been told to take off: nobody knows yet what it hovers with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.bridge.guard.stop_actions.test_level import GROUND_M, simulate
from tests.bridge.replay.test_replay import NUMBER, Flown
from tests.examples import thinned

pytest.importorskip("mujoco")

LIGHT: dict[str, Any] = {"mass": 0.027, "motor_gain": 1.15}  # hovers with 0.74 of the nominal thrust


def glitch(signal: str, index: int, by: float, for_s: float = 0.01) -> dict[str, Any]:
    """One component of a signal is off, for one sample or more."""
    return {"name": "jump", "signal": signal, "index": index, "by": by, "scale": 1.0, "for_s": for_s}


def lost(for_s: float = 50.0) -> dict[str, Any]:
    """No state comes."""
    return {"name": "stopped", "for_s": for_s}


TAKE_OFFS = [
    (LIGHT, glitch("base_pos_w", 0, 0.5), 0.1, 0.02, 0.1), (LIGHT, glitch("base_pos_w", 2, 0.3), 0.1, 0.02, 0.1),
    (LIGHT, glitch("base_pos_w", 0, 0.5), 0.5, 0.5, 1.5), ({"mass": 0.029, "motor_gain": 1.12},
     glitch("base_pos_w", 0, 0.5), 0.3, 0.1, 0.8), (LIGHT, {"name": "stamped", "by_s": 0.3}, 0.5, 0.5, 1.5),
    (LIGHT, glitch("base_quat_w", 1, 0.7, 0.05), 0.1, 0.02, 0.1), (LIGHT, lost(), 0.06, 0.02, 0.1),
    (LIGHT, lost(), 0.2, 0.03, 0.3), (LIGHT, lost(), 0.5, 0.75, 1.6), ({}, lost(), 0.5, 0.1, 0.5),
    ({"mass": 0.027}, lost(), 0.7, 1.0, 2.5)]


@pytest.mark.parametrize(
    "changes, fault, at_s, at_most_m, no_faster",
    thinned(TAKE_OFFS, keep=[TAKE_OFFS[i] for i in (2, 6, 10)]), ids=str)  # a garbled place; no state, early and late
@pytest.mark.slow
def test_a_fault_at_its_take_off_lifts_nobody_to_the_ceiling(
        changes, fault, at_s, at_most_m, no_faster, grounded, lockstep_of, tmp_path, monkeypatch):
    """With the nominal thrust, less 15 %, the lightest and strongest rose to the ceiling after one garbled sample of
    its place, and fell from there where the state was lost half a second after the start."""
    from temporeal_bridge.transports.memory_bus import Bus

    simulate(monkeypatch, changes, GROUND_M)
    flown = Flown(lockstep_of(Bus()), grounded, tmp_path / "bag")
    flown.send("sim/reset", NUMBER, data=3)
    flown.lockstep.run(0.3)
    flown.send("mission/start", NUMBER, data=3)
    flown.lockstep.run(at_s)
    flown.robot.set_fault(json.dumps(fault))
    highest, fastest = 0.0, 0.0
    for _ in range(400):
        flown.lockstep.run(0.02)
        true = flown.robot.true()
        highest = max(highest, float(true["height"]))
        fastest = max(fastest, -float(true["base_vel_w"][2]))
    assert flown.guard.flight.reason and highest < at_most_m and fastest < no_faster
    assert true["height"] < 0.03 and not flown.robot.crashed
    flown.close()
