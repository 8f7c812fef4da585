"""Who else publishes commands, and what the operator's stop button says."""

from __future__ import annotations

from typing import Any

import pytest

from temporeal_bridge.guard.checks.competing_publishers import (
    CHECK_S,
    IDLE_CHECK_S,
    PublisherChecks,
    competing_publishers,
)
from temporeal_bridge.guard.checks.stop_button import BOOL, StopButton, buttons
from temporeal_bridge.guard.safety.profile import Estop
from temporeal_bridge.guard.safety.reasons import NOTHING
from temporeal_bridge.transports.transport import QOS, Peer


def peer(node: str, own: bool = False, type: str = BOOL, participant: bytes = b"1", qos: str = "default") -> Peer:
    return Peer(node, type, "", QOS[qos], own, participant)


def test_own_publishers_do_not_compete():
    found = competing_publishers({"/r/command": [peer("/r/guard_node", own=True)], "/r/other": []})
    assert found == ""
    found = competing_publishers({"/r/command": [peer("/r/guard_node", own=True), peer("/r/joystick"), peer("")]})
    assert found == "/r/joystick publishes on /r/command, too, a node without a name publishes on /r/command, too"


@pytest.mark.parametrize("commanded, active, interval", [
    (True, True, CHECK_S), (False, True, IDLE_CHECK_S), (True, False, IDLE_CHECK_S)])
def test_the_bus_is_checked_less_often_in_flight(commanded, active, interval):
    asked: list[str] = []

    def publishers(topic: str) -> list[Peer]:
        asked.append(topic)
        return [peer("/r/joystick")] if topic == "b" else []

    checks = PublisherChecks(("a", "b"), publishers, lambda topic: f"/r/{topic}", StopButton(Estop()))
    checks.look(3.0, commanded, active)
    assert checks.next_at == 3.0 + interval and asked == ["a", "b", "estop"]
    assert checks.competing == "/r/joystick publishes on /r/b, too"


def test_publishers_of_one_node_are_one_button():
    assert buttons([peer("/panel"), peer("/panel")]) == ["/panel"]
    assert buttons([peer("/panel"), peer("/panel", participant=b"2")]) == ["/panel", "/panel"]
    assert len(buttons([peer(""), peer("")])) == 2 and buttons([peer("/panel", type="another")]) == []


def test_two_checks_must_agree_on_several_buttons_in_flight():
    two, button = [peer("/panel"), peer("/other")], StopButton(Estop())
    button.look(two[:1], commanded=True)
    button.look(two, commanded=True)
    assert button.reason(0.0) == NOTHING  # maybe the old one of a panel that was started again
    button.look(two, commanded=True)
    code, text = button.reason(0.0)
    assert code == "operator" and "/other, /panel publish on estop" in text
    button.look(two[:1], commanded=True)
    assert button.reason(0.0) == NOTHING
    button.look(two, commanded=False)
    assert button.reason(0.0) != NOTHING


def test_a_button_that_was_heard_must_go_on_to_be_heard():
    button = StopButton(Estop(heartbeat_s=0.5))
    assert not button.watched and button.reason(100.0) == NOTHING
    button.hear(False, 1.0)
    assert button.watched and button.reason(1.5) == NOTHING and "not heard for 0.5 s" in button.reason(1.51)[1]
    button.hear(True, 2.0)
    assert button.reason(2.0) == ("operator", "the operator's stop is set")
    assert StopButton(Estop(required=True)).reason(0.0)[0] == "operator"
    unwatched = StopButton(Estop(heartbeat_s=None))
    unwatched.hear(False, 1.0)
    assert unwatched.reason(100.0) == NOTHING


def test_a_latched_button_is_asked_for_what_it_said_before():
    called: list[Any] = []
    button = StopButton(Estop(), lambda: called.append(True))
    button.look([peer("/panel")], commanded=False)
    assert not called
    for _ in range(3):
        button.look([peer("/panel", qos="latched")], commanded=True)
    assert len(called) == 1
