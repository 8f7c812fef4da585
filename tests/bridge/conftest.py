"""A hand-written policy as an artifact: flies to A, then to B, and holds B. What the bridge's tests fly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

FORMULA = "F[0,3] (norm(base_pos_w - a) < reach) & G[5,6] (norm(base_pos_w - b) < reach) & G[0,6] (height > floor)"
CONSTANTS = {"a": (0.5, 0.3, 1.2), "b": (-0.3, 0.4, 0.8), "reach": 0.25, "floor": 0.2}
HORIZON_S, RATE_HZ = 6.0, 50.0
SIGNALS = ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b", "height")


def build_policy(gain: float = 5.0, mass: float = 0.0319, goal: str = "") -> Any:
    """Cascaded controller as a torch module; the clock is its memory. ``gain``: from tilt to rate, 1/s; ``mass``: of
    the robot, kg; ``goal``: signal of where to fly to, in place of A and B."""
    import torch
    from torch import nn

    class Cascade(nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {"tick": torch.zeros(n)}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            tick = memory["tick"]
            first = (tick < 3.0 * RATE_HZ).float()[:, None]
            there = first * torch.tensor(CONSTANTS["a"]) + (1 - first) * torch.tensor(CONSTANTS["b"])
            there = signals[goal] if goal else there
            error = (there - signals["base_pos_w"]).clamp(-0.6, 0.6)
            wanted = 2.5 * error - 2.2 * signals["base_vel_w"] + torch.tensor([0.0, 0.0, 9.81])
            w, x, y, z = signals["base_quat_w"].unbind(-1)
            rows = [  # columns of this matrix are the body axes in the world
                torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
                torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
                torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)]
            in_body = sum(wanted[:, i, None] * row for i, row in enumerate(rows))
            thrust = mass * in_body[:, 2]
            up = in_body / in_body.norm(dim=-1, keepdim=True)
            rates = gain * torch.stack([-up[:, 1], up[:, 0], 0.0 * signals["base_ang_vel_b"][:, 2]], -1)
            # height and rates are read so that every signal of the robot is an input
            command = torch.cat([(thrust + 0.0 * signals["height"])[:, None], rates], -1)
            return {"ctbr_cmd": command}, {"tick": tick + 1.0}

    return Cascade()


def golden_trace(policy: Any, signals: dict[str, np.ndarray], command: str) -> dict[str, np.ndarray]:
    """What ``policy`` commands over ``signals`` [T, ...], from its initial memory."""
    import torch

    memory, commands = policy.initial_memory(1), []
    with torch.no_grad():
        for t in range(len(next(iter(signals.values())))):
            said, memory = policy({k: torch.from_numpy(v[t][None]) for k, v in signals.items()}, memory)
            commands.append(said[command][0].numpy())
    return {**{f"signals.{k}": v for k, v in signals.items()}, f"commands.{command}": np.stack(commands)}


def write_artifact(path: Path, gain: float = 5.0, mass: float = 0.0319, **changes: Any) -> Path:
    """The policy as an artifact in folder ``path``."""
    from temporeal.policies.export.writer import ArtifactSpec, export
    from temporeal.robots.spec import load_robot

    policy, rng, steps = build_policy(gain, mass), np.random.default_rng(0), 20
    signals = {name: rng.normal(size=(steps, *shape)).astype(np.float32) for name, shape in (
        ("base_pos_w", (3,)), ("base_vel_w", (3,)), ("base_ang_vel_b", (3,)), ("height", ()))}
    quat = rng.normal(size=(steps, 4))
    signals["base_quat_w"] = (quat / np.linalg.norm(quat, axis=-1, keepdims=True)).astype(np.float32)
    arguments: dict[str, Any] = {
        "robot": load_robot("crazyflie"), "signals": SIGNALS, "command": "ctbr_cmd", "rate_hz": RATE_HZ,
        "formula_text": FORMULA, "constants": CONSTANTS, "horizon_s": HORIZON_S, "training": {"by": "hand"}, "seed": 0,
        "stop": "level", "golden": golden_trace(policy, signals, "ctbr_cmd"), "name": "cascade",
        "git_revision": "test", **changes}
    golden = arguments.pop("golden")
    export(policy, path, ArtifactSpec(**arguments), golden)
    return path


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the hand-written policy's artifact."""
    return write_artifact(tmp_path_factory.mktemp("policy") / "artifact")


@pytest.fixture(scope="session")
def grounded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same policy with a formula that a flight from the ground can satisfy."""
    constants = {name: value for name, value in CONSTANTS.items() if name != "floor"}
    return write_artifact(tmp_path_factory.mktemp("grounded") / "artifact", formula_text=FORMULA.rpartition(" & ")[0],
                          constants=constants)


ARM_HOLD_S, ARM_RATE_HZ = 3.0, 25.0
ARM_FORMULA = "F[0,2] G[0,1] (norm(joint_pos - goal) < reach) & G[0,3] (grip_pos_w.z > 0.1)"


def build_arm_policy(chunk: int = 0, robot: Any = None) -> Any:
    """Joint targets that go from where the arm is (None: a Franka) to home + 0.15 rad at 0.25 rad/s; with ``chunk``
    rows, that many."""
    import torch
    from torch import nn

    from temporeal.robots.spec import load_robot

    robot = robot or load_robot("franka")
    goal, step, place = torch.tensor(robot.home["joint_pos"]) + 0.15, 0.25 / ARM_RATE_HZ, f"{robot.tool}_pos_w"

    class Servo(nn.Module):
        def initial_memory(self, n: int) -> dict[str, Any]:
            return {} if chunk else {"target": torch.zeros(n, len(goal)), "tick": torch.zeros(n)}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            here = signals["joint_pos"] + 0.0 * signals[place].sum(-1, keepdim=True)
            if chunk:
                ahead = 0.5 * (torch.arange(chunk) + 1.0)[None, :, None] * step
                return {"joint_pos_cmd": here[:, None] + (goal - here)[:, None].clamp(-ahead, ahead)}, {}
            first = (memory["tick"] == 0).float()[:, None]
            target = first * here + (1 - first) * memory["target"]
            target = target + (goal - target).clamp(-step, step)
            return {"joint_pos_cmd": target}, {"target": target, "tick": memory["tick"] + 1.0}

    return Servo()


def write_arm_artifact(path: Path, chunk: int = 0, robot: Any = None, **changes: Any) -> Path:
    """The arm's policy as an artifact in folder ``path``; ``robot``: None: a Franka."""
    from temporeal.policies.export.writer import ArtifactSpec, export
    from temporeal.robots.artifact.manifest import ChunkSpec
    from temporeal.robots.spec import load_robot

    robot = robot or load_robot("franka")
    policy, rng, steps = build_arm_policy(chunk, robot), np.random.default_rng(0), 8
    home, place = np.array(robot.home["joint_pos"]), f"{robot.tool}_pos_w"
    signals = {"joint_pos": (home + 0.1 * rng.normal(size=(steps, home.size))).astype(np.float32),
               place: rng.normal(size=(steps, 3)).astype(np.float32)}
    arguments: dict[str, Any] = {
        "robot": robot, "signals": tuple(signals), "command": "joint_pos_cmd", "rate_hz": ARM_RATE_HZ,
        "formula_text": ARM_FORMULA.replace("grip_pos_w", place),
        "constants": {"goal": tuple(float(x) for x in home + 0.15), "reach": 0.1},
        "horizon_s": ARM_HOLD_S, "training": {"by": "hand"}, "seed": 0, "stop": "hold",
        "golden": golden_trace(policy, signals, "joint_pos_cmd"), "name": "servo", "git_revision": "test",
        **({"chunk": ChunkSpec(chunk, 1 / ARM_RATE_HZ)} if chunk else {}), **changes}
    golden = arguments.pop("golden")
    export(policy, path, ArtifactSpec(**arguments), golden)
    return path


@pytest.fixture(scope="session")
def arm_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the arm's policy."""
    return write_arm_artifact(tmp_path_factory.mktemp("arm") / "artifact")


@pytest.fixture(scope="session")
def chunked_arm_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, as one that gives twenty commands at a time."""
    return write_arm_artifact(tmp_path_factory.mktemp("chunked") / "artifact", chunk=20)


class Lockstep:
    """Nodes on one memory bus, each run when a message came or its deadline has: real nodes, fake time. The
    guard looks at the bus itself, when it thinks fit."""

    def __init__(self, bus: Any) -> None:
        self.bus, self.pairs = bus, list[tuple[Any, Any]]()

    def add(self, transport: Any, node: Any) -> Any:
        self.pairs.append((transport, node))
        return node

    def run(self, seconds: float, until: Any = lambda: False) -> None:
        from temporeal_bridge.guard_node import GuardNode

        end = self.bus.seconds + seconds
        while end - self.bus.seconds > 1e-9 and not until():  # an end that was met but for rounding is met
            while sum(transport.wait(0.0) for transport, node in self.pairs if not isinstance(node, GuardNode)):
                for _, node in self.pairs:
                    node.step()
            for _, node in self.pairs:
                node.step()
            soonest = min((node.deadline() for _, node in self.pairs), default=end)
            self.bus.advance(max(min(soonest, end) - self.bus.seconds, 1e-6))


@pytest.fixture
def lockstep() -> Lockstep:
    from temporeal_bridge.transports.memory_bus import Bus

    return Lockstep(Bus())


@pytest.fixture(scope="session")
def lockstep_of() -> type[Lockstep]:
    """For a bus of one's own, and tests that share a flight."""
    return Lockstep


@pytest.fixture(scope="session")
def two_turns() -> Any:
    """For a bus, the guard's end of a line on which what the controller says at once comes one by one, each in a turn
    of its own of the guard's loop, as it may between two processes."""
    from temporeal_bridge.link.datagrams import Proposal
    from temporeal_bridge.link.in_process import InProcessGuard

    class OneByOne(InProcessGuard):
        def __init__(self, bus: Any) -> None:
            super().__init__()
            self.bus, self.kept, self.next = bus, list[Proposal](), 0.0

        def receive(self) -> list[Proposal]:
            self.kept += super().receive()
            if not self.kept or self.bus.seconds < self.next:
                return []
            self.next = self.bus.seconds + 3e-4
            return [self.kept.pop(0)]

    return OneByOne


@pytest.fixture(scope="session")
def other_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same policy with another gain: other weights."""
    return write_artifact(tmp_path_factory.mktemp("policy") / "other", gain=5.5)


@pytest.fixture(scope="session")
def long_artifacts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both, with a mission that lasts long enough for a process to start in it on a busy machine. ``reach`` is twice
    the others': the policy knows no integral and sinks to 0.13 m below B in 20 s, and late cycles make it sway more."""
    folder = tmp_path_factory.mktemp("long")
    mission = {"formula_text": FORMULA.replace("G[5,6]", "G[5,20]").replace("G[0,6]", "G[0,20]"), "horizon_s": 20.0,
               "constants": {**CONSTANTS, "reach": 0.5}}
    return write_artifact(folder / "old", **mission), write_artifact(folder / "new", gain=5.5, **mission)


@pytest.fixture
def world(lockstep: Lockstep, artifact: Path) -> Any:
    """A guard that is ready (:class:`tests.bridge.guard.guard_world.World`)."""
    from tests.bridge.guard.guard_world import ready

    return ready(lockstep, artifact)


@pytest.fixture
def flying(world: Any) -> Any:
    """The same, 0.3 s into its first mission."""
    world.begin()
    world.fly(0.3)
    assert world.mode == "active" and len(world.commands) == 15
    return world
