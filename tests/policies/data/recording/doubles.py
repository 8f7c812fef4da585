"""Doubles of hardware that no test machine has: a game controller, a SpaceMouse, a robot that publishes by itself."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np

from temporeal.policies.data.recording import gamepad
from temporeal.robots.spec import load_robot
from temporeal_bridge.codecs.table import STATE_CODECS
from temporeal_bridge.interface.encoding import encode_all
from temporeal_bridge.interface.loading import load_interface
from temporeal_bridge.transports import messages
from temporeal_bridge.transports.memory_bus import Bus, MemoryTransport
from temporeal_bridge.transports.transport import qos_named


class HeldPad:
    """pygame's Controller of one pad; ``axes`` and ``buttons`` by SDL's numbers."""

    def __init__(self) -> None:
        self.axes: dict[int, int] = {}
        self.buttons: set[int] = set()
        self.closed = False

    def get_axis(self, number: int) -> int:
        return self.axes.get(number, 0)

    def get_button(self, number: int) -> bool:
        return number in self.buttons

    def quit(self) -> None:
        self.closed = True


def pygame_with(monkeypatch, pad: HeldPad, count: int = 1) -> ModuleType:
    """pygame as far as the gamepad uses it, with SDL's numbers of axes and buttons in the order of its names."""
    pygame, sdl2 = ModuleType("pygame"), ModuleType("pygame._sdl2")
    for kind, codes in (("AXIS", gamepad.AXES.values()), ("BUTTON", gamepad.BUTTONS.values())):
        for number, code in enumerate(codes):
            setattr(pygame, f"CONTROLLER_{kind}_{code}", number)
    pygame.display = SimpleNamespace(init=lambda: None)
    pygame.event = SimpleNamespace(pump=lambda: None)
    sdl2.controller = SimpleNamespace(
        init=lambda: None, get_count=lambda: count, is_controller=lambda k: True, name_forindex=lambda k: "held pad",
        Controller=lambda k: pad)
    monkeypatch.setitem(sys.modules, "pygame", pygame)
    monkeypatch.setitem(sys.modules, "pygame._sdl2", sdl2)
    return pygame


class HeldMouse:
    """pyspacemouse's device: each read takes one of ``reports`` (x, y, z, roll, pitch, yaw, buttons), as hidapi's."""

    def __init__(self, reports) -> None:
        self.reports, self.closed = list(reports), False
        self.state = SimpleNamespace(t=0.0, x=0.0, y=0.0, z=0.0, roll=0.0, pitch=0.0, yaw=0.0, buttons=[0, 0])

    def read(self):
        if self.reports:
            *axes, buttons = self.reports.pop(0)
            for name, value in zip(("x", "y", "z", "roll", "pitch", "yaw"), axes):
                setattr(self.state, name, value)
            self.state.buttons, self.state.t = list(buttons), self.state.t + 0.008
        return self.state

    def close(self) -> None:
        self.closed = True


class PublishedRobot:
    """A robot that publishes signals, and somebody who commands it, on a memory bus, as a driver's process would."""

    def __init__(self, robot: str, bus: Bus, namespace: str = "/", command: str | None = None) -> None:
        self.robot = load_robot(robot)
        self.topics = load_interface(self.robot)
        self.transport = MemoryTransport(bus, "driver", namespace)
        self.command = command
        rows = [*self.topics.states, *((self.topics.command(command),) if command else ())]
        self.ends = {row.topic: self.transport.advertise(row.topic, row.type, qos_named(row.qos)) for row in rows}

    def publish(self, signals) -> None:
        """All state topics, now. What ``signals`` lacks is at home."""
        zeros = {name: np.zeros(spec.size) for name, spec in self.robot.signals.items()}
        given = {**zeros, **self.robot.home, **signals}
        whole = {name: np.asarray(given[name], np.float64).reshape(spec.shape)
                 for name, spec in self.robot.signals.items()}
        for row in self.topics.states:
            message = STATE_CODECS[row.codec].encode(whole, self.transport.now(), ("world", "base"), row.options)
            self.transport.publish(self.ends[row.topic], messages.encode(row.type, message))

    def send(self, values) -> None:
        """The command, now."""
        topic = self.topics.command(self.command)
        for name, data in encode_all(topic, np.asarray(values, np.float64), self.transport.now()):
            self.transport.publish(self.ends[name], data)
