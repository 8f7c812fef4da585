"""``temporeal bench quadrotor``: how fast quadrotors are simulated, against the targets and a plain numpy program."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from policies.cli.benches import Row

HELP = (
    "quadrotor steps/s at 16,384 worlds: dynamics alone, complete hover step, two threads against one, general "
    "parameters with a rate loop; the same physics in numpy as a peer. Per CPU-second of one thread, medians of "
    "interleaved rounds"
)

WORLDS = 16384
DT = 0.01  # s, one Runge-Kutta step each
NO_GPU = "no GPU at hand"


def run(quick: bool) -> list[Row]:
    """Every round measures every program once, so that load and clock changes meet all of them."""
    import os

    programs = {**_fused(1), **_backend(1), "numpy": _numpy_program()}
    repeats = {"numpy": 1}
    for program in programs.values():
        program()
    rounds = [
        {name: _rate(program, repeats.get(name, 20), time.thread_time) for name, program in programs.items()}
        for _ in range(5 if quick else 15)
    ]
    rate = {name: median(r[name] for r in rounds) for name in programs}
    rows = [
        _row("quadrotor.dynamics", rate["dynamics"], 200e6, rate["numpy"]),
        _row("quadrotor.complete_step", rate["complete"], 100e6, None),
        _row("quadrotor.complete_step_with_critic", rate["critic"], None, None),
        _row("quadrotor.ctbr_substep", rate["ctbr"], 20e6, None),
        Row("quadrotor.against_numpy", median(r["dynamics"] / r["numpy"] for r in rounds), "1", peer="numpy, same run"),
        _crazyflow(),
    ]
    if len(os.sched_getaffinity(0)) > 1:
        rows += [_two_threads("complete", _fused, quick), _two_threads("dynamics", _backend, quick)]
    return rows + _gpu()


def _row(name: str, rate: float, target: float | None, peer: float | None) -> Row:
    return Row(name, rate, "1/CPU-s", target, peer, None if target is None else rate >= target)


def _rate(program: Callable[[], None], repeats: int, clock: Callable[[], float]) -> float:
    """World-steps per second of ``clock``."""
    begin = clock()
    for _ in range(repeats):
        program()
    return repeats * WORLDS / (clock() - begin)


def _two_threads(name: str, make: Callable[[int], dict[str, Callable[[], None]]], quick: bool) -> Row:
    """Wall time of two threads against one, measured alternately; 1.8 needs a machine that does nothing else."""
    one, two = make(1)[name], make(2)[name]
    one()
    two()
    ratios = [_rate(two, 40, time.perf_counter) / _rate(one, 40, time.perf_counter) for _ in range(5 if quick else 15)]
    ratio = median(ratios)
    return Row(f"quadrotor.two_threads.{name}", ratio, "1", 1.8, None, ratio >= 1.8)


def _fused(threads: int) -> dict[str, Callable[[], None]]:
    """L2F's hover task with everything in the step: noisy observation, reward, termination, reset.

    The action is the constant one that carries the weight: thrown worlds fall out of the box after half a second, so
    that about two in a hundred are reset in every step.
    """
    import torch

    from sim.backends.quadrotor_fused import FusedHover

    action = torch.full((WORLDS, 4), 0.334)

    def program(privileged: bool) -> Callable[[], None]:
        env = FusedHover(WORLDS, threads=threads, privileged=privileged)
        env.reset()
        for _ in range(100):
            env.step(action)
        return lambda: (env.step(action), None)[1]

    return {"complete": program(privileged=False), "critic": program(privileged=True)}


def _backend(threads: int) -> dict[str, Callable[[], None]]:
    """The backend: L2F's parameters for all worlds, one step per call; and the general path, per physics step."""
    import torch

    from robots.crazyflie.spec import L2F_PARAMETERS
    from robots.spec import load_robot
    from sim.backends.quadrotor import make

    ids = torch.arange(WORLDS)
    dynamics = make(load_robot("crazyflie"), WORLDS, "motor_cmd", dt=DT, threads=threads)
    shared = {k: torch.tensor(v).expand(WORLDS, -1) for k, v in L2F_PARAMETERS.items()}
    dynamics.set_params(ids, {k: v[:, 0] if v.shape[1] == 1 else v for k, v in shared.items()})
    dynamics.reset(ids, {})
    hover = dynamics.signals()["rotor_speed"].clone()
    ctbr = make(load_robot("crazyflie"), WORLDS, "ctbr_cmd", dt=DT / 20, threads=threads)
    ctbr.set_params(ids, {"mass": 0.027 + 0.007 * torch.rand(WORLDS), "command_delay": 0.002 * torch.rand(WORLDS)})
    ctbr.reset(ids, {})
    command = torch.tensor([0.31, 0.1, -0.1, 0.2]).repeat(WORLDS, 1)
    done = {"left": 0}

    def substep() -> None:
        # one call advances 20 physics steps; every 20th of the counted ones makes it
        if done["left"] == 0:
            ctbr.step(command, 20)
            done["left"] = 20
        done["left"] -= 1

    return {"dynamics": lambda: dynamics.step(hover, 1), "ctbr": substep}


def _numpy_program() -> Callable[[], None]:
    """The same Runge-Kutta step as operations on whole arrays: the physics function itself, bound to numpy."""
    import numpy as np

    from robots.crazyflie.spec import L2F_PARAMETERS
    from sim import compile as compiling
    from sim.backends import quadrotor_physics as physics
    from sim.backends.quadrotor_fused import shared_params

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

    return program


def _gpu() -> list[Row]:
    """The CUDA kernels need a GPU to be measured on."""
    import torch

    dynamics, share = "quadrotor.gpu_dynamics", "quadrotor.gpu_complete_step_of_memory_bound"
    todo = "the complete step is not written for CUDA yet"
    if not torch.cuda.is_available():
        return [Row(dynamics, None, "1/s", 15e9, NO_GPU), Row(share, None, "1", 0.5, f"{NO_GPU}; {todo}")]
    rate = _gpu_rate()
    return [Row(dynamics, rate, "1/s", 15e9, None, rate >= 15e9), Row(share, None, "1", 0.5, todo)]


def _gpu_rate() -> float:
    """Dynamics steps per second of four million worlds, parameters per world."""
    import torch

    from robots.spec import load_robot
    from sim.backends.quadrotor import make

    worlds = 1 << 22
    sim = make(load_robot("crazyflie"), worlds, "motor_cmd", dt=DT, device="cuda")
    command = torch.full((worlds, 4), 0.6, device="cuda")
    return worlds * 50 / _gpu_seconds(lambda: [sim.step(command, 1) for _ in range(50)])


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
