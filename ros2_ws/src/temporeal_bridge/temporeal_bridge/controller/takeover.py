"""Taking over from the controller in charge, in flight."""

from __future__ import annotations


class TakeoverError(RuntimeError):
    """This controller cannot take over; the message says why."""
