"""The guard's modes on a clock that the test moves, without a bus."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.bridge.guard.parts import PERIOD, Output, checks, config, monitor, see, stream

from temporeal_bridge.guard.mode_machine import ModeMachine
from temporeal_bridge.guard.stop_actions.active_stop import ActiveStop
from temporeal_bridge.link.datagrams import BEGIN, Answer, Proposal


class Arm:
    """A mode machine of an arm that has just started."""

    def __init__(self) -> None:
        self.config, self.now, self.active = config(), 0.0, True
        self.monitor = monitor(self.config)
        self.output = Output(stream(self.config, self.monitor))
        self.answers: list[Answer] = []
        self.released = 0
        link: Any = SimpleNamespace(answer=lambda a, successor=False: self.answers.append(a), release=self.release)
        swaps: Any = SimpleNamespace(swap=None, drop=lambda reason: None, identity="x", manifest=None)
        self.checks = checks(self.monitor, lambda: self.active)
        self.modes = ModeMachine(
            self.checks, self.output, swaps, ActiveStop(self.config, self.monitor), link, lambda: self.now)

    def release(self) -> None:
        self.released += 1

    def begin(self, number: int = 1) -> None:
        self.modes.begin(Proposal(BEGIN, number, -1, 1000 + number), self.now)

    def move(self) -> None:
        """One command of the mission, and one turn later."""
        if self.output.stream.motion is None:
            self.output.stream.start(self.home, self.now)
        limited = self.output.stream.limited(self.home + 0.3, 10.0, None)
        self.output.stream.motion = limited.motion
        self.output.send(np.asarray(limited.verdict.command), self.now, self.modes.flight, True)
        self.pause()

    def pause(self, seconds: float = PERIOD) -> None:
        self.now += seconds
        self.modes.stepped = self.now
        see(self.monitor, self.config, self.now, 1e-6 * (self.now / PERIOD))
        self.checks.controller.heard = self.now

    def stop_to_the_end(self) -> None:
        for _ in range(500):
            if self.modes.mode != "stopping":
                return
            self.pause()
            self.modes.continue_stop(self.now)

    @property
    def home(self) -> np.ndarray:
        return np.asarray(self.config.robot.home["joint_pos"])


@pytest.fixture
def arm() -> Arm:
    made = Arm()
    made.modes.idle(0.0)
    assert made.modes.mode == "ready"
    return made


@pytest.fixture
def moving(arm: Arm) -> Arm:
    arm.begin()
    for _ in range(10):
        arm.move()
    assert arm.modes.mode == "active"
    return arm


def test_a_mission_that_ends_by_itself_is_finished(moving):
    moving.modes.end("stop")
    assert moving.modes.mode == "stopping"
    moving.stop_to_the_end()
    assert moving.modes.mode == "finished" and moving.modes.due == np.inf
    assert np.allclose(moving.output.stream.motion.command, moving.home, atol=1e-3)  # held where it is measured
    assert moving.modes.flight.reason == ""
    moving.begin(2)
    assert moving.modes.mode == "active" and [f.number for f in moving.modes.flights] == [1, 2]


def test_a_mission_that_is_stopped_is_held_until_a_reset(moving):
    moving.modes.stop("stale", "the state is old")
    assert moving.output.events[-1] == ("stale", "the state is old")
    moving.modes.stop("fence", "outside")  # the first reason stays
    moving.stop_to_the_end()
    assert moving.modes.mode == "holding" and moving.modes.flight.code == "stale"
    assert moving.modes.due == pytest.approx(moving.now + PERIOD)
    moving.begin(2)
    assert moving.modes.mode == "holding" and "mission/reset clears it" in moving.answers[-1].reason
    moving.pause(1.0)
    moving.modes.reset()
    assert moving.modes.mode == "waiting" and moving.modes.flight.reason == "" and moving.released


def test_a_reset_in_the_turn_of_a_stop_is_refused(moving):
    moving.modes.stop("stale", "the state is old")
    moving.modes.reset()
    assert moving.modes.mode == "stopping" and "still stopping" in moving.output.events[-1][1]
    moving.stop_to_the_end()
    moving.modes.reset()
    assert moving.modes.mode == "holding" and "just been stopped" in moving.output.events[-1][1]


def test_the_controller_hears_every_mode(moving):
    moving.modes.stop("operator", "stopped by the operator")
    moving.stop_to_the_end()
    assert [a.mode for a in moving.answers] == moving.output.modes == ["ready", "active", "stopping", "holding"]
    assert moving.answers[-1].reason == "stopped by the operator"
    assert all((a.flight, a.stamp_ns) == (1, 1001) for a in moving.answers[1:])


def test_a_deactivated_node_is_silent_once_its_robot_is_stopped(moving):
    count = len(moving.output.sent)
    moving.active = False
    moving.modes.stop("inactive", "deactivated")
    moving.stop_to_the_end()
    assert moving.modes.mode == "stopped" and len(moving.output.sent) == count


def test_who_is_not_ours_begins_nothing(arm):
    arm.checks.controller.greet("another digest", "ours", 0.0)
    arm.begin()
    assert arm.modes.mode == "ready" and "another artifact" in arm.answers[-1].reason


def test_without_a_controller_the_guard_waits(arm):
    arm.pause(3.0)
    arm.modes.idle(arm.now)
    assert arm.modes.mode == "waiting" and arm.released and arm.checks.controller.stranger


def test_a_guard_that_stood_still_says_so(moving):
    moving.now += 1.0
    moving.modes.stop("stale", "the state is old")
    assert moving.modes.flight.code == "guard" and "stood still for 1.000 s" in moving.modes.flight.reason


def test_a_proposal_of_no_mission_is_answered(moving):
    moving.modes.disown(Proposal(2, 7, 3, 5))
    assert moving.modes.flight.dropped == 1
    assert moving.answers[-1] == Answer("refused", 7, 5, "the guard does not fly this mission")
