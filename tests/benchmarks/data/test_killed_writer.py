"""Writers that are killed lose the open episode only: five kills here, 200 in ``temporeal bench data``."""

import pytest

from temporeal_benchmarks.data.killed_writer import killed


@pytest.mark.slow
def test_killed_writers_lose_nothing_but_the_open_episode(tmp_path):
    losses = killed(tmp_path, 5)
    assert (losses.kills, losses.lost, losses.wrong, losses.unreadable) == (5, 0, 0, 0)
