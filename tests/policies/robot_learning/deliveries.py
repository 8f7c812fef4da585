"""Small agreements, episodes and processes for the tests of actor and learner."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.robot_learning.acting.spool import new_id
from temporeal.policies.robot_learning.learning.inbox import Inbox
from temporeal.policies.robot_learning.learning.journal import Journal
from temporeal.policies.robot_learning.wire.agreement import Agreement
from temporeal.policies.robot_learning.wire.episodes import Episode, to_message
from temporeal.policies.robot_learning.wire.messages import Published, encode
from temporeal.policies.robot_learning.wire.security import Security
from temporeal.policies.robot_learning.wire.service import Service, serve
from temporeal.robots.signals import SignalSpec, schema

TOKEN = "0123456789abcdef" * 2
STEPS = 6  # of the longest episode


def agreed(**changes: object) -> Agreement:
    """An agreement on two numbers that are seen and one joint that is moved."""
    seen = schema(SignalSpec("place", (2,), "m"), SignalSpec("eye_rgb", (4, 4, 3), dtype="uint8"))
    interface = Interface("toy", seen, ActionSpec("speed", (-2.0,), (2.0,), "m/s"), 50.0, task_action=1, task="toy")
    found = Agreement(interface, 3, {"name": "toy", "settings": {"gain": 1.0}}, {"algorithm": "sac"},
                      {"reward": "success", "success": "formula"}, STEPS)
    return replace(found, **changes)  # type: ignore[arg-type]


def episode(rng: np.random.Generator, steps: int = 4, agreement: Agreement | None = None) -> Episode:
    """A random episode."""
    def draw(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype(np.float32)

    return Episode(
        new_id(), (agreement or agreed()).digest(), draw(steps + 1, 3), draw(steps, 1), draw(steps, 1),
        2.0 * draw(steps, 1), draw(steps), rng.integers(0, 2, steps).astype(np.uint8),
        {"place": draw(steps + 1, 2), "eye_rgb": rng.integers(0, 256, (steps + 1, 4, 4, 3)).astype(np.uint8)},
        terminated=True, success=bool(rng.integers(2)), updates=7, late=1)


def bytes_of(one: Episode) -> bytes:
    """As it is sent."""
    return encode(to_message(one))


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something is so; the machine may be busy."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def receive(folder: Path, port: int) -> None:
    """A learner without learning: the real service, inbox and journal, until it is killed."""
    inbox = Inbox(Journal(folder / "received.episodes"), agreed())
    server, _ = serve(f"127.0.0.1:{port}", Security(TOKEN), Service(
        agreed(), inbox.keep, lambda: Published("none", b"")))
    server.wait_for_termination()  # a server that nobody holds ends


if __name__ == "__main__":
    receive(Path(sys.argv[1]), int(sys.argv[2]))
