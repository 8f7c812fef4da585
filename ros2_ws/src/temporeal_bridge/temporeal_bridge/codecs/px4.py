"""Codecs of PX4 messages, directly (uXRCE-DDS) and through MAVROS. See :mod:`temporeal_bridge.codecs.codec`.

PX4 uses NED and FRD, microseconds, and normalized thrust; MAVROS converts the frames (to ENU, FLU), not the thrust.

Sources: message definitions of px4_msgs v1.17.0 (86d8239) and mavros 2.12.0 (f8f462d); PX4-Autopilot: EKF2.cpp
``PublishOdometry`` (odometry is always NED, rates in body FRD), docs/en/flight_modes/offboard.md (which setpoint
belongs to which field of OffboardControlMode), Tools/msg/templates/ucdr/msg.h.em (time stamps).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np

from temporeal.robots.frames import (
    enu_flu_from_ned_frd,
    enu_from_ned,
    flu_from_frd,
    frd_from_flu,
    ned_frd_from_enu_flu,
    ned_from_enu,
    normalized,
    rotate,
)
from temporeal.robots.signals import is_number
from temporeal_bridge.codecs.codec import (
    CodecError,
    CommandCodec,
    Frames,
    Options,
    Signals,
    StateCodec,
    choice,
    is_wanted,
    number,
)
from temporeal_bridge.codecs.geometry import vector3
from temporeal_bridge.transports import messages

ODOMETRY, MODE = "px4_msgs/msg/VehicleOdometry", "px4_msgs/msg/OffboardControlMode"
RATES, MOTORS = "px4_msgs/msg/VehicleRatesSetpoint", "px4_msgs/msg/ActuatorMotors"
TARGET = "mavros_msgs/msg/AttitudeTarget"

POSE_FRAMES = {0: "unknown", 1: "NED", 2: "FRD, of arbitrary heading"}  # VehicleOdometry.msg, POSE_FRAME_*
VELOCITY_FRAMES = {**POSE_FRAMES, 3: "body FRD"}  # VELOCITY_FRAME_*
NED, BODY_FRD = 1, 3
EPOCH_US = 10**15  # 2001-09-09: larger times count from the epoch, smaller ones from boot

CONTROLS = ("position", "velocity", "acceleration", "attitude", "body_rate", "thrust_and_torque", "direct_actuator")
"""Fields of OffboardControlMode, in order of precedence: the first that is set selects the setpoint."""

CONTROL_OF = {"px4_rates": "body_rate", "px4_motors": "direct_actuator"}
"""By command codec: the field that makes PX4 use its setpoint and stop its own publisher of it."""

IGNORE_ATTITUDE = 128  # AttitudeTarget.msg: the orientation is not used
NUM_CONTROLS = 12  # ActuatorMotors.msg


def finite(where: str, values: Any) -> np.ndarray:
    """``values`` as float64, all finite; PX4 writes NaN for values that are unknown or not controlled."""
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise CodecError(f"{where} is {array.tolist()}: PX4 writes NaN for values that are unknown or not controlled")
    return array


def microseconds(stamp_ns: int) -> int:
    """A time stamp of PX4, us."""
    return stamp_ns // 1000


# VehicleOdometry


def odometry_signals(options: Options) -> tuple[str, ...]:
    """Names of the signals that a VehicleOdometry carries."""
    return ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b", "height")


def odometry_stamp(message: Any) -> int:
    """When the sample was taken, ns since the epoch.

    PX4 counts microseconds since its boot. While UXRCE_DDS_SYNCT is 1 (the default; msg.h.em, module.yaml), its
    uXRCE-DDS client adds the offset to the agent's clock in ``timestamp`` and ``timestamp_sample`` of every message.
    Without that the offset is unknown: a CodecError. With it the stamp is as accurate as the synchronization (a
    filtered round trip) and the agent's clock.
    """
    if message.timestamp_sample < EPOCH_US:
        raise CodecError(
            f"VehicleOdometry: timestamp_sample {message.timestamp_sample} us is time since boot, not since the epoch; "
            "set PX4's parameter UXRCE_DDS_SYNCT to 1 and reboot it")
    return int(message.timestamp_sample) * 1000


def frame(where: str, value: int, legal: tuple[int, ...], names: Mapping[int, str]) -> int:
    """A frame of reference, if it is ``legal``."""
    if value not in legal:
        known = ", ".join(f"{i} ({names[i]})" for i in legal)
        raise CodecError(f"VehicleOdometry: {where} is {value} ({names.get(value, 'no such frame')}); legal: {known}")
    return value


def decode_odometry(message: Any, options: Options) -> Signals:
    """Signals of a VehicleOdometry: NED -> ENU, FRD -> FLU. Position is relative to where the estimator started."""
    frame("pose_frame", message.pose_frame, (NED,), POSE_FRAMES)
    out: dict[str, np.ndarray] = {}
    turned = is_wanted(options, "base_vel_w") and message.velocity_frame == BODY_FRD
    if turned or is_wanted(options, "base_quat_w"):
        out["base_quat_w"] = attitude(message)
    if is_wanted(options, "base_vel_w"):
        frame("velocity_frame", message.velocity_frame, (NED, BODY_FRD), VELOCITY_FRAMES)
        velocity = finite("VehicleOdometry: velocity", message.velocity)
        out["base_vel_w"] = rotate(out["base_quat_w"], flu_from_frd(velocity)) if turned else enu_from_ned(velocity)
    if is_wanted(options, "base_pos_w", "height"):
        out["base_pos_w"] = enu_from_ned(finite("VehicleOdometry: position", message.position))
        out["height"] = out["base_pos_w"][2]
    if is_wanted(options, "base_ang_vel_b"):
        out["base_ang_vel_b"] = flu_from_frd(finite("VehicleOdometry: angular_velocity", message.angular_velocity))
    return {name: value.astype(np.float32) for name, value in out.items()}


def attitude(message: Any) -> np.ndarray:
    """Unit [4] wxyz of a VehicleOdometry."""
    raw = finite("VehicleOdometry: q", message.q)
    if not 0.5 < float(np.linalg.norm(raw)) < 2.0:
        raise CodecError(f"VehicleOdometry: q (w, x, y, z) = {raw.tolist()} is not a quaternion of length 1")
    return enu_flu_from_ned_frd(normalized(raw))


def encode_odometry(signals: Mapping[str, np.ndarray], stamp_ns: int, frames: Frames, options: Options) -> Any:
    """The message of PX4's EKF2 for a vehicle in this state."""
    numbers = {name: np.asarray(signals[name], dtype=float)
               for name in ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b")}
    zeros = np.zeros(3, dtype=np.float32)
    return messages.record(ODOMETRY)(
        timestamp=microseconds(stamp_ns), timestamp_sample=microseconds(stamp_ns), pose_frame=NED,
        position=ned_from_enu(numbers["base_pos_w"]).astype(np.float32),
        q=ned_frd_from_enu_flu(numbers["base_quat_w"]).astype(np.float32), velocity_frame=NED,
        velocity=ned_from_enu(numbers["base_vel_w"]).astype(np.float32),
        angular_velocity=frd_from_flu(numbers["base_ang_vel_b"]).astype(np.float32),
        position_variance=zeros, orientation_variance=zeros, velocity_variance=zeros, reset_counter=0, quality=0)


# Thrust. Options: max_thrust_n, curve.


def throttle(thrust_n: float, options: Options) -> float:
    """Normalized thrust 0..1 that gives ``thrust_n`` newtons of all rotors together.

    PX4's own model of a motor (THR_MDL_FAC, mixer_module/motor_params.c): relative thrust = k u^2 + (1 - k) u, u being
    the relative signal. PX4 inverts it where THR_MDL_FAC is k: its normalized thrust is then linear in newtons, and
    ``curve`` here is 0. Where THR_MDL_FAC is left at 0, ``curve`` is the motors' k.
    """
    full, k = number(options, "max_thrust_n", 0.0, 1e6), curve(options)
    share = min(max(thrust_n / full, 0.0), 1.0)
    return share if k == 0.0 else (sqrt((1.0 - k) ** 2 + 4.0 * k * share) - (1.0 - k)) / (2.0 * k)


def newtons(u: float, options: Options) -> float:
    """Thrust [N] of all rotors at the normalized thrust ``u``: the inverse of :func:`throttle`."""
    k = curve(options)
    return (k * u * u + (1.0 - k) * u) * number(options, "max_thrust_n", 0.0, 1e6)


def curve(options: Options) -> float:
    """Share 0..1 of the quadratic term in the motors' thrust curve that PX4 does not compensate."""
    return number(options, "curve", 0.0, 1.0, or_low=True)


# VehicleRatesSetpoint. Options: max_thrust_n, curve.


def encode_rates(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """Collective thrust [N] and body rates [rad/s, FLU] -> rates in FRD and thrust along the body's down axis."""
    thrust, *rates = finite("ctbr_cmd", command)
    roll, pitch, yaw = frd_from_flu(np.array(rates))
    return messages.record(RATES)(
        timestamp=microseconds(stamp_ns), roll=float(roll), pitch=float(pitch), yaw=float(yaw),
        thrust_body=np.array([0.0, 0.0, -throttle(thrust, options)], dtype=np.float32), reset_integral=False)


def decode_rates(message: Any, options: Options) -> np.ndarray:
    """The command of a VehicleRatesSetpoint: [4] thrust N, body rates rad/s (FLU)."""
    rates = finite("VehicleRatesSetpoint: roll, pitch, yaw", [message.roll, message.pitch, message.yaw])
    x, y, z = finite("VehicleRatesSetpoint: thrust_body", message.thrust_body)
    if x or y or not -1.0 <= z <= 0.0:
        raise CodecError(f"VehicleRatesSetpoint: thrust_body is {[x, y, z]}; a multicopter's is [0, 0, -1 to 0]")
    return np.concatenate([[newtons(-z, options)], flu_from_frd(rates)])


# ActuatorMotors. Options: order (PX4's number, from 1, of each component's motor), thrust_curve (c0, c1, c2).


def motor_order(options: Options) -> np.ndarray:
    """Index in ``control`` of each component of the command."""
    order = options["order"]
    whole = isinstance(order, (list, tuple)) and all(type(i) is int and 1 <= i <= NUM_CONTROLS for i in order)
    if not whole or len(set(order)) != len(order) or not order:
        raise CodecError(f"option order is {order!r}; different motor numbers from 1 to {NUM_CONTROLS} are needed")
    return np.array(order) - 1


def rotor_curve(options: Options) -> np.ndarray:
    """Coefficients c0, c1, c2 of a rotor's thrust over its normalized speed, scaled so that full speed gives 1."""
    given = options["thrust_curve"]
    whole = isinstance(given, (list, tuple)) and len(given) == 3 and all(map(is_number, given))
    c = np.array(given if whole else np.zeros(3), dtype=float)
    if not c[2] > 0 or not c.sum() > 0:
        raise CodecError(f"option thrust_curve is {given!r}; c0, c1, c2 > 0, sum > 0 are needed")
    return np.asarray(c / c.sum())


def encode_motors(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """Normalized rotor speeds 0..1 -> relative thrusts, which PX4 converts to motor signals (THR_MDL_FAC).

    Motors that the vehicle does not have are NaN, stopped. A rotor without thrust by the curve is 0.
    """
    speeds = np.clip(finite("motor_cmd", command), 0.0, 1.0)
    c0, c1, c2 = rotor_curve(options)
    control = np.full(NUM_CONTROLS, np.nan, dtype=np.float32)
    control[motor_order(options)] = np.clip(c0 + c1 * speeds + c2 * speeds**2, 0.0, 1.0)
    return messages.record(MOTORS)(
        timestamp=microseconds(stamp_ns), timestamp_sample=microseconds(stamp_ns), reversible_flags=0, control=control)


def decode_motors(message: Any, options: Options) -> np.ndarray:
    """Normalized rotor speeds that give the relative thrusts; NaN is a stopped motor."""
    share = np.nan_to_num(np.asarray(message.control, dtype=float)[motor_order(options)], nan=0.0)
    if not ((share >= 0.0) & (share <= 1.0)).all():
        raise CodecError(f"ActuatorMotors: control is {share.tolist()}; motors that turn one way take 0 to 1")
    c0, c1, c2 = rotor_curve(options)
    speed = (-c1 + np.sqrt(np.maximum(c1 * c1 + 4.0 * c2 * (share - c0), 0.0))) / (2.0 * c2)
    return np.where(share > 0.0, speed, 0.0)


# OffboardControlMode: the companion of every setpoint. Option: control.


def encode_mode(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """The heartbeat, which names ``control``. PX4 checks nothing else (PX4-Autopilot #20519)."""
    control = choice(options, "control", CONTROLS)
    return messages.record(MODE)(
        timestamp=microseconds(stamp_ns), **{name: name == control for name in CONTROLS})


# mavros_msgs/AttitudeTarget. Options: max_thrust_n, curve.


def encode_target(command: np.ndarray, options: Options, stamp_ns: int = 0) -> Any:
    """Collective thrust [N] and body rates [rad/s, FLU] -> MAVROS, which converts the rates to FRD.

    MAVROS multiplies the thrust by its ``thrust_scaling`` (1.0 in px4_config.yaml; unset, it drops the message):
    setpoint_raw.cpp, attitude_cb.
    """
    thrust, *rates = finite("ctbr_cmd", command)
    make = messages.record
    return make(TARGET)(
        header=messages.header(stamp_ns, "base_link"), type_mask=IGNORE_ATTITUDE,
        orientation=make("geometry_msgs/msg/Quaternion")(x=0.0, y=0.0, z=0.0, w=1.0), body_rate=vector3(rates),
        thrust=throttle(thrust, options))


def decode_target(message: Any, options: Options) -> np.ndarray:
    """The command of an AttitudeTarget: [4] thrust N, body rates rad/s (FLU)."""
    if message.type_mask != IGNORE_ATTITUDE:
        raise CodecError(f"AttitudeTarget: type_mask is {message.type_mask}; rates and thrust alone are "
                         f"{IGNORE_ATTITUDE} (IGNORE_ATTITUDE)")
    rate = message.body_rate
    rates = finite("AttitudeTarget: body_rate", [rate.x, rate.y, rate.z])
    u = float(finite("AttitudeTarget: thrust", message.thrust))
    if not 0.0 <= u <= 1.0:
        raise CodecError(f"AttitudeTarget: thrust is {u}; 0 to 1 is needed")
    return np.concatenate([[newtons(u, options)], rates])


PX4_STATES = {
    "px4_odometry": StateCodec(ODOMETRY, odometry_signals, decode_odometry, encode_odometry, odometry_stamp)}
PX4_COMMANDS = {
    "px4_rates": CommandCodec(RATES, encode_rates, decode_rates),
    "px4_motors": CommandCodec(MOTORS, encode_motors, decode_motors),
    "px4_mode": CommandCodec(MODE, encode_mode, None),
    "mavros_rates": CommandCodec(TARGET, encode_target, decode_target),
}
