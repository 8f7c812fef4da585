"""The line between controller and guard: what goes in comes out, and nobody else gets a word in."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from temporeal_bridge.link import datagrams
from temporeal_bridge.link.datagrams import Answer, LinkError, Proposal
from temporeal_bridge.link.sockets import SocketController, SocketGuard, default_path


@given(st.integers(0, 4), st.integers(-1, 2**40), st.integers(-1, 2**40), st.floats(allow_nan=False),
       st.lists(st.floats(width=64), max_size=20), st.text(max_size=50))
def test_a_proposal_survives_the_way(kind, flight, step, seen, values, text):
    text = text.encode(errors="replace").decode()
    got = datagrams.unpack(datagrams.pack(Proposal(kind, flight, step, 5, seen, 1.0, values, text)))
    assert (got.kind, got.flight, got.step, got.stamp_ns, got.seen, got.at, got.text) == (
        kind, flight, step, 5, seen, 1.0, text)
    assert got.values.tobytes() == np.asarray(values, dtype="<f8").tobytes()


@given(st.binary(max_size=200))
def test_any_other_bytes_are_refused(data):
    for read in (datagrams.unpack, datagrams.unpack_answer):
        with pytest.raises(LinkError):
            read(data)


def test_a_datagram_that_was_cut_is_refused():
    data = datagrams.pack(Proposal(datagrams.COMMAND, values=[1.0, 2.0], text="abc"))
    for length in range(len(data)):
        with pytest.raises(LinkError):
            datagrams.unpack(data[:length])


def test_there_and_back(tmp_path):
    path = tmp_path / "own" / "cf1.sock"
    guard, controller = SocketGuard(path), SocketController(path)
    assert controller.send(Proposal(datagrams.COMMAND, 3, 7, values=[1.5, -2.0]))
    guard.wait(1.0)
    (got,) = guard.receive()
    assert (got.flight, got.step, got.values.tolist()) == (3, 7, [1.5, -2.0])
    guard.answer(Answer("active", 3, 9, "why"))
    assert controller.receive() == [Answer("active", 3, 9, "why")]
    controller.close()
    guard.answer(Answer("active"))  # nobody there: no matter
    guard.close()
    assert not any(p.suffix != ".lock" for p in path.parent.iterdir())


def test_only_the_controller_that_spoke_first_is_heard(tmp_path):
    path = tmp_path / "own" / "cf1.sock"
    guard, first = SocketGuard(path), SocketController(path)
    other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    other.bind(os.fspath(tmp_path / "own" / "other"))
    first.send(Proposal(datagrams.HELLO))
    other.sendto(datagrams.pack(Proposal(datagrams.COMMAND, values=[9.0])), os.fspath(path))
    first.send(Proposal(datagrams.COMMAND, values=[1.0]))
    assert [p.values.tolist() for p in guard.receive()] == [[], [1.0]] and guard.strangers == 1
    guard.release()
    other.sendto(datagrams.pack(Proposal(datagrams.COMMAND, values=[2.0])), os.fspath(path))
    assert [p.values.tolist() for p in guard.receive()] == [[2.0]]


def test_nonsense_is_counted(tmp_path):
    path = tmp_path / "own" / "cf1.sock"
    guard, controller = SocketGuard(path), SocketController(path)
    controller.socket.sendto(b"hello", os.fspath(path))
    controller.send(Proposal(datagrams.HELLO))
    assert len(guard.receive()) == 1 and guard.malformed == 1


def test_a_second_guard_is_refused_and_one_that_was_killed_leaves_nothing_in_the_way(tmp_path):
    path = tmp_path / "own" / "cf1.sock"
    first = SocketGuard(path)
    with pytest.raises(LinkError, match="another guard has"):
        SocketGuard(path)
    os.close(first.lock)  # as the kernel does for a process that is killed; its socket file stays
    first.socket.close()
    assert path.exists()
    SocketGuard(path).close()


def test_without_a_guard_nothing_is_taken(tmp_path):
    path = tmp_path / "own" / "cf1.sock"
    controller = SocketController(path)
    assert not controller.send(Proposal(datagrams.HELLO))
    guard = SocketGuard(path)
    assert controller.send(Proposal(datagrams.HELLO))
    guard.socket.close()  # killed: the file is there, nobody listens
    assert not controller.send(Proposal(datagrams.HELLO))


def test_a_guard_that_does_not_read_never_blocks_the_controller(tmp_path):
    path = tmp_path / "own" / "cf1.sock"
    guard, controller = SocketGuard(path), SocketController(path)
    taken = [controller.send(Proposal(datagrams.COMMAND, values=np.zeros(100))) for _ in range(5000)]
    assert taken[0] and not taken[-1]
    guard.close()


def test_a_folder_that_others_can_write_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(LinkError, match="can be written by other users"):
        SocketGuard(folder / "cf1.sock")


def test_a_name_too_long_for_a_socket_is_told(tmp_path):
    with pytest.raises(LinkError, match="longer than the 100 bytes"):
        SocketGuard(tmp_path / ("x" * 100))


def test_the_socket_is_this_users_alone(tmp_path):
    path = tmp_path / "own" / "cf1.sock"
    guard = SocketGuard(path)
    assert path.stat().st_mode & 0o077 == 0 and path.parent.stat().st_mode & 0o077 == 0
    guard.close()


def test_each_robot_has_a_line_of_its_own(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    monkeypatch.setenv("ROS_DOMAIN_ID", "5")
    assert default_path(None, "/cf1") == Path("/run/user/7/temporeal/5-cf1.sock")
    assert default_path(42, "/swarm/cf1") == Path("/run/user/7/temporeal/42-swarm.cf1.sock")
    assert default_path(0, "/") == Path("/run/user/7/temporeal/0-no-namespace.sock")
    spaces = ("/", "/robot", "/no_namespace", "/a/b", "/a_b", "/a")
    assert len({default_path(0, space) for space in spaces}) == len(spaces)
