"""Waypoints: a mission as a formula. Reach A in time, then B in time, keep out of the no-fly cylinders and inside
the geofence, and at the end hold C.

Positions in metres in the world frame (z up), times in seconds. The reward is the formula's decomposition made
dense: progress towards the current timed subgoal, a bonus for each hit, the margin of what must be kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import radians
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.sim.compiler.devices import on_device
from temporeal.sim.maps import Disturbance
from temporeal.sim.rewards.subgoal_automaton import EPS, NEVER, Progress, SubgoalAutomaton
from temporeal.sim.rotations import rotation
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.language.queries import constants_in, signals_in
from temporeal.sim.stl.planning.decompose import decompose
from temporeal.sim.stl.planning.plan import plan
from temporeal.sim.task import MISSION_TIME, Carry, Draw, Task, check_range, task_schema, weights
from temporeal.sim.task_parts.quadrotors import mass, physics_steps, quadrotor, rates_action

FORMULA = """\
F[0,3] (norm(base_pos_w - a) < reach & F[0,3] (norm(base_pos_w - b) < reach))
& G[7,9] (norm(base_pos_w - c) < hold)
& G[0,9] (hypot(base_pos_w.x - pillar_1.x, base_pos_w.y - pillar_1.y) > pillar_radius)
& G[0,9] (hypot(base_pos_w.x - pillar_2.x, base_pos_w.y - pillar_2.y) > pillar_radius)
& G[0,9] (abs(base_pos_w.x) < fence & abs(base_pos_w.y) < fence & height > floor & height < ceiling)"""

CONSTANTS: dict[str, Any] = {
    "a": (1.2, 0.8, 1.3), "b": (-1.0, 1.0, 0.8), "c": (0.0, -1.0, 1.0),
    "reach": 0.2, "hold": 0.25,
    "pillar_1": (0.6, 0.45, 0.0), "pillar_2": (0.1, 0.95, 0.0), "pillar_radius": 0.25,
    "fence": 1.8, "floor": 0.2, "ceiling": 2.0,
}
POSITIVE = ("reach", "hold", "pillar_radius", "fence", "ceiling")


HISTORY = 3  # actions remembered: what is still on its way through delays and motor lag


@dataclass(frozen=True)
class Reward:
    """Weights. Distances in m, rates in rad/s; the step terms are per second of flight."""

    progress: float = 6.0  # per metre closer to the current stage's point
    hit: float = 20.0  # once per subgoal reached inside its window
    hold: float = 8.0  # per second inside the region while it must be held
    near: float = 2.0  # per second, times exp(-distance / 0.2 m) to the point of a hold stage
    late: float = 2.0  # per second that the current stage's deadline has passed
    keep: float = 4.0  # per second, times the shortfall of the smallest kept margin below keep_margin
    keep_margin: float = 0.15  # m
    fast: float = 4.0  # per second, times the squared excess of the speed over fast_speed
    fast_speed: float = 1.5  # m/s: the longest leg is 2.6 m in 3 s
    violated: float = 12.0  # once, when something to be kept is violated: the episode ends
    effort: float = 0.02  # per second, times the squared action
    smooth: float = 0.1  # per second, times the squared change of the action
    spin: float = 0.02  # per second, times the squared body rate
    heading: float = 1.0  # per second, times 1 - cos of the angle between body x and world x: nothing else asks for one


def stage_points(automaton: SubgoalAutomaton, points: Mapping[str, Any], text: str) -> Tensor:
    """The point [S + H, 3] of each stage: the constant that its predicate ``norm(base_pos_w - <constant>)`` names."""
    if not automaton.stages:
        raise ValueError(f"nowhere to fly to: the formula needs an F, or a G that begins later, around "
                         f"norm(base_pos_w - <point>) < <radius>; got {text}")
    out = []
    for predicate in automaton.stages:
        found = [tuple(c) for c in constants_in(predicate) if len(c) == 3]
        if len(found) != 1:
            raise ValueError(
                f"a stage needs one point as in norm(base_pos_w - a) < r; found {found} in {predicate} of {text}")
        out.append(found[0])
    return torch.tensor(out, dtype=torch.float32)


def lowest(margins: Tensor) -> Tensor:
    """Smallest [N] of ``margins`` [N, I] (m); NEVER where the formula has nothing to keep (I = 0)."""
    return margins.min(-1).values if margins.shape[-1] else margins.new_full(margins.shape[:-1], NEVER)


STATE = ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b")


class Observe(nn.Module):
    """State, disturbance, vectors to this and the next stage's point, time left, margins to keep, last actions."""

    def __init__(self, automaton: SubgoalAutomaton, points: Tensor, disturbance: Disturbance, action_dim: int) -> None:
        super().__init__()
        self.automaton, self.disturbance = automaton, disturbance
        named = {name for predicate in automaton.predicates for name in signals_in(predicate)} - {MISSION_TIME.name}
        self.signals = (*STATE, *sorted(named - set(STATE)))  # a policy reads nothing that it has no use for
        self.register_buffer("points", points)
        self.points: Tensor
        self.action_dim = action_dim
        self.memory = {**automaton.memory, **disturbance.memory, "actions": (HISTORY * action_dim,)}
        self.obs_dim = 18 + 6 + 6 + len(points) + 1 + len(automaton.invariants) + HISTORY * action_dim

    def forward(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Observation [N, O] and the next memory."""
        progress, after = self.automaton({**signals, "mission_time": memory["tick"] * self.automaton.dt}, memory)
        residual, observed = self.disturbance(signals, memory["actions"][:, : self.action_dim], memory)
        position = signals["base_pos_w"]
        here = progress.stage @ self.points - position
        following = torch.cat([torch.zeros_like(progress.stage[:, :1]), progress.stage[:, :-1]], -1)
        following = torch.cat([following[:, :-1], following[:, -1:] + progress.stage[:, -1:]], -1)
        obs = torch.cat([
            position, rotation(signals["base_quat_w"]).flatten(1), signals["base_vel_w"], signals["base_ang_vel_b"],
            residual, here, following @ self.points - position, progress.stage,
            # no clock and no "hold now": hovering at C before and while it must be held is one and the same thing
            progress.left.clamp(0, 4)[:, None], progress.keep.clamp(-0.5, 0.5), memory["actions"],
        ], -1)
        return obs, {**after, **observed, "actions": memory["actions"]}

    def record(self, memory: dict[str, Tensor], action: Tensor) -> dict[str, Tensor]:
        """The memory with ``action`` in front of the earlier ones."""
        return {**memory, "actions": torch.cat([action, memory["actions"][:, : -self.action_dim]], -1)}


class Objective:
    """Reward, termination and training statistics from the true signals."""

    def __init__(self, automaton: SubgoalAutomaton, points: Tensor, weights: Reward, action_dim: int) -> None:
        self.automaton, self.points, self.weights = automaton, points, weights
        self.held_until = max((hold.hi for hold in automaton.holds), default=0.0) - EPS  # s
        self.guarded = [i for i, inv in enumerate(automaton.invariants) if inv not in automaton.holds]
        self.carry = {**automaton.memory, "last_action": (action_dim,), "distance": (len(points),), "broken": ()}
        self.privileged_dim = 3 + 9 + 6 + 4 + 3 + 3 + len(automaton.subgoals) + len(points)

    def distances(self, signals: Mapping[str, Tensor]) -> Tensor:
        """Distance [N, stages] to each stage's point, m."""
        return (signals["base_pos_w"][:, None] - self.points).norm(dim=-1)

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        """The carry after the sample at time 0."""
        progress, after = self.automaton(signals, carry)
        broken = (lowest(progress.keep) <= 0).float()
        return {**carry, **after, "distance": self.distances(signals), "broken": broken}

    def step(
        self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry
    ) -> tuple[Tensor, Tensor, Carry]:
        """Reward [N], terminated [N], next carry."""
        w, dt = self.weights, self.automaton.dt
        progress, after = self.automaton(signals, carry)
        distance = self.distances(signals)
        # the stage that was open before this step: no jump in the reward when the stage changes
        was_open = self.automaton.next_stage(progress.time - dt, carry["hit"])
        closer = ((carry["distance"] - distance) * was_open).sum(-1)
        hits = progress.hit.float().sum(-1) - (carry["hit"] > 0).float().sum(-1)
        holding = progress.stage[:, len(self.automaton.subgoals):].sum(-1)
        here = (distance * progress.stage).sum(-1)
        inside = (progress.margin * progress.stage).sum(-1) > 0
        smallest = lowest(progress.keep)
        safety = self.safety(progress)
        late = (progress.left < 0).float() * (1 - holding)
        change = (action - carry["last_action"]).square().sum(-1)
        reward = w.progress * closer + w.hit * hits + dt * (
            w.hold * (progress.hold & inside).float() + w.near * holding * torch.exp(-here / 0.2) - w.late * late
            - w.keep * (w.keep_margin - safety).clamp(min=0) / w.keep_margin
            - w.fast * (signals["base_vel_w"].norm(dim=-1) - w.fast_speed).clamp(min=0).square()
            - w.effort * action.square().sum(-1) - w.smooth * change
            - w.heading * (1 - rotation(signals["base_quat_w"])[:, 0, 0])
            - w.spin * signals["base_ang_vel_b"].square().sum(-1))
        terminated = safety <= 0
        reward = reward - w.violated * terminated.float()
        broken = torch.maximum(carry["broken"], (smallest <= 0).float())
        return reward, terminated, {**after, "last_action": action, "distance": distance, "broken": broken}

    def safety(self, progress: Progress) -> Tensor:
        """Smallest margin [N] of what is kept and is no stage to fly to: its violation ends the episode."""
        return lowest(progress.keep[:, self.guarded])

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """True state and disturbances for the critic."""
        return torch.cat([
            signals["base_pos_w"], rotation(signals["base_quat_w"]).flatten(1), signals["base_vel_w"],
            signals["base_ang_vel_b"], signals["rotor_speed"], 10 * signals["force_w"], 1e3 * signals["torque_b"],
            carry["hit"], carry["distance"],
        ], -1)

    def success(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        """Every subgoal hit, every hold over and nothing broken: implies that the formula is satisfied at the horizon.
        Who pays for success on the way must not pay for a place that has yet to be held."""
        held = (carry["tick"] - 1.0) * self.automaton.dt >= self.held_until
        return (carry["hit"] > 0).all(-1) & (carry["broken"] == 0) & held


def initial(draw: Draw) -> dict[str, Tensor]:
    """Near the origin at 1 m: position +-0.2 m, tilt up to 10 degrees, speed +-0.2 m/s, body rates +-0.2 rad/s."""
    u = 2 * draw("initial", 12) - 1
    axis = u[:, 3:6] / u[:, 3:6].norm(dim=-1, keepdim=True).clamp(min=1e-6)
    half = 0.5 * radians(10.0) * u[:, 6:7].abs()
    quat = torch.cat([half.cos(), half.sin() * axis], -1)
    position = 0.2 * u[:, :3] + torch.tensor([0.0, 0.0, 1.0], device=u.device)
    return {"base_pos_w": position, "base_quat_w": quat, "base_vel_w": 0.2 * u[:, 7:10],
            "base_ang_vel_b": 0.2 * torch.cat([u[:, 10:12], u[:, :1]], -1)}


class MidEpisode:
    """Starts in mid-episode: a stage, a time that fits it, a place on the way between its points.

    A place that violates what must be kept is replaced by the stage's first point, or the mission's start.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.copies: dict[torch.device, Objective] = {}

    def __call__(self, draw: Draw) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """State and memory of K worlds."""
        u, state = draw("explore.start", 12), initial(draw)
        if u.device not in self.copies:  # an environment takes only its own objective to a GPU
            self.copies[u.device] = on_device(self.objective, u.device)
        objective = self.copies[u.device]
        automaton, points = objective.automaton, objective.points
        goals = len(automaton.subgoals)
        stage = (u[:, 0] * len(points)).long().clamp(max=len(points) - 1)
        hit, time = torch.zeros(len(u), goals, device=u.device), torch.zeros(len(u), device=u.device)
        for i, goal in enumerate(automaton.subgoals):  # earlier subgoals were hit somewhere in their windows
            share = 0.25 + 0.75 * draw("explore.took", goals)[:, i]
            took = goal.window[0] + (goal.window[1] - goal.window[0]) * share
            passed = i < stage
            hit[:, i] = torch.where(passed, 1.0 + time + took, hit[:, i])
            time = torch.where(passed, time + took + goal.hold, time)
        time = time + 1.5 * u[:, 1]
        before = torch.cat([torch.tensor([[0.0, 0.0, 1.0]], device=u.device), points[:-1]])[stage]
        place = before + u[:, 2:3].square() * (points[stage] - before) + 0.3 * (u[:, 3:6] - 0.5)
        tick = torch.round(time / automaton.dt)
        state = {"base_pos_w": place, "base_quat_w": state["base_quat_w"], "base_vel_w": 2.4 * u[:, 6:9] - 1.2,
                 "base_ang_vel_b": 2 * u[:, 9:12] - 1}
        memory = {"tick": tick, "hit": hit, "held": torch.zeros_like(hit)}
        progress, _ = automaton({**state, "height": place[:, 2], "mission_time": time}, memory)
        unsafe = objective.safety(progress) < 0.1
        state["base_pos_w"] = torch.where(unsafe[:, None], before, place)
        return state, memory


def shapes(c: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """What to draw, in metres in the world frame."""
    goals = [{"type": "sphere", "name": n.upper(), "center": c[n], "radius": c["reach"] if n != "c" else c["hold"],
              "role": "goal"} for n in ("a", "b", "c")]
    pillars = [{"type": "cylinder", "name": n, "center": c[n], "radius": c["pillar_radius"], "height": c["ceiling"],
                "role": "avoid"} for n in ("pillar_1", "pillar_2")]
    fence = {"type": "box", "name": "fence", "role": "fence",
             "low": (-c["fence"], -c["fence"], c["floor"]), "high": (c["fence"], c["fence"], c["ceiling"])}
    return (*goals, *pillars, fence)


def make(
    *, robot: str = "crazyflie", formula: str = FORMULA, constants: Mapping[str, Any] | None = None,
    control_dt: float = 0.02, substeps: int | None = None,
    slack: float = 0.03, reward: Mapping[str, float] | None = None,
) -> Task:
    """The task.

    Args:
        robot: a quadrotor.
        slack: m, how deep inside a region the policy must believe itself to be before it moves on. The reward asks for
            twice that: what counts as reached for the reward must have been noticed by the policy, or it would be paid
            for flying on to a point that it does not see as its next.
    """
    check_range("waypoints", "slack", slack, 0.0, 1.0, "m")
    constants = {**CONSTANTS, **dict(constants or {})}
    of = quadrotor("waypoints", robot)
    parsed = parse(formula, task_schema(of), constants)
    parts = plan(decompose(parsed, control_dt))
    automaton = SubgoalAutomaton(parts, control_dt, 2 * slack)
    points = stage_points(automaton, constants, formula)
    act = rates_action(of)
    disturbance = Disturbance(act, mass(of), control_dt, of.parameters["tau_up"].nominal[0])
    objective = Objective(automaton, points, weights(Reward, reward), 4)
    return Task(
        name="waypoints", scene=Scene(of), command="ctbr_cmd", control_dt=control_dt,
        substeps=substeps or physics_steps(of, control_dt, 4), episode_s=9.0, formula=parsed, formula_text=formula,
        constants=constants,
        observe=Observe(SubgoalAutomaton(parts, control_dt, slack), points, disturbance, 4), act=act,
        objective=objective, initial=initial, mid_episode=MidEpisode(objective), shapes=shapes(constants))
