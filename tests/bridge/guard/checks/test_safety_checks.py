"""The order of the checks before and in a mission, and what is known of the controller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.bridge.guard import parts

from temporeal_bridge.guard.checks.controller_session import GREETING_S, UNKNOWN, ControllerSession
from temporeal_bridge.guard.safety.reasons import NOTHING


class Autopilot:
    """Refuses."""

    def refusal(self, now: float) -> str:
        return "it is on the ground"


@pytest.fixture
def broken() -> Any:
    """Everything is wrong at once."""
    checks = parts.checks(parts.monitor(parts.config()), lambda: False, Autopilot())
    checks.publishers.competing, checks.controller.heard = "somebody", -10.0
    checks.monitor.freshness.at = [-10.0] * len(checks.monitor.freshness.at)
    checks.button.hear(True, 0.0)
    return checks


def mended(checks: Any) -> list[str]:
    """Codes that are reported while one thing after the other is put right."""
    codes = [checks.in_flight(0.0, None)[0]]
    for mend in (lambda: setattr(checks, "active", lambda: True), lambda: setattr(checks.publishers, "competing", ""),
                 lambda: setattr(checks, "offboard", None),
                 lambda: parts.see(checks.monitor, parts.config(), 0.0, 1e-3),
                 lambda: setattr(checks.controller, "heard", 0.0), lambda: checks.button.hear(False, 0.0)):
        mend()
        codes.append(checks.in_flight(0.0, None)[0])
    return codes


def test_reasons_are_found_in_this_order_in_flight(broken):
    assert mended(broken) == ["inactive", "publisher", "autopilot", "stale", "silent", "operator", ""]


def test_reasons_are_found_in_this_order_before_a_mission(broken):
    broken.controller.forget()
    assert broken.before_start(0.0)[0] == "inactive"
    broken.active = lambda: True
    assert broken.before_start(0.0) == ("policy", UNKNOWN)
    broken.controller.accept(0.0)
    assert broken.before_start(0.0)[0] == "operator"
    broken.button.hear(False, 0.0)
    assert broken.before_start(0.0) == ("publisher", "somebody") and not broken.alone()
    broken.publishers.competing = ""
    assert broken.before_start(0.0)[0] == "stale" and broken.alone()
    parts.see(broken.monitor, parts.config(), 0.0, 1e-3)
    assert broken.before_start(0.0) == NOTHING  # that the autopilot is asked comes next


def test_a_mission_forgets_what_was_wrong_before_it():
    checks = parts.checks(parts.monitor(parts.config()))
    checks.monitor.jump = ("jump", "somebody moved it")
    assert checks.in_flight(0.0, None)[0] == "jump"
    assert checks.before_start(0.0) == NOTHING == checks.in_flight(0.0, None)


def test_a_robot_that_does_not_follow_stops_the_mission():
    of = parts.config()
    checks = parts.checks(parts.monitor(of))
    rule = of.profile.tracking
    assert rule is not None
    far = np.asarray(of.robot.home["joint_pos"]) + 2 * np.asarray(rule.error)
    for k in range(100):
        parts.see(checks.monitor, of, 0.01 * k, 1e-6 * k)
        checks.controller.heard = now = 0.01 * k
        if checks.in_flight(now, far) != NOTHING:
            break
    assert checks.in_flight(now, far)[0] == "tracking" and now == pytest.approx(rule.after_s, abs=0.02)


def test_a_controller_says_what_it_flies():
    session = ControllerSession()
    assert session.stranger == UNKNOWN and not session.present(0.0)
    session.greet("a" * 64, "b" * 64, 1.0)
    assert session.present(1.0 + GREETING_S) and "aaaa" in session.stranger and "bbbb" in session.stranger
    session.greet("b" * 64, "b" * 64, 2.0)
    assert session.stranger == "" and session.absent(2.0 + GREETING_S) == NOTHING
    assert session.absent(2.1 + GREETING_S)[0] == "silent"
    session.forget()
    assert session.stranger == UNKNOWN and not session.present(2.0)


def test_a_controller_is_silent_after_its_time():
    session = ControllerSession()
    session.heard = 1.0
    assert session.silent(1.1, 0.1) == NOTHING or session.silent(1.0999, 0.1) == NOTHING
    assert session.silent(1.2, 0.1)[0] == "silent" and "0.200 s, 0.1 s is allowed" in session.silent(1.2, 0.1)[1]
