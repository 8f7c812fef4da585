"""Figures in words, for pages of people: a true minus, a dash for what is unknown."""

from __future__ import annotations

import numpy as np


def signed(value: float) -> str:
    """With its sign, a true minus."""
    return f"{'−' if value < 0 else '+'}{abs(value):.3f}" if np.isfinite(value) else "−∞" if value < 0 else "∞"


def percent(value: float) -> str:
    """As a percentage. Only 1 is 100 %: what is less is never rounded up to it."""
    text = f"{100 * value:.1f}"
    return "> 99.9 %" if text == "100.0" and value < 1 else f"{text} %"


def figure(value: float, unit: str = "", digits: int = 3) -> str:
    """A number with its unit, a dash where there is none."""
    if not np.isfinite(value):
        return "–"
    return f"{value:.{digits}g} {unit}".strip().replace("-", "−")
