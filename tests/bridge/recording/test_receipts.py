"""A recorder's clock that was set back is noticed: messages are read by receipt, which mixes before and after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from temporeal.sim.stl.samples.receipts import set_back_s, went_back
from temporeal_bridge.recording import bags

S = 1_000_000_000


def test_only_a_clock_that_was_set_is_one() -> None:
    assert went_back([S, 2 * S, 3 * S]) is None and set_back_s([S, 2 * S]) == 0.0
    assert went_back([0, 3 * S, 2 * S]) == (2, 1.0)
    assert set_back_s([0, 3 * S, int(2.5 * S)]) == 0.0  # overtaken on the way
    assert set_back_s([0, 10 * S, 4 * S, 5 * S]) == pytest.approx(6.0)


@pytest.mark.parametrize("storage", [StoragePlugin.MCAP, StoragePlugin.SQLITE3], ids=str)
@pytest.mark.parametrize(("after", "expected"), [(11 * S, 0.0), (4 * S, 6.0)])
def test_a_recording_says_by_how_much(storage: StoragePlugin, after: int, expected: float, tmp_path: Path) -> None:
    types = get_typestore(Stores.ROS2_HUMBLE)
    Text = types.types["std_msgs/msg/String"]
    with Writer(tmp_path / "bag", version=9, storage_plugin=storage) as writer:
        to = writer.add_connection("/said", Text.__msgtype__, typestore=types)
        for at in (*np.arange(1, 11) * S, after, after + S):
            writer.write(to, int(at), types.serialize_cdr(Text(data="x"), Text.__msgtype__))
    found = bags.read(tmp_path / "bag")
    assert found.set_back_s == pytest.approx(expected) and len(found.messages) == 12
    assert bags.read(tmp_path / "bag", lambda topic: False).set_back_s == 0.0
