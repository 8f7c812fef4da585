"""Makes bags readable whose recorder was killed: all flushed messages are there, but no index."""

from __future__ import annotations

import fcntl
import struct
import tempfile
from pathlib import Path

from rosbags.rosbag2.errors import ReaderError
from rosbags.rosbag2.storage_mcap import McapReader

from temporeal_bridge.recording.bag_writer import Bag, RecorderError, is_latched

MAGIC = b"\x89MCAP0\r\n"
DATA_END, FOOTER = b"\x0f" + struct.pack("<QI", 4, 0), b"\x02" + struct.pack("<QQQI", 20, 0, 0, 0)
"""The two last records of a file without an index (mcap.dev/spec): no checksum, no summary."""


def rescue(path: Path) -> str:
    """Recover the bag of a recorder that ended; what became of it, in words. Empty: it is whole or was not begun."""
    file = path / f"{path.name}.mcap"
    if (path / "metadata.yaml").exists() or not file.exists():
        return ""
    if is_written(file):
        return f"; {path} is being written by another recorder"
    try:
        return f"; the {recover(path)} messages that were on disk are kept in {path}"
    except (OSError, RecorderError, ReaderError) as error:
        return f"; {file} is without its index ({error}): `mcap recover` rebuilds it"


def is_written(file: Path) -> bool:
    """Whether the recorder that opened this file lives: it holds a lock on the file."""
    with file.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
    return False


def recover(path: Path) -> int:
    """Cut the bag after its last whole record and write it anew; the number of its messages.

    The types of its messages must be known (:func:`temporeal_bridge.interface.loading.load_interface`).
    """
    file = path / f"{path.name}.mcap"
    cut_and_close(file)
    reader = McapReader(file)
    reader.open()
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        again, count = Bag(Path(folder) / path.name), 0
        for connection in reader.connections:
            again.add(connection.topic, connection.msgtype, is_latched(connection))
        for connection, stamp_ns, data in reader.messages_scan(reader.connections):
            again.write(connection.topic, connection.msgtype, stamp_ns, data)
            count += 1
        again.flush()
        again.close()
        reader.close()
        path.rename(Path(folder) / "killed")
        again.path.rename(path)
    return count


def cut_and_close(file: Path) -> None:
    """Cut an MCAP file after its last whole record and end it properly."""
    size, good = file.stat().st_size, len(MAGIC)
    with file.open("r+b") as mcap:
        while good + 9 <= size:
            mcap.seek(good + 1)
            after = good + 9 + struct.unpack("<Q", mcap.read(8))[0]
            if after > size:
                break
            good = after
        mcap.truncate(good)
        mcap.seek(good)
        mcap.write(DATA_END + FOOTER + MAGIC)
