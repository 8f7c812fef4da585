"""The exported classifier of success: it says what the network says, proves itself, is refused where it was changed."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from temporeal.policies.data.episodes.interface import ActionSpec, Interface
from temporeal.policies.export.success import NETWORK, ExportedClassifier, export_success
from temporeal.policies.progress.success_classifier import SuccessClassifier, SuccessConfig
from temporeal.policies.robot_learning import success
from temporeal.policies.robot_learning.success import ByProgress, judge_of
from temporeal.policies.robot_learning.wire.agreement import differences
from temporeal.policies.robot_learning.words import actor_words, learner_words
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


def test_more_samples_in_a_row_than_an_episode_has_are_refused(folder: Path) -> None:
    task = load_task("hover")
    threshold = json.loads((folder / "manifest.json").read_text())["threshold"]
    changed(folder, threshold={**threshold, "in_a_row": task.steps})
    assert isinstance(judge_of(str(folder), None, task), ByProgress)
    changed(folder, threshold={**threshold, "in_a_row": task.steps + 1})
    with pytest.raises(BadInput, match=f"{task.steps + 1} samples in a row say, and an episode .* {task.steps} steps"):
        judge_of(str(folder), None, task)


def test_actor_and_learner_agree_on_the_classifier(
    model: SuccessClassifier, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that one side has and its export that the other one has are the same, other weights are not."""
    words = ["task=reach", "algo=rlpd", "algo.warmup=0", "token=t"]
    agreed = actor_words([*words, f"success={folder}"]).common.agreed
    content = json.loads((folder / "manifest.json").read_text())
    monkeypatch.setattr(success, "learned", lambda word: model)
    assert learner_words([*words, "success=RUN"]).common.agreed.digest() == agreed.digest()
    monkeypatch.undo()
    threshold = content["threshold"]
    for said, parts in (("weights", {"weights": "0" * 64}), ("in_a_row", {"threshold": {**threshold, "in_a_row": 4}}),
                        ("threshold", {"threshold": {**threshold, "value": 0.6}})):
        changed(folder, **parts)
        other = learner_words([*words, f"success={folder}"]).common.agreed
        (told,) = differences(other.plain(), agreed.plain())
        assert told.startswith(f"judged.{said} is "), told
        changed(folder, **content)
    trained_on = deepcopy(model)
    with torch.no_grad():
        next(trained_on.head.parameters()).mul_(1.01)
    assert trained_on.weights != model.weights == agreed.judged["weights"]


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


def test_what_is_malformed_is_refused_by_name(folder: Path) -> None:
    """Each file agrees with its digest: somebody else's exporter wrote it."""
    content = json.loads((folder / "manifest.json").read_text())
    interface, golden = content["interface"], folder / "golden.npz"
    words = {**interface["signals"]["place_w"], "dtype": "float64"}
    for parts, said in (({"interface": {**interface, "signals": "x"}}, "no attribute"),
                        ({"interface": {**interface, "signals": {}}}, "it reads no signals"),
                        ({"interface": {**interface, "signals": {"place_w": words}}}, "place_w is of type float64"),
                        *(({"interface": {**interface, "rate_hz": rate}}, f"rate_hz '{rate}'")
                          for rate in ("fast", 0.0, -1.0, True)),
                        ({"interface": {**interface, "robot": 3}}, "robot is '3'"),
                        ({"weights": None}, "weights is None, not a SHA-256: export the run again")):
        changed(folder, **parts)
        with pytest.raises(BadInput, match=f"holds no classifier of success: .*{said}"):
            judge_of(str(folder), None, load_task("hover"))
        changed(folder, **content)
    arrays = dict(np.load(golden))
    place = arrays["signals.place_w"]
    for other, said in (({"signals.place_w": place[:, :1]}, r"is float32 \[16, 1\], float32 \[16, 2\] is needed"),
                        ({"signals.place_w": place.astype(str)}, "place_w is <U"),
                        ({"signals.place_w": place.astype(float)}, "place_w is float64 "),
                        ({"done": arrays["done"][:-1]}, r"place_w is float32 \[16, 2\], float32 \[15, 2\] is needed"),
                        ({name: value[:0] for name, value in arrays.items()}, "at least one moment is needed"),
                        ({"done": np.float32(0.5)}, "at least one moment is needed")):
        np.savez(golden, **{**arrays, **other})
        changed(folder, files={**content["files"], "golden.npz": digest(golden.read_bytes())})
        with pytest.raises(BadInput, match=f"holds no classifier of success: .*{said}"):
            judge_of(str(folder), None, load_task("hover"))
