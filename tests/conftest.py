"""What every test process needs: few threads, no screen, reproducible examples."""

from __future__ import annotations

import os
from collections.abc import Iterator

# before torch and numpy start their threads: test processes run side by side
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
from hypothesis import settings  # after the environment is set
from tests.examples import FULL

# on CI the same examples every time, and no deadline: a shared machine may stall. `make test` takes a quarter of the
# examples, `make slow` all (tests/examples.py)
for profile, count in (("quick", FULL // 4), ("full", FULL)):
    settings.register_profile(profile, max_examples=count, deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("quick")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small networks: a second thread of torch only waits."""
    import torch  # not at the top: much is tested without

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
