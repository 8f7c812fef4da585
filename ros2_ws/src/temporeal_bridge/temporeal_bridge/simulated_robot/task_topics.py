"""Topics of the signals that a task adds to its robot: the file for ``--signals`` in simulation, a draft for the robot.

    python -m temporeal_bridge.simulated_robot.task_topics outputs/artifact > signals.yaml
    python -m temporeal_bridge.robot_sim --robot franka --artifact outputs/artifact --signals signals.yaml

Pictures that the artifact reads come from the cameras that it was trained with. A goal is a latched topic, the pose of
an object comes at 100 Hz on ``sim/<object>``, and other signals of the task come once per control step. On a real robot
a tracker publishes them: change topics, types and codecs, but not the names of the signals. Needs torch, as tasks do,
unlike all other modules of the robot's side.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import ArtifactError, Manifest
from temporeal.robots.handed_over.robots import named_robot
from temporeal.robots.registry import resolve
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import RobotSpec
from temporeal.sim.renamed import task_settings
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.queries import signals_in
from temporeal_bridge.instruction.sentences import formula_is_of_words, watched
from temporeal_bridge.interface.rows import EXTRA, PICTURES, checked_row, read_yaml
from temporeal_bridge.mission import own_signals
from temporeal_bridge.simulated_robot.camera_exposures import KINDS, SIZE

if TYPE_CHECKING:
    from temporeal.sim.scene import Scene
    from temporeal.sim.task_parts.numpy_world import OneWorld

PICTURE_HZ = 10.0  # of simulated cameras, at most: a policy that gives chunks looks two or three times a second
PICTURE_AGE_S = 0.5  # greatest age of a simulated picture: five periods, on a busy machine
POSE = "geometry_msgs/msg/PoseStamped"
OBJECT_HZ = 100.0  # rate at which robot_sim publishes poses of objects
Row = dict[str, Any]


def task_of(manifest: Manifest) -> tuple[str, Mapping[str, Any]] | None:
    """Name and settings of the task that the artifact was trained on; None if its manifest names none."""
    task = manifest.training.get("task")
    if not isinstance(task, Mapping) or "name" not in task:
        return None
    return str(task["name"]), task_settings(task.get("settings") or {})


def world_of(manifest: Manifest, robot: RobotSpec) -> OneWorld | None:
    """The world in which the artifact was trained; None if its manifest names no task."""
    named = task_of(manifest)
    if named is None:
        return None
    numpy_world = resolve("temporeal.sim.task_parts", "numpy_world")
    world: OneWorld = numpy_world.of_task(named[0], robot, manifest.commands[0].name, named[1])
    return world


def own_start(manifest: Manifest, robot: RobotSpec) -> Callable[[np.random.Generator], dict[str, Any]] | None:
    """The distribution of starts of a formula's task; None if the task has none.

    From other states the formula may be violated at the start.
    """
    named = task_of(manifest)
    if named is None or not named[1].get("start"):
        return None
    world = world_of(manifest, robot)
    return None if world is None else world.start


def pose_row(scene: Scene, name: str, signals: Collection[str]) -> Row | None:
    """The topic of the pose of object ``name``, with its parts that are among ``signals``; None if there are none."""
    parts = {"position": f"{name}_pos_w", "attitude": f"{name}_quat_w"}
    options = {key: signal for key, signal in parts.items() if signal in scene.signals and signal in signals}
    return options and {"topic": f"sim/{name}", "type": POSE, "codec": "pose",
                        "rate_hz": OBJECT_HZ, "qos": "sensor", "options": {"frame": "world", **options}} or None


def signal_row(spec: SignalSpec, rate_hz: float) -> Row:
    """The topic of one signal: a place in the world that moves with its stamp, so that a monitor that had no time for
    it knows when it was there; others as numbers."""
    if rate_hz and (spec.shape, spec.unit, spec.frame) == ((3,), "m", "w"):
        return {"topic": f"sim/{spec.name}", "type": POSE, "codec": "pose", "rate_hz": rate_hz, "qos": "default",
                "options": {"frame": "world", "position": spec.name}}
    return number_row(spec, rate_hz)


def number_row(spec: SignalSpec, rate_hz: float) -> Row:
    """The topic of one signal as numbers; ``rate_hz`` 0: latched."""
    return {"topic": f"sim/{spec.name}", "type": "std_msgs/msg/Float64MultiArray", "codec": "array",
            "rate_hz": rate_hz, "qos": "default" if rate_hz else "latched",
            "options": {"signal": spec.name, "shape": list(spec.shape)}}


def content(world: OneWorld, needed: Collection[str]) -> dict[str, Any]:
    """The file's content: the ``needed`` signals that the world has and its robot does not."""
    scene, robot = world.scene, world.scene.robot
    specs = {name: spec for name, spec in {**scene.signals, **world.specs}.items()
             if name not in robot.signals and name in needed}
    rows = [row for item in scene.objects if (row := pose_row(scene, item.name, specs))]
    told = {signal for row in rows for signal in row["options"].values()}
    rows += [signal_row(spec, OBJECT_HZ if name in scene.signals else 0.0 if world.steady else 1.0 / world.dt)
             for name, spec in specs.items() if name not in told]
    return {"definitions": {}, "signals": {name: declared(spec) for name, spec in specs.items()}, "states": rows}


def pictures(manifest: Manifest, told: Collection[str] = ()) -> dict[str, Any]:
    """Signals, topics and cameras of the pictures that the artifact reads, from the cameras that it was trained with;
    those of ``told`` are there already. Empty where there are none."""
    cameras, renderer = manifest.training.get("cameras") or {}, manifest.training.get("renderer", "auto")
    reads = {signal.name: signal for signal in manifest.signals}
    found = {f"{name}_{kind}": name for name in cameras for kind in KINDS}
    chosen = {signal: name for signal, name in found.items() if signal in reads and signal not in told}
    rows = [{"topic": f"sim/{name}/{signal.rpartition('_')[2]}", "type": "sensor_msgs/msg/Image", "codec": "image",
             "rate_hz": min(manifest.rate_hz, PICTURE_HZ), "qos": "sensor", "max_age_s": PICTURE_AGE_S,
             "options": {"signal": signal, "encoding": "rgb8" if signal.endswith("_rgb") else "32FC1"}}
            for signal, name in chosen.items()]
    places = {name: {"latency_s": 0.0, "renderer": renderer,
                     **{key: value for key, value in cameras[name].items() if key not in SIZE}}
              for name in dict.fromkeys(chosen.values())}
    return {"signals": {name: declared(reads[name]) for name in chosen}, "pictures": rows, "cameras": places}


def declared(spec: SignalSpec) -> Row:
    """A signal as files of topics declare it."""
    return {"shape": list(spec.shape), "unit": spec.unit, "frame": spec.frame, "dtype": spec.dtype}


def needed(manifest: Manifest, world: OneWorld) -> set[str]:
    """Names of the signals that the artifact or its formula reads; with an instruction, that any sentence's formula may
    read."""
    own = own_signals(manifest)
    reads = {signal.name for signal in manifest.signals if signal.name not in own}
    if formula_is_of_words(manifest):
        return reads | watched(world.scene.robot.tool, world.task.schema)
    return reads | set(signals_in(parse(manifest.formula, world.task.schema, manifest.constants)))


def write(manifest: Manifest, robot: RobotSpec, path: Path, given: Path | None = None) -> Path | None:
    """Write the file for an artifact; returns the file to read.

    That is the one written, with the rows of the user's file ``given``; ``given`` itself if it has all signals; None if
    only the robot's own signals are read.
    """
    if robot.kind == "quadrotor":  # they are simulated without objects
        return given
    world, known = world_of(manifest, robot), {} if given is None else checked_row(
        str(given), read_yaml(given, EXTRA), EXTRA, PICTURES)
    told = known.get("signals") or {}
    if world is None:
        return given
    made, seen = content(world, needed(manifest, world) - set(told)), pictures(manifest, told)
    if not made["signals"] and not seen["signals"]:
        return given
    made = {**known, "definitions": known.get("definitions") or {},
            "signals": {**told, **made["signals"], **seen["signals"]},
            "states": [*(known.get("states") or ()), *made["states"]]}
    if seen["signals"]:
        made |= {"pictures": [*(known.get("pictures") or ()), *seen["pictures"]],
                 "cameras": {**(known.get("cameras") or {}), **seen["cameras"]}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(made, sort_keys=False))
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the file for an artifact."""
    parser = argparse.ArgumentParser(prog="task_topics", description="Topics of what an artifact's task adds.")
    parser.add_argument("artifact", type=Path, help="folder that `temporeal export` wrote")
    path: Path = parser.parse_args(arguments).artifact
    try:
        manifest = load_manifest(path)
        world = world_of(manifest, named_robot(manifest.robot))
        if world is None:
            raise ArtifactError(f"{path} does not say on which task it was trained: write the file by hand")
        seen, made = pictures(manifest), content(world, needed(manifest, world))
        if seen["signals"]:
            made = {**made, **seen, "signals": {**made["signals"], **seen["signals"]}}
        print(yaml.safe_dump(made, sort_keys=False), end="")
    except (ValueError, KeyError, OSError) as error:
        print(f"task_topics: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
