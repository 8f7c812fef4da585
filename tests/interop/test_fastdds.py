"""Another DDS vendor as the other side: Fast DDS, which most ROS 2 robots and PX4's agent run, on the loopback.

`fastdds_peer.cpp` passes payloads through unread, so what it hears and what comes back are compared byte by byte.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.examples import thinned

import temporeal_bridge
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.dds import DdsTransport, free_domain
from temporeal_bridge.transports.transport import QOS, Received, require_peer

WITHIN_S = 20.0  # generous: discovery takes a tenth of a second on an idle machine
ROOT = Path(__file__).parents[2]
REAL, FAST_CDR = (json.loads((ROOT / "tests/golden" / f"{writer}_messages.json").read_text())["messages"]
                  for writer in ("ros2", "fastcdr"))
INTERFACES = [part for file in sorted(ROOT.glob("robots/*/ros.yaml"))
              for part in yaml.safe_load(file.read_text())["interfaces"].values()]
WRITTEN = re.compile(r'(?<!record\()(?<!make\()"([a-z]\w*/msg/[A-Z]\w*)"')  # a type in Python; not where a part is made
IMAGE = "sensor_msgs/msg/Image"
STRING = "std_msgs/msg/String"


def picture() -> bytes:
    """640x480 rgb8, every byte drawn: 921,648 bytes and more than a dozen fragments."""
    data = np.random.default_rng(0).integers(0, 256, 480 * 640 * 3, dtype=np.uint8)
    return messages.encode(IMAGE, messages.record(IMAGE)(
        header=messages.header(1_700_000_000_000_000_001, "cam"), height=480, width=640, encoding="rgb8",
        is_bigendian=0, step=1920, data=data))


def types_in(tree: Any) -> Iterator[str]:
    """The message types of every topic in a part of a ``ros.yaml``: states, commands, their companions, autopilots."""
    if isinstance(tree, dict) and isinstance(tree.get("type"), str):
        yield tree["type"]
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from types_in(part)


def spoken() -> set[str]:
    """The message types of every topic of the robots' interfaces, and of the bridge's nodes, codecs and graph."""
    sources = Path(temporeal_bridge.__file__).parent.glob("*.py")
    return {*types_in(INTERFACES), *(name for file in sources for name in WRITTEN.findall(file.read_text()))}


SPOKEN = spoken()
for each in INTERFACES:
    messages.define(each["definitions"])
# what a real ROS 2 wrote; of types that it did not, what Fast CDR wrote; and a camera's picture
SENT = {row["type"]: (row["type"], bytes.fromhex(row["cdr_hex"])) for row in (*FAST_CDR, *REAL)
        if row["type"] in SPOKEN or row in REAL}
SENT["Image640x480"] = (IMAGE, picture())


def on_the_wire(data: bytes) -> bytes:
    """``data`` as a reader gets it: filled up with zeros to a multiple of 4, as submessages of RTPS are (DDSI-RTPS
    9.4.1). Cyclone DDS and Fast DDS both deliver the filling; who decodes does not read it.
    """
    return data + bytes(-len(data) % 4)


def shown(data: bytes) -> str:
    """Bytes as the peer tells them: in hexadecimal; of more than 1024 the number and the 64-bit FNV-1a hash."""
    if len(data) <= 1024:
        return data.hex()
    value = 14695981039346656037
    for byte in data:
        value = ((value ^ byte) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return f"{len(data)}:{value:x}"


class Peer:
    """The Fast DDS process, and the lines it has told so far."""

    def __init__(self, program: Path, domain: int) -> None:
        self.process = subprocess.Popen([str(program), str(domain)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, bufsize=1)
        self.told: list[str] = []
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            self.told.append(line.rstrip("\n"))

    def do(self, *words: str) -> None:
        """Give a command, and wait until it is done."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(words) + "\n")
        self.until(lambda: f"ready {words[0]} {words[1]}" in self.told)

    def until(self, happened: Callable[[], bool], meanwhile: Callable[[], Any] = lambda: time.sleep(0.005)) -> None:
        """Wait for something, within the time."""
        end = time.monotonic() + WITHIN_S
        while not happened():
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            assert time.monotonic() < end, f"nothing within {WITHIN_S:g} s; the peer told: {self.told[-20:]}"
            meanwhile()

    def heard(self, topic: str) -> list[str]:
        """What it heard on the topic."""
        return [line.split(" ", 2)[2] for line in self.told if line.startswith(f"heard {topic} ")]

    def close(self) -> None:
        """End of its input: it leaves the domain in order, status 0."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = self.process.wait(WITHIN_S)
        self.thread.join()
        assert status == 0


@pytest.fixture(scope="module")
def domain() -> int:
    return free_domain()


@pytest.fixture(scope="module")
def peer(build: Callable[[str], Path], domain: int) -> Iterator[Peer]:
    made = Peer(build("fastdds_peer"), domain)
    yield made
    made.close()


@pytest.fixture(scope="module")
def dds(domain: int) -> Iterator[DdsTransport]:
    transport = DdsTransport("robot", "/cf1", domain=domain, loopback=True)
    yield transport
    transport.close()


def user_data(name: str) -> str:
    return f"typehash={messages.type_hash(name)};"


def test_no_type_of_an_interface_or_of_a_node_is_left_out() -> None:
    assert {"nav_msgs/msg/Odometry", "px4_msgs/msg/VehicleCommand", "std_msgs/msg/Empty"} < SPOKEN  # of each source
    assert SPOKEN - {name for name, _ in SENT.values()} == set()


PROFILES = ("sensor", "default", "latched")


@pytest.mark.parametrize("case, qos", thinned(
    [(case, qos) for case in SENT for qos in PROFILES],  # each type under one of them, in turn
    keep=[(case, PROFILES[k % 3]) for k, case in enumerate(SENT)]))
def test_bytes_cross_both_ways_unchanged(case: str, qos: str, peer: Peer, dds: DdsTransport) -> None:
    """Ours is read by Fast DDS and written by it, and read by us: every byte, under each of ROS's profiles."""
    (name, data), topic = SENT[case], f"{case}_{qos}".replace("/", "_").lower()
    there, back = f"{topic}_there", f"{topic}_back"
    peer.do("echo", f"rt/cf1/{there}", f"rt/cf1/{back}", messages.dds_type(name), qos, user_data(name))
    got: list[Received] = []
    reader = dds.subscribe(back, name, QOS[qos], got.append)
    writer = dds.advertise(there, name, QOS[qos])
    require_peer(dds, writer, WITHIN_S)
    require_peer(dds, reader, WITHIN_S)

    # one is enough where it is reliable; best effort may lose, and each side sees the other at its own time
    def send() -> None:
        dds.publish(writer, data)
        dds.wait(0.5)

    peer.until(lambda: bool(got), send)
    assert {one.data for one in got} == {on_the_wire(data)}
    assert messages.encode(name, messages.decode(name, got[0].data)) == data
    peer.until(lambda: bool(peer.heard(f"rt/cf1/{there}")))
    assert set(peer.heard(f"rt/cf1/{there}")) == {shown(on_the_wire(data))}
    assert (got[0].topic, got[0].type) == (f"/cf1/{back}", name)


def test_a_reliable_stream_loses_nothing_and_keeps_its_order(peer: Peer, dds: DdsTransport) -> None:
    """200 messages, each sent when the one before it has come back."""
    peer.do("echo", "rt/stream_there", "rt/stream_back", messages.dds_type(STRING), "default", user_data(STRING))
    got: list[Received] = []
    reader = dds.subscribe("/stream_back", STRING, QOS["default"], got.append)
    writer = dds.advertise("/stream_there", STRING, QOS["default"])
    require_peer(dds, writer, WITHIN_S)
    require_peer(dds, reader, WITHIN_S)
    seen = f"reader rt/stream_back {messages.dds_type(STRING)} {user_data(STRING)}"
    peer.until(lambda: seen in peer.told)  # it must know of our reader, too
    for i in range(200):
        dds.publish(writer, messages.encode(STRING, messages.record(STRING)(data=str(i))))
        peer.until(lambda count=i + 1: len(got) >= count, lambda: dds.wait(0.5))
    assert [messages.decode(STRING, one.data).data for one in got] == [str(i) for i in range(200)]


def test_each_sees_the_type_hash_of_the_other(peer: Peer, dds: DdsTransport) -> None:
    """USER_DATA, which `ros2 topic info -v` shows: of our writer and reader there, of its writer and reader here."""
    name = "sensor_msgs/msg/JointState"
    kind, stated = messages.dds_type(name), user_data(name)
    peer.do("echo", "rt/hash_there", "rt/hash_back", kind, "default", stated)
    dds.advertise("/hash_there", name, QOS["default"])
    dds.subscribe("/hash_back", name, QOS["default"], lambda _: None)
    peer.until(lambda: {f"writer rt/hash_there {kind} {stated}", f"reader rt/hash_back {kind} {stated}"}
               <= set(peer.told))
    peer.until(lambda: bool(dds.publishers("/hash_back") and dds.subscribers("/hash_there")))
    for there in (dds.publishers("/hash_back"), dds.subscribers("/hash_there")):
        assert [(one.type, one.hash) for one in there] == [(name, messages.type_hash(name))]


def test_the_profile_of_its_publishers_is_seen(peer: Peer, dds: DdsTransport) -> None:
    """What `temporeal doctor` compares: reliability and durability of another vendor's endpoints."""
    data = messages.encode(STRING, messages.record(STRING)(data="here")).hex()
    for qos in ("sensor", "default", "latched"):
        peer.do("say", f"rt/offers_{qos}", messages.dds_type(STRING), qos, user_data(STRING), data)
        peer.until(lambda topic=f"/offers_{qos}": bool(dds.publishers(topic)))
        (found,) = dds.publishers(f"/offers_{qos}")
        assert (found.qos.reliable, found.qos.latched) == (QOS[qos].reliable, QOS[qos].latched)


def test_a_latched_message_reaches_who_comes_later(peer: Peer, dds: DdsTransport) -> None:
    early, late = (messages.encode(STRING, messages.record(STRING)(data=text)) for text in ("ours", "theirs"))
    writer = dds.advertise("/our_latched", STRING, QOS["latched"])
    dds.publish(writer, early)
    peer.do("echo", "rt/our_latched", "rt/our_latched_back", messages.dds_type(STRING), "latched", user_data(STRING))
    peer.until(lambda: peer.heard("rt/our_latched") == [shown(on_the_wire(early))], lambda: dds.wait(0.05))

    peer.do("say", "rt/their_latched", messages.dds_type(STRING), "latched", user_data(STRING), late.hex())
    got: list[Received] = []
    dds.subscribe("/their_latched", STRING, QOS["latched"], got.append)
    peer.until(lambda: bool(got), lambda: dds.wait(0.05))
    assert [one.data for one in got] == [on_the_wire(late)]


def test_a_reader_that_asks_for_more_than_is_offered_is_told_so(peer: Peer, dds: DdsTransport) -> None:
    """Best effort there, reliable here: DDS connects them not at all, whatever the vendor."""
    data = messages.encode(STRING, messages.record(STRING)(data="x"))
    got: list[Received] = []
    reader = dds.subscribe("/loose", STRING, QOS["default"], got.append)
    peer.do("say", "rt/loose", messages.dds_type(STRING), "sensor", user_data(STRING), data.hex())
    why = "reliability (offered: best effort, requested: reliable)"
    peer.until(lambda: why in dds.incompatible(reader), lambda: dds.wait(0.05))
    assert why in dds.no_peer_hint(reader)
    assert dds.matched(reader) == 0 and got == []


@pytest.mark.slow
def test_its_node_leaves_and_ours_goes_on(build: Callable[[str], Path]) -> None:
    """A peer that ends in order is gone at once, not after the lease of 10 s; a new one is met again."""
    domain, got = free_domain(), list[Received]()
    dds = DdsTransport("robot", domain=domain, loopback=True)
    try:
        reader = dds.subscribe("/said", STRING, QOS["latched"], got.append)
        for count, text in enumerate(("first", "second"), start=1):
            data = messages.encode(STRING, messages.record(STRING)(data=text))
            one = Peer(build("fastdds_peer"), domain)
            try:
                one.do("say", "rt/said", messages.dds_type(STRING), "latched", user_data(STRING), data.hex())
                one.until(lambda count=count: len(got) == count, lambda: dds.wait(0.05))
                assert dds.matched(reader) == 1
            finally:
                one.close()
            end = time.monotonic() + 5.0
            while dds.matched(reader):
                assert time.monotonic() < end, "the peer has left, and its writer is still there"
                dds.wait(0.05)
        assert [messages.decode(STRING, r.data).data for r in got] == ["first", "second"]
    finally:
        dds.close()
