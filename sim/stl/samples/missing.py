"""The rule for missing values, of every reader: files, bags and nodes. numpy only.

A value is missing where a file has an empty cell, a null or NaN, and where a message has NaN, an empty field, or a
field that its codec cannot read. It matters only in signals that the formula reads. There a reader of files refuses it,
or with ``unknown`` takes that sample as lost: robustness is bounded by everything that it could have been. A node
rejects the message and counts it. An infinite number is a number in a file; no codec takes one.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

ERROR, UNKNOWN = "error", "unknown"
CHOICES = (ERROR, UNKNOWN)


def lost(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """[T] the samples of ``values`` [T, *shape] that lack an entry: NaN stands for all kinds of missing values."""
    return np.asarray(np.isnan(values.reshape(len(values), -1)).any(axis=1))


def matters(signal: str, wanted: Collection[str] | None) -> bool:
    """Whether what is wrong with ``signal`` can refuse a sample; ``wanted``: the signals that are read, None: all."""
    return wanted is None or signal in wanted
