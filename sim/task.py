"""A task: what must happen, how it is seen and how it is made learnable. A frozen value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf, isfinite
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn

from robots.registry import resolve
from robots.signals import Schema, SignalSpec, schema
from robots.spec import RobotSpec
from sim.maps import ActionMap
from sim.scene import Scene, as_scene
from sim.stl.syntax import Formula, FormulaError, children, horizon, predicates_in, signals_in
from sim.stl.windows import window_steps

MISSION_TIME = SignalSpec("mission_time", (), "s")
"""Time since mission start: every evaluator of a formula supplies it (environment, report, on-robot monitor)."""

Draw = Callable[[str, int], Tensor]
"""``draw(stream, count)``: uniform numbers in [0, 1), [K, count], keyed by the episode of each of K worlds."""


class Objective(Protocol):
    """Reward and termination from true signals, with memory of its own (progress). All tensors [N, ...]."""

    memory: Mapping[str, tuple[int, ...]]
    privileged_dim: int

    def start(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> dict[str, Tensor]:
        """Memory after the first sample of an episode (time 0)."""

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, memory: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Reward [N], terminated [N] and the next memory for the sample after ``action``."""

    def privileged(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> Tensor:
        """What the critic sees beyond the observation: [N, privileged_dim]."""

    def success(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> Tensor:
        """Whether an episode that ends here did what the task asks: bool [N]."""


class Extra(Protocol):
    """Signals that the task itself gives, such as a goal. Tensors [N, ...].

    ``memory`` is what they are computed from: given by the task's ``initial``, zeros otherwise. ``chances``: how many
    fresh uniform numbers in [0, 1) it is given at each sample, for what changes in mid-episode.
    """

    signals: Schema
    memory: Mapping[str, tuple[int, ...]]
    chances: int

    def __call__(
        self, signals: Mapping[str, Tensor], chance: Tensor, memory: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The added signals of this sample and the memory for the next. ``signals``: the simulator's, true."""


class Constant:
    """Signals that stay as ``initial`` drew them for the episode: a fixed goal."""

    chances = 0

    def __init__(self, *specs: SignalSpec) -> None:
        self.signals: Schema = schema(*specs)
        self.memory = {spec.name: spec.shape for spec in specs}

    def __call__(
        self, signals: Mapping[str, Tensor], chance: Tensor, memory: dict[str, Tensor]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The memory as signals."""
        return dict(memory), memory


@dataclass(frozen=True)
class Task:
    """One task for one robot.

    Args:
        scene: the robot and the objects around it.
        command: name of the command that the policy gives.
        control_dt: control period, s. ``substeps`` physics steps make one control step.
        episode_s: episode length, s: at least the formula's horizon.
        formula: over the schema (robot signals and ``mission_time``) and ``constants``.
        initial: ``initial(draw) -> state`` of K worlds by signal name, and what ``extra`` remembers at the start.
        explore: starts in the middle of the mission, for training only: ``explore(draw) -> (state, memory)``, where
            ``memory`` holds a ``tick`` [K] (control steps since mission start) and replaces what both the observation
            map and the objective would remember by then.
        observe: the observation map; ``act``: the action map; ``objective``: reward and termination.
        extra: signals that the task itself gives: a goal.
        shapes: to draw, each ``{"type": "sphere" | "cylinder" | "box", ...}``.
    """

    name: str
    scene: Scene
    command: str
    control_dt: float
    substeps: int
    episode_s: float
    formula: Formula
    formula_text: str
    constants: Mapping[str, Any]
    observe: nn.Module
    act: ActionMap
    objective: Objective
    initial: Callable[[Draw], dict[str, Tensor]]
    explore: Callable[[Draw], tuple[dict[str, Tensor], dict[str, Tensor]]] | None = None
    extra: Extra | None = None
    shapes: Sequence[Mapping[str, Any]] = ()
    stop: str = "level"

    @property
    def robot(self) -> RobotSpec:
        """The scene's robot."""
        return self.scene.robot

    @property
    def steps(self) -> int:
        """Control steps of an episode."""
        return round(self.episode_s / self.control_dt)

    @property
    def schema(self) -> Schema:
        """Signals that the formula may name."""
        return task_schema(self.scene, self.extra)


def task_schema(what: Scene | RobotSpec, extra: Extra | None = None) -> dict[str, SignalSpec]:
    """The signals of a robot or scene, those that a task adds, and the mission time."""
    added = extra.signals.values() if extra is not None else ()
    return schema(*as_scene(what).signals.values(), *added, MISSION_TIME)


T = TypeVar("T")


def weights(kind: type[T], given: Mapping[str, float] | None) -> T:
    """A reward's weights ``kind`` (a dataclass of numbers) with some of them replaced."""
    legal = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    if unknown := set(given or {}) - set(legal):
        raise ValueError(f"reward: unknown weights {sorted(unknown)}; legal: {legal}")
    for name, value in (given or {}).items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
            raise ValueError(f"reward.{name} is a finite number, got {value!r}")
    return kind(**dict(given or {}))


def load_task(name: str, **overrides: Any) -> Task:
    """Task ``name`` from ``sim/tasks``, its numbers replaced by ``overrides`` (see the task's ``make``)."""
    module = resolve("sim.tasks", name)
    check_overrides(name, module, overrides)
    try:
        task: Task = module.make(**overrides)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        legal = ", ".join(module.make.__kwdefaults__ or ())
        raise ValueError(f"task {name!r}: {error}; its settings are: {legal}") from error
    named = set(re.findall(r"[A-Za-z_]\w*", task.formula_text)) | set(getattr(module, "CONSTANTS", {}))
    unused = [key for key in overrides.get("constants") or {} if key not in named]
    if unused:
        raise ValueError(f"task {name!r}: neither the formula nor the task names {', '.join(map(repr, unused))}; "
                         f"constants: {', '.join(getattr(module, 'CONSTANTS', {}))}")
    if not horizon(task.formula) <= task.episode_s + 1e-9:
        raise ValueError(f"task {name!r}: the formula looks {horizon(task.formula):g} s ahead, an episode lasts "
                         f"{task.episode_s:g} s: shorten its windows")
    check_formula(task)
    return task


def check_formula(task: Task) -> None:
    """Each predicate reads a signal, and each window is a whole number of control steps."""
    for predicate in predicates_in(task.formula):
        if not signals_in(predicate):
            raise ValueError(f"task {task.name!r}: {predicate} reads no signal: it is the same at all times; "
                             f"signals: {', '.join(task.schema)}")
    waiting = [task.formula]
    while waiting:
        node = waiting.pop()
        waiting += children(node)
        try:
            if hasattr(node, "window"):
                window_steps(node.window, task.control_dt)
        except FormulaError as error:
            raise ValueError(f"task {task.name!r}, control_dt = {task.control_dt:g} s: {error}") from error


def check_overrides(name: str, module: Any, overrides: Mapping[str, Any]) -> None:
    """Each override is of the kind of the default that it replaces; times and counts are positive."""
    for key, default in (module.make.__kwdefaults__ or {}).items():
        if key not in overrides:
            continue
        value = overrides[key]
        if isinstance(default, str):
            good, wanted = isinstance(value, str), "a text"
        elif isinstance(default, (int, float)):
            whole = isinstance(default, int)
            good = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            wanted = "a whole number" if whole else "a number"
        else:
            good, wanted = value is None or isinstance(value, Mapping), "a group of settings"
        if not good:
            raise ValueError(f"task {name!r}: {key} is {wanted}, got {value!r}")
    for key in ("control_dt", "substeps"):
        if key in overrides and not 0 < overrides[key] < inf:
            raise ValueError(f"task {name!r}: {key} must be positive, got {overrides[key]}")
