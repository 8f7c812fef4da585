"""The world of an actor behind ROS 2: the nodes are real, time is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.bridge.conftest import write_artifact

pytest.importorskip("mujoco")

from tests.policies.robot_learning.ros_rig import Rig

from temporeal.policies.robot_learning.ros_world import ByMonitor, Episodes
from temporeal.policies.robot_learning.ros_world_base import CorrectedWorld
from temporeal.policies.robot_learning.ros_world_resets import Standing
from temporeal.policies.robot_learning.ros_world_topics import Heard
from temporeal.policies.robot_learning.world import WorldError
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.spec import load_robot
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bridge's hand-written policy, with a mission of 0.3 s."""
    return write_artifact(tmp_path_factory.mktemp("short") / "artifact", formula_text="G[0,0.3] (height > floor)",
                          constants={"floor": 0.5}, horizon_s=0.3)


@pytest.fixture(scope="module")
def rig(short: Path) -> Rig:
    return Rig(short)


def test_an_episode_is_flown_through_the_guard_and_judged_by_the_monitor(rig: Rig) -> None:
    before, judge = rig.world.heard.audit.sent, ByMonitor(rig.world)
    samples = rig.episode()
    assert judge.finish() is True and rig.world.judged() == "satisfied"
    assert samples[0].command is None and not any(s.failed or s.changed or s.late for s in samples)
    assert rig.world.heard.audit.sent - before == len(samples) - 1 == rig.guard.flight.sent
    assert rig.world.heard.audit.outside == 0 and not rig.robot.held
    times = [float(s.signals["mission_time"]) for s in samples]
    assert times == pytest.approx([0.02 * k for k in range(len(samples))])


def test_what_the_guard_changed_is_what_was_executed(rig: Rig) -> None:
    rig.base.reset()
    rig.world.reset()
    asked = np.array([10.0, 0.0, 0.0, 0.0])
    sample = rig.world.step(asked)
    high = np.array(rig.world.spec.high)
    assert sample.command is not None and sample.command[0] <= high[0] < asked[0] and not sample.failed
    assert "the guard changed the command" in sample.changed
    assert rig.world.heard.audit.asked_outside > 0 and rig.world.heard.audit.outside == 0
    rig.world.hold()


def test_an_actor_that_falls_silent_is_stopped_and_the_next_episode_begins(rig: Rig) -> None:
    """The guard lets the robot down by itself; its reason is cleared by the reset, and nothing of it stays."""
    rig.base.reset()
    sample = rig.world.reset()
    sample = rig.world.step(rig.act(sample))
    rig.lockstep.run(0.5)
    sample = rig.world.step(rig.act(sample))
    assert sample.failed and sample.late and rig.guard.flight.reason
    with pytest.raises(WorldError, match="reset first"):
        rig.world.step(rig.act(sample))
    assert not rig.episode()[-1].failed and rig.world.judged(1.0) == "satisfied"


@pytest.mark.parametrize("command", [np.zeros(3), np.array([np.nan, 0.0, 0.0, 0.0])])
def test_no_command_is_refused(rig: Rig, command: np.ndarray) -> None:
    with pytest.raises(WorldError, match="ctbr_cmd is 4 finite numbers"):
        rig.world.step(command)


def test_a_correction_of_nothing_is_the_base_bit_for_bit(rig: Rig) -> None:
    rest = np.array([0.3, 0.0, 0.0, 0.0])
    for scale, said in ((0.0, rest + 0.1), (0.5, rest)):
        world = CorrectedWorld(rig.world, rig.base, rest, scale)
        sample = world.reset()
        asked = world.asked
        sample = world.step(said)
        record = rig.world.heard.answered[rig.world.number, 0]
        assert np.array_equal(record.proposed, asked) and np.array_equal(sample.command, said)
        world.hold()


def test_a_correction_that_the_guard_cut_is_told_as_what_it_amounted_to(rig: Rig) -> None:
    rest = np.array([0.3, 0.0, 0.0, 0.0])
    world = CorrectedWorld(rig.world, rig.base, rest, 0.5)
    world.reset()
    base = world.asked
    sample = world.step(rest + np.array([1.0, 0.0, 0.0, 0.0]))
    record = rig.world.heard.answered[rig.world.number, 0]
    assert sample.changed and sample.command is not None
    assert base + 0.5 * (sample.command - rest) == pytest.approx(np.asarray(record.sent))
    world.hold()


def test_a_base_of_something_else_is_refused_by_name(rig: Rig, tmp_path: Path) -> None:
    from temporeal.robots.artifact.runtime import Artifact

    slow = Artifact.load(write_artifact(tmp_path / "slow", rate_hz=25.0))
    with pytest.raises(BadInput, match="rate is 25 Hz of the base and 50 Hz of the world"):
        CorrectedWorld(rig.world, slow, np.zeros(4), 0.5)
    with pytest.raises(BadInput, match="from 0 to 1, got 2"):
        CorrectedWorld(rig.world, rig.base, np.zeros(4), 2.0)


def test_a_machine_is_not_put_anywhere(short: Path) -> None:
    """Nobody but the simulated robot has an order to be somewhere: a world of a machine advertises none."""
    rig = Rig(short, reset=Standing)
    samples = [rig.world.reset()]
    assert rig.robot.resets == 1 and not [name for name, _ in rig.lockstep.bus.topics if name.endswith("sim/reset")
                                          and rig.lockstep.bus.topics[name, _].writers]
    assert samples[0].signals["height"] > 0.5


def test_how_episodes_end_is_one_of_two_words() -> None:
    with pytest.raises(ValueError, match="legal: stop, silence"):
        Episodes(after="land")


def test_words_that_nobody_can_read_change_nothing() -> None:
    """Anybody may publish on a bus."""
    bus, text, numbers = Bus(), "std_msgs/msg/String", "std_msgs/msg/Float64MultiArray"
    transport, other = MemoryTransport(bus, "actor", "/r"), MemoryTransport(bus, "other", "/r")
    heard = Heard(transport, load_robot("crazyflie").command("ctbr_cmd"))
    for topic, message in (("monitor/verdict", messages.record(text)(data="{")),
                           ("monitor/verdict", messages.record(text)(data="[1]")),
                           ("guard/event", messages.record(text)(data="no")),
                           ("guard/command", messages.array64(np.zeros(3)))):
        kind = numbers if topic == "guard/command" else text
        latched = QOS["latched"] if topic == "monitor/verdict" else QOS["default"]
        other.publish(other.advertise(topic, kind, latched), messages.encode(kind, message))
        transport.wait(0.0)
    assert heard.unreadable == 4 and heard.audit.sent == 0 and heard.judged(0, 0) == ""


def test_a_verdict_on_an_earlier_mission_of_the_same_number_is_none(rig: Rig) -> None:
    assert rig.world.heard.judged(rig.world.number, 1) == ""
