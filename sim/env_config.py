"""What an environment adds to its task, and what follows from it: where episodes are drawn from, what is rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from temporeal.sim.curriculum.configuration import parse_curriculum, start_draws
from temporeal.sim.curriculum.curriculum import Curriculum
from temporeal.sim.episodes import EpisodeDistribution, plain
from temporeal.sim.physics.quadrotor import identified
from temporeal.sim.randomization.distributions import Distribution, bounds, parse_randomization
from temporeal.sim.randomization.posterior import Kind, Posterior, parse_posterior
from temporeal.sim.randomization.sensor_config import SensorConfig
from temporeal.sim.randomization.sensors import Sensors
from temporeal.sim.step_functions import Shapes
from temporeal.sim.task import Task
from temporeal.sim.types import Backend

if TYPE_CHECKING:
    from temporeal.sim.rendering.backend_pictures import Pictures
    from temporeal.sim.rendering.cameras import Camera

QUADROTOR = Kind(identified.NEEDED, identified.EXPONENT, identified.POSITIVE, identified.MADE,
                 identified.drawn_parameters, {"mass": ("thrust_curve", "inertia")})
"""What posteriors of quadrotors are made into."""


@dataclass(frozen=True)
class EnvConfig:
    """What an environment adds to its task, as configuration files write it; nothing by default.

    Args:
        seed: keys every draw, with the world's number and the episode's.
        randomize: distributions of the backend's parameters. ``sensors``: noise, bias, delay, loss. ``disturbances``:
            forces within an episode. ``curriculum``: teacher and dimensions. ``posterior``: what those of ``randomize``
            of this kind are drawn from (:mod:`temporeal.sim.randomization.posterior`).
        cameras: what is rendered, by which ``renderer``. ``appearance``: distributions of the visual parameters.
            ``augment``: what is done to each picture.
        mid_episode_starts: share of episodes that start in mid-episode, where the task has such starts.
        compiled: whether the step's functions are compiled (:mod:`temporeal.sim.step_table`); None: where possible.
    """

    seed: int = 0
    randomize: Mapping[str, Any] | None = None
    sensors: Mapping[str, Any] | None = None
    disturbances: Mapping[str, Any] | None = None
    curriculum: Mapping[str, Any] | None = None
    cameras: Sequence[Camera] = ()
    appearance: Mapping[str, Any] | None = None
    renderer: str = "auto"
    augment: Mapping[str, Any] | None = None
    mid_episode_starts: float = 0.0
    compiled: bool | None = None
    posterior: Mapping[str, Any] | None = None


def make_distribution(
    task: Task, backend: Backend, config: EnvConfig, pictures: Pictures | None
) -> EpisodeDistribution:
    """Where the draws of episodes come from; every setting is checked."""
    check_share(task, config.mid_episode_starts)
    posterior = posterior_of(config, task)
    if posterior is not None and (limits := getattr(backend, "limits", None)) is not None:
        posterior = replace(posterior, limits=limits())
    extra, visual = task.extra, pictures.rig.parameters if pictures is not None else {}
    added = {name: spec.shape for name, spec in extra.signals.items()} if extra is not None else {}
    signals = {**shapes_of(backend), **added}
    if unknown := [name for name in task.observe.signals if name not in signals]:
        raise ValueError(f"task {task.name!r}: observe.signals names {', '.join(unknown)}; known: {', '.join(signals)}")
    sensors = Sensors(SensorConfig.parse(config.sensors, (*task.scene.signals, *added)),
                      {name: signals[name] for name in task.observe.signals}, task.control_dt)
    curriculum = parse_curriculum(config.curriculum, {**backend.parameters, **visual}, start_draws(task.initial),
                                  backend.num_worlds, config.seed)
    randomization = parse_randomization(config.randomize, backend.parameters, posterior=posterior)
    if (accepts := getattr(backend, "accepts", None)) is not None:  # one that can be given parameters it must refuse
        for name, drawn in randomization.items():
            accepts(name, bounds(drawn, backend.parameters[name], name))
        if curriculum is not None:
            for name, reached in reached_by(curriculum, randomization, backend).items():
                accepts(name, reached)
    return EpisodeDistribution(
        seed=config.seed, initial=task.initial, parameters=backend.parameters, randomization=randomization,
        sensors=sensors,
        mid_episode=task.mid_episode, mid_episode_starts=config.mid_episode_starts, visual=visual,
        appearance=parse_randomization(config.appearance, visual), curriculum=curriculum,
        shown=task.appearance if visual else None, chances=extra.chances if extra is not None else 0)


def reached_by(curriculum: Curriculum, randomization: Mapping[str, Distribution], backend: Backend
               ) -> dict[str, list[list[float]]]:
    """Ends of the parameters that a curriculum changes, by name, over the whole of it and of what is drawn."""
    drawn, out = dict[str, Tensor](), dict[str, list[list[float]]]()
    for name, dist in randomization.items():
        cut = dist.posterior.limits.get(name) if dist.posterior is not None else None
        ends = bounds(dist, backend.parameters[name], name)
        drawn[name] = torch.tensor(ends) if cut is None else torch.stack(cut)
    for side in ("low", "high"):
        values = torch.tensor([[getattr(d, side) for d in curriculum.dimensions]] * 2)
        found = curriculum.apply(values, drawn, backend.parameters)
        for name in {d.of for d in curriculum.dimensions} & set(backend.parameters):
            out.setdefault(name, []).extend(found[name].reshape(2, -1).tolist())
    return out


def posterior_of(config: EnvConfig, task: Task) -> Posterior | None:
    """What flights left open of the task's robot; None where no flights are named."""
    if config.posterior is None:
        return None
    if task.robot.kind != "quadrotor":
        raise ValueError("randomize.posterior: posteriors are of quadrotors so far; robot "
                         f"{task.robot.name!r} is of kind {task.robot.kind!r}")
    found = parse_posterior(config.posterior, task.robot.name, QUADROTOR, period=task.control_dt)
    check_mean(found, task, (config.randomize or {}).get("command_delay"))
    return found


def check_mean(posterior: Posterior, task: Task, delay: Any) -> None:
    """Refuse a robot that cannot fly, or whose commands act later than the simulator keeps them. ``delay``: how
    ``command_delay`` is drawn."""
    lift = float(identified.lifted(posterior.parameters(np.zeros((1, len(posterior.order))), np.zeros(1)))[0])
    if lift <= 1:
        raise ValueError(f"randomize.posterior: at its mean and least voltage rotors at full command lift {lift:.2g} of"
                         " the weight: no robot that flies")
    late = float(posterior.mean[posterior.order.index("delay")])
    if late > task.control_dt and isinstance(delay, Mapping) and delay.get("kind") == "posterior":
        raise ValueError(f"randomize.posterior: its mean delay, {1000 * late:.4g} ms, is longer than a control period "
                         f"of task {task.name!r}, {1000 * task.control_dt:g} ms, and the simulator keeps one previous "
                         "command: say randomize.parameters.command_delay=null and randomize.sensors.delay_steps=N "
                         "instead")


def make_pictures(backend: Backend, config: EnvConfig) -> Pictures | None:
    """What renders the cameras of ``config``; None where it has none."""
    if not config.cameras:
        for key, given in (("randomize.appearance", config.appearance), ("augment", config.augment)):
            if given:
                raise ValueError(f"{key} has {', '.join(given)}, but there is no camera: name some")
        return None
    from temporeal.sim.rendering.backend_pictures import Pictures

    return Pictures(backend, config.cameras, renderer=config.renderer, augment=config.augment)


def check_share(task: Task, share: float) -> None:
    """``share`` of the episodes of ``task`` can start in mid-episode."""
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"mid_episode_starts is the share of episodes that start in mid-episode, 0 to 1; got {share}")
    if share and task.mid_episode is None:
        raise ValueError(f"task {task.name!r} has no mid-episode starts: mid_episode_starts must be 0, got {share}")


def shapes_of(backend: Backend) -> Shapes:
    """Shapes (without N) of the simulator's signals."""
    return {name: tuple(value.shape[1:]) for name, value in backend.signals().items()}


def about(task: Task, backend: Backend, config: EnvConfig) -> dict[str, Any]:
    """What an environment is made of, as plain data."""
    settings: dict[str, Any] = {name: getattr(config, name) or {} for name in (
        "randomize", "sensors", "disturbances", "appearance", "curriculum")}
    integrator = getattr(getattr(backend, "model", None), "integrator", "auto")
    if integrator != "auto":
        settings["integrator"] = integrator
    if config.posterior is not None:
        settings["posterior"] = config.posterior
    return plain({
        "task": task.name, "formula": task.formula_text, "constants": task.constants, "command": task.command,
        "control_dt": task.control_dt, "substeps": task.substeps, "episode_s": task.episode_s,
        "backend": backend.name, **settings, "mid_episode_starts": config.mid_episode_starts})
