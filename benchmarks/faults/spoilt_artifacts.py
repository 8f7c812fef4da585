"""Artifacts that are not what they say: no process may run with them."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import ArtifactError
from temporeal.robots.artifact.runtime import Artifact
from temporeal.robots.spec import load_robot
from temporeal_benchmarks.deployment.robot_processes import RobotProcesses
from temporeal_benchmarks.faults.process_faults import RATE_HZ
from temporeal_benchmarks.rows import Row, none_of
from temporeal_bridge.process.children import last_words


def refusals(artifact: Path, out: Path, trials: int, rng: random.Random) -> list[Row]:
    """Artifacts that were changed, in another place each trial: no process may run with them. A process is started in
    the first trial; in the others the function that it loads with is called here."""
    shutil.rmtree(out, ignore_errors=True)
    made = []
    for name, (modules, robot, spoil) in SPOILED.items():
        paths = []
        for k in range(trials if spoil is not whole else 1):
            paths.append(out / f"{name} {k}")
            shutil.copytree(artifact, paths[-1])
            spoil(paths[-1], rng)
        for module in modules:
            made.append(refused(name, module, robot, paths[0], out))
            taken = [path for path in paths[1:] if loads(module, robot, path)]
            if paths[1:]:
                where = "; ".join([f"{len(paths) - 1} more, in other places", *map(str, taken[:3])])
                made.append(none_of(f"faults.processes.artifact {name}: {module} loads it", len(taken), where))
        for path in paths:
            shutil.rmtree(path)
    return made


def refused(name: str, module: str, robot: str, path: Path, out: Path) -> Row:
    """A process that is started with a spoilt artifact ends with status 2, and says nothing before."""
    nodes = RobotProcesses(path, robot, *ROBOTS[robot], RATE_HZ, out / "run")
    try:
        process = nodes.start(module, "--artifact", str(path))
        began = time.monotonic()
        nodes.spin(30.0, lambda: process.poll() is not None)
        took, code, words = time.monotonic() - began, process.poll(), last_words(process).rpartition("\n")[2]
    finally:
        nodes.close()
    return Row(f"faults.processes.artifact {name}: {module} refuses after", took, "s", None,
               words[:200], code == 2 and not nodes.oracle.commands)


def loads(module: str, robot: str, path: Path) -> bool:
    """Whether a node would take an artifact."""
    try:
        if module == "guard_node":
            load_manifest(path)
        else:
            Artifact.load(path, load_robot(robot))
    except ArtifactError:
        return False
    return True


ROBOTS = {"crazyflie": ("odometry", "ctbr_cmd"), "franka": ("forward_position", "joint_pos_cmd")}


def flip(file: str) -> Callable[[Path, random.Random], None]:
    """One byte of a file, anywhere, is another one."""
    def spoil(path: Path, rng: random.Random) -> None:
        data = bytearray((path / file).read_bytes())
        data[rng.randrange(len(data))] ^= 1
        (path / file).write_bytes(data)

    return spoil


def truncate(path: Path, rng: random.Random) -> None:
    """The network's end is not there, from anywhere on."""
    data = (path / "policy.onnx").read_bytes()
    (path / "policy.onnx").write_bytes(data[: rng.randrange(len(data))])


def whole(path: Path, rng: random.Random) -> None:
    """It is as it was."""


BOTH, ONE = ("guard_node", "policy_node"), ("policy_node",)
# by name: which processes must refuse it (the guard reads the manifest only, and says which artifact it means by its
# digest), the robot that they are of, what is done to it
SPOILED: dict[str, tuple[tuple[str, ...], str, Callable[[Path, random.Random], None]]] = {
    "corrupt": (ONE, "crazyflie", flip("policy.onnx")), "manifest corrupt": (BOTH, "crazyflie", flip("manifest.json")),
    "truncated": (ONE, "crazyflie", truncate), "of another robot": (BOTH, "franka", whole)}
