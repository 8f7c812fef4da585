"""The stream of commands: what may follow, when it is due, and what the robot may still hold."""

from __future__ import annotations

import numpy as np
import pytest
from tests.bridge.guard.parts import PERIOD, config, stream

from temporeal.robots.motion.rate_limiter import at_rest
from temporeal_bridge.guard.command_stream import EARLY, LATE, PACE
from temporeal_bridge.guard.safety.reasons import NOTHING

HOME = np.asarray(config().robot.home["joint_pos"])


@pytest.fixture
def arm():
    return stream(config())


def sent(arm, command: np.ndarray, now: float) -> None:
    """The command as far as it may be sent at time ``now``, 10 s into the mission."""
    verdict, arm.motion, collides = arm.limited(command, 10.0, None)
    assert not collides
    arm.departed(np.asarray(verdict.command), now, now)


def test_the_first_command_begins_where_the_robot_is_measured(arm):
    assert arm.start(HOME + 0.01, 0.0) == NOTHING
    assert np.allclose(arm.origin, HOME, atol=1e-4) and not arm.motion.speed.any()
    code, text = stream(config()).start(HOME + 1.0, 0.0)
    assert code == "start" and "too far" in text


def test_each_command_keeps_the_limits_of_motion(arm):
    arm.start(HOME, 0.0)
    for k in range(50):
        before = arm.motion.command
        sent(arm, HOME + 0.5, k * PERIOD)
        assert (np.abs(arm.motion.command - before) <= arm.limits.speed * PERIOD + 1e-12).all()
    assert (arm.motion.command > HOME + 0.05).all()


def test_a_command_has_its_turn(arm):
    arm.start(HOME, 0.0)
    assert not arm.early(0.0) and not arm.late(0.0) or arm.sent_at == -np.inf
    sent(arm, HOME, 1.0)
    turn = 1.0 + PACE * PERIOD
    assert arm.early(turn - (EARLY + 0.01) * PERIOD) and not arm.early(turn - (EARLY - 0.01) * PERIOD)
    assert not arm.late(1.0 + (LATE - 0.01) * PERIOD) and arm.late(1.0 + (LATE + 0.01) * PERIOD)


@pytest.mark.parametrize("periods, caught_up", [(1.8, False), (2.0, True), (5.0, True)])
def test_after_missed_periods_the_next_command_begins_at_rest(arm, periods, caught_up):
    """Single positions: the robot holds the last one. A command that is only a little late changes nothing."""
    arm.start(HOME, 0.0)
    for k in range(10):
        sent(arm, HOME + 0.5, k * PERIOD)
    moving = arm.motion
    arm.catch_up(arm.sent_at + periods * PERIOD)
    assert arm.motion.speed.any() != caught_up
    assert np.array_equal(arm.motion.command, moving.command)
    again = arm.motion
    arm.catch_up(arm.sent_at + periods * PERIOD)  # the same gap counts once
    assert arm.motion is again


def test_a_trajectory_goes_on_along_its_way_to_rest():
    arm = stream(config(interface="franka_ros2"))
    arm.start(HOME, 0.0)
    for k in range(10):
        sent(arm, HOME + 0.5, k * PERIOD)
    before = arm.motion.command
    arm.catch_up(arm.sent_at + 3 * PERIOD)
    assert (arm.motion.command > before).all()


def test_easing_comes_to_rest(arm):
    arm.start(HOME, 0.0)
    for k in range(10):
        sent(arm, HOME + 0.5, k * PERIOD)
    for _ in range(200):
        arm.ease(None)
    assert not arm.motion.speed.any()


def test_what_a_robot_may_hold_outlives_its_mission(arm):
    assert arm.held is None
    arm.motion = last = at_rest(HOME)
    arm.begin()
    assert arm.motion is None and arm.held is last and arm.sent_at == -np.inf
    arm.begin()
    assert arm.held is last
    arm.motion = newer = at_rest(HOME + 0.1)
    arm.retain()
    assert arm.held is newer
    arm.forget(0.0, taken=False)
    assert arm.held is None
