"""The inference worker: newest observation in, action chunk out, as fast as the policy can and no faster than asked.

    python -m temporeal_bridge.worker_node --artifact outputs/vla/artifact --folder /dev/shm/arm

It is on no bus: it exchanges data with the controller in ``--folder`` only
(:mod:`temporeal_bridge.controller.mailbox`), and the controller never waits for it. It handles one observation at a
time, always the newest; older ones are skipped. A failure of the policy is printed and counted, and the next
observation is another try.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from temporeal.robots.artifact.manifest import ArtifactError, Manifest
from temporeal.robots.artifact.runtime import Artifact
from temporeal_bridge.controller.mailbox import LOOK_S, Observation, Reply, WorkerMailbox
from temporeal_bridge.mission import percentiles
from temporeal_bridge.process.children import orphaned
from temporeal_bridge.process.command_line import add_artifact
from temporeal_bridge.process.files import write_json
from temporeal_bridge.process.node import stop_signals
from temporeal_bridge.transports import ros_arguments

NICE = 5  # the controller goes first where processors are few: a chunk may be late, a command may not
KEPT = 10_000  # latencies for the summary


class Policy(Protocol):
    """What the worker needs of an artifact."""

    manifest: Manifest

    def act(self, signals: Any) -> dict[str, np.ndarray]:
        """Rows [K, *shape] by the command's name."""

    def reset(self) -> None:
        """The next observation is the first of a mission."""


class Worker:
    """One policy answering one controller."""

    def __init__(
        self, mailbox: WorkerMailbox, policy: Policy, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if policy.manifest.chunk is None:
            raise ArtifactError(f"{policy.manifest.name} gives one command at a time: policy_node runs it by itself")
        self.mailbox, self.policy, self.clock = mailbox, policy, clock
        self.command = policy.manifest.commands[0].name
        self.seconds: deque[float] = deque(maxlen=KEPT)
        self.chunks, self.since = 0, 0.0
        self.failed, self.unsent, self.last_failure = 0, 0, ""

    def step(self, timeout_s: float = LOOK_S) -> None:
        """Answer the newest observation, waiting for one for at most ``timeout_s``."""
        try:
            seen = self.mailbox.newest()  # one that arrived during the last inference
            if seen is None:
                self.mailbox.wait(timeout_s)
                seen = self.mailbox.newest()
            if seen is not None:
                self._answer(seen)
        except Exception as error:  # onnxruntime's types are private; the next observation is another try
            self._fail(error)

    def _answer(self, seen: Observation) -> None:
        begun = self.clock()
        if seen.since != self.since and self.policy.manifest.memory:
            self.policy.reset()
        self.since = seen.since
        rows = self.policy.act(seen.signals)[self.command]
        seconds = self.clock() - begun
        if not self.mailbox.reply(Reply(seen.at, seconds, rows.reshape(len(rows), -1))):
            self.unsent += 1
        self.chunks += 1
        self.seconds.append(seconds)

    def _fail(self, error: Exception) -> None:
        self.failed += 1
        if str(error) != self.last_failure:
            print(f"worker_node: {error}", file=sys.stderr, flush=True)
        self.last_failure = str(error)

    def summary(self) -> dict[str, Any]:
        """What happened so far, for the JSON file."""
        return {"node": "worker_node", "artifact": self.policy.manifest.name, "chunks": self.chunks,
                "unsent": self.unsent, "failed": self.failed, "last_failure": self.last_failure,
                "inference_ms": percentiles(list(self.seconds))}


def load(path: Path, trust: Path | None = None) -> Artifact:
    """The artifact, if its self-test passes, which also warms up inference. Whether it is for the robot is checked by
    the controller: the two reject each other over different artifacts. ``trust``: file of the public key that must
    have signed it."""
    artifact = Artifact.load(path, trust=trust)
    artifact.self_test()
    return artifact


def run(args: argparse.Namespace, stop: Callable[[], bool]) -> None:
    """Answer until ``stop()``."""
    os.nice(args.nice)
    artifact = load(args.artifact, args.trust)
    mailbox = WorkerMailbox(args.folder, artifact.manifest)
    try:
        worker = Worker(mailbox, artifact)
        while not stop():
            worker.step()
        if args.out is not None:
            write_json(args.out / "worker.json", worker.summary())
    finally:
        mailbox.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit status is 0, or 2 after a message about wrong input."""
    parser = argparse.ArgumentParser(prog="worker_node", description="Run a slow policy for a controller beside it.")
    add_artifact(parser)
    parser.add_argument("--folder", type=Path, required=True, help="folder shared with the controller: in /dev/shm")
    parser.add_argument("--nice", type=int, default=NICE,
                        help="lower its priority by this much: the controller goes first (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=None, help="folder for the summary")
    alone = orphaned()
    own, _ = ros_arguments.split(sys.argv[1:] if arguments is None else arguments)  # launch files add ROS's own
    try:
        with stop_signals() as stopped:
            run(parser.parse_args(own), lambda: bool(stopped) or alone())
    except (ValueError, KeyError, OSError, RuntimeError) as error:
        print(f"worker_node: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
