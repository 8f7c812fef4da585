"""``temporeal bench sim``: what an environment costs beyond the physics, against raw MuJoCo and other environments."""

from __future__ import annotations

import gc
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal_benchmarks import rounds
from temporeal_benchmarks.machine import every_core, one_core
from temporeal_benchmarks.peers.install import PeerError
from temporeal_benchmarks.peers.process import Peer
from temporeal_benchmarks.rounds import Program, Rates, ratio
from temporeal_benchmarks.rows import Row, at_least, at_most, not_measured

if TYPE_CHECKING:
    import torch

    from temporeal.sim.env import Env

HELP = (
    "HalfCheetah (the file of the user's Gymnasium, 5 physics steps of 10 ms in a step) as an environment of ours with "
    "observations, rewards and resets: steps per CPU-second against mujoco.batch alone (same states and actions, the "
    "states after each block equal bit for bit), EnvPool (which brings an older MuJoCo) and Gymnasium's AsyncVectorEnv "
    "(CPU time of all its processes); cost per step from 64 to 4096 worlds; memory over 20,000 steps; 64x64 pictures; "
    "physics steps of the arm's lift task against mujoco.batch. One core; medians of interleaved rounds"
)

SIZES = (64, 1024)  # worlds at which others are compared
WORLDS = (64, 256, 1024, 4096)
STEPS = 1000  # of an episode: HalfCheetah never ends early
BLOCK = 9600  # world steps timed together, about 0.3 s
OF_RAW, OF_ENVPOOL, OF_ASYNC, OF_ARM = 0.95, 1.2, 5.0, 0.9  # targets
FLAT = 1.1  # target: cost of a step of one of 4096 worlds over that of one of 64
FRAME_MS = 1.5  # target
RESIDENT = 1e6  # B, target: what the process may grow by in the measured steps; one lost tensor a step is 9 MB
TRACED = 16e3  # B, target of the same for Python's own objects, in TRACED_STEPS steps
TRACED_STEPS = 2048
ASYNC_WORLDS = 8  # a process each: its cost per step does not fall with more
ARM_WORLDS = 64
CHEETAH = "HalfCheetah-v5"


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    block: int  # world steps timed together
    asynchronous: int  # worlds of AsyncVectorEnv
    memory: int  # steps watched
    frames: float  # s, of pictures


FULL = Size(9, BLOCK, ASYNC_WORLDS, 20_000, 2.0)
QUICK = Size(1, 64, 2, 200, 0.05)


def run(quick: bool, *, out: Path | None = None) -> list[Row]:
    """Everything on one core."""
    import mujoco

    size = QUICK if quick else FULL
    with one_core():
        return [Row("settings.mujoco", None, peer=mujoco.__version__), Row("settings.rounds", size.rounds),
                Row("settings.block", size.block, "world steps"),
                *cheetah(size), *memory(size), *arm(size), *frames(size)]


def rates(programs: Mapping[str, Program], count: int) -> dict[str, list[float]]:
    """Steps per CPU-second in each round, after a pass of each program that compiles and fills caches."""
    for program in programs.values():
        program.seconds()
    return rounds.rates(programs, count)


# ---------------------------------------------------------------- HalfCheetah


def cheetah(size: Size) -> list[Row]:
    """Rates of all sides and their ratios."""
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        programs = {name: program for worlds in WORLDS for name, program in ours(worlds, size).items()}
        remarks: dict[str, str] = {}
        for name, make in (("envpool", envpool), ("async", asynchronous)):
            try:
                more, remarks[name] = stack.enter_context(make(size))
                programs |= more
            except (PeerError, ModuleNotFoundError) as error:
                missing[name] = str(error)
                print(f"left out: {error}", file=sys.stderr)
        found = rates(programs, size.rounds)
    rows = [Row(f"cheetah.{name}", median(values), "1/CPU-s") for name, values in found.items()]
    for worlds in SIZES:
        targets = {"raw": OF_RAW, "envpool": OF_ENVPOOL, "async": OF_ASYNC}
        rows += [compared(found, missing, worlds, side, target, remarks.get(side, ""))
                 for side, target in targets.items()]
        staggered = ratio(found, f"{worlds}.staggered", f"{worlds}.raw")
        rows.append(Row(f"cheetah.{worlds}.staggered_of_raw", staggered, "1", peer="episodes end at different times"))
    flat = ratio(found, f"{WORLDS[0]}.env", f"{WORLDS[-1]}.env")
    return [*rows, at_most("cheetah.cost_4096_of_64", flat, "1", FLAT)]


def compared(
    found: Rates, missing: Mapping[str, str], worlds: int, side: str, target: float, remark: str = ""
) -> Row:
    """Our rate over that of a side, judged; without a value where the side is missing."""
    name = f"cheetah.{worlds}.{'of' if side == 'raw' else 'against'}_{side}"
    if side in missing:
        return not_measured(name, "1", target, missing[side])
    theirs = "async" if side == "async" else f"{worlds}.{side}"
    peer = f"{median(found[theirs]):,.0f} /CPU-s{'; ' if remark else ''}{remark}"
    return at_least(name, ratio(found, f"{worlds}.env", theirs), "1", target, peer)


def ours(worlds: int, size: Size) -> dict[str, Program]:
    """The environment, and MuJoCo alone from the same states with the same actions; then with episodes staggered."""
    from temporeal_benchmarks import half_cheetah

    steps = max(1, size.block // worlds)
    env = half_cheetah.environment(worlds, seed=1)
    actions = random_actions(worlds, env.action_dim, steps)
    raw = Raw(env, [a.double().numpy() for a in actions], half_cheetah.SUBSTEPS)
    env.reset()
    sides = {f"{worlds}.raw": Program(raw.seconds, steps * worlds),
             f"{worlds}.env": Program(lambda: environment_seconds(env, actions, raw), steps * worlds)}
    if worlds not in SIZES:
        del sides[f"{worlds}.raw"]
        return sides
    other = half_cheetah.environment(worlds, seed=2)
    other.reset()
    other.column["count"].copy_(spread(worlds))
    sides[f"{worlds}.staggered"] = Program(lambda: block_seconds(other, actions), steps * worlds)
    return sides


def random_actions(worlds: int, dim: int, count: int) -> list[torch.Tensor]:
    """``count`` actions [worlds, dim], uniform in [-1, 1]."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return [2 * torch.rand(worlds, dim, generator=generator) - 1 for _ in range(count)]


def spread(worlds: int) -> torch.Tensor:
    """Steps since the start of each world's episode, such that as many end in each step."""
    import torch

    return torch.floor(torch.arange(worlds) * (STEPS / worlds))


class Raw:
    """``mujoco.batch`` alone with the environment's model, from the states where the environment's block began."""

    def __init__(self, env: Env, actions: Sequence[np.ndarray], substeps: int) -> None:
        from mujoco.batch import Batch

        self.batch = Batch(env.backend.model.mj, env.num_worlds, nthread=1)
        self.ctrl, self.actions, self.substeps = self.batch.bind("ctrl"), actions, substeps
        self.begin: np.ndarray | None = None

    def seconds(self) -> float:
        """Of a block of control steps."""
        if self.begin is not None:
            self.batch.state[:] = self.begin
        begin = time.process_time()
        for action in self.actions:
            self.ctrl[:] = action
            self.batch.step(nstep=self.substeps)
        return time.process_time() - begin

    def check(self, begin: np.ndarray, end: np.ndarray) -> None:
        """From ``begin``, the states [N, S] are those that the environment ended with, bit for bit."""
        self.begin = begin
        self.seconds()
        if not np.array_equal(self.batch.state, end):
            raise AssertionError("the environment and MuJoCo alone did not do the same physics: states differ")


def block_seconds(env: Env, actions: Sequence[torch.Tensor]) -> float:
    """Processor time of a block of steps."""
    begin = time.process_time()
    for action in actions:
        env.step(action)
    return time.process_time() - begin


def environment_seconds(env: Env, actions: Sequence[torch.Tensor], raw: Raw) -> float:
    """Of a block of steps, with its share of the step in which all episodes end and new ones begin.

    All worlds start together, as in the peers, so that one step in ``STEPS`` resets all of them. It is timed by itself
    after each block, and counts as often as it comes.
    """
    count = env.column["count"]
    count.fill_(0.0)
    before = env.backend.state()["rows"].numpy()
    seconds = block_seconds(env, actions)
    after = env.backend.state()["rows"].numpy()
    count.fill_(STEPS - 1.0)
    begin = time.process_time()
    ended = env.step(actions[0]).truncated
    reset = time.process_time() - begin
    if not bool(ended.all()):
        raise AssertionError("an episode did not end at its last step")
    raw.check(before, after)
    share = len(actions) / STEPS
    return seconds * (1 - 1 / STEPS) + share * reset


Side = tuple[dict[str, Program], str]
"""Programs of a peer, and what must be said of it beside its figures."""


@contextmanager
def envpool(size: Size) -> Iterator[Side]:
    """EnvPool in its process, on one thread. It brings a MuJoCo of its own, whose version is said."""
    import mujoco

    with Peer("envpool") as peer:
        programs = {}
        for worlds in SIZES:
            made = peer.ask("make", key=str(worlds), task=CHEETAH, worlds=worlds, substeps=5)
            if made["substeps"] != 5 or made["observation"] != [17]:
                raise PeerError(f"envpool steps {CHEETAH} otherwise: {made}")
            steps = max(1, size.block // worlds)
            programs[f"{worlds}.envpool"] = Program(_asked(peer, str(worlds), steps), steps * worlds)
        yield programs, f"EnvPool {made['version']} with MuJoCo {made['mujoco']}, ours with MuJoCo {mujoco.__version__}"


def _asked(peer: Peer, key: str, steps: int) -> Callable[[], float]:
    return lambda: float(peer.ask("run", key=key, steps=steps))


@contextmanager
def asynchronous(size: Size) -> Iterator[Side]:
    """Gymnasium's AsyncVectorEnv, a process for each world; their processor time and that of this process."""
    try:
        import gymnasium
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error.name} is not installed: pip install 'gymnasium[mujoco]'") from error
    worlds = size.asynchronous
    make = [_gymnasium_cheetah] * worlds
    with every_core():  # where its processes wait for each other least
        envs = gymnasium.vector.AsyncVectorEnv(make, context="spawn")
    steps = max(10, size.block // 4 // worlds)
    actions = np.random.default_rng(0).uniform(-1, 1, (16, worlds, 6)).astype(np.float32)
    children = [process.pid for process in envs.processes]

    def seconds() -> float:
        begin = time.process_time() + sum(map(cpu_seconds, children))
        for i in range(steps):
            envs.step(actions[i % 16])
        return time.process_time() + sum(map(cpu_seconds, children)) - begin

    try:
        envs.reset(seed=0)
        yield {"async": Program(seconds, steps * worlds)}, f"Gymnasium {gymnasium.__version__}, {worlds} worlds"
    finally:
        envs.close()


def _gymnasium_cheetah() -> Any:
    import gymnasium
    import mujoco

    silent = mujoco.MjLogConfig.get()
    silent.logto_console = silent.logto_file = False
    silent.set()  # each process would warn of the file's deprecated settings
    return gymnasium.make(CHEETAH)


def cpu_seconds(process: int) -> float:
    """Processor time of a running process, all its threads: /proc/PID/task/*/schedstat, in ns."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return 1e-9 * sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


# ---------------------------------------------------------------- memory


def memory(size: Size) -> list[Row]:
    """What the process and Python's objects grow by while 16 worlds are stepped; both judged for the full run alone."""
    from temporeal.sim.compiler.step_buffers import AHEAD
    from temporeal_benchmarks import half_cheetah

    env = half_cheetah.environment(16, seed=1)
    actions = random_actions(16, env.action_dim, 16)
    env.reset()
    env.column["count"].copy_(spread(16))
    steps_of(env, actions, max(size.memory // 10, 100))  # fills what is kept for good
    begun = resident()
    steps_of(env, actions, size.memory)
    grown = max(0, resident() - begun)
    # whole lots of the results that are taken ahead: as many of them are there at the end as at the beginning
    traced_steps = max(1, min(TRACED_STEPS, size.memory) // AHEAD) * AHEAD
    traced = traced_growth(lambda: steps_of(env, actions, traced_steps))
    return [
        at_most("memory.resident_growth", grown, "B", RESIDENT, f"in {size.memory} steps"),
        at_most("memory.traced_growth", traced, "B", TRACED, f"in {traced_steps} steps")]


def steps_of(env: Env, actions: Sequence[torch.Tensor], count: int) -> None:
    """``count`` steps."""
    for i in range(count):
        env.step(actions[i % len(actions)])


def resident() -> int:
    """Bytes of memory that this process has."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def traced_growth(work: Callable[[], object]) -> int:
    """Bytes of Python's objects that are left of the second of two calls of ``work``."""
    tracemalloc.start()
    try:
        work()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        work()
        gc.collect()
        return max(0, tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- the arm


def arm(size: Size) -> list[Row]:
    """Physics steps of the lift task through our backend, and by mujoco.batch from the same states."""
    env, command = lifting()
    substeps, backend = env.task.substeps, env.backend
    raw = Raw(env, [], substeps)
    count = max(1, size.block // (10 * ARM_WORLDS))  # a step of this model is about ten times that of the cheetah
    raw.actions = [backend.views()["ctrl"].numpy().copy()] * count

    def backend_seconds() -> float:
        before = backend.state()["rows"].numpy()
        begin = time.process_time()
        for _ in range(count):
            backend.step(command, substeps)
        seconds = time.process_time() - begin
        raw.check(before, backend.state()["rows"].numpy())
        return seconds

    work = count * ARM_WORLDS * substeps
    found = rates({"backend": Program(backend_seconds, work), "raw": Program(raw.seconds, work),
                   "mj_step": looped(raw, substeps)}, size.rounds)
    peer = f"mujoco.batch {median(found['raw']):,.0f} /CPU-s"
    return [*(Row(f"arm.{name}", median(values), "1/CPU-s") for name, values in found.items()),
            at_least("arm.of_raw", ratio(found, "backend", "raw"), "1", OF_ARM, peer),
            Row("arm.of_mj_step", ratio(found, "backend", "mj_step"), "1")]


def lifting() -> tuple[Env, torch.Tensor]:
    """The lift task after a second of random actions, and the command that is held from then on."""
    from temporeal.sim.env import make_env
    from temporeal.sim.task import load_task

    env = make_env(load_task("lift"), backend="mujoco", num_worlds=ARM_WORLDS, seed=1, threads=1)
    env.reset()
    for action in random_actions(ARM_WORLDS, env.action_dim, 25):
        env.step(action)
    command = env.command.clone()
    env.backend.step(command, 1)
    return env, command


def looped(raw: Raw, substeps: int) -> Program:
    """One world at a time through ``mujoco.mj_step``, from the states of ``raw``."""
    import mujoco

    model, few = raw.batch.model, min(8, raw.batch.nsim)

    def seconds() -> float:
        data = [raw.batch.get_data(i) for i in range(few)]
        begin = time.process_time()
        for d in data:
            mujoco.mj_step(model, d, substeps)
        return time.process_time() - begin

    return Program(seconds, few * substeps)


# ---------------------------------------------------------------- pictures

PLAIN = """
<mujoco>
  <worldbody>
    <light pos="0 0 3"/>
    <camera name="plain" pos="0 -1.2 0.8" xyaxes="1 0 0 0 0.6 0.8"/>
    <geom type="plane" size="2 2 0.1"/>
    <body pos="0 0 0.1"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>
    <body pos="0.3 0 0.1"><freejoint/><geom size="0.1"/></body>
  </worldbody>
</mujoco>
"""


def frames(size: Size) -> list[Row]:
    """CPU time of a frame: the arm's wrist camera in the lift task, and a plain scene."""
    import mujoco
    import torch

    from temporeal.sim.rendering.backend_pictures import drawn

    env, _ = lifting()
    plain = mujoco.MjModel.from_xml_string(PLAIN)
    start = torch.from_numpy(plain.qpos0).expand(ARM_WORLDS, -1)
    return [*frame("wrist", drawn(env.task.scene).mj, env.backend.views()["qpos"], size.frames),
            *frame("plain", plain, start, size.frames)]


def frame(camera: str, model: Any, qpos: torch.Tensor, seconds: float) -> list[Row]:
    """Processor time [ms] of one 64x64 colour picture: the median of repeats over ``seconds``, the least and the
    most."""
    from temporeal.sim.rendering.cameras import Camera
    from temporeal.sim.rendering.rig import Rig

    name = f"camera.{camera}.64x64"
    try:
        rig = Rig(model, len(qpos), (Camera(camera, 64, 64, kinds=("rgb",)),))
    except ModuleNotFoundError as error:
        return [not_measured(name, "ms", FRAME_MS, str(error))]
    rig.render(qpos)  # may compile
    took, end = list[float](), time.perf_counter() + seconds
    while time.perf_counter() < end or not took:
        begin = time.process_time()
        rig.render(qpos)
        took.append(1e3 * (time.process_time() - begin) / len(qpos))
    return [at_most(name, median(took), "ms", FRAME_MS, f"{rig.renderer}, {len(qpos)} worlds"),
            Row(f"{name}.least", min(took), "ms"), Row(f"{name}.most", max(took), "ms")]
