"""How the stop `level` begins: not on the ground."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from temporeal_bridge import link
from temporeal_bridge.link import Proposal
from temporeal_bridge.stop_actions import FLIES_S, LIFTED_M_S, OFF_S
from tests.bridge.test_guard_node import HOVER, World, ready

FROZEN_S = 0.2  # of ros.yaml
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
        world.controller.send(Proposal(link.FAIL, world.flight, 0, text="raised"))
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


@pytest.mark.parametrize("speed, sent", [(0.0, 0.0), (0.2, 0.8)])
def test_who_waits_on_the_ground_is_sent_zeros_and_who_moves_is_levelled(speed, sent, pad):
    """Motors that idle have lifted nobody; a mission that began in the air may have told them to."""
    pad.begin()
    stand(pad, 0.5, IDLE)
    assert pad.mode == "active" and (thrusts(pad) <= IDLE[0]).all()
    velocity = np.array([0.0, 0.0, -speed])
    stand(pad, 0.02, IDLE, base_vel_w=velocity)
    begun = pad.own.monotonic()
    pad.tell("mission/stop")
    stand(pad, 0.1, base_vel_w=velocity)
    assert thrusts(pad, begun).size > 3
    assert (thrusts(pad, begun) >= sent * HOVER[0]).all() and thrusts(pad, begun).max() < 1.2 * sent * HOVER[0] + 1e-9
    if not sent:
        stand(pad, OFF_S)
        assert pad.mode == "stopped"


@pytest.mark.parametrize("wait_s, height, levels", [(0.3, 1.0, True), (FLIES_S, 1.0, False), (0.3, 0.02, False)])
def test_whom_an_earlier_mission_left_in_the_air_is_levelled_before_the_next_one_has_sent_anything(
        wait_s, height, levels, lockstep, artifact):
    """For as long as its firmware flies it; not where it has landed meanwhile."""
    world = ready(lockstep, artifact, jump=None, agree=None)
    world.begin()
    world.fly(0.3)
    world.controller.send(Proposal(link.END, 1, world.step + 1, text="silence"))
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
    lifted_s = LIFTED_M_S / (9.81 * (HOVER[0] / pad.guard.lifts - 1.0))
    assert pad.code == "frozen" and pad.own.monotonic() - begun == pytest.approx(lifted_s + FROZEN_S, abs=0.06)


def test_before_it_was_lifted_its_gyro_may_not_stand(pad):
    pad.begin()
    stand(pad, FROZEN_S + 0.05, IDLE, base_ang_vel_b=np.full(3, 0.01))
    assert pad.code == "frozen" and "base_ang_vel_b" in pad.guard.flight.reason
