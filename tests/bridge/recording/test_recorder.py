"""Bags: what comes in is what is read back, by another reader; a full disk loses nothing that was flushed."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from math import inf
from pathlib import Path

import numpy as np
import pytest
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import Reader

from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.odometry import encode_odometry
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.process.children import LINGER_S
from temporeal_bridge.recorder import QUIET_S, Recorder
from temporeal_bridge.recording.bag_writer import Bag, RecorderError, WholeFile
from temporeal_bridge.recording.recovery import rescue
from temporeal_bridge.recording.topics import robot_topics
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import QOS

STRING = "std_msgs/msg/String"


def text(word: str) -> bytes:
    return messages.encode(STRING, messages.record(STRING)(data=word))


def read(path):
    with Reader(path) as reader:
        return [(c.topic, c.msgtype, stamp, bytes(data)) for c, stamp, data in reader.messages()]


def test_messages_are_read_back_byte_by_byte(tmp_path):
    bus = Bus()
    talker, own = MemoryTransport(bus, "a", "/cf1"), MemoryTransport(bus, "recorder", "/cf1")
    interface = load_interface(load_robot("crazyflie"))
    recorder = Recorder(own, Bag(tmp_path / "bag"), robot_topics(interface, ["/cf1", "/cf2"]))
    odom, kind = talker.advertise("odom", "nav_msgs/msg/Odometry", QOS["default"]), "nav_msgs/msg/Odometry"
    sent = []
    for i in range(250):
        bus.advance(0.01)
        data = messages.encode(kind, odometry(i))
        talker.publish(odom, data)
        own.wait(0.0)
        recorder.step()
        sent.append(("/cf1/odom", kind, own.now(), data))
    recorder.close()
    assert read(tmp_path / "bag") == sent
    assert recorder.summary()["messages"]["/cf1/odom"] == 250 and recorder.summary()["messages"]["/cf2/odom"] == 0


def test_told_to_end_it_records_until_the_guards_have_brought_their_robots_to_rest(tmp_path):
    bus = Bus()
    talker, own = MemoryTransport(bus, "guard", "/cf1"), MemoryTransport(bus, "recorder", "/cf1")
    topics = robot_topics(load_interface(load_robot("crazyflie")), ["/cf1", "/cf2"])
    recorder = Recorder(own, Bag(tmp_path / "bag"), topics)
    mission = talker.advertise("mission", "std_msgs/msg/Header", QOS["latched"])
    command = talker.advertise("guard/command", "std_msgs/msg/Float64MultiArray", QOS["default"])
    row = messages.encode(command.type, messages.array64(np.array([1.0, 2.0])))

    def said(mode=None, data=None, seconds=0.01):
        if mode:
            data = messages.encode(mission.type, messages.header(0, f"{mode} 1"))
        if data:
            talker.publish(mission, data)
        talker.publish(command, row)
        own.wait(0.0)
        bus.advance(seconds)
        return recorder.may_end()

    assert recorder.may_end()  # nobody ever flew
    recorder.asked = inf
    assert [said(mode) for mode in ("ready", "active", None, "stopping", None, "holding")] == [
        True, False, False, False, False, True]
    assert not said("active") and not said(data=b"garbled")
    assert said(seconds=QUIET_S + 0.01)  # a guard that was killed says nothing any more
    assert not said("stopping")
    bus.advance(LINGER_S)
    assert said()  # one that does not come to an end is not waited for
    recorder.close()
    assert len([row for row in read(tmp_path / "bag") if row[0] == "/cf1/mission"]) == 7


def test_the_flight_of_another_guard_is_not_waited_for(tmp_path):
    """Two in one namespace: where the own guard was refused, the other one flew on, and the recorder was killed."""
    bus = Bus()
    talker, own = MemoryTransport(bus, "guard", "/cf1"), MemoryTransport(bus, "recorder", "/cf1")
    guard = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    recorder = Recorder(own, Bag(tmp_path / "bag"), robot_topics(load_interface(load_robot("crazyflie")), ["/cf1"]),
                        guard.pid)
    kind, row = "std_msgs/msg/Header", "std_msgs/msg/Float64MultiArray"
    mission, command = talker.advertise("mission", kind, QOS["latched"]), talker.advertise(
        "guard/command", row, QOS["default"])
    talker.publish(mission, messages.encode(kind, messages.header(0, "active 1")))

    def may_end(seconds):
        bus.advance(seconds)
        talker.publish(command, messages.encode(row, messages.array64(np.zeros(1))))
        own.wait(0.0)
        return recorder.may_end()

    assert not may_end(0.0) and not may_end(QUIET_S + 0.1)  # its own guard brings its robot to rest
    guard.kill()
    guard.wait()
    assert may_end(0.1)
    recorder.asked = inf
    assert not may_end(0.1) and may_end(QUIET_S)  # what the robot does without its guard is recorded
    recorder.close()


def test_a_guard_that_was_killed_is_not_waited_for_while_another_keeps_its_robot(tmp_path):
    """A robot that rests is commanded on and on; the other one's last word was that it flies."""
    bus = Bus()
    own = MemoryTransport(bus, "recorder", "/")
    interface = load_interface(load_robot("crazyflie"))
    recorder = Recorder(own, Bag(tmp_path / "bag"), robot_topics(interface, ["/cf1", "/cf2"]))
    kind, row = "std_msgs/msg/Header", "std_msgs/msg/Float64MultiArray"
    for name, mode in (("/cf1", "active"), ("/cf2", "holding")):
        talker = MemoryTransport(bus, "guard_node", name)
        command = talker.advertise("guard/command", row, QOS["default"])
        talker.publish(command, messages.encode(row, messages.array64(np.zeros(1))))
        talker.publish(talker.advertise("mission", kind, QOS["latched"]),
                       messages.encode(kind, messages.header(0, f"{mode} 1")))
    own.wait(0.0)
    assert not recorder.may_end()
    for _ in range(round(QUIET_S / 0.1) + 1):
        bus.advance(0.1)
        talker.publish(command, messages.encode(row, messages.array64(np.zeros(1))))
        own.wait(0.0)
    assert recorder.may_end()
    recorder.close()


def odometry(i: int):
    signals = {"base_pos_w": np.array([i, 0, 0]), "base_quat_w": np.array([1.0, 0, 0, 0]), "base_vel_w": np.zeros(3)}
    return encode_odometry(signals, i, ("world", "cf1"), {"linear": "world", "angular": "absent"})


def test_the_bag_explains_itself(tmp_path):
    """A reader without any type store decodes it, also types that plain ROS 2 lacks: the definitions are inside."""
    load_interface(load_robot("crazyflie"))
    kind = "crazyflie_interfaces/msg/LogDataGeneric"
    bag = Bag(tmp_path / "bag")
    bag.add("/cf1/gyro", kind)
    values = np.array([1, 2, 3], np.float32)
    message = messages.record(kind)(header=messages.header(5, "cf1"), timestamp=1, values=values)
    bag.write("/cf1/gyro", kind, 5, messages.encode(kind, message))
    bag.close()
    with AnyReader([tmp_path / "bag"]) as reader:
        [(connection, _, data)] = list(reader.messages())
        assert reader.deserialize(data, connection.msgtype).values.tolist() == [1, 2, 3]
        assert connection.digest == messages.type_hash(kind)


def test_flushed_messages_are_on_disk(tmp_path):
    bag = Bag(tmp_path / "bag")
    bag.add("/words", STRING)
    bag.write("/words", STRING, 1, text("find me"))
    bag.flush()
    assert b"find me" in (tmp_path / "bag" / "bag.mcap").read_bytes()
    bag.close()


def test_a_bag_is_never_overwritten(tmp_path):
    (tmp_path / "bag").mkdir()
    with pytest.raises(RecorderError, match="never overwritten"):
        Bag(tmp_path / "bag")


def test_a_bag_that_cannot_be_begun_leaves_nothing(tmp_path, monkeypatch):
    def full(*_) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RecorderError, match="cannot be begun: No space left on device"):
        Bag(tmp_path / "bag")
    assert not list(tmp_path.iterdir())


class FullDisk(WholeFile):
    """A disk with room for so many bytes; the reserve's bytes come back when it is deleted."""

    room = 6000

    def write(self, data) -> int:
        view = memoryview(data).cast("B")
        free = self.room + (0 if self.reserve.exists() else 1 << 20)
        if self.position + len(view) > free:
            super().write(view[: max(free - self.position, 0)])  # a real disk takes what fits, then fails
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(view)


def test_a_full_disk_is_a_clear_error_and_loses_nothing_flushed(tmp_path):
    bag = Bag(tmp_path / "bag")
    bag.file.close()
    bag.storage.bio = bag.file = FullDisk(bag.storage.path)
    bag.file.reserve = bag.ballast
    bag.add("/words", STRING)
    kept, lost = [], False
    for i in range(100):
        pending = [("/words", STRING, 10 * i + k, text(f"word {i} {k}" + "x" * 50)) for k in range(5)]
        for row in pending:
            bag.write(*row)
        try:
            bag.flush()
        except RecorderError as error:
            assert "No space left" in str(error) and f"the {len(kept)} messages" in str(error)
            lost = True
            break
        kept += pending
    assert lost and len(kept) > 10
    assert read(tmp_path / "bag") == kept
    assert not bag.ballast.exists() and bag.closed


def test_other_write_errors_are_not_hidden(tmp_path):
    class Broken(WholeFile):
        def write(self, data) -> int:
            raise OSError(errno.EIO, "Input/output error")

    bag = Bag(tmp_path / "bag")
    bag.add("/words", STRING)
    bag.storage.bio = bag.file = Broken(bag.storage.path)
    bag.write("/words", STRING, 1, text("x"))
    with pytest.raises(OSError, match="Input/output"):
        bag.flush()


def killed_bag(path, torn: bytes = b"") -> list:
    """A bag as a killed recorder leaves it, with what was on disk, and a torn record at its end."""
    bag, kept = Bag(path), []
    bag.add("/words", STRING)
    bag.add("/never", STRING)
    for i in range(30):
        kept.append(("/words", STRING, 10 * i, text(f"word {i}")))
        bag.write(*kept[-1])
        if i % 10 == 9:
            bag.flush()
    bag.write("/words", STRING, 999, text("not flushed"))
    with (path / "bag.mcap").open("ab") as file:
        file.write(torn)
    bag.file.close()  # as the kernel does, and gives up its lock
    return kept


@pytest.mark.parametrize("torn", [b"", b"\x06", b"\x06" + b"\x10\x27" + b"\0" * 200])
def test_nothing_that_was_on_disk_is_lost_when_the_recorder_is_killed(tmp_path, torn):
    kept = killed_bag(tmp_path / "bag", torn)
    assert rescue(tmp_path / "bag") == f"; the 30 messages that were on disk are kept in {tmp_path}/bag"
    assert read(tmp_path / "bag") == kept
    with AnyReader([tmp_path / "bag"]) as reader:
        assert {c.topic: (c.msgcount, c.digest) for c in reader.connections} == {
            "/words": (30, messages.type_hash(STRING)), "/never": (0, messages.type_hash(STRING))}
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["bag", "bag.mcap", "metadata.yaml"]
    assert rescue(tmp_path / "bag") == ""


def test_a_bag_that_is_being_written_is_not_rescued(tmp_path):
    """Whose recorder found it there already must not cut off, and replace, what another one is writing."""
    bag = Bag(tmp_path / "bag")
    bag.add("/words", STRING)
    bag.write("/words", STRING, 1, text("before"))
    bag.flush()
    inode = (tmp_path / "bag" / "bag.mcap").stat().st_ino
    with pytest.raises(RecorderError, match="never overwritten"):
        Bag(tmp_path / "bag")
    assert rescue(tmp_path / "bag") == f"; {tmp_path}/bag is being written by another recorder"
    bag.write("/words", STRING, 2, text("after"))
    bag.flush()
    bag.close()
    assert (tmp_path / "bag" / "bag.mcap").stat().st_ino == inode
    assert [stamp for _, _, stamp, _ in read(tmp_path / "bag")] == [1, 2]


def test_a_bag_that_cannot_be_written_anew_is_left_as_it_is(tmp_path, monkeypatch):
    killed_bag(tmp_path / "bag")

    def full(*_) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("temporeal_bridge.recording.recovery.Bag", full)
    assert "No space left on device): `mcap recover`" in rescue(tmp_path / "bag")
    assert b"word 29" in (tmp_path / "bag" / "bag.mcap").read_bytes()
    assert rescue(tmp_path / "nowhere") == ""


TALKER = """
import sys
from math import inf
from pathlib import Path
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.recorder import Recorder
from temporeal_bridge.recording.bag_writer import Bag
from temporeal_bridge.transports.transport import QOS

kind = "std_msgs/msg/String"
bus = Bus()
talker, own = MemoryTransport(bus, "guard"), MemoryTransport(bus, "recorder")
recorder = Recorder(own, Bag(Path(sys.argv[1])), [("/guard/event", kind, QOS["default"])])
endpoint = talker.advertise("/guard/event", kind, QOS["default"])
for i in range(10**9):
    bus.advance(0.01)
    talker.publish(endpoint, messages.encode(kind, messages.record(kind)(data=f"event {i}")))
    own.wait(0.0)
    due = recorder.deadline() <= bus.seconds
    recorder.step()
    if due:
        print(i, flush=True)  # all events up to this one are flushed
"""


def test_no_event_is_lost_up_to_the_last_flush_when_the_recorder_is_killed(tmp_path):
    """SIGKILL at any moment, between messages or in the middle of a write: what was flushed is read back in order."""
    for kept in (1, 4, 9):
        bag = tmp_path / f"bag{kept}"
        process = subprocess.Popen([sys.executable, "-c", TALKER, str(bag)], stdout=subprocess.PIPE, text=True)
        lines = [int(process.stdout.readline()) for _ in range(kept)]
        process.send_signal(signal.SIGKILL)
        lines += [int(line) for line in process.stdout.read().splitlines() if line.strip().isdigit()][:-1]
        assert process.wait() == -signal.SIGKILL and "are kept in" in rescue(bag)
        words = [messages.decode(STRING, data).data for *_, data in read(bag)]
        assert words == [f"event {i}" for i in range(len(words))] and len(words) > lines[-1] >= 99


def test_everything_that_a_flight_says_is_recorded():
    """Each topic that a node of ours publishes or hears, and what the driver's side of the interface has."""
    crazyflie = load_robot("crazyflie")
    for name in ("crazyswarm2", "px4", "mavros"):
        interface = load_interface(crazyflie, name)
        topics = {topic for topic, _, _ in robot_topics(interface, ["/cf1"])}
        said = {row.topic for row in interface.states} | {c.topic for c in interface.commands.values()}
        said |= {other.topic for c in interface.commands.values() for other in c.also}
        said |= {row.topic for row in (interface.autopilot and (interface.autopilot.status, interface.autopilot.orders))
                 or () if row}
        said |= {"policy/step", "policy/chunk", "policy/event", "guard/command", "guard/swap", "guard/event",
                 "guard/artifact", "mission", "mission/start", "mission/stop", "mission/reset", "estop",
                 "monitor/robustness", "monitor/verdict", "monitor/drift", "sim/episode", "mission/instruction",
                 "policy/instruction", "policy/forecast"}
        assert topics == {f"/cf1/{topic}" for topic in said} | {"/diagnostics"}
