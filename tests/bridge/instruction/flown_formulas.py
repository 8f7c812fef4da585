"""A hand-written policy that flies any formula without obstacles on its way: to the place that the follower says is
next, by the cascade of `tests.bridge.conftest`. Its judge is a network that has learned nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.formulas import FormulaSpec
from temporeal.robots.spec import load_robot

ROBOT = load_robot("crazyflie")
RATE_HZ, HORIZON_S = 50.0, 30.0
KEEP = "max(abs(base_pos_w.x), abs(base_pos_w.y)) < wall & base_pos_w.z > floor"
CONSTANTS = {"wall": 2.4, "floor": 0.2}
PLACES = {"a": [0.5, 0.3, 1.2], "b": [-0.3, 0.4, 0.8], "r": 0.3}
SIGNALS = ("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b", "height", "mission")


def build() -> Any:
    """The policy as a torch module, memory as of a follower of programs."""
    import torch
    from tests.bridge.conftest import build_policy
    from torch import nn

    from temporeal.sim.rewards.follower import MEMORY, Follower

    class Flies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.follower, self.cascade = Follower(0.05, 0.0), build_policy(goal="goal")

        def initial_memory(self, n: int) -> dict[str, Any]:
            return {name: torch.zeros(n, *shape) for name, shape in MEMORY.items()}

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            found, after = self.follower(signals["base_pos_w"], signals["mission"], memory)
            shape = found.current.shape
            goal = torch.where(shape[:, 3:6] > 500.0, signals["base_pos_w"], shape[:, :3])
            commands, _ = self.cascade({**signals, "goal": goal}, {"tick": memory["tick"]})
            return commands, after

    return Flies()


def judge() -> Any:
    """The judge of legs, with new weights of one seed."""
    import torch

    from temporeal.policies.training.generalist.judge import Judge
    from temporeal.sim.rewards.follower import Follower
    from temporeal.sim.rewards.itinerary_view import Lengths

    torch.manual_seed(0)
    return Judge(Follower(0.05, 0.0), Lengths(2.4, 0.12, 160.0, 0.03, 3, 0.1)).eval()


def formulas(**changes: Any) -> FormulaSpec:
    """The manifest's part."""
    from temporeal.sim.rewards.follower import LEGS, SIZE

    return FormulaSpec(**{
        "signal": "mission", "size": SIZE, "legs": LEGS, "position": "base_pos_w", "keep": KEEP,
        "constants": CONSTANTS, "slack": 0.05, "margin": 0.0, "speed": 0.8, "per_axis": False, "horizon_s": HORIZON_S,
        "radius": (0.25, 0.5), "avoid_radius": (0.2, 0.5), "slope": 1.0, "offset": 0.0, "validation": 0.5, **changes})


def trace(policy: Any, steps: int = 12) -> dict[str, np.ndarray]:
    """A mission from its start over random signals, with memory."""
    import torch

    from temporeal.sim.stl.itineraries.planner import plan, ways_of
    from temporeal.sim.stl.itineraries.search import straight
    from temporeal.sim.stl.language.parse import parse

    rng = np.random.default_rng(0)
    formula = parse("F[0,5] (norm(base_pos_w - a) < r) & G[0,9] (hypot(base_pos_w.x, base_pos_w.y) > 0.2)",
                    ROBOT.signals, {"a": PLACES["a"], "r": 0.3})
    best = plan(ways_of(formula, 1 / RATE_HZ), (1.0, 0.0, 1.0), straight(0.8, 1 / RATE_HZ))
    assert best is not None
    signals = {name: rng.normal(size=(steps, *shape)).astype(np.float32) for name, shape in (
        ("base_pos_w", (3,)), ("base_vel_w", (3,)), ("base_ang_vel_b", (3,)), ("height", ()))}
    quat = rng.normal(size=(steps, 4))
    signals["base_quat_w"] = (quat / np.linalg.norm(quat, axis=-1, keepdims=True)).astype(np.float32)
    signals["mission"] = np.tile(best.program, (steps, 1))
    memory, rows = policy.initial_memory(1), list[dict[str, np.ndarray]]()
    with torch.no_grad():
        for t in range(steps):
            before = {f"memory.{name}": value[0].numpy() for name, value in memory.items()}
            given, memory = policy({k: torch.from_numpy(v[t][None]) for k, v in signals.items()}, memory)
            rows.append({**before, "commands.ctbr_cmd": given["ctbr_cmd"][0].numpy()})
    kept = {k: np.stack([row[k] for row in rows]) for k in rows[0]}
    return {**{f"signals.{k}": v for k, v in signals.items()}, **kept}


def write(path: Path, of: FormulaSpec | None = None, **changes: Any) -> Path:
    """The policy as an artifact in ``path``."""
    from temporeal.policies.export.formulas import judged, traced
    from temporeal.policies.export.writer import ArtifactSpec, export

    policy, legs, of = build(), judge(), of or formulas()
    golden = trace(policy)
    spec = ArtifactSpec(**{
        "robot": ROBOT, "signals": SIGNALS, "command": "ctbr_cmd", "rate_hz": RATE_HZ,
        "formula_text": f"G[0,{HORIZON_S:g}] ({KEEP})", "constants": CONSTANTS, "horizon_s": HORIZON_S,
        "training": {"by": "hand"}, "seed": 0, "stop": "level", "name": "flies", "git_revision": "test",
        "task_signals": {"mission": of.spec}, "formulas": of, **changes})
    export(policy, path, spec, {**golden, **judged(legs, golden, of)}, judge=partial(traced, legs))
    return path
