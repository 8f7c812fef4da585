"""The exported classifier of success: it says what the network says, proves itself, is refused where it was changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.export.success import NETWORK, ExportedClassifier, export_success
from temporeal.policies.progress.success_classifier import SuccessClassifier, SuccessConfig
from temporeal.policies.robot_learning.success import ByProgress, judge_of
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.training.progress_models.thresholds import chosen
from temporeal.robots.artifact.manifest import ArtifactError, digest
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.task import load_task

SPECS = (SignalSpec("place_w", (2,), "m", "w"), SignalSpec("front_rgb", (16, 16, 3), dtype="uint8"),
         SignalSpec("instruction", (3,), "token", "", "int32"))


@pytest.fixture(scope="module")
def model() -> SuccessClassifier:
    torch.manual_seed(0)
    made = SuccessClassifier(SPECS, SuccessConfig(context=16, keypoints=2, words=9))
    with torch.no_grad():
        for weight in made.head.parameters():
            weight *= 8.0  # so that chances differ
    made.interface = Interface("point", schema(*SPECS), ActionSpec("velocity", (-1.0,), (1.0,)), 10.0)
    made.chosen = chosen([0.9, 0.8], [0.1, 0.2], 3, 0.0)
    return made.eval()


@pytest.fixture
def folder(model: SuccessClassifier, tmp_path: Path) -> Path:
    export_success(model, tmp_path / "done", {"seed": 1})
    return tmp_path / "done"


def test_it_says_what_the_network_says_of_any_number_of_moments(model: SuccessClassifier, folder: Path) -> None:
    found = ExportedClassifier.load(folder)
    assert (found.names, found.interface, found.chosen) == (model.names, model.interface, model.chosen)
    for count in (1, 5):
        seen = {"place_w": torch.randn(count, 2),
                "front_rgb": torch.randint(256, (count, 16, 16, 3), dtype=torch.uint8),
                "instruction": torch.randint(9, (count, 3), dtype=torch.int32)}
        assert torch.allclose(found.values(seen), model.values(seen), atol=1e-5)
    assert float(found.values(seen).std()) > 1e-3


def test_an_actor_takes_the_folder(folder: Path) -> None:
    judge = judge_of(str(folder), None, load_task("hover"))
    assert isinstance(judge, ByProgress) and (judge.threshold, judge.in_a_row) == (0.5, 3)
    judge.begin()
    sample = {"place_w": np.zeros(2), "front_rgb": np.zeros((16, 16, 3), np.uint8),
              "instruction": np.zeros(3, np.int32)}
    assert judge.update(sample) is None
    with pytest.raises(BadInput, match="threshold=0.9: this classifier has one that held-out episodes chose, 0.5"):
        judge_of(str(folder), 0.9, load_task("hover"))


def changed(folder: Path, **parts: Any) -> None:
    file = folder / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **parts}))


def test_what_was_changed_is_refused(folder: Path) -> None:
    content = json.loads((folder / "manifest.json").read_text())
    wider = json.loads(json.dumps(content["interface"]))
    wider["signals"]["place_w"]["shape"] = [3]
    for parts, said in (({"kind": "policy"}, "its kind is 'policy'"), ({"interface": wider}, "place_w"),
                        ({"threshold": {**content["threshold"], "value": 2.0}}, "not in"), ({"files": {}}, NETWORK)):
        changed(folder, **parts)
        with pytest.raises(ArtifactError, match=said):
            ExportedClassifier.load(folder)
        with pytest.raises(BadInput):
            judge_of(str(folder), None, load_task("hover"))
        changed(folder, **content)
    golden = folder / "golden.npz"
    arrays = dict(np.load(golden))
    np.savez(golden, **{**arrays, "done": arrays["done"] + 0.1})
    with pytest.raises(ArtifactError, match="was changed after export"):
        ExportedClassifier.load(folder)
    changed(folder, files={**content["files"], "golden.npz": digest(golden.read_bytes())})
    with pytest.raises(ArtifactError, match="the self-test failed: the network is off by 0.1"):
        ExportedClassifier.load(folder)
