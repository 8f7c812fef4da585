"""Reasons why a training does not begin or go on, shared by all algorithms."""

from __future__ import annotations


class SettingsError(ValueError):
    """Settings that do not fit the environment."""


class NonFiniteError(RuntimeError):
    """A loss or gradient became NaN or infinite."""
