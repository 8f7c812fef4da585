"""OGBench's goal-conditioned tasks (Park et al., ICLR 2025; package ``ogbench`` 1.2.2, MIT), with its oracles.

    temporeal data generate task=ogbench task.settings.env=cube-single-v0 quality=play episodes=1000 out=SET
    temporeal train task=ogbench dataset=SET algo=hiql

One environment of the library serves all worlds. The signal ``state`` is its observation and ``goal`` the observation
that it asks for; each episode is one of its five evaluation tasks. In play (``oracle=play``) an oracle brings about one
random target after another, as the library's own data are made: planned with correlated noise for cube and scene, along
the shortest way with noise for a point in a maze. An ant in a maze needs a policy that the library does not ship.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

from temporeal.robots.registry import guess
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.adapters.foreign_worlds import Described, copied, foreign_task
from temporeal.sim.task import Task, check_range

FAMILIES = ("cube", "scene", "pointmaze", "antmaze")
TASKS = 5  # evaluation goals of each environment
NOISE, SMOOTHING = 0.1, 0.5  # of play: the defaults of the library's PlanOracle
POINT_NOISE = 0.5  # of play in mazes, chosen here
CONSTANTS: dict[str, Any] = {}


def make(
    *, env: str = "cube-single-v0", steps: int | None = None, oracle: str = "none", formula: str | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Task:
    """The task.

    Args:
        env: the library's name of it: cube, scene, pointmaze or antmaze, seen as states.
        steps: of an episode; None: the library's own.
        oracle: ``none``, or ``play``: the targets are random ones, and the signal ``oracle`` is what its oracle does.
        formula: None: its goal is reached within the episode.
    """
    known = names()
    if env not in known:
        raise ValueError(f"task 'ogbench': env={env}: no such environment; {guess(env, known)}known: "
                         f"{', '.join(known)}")
    if oracle not in ("none", "play"):
        raise ValueError(f"task 'ogbench': oracle is none or play, got {oracle!r}")
    size, low, high, usual, dt = sizes(env)
    steps = usual if steps is None else steps
    check_range("ogbench", "steps", steps, 1, 10_000, "")
    more = schema(SignalSpec("goal", (size,)), *([SignalSpec("oracle", (len(low),))] if oracle == "play" else []))
    about = Described("ogbench", f"ogbench_{env.partition('-')[0]}", size, low, high, steps, dt, more, ("goal",))
    return foreign_task(about, lambda worlds: Worlds(env, worlds, oracle), library(), env,
                        f"bring the {env.partition('-')[0]} to its goal", formula, constants)


def library() -> str:
    """Name and version."""
    from importlib.metadata import version

    return f"ogbench {version('ogbench')}"


@cache
def names() -> tuple[str, ...]:
    """The library's environments of :data:`FAMILIES` that are seen as states and ask for goals."""
    import gymnasium
    import ogbench  # noqa: F401 (registers them)

    return tuple(sorted(name for name in gymnasium.registry if name.startswith(FAMILIES) and "singletask" not in name
                        and "visual" not in name and "octuple" not in name))


def made(env: str, oracle: str = "none") -> Any:
    """An environment of the library without the wrappers that end its episodes.

    Its action space is one object that can be seeded: the library makes a new one each time, and draws the random steps
    before a goal is observed from it.
    """
    import gymnasium
    import ogbench  # noqa: F401 (registers them)

    play = oracle == "play" and not maze(env)
    one: Any = gymnasium.make(env, terminate_at_goal=False, **({"mode": "data_collection"} if play else {})).unwrapped
    one.__class__ = type("Seeded", (type(one),), {"action_space": one.action_space})
    return one


def maze(env: str) -> bool:
    """Whether a robot goes to places in a maze."""
    return "maze" in env.partition("-")[0]


@cache
def sizes(env: str) -> tuple[int, tuple[float, ...], tuple[float, ...], int, float]:
    """Size of the observation, limits of the action, steps of an episode, s of a step."""
    import gymnasium

    one = made(env)
    usual = gymnasium.spec(env).max_episode_steps or 1000
    dt = float(one.dt if maze(env) else one._control_timestep)
    space = one.action_space
    return int(one.observation_space.shape[0]), tuple(map(float, space.low)), tuple(map(float, space.high)), usual, dt


class Worlds:
    """N worlds (:class:`temporeal.sim.adapters.foreign_worlds.Simulation`) in one environment of the library.

    Each has MuJoCo data, attributes of the Python object, places of the model's sites (targets of drawer and window)
    and random numbers of its own: the library draws from numpy's global ones.
    """

    def __init__(self, env: str, worlds: int, oracle: str) -> None:
        import mujoco

        self.env = made(env, oracle)
        self.env.reset(seed=0)  # compiles the model
        data, model = ("data", self.env.model) if maze(env) else ("_data", self.env._model)
        self.sites = model.site_pos
        self.places = [self.sites.copy() for _ in range(worlds)]
        self.attributes = [{**copied(self.env.__dict__), data: mujoco.MjData(model)} for _ in range(worlds)]
        self.players = [player(env, self.env) for _ in range(worlds)] if oracle == "play" else []
        self.goals: list[np.ndarray] = [np.zeros(0)] * worlds
        self.random: list[Any] = [None] * worlds

    def reset(self, world: int, seed: int) -> Mapping[str, np.ndarray]:
        """Begin the episode of ``seed``: of the library's evaluation tasks the one that the seed draws."""
        self.random[world] = np.random.RandomState(seed).get_state()
        with self._turn_of(world):
            if self.players:
                return self._seen(world, *self.players[world].begin(seed), 0.0)
            task = 1 + int(np.random.default_rng(seed).integers(TASKS))
            self.env.action_space.seed(seed)
            obs, info = self.env.reset(seed=seed, options={"task_id": task})
            self.goals[world] = np.asarray(info["goal"], np.float32)
            return self._seen(world, obs, info, 0.0)

    def step(self, world: int, action: np.ndarray) -> Mapping[str, np.ndarray]:
        """One control step."""
        with self._turn_of(world):
            obs, _, _, _, info = self.env.step(action)
            return self._seen(world, obs, info, float(info.get("success", 0.0)))

    @contextmanager
    def _turn_of(self, world: int) -> Iterator[None]:
        """Inside, the environment and numpy's global generator are as ``world`` left them."""
        outside = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self.random[world])  # noqa: NPY002
        self.env.__dict__ = self.attributes[world]
        self.sites[:] = self.places[world]
        try:
            yield
        finally:
            self.places[world][:] = self.sites
            self.random[world] = np.random.get_state()  # noqa: NPY002
            np.random.set_state(outside)  # noqa: NPY002

    def _seen(self, world: int, obs: np.ndarray, info: Mapping[str, Any], success: float) -> dict[str, np.ndarray]:
        """The signals. Play asks for no goal that could be observed: where it is, is its goal."""
        out = {"state": np.asarray(obs, np.float32), "success": np.float32(success), "reward": np.float32(success)}
        if not self.players:
            return {**out, "goal": self.goals[world]}
        return {**out, "goal": out["state"], "oracle": self.players[world].action(obs, info)}

    def close(self) -> None:
        """Nothing to give back."""


def player(env: str, one: Any) -> Any:
    """What plays in the environment ``one``."""
    if env.startswith("antmaze"):
        raise ValueError(f"task 'ogbench', env={env}: play needs a policy that walks, which the library does not ship; "
                         "cube, scene and pointmaze have oracles")
    return PointPlayer(one) if maze(env) else TablePlayer(one)


class TablePlayer:
    """Play on the table: plans to one random target after another."""

    def __init__(self, env: Any) -> None:
        from ogbench.manipspace.oracles.plan.button_plan import ButtonPlanOracle
        from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle
        from ogbench.manipspace.oracles.plan.drawer_plan import DrawerPlanOracle
        from ogbench.manipspace.oracles.plan.window_plan import WindowPlanOracle

        kinds = {"cube": CubePlanOracle, "button": ButtonPlanOracle, "drawer": DrawerPlanOracle,
                 "window": WindowPlanOracle}
        self.env = env
        self.agents = {name: kind(env=env, noise=NOISE, noise_smoothing=SMOOTHING) for name, kind in kinds.items()}

    def begin(self, seed: int) -> tuple[np.ndarray, Mapping[str, Any]]:
        """A new episode and its first target."""
        obs, info = self.env.reset(seed=seed)
        self.agent = self.agents[info["privileged/target_task"]]
        self.agent.reset(obs, info)
        return obs, info

    def action(self, obs: np.ndarray, info: Mapping[str, Any]) -> np.ndarray:
        """What the oracle does next; a new target once it is done."""
        if self.agent.done:
            obs, info = self.env.set_new_target()
            self.agent = self.agents[info["privileged/target_task"]]
            self.agent.reset(obs, info)
        return np.clip(np.asarray(self.agent.select_action(obs, info), np.float32), -1.0, 1.0)


class PointPlayer:
    """Play in a maze: along the shortest way to one random cell after another, with noise."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.cells = np.argwhere(env.maze_map == 0)

    def begin(self, seed: int) -> tuple[np.ndarray, Mapping[str, Any]]:
        """A new episode and its first goal."""
        self.random = np.random.default_rng(seed)
        start, goal = self.cells[self.random.integers(len(self.cells), size=2)]
        return self.env.reset(seed=seed, options={"task_info": {"init_ij": tuple(start), "goal_ij": tuple(goal)}})

    def action(self, obs: np.ndarray, info: Mapping[str, Any]) -> np.ndarray:
        """Towards the next cell of the way; a new goal once it is reached."""
        env = self.env
        here = np.asarray(env.get_xy())
        if np.linalg.norm(np.asarray(env.cur_goal_xy) - here) < 0.5:
            env.set_goal(goal_ij=tuple(self.cells[self.random.integers(len(self.cells))]))
        subgoal, _ = env.get_oracle_subgoal(here, np.asarray(env.cur_goal_xy))
        way = np.asarray(subgoal) - here
        way = way / (np.linalg.norm(way) + 1e-6) + POINT_NOISE * self.random.normal(size=2)
        return np.clip(way, -1.0, 1.0).astype(np.float32)


def expert(task: Task, worlds: int) -> Callable[[Mapping[str, Tensor], Tensor], Tensor]:
    """The library's oracle, whose actions are a signal of a task with ``oracle=play``."""
    if "oracle" not in task.scene.signals:
        raise ValueError("task 'ogbench' has oracles for quality=play alone: it has no goal-directed expert")

    def act(signals: Mapping[str, Tensor], pace: Tensor) -> Tensor:
        return pace[:, None] * signals["oracle"]

    return act
