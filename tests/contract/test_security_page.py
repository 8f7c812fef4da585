"""The page on security claims what tests show: one test for each sentence."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/security.md"
SHOWN = re.compile(r"^\| (.+?) \| `(tests/[\w/]+\.py)::(test_\w+)` \|$", re.MULTILINE)


def protected() -> str:
    """What the page says is protected."""
    return PAGE.read_text().partition("## What is protected")[2].partition("## What is not")[0]


CLAIMS = SHOWN.findall(protected())


def test_every_row_says_what_shows_it() -> None:
    rows = [line for line in protected().splitlines() if line.startswith("| ") and "what holds" not in line]
    assert len(rows) == len(CLAIMS) >= 40
    assert all(claim.endswith(".") and ". " not in claim for claim, _, _ in CLAIMS), "one sentence in a row"


def test_no_test_shows_two_sentences() -> None:
    names = [f"{file}::{test}" for _, file, test in CLAIMS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(("file", "test"), [(file, test) for _, file, test in CLAIMS], ids=[c[2] for c in CLAIMS])
def test_the_test_is_there_and_is_run(file: str, test: str) -> None:
    """And is not left for `make slow`."""
    tree = ast.parse((ROOT / file).read_text())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == test]
    assert len(found) == 1, f"{file} has no {test}"
    assert not any("mark.slow" in ast.unparse(each) for each in found[0].decorator_list)
