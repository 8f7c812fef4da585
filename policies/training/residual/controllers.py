"""A controller by hand as a base. It is made for one batch of episodes that begin together, and remembers in tensors
what it has done; here each world begins when its own episode does.

What it remembers is found where Python keeps it: in the variables of its functions and in the attributes of the objects
of its module, tensors [N, ...] each. A world that begins gets the rows of a controller that was never called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from temporeal.policies.training.residual.base import Acted, Signals
from temporeal.policies.training.residual.bases import require_same_parts
from temporeal.sim.types import Obs

if TYPE_CHECKING:
    from temporeal.policies.data.demonstrators.arms import Controller

OURS = "temporeal.policies.data.demonstrators"
Place = tuple[Callable[[], Any], Callable[[Any], None]]
"""How a remembered value is read and written."""


class ControllerBase:
    """The controller that ``make(worlds)`` gives, on true signals, at its full pace."""

    def __init__(self, make: Callable[[int], Controller], worlds: int, action_dim: int, title: str) -> None:
        self.controller, self.action_dim, self.title = make(worlds), action_dim, title
        self.pace = torch.ones(worlds)
        self.places = dict(places_of(self.controller, worlds))
        self.start = {name: read().clone() for name, (read, _) in self.places.items()}

    def begin(self, ids: Tensor) -> None:
        """It has done nothing there."""
        for name, (read, write) in self.places.items():
            value = read().clone()
            value[ids] = self.start[name][ids]
            write(value)

    @torch.no_grad()
    def act(self, obs: Obs, signals: Signals) -> Acted:
        """By the true signals."""
        return Acted(self.controller(signals, self.pace).float().contiguous())

    def after(self, obs: Obs, signals: Signals) -> Tensor | None:
        """By the true signals, and it forgets it."""
        held = self.state_dict()
        action = self.act(obs, signals).action
        self.load_state_dict(held)
        return action

    def state_dict(self) -> dict[str, Any]:
        """All that it remembers."""
        return {name: read().clone() for name, (read, _) in self.places.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore it."""
        require_same_parts(self.title, state, self.start)
        for name, (_, write) in self.places.items():
            write(state[name].clone())


def places_of(controller: Any, worlds: int) -> Iterator[tuple[str, Place]]:
    """Where ``controller`` keeps tensors [N, ...], by name."""
    waiting: list[tuple[str, Any]] = [("controller", controller)]
    known = set[int]()
    while waiting:
        path, holder = waiting.pop()
        if id(holder) in known:
            continue
        known.add(id(holder))
        for name, value, write in parts_of(holder):
            where = f"{path}.{name}"
            if isinstance(value, Tensor):
                if value.ndim and len(value) == worlds:
                    yield where, (partial(read, holder, name), write)
            else:
                waiting.append((where, value))


def parts_of(holder: Any) -> Iterator[tuple[str, Any, Callable[[Any], None]]]:
    """The values that ``holder`` keeps, by name, with what replaces them."""
    if (cells := getattr(holder, "__closure__", None)) is not None:
        for name, cell in zip(holder.__code__.co_freevars, cells):
            yield name, cell.cell_contents, partial(setattr, cell, "cell_contents")
    elif isinstance(holder, partial):
        waiting = (holder.func, *holder.args, *holder.keywords.values())
        yield from ((str(k), value, unwritable) for k, value in enumerate(waiting) if not isinstance(value, Tensor))
    elif isinstance(holder, dict):
        yield from ((str(key), value, partial(holder.__setitem__, key)) for key, value in holder.items())
    elif type(holder).__module__.startswith(OURS) and hasattr(holder, "__dict__"):
        yield from ((name, value, partial(setattr, holder, name)) for name, value in vars(holder).items())


def read(holder: Any, name: str) -> Tensor:
    """The value that ``holder`` keeps by ``name`` now."""
    found: Tensor = next(value for key, value, _ in parts_of(holder) if key == name)
    return found


def unwritable(value: Any) -> None:
    """A function's fixed argument is not replaced."""
    raise TypeError("arguments of a partial function are no memory")
