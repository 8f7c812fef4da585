"""Robots of others, from their files to missions through the nodes, with the commands that a newcomer types.

    python -m temporeal_benchmarks.own_robot.robots ur5e out/      # one robot; what is in out/ is not made again

Each robot is built by ``temporeal robot new`` from a file of :data:`temporeal_benchmarks.own_robot.models.PEER` and the
answers below, trained on one task for as many seconds of two cores as :data:`SECONDS` says, judged on fresh episodes,
exported, and flown by ``temporeal deploy --sim`` in real time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from temporeal_benchmarks.own_robot.models import PEER
from temporeal_benchmarks.peers.install import folder, install_missing
from temporeal_benchmarks.rows import Row, at_least, at_most, not_measured

EPISODES, MISSIONS = 1000, 10
SECONDS = 300.0  # of training, two cores
SHARE = 0.9  # of it for learning: the rest is for compiling and the like
LEAST_MISSIONS = 0.9  # share that must be satisfied
DATA = "cmeel.prefix/share/example-robot-data"  # of example-robot-data, below the peer's folder
ARM = ("experiment=own_arm",)


@dataclass(frozen=True)
class Foreign:
    """A robot, and what it must reach.

    Args:
        model: its file below the peer's folder; "": made of the answers alone.
        answers: those of ``temporeal robot new``: what the file does not say, each from the source named beside it.
        words: of the training.
        required: P(satisfied).
        joined: MJCF around a file that its package completes in Python; "": the file stands for itself.
        inserted: what is put into the place of texts of that file.
    """

    name: str
    model: str
    answers: Mapping[str, Any]
    words: Sequence[str] = ARM
    required: float = 0.98
    joined: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    inserted: Mapping[str, str] = field(default_factory=dict)


ROBOTS = {robot.name: robot for robot in (
    Foreign("so101", f"{DATA}/robots/so_arm_description/urdf/so101.urdf", {
        "kind": "arm", "tool": "gripper_frame_link"}, packages={"example-robot-data": DATA}),
    # robosuite says radians in the world that it puts the arm into. Home: its ur5e_robot.py; speed and torques: the
    # maker's data sheet and https://www.universal-robots.com/articles/ur/robot-care-maintenance/max-joint-torques
    Foreign("ur5e", "robosuite/models/assets/robots/ur5e/robot.xml", {
        "kind": "arm", "home": [-0.47, -1.735, 2.48, -2.275, -1.59, -1.991],
        "limits": {"velocity": 3.14, "effort": {
            "shoulder_pan_joint": 150, "shoulder_lift_joint": 150, "elbow_joint": 150, "wrist_1_joint": 28,
            "wrist_2_joint": 28, "wrist_3_joint": 28}}},
            joined='<mujoco model="ur5e"><compiler angle="radian"/><include file="robot.xml"/></mujoco>'),
    # home: the key "home" of MuJoCo Menagerie's ufactory_xarm7
    Foreign("xarm7", f"{DATA}/robots/xarm_description/urdf/xarm7.urdf", {
        "kind": "arm", "home": [0, -0.247, 0, 0.909, 0, 1.15644, 0]}, packages={"example-robot-data": DATA}),
    # home: the pose that libfranka's examples start from
    Foreign("panda", f"{DATA}/robots/panda_description/urdf/panda.urdf", {
        "kind": "arm", "tool": "panda_hand_tcp", "home": [0, -0.785, 0, -2.356, 0, 1.571, 0.785]},
            packages={"example-robot-data": DATA}),
    # PX4's x500 for Gazebo (PX4-gazebo-models, x500_base): 2 kg and four rotors of 16 g, motor constant
    # 8.54858e-6 N s^2/rad^2 up to 1000 rad/s, moment constant 0.016 m, time constants 12.5 and 25 ms
    Foreign("x500", "", {
        "kind": "quadrotor", "interface": "px4", "quadrotor": {
            "mass": 2.064, "inertia": [0.0217, 0.0217, 0.04], "arm": [0.174, 0.174], "thrust_curve": [0.0, 0.0, 8.549],
            "torque_per_thrust": 0.016, "motor_time": [0.0125, 0.025]}},
            words=("experiment=demo",), required=0.95),
)}


def rows(
    names: Sequence[str] = tuple(ROBOTS), *, out: Path, episodes: int = EPISODES, missions: int = MISSIONS,
    seconds: float = SECONDS,
) -> list[Row]:
    """The figures of the named robots. A robot that fails is rows that say why; the others go on."""
    install_missing((PEER,))
    found: list[Row] = []
    for name in names:
        try:
            found += of_robot(ROBOTS[name], out, episodes, missions, seconds)
        except RuntimeError as error:
            found += [not_measured(f"{name}.p_satisfied", "1", ROBOTS[name].required, str(error)),
                      not_measured(f"{name}.missions", "1", LEAST_MISSIONS, str(error))]
    return found


def of_robot(robot: Foreign, out: Path, episodes: int, missions: int, seconds: float) -> list[Row]:
    """Build, train, judge, export, fly."""
    robots, run, name = out / "robots", out / f"{robot.name}-run", robot.name
    command = commands(robots)
    if not (robots / name / "spec.yaml").is_file():
        build(robot, robots, out, command)
    took = trained(robot, run, seconds, command)
    judged = json.loads(command("eval", str(run), "--episodes", str(episodes), "--json"))
    figures = next(value for key, value in judged.items() if key not in ("passed", "report"))
    found = [at_least(f"{name}.p_satisfied", figures["p_satisfied"], "1", robot.required,
                      f"{episodes} fresh episodes, {interval(figures)}"),
             at_most(f"{name}.training", took, "s", seconds, f"two cores; {' '.join(robot.words)}")]
    if not missions:
        return found
    if not (run / "artifact" / "manifest.json").is_file():
        command("export", str(run))
    flown = json.loads(command("deploy", str(run / "artifact"), "--sim", "--flights", str(missions), "--json", "--out",
                               str(run / "deploy"), legal=(0, 1)))
    share = flown["satisfied"] / missions
    return [*found, at_least(f"{name}.missions", share, "1", LEAST_MISSIONS,
                             f"{flown['satisfied']} of {missions} in real time through the nodes")]


def interval(figures: Mapping[str, Any]) -> str:
    """The interval of P(satisfied) in words."""
    ends = next(value for key, value in figures.items() if isinstance(value, list) and len(value) == 2)
    return f"95 % interval {ends[0]:.3f} to {ends[1]:.3f}"


def trained(robot: Foreign, run: Path, seconds: float, command: Callable[..., str]) -> float:
    """Train, unless that was done; how long it took from process start, s."""
    kept = run.with_suffix(".json")
    if not kept.is_file():
        began = time.perf_counter()
        command("train", *robot.words, f"robot={robot.name}", f"algo.max_seconds={seconds * SHARE:g}", f"out={run}",
                "--overwrite")
        kept.write_text(json.dumps({"seconds": time.perf_counter() - began}))
    return float(json.loads(kept.read_text())["seconds"])


def build(robot: Foreign, robots: Path, out: Path, command: Callable[..., str]) -> None:
    """The robot's folder below ``robots``."""
    robots.mkdir(parents=True, exist_ok=True)
    packages = {name: str(folder(PEER) / place) for name, place in robot.packages.items()}
    answers = out / f"{robot.name}.yaml"
    answers.write_text(yaml.safe_dump({**robot.answers, **({"packages": packages} if packages else {})}))
    model = [str(source(robot, out))] if robot.model else []
    command("robot", "new", *model, "--yes", "--answers", str(answers), "--out", str(robots / robot.name))


def source(robot: Foreign, out: Path) -> Path:
    """The robot's file; one that its package completes stands in a copy of its folder."""
    file = folder(PEER) / robot.model
    if not robot.joined:
        return file
    copied = out / "sources" / robot.name
    shutil.copytree(file.parent, copied, dirs_exist_ok=True)
    for old, new in robot.inserted.items():
        text = (copied / file.name).read_text()
        (copied / file.name).write_text(text.replace(old, new))
    whole = copied / f"{robot.name}.xml"
    whole.write_text(robot.joined)
    return whole


def commands(robots: Path) -> Callable[..., str]:
    """Runs ``temporeal`` with the folder of robots in its path; what it prints."""
    environment = {**os.environ, "TEMPOREAL_PATH": str(robots.absolute()), "OPENBLAS_NUM_THREADS": "1",
                   "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

    def command(*words: str, legal: Sequence[int] = (0,)) -> str:
        done = subprocess.run([sys.executable, "-m", "temporeal.policies.cli.main", *words], env=environment, text=True,
                              capture_output=True)
        if done.returncode not in legal:
            told = (done.stderr or done.stdout).strip().splitlines()
            raise RuntimeError(f"temporeal {' '.join(words)}: exit status {done.returncode}: {' / '.join(told[-3:])}")
        return done.stdout

    return command


if __name__ == "__main__":
    for row in rows(sys.argv[1:2], out=Path(sys.argv[2])):
        print(row)
