"""The courier where the disk is full, and its restarts: nothing ends, nothing spins, and the operator reads why."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.policies.robot_learning.deliveries import agreed, bytes_of, episode

from temporeal.policies.robot_learning.acting.courier import Courier
from temporeal.policies.robot_learning.acting.refresher import LONGEST_S, LOOK_S, Refresher
from temporeal.policies.robot_learning.acting.spool import Spool
from temporeal.policies.robot_learning.wire.client import BadEpisode

RNG = np.random.default_rng(7)


def full(*words: Any) -> None:
    raise OSError(28, "No space left on device")


def courier(folder: Path, **calls: Any) -> Courier:
    spool = Spool(folder)
    spool.begin(agreed().plain(), agreed().digest())
    client: Any = SimpleNamespace(**{"hello": lambda agreement: agreed().digest(), "weights": lambda have: None,
                                     "deliver": lambda identity, data: True, **calls})
    return Courier(spool, client, 0.0)


def test_a_full_disk_is_trouble_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights cannot be written, nor what the courier knows: it is said once, and episodes are delivered."""
    made, one = courier(tmp_path, weights=lambda have: b"weights"), episode(RNG)
    made.spool.keep(one.id, bytes_of(one))
    with monkeypatch.context() as patch:
        patch.setattr("temporeal.policies.robot_learning.acting.spool.write_whole", full)
        assert not made.round(), "it backs off"
        assert made.spool.waiting() == [] and made.state.delivered == 1
        assert "No space left" in made.state.trouble and not made.state.fatal
        before = capsys.readouterr().err
        assert not made.round() and not made.round()
        assert "No space left" in before and capsys.readouterr().err == ""
    with monkeypatch.context() as patch:  # room for small files again
        patch.setattr(made.spool, "put_weights", full)
        assert not made.round() and "No space left" in made.spool.state().trouble
    monkeypatch.setattr(made.client, "weights", lambda have: None)
    assert made.round() and made.spool.state().trouble == "" and made.spool.state().delivered == 1


class Process:
    """One that ended at once, or lives."""

    stdin = None

    def __init__(self, code: int | None) -> None:
        self.code = code

    def poll(self) -> int | None:
        return self.code

    def wait(self, seconds: float = 0.0) -> int:
        return 0


def watched(folder: Path, code: int | None, clock: Any, said: list[str]) -> tuple[Refresher, list[float]]:
    """A refresher whose thread is over: a test asks it when it looks."""
    starts = list[float]()

    def start() -> Any:
        starts.append(clock.now)
        return Process(code)

    made = Refresher(Spool(folder), SimpleNamespace(), start, said.append, lambda: clock.now)  # type: ignore[arg-type]
    made.close()
    return made, starts


def test_a_courier_that_ends_again_and_again_is_started_less_and_less(tmp_path: Path) -> None:
    clock, said = SimpleNamespace(now=0.0), list[str]()
    made, starts = watched(tmp_path, 1, clock, said)
    for k in range(1, 1001):
        clock.now = k * LOOK_S
        made.keep_alive()
    assert len(starts) < 30, "in 200 s; once a look would be 1,000"
    assert max(np.diff(starts)) <= LONGEST_S + LOOK_S
    made.check()
    made.check()
    assert said == ["trouble: the courier ended with status 1; it is started again"]
    made.process = Process(None)  # type: ignore[assignment]
    clock.now += LONGEST_S + 1.0
    made.keep_alive()
    made.check()
    assert said[1:] == ["the trouble is over"]
    made.process, before = Process(1), len(starts)  # type: ignore[assignment]
    made.keep_alive()
    assert len(starts) == before + 1, "one that lived is started at once"


def test_the_operator_reads_which_episode_was_refused_and_why(tmp_path: Path) -> None:
    def refuse(identity: str, data: bytes) -> bool:
        raise BadEpisode("obs lies in [-1e+06, 1e+06], got 1e+20")

    said, carrying, one = list[str](), courier(tmp_path, deliver=refuse), episode(RNG)
    made, _ = watched(tmp_path, None, SimpleNamespace(now=0.0), said)
    carrying.spool.keep(one.id, bytes_of(one))
    assert carrying.round()
    made.close()  # the last episode's refusal, too
    made.check()
    assert len(said) == 1 and said[0].startswith(f"REFUSED: the learner will not learn from episode {one.id}: obs lies")
