"""What the episodes of a folder are of is said in words on both sides; a torn file of it is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.policies.robot_learning.deliveries import agreed, bytes_of, episode

from temporeal.policies.robot_learning.acting.spool import Spool
from temporeal.policies.robot_learning.learning.inbox import Inbox
from temporeal.policies.robot_learning.learning.journal import Journal
from temporeal.policies.robot_learning.wire.agreement import FILE, Agreement
from temporeal.policies.robot_learning.wire.messages import MessageError
from temporeal.policies.runs.errors import BadInput

RNG = np.random.default_rng(3)
OTHER = agreed(learner={"algorithm": "td3"})


def received(folder: Path, of: Agreement, keep: bool = False) -> int:
    """How many episodes a learner of ``of`` finds in its folder; and one more is kept there."""
    journal = Journal(folder / "received.episodes")
    try:
        inbox = Inbox(journal, of)
        if keep:
            one = episode(RNG, agreement=of)
            inbox.keep(one, bytes_of(one))
        return len(inbox.before)
    finally:
        journal.close()


def test_a_learner_of_another_algorithm_is_told_by_name(tmp_path: Path) -> None:
    assert received(tmp_path, OTHER) == 0 and received(tmp_path, agreed(), keep=True) == 0, "nothing was received yet"
    for _ in range(2):  # what is refused changes nothing
        with pytest.raises(MessageError, match=r"learner.algorithm is td3 at this learner and sac at the one that "
                                               r"received them; go on .* out=ANOTHER"):
            received(tmp_path, OTHER)
    assert received(tmp_path, agreed()) == 1
    (tmp_path / FILE).unlink()  # as of a run from before it was written
    with pytest.raises(MessageError, match="another agreement"):
        received(tmp_path, OTHER)
    assert received(tmp_path, agreed()) == 1 and (tmp_path / FILE).exists()


@pytest.mark.parametrize("torn", [b"", b'{"digest": "ab', b"\xff\xfe", b"[1]",
                                  b'{"digest": 1, "agreement": {}}', b"{}"])
def test_a_torn_file_of_what_was_agreed_is_named(tmp_path: Path, torn: bytes) -> None:
    spool = Spool(tmp_path / "actor")
    for folder in (tmp_path / "actor", tmp_path):
        (folder / FILE).write_bytes(torn)
    with pytest.raises(BadInput, match=rf"actor/{FILE} .*remove it where they were made with these words"):
        spool.begin(agreed().plain(), agreed().digest())
    with pytest.raises(BadInput, match=rf"{FILE} .*remove it"):
        received(tmp_path, agreed())
    (tmp_path / "actor" / FILE).unlink()
    spool.begin(agreed().plain(), agreed().digest())


def test_episodes_that_wait_say_how_they_differ(tmp_path: Path) -> None:
    spool, one = Spool(tmp_path), episode(RNG)
    spool.begin(agreed().plain(), agreed().digest())
    spool.put_weights(b"some")
    spool.keep(one.id, bytes_of(one))
    with pytest.raises(BadInput, match="learner.algorithm is td3 at this actor and sac at the one that made them"):
        spool.begin(OTHER.plain(), OTHER.digest())
    assert spool.new_weights() == b"some"
    spool.delivered(one.id)
    spool.begin(OTHER.plain(), OTHER.digest())
    assert spool.new_weights() is None, "weights of another agreement are gone"
