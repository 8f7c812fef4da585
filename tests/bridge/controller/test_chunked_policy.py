"""A chunked policy in fake time: what the controller gets for every fault of the worker, and that it never jumps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
import pytest

from temporeal.robots.artifact.manifest import CHUNK_VERSION, GOLDEN, POLICY, ArtifactError, ChunkSpec, Manifest
from temporeal.robots.motion.action_chunks import Playing
from temporeal.robots.signals import SignalError
from temporeal.robots.spec import load_robot
from temporeal_bridge.controller.chunked_policy import ChunkedPolicy, NoAction
from temporeal_bridge.controller.mailbox import Reply
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport

ROBOT = load_robot("franka")
SIGNALS = (ROBOT.signals["joint_pos"],)
STEPS, DT, PERIOD = 20, 0.02, 0.005  # chunks of 0.4 s, commands at 200 Hz
SPEED = 1.0  # rad/s of the path that the good policy follows
HOME = np.asarray(ROBOT.home["joint_pos"], dtype=np.float32)


def manifest(chunk: ChunkSpec | None = ChunkSpec(STEPS, DT), **changes) -> Manifest:  # noqa: B008
    given = {
        "name": "arm", "robot": "franka", "signals": SIGNALS, "commands": (ROBOT.command("joint_pos_cmd"),),
        "rate_hz": 200.0, "memory": (), "formula": "G[0,1] (height > 0)", "constants": {}, "horizon_s": 1.0,
        "stop": "hold", "training": {}, "versions": {}, "seed": 0, "git_revision": "test", "created": "",
        "files": {POLICY: "", GOLDEN: ""}, "chunk": chunk, "schema_version": CHUNK_VERSION, **changes}
    return Manifest(**given)


def path(t: np.ndarray) -> np.ndarray:
    """Where the good policy means the joints to be at mission time t: [..., 7], no faster than SPEED."""
    return HOME + SPEED * np.sin(np.asarray(t)[..., None] + np.arange(7)) - SPEED * np.sin(np.arange(7))


def follow(at: float) -> np.ndarray:
    return path(at + DT * np.arange(STEPS)).astype(np.float32)


class Double:
    """A worker in this process: takes the newest observation when it is free, answers ``latency(n)`` seconds later.

    ``tamper`` makes the replies that are delivered from the one that is due; ``alive`` False: nothing happens any more.
    """

    def __init__(self, clock: Callable[[], float], latency: Callable[[int], float] = lambda n: 0.08) -> None:
        self.clock, self.latency = clock, latency
        self.rows: Callable[[float], np.ndarray] = follow
        self.tamper: Callable[[Reply], list[Reply]] = lambda reply: [reply]
        self.box: float | None = None
        self.busy: tuple[float, float] | None = None  # (done at, of what was observed at)
        self.ready: deque[Reply] = deque()
        self.alive, self.begun = True, 0

    def _go_on(self) -> None:
        now = self.clock()
        while self.alive:
            if self.busy is None:
                if self.box is None:
                    return
                self.busy, self.box = (now + self.latency(self.begun), self.box), None
                self.begun += 1
            if now < self.busy[0]:
                return
            self.ready.extend(self.tamper(Reply(self.busy[1], 0.0, self.rows(self.busy[1]))))
            self.busy = None

    def put(self, at: float, signals) -> None:
        self._go_on()
        assert set(signals) == {"joint_pos"}
        self.box = at
        self._go_on()

    def take(self) -> list[Reply]:
        self._go_on()
        out = list(self.ready)
        self.ready.clear()
        return out

    def close(self) -> None:
        self.alive = False


class Bench:
    """A chunked policy on a memory bus's clock, called at the control rate."""

    def __init__(self, latency: Callable[[int], float] = lambda n: 0.08, **playing) -> None:
        self.bus = Bus()
        self.transport = MemoryTransport(self.bus, "controller")
        self.worker = Double(self.transport.monotonic, latency)
        self.policy = ChunkedPolicy(manifest(), self.worker, self.transport.monotonic, Playing(**playing))
        self.commands: list[tuple[float, np.ndarray | None]] = []
        self.why = ""

    def fly(self, seconds: float) -> None:
        for _ in range(round(seconds / PERIOD)):
            try:
                self.commands.append((self.bus.seconds, self.policy.act({"joint_pos": HOME})["joint_pos_cmd"]))
            except NoAction as none:
                self.why = str(none)
                self.commands.append((self.bus.seconds, None))
            self.bus.advance(PERIOD)

    def silent(self, since: float = 0.0) -> list[float]:
        return [t for t, command in self.commands if command is None and t >= since]

    def largest_step(self, since: float = 0.0) -> float:
        """Of consecutive commands, gaps left out as a robot holds what it got last."""
        got = [command for t, command in self.commands if command is not None and t >= since]
        return float(np.abs(np.diff(got, axis=0)).max())


def counts(bench: Bench) -> dict[str, int]:
    return {code: n for code, n in bench.policy.counts.items() if code not in ("asked", "used")}


def test_silent_until_the_first_chunk_and_then_never():
    bench = Bench()
    bench.fly(5.0)
    assert bench.silent() == pytest.approx(np.arange(16) * PERIOD) and counts(bench) == {}
    assert "no chunk has come in 0.075 s" in bench.why
    first = next(command for _, command in bench.commands if command is not None)
    assert first == pytest.approx(path(0.0), abs=1e-6) and first.dtype == np.float32  # not its middle


def test_commands_are_what_the_policy_means_for_their_time():
    """Whatever the latency, the path is followed without lag. The first chunk begins late, the others do not."""
    bench = Bench(latency=lambda n: 0.05 + 0.03 * (n % 3))
    bench.fly(4.0)
    flown = [(t, command) for t, command in bench.commands if t > 1.0]
    assert len(flown) >= 2.9 / PERIOD
    for t, command in flown:
        assert command == pytest.approx(path(t), abs=1e-3)  # a cubic between rows 20 ms apart


def test_it_asks_about_twice_a_chunk_and_not_more():
    bench = Bench(latency=lambda n: 0.03)
    bench.fly(10.0)
    assert 10.0 / 0.4 < bench.policy.counts["asked"] < 10.0 / 0.19


def test_asked_as_often_as_possible_no_observation_waits_in_a_queue():
    bench = Bench(every_s=0.0)
    bench.fly(4.0)
    assert bench.policy.counts["used"] == pytest.approx(4.0 / 0.08, rel=0.1)
    assert bench.policy.latency.most <= 0.08 + 2 * PERIOD


def test_chunks_that_contradict_each_other_never_make_a_jump():
    bench = Bench()
    rng = np.random.default_rng(0)
    offsets = {}
    bench.worker.rows = lambda at: follow(at) + offsets.setdefault(at, rng.uniform(-0.2, 0.2, 7).astype(np.float32))
    bench.fly(10.0)
    fade = bench.policy.playing.fade_s
    assert bench.largest_step() <= PERIOD * (2 * SPEED + 1.5 * 0.4 / fade) and len(offsets) > 20
    assert bench.largest_step() > PERIOD * SPEED * 1.5  # the bound is tested by something


# faults


@pytest.mark.parametrize(("code", "tamper"), [
    ("duplicate", lambda r: [r, r]),
    ("not finite", lambda r: [Reply(r.observed, 0.0, np.full_like(r.rows, np.nan)), r]),
    ("shape", lambda r: [Reply(r.observed, 0.0, r.rows[:-1]), r]),
    ("shape", lambda r: [Reply(r.observed, 0.0, r.rows[:, :-1]), r]),
    ("future", lambda r: [Reply(r.observed + 10.0, 0.0, r.rows + 1.0), r]),
    ("unknown", lambda r: [Reply(r.observed + 1e-4, 0.0, r.rows + 1.0), r]),
])
def test_one_wrong_chunk_beside_each_good_one_changes_nothing(code, tamper):
    good, bad = Bench(), Bench()
    bad.worker.tamper = tamper
    for bench in (good, bad):
        bench.fly(3.0)
    assert counts(bad) == {code: bad.policy.counts["used"]} and counts(good) == {}
    assert [t for t, _ in bad.commands] == [t for t, _ in good.commands]
    for (_, a), (_, b) in zip(good.commands, bad.commands):
        assert (a is None and b is None) or np.array_equal(a, b)


def test_an_older_chunk_than_the_one_in_use_is_refused():
    bench, kept = Bench(lambda n: 0.04, every_s=0.05), []

    def swap(reply: Reply) -> list[Reply]:
        """Of every two, the second comes first."""
        kept.append(reply)
        return [] if len(kept) % 2 else [kept[-1], kept[-2]]

    bench.worker.tamper = swap
    bench.fly(3.0)
    assert bench.policy.counts["reordered"] == bench.policy.counts["used"] > 3
    assert bench.silent(since=0.3) == [] and bench.largest_step() <= PERIOD * 2 * SPEED


@pytest.mark.parametrize("latency", [0.41, 5.0])
def test_a_policy_slower_than_its_chunks_are_long_never_moves_anything(latency):
    bench = Bench(latency=lambda n: latency)
    bench.fly(12.0)
    assert len(bench.silent()) == len(bench.commands) and bench.policy.counts["used"] == 0
    assert bench.policy.counts["late"] >= 1 and "0.4 s came" in bench.why


def test_a_late_chunk_in_flight_is_dropped_and_the_next_one_used():
    bench = Bench(latency=lambda n: 0.6 if n == 5 else 0.08)
    bench.fly(4.0)
    gap = bench.silent(since=0.2)
    assert counts(bench) == {"late": 1}
    # asked while 0.25 s of the chunk were left, answered after 0.6 s, and the next, asked later, 0.08 s after that
    assert gap[-1] - gap[0] == pytest.approx(0.6 + 0.08 - 0.25, abs=0.02)
    assert len(gap) == pytest.approx((gap[-1] - gap[0]) / PERIOD + 1)
    assert bench.commands[-1][1] is not None
    # it goes on from where it stood, as fast as the fade allows
    behind = SPEED * (gap[-1] - gap[0] + 0.2)
    assert bench.largest_step() <= PERIOD * (2 * SPEED + 1.5 * behind / bench.policy.playing.fade_s)


def test_ten_times_slower_within_the_chunk_is_carried():
    bench = Bench(latency=lambda n: 0.015 if n < 8 else 0.15)
    bench.fly(6.0)
    assert bench.silent(since=0.1) == [] and counts(bench) == {}


def test_a_single_hiccup_makes_it_ask_earlier_for_a_while():
    bench = Bench(latency=lambda n: 0.2 if n == 3 else 0.02, every_s=10.0)
    bench.fly(1.5)
    assert bench.policy.latency.most == pytest.approx(0.2, abs=2 * PERIOD)
    asked = np.diff(bench.policy.asked)  # at 0.4 s less latency, margin 0.05 s, fade 0.1 s
    assert asked[1] == pytest.approx(0.23, abs=0.01) and asked[-1] == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("fault", ["killed", "hangs", "only NaN", "only errors"])
def test_when_nothing_useful_comes_any_more_the_chunk_is_played_to_its_end_and_then_silence(fault):
    bench = Bench()
    bench.fly(1.0)
    broken = {"killed": lambda: setattr(bench.worker, "alive", False),
              "hangs": lambda: setattr(bench.worker, "latency", lambda n: 1e9),
              "only NaN": lambda: setattr(bench.worker, "rows", lambda at: np.full((STEPS, 7), np.nan, np.float32)),
              "only errors": lambda: setattr(bench.worker, "tamper", lambda reply: [])}
    broken[fault]()
    bench.fly(3.0)
    end = bench.policy.plan.chunk.end
    assert end <= 1.0 + 0.4 + 0.08
    for t, command in bench.commands[20:]:
        assert (command is None) == (t >= end)
    assert "ended" in bench.why and ("nan" in bench.why) == (fault == "only NaN")


def test_an_exhausted_chunk_ends_at_rest():
    bench = Bench()
    bench.fly(1.0)
    bench.worker.alive = False
    bench.fly(1.0)
    last = [command for _, command in bench.commands if command is not None][-4:]
    assert np.abs(np.diff(last, axis=0)).max() == 0.0


def test_a_new_mission_uses_nothing_of_the_one_before():
    bench = Bench(latency=lambda n: 0.15)
    bench.fly(1.0)
    while bench.worker.busy is None or bench.worker.busy[0] < bench.bus.seconds + 0.1:
        bench.fly(PERIOD)
    bench.policy.reset()
    bench.commands.clear()
    old = bench.worker.busy[0]
    bench.fly(1.0)
    begins = next(t for t, command in bench.commands if command is not None)
    assert begins > old and counts(bench)["unknown"] == 1
    assert begins == pytest.approx(old + 0.15, abs=2 * PERIOD)


def test_a_bad_signal_is_an_error_as_it_is_for_an_artifact():
    bench = Bench()
    with pytest.raises(SignalError, match="joint_pos"):
        bench.policy.act({"joint_pos": np.full(7, np.nan)})
    with pytest.raises(SignalError, match="missing"):
        bench.policy.act({})


def test_held_components_are_stairs_in_the_command():
    bench = Bench()
    bench.policy = ChunkedPolicy(manifest(ChunkSpec(STEPS, DT, hold=(6,))), bench.worker, bench.transport.monotonic)
    bench.fly(1.0)
    got = np.array([command for _, command in bench.commands if command is not None])
    moved = np.abs(np.diff(got, axis=0)) > 0
    assert moved[:, 0].mean() > 0.9 and moved[:, 6].mean() < 0.4  # one row in four steps; chunks begin between rows


def test_the_figures_name_what_was_refused():
    bench = Bench()
    bench.worker.tamper = lambda r: [r, r]
    bench.fly(1.0)
    figures = bench.policy.figures()
    assert figures["chunks_duplicate"] == figures["chunks_used"] > 0 and "in use" in figures["chunk_refusal"]
    assert figures["chunk_latency_max_ms"] == pytest.approx(80 + 55, abs=30)  # at first it asks twice


def test_a_policy_without_chunks_needs_no_worker():
    with pytest.raises(ArtifactError, match="one command at a time"):
        ChunkedPolicy(manifest(None, schema_version=1), Double(lambda: 0.0), lambda: 0.0)


def test_it_says_when_a_mission_can_begin():
    bench = Bench()
    while not bench.policy.prepared({"joint_pos": HOME}):
        bench.bus.advance(PERIOD)
    assert bench.bus.seconds == pytest.approx(0.08)
    assert bench.policy.act({"joint_pos": HOME})["joint_pos_cmd"] == pytest.approx(path(0.0), abs=1e-6)
