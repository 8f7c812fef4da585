"""An interrupted training keeps what it has learned, says so in one line, and leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.examples import thinned

from temporeal.policies.cli import worker as worker_process
from temporeal.policies.cli.main import main
from temporeal.policies.runs import training, workers
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.interrupts import Interrupted, stop_asked
from temporeal.policies.runs.settings.files import read
from temporeal.policies.runs.workers import Worker, wait_for
from temporeal.policies.training.errors import NonFiniteError


def patched_ppo(_: object) -> tuple[Any, None]:
    """PPO as it is patched, without a configuration."""
    return sys.modules["temporeal.policies.algos.ppo"], None


SMOKE = ["train", "experiment=smoke", "algo.total_steps=100000000"]


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """Ctrl-C counts, also where the tests run in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Signals:
    """A display that sends this process a signal after its second iteration."""

    def __init__(self, number: int) -> None:
        self.number, self.shown = number, 0

    def __enter__(self) -> Signals:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self, _: object) -> None:
        self.shown += 1
        if self.shown == 2:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(("number", "status"), thinned(
    [(signal.SIGINT, 130), (signal.SIGTERM, 143)], keep=[(signal.SIGINT, 130)]))
def test_a_signal_ends_the_iteration_with_a_checkpoint(
    number: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Long before the first checkpoint is due."""
    monkeypatch.setattr("temporeal.policies.training.progress.show", lambda _: Signals(number))
    before = signal.getsignal(number)
    assert main([*SMOKE, "--overwrite", "--out", str(tmp_path / "a run")]) == status
    assert signal.getsignal(number) == before
    assert [path.name for path in (tmp_path / "a run" / "checkpoints").iterdir()] == ["00000002.rank0of1.pt"]
    told = capfd.readouterr().err.strip().splitlines()
    words = f"experiment=smoke algo.total_steps=100000000 --out '{tmp_path}/a run' resume=true"
    assert told[-1] == (f"temporeal: stopped by {signal.Signals(number).name}; iteration 2 is kept in {tmp_path}/a run/"
                        f"checkpoints; go on with: temporeal train {words}")
    assert "once more stops at once" in told[-2]
    assert main([*SMOKE, "algo.total_steps=4096", "--out", str(tmp_path / "a run"), "resume=true", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["iteration"] == 4


def test_settings_that_do_not_fit_and_a_training_that_diverges_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMOKE, "algo.minibatches=100000000", "--out", str(tmp_path / "fit")]) == 2
    assert capsys.readouterr().err.startswith("temporeal: minibatches is 100000000, but a rollout has ")

    assert not (tmp_path / "fit").exists()  # so that the mended command is not told of a run that is there

    def diverged(*_: Any, **__: Any) -> None:
        raise NonFiniteError("iteration 3: loss not finite")

    monkeypatch.setattr("temporeal.policies.algos.ppo.train", diverged)
    monkeypatch.setattr("temporeal.policies.runs.learners.algorithm", patched_ppo)
    assert main([*SMOKE, "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == (
        "temporeal: the training diverged and was stopped: iteration 3: loss not finite; try a smaller learning rate\n")


@pytest.mark.slow
def test_a_run_is_not_lost_to_one_that_cannot_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, begun = tmp_path / "run", ["train", "experiment=smoke", "--json"]
    assert main([*begun, "--out", str(folder)]) == 0
    files = sorted(p.relative_to(folder) for p in folder.rglob("*"))
    for words in (["algo.minibatches=100000000"], ["algo=tgpo"]):
        assert main([*begun, *words, "--overwrite", "--out", str(folder)]) == 2
        assert sorted(p.relative_to(folder) for p in folder.rglob("*")) == files
    assert main([*begun, "seed=2", "--overwrite", "--out", str(folder)]) == 0
    assert read(folder / "config.yaml")["seed"] == 2 and [p.name for p in tmp_path.iterdir()] == ["run"]


def test_the_seconds_told_are_those_of_the_whole_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the last iteration's, behind which a companion may fly for a while."""
    result = SimpleNamespace(history=[{"seconds": 1e9, "success": 0.5}])
    monkeypatch.setattr("temporeal.policies.algos.ppo.train", lambda *_, **__: result)
    monkeypatch.setattr("temporeal.policies.runs.learners.algorithm", patched_ppo)
    assert main([*SMOKE, "--out", str(tmp_path / "run"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert 0 < told["seconds"] < 1e6 and told["success"] == 0.5


def test_before_the_first_checkpoint_there_is_nothing_to_go_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr("temporeal.policies.algos.ppo.train", interrupted, raising=True)
    monkeypatch.setattr("temporeal.policies.runs.learners.algorithm", patched_ppo)
    assert main([*SMOKE, "--out", str(tmp_path / "run")]) == 143
    assert capsys.readouterr().err == (
        "temporeal: stopped by SIGTERM before the first checkpoint; --overwrite starts anew\n")
    assert main([*SMOKE, "resume=true", "--out", str(tmp_path / "run")]) == 2
    assert "--overwrite instead of resume=true" in capsys.readouterr().err


def test_events_on_a_full_disk_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As their writer does it: the thread dies of the error, and whoever uses the writer is given it."""
    import threading

    def full() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(BadInput, match=f"cannot be written to {tmp_path}: No space left"), training.events(tmp_path):
        thread = threading.Thread(target=full)
        thread.start()
        thread.join()
        full()
    assert capsys.readouterr().err == ""


def test_a_second_signal_stops_at_once() -> None:
    with pytest.raises(Interrupted) as stopped, stop_asked(quiet=True) as asked:
        os.kill(os.getpid(), signal.SIGINT)
        assert asked == [signal.SIGINT]
        os.kill(os.getpid(), signal.SIGTERM)
    assert stopped.value.status == 143


OBEYS = """
import signal, sys, time
def stop(number, _): sys.exit(128 + number)
signal.signal(signal.SIGTERM, stop)
open(sys.argv[1], "w").close()
time.sleep(60)
"""
HANGS = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").close()
time.sleep(60)
"""
FAILS = """
import sys
open(sys.argv[1], "w").close()
print("temporeal: the disk is full", file=sys.stderr)
sys.exit(2)
"""


@pytest.fixture
def begin(tmp_path: Path) -> Any:
    """Starts a stand-in for a worker and waits until it is up."""
    begun: list[Worker] = []

    def start(code: str) -> Worker:
        up = tmp_path / f"up{len(begun)}"
        errors = (tmp_path / f"errors{len(begun)}").open("w+b")
        begun.append(Worker(subprocess.Popen([sys.executable, "-c", code, str(up)], stderr=errors), errors))
        while not up.exists():
            time.sleep(0.005)
        return begun[-1]

    yield start
    for worker in begun:
        worker.process.kill()
        worker.process.wait()
        worker.errors.close()


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stop_asked() as asked:
        os.kill(os.getpid(), signal.SIGINT)
    assert asked == []


Begin = Callable[[str], Worker]


def test_what_is_asked_is_passed_on_and_is_no_failure(begin: Begin) -> None:
    team = [begin(OBEYS), begin(OBEYS)]
    assert wait_for(team, [signal.SIGTERM]) is None
    assert [worker.process.returncode for worker in team] == [143, 143]


def test_a_worker_that_waits_for_an_ended_one_is_not_waited_for(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "OTHERS_S", 0.1)
    team = [begin(HANGS), begin(OBEYS)]
    assert wait_for(team, [signal.SIGTERM]) is None
    assert team[0].process.poll() is None


def test_the_first_to_fail_is_named_with_its_words(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "OTHERS_S", 0.1)
    team = [begin(HANGS), begin(FAILS)]
    failed = wait_for(team, [])
    assert failed is team[1]
    assert workers.why(failed, 1, Path("run")) == "the disk is full"


def test_a_killed_worker_is_named(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "OTHERS_S", 0.1)
    team = [begin(HANGS), begin(OBEYS)]
    team[1].process.kill()
    failed = wait_for(team, [])
    assert failed is team[1]
    assert "process 1 was killed by SIGKILL" in workers.why(failed, 1, Path("run"))


def test_no_worker_is_left_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="anything"), workers.started({"processes": 2}, quiet=True) as team:
        raise RuntimeError("anything")
    assert [worker.process.returncode for worker in team] == [-9, -9]


def test_a_worker_takes_the_settings_as_they_are_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run may have another budget than its folder says."""
    def trained(settings: dict[str, Any], **options: Any) -> training.TrainedRun:
        assert options == {"quiet": True, "opened": True}
        return training.TrainedRun(tmp_path, 1.0, 0, {"budget": settings["algo"]["total_steps"]}, ("a note",))

    monkeypatch.setattr(training, "train", trained)
    monkeypatch.setattr(workers, "end_without", lambda _: None)
    monkeypatch.setenv(workers.STARTED_BY, "1")
    monkeypatch.setenv(workers.SETTINGS, json.dumps({"out": str(tmp_path), "algo": {"total_steps": 7}}))
    assert worker_process.work(["--quiet"]) == 0
    result = training.result_of(tmp_path, json.loads((tmp_path / workers.RESULT).read_text()))
    assert result == training.TrainedRun(tmp_path, 1.0, 0, {"budget": 7}, ("a note",))


def test_a_failed_training_in_processes_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "wait_for", lambda team, asked: team[1])
    monkeypatch.setattr(workers, "why", lambda failed, rank, folder: f"process {rank} failed")
    with pytest.raises(BadInput, match="process 1 failed"):
        workers.train({"processes": 2}, tmp_path, quiet=True)


@pytest.mark.slow
def test_two_processes_are_stopped_as_one(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "temporeal.policies.cli.main", *SMOKE, "processes=2", "--out", str(tmp_path / "run")]
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(words, stdout=out, stderr=err, start_new_session=True)
    while "steps" not in (tmp_path / "out").read_text():
        assert process.poll() is None, (tmp_path / "err").read_text()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.wait(timeout=60) == 130
    told = (tmp_path / "err").read_text().split("\n", 2)[2]
    assert told.startswith("temporeal: stopped by SIGINT; iteration") and told.count("\n") == 1
    kept = sorted(path.name.partition(".")[2] for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept[:2] == ["rank0of2.pt", "rank1of2.pt"]


@pytest.mark.slow
def test_where_the_kernel_does_not_end_it_a_worker_whose_starter_is_gone_ends_itself() -> None:
    """As on a system without prctl: the process in between starts it, says which it is, and is gone."""
    own = "import sys; from temporeal.policies.runs import workers; workers.end_with(int(sys.argv[1]))"
    between = ("import os, subprocess, sys; print(subprocess.Popen("
               f"[sys.executable, '-c', {own!r}, str(os.getpid())], stdout=subprocess.DEVNULL).pid)")
    done = subprocess.run([sys.executable, "-c", between], stdout=subprocess.PIPE, text=True, check=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 20.0
    while Path(f"/proc/{int(done.stdout)}").exists():
        assert time.monotonic() < until, "it goes on without its starter"
        time.sleep(0.1)
