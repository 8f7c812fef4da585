"""Completion: the words that fit, and the bash script really completing."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from temporeal.policies.cli.main import main, verb_names
from temporeal.policies.cli.verbs.completion import SCRIPTS, complete


def test_first_word_is_a_verb() -> None:
    assert set(verb_names()) < set(complete([]))


def test_settings_follow_train() -> None:
    offered = complete(["train"])
    assert {"task=hover", "task=waypoints", "backend=mujoco", "seed=", "--help"} <= set(offered)


def test_benchmarks_follow_bench() -> None:
    from temporeal.policies.cli.verbs.bench import bench_names

    assert set(bench_names()) | {"--list", "--quick"} <= set(complete(["bench"]))


def test_nothing_follows_an_unknown_verb() -> None:
    assert complete(["nonsense"]) == []


@pytest.mark.parametrize("shell", SCRIPTS)
def test_script_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "temporeal completion --words" in script
    if shutil.which(shell):
        check = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, timeout=30)
        assert check.returncode == 0, check.stderr


def test_unknown_shell_names_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    told = capsys.readouterr().err
    assert all(shell in told for shell in SCRIPTS)


@pytest.mark.parametrize(
    ("line", "words", "offered"),
    [
        ("temporeal doc", ["temporeal", "doc"], ["doctor"]),
        ("temporeal train task=hov", ["temporeal", "train", "task", "=", "hov"], ["hover"]),
        ("temporeal bench --li", ["temporeal", "bench", "--li"], ["--list"]),
    ],
)
def test_bash_completes(line: str, words: list[str], offered: list[str]) -> None:
    """As readline calls it: the line split at `=`, the cursor at its end."""
    script = f"""
temporeal() {{ {sys.executable} -m temporeal.policies.cli.main "$@"; }}
{SCRIPTS["bash"]}
compopt() {{ :; }}
COMP_LINE={line!r}; COMP_POINT={len(line)}; COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}
_temporeal
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == offered, done.stderr
