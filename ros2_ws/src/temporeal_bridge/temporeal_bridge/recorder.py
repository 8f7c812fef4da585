"""Records topics to an MCAP bag that ``ros2 bag`` and Foxglove read: incoming bytes as they are, definitions inside.

    python -m temporeal_bridge.recorder --namespace /cf1 --bag outputs/flight

What was received is on disk after a second. Told to end together with all others (ctrl-C at ``ros2 launch``), it
records until the guards have brought their robots to rest. When the disk is full, recording ends with a clear error and
a bag that is complete up to the last flush: some space is kept back for its index.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.rosbag2.errors import ReaderError
from rosbags.rosbag2.storage_mcap import McapReader

from temporeal_bridge.interface.interface import Interface
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.mission import MOVING, mission_status
from temporeal_bridge.process.children import LINGER_S, lives
from temporeal_bridge.process.command_line import parser, robot_of
from temporeal_bridge.process.node import run
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.transport import QOS, QoS, Received, Transport

FLUSH_S = 1.0
COMMANDED = "/guard/command"
STARTS = "mission/start"  # subscribed to last: who sees that it is heard may rely on all else being recorded
QUIET_S = 2.0  # without a command: in motion a guard sends them at 25 Hz at least, but for up to 1.5 s while it is
# blind and waits to see its quadrotor again (FLIES_S of ground)
CHUNK_BYTES = 900_000  # the writer itself starts a new chunk at 1 MiB, unguarded
BALLAST_BYTES = 1 << 20  # freed for the index when the disk is full: definitions are about 10 kB, a flush 100 bytes


class RecorderError(RuntimeError):
    """Recording ended early; the message says where what was recorded is."""


class WholeFile:
    """A binary file whose :meth:`write` writes everything or raises: no buffer that could fail later."""

    def __init__(self, path: Path) -> None:
        self.fd, self.position = os.open(path, os.O_WRONLY), path.stat().st_size
        os.lseek(self.fd, self.position, os.SEEK_SET)

    def write(self, data: Any) -> int:
        """All bytes of ``data``."""
        view = memoryview(data).cast("B")
        total = len(view)
        while len(view):
            done = os.write(self.fd, view)
            self.position += done
            view = view[done:]
        return total

    def tell(self) -> int:
        """Bytes written so far."""
        return self.position

    def cut(self, position: int) -> None:
        """Forget everything from ``position`` on."""
        os.ftruncate(self.fd, position)
        os.lseek(self.fd, position, os.SEEK_SET)
        self.position = position

    def close(self) -> None:
        """Close."""
        os.close(self.fd)


class Bag:
    """An MCAP bag in folder ``path`` that is written chunk by chunk."""

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise RecorderError(f"{path} is there already; a bag is never overwritten")
        self.path = path
        self.writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
        try:
            self._begin()
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            raise RecorderError(f"{path} cannot be begun: {error.strerror}") from error
        self.connections: dict[tuple[str, str], Any] = {}
        self.closed = False

    def _begin(self) -> None:
        self.writer.open()
        storage: Any = self.writer.storage
        storage.bio.close()
        storage.bio = self.file = WholeFile(storage.path)  # unbuffered: nothing fails later than it is written
        with suppress(OSError):  # a file system without locks
            fcntl.flock(self.file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # while it is written, see :func:`written`
        self.storage = storage
        self.ballast = self.path / ".reserve"
        self.ballast.write_bytes(b"\0" * BALLAST_BYTES)

    def add(self, topic: str, type: str) -> None:
        """Declare a topic."""
        self.connections[topic, type] = self.writer.add_connection(topic, type, typestore=messages.store())

    def write(self, topic: str, type: str, stamp_ns: int, data: bytes) -> None:
        """Keep one message; it is on disk after the next :meth:`flush`."""
        if self.storage.chunk.bio.tell() + len(data) > CHUNK_BYTES:
            self.flush()
        keep = partial(self.writer.write, self.connections[topic, type], stamp_ns, data)
        if len(data) > CHUNK_BYTES:  # a picture
            self._guarded(keep)
        else:
            keep()

    def flush(self) -> None:
        """Write what is pending as one chunk. A full disk ends the recording; the bag stays readable."""
        if self.storage.chunk.msgs:
            self._guarded(self.storage.close_chunk)

    def _guarded(self, write: Callable[[], None]) -> None:
        """Do what writes a chunk."""
        good, chunks = self.file.tell(), len(self.storage.chunks)
        stats = dict(self.storage.channel_stats)
        pending = {cid: len(rows) for cid, rows in self.storage.chunk.msgs.items()}
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            self._give_up(good, chunks, {c: n - pending.get(c, 0) for c, n in stats.items()}, error)

    def _give_up(self, good: int, chunks: int, stats: dict[int, int], error: OSError) -> None:
        """Cut off the torn chunk, close the bag with the space kept back, and say so."""
        self.file.cut(good)
        del self.storage.chunks[chunks:]
        self.storage.channel_stats = stats
        self.writer.counts = dict(stats)
        self.storage.chunk = type(self.storage.chunk)(2**63 - 1, 0, type(self.storage.chunk.bio)(), {})
        self.close()
        raise RecorderError(
            f"recording stopped: {error.strerror} while writing {self.path}; "
            f"the {sum(stats.values())} messages up to the last flush are kept and readable") from error

    def close(self) -> None:
        """Finish the bag: index, footer, metadata."""
        if self.closed:
            return
        self.closed = True
        self.ballast.unlink(missing_ok=True)
        self.writer.close()


def rescue(path: Path) -> str:
    """What became of the bag of a recorder that is no more, in words; empty where the bag is whole or was not begun."""
    file = path / f"{path.name}.mcap"
    if (path / "metadata.yaml").exists() or not file.exists():
        return ""
    if written(file):
        return f"; {path} is another recorder's, which is writing it"
    try:
        return f"; the {recover(path)} messages that were on disk are kept in {path}"
    except (OSError, RecorderError, ReaderError) as error:
        return f"; {file} is without its index ({error}): `mcap recover` rebuilds it"


def written(file: Path) -> bool:
    """Whether the recorder that opened this file lives: only then has somebody locked it."""
    with file.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
    return False


def recover(path: Path) -> int:
    """Make a bag whose recorder was killed readable again; how many messages it holds.

    What was flushed is there, but no index: it is cut after the last whole record and written anew. The types of its
    messages must be known (:func:`temporeal_bridge.interface.loading.load_interface`).
    """
    file = path / f"{path.name}.mcap"
    cut_and_close(file)
    reader = McapReader(file)
    reader.open()
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        again, count = Bag(Path(folder) / path.name), 0
        for connection in reader.connections:
            again.add(connection.topic, connection.msgtype)
        for connection, stamp_ns, data in reader.messages_scan(reader.connections):
            again.write(connection.topic, connection.msgtype, stamp_ns, data)
            count += 1
        again.flush()
        again.close()
        reader.close()
        path.rename(Path(folder) / "killed")
        again.path.rename(path)
    return count


MAGIC = b"\x89MCAP0\r\n"
DATA_END, FOOTER = b"\x0f" + struct.pack("<QI", 4, 0), b"\x02" + struct.pack("<QQQI", 20, 0, 0, 0)
"""The two last records of a file without an index (mcap.dev/spec): no checksum, no summary."""


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


class Recorder:
    """Subscribes to topics and writes what comes, as it comes. ``guard``: process of the only one that it is for."""

    def __init__(
        self, transport: Transport, bag: Bag, topics: Sequence[tuple[str, str, QoS]], guard: int | None = None
    ) -> None:
        self.transport, self.bag, self.guard = transport, bag, guard
        self.counts: dict[str, int] = {}
        for topic, kind, qos in sorted(topics, key=lambda row: row[0].endswith(STARTS)):
            endpoint = transport.subscribe(topic, kind, qos, self._take)
            bag.add(endpoint.topic, kind)
            self.counts[endpoint.topic] = 0
        self.next_flush = transport.monotonic() + FLUSH_S
        self.modes: dict[str, str] = {}  # of the guards, by namespace
        self.commanded: dict[str, float] = {}  # when each of them last sent something
        self.asked = inf  # when this was told to end

    def _take(self, received: Received) -> None:
        self.bag.write(received.topic, received.type, self.transport.now(), received.data)
        self.counts[received.topic] += 1
        if received.topic.endswith(COMMANDED):
            self.commanded[received.topic.removesuffix(COMMANDED)] = self.transport.monotonic()
        elif received.type == MISSION and received.topic.endswith("/mission"):
            said = mission_status(received)
            if said is not None:  # what cannot be read is recorded all the same
                self.modes[received.topic.removesuffix("/mission")] = said.mode

    def may_end(self) -> bool:
        """Told to end: first the guards, which were told, too, have come to rest, or are silent. One that was killed in
        flight is silent, whatever those of other robots still say. Where its own guard is no more, what goes on is
        somebody else's flight."""
        now = self.transport.monotonic()
        self.asked = min(self.asked, now)
        moving = any(mode in MOVING and now - self.commanded.get(robot, -inf) <= QUIET_S
                     for robot, mode in self.modes.items())
        longest = LINGER_S if self.guard is None or lives(self.guard) else QUIET_S
        return not moving or now - self.asked > longest

    def deadline(self) -> float:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return self.next_flush

    def step(self) -> None:
        """Flush once a second."""
        now = self.transport.monotonic()
        if now >= self.next_flush:
            self.next_flush = now + FLUSH_S
            self.bag.flush()

    def close(self) -> None:
        """Finish the bag."""
        if not self.bag.closed:
            self.bag.flush()
            self.bag.close()

    def summary(self) -> dict[str, Any]:
        """See :class:`temporeal_bridge.process.node.Node`."""
        return {"node": "recorder", "bag": self.bag.path, "messages": self.counts}


MISSION = "std_msgs/msg/Header"
PICTURES = QoS(reliable=False, depth=30)  # each has a megabyte: a second of a camera, for when the disk is slow
RARE = QoS(depth=1000)  # what is said once must not get lost, though others talk much
KEPT = QoS(depth=1000, latched=True)  # ... and was perhaps said before: a depth of 1 would keep the last mode only
OURS = (
    ("policy/step", "std_msgs/msg/Float64MultiArray", QOS["deep"]),
    ("policy/chunk", "std_msgs/msg/Float64MultiArray", QOS["deep"]),
    ("policy/event", "std_msgs/msg/String", RARE),
    ("guard/command", "std_msgs/msg/Float64MultiArray", QOS["deep"]),
    ("guard/swap", "std_msgs/msg/Float64MultiArray", QOS["deep"]),
    ("guard/event", "std_msgs/msg/String", RARE),
    ("guard/artifact", "std_msgs/msg/String", KEPT),
    ("mission", MISSION, KEPT),
    # what others say to the nodes: best effort, which meets every publisher
    (STARTS, "std_msgs/msg/UInt64", QOS["deep"]),
    ("mission/stop", "std_msgs/msg/Empty", QOS["deep"]),
    ("mission/reset", "std_msgs/msg/Empty", QOS["deep"]),
    ("estop", "std_msgs/msg/Bool", QOS["deep"]),
    ("monitor/robustness", "std_msgs/msg/Float64MultiArray", QOS["deep"]),
    ("monitor/verdict", "std_msgs/msg/String", KEPT),
)
"""Topics of the nodes themselves, in the robot's namespace."""


def robot_topics(interface: Interface, namespaces: Sequence[str]) -> list[tuple[str, str, QoS]]:
    """Everything that a flight of robots in ``namespaces`` says: states, pictures, the autopilot's status and orders,
    commands with their companions, what was proposed and why, mission, stops, monitor, diagnostics."""
    deep = QOS["deep"]
    rows = [(row.topic, row.type, KEPT if row.qos == "latched" else deep) for row in interface.states]
    rows += [(row.topic, row.type, PICTURES) for row in interface.pictures]
    if interface.autopilot is not None:
        pilot = interface.autopilot
        rows += [(row.topic, row.type, deep) for row in (pilot.status, pilot.orders) if row is not None]
    rows += [(row.topic, row.type, deep) for command in interface.commands.values()
             for row in (*command.also, command)]
    out = {("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray"): deep}
    for namespace in namespaces:
        base = f"/{namespace.strip('/')}".rstrip("/")
        # a name that begins with / is the same for all robots
        out |= {(name if name.startswith("/") else f"{base}/{name}", kind): qos for name, kind, qos in (*rows, *OURS)}
    return [(name, kind, qos) for (name, kind), qos in out.items()]


def make(args: argparse.Namespace, transport: Transport) -> Recorder:
    """The node from its command line."""
    interface = load_interface(robot_of(args), args.interface, args.signals)
    return Recorder(transport, Bag(args.bag), robot_topics(interface, args.of or [transport.namespace]), args.guard)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser("recorder", "Record the topics of one robot, or of several, to an MCAP bag.")
    options.add_argument("--bag", type=Path, required=True, help="folder of the new bag")
    options.add_argument("--of", action="append", metavar="NAMESPACE",
                         help="namespace to record (repeatable; default: the own one)")
    options.add_argument("--guard", type=int, metavar="PID",
                         help="process of the only guard that it is for: told to end, it waits for no other")
    return run(options, arguments, make, "recorder.json")


if __name__ == "__main__":
    sys.exit(main())
