"""The inference worker as a real process, in real time: an ONNX artifact that gives chunks, and each way to lose it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from temporeal.robots.artifact.manifest import FIRST_LOOK, ArtifactError, ChunkSpec, MemorySpec, decode, encode
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.motion.action_chunks import Playing
from temporeal.robots.spec import load_robot
from temporeal_bridge import worker_node
from temporeal_bridge.controller import mailbox
from temporeal_bridge.controller.chunked_policy import ChunkedPolicy, NoAction
from temporeal_bridge.controller.mailbox import ControllerMailbox, WorkerMailbox
from temporeal_bridge.process.children import end, last_words, start

ROBOT = load_robot("franka")
STEPS, DT = 15, 0.02  # chunks of 0.3 s
GOAL = np.asarray(ROBOT.home["joint_pos"], dtype=np.float32)
SPEED = 0.5  # rad/s
PERIOD = 0.005


def build_policy() -> Any:
    """Each joint to GOAL at SPEED, as rows DT apart: a torch module that gives [N, STEPS, 7]."""
    import torch
    from torch import nn

    class Reach(nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            way = torch.tensor(GOAL) - signals["joint_pos"]
            room = SPEED * DT * torch.arange(STEPS)[None, :, None]
            rows = signals["joint_pos"][:, None] + torch.minimum(torch.maximum(way[:, None], -room), room)
            return {"joint_pos_cmd": rows}, {}

    return Reach()


def write_chunked(path: Path, **changes: Any) -> Path:
    """The policy as an artifact in folder ``path``."""
    import torch

    from temporeal.policies.export.writer import ArtifactSpec, export

    policy, rng = build_policy(), np.random.default_rng(0)
    signals = (GOAL + 0.3 * rng.normal(size=(8, 7))).astype(np.float32)
    rows = policy({"joint_pos": torch.from_numpy(signals)}, {})[0]["joint_pos_cmd"].numpy()
    arguments: dict[str, Any] = {
        "robot": ROBOT, "signals": ["joint_pos"], "command": "joint_pos_cmd", "rate_hz": 1 / PERIOD,
        "formula_text": "G[0,1] (norm(joint_pos) < far)", "constants": {"far": 10.0}, "horizon_s": 1.0,
        "training": {"by": "hand"}, "seed": 0, "stop": "hold", "name": "reach", "git_revision": "test",
        "golden": {"signals.joint_pos": signals, "commands.joint_pos_cmd": rows},
        "chunk": ChunkSpec(STEPS, DT), **changes}
    golden = arguments.pop("golden")
    export(policy, path, ArtifactSpec(**arguments), golden)
    return path


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chunked(tmp_path_factory.mktemp("chunked") / "artifact")


@pytest.fixture
def folder():
    made = mailbox.new_folder()
    yield made
    shutil.rmtree(made)


# the artifact


def test_a_chunked_artifact_gives_its_rows(artifact):
    loaded = Artifact.load(artifact, ROBOT)
    assert loaded.manifest.chunk == ChunkSpec(STEPS, DT) and loaded.self_test().max_error < 1e-6
    rows = loaded.act({"joint_pos": GOAL - 0.05})["joint_pos_cmd"]
    assert rows.shape == (STEPS, 7)
    assert rows[:, 0] == pytest.approx(GOAL[0] - 0.05 + np.minimum(0.01 * np.arange(STEPS), 0.05), abs=1e-6)


def test_it_is_of_a_version_that_older_programs_refuse(artifact):
    content = json.loads((artifact / "manifest.json").read_text())
    assert content["schema_version"] == 2 and content["chunk"] == {"steps": STEPS, "dt_s": DT, "hold": []}


def test_the_network_and_the_manifest_agree_on_the_chunk(artifact, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(artifact, copy)
    manifest = decode((copy / "manifest.json").read_bytes())
    (copy / "manifest.json").write_bytes(encode(replace(manifest, chunk=ChunkSpec(STEPS, 2 * DT))))
    with pytest.raises(ArtifactError, match="do not belong together: chunk"):
        Artifact.load(copy)


def test_a_policy_that_gives_single_commands_is_no_chunked_one(tmp_path):
    with pytest.raises(ArtifactError, match="chunk|shape"):
        write_chunked(tmp_path / "wrong", chunk=ChunkSpec(STEPS + 1, DT))


# the worker in this process


class Failing:
    """Stands for an artifact whose inference goes wrong."""

    def __init__(self, manifest, error: Exception) -> None:
        self.manifest, self.error = manifest, error

    def act(self, signals):
        raise self.error


class Counting:
    """Stands for an artifact with a first look: it gives the number of its inference since it was reset."""

    def __init__(self, manifest) -> None:
        self.manifest, self.count = replace(manifest, memory=(MemorySpec(FIRST_LOOK, (2,), [0.0, 0.0]),)), 0

    def reset(self):
        self.count = 0

    def act(self, signals):
        self.count += 1
        return {"joint_pos_cmd": np.full((STEPS, len(GOAL)), self.count, np.float32)}


def test_the_worker_forgets_its_first_look_where_a_mission_begins(artifact, folder):
    manifest = decode((artifact / "manifest.json").read_bytes())
    policy = ChunkedPolicy(manifest, ControllerMailbox(folder, manifest), time.monotonic)
    worker = worker_node.Worker(WorkerMailbox(folder, manifest), Counting(manifest))
    counts = []
    for begins in (True, False, False, True, False):
        if begins:
            policy.reset()
        policy.link.put(time.monotonic(), {"joint_pos": GOAL})
        worker.step(0.0)
        counts += [reply.rows[0, 0] for reply in policy.link.take()]
    assert counts == [1, 2, 3, 1, 2] and not worker.failed
    worker.mailbox.close()
    policy.close()


def test_a_failed_inference_is_told_once_counted_and_tried_again(artifact, folder, capsys):
    manifest = decode((artifact / "manifest.json").read_bytes())
    policy = ChunkedPolicy(manifest, ControllerMailbox(folder, manifest), time.monotonic)
    worker = worker_node.Worker(WorkerMailbox(folder, manifest), Failing(manifest, RuntimeError("CUDA out of memory")))
    for _ in range(3):
        policy.link.put(time.monotonic(), {"joint_pos": GOAL})
        worker.step(0.0)
    assert capsys.readouterr().err == "worker_node: CUDA out of memory\n"
    assert worker.failed == 3 and worker.summary()["chunks"] == 0 and policy.link.take() == []
    worker.mailbox.close()
    policy.close()


def test_a_worker_refuses_what_is_not_chunked(artifact, folder):
    manifest = replace(decode((artifact / "manifest.json").read_bytes()), chunk=None, schema_version=1)
    with pytest.raises(ArtifactError, match="policy_node runs it by itself"):
        worker_node.Worker(None, Failing(manifest, ValueError()))  # type: ignore[arg-type]


# real processes


class Clock:
    """The controller's clock, which knows what it said last: a loop that stood still between two lines is no fault of
    the policy, and is not judged as one."""

    def __init__(self) -> None:
        self.read = time.monotonic()

    def __call__(self) -> float:
        self.read = time.monotonic()
        return self.read


@dataclass
class Robot:
    """Servos that do what they are told, and a controller's loop in real time."""

    policy: ChunkedPolicy
    clock: Clock
    position: np.ndarray
    sent_at: float = 0.0

    def fly(self, seconds: float, until=lambda acting: False) -> tuple[int, float]:
        """Number of commands, and the largest speed of a command."""
        acted, fastest = 0, 0.0
        end_at, due = time.monotonic() + seconds, time.monotonic()
        while time.monotonic() < end_at:
            try:
                command, acting = self.policy.act({"joint_pos": self.position})["joint_pos_cmd"], True
            except NoAction:
                command, acting = self.position, False
            now = self.clock.read
            if acting:
                fastest = max(fastest, float(np.abs(command - self.position).max()) / max(now - self.sent_at, PERIOD))
                acted, self.position, self.sent_at = acted + 1, command, now
            if until(acting):
                break
            due += PERIOD
            time.sleep(max(due - time.monotonic(), 0.0))
        return acted, fastest


@pytest.fixture
def robot(artifact, folder):
    manifest = decode((artifact / "manifest.json").read_bytes())
    clock = Clock()
    policy = ChunkedPolicy(manifest, ControllerMailbox(folder, manifest), clock, Playing(0.05, margin_s=0.03))
    yield Robot(policy, clock, GOAL - 1.0)
    policy.close()


def test_a_real_worker_moves_the_arm_and_leaves_a_summary(artifact, folder, robot, tmp_path):
    options = ["--artifact", str(artifact), "--folder", str(folder), "--out", str(tmp_path)]
    process = start("worker_node", options, tmp_path / "worker.log")
    try:
        robot.fly(60.0, until=lambda acting: acting)
        begun, first = robot.position.copy(), robot.sent_at
        robot.fly(60.0, until=lambda acting: acting and robot.policy.counts["used"] >= 6)
        moved, took = robot.position - begun, robot.sent_at - first
        assert moved == pytest.approx(np.full(7, moved[0]), abs=1e-3)
        assert 0.0 < moved[0] < 1.05 * SPEED * took  # at the policy's speed, time lost on a busy machine aside
        assert robot.policy.counts["used"] >= 6 and not robot.policy.last_refusal
    finally:
        end([process])
    assert process.returncode == 0, last_words(process)
    summary = json.loads((tmp_path / "worker.json").read_text())
    assert summary["chunks"] >= robot.policy.counts["used"] and summary["failed"] == 0
    assert sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock")) == [
        "controller", "observation"]


STAND_IN = """
import sys, time
from pathlib import Path
from temporeal.robots.artifact.runtime import Artifact
from temporeal_bridge.controller.mailbox import WorkerMailbox
from temporeal_bridge.worker_node import Worker
class Slowed:
    def __init__(self, artifact): self.artifact, self.manifest = artifact, artifact.manifest
    def act(self, signals):
        until = time.monotonic() + float(Path(sys.argv[3]).read_text())
        while time.monotonic() < until: time.sleep(0.01)
        return self.artifact.act(signals)
artifact = Artifact.load(sys.argv[1])
worker = Worker(WorkerMailbox(Path(sys.argv[2]), artifact.manifest), Slowed(artifact))
while True: worker.step()
"""


@pytest.fixture
def slowed(artifact, folder, tmp_path):
    """Starts the real worker with its artifact slowed down by the seconds in a file."""
    delay, running = tmp_path / "delay", []

    def begin() -> subprocess.Popen:
        command = [sys.executable, "-c", STAND_IN, str(artifact), str(folder), str(delay)]
        running.append(subprocess.Popen(command))
        return running[-1]

    delay.write_text("0.02")
    yield begin, delay
    for process in running:
        process.kill()
        process.wait()


def runs_out(robot: Robot) -> None:
    """The chunk in force is played to its end, then there is no action. (The sockets do not block: no call waits.)"""
    robot.fly(20.0, until=lambda acting: not acting)
    assert robot.sent_at < robot.policy.plan.chunk.end <= robot.clock.read
    assert not robot.policy.link.socket.getblocking()


def comes_back(robot: Robot) -> None:
    """New chunks are used again, and it goes on from where it stood without a jump."""
    robot.fly(20.0, until=lambda acting: acting)
    acts(robot, 0.6, 40)


def acts(robot: Robot, seconds: float, least: int) -> None:
    """More than ``least`` commands in so many seconds, sooner or later: a worker that a busy machine does not let run
    is silent as well."""
    for _ in range(20):
        acted, fastest = robot.fly(seconds)
        assert fastest < 10 * SPEED
        if acted > least:
            return
    raise AssertionError(f"{acted} commands in the last {seconds} s")


@pytest.mark.slow
def test_a_worker_that_is_stopped_slow_hung_or_killed_is_seen_by_its_silence_only(robot, slowed):
    begin, delay = slowed
    process = begin()
    comes_back(robot)
    assert robot.policy.link.rejected == 0

    process.send_signal(signal.SIGSTOP)
    runs_out(robot)
    process.send_signal(signal.SIGCONT)
    comes_back(robot)

    delay.write_text("0.2")  # ten times slower, but faster than a chunk is long
    robot.fly(20.0, until=lambda acting: robot.policy.latency.most > 0.2)
    assert robot.policy.latency.most > 0.2
    acts(robot, 0.5, 30)
    delay.write_text("0.5")  # slower than a chunk is long: each one is late
    runs_out(robot)
    robot.fly(20.0, until=lambda acting: robot.policy.counts["late"] >= 1)
    assert robot.policy.counts["late"] >= 1
    delay.write_text("0.02")
    comes_back(robot)

    delay.write_text("1000")  # hangs
    runs_out(robot)
    process.kill()
    process.wait()
    delay.write_text("0.02")
    process = begin()  # a new one is found by itself
    comes_back(robot)
    process.kill()
    runs_out(robot)


def test_wrong_input_is_told_with_status_2(folder, tmp_path, capfd):
    options = ["--artifact", str(tmp_path), "--folder", str(folder), "--nice", "0"]
    assert worker_node.main(options) == 2 and "worker_node: error:" in capfd.readouterr().err
