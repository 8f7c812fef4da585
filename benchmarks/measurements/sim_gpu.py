"""``temporeal bench sim-gpu``: arms, hands and legs on one NVIDIA GPU, against raw MuJoCo Warp in the same run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from temporeal_benchmarks.machine import NO_GPU, has_gpu
from temporeal_benchmarks.options import among, amount, counts
from temporeal_benchmarks.rows import Row, at_least, not_measured

if TYPE_CHECKING:
    import torch

    from temporeal.sim.env import Env
    from temporeal.sim.task import Task

HELP = (
    "physics steps/s on a GPU of an arm, a hand and an ant task, 1024 to 16384 worlds: the backend's step, the whole "
    "environment step (observations, rewards, resets), and PPO, each against raw mujoco_warp (same model, same room "
    "for contacts, its steps recorded as a CUDA graph, from the states of the environment under its commands); then "
    "PPO's success after 2 minutes"
)

KINDS = ("arm", "hand", "quadruped")  # of robots; of each one task
FIRST = ("reach", "cube_rotate")
WORLDS = (1024, 4096, 16384)
OPTIONS = {
    "robots": f"of {', '.join(KINDS)} those that are wanted (default: all)",
    "worlds": f"numbers of worlds (default: {','.join(map(str, WORLDS))}; quick: {WORLDS[0]})",
    "learn": "seconds that PPO learns with each robot, 0: it does not (default: 120; quick: 10)",
}
NARROWING = ("robots", "worlds")
SHARE = 0.9  # of raw steps/s, target of the environment step
BLOCK, BLOCKS = 50, 7  # control steps timed together, and how often each side has its turn
ITERATIONS = 12  # of PPO, the last half of which are timed
LEARN_SECONDS, LEARN_WORLDS = 120.0, 4096
Sides = Mapping[str, tuple[Callable[[], None], Callable[[], None]]]
"""What is compared: preparation that is not timed, and the work."""


def run(
    quick: bool, *, out: Path | None = None, robots: list[str] | None = None, worlds: list[str] | None = None,
    learn: list[str] | None = None,
) -> list[Row]:
    """Robots and sizes that are asked for; without a GPU each figure with the reason why it is missing."""
    kinds, sizes = among("robots", robots, KINDS), counts("worlds", worlds, WORLDS[:1] if quick else WORLDS)
    seconds = amount("learn", learn, 10.0 if quick else LEARN_SECONDS)
    rows = [device_row()]
    for kind in kinds:
        task = task_of(kind) if has_gpu() else None
        why = f"no task with a robot of kind {kind!r}" if has_gpu() else NO_GPU
        for size in sizes:
            rows += missing(kind, size, why) if task is None else measured(kind, task, size)
        if seconds:
            rows += [not_measured(f"sim_gpu.{kind}.learned_success", "1", None, why)] if task is None else learned(
                kind, task, seconds)
    return rows


def device_row() -> Row:
    """What it ran on."""
    import torch

    name = torch.cuda.get_device_name(0) if has_gpu() else NO_GPU
    return Row("settings.device", None, peer=name)


def task_of(kind: str) -> Task | None:
    """The first task whose robot is of this kind: those of :data:`FIRST`, then by name."""
    from temporeal.robots.registry import names
    from temporeal.sim.task import load_task

    known = names("temporeal.sim.tasks")
    tasks = (load_task(name) for name in (*(n for n in FIRST if n in known), *known))
    return next((task for task in tasks if task.robot.kind == kind), None)


def missing(kind: str, worlds: int, why: str) -> list[Row]:
    """The rows of a size that cannot be measured."""
    at = f"sim_gpu.{kind}.{worlds}"
    return [*(not_measured(f"{at}.{name}", "1/s", None, why) for name in ("raw", "backend", "env", "ppo")),
            not_measured(f"{at}.env_of_raw", "1", SHARE, why)]


def measured(kind: str, task: Task, worlds: int) -> list[Row]:
    """Steps/s of one size: raw, backend and environment in turns, then PPO."""
    env = env_of(task, worlds)
    env.reset()
    done = Block(env)
    raw = Raw(done)
    sides: Sides = {"env": (done.begin, done.step), "backend": (done.again, done.step_backend),
                    "raw": (raw.take_states, raw.step)}
    rates = dict(reversed(turns(sides, worlds * task.substeps * BLOCK).items()))
    rates["ppo"] = ppo_rate(task, worlds)
    at = f"sim_gpu.{kind}.{worlds}"
    step = f"task {task.name}, {task.substeps} steps of {1e3 * task.control_dt / task.substeps:g} ms"
    return [*(Row(f"{at}.{name}", rate, "1/s", peer=step) for name, rate in rates.items()),
            at_least(f"{at}.env_of_raw", rates["env"] / rates["raw"], "1", SHARE, f"raw: {rates['raw']:,.0f} /s")]


def env_of(task: Task, worlds: int) -> Env:
    """The environment on the GPU."""
    from temporeal.sim.env import make_env

    return make_env(task, backend="mujoco_warp", num_worlds=worlds, seed=1, device="cuda")


def turns(sides: Sides, steps: int) -> dict[str, float]:
    """Physics steps/s of each side: medians of blocks that take turns, so that a hot GPU slows all."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for block in range(BLOCKS + 1):
        for name, (prepare, work) in sides.items():
            prepare()
            took = timed(work)
            if block:  # the first compiles and records
                seconds[name].append(took)
    return {name: steps / median(found) for name, found in seconds.items()}


def timed(work: Callable[[], None]) -> float:
    """Seconds until the GPU has done the work."""
    import torch

    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - began


class Block:
    """Steps of the environment with random actions, of which the physics can be done again: for as long as the robots
    move as much, it takes as long, and where they are still it takes less."""

    def __init__(self, env: Env) -> None:
        from temporeal.sim.backends import mujoco_warp as backend

        sim = env.backend
        assert isinstance(sim, backend.MuJoCoWarp)
        self.env, self.sim, self.commands = env, sim, list[Any]()
        self.first = self.last = sim.state()

    def begin(self) -> None:
        """Where the environment was after its last block."""
        self.sim.set_state(self.last)
        self.first = self.last
        self.commands.clear()

    def step(self) -> None:
        """Steps of the environment."""
        for _ in range(BLOCK):
            self.env.step(actions(self.env))
            self.commands.append(self.env.command)

    def again(self) -> None:
        """Back to where the block began."""
        self.last = self.sim.state()
        self.sim.set_state(self.first)

    def step_backend(self) -> None:
        """The same commands to the backend alone, with guard, sensors and signals; no world begins anew."""
        for command in self.commands:
            self.sim.step(command, self.env.task.substeps)


class Raw:
    """mujoco_warp alone with the environment's model: a graph of one control step, of the same states and commands."""

    def __init__(self, done: Block) -> None:
        import mujoco_warp as mjw  # type: ignore[import-untyped]
        import torch
        import warp as wp

        from temporeal.sim.backends import mujoco_warp as backend

        self.done, sim, env = done, done.sim, done.env
        with wp.ScopedDevice(wp.device_from_torch(env.device)):
            self.m = m = backend.on_device(sim.model)
            m.opt.warn_overflow = 0
            self.d = d = mjw.make_data(sim.model.mj, nworld=env.num_worlds, nconmax=sim.room.contacts,
                                       njmax=sim.room.constraints, nccdmax=sim.room.convex)
            self.state = {name: wp.to_torch(getattr(d, name)) for name in backend.STATE if getattr(d, name).size}
            for _ in range(2):
                mjw.step(m, d)  # compiles
            with wp.ScopedCapture() as capture:
                for _ in range(env.task.substeps):
                    mjw.step(m, d)
        self.given: list[torch.Tensor] = []
        stream = wp.stream_from_torch(torch.cuda.current_stream(env.device))  # type: ignore[no-untyped-call]
        self.launch = partial(wp.capture_launch, capture.graph, stream=stream)

    def take_states(self) -> None:
        """Where the block began, and its commands."""
        for name, value in self.state.items():
            value.copy_(self.done.first[name])
        self.given = [self.state["ctrl"].clone() for _ in self.done.commands]
        for given, command in zip(self.given, self.done.commands):
            given[:, self.done.sim.model.ctrl] = command

    def step(self) -> None:
        """Control steps; each command is copied in, as a learner would."""
        for given in self.given:
            self.state["ctrl"].copy_(given)
            self.launch()


def actions(env: Env) -> torch.Tensor:
    """Random actions [N, A]."""
    import torch

    return 2 * torch.rand(env.num_worlds, env.action_dim, device=env.device) - 1


def ppo_rate(task: Task, worlds: int) -> float:
    """Physics steps/s while PPO learns: the second half of its first iterations."""
    history = train(task, worlds, total_steps=ITERATIONS * 32 * worlds)
    half = history[(len(history) - 1) // 2]
    rate = (history[-1]["steps"] - half["steps"]) / (history[-1]["seconds"] - half["seconds"])
    return rate * task.substeps


def learned(kind: str, task: Task, seconds: float) -> list[Row]:
    """Share of the episodes that end in success after PPO learned for some time, and what it is then paid."""
    history = train(task, LEARN_WORLDS, total_steps=10**12, max_seconds=seconds)
    last, setting = history[-1], f"task {task.name}, {LEARN_WORLDS} worlds, {seconds:g} s"
    setting += "" if "success" in last else ": no episode ended"
    return [Row(f"sim_gpu.{kind}.learned_{name}", last.get(name), "1", peer=setting)
            for name in ("success", "return", "length")]


def train(task: Task, worlds: int, **budget: Any) -> list[dict[str, float]]:
    """PPO's figures by iteration."""
    from temporeal.policies.algos.ppo import train
    from temporeal.policies.training.ppo_state import PPOConfig

    with tempfile.TemporaryDirectory() as folder:
        env: Any = env_of(task, worlds)
        return train(env, PPOConfig(**budget), out=Path(folder), seed=1).history
