"""What every test process needs: few threads, no screen, reproducible examples."""

from __future__ import annotations

import copy
import gc
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

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
HERE = Path(__file__).parent
COMPILE_MOST = tuple(f"{name}.py" for name in (
    "sim/stl/monitoring/test_batch_monitor", "contract/test_every_backend", "sim/stl/semantics/test_compiled",
    "sim/systems/test_other_devices", "sim/identification/test_identify",
    "sim/identification/joints/test_identify_joints", "sim/identification/test_validation",
    "sim/physics/quadrotor/test_adjoint", "sim/stl/monitoring/test_stream"))
"""Files of tests that, where numba's cache is empty, compile the most: the first takes half a minute."""
WHOLLY_SLOW = re.compile(r"^pytestmark = pytest\.mark\.slow\b", re.M)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` does not import a file of which all tests are slow: some import Warp, which takes seconds."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return True if WHOLLY_SLOW.search(collection_path.read_text()) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Thousands of tests and modules are made, and none is garbage to look for; nor is most of what tests make, of
    which the default looks through every 700 objects: up to a tenth of the time of a test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order in which workers take files (``--no-loadscope-reorder``): those that compile the most, so that two
    workers do not compile the same at once, as they would for other files; then those with the most tests."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        rank = {HERE / name: place for place, name in enumerate(COMPILE_MOST)}
        tests = Counter(item.path for item in items)
        items.sort(key=lambda item: (rank.get(item.path, len(rank)), -tests[item.path]))


def _once(method: Callable[..., Any]) -> Callable[..., Any]:
    """``method`` of a source of settings, called once for each place and argument: then copies of what it said."""
    said: dict[tuple[str, ...], Any] = {}

    def remembered(self: Any, *asked: str, **named: str) -> Any:
        key = (self.provider, self.path, *asked, *named.values())
        if key not in said:
            said[key] = method(self, *asked, **named)
        return copy.deepcopy(said[key])

    return remembered


@pytest.fixture(scope="session", autouse=True)
def _settings_of_the_package_are_read_once() -> Iterator[None]:
    """Hydra looks for the package's files and parses them anew in each of hundreds of compositions. They do not change;
    a user's own files, which tests do change, come from sources of another class."""
    from hydra._internal.core_plugins.importlib_resources_config_source import ImportlibResourcesConfigSource as Source

    with pytest.MonkeyPatch.context() as patch:
        for name in ("available", "is_config", "is_group", "load_config"):
            patch.setattr(Source, name, _once(getattr(Source, name)))
        yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small networks: a second thread of torch only waits."""
    import torch  # not at the top: much is tested without

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
