"""A robot of your own, from its model file, and a task for it: the arm of data/arm.xml brings its tool to a place.

python examples/own_robot.py [seconds]
temporeal eval outputs/examples/own_robot task=examples/own_robot.py
"""

import sys
from pathlib import Path

import torch
from torch import nn

import temporeal as tr
from temporeal.robots.signals import SignalSpec
from temporeal.sim.maps import AffineAction
from temporeal.sim.scene import Scene
from temporeal.sim.task import Constant, Task, task_schema

FORMULA = "F[0,1.6] G[0,0.4] (norm(tool_pos_w - goal_pos_w) < reach)"  # there within 1.6 s, for 0.4 s
MODEL = Path(__file__).parent / "data/arm.xml"  # beside it arm.robot.yaml: what the file cannot say
GOAL = Constant(SignalSpec("goal_pos_w", (3,), "m", "w"))


class Observe(nn.Module):
    """What the policy sees: joints, their speeds, and the way to the goal."""

    signals = ("joint_pos", "joint_vel", "tool_pos_w", "goal_pos_w")
    memory = {}
    obs_dim = 2 + 2 + 3

    def forward(self, signals, memory):
        way = signals["goal_pos_w"] - signals["tool_pos_w"]
        return torch.cat([signals["joint_pos"], 0.2 * signals["joint_vel"], 5 * way], -1), memory

    def record(self, memory, action):
        return memory


class Objective:
    """Closer is better; an episode that ends within ``reach`` has done what is asked."""

    privileged_dim = 1
    carry = {}

    def __init__(self, reach):
        self.reach = reach

    def distance(self, signals):
        return (signals["goal_pos_w"] - signals["tool_pos_w"]).norm(dim=-1)

    def start(self, signals, carry):
        return carry

    def step(self, signals, action, carry):
        distance = self.distance(signals)
        reward = 1 - torch.tanh(distance / 0.1) - 0.01 * action.square().sum(-1)
        return reward, distance < 0, carry  # nothing ends an episode early

    def privileged(self, signals, carry):
        return signals["mission_time"][:, None]

    def success(self, signals, carry):
        return self.distance(signals) < self.reach


def initial(draw):
    """Start at home; the goal is where the tool is at random angles of the joints."""
    u = draw("initial.goal", 2)
    shoulder, elbow = 2 * u[:, 0] - 1, 0.4 + 1.6 * u[:, 1]
    x = 0.3 * shoulder.cos() + 0.25 * (shoulder + elbow).cos()
    y = 0.3 * shoulder.sin() + 0.25 * (shoulder + elbow).sin()
    return {"goal_pos_w": torch.stack([x, y, torch.full_like(x, 0.1)], -1)}


def make():
    robot, constants = tr.load_robot(str(MODEL)), {"reach": 0.05}
    return Task(
        name="arm_reach", scene=Scene(robot), command="joint_pos_cmd", control_dt=0.04, substeps=10, episode_s=2.0,
        formula=tr.parse(FORMULA, task_schema(robot, GOAL), constants), formula_text=FORMULA, constants=constants,
        observe=Observe(), act=AffineAction(robot, "joint_pos_cmd", center=(0.0, 1.2), scale=(1.5, 1.0)),
        objective=Objective(constants["reach"]), initial=initial, extra=GOAL)


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 40.0
    run = tr.train(__file__, seed=1, out="outputs/examples/own_robot", overwrite=True, num_worlds=256, settings={
        "algo.max_seconds": seconds, "algo.rollout_steps": 25, "algo.gamma": 0.95, "algo.learning_rate": 1e-3})
    found = tr.evaluate(run, episodes=100).satisfied
    print(f"P(satisfied) = {found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]")
    tr.export(run)
