"""LeRobot itself reads our sets, and we its, where it is installed (python -m temporeal_benchmarks.peers lerobot)."""

import pytest

from temporeal_benchmarks.data.lerobot_interop import rows
from temporeal_benchmarks.peers.install import installed


@pytest.mark.slow
@pytest.mark.skipif(not installed("lerobot"), reason="LeRobot is not installed beside")
def test_both_read_what_the_other_wrote(tmp_path):
    found = rows(True, tmp_path / "out")
    assert len(found) == 8 and all(row.ok for row in found), found
