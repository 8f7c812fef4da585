"""A curriculum from configuration: which teacher, over which dimensions. Every name and number is checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.registry import names, resolve
from temporeal.robots.spec import Parameter
from temporeal.sim.curriculum.checks import pair
from temporeal.sim.curriculum.curriculum import Curriculum, Draw
from temporeal.sim.curriculum.dimensions import parse_dimension
from temporeal.sim.curriculum.points import Kind, Teacher

REGISTRY, NONE = "temporeal.sim.curricula", "none"
COMMON = ("kind", "parameters", "outcome", "return_range")


def start_draws(initial: Callable[[Draw], object]) -> dict[str, int]:
    """Streams that a task's reset draws from, and how many numbers of each."""
    found: dict[str, int] = {}

    def draw(name: str, count: int) -> Tensor:
        found[name] = max(count, found.get(name, 0))
        return torch.full((1, count), 0.5)

    initial(draw)
    return found


def parse_curriculum(
    raw: Mapping[str, Any] | None, parameters: Mapping[str, Parameter], starts: Mapping[str, int], num_worlds: int,
    seed: int,
) -> Curriculum | None:
    """The curriculum of a configuration; None where there is none.

    Args:
        parameters: of the backend, and of the camera rig where there is one.
        starts: from :func:`start_draws`.
        seed: of the environment.
    """
    raw = {key: value for key, value in dict(raw or {}).items() if key != "name"}
    name = raw.get("kind", NONE)
    kind = kind_of(name)
    own = tuple(f.name for f in fields(kind.Settings))
    if unknown := [key for key in raw if key not in (*COMMON, *own)]:
        raise ValueError(f"curriculum: unknown keys {unknown}; legal with kind {name}: {', '.join((*COMMON, *own))}")
    given = _given(raw.get("parameters") or {}, name)
    if name == NONE:
        return None
    dimensions = tuple(parse_dimension(str(of), spec, parameters, starts, grows=kind.GROWS)
                       for of, spec in given.items())
    settings = kind.Settings(**{k: tuple(raw[k]) if isinstance(raw[k], list) else raw[k] for k in own if k in raw})
    low, high = (np.array([d.unit(d.first[side]) for d in dimensions]) for side in (0, 1))
    teacher = cast(Teacher, kind.make(low, high, num_worlds, settings))
    return Curriculum(teacher, dimensions, num_worlds, seed, _return_range(raw))


def kind_of(name: str) -> Kind:
    """The module of :mod:`temporeal.sim.curricula` called ``name``."""
    known = names(REGISTRY)
    if name not in known:
        raise ValueError(f"curriculum.kind is {name!r}; legal: {', '.join(known)}")
    return cast(Kind, resolve(REGISTRY, name))


def _given(parameters: Any, kind: str) -> dict[str, Any]:
    """The dimensions that are configured; a kind needs some, ``none`` takes none."""
    if not isinstance(parameters, Mapping):
        raise ValueError(f"curriculum.parameters is a mapping from names to dimensions, got {parameters!r}")
    given = {str(name): spec for name, spec in parameters.items() if spec is not None}
    if kind == NONE and given:
        raise ValueError(f"curriculum.parameters ({', '.join(given)}) need a teacher: name one with curriculum=<kind>; "
                         f"legal: {', '.join(k for k in names(REGISTRY) if k != NONE)}")
    if kind != NONE and not given:
        raise ValueError(f"curriculum: kind {kind} needs parameters, such as "
                         "friction: {as: scale, low: 0.5, high: 2}")
    return given


def _return_range(raw: Mapping[str, Any]) -> tuple[float, float] | None:
    """Returns of a bad and of a good episode; None where the outcome is success."""
    outcome, ends = raw.get("outcome", "success"), raw.get("return_range")
    if outcome not in ("success", "return"):
        raise ValueError(f"curriculum.outcome is {outcome!r}; legal: success, return")
    if outcome == "success":
        return None
    if ends is None:
        raise ValueError("curriculum: outcome return needs return_range: [return of a bad episode, of a good one]")
    return pair("curriculum.return_range", ends)
