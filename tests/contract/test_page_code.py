"""The Python of pages that no other test runs: it runs as it stands, but for the lengths of trainings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
SHORTER = (('"algo.max_seconds": 60', '"algo.max_seconds": 1, "algo.rollout_steps": 4, "num_worlds": 64'),
           ("episodes=200", "episodes=8"))
PAGES = (
    pytest.param("start/python.md", marks=pytest.mark.slow), "start/formulas.md", "reference/api/environment.md",
    "reference/api/task.md", "reference/api/robots.md", "reference/api/formulas.md", "reference/stl-decomposition.md")


def blocks(page: str) -> list[str]:
    """Its Python, with shorter trainings."""
    found = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)
    assert found
    for long, short in SHORTER:
        found = [block.replace(long, short) for block in found]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    for block in blocks(page):
        exec(block, scope)


def test_the_readme_shows_what_the_page_on_python_shows() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", (DOCS.parent / "README.md").read_text(encoding="utf-8"), re.S)
    page = " ".join(blocks("start/python.md"))
    for long, short in SHORTER:
        shown = shown.replace(long, short)
    assert len(shown.splitlines()) <= 12
    for line in shown.splitlines()[:6]:
        assert line in page


def test_the_formula_of_the_page_for_logs_is_judged_so() -> None:
    scope: dict[str, Any] = {}
    for block in blocks("start/formulas.md"):
        exec(block, scope)
    assert scope["values"][0] == pytest.approx(np.linspace(1, 0.5, 9)[8] - 0.3)
