"""Plain rows of numbers: a signal in (Float64MultiArray), a command out (Float32MultiArray)."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from temporeal.robots.signals import is_size
from temporeal_bridge.codecs.codec import CodecError, Frames, Options, Signals, finite
from temporeal_bridge.transports import messages

# std_msgs/Float64MultiArray. Options: signal, shape (a list; [] for one number). It has no stamp.


def decode_numbers(message: Any, options: Options) -> Signals:
    """A signal of any shape from a row of numbers."""
    shape = tuple(options["shape"]) if isinstance(options["shape"], (list, tuple)) else (-1,)
    if not all(map(is_size, shape)):
        raise CodecError(f"option shape is {options['shape']!r}; a list of whole numbers is needed, [] for one number")
    data = finite(message.data, (prod(shape),), f"Float64MultiArray for {options['signal']!r}")
    return {options["signal"]: data.astype(np.float32).reshape(shape)}


def encode_numbers(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The signal's numbers in one row."""
    return messages.array64(np.asarray(signals[options["signal"]], dtype=np.float64).ravel())


# std_msgs/Float32MultiArray: a command in its own order and units. No options.


def encode_array(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """The command as it is."""
    layout = messages.record("std_msgs/msg/MultiArrayLayout")(dim=[], data_offset=0)
    return messages.record("std_msgs/msg/Float32MultiArray")(
        layout=layout, data=np.asarray(command, dtype=np.float32).ravel())


def decode_array(message: Any, options: Options) -> np.ndarray:
    """The numbers of a Float32MultiArray."""
    return np.asarray(message.data, dtype=np.float64)
