"""Checkpoints: written whole or not at all, checked when read, and never executed.

A file is a ``torch.save`` archive followed by its SHA-256, so that a truncated or altered file is recognized. It is
read with ``weights_only=True``: it can hold tensors, numbers, strings, lists and dictionaries, and no code.
A folder holds ``<iteration>.rank<i>of<n>.pt``, the last two iterations.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from temporeal.robots.atomic_files import write_whole
from temporeal.robots.handed_over import files
from temporeal.robots.handed_over.arrays import archive

DIGEST = 32  # bytes of SHA-256
LARGEST = 1 << 36  # bytes of a checkpoint, which has the state of all worlds
KEPT = 2  # iterations
NAME = re.compile(r"(\d{8})\.rank(\d+)of(\d+)\.pt")
PLAIN = (torch.Tensor, int, float, str, bool, bytes, type(None))


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, found or read."""


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Write ``state`` to ``path`` at once: after a kill at any moment the file is the old one or the new one."""
    _require_plain(state, "state")
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    payload = buffer.getbuffer()
    try:
        write_whole(path, payload, hashlib.sha256(payload).digest())
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {path} cannot be written: {error.strerror}; what was there before is untouched") from error


def load(path: Path, map_location: str | torch.device = "cpu") -> dict[str, Any]:
    """The state in ``path``, if the file is intact."""
    try:
        raw = files.read(path, LARGEST, within=path.parent)
    except (OSError, files.Refused) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error}") from error
    payload, digest = raw[:-DIGEST], raw[-DIGEST:]
    if len(raw) <= DIGEST or hashlib.sha256(payload).digest() != digest:
        raise CheckpointError(
            f"checkpoint {path} is corrupt or cut short ({len(raw)} bytes do not end in their SHA-256){_others(path)}")
    try:
        return _unpacked(payload, map_location)
    except Exception as error:  # torch's parser of foreign bytes raises any exception
        raise CheckpointError(f"checkpoint {path} holds no state of a training: {error}{_others(path)}") from error


def _unpacked(payload: bytes, map_location: str | torch.device) -> dict[str, Any]:
    """The state in an archive of ``torch.save``, which packs nothing: it takes as much memory as the file has bytes."""
    with archive(payload, "the archive") as members:
        if sum(entry.file_size for entry in members.infolist()) > len(payload):
            raise files.Refused("it is packed, and torch.save packs nothing")
    state = torch.load(io.BytesIO(payload), map_location=map_location, weights_only=True)
    if not isinstance(state, dict):
        raise files.Refused(f"it holds a {type(state).__name__}, a dictionary is needed")
    return state


def require_held(path: object, widths: Sequence[int], weights: Mapping[str, Any]) -> None:
    """Refuse layers of ``widths`` whose ``weights`` a checkpoint cannot hold, before their memory is taken."""
    held = sum(value.numel() for value in weights.values() if isinstance(value, torch.Tensor))
    wrong = [w for w in widths if type(w) is not int or not 1 <= w <= held]
    if wrong or any(a * b > held for a, b in itertools.pairwise(widths)):
        raise CheckpointError(f"checkpoint {path} states layers of {list(widths)} numbers, and its {held:,} weights "
                              "are not theirs")


def file_of(folder: Path, iteration: int, rank: int, ranks: int) -> Path:
    """Path of one process' checkpoint."""
    return folder / f"{iteration:08d}.rank{rank}of{ranks}.pt"


def iterations(folder: Path, ranks: int) -> list[int]:
    """The iterations with files of all ``ranks`` processes, ascending.

    A kill between the writes of two processes leaves one iteration incomplete; then the one before it is the last.
    """
    found: dict[int, set[int]] = {}
    sizes = set()
    for match in filter(None, (NAME.fullmatch(p.name) for p in folder.glob("*.pt"))):
        iteration, rank, size = (int(g) for g in match.groups())
        sizes.add(size)
        if size == ranks:
            found.setdefault(iteration, set()).add(rank)
    if sizes and ranks not in sizes:
        raise CheckpointError(
            f"{folder} was written by {sorted(sizes)} processes, this run has {ranks}: each process' worlds and random "
            "numbers are in its own file, so resume with the same number")
    return sorted(i for i, have in found.items() if len(have) == ranks)


def latest(folder: Path, rank: int, ranks: int) -> Path:
    """The file to resume from."""
    complete = iterations(folder, ranks)
    if not complete:
        raise CheckpointError(f"{folder} holds no checkpoint: there is no policy to take, and nothing to resume; train "
                              "first, or start anew")
    return file_of(folder, complete[-1], rank, ranks)


def require_same(
    path: Path, what: str, was: Mapping[str, Any], now: Mapping[str, Any], may_change: Sequence[str]
) -> None:
    """Raise :class:`CheckpointError` if ``what`` differs from the checkpoint ``path``, except in what ``may_change``.
    """
    keys = [key for key in {**was, **now} if key not in may_change]
    if different := "; ".join(f"{k} {was.get(k)!r} -> {now.get(k)!r}" for k in keys if was.get(k) != now.get(k)):
        raise CheckpointError(f"{path} cannot be resumed: the {what} differs ({different}); "
                              f"only {', '.join(may_change)} may change")


def prune(folder: Path, rank: int, ranks: int) -> None:
    """Remove this process' files except the last ones, and files that a kill left half-written."""
    for unfinished in folder.glob(f".*.rank{rank}of{ranks}.pt.*"):
        unfinished.unlink(missing_ok=True)
    kept = iterations(folder, ranks)[-KEPT:]
    # by age and not by completeness: another process may have removed its file of an old iteration already
    for path in folder.glob(f"*.rank{rank}of{ranks}.pt"):
        match = NAME.fullmatch(path.name)
        if match and kept and int(match[1]) < kept[0]:
            path.unlink(missing_ok=True)


def _others(path: Path) -> str:
    """Advice on a bad file, for the message: nothing is done silently."""
    match = NAME.fullmatch(path.name)
    if match is None:
        return ""
    before = [p for p in path.parent.glob(f"*.rank{match[2]}of{match[3]}.pt") if p.name < path.name]
    if not before:
        return ("; there is no earlier one. What to do: copy the run again, or train anew (temporeal train ... "
                "--overwrite); an artifact that was exported from it still flies")
    return (f"; the one before it is {max(before)}. What to do: delete the bad file, and the one before it counts; or "
            f"continue the training from that, resume={max(before)}")


def _require_plain(value: Any, where: str) -> None:
    """Refuse state that ``weights_only`` loading would refuse, while the run still lives and nothing is lost."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _require_plain(item, f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _require_plain(item, f"{where}[{i}]")
    elif not isinstance(value, PLAIN):
        raise CheckpointError(
            f"{where} is a {type(value).__name__}: a checkpoint holds only tensors, numbers, strings, lists and dicts")
