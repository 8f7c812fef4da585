"""Recordings in simulation and from a bus hold what happened, and lose the open episode alone."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from tests.policies.data.recording.doubles import PublishedRobot

from temporeal.policies.cli.main import main
from temporeal.policies.data.episodes.dataset import Dataset
from temporeal.policies.data.episodes.writer import DatasetWriter
from temporeal.policies.data.recording.controls import BEGIN, DISCARD, END, FAILURE, QUIT, SUCCESS, Controls
from temporeal.policies.data.recording.leader_arm import LeaderArm
from temporeal.policies.data.recording.live_topics import LiveRobot, record
from temporeal.policies.data.recording.operators import Scripted, Wish
from temporeal.policies.data.recording.session import Session
from temporeal.policies.runs.demonstrating import teleoperation
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport


def wish(*events: str, thrust: float = 0.0) -> Wish:
    return Wish(np.array([thrust, 0.0, 0.0, 0.0], np.float32), None, events)


def recorded(folder, wishes, *words):
    """What a scripted operator records in the mission of a quadrotor."""
    usual = ["task=waypoints", "randomize=none", "realtime=false", "view=false", f"out={folder}"]
    request = teleoperation.request_of([*usual, *words])
    return teleoperation.record(request, lambda text: None, Scripted(wishes))


def test_episodes_are_as_the_operator_made_them(tmp_path):
    script = [wish(), wish(BEGIN), *[wish(thrust=0.1)] * 5, wish(SUCCESS), wish(SUCCESS), wish(BEGIN), *[wish()] * 3,
              wish(DISCARD), wish(BEGIN), *[wish()] * 4, wish(FAILURE), wish(BEGIN), *[wish()] * 2, wish(END),
              wish(BEGIN), wish(), wish(), wish(QUIT)]
    done = recorded(tmp_path / "set", script, "language=fly up")
    assert (done.episodes, done.discarded, done.successes) == (3, 2, 1)
    data = Dataset.open(tmp_path / "set")
    assert [record.success for record in data.records] == [True, False, False]
    assert [data.episode(k).steps for k in range(3)] == [5, 4, 2] and data.records[0].language == "fly up"
    first = data.episode(0)
    assert first.samples == 6 and first.reward is not None
    np.testing.assert_allclose(first.policy_action[:, 0], 0.1)
    # the action map of the task, about hovering: 0.0319 kg * 9.81 m/s^2 + 0.1 * 0.2 N
    np.testing.assert_allclose(first.action[:, 0], 0.0319 * 9.81 + 0.02, rtol=1e-5)
    # what is recorded is one trajectory: velocity is the change of the position
    moved = np.diff(first.signals["base_pos_w"], axis=0) / 0.02
    np.testing.assert_allclose(moved, 0.5 * (first.signals["base_vel_w"][1:] + first.signals["base_vel_w"][:-1]),
                               atol=0.02)


def test_an_episode_that_lasts_long_enough_or_ends_by_itself_is_written(tmp_path):
    done = recorded(tmp_path / "long", [wish(BEGIN), *[wish()] * 40], "seconds=0.2", "episodes=1")
    assert done.episodes == 1 and Dataset.open(tmp_path / "long").episode(0).steps == 10
    fall = [wish(BEGIN), *[wish(thrust=-1.0)] * 200]
    done = recorded(tmp_path / "fall", fall, "episodes=1")
    found = Dataset.open(tmp_path / "fall").episode(0)
    assert found.terminated and found.success is False
    assert found.signals["height"][-1] < 0.2 < found.signals["height"][-2]  # the floor of the mission


def test_a_recording_that_breaks_keeps_what_was_ended(tmp_path):
    def script():
        yield from (wish(BEGIN), wish(), wish(SUCCESS), wish(BEGIN), wish())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorded(tmp_path / "set", script())
    assert Dataset.open(tmp_path / "set").episodes == 1
    assert recorded(tmp_path / "set", [wish(BEGIN), wish(), wish(END)], "append=true").episodes == 1
    assert Dataset.open(tmp_path / "set").episodes == 2


def test_the_page_follows_the_world_that_is_recorded(tmp_path):
    pytest.importorskip("viser")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told: list[str] = []
    request = teleoperation.request_of(["task=waypoints", "realtime=false", f"port={port}", f"out={tmp_path / 'set'}"])
    script = [wish(BEGIN), *[wish()] * 6, wish(END), wish(BEGIN), wish(), wish(QUIT)]
    done = teleoperation.record(request, told.append, Scripted(script))
    assert done.episodes == 1 and f"watch: http://127.0.0.1:{port}" in told


def test_nothing_recorded_leaves_no_folder(tmp_path):
    assert recorded(tmp_path / "set", [wish(BEGIN), wish(QUIT)]).episodes == 0
    assert not (tmp_path / "set").exists()


def test_an_expert_records_by_itself(tmp_path, capsys):
    assert main(["data", "record", "task=waypoints", "device=expert", "episodes=1", "seconds=0.3",
                 f"out={tmp_path / 'set'}"]) == 0
    data = Dataset.open(tmp_path / "set")
    assert data.episodes == 1 and data.episode(0).steps == 15
    assert data.interface.about["settings"]["task"]["name"] == "waypoints"


@pytest.mark.parametrize(("words", "told"), [
    (["task=waypoints", "device=mouse", "out=x"], "device=mouse: legal are keyboard"),
    (["task=waypoints", "device=policy", "out=x"], "policy=RUN names"), (["task=waypoints"], "out=FOLDER is needed"),
    (["task=waypoints", "speed=2", "out=x"], "speed=2"), (["task=waypoints", "--rate", "5", "out=x"], "is for --bus"),
    (["--bus", "--out", "x"], "--bus needs --robot"), (["--bus", "--robot", "franka", "--out", "x"], "no terminal"),
])  # fmt: skip
def test_what_cannot_be_recorded_is_refused(words, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "record", *words]) == 2
    assert told in capsys.readouterr().err


class Typed:
    """Keys that are typed at given reads."""

    name = "keyboard"

    def __init__(self, keys) -> None:
        self.keys, self.reads = dict(keys), 0

    def read(self) -> Controls:
        self.reads += 1
        return Controls(pressed=tuple(self.keys.get(self.reads, ())))

    def close(self) -> None:
        pass


class Life:
    """Drives a published quadrotor as the clock of the bus goes on: state at 100 Hz, commands at 50 Hz until ``until``
    (s). The height is the time, the thrust a hundredth of it."""

    def __init__(self, bus: Bus, until: float) -> None:
        self.bus, self.until, self.next = bus, until, 0
        self.robot = PublishedRobot("crazyflie", bus, command="ctbr_cmd")
        self.advance, bus.advance = bus.advance, self.live

    def live(self, seconds: float) -> None:
        """The bus's clock goes on."""
        end = self.bus.seconds + seconds
        while (due := 0.003 + 0.01 * self.next) <= end:
            self.advance(max(due - self.bus.seconds, 0.0))
            if due < self.until:
                self.robot.publish({"base_pos_w": [0.0, 0.0, due], "height": due})
                if self.next % 2 == 0:
                    self.robot.send([0.01 * due + 0.02, 0.0, 0.0, 0.0])
            self.next += 1
        self.advance(max(end - self.bus.seconds, 0.0))


def live_session(folder, bus, life, keys=None, **options):
    """A recording from the bus at 50 Hz."""
    live = LiveRobot(MemoryTransport(bus, "recorder"), life.robot.robot, life.robot.topics, "ctbr_cmd", 50.0)
    with DatasetWriter(folder, live.interface) as writer:
        said: list[str] = []
        session = Session(writer, options.pop("episodes", 1), say=said.append)
        record(live, session, keys, stop=lambda: bus.seconds > 5, **options)
    return session, said, Dataset.open(folder)


def test_live_topics_are_recorded_with_the_command_of_their_step(tmp_path):
    bus = Bus()
    session, _, data = live_session(tmp_path / "set", bus, Life(bus, 3.0), automatic=True, seconds=0.5)
    episode = data.episode(0)
    assert session.recorded == 1 and episode.steps == 25 and episode.samples == 26
    height = episode.signals["height"]
    np.testing.assert_allclose(np.diff(height), 0.02, atol=1e-6)
    # the newest state at a sample is 7 ms old; the command in force at the middle of the step that begins there was
    # sent 3 ms after it; the driver quantizes thrust to 0.48 N / 65535
    np.testing.assert_allclose(episode.action[:, 0], 0.01 * (height[:-1] + 0.01) + 0.02, atol=1e-5)


def test_keys_begin_and_end_live_episodes(tmp_path):
    bus = Bus()
    keys = Typed({20: ["b"], 40: ["y"], 50: ["b"], 60: ["x"], 70: ["b"], 90: ["n"], 100: ["Q"]})
    session, _, data = live_session(tmp_path / "set", bus, Life(bus, 9.0), keys, episodes=9)
    assert (session.recorded, session.discarded) == (2, 1)
    assert [record.success for record in data.records] == [True, False]
    assert [data.episode(k).steps for k in range(2)] == [20, 20]


def test_a_robot_that_falls_silent_ends_the_episode_and_begins_none(tmp_path):
    bus = Bus()
    keys = Typed({5: ["b"], 60: ["b"], 70: ["Q"]})
    _, said, data = live_session(tmp_path / "set", bus, Life(bus, 0.5), keys, episodes=9)
    # from 0.1 s to 0.54 s, where the newest state is older than three periods: its sample is none
    assert data.episodes == 1 and data.episode(0).steps == data.episode(0).samples == 22
    assert any("nothing on odom for" in text for text in said)
    assert any("no episode can begin" in text for text in said)


def test_a_leader_arm_leads_within_limits_and_only_from_where_the_follower_is():
    bus = Bus()
    leader = PublishedRobot("franka", bus, "/leader")
    arm = LeaderArm(MemoryTransport(bus, "follower", "/leader"), leader.robot, leader.topics, "joint_pos_cmd", 7,
                    Typed({2: ["b"], 3: ["b"]}))
    home = np.array(leader.robot.home["joint_pos"])
    here = {"joint_pos": home.astype(np.float32)}
    np.testing.assert_allclose(arm(None, here).command, home, atol=1e-5)  # nothing came yet: it stays
    leader.publish({"joint_pos": home + 0.4})
    far = arm(None, here)
    np.testing.assert_allclose(far.command, home + 0.4, atol=1e-5)
    assert far.events == ()  # too far away to begin
    bus.advance(0.01)
    leader.publish({"joint_pos": home + [0.1, 0, 0, 0, 0, 0, 9.0]})
    near = arm(None, {"joint_pos": home + [0.1, 0, 0, 0, 0, 0, 2.2]})
    assert near.command[6] == pytest.approx(leader.robot.commands["joint_pos_cmd"].high[6]) and near.events == (BEGIN,)
    bus.advance(1.0)
    np.testing.assert_allclose(arm(None, here).command, near.command)  # silent: it stays where it was led last
