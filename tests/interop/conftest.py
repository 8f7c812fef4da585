"""Programs in C++ against Debian's Fast DDS and Fast CDR: built once per test process, nothing generated is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PACKAGES = "g++ libfastrtps-dev libfastcdr-dev"
# the second is of Fast DDS 2 only: 3 renamed it
HEADERS = ("fastdds/dds/domain/DomainParticipant.hpp", "fastrtps/utils/IPLocator.h", "fastcdr/Cdr.h")
REQUIRE = "TEMPOREAL_REQUIRE_INTEROP"  # set by .ci/run: there, what is missing is a failure


def missing() -> str:
    """What is not installed: the compiler, or headers of Fast DDS 2 and Fast CDR. Empty: nothing."""
    if shutil.which("g++") is None:
        return "no g++"
    asked = "".join(f"#if !__has_include(<{name}>)\n#error no {name}\n#endif\n" for name in HEADERS)
    done = subprocess.run(["g++", "-E", "-x", "c++", "-"], input=asked, capture_output=True, text=True)
    return ", ".join(line.partition("#error ")[2] for line in done.stderr.splitlines() if "error: #error" in line)


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``build("name")``: the program of ``name.cpp``, compiled (5 s) the first time."""
    lacks = missing()
    if lacks:
        told = f"needs Fast DDS 2 from Debian or Ubuntu ({lacks}): apt-get install {PACKAGES}"
        if os.environ.get(REQUIRE):
            pytest.fail(f"{REQUIRE} is set, and this {told}", pytrace=False)
        pytest.skip(told)
    folder = tmp_path_factory.mktemp("interop")

    def built(name: str) -> Path:
        program = folder / name
        if not program.exists():
            done = subprocess.run(
                ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-o", str(program), str(HERE / f"{name}.cpp"),
                 "-lfastrtps", "-lfastcdr"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        return program

    return built
