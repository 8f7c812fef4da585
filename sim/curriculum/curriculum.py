"""Curricula: what an episode is made of, chosen by how the learner does.

    curriculum = parse_curriculum({"kind": "adr", "parameters": {"friction": {"as": "scale", "low": 0.3, "high": 3.0,
                                  "log": True, "first": 1.0}}}, backend.parameters, start_draws(task.initial), N, seed)
    values = curriculum.draw(ids, episode)                     # [K, D], the same whenever it is asked for
    params = curriculum.apply(values, params)                  # over what the randomization drew
    state = task.initial(curriculum.steer(draw, values))       # over what the task's reset draws
    curriculum.finish(ids, episode, success, returns)          # episodes that ended
    curriculum.update()                                        # once per iteration: the teacher learns

A dimension is a number that is set, multiplied with or added to a parameter of the backend or of a camera rig, or one
of the uniform numbers ``start.<stream>`` that the task's reset makes its starts and goals of. Teachers
(:mod:`temporeal.sim.curricula`) see the unit cube.

Between two updates a proposal depends on (seed, world, episode) alone. Several processes have one teacher where that
learns from all: each gathers the others' episodes in :meth:`Curriculum.update` and so keeps an equal copy; its
proposals differ by its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.spec import Parameter
from temporeal.sim.compiler.devices import moved
from temporeal.sim.curriculum.dimensions import START, Dimension
from temporeal.sim.curriculum.points import Teacher, Trials
from temporeal.sim.randomization.distributions import LARGEST_UNIT

Draw = Callable[[str, int], Tensor]
Gather = Callable[[Tensor], Tensor]
"""Rows [E, C] of this process to the rows [sum of E, C] of all, in the order of the processes; float64 on the CPU."""


class Curriculum:
    """A teacher, what its points mean, and what the N worlds of one process play of them.

    Args:
        return_range: returns of a bad (0) and of a good episode (1); None: the outcome is success, 0 or 1.
    """

    def __init__(
        self, teacher: Teacher, dimensions: tuple[Dimension, ...], num_worlds: int, seed: int,
        return_range: tuple[float, float] | None = None,
    ) -> None:
        if return_range is not None and not return_range[0] < return_range[1]:
            raise ValueError(f"curriculum.return_range is [bad, good] with bad < good, got {list(return_range)}")
        self.teacher, self.dimensions, self.seed, self.return_range = teacher, dimensions, seed, return_range
        # of each world the present episode and the next, which is drawn ahead: episode e at place e % 2
        self.points = torch.zeros(2, num_worlds, len(dimensions), dtype=torch.float64)
        self.tags = torch.zeros(2, num_worlds, dtype=torch.int64)
        self.episodes = torch.full((2, num_worlds), -1, dtype=torch.int64)
        self.finished: list[Tensor] = []  # rows: point, tag, outcome, world
        self.results = {"episodes": 0.0, "outcome": 0.0}
        self.about: dict[str, Any] = {
            "teacher": type(teacher).__name__, "return_range": None if return_range is None else list(return_range),
            "episodes": None, **_listed("", getattr(teacher, "settings", None))}
        for d in dimensions:
            self.about |= _listed(f"parameters.{d.name}.", d)
        """What makes this curriculum another than one with the same names: plain data."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        return tuple(d.name for d in self.dimensions)

    def draw(self, ids: Tensor, episode: Tensor) -> Tensor:
        """Values [K, D] float32 for the episodes [K] of the worlds [K].

        The first call for an episode decides; as long as it is the present or the next one, later calls give the same,
        whatever the teacher has learned by then.
        """
        worlds, when = ids.cpu(), episode.cpu()
        place = when % 2
        new = self.episodes[place, worlds] != when
        if bool(new.any()):
            w, e = worlds[new], when[new]
            found = self.teacher.propose(self.seed, w, e)
            self.points[e % 2, w], self.tags[e % 2, w] = found.points.cpu(), found.tag.cpu()
            self.episodes[e % 2, w] = e
        points = self.points[place, worlds]
        return torch.stack([d.value(points[:, i]) for i, d in enumerate(self.dimensions)], -1).to(ids.device)

    def knows(self, world: int, episode: int) -> bool:
        """Whether the values of this episode are kept: the present and the next one of each world."""
        return bool(self.episodes[episode % 2, world] == episode)

    def apply(
        self, values: Tensor, params: Mapping[str, Tensor], parameters: Mapping[str, Parameter]
    ) -> dict[str, Tensor]:
        """``params`` (by name, [K, count], [K] where the count is 1) with ``values`` [K, D] over them.

        Args:
            parameters: nominal values, for what ``params`` does not have.
        """
        out = dict(params)
        for i, d in enumerate(self.dimensions):
            if d.of not in parameters:
                continue
            nominal = parameters[d.of].nominal
            old = out[d.of] if d.of in out else torch.tensor(nominal, device=values.device).expand(len(values), -1)
            old = old.reshape(len(values), len(nominal))
            value = values[:, i : i + 1].expand_as(old)
            new = {"value": value, "scale": old * value, "add": old + value}[d.action]
            if d.components:
                chosen = torch.zeros(len(nominal), dtype=torch.bool, device=values.device)
                chosen[list(d.components)] = True
                new = torch.where(chosen, new, old)
            out[d.of] = new[:, 0] if len(nominal) == 1 else new
        return out

    def steer(self, draw: Draw, values: Tensor) -> Draw:
        """``draw`` with the numbers replaced that the curriculum chooses: ``values`` [K, D]."""
        steered = {i: d for i, d in enumerate(self.dimensions) if d.of.startswith(START)}
        if not steered:
            return draw

        def chosen(name: str, count: int) -> Tensor:
            out = draw(name, count)
            for i, d in steered.items():
                if d.of == f"{START}{name}":
                    out = out.clone()
                    places = [c for c in d.components or range(count) if c < count]
                    out[:, places] = values[:, i : i + 1].clamp(0.0, LARGEST_UNIT).to(out.dtype)
            return out

        return chosen

    def finish(self, ids: Tensor, episode: Tensor, success: Tensor, returns: Tensor) -> None:
        """Episodes [K] of the worlds [K] ended: bool [K], float [K]. To be called before the next ones are drawn."""
        worlds, when = ids.cpu(), episode.cpu()
        if not len(worlds):
            return
        if not bool((self.episodes[when % 2, worlds] == when).all()):
            raise ValueError("curriculum.finish: these episodes were not drawn here, or too long ago")
        outcome = success.cpu().double()
        if self.return_range is not None:
            bad, good = self.return_range
            outcome = ((returns.cpu().double() - bad) / (good - bad)).clamp(0.0, 1.0)
        place = when % 2
        self.finished.append(torch.column_stack([
            self.points[place, worlds], self.tags[place, worlds].double(), outcome, worlds.double()]))

    def update(self, gather: Gather | None = None) -> None:
        """Give the teacher the episodes that ended since the last update; ``gather`` adds those of other processes.

        Every process calls it, as often as the others.
        """
        size = len(self.dimensions)
        rows = torch.cat([torch.zeros(0, size + 3, dtype=torch.float64), *self.finished])
        self.finished = []
        if gather is not None and self.teacher.shared:
            rows = gather(rows)
        table = rows.numpy()
        self.results = {"episodes": float(len(table)), "outcome": float(table[:, -2].mean()) if len(table) else 0.0}
        self.teacher.observe(Trials(table[:, :size], table[:, size].astype(np.int64), table[:, -2],
                                    table[:, -1].astype(np.int64)))

    def metrics(self) -> dict[str, float]:
        """What to log after an update: the teacher's figures, ranges in the dimensions' own units by their names."""
        out = dict(self.results)
        for key, number in self.teacher.figures().items():
            what, _, place = key.partition(".")
            if place:
                d = self.dimensions[int(place)]
                out[f"{what}.{d.name}"] = float(d.value(torch.tensor(number, dtype=torch.float64)))
            else:
                out[key] = number
        return {f"curriculum/{key}": value for key, value in out.items()}

    def state_dict(self) -> dict[str, Any]:
        """Everything that a bit-exact continuation needs."""
        return {"about": dict(self.about), "names": list(self.names), "points": self.points.clone(),
                "tags": self.tags.clone(),
                "episodes": self.episodes.clone(), "finished": [x.clone() for x in self.finished],
                "teacher": self.teacher.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned: of the same curriculum over as many worlds.

        Raises ValueError, and changes nothing, where the state is of another teacher, other settings or other ranges.
        """
        state = moved(state, "cpu")  # where it was written: a learner on a GPU brings all states there
        self._check_same(state)
        if tuple(state["names"]) != self.names or state["points"].shape != self.points.shape:
            raise ValueError(f"curriculum: a state of {tuple(state['points'].shape[1:])} worlds and "
                             f"{', '.join(state['names'])}, expected {tuple(self.points.shape[1:])} and "
                             f"{', '.join(self.names)}")
        self.points, self.tags = state["points"].clone(), state["tags"].clone()
        self.episodes, self.finished = state["episodes"].clone(), [x.clone() for x in state["finished"]]
        self.teacher.load_state_dict(state["teacher"])

    def _check_same(self, state: Mapping[str, Any]) -> None:
        about = state.get("about", {})
        if about.get("teacher") != self.about["teacher"]:
            raise ValueError(f"curriculum: a state of teacher {about.get('teacher')}, expected {self.about['teacher']}")
        if tuple(state["names"]) != self.names:
            return  # the error about the number of worlds names them
        for key in dict.fromkeys((*about, *self.about)):
            if about.get(key) != self.about.get(key):
                raise ValueError(f"curriculum: a state with {key} {about.get(key)}, expected {self.about.get(key)}")


def _listed(prefix: str, settings: object) -> dict[str, Any]:
    """The fields of a dataclass (of none: nothing) as plain data."""
    values = {} if settings is None else vars(settings)
    return {f"{prefix}{key}": list(v) if isinstance(v, tuple) else v for key, v in values.items()}
