"""Keypoints that say where they look: what teaches them, by hand; what the expert is told; what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from temporeal.policies.imitation import vla_grounding
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla import grounding
from temporeal.policies.vla.config import VlaConfig
from temporeal.policies.vla.encoder import VlaEncoder
from temporeal.policies.vla.grounding import PIXELS, GroundingConfig, looking, near
from temporeal.policies.vla.pictures import POINTED, Eye
from temporeal.robots.signals import SignalSpec, schema
from temporeal.robots.spec import load_robot
from temporeal.sim.rendering.cameras import Camera
from temporeal.sim.rendering.projection import CameraPoses

SIDE = 32
FRONT, WRIST = (SignalSpec(f"{name}_rgb", (SIDE, SIDE, 3), "1", "", "uint8") for name in ("front", "wrist"))
PLACES = tuple(SignalSpec(name, (3,), "m", "w") for name in ("target_pos_w", "place_pos_w"))
SMALL: dict[str, Any] = {"context": 32, "keypoints": 4, "channels": (8, 16, 16), "heads": 2}


def test_a_place_between_cells_is_shared_by_those_around_it() -> None:
    assert torch.allclose(near(torch.tensor([1.25, -3.0, 9.0]), 4),
                          torch.tensor([[0.0, 0.75, 0.25, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]))
    logits = torch.full((1, 1, 64), -30.0)
    logits[0, 0, 8 * 2 + 5] = 30.0  # looks at the cell in row 2, column 5: pixels 8 to 12, 20 to 24
    at = torch.tensor([[[10.0, 22.0, 1.0]]])
    assert float(looking(logits, at, (SIDE, SIDE))) < 1e-4
    assert float(looking(logits, at + torch.tensor([4.0, 0.0, 0.0]), (SIDE, SIDE))) == pytest.approx(60.0)
    assert float(looking(logits, at + torch.tensor([2.0, 0.0, 0.0]), (SIDE, SIDE))) == pytest.approx(30.0)
    assert float(looking(logits, at * torch.tensor([3.0, 1.0, 0.0]), (SIDE, SIDE))) == 0.0  # out of sight
    lost = torch.cat([at, torch.tensor([[[torch.nan, torch.nan, 0.0]]])])  # a world that was not drawn
    assert float(looking(logits.expand(2, 1, 64), lost, (SIDE, SIDE))) < 1e-4


def test_a_pointer_says_where_it_looks_and_how_spread_that_is() -> None:
    eye = Eye(FRONT.shape, (8, 16, 16), 4, 2, 0, 32, pointers=2)
    shares = torch.zeros(1, 2, 64)
    shares[0, 0, 63], shares[0, 1] = 1.0, 1.0 / 64
    found = eye.pointed(shares, shares @ eye.grid).view(2, POINTED)
    assert found[0].tolist() == pytest.approx([1.0, 1.0, 1e-3], abs=1e-6)
    assert found[1].tolist() == pytest.approx([0.0, 0.0, (2 * float(torch.linspace(-1, 1, 8).square().mean())) ** 0.5],
                                              abs=1e-5)


def test_the_expert_is_told_where_pointers_look() -> None:
    torch.manual_seed(0)
    joints = SignalSpec("joint_pos", (7,), "rad")
    encoder = VlaEncoder((FRONT, WRIST, joints), None, VlaConfig(pointers=2, **SMALL), told=PLACES).eval()
    signals = {"front_rgb": torch.randint(0, 255, (5, SIDE, SIDE, 3)).to(torch.uint8),
               "wrist_rgb": torch.randint(0, 255, (5, SIDE, SIDE, 3)).to(torch.uint8), "joint_pos": torch.zeros(5, 7)}
    tokens, logits = encoder.prefix.looked(signals)
    numbers = encoder.numbers(tokens, signals)
    assert numbers.shape == (5, 7 + 6 + 2 * 2 * POINTED) and not numbers[:, 13:].requires_grad
    at = torch.softmax(logits[1], -1) @ encoder.prefix.eyes["wrist_rgb"].grid
    assert torch.allclose(numbers[:, 13 + 6:].view(5, 2, POINTED)[..., :2], at)
    assert tokens.shape == (5, encoder.prefix.length, 32) and encoder(signals).flatten(1).shape[1] == encoder.size
    without = VlaEncoder((FRONT, WRIST, joints), None, VlaConfig(**SMALL), told=PLACES)
    assert without.prefix.pointed == 0 and without.prefix.length == encoder.prefix.length - 1
    with pytest.raises(SettingsError, match="algo.pointers=4 of 2 cameras are 24 numbers, .* algo.context=8"):
        VlaEncoder((FRONT, WRIST, joints), None, VlaConfig(pointers=4, **{**SMALL, "context": 8}))


class Scenes:
    """Worlds with one red square, seen by a camera from above; the rig has another one before it."""

    num_worlds, action_dim, rendering = 64, 2, True

    def __init__(self) -> None:
        words = SignalSpec("instruction", (16,), "token", "", "int32")
        self.task: Any = SimpleNamespace(name="squares", robot=load_robot("franka"), command="arm_cmd", control_dt=0.05,
                                         steps=50, schema=schema(words, PLACES[0]))
        self.generator = torch.Generator().manual_seed(0)
        eye = CameraPoses(torch.tensor([0.0, 0.0, 1.0]).expand(64, 2, 3), torch.eye(3).expand(64, 2, 3, 3),
                          torch.full((64, 2), 90.0))
        self.pictures: Any = SimpleNamespace(rig=SimpleNamespace(
            poses=lambda: eye, cameras=(Camera("depth", 16, 16), Camera("front", SIDE, SIDE))))

    def reset(self) -> Any:
        self.at = torch.randint(2, SIDE - 2, (64, 2), generator=self.generator)  # row, column
        self.shown = torch.zeros(64, SIDE, SIDE, 3, dtype=torch.uint8)
        for world, (row, column) in enumerate(self.at.tolist()):
            self.shown[world, row - 2:row + 2, column - 2:column + 2, 0] = 255
        return SimpleNamespace(images={"front_rgb": self.shown})

    def true_signals(self) -> dict[str, Tensor]:
        x, y = (self.at[:, 1] - SIDE / 2) / (SIDE / 2), (SIDE / 2 - self.at[:, 0]) / (SIDE / 2)
        return {"instruction": torch.zeros(64, 16), "target_pos_w": torch.stack([x, y, torch.zeros(64)], 1)}


CONFIG: dict[str, Any] = {**SMALL, "ground": ("target_pos_w",), "pointers": 1, "follow": 0.0, "looks": 1,
                          "frames": 256, "batch": 32, "updates": 100, "report_updates": 50, "pixels": 1.0}


def test_pointers_learn_to_look_at_places(tmp_path: Path) -> None:
    env: Any = Scenes()
    seen = grounding.frames(env, GroundingConfig(**CONFIG), torch.Generator().manual_seed(0))
    assert seen.numbers[PIXELS].shape == (256, 1, 1, 3) and bool((seen.numbers[PIXELS][..., 2] == 1).all())
    assert torch.allclose(seen.numbers[PIXELS][-64:, 0, 0, :2], env.at.float(), atol=1e-4)
    torch.manual_seed(0)
    policy = vla_grounding.train(env, GroundingConfig(**CONFIG), out=tmp_path).policy
    env.reset()
    signals = {"front_rgb": env.shown, "instruction": torch.zeros(64, 16)}
    with torch.no_grad():
        pointed = policy.encoder.prefix.looked(signals)[0][:, -1, :2]
    true = (env.at / 4 - 0.5) / 3.5 - 1.0
    assert float((pointed - true).norm(dim=1).median()) < 0.12  # under two pixels; of untaught ones .8


def test_what_no_pointer_can_look_at_is_refused() -> None:
    env: Any = Scenes()
    env.task.schema = schema(env.task.schema["instruction"], SignalSpec("speed", (3,), "m/s", "w"))
    with pytest.raises(SettingsError, match="signal 'speed' of algo.ground is no place in the world .*fewer pointers"):
        grounding.places_of(env.task, GroundingConfig(**{**CONFIG, "ground": ("speed",)}))
    with pytest.raises(SettingsError, match="algo.pointers=2: each looks at a place of algo.ground, which names 1"):
        GroundingConfig(**{**CONFIG, "pointers": 2})
    with pytest.raises(SettingsError, match="algo.shift=0 or algo.pointers=0"):
        GroundingConfig(**{**CONFIG, "shift": 2})
    with pytest.raises(SettingsError, match="algo.pointers=5 are keypoints, and algo.keypoints=4"):
        VlaConfig(**{**SMALL, "pointers": 5})
