"""Two small models with the protocol of ``temporeal.sim.system.Model``, starts for them, and flights of planners."""

import math

import torch

from temporeal.policies.planning.problem import Plan, judge, problem


class Point:
    """A point in the plane, velocity ``speed`` times the action: exactly linear."""

    action_dim = 2
    rollout = None

    def __init__(self, dt=0.2, speed=1.0):
        self.dt, self.speed = dt, speed

    def state(self, signals):
        return signals["p"]

    def step(self, state, action):
        return state + self.dt * self.speed * action

    def signals(self, state):
        return {"p": state}


class Cart(Point):
    """The same with forces: position and velocity, a double integrator."""

    def state(self, signals):
        return torch.cat([signals["p"], signals["v"]], -1)

    def step(self, state, action):
        p, v = state.split(2, -1)
        return torch.cat([p + self.dt * v + self.dt**2 / 2 * action, v + self.dt * action], -1)

    def signals(self, state):
        return {"p": state[:, :2], "v": state[:, 2:]}


class Unicycle:
    """Position and heading; forward speed 0 to 1 m/s, yaw rate within 1.5 rad/s: moves along arcs."""

    action_dim = 2
    rollout = None

    def __init__(self, dt=0.2):
        self.dt = dt

    def state(self, signals):
        return torch.cat([signals["p"], signals["heading"][:, None]], -1)

    def step(self, state, action):
        forward, turn = 0.5 + 0.5 * action[:, 0], 1.5 * action[:, 1]
        half = self.dt * turn / 2
        chord = self.dt * forward * torch.special.sinc(half / math.pi)
        way = state[:, 2] + half
        x, y = state[:, 0] + chord * torch.cos(way), state[:, 1] + chord * torch.sin(way)
        return torch.stack([x, y, state[:, 2] + 2 * half], -1)

    def signals(self, state):
        return {"p": state[:, :2], "heading": state[:, 2]}


def spread(count, generator, low=(-2.0, -2.0), high=(-1.0, -1.0)):
    """Positions in a box, [count, 2]."""
    low, high = torch.tensor(low), torch.tensor(high)
    return {"p": low + (high - low) * torch.rand(count, 2, generator=generator)}


@torch.no_grad()
def pursue(policy, plant, formula, dt, signals0, steps):
    """Drive ``plant`` with a feedback policy (`temporeal.policies.planning.receding.Receding`): a plan of the actions
    taken, and what its trace is worth."""
    state, actions = plant.state(signals0), []
    for _ in range(steps):
        actions.append(policy(plant.signals(state)))
        state = plant.step(state, actions[-1])
    taken = torch.stack(actions, 1)
    return Plan(taken, judge(problem(plant, formula, dt, signals0, steps), taken))
