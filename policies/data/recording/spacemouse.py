"""A SpaceMouse, by pyspacemouse (hidapi): six axes that return to rest, and two buttons."""

from __future__ import annotations

from typing import Any

from temporeal.policies.data.recording.controls import Controls

AXES = ("x", "y", "z", "roll", "pitch", "yaw")
BUTTONS = ("left", "right")
REST = 0.05  # of full deflection: a cap that a hand rests on
REPORTS = 64  # at most this many are waiting: half a second of them


class SpaceMouse:
    """The first SpaceMouse of this machine."""

    name = "spacemouse"

    def __init__(self) -> None:
        import pyspacemouse

        try:
            self._device: Any = pyspacemouse.open()
        except Exception as error:  # hidapi's, of whichever kind: no device, no right to open it
            raise OSError(f"no SpaceMouse can be opened: {error}") from error
        if not self._device:
            raise OSError("there is no SpaceMouse, or no right to open it (a udev rule gives it)")
        self._source = self._device if hasattr(self._device, "read") else pyspacemouse
        self._down: frozenset[str] = frozenset()

    def read(self) -> Controls:
        """Cap and buttons now."""
        state = self._newest()
        axes = {name: value if abs(value := float(getattr(state, name))) > REST else 0.0 for name in AXES}
        down = frozenset(name for name, is_down in zip(BUTTONS, state.buttons) if is_down)
        pressed, self._down = tuple(sorted(down - self._down)), down
        return Controls(axes, down, pressed)

    def _newest(self) -> Any:
        """Each read takes one report, and a device sends several within a control step: the last one counts."""
        state, before = self._source.read(), None
        for _ in range(REPORTS):
            if state.t == before:
                break
            before = state.t
            state = self._source.read()
        return state

    def close(self) -> None:
        """Give it back."""
        self._source.close()
