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


def revision() -> str:
    """Git revision of the project, ``-dirty`` with uncommitted changes, ``"unknown"`` outside a repository."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return "unknown"
    try:
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return described.stdout.strip() or "unknown"
