"""The observation map that chooses its schedule, and its candidate schedules.

A schedule [1 + V] is the number of an alternative and a time for each variable. N worlds, M schedules, B starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.policies.nets.actor import Critic
from temporeal.policies.nets.normalizer import Normalizer
from temporeal.sim.compiler.vectorize import VectorizedFunction
from temporeal.sim.maps import Memory, initial_memory
from temporeal.sim.rewards.scheduled import SCHEDULE

See = Callable[[Mapping[str, Tensor], Memory], Tensor]


def seeing(observe: Any, compiled: bool) -> See:
    """Observations [N, O] of signals and memory by ``observe``, ``compiled`` or not."""
    def of(x: dict[str, Tensor]) -> dict[str, Tensor]:
        signals, memory = ({name: x[f"{kind}.{name}"] for name in names} for kind, names in (
            ("signal", observe.signals), ("memory", observe.memory)))
        return {"obs": observe(signals, memory)[0]}

    run = VectorizedFunction(of, {"obs": (observe.obs_dim,)})
    return lambda signals, memory: run({**{f"signal.{name}": signals[name] for name in observe.signals},
                                        **{f"memory.{name}": value for name, value in memory.items()}},
                                       compiled)["obs"]


def observed(observe: Any, signals: Mapping[str, Tensor], schedules: Tensor, see: See | None = None) -> Tensor:
    """First observations [M, B, O] of B starts under each of M schedules. ``see``: :func:`seeing`, for repeated use."""
    m, b = len(schedules), len(next(iter(signals.values())))
    given = {name: value[None].expand(m, *value.shape).flatten(0, 1) for name, value in signals.items()}
    given[SCHEDULE] = schedules.repeat_interleave(b, 0)
    memory = initial_memory(observe, m * b, schedules.device)
    obs = observe(given, memory)[0] if see is None else see(given, memory)
    return obs.reshape(m, b, -1)


class Choosing(nn.Module):
    """The observation map that chooses its schedule by the critic's values.

    The schedule is memory. The best one is taken at the first sample. Another one of the same alternative replaces it
    if the robot is behind the current one, would not be behind the other, and the other's value (of the rest of the
    mission, given the hits so far) is higher by more than ``patience``. A robot on time keeps its schedule: among many
    values the highest is easily too high, and some other schedule always looks a little better. A robot that would be
    behind the other, too, does not switch: it would choose again at every sample, and each time put off what must be
    held from a time on (`temporeal.sim.rewards.schedule_automaton`). Hits for one alternative say nothing about
    another, so the alternative is chosen once.

    Args:
        observe: the map that follows a schedule. ``schedules``: [C, 1 + V] candidates.
        behind: ``behind(signals, memory)``, whether [N] worlds are behind the schedule among their signals.
    """

    compiles = False  # as many networks as schedules are not for vector registers

    def __init__(
        self, observe: nn.Module, critic: nn.Module, normalizer: nn.Module, schedules: Tensor, patience: float,
        behind: Callable[[Mapping[str, Tensor], Memory], Tensor],
    ) -> None:
        super().__init__()
        inner: Any = observe
        self.observe, self.critic, self.normalizer = inner, critic, normalizer
        self.patience, self.behind = patience, behind
        self.register_buffer("schedules", schedules)
        self.schedules: Tensor
        self.signals = tuple(name for name in inner.signals if name != SCHEDULE)
        self.memory = {**inner.memory, SCHEDULE: (schedules.shape[1],)}
        self.obs_dim = inner.obs_dim

    def forward(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Observation [N, O] and the next memory."""
        inner = {name: value for name, value in memory.items() if name != SCHEDULE}
        chosen = self.choose(signals, inner, memory[SCHEDULE])
        obs, after = self.observe({**signals, SCHEDULE: chosen}, inner)
        return obs, {**after, SCHEDULE: chosen}

    def record(self, memory: Memory, action: Tensor) -> Memory:
        """The memory with ``action`` stored."""
        inner = {name: value for name, value in memory.items() if name != SCHEDULE}
        return {**memory, **self.observe.record(inner, action)}

    def choose(self, signals: Mapping[str, Tensor], memory: Memory, now: Tensor) -> Tensor:
        """The schedule [N, 1 + V] to follow from here on; ``now`` is the current one (zeros at a mission's start)."""
        late = self.behind({**signals, SCHEDULE: now}, memory)
        if torch.jit.is_tracing():  # a traced graph has one size
            return self.best(signals, memory, now, late)
        some = (late | (memory["tick"] <= 0)).nonzero()[:, 0]  # the others stay with theirs: nothing is to be scored
        if not len(some):
            return now
        part = [{name: value[some] for name, value in given.items()} for given in (signals, memory)]
        return now.index_put((some,), self.best(*part, now[some], late[some]))

    def best(self, signals: Mapping[str, Tensor], memory: Memory, now: Tensor, late: Tensor) -> Tensor:
        """As :meth:`choose`, with every schedule scored for each world; ``late`` [N]: it is behind its current one."""
        count = 1 + len(self.schedules)
        given = {name: value.repeat_interleave(count, 0) for name, value in signals.items()}
        own = {name: value.repeat_interleave(count, 0) for name, value in memory.items()}
        offered = torch.cat([now[:, None], self.schedules[None] + 0.0 * now[:, None]], 1)
        given[SCHEDULE] = offered.flatten(0, 1)
        obs, _ = self.observe(given, own)
        value = self.critic(self.normalizer(obs)).reshape(-1, count)
        passed = self.behind(given, own).reshape(-1, count)[:, 1:]
        # the one followed has its patience in hand, all of it while it is on time; at a mission's start there is none
        begun = (memory["tick"] > 0)[:, None]
        in_hand = torch.where(late[:, None], self.patience, 1e8)
        mine = torch.where(begun, value[:, :1] + in_hand, value[:, :1] - 1e9)
        other = begun & (passed | ((offered[:, 1:, 0] - now[:, :1]).abs() > 0.5))
        best = torch.cat([mine, torch.where(other, value[:, 1:] - 1e9, value[:, 1:])], 1).argmax(1, keepdim=True)
        return offered.gather(1, best[:, :, None].expand(-1, -1, offered.shape[-1]))[:, 0]


@torch.no_grad()
def spread_out(
    kept: Mapping[str, Any], critic: Critic, normalizer: Normalizer, observe: Any, count: int
) -> tuple[Tensor, float]:
    """``count`` different candidate schedules, and the standard deviation of the buffer's values.

    They come from those that were flown and kept, else from the buffer. The first half: the best one for each stored
    start, then those with the best mean value. The second half: those farthest from all chosen ones, for a robot that
    is not where it was expected.
    """
    def worth(schedules: Tensor) -> Tensor:
        obs = observed(observe, kept["signals"], schedules)
        return critic(normalizer(obs.flatten(0, 1))).reshape(obs.shape[:2])

    whole = torch.unique(kept["buffer"], dim=0)
    offered = whole if kept["flown"] is None else torch.unique(kept["flown"], dim=0)
    values, spread = worth(offered), worth(whole).mean(-1)
    order = torch.cat([values.argmax(0), values.mean(-1).argsort(descending=True)]).tolist()
    places = list(dict.fromkeys(order))
    chosen = places[: max(count // 2, 1)]
    away = apart(offered, offered[chosen]).amin(1)
    while len(chosen) < min(count, len(offered)):
        chosen.append(int(away.argmax()))
        away = torch.minimum(away, apart(offered, offered[chosen[-1:]])[:, 0])
    return offered[chosen].clone(), float(spread.std()) if len(whole) > 1 else 0.0


def apart(a: Tensor, b: Tensor) -> Tensor:
    """Distance [M, C] of schedules [M, 1 + V] from others [C, 1 + V]: the largest difference in samples, more for
    another alternative."""
    gaps = (a[:, None] - b[None]).abs()
    return gaps[..., 1:].amax(-1) + 1e6 * (gaps[..., 0] > 0.5)
