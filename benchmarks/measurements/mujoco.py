"""``temporeal bench mujoco``: how fast the MuJoCo backend steps, and which part of it takes the time."""

from __future__ import annotations

import time
from collections.abc import Callable

from temporeal_benchmarks.rows import Row

HELP = (
    "physics steps/s of the MuJoCo backend (500 Crazyflies, 2 ms, RK4): all cores, per CPU-second, share of the rotors"
)

WORLDS, SUBSTEPS, DT = 500, 10, 0.002


def run(quick: bool) -> list[Row]:
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
        Row("mujoco.steps_per_s", steps / wall, "1/s", target=1e5, ok=steps / wall >= 1e5),
        Row("mujoco.steps_per_cpu_s", steps / cpu, "1/s"),
        Row("mujoco.rotor_share", outside / wall, "1"),
        Row("mujoco.seconds_500_episodes_of_8_s", WORLDS * 8.0 / DT / (steps / wall), "s", target=20.0,
            ok=WORLDS * 8.0 / DT / (steps / wall) <= 20.0),
    ]  # fmt: skip


def _medians(work: Callable[[], object], count: int) -> tuple[float, float]:
    """Median wall and CPU seconds (all threads) of ``work()`` over ``count`` calls after a warm-up."""
    work()
    samples = []
    for _ in range(count):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        samples.append((time.perf_counter() - wall, time.process_time() - cpu))
    middle = count // 2
    return sorted(w for w, _ in samples)[middle], sorted(c for _, c in samples)[middle]
