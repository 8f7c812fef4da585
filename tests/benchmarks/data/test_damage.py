"""Damaged files are said or harmless: a dozen here, 500 in ``temporeal bench data``."""

import pytest

from temporeal_benchmarks.data.damage import damaged


@pytest.mark.slow
def test_damage_is_said_and_good_episodes_are_kept(tmp_path):
    outcome = damaged(tmp_path, 12)
    assert (outcome.wrong, outcome.lost, outcome.other) == (0, 0, [])
    assert outcome.found >= 8
