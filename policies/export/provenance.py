"""What an artifact was made with: package versions and the git revision."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = ("torch", "numpy", "onnx", "onnxruntime", "numba", "mujoco")


def versions() -> dict[str, str]:
    """Version of Python and of each installed package of :data:`PACKAGES`."""
    out = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            out[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return out


ROOT = Path(__file__).resolve().parents[2]
WRITTEN = ("benchmarks/results", "docs", "*.md")
"""What a measurement may change, and what changes nothing that runs."""


def revision(root: Path = ROOT) -> str:
    """Git revision of the project, ``-dirty`` with uncommitted changes of what runs (:data:`WRITTEN` is left out),
    ``"unknown"`` outside a repository."""
    if not (root / ".git").exists():
        return "unknown"
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".",
                       *(f":(exclude){path}" for path in WRITTEN))
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}-dirty" if changed else commit


def _git(root: Path, *words: str) -> str:
    """What ``git`` prints about the repository in ``root``."""
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10,
                          check=True).stdout.strip()
