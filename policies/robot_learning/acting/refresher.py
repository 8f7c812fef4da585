"""New weights for an actor while it acts, and the courier that brings them, kept alive: a thread beside the loop."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from temporeal.policies.robot_learning.acting.spool import Spool
from temporeal.policies.robot_learning.wire.messages import MessageError
from temporeal.policies.robot_learning.wire.weights import Policy, Weights
from temporeal.policies.runs.errors import BadInput

LOOK_S = 0.2  # s between looks for new weights


def real_time(priority: int) -> None:
    """Give the calling thread real-time priority; what it starts has none."""
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))


class Refresher:
    """Reads weights as they come; the control loop takes them between two steps.

    Args:
        start: starts the courier's process.

    Attributes:
        ahead: real-time priority that the thread takes; 0: none. With the interpreter's lock in its hand it must not
            wait for other processes while the control loop waits for it.
    """

    def __init__(self, spool: Spool, policy: Policy, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self.spool, self.policy, self.start = spool, policy, start
        self.next = deque[Weights](maxlen=1)  # taken and put by two threads: no other order can lose one
        self.wrong = ""
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
            if self.process.poll() is not None:
                self.process = self.start()

    def put(self) -> None:
        """Give the policy the newest weights, if there are new ones."""
        if self.next:
            self.policy.put(self.next.pop())

    def trouble(self) -> str:
        """What is wrong between this actor and its learner; "": nothing."""
        return self.wrong or self.spool.state().trouble

    def check(self) -> None:
        """Refuse to go on where the learner will not speak with this actor."""
        state = self.spool.state()
        if state.fatal:
            raise BadInput(f"{state.trouble}; {len(self.spool.waiting())} episodes wait in {self.spool.folder}")

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
