"""What every backend is made of, checked."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from temporeal.robots.spec import RobotSpec
from temporeal.sim.scene import Scene, as_scene


@dataclass(frozen=True)
class Setup:
    """N worlds of one scene under one command; build it with :func:`setup_of`."""

    scene: Scene
    num_worlds: int
    command: str
    dt: float  # s, of a physics step
    device: torch.device
    seed: int = 0
    threads: int = 0  # of the CPU; 0: every core


def setup_of(
    what: Scene | RobotSpec, num_worlds: int, command: str, dt: float, device: str, seed: int, threads: int
) -> Setup:
    """The setup of a scene, or of a robot alone. What only some backends allow (``dt``, ``device``) they check."""
    if num_worlds < 1:
        raise ValueError(f"num_worlds is {num_worlds}; it must be at least 1")
    if threads < 0:
        raise ValueError(f"threads is {threads}; it must be 0 (every core) or more")
    if str(device).partition(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"device is {str(device)!r}; it must be cpu, cuda or cuda:<index>")
    return Setup(as_scene(what), num_worlds, command, dt, torch.device(device), seed, threads)


def every_core(threads: int) -> int:
    """``threads``, or for 0 as many as this process may use cores."""
    return threads or len(os.sched_getaffinity(0))
