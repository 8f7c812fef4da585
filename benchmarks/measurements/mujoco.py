"""``temporeal bench mujoco``: how fast the MuJoCo backend steps, and which part of it takes the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from temporeal_benchmarks.rows import Row, at_least, at_most

HELP = (
    "physics steps/s of the MuJoCo backend (500 Crazyflies, 2 ms, RK4): all cores, per CPU-second, share of the rotors"
)

WORLDS, SUBSTEPS, DT = 500, 10, 0.002
RATE, EPISODES_S = 1e5, 20.0  # targets: 1/s; s for 500 episodes of 8 s


def run(quick: bool, *, out: Path | None = None) -> list[Row]:
    """Medians over control steps of 20 ms, in one run."""
    import torch

    from temporeal.robots.spec import load_robot
    from temporeal.sim.backends import mujoco

    sim = mujoco.make(load_robot("crazyflie"), WORLDS, "ctbr_cmd", dt=DT)
    command = torch.tensor([0.32, 0.0, 0.0, 0.0]).expand(WORLDS, 4)
    count = 20 if quick else 200
    wall, cpu = _medians(lambda: sim.step(command, SUBSTEPS), count)
    quat, velocity, rates = (
        sim.signals()[name].double().numpy().T for name in ("base_quat_w", "base_vel_w", "base_ang_vel_b")
    )
    outside, _ = _medians(lambda: [sim.rotors.advance(quat, velocity, rates, 0.0) for _ in range(SUBSTEPS)], count)
    steps = WORLDS * SUBSTEPS
    return [
        at_least("mujoco.steps_per_s", steps / wall, "1/s", RATE),
        Row("mujoco.steps_per_cpu_s", steps / cpu, "1/s"),
        Row("mujoco.rotor_share", outside / wall, "1"),
        at_most("mujoco.seconds_500_episodes_of_8_s", WORLDS * 8.0 / DT / (steps / wall), "s", EPISODES_S),
    ]


def _medians(work: Callable[[], object], count: int) -> tuple[float, float]:
    """Median wall and CPU seconds (all threads) of ``work()`` over ``count`` calls after a warm-up."""
    work()
    walls, cpus = list[float](), list[float]()
    for _ in range(count):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return median(walls), median(cpus)
