"""Where and when a first command may begin."""

from __future__ import annotations

import numpy as np

from temporeal_bridge.guard.checks.rest import REST_S, RESTS, RestMonitor
from temporeal_bridge.guard.safety.profile import Start
from temporeal_bridge.guard.safety.reasons import NOTHING

RULE = Start("joint_pos", (0.3, 0.3), 2.0)


def at(place: float) -> dict[str, np.ndarray]:
    return {"joint_pos": np.full(2, place)}


def test_a_robot_rests_while_it_moves_by_little():
    rest = RestMonitor(RULE)
    for k in range(10):
        rest.take(np.full(2, 0.9 * RESTS * 0.3 * (k % 2)), 0.01 * k)
    assert rest.since == rest.seen_since == 0.0
    rest.take(np.full(2, 1.1 * RESTS * 0.3), 0.2)
    assert rest.since == 0.2 and rest.seen_since == 0.0


def test_it_must_be_seen_and_rest_for_a_while():
    rest = RestMonitor(RULE)
    rest.take(np.zeros(2), 1.0)
    assert not rest.known(1.0 + 0.9 * REST_S) and rest.known(1.0 + 1.1 * REST_S)
    assert "still moving" in rest.distance(np.zeros(2), at(0.0), 1.0 + 0.9 * REST_S, [])[1]
    assert rest.distance(np.zeros(2), at(0.0), 1.0 + 1.1 * REST_S, []) == NOTHING


def test_the_first_command_is_near():
    rest = RestMonitor(RULE)
    rest.take(np.zeros(2), 0.0)
    assert rest.distance(np.full(2, 0.29), at(0.0), 1.0, []) == NOTHING
    code, text = rest.distance(np.array([0.0, 0.31]), at(0.0), 1.0, [])
    assert code == "start" and "too far" in text
    code, text = rest.distance(np.zeros(2), at(0.0), 1.0, [1])
    assert code == "start" and "joint_pos[1]" in text and "mission/stop" in text


def test_speeds_begin_where_nothing_moves():
    rest = RestMonitor(Start("", (), 0.5, "joint_vel", (0.1, 0.2)))
    assert rest.known(0.0)  # no place is asked for
    assert rest.unrest({"joint_vel": np.array([0.1, -0.2])}) == NOTHING
    code, text = rest.unrest({"joint_vel": np.array([0.05, -0.25])})
    assert code == "start" and text.startswith("joint_vel[1] is 0.250, 0.2 at most is allowed")


def test_without_a_rule_nothing_is_asked():
    rest = RestMonitor(None)
    assert rest.known(0.0) and rest.unrest({}) == rest.distance(np.zeros(2), {}, 0.0, []) == NOTHING
