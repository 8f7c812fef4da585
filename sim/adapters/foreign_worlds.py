"""Tasks of other libraries as tasks of ours: their environments are the simulator, their observation is a signal.

A library's adapter gives :class:`Simulation` and :func:`foreign_task`; everything else (the step loop, learners,
evaluation, datasets, the judge of formulas) is :class:`temporeal.sim.env.Env` as it is. Signals: ``state``, what the
library observes; ``reward``, its reward; ``success``, whether its goal is reached now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from temporeal.robots.signals import CommandSpec, Schema, SignalSpec, schema
from temporeal.robots.spec import Parameter, RobotSpec
from temporeal.sim.maps import AffineAction, Memory
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Draw, Extra, Task, task_schema
from temporeal.sim.types import Backend, Signals, Status

if TYPE_CHECKING:
    from temporeal.sim.rendering.several_models import Scenery

COMMAND, SEED = "action", "episode_seed"
SEEDS = 2**24  # whole numbers that float32 holds
FORMULA = "F[0,{horizon:g}] (success > 0.5)"


class Simulation(Protocol):
    """N worlds of another library's environment. One that can step many at once has ``steps(worlds, actions [K, A])``,
    which gives signals [K, ...], besides."""

    def reset(self, world: int, seed: int) -> Mapping[str, np.ndarray]:
        """Begin the episode of ``seed`` in ``world``: its signals."""

    def step(self, world: int, action: np.ndarray) -> Mapping[str, np.ndarray]:
        """One control step of ``world``: its signals."""

    def close(self) -> None:
        """Give the memory back."""


@dataclass(frozen=True)
class ForeignScene(Scene):
    """A scene that brings its own simulator.

    Args:
        simulate: makes N worlds of it. ``library``: name and version of what simulates; ``env``: its environment.
        instruction: what is to be done, in words.
    """

    simulate: Callable[[int], Simulation] | None = None
    library: str = ""
    env: str = ""
    instruction: str = ""

    def make_worlds(self, num_worlds: int, command: str, *, dt: float, seed: int = 0) -> Backend:
        """The backend of these worlds."""
        return ForeignWorlds(self, num_worlds, command, dt, seed)


class ForeignWorlds:
    """N worlds, stepped one after the other (:class:`temporeal.sim.types.Backend`)."""

    def __init__(self, scene: ForeignScene, num_worlds: int, command: str, dt: float, seed: int) -> None:
        assert scene.simulate is not None
        self.name = scene.library.partition(" ")[0]
        self.scene, self.robot, self.command, self.num_worlds = scene, scene.robot, command, num_worlds
        self.dt, self.seed, self.device = dt, seed, torch.device("cpu")
        self.capabilities, self.snapshot = frozenset({"deterministic"}), False
        self.bad = torch.zeros(num_worlds, dtype=torch.bool)
        self.parameters: Mapping[str, Parameter] = {}
        self.simulation = scene.simulate(num_worlds)
        self.value = {name: torch.zeros(num_worlds, *spec.shape) for name, spec in scene.signals.items()}

    @property
    def scenery(self) -> Scenery:
        """What cameras see: the simulation's ``scenery``, if it has one."""
        found: Scenery | None = getattr(self.simulation, "scenery", None)
        if found is None:
            raise ValueError(f"cameras: worlds of {self.name} are not drawn by this library's renderers")
        return found

    def reset(self, ids: Tensor, state: Signals) -> None:
        """Begin the episodes whose seeds are in ``state``."""
        seeds = state[SEED].reshape(-1).long().tolist() if SEED in state else [self.seed] * len(ids)
        for world, seed in zip(ids.tolist(), seeds):
            self._put(world, self.simulation.reset(world, seed))
            self.bad[world] = False

    def step(self, ctrl: Tensor, substeps: int) -> None:
        """One control step of all worlds."""
        actions = ctrl.numpy()
        finite = np.isfinite(actions).all(1)
        if not finite.all():
            self.bad |= torch.from_numpy(~finite)
        worlds = finite.nonzero()[0].tolist()
        together: Callable[..., Mapping[str, np.ndarray]] | None = getattr(self.simulation, "steps", None)
        if together is not None and worlds:
            found = together(worlds, actions[worlds])
            for name, value in self.value.items():
                value[worlds] = torch.as_tensor(found[name], dtype=torch.float32)
            return
        for world in worlds:
            self._put(world, self.simulation.step(world, actions[world]))

    def _put(self, world: int, signals: Mapping[str, np.ndarray]) -> None:
        for name, value in self.value.items():
            value[world] = torch.as_tensor(signals[name], dtype=torch.float32)

    def signals(self) -> dict[str, Tensor]:
        """The signals, [N, ...] each."""
        return self.value

    def params(self) -> dict[str, Tensor]:
        """None."""
        return {}

    def set_params(self, ids: Tensor, params: Mapping[str, Tensor]) -> None:
        """There are none."""
        if params:
            raise ValueError(f"{self.name} has no parameters that can be set: take randomize=none; got "
                             f"{', '.join(params)}")

    def status(self) -> Status:
        """Worlds whose command was not finite."""
        return Status(self.bad, torch.zeros_like(self.bad), {})

    def state(self) -> dict[str, Tensor]:
        """Not the state of the library's worlds, which cannot be saved: a resumed training begins new episodes."""
        return {name: value.clone() for name, value in self.value.items()}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Not possible."""
        raise ValueError(f"worlds of {self.name} cannot be continued from a saved state: begin new episodes")

    def extract(self, world: int, *, before: bool = False) -> dict[str, Tensor]:
        """The signals of a world."""
        return {name: value[world : world + 1].clone() for name, value in self.value.items()}

    def close(self) -> None:
        """Close the library's worlds."""
        self.simulation.close()


def copied(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a library's environment, as another world has them: arrays that it owns, lists and tables are
    copied; views of MuJoCo's memory stay such."""
    def one(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.copy() if value.base is None else value
        return copy(value) if isinstance(value, (list, dict)) else value

    return {name: one(value) for name, value in attributes.items()}


class Observed(nn.Module):
    """What the library observes, as it is, and the signals of the goal, where there are some. ``names``: one for each
    of the O numbers."""

    def __init__(self, *signals: SignalSpec) -> None:
        super().__init__()
        self.signals = tuple(spec.name for spec in signals)
        self.memory: Mapping[str, tuple[int, ...]] = {}
        self.obs_dim = sum(spec.size for spec in signals)
        self.names = tuple(f"{spec.name}[{i}]" for spec in signals for i in range(spec.size))

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, O]."""
        return torch.cat([signals[name] for name in self.signals], -1), dict(memory)

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """Nothing is remembered."""
        return dict(memory)


class Objective:
    """The library's reward; success is to have reached its goal at any time, as the libraries count it."""

    privileged_dim = 1

    def __init__(self, episode_s: float) -> None:
        self.carry: Mapping[str, tuple[int, ...]] = {"reached": ()}
        self.episode_s = episode_s

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the first sample."""
        return {"reached": (signals["success"] > 0.5).float()}

    def step(self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N] (never), next carry."""
        reached = torch.maximum(carry["reached"], (signals["success"] > 0.5).float())
        return signals["reward"], signals["success"] < -1.0, {"reached": reached}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """The time, for the critic."""
        return signals["mission_time"][:, None] / self.episode_s

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Whether the goal was reached."""
        return carry["reached"] > 0.5


@dataclass(frozen=True)
class Described:
    """What an adapter says of one environment.

    Args:
        name: of the task. ``robot``: what acts in it.
        state: [O] numbers that are observed. ``more``: further signals of the simulation; ``seen``: those of ``more``
            that the policy is shown besides.
        low, high: [A] of the action.
        steps, control_dt: of an episode, s.
    """

    name: str
    robot: str
    state: int
    low: Sequence[float]
    high: Sequence[float]
    steps: int
    control_dt: float
    more: Schema = field(default_factory=dict)
    seen: tuple[str, ...] = ()


def foreign_task(
    about: Described, simulate: Callable[[int], Simulation], library: str, env: str, instruction: str,
    formula: str | None = None, constants: Mapping[str, Any] | None = None, extra: Extra | None = None,
    given: Callable[[Tensor], dict[str, Tensor]] | None = None,
) -> Task:
    """The task.

    Args:
        formula: None: :data:`FORMULA`, the library's success within the episode.
        extra: signals besides the library's; ``given``: what they remember in episodes of the seeds [K].
    """
    low, high = (tuple(map(float, x)) for x in (about.low, about.high))
    state = SignalSpec("state", (about.state,))
    robot = RobotSpec(
        name=about.robot, kind="foreign", limits={}, home={},
        signals=schema(state, SignalSpec("reward"), SignalSpec("success"), *about.more.values()),
        commands={COMMAND: CommandSpec(COMMAND, (len(low),), low=low, high=high)})
    scene = ForeignScene(robot, floor=False, simulate=simulate, library=library, env=env, instruction=instruction)
    horizon = about.steps * about.control_dt
    text, named = formula or FORMULA.format(horizon=horizon), dict(constants or {})

    def initial(draw: Draw) -> dict[str, Tensor]:
        seeds = torch.floor(draw("initial", 1) * SEEDS)
        return {SEED: seeds, **(given(seeds[:, 0]) if given is not None else {})}

    center, scale = zip(*((0.5 * (a + b), 0.5 * (b - a)) for a, b in zip(low, high)))
    return Task(
        name=about.name, scene=scene, command=COMMAND, control_dt=about.control_dt, substeps=1, episode_s=horizon,
        formula=parse(text, task_schema(scene, extra), named), formula_text=text, constants=named,
        observe=Observed(state, *(about.more[name] for name in about.seen)),
        act=AffineAction(robot, COMMAND, center, scale), objective=Objective(horizon), initial=initial, extra=extra,
        stop="hold")
