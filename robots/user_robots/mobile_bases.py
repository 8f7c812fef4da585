"""A user's mobile base: a cart that takes speeds and tells its odometry.

In ``spec.yaml``::

    mobile_base:
      forward: 1.0       # m/s
      backward: 0.2      # m/s; as forward if left out
      left: 0.5          # m/s, to both sides: of a base that moves sideways, too; left out: it does not
      turn: 1.5          # rad/s, to both sides

Signals ``base_pos_w``, ``base_quat_w``, ``base_vel_w``, ``base_ang_vel_b``; command ``twist_cmd``: forward, left (where
there is one), turn. The model is for pictures: the base is simulated by its kinematics.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from temporeal.robots.model_files import RobotFileError
from temporeal.robots.signals import CommandSpec, SignalSpec, is_number, schema
from temporeal.robots.spec import RobotSpec
from temporeal.robots.user_robots.entries import check_keys
from temporeal.robots.user_robots.quadrotors import ros_of

ENTRIES = ("forward", "backward", "left", "turn")
NEEDED = ("forward", "turn")
RATE_HZ, CONTROL_HZ = 50.0, 20.0  # diff_drive_controller's publish_rate; assumed
SIGNALS = (
    ("base_pos_w", (3,), "m", "w"), ("base_quat_w", (4,), "wxyz", "w"), ("base_vel_w", (3,), "m/s", "w"),
    ("base_ang_vel_b", (3,), "rad/s", "b"))


def mobile_base(name: str, folder: Path, model: Path, given: Mapping[str, Any]) -> RobotSpec:
    """The spec of the base in ``folder`` whose YAML says ``given``."""
    speeds = speeds_of(f"{folder / 'spec.yaml'}: mobile_base", given["mobile_base"])
    rate = float(given.get("rate_hz", RATE_HZ))
    sideways = ([-speeds["left"]], [speeds["left"]]) if "left" in speeds else ([], [])
    low = (-speeds.get("backward", speeds["forward"]), *sideways[0], -speeds["turn"])
    high = (speeds["forward"], *sideways[1], speeds["turn"])
    return RobotSpec(
        name=name, kind="mobile_base",
        signals=schema(*(SignalSpec(signal, shape, unit, frame, rate_hz=rate)
                         for signal, shape, unit, frame in SIGNALS)),
        commands={"twist_cmd": CommandSpec("twist_cmd", (len(low),), "m/s,rad/s", "b", low=low, high=high)},
        limits={"speed_m_s": (low[0], high[0]), "yaw_rate_rad_s": (low[-1], high[-1])},
        home={"base_pos_w": (0.0,) * 3, "base_quat_w": (1.0, 0.0, 0.0, 0.0), "base_vel_w": (0.0,) * 3,
              "base_ang_vel_b": (0.0,) * 3},
        model=model, license=str(given.get("license", "the user's own")), ros=ros_of(folder),
        control_hz=float(given.get("control_hz", CONTROL_HZ)),
        defaults={str(key): str(why) for key, why in given.get("defaults", {}).items()})


def speeds_of(where: str, given: Any) -> dict[str, float]:
    """The speeds, each a positive number."""
    check_keys(where, given, ENTRIES)
    if missing := [key for key in NEEDED if key not in given]:
        raise RobotFileError(f"{where}: {missing[0]} is needed; entries: {', '.join(ENTRIES)}")
    for key, value in given.items():
        if not is_number(value) or not value > 0:
            raise RobotFileError(f"{where}.{key}: a positive number is needed, got {value!r}")
    return {key: float(value) for key, value in given.items()}
