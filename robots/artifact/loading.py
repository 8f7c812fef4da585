"""Read an artifact's files; with a trusted key, only those that its owner signed."""

from __future__ import annotations

from pathlib import Path

from temporeal.robots.artifact.manifest import GOLDEN, MANIFEST, ArtifactError, Damaged, Manifest, decode
from temporeal.robots.artifact.signature import verify
from temporeal.robots.handed_over import files

LARGEST_NETWORK = files.LARGEST
LARGEST = {MANIFEST: 2 * files.MIB, GOLDEN: 256 * files.MIB}
"""Bytes of a file at most; of a network: :data:`LARGEST_NETWORK`."""


def read(folder: Path, name: str) -> bytes:
    """Content of one file of the artifact in ``folder``."""
    try:
        return files.read(folder / name, LARGEST.get(name, LARGEST_NETWORK), within=folder)
    except OSError as error:
        raise Damaged(f"{folder} is not an artifact: {name}: {error.strerror or error}") from error
    except files.Refused as error:
        raise Damaged(str(error)) from error


def load_manifest(folder: Path, trust: Path | None = None) -> Manifest:
    """The manifest of the artifact in ``folder``; with ``trust``, the file of a public key, it must be signed by that
    key."""
    data = read(folder, MANIFEST)
    if trust is not None:
        verify(folder, data, trust)  # the very bytes that are decoded next
    return decode(data)


def refuse_other_folder(path: Path) -> None:
    """Refuse to replace a folder that is there and is no artifact."""
    if not path.exists() and not path.is_symlink():
        return
    ours = path.is_dir() and not path.is_symlink() and ((path / MANIFEST).is_file() or not any(path.iterdir()))
    if not ours:
        raise ArtifactError(f"{path} exists and is not an artifact: choose another name or remove it")
