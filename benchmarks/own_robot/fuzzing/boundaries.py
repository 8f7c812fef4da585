"""The places where what was handed over is read: how a case of each is made, and what a command does with it."""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from temporeal.robots.artifact.manifest import canonical, digest
from temporeal_benchmarks.own_robot.fuzzing import seeds
from temporeal_benchmarks.own_robot.fuzzing.mutations import (
    CANARY,
    TRICKS,
    Bomb,
    as_bytes,
    bomb_of,
    change_bytes,
    change_file,
    change_json,
    change_npz,
    change_tree,
    change_yaml,
    reseal,
    rewrite,
)


class Place(NamedTuple):
    """Of a case: its folder, the examples, the folder beside it that nothing may read."""

    folder: Path
    examples: Path
    outside: Path

    def copy(self, name: str) -> Path:
        """A copy of an example in the case's folder."""
        target = self.folder / name
        source = self.examples / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        return target

    @property
    def mark(self) -> Path:
        """The file that code would make."""
        return self.folder / CANARY


class Kind(NamedTuple):
    """What is handed over: ``make`` writes a changed example, ``read`` does what a command does with it."""

    make: Callable[[Place, random.Random], None]
    read: Callable[[Path], Any]


# ---- artifacts and manifests


def make_artifact(place: Place, rng: random.Random) -> None:
    """An artifact of which a file or two are changed, mostly with their digests written anew."""
    folder = place.copy(seeds.ARTIFACT)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(("manifest.json", "policy.onnx", "golden.npz"))
        file = folder / name
        if not file.is_file() or rng.random() < 0.1:
            if file.exists():
                change_file(file, rng, place.outside)
        elif name == "manifest.json":
            rewrite(file, rng, rng.choice((change_json, change_json, change_bytes)))
        elif name == "golden.npz":
            rewrite(file, rng, lambda data, rng: bomb_of("signals.base_pos_w.npy") if rng.random() < 0.03 else
                    change_npz(data, rng, place.mark))
        else:
            rewrite(file, rng, change_onnx)
    if rng.random() < 0.8:
        reseal(folder)


def change_onnx(data: bytes, rng: random.Random) -> bytes:
    """A network changed as bytes, with a tensor in another file, or with another contract."""
    what = rng.randrange(4)
    if what < 2:
        return change_bytes(data, rng)
    import onnx

    model = onnx.load_from_string(data)
    if what == 2 and model.graph.initializer:
        tensor = rng.choice(model.graph.initializer)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", rng.choice([t for t in TRICKS if "\0" not in t])
    else:
        for entry in model.metadata_props:
            entry.value = change_json(entry.value.encode(), rng).decode()
    found: bytes = model.SerializeToString()
    return found


def read_artifact(folder: Path) -> None:
    """As ``eval``, ``export`` and ``deploy``: loaded, tested, its task made."""
    from temporeal.policies.runs.settings.handed_over import described_by
    from temporeal.policies.runs.trained import load_trained

    trained = load_trained(folder / seeds.ARTIFACT)
    with described_by(folder):
        task_of(trained)


def task_of(trained: Any) -> Any:
    """The task and an environment of one world, as the settings describe them."""
    from temporeal.policies.runs import environments
    from temporeal.policies.runs.settings.compose import override

    settings = override(trained.settings, [])
    task = environments.make_task(settings)
    environments.make_env(settings, task=task, num_worlds=1, compiled=False).backend.close()
    return settings, task


def make_manifest(place: Place, rng: random.Random) -> None:
    """A manifest alone, with its digest written anew, or a signature beside it."""
    folder = place.copy(seeds.ARTIFACT)
    rewrite(folder / "manifest.json", rng, rng.choice((change_json, change_json, change_json, change_bytes)))
    if rng.random() < 0.9:
        reseal(folder)
    if rng.random() < 0.1:
        change_file(folder / "manifest.json", rng, place.outside)


def read_manifest(folder: Path) -> None:
    """As ``monitor`` and ``doctor``: the robot, its interface and the formula."""
    from temporeal.robots.artifact.loading import load_manifest
    from temporeal.robots.handed_over.robots import named_robot
    from temporeal_bridge.interface.loading import load_interface
    from temporeal_bridge.monitor.formula import formula_of

    manifest = load_manifest(folder / seeds.ARTIFACT)
    robot = named_robot(manifest.robot)
    formula_of(manifest, robot, load_interface(robot))


# ---- runs


def make_run(place: Place, rng: random.Random) -> None:
    """A run with other settings, or another checkpoint."""
    folder = place.copy(seeds.RUN)
    settings, last = folder / "config.yaml", next((folder / "checkpoints").glob("*.pt"))
    events = next((folder / "events").iterdir())
    what = rng.randrange(9)
    if what < 5:
        rewrite(settings, rng, rng.choice((as_bytes(change_yaml), as_bytes(change_yaml), change_bytes)))
    elif what < 7:
        rewrite(last, rng, lambda data, rng: change_checkpoint(data, rng, place.mark))
    elif what == 8:
        rewrite(events, rng, change_bytes)
    if what == 7 or rng.random() < 0.05:
        change_file(rng.choice((settings, last, events)), rng, place.outside)


def change_checkpoint(data: bytes, rng: random.Random, mark: Path) -> bytes:
    """A checkpoint with other state, code, or other bytes; its digest is right."""
    import torch

    payload, what = data[:-32], rng.randrange(4)
    if what == 0:
        return change_bytes(data, rng)
    out = io.BytesIO()
    if what == 1:
        payload = change_bytes(payload, rng)
    else:
        state: Any = torch.load(io.BytesIO(payload), weights_only=True)
        state = {"weights": Bomb(mark)} if what == 3 and rng.random() < 0.3 else change_tree(state, rng)
        torch.save(state, out)
        payload = out.getvalue()
    return payload + hashlib.sha256(payload).digest()


def read_run(folder: Path) -> None:
    """As ``eval`` and ``export``: the settings, the task, the policy, the learning curves of the page."""
    from temporeal.policies.evaluate.report.learning import curves_of
    from temporeal.policies.runs.settings.handed_over import described_by
    from temporeal.policies.runs.trained import load_graph, load_trained

    trained = load_trained(folder / seeds.RUN)
    with described_by(folder):
        settings, task = task_of(trained)
        load_graph(settings, trained.folder, task)
        curves_of(trained.folder / "events")


# ---- recordings


def make_bag(place: Place, rng: random.Random) -> None:
    """A recording with other bytes, another description, or another story of its artifact."""
    what = rng.randrange(4)
    if what == 0:
        said = seeds.record_of(place.examples / seeds.ARTIFACT)
        for _ in range(rng.choice((1, 2, 4))):
            said = change_tree(said, rng)
        if rng.random() < 0.8:
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                said["identity"] = digest(canonical(said["manifest"]).encode())
        (place.folder / seeds.ARTIFACT).mkdir()
        try:
            seeds.record(place.folder, said)
        except (TypeError, ValueError, RecursionError):  # no text that a message holds
            shutil.rmtree(place.folder / seeds.BAG, ignore_errors=True)
            place.copy(seeds.BAG)
        return
    folder = place.copy(seeds.BAG)
    data, about = folder / "bag.mcap", folder / "metadata.yaml"
    if what == 1:
        rewrite(data, rng, change_bytes)
    elif what == 2:
        rewrite(about, rng, rng.choice((as_bytes(change_yaml), change_bytes)))
    if what == 3 or rng.random() < 0.1:
        change_file(rng.choice((data, about)), rng, place.outside)


def read_bag(folder: Path) -> None:
    """As ``report`` and ``spec``: what was flown, and a signal of a topic."""
    from temporeal.policies.cli.recordings import chosen
    from temporeal.policies.cli.traces.reader import open_tables, read_trace
    from temporeal.policies.cli.traces.table import Options
    from temporeal_bridge.recording import bags, flight_log

    bag, options = folder / seeds.BAG, Options(maps=["height=/point:point.z"])
    errors: list[Exception] = []
    for step in (lambda: chosen(Chosen(bag)), lambda: flight_log.flights(bags.read(bag), seeds.NAMESPACE),
                 lambda: read_trace(open_tables(bag, options), {"height": ()}, Options())):
        try:
            step()
        except (ValueError, OSError) as error:  # each is read; the first error is the case's
            errors.append(error)
    if errors:
        raise errors[0]


class Chosen(NamedTuple):
    """Options of a command that reads a recording."""

    bag: Path
    namespace: str | None = None
    robot: str | None = None
    signals: Path | None = None


# ---- YAML and tables


def make_text(place: Place, rng: random.Random) -> None:
    """One of the small files, changed."""
    name = rng.choice(tuple(READERS))
    whole = Path(name).parts[0]
    file = place.copy(f"{seeds.TABLE}/{whole}") / Path(name).relative_to(whole)
    if name == "arm.robot.yaml":
        place.copy(f"{seeds.TABLE}/arm.xml")
    (place.folder / "which").write_text(name)
    if rng.random() < 0.1:
        change_file(file, rng, place.outside if file.parent.name == "my_arm" else None)
    elif name.endswith(".npz"):
        rewrite(file, rng, lambda data, rng: bomb_of("t.npy") if rng.random() < 0.05 else
                change_npz(data, rng, place.mark))
    elif name.endswith(".yaml") and rng.random() < 0.9:
        rewrite(file, rng, as_bytes(change_yaml))
    else:
        rewrite(file, rng, change_bytes)


def read_interface(file: Path) -> None:
    """A robot's interface."""
    from temporeal.robots.spec import load_robot
    from temporeal_bridge.interface.loading import build
    from temporeal_bridge.interface.rows import read_yaml

    build(load_robot("crazyflie"), read_yaml(file), None, None)


def read_table(file: Path) -> None:
    """A trace."""
    from temporeal.policies.cli.traces.reader import open_tables, read_trace
    from temporeal.policies.cli.traces.table import Options

    read_trace(open_tables(file, Options()), {"height": ()}, Options())


def read_formula(file: Path) -> None:
    """A formula file."""
    from temporeal.policies.cli.specs.spec_file import load

    load(file)


def read_space(file: Path) -> None:
    """A space to search."""
    from temporeal.policies.cli.verbs.falsify import read_space as read

    read(file)


def read_robot(file: Path) -> None:
    """A robot's model, or what stands beside it."""
    from temporeal.robots.spec import load_robot

    load_robot(str(file.with_name("arm.xml")))


def read_folder(file: Path) -> None:
    """A robot's folder."""
    from temporeal.robots.spec import load_robot

    load_robot(str(file.parent))


READERS: dict[str, Callable[[Path], None]] = {
    "my_arm/spec.yaml": read_folder, "my_arm/model.xml": read_folder,
    "ros.yaml": read_interface, "formula.yaml": read_formula, "space.yaml": read_space, "arm.robot.yaml": read_robot,
    "arm.xml": read_robot, "trace.npz": read_table, "trace.csv": read_table}


def read_text(folder: Path) -> None:
    """The file that was changed, by its own reader."""
    name = (folder / "which").read_text()
    READERS[name](folder / seeds.TABLE / name)


KINDS: dict[str, Kind] = {
    "artifact": Kind(make_artifact, read_artifact), "run": Kind(make_run, read_run),
    "manifest": Kind(make_manifest, read_manifest), "bag": Kind(make_bag, read_bag), "yaml": Kind(make_text, read_text)}


def describe(folder: Path) -> str:
    """What a case has, for whoever looks at it again."""
    return json.dumps(sorted(str(path.relative_to(folder)) for path in folder.rglob("*")))
