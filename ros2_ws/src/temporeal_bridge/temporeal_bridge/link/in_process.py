"""The link inside one process, for tests and replay."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from temporeal_bridge.link.datagrams import Answer, Proposal, pack, pack_answer, unpack_answer
from temporeal_bridge.link.ends import Parties


class InProcessGuard(Parties):
    """The guard's end. ``advance(seconds)`` moves a fake clock while the guard waits."""

    def __init__(self, advance: Callable[[float], None] | None = None) -> None:
        super().__init__()
        self.up: deque[tuple[str, bytes]] = deque()
        self.down: dict[str, deque[bytes]] = {}
        self.advance, self.guarded = advance, True

    def receive(self) -> list[Proposal]:
        """See :class:`GuardEnd`."""
        found = [self.accept(data, sender, self._send)
                 for sender, data in (self.up.popleft() for _ in range(len(self.up)))]
        return [p for p in found if p is not None]

    def answer(self, answer: Answer, successor: bool = False) -> None:
        """See :class:`GuardEnd`."""
        self._send(pack_answer(answer), self.successor if successor else self.peer)

    def _send(self, data: bytes, receiver: str | None) -> None:
        if receiver is not None and receiver in self.down:
            self.down[receiver].append(data)

    def wait(self, timeout_s: float) -> None:
        """See :class:`GuardEnd`."""
        if not self.up and self.advance is not None:
            self.advance(timeout_s)

    def close(self) -> None:
        """See :class:`GuardEnd`."""


class InProcessController:
    """A controller's end of an :class:`InProcessGuard`; each has its own name."""

    def __init__(self, guard: InProcessGuard) -> None:
        self.guard, self.name = guard, f"controller {len(guard.down)}"
        guard.down[self.name] = deque()

    def send(self, proposal: Proposal) -> bool:
        """See :class:`ControllerEnd`."""
        if self.guard.guarded:
            self.guard.up.append((self.name, pack(proposal)))
        return self.guard.guarded

    def receive(self) -> list[Answer]:
        """See :class:`ControllerEnd`."""
        down = self.guard.down[self.name]
        return [unpack_answer(down.popleft()) for _ in range(len(down))]

    def close(self) -> None:
        """See :class:`ControllerEnd`."""


def linked(advance: Callable[[float], None] | None = None) -> tuple[InProcessController, InProcessGuard]:
    """Controller's and guard's end of one link."""
    guard = InProcessGuard(advance)
    return InProcessController(guard), guard
