"""What the guard does about a reason, by its mode."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from temporeal_bridge.guard import decisions
from temporeal_bridge.guard.decisions import LAST_WORDS, UNHEARD
from temporeal_bridge.guard.flight import Flight
from temporeal_bridge.guard.safety.reasons import CODES, NOTHING
from temporeal_bridge.mission import IDLE, MODES

PROFILE: Any = SimpleNamespace(action=lambda code: {"operator": "hold", "autopilot": "silence"}.get(code, "ramp"))


def answer(mode: str, code: str, flight: Flight, grips: bool = False) -> str:
    action = decisions.stop_action(mode, code, PROFILE, grips)
    return decisions.answer_to_stop(mode, code, action, flight, grips)


@pytest.mark.parametrize("mode", ["active", "arming"])
@pytest.mark.parametrize("code", CODES)
def test_every_reason_stops_a_mission(mode, code):
    assert answer(mode, code, Flight(1)) == "stop"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("grips", [False, True])
def test_the_operators_stop_is_ignored_only_where_it_is_in_force(mode, grips):
    """Where the robot was stopped already, and holds nothing; and where his own stop action is under way."""
    assert answer(mode, "operator", Flight(1), grips) == ("ignore" if mode == "stopped" and not grips else "stop")
    stopped = Flight(1, reason="stopped by the operator", action="hold")
    expected = "ignore" if mode in ("stopping", "holding") or (mode == "stopped" and not grips) else "stop"
    assert answer(mode, "operator", stopped, grips) == expected


@pytest.mark.parametrize("mode", ["stopping", "holding"])
@pytest.mark.parametrize("code", CODES)
def test_only_last_words_replace_a_stop_action(mode, code):
    under_way = Flight(1, reason="stale", action="ramp")
    assert answer(mode, code, under_way) == ("stop" if code in LAST_WORDS else "ignore")


def test_a_stop_while_a_mission_ends_by_the_same_action_is_latched():
    ending = Flight(1, action="hold")
    assert answer("stopping", "operator", ending) == "latch"
    assert answer("stopping", "operator", Flight(1, action="ramp")) == "stop"


@pytest.mark.parametrize("mode", [*IDLE, "stopped"])
@pytest.mark.parametrize("code", [code for code in CODES if code != "operator"])
def test_without_a_mission_no_other_reason_counts(mode, code):
    assert answer(mode, code, Flight(1)) == answer(mode, code, Flight(1), grips=True) == "ignore"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("code", CODES)
def test_without_a_mission_nothing_is_sent_but_to_end_a_grip(mode, code):
    assert decisions.stop_action(mode, code, PROFILE, grips=True) == (
        "silence" if mode in (*IDLE, "arming") and code != "operator" else PROFILE.action(code))
    if mode in (*IDLE, "arming"):
        assert decisions.stop_action(mode, code, PROFILE, grips=False) == "silence"


@pytest.mark.parametrize("code", CODES)
def test_what_a_guard_finds_that_did_not_listen_is_its_own_fault(code):
    reason = code, "text"
    assert decisions.true_reason("active", reason, 0.09, 0.1) == reason
    late = decisions.true_reason("active", reason, 0.11, 0.1)
    assert late == (("guard", "the guard itself stood still for 0.110 s") if code in UNHEARD else reason)
    assert decisions.true_reason("holding", reason, 0.11, 0.1) == reason


def test_a_short_pause_is_no_reason():
    assert decisions.pause_reason(0.1, 0.1) == NOTHING and decisions.pause_reason(0.2, 0.1)[0] == "guard"


def test_a_mission_begins_where_no_other_is():
    for mode in MODES:
        refused = decisions.start_refusal(mode, Flight(3), 4)
        assert (refused == "") == (mode in ("ready", "finished")) and (not refused or mode in refused)
    assert decisions.start_refusal("arming", Flight(3), 3) == ""  # the same one, with another time zero
    refused = decisions.start_refusal("holding", Flight(3, reason="stale"), 4)
    assert "stale" in refused and "mission/reset" in refused


def test_the_first_obstacle_to_a_reset_is_named():
    def refused(mode: str = "holding", pressed: bool = False, after_stop: str = "", just_stopped: bool = False) -> str:
        return decisions.reset_refusal(mode, pressed, after_stop, just_stopped)

    assert refused() == refused("stopped") == ""
    assert "still set" in refused("stopping", True, "soon", True)
    assert "still stopping" in refused("stopping", False, "soon", True)
    assert refused(after_stop="soon", just_stopped=True) == "soon"
    assert "just been stopped" in refused(just_stopped=True)


def test_modes_that_follow():
    assert [decisions.idle_mode(mode, True) for mode in IDLE] == ["ready", "ready", "finished"]
    assert [decisions.idle_mode(mode, False) for mode in IDLE] == ["waiting", "waiting", "finished"]
    assert decisions.mode_after_stop("", keeps=True) == decisions.mode_after_stop("", keeps=False) == "finished"
    assert decisions.mode_after_stop("stale", keeps=True) == "holding"
    assert decisions.mode_after_stop("stale", keeps=False) == "stopped"
