"""The oracle of ``temporeal bench deploy``: judges by the guard's own times of its commands, not by their arrival."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.robots.spec import load_robot
from temporeal_benchmarks.deployment.command_oracle import Oracle
from temporeal_benchmarks.deployment.matched_commands import MatchedCommands
from temporeal_benchmarks.faults import trials, world
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.guard.command_stream import CommandStream
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.mission import CommandRecord
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS

FRANKA = load_robot("franka")
INTERFACE = load_interface(FRANKA, "forward_position")
TOPIC = INTERFACE.command("joint_pos_cmd")
HOME = np.array(FRANKA.home["joint_pos"])
P = 0.002
WORK = 0.0004  # s that the guard takes for a command
MOST = 6.0  # rad/s^2 of the first joint


def matched() -> MatchedCommands:
    return MatchedCommands(Oracle(FRANKA, INTERFACE, "joint_pos_cmd", P, timed=False))


def places(*accelerations: float) -> np.ndarray:
    """Commands [T, 7] of the first joint from rest, one acceleration a period."""
    steps = np.cumsum(np.cumsum(accelerations)) * P * P
    return HOME + np.concatenate([[0.0, 0.0], steps])[:, None] * np.eye(7)[0]


def wire(command: np.ndarray) -> bytes:
    return messages.encode(TOPIC.type, COMMAND_CODECS[TOPIC.codec].encode(command, TOPIC.options))


def told(command: np.ndarray, made: float, left: float, flight: int = 1) -> bytes:
    row = CommandRecord(flight, 0, 0.0, made, left, command, command, [3_000_000_000]).row()
    return messages.encode("std_msgs/msg/Float64MultiArray", messages.array64(row))


def read(commands: np.ndarray, at: list[float], work: float = WORK) -> MatchedCommands:
    """All commands, made at ``at``; everything arrives at one moment long after."""
    seen = matched()
    for command, made in zip(commands, at):
        seen.command(100.0, wire(command))
        seen.record(told(command, made, made + work))
    return seen


def after(pause: float, count: int, rest: int) -> list[float]:
    """Times of ``count`` commands a period apart, and of ``rest`` more after so many periods."""
    last = (count - 1) * P
    return [k * P for k in range(count)] + [last + pause * P + k * P for k in range(rest)]


MOVING = places(*[MOST] * 6)
FROM_REST = MOVING[-1] - HOME + places(*[MOST] * 4)[2:]


def test_a_pause_of_the_guard_after_which_it_begins_from_rest_is_not_counted() -> None:
    commands = np.concatenate([MOVING, FROM_REST])
    for pause in (2.2, 3.0, 40.0):
        seen = read(commands, after(pause, len(MOVING), len(FROM_REST)))
        assert (seen.oracle.wrong, seen.oracle.commands, seen.lost) == ([], len(commands), 0)


def test_the_same_commands_without_the_pause_are_a_jolt() -> None:
    """From a speed of 6 * 6 rad/s^2 * P to 6 rad/s^2 * P within P: -30 rad/s^2."""
    commands = np.concatenate([MOVING, FROM_REST])
    wrong = read(commands, after(1.0, len(MOVING), len(FROM_REST))).oracle.wrong
    assert any(text.startswith("acceleration of component 0 is 30,") for text in wrong), wrong


def test_a_guard_that_goes_on_after_its_pause_as_if_nothing_had_been_is_counted() -> None:
    commands = places(*[MOST] * 10)
    assert read(commands, after(1.0, 6, 6)).oracle.wrong == []
    wrong = read(commands, after(5.0, 6, 6)).oracle.wrong
    assert any(text.startswith("acceleration of component 0") for text in wrong), wrong


def test_what_the_guard_needs_for_a_command_is_no_pause_before_the_next_one() -> None:
    """Made 2.2 periods after the one before was begun, 1.2 after that had gone: the guard counts it as on time."""
    commands, at = places(*[MOST] * 10), after(2.2, 6, 6)
    assert read(commands, at, work=P).oracle.wrong == []
    assert read(commands, at, work=0.0).oracle.wrong


@pytest.mark.parametrize("leap, text", [(0.01, "speed of component 0 is 5"), (1e-4, "acceleration of component 0")])
def test_a_real_jump_is_counted_however_late_it_is_seen(leap: float, text: str) -> None:
    commands = places(*[0.0] * 10)
    commands[8:, 0] += leap
    assert any(wrong.startswith(text) for wrong in read(commands, after(1.0, 6, 6)).oracle.wrong)


def test_commands_before_their_turn_are_counted_by_when_they_were_made() -> None:
    """Half a period before the turn of 0.95, however long the guard took for the one before."""
    for early, wrong in ((0.1, 1), (0.44, 1), (0.46, 0)):
        seen = read(places(*[0.0] * 4), [0.0, P, P + early * P, 3 * P, 4 * P, 5 * P]).oracle.wrong
        assert len(seen) == wrong and all(text.startswith("two commands within 0.000") for text in seen)
    late = [k * 0.9 * P for k in range(20)]  # each is 0.05 of a period sooner: the twelfth is half a one early
    assert len(read(places(*[0.0] * 9), late[:11]).oracle.wrong) == 0
    assert len(read(places(*[0.0] * 18), late).oracle.wrong) >= 1


def test_the_two_topics_may_come_in_any_order() -> None:
    seen, at = matched(), after(5.0, len(MOVING), len(FROM_REST))
    commands = np.concatenate([MOVING, FROM_REST])
    for command, made in zip(commands, at):
        seen.record(told(command, made, made + WORK))
    for command in commands:
        seen.command(100.0, wire(command))
    assert (seen.oracle.wrong, seen.oracle.commands, seen.lost) == ([], len(commands), 0)


@pytest.mark.parametrize("of", ["wire", "told"])
def test_a_lost_message_makes_no_jump_and_hides_none_after_it(of: str) -> None:
    commands = places(*[MOST] * 12)
    for leap, outside in ((0.0, False), (0.01, True)):
        commands[-2:, 0] += leap
        seen = matched()
        for k, command in enumerate(commands):
            if k != 5 or of != "wire":
                seen.command(100.0, wire(command))
            if k != 5 or of != "told":
                seen.record(told(command, k * P, k * P + WORK))
        assert seen.lost == 1 and bool(seen.oracle.wrong) == outside
        assert seen.oracle.commands == len(commands) - (of == "wire")


def test_commands_that_nobody_tells_of_are_read_at_the_end_and_counted() -> None:
    seen = matched()
    seen.command(1.0, wire(HOME))
    seen.command(1.0, wire(HOME + 9.0))
    assert seen.oracle.commands == 0
    seen.end()
    assert seen.lost == 2 and seen.oracle.commands == 2
    assert [text.split(" is ")[0] for text in seen.oracle.wrong] == ["command place of component 0"]


def test_another_mission_begins_anew() -> None:
    seen = read(MOVING, after(1.0, len(MOVING), 0))
    seen.command(100.0, wire(HOME))
    seen.record(told(HOME, 0.0, WORK, flight=2))
    assert seen.oracle.wrong == [] and seen.lost == 0


class Observed(world.World):
    """The real guard, seen beside by somebody who takes everything in at the end."""

    last: Observed

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        Observed.last = self
        self.taken: list[tuple[str, bytes]] = []
        for name, type in ((self.topic.topic, self.topic.type), ("guard/command", "std_msgs/msg/Float64MultiArray")):
            self.own.subscribe(name, type, QOS["deep"], lambda r, name=name: self.taken.append((name, r.data)))

    def judged(self) -> MatchedCommands:
        seen = MatchedCommands(Oracle(self.robot, self.interface, self.kind.command, self.period, timed=False))
        for name, data in self.taken:
            if name == "guard/command":
                seen.record(data)
            else:
                seen.command(1000.0, data)
        seen.end()
        return seen


def test_a_guard_that_stood_still_is_judged_as_the_oracle_judges_it_that_knows_the_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "World", Observed)
    case = ("franka-forward", "guard late by some periods", 2, tmp_path)
    good = trials.trial(*case)
    seen = Observed.last.judged()
    assert good.wrong == () and seen.oracle.wrong == [] and seen.lost == 0 and seen.oracle.commands == good.commands
    monkeypatch.setattr(CommandStream, "catch_up", lambda stream, now: None)
    assert trials.trial(*case).wrong
    assert "acceleration of component" in Observed.last.judged().oracle.wrong[0]
