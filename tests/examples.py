"""How many examples a property is tried on: a share of what the test asks for, by hypothesis' profile.

``make test`` takes a quarter (profile ``quick``), ``make slow`` all of them (``--hypothesis-profile full``).
"""

from __future__ import annotations

from hypothesis import settings

FULL = 100
"""``max_examples`` of the profile in which tests get all that they ask for."""


def examples(count: int) -> int:
    """``max_examples`` of a test that asks for ``count``."""
    return max(1, count * settings.default.max_examples // FULL)
