"""The artifact's formula over the signals of an interface, and its robustness on a true trajectory."""

from __future__ import annotations

from dataclasses import replace
from math import floor
from pathlib import Path

import numpy as np

from temporeal.robots.artifact.manifest import Manifest
from temporeal.robots.handed_over.arrays import read_npz
from temporeal.robots.spec import RobotSpec
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.monitoring.monitor import Reading, real_time_monitor
from temporeal_bridge.interface.interface import Interface, InterfaceError
from temporeal_bridge.mission import MISSION_TIME, task_signals


def formula_of(manifest: Manifest, robot: RobotSpec, interface: Interface) -> Formula:
    """The artifact's formula over the mission time and the signals that topics carry, pictures excluded."""
    formula = parse(manifest.formula, {**robot.signals, **task_signals(robot, interface)}, manifest.constants)
    known = {**interface.state, MISSION_TIME.name: MISSION_TIME}
    unseen = sorted(set(signals_in(formula)) - set(known))
    if unseen:
        raise InterfaceError(f"the formula reads {unseen}, which no topic of interface {interface.name!r} carries; "
                             f"carried: {', '.join(interface.state)}")
    return formula


def untold(manifest: Manifest) -> Manifest:
    """``manifest`` with a formula that stands for one that follows from words which nobody has said yet. No mission is
    judged by it."""
    return replace(manifest, formula=f"G[0,0] ({MISSION_TIME.name} >= 0)", constants={})


def judge_truth(
    manifest: Manifest, robot: RobotSpec, interface: Interface, path: Path, start_ns: int
) -> Reading:
    """The formula over the true trajectory that :mod:`temporeal_bridge.robot_sim` wrote, sampled and held on the same
    grid."""
    formula, dt = formula_of(manifest, robot, interface), 1.0 / manifest.rate_hz
    reads = [name for name in signals_in(formula) if name != MISSION_TIME.name]
    held = read_npz(path)
    arrays = {name: held[name] for name in (*reads, "stamp_ns")}
    monitor, _ = real_time_monitor(formula, dt)
    reading = monitor.reading
    for k in range(floor(manifest.horizon_s / dt + 1e-6) + 1):
        row = int(np.searchsorted(arrays["stamp_ns"], start_ns + round(k * dt * 1e9), side="right")) - 1
        sample = {name: arrays[name][max(row, 0)] for name in reads} if row < len(arrays["stamp_ns"]) else None
        reading = monitor.update(sample and {**sample, MISSION_TIME.name: k * dt})
    return reading
