"""Episodes between the threads that receive them and the learner. No torch: what is received needs none."""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Sequence
from typing import overload

from temporeal.policies.robot_learning.learning.journal import Journal
from temporeal.policies.robot_learning.wire.agreement import FILE, Agreement, differences, read_agreed, write_agreed
from temporeal.policies.robot_learning.wire.episodes import Episode, OutOfRange, require_range, unranged
from temporeal.policies.robot_learning.wire.messages import MessageError, decode


class Known(Sequence[Episode]):
    """Episodes of a journal, each read when it is asked for: with pictures they are more than memory takes.

    Args:
        numbers: of them in the journal.
    """

    def __init__(self, journal: Journal, agreed: Agreement, numbers: range) -> None:
        self.journal, self.agreed, self.numbers = journal, agreed, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, which: int) -> Episode: ...

    @overload
    def __getitem__(self, which: slice) -> Known: ...

    def __getitem__(self, which: int | slice) -> Episode | Known:
        if isinstance(which, slice):
            return Known(self.journal, self.agreed, self.numbers[which])
        where = str(self.journal.path)
        return unranged(decode(self.journal.again(self.numbers[which]), where, "episode"), self.agreed, where)


class Inbox:
    """Episodes between the threads that receive them and the learner: kept for good, each once.

    Attributes:
        before: what the journal held when it was opened. aside: identities of those of them that are out of range,
            which nobody would take now, and why: they are not learned from.
    """

    def __init__(self, journal: Journal, agreed: Agreement) -> None:
        self.aside = dict[str, str]()
        self.journal, self.ids, self.lock = journal, dict[str, bytes](), threading.Lock()
        file = journal.path.with_name(FILE)
        kept = read_agreed(file, "remove it: it only tells in words what the episodes beside it are of")
        # of runs from before this file was written nothing can be told in words
        self.other = "" if kept is None else "; ".join(differences(agreed.plain(), kept[0], sides=(
            "this learner", "the one that received them")))
        for data in journal.records():
            self._know(data, agreed)
        self.before: Sequence[Episode] = Known(journal, agreed, range(journal.count))
        if kept is None or self.other:
            write_agreed(file, agreed.plain(), agreed.digest())
        self.new: queue.Queue[Episode] = queue.Queue()

    def _know(self, data: bytes, agreed: Agreement) -> None:
        where = str(self.journal.path)
        message = decode(data, where, "episode")
        if self.other and message.fields.get("agreement") != agreed.digest():
            raise MessageError(f"{where} holds episodes of another learner: {self.other}; go on with the words that "
                               "they were received with, or begin another run: out=ANOTHER")
        episode = unranged(message, agreed, where)
        try:
            require_range(episode, agreed, where)
        except OutOfRange as error:
            self.aside[episode.id] = str(error)
        self.ids[episode.id] = hashlib.sha256(data).digest()

    def keep(self, episode: Episode, data: bytes) -> bool:
        """Store an episode for good; False: it was there. Another one of the same identity is refused."""
        digest = hashlib.sha256(data).digest()
        with self.lock:
            if (known := self.ids.get(episode.id)) is not None:
                if known != digest:
                    raise MessageError(f"episode {episode.id} is known with other content: SHA-256 "
                                       f"{known.hex()[:12]}, this is {digest.hex()[:12]}")
                return False
            self.journal.append(data)
            self.ids[episode.id] = digest
            self.new.put(episode)
            return True

    def take(self, wait_s: float) -> list[Episode]:
        """Episodes that came, in the order of the journal; waits for one up to ``wait_s``."""
        found = list[Episode]()
        try:
            found.append(self.new.get(timeout=wait_s) if wait_s > 0 else self.new.get_nowait())
            while True:
                found.append(self.new.get_nowait())
        except queue.Empty:
            return found
