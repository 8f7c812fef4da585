"""Pretrained policies, and random actions, in LIBERO's own worlds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.pretrained.serving import Served, told, where

if TYPE_CHECKING:
    from temporeal.policies.pretrained.client import Where
    from temporeal.policies.pretrained.libero import World
    from temporeal.policies.pretrained.mapping import Mapping

Model = tuple[Served, "Mapping", "Where"]
"""A model, its mapping, and the environment of its process."""


def on_libero(served: Served | None, options: Any, progress: Callable[[int, int], None] | None) -> dict[str, Any]:
    """Episodes of a pretrained model (None: of random actions) in a task of LIBERO.

    Args:
        options: suite, task, size, episodes, steps, and python of LIBERO's environment.
    """
    from temporeal.policies.pretrained import environment, libero
    from temporeal.policies.pretrained.client import Where

    began = time.perf_counter()
    with told():
        model = None if served is None else ready(served)  # what is refused is refused before a minute has gone
        place = Where(options.python or sys.executable, None if options.python else environment.overlay("libero"),
                      load_s=libero.LOAD_S, answer_s=libero.ANSWER_S)
        task = libero.Task(options.suite, options.task, options.size)
        steps = options.steps or libero.STEPS.get(options.suite, libero.OTHERS)
        with libero.World(task, place) as world, libero_policy(model, world) as (infer, execute, facts):
            episodes = []
            for k in range(options.episodes):
                episodes.append(libero.episode(world, infer, execute, k, steps))
                if progress is not None:
                    progress(k + 1, options.episodes)
            return {"suite": options.suite, "task": options.task, "sentence": world.sentence, "episodes": episodes,
                    "policy": facts, "seconds": time.perf_counter() - began}


def ready(served: Served) -> Model:
    """The model, if it and its environment are there and its mapping is for LIBERO's rate."""
    from temporeal.policies.pretrained import libero
    from temporeal.policies.pretrained.inference import check
    from temporeal.policies.pretrained.mapping import read_mapping

    mapping = read_mapping(served.mapping)
    check(served.folder, mapping)
    if mapping.rate_hz != libero.RATE_HZ:
        raise BadInput(f"{served.mapping}: rate_hz is {mapping.rate_hz:g}, LIBERO runs at {libero.RATE_HZ:g} Hz")
    return served, mapping, where(served)


@contextmanager
def libero_policy(model: Model | None, world: World) -> Iterator[tuple[Any, int, dict[str, Any]]]:
    """The policy of a world of LIBERO, how many rows of a chunk are used, and what results keep of it."""
    from temporeal.policies.pretrained import libero
    from temporeal.policies.pretrained.inference import opened as open_server

    if model is None:
        yield libero.random_policy(0), 1, {"kind": "random"}
        return
    served, mapping, place = model
    with open_server(served.folder, mapping, libero.robot(world), place, served.backbone, served.device) as found:
        yield found.infer, mapping.execute, found.facts()
