"""Scripted robots that do the missions of the suite: ways through places that were found by hand, and controllers.

They prove that a formula can be satisfied, from the starts that its file names. Nothing of it is learned from, and no
result of the suite uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from temporeal.robots.registry import resolve
from temporeal.sim.rotations import rotation
from temporeal.sim.system import System

WALK = 0.8  # m/s: what an ant is asked to be capable of


@dataclass(frozen=True)
class Go:
    """Go to the constant or the place ``to``, stay ``dwell`` s, and not leave before ``until`` s."""

    to: str | tuple[float, ...]
    until: float = 0.0
    dwell: float = 0.0


Way = Sequence[Go | str | tuple[float, ...]]


# ---------------------------------------------------------------- ways: of several, one must do

KEYS: Way = ("key1", (-1.0, 0.0), (1.0, 0.0), "key2", (3.0, 0.2), (3.0, 2.2), "goal")
BACK: Way = ((3.0, 2.2), (3.0, 0.2), (1.0, 0.0), (-1.0, 0.0), "exit")
BELOW, ABOVE = (0.0, -0.5), (0.0, 2.5)  # of the patrols' disk
GAP = (0.0, 0.85, 1.2)  # between the pillars of the quadrotor's room
FRONT = (0.33, 0.0, 0.4)  # between the post and the arm's base


def held(first: str, second: str, *via: tuple[float, ...], dwell: float) -> Way:
    """Stay at both."""
    return (Go(first, dwell=dwell), *via, Go(second, dwell=dwell))


def flat(task: str) -> dict[str, list[Way]]:
    """The ways of linear and unicycle, by the names of tasks without the system's; windows of ``task``'s system."""
    first, second = (3.2, 10.2) if task == "linear" else (5.2, 14.2)
    return {
        "reach": [((3.6, -3.0), "b", "a"), ((-3.6, -3.0), "a", "b")],
        "windows": [(Go("a", until=first), Go("b", until=second), "c")],
        "seq": [("a", "b", "c")],
        "patrol": [("a", BELOW, "b", ABOVE) * 4, ("b", BELOW, "a", ABOVE) * 4],
        "choice": [("a", "b", "home"), ("c", "d", "home")],
        "stay": [held("a", "b", (2.4, 0.0), dwell=3.4), held("b", "a", (2.4, 0.0), dwell=3.4)]}


WAYS: dict[str, dict[str, list[Way]]] = {
    "linear": flat("linear") | {
        "tour": [((0.0, 0.0), "a", "b", "c", "d")], "doors": [KEYS], "rooms": [(*KEYS, *BACK)]},
    "unicycle": flat("unicycle") | {
        "tour": [("f", "a", "h", "c", "d"), ("d", "c", "h", "a", "f")],
        "key": [((-2.6, -3.3), "key", (-1.2, 0.0), (1.2, 0.0), (3.0, 0.0))]},
    "quadrotor": {
        "reach": [("b", GAP, "a")], "tour": [("a", "b", GAP, "c")],
        "windows": [(Go("a", until=2.1), Go("b", until=5.1), GAP, "c")],
        "key": [("key", GAP, (1.5, 1.2, 1.4))], "seq": [("a", "b", GAP, "c")],
        "hold": [held("a", "b", (-0.9, -0.8, 1.2), dwell=1.3)], "patrol": [("a", "b") * 6],
        "choice": [("a", "b", "home"), ("c", "d", GAP, "home")]},
    "franka": {
        "reach": [("a", FRONT, "b")], "tour": [("a", "c", "b")],
        "windows": [(Go("a", until=1.1), FRONT, Go("b", until=3.1), "c")],
        "key": [("key", FRONT, (0.55, -0.3, 0.3))], "seq": [("a", FRONT, "b", "c")],
        "hold": [held("a", "b", FRONT, dwell=0.8)], "patrol": [("a", FRONT, "b", FRONT) * 5],
        "choice": [("a", "b", "a", "home"), ("c", "d", "c", "home")]},
    "ant": {
        "reach": [("a", (0.0, -0.5), "b")], "tour": [("a", "c", "b")],
        "windows": [(Go("a", until=3.1), Go("b", until=8.1), "c")],
        "key": [("key", (0.0, -0.6), (2.2, 1.0))], "seq": [("a", "b", "c")],
        "stay": [held("a", "b", (0.0, -0.5), dwell=1.3)], "patrol": [("a", "b") * 5, ("b", "a") * 5],
        "choice": [("a", "home"), ("b", "home")]},
}  # fmt: skip


def ways(task: str, constants: Mapping[str, Any]) -> list[list[Go]]:
    """The ways of the file ``<system>_<name>``, their places as numbers."""
    system, _, name = task.partition("_")
    if name.startswith("horizon"):
        found: list[Way] = [("a", Go("b", until=0.4 * constants["T"] + 0.2), "c")]
    else:
        found = WAYS[system][name]
    return [[_placed(go if isinstance(go, Go) else Go(go), constants) for go in way] for way in found]


def _placed(go: Go, constants: Mapping[str, Any]) -> Go:
    return Go(tuple(constants[go.to] if isinstance(go.to, str) else go.to), go.until, go.dwell)


class Guide:
    """Where each of N worlds goes now: world i along ``chosen[i]`` of the ways."""

    def __init__(self, found: Sequence[Sequence[Go]], chosen: Tensor, near: float, size: int) -> None:
        longest = max(map(len, found))
        rows = [[*way, *[Go(way[-1].to)] * (longest - len(way))] for way in found]
        place = [[(*go.to, 0.0, 0.0)[:size] for go in row] for row in rows]
        self.place = torch.tensor(place)[chosen]  # [N, W, size]
        self.until = torch.tensor([[go.until for go in row] for row in rows])[chosen]
        self.dwell = torch.tensor([[go.dwell for go in row] for row in rows])[chosen]
        self.at, self.since, self.near = torch.zeros(len(chosen), dtype=torch.long), torch.zeros(len(chosen)), near

    def __call__(self, place: Tensor, time: float) -> Tensor:
        """The way [N, size] from ``place`` [N, size] to where it goes now."""
        rows = torch.arange(len(place))
        there = (self.place[rows, self.at] - place).norm(dim=-1) < self.near
        self.since = torch.where(there, self.since, torch.full_like(self.since, time))
        over = there & (time >= self.until[rows, self.at]) & (time - self.since >= self.dwell[rows, self.at])
        self.at = torch.where(over, (self.at + 1).clamp(max=self.place.shape[1] - 1), self.at)
        self.since = torch.where(over, torch.full_like(self.since, time), self.since)
        return self.place[rows, self.at] - place


# ---------------------------------------------------------------- controllers: the way to go [N, size] to an action


def steer_linear(system: System, signals: Mapping[str, Tensor], way: Tensor) -> Tensor:
    """Straight there, and there in one step where that can be."""
    velocity = way / system.control_dt
    return velocity / velocity.abs().amax(-1, keepdim=True).clamp(min=1.0)


def steer_unicycle(system: System, signals: Mapping[str, Tensor], way: Tensor) -> Tensor:
    """Turn to it; forward as far as the heading is right."""
    ahead = rotation(signals["base_quat_w"])[:, :2, 0]
    cos, sin = (ahead * way).sum(-1), ahead[:, 0] * way[:, 1] - ahead[:, 1] * way[:, 0]
    error, far = torch.atan2(sin, cos), way.norm(dim=-1)
    speed = torch.where(error.abs() < 0.5, (2.0 * far).clamp(max=1.0), 0.0)
    rate = torch.where(far > 0.1, 3.0 * error, 0.0)
    speed = torch.where(far > 0.1, speed, 0.0)
    return torch.stack([(speed - 0.4) / 0.6, rate / 1.5], -1).clamp(-1.0, 1.0)


# Linear-quadratic regulator of one horizontal axis about hover: place, velocity, where body z points, its rate and
# acceleration; u is an angular acceleration behind the rotors' lag. Weighed by 0.25 m, 1 m/s, 0.5, 4 rad/s, 40 rad/s^2.
GAIN = (160.0, 105.8, 293.8, 44.0, 2.6)
FASTEST = 1.5  # m/s


def steer_quadrotor(system: System, signals: Mapping[str, Tensor], way: Tensor) -> Tensor:
    """The regulator on both axes, proportional height and heading; angular accelerations from the rotors' speeds."""
    p = system.scene.robot.parameters
    (mass,), arm, inertia = p["mass"].nominal, p["arm"].nominal, p["inertia"].nominal
    _, c1, c2 = p["thrust_curve"].nominal
    turn, rates, speed = rotation(signals["base_quat_w"]), signals["base_ang_vel_b"], signals["rotor_speed"]
    t1, t2, t3, t4 = (speed * (c1 + c2 * speed)).unbind(-1)
    spin = torch.stack([arm[1] * (t3 + t4 - t1 - t2) / inertia[0], arm[0] * (t2 + t3 - t1 - t4) / inertia[1]], -1)
    longest = FASTEST * GAIN[1] / GAIN[0]
    flat_way = way[:, :2] * (longest / way[:, :2].norm(dim=-1, keepdim=True).clamp(min=longest))
    pitched = torch.stack([rates[:, 1], -rates[:, 0]], -1), torch.stack([spin[:, 1], -spin[:, 0]], -1)
    wanted = GAIN[0] * flat_way - GAIN[1] * signals["base_vel_w"][:, :2] - GAIN[2] * turn[:, :2, 2]
    wanted = wanted - GAIN[3] * pitched[0] - GAIN[4] * pitched[1]
    # the rate loop turns a rate into gain * (rate - what it is)
    gain = p["rate_gain"].nominal[0]
    rise = 9.81 + 4.0 * ((2.0 * way[:, 2]).clamp(-1.2, 1.2) - signals["base_vel_w"][:, 2])
    command = torch.stack([mass * rise / turn[:, 2, 2].clamp(min=0.5), rates[:, 0] - wanted[:, 1] / gain,
                           rates[:, 1] + wanted[:, 0] / gain, -2.0 * turn[:, 1, 0]], -1)
    return system.act.inverse(command).clamp(-1.0, 1.0)


def steer_franka(system: System, signals: Mapping[str, Tensor], way: Tensor) -> Tensor:
    """Straight there."""
    velocity = 5.0 * way
    return velocity / velocity.abs().amax(-1, keepdim=True).clamp(min=0.6)


STEER: dict[str, Callable[[System, Mapping[str, Tensor], Tensor], Tensor]] = {
    "linear": steer_linear, "unicycle": steer_unicycle, "quadrotor": steer_quadrotor, "franka": steer_franka}
NEAR = {"linear": 0.15, "unicycle": 0.3, "quadrotor": 0.2, "franka": 0.035, "ant": 0.3}


def corners(count: int, seed: int = 0) -> Callable[[str, int], Tensor]:
    """Draws of K worlds, of which the first four are at corners of the starts' box."""
    def numbers(stream: str, size: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed + sum(map(ord, stream)))
        out = torch.rand(count, size, generator=generator)
        for i in range(min(4, count)):
            out[i, 0], out[i, 1] = 0.9999 * (i % 2), 0.9999 * (i // 2)
        return out

    return numbers


def perform(system: System, settings: Mapping[str, Any], task: str, starts: int, steps: int) -> dict[str, Tensor]:
    """Traces [steps + 1, starts, ways, ...] of all ways from each of the starts, by signal."""
    found = ways(task, settings["constants"])
    begin = system.initial(corners(starts), settings["start"])
    begin = {name: value.repeat_interleave(len(found), 0) for name, value in begin.items()}
    chosen = torch.arange(len(found)).repeat(starts)
    name, size = {"franka": ("grip_pos_w", 3), "quadrotor": ("base_pos_w", 3)}.get(system.name, ("base_pos_w", 2))
    guide = Guide(found, chosen, NEAR[system.name], size)
    run = walk if system.name == "ant" else simulate
    trace = run(system, begin, guide, name, size, steps)
    return {k: v.reshape(steps + 1, starts, len(found), *v.shape[2:]) for k, v in trace.items()}


def simulate(
    system: System, begin: Mapping[str, Tensor], guide: Guide, name: str, size: int, steps: int
) -> dict[str, Tensor]:
    """In the system's own simulator."""
    count = len(guide.at)
    sim = resolve("temporeal.sim.backends", system.backend).make(
        system.scene, count, system.command, dt=system.control_dt / system.substeps, threads=1)
    sim.reset(torch.arange(count), begin)
    kept = [*dict.fromkeys((*system.signals, *(("height",) if system.name == "quadrotor" else ())))]
    memory = {key: torch.zeros(count, *shape) for key, shape in system.memory.items()}
    trace = [{key: sim.signals()[key].clone() for key in kept}]
    for step in range(steps):
        signals = sim.signals()
        action = STEER[system.name](system, signals, guide(signals[name][:, :size], step * system.control_dt))
        memory = system.record(system.follow(signals, memory), action)
        sim.step(system.act(action, memory), system.substeps)
        trace.append({key: sim.signals()[key].clone() for key in kept})
    sim.close()
    return {key: torch.stack([row[key] for row in trace]) for key in kept}


def walk(
    system: System, begin: Mapping[str, Tensor], guide: Guide, name: str, size: int, steps: int
) -> dict[str, Tensor]:
    """A point that moves at :data:`WALK` in place of the ant, which nobody can script."""
    place, trace = begin[name].clone(), [begin[name].clone()]
    for step in range(steps):
        way = guide(place[:, :size], step * system.control_dt)
        stride = WALK * system.control_dt
        place[:, :size] += way * (stride / way.norm(dim=-1, keepdim=True).clamp(min=stride))
        trace.append(place.clone())
    return {name: torch.stack(trace)}
