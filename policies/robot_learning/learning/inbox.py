"""Episodes between the threads that receive them and the learner. No torch: what is received needs none."""

from __future__ import annotations

import queue
import threading

from temporeal.policies.robot_learning.learning.journal import Journal
from temporeal.policies.robot_learning.wire.agreement import Agreement
from temporeal.policies.robot_learning.wire.episodes import Episode, from_message
from temporeal.policies.robot_learning.wire.messages import decode


class Inbox:
    """Episodes between the threads that receive them and the learner: kept for good, each once."""

    def __init__(self, journal: Journal, agreed: Agreement) -> None:
        self.journal, self.ids, self.lock = journal, set[str](), threading.Lock()
        self.before = [self._known(data, agreed) for data in journal.records()]
        self.new: queue.Queue[Episode] = queue.Queue()

    def _known(self, data: bytes, agreed: Agreement) -> Episode:
        episode = from_message(decode(data, str(self.journal.path), "episode"), agreed, str(self.journal.path))
        self.ids.add(episode.id)
        return episode

    def keep(self, episode: Episode, data: bytes) -> bool:
        """Store an episode for good; False: it was there."""
        with self.lock:
            if episode.id in self.ids:
                return False
            self.journal.append(data)
            self.ids.add(episode.id)
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
