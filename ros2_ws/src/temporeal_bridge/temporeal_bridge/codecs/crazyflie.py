"""Messages of the Crazyflie: log blocks in (crazyflie_interfaces), legacy setpoints out (geometry_msgs/Twist)."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from typing import Any

import numpy as np

from temporeal_bridge.codecs.codec import Frames, Options, Signals, choice, number
from temporeal_bridge.codecs.geometry import vector3
from temporeal_bridge.transports import messages

DEG = 180.0 / pi
UNITS = {"rad/s": 1.0, "deg/s": pi / 180.0}


# A message with header and float32[] values (crazyflie_interfaces/LogDataGeneric). Options: signal, unit.


def decode_log_values(message: Any, options: Options) -> Signals:
    """The one signal of a log block."""
    scale = UNITS[choice(options, "unit", tuple(UNITS))]
    return {options["signal"]: (np.asarray(message.values, dtype=np.float64) * scale).astype(np.float32)}


def encode_log_values(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The log block of a signal."""
    scale = UNITS[choice(options, "unit", tuple(UNITS))]
    values = np.atleast_1d(np.asarray(signals[options["signal"]], dtype=np.float64) / scale).astype(np.float32)
    return messages.record("crazyflie_interfaces/msg/LogDataGeneric")(
        header=messages.header(stamp_ns, frames[0]), timestamp=stamp_ns // 1_000_000 % 2**32, values=values)


# The legacy setpoint. Options: max_thrust_n, and of the setpoint's 16 bits: full, which gives that thrust; low, below
# which the firmware gives none; high, its top.

MAX_SETPOINT = 65535.0  # 16 bits


def thrust_curve(options: Options) -> tuple[float, float, float, float]:
    """The options max_thrust_n [N], full, low and high."""
    full = number(options, "full", 0.0, MAX_SETPOINT)
    high = number(options, "high", 0.0, full)
    return number(options, "max_thrust_n", 0.0, 1e6), full, number(options, "low", 0.0, high, or_low=True), high


def encode_legacy_rates(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """Collective thrust [N] and body rates [rad/s, FLU] -> the legacy setpoint in rate mode.

    Signs and thrust curve: see ``robots/crazyflie/ros.yaml``, which names the sources.
    """
    thrust, p, q, r = (float(v) for v in command)
    most, full, low, high = thrust_curve(options)
    wanted = thrust / most * full
    setpoint = 0.0 if wanted < low else min(wanted, high)
    return messages.record("geometry_msgs/msg/Twist")(
        linear=vector3((DEG * q, DEG * p, setpoint)), angular=vector3((0.0, 0.0, -DEG * r)))


def decode_legacy_rates(message: Any, options: Options) -> np.ndarray:
    """What the firmware makes of a legacy setpoint in rate mode: [4] thrust N, body rates rad/s."""
    most, full, low, high = thrust_curve(options)
    raw = min(max(float(message.linear.z), 0.0), high)
    thrust = 0.0 if raw < low else raw / full * most
    return np.array([thrust, message.linear.y / DEG, message.linear.x / DEG, -message.angular.z / DEG])
