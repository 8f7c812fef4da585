"""The courier: a process of its own beside the actor, so that no wait for a network, no disk and no interpreter lock
can hold up the control loop. It carries episodes from the actor's folder to the learner, and weights back.

It ends with the actor: when its standard input is closed, even by a kill.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from temporeal.policies.robot_learning.acting.spool import Spool, State
from temporeal.policies.robot_learning.wire.agreement import FILE as AGREEMENT
from temporeal.policies.robot_learning.wire.client import BadEpisode, Client, Refused, Unreachable
from temporeal.policies.robot_learning.wire.messages import MessageError, decode, text_of
from temporeal.policies.robot_learning.wire.security import Security, read_token

POLL_S, BACK_OFF_S, LONGEST_S = 0.1, 0.2, 5.0  # s: between looks at the folder; after a failure, at first and at most


class Courier:
    """Delivers what waits in ``spool``, and asks for weights every ``weights_s``."""

    def __init__(self, spool: Spool, client: Client, weights_s: float) -> None:
        self.spool, self.client, self.weights_s = spool, client, weights_s
        self.agreed: Mapping[str, Any] = json.loads((spool.folder / AGREEMENT).read_text())
        self.state, self.have, self.due, self.greeted, self.told = State(), "", 0.0, False, False
        self.said = ""

    def round(self) -> bool:
        """One look: greet, deliver all that waits, fetch weights. Whether the learner answered."""
        try:
            if not self.greeted:
                if self.client.hello(dict(self.agreed["agreement"])) != self.agreed["digest"]:
                    raise Refused("the learner welcomed another agreement than this actor's")
                self.greeted = True
            for identity in self.spool.waiting():
                self.deliver(identity)
            if time.monotonic() >= self.due:
                self.fetch()
                self.due = time.monotonic() + self.weights_s
            self.note(replace(self.state, connected=True, trouble="", fatal=False))
            return True
        except (Refused, BadEpisode) as error:
            self.note(replace(self.state, connected=False, trouble=str(error), fatal=True))
        except (Unreachable, MessageError) as error:
            self.note(replace(self.state, connected=False, trouble=str(error), fatal=False))
        except OSError as error:  # a full disk: what waits is delivered all the same, which makes room
            self.note(replace(self.state, connected=False, trouble=f"the actor's folder {self.spool.folder}: {error}",
                              fatal=False))
        self.greeted = False
        return False

    def deliver(self, identity: str) -> None:
        """Hand one episode over, and forget it when the learner has it."""
        try:
            self.client.deliver(identity, self.spool.bytes_of(identity))
        except (BadEpisode, MessageError) as error:
            self.spool.refuse(identity, str(error))
            self.note(replace(self.state, refused=self.state.refused + 1))
            return
        self.spool.delivered(identity)
        self.note(replace(self.state, delivered=self.state.delivered + 1))

    def fetch(self) -> None:
        """Newer weights into the folder."""
        data = self.client.weights(self.have)
        if data is not None:
            self.spool.put_weights(data)
            self.have = text_of(decode(data, "the learner", "weights").fields, "digest", "the learner")

    def note(self, state: State) -> None:
        """Write what changed; where the disk takes it not, say it, and try again the next time."""
        if state == self.state and self.told:
            return
        self.state = state
        try:
            self.spool.put_state(state)
            self.told, self.said = True, ""
        except OSError as error:
            self.told = False
            if self.said != (said := f"the courier cannot write what it knows: {error}; {state.trouble}"):
                self.said = said
                print(said.removesuffix("; "), file=sys.stderr, flush=True)


def ends_with_parent() -> None:
    """End this process when its standard input is closed: the actor is gone."""
    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def start(folder: Path, address: str, token: Path, tls: Path | None, weights_s: float) -> subprocess.Popen[bytes]:
    """Start the courier of the actor in ``folder``."""
    words = [str(folder), address, str(token), str(tls or ""), str(weights_s)]
    return subprocess.Popen([sys.executable, "-m", "temporeal.policies.robot_learning.acting.courier", *words],
                            stdin=subprocess.PIPE, start_new_session=True)


def main(words: list[str]) -> None:
    """Carry until the actor ends."""
    folder, address, token, tls, weights_s = words
    ends_with_parent()
    client = Client(address, Security(read_token(Path(token)), Path(tls) if tls else None))
    courier, wait = Courier(Spool(Path(folder)), client, float(weights_s)), POLL_S
    while True:
        wait = POLL_S if courier.round() else min(max(2.0 * wait, BACK_OFF_S), LONGEST_S)
        time.sleep(wait)


if __name__ == "__main__":
    main(sys.argv[1:])
