"""A camera beside the robot whose latency is measured, and a process that reads it."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from temporeal.robots.spec import load_robot
from temporeal_benchmarks.deployment.bus_peers import FIRST, OFF, ON, READ
from temporeal_benchmarks.deployment.latency_flight import LatencyFlight, Round
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.process.children import ask

CAMERA_S = 0.5  # for a camera to be on again


class Camera:
    """A camera beside the robot, and a process that reads it and decodes each picture, as a detector's would: at the
    priority of who is not on the way from state to command. Off until :meth:`round`."""

    def __init__(self, flight: LatencyFlight, out: Path) -> None:
        declared = Path(load_robot("franka").ros).parent / "realsense.yaml"
        self.rate_hz = load_interface(load_robot("franka"), "forward_position", declared).pictures[0].rate_hz
        self.flight, self.out, self.windows = flight, out, list[tuple[float, float]]()
        out.mkdir(parents=True, exist_ok=True)
        signals = ("--signals", str(declared))
        self.reader = flight.helper("reader", *signals, "--out", str(out))
        self.camera = flight.helper("camera", *signals)

    def begin(self) -> None:
        """Wait until pictures are read, and switch it off."""
        self.flight.run(60.0, lambda: (self.out / FIRST).exists() or self.reader.poll() is not None)
        self._switch(OFF)

    def _switch(self, number: signal.Signals) -> None:
        self.camera.send_signal(number)
        self.flight.run(CAMERA_S)

    def round(self, seconds: float) -> Round:
        """Some seconds of flight with pings beside pictures."""
        self._switch(ON)
        began = time.monotonic()
        found = self.flight.round(seconds)
        self.windows.append((began, time.monotonic()))
        self._switch(OFF)
        return found

    def end(self) -> tuple[int, float]:
        """Pictures that the reader decoded during the rounds, and how many were due."""
        both = (self.reader, self.camera)
        ask(both)
        self.flight.run(10.0, lambda: all(p.poll() is not None for p in both))  # pages that they shared with the others
        file = self.out / READ  # count for these from now on
        at = json.loads(file.read_text())["at"] if file.exists() else []
        return (sum(began <= x <= ended for began, ended in self.windows for x in at),
                self.rate_hz * sum(ended - began for began, ended in self.windows))
