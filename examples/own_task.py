"""A task of your own, in one file: fly within 3 s to a place that is drawn for each episode, and stay for a second.

python examples/own_task.py [seconds]
temporeal view task=examples/own_task.py --actions random

docs/how-to/adding-a-task.md explains each part.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from temporeal.robots.crazyflie.spec import GRAVITY
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal.sim.maps import AffineAction
from temporeal.sim.rewards.formula_tracker import FormulaObjective, FormulaTracker
from temporeal.sim.rotations import rotation
from temporeal.sim.scene import Scene
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.task import Carry, Constant, Draw, Task, task_schema, weights

FORMULA = """\
F[0,3] G[0,1] (norm(base_pos_w - goal_pos_w) < reach)
& G[0,4] (height > floor)"""

CONSTANTS: dict[str, Any] = {"reach": 0.2, "floor": 0.3}  # m
POSITIVE = ("reach",)


@dataclass(frozen=True)
class Reward:
    closer: float = 2.0  # per m by which the step came nearer
    hit: float = 5.0  # once, when the subgoal is hit
    inside: float = 2.0  # per s inside the goal
    broken: float = 5.0  # once, when what must be kept is broken: the episode ends
    smooth: float = 0.05  # per s, times the squared change of the action


class Observe(nn.Module):
    """The goal as seen from the robot, its motion, and the last action."""

    signals = ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b", "goal_pos_w")
    memory = {"last_action": (4,)}
    obs_dim = 3 + 9 + 3 + 3 + 4

    def forward(self, signals: Mapping[str, Tensor], memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        way = signals["goal_pos_w"] - signals["base_pos_w"]
        obs = torch.cat([way, rotation(signals["base_quat_w"]).flatten(1), signals["base_vel_w"],
                         signals["base_ang_vel_b"], memory["last_action"]], -1)
        return obs, dict(memory)

    def record(self, memory: dict[str, Tensor], action: Tensor) -> dict[str, Tensor]:
        return {**memory, "last_action": action}


def distance(signals: Mapping[str, Tensor]) -> Tensor:
    return (signals["goal_pos_w"] - signals["base_pos_w"]).square().sum(-1).sqrt()


class Objective(FormulaObjective):
    """Nearer to the goal; the formula says when it is there, and when the episode is lost."""

    privileged_dim = 2

    def __init__(self, tracker: FormulaTracker, reward: Reward) -> None:
        super().__init__(tracker, action_dim=4)
        self.weights = reward
        self.carry = {**self.carry, "distance": ()}

    def start(self, signals: Mapping[str, Tensor], carry: Carry) -> Carry:
        return {**super().start(signals, carry), "distance": distance(signals)}

    def step(self, signals: Mapping[str, Tensor], action: Tensor, carry: Carry) -> tuple[Tensor, Tensor, Carry]:
        w, dt, sample, away = self.weights, self.tracker.automaton.dt, self.tracker(signals, carry), distance(signals)
        broken = sample.safe <= 0
        reward = w.closer * (carry["distance"] - away) + w.hit * sample.hits - w.broken * broken.float() + dt * (
            w.inside * sample.inside - w.smooth * (action - carry["previous"]).square().sum(-1))
        return reward, broken, {**sample.carry, "previous": action, "distance": away}

    def privileged(self, signals: Mapping[str, Tensor], carry: Carry) -> Tensor:
        return torch.stack([signals["mission_time"] / 4, carry["distance"]], -1)


def initial(draw: Draw) -> dict[str, Tensor]:
    """At rest at 1 m; the goal within 0.8 m of it. ``goal_pos_w`` goes to ``extra``, the rest to the simulator."""
    start = torch.tensor([0.0, 0.0, 1.0])
    u = 2 * draw("initial", 3) - 1
    place = start.to(u.device) + 0.1 * u
    return {"base_pos_w": place, "goal_pos_w": place + torch.tensor([0.8, 0.8, 0.3]).to(u.device) * (
        2 * draw("goal", 3) - 1)}


class MidEpisode:
    """Starts near the goal, up to 2 s into the mission."""

    def __init__(self, dt: float) -> None:
        self.dt = dt

    def __call__(self, draw: Draw) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        state, near = initial(draw), 2 * draw("mid_episode.near", 3) - 1
        tick = (2.0 / self.dt * draw("mid_episode.tick", 1)[:, 0]).round()
        return {**state, "base_pos_w": state["goal_pos_w"] + 0.2 * near}, {"tick": tick}


def make(
    *, formula: str = FORMULA, constants: Mapping[str, Any] | None = None, control_dt: float = 0.02, substeps: int = 4,
    reward: Mapping[str, float] | None = None,
) -> Task:
    constants = {**CONSTANTS, **dict(constants or {})}
    robot = load_robot("crazyflie")
    scene, extra = Scene(robot), Constant(SignalSpec("goal_pos_w", (3,), "m", "w"))
    parsed = parse(formula, task_schema(scene, extra), constants)
    thrust = robot.parameters["mass"].nominal[0] * GRAVITY  # N, at action 0
    return Task(
        name="goto", scene=scene, command="ctbr_cmd", control_dt=control_dt, substeps=substeps, episode_s=4.0,
        formula=parsed, formula_text=formula, constants=constants, observe=Observe(),
        act=AffineAction(robot, "ctbr_cmd", center=(thrust, 0.0, 0.0, 0.0), scale=(0.2, 5.0, 5.0, 2.0)),
        objective=Objective(FormulaTracker(parsed, control_dt, slack=0.03), weights(Reward, reward)), initial=initial,
        extra=extra, mid_episode=MidEpisode(control_dt), stop="level",
        shapes=({"type": "box", "name": "room", "role": "fence", "low": (-1.0, -1.0, constants["floor"]),
                 "high": (1.0, 1.0, 1.5)},))


if __name__ == "__main__":
    import temporeal as tr

    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    run = tr.train(__file__, seed=1, out="outputs/examples/own_task", overwrite=True, settings={
        "algo.max_seconds": seconds, "task.mid_episode_starts": 0.3})
    found = tr.evaluate(run, episodes=200).satisfied
    print(f"P(satisfied) = {found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]")
    tr.export(run)
