"""Runs of joints, from a bag or a dataset, as identification takes them: setpoints in each physics step, and places,
perhaps speeds and efforts, in each sample."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.episode import Episode
from temporeal.policies.data.episodes.interface import DataError, Interface
from temporeal.robots.handed_over.files import read
from temporeal.robots.spec import RobotSpec
from temporeal.sim.identification.joints.mechanism import COMMAND, PLACE
from temporeal.sim.identification.joints.problem import SIGNALS
from temporeal.sim.identification.joints.record import STILL, JointRecord
from temporeal.sim.identification.joints.timing import jitter
from temporeal.sim.identification.record import Marks, Numbers
from temporeal.sim.identification.settings import Settings

PHYSICS_S = 0.001
"""Of a physics step, at most: a stiff servo feels a setpoint that is a millisecond off."""
LIMIT = 0.002
"""rad or m: nearer to an end of its range, a joint may lie against it."""
SHORTEST_S = Settings().shortest_s


def steps_in(rate_hz: float) -> int:
    """Physics steps in a sample."""
    return ceil(1.0 / (rate_hz * PHYSICS_S) - 1e-9)


def of_fine(path: Path, robot: RobotSpec, interface: Interface, episode: Episode, each: int, reach_s: float, name: str
            ) -> JointRecord:
    """A record of an episode whose grid has ``each`` points in a sample: of a bag, read at physics' rate. ``reach_s``:
    in which a controller goes to each command."""
    count = min(episode.steps, episode.samples) // each
    told, dt = setpoints(path, robot, interface, episode)[: count * each], 1.0 / interface.rate_hz
    signals = {k: value[: count * each : each] for k, value in measured(path, robot, interface, episode).items()}
    out = record(path, robot, reached(told, reach_s, dt), signals, each * dt, each, name)
    return replace(out, jitter=jitter(told, dt))


def of_dataset(path: Path, robot: RobotSpec, interface: Interface, episode: Episode, reach_s: float, name: str
               ) -> JointRecord:
    """A record of a dataset's episode, whose commands come with its samples."""
    each, count = steps_in(interface.rate_hz), min(episode.steps, episode.samples)
    held = np.repeat(setpoints(path, robot, interface, episode)[:count], each, 0)
    commands = reached(held, reach_s, 1.0 / (interface.rate_hz * each))
    signals = {k: value[:count] for k, value in measured(path, robot, interface, episode).items()}
    return record(path, robot, commands, signals, 1.0 / interface.rate_hz, each, name)


def setpoints(path: Path, robot: RobotSpec, interface: Interface, episode: Episode) -> Numbers:
    """[T, J] of the joints, by whichever command sets them by position."""
    command, wanted = interface.action.name, robot.actuators.get(COMMAND, ())
    drives = robot.actuators.get(command, ())
    if robot.drives.get(command, "position") != "position" or not wanted or not set(wanted) <= set(drives):
        raise DataError(f"{path}: its commands are {command}; joints are identified by setpoints of position, such as "
                        f"{COMMAND}")
    if interface.action.size != robot.commands[command].size:
        raise DataError(f"{path}: {command} has {interface.action.size} numbers, robot {robot.name!r} takes "
                        f"{robot.commands[command].size}: another robot's?")
    return np.asarray(episode.action, np.float64)[:, [drives.index(each) for each in wanted]]


def reached(commands: Numbers, reach_s: float, dt: float) -> Numbers:
    """[T, J] setpoints of a trajectory controller: each new command is gone to evenly within ``reach_s``, from where
    the setpoint is when it comes (ros2_control's joint_trajectory_controller, points of positions alone)."""
    steps = int(round(reach_s / dt))
    if steps < 1:
        return commands
    out, begin, since = commands.copy(), commands[0], steps
    for k in range(1, len(commands)):
        since += 1
        before = begin + (commands[k - 1] - begin) * min(since / steps, 1.0)
        if (commands[k] != commands[k - 1]).any():
            begin, since = before, 0
        out[k] = begin + (commands[k] - begin) * min(since / steps, 1.0)
    return out


def measured(path: Path, robot: RobotSpec, interface: Interface, episode: Episode) -> dict[str, Numbers]:
    """[S, J] by signal, those that there are."""
    joints = len(robot.sources[PLACE].names)
    if PLACE not in interface.signals:
        raise DataError(f"{path} has no {PLACE}: identification needs where the joints are; it has: "
                        f"{', '.join(interface.signals)}")
    out = {name: np.asarray(episode.signals[name], np.float64) for name in SIGNALS if name in interface.signals}
    for name, values in out.items():
        if values.shape[1:] != (joints,):
            raise DataError(f"{path}: {name} has {values.shape[1:]} numbers, robot {robot.name!r} has {joints} joints: "
                            f"{', '.join(robot.sources[PLACE].names)}")
    return out


def record(path: Path, robot: RobotSpec, commands: Numbers, signals: dict[str, Numbers], step: float, each: int,
           name: str) -> JointRecord:
    """The record. What is no number is not usable, nor is what was measured while a joint that moves lies against an
    end of its range."""
    place, free = signals[PLACE], within(robot, signals[PLACE])
    there = np.all([np.isfinite(values).all(1) for values in signals.values()], axis=0)
    usable = there & free.all(1)
    if not usable.any():
        raise DataError(f"{path}: no sample can be used: {'; '.join(spoiled(robot, signals, free))}")
    if usable.sum() * step < SHORTEST_S <= there.sum() * step:
        raise DataError(f"{path}: {usable.sum() * step:.2g} s can be used, {SHORTEST_S:g} at least are needed: "
                        + "; ".join(spoiled(robot, signals, free)))
    return JointRecord(name, digest(path, commands, signals), step, each, filled(commands), filled(place),
                       filled(signals.get(SIGNALS[1])), filled(signals.get(SIGNALS[2])), usable)


def filled(values: Numbers | None) -> Numbers | None:
    """0 where there is no number: such samples are not used."""
    return None if values is None else np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def within(robot: RobotSpec, place: Numbers) -> Marks:
    """[T, J] where a joint does not lie against an end of its range. One that rests there all the time (a gripper that
    is closed) counts as free: nothing is learned of it, and it does not spoil the others."""
    if robot.motion is None:
        return np.ones(place.shape, np.bool_)
    low, high = np.array(robot.motion.low) + LIMIT, np.array(robot.motion.high) - LIMIT
    rests = np.array([np.ptp(each[np.isfinite(each)]) < STILL if np.isfinite(each).any() else True for each in place.T])
    return np.asarray(((place > low) & (place < high)) | ~np.isfinite(place) | rests)


def spoiled(robot: RobotSpec, signals: dict[str, Numbers], free: Marks) -> list[str]:
    """What makes samples unusable, joint by joint, in words."""
    names = robot.sources[PLACE].names
    return [f"{signal}[{name}] is no number in {100 * share:.0f} %" for signal, values in signals.items()
            for name, share in zip(names, 1 - np.isfinite(values).mean(0)) if share > 0] + [
        f"{name} moves, but lies against an end of its range in {100 * share:.0f} % of the samples"
        for name, share in zip(names, 1 - free.mean(0)) if share > 0]


def digest(path: Path, commands: Numbers, signals: dict[str, Numbers]) -> str:
    """SHA-256 of the log's file; of a folder, of its numbers."""
    if path.is_file():
        return hashlib.sha256(read(path)).hexdigest()
    out = hashlib.sha256(np.ascontiguousarray(commands).tobytes())
    for name, values in sorted(signals.items()):
        out.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return out.hexdigest()
