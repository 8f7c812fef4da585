"""Real processes on loopback, killed at random moments: nothing is lost but the open episode, nothing counts twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.policies.robot_learning.deliveries import TOKEN, agreed, bytes_of, episode, until

from temporeal.policies.robot_learning.acting import courier
from temporeal.policies.robot_learning.acting.spool import Spool
from temporeal.policies.robot_learning.learning.inbox import Inbox
from temporeal.policies.robot_learning.learning.journal import Journal
from temporeal.policies.robot_learning.learning.learner import Received
from temporeal_benchmarks.residual.robot import free_port, killed

RNG = np.random.default_rng(11)
FAST, SLOW, OF_COMMANDS = 3, 50, 6  # kills


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def receiver(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """The real service and journal as a process."""
    file = Path(__file__).with_name("deliveries.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(file.parents[3]), *filter(None, sys.path)))}
    return subprocess.Popen([sys.executable, str(file), str(folder), str(port)], env=environment)


@pytest.mark.parametrize("kills", [FAST, pytest.param(SLOW, marks=pytest.mark.slow)])
def test_episodes_survive_kills_of_both_sides(tmp_path: Path, kills: int) -> None:
    """The courier and the receiver are killed in turn while episodes are made; each arrives once, bit for bit."""
    run, spool, made = tmp_path / "run", Spool(tmp_path / "actor"), dict[str, bytes]()
    run.mkdir()
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    spool.begin(agreed().plain(), agreed().digest())
    port = free_port(RNG)
    learner = receiver(run, port)

    def carrier() -> subprocess.Popen[bytes]:
        return courier.start(tmp_path / "actor", f"127.0.0.1:{port}", tmp_path / "token", None, 0.05)

    carried = carrier()
    try:
        for k in range(kills):
            for _ in range(20):
                one = episode(RNG, int(RNG.integers(1, 6)))
                made[one.id] = bytes_of(one)
                spool.keep(one.id, made[one.id])
            time.sleep(RNG.uniform(0.0, 0.3))
            if k % 2:
                kill(carried)
                carried = carrier()
            else:
                kill(learner)
                learner = receiver(run, port)
        until(lambda: not spool.waiting() or learner.poll() is not None)
        assert learner.poll() is None, "the receiver lives"
    finally:
        kill(carried)
        kill(learner)
    journal = Journal(run / "received.episodes")
    inbox = Inbox(journal, agreed())
    assert sorted(one.id for one in inbox.before) == sorted(made), "each once"
    assert all(bytes_of(one) == made[one.id] for one in inbox.before)
    assert not list((tmp_path / "actor" / "refused").iterdir())
    journal.close()


def test_the_courier_ends_with_its_actor(tmp_path: Path) -> None:
    """Its standard input is closed when the actor is gone, however that came about."""
    Spool(tmp_path).begin({}, "d")
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    process = courier.start(tmp_path, "127.0.0.1:9", tmp_path / "token", None, 1.0)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60.0) == 0


def test_another_agreement_does_not_mix_with_what_waits(tmp_path: Path) -> None:
    from temporeal.policies.runs.errors import BadInput

    spool = Spool(tmp_path)
    spool.begin({"a": 1}, "one")
    spool.put_weights(b"weights")
    assert spool.new_weights() == b"weights" and spool.new_weights() is None
    spool.begin({"a": 1}, "one")
    assert (tmp_path / "weights").exists()
    one = episode(RNG)
    spool.keep(one.id, bytes_of(one))
    assert spool.waiting() == [one.id] and spool.bytes_of(one.id) == bytes_of(one)
    with pytest.raises(BadInput, match="1 episodes that no learner has yet"):
        spool.begin({"a": 2}, "two")
    spool.delivered(one.id)
    spool.begin({"a": 2}, "two")
    assert not (tmp_path / "weights").exists(), "of another agreement"
    spool.hold()
    other = Spool(tmp_path)
    with pytest.raises(BadInput, match="another actor's"):
        other.hold()


@pytest.mark.slow
def test_learner_and_actor_survive_kills(tmp_path: Path) -> None:
    """The commands themselves: what the actor had made is learned from, once, and learning goes on. Fifty kills are a
    benchmark: temporeal bench residual --parts robot."""
    found = killed(tmp_path, OF_COMMANDS, np.random.default_rng(int(RNG.integers(2**31))))
    assert found.lost == 0 and found.twice == 0 and found.refused == 0
    assert found.episodes > 0 and found.learned == found.episodes


def test_a_learner_of_actors_steps_no_world() -> None:
    import torch

    with pytest.raises(NotImplementedError, match="actors"):
        Received(agreed()).step(torch.zeros(1, 1))
