"""Artifacts that are made on the spot for benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.manifest import ChunkSpec
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import load_robot
from temporeal_bridge.interface.loading import load_interface


def hover(path: Path, rate_hz: float = 50.0, horizon_s: float = 100_000.0) -> Path:
    """A Crazyflie that keeps its place at (0, 0, 1): linear feedback, as an artifact in folder ``path``."""
    import torch

    class Hover(torch.nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            off = signals["base_pos_w"] - torch.tensor([0.0, 0.0, 1.0])
            wanted = -0.25 * off.clamp(-0.5, 0.5) - 0.2 * signals["base_vel_w"]  # lean towards the place, rad
            tilt = 2.0 * signals["base_quat_w"]
            thrust = 0.313 + 0.0319 * (-4.0 * off[:, 2] - 3.0 * signals["base_vel_w"][:, 2])
            rates = [-6.0 * (tilt[:, 1] + wanted[:, 1]), 6.0 * (wanted[:, 0] - tilt[:, 2]), -2.0 * tilt[:, 3]]
            return {"ctbr_cmd": torch.stack([thrust, *rates], -1)}, {}

    rng = np.random.default_rng(0)
    quat = rng.normal(size=(10, 4))
    signals = {"base_pos_w": rng.normal(size=(10, 3)), "base_vel_w": rng.normal(size=(10, 3)),
               "base_quat_w": quat / np.linalg.norm(quat, axis=1, keepdims=True)}
    return write(path, "crazyflie", "ctbr_cmd", Hover(), signals, rate_hz, horizon_s, "G[0,1] (base_pos_w[2] > -100)")


def echo(path: Path, rate_hz: float = 500.0, horizon_s: float = 100_000.0) -> Path:
    """An arm's policy that names the state it acted on: the last joint is to be where it is measured; the others come
    out of a network of two layers of 256."""
    import torch

    home = torch.tensor(load_robot("franka").home["joint_pos"], dtype=torch.float32)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(14, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 6))

    class Echo(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            seen = torch.cat([signals["joint_pos"], signals["joint_vel"]], -1)
            first = home[:6] + 1e-9 * torch.tanh(self.net(seen))
            return {"joint_pos_cmd": torch.cat([first, signals["joint_pos"][:, 6:]], -1)}, {}

    rng = np.random.default_rng(0)
    signals = {"joint_pos": home.numpy() + 0.01 * rng.normal(size=(10, 7)), "joint_vel": rng.normal(size=(10, 7))}
    return write(path, "franka", "joint_pos_cmd", Echo(), signals, rate_hz, horizon_s, "G[0,1] (joint_pos[0] < 100)")


def rest(path: Path, chunk: ChunkSpec, rate_hz: float = 50.0, horizon_s: float = 100_000.0) -> Path:
    """An arm that stays in its home pose, said in chunks."""
    import torch

    home = torch.tensor(load_robot("franka").home["joint_pos"], dtype=torch.float32)

    class Rest(torch.nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            rows = 0.0 * signals["joint_pos"][:, None] + home.expand(1, chunk.steps, 7)
            return {"joint_pos_cmd": rows}, {}

    signals = {"joint_pos": home.numpy() + 0.01 * np.random.default_rng(0).normal(size=(10, 7))}
    return write(path, "franka", "joint_pos_cmd", Rest(), signals, rate_hz, horizon_s, "G[0,1] (joint_pos[0] < 100)",
                 chunk)


def see(path: Path, picture: SignalSpec, rate_hz: float = 50.0, horizon_s: float = 100_000.0) -> Path:
    """An arm that stays in its home pose, but for 0.01 rad at the wrist by how bright its camera's ``picture`` is."""
    import torch

    home = torch.tensor(load_robot("franka").home["joint_pos"], dtype=torch.float32)

    class See(torch.nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            bright = signals[picture.name].float().mean((1, 2, 3)) / 255.0
            turn = 0.01 * bright[:, None] * torch.eye(7)[6]
            return {"joint_pos_cmd": 0.0 * signals["joint_pos"] + home + turn}, {}

    rng = np.random.default_rng(0)
    signals = {"joint_pos": (home.numpy() + 0.01 * rng.normal(size=(10, 7))).astype(np.float32),
               picture.name: rng.integers(0, 256, (10, *picture.shape), dtype=np.uint8)}
    return write(path, "franka", "joint_pos_cmd", See(), signals, rate_hz, horizon_s, "G[0,1] (joint_pos[0] < 100)",
                 task_signals={picture.name: picture})


def reach(path: Path, rate_hz: float = 20.0, horizon_s: float = 100_000.0) -> Path:
    """A hand that closes by 0.4 rad in each joint, as hard as its servos may."""
    import torch

    robot = load_robot("allegro_hand")
    home = torch.tensor(robot.home["joint_pos"], dtype=torch.float32)

    class Reach(torch.nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            return {"joint_pos_cmd": 0.0 * signals["joint_pos"] + home + 0.4}, {}

    signals = {"joint_pos": home.numpy() + 0.01 * np.random.default_rng(0).normal(size=(10, home.numel()))}
    return write(path, robot.name, "joint_pos_cmd", Reach(), signals, rate_hz, horizon_s, "G[0,1] (joint_pos[0] < 100)")


def write(
    path: Path, robot: str, command: str, policy: Any, signals: dict[str, np.ndarray], rate_hz: float, horizon_s: float,
    formula: str, chunk: ChunkSpec | None = None, task_signals: Mapping[str, SignalSpec] | None = None,
) -> Path:
    """A policy without memory as an artifact, with its commands for ``signals`` [T, ...] as the golden trace."""
    import torch

    from temporeal.policies.export.writer import ArtifactSpec, export

    seen = {name: value if value.dtype == np.uint8 else value.astype(np.float32) for name, value in signals.items()}
    with torch.no_grad():
        given = policy({name: torch.from_numpy(value) for name, value in seen.items()}, {})[0][command].numpy()
    golden = {**{f"signals.{name}": value for name, value in seen.items()}, f"commands.{command}": given}
    stop = next(iter(load_interface(load_robot(robot)).safety["commands"][command]["stop"].values()))
    spec = ArtifactSpec(
        robot=load_robot(robot), signals=tuple(seen), command=command, rate_hz=rate_hz, formula_text=formula,
        constants={}, horizon_s=horizon_s, training={}, seed=0, stop=stop, name="bench", git_revision="bench",
        chunk=chunk, task_signals=task_signals)
    export(policy, path, spec, golden)
    return path
