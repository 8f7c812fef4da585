"""Nothing that runs a policy calls home: a robot's computer makes no connection that nobody asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TASKS = "import os; print(len(os.listdir('/proc/self/task')))"


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads as Linux shows them")
def test_the_runtime_of_artifacts_starts_no_thread_of_its_own_and_writes_no_file(tmp_path: Path) -> None:
    # what silences it besides: a test's or a CI's environment
    env = {"PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
           "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path)}

    def threads(imported: str, **more: str) -> int:
        done = subprocess.run([sys.executable, "-c", f"{imported}; {TASKS}"], env={**env, **more}, capture_output=True,
                              text=True, check=True, timeout=60)
        return int(done.stdout)

    bare = threads("import numpy")
    assert threads("import temporeal.robots.artifact.runtime") == bare and not list(tmp_path.iterdir())
    # so the count shows it: not before 1.29, and not where the user wants it
    version = tuple(map(int, subprocess.run(
        [sys.executable, "-c", "import onnxruntime; print(onnxruntime.__version__)"], env={**env, "CI": "1"},
        capture_output=True, text=True, check=True).stdout.split(".")[:2]))
    assert (threads("import temporeal.robots.artifact.runtime", ORT_DISABLE_TELEMETRY="0") > bare) == (
        version >= (1, 29)
    )
