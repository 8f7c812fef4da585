"""Node processes: what is said of one that ended, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from temporeal.policies.cli.preflight.realtime import may_be_realtime
from temporeal_bridge.process import children, node, scheduling
from temporeal_bridge.process.children import end, how_ended, orphaned
from temporeal_bridge.process.files import write_json
from temporeal_bridge.process.rehearsal import REHEARSED_S, Rehearsal

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where stand-ins for the nodes are found."""
    (tmp_path / "temporeal_bridge").mkdir()
    (tmp_path / "temporeal_bridge" / "__init__.py").write_text("")
    monkeypatch.setattr(children, "__file__", str(tmp_path / "temporeal_bridge" / "process" / "children.py"))
    yield tmp_path


def begin(folder: Path, name: str, code: str, log: bool = True) -> children.Process:
    (folder / "temporeal_bridge" / f"{name}.py").write_text(code)
    return children.start(name, [], folder / "logs" / f"{name}.log" if log else None)


def test_how_a_process_ended_is_told_with_its_last_line(folder: Path) -> None:
    process = begin(folder, "refuses", "import sys; print('loading'); sys.exit('refuses: error: no such robot')")
    process.wait()
    assert how_ended(process) == "refuses ended with status 1: refuses: error: no such robot"
    killed = begin(folder, "dies", "import os; print('so far so good', flush=True); os.kill(os.getpid(), 9)")
    killed.wait()
    assert how_ended(killed) == "dies was killed by SIGKILL"


def test_it_is_a_session_of_its_own_that_knows_who_started_it(folder: Path) -> None:
    code = "import os; print(os.getsid(0) == os.getpid(), os.environ['TEMPOREAL_STARTED_BY'])"
    process = begin(folder, "shows", code)
    process.wait()
    assert children.last_words(process) == f"True {os.getpid()}"


def test_one_that_does_not_listen_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "END_S", 0.1)
    process = begin(folder, "deaf", DEAF)
    while not children.last_words(process):
        time.sleep(0.005)
    end([process])
    assert process.returncode == -signal.SIGKILL


def test_a_node_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    """A real node's life, with a stand-in for the bus; its starter is a process that dies by SIGKILL."""
    life = tmp_path / "life.py"
    life.write_text(
        "import sys, time\nfrom pathlib import Path\nfrom temporeal_bridge.process import command_line, node\n"
        "from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport\n"
        "class Quiet:\n"
        "    def step(self): time.sleep(0.001); Path(sys.argv[1]).touch()\n"
        "    def deadline(self): return 0.0\n"
        "    def summary(self): return {'ended': 'in order'}\n"
        "node.open_transport = lambda *_, **__: MemoryTransport(Bus(), 'quiet')\n"
        "node.run(command_line.parser('quiet', ''), ['--out', sys.argv[2]], lambda *_: Quiet(), 'quiet.json')\n")
    code = ("import os, subprocess, sys, time\n"
            "os.environ['TEMPOREAL_STARTED_BY'] = str(os.getpid())\n"
            f"subprocess.Popen([sys.executable, {str(life)!r}, *sys.argv[1:]], start_new_session=True)\n"
            "while not os.path.exists(sys.argv[1]): time.sleep(0.005)\n"
            "os.kill(os.getpid(), 9)\n")
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "up"), str(tmp_path)], timeout=60, check=False)
    until = time.monotonic() + 20
    while not (tmp_path / "quiet.json").exists():
        assert time.monotonic() < until, "the node goes on without its starter"
        time.sleep(0.005)


def test_a_node_that_nobody_watches_over_is_no_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(children.STARTED_BY, raising=False)
    assert not orphaned()()
    monkeypatch.setenv(children.STARTED_BY, str(os.getppid()))
    assert not orphaned()()


def test_a_full_disk_leaves_the_old_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "policy.json", {"flights": 1})

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match=r"No space left on device: .*policy\.json"):
        write_json(tmp_path / "policy.json", {"flights": 2})
    assert [path.read_text() for path in tmp_path.iterdir()] == ['{\n  "flights": 1\n}\n']


def test_signals_are_theirs_again_afterwards():
    """Nodes are run inside test processes and tools, too: a Ctrl-C there must not be swallowed for ever."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with node.stop_signals() as stopped:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert stopped == [signal.SIGTERM, signal.SIGINT]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def scheduled(*options: str) -> list[str]:
    """Of a node process with these options: its cores, and how much it goes ahead of others, when it starts the
    middleware and when it runs."""
    code = ("import os, sys; from temporeal_bridge.process import command_line, node, scheduling\n"
            "def tell(*_, **__):\n"
            "    print(sorted(os.sched_getaffinity(0)), os.sched_getparam(0).sched_priority)\n"
            "    raise ValueError('told')\n"
            "class Bus:\n"
            "    def close(self): pass\n"
            "def opened(*_, **__):\n"
            "    print(sorted(os.sched_getaffinity(0)), os.sched_getparam(0).sched_priority)\n"
            "    return Bus()\n"
            "node.open_transport, node.spin = opened, tell\n"
            "options = command_line.parser('guard_node', '')\n"
            "command_line.add_awake(options, '')\n"
            "sys.exit(node.run(options, sys.argv[1:], lambda *_: None, '', ahead=scheduling.AHEAD, wakes=True))")
    done = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True)
    assert done.returncode == 2
    return (done.stdout + done.stderr).splitlines()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_a_node_runs_on_the_core_that_it_is_given() -> None:
    """Before the middleware starts its threads."""
    core = max(os.sched_getaffinity(0))
    assert scheduled("--core", str(core))[:2] == [f"[{core}] 0"] * 2
    assert scheduled()[:2] == [f"{sorted(os.sched_getaffinity(0))} 0"] * 2
    count = os.cpu_count()
    assert scheduled("--core", str(count)) == [
        f"guard_node: error: core {count}: this machine has cores 0 to {count - 1}; leave it out for any"]
    with pytest.raises(ValueError, match="core one: this machine has"):
        scheduling.check_core("one")


@pytest.mark.skipif(not may_be_realtime(), reason="no real-time priority here")
def test_the_guard_goes_ahead_of_the_controller() -> None:
    """Once it has loaded."""
    for kind in ("realtime", "auto"):
        loads, runs, *_ = scheduled("--priority", kind)
        assert loads.endswith(" 0") and runs.endswith(f" {scheduling.FIFO_PRIORITY + scheduling.AHEAD}")


def test_a_step_is_rehearsed_shortly_before_its_turn() -> None:
    made = Rehearsal(0.002, True)
    assert not made.due(1e9)
    made.plan(5.0, 0.0001)
    assert made.at == pytest.approx(5.002 - 0.0001 - REHEARSED_S)
    assert not made.due(5.0015) and made.due(5.0017) and not made.due(5.00171)
    made.plan(5.0, 0.0001)
    assert made.due(5.0018)  # late, but over when the next state comes
    made.plan(5.0, 0.0001)
    assert not made.due(5.001901) and not made.due(5.0016)  # the step itself is next, and this one is forgotten
    made.plan(5.0, 0.0006)  # too much of the period
    assert made.at == np.inf
    made.plan(5.0, 0.0001)  # nor soon after: steps may be long and short by turns
    assert made.at == np.inf
    for _ in range(100):
        made.plan(5.0, 0.0001)
    assert made.at < np.inf
    guard = Rehearsal(0.04, True, 0.0003)
    guard.plan(5.0, 0.0004)
    assert guard.at == np.inf
    never = Rehearsal(0.002, False)
    never.plan(5.0, 0.0001)
    assert never.at == np.inf


class Looked:
    """A bus on which something comes at ``comes`` [s]; a look takes 0.01 ms. What it was asked to wait."""

    def __init__(self, comes: float) -> None:
        self.now, self.comes, self.asked = 5.0, comes, list[float]()

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout_s: float) -> int:
        self.asked.append(timeout_s)
        self.now = max(self.now, min(self.now + timeout_s, self.comes)) + 1e-5
        return int(self.now >= self.comes)


def test_a_state_that_was_rehearsed_for_is_looked_for_without_sleep() -> None:
    made = Rehearsal(0.002, True)
    asleep = Looked(comes=5.002)
    made.wait(asleep, 0.003)
    assert asleep.asked == [pytest.approx(0.003)]
    made.plan(5.0, 0.0001)
    awake = Looked(comes=5.002)
    awake.now = 5.0017
    assert made.due(5.0017)
    made.wait(awake, 0.003)
    assert set(awake.asked) == {0.0} and 10 < len(awake.asked) < 40 and awake.now == pytest.approx(5.002, abs=2e-5)
    late = Looked(comes=5.0029)  # it does not come: no core is kept busy for ever
    late.now = 5.0017
    made.wait(late, 0.003)
    assert late.asked[-1] == pytest.approx(0.003 - (5.002 + REHEARSED_S - 5.0017), abs=3e-5)
    short = Looked(comes=5.01)  # a deadline of the node's own is kept
    short.now = 5.0017
    made.wait(short, 0.0001)
    assert short.now < 5.0019
    made.plan(5.002, 0.0001)
    after = Looked(comes=5.004)
    made.wait(after, 0.001)
    assert len(after.asked) == 1


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the system has no SCHED_IDLE")
@pytest.mark.parametrize("kind", ["normal", pytest.param("realtime", marks=pytest.mark.skipif(
    not may_be_realtime(), reason="no real-time priority here"))])
def test_a_core_is_kept_awake_by_who_stands_in_nobodys_way_and_for_as_long_as_the_node_lives(kind: str) -> None:
    """Also where who starts it has real-time priority already, which it inherits."""
    code = ("import sys, time; from temporeal_bridge.process import scheduling\n"
            f"scheduling.take_priority({kind!r})\n"
            "scheduling.take_core(int(sys.argv[1]))\n"
            "print(scheduling.keep_awake().pid, flush=True); time.sleep(60)")
    core = max(os.sched_getaffinity(0))
    started = subprocess.Popen([sys.executable, "-c", code, str(core)], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    keeper = int(started.stdout.readline())
    try:
        assert soon(lambda: os.sched_getscheduler(keeper) == os.SCHED_IDLE)
        assert os.sched_getaffinity(keeper) == {core} and os.getsid(keeper) == keeper  # no Ctrl-C comes to it
    finally:
        started.kill()  # no word of farewell
        started.wait()
    assert soon(lambda: not running(keeper))


@pytest.mark.skipif(not may_be_realtime(), reason="no real-time priority here")
def test_who_loads_is_in_nobodys_way_and_goes_ahead_with_all_of_its_threads_afterwards() -> None:
    """Nodes that started with real-time priority had both cores for 0.1 s and more: a robot that flew was stopped."""
    code = ("import os, threading; from temporeal_bridge.process import scheduling\n"
            "scheduling.take_priority('realtime', 5)\n"
            "scheduling.load_behind()\n"
            "assert os.sched_getscheduler(0) == os.SCHED_OTHER\n"
            "end, found = threading.Event(), []\n"
            "thread = threading.Thread(target=end.wait); thread.start()\n"
            "scheduling.take_priority('realtime', 5)\n"
            "for each in (0, thread.native_id):\n"
            "    found.append((os.sched_getscheduler(each), os.sched_getparam(each).sched_priority))\n"
            "end.set()\n"
            "assert found == [(os.SCHED_FIFO, scheduling.FIFO_PRIORITY + 5)] * 2, found")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30.0)


def soon(true: Callable[[], bool]) -> bool:
    """Whether it is within 10 s."""
    end = time.monotonic() + 10.0
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def running(pid: int) -> bool:
    """Whether the process is there, and not only as a name that nobody has asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_core_that_cannot_be_kept_awake_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(pid: int, *_: object) -> None:
        asked.append(pid)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with pytest.raises(RuntimeError, match="SCHED_IDLE is not permitted here"):
        scheduling.keep_awake()
    assert asked and not running(asked[0])


def test_a_core_that_is_not_ours_alone_may_sleep() -> None:
    assert scheduled("--awake", "--priority", "auto")[0].startswith(
        "guard_node: error: awake keeps a core busy")
    assert scheduled("--awake", "--core", "0")[0].startswith("guard_node: error: awake needs real-time priority")


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no terminal hangs up here")
def test_a_terminal_that_is_gone_asks_a_node_to_end() -> None:
    """It stops its robot first, as for Ctrl-C; under nohup it goes on."""
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with node.stop_signals() as stopped:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stopped == [signal.SIGHUP]
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with node.stop_signals() as stopped:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stopped == []
    finally:
        signal.signal(signal.SIGHUP, before)
