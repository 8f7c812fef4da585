"""The robots whose processes are struck: a quadrotor, an arm with a slow policy, a hand, an arm with a camera."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from temporeal_benchmarks.deployment.artifacts import hover, reach, rest, see
from temporeal_benchmarks.deployment.robot_processes import RobotProcesses
from temporeal_benchmarks.faults.process_faults import (
    CHUNK,
    EYE,
    HAND_HZ,
    RATE_HZ,
    SIGNALS,
    no_helpers,
    record,
    start_camera,
    start_worker,
)


@contextmanager
def flying_quadrotor(out: Path) -> Any:
    """A Crazyflie with all its processes, hovering as far as it is asked to."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    nodes = RobotProcesses(hover(out / "artifact"), "crazyflie", "odometry", "ctbr_cmd", RATE_HZ, out)
    try:
        nodes.start("robot_sim")
        nodes.start_guarded()
        nodes.start("monitor_node", "--artifact", str(nodes.artifact))
        record(nodes)
        yield nodes
    finally:
        no_helpers(nodes)
        nodes.close()


@contextmanager
def chunked_arm(out: Path) -> Any:
    """A Franka that keeps its home pose, with a policy that gives chunks of CHUNK_S."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "worker").mkdir(mode=0o700)
    nodes = RobotProcesses(rest(out / "artifact", CHUNK), "franka", "forward_position", "joint_pos_cmd", RATE_HZ, out)
    try:
        nodes.start("robot_sim")
        start_worker(nodes)
        nodes.start_guarded(thinks=["--worker", str(out / "worker")])
        yield nodes
    finally:
        nodes.close()


@contextmanager
def closing_hand(out: Path) -> Any:
    """An Allegro hand that closes as hard as it may."""
    shutil.rmtree(out, ignore_errors=True)
    nodes = RobotProcesses(
        reach(out / "artifact", HAND_HZ), "allegro_hand", "allegro_hand_ros2", "joint_pos_cmd", HAND_HZ, out)
    try:
        nodes.start("robot_sim")
        nodes.start_guarded()
        yield nodes
    finally:
        nodes.close()


@contextmanager
def seeing_arm(out: Path) -> Any:
    """A Franka that keeps its home pose, with a policy that reads a camera's pictures."""
    shutil.rmtree(out, ignore_errors=True)
    nodes = RobotProcesses(see(out / "artifact", EYE), "franka", "forward_position", "joint_pos_cmd", RATE_HZ, out)
    try:
        (out / "camera.yaml").write_text(SIGNALS, encoding="utf-8")
        nodes.start("robot_sim")
        start_camera(nodes)
        nodes.start_guarded(own=["--signals", str(out / "camera.yaml")])
        yield nodes
    finally:
        nodes.close()
