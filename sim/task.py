"""A task: what must happen, how it is seen and how it is made learnable. A frozen value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import ceil, isfinite
from typing import Any, Protocol, TypeVar, get_args, get_type_hints

from torch import Tensor, nn

from temporeal.robots.signals import Schema, SignalSpec, schema
from temporeal.robots.spec import RobotSpec
from temporeal.sim.maps import ActionMap
from temporeal.sim.scene import Scene, as_scene
from temporeal.sim.stl.language.errors import FormulaError
from temporeal.sim.stl.language.propositional import Constant as Number
from temporeal.sim.stl.language.propositional import Formula
from temporeal.sim.stl.language.queries import children, horizon, predicates_in, signals_in
from temporeal.sim.stl.language.sampling import window_steps
from temporeal.sim.stl.planning.alternative import Alternative
from temporeal.sim.stl.planning.plan import NotSequential
from temporeal.sim.stl.rewriting.normal import NotDecomposable
from temporeal.sim.task_files import blamed_on, task_module

MISSION_TIME = SignalSpec("mission_time", (), "s")
"""Time since mission start: every evaluator of a formula supplies it (environment, report, on-robot monitor)."""

CONTROL_DT = (1e-3, 1.0)  # s: no robot here takes more than 1000 commands a second, and fewer than one control nothing
SUBSTEPS = 1000
FINEST = 1e-5  # s: in shorter physics steps, what moves by mm/s is lost in the rounding of 32-bit states
TOUCHING = 0.01  # s, longest physics step of bodies in contact
FLYING = 0.05  # s, the same in flight: the shortest time constant of a rotor is 0.055 s (robots/crazyflie/spec.py)

SEQUENTIAL = """\
The reward of this task follows the formula: it is one sequence or tree of timed subgoals, and of what is kept:
  F[a,b] p                reach p                       G[a,b] p       keep p
  F[a,b] G[c,d] p         reach p and hold it           p U[a,b] q     keep p until q is reached
  F[a,b] (p & F[c,d] q)   reach p, then q: any of these forms may stand for F[c,d] q
Join such parts with &; windows are in seconds and have an end. p and q have no windows in them, but may have & | ! ->.
Not taken: | or -> between parts with windows; F or U inside G; windows on the left of U; W and R; F around several
parts with windows where nothing is to be reached at its own time.
Tasks with a reward of their own (arm_track, hover, track), and task=stl with algo=tgpo, take other formulas too:
every one whose windows end, tgpo none that it cannot follow (it names the part). `temporeal spec` judges recorded
traces by any formula."""
"""What to write where a task refuses a formula as :class:`NotSequential` or :class:`NotDecomposable`; one that takes
others says so as ``TAKES``."""

Carry = dict[str, Tensor]
"""What an objective, or a task's own signals, keep from one sample to the next: [N, ...] by name, zeros before the
first."""

Draw = Callable[[str, int], Tensor]
"""``draw(stream, count)``: uniform numbers in [0, 1), [K, count], keyed by the episode of each of K worlds."""


class Objective(Protocol):
    """Reward and termination from true signals. All tensors [N, ...]; ``carry``: shapes of what it keeps, without N."""

    carry: Mapping[str, tuple[int, ...]]
    privileged_dim: int

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the first sample of an episode (time 0)."""

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N] and the next carry for the sample after ``action``."""

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """What the critic sees beyond the observation: [N, privileged_dim]."""

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Whether an episode that ends here did what the task asks: bool [N]."""


class Extra(Protocol):
    """Signals that the task itself gives, such as a goal. Tensors [N, ...].

    ``carry``: shapes of what they are computed from; the task's ``initial`` may give values. ``chances``: how many
    fresh uniform numbers in [0, 1) it is given at each sample, for what changes in mid-episode.
    """

    signals: Schema
    carry: Mapping[str, tuple[int, ...]]
    chances: int

    def __call__(
        self, signals: Mapping[str, Tensor], chance: Tensor, carry: Carry
    ) -> tuple[dict[str, Tensor], Carry]:
        """The added signals of this sample and the carry for the next. ``signals``: the simulator's, true."""


class Constant:
    """Signals that stay as ``initial`` drew them for the episode: a fixed goal."""

    chances = 0

    def __init__(self, *specs: SignalSpec) -> None:
        self.signals: Schema = schema(*specs)
        self.carry = {spec.name: spec.shape for spec in specs}

    def __call__(
        self, signals: Mapping[str, Tensor], chance: Tensor, carry: Carry
    ) -> tuple[dict[str, Tensor], Carry]:
        """The carry as signals."""
        return dict(carry), carry


class Schedules(Protocol):
    """The schedules that episodes of a task follow, and its starts in mid-episode: what a learner chooses.

    Attributes:
        alternatives: of the formula's decomposition (:mod:`temporeal.sim.stl.planning.decompose`).
        buffer: [M, 1 + V] schedules (:mod:`temporeal.sim.rewards.schedules`) that episodes are drawn from.
        frontier: state and memory of M starts in mid-episode, of which ``frontier_share`` are taken; None: none.
        slack: by how much a subgoal must hold to count, in its unit.
        compiled: whether functions of starts are compiled.
    """

    alternatives: Sequence[Alternative]
    buffer: Tensor
    frontier: tuple[dict[str, Tensor], dict[str, Tensor]] | None
    frontier_share: float
    slack: float
    compiled: bool

    def places(self, draw: Draw, missions: int) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
        """State and memory of K starts in mid-episode, ``missions`` schedules and times at K / ``missions`` places each
        in a row, and whether [K] the mission can go on from there."""

    def signals(self, state: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The signals of starts, as far as they are known."""


class Missions(Protocol):
    """The formulas that worlds of a task are given as data: what a learner chooses.

    Attributes:
        count: B, how many there are. ``weights``: [B] how often each is drawn, in proportion; None: all alike.
        squeeze: least and greatest factor on the ends of their windows; None: as they are.
    """

    weights: Tensor | None
    squeeze: tuple[float, float] | None

    @property
    def count(self) -> int:
        """See above."""


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
        mid_episode: starts in mid-episode, for training only: ``mid_episode(draw) -> (state, memory)``, where
            ``memory`` holds a ``tick`` [K] (control steps since mission start) and replaces what both the observation
            map and the objective would keep by then.
        schedules: where the policy follows a schedule, which somebody has to choose (algo=tgpo): which there are.
        missions: where each world has a formula of its own (algo=generalist): where they are drawn from.
        observe: the observation map; ``act``: the action map; ``objective``: reward and termination.
        extra: signals that the task itself gives: a goal.
        shapes: to draw, each ``{"type": "sphere" | "cylinder" | "box", ...}``.
        appearance: what follows from ``initial``'s draws for pictures: ``appearance(state) -> parameters`` [K, count]
            of :mod:`temporeal.sim.rendering.appearance`, such as the colours of what an instruction names.
        finite: the episode's end is the end of the task, after which nothing is worth anything: it terminates.
            Otherwise time cuts what goes on in principle, and is said to truncate (Pardo et al., ICML 2018).
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
    mid_episode: Callable[[Draw], tuple[dict[str, Tensor], dict[str, Tensor]]] | None = None
    schedules: Schedules | None = None
    missions: Missions | None = None
    extra: Extra | None = None
    shapes: Sequence[Mapping[str, Any]] = ()
    appearance: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None = None
    stop: str = "level"
    finite: bool = False

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
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _finite(value):
            raise ValueError(f"reward.{name} is a finite number, got {value!r}")
    return kind(**dict(given or {}))


def load_task(name: str, **overrides: Any) -> Task:
    """Task ``name`` from ``sim/tasks``, its numbers replaced by ``overrides`` (see the task's ``make``)."""
    module = task_module(name)
    check_overrides(name, module, overrides)
    try:
        with blamed_on(name):
            task: Task = module.make(**overrides)
    except (NotSequential, NotDecomposable) as error:
        raise FormulaError(f"task {name!r}: {error}\n{getattr(module, 'TAKES', SEQUENTIAL)}") from error
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        legal = ", ".join(module.make.__kwdefaults__ or ())
        raise ValueError(f"task {name!r}: {error}; its settings are: {legal}") from error
    named = set(re.findall(r"[A-Za-z_]\w*", task.formula_text)) | set(getattr(module, "CONSTANTS", {}))
    given = overrides.get("constants") or {}
    unused = [key for key in given if key not in named]
    if unused:
        known = dict.fromkeys([*getattr(module, "CONSTANTS", {}), *(key for key in given if key in named)])
        raise ValueError(f"task {name!r}: neither the formula nor the task names {', '.join(map(repr, unused))}; "
                         f"constants: {', '.join(known) or 'none'}")
    if not horizon(task.formula) <= task.episode_s + 1e-9:
        raise ValueError(f"task {name!r}: the formula looks {horizon(task.formula):g} s ahead, an episode lasts "
                         f"{task.episode_s:g} s: shorten its windows")
    check_formula(task)
    check_physics_step(task, module, overrides)
    return task


def check_formula(task: Task) -> None:
    """It reads a signal, as does each of its predicates, and each window is a whole number of control steps."""
    if not signals_in(task.formula):
        raise ValueError(f"task {task.name!r}: the formula {task.formula_text!r} reads no signal; signals: "
                         f"{', '.join(task.schema)}")
    for predicate in predicates_in(task.formula):
        if not signals_in(predicate):
            raise ValueError(f"task {task.name!r}: {predicate} reads no signal: it is the same at all times; "
                             f"signals: {', '.join(task.schema)}")
    waiting = [task.formula]
    while waiting:
        node = waiting.pop()
        waiting += children(node)
        try:
            if (window := getattr(node, "window", None)) is not None:
                window_steps(window, task.control_dt)
        except FormulaError as error:
            raise ValueError(f"task {task.name!r}, control_dt = {task.control_dt:g} s: {error}") from error


def check_overrides(name: str, module: Any, overrides: Mapping[str, Any]) -> None:
    """Each override is of the kind of the default that it replaces, and finite; times and constants make sense."""
    hints = get_type_hints(module.make)
    for key, default in (module.make.__kwdefaults__ or {}).items():
        if key not in overrides:
            continue
        value = overrides[key]
        if isinstance(default, str) or str in get_args(hints.get(key)):
            good, wanted = isinstance(value, str), "a text"
        elif isinstance(default, (int, float)):
            whole = isinstance(default, int)
            good = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            good, wanted = good and (whole or _finite(value)), "a whole number" if whole else "a finite number"
        elif float in get_args(hints.get(key)):
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and _finite(value)
            good, wanted = value is None or number, "a finite number, or null"
        elif int in get_args(hints.get(key)):
            number = isinstance(value, int) and not isinstance(value, bool)
            good, wanted = value is None or number, "a whole number, or null"
        else:
            good, wanted = value is None or isinstance(value, Mapping), "a group of settings"
        if not good:
            raise ValueError(f"task {name!r}: {key} is {wanted}, got {value!r}")
    check_period(name, module, overrides)
    check_constants(name, module, overrides.get("constants") or {})


def check_range(name: str, key: str, value: float, low: float, high: float, unit: str, *, above: bool = False) -> None:
    """The setting ``key`` of task ``name`` is ``low`` to ``high``; ``above``: and not ``low`` itself."""
    if not (low < value if above else low <= value) or not value <= high:
        told = f"above {low:g}, at most {high:g} {unit}" if above else f"{low:g} to {high:g} {unit}"
        raise ValueError(f"task {name!r}: {key} is {told.strip()}, got {value}")


def check_period(name: str, module: Any, overrides: Mapping[str, Any]) -> None:
    """The control period, the substeps and the physics step can be simulated; what a task has itself is its own."""
    if overrides.get("control_dt") is not None:
        check_range(name, "control_dt", overrides["control_dt"], *CONTROL_DT, "s")
    if overrides.get("substeps") is not None:
        check_range(name, "substeps", overrides["substeps"], 1, SUBSTEPS, "")
    dt, substeps = (overrides.get(key, default_of(module, key)) for key in ("control_dt", "substeps"))
    if {"control_dt", "substeps"} & set(overrides) and dt and substeps and dt / substeps < FINEST:
        raise ValueError(f"task {name!r}: the physics step control_dt / substeps must be at least {FINEST:g} s, got "
                         f"{dt:g} s / {substeps} = {dt / substeps:g} s: fewer substeps")


def default_of(module: Any, key: str) -> Any:
    """Default of the setting ``key`` of the task ``module``; None: it has no such setting."""
    return (module.make.__kwdefaults__ or {}).get(key)


def check_physics_step(task: Task, module: Any, overrides: Mapping[str, Any]) -> None:
    """The physics step is short enough for what happens there, or no longer than the task's own."""
    dt, substeps = (default_of(module, key) for key in ("control_dt", "substeps"))
    flying = task.robot.kind == "quadrotor" and not task.scene.objects
    longest = max(FLYING if flying else TOUCHING, dt / substeps if dt and substeps else 0.0) * (1 + 1e-9)
    step = task.control_dt / task.substeps
    if {"control_dt", "substeps"} & set(overrides) and step > longest:
        raise ValueError(f"task {task.name!r}: the physics step control_dt / substeps must be at most {longest:g} s "
                         f"{'in flight' if flying else 'where bodies touch'}, got {task.control_dt:g} s / "
                         f"{task.substeps} = {step:g} s: set substeps to {ceil(task.control_dt / longest)} or more")


def check_constants(name: str, module: Any, given: Mapping[Any, Any]) -> None:
    """Each constant is finite numbers, as many as the task's own of that name, and above 0 if ``POSITIVE`` has it."""
    own, positive = getattr(module, "CONSTANTS", {}), getattr(module, "POSITIVE", ())
    for key, value in given.items():
        if not isinstance(key, str):
            raise ValueError(f"task {name!r}: the name of a constant is a text, got {key!r}")
        try:
            shape = Number(value, key).shape
            good = key not in own or shape == Number(own[key]).shape
        except FormulaError as error:
            if key not in own:
                raise ValueError(f"task {name!r}: {error}") from error
            good = False
        if not good:
            size = Number(own[key]).shape
            wanted = f"{size[0]} finite numbers" if size else "a finite number"
            raise ValueError(f"task {name!r}: constant {key} is {wanted}, as in {key}={_written(own[key])}; "
                             f"got {value!r}")
        if key in positive and not value > 0:
            raise ValueError(f"task {name!r}: constant {key} must be positive, as in {key}={own[key]}; got {value!r}")


def _finite(value: float) -> bool:
    """Whether ``value`` is a number that a float can hold."""
    try:
        return isfinite(value)
    except OverflowError:
        return False


def _written(value: Any) -> str:
    """``value`` as on the command line."""
    return str(list(value) if isinstance(value, tuple) else value).replace(" ", "")
