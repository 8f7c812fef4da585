"""Checks of the middleware: DDS between two processes, the ROS domain, rclpy."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from temporeal.policies.cli.preflight.findings import Check
from temporeal.policies.cli.preflight.packages import installed_version
from temporeal.robots.optional_packages import install

LOOPBACK = """<CycloneDDS><Domain id="any"><General><AllowMulticast>false</AllowMulticast><Interfaces>
<NetworkInterface name="lo" multicast="false"/></Interfaces></General><Discovery><ParticipantIndex>auto
</ParticipantIndex><MaxAutoParticipantIndex>60</MaxAutoParticipantIndex><Peers><Peer address="localhost"/></Peers>
</Discovery></Domain></CycloneDDS>""".replace("\n", "")


def ros_domain() -> Iterator[Check]:
    """ROS_DOMAIN_ID: its range, and the ports that it maps to."""
    text = os.environ.get("ROS_DOMAIN_ID")
    if not text:
        yield Check("ROS_DOMAIN_ID", "ok", "not set: 0")
    elif not text.isdigit() or int(text) > 232:
        yield Check("ROS_DOMAIN_ID", "fail", repr(text), "it is a number 0..232: export ROS_DOMAIN_ID=0")
    elif 102 <= int(text) <= 214:
        yield Check("ROS_DOMAIN_ID", "warn", text,
                    "on Linux its ports are among those given to any program: prefer 0..101")
    else:
        yield Check("ROS_DOMAIN_ID", "ok", text)


def dds() -> Iterator[Check]:
    """Two processes exchange a message over loopback."""
    if importlib.util.find_spec("cyclonedds") is None:
        arm = platform.machine() == "aarch64"
        yield Check("dds", "warn", "cyclonedds is not installed",
                    "no wheel for Linux on ARM: build Cyclone DDS, then pip install cyclonedds" if arm
                    else f"to fly: {install('robot')}")
        return
    # processes of their own: the message really crosses loopback, and a middleware that hangs harms nobody
    topic = f"temporeal_doctor_{os.getpid()}"
    sender, receiver = dds_process("send", topic), dds_process("receive", topic)
    detail = "is loopback up and UDP on it allowed? another ROS_DOMAIN_ID may help"
    try:
        output, errors = receiver.communicate(timeout=25)
    except subprocess.TimeoutExpired:
        receiver.kill()
        yield Check("dds", "fail", "the middleware did not return within 25 s", detail)
        return
    finally:
        sender.kill()
        sender.communicate()
    if receiver.returncode == 0:
        yield Check("dds", "ok", f"cyclonedds {installed_version('cyclonedds')}, {output.strip()}")
    else:
        yield Check("dds", "fail", (errors.strip().splitlines() or ["no message"])[-1], detail)


def dds_process(role: str, topic: str) -> subprocess.Popen[str]:
    """A process that sends to, or receives from, ``topic`` over loopback only."""
    return subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import dds_{role}; dds_{role}({topic!r})"],
        env={**os.environ, "CYCLONEDDS_URI": LOOPBACK}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def dds_topic(name: str) -> tuple[Any, Any, type]:
    """A participant in the domain of ROS_DOMAIN_ID, the topic and its type."""
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.idl import make_idl_struct
    from cyclonedds.idl.types import int32
    from cyclonedds.topic import Topic

    text = os.environ.get("ROS_DOMAIN_ID", "0")
    participant = DomainParticipant(int(text) if text.isdigit() and int(text) <= 232 else 0)
    ping = make_idl_struct("Ping", "temporeal.Ping", {"data": int32})
    return participant, Topic(participant, name, ping), ping


def dds_send(name: str) -> None:
    """Child process: send a number every 10 ms for 20 s. Discovery is not instant, so once is not enough."""
    from cyclonedds.pub import DataWriter

    participant, topic, ping = dds_topic(name)
    writer = DataWriter(participant, topic)
    for _ in range(2000):
        writer.write(ping(data=7))
        time.sleep(0.01)


def dds_receive(name: str) -> None:
    """Child process: print how long the first number took; status 1 after 15 s without one."""
    from cyclonedds.sub import DataReader

    participant, topic, _ = dds_topic(name)
    reader = DataReader(participant, topic)
    started = time.perf_counter()
    while time.perf_counter() - started < 15.0:
        if any(getattr(sample, "data", None) == 7 for sample in reader.take(10)):
            print(f"first message between two processes over loopback after {time.perf_counter() - started:.2f} s")
            return
        time.sleep(0.005)
    raise SystemExit("two processes did not find each other over loopback within 15 s")


def rclpy() -> Iterator[Check]:
    """ROS 2's own Python library: only a ROS installation has it, and it is optional."""
    distro = os.environ.get("ROS_DISTRO")
    if importlib.util.find_spec("rclpy") is not None:
        yield Check("rclpy", "ok", f"found (ROS 2 {distro or 'of unknown name'}): deploy=rclpy is possible")
    elif distro:
        yield Check("rclpy", "warn", f"ROS 2 {distro} is sourced, but Python {platform.python_version()} has no rclpy",
                    "rclpy needs the Python that ROS was built for; deploy=dds talks to it from any Python")
    else:
        yield Check("rclpy", "ok", "not here, not needed: deploy=dds speaks to ROS 2. For deploy=rclpy source a ROS 2")
