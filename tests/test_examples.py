"""The examples run as they stand. Trainings are cut to seconds: what they reach is not judged here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.examples import thinned

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
QUICK = {"formula_on_a_log.py": (), "formulas.ipynb": ()}
SLOW = {"train_and_look.py": ("4",), "own_robot.py": ("4",), "own_task.py": ("4",),
        "stable_baselines3_hover.py": ("4096",), "train_and_look.ipynb": ()}
AFTER = {"artifact_in_a_loop.py": "train_and_look.py"}
"""What needs the output of another one."""


def test_every_example_is_run_by_a_test() -> None:
    there = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    assert there == {*QUICK, *SLOW, *AFTER}


def test_the_page_on_tasks_shows_the_example() -> None:
    page = (ROOT / "docs" / "how-to" / "adding-a-task.md").read_text(encoding="utf-8")
    shown = max(re.findall(r"```python\n(.*?)```", page, re.S), key=len).strip()
    assert shown in (EXAMPLES / "own_task.py").read_text(encoding="utf-8")


def run(name: str, folder: Path, *arguments: str) -> str:
    """What an example prints, run from an empty folder. Of a notebook its cells, one after another."""
    path = EXAMPLES / name
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        path = folder / f"{path.stem}_cells.py"
        path.write_text("\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"))
    done = subprocess.run([sys.executable, str(path), *arguments], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "SECONDS": "4", "MPLBACKEND": "Agg"}, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", thinned(QUICK, keep=["formula_on_a_log.py"]))
def test_quick(name: str, tmp_path: Path) -> None:
    assert "robustness" in run(name, tmp_path, *QUICK[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_with_training(name: str, tmp_path: Path) -> None:
    run(name, tmp_path, *SLOW[name])
    for after in (other for other, first in AFTER.items() if first == name):
        assert "motor_cmd" in run(after, tmp_path)
