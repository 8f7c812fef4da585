"""The fault bench's real processes, in its short form; and what it makes of what it has seen."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np
import pytest

from temporeal_benchmarks.deployment.artifacts import hover
from temporeal_benchmarks.deployment.robot_processes import RobotProcesses
from temporeal_benchmarks.faults import (
    missions,
    process_faults,
    process_trials,
    recorder_faults,
    rigs,
    spoilt_artifacts,
)
from temporeal_benchmarks.rows import Row
from temporeal_bridge.codecs.table import COMMAND_CODECS
from temporeal_bridge.recording.bag_writer import Bag
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.dds import DdsTransport
from temporeal_bridge.transports.transport import QOS

LATE_S = 0.4  # chosen: so late a busy machine may be in a test. The bench itself says so of less


def judged_all(rows: list[Row]) -> dict[str, bool | None]:
    """Whether each row is as it must be; of times, whether they are not far off."""
    late = [(row.name, row.value, row.target) for row in rows if row.unit == "s" and isinstance(row.target, float)
            and row.value is not None and row.value > row.target + LATE_S]
    assert late == []
    return {row.name: row.ok for row in rows if row.unit != "s"}


@pytest.mark.slow
def test_a_driver_whose_qos_does_not_fit_is_no_driver(tmp_path: Path) -> None:
    """Every command is judged, by the guard's modes, too."""
    with rigs.flying_quadrotor(tmp_path) as nodes:
        rows = process_trials.mismatched(nodes, 1, random.Random(0))
        found = judged_all(rows + process_trials.judged(nodes))
        assert nodes.oracle.commands > 10 and nodes.oracle.closest < 1.5
    assert found.pop("faults.processes.QoS mismatch: missions without the right stop") is True
    assert found.pop("faults.processes.QoS mismatch: guards that got ready again") is True and rows[-1].peer is not None
    assert found.pop("faults.processes.commands_outside_limits") is True
    assert "reliability" in str(rows[-1].peer) and False not in found.values()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_a_silent_controller_and_a_recorder_is_done_without(tmp_path: Path) -> None:
    """Once its last chunk has ended. Nothing that was flushed is lost from the recorder's bag."""
    with rigs.chunked_arm(tmp_path) as nodes:
        process_faults.record(nodes)
        rows = recorder_faults.recorder_killed(nodes, 1, random.Random(0))
        rows += process_trials.struck(nodes, process_faults.CHUNKED, 1, ["worker SIGKILL"], random.Random(0))
        found = judged_all(rows + process_trials.judged(nodes))
    lost = "faults.processes.recorder SIGKILL: events, modes and commands lost up to the last flush"
    assert found.pop(lost) is True
    assert found.pop("faults.processes.worker SIGKILL: missions without the right stop") is True
    assert found.pop("faults.processes.commands_outside_limits") is True and False not in found.values()


@pytest.mark.slow
def test_a_hand_is_asked_for_no_more_than_it_may(tmp_path: Path) -> None:
    """It closes as hard as its servos may, and is kept once its controller is killed.

    Its servos are at their end for a few commands of each mission: 3 to 8, as the processes happen to meet.
    """
    with rigs.closing_hand(tmp_path) as nodes:
        name = "controller of a hand SIGKILL"
        rows = process_trials.struck(nodes, process_faults.HANDS, 3, [name], random.Random(0))
        found = judged_all(rows + process_trials.judged(nodes))
        assert nodes.oracle.yielded > 3 and nodes.oracle.efforts > 0.7 * nodes.oracle.commands
    assert found.pop(f"faults.processes.{name}: missions without the right stop") is True
    assert found.pop("faults.processes.commands_outside_limits") is True and False not in found.values()


def test_the_observer_goes_by_the_modes_that_the_guard_says(tmp_path: Path) -> None:
    """One that says it is waiting, and commands a quadrotor: each command is counted, but for those of its mission."""
    nodes = RobotProcesses(tmp_path, "crazyflie", "odometry", "ctbr_cmd", 50.0, tmp_path / "out")
    guard = DdsTransport("guard", "/r", domain=nodes.domain, loopback=True)
    try:
        mode = guard.advertise("mission", "std_msgs/msg/Header", QOS["latched"])
        line = guard.advertise(nodes.topic.topic, nodes.topic.type, QOS["command"])
        command = messages.encode(line.type, COMMAND_CODECS[nodes.topic.codec].encode(
            np.array([0.3, 0.0, 0.0, 0.0]), nodes.topic.options))
        nodes.require("the observer", 10.0, lambda: guard.matched(mode) and guard.matched(line))
        for said, wrong in (("waiting 0", 3), ("active 1", 3), ("stopped 1", 6)):
            guard.publish(mode, messages.encode(mode.type, messages.header(0, said)))
            nodes.require("the mode", 10.0, lambda said=said: nodes.modes[-1:] and nodes.modes[-1][1] == said)
            nodes.spin(0.15)
            for _ in range(3):
                guard.publish(line, command)
                nodes.spin(0.05)
            assert nodes.matched is not None
            nodes.matched.end()
            assert nodes.oracle.outside == wrong, nodes.oracle.wrong
    finally:
        guard.close()
        nodes.close()


# what is made of it


def nothing(nodes: RobotProcesses) -> None:
    """Nothing."""


def trials(*reactions: float, code: str = "silent", quiet: float = 0.11) -> list[missions.Trial]:
    return [missions.Trial(reaction, code, 0.02, quiet) for reaction in reactions]


def test_every_stop_is_judged_by_the_time_that_is_stated() -> None:
    """Not by the median alone, nor by what others promise."""
    fault = process_faults.Fault(nothing, nothing, "silent", 0.125)
    most = 0.125 + missions.OBSERVED_S
    for reactions, late in (((0.1, 0.12, 0.134), 0), ((0.1, 0.12, 0.136, 0.2), 2)):
        *_, half, top = missions.of_fault("one", fault, trials(*reactions))
        assert half.ok and (top.value, top.target, top.ok) == (max(reactions), most, not late)
        assert str(top.peer).startswith(f"{late} of {len(reactions)} were later")


@pytest.mark.parametrize("code, quiet, right", [
    ("silent", 0.12, True), ("silent", 0.13, False), ("guard", 0.5, True), ("guard", inf, True), ("jump", 0.01, False),
    ("stale", inf, False)])
def test_beside_a_busy_core_a_stop_is_right_by_its_reason_and_in_its_time(code: str, quiet: float, right: bool) -> None:
    rows = missions.of_fault("CPU hog", process_faults.FAULTS["CPU hog"], trials(0.5, code=code, quiet=quiet))
    assert [row.ok for row in rows if "wrong reason" in row.name] == [right]
    calm = missions.of_fault("CPU hog", process_faults.FAULTS["CPU hog"], [missions.Trial(None, "", 0.02)])
    assert [row.ok for row in calm if "wrong reason" in row.name] == [True]


@pytest.mark.parametrize("left_out, lost", [((), 0), ((7,), 1)])
def test_the_bag_of_a_killed_recorder_is_compared_with_what_was_heard(
    left_out: tuple[int, ...], lost: int, tmp_path: Path
) -> None:
    """Of 40 events, one in 0.05 s, 30 are on disk; of those near its begin and its end nothing is said."""
    bag, second = Bag(tmp_path / "bag"), 1_000_000_000
    bag.add("/r/guard/event", "std_msgs/msg/String")
    heard = [recorder_faults.Heard(second + k * second // 20, "/r/guard/event", messages.encode(
        "std_msgs/msg/String", messages.record("std_msgs/msg/String")(data=json.dumps({"t": k})))) for k in range(40)]
    for k, message in enumerate(heard[:30]):
        if k not in left_out:
            bag.write(message.topic, "std_msgs/msg/String", message.at_ns, message.data)
    bag.flush()
    bag.file.close()  # as a killed process leaves it
    rest = recorder_faults.rest_of(tmp_path / "bag", heard, heard[-1].at_ns)
    assert (rest.lost, rest.due, round(rest.before_s, 6)) == (lost, 24, 0.5)


def test_artifacts_are_spoilt_in_another_place_each_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that is loaded all the same is told."""
    started = list[str]()

    def refused(name: str, module: str, robot: str, path: Path, out: Path) -> Row:
        started.append(f"{name} {module}")
        return Row("", 1.0)

    monkeypatch.setattr(spoilt_artifacts, "refused", refused)
    seen = set[bytes]()
    loads: Callable[..., bool] = spoilt_artifacts.loads

    def loaded(module: str, robot: str, path: Path) -> bool:
        seen.add((path / "policy.onnx").read_bytes() + (path / "manifest.json").read_bytes())
        return loads(module, robot, path)

    monkeypatch.setattr(spoilt_artifacts, "loads", loaded)
    artifact = hover(tmp_path / "artifact")
    rows = spoilt_artifacts.refusals(artifact, tmp_path / "out", 6, random.Random(0))
    told = {row.name: (row.value, row.ok) for row in rows if row.name}
    assert len(started) == 6 and len(told) == 4 and set(told.values()) == {(0, True)} and len(seen) == 15
    monkeypatch.setattr(spoilt_artifacts, "loads", lambda *_: True)
    rows = spoilt_artifacts.refusals(artifact, tmp_path / "out", 2, random.Random(0))
    assert {row.ok for row in rows if row.name} == {False}
