"""The golden bytes are what Fast CDR writes: the program that wrote them is built and asked again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "fastcdr_messages.json").read_text())["messages"]


def test_fast_cdr_writes_the_golden_bytes(build: Callable[[str], Path]) -> None:
    done = subprocess.run([str(build("golden_cdr"))], capture_output=True, text=True, check=True)
    written = dict(line.split() for line in done.stdout.splitlines())
    assert written == {row["type"]: row["cdr_hex"] for row in GOLDEN}
