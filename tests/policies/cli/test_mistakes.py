"""One-word mistakes are refused at once: nothing slow is imported for them, and what was meant comes first."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

MISTAKES = {
    "trian": "train", "train taks=hover": "task", "train task=hovr": "hover",
    "train task=hover backend=mujco": "mujoco", "train task=hover algo=pppo": "ppo",
    "train task=hover algo.learningrate=3": "learning_rate",
    "train task=reach robot=frnka": "franka", "view task=hovr": "hover", "train task=hover device=cud": "",
    "train task=stl/linear_reech": "stl/linear_reach", "deploy nowhere deploy.domian=3": "domain", "eval nowhere": "",
    "export nowhere": "", "falsify nowhere": "", "view --policy nowhere": "", "deploy nowhere": "",
    "monitor nowhere": "", "spec chek": "", "doctor --artefact x": "", "train hover": ""}
"""Words of a command, and the word that was meant; "" where none is close, or where it is no word of a list."""

SLOW = ("torch", "onnxruntime", "mujoco", "viser", "cma", "matplotlib", "numba", "cv2", "scipy")
SCRIPT = f"""\
import contextlib, io, json, sys, time

class Slow:
    def find_spec(self, name, path, target=None):
        if name in {SLOW!r}:
            raise SystemExit(f"{{name}} was imported")

from temporeal.policies.cli.main import main
sys.meta_path.insert(0, Slow())
for words in {list(MISTAKES)!r}:
    began, told = time.process_time(), io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told):
        status = main(words.split())
    print(json.dumps([words, status, told.getvalue(), time.process_time() - began]))
"""
LIST = re.compile(r"legal:|known:|is one of|verbs:")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, float]]:
    """Status, words and seconds of each mistake, in a process that imports nothing slow."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False,
                          cwd=Path(tmp_path_factory.mktemp("empty")))
    rows = map(json.loads, done.stdout.splitlines())
    return {words: (status, text, seconds) for words, status, text, seconds in rows}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_refused_at_once(words: str, told: dict[str, tuple[int, str, float]]) -> None:
    status, text, seconds = told[words]
    assert status == 2, text  # nothing slow was imported, else it were a line of another kind
    assert text.startswith("temporeal: ") and "was imported" not in text and seconds < 2.0


@pytest.mark.parametrize("words", [words for words, meant in MISTAKES.items() if meant])
def test_what_was_meant_comes_before_the_list(words: str, told: dict[str, tuple[int, str, float]]) -> None:
    text = told[words][1]
    listed = LIST.search(text)
    assert listed is not None and f"did you mean {MISTAKES[words]!r}?" in text[: listed.start()], text
