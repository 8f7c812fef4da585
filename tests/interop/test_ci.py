"""What ``.ci/run`` makes of a machine with or without the second DDS vendor; its programs are stand-ins."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / ".ci" / "run"
KNOWN = 'case "$*" in *--simulate*) exit 0;; '  # apt-get would install them, and ...
APTS = {
    "installs": f'{KNOWN}*install*) touch "$THERE";; esac',
    "fails": f"{KNOWN}*install*) exit 100;; esac",
    "knows none": 'case "$*" in *install*) exit 100;; esac',
    "missing": "",
}


def ran(folder: Path, apt: str) -> tuple[int, str, list[str]]:
    """Status and errors of ``.ci/run``, and what it made, with whether the exchange was asked for."""
    for name in ("bash", "dirname", "env", "touch"):
        (folder / name).symlink_to(str(shutil.which(name)))
    programs = {"id": "echo 0", "dpkg": 'test -e "$THERE"', "apt-get": APTS[apt],
                "make": 'echo "$1 ${TEMPOREAL_REQUIRE_INTEROP:-0}" >>"$MADE"'}
    for name, text in programs.items():
        if text:
            (folder / name).write_text(f"#!{shutil.which('bash')}\n{text}\n")
            (folder / name).chmod(0o755)
    made = folder / "made.txt"
    made.touch()
    environment = {key: value for key, value in os.environ.items() if key != "TEMPOREAL_REQUIRE_INTEROP"}
    done = subprocess.run([str(folder / "bash"), str(RUN)], text=True, capture_output=True, timeout=30,
                          env={**environment, "PATH": str(folder), "MADE": str(made), "THERE": str(folder / "there")})
    return done.returncode, done.stderr, made.read_text().splitlines()


def targets(asked: int) -> list[str]:
    return [f"{target} {asked}" for target in ("install", "lint", "docs", "shape", "test", "slow")]


def test_what_can_be_installed_is_and_must_pass(tmp_path: Path) -> None:
    assert ran(tmp_path, "installs") == (0, "", targets(1))


def test_an_installation_that_fails_is_a_failure(tmp_path: Path) -> None:
    status, errors, made = ran(tmp_path, "fails")
    assert status == 1 and made == [] and "could be installed, and were not" in errors


@pytest.mark.parametrize("apt", ["knows none", "missing"])
def test_what_cannot_be_installed_is_left_out_and_that_is_the_last_word(apt: str, tmp_path: Path) -> None:
    status, errors, made = ran(tmp_path, apt)
    assert status == 0 and made == targets(0)
    assert "NOT TESTED: the exchange with a second DDS vendor" in errors.splitlines()[-1]
