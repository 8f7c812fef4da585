"""The guard's health in its diagnostics."""

from __future__ import annotations

import pytest
from tests.bridge.guard.test_mode_machine import Arm

from temporeal_bridge.guard.diagnostics import ERROR, OK, WARN, Input, diagnostics

GOOD = Input(0, "", 0, 0)


@pytest.fixture
def arm() -> Arm:
    made = Arm()
    made.output.announcements.unpublished = 2
    made.modes.idle(0.0)
    return made


def test_a_guard_that_is_well_says_its_mode(arm):
    level, message, values = diagnostics(arm.modes, GOOD, 0.05)
    assert (level, message, values["mode"], values["unpublished"]) == (OK, "ready", "ready", 2)
    assert values["state_age_ms"] == "50.0"


def test_what_was_rejected_or_limited_is_a_warning(arm):
    level, _, values = diagnostics(arm.modes, Input(3, "no quaternion", 1, 2), 0.0)
    assert level == WARN and values["state_rejection"] == "no quaternion"
    assert (values["state_rejected"], values["malformed"], values["unreadable"]) == (3, 1, 2)
    arm.modes.flight.limited = 1
    assert diagnostics(arm.modes, GOOD, 0.0)[0] == WARN


def test_a_reason_or_a_competitor_is_an_error(arm):
    arm.checks.publishers.competing = "/r/joystick publishes on /r/command, too"
    assert diagnostics(arm.modes, GOOD, 0.0)[:2] == (ERROR, arm.checks.publishers.competing)
    arm.checks.controller.forget()
    assert diagnostics(arm.modes, GOOD, 0.0)[1] == arm.checks.controller.stranger
    arm.modes.flight.reason = "the state is old"
    assert diagnostics(arm.modes, GOOD, 0.0)[:2] == (ERROR, "the state is old")
