"""How the stop `level` begins and ends: not on the ground, not by one signal in the air, not for ever while blind."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.bridge.guard.guard_world import HOVER, Sinking, World, ready

from temporeal.robots.frames import from_rotation_vector
from temporeal_bridge.guard.safety.fallback_actions import FLIES_S, OFF_S
from temporeal_bridge.guard.stop_actions.ground import LIFTED_M_S
from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Proposal

BLIND_S, STALE_S, FROZEN_S = 0.3, 0.1, 0.2  # of ros.yaml
PAD_M = 0.1  # a height that says of nobody that he has landed
IDLE = np.array([0.02, 0.0, 0.0, 0.0])


def resting(world: World, height: float = PAD_M) -> dict[str, np.ndarray]:
    """A quiet estimator's state of a robot that stands: nothing but its gyro lives."""
    return {"base_pos_w": np.array([0.0, 0.0, height]), "base_quat_w": np.array([1.0, 0.0, 0.0, 0.0]),
            "base_vel_w": np.zeros(3), "base_ang_vel_b": 0.02 * world.rng.normal(size=3), "height": np.array(height)}


def stand(world: World, seconds: float, command: Any = None, height: float = PAD_M, **changes: Any) -> None:
    """Time passes, with states of a robot that stands but for ``changes``, and with commands unless there are none."""
    for k in range(round(seconds / 0.01)):
        world.publish({**resting(world, height), **changes})
        if command is not None and k % 2 == 0:
            world.propose(command)
        if k % 20 == 0:
            world.hello()
        world.pause()


def thrusts(world: World, since: float = -1.0) -> np.ndarray:
    return np.array([command[0] for at, command in world.commands if at > since])


def end(world: World, how: str) -> None:
    """The mission's stop."""
    if how == "nan":
        world.propose(np.full(4, np.nan))
    elif how == "raised":
        world.controller.send(Proposal(datagrams.FAIL, world.flight, 0, text="raised"))
    elif how == "operator":
        world.tell("mission/stop")


@pytest.fixture
def pad(lockstep, artifact):
    """A robot stands on a pad; nobody minds that it is somewhere else at once."""
    world = World(lockstep, artifact, jump=None)
    world.hello()
    stand(world, 0.2)
    assert world.mode == "ready"
    return world


# where nothing has lifted it


@pytest.mark.parametrize("how", ["nan", "raised", "operator", "silent", "deactivated"])
@pytest.mark.parametrize("height", [0.02, PAD_M])
def test_who_was_sent_nothing_in_a_mission_is_sent_nothing_in_its_stop(how, height, pad):
    """It was sent 0.85 of the thrust that carries it, and took off."""
    pad.begin()
    pad.pause()
    assert pad.mode == "active"
    if how == "deactivated":
        pad.guard.transport.active = False
    end(pad, how)
    stand(pad, 1.0, height=height)
    assert pad.mode == "stopped" and pad.guard.flight.action == "level" and not thrusts(pad).any()


@pytest.mark.parametrize("place, height, wait_s, speed, how, sent", [
    ("floor", 0.02, 0.1, 0.2, "operator", 0.0), ("floor", 0.02, 0.1, 0.0, "stale", 0.0),
    ("hand", 1.0, 0.6, 0.2, "operator", 0.0), ("hand", 1.0, 0.6, 0.0, "stale", 0.0),
    ("air", 1.0, 0.04, 0.0, "operator", 0.8), ("air", 1.0, 0.6, -1.5, "operator", 0.8)])
def test_who_stands_or_is_held_is_sent_zeros_and_who_may_fall_is_levelled(
        place, height, wait_s, speed, how, sent, lockstep, artifact):
    """Motors that idle have lifted nobody; a mission that began in the air makes the robot fall by them, and a hover
    looks like a rest for a moment: zeros dropped it from 1 m."""
    world = World(lockstep, artifact, jump=None, agree=None)
    world.hello()
    stand(world, 0.3, height=height)
    assert world.mode == "ready"
    world.begin()
    velocity = np.array([0.0, 0.0, speed]) + 1e-3
    stand(world, wait_s, IDLE, height=height, base_vel_w=velocity)
    assert world.mode == "active" and (thrusts(world) <= IDLE[0]).all()
    begun = world.own.monotonic()
    if how == "operator":
        end(world, "operator")
        stand(world, 0.1, height=height, base_vel_w=velocity)
    else:
        world.fly(0.4, IDLE, states=False)
        begun += STALE_S + 0.02
        assert world.guard.flight.code == "stale"
    assert thrusts(world, begun).size > 3
    assert (thrusts(world, begun) >= sent * HOVER[0]).all()
    assert thrusts(world, begun).max() < 1.4 * sent * HOVER[0] + 1e-9
    if not sent:
        stand(world, OFF_S, height=height)
        assert world.mode == "stopped"


@pytest.mark.parametrize("wait_s, height, levels", [(0.3, 1.0, True), (FLIES_S, 1.0, False), (0.3, 0.02, False)])
def test_whom_an_earlier_mission_left_in_the_air_is_levelled_before_the_next_one_has_sent_anything(
        wait_s, height, levels, lockstep, artifact):
    """For as long as its firmware flies it; not where it has landed meanwhile."""
    world = ready(lockstep, artifact, jump=None, agree=None)
    world.begin()
    world.fly(0.3)
    world.controller.send(Proposal(datagrams.END, 1, world.step + 1, text="silence"))
    world.height = height
    world.hello()
    world.fly(wait_s, None)
    assert world.mode == "finished"
    world.height = height
    world.begin(2)
    world.pause()
    assert world.mode == "active"
    begun = world.own.monotonic()
    end(world, "nan")
    world.fly(0.1, None)
    assert world.guard.flight.sent == 0 and (thrusts(world, begun).size > 3) == levels


def test_values_may_stand_until_it_was_sent_what_lifts_it(pad):
    """Crazyswarm2's are in whole mm: its missions were over 0.2 s after they had begun."""
    pad.begin()
    stand(pad, 1.0, IDLE)
    assert pad.mode == "active"
    begun = pad.own.monotonic()
    while pad.mode == "active":
        stand(pad, 0.02, HOVER)
    lifted_s = LIFTED_M_S / (9.81 * (HOVER[0] / pad.guard.stream.airborne.ground.lifts - 1.0))
    assert pad.code == "frozen" and pad.own.monotonic() - begun == pytest.approx(lifted_s + FROZEN_S, abs=0.06)


def test_before_it_was_lifted_its_gyro_may_not_stand(pad):
    pad.begin()
    stand(pad, FROZEN_S + 0.05, IDLE, base_ang_vel_b=np.full(3, 0.01))
    assert pad.code == "frozen" and "base_ang_vel_b" in pad.guard.flight.reason


# on the ground again


def test_who_stands_with_values_that_stand_is_let_down(lockstep, artifact):
    """It was blind, then silent with 0.84 of its thrust, and its firmware locked."""
    world = ready(lockstep, artifact, jump=None, agree={
        "base_pos_w": {"rate": "base_vel_w", "within": 9.0}, "base_quat_w": {"rate": "base_ang_vel_b", "within": 0.6}})
    world.begin()
    world.fly(1.0)
    world.tell("mission/stop")
    world.fly(0.2, None)
    assert world.mode == "stopping"
    begun = world.own.monotonic()
    stand(world, 6.0)
    told = thrusts(world, begun)
    run = told[told > 0.0]
    assert 2.5 < 0.02 * run.size < 5.0 and run[-1] < 0.25 * HOVER[0] and not told[run.size:].any()
    assert world.own.monotonic() - world.commands[-1][0] < 0.03  # zeros, not silence


@pytest.mark.parametrize("changes", [
    {"base_vel_w": np.array([0.0, 0.0, -0.3])},  # it sinks
    {"base_quat_w": from_rotation_vector(np.array([0.2, 0.0, 0.0]))},  # it is tilted
    {"base_ang_vel_b": np.array([0.01, 0.0, 0.0])},  # nothing says how it turns
], ids=lambda changes: next(iter(changes)))
def test_values_that_stand_and_do_not_say_that_it_rests_turn_nobody(changes, lockstep, artifact):
    """In the air: it is blind, as without a state."""
    world = ready(lockstep, artifact, jump=None, agree={
        "base_pos_w": {"rate": "base_vel_w", "within": 9.0}, "base_quat_w": {"rate": "base_ang_vel_b", "within": 3.0}})
    world.begin()
    world.fly(1.0)
    world.tell("mission/stop")
    stand(world, FROZEN_S + 0.05, height=1.0, **changes)
    begun = world.own.monotonic()
    stand(world, 1.0, height=1.0, **changes)
    sent = [command for at, command in world.commands if at > begun]
    assert 0 < len(sent) <= BLIND_S / 0.02 + 1 and not np.any(sent, axis=0)[1:].any()


# by more than one signal


def sink(world: World, robot: Sinking, seconds: float, creeps: float) -> None:
    """Until its motors are off: with a height that goes away from the true one by so much [m/s]."""
    for k in range(round(seconds / 0.01)):
        thrust = world.commands[-1][1][0] if world.commands else 0.0
        robot.speed += 0.01 * (thrust / robot.mass - 9.81)
        robot.height += 0.01 * robot.speed
        if robot.height < 0.0:
            robot.height, robot.speed = 0.0, 0.0
        noise = 1e-3 * world.rng.normal(size=3)
        position = np.array([0.0, 0.0, robot.height + creeps * 0.01 * k]) + noise
        world.publish({**world.state(), "base_quat_w": from_rotation_vector(noise), "base_pos_w": position,
                       "base_vel_w": np.array([0.0, 0.0, robot.speed]) + noise, "height": position[2]})
        world.pause()
        if not world.commands[-1][1][0]:
            return


@pytest.mark.parametrize("creeps, ends", [(-0.1, True), (-0.2, True), (-0.4, False)])
def test_a_height_that_creeps_down_cuts_no_motors_in_the_air(creeps, ends, lockstep, artifact):
    """With -0.2 m/s from 1 m they were cut at 0.47 m, with -0.4 m/s at 0.87 m: it comes down all the same, but on the
    ground its height goes on sinking, and so do its motors on pushing."""
    world = ready(lockstep, artifact, jump=None, agree=None)
    world.begin()
    world.fly(0.3)
    world.tell("mission/stop")
    robot = Sinking(world, 1.0, 0.0)
    sink(world, robot, 8.0, creeps)
    assert robot.height == 0.0 and ends == (not world.commands[-1][1][0])


@pytest.mark.parametrize("says, within_s", [(0.0, 0.6), (-0.2, 5.0), (0.2, 5.0)])
def test_a_low_height_ends_it_on_the_ground_whatever_the_velocity_says(says, within_s, lockstep, artifact):
    """With one that is off it is let down as who stands."""
    world = ready(lockstep, artifact, jump=None, agree=None)
    world.begin()
    world.fly(0.3)
    world.tell("mission/stop")
    robot = Sinking(world, 0.3, -0.3, says=lambda speed, t: speed + says)
    while robot.height > 0.0 and world.own.monotonic() < 10.0:
        robot.fall(0.01)
    assert robot.height == 0.0 and world.commands[-1][1][0] > 0.2
    down = world.own.monotonic()
    while world.commands[-1][1][0] and world.own.monotonic() < 20.0:
        robot.fall(0.01)
    assert world.own.monotonic() - down < within_s


# what is seen again


@pytest.mark.parametrize("gap_s, again", [(0.45, True), (STALE_S + BLIND_S + FLIES_S - 0.1, True),
                                          (STALE_S + BLIND_S + FLIES_S + 0.2, False)])
def test_whom_the_firmware_still_flies_is_levelled_once_it_is_seen_again(gap_s, again, lockstep, artifact):
    """After 0.45 s without a state it was never heard of again: its firmware cut the motors at 3.5 m."""
    flying = ready(lockstep, artifact)
    flying.begin()
    flying.fly(0.3)
    flying.fly(gap_s, states=False)
    assert flying.mode == ("stopping" if again else "stopped") and flying.code == "stale"
    seen = flying.own.monotonic()
    assert seen - flying.commands[-1][0] > gap_s - STALE_S - BLIND_S - 0.05  # silent meanwhile
    flying.fly(0.3, None)
    assert (thrusts(flying, seen).size >= 14) == again
    assert np.any([command[1:] for at, command in flying.commands if at > seen]) == again


@pytest.mark.parametrize("why", ["told again", "deactivated", "attitude leapt"])
def test_who_is_to_be_silent_is_not_levelled_again(why, lockstep, artifact):
    world = ready(lockstep, artifact)
    world.begin()
    world.fly(0.3)
    world.tell("mission/stop")
    world.fly(2.2, None)
    if why == "told again":
        world.tell("mission/stop")
        world.fly(0.02, None)
    elif why == "attitude leapt":
        world.publish({**world.state(), "base_quat_w": from_rotation_vector(np.array([0.0, 0.0, 2.0]))})
    world.fly(0.45, None, states=False)
    if why == "deactivated":
        world.guard.transport.active = False
    world.fly(0.05, None, states=False)
    assert world.mode == "stopped"
    count = len(world.commands)
    world.fly(0.3, None)
    assert len(world.commands) == count


@pytest.mark.slow
def test_a_stop_that_was_blind_for_a_while_comes_out_the_same_in_a_replay(artifact, lockstep_of, tmp_path):
    pytest.importorskip("mujoco")
    from tests.bridge.replay.test_replay import Flown, again

    from temporeal_bridge.transports.memory_bus import Bus

    flown = Flown(lockstep_of(Bus()), artifact, tmp_path / "bag")
    flown.start(3)
    flown.lockstep.run(1.5)
    height = flown.robot.true()["height"]
    flown.robot.set_fault(json.dumps({"name": "stopped", "for_s": 0.6}))
    flown.lockstep.run(0.55)
    assert flown.guard.mode == "stopping" and flown.lockstep.bus.seconds - flown.guard.stream.sent_at > 0.1
    flown.lockstep.run(4.0)
    assert height > 0.5 and not flown.robot.plant.firmware.locked
    flown.lockstep.run(5.0, until=lambda: flown.guard.mode == "stopped")
    found = again(flown.close(), artifact, tolerance=0.0)
    (flight,) = found.flights
    assert found.equal and flight.own.count > 100 and flight.own.differing == flight.own.missing == 0
