"""The actor's folder: episodes until the learner has them, the newest weights, and what the courier last knew.

    episodes/<id>.episode     each whole and synced before the next one begins; removed when the learner has it
    refused/<id>.episode      what the learner will never take, with <id>.txt: why
    weights                   as the learner published them
    agreement.json            what this actor is of;  courier.json: what the courier last found
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from temporeal.policies.robot_learning.wire.agreement import FILE as AGREEMENT
from temporeal.policies.robot_learning.wire.agreement import differences, read_agreed, write_agreed
from temporeal.policies.robot_learning.wire.messages import sealed, unsealed
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.atomic_files import write_whole

EPISODES, REFUSED, WEIGHTS, STATE, LOCK = "episodes", "refused", "weights", "courier.json", ".actor"
SUFFIX = ".episode"


@dataclass(frozen=True)
class State:
    """What the courier last knew.

    Args:
        connected: whether the learner answered the last time. trouble: what is wrong; "": nothing.
        fatal: the learner will not speak with this actor until a person mends it.
        delivered, refused: episodes since the courier began.
    """

    connected: bool = False
    trouble: str = ""
    fatal: bool = False
    delivered: int = 0
    refused: int = 0


def new_id() -> str:
    """A new episode's identity."""
    return f"{time.time_ns():020d}-{uuid.uuid4().hex[:12]}"


class Spool:
    """The folder, as actor and courier see it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held: IO[bytes] | None = None
        self.newest: tuple[int, int] | None = None
        for name in (EPISODES, REFUSED):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def hold(self) -> None:
        """Take the folder for one actor."""
        self.held = open(self.folder / LOCK, "wb")
        try:
            fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadInput(f"{self.folder} is another actor's, which is running: out=ANOTHER") from error
        for unfinished in self.folder.glob("episodes/.*"):
            unfinished.unlink(missing_ok=True)

    def begin(self, agreed: Mapping[str, Any], digest: str) -> None:
        """Of this agreement. Episodes of another one that wait here would be refused: they are the person's."""
        file = self.folder / AGREEMENT
        before = read_agreed(file, f"it says what the {len(self.waiting())} episodes that wait here are of: remove it "
                                   "where they were made with these words (the learner refuses others), or name "
                                   "another folder: out=ANOTHER")
        same = before is not None and before[1] == digest
        if before is not None and not same and self.waiting():
            what = "; ".join(differences(agreed, before[0], sides=("this actor", "the one that made them")))
            raise BadInput(f"{self.folder} holds {len(self.waiting())} episodes that no learner has yet, of another "
                           f"task, robot or learner ({what}): deliver them first with the settings they were made "
                           "with, or name another folder: out=ANOTHER")
        if not same:
            (self.folder / WEIGHTS).unlink(missing_ok=True)
        write_agreed(file, agreed, digest)
        (self.folder / STATE).unlink(missing_ok=True)

    def keep(self, identity: str, data: bytes) -> None:
        """An episode, for good, until it is delivered."""
        write_whole(self.folder / EPISODES / f"{identity}{SUFFIX}", sealed(data))

    def waiting(self) -> list[str]:
        """Identities of episodes that the learner does not have yet, the oldest first."""
        return sorted(path.stem for path in (self.folder / EPISODES).glob(f"[!.]*{SUFFIX}"))

    def bytes_of(self, identity: str) -> bytes:
        """The message of an episode that waits."""
        path = self.folder / EPISODES / f"{identity}{SUFFIX}"
        return unsealed(path.read_bytes(), str(path))

    def delivered(self, identity: str) -> None:
        """The learner has it."""
        (self.folder / EPISODES / f"{identity}{SUFFIX}").unlink()

    def refuse(self, identity: str, why: str) -> None:
        """The learner will never take it: it is kept, out of the way."""
        os.replace(self.folder / EPISODES / f"{identity}{SUFFIX}", self.folder / REFUSED / f"{identity}{SUFFIX}")
        write_whole(self.folder / REFUSED / f"{identity}.txt", f"{why}\n".encode())

    def put_weights(self, data: bytes) -> None:
        """New weights from the learner."""
        write_whole(self.folder / WEIGHTS, sealed(data))

    def new_weights(self) -> bytes | None:
        """Weights that came since the last time this was asked; None: there are none."""
        path = self.folder / WEIGHTS
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        newest = found.st_ino, found.st_mtime_ns
        if newest == self.newest:
            return None
        data = unsealed(path.read_bytes(), str(path))
        self.newest = newest
        return data

    def put_state(self, state: State) -> None:
        """What the courier knows now."""
        write_whole(self.folder / STATE, json.dumps(asdict(state)).encode())

    def state(self) -> State:
        """What the courier last knew."""
        try:
            return State(**json.loads((self.folder / STATE).read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return State()
