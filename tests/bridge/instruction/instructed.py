"""A hand-written policy that is told where to go, with words of its own or of the suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from temporeal.robots.artifact.additions import TABLETOP
from temporeal.robots.spec import load_robot
from temporeal.sim.stl.instructions.grammar import SUITE
from temporeal.sim.stl.instructions.vocabulary import Vocabulary

ROBOT = load_robot("franka")
HOME = np.asarray(ROBOT.home["joint_pos"], dtype=np.float32)
WORDS = Vocabulary(("go", "left", "right"), 4)  # the first joint to one side or the other
RATE_HZ, STEPS, SPEED = 20.0, 10, 0.25  # rad/s
FORMULA = "F[0,2] G[0,0.5] (abs(joint_pos[0]) > 0.1) & G[0,3] (grip_pos_w.z > 0.1)"
CUBE = {
    "definitions": {},
    "signals": {"red_cube_pos_w": {"shape": [3], "unit": "m", "frame": "w"}},
    "states": [{"topic": "red_cube", "type": "geometry_msgs/msg/PoseStamped", "codec": "pose", "rate_hz": 50,
                "qos": "sensor", "options": {"frame": "world", "position": "red_cube_pos_w"}}]}


def build(words: Vocabulary) -> Any:
    """The policy: a chunk of STEPS rows by its words; its interface is that of a learned one."""
    import torch
    from torch import nn

    from temporeal.policies.data.episodes.interface import Interface

    class Goes(nn.Module):
        horizon = STEPS
        signals = ("joint_pos", "instruction")
        interface = Interface(
            robot="franka", rate_hz=RATE_HZ, action=ROBOT.command("joint_pos_cmd"),
            signals={"joint_pos": ROBOT.signals["joint_pos"], "instruction": signal_of(words)})

        def __init__(self) -> None:
            super().__init__()
            side = torch.zeros(len(words.words) + 1)
            for word, value in (("left", 1.0), ("right", -1.0)):
                if word in words.words:
                    side[words.numbers[word]] = value
            self.side = nn.Embedding.from_pretrained(side[:, None])
            self.home = nn.Parameter(torch.tensor(HOME))
            self.mix = nn.Linear(7, 7, bias=False)
            nn.init.eye_(self.mix.weight)

        def initial_memory(self, n: int) -> dict[str, Any]:
            return {}

        def rows(self, signals: dict[str, Any]) -> Any:
            here = self.mix(signals["joint_pos"])
            side = self.side(signals["instruction"].long())[..., 0].sum(-1, keepdim=True)
            goal = self.home + 0.2 * torch.cat([side, torch.zeros_like(here[:, 1:])], -1)
            room = SPEED / RATE_HZ * (torch.arange(STEPS) + 1.0)[None, :, None]
            return here[:, None] + torch.minimum(torch.maximum((goal - here)[:, None], -room), room)

        def forward(self, signals: dict[str, Any], memory: dict[str, Any]) -> Any:
            return {"joint_pos_cmd": self.rows(signals)}, {}

    return Goes()


def signal_of(words: Vocabulary) -> Any:
    """The signal of its words."""
    from temporeal.robots.signals import SignalSpec

    return SignalSpec("instruction", (words.length,), "token", "", "int32")


def write(path: Path, words: Vocabulary = WORDS, said: str = "go left", **changes: Any) -> Path:
    """The policy as an artifact in ``path``: of the suite's words with a formula of each sentence."""
    import torch

    from temporeal.policies.export.instructed import Told, instruction_spec
    from temporeal.policies.export.writer import ArtifactSpec, export
    from temporeal.robots.artifact.manifest import ChunkSpec

    fixed, int8 = changes.pop("fixed", ""), changes.pop("int8", False)
    policy, rng = build(words), np.random.default_rng(0)
    signals = {"joint_pos": (HOME + 0.1 * rng.normal(size=(20, 7))).astype(np.float32),
               "instruction": np.tile(words.encode(fixed or said), (20, 1))}
    rows = policy.rows({name: torch.from_numpy(value) for name, value in signals.items()}).detach().numpy()
    shown = Told(policy, words, fixed) if fixed else policy
    spec = ArtifactSpec(**{
        "robot": ROBOT, "signals": shown.signals, "command": "joint_pos_cmd", "rate_hz": RATE_HZ,
        "formula_text": FORMULA, "constants": {}, "horizon_s": 4.0, "training": {"by": "hand"}, "seed": 0,
        "stop": "hold", "name": "goes", "git_revision": "test", "chunk": ChunkSpec(STEPS, 1 / RATE_HZ),
        "task_signals": policy.interface.signals, "instruction": instruction_spec(
            policy.interface.signals.values(), words, TABLETOP if words == SUITE else "", fixed), **changes})
    export(shown, path, spec, {**{f"signals.{name}": signals[name] for name in shown.signals},
                               "commands.joint_pos_cmd": rows}, int8=int8)
    return path
