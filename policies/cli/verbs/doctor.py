"""``temporeal doctor``: what is installed, reachable and sane on this machine, and what to do about the rest."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from temporeal.policies.cli.console import Parser, add_json, add_overrides, print_json, say
from temporeal.policies.runs.errors import FAILED, OK, BadInput
from temporeal.robots.optional_packages import install

SUMMARY = "is this machine ready, and the robot before a flight, and what to do where not"
HELP = """\
Without --artifact: checks Python, packages, processor, numba threads and cache, GPU, DDS (two processes really
exchange a message over loopback), rclpy, ROS_DOMAIN_ID, disk and clock. Each line says what was found and, where
something is amiss, what to do. Exit status 1 where something that the quadrotor chain needs does not work; warnings
do not count.

With --artifact: joins the robot's bus, sends nothing, listens for some seconds and checks before anything moves:
topics, types and QoS, rates and gaps, clocks against stamps, joint names, limits and units, dead sensors, geofence,
whether anybody else commands the robot and whether the robot listens, node names, the artifact's own trace and its
first command for the robot's state, real-time priority. Settings are those of `temporeal deploy`:
deploy.namespace=/cf1, ...

Exit status: 0 nothing failed, 1 a check failed, 2 the bus or the artifact cannot be used.

Example:
  temporeal doctor
  temporeal doctor --artifact outputs/artifact deploy.namespace=/cf1 --seconds 5
"""

MIN_SECONDS, MAX_SECONDS = 0.5, 600.0  # of listening
EXTRAS = {
    "train": "learn and judge", "robot": "fly an artifact", "spec": "score formulas on files",
    "gpu": "simulate on a GPU", "cameras": "see what simulated cameras see, make videos",
    "view": "look at tasks in a browser", "adapters": "train with other learners", "dev": "develop"}
LOOPBACK = """<CycloneDDS><Domain id="any"><General><AllowMulticast>false</AllowMulticast><Interfaces>
<NetworkInterface name="lo" multicast="false"/></Interfaces></General><Discovery><ParticipantIndex>auto
</ParticipantIndex><MaxAutoParticipantIndex>60</MaxAutoParticipantIndex><Peers><Peer address="localhost"/></Peers>
</Discovery></Domain></CycloneDDS>""".replace("\n", "")


@dataclass(frozen=True)
class Check:
    """One finding. ``status``: ``ok``, ``warn`` (works, or is not needed by all) or ``fail``."""

    name: str
    status: str
    found: str
    advice: str = ""


def parser() -> Parser:
    """Options of this verb."""
    p = Parser("doctor", HELP)
    add_overrides(p)
    p.add_argument("--artifact", type=Path, metavar="ARTIFACT", help="check the robot that this is for, on its bus")
    p.add_argument("--trust", type=Path, metavar="PUB.pem",
                   help="with --artifact: public key; one that its owner did not sign is refused")
    p.add_argument("--robot", metavar="NAME", help="with --artifact: the robot that is there, to be compared")
    p.add_argument("--seconds", type=float, metavar="S", help="with --artifact: how long to listen (3)")
    add_json(p)
    return p


def run(argv: Sequence[str]) -> int:
    """Make every check; status 1 where one failed."""
    options = parser().parse_intermixed_args(argv)
    for name in ("trust", "robot", "seconds", "overrides"):
        if getattr(options, name) not in (None, []) and options.artifact is None:
            raise BadInput(f"{name if name == 'overrides' else '--' + name} needs --artifact ARTIFACT: "
                           "without it only this machine is checked")
    checks = live(options) if options.artifact else (check for examine in CHECKS for check in guarded(examine))
    found = []
    for check in checks:
        found.append(check)
        if not options.json:
            show(check)
    failed = [check.name for check in found if check.status == "fail"]
    good = "nothing was found in the way" if options.artifact else what_next()
    if options.json:
        print_json({"ok": not failed, "failed": failed, "checks": [asdict(check) for check in found]})
    else:
        say(f"\n{'not ready: ' + ', '.join(failed) if failed else f'ready: {good}'}")
    return FAILED if failed else OK


def what_next() -> str:
    """What this machine's packages are enough for."""
    from temporeal.policies.cli.verbs.deploy import TRAINING

    if all(installed_version(name) for name in TRAINING):
        return "try `temporeal demo`"
    return "`temporeal deploy ARTIFACT` flies what was trained elsewhere (extra train is what training needs)"


def live(options: Any) -> Iterator[Check]:
    """The checks of ``--artifact``: on the robot's bus, before anything moves."""
    from temporeal.policies.cli.preflight import preflight
    from temporeal.policies.cli.verbs.deploy import check_bus, needs_bridge, settings
    from temporeal.policies.runs import errors
    from temporeal.robots.artifact.loading import load_manifest
    from temporeal.robots.spec import load_robot

    seconds = 3.0 if options.seconds is None else options.seconds
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise BadInput(f"--seconds is from {MIN_SECONDS:g} to {MAX_SECONDS:g}, got {seconds:g}")
    needs_bridge()
    deploy = settings(options.overrides)
    with errors.bad_input():
        manifest = load_manifest(options.artifact, options.trust)
        standing = load_robot(options.robot).name if options.robot else None
    check_bus(deploy, manifest.robot)
    yield from guarded(preflight.machine)
    yield from guarded(clock)
    yield from preflight.live(options.artifact, manifest, deploy, seconds, standing)


def guarded(examine: Callable[..., Iterator[Check]], *given: Any) -> Iterator[Check]:
    """A check that itself breaks is a finding, not the end of the others."""
    try:
        yield from examine(*given)
    except Exception as error:
        yield Check(examine.__name__, "fail", f"{type(error).__name__}: {error}", "please report this")


def show(check: Check) -> None:
    """One line, and the advice below it."""
    say(f"{check.status:4}  {check.name:16}  {check.found}")
    if check.advice:
        say(f"{'':24}-> {check.advice}")


def python() -> Iterator[Check]:
    """The interpreter."""
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < (3, 11):
        yield Check("python", "warn", found, "enough for the robot side; training is pinned for 3.11 and newer")
    else:
        yield Check("python", "ok", found)


def packages() -> Iterator[Check]:
    """Which extras are complete."""
    try:
        installed = importlib.metadata.version("temporeal")
        required = importlib.metadata.requires("temporeal") or []
    except importlib.metadata.PackageNotFoundError:
        yield Check("temporeal", "warn", "runs from its folder, not installed", "make install (or pip install -e .)")
        return
    yield Check("temporeal", "ok", installed)
    for extra, purpose in EXTRAS.items():
        needed = extra_packages(required, extra)
        have = {name: installed_version(name) for name in needed}
        missing = [name for name, version in have.items() if version is None]
        told = ", ".join(f"{name} {version}" for name, version in have.items() if version)
        advice = f"to {purpose}: {install(extra)}" if missing else ""
        found = f"missing {', '.join(missing)}" if missing else told
        yield Check(f"extra {extra}", "warn" if missing else "ok", found, advice)


def extra_packages(required: Sequence[str], extra: str) -> list[str]:
    """Names of the distributions that ``extra`` adds, those of another platform left out."""
    out = []
    for line in required:
        requirement, _, marker = line.partition(";")
        if not re.search(rf"""extra\s*==\s*["']{extra}["']""", marker):
            continue
        if "aarch64" in marker and sys.platform == "linux" and platform.machine() == "aarch64":
            continue
        out.append(re.split(r"[\s<>=!~\[(]", requirement.strip(), maxsplit=1)[0])
    return out


def installed_version(distribution: str) -> str | None:
    """Its version, None where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_model() -> str:
    """Name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> Iterator[Check]:
    """Cores and load."""
    cores, load = usable_cores(), os.getloadavg()[0]
    busy = load > 1.5 * cores
    yield Check("processor", "warn" if busy else "ok", f"{cores} cores, load {load:.1f}, {cpu_model()}",
                "other programs keep the cores busy: training takes longer, flights may miss deadlines" if busy else "")


def numba_threads() -> Iterator[Check]:
    """A parallel loop is compiled and run; where compiled code is kept."""
    if importlib.util.find_spec("numba") is None:
        yield Check("numba", "warn", "not installed", f"the simulator needs it: {install('train')}")
        return
    import numba

    @numba.njit(parallel=True)
    def total(n: int) -> int:
        out = 0
        for i in numba.prange(n):
            out += i
        return out

    assert total(1000) == 499500
    layer, threads = numba.threading_layer(), numba.get_num_threads()
    yield Check("numba", "ok", f"{numba.__version__}, {threads} threads, threading layer {layer}")
    yield numba_cache()


def numba_cache() -> Check:
    """Whether compiled kernels can be kept: else every start compiles them again."""
    from temporeal import sim

    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(str(sim.__file__)).parent)
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Check("numba cache", "ok", str(folder))
    return Check("numba cache", "warn", f"cannot write to {folder}",
                 "export NUMBA_CACHE_DIR=<a folder of yours>, or every start compiles for many seconds")


def torch_gpu() -> Iterator[Check]:
    """torch, and a GPU where there is one."""
    driver = shutil.which("nvidia-smi") is not None
    if importlib.util.find_spec("torch") is None:
        yield Check("torch", "warn", "not installed", f"to train: {install('train')}")
        return
    import torch

    yield Check("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads")
    if torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        yield Check("gpu", "ok", f"{torch.cuda.get_device_name(0)}, {memory:.0f} GiB: device=cuda")
    elif driver:
        yield Check("gpu", "warn", "an NVIDIA driver, but torch cannot use it",
                    f"torch {torch.__version__} is a CPU build or wants a newer driver: install torch's CUDA build")
    else:
        yield Check("gpu", "ok", "none, and none is needed: device=cpu")


def pictures() -> Iterator[Check]:
    """Whether OpenGL renders here; the other renderer, MuJoCo Warp, is a package."""
    try:
        import mujoco
        import torch

        from temporeal.sim.rendering.opengl_renderer import MissingRenderer
    except ModuleNotFoundError as error:
        yield Check("pictures", "warn", f"{error.name} is missing", "see extra train")
        return
    from temporeal.sim.rendering.cameras import Camera, Rig

    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    try:
        with Rig(model, 1, (Camera("eye", 8, 8, pos=(0.0, 0.0, 3.0)),), renderer="gl") as rig:
            rig.render(torch.zeros(1, 0))
    except (MissingRenderer, ModuleNotFoundError) as error:
        yield Check("pictures", "warn", "no OpenGL", f"{error}; or renderer=warp, which needs none")
    else:
        yield Check("pictures", "ok", "OpenGL renders offscreen")


def falsification() -> Iterator[Check]:
    """CMA-ES, which `temporeal falsify` searches with."""
    version = installed_version("cma")
    if version is None:
        yield Check("cma", "warn", "not installed",
                    "`temporeal falsify` searches with it: pip install cma; --method random needs none")
    else:
        yield Check("cma", "ok", version)


def ros_domain() -> Iterator[Check]:
    """ROS_DOMAIN_ID: its range, and the ports that it maps to."""
    text = os.environ.get("ROS_DOMAIN_ID")
    if not text:
        yield Check("ROS_DOMAIN_ID", "ok", "not set: 0")
    elif not text.isdigit() or int(text) > 232:
        yield Check("ROS_DOMAIN_ID", "fail", repr(text), "it is a number 0..232: export ROS_DOMAIN_ID=0")
    elif 102 <= int(text) <= 214:
        yield Check("ROS_DOMAIN_ID", "warn", text,
                    "on Linux its ports are among those given to any program: prefer 0..101")
    else:
        yield Check("ROS_DOMAIN_ID", "ok", text)


def dds() -> Iterator[Check]:
    """Two processes exchange a message over loopback."""
    if importlib.util.find_spec("cyclonedds") is None:
        arm = platform.machine() == "aarch64"
        yield Check("dds", "warn", "cyclonedds is not installed",
                    "no wheel for Linux on ARM: build Cyclone DDS, then pip install cyclonedds" if arm
                    else f"to fly: {install('robot')}")
        return
    # processes of their own: the message really crosses loopback, and a middleware that hangs harms nobody
    topic = f"temporeal_doctor_{os.getpid()}"
    sender, receiver = dds_process("send", topic), dds_process("receive", topic)
    told = "is loopback up and UDP on it allowed? another ROS_DOMAIN_ID may help"
    try:
        output, errors = receiver.communicate(timeout=25)
    except subprocess.TimeoutExpired:
        receiver.kill()
        yield Check("dds", "fail", "the middleware did not return within 25 s", told)
        return
    finally:
        sender.kill()
        sender.communicate()
    if receiver.returncode == 0:
        yield Check("dds", "ok", f"cyclonedds {installed_version('cyclonedds')}, {output.strip()}")
    else:
        yield Check("dds", "fail", (errors.strip().splitlines() or ["no message"])[-1], told)


def dds_process(role: str, topic: str) -> subprocess.Popen[str]:
    """A process that sends to, or receives from, ``topic`` over loopback only."""
    return subprocess.Popen(
        [sys.executable, "-c", f"from temporeal.policies.cli.verbs.doctor import dds_{role}; dds_{role}({topic!r})"],
        env={**os.environ, "CYCLONEDDS_URI": LOOPBACK}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def dds_topic(name: str) -> tuple[Any, Any, type]:
    """A participant in the domain of ROS_DOMAIN_ID, the topic and its type."""
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.idl import make_idl_struct
    from cyclonedds.idl.types import int32
    from cyclonedds.topic import Topic

    text = os.environ.get("ROS_DOMAIN_ID", "0")
    participant = DomainParticipant(int(text) if text.isdigit() and int(text) <= 232 else 0)
    ping = make_idl_struct("Ping", "temporeal.Ping", {"data": int32})
    return participant, Topic(participant, name, ping), ping


def dds_send(name: str) -> None:
    """Child process: send a number every 10 ms for 20 s. Discovery is not instant, so once is not enough."""
    from cyclonedds.pub import DataWriter

    participant, topic, ping = dds_topic(name)
    writer = DataWriter(participant, topic)
    for _ in range(2000):
        writer.write(ping(data=7))
        time.sleep(0.01)


def dds_receive(name: str) -> None:
    """Child process: print how long the first number took; status 1 after 15 s without one."""
    from cyclonedds.sub import DataReader

    participant, topic, _ = dds_topic(name)
    reader = DataReader(participant, topic)
    started = time.perf_counter()
    while time.perf_counter() - started < 15.0:
        if any(getattr(sample, "data", None) == 7 for sample in reader.take(10)):
            print(f"first message between two processes over loopback after {time.perf_counter() - started:.2f} s")
            return
        time.sleep(0.005)
    raise SystemExit("two processes did not find each other over loopback within 15 s")


def rclpy() -> Iterator[Check]:
    """ROS 2's own Python library: only a ROS installation has it, and it is not needed."""
    distro = os.environ.get("ROS_DISTRO")
    if importlib.util.find_spec("rclpy") is not None:
        yield Check("rclpy", "ok", f"found (ROS 2 {distro or 'of unknown name'}): deploy=rclpy is possible")
    elif distro:
        yield Check("rclpy", "warn", f"ROS 2 {distro} is sourced, but Python {platform.python_version()} has no rclpy",
                    "rclpy needs the Python that ROS was built for; deploy=dds talks to it from any Python")
    else:
        yield Check("rclpy", "ok", "not here, not needed: deploy=dds speaks to ROS 2. For deploy=rclpy source a ROS 2")


def disk() -> Iterator[Check]:
    """Room for results."""
    free = shutil.disk_usage(".").free / 1e9
    writable = os.access(".", os.W_OK)
    if not writable:
        yield Check("disk", "fail", f"cannot write to {Path.cwd()}", "go to a folder of yours, or give out=<folder>")
    elif free < 0.2:
        yield Check("disk", "fail", f"{free:.2f} GB free here", "a run needs about 0.2 GB: make room")
    else:
        yield Check("disk", "warn" if free < 2 else "ok", f"{free:.1f} GB free here",
                    "recordings and runs fill that soon" if free < 2 else "")


def clock() -> Iterator[Check]:
    """The clock never goes back; how late a process that sleeps for 2 ms wakes up."""
    times = [time.monotonic_ns() for _ in range(20_000)]
    if any(b < a for a, b in zip(times, times[1:])):
        yield Check("clock", "fail", "the monotonic clock went backwards", "no control loop can run on this machine")
        return
    late = []
    for _ in range(250):
        started = time.perf_counter()
        time.sleep(0.002)
        late.append(1e3 * (time.perf_counter() - started) - 2.0)
    late.sort()
    median, worst = late[125], late[247]
    found = f"monotonic; wakes up late by {median:.2f} ms (median), {worst:.2f} ms (p99)"
    if worst > 5.0:
        yield Check("clock", "warn", found, "a loop at 100 Hz will miss deadlines: stop other programs")
    else:
        yield Check("clock", "ok", found)


CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (
    python, packages, processor, numba_threads, torch_gpu, pictures, falsification, dds, rclpy, ros_domain, disk, clock)
