"""The scheduled view of a formula, TGPO's: what a policy that follows a schedule sees of it, and what it is paid.

The reward is dense and stage-wise: the way to the current subgoal, what must be kept, completion. See :class:`Reward`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from temporeal.robots.signals import SignalSpec
from temporeal.sim.maps import Memory
from temporeal.sim.rewards.schedule_automaton import NEVER, ScheduleAutomaton, ScheduleProgress
from temporeal.sim.rotations import rotation
from temporeal.sim.stl.language.queries import signals_in
from temporeal.sim.stl.planning.decompose import Decomposition
from temporeal.sim.stl.rewriting.ranges import margin_upper_bound
from temporeal.sim.task import MISSION_TIME, Carry, weights

Lost = Callable[[Mapping[str, Tensor]], Tensor]
"""Whether [N] robots are beyond recovery, such as fallen over."""

SCHEDULE = "schedule"
"""The signal that holds the schedule: the alternative that is followed, and a sample for each of its variables."""


@dataclass(frozen=True)
class Reward:
    """Coefficients of the stage-wise reward. Without those per second, the return of an episode is

        potential(end) - potential(start) + done [all is done] - broken [something was not kept, or the robot is lost]
        - late [a window passed], with potential = hit * (hits) - progress * min(distance / scale, 1)

    so that a return above ``hit * V + progress`` implies an episode that is done: it satisfies the formula with a
    robustness of at least its slack at each subgoal (``ScheduleAutomaton.slacks``) and ``margin`` at what is kept
    (`return_bound`). No coefficient is negative: those per second only lower a return, and no failure is paid. ``hit``
    is at least ``progress``, so that a hit pays wherever the next subgoal is.

    V is the number of variables of the alternative that has the most. Other alternatives are paid the hits that they
    lack when they are done, so that each is worth the same: by hits alone, an alternative with more subgoals seemed the
    better one although it was kept less often. Hits of responses (`G (p -> F q)`) are also paid when all is done: where
    q holds from the start, each is hit at its time, and a policy that was paid for it waited there and never went to p.
    """

    progress: float = 5.0  # times the share of the way to the current subgoal: its margin in units of ``scale``
    hit: float = 10.0  # once per subgoal that is no response
    # once, when all is hit and kept to its end; and ``hit`` for each response, and each variable fewer than V
    done: float = 10.0
    broken: float = 10.0  # once, when what is to be kept is not, or the robot is lost: the episode ends
    late: float = 5.0  # once, when a window passed: the episode ends
    distance: float = 0.5  # per second, times min(distance / scale, 1)
    near: float = 2.0  # per second, times 1 - margin / guard of what must be kept, where that is positive (`guards`)
    behind: float = 0.2  # per second, while the current subgoal is behind its allocated time
    effort: float = 0.01  # per second, times the squared action
    guard: float = 0.2  # in the margin's unit: nearer than this costs; at most half of the room there is (`guards`)
    scale: float = 10.0  # in the margin's unit: distances beyond count as this one

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name in ("guard", "scale") and not value > 0:
                raise ValueError(f"reward.{name} must be positive, got {value:g}")
            if not value >= 0:
                raise ValueError(f"reward.{name} is at least 0, got {value:g}: costs are given as positive numbers")
        if self.hit < self.progress:
            raise ValueError(f"reward.hit is at least reward.progress, {self.progress:g}: a hit makes the next "
                             f"subgoal, which may be far away, the current one; got {self.hit:g}")


def guards(automaton: ScheduleAutomaton, guard: float) -> tuple[tuple[int, float], ...]:
    """The place of each predicate that must be kept at times, and from which margin on it is safe: ``guard``, or
    halfway between the automaton's own ``margin`` and the most that it can hold by, where this is less. Where nothing
    was safe, to stay cost so much in a minute that it paid to break what must be kept, or never to begin it.
    """
    kept = dict.fromkeys(keep.predicate for a in automaton.alternatives for keep in a.keeps)
    return tuple((automaton.predicates.index(p), min(guard, 0.5 * (automaton.margin + margin_upper_bound(p))))
                 for p in kept)


def return_bound(reward: Reward, variables: int) -> float:
    """Returns (undiscounted) above this are only had by episodes that are done, for a formula of so many ``variables``
    (V of :class:`temporeal.sim.rewards.schedule_automaton.ScheduleAutomaton`). See :class:`Reward`."""
    return reward.hit * variables + reward.progress


def features(timed: ScheduleProgress, schedule: Tensor, automaton: ScheduleAutomaton) -> Tensor:
    """What a policy sees of the formula [N, 3 P + 5 V + A + 1]: margins, what is asked now, margins of what is kept
    now, times to go and to spare, hits, stage, holds, which way, the time."""
    length = float(automaton.samples)
    ways = [(schedule[:, :1] - number).abs() < 0.5 for number in range(len(automaton.alternatives))]
    return torch.cat([
        torch.tanh(timed.margins), timed.asked.float(), torch.tanh(timed.kept),
        (timed.togo / length).clamp(-1.0, 1.0), (timed.spare / length).clamp(-1.0, 1.0), timed.hit.float(),
        timed.stage, timed.left / length, *(way.float() for way in ways),
        timed.time[:, None] / length], -1)


STEP = 0.01  # m: gradients are differences over this


def way(
    timed: ScheduleProgress, signals: Mapping[str, Tensor], automaton: ScheduleAutomaton, place: str, attitude: str
) -> Tensor:
    """Two directions in the robot's frame [N, 6]: the gradients over the robot's position of the least margin that the
    stage asks for, and of the least that must be kept. Of length 1 for distances, 0 where there is none.

    One skill, to go that way, then serves all regions and stages.
    """
    least = lambda flags, margins: torch.where(flags, margins, NEVER).amin(-1)  # noqa: E731
    keeping, slopes = timed.kept < NEVER, []
    for axis in torch.eye(3, device=timed.margins.device):
        moved = automaton.margins({**signals, place: signals[place] + STEP * axis}, timed.time)
        slopes.append(torch.stack([least(flags, moved) - least(flags, timed.margins)
                                   for flags in (timed.asked, keeping)], -1))
    turn = rotation(signals[attitude]).transpose(-1, -2)
    return (turn @ torch.stack(slopes, -2) / STEP).transpose(-1, -2).flatten(1)


def features_size(automaton: ScheduleAutomaton) -> int:
    """Numbers in :func:`features`."""
    return 3 * len(automaton.predicates) + 5 * automaton.variables + len(automaton.alternatives) + 1


class Objective:
    """The stage-wise reward of a schedule."""

    privileged_dim = 0

    def __init__(self, automaton: ScheduleAutomaton, reward: Reward, lost: Lost | None = None) -> None:
        self.automaton, self.weights, self.lost = automaton, reward, lost
        most = max(route.count for route in automaton.routes)
        # by alternative: its responses, and how many hits are paid when all is done
        self.responses = tuple(tuple(v for v in range(route.count) if route.answers[v]) for route in automaton.routes)
        self.owed = tuple(most - route.count + len(v) for route, v in zip(automaton.routes, self.responses))
        self.guards = guards(automaton, reward.guard)
        self.carry: dict[str, tuple[int, ...]] = {**automaton.memory, "potential": (), "done": (), "broken": ()}

    def to(self, device: torch.device) -> Objective:
        """The objective with its constants on ``device``."""
        self.automaton.to(device)
        return self

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        timed, after = self._follow(signals, carry)
        return {**carry, **after, "potential": self.potential(timed, signals[SCHEDULE]),
                "broken": timed.violated.float(), "done": (timed.done & ~timed.violated).float()}

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, dt = self.weights, self.automaton.dt
        timed, after = self._follow(signals, carry)
        going = carry["done"] < 0.5
        potential, far = self.potential(timed, signals[SCHEDULE]), (timed.distance / w.scale).clamp(max=1.0)
        # an episode whose start violates an invariant ends at its first step
        broken = (timed.violated | (carry["broken"] > 0.5)) & going
        # ends the episode in training only, and is not kept: the robot may recover and satisfy the formula
        over = broken if self.lost is None else broken | (self.lost(signals) & going)
        late = timed.late & ~timed.done & going
        behind = (timed.stage * (timed.togo < 0).float()).sum(-1)
        unsafe = torch.stack([1.0 - timed.kept[:, place] / guard for place, guard in self.guards] or [
            torch.zeros_like(behind)], -1).amax(-1).clamp(0.0, 1.0)
        reward = torch.where(going, potential - carry["potential"], 0.0)
        reward = reward + self.worth(signals[SCHEDULE]) * (timed.done & going & ~over).float() - w.broken * over.float()
        reward = reward - w.late * (late & ~over).float()
        reward = reward - dt * going.float() * (w.distance * far + w.near * unsafe + w.behind * behind)
        reward = reward - dt * w.effort * action.square().sum(-1)
        done = torch.maximum(carry["done"], (timed.done & ~broken).float())
        return reward, over | late, {**after, "potential": potential, "done": done, "broken": broken.float()}

    def worth(self, schedule: Tensor) -> Tensor | float:
        """What it pays to be done, [N] where hits are owed to some: ``done``, and those."""
        return self.weights.done + sum(self.weights.hit * count * _follows(schedule, number)
                                       for number, count in enumerate(self.owed) if count)

    def potential(self, timed: ScheduleProgress, schedule: Tensor) -> Tensor:
        """hit * hits - progress * min(distance / scale, 1), [N]; hits of responses do not count."""
        w, hits = self.weights, timed.hit.float().sum(-1)
        for number, responses in enumerate(self.responses):
            if responses:
                hits = hits - _follows(schedule, number) * sum(timed.hit[:, v].float() for v in responses)
        return w.hit * hits - w.progress * (timed.distance / w.scale).clamp(max=1.0)

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Nothing: the critic chooses schedules on the robot, from what the robot sees."""
        return signals[SCHEDULE][:, :0]

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Whether all was hit and kept: implies that the formula is satisfied."""
        return carry["done"] > 0.5

    def _follow(self, signals: Mapping[str, Tensor], carry: Carry) -> tuple[ScheduleProgress, Carry]:
        return self.automaton(signals, signals[SCHEDULE], {k: carry[k] for k in self.automaton.memory})


def _follows(schedule: Tensor, number: int) -> Tensor:
    """1 [N] where ``schedule`` follows the alternative ``number``, else 0."""
    return ((schedule[:, 0] - number).abs() < 0.5).float()


class ScheduledView:
    """Margins, times to go, hits, stage and holds; ``objective`` pays by stages. Exportable.

    Args:
        lost: which robots are beyond recovery; None: none.
        body: signals of position and attitude of a robot that is given :func:`way`; None: it is not.
        slack, margin: by how much more than asked subgoals and invariants must hold, in the predicates' unit, to count.
            They are the same for the reward and for what the policy sees: where the policy asked for more, it stopped
            between the two, at a subgoal that was hit for the reward and not for itself.
        fitted: where there is no room for ``slack``, less will do: see
            :class:`temporeal.sim.rewards.schedule_automaton.ScheduleAutomaton`.
    """

    def __init__(
        self, decomposition: Decomposition, slack: float, margin: float, reward: Reward, lost: Lost | None = None,
        body: tuple[str, str] | None = None, fitted: bool = False,
    ) -> None:
        self.automaton = ScheduleAutomaton(decomposition, slack, margin, fitted)
        self.module: nn.Module | None = self.automaton
        self.objective = Objective(self.automaton, reward, lost)
        named = {name for predicate in self.automaton.predicates for name in signals_in(predicate)}
        self.body = body
        self.reads = (*sorted({*named, *(body or ())} - {MISSION_TIME.name}), SCHEDULE)
        self.memory: dict[str, tuple[int, ...]] = dict(self.automaton.memory)
        self.size = features_size(self.automaton) + (0 if body is None else 6)
        self.spec = SignalSpec(SCHEDULE, (self.automaton.schedule_size,), "1")

    def features(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[Tensor, Memory]:
        """Features [N, size] and the next memory."""
        timed, after = self._follow(signals, memory)
        seen = features(timed, signals[SCHEDULE], self.automaton)
        if self.body is None:
            return seen, after
        return torch.cat([seen, way(timed, self._now(signals, memory), self.automaton, *self.body)], -1), after

    def behind(self, signals: Mapping[str, Tensor], memory: Memory) -> Tensor:
        """Whether [N] the time of the current subgoal has passed."""
        timed, _ = self._follow(signals, memory)
        return (timed.stage * timed.togo).sum(-1) < 0.0

    def _follow(self, signals: Mapping[str, Tensor], memory: Memory) -> tuple[ScheduleProgress, Memory]:
        return self.automaton(self._now(signals, memory), signals[SCHEDULE], {k: memory[k] for k in self.memory})

    def _now(self, signals: Mapping[str, Tensor], memory: Memory) -> dict[str, Tensor]:
        return {**signals, MISSION_TIME.name: memory["tick"] * self.automaton.dt}


def make(
    decomposition: Decomposition, *, slack: float = 0.0, margin: float = 0.0, reward: Mapping[str, float] | None = None,
    lost: Lost | None = None, body: tuple[str, str] | None = None, fitted: bool = False,
) -> ScheduledView:
    """The view of a formula that can be decomposed."""
    return ScheduledView(decomposition, slack, margin, weights(Reward, reward), lost, body, fitted)
