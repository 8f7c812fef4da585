"""Peers are installed where they are missing or of another version, and what cannot be had is an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from temporeal_benchmarks.peers import install, process
from temporeal_benchmarks.peers.install import PeerError


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
    install.install_missing()
    install.install_missing()
    assert [command[-len(pins):] for command, pins in zip(calls, install.PINS.values())] == [
        list(pins) for pins in install.PINS.values()]
    assert len(calls) == len(install.PINS)
    assert all((environment / name / "package.py").exists() for name in install.PINS)


def test_another_version_is_replaced(environment, monkeypatch):
    old = environment / "rtamt"
    old.mkdir(parents=True)
    (old / "pins.txt").write_text("rtamt==0.3.5\n")
    (old / "old.py").write_text("")
    assert not install.installed("rtamt")
    pip(monkeypatch)
    install.install("rtamt")
    assert install.installed("rtamt")
    assert not (old / "old.py").exists()
    assert {path.name for path in environment.iterdir()} == {"rtamt"}


def test_what_cannot_be_installed_is_an_error_that_says_what_to_do(environment, monkeypatch):
    pip(monkeypatch, status=1, told="no matching distribution")
    with pytest.raises(PeerError, match=r"(?s)make peers.*no matching distribution"):
        process.Peer("rtamt")
    assert not list(environment.iterdir())


def test_an_unknown_peer_lists_the_known():
    with pytest.raises(PeerError, match="no peer 'breach'; known: rtamt, stlcgpp"):
        process.Peer("breach")


def test_a_request_that_a_peer_refuses_is_an_error_and_the_next_is_answered():
    with process.Peer("rtamt") as rtamt:
        with pytest.raises(PeerError, match="rtamt: RTAMTException: .*Syntax ERROR"):
            rtamt.ask("evaluate", text="x >", worlds=[{"x": [1.0, 2.0]}], period_ms=1000)
        assert rtamt.ask("evaluate", text="x > 0", worlds=[{"x": [1.0, 2.0]}], period_ms=1000) == [[1.0, 2.0]]


def test_a_peer_whose_process_has_ended_is_an_error():
    with process.Peer("rtamt") as rtamt:
        rtamt._process.terminate()
        rtamt._process.wait()
        with pytest.raises(PeerError, match="has ended"):
            rtamt.ask("evaluate", text="x > 0", worlds=[], period_ms=1000)
