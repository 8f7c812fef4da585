"""A gamepad, by pygame's SDL game controllers: all pads that SDL knows have the same names for sticks and buttons."""

from __future__ import annotations

import os
from typing import Any

from temporeal.policies.data.recording.controls import Controls

AXES = {"left_x": "LEFTX", "left_y": "LEFTY", "right_x": "RIGHTX", "right_y": "RIGHTY",
        "left_trigger": "TRIGGERLEFT", "right_trigger": "TRIGGERRIGHT"}
BUTTONS = {"a": "A", "b": "B", "x": "X", "y": "Y", "back": "BACK", "start": "START",
           "left_shoulder": "LEFTSHOULDER", "right_shoulder": "RIGHTSHOULDER", "dpad_up": "DPAD_UP",
           "dpad_down": "DPAD_DOWN", "dpad_left": "DPAD_LEFT", "dpad_right": "DPAD_RIGHT"}
FULL = 32767
REST = 0.08  # of full deflection: sticks do not return to 0 exactly


class Gamepad:
    """The game controller number ``index`` of this machine."""

    name = "gamepad"

    def __init__(self, index: int = 0) -> None:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # no window is needed, nor a display
        import pygame
        from pygame._sdl2 import controller

        self._pygame = pygame
        pygame.display.init()
        controller.init()
        count = controller.get_count()
        if not 0 <= index < count or not controller.is_controller(index):
            found = [controller.name_forindex(k) for k in range(count)]
            raise OSError(f"there is no gamepad {index}; found: {', '.join(map(str, found)) or 'none'}")
        self._pad: Any = controller.Controller(index)
        self._down: frozenset[str] = frozenset()

    def read(self) -> Controls:
        """Sticks and buttons now."""
        self._pygame.event.pump()
        axes = {name: rested(self._pad.get_axis(self._number("AXIS", code)) / FULL) for name, code in AXES.items()}
        down = frozenset(name for name, code in BUTTONS.items() if self._pad.get_button(self._number("BUTTON", code)))
        pressed, self._down = tuple(sorted(down - self._down)), down
        return Controls(axes, down, pressed)

    def _number(self, kind: str, code: str) -> int:
        return int(getattr(self._pygame, f"CONTROLLER_{kind}_{code}"))

    def close(self) -> None:
        """Give the pad back."""
        self._pad.quit()


def rested(deflection: float) -> float:
    """``deflection`` without what is rest, continuous: -1 to 1."""
    beyond = max(abs(deflection) - REST, 0.0) / (1.0 - REST)
    return min(beyond, 1.0) * (1.0 if deflection > 0 else -1.0)
