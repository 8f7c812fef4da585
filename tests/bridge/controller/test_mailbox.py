"""The folder where controller and worker meet: whole observations only, the newest one only, and nobody waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from temporeal.robots.artifact.manifest import CHUNK_VERSION, GOLDEN, POLICY, ChunkSpec, Manifest
from temporeal.robots.signals import CommandSpec, SignalSpec
from temporeal_bridge.controller import mailbox
from temporeal_bridge.controller.mailbox import (
    AT_ONCE,
    ControllerMailbox,
    MailboxError,
    Reply,
    WorkerMailbox,
    pack_reply,
    unpack_reply,
)

PICTURE = SignalSpec("wrist_rgb", (480, 640, 3), dtype="uint8")
NUMBER = SignalSpec("number", (3,), "1")
MANIFEST = Manifest(
    name="seer", robot="none", signals=(NUMBER, PICTURE),
    commands=(CommandSpec("joint_pos_cmd", (2,), "rad", low=(-1.0, -1.0), high=(1.0, 1.0)),), rate_hz=100.0, memory=(),
    formula="", constants={}, horizon_s=1.0, stop="hold", training={}, versions={}, seed=0, git_revision="", created="",
    files={POLICY: "", GOLDEN: ""}, chunk=ChunkSpec(5, 0.1), schema_version=CHUNK_VERSION)
ROWS = np.arange(10, dtype=np.float32).reshape(5, 2)


def signals(number: int) -> dict[str, np.ndarray]:
    return {"number": np.full(3, number, np.float32), "wrist_rgb": np.full(PICTURE.shape, number % 256, np.uint8)}


@pytest.fixture
def folder():
    made = mailbox.new_folder()
    yield made
    for path in made.iterdir():
        path.unlink()
    made.rmdir()


@pytest.fixture
def line(folder):
    made = ControllerMailbox(folder, MANIFEST)
    yield made
    made.close()


@pytest.fixture
def end(folder):
    made = WorkerMailbox(folder, MANIFEST)
    yield made
    made.close()


def test_the_newest_observation_is_read_once_and_whole(line, end):
    assert end.newest() is None
    for number in (1, 2, 3):
        line.put(0.1 * number, signals(number))
    seen = end.newest()
    assert seen.at == 0.1 * 3 and list(seen.signals) == ["number", "wrist_rgb"] and end.newest() is None
    for name, value in signals(3).items():
        assert np.array_equal(seen.signals[name], value) and seen.signals[name].dtype == value.dtype


def test_a_question_wakes_the_worker_and_its_chunk_comes_back(line, end):
    line.put(1.5, signals(1))
    assert end.poll.poll(60e3)  # woken, not only when the time was over
    end.wait()
    assert end.reply(Reply(end.newest().at, 0.01, ROWS))
    (reply,) = line.take()
    assert (reply.observed, reply.seconds) == (1.5, 0.01) and np.array_equal(reply.rows, ROWS)


def test_a_question_before_the_worker_was_there_is_found(line, folder):
    line.put(1.5, signals(1))
    late = WorkerMailbox(folder, MANIFEST)
    assert late.newest().at == 1.5
    late.close()


def test_without_the_other_end_nothing_blocks_and_nothing_fails(line):
    for number in range(100):
        line.put(float(number), signals(number))
    assert line.take() == []


def test_a_worker_that_does_not_read_is_not_waited_for(line, end):
    for _ in range(1000):
        line.send(b"!")  # far more than its queue takes
    assert not line.socket.getblocking() and line.send(b"!") is False


def test_a_worker_that_sends_without_end_does_not_hold_the_controller_up(line, end, monkeypatch):
    data = pack_reply(line.key, Reply(0.0, 0.0, ROWS))

    class Endless:
        def recv(self, size: int) -> bytes:
            return data

        def close(self) -> None:
            pass

    line.socket.close()
    line.socket = Endless()
    assert len(line.take()) == AT_ONCE


@pytest.mark.parametrize(("data", "told"), [
    (b"", "no chunk"), (b"x" * 500, "no chunk"),
    (lambda key: pack_reply(bytes(32), Reply(0.0, 0.0, ROWS)), "another artifact"),
    (lambda key: pack_reply(key, Reply(0.0, 0.0, ROWS))[:-4], "5 x 2 numbers in"),
    (lambda key: pack_reply(key, Reply(0.0, 0.0, ROWS)) + b"1234", "5 x 2 numbers in"),
])
def test_a_datagram_that_is_no_chunk_is_counted_and_told(line, end, data, told):
    end.send(data(line.key) if callable(data) else data)
    end.reply(Reply(2.0, 0.0, ROWS))
    assert [reply.observed for reply in line.take()] == [2.0]
    assert line.rejected == 1 and told in line.last_rejection


def test_a_chunk_of_another_shape_arrives_for_the_policy_to_refuse():
    assert unpack_reply(b"k" * 32, pack_reply(b"k" * 32, Reply(0.0, 0.0, ROWS[:3]))).rows.shape == (3, 2)


def test_an_observation_of_another_artifact_is_refused(line, folder):
    other = WorkerMailbox(folder, replace(MANIFEST, rate_hz=50.0))
    line.put(1.0, signals(1))
    with pytest.raises(MailboxError, match="another artifact"):
        other.newest()
    other.close()


def test_a_chunk_that_no_datagram_carries_is_refused_at_the_start(folder):
    with pytest.raises(MailboxError, match="give fewer steps"):
        WorkerMailbox(folder, replace(MANIFEST, chunk=ChunkSpec(10_000, 0.1)))


def test_a_second_one_of_either_end_is_refused_and_the_place_is_free_after_a_close(folder):
    for kind in (ControllerMailbox, WorkerMailbox):
        first = kind(folder, MANIFEST)
        with pytest.raises(MailboxError, match="already"):
            kind(folder, MANIFEST)
        first.close()
        kind(folder, MANIFEST).close()


def test_a_folder_that_others_can_enter_is_refused(tmp_path):
    tmp_path.chmod(0o755)
    with pytest.raises(MailboxError, match="open to other users"):
        ControllerMailbox(tmp_path, MANIFEST)


def test_a_name_too_long_for_a_socket_is_refused(tmp_path):
    with pytest.raises(MailboxError, match="shorter path"):
        ControllerMailbox(tmp_path / ("x" * 120), MANIFEST)


def test_a_full_disk_is_counted_and_does_not_stop_the_controller(line, end, monkeypatch):
    line.put(1.0, signals(1))
    monkeypatch.setattr(os, "writev", lambda file, parts: 10)
    line.put(2.0, signals(2))
    assert line.unwritten == 1 and "is full" in line.last_rejection
    assert end.newest().at == 1.0  # the whole old one, not a part of the new one


HAMMER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_mailbox as m
line = m.ControllerMailbox(Path(sys.argv[1]), m.MANIFEST)
number = 0
while True:
    number += 1
    line.put(float(number), m.signals(number))
"""


def test_nothing_is_torn_under_a_writer_that_never_rests_and_is_killed_in_between(folder, end):
    """Pictures of 0.9 MB, all bytes the same, from a process that is killed by SIGKILL and started again."""
    for _ in range(2):
        writer = subprocess.Popen([sys.executable, "-c", HAMMER, str(folder), str(Path(__file__).parent)])
        until, last, read = time.monotonic() + 30.0, 0.0, 0
        while read < 60 and time.monotonic() < until:
            seen = end.newest()
            if seen is None:
                continue
            assert seen.at > last
            for name, value in signals(int(seen.at)).items():
                assert np.array_equal(seen.signals[name], value)
            last, read = seen.at, read + 1
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert read == 60
        left = end.newest()
        assert left is None or np.array_equal(left.signals["number"], np.full(3, left.at, np.float32))
