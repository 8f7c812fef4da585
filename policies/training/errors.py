"""Why a training does not begin, or does not go on: the same words for all algorithms, for those who call them."""

from __future__ import annotations


class SettingsError(ValueError):
    """Settings that do not fit the environment."""


class NonFiniteError(RuntimeError):
    """A loss or gradient became NaN or infinite."""
