"""Peers are installed where they are missing or of another version, and what cannot be had is an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from temporeal_benchmarks.peers import process as peers


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return tmp_path / "peers"


def pip(monkeypatch, status=0, told=""):
    """pip as a function that writes one file, or fails."""
    calls = []

    def run(command, **options):
        calls.append(command)
        if not status:
            (Path(command[command.index("--target") + 1]) / "package.py").write_text("")
        return SimpleNamespace(returncode=status, stderr=told, stdout="")

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_what_is_pinned_is_installed_once(environment, monkeypatch):
    calls = pip(monkeypatch)
    peers.install_missing()
    peers.install_missing()
    assert [command[-len(pins):] for command, pins in zip(calls, peers.PINS.values())] == [
        list(pins) for pins in peers.PINS.values()]
    assert len(calls) == len(peers.PINS)
    assert all((environment / name / "package.py").exists() for name in peers.PINS)


def test_another_version_is_replaced(environment, monkeypatch):
    old = environment / "rtamt"
    old.mkdir(parents=True)
    (old / "pins.txt").write_text("rtamt==0.3.5\n")
    (old / "old.py").write_text("")
    assert not peers.installed("rtamt")
    pip(monkeypatch)
    peers.install("rtamt")
    assert peers.installed("rtamt")
    assert not (old / "old.py").exists()
    assert {path.name for path in environment.iterdir()} == {"rtamt"}


def test_what_cannot_be_installed_is_an_error_that_says_what_to_do(environment, monkeypatch):
    pip(monkeypatch, status=1, told="no matching distribution")
    with pytest.raises(peers.PeerError, match=r"(?s)make peers.*no matching distribution"):
        peers.Peer("rtamt")
    assert not list(environment.iterdir())


def test_an_unknown_peer_lists_the_known():
    with pytest.raises(peers.PeerError, match="no peer 'breach'; known: rtamt, stlcgpp"):
        peers.Peer("breach")


def test_a_request_that_a_peer_refuses_is_an_error_and_the_next_is_answered():
    with peers.Peer("rtamt") as rtamt:
        with pytest.raises(peers.PeerError, match="rtamt: RTAMTException: .*Syntax ERROR"):
            rtamt.ask("evaluate", text="x >", worlds=[{"x": [1.0, 2.0]}], period_ms=1000)
        assert rtamt.ask("evaluate", text="x > 0", worlds=[{"x": [1.0, 2.0]}], period_ms=1000) == [[1.0, 2.0]]


def test_a_peer_whose_process_has_ended_is_an_error():
    with peers.Peer("rtamt") as rtamt:
        rtamt._process.terminate()
        rtamt._process.wait()
        with pytest.raises(peers.PeerError, match="has ended"):
            rtamt.ask("evaluate", text="x > 0", worlds=[], period_ms=1000)
