"""``temporeal bench quadrotor``: how fast quadrotors are simulated, against the targets and a plain numpy program."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from temporeal_benchmarks.rows import Row, among

HELP = (
    "quadrotor steps/s at 16,384 worlds: dynamics alone, a call per step and a call per ten; the complete hover step; "
    "general parameters with a rate loop; two threads against one; the same physics in numpy as a peer. Per "
    "CPU-second of one thread. Each figure is the fastest of many interleaved rounds of about a millisecond, because "
    "the slower ones on a shared machine measure its other users; the median round stands beside it"
)

WORLDS = 16384
DT = 0.01  # s, one Runge-Kutta step each
NO_GPU = "no GPU at hand"
PARTS = ("cpu", "gpu")
OPTIONS = {"parts": f"{', '.join(PARTS)} (default: both)"}
ONE, TEN, COMPLETE = "dynamics.one_step_per_call", "dynamics.ten_substeps_per_call", "complete_step"
CRITIC, CTBR, NUMPY = "complete_step_with_critic", "ctbr.twenty_substeps_per_call", "numpy"
TARGETS = {ONE: 200e6, TEN: None, COMPLETE: 100e6, CRITIC: None, CTBR: 20e6}
GPU_DYNAMICS, GPU_SHARE = "quadrotor.gpu.dynamics", "quadrotor.gpu.complete_step_of_memory_bound"
COMPLETE_BYTES = 4 * (26 + 4 + 19 + 18 + 1) + 2  # state, action; what changes of it, reward, flags

Program = tuple[Callable[[], object], int]
"""What is measured, and how many steps of a world it makes."""


def run(quick: bool, *, out: Path | None = None, parts: list[str] | None = None) -> list[Row]:
    """The parts that are asked for."""
    wanted = among("parts", parts, PARTS)
    return [*(_cpu(quick) if "cpu" in wanted else ()), *(_gpu() if "gpu" in wanted else ())]


def _cpu(quick: bool) -> list[Row]:
    """Every round measures every program once, so that load and clock changes meet all of them."""
    import os

    rounds = 10 if quick else 60
    programs = {**_dynamics(1), **_complete(1), **_ctbr(1), NUMPY: _numpy_program()}
    rates = rates_of(programs, rounds, time.thread_time)
    ratio = median(a / b for a, b in zip(rates[ONE], rates[NUMPY]))
    rows = [row for name, target in TARGETS.items() for row in _rows(name, rates[name], target, max(rates[NUMPY]))]
    rows += [Row("quadrotor.against_numpy", ratio, "1", peer="numpy, same rounds"), _crazyflow()]
    if len(os.sched_getaffinity(0)) > 1:
        rows += _two_threads(rounds)
    return rows


def _rows(name: str, rates: list[float], target: float | None, peer: float) -> list[Row]:
    best = max(rates)
    return [
        Row(f"quadrotor.{name}", best, "1/CPU-s", target, peer if name == ONE else None, target and best >= target),
        Row(f"quadrotor.{name}.median_round", median(rates), "1/CPU-s"),
    ]


def rates_of(
    programs: Mapping[str, Program], rounds: int, clock: Callable[[], float], span: float = 1e-3
) -> dict[str, list[float]]:
    """World-steps per second of ``clock`` of each program in each round, in calls of together ``span`` s or more."""
    rates: dict[str, list[float]] = {name: [] for name in programs}
    repeats = {}
    for name, (program, _) in programs.items():
        program()
        begin = time.perf_counter()
        program()
        repeats[name] = max(1, int(span / (time.perf_counter() - begin)))
    for _ in range(rounds):
        for name, (program, steps) in programs.items():
            program()  # brings its memory back into the caches
            begin = clock()
            for _ in range(repeats[name]):
                program()
            rates[name].append(repeats[name] * steps / (clock() - begin))
    return rates


def _two_threads(rounds: int) -> list[Row]:
    """Wall time of two threads against one; 1.8 needs two processors that do nothing else."""
    one = {**_dynamics(1), **_complete(1)}
    two = {f"{name} 2": program for name, program in {**_dynamics(2), **_complete(2)}.items()}
    rows = []
    for name, target in ((COMPLETE, 1.8), (ONE, 1.8), (TEN, None)):
        pair = {name: one[name], f"{name} 2": two[f"{name} 2"]}
        rates = rates_of(pair, 2 * rounds, time.perf_counter)
        best = max(rates[f"{name} 2"]) / max(rates[name])
        middle = median(b / a for a, b in zip(*rates.values()))
        rows.append(Row(f"quadrotor.two_threads.{name}", best, "1", target, None, target and best >= target))
        rows.append(Row(f"quadrotor.two_threads.{name}.median_round", middle, "1"))
    return rows


def _complete(threads: int) -> dict[str, Program]:
    """L2F's hover task with everything in the step: noisy observation, reward, termination, reset.

    The action is the constant one that carries the weight: thrown worlds fall out of the box after half a second, so
    that about two in a hundred are reset in every step.
    """
    import torch

    from temporeal.sim.physics.quadrotor.fused import FusedHover

    action = torch.full((WORLDS, 4), 0.334)

    def program(privileged: bool) -> Program:
        env = FusedHover(WORLDS, threads=threads, privileged=privileged)
        env.reset()
        for _ in range(100):
            env.step(action)
        return lambda: env.step(action), WORLDS

    return {COMPLETE: program(privileged=False), CRITIC: program(privileged=True)}


def _dynamics(threads: int) -> dict[str, Program]:
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


def _ctbr(threads: int) -> dict[str, Program]:
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


def _numpy_program() -> Program:
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

    def program() -> None:
        state["now"] = arrays.on_ground(
            arrays.motor_step(state["now"], hover, hover, hover, hover, params, np.float32(DT), False)
        )

    return program, WORLDS


def _gpu() -> list[Row]:
    """The CUDA kernels need a GPU to be measured on."""
    import torch

    if not torch.cuda.is_available():
        return [Row(GPU_DYNAMICS, None, "1/s", 15e9, NO_GPU), Row(GPU_SHARE, None, "1", 0.5, NO_GPU)]
    rate, share = _gpu_dynamics(), _gpu_share()
    return [
        Row(GPU_DYNAMICS, rate, "1/s", 15e9, None, rate >= 15e9),
        Row(GPU_SHARE, share, "1", 0.5, "bytes moved per second against a copy", share >= 0.5),
    ]


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


def _crazyflow() -> Row:
    """crazyflow on the same CPU, where it is installed: its first-principles model with Runge-Kutta, per CPU-second."""
    import importlib.util

    name, unit = "quadrotor.crazyflow", "1/CPU-s"
    if importlib.util.find_spec("crazyflow") is None:
        return Row(name, None, unit, peer="crazyflow is not installed")
    return Row(name, None, unit, peer="crazyflow is installed, but no measurement of it is written yet")
