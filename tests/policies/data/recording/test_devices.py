"""Devices report what is held; the table means it; a terminal is left as it was."""

from __future__ import annotations

import os
import sys
import termios
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from tests.policies.data.recording.doubles import HeldMouse, HeldPad, pygame_with

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.data.recording.controls import (
    COMPONENTS,
    EVENTS,
    LAYOUTS,
    SUCCESS,
    Controls,
    layout_of,
    value,
)
from temporeal.policies.data.recording.gamepad import AXES, BUTTONS, Gamepad, rested
from temporeal.policies.data.recording.keyboard import HELD_S, Screen, Terminal
from temporeal.policies.data.recording.operators import Handheld
from temporeal.policies.data.recording.spacemouse import SpaceMouse


@pytest.mark.parametrize("device", LAYOUTS)
@pytest.mark.parametrize("kind", COMPONENTS)
def test_each_component_of_each_kind_is_moved_by_each_device(device, kind):
    layout = LAYOUTS[device][kind]
    assert {*layout.axes, *layout.toggles} == set(COMPONENTS[kind])
    assert set(layout.events.values()) <= set(EVENTS)
    terms = [part.lstrip("-") for term in layout.axes.values() for part in term.split("/")]
    assert len(set(terms)) == len(terms), "one key would move two components"
    assert not {*terms, *layout.toggles.values(), layout.deadman} & set(layout.events)
    if device == "gamepad":
        assert set(terms) <= {*AXES, *BUTTONS}


def test_terms_of_keys_and_axes():
    assert value("w/s", Controls(held=frozenset("w"))) == 1 and value("w/s", Controls(held=frozenset("ws"))) == 0
    assert value("-left_y", Controls({"left_y": 0.25})) == -0.25 and value("x", Controls({"x": 7.0})) == 1.0


def test_an_arm_whose_actions_only_move_takes_three_numbers_and_a_grip():
    assert layout_of("gamepad", "arm", 4)[1] == ("x", "y", "z", "grip")
    with pytest.raises(DataError, match="an action of 5 numbers"):
        layout_of("gamepad", "arm", 5)
    with pytest.raises(DataError, match="no layout for a robot of kind 'hand'.*device=policy"):
        layout_of("keyboard", "hand", 16)


class Held:
    """A device that reports what a test says."""

    def __init__(self, name: str, *reports: Controls) -> None:
        self.name, self.reports = name, list(reports)

    def read(self) -> Controls:
        return self.reports.pop(0)

    def close(self) -> None:
        pass


def test_nothing_moves_without_the_deadman_and_toggles_stay():
    stick = {"left_y": -1.0, "right_x": 0.5}
    device = Held("gamepad", Controls(stick), Controls(stick, frozenset({"right_shoulder"}), ("left_shoulder", "a")),
                  Controls(stick))
    operator = Handheld(device, "arm", 7, speed=0.5)
    still, moving, after = (operator(None, {}) for _ in range(3))
    np.testing.assert_allclose(still.action, [0, 0, 0, 0, 0, 0, 1])
    np.testing.assert_allclose(moving.action, [0.5, 0, 0, 0, 0, -0.25, -1])
    np.testing.assert_allclose(after.action, [0, 0, 0, 0, 0, 0, -1])
    assert moving.events == (SUCCESS,) and after.events == ()
    operator.begin()
    assert operator.switched == {"grip": 1.0}


def test_the_keys_of_a_terminal():
    main, terminal = os.openpty()
    before, now = termios.tcgetattr(terminal), [0.0]
    keys = Terminal(terminal, lambda: now[0])
    os.write(main, b"ww")
    assert keys.read() == Controls(held=frozenset({"w", "space"}), pressed=("w",))
    now[0] = 0.9 * HELD_S
    os.write(main, b"w\r")
    assert keys.read().pressed == ("return",)  # w repeats: it is held, not typed again
    now[0] += 1.1 * HELD_S
    assert keys.read() == Controls()
    keys.close()
    assert termios.tcgetattr(terminal) == before
    os.close(main), os.close(terminal)
    with open(os.devnull) as nothing, pytest.raises(OSError, match="that of a terminal"):
        Terminal(nothing.fileno())


def test_the_keys_of_a_screen_by_their_double(monkeypatch):
    made = []

    class Listener:
        def __init__(self, on_press, on_release) -> None:
            self.press, self.release, self.running = on_press, on_release, False
            made.append(self)

        def start(self) -> None:
            self.running = True

        def stop(self) -> None:
            self.running = False

    module = ModuleType("pynput")
    module.keyboard = SimpleNamespace(Listener=Listener)
    monkeypatch.setitem(sys.modules, "pynput", module)
    keys, letter = Screen(), SimpleNamespace(char="w")
    made[0].press(letter), made[0].press(letter), made[0].press(SimpleNamespace(name="enter"))
    assert keys.read() == Controls(held=frozenset({"w", "return"}), pressed=("w", "return"))
    made[0].release(letter), made[0].press(SimpleNamespace(name="space"))
    assert keys.read() == Controls(held=frozenset({"return", "space"}), pressed=("space",))
    keys.close()
    assert not made[0].running


def test_a_gamepad_by_its_double(monkeypatch):
    pad = HeldPad()
    pygame = pygame_with(monkeypatch, pad)
    device = Gamepad()
    pad.axes[pygame.CONTROLLER_AXIS_LEFTY] = -32768
    pad.buttons = {pygame.CONTROLLER_BUTTON_A}
    first, second = device.read(), device.read()
    assert first.axes["left_y"] == -1.0 and first.axes["right_x"] == 0.0
    assert first.pressed == ("a",) and second.pressed == () and second.held == {"a"}
    device.close()
    assert pad.closed
    pygame_with(monkeypatch, pad, count=0)
    with pytest.raises(OSError, match="no gamepad 0; found: none"):
        Gamepad()


def test_sticks_at_rest_are_at_zero_and_full_is_full():
    assert rested(0.05) == rested(-0.05) == 0.0 and rested(1.0) == 1.0 and rested(-1.1) == -1.0
    assert 0 < rested(0.1) < 0.03  # continuous


def test_a_gamepad_of_sdl_itself():
    """The real pygame, with SDL's own virtual joystick."""
    import ctypes
    from glob import glob

    pygame = pytest.importorskip("pygame")
    files = glob(os.path.join(os.path.dirname(pygame.__file__), "..", "pygame.libs", "libSDL2-2*"))
    if not files:
        pytest.skip("this pygame has no SDL of its own")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    sdl = ctypes.CDLL(files[0])
    pygame.display.init(), pygame.joystick.init()
    index = sdl.SDL_JoystickAttachVirtual(1, 6, 15, 0)
    sdl.SDL_JoystickOpen.restype = ctypes.c_void_p
    stick = ctypes.c_void_p(sdl.SDL_JoystickOpen(index))
    device = Gamepad(index)
    sdl.SDL_JoystickSetVirtualAxis(stick, 1, ctypes.c_int16(-32768))
    sdl.SDL_JoystickSetVirtualButton(stick, 0, ctypes.c_uint8(1))
    found = device.read()
    device.close()
    assert found.axes["left_y"] == -1.0 and found.pressed == ("a",)


def test_a_spacemouse_by_its_double_is_at_its_newest_report(monkeypatch):
    mouse = HeldMouse([(0.1, 0, 0, 0, 0, 0, (0, 0)), (0.2, 0.03, 0, 0, 0, -0.5, (1, 0)), (0.9, 0, 0, 0, 0, 0, (1, 0))])
    module = ModuleType("pyspacemouse")
    module.open = lambda: mouse
    monkeypatch.setitem(sys.modules, "pyspacemouse", module)
    device = SpaceMouse()
    found = device.read()
    assert found.axes["x"] == 0.9 and found.axes["y"] == 0.0 and found.pressed == ("left",)
    assert device.read().pressed == ()
    device.close()
    assert mouse.closed
    module.open = lambda: None
    with pytest.raises(OSError, match="no SpaceMouse"):
        SpaceMouse()
