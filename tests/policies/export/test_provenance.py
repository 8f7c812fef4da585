"""The revision in results and artifacts: what a measurement writes does not make its own code look changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from temporeal.policies.export.provenance import revision


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b.c", *words], check=True,
                   capture_output=True)


def test_a_revision_is_dirty_by_what_runs_only(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("code.py", "README.md", "benchmarks/results/planar.json")}
    for file in files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("a")
    assert revision(tmp_path) == "unknown"
    git(tmp_path, "init", "-q")
    assert revision(tmp_path) == "unknown"  # no commit
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "a")
    clean = revision(tmp_path)
    assert len(clean) == 40
    files["README.md"].write_text("b")
    files["benchmarks/results/planar.json"].write_text("b")
    assert revision(tmp_path) == clean
    files["code.py"].write_text("b")
    assert revision(tmp_path) == f"{clean}-dirty"
