"""``temporeal bench quadrotor``: how fast quadrotors are simulated, against the targets and a plain numpy program."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from temporeal_benchmarks.machine import NO_GPU, has_gpu
from temporeal_benchmarks.options import PARTS_HELP
from temporeal_benchmarks.options import parts as asked_parts
from temporeal_benchmarks.rounds import Program, rates, ratios, repeated
from temporeal_benchmarks.rows import Row, at_least, not_measured, spread

HELP = (
    "quadrotor steps/s at 16,384 worlds: dynamics alone, a call per step and a call per ten; the complete hover step; "
    "general parameters with a rate loop; two threads against one; the same physics in numpy as a peer. Per "
    "CPU-second of one thread. Medians of interleaved rounds of 20 ms, with the least and the most of the rounds; "
    "ratios are medians of the ratios within rounds"
)

WORLDS = 16384
DT = 0.01  # s, one Runge-Kutta step each
ROUND_S = 0.02  # of one program in a round: longer than a slice of the scheduler
OPTIONS = {"parts": PARTS_HELP}
NARROWING = ("parts",)
ONE, TEN, COMPLETE = "dynamics.one_step_per_call", "dynamics.ten_substeps_per_call", "complete_step"
CRITIC, CTBR, NUMPY = "complete_step_with_critic", "ctbr.twenty_substeps_per_call", "numpy"
TARGETS = {ONE: 200e6, TEN: None, COMPLETE: 100e6, CRITIC: None, CTBR: 20e6, NUMPY: None}
TWO_THREADS = {COMPLETE: 1.8, ONE: 1.8, TEN: None}  # targets of the ratio to one thread
GPU_DYNAMICS, GPU_SHARE = "quadrotor.gpu.dynamics", "quadrotor.gpu.complete_step_of_memory_bound"
GPU_RATE, GPU_OF_MEMORY = 15e9, 0.5  # targets
COMPLETE_BYTES = 4 * (26 + 4 + 19 + 18 + 1) + 2  # state, action; what changes of it, reward, flags

Work = tuple[Callable[[], object], int]
"""What is measured, and how many steps of a world it makes."""


def run(quick: bool, *, out: Path | None = None, parts: list[str] | None = None) -> list[Row]:
    """The parts that are asked for."""
    wanted = asked_parts(parts)
    return [*(_cpu(10 if quick else 60) if "cpu" in wanted else ()), *(_gpu() if "gpu" in wanted else ())]


def _cpu(rounds: int) -> list[Row]:
    """One thread, by its processor time; then two threads against one by the clock on the wall."""
    works = {**_dynamics(1), **_complete(1), **_ctbr(1), NUMPY: _numpy_work()}
    found = rates(programs(works, time.thread_time), rounds)
    theirs = f"numpy, same rounds: {median(found[NUMPY]):.3g}"
    rows = [row for name, target in TARGETS.items() for row in spread(
        f"quadrotor.{name}", found[name], "1/CPU-s", target, theirs if name == ONE else None)]
    rows += spread("quadrotor.against_numpy", ratios(found, ONE, NUMPY), "1", None, f"{ONE} over numpy, same rounds")
    if len(os.sched_getaffinity(0)) > 1:
        return rows + _two_threads(2 * rounds)
    why = "this process may use one processor only"
    return rows + [not_measured(f"quadrotor.two_threads.{name}", "1", goal, why) for name, goal in TWO_THREADS.items()]


def programs(works: dict[str, Work], clock: Callable[[], float], span: float = ROUND_S) -> dict[str, Program]:
    """Works as programs whose passes take ``span`` s or more."""
    return {name: Program(repeated(work, clock, span), steps) for name, (work, steps) in works.items()}


def _two_threads(rounds: int) -> list[Row]:
    """The ratio within each round of the wall time of one thread to that of two; 1.8 needs two processors that do
    nothing else."""
    one, two = ({**_dynamics(threads), **_complete(threads)} for threads in (1, 2))
    rows = []
    for name, target in TWO_THREADS.items():
        found = rates(programs({"one": one[name], "two": two[name]}, time.perf_counter), rounds)
        rows += spread(f"quadrotor.two_threads.{name}", ratios(found, "two", "one"), "1", target)
    return rows


def _complete(threads: int) -> dict[str, Work]:
    """L2F's hover task with everything in the step: noisy observation, reward, termination, reset.

    The action is the constant one that carries the weight: thrown worlds fall out of the box after half a second, so
    that about two in a hundred are reset in every step.
    """
    import torch

    from temporeal.sim.physics.quadrotor.fused import FusedHover

    action = torch.full((WORLDS, 4), 0.334)

    def work(privileged: bool) -> Work:
        env = FusedHover(WORLDS, threads=threads, privileged=privileged)
        env.reset()
        for _ in range(100):
            env.step(action)
        return lambda: env.step(action), WORLDS

    return {COMPLETE: work(privileged=False), CRITIC: work(privileged=True)}


def _dynamics(threads: int) -> dict[str, Work]:
    """The backend with L2F's parameters for all worlds: one step per call, and ten under the same command."""
    import torch

    from temporeal.robots.crazyflie.spec import L2F_PARAMETERS
    from temporeal.robots.spec import load_robot
    from temporeal.sim.backends.quadrotor import make

    ids = torch.arange(WORLDS)
    sim = make(load_robot("crazyflie"), WORLDS, "motor_cmd", dt=DT, threads=threads, shared=True)
    shared = {k: torch.tensor(v).expand(WORLDS, -1) for k, v in L2F_PARAMETERS.items()}
    sim.set_params(ids, {k: v[:, 0] if v.shape[1] == 1 else v for k, v in shared.items()})
    sim.reset(ids, {})
    hover = sim.signals()["rotor_speed"].clone()
    return {ONE: (lambda: sim.step(hover, 1), WORLDS), TEN: (lambda: sim.step(hover, 10), 10 * WORLDS)}


def _ctbr(threads: int) -> dict[str, Work]:
    """The general path: parameters per world, command delays, and a rate loop in each of 20 physics steps."""
    import torch

    from temporeal.robots.spec import load_robot
    from temporeal.sim.backends.quadrotor import make

    ids = torch.arange(WORLDS)
    sim = make(load_robot("crazyflie"), WORLDS, "ctbr_cmd", dt=DT / 20, threads=threads)
    sim.set_params(ids, {"mass": 0.027 + 0.007 * torch.rand(WORLDS), "command_delay": 0.002 * torch.rand(WORLDS)})
    sim.reset(ids, {})
    command = torch.tensor([0.31, 0.1, -0.1, 0.2]).repeat(WORLDS, 1)
    return {CTBR: (lambda: sim.step(command, 20), 20 * WORLDS)}


def _numpy_work() -> Work:
    """The same Runge-Kutta step as operations on whole arrays: the physics function itself, bound to numpy."""
    import numpy as np

    from temporeal.robots.crazyflie.spec import L2F_PARAMETERS
    from temporeal.sim.compiler import scalar_functions as compiling
    from temporeal.sim.physics.quadrotor import dynamics as physics
    from temporeal.sim.physics.quadrotor.fused import shared_params

    arrays = compiling.instantiate(
        physics, lambda f: f, np.float32, select=np.where, larger=np.maximum, smaller=np.minimum, math=np
    )
    params = tuple(shared_params(L2F_PARAMETERS))
    hover = np.full(WORLDS, 0.667, np.float32)
    start = [np.zeros(WORLDS, np.float32) for _ in range(physics.N0)] + [hover] * 4
    start[physics.QW] = np.ones(WORLDS, np.float32)
    state = {"now": tuple(start)}

    def work() -> None:
        state["now"] = arrays.on_ground(
            arrays.motor_step(state["now"], hover, hover, hover, hover, params, np.float32(DT), False)
        )

    return work, WORLDS


def _gpu() -> list[Row]:
    """The CUDA kernels on a GPU."""
    if not has_gpu():
        return [not_measured(GPU_DYNAMICS, "1/s", GPU_RATE, NO_GPU),
                not_measured(GPU_SHARE, "1", GPU_OF_MEMORY, NO_GPU)]
    return [at_least(GPU_DYNAMICS, _gpu_dynamics(), "1/s", GPU_RATE),
            at_least(GPU_SHARE, _gpu_share(), "1", GPU_OF_MEMORY, "bytes moved per second against a copy")]


def _gpu_dynamics() -> float:
    """Dynamics steps per second of four million worlds, parameters per world."""
    import torch

    from temporeal.robots.spec import load_robot
    from temporeal.sim.backends.quadrotor import make

    worlds = 1 << 22
    sim = make(load_robot("crazyflie"), worlds, "motor_cmd", dt=DT, device="cuda")
    command = torch.full((worlds, 4), 0.6, device="cuda")
    return worlds * 50 / _gpu_seconds(lambda: [sim.step(command, 1) for _ in range(50)])


def _gpu_share() -> float:
    """Bytes per second that complete steps of four million worlds must move at least, as a share of a copy's."""
    import torch

    from temporeal.sim.physics.quadrotor.fused import FusedHover

    worlds = 1 << 22
    env = FusedHover(worlds, privileged=False, device="cuda")
    env.reset()
    action = torch.full((worlds, 4), 0.334, device="cuda")
    seconds = _gpu_seconds(lambda: [env.step(action) for _ in range(50)]) / 50
    source = torch.zeros(1 << 28, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * source.nbytes / _gpu_seconds(lambda: target.copy_(source))
    return worlds * COMPLETE_BYTES / seconds / copied


def _gpu_seconds(work: Callable[[], object]) -> float:
    import torch

    times = []
    for _ in range(6):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return median(times[1:])
