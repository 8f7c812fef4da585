"""Witnesses of a gliding stand-in, followed by a plain controller in the system's own model: the robot can do them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from temporeal.sim.rotations import rotation
from temporeal.sim.stl.distribution.drawing import Drawn, draw
from temporeal.sim.stl.distribution.motions import loaded, signals
from temporeal.sim.stl.distribution.settings import World, family, world
from temporeal.sim.stl.language.parse import parse
from temporeal.sim.stl.semantics.robustness import satisfied
from temporeal.sim.task_parts.systems import system_of

COUNT = 24


def references(drawn: list[Drawn], of: World) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Places, speeds and accelerations [T+1, N, 3] of the witnesses, at rest after their end."""
    longest = max(found.horizon for found in drawn)
    padded = [np.concatenate([found.commands, np.zeros((longest - found.horizon, 3), np.float32)]) for found in drawn]
    places = [signals(of, found.place, 0.0, u)[of.signal] for found, u in zip(drawn, padded)]
    speeds = [np.concatenate([np.zeros((1, 3)), np.cumsum(of.dt * u, 0)]) for u in padded]
    pushes = [np.concatenate([u, u[-1:]]) for u in padded]
    return tuple(torch.tensor(np.stack(x, 1), dtype=torch.float32) for x in (places, speeds, pushes))


def followed(place: torch.Tensor, steps: int, signal: str, robot: str, control: Callable) -> torch.Tensor:
    """Places [T+1, N, 3] of the system's model under ``control(k, signals)``, from rest at ``place`` [N, 3]."""
    model = system_of(robot).model
    still = torch.zeros_like(place)
    if robot == "quadrotor":
        level = torch.cat([torch.ones(len(place), 1), still], 1)
        state = model.state({"base_pos_w": place, "base_quat_w": level, "base_vel_w": still, "base_ang_vel_b": still})
    else:
        home = torch.tensor([loaded(robot).home["joint_pos"]]).expand(len(place), -1)
        state = model.state({"joint_pos": home})
    out = [model.signals(state)[signal].clone()]
    for k in range(steps):
        state = model.step(state, control(k, model.signals(state)).clamp(-1.0, 1.0))
        out.append(model.signals(state)[signal].clone())
    return torch.stack(out)


def share_satisfied(drawn: list[Drawn], of: World, flown: torch.Tensor) -> float:
    schema = loaded(of.robot).signals
    return float(np.mean([
        satisfied(parse(found.formula, schema, found.constants),
                  {of.signal: flown[: found.horizon + 1, k].double().numpy()}, of.dt)[0]
        for k, found in enumerate(drawn)]))


@pytest.mark.slow
def test_the_quadrotors_equations_follow_its_witnesses() -> None:
    """Acceleration from place and speed, thrust along the body's axis, body rates towards it, ahead of their lag."""
    of = world("quadrotor")
    drawn = [draw(of, family("train"), 21, k) for k in range(COUNT)]
    places, speeds, pushes = references(drawn, of)
    act, mass = system_of("quadrotor").act, loaded(of.robot).parameters["mass"].nominal[0]
    last = len(places) - 1

    def control(k: int, seen: dict[str, torch.Tensor]) -> torch.Tensor:
        turn = rotation(seen["base_quat_w"])
        up = turn[:, :, 2]
        push = pushes[min(k + 3, last)] + 4 * (places[k + 1] - seen["base_pos_w"])
        push = push + 3 * (speeds[k + 1] - seen["base_vel_w"]) + torch.tensor([0.0, 0.0, 9.81])
        axis = torch.linalg.cross(up, push / push.norm(dim=-1, keepdim=True))
        tilt = (turn.transpose(-1, -2) @ axis[..., None])[..., 0] - 0.12 * seen["base_ang_vel_b"]
        rates = 10 * tilt * torch.tensor([1.0, 1.0, 0.0])
        command = torch.cat([mass * (push * up).sum(-1, keepdim=True), rates], -1)
        return (command - act.center) / act.scale

    assert share_satisfied(drawn, of, followed(places[0], last, of.signal, "quadrotor", control)) == 1.0


@pytest.mark.slow
def test_the_arms_joints_follow_its_tools_witnesses() -> None:
    """The tool's speed with feedback of its place, ahead of the servos' lag."""
    of = world("franka")
    drawn = [draw(of, family("train"), 21, k) for k in range(COUNT)]
    places, speeds, _ = references(drawn, of)
    last = len(places) - 1

    def control(k: int, seen: dict[str, torch.Tensor]) -> torch.Tensor:
        return (speeds[min(k + 3, last)] + 3 * (places[k + 1] - seen["grip_pos_w"])) / 0.6  # m/s at action 1

    assert share_satisfied(drawn, of, followed(places[0], last, of.signal, "franka", control)) == 1.0
