"""Pretrained policies of other libraries on our tasks: a model's folder and a mapping, judged as any chunk policy."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from temporeal.policies.runs import artifacts, chunks
from temporeal.policies.runs.errors import BadInput, bad_input

if TYPE_CHECKING:
    from temporeal.policies.pretrained.binding import Robot
    from temporeal.policies.pretrained.client import Where
    from temporeal.policies.pretrained.inference import Pretrained
    from temporeal.policies.training.acting import Act
    from temporeal.robots.signals import Schema
    from temporeal.sim.env import Env
    from temporeal.sim.stl.instructions.vocabulary import Vocabulary
    from temporeal.sim.task import Task

NAME = "pretrained"  # of the algorithm, in the settings of results


@dataclass(frozen=True)
class Served:
    """A pretrained model, as the user names it: nothing handed over does.

    Args:
        folder: of the model. ``mapping``: its file.
        python: of an environment of the user's; None: the one that ``temporeal pretrained install`` made.
        backbone: folder of the vision-language model's configuration and tokenizer; None: beside the weights.
        device: that it runs on. ``answer_s``: s, for each inference.
    """

    folder: Path
    mapping: Path
    python: str | None = None
    backbone: Path | None = None
    device: str = "cpu"
    answer_s: float = 60.0

    def settings(self) -> dict[str, Any]:
        """What results keep of it; the folder and the mapping are read and checked for it."""
        with bad_input():
            from temporeal.policies.pretrained.inference import check
            from temporeal.policies.pretrained.mapping import read_mapping

            mapping = read_mapping(self.mapping)
            folder, found = check(self.folder, mapping)
            return {"name": NAME, "model": self.folder.name, "kind": folder.kind, "files": folder.digest(),
                    "mapping": mapping.digest(), "dataset": mapping.dataset, "execute": mapping.execute,
                    "statistics": "key" if found is None else found.source,
                    "notes": [] if found is None else list(found.notes)}


def looks_pretrained(folder: Path) -> bool:
    """Whether a folder holds a model of another library: no run and no artifact has these files."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


@contextmanager
def told() -> Iterator[None]:
    """What the channel or the model refuses is the user's to correct."""
    from temporeal.policies.pretrained.serving.channel import ChannelError

    try:
        with bad_input():
            yield
    except ChannelError as error:
        raise BadInput(str(error)) from error


def where(served: Served) -> Where:
    """The environment of the model's process."""
    from temporeal.policies.pretrained import environment
    from temporeal.policies.pretrained.client import Where
    from temporeal.policies.pretrained.inference import library_of
    from temporeal.policies.pretrained.serving.folders import open_folder

    if served.answer_s <= 0.0:
        raise BadInput(f"--answer-s is above 0, got {served.answer_s}")
    if served.python is not None:
        return Where(served.python, answer_s=served.answer_s)
    library = library_of(open_folder(served.folder))
    # transformers comes with LeRobot
    return Where(overlay=environment.overlay("lerobot" if library == "transformers" else library),
                 answer_s=served.answer_s)


def robot_of(task: Task, pictures: Schema) -> Robot:
    """What a mapping is bound to on ``task``."""
    from temporeal.policies.pretrained.binding import Robot
    from temporeal.robots.motion.cartesian_servo import servo_of
    from temporeal.robots.motion.kinematics import KinematicsError
    from temporeal.sim.adapters.vocabularies import vocabulary_of

    try:
        servo = servo_of(task.robot)
    except (KinematicsError, LookupError, ValueError):
        servo = None
    schema = {**task.schema, **pictures}
    decode = None
    if (words := schema.get("instruction")) is not None and words.unit == "token":
        vocabulary = vocabulary_of(task.name)
        decode = partial(decoded, vocabulary)
    return Robot(task.robot.name, schema, task.robot.command(task.command), servo, decode)


def decoded(vocabulary: Vocabulary, tokens: np.ndarray) -> str:
    """The sentence of word numbers, which recorders keep as floats."""
    return vocabulary.decode(np.asarray(tokens).astype(np.int32))


@contextmanager
def opened(served: Served, task: Task, pictures: Schema) -> Iterator[Pretrained]:
    """The model's process, for ``task``."""
    from temporeal.policies.pretrained.inference import opened as open_server
    from temporeal.policies.pretrained.mapping import read_mapping

    with told():
        mapping = read_mapping(served.mapping)
        artifacts.check_rate(mapping.rate_hz, task)
        robot, place = robot_of(task, pictures), where(served)
        with open_server(served.folder, mapping, robot, place, served.backbone, served.device) as found:
            yield found


def served_policy(
    served: Served, settings: Mapping[str, Any], task: Task
) -> tuple[Task, Callable[[Env], Act], Callable[[], str]]:
    """``task`` as an environment must show it, what makes the policy of a batch of episodes, and SHA-256 of the model's
    files: see :func:`temporeal.policies.runs.chunks.trained_chunks`. The process ends with this one."""
    from temporeal.policies.pretrained.binding import read_by
    from temporeal.policies.pretrained.mapping import read_mapping

    with told():
        names = read_by(read_mapping(served.mapping), task.schema)

    def made(env: Env) -> Act:
        stack = ExitStack()
        atexit.register(stack.close)
        model = stack.enter_context(opened(served, task, artifacts.picture_specs(env)))

        def infer(signals: chunks.Arrays) -> np.ndarray:
            with told():
                return model.infer(signals)

        return chunks.chunk_act(infer, names, settings, env)

    return chunks.shown_to(names, task), made, lambda: str(settings["algo"]["files"])
