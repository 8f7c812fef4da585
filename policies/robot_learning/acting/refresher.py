"""New weights for an actor while it acts, and the courier that brings them, kept alive: a thread beside the loop."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from temporeal.policies.robot_learning.acting.spool import REFUSED, SUFFIX, Spool
from temporeal.policies.robot_learning.wire.messages import MessageError
from temporeal.policies.robot_learning.wire.weights import Policy, Weights
from temporeal.policies.runs.errors import BadInput

LOOK_S = 0.2  # s between looks for new weights
LONGEST_S = 10.0  # s: longest wait before a courier that ended is started again; one that lived longer begins at once


def real_time(priority: int) -> None:
    """Give the calling thread real-time priority; what it starts has none."""
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))


class Refresher:
    """Reads weights as they come; the control loop takes them between two steps.

    Args:
        start: starts the courier's process. tell: says what is wrong. now: a clock, s.

    Attributes:
        ahead: real-time priority that the thread takes; 0: none. With the interpreter's lock in its hand it must not
            wait for other processes while the control loop waits for it.
    """

    def __init__(
        self, spool: Spool, policy: Policy, start: Callable[[], subprocess.Popen[bytes]],
        tell: Callable[[str], None] = print, now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spool, self.policy, self.start, self.tell, self.now = spool, policy, start, tell, now
        self.next = deque[Weights](maxlen=1)  # taken and put by two threads: no other order can lose one
        self.wrong = self.ended = self.said = ""
        self.refused = set(refusals(spool))
        self.begun, self.wait = now(), LOOK_S
        self.over, self.ahead = threading.Event(), 0
        self.process = start()
        self.thread = threading.Thread(target=self._look, name="weights", daemon=True)
        self.thread.start()

    def _look(self) -> None:
        taken = 0
        while not self.over.wait(LOOK_S):
            if self.ahead != taken:
                taken = self.ahead
                real_time(taken)
            try:
                data = self.spool.new_weights()
                if data is not None:
                    self.next.append(self.policy.read(data))
                    self.wrong = ""
            except (MessageError, OSError) as error:
                self.wrong = str(error)
            self.keep_alive()

    def keep_alive(self) -> None:
        """Start a courier that ended again: at once, then, where it ends again and again, after longer and longer."""
        code, lived = self.process.poll(), self.now() - self.begun
        if code is None:
            if lived > LONGEST_S:
                self.ended, self.wait = "", LOOK_S
            return
        self.ended = self.ended or f"the courier ended with status {code}; it is started again"
        if lived < self.wait:
            return
        self.begun, self.wait = self.now(), min(2.0 * self.wait, LONGEST_S)
        try:
            self.process = self.start()
        except OSError as error:
            self.ended = f"the courier cannot be started: {error}"

    def put(self) -> None:
        """Give the policy the newest weights, if there are new ones."""
        if self.next:
            self.policy.put(self.next.pop())

    def trouble(self) -> str:
        """What is wrong between this actor and its learner; "": nothing."""
        return self.wrong or self.ended or self.spool.state().trouble

    def check(self) -> None:
        """Say what is wrong since the last time, and refuse to go on where the learner will not speak with this actor.
        """
        self.tell_refusals()
        if (trouble := self.trouble()) != self.said:
            self.said = trouble
            self.tell(f"trouble: {trouble}" if trouble else "the trouble is over")
        state = self.spool.state()
        if state.fatal:
            raise BadInput(f"{state.trouble}; {len(self.spool.waiting())} episodes wait in {self.spool.folder}")

    def tell_refusals(self) -> None:
        """Say which episodes were refused since the last time."""
        for identity, why in refusals(self.spool).items():
            if identity not in self.refused:
                self.refused.add(identity)
                self.tell(f"REFUSED: the learner will not learn from episode {identity}: {why} (kept in "
                          f"{self.spool.folder / REFUSED})")

    def close(self, deliver_s: float = 0.0) -> None:
        """End the courier, after it has delivered what waits, as far as it does so within ``deliver_s``."""
        waited = 0.0
        while self.spool.waiting() and waited < deliver_s and not self.spool.state().fatal:
            self.over.wait(LOOK_S)
            waited += LOOK_S
        self.over.set()
        self.thread.join()
        with suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.tell_refusals()


def refusals(spool: Spool) -> dict[str, str]:
    """Episodes that the learner refused for good, and why, as far as the disk took it."""
    found = {}
    for path in sorted((spool.folder / REFUSED).glob(f"*{SUFFIX}")):
        with suppress(OSError):
            found[path.stem] = "not noted"
            found[path.stem] = path.with_suffix(".txt").read_text().strip()
    return found
