"""HDF5 files of somebody else's, read without following them anywhere.

An HDF5 file can link to other files, keep a dataset's bytes in another file, be a view on other files, and name a
filter that the library would load as a plug-in. It can state a size that its bytes do not have. Each is refused here
before anything is read. Object types (they can be references) are refused but for texts, and the bytes of pictures.

Damaged bytes can keep the library busy for ever, or end its process: :func:`tried` walks through a file in a process of
its own first.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.policies.data.episodes.interface import DataError
from temporeal.robots.handed_over.arrays import SHARE, UNPACKED
from temporeal.robots.handed_over.files import MIB, Refused, check
from temporeal.robots.handed_over.texts import from_json

LARGEST = 1 << 40  # bytes of a file: it is read array by array
TEXT = 16 * MIB  # bytes of an attribute; a MuJoCo model has about 60 kB
MEMBERS = 1_000_000  # of a group: episodes
DEPTH = 16  # levels of JSON in an attribute
LEAST_S, SLOWEST = 20.0, 10e6
"""Seconds of a trial at least, and bytes of a file that one more is given for. Chosen: a thousand demonstrations take
one second."""
FAULTS = (OSError, KeyError, RuntimeError, ValueError, TypeError)
"""What h5py makes of the library's errors."""
FILTERS = (1, 2, 3, 4, 5, 6, 32000)
"""deflate, shuffle, fletcher32, szip, nbit, scaleoffset (HDF5's own, H5Zpublic.h), and h5py's lzf."""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The root group of the file."""
    import h5py

    check(path, LARGEST)
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, KeyError, RuntimeError) as error:  # what h5py makes of the library's errors
        raise DataError(f"{path} is no HDF5 file that can be read: {str(error).strip(chr(39))}") from error


def names(group: Any) -> list[str]:
    """Names of the members of a group."""
    if len(group) > MEMBERS:
        raise Refused(f"{place(group)} has {len(group):,} members; at most {MEMBERS:,} are read")
    return list(group)


def member(group: Any, name: str) -> Any:
    """The member ``name`` of ``group``: in this file, by a hard link."""
    import h5py

    link = group.get(name, getlink=True)
    if link is None:
        raise DataError(f"{place(group)} has no {name!r}; it has: {', '.join(list(group)[:20]) or 'nothing'}")
    if not isinstance(link, h5py.HardLink):
        to = f"{link.filename}:{link.path}" if isinstance(link, h5py.ExternalLink) else link.path
        raise Refused(f"{place(group)}/{name} is a link to {to!r}: what is handed over names no place but its own")
    return group[name]


def group(parent: Any, name: str) -> Any:
    """The group ``name``."""
    import h5py

    found = member(parent, name)
    if not isinstance(found, h5py.Group):
        raise DataError(f"{place(parent)}/{name} is an array; a group is needed")
    return found


def array(parent: Any, name: str) -> np.ndarray:
    """The numbers of the array ``name``, all of them in memory."""
    found = checked(parent, name)
    if found.dtype.kind not in "biuf":
        raise DataError(f"{place(found)} is of {found.dtype}; numbers are needed")
    return np.asarray(found[()])


def texts(parent: Any, name: str) -> list[str]:
    """The texts of the array ``name``."""
    import h5py

    found = checked(parent, name)
    if found.dtype.kind != "S" and h5py.check_string_dtype(found.dtype) is None:
        raise DataError(f"{place(found)} is of {found.dtype}; texts are needed")
    return [each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each) for each in found[()].ravel()]


def blobs(parent: Any, name: str) -> list[np.ndarray]:
    """Rows of bytes: uint8 [T, bytes], or T rows that differ in length."""
    import h5py

    found = checked(parent, name)
    if h5py.check_vlen_dtype(found.dtype) not in (None, np.dtype("uint8")) or (
            h5py.check_vlen_dtype(found.dtype) is None and found.dtype != np.uint8):
        raise DataError(f"{place(found)} is of {found.dtype}; rows of bytes are needed")
    return list(found[()])


def checked(parent: Any, name: str) -> Any:
    """The array ``name``, not read yet: in this file, of a bounded size, without foreign filters."""
    import h5py

    found = member(parent, name)
    if not isinstance(found, h5py.Dataset):
        raise DataError(f"{place(parent)}/{name} is a group; an array is needed")
    if found.external or found.is_virtual:
        raise Refused(f"{place(found)} has its numbers in another file: what is handed over names no file but its own")
    if strange := filters(found) - set(FILTERS):
        raise Refused(f"{place(found)} is packed with filter {min(strange)}, which the library would load as a "
                      f"program; read are HDF5's own and lzf: {FILTERS}")
    size, most = found.size * found.dtype.itemsize, most_of(found)
    if size > most:
        raise Refused(f"{place(found)} unpacks to {size:,} bytes; at most {most:,} are read of a file of its size")
    return found


def filters(found: Any) -> set[int]:
    """The filters of an array."""
    plan = found.id.get_create_plist()
    return {int(plan.get_filter(k)[0]) for k in range(plan.get_nfilters())}


def most_of(found: Any) -> int:
    """Bytes that an array of this file may unpack to."""
    return int(max(UNPACKED, SHARE * Path(found.file.filename).stat().st_size))


def shape(parent: Any, name: str) -> tuple[tuple[int, ...], str]:
    """Shape and type of an array that is not read."""
    found = checked(parent, name)
    return tuple(found.shape), str(found.dtype)


def attribute(owner: Any, name: str, otherwise: Any = None) -> Any:
    """The attribute: a text, a number, or an array of numbers of at most :data:`TEXT` bytes."""
    if name not in owner.attrs:
        return otherwise
    if owner.attrs.get_id(name).get_storage_size() > TEXT:
        raise Refused(f"{place(owner)}: attribute {name!r} has more than {TEXT:,} bytes")
    value = owner.attrs[name]
    value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if isinstance(value, str) and len(value) > TEXT:
        raise Refused(f"{place(owner)}: attribute {name!r} has more than {TEXT:,} bytes")
    if isinstance(value, (str, int, float)):
        return value
    found = np.asarray(value)
    if found.dtype.kind not in "biufSU":
        raise Refused(f"{place(owner)}: attribute {name!r} is of {found.dtype}; a text or numbers are needed")
    return found.item() if found.ndim == 0 else found


def json_attribute(owner: Any, name: str) -> dict[str, Any]:
    """The JSON object in an attribute; empty: there is none."""
    text = attribute(owner, name)
    if text is None:
        return {}
    found = from_json(str(text), f"{place(owner)}: attribute {name!r}", DEPTH)
    if not isinstance(found, dict):
        raise DataError(f"{place(owner)}: attribute {name!r} is a JSON {type(found).__name__}; an object is needed")
    return found


def place(found: Any) -> str:
    """File and path of a group or an array."""
    return f"{found.file.filename}:{found.name}"


def tried(path: Path, least_s: float = LEAST_S) -> None:
    """Walk through the file in a process of its own: a :class:`Refused` where that does not end, or dies.

    Errors of the file itself are left to its reader, which names the episode.
    """
    seconds = least_s + check(path, LARGEST).stat().st_size / SLOWEST
    words = [sys.executable, "-m", __name__, str(path.absolute()), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    done = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False)
    if done.returncode:
        why = f"takes more than {seconds:.0f} s" if done.returncode == -signal.SIGALRM else (
            f"ends its process (status {done.returncode})")
        raise Refused(f"{path} is damaged: to walk through it {why}, tried in a process of its own")


def walk(path: Path) -> None:
    """Touch every object, attribute and index of the file, and what lies in its heaps."""

    def visit(name: str, found: Any) -> None:
        for attribute_name in found.attrs:
            with suppress(*FAULTS):
                found.attrs[attribute_name]
        with suppress(*FAULTS):
            if hasattr(found, "chunks") and not found.external and not found.is_virtual:
                found.id.get_storage_size()
                if found.chunks is not None:
                    found.id.get_num_chunks()
                if found.dtype.kind == "O" and filters(found) <= set(FILTERS):
                    found[()]

    with suppress(*FAULTS), opened(path) as file:
        visit("/", file)
        file.visititems(visit)


def main(words: list[str]) -> None:
    """The process of a trial: the file, and seconds."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, float(words[1]))
    walk(Path(words[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
