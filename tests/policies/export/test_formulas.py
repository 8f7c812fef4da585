"""An artifact of a policy for any formula: the judge beside the policy, the data for the robot's planner, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.bridge.instruction.flown_formulas import formulas, judge, write

from temporeal.policies.cli.deployment.missions import forecast_lines, read, shown, texts
from temporeal.policies.cli.main import main
from temporeal.policies.cli.specs.missions import places_of
from temporeal.policies.cli.verbs.export import in_words
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.artifact.formulas import JUDGE
from temporeal.robots.artifact.manifest import ADDED_VERSION, ArtifactError, decode, digest, encode
from temporeal.robots.artifact.runtime import Artifact

MISSION = "formula: F[0,4] (norm(base_pos_w - a) < 0.3)\nconstants: {a: [0.5, 0.3, 1.2]}\n"


@pytest.fixture(scope="module")
def flies(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return Artifact.load(write(tmp_path_factory.mktemp("flies") / "artifact"))


def rows(artifact: Artifact, count: int) -> list[np.ndarray]:
    """Arguments of the judge: programs and hits of the golden trace at other points and times."""
    rng = np.random.default_rng(0)
    return [artifact.golden["signals.mission"][:count], rng.normal(size=(count, 3)).astype(np.float32),
            rng.integers(0, 200, count).astype(np.float32), artifact.golden["memory.hit"][:count]]


def test_the_judge_says_what_the_network_said_for_any_number_of_rows(flies):
    flies.self_test()
    for count in (1, 5):
        given = rows(flies, count)
        assert np.allclose(flies.judged(*given)[0], judge().of_arrays(*given)[0], atol=1e-5)
        assert np.allclose(flies.judged(*given)[1], judge().of_arrays(*given)[1], rtol=1e-4)


def test_what_the_planner_needs_is_in_the_manifest(flies):
    manifest = decode((flies.path / "manifest.json").read_bytes())
    assert manifest.schema_version == ADDED_VERSION and manifest.formulas == formulas()
    assert manifest.files[JUDGE] == digest((flies.path / JUDGE).read_bytes())
    assert encode(replace(manifest, formulas=formulas(offset=0.5))) != encode(manifest)


@pytest.mark.parametrize(("changes", "why"), [
    ({"signal": "a b"}, "signal is"), ({"size": 0}, "size is"), ({"legs": 3.0}, "legs is"), ({"keep": ""}, "keep is"),
    ({"constants": {"a": float("inf")}}, "constants are"), ({"constants": {"a": [1.0]}}, "constants are"),
    ({"slack": -1.0}, "slack is"), ({"speed": 0.0}, "speed is"), ({"validation": 2.0}, "validation is"),
    ({"slope": float("nan")}, "slope is"), ({"radius": (0.5, 0.25)}, "radius is"), ({"per_axis": 1}, "per_axis is"),
    ({"randomized": 1}, "randomized is"),
    ({"signal": "base_pos_w"}, "and so is position"), ({"slack": 0.25}, "slack is 0.25 m, and the least radius"),
    ({"radius": (0.5, float("inf"))}, "radius is"), ({"constants": {"wall": 2e6}}, "constants are")])
def test_a_wrong_part_is_refused_with_the_rule(changes: dict[str, Any], why: str):
    with pytest.raises(ValueError, match=why):
        formulas(**changes)


@pytest.mark.parametrize(("changes", "why"), [
    ({"signal": "program"}, "does not read its signal 'program'"), ({"size": 7}, "does not read its signal"),
    ({"position": "height"}, "position 'height', three numbers"), ({"legs": 3}, r"lacks the memory 'hit' \[3\]")])
def test_a_part_that_does_not_fit_the_policy_is_refused(flies, changes, why):
    with pytest.raises(ArtifactError, match=why):
        decode(encode(replace(flies.manifest, formulas=replace(flies.manifest.formulas, **changes))))


def test_an_export_says_of_what_its_forecast_is(flies):
    """Of flights under the training's conditions where the manifest says so, else of such without noise."""
    noisy = replace(flies.manifest, training={"randomize": {"sensors": {"base_pos_w": {"std": 0.01}}}})
    for manifest, alone in ((flies.manifest, True), (noisy, False)):
        assert "forecast are of the simulator without noise, latency and randomization" in in_words(manifest)
        assert ("trained without noise and latency" in in_words(manifest)) == alone
    under = decode(encode(replace(noisy, formulas=formulas(randomized=True))))
    assert under.formulas is not None and under.formulas.randomized
    assert "forecast are of the simulator under the randomization of its training" in in_words(under)
    assert b"randomized" not in encode(flies.manifest)  # manifests of before it was said have none


def test_a_judge_that_was_changed_or_exchanged_is_refused(flies, tmp_path):
    for file in flies.path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    model = onnx.load(str(tmp_path / JUDGE))
    weights = model.graph.initializer[-1]
    weights.CopyFrom(onnx.numpy_helper.from_array(1.5 * onnx.numpy_helper.to_array(weights), weights.name))
    (tmp_path / JUDGE).write_bytes(model.SerializeToString())
    with pytest.raises(ArtifactError, match=r"judge.onnx was changed after export"):
        Artifact.load(tmp_path)
    manifest = replace(flies.manifest, files={**flies.manifest.files, JUDGE: digest((tmp_path / JUDGE).read_bytes())})
    (tmp_path / "manifest.json").write_bytes(encode(manifest))
    with pytest.raises(ArtifactError, match=r"judge.onnx is off by"):
        Artifact.load(tmp_path).self_test()
    (tmp_path / JUDGE).write_bytes((tmp_path / "policy.onnx").read_bytes())
    other = {**manifest.files, JUDGE: manifest.files["policy.onnx"]}
    (tmp_path / "manifest.json").write_bytes(encode(replace(manifest, files=other)))
    with pytest.raises(ArtifactError, match=r"judge.onnx has the inputs"):
        Artifact.load(tmp_path)


class Options:
    """Of the command line."""

    def __init__(self, **given: Any) -> None:
        self.formula, self.instruction, self.require, self.places = [], [], 0.0, None
        self.__dict__.update(given)


def test_missions_come_from_files_and_only_to_policies_that_take_them(flies, tmp_path):
    path = tmp_path / "mission.yaml"
    path.write_text(MISSION)
    other = replace(flies.manifest, formulas=None, schema_version=1)
    [text] = texts(Options(formula=[path]), flies.manifest)
    assert json.loads(text) == {"formula": "F[0,4] (norm(base_pos_w - a) < 0.3)", "constants": {"a": [0.5, 0.3, 1.2]}}
    assert shown(text) == "F[0,4] (norm(base_pos_w - a) < 0.3)" and shown("go left") == "go left"
    for options, manifest, why in (
            (Options(formula=[path]), other, "takes no formula: it was trained for its own"),
            (Options(require=0.5), other, "has no forecast"),
            (Options(instruction=["go"]), flies.manifest, "--formula"),
            (Options(formula=[path], instruction=["go"]), flies.manifest, "told by formulas, or in words")):
        with pytest.raises(BadInput, match=why):
            texts(options, manifest)
    places = tmp_path / "map.yaml"
    places.write_text("places: {red: {ball: [0.5, 0.3, 1.2], radius: 0.3}}")
    given = Options(instruction=["be at red within 4 seconds"], places=places)
    [text] = texts(given, flies.manifest, places_of(places))
    assert "F[0,4]" in json.loads(text)["formula"] and json.loads(text)["constants"]["red"] == [0.5, 0.3, 1.2]
    with pytest.raises(BadInput, match="--places .* is for --instruction"):
        texts(Options(instruction=["be at red"], places=places), other)
    path.write_text("formula: 3")
    for wrong in (path, tmp_path / "none.yaml"):
        with pytest.raises(BadInput, match=f"--formula {wrong}"):
            read(wrong)


def test_the_forecast_is_said_before_the_flight():
    told = {"instruction": '{"formula": "F[0,4] p", "constants": {}}', "forecast": 0.875, "read_ms": 5.0,
            "planned_ms": 3.0, "itinerary": ["at (1, 2) after 2.0 s (0 to 4 s), P 0.90"], "notes": ["small"]}
    assert forecast_lines(3, told) == [
        "flight 3: F[0,4] p", "  P(satisfied) 0.88; read in 5 ms, planned in 3 ms",
        "  1. at (1, 2) after 2.0 s (0 to 4 s), P 0.90", "  note: small"]


def test_a_mission_that_cannot_be_flown_ends_deploy_before_anything_is_started(flies, tmp_path, capsys):
    path = tmp_path / "mission.yaml"
    path.write_text("formula: F[0,4] (height > 0.5)")
    assert main(["deploy", str(flies.path), "--sim", "--formula", str(path), "--out", str(tmp_path / "out")]) == 2
    assert "height > 0.5 is no place" in capsys.readouterr().err
    assert main(["deploy", str(flies.path), "--sim", "--out", str(tmp_path / "out")]) == 2
    assert "flies the formula that it is given" in capsys.readouterr().err
    assert main(["deploy", str(flies.path), "--formula", str(path), "--require", "2"]) == 2
    assert "--require is a probability" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_is_exported_with_its_judge_and_refused_without(tmp_path: Path, capsys):
    """A training of seconds: whatever it learned, the artifact says the same as the run."""
    from temporeal.policies.training import checkpoint

    run, out = tmp_path / "run", tmp_path / "artifact"
    assert main(["train", "task=any_formula/linear", "algo=generalist", "task.settings.formulas=20", "num_worlds=64",
                 "algo.total_steps=4000", "algo.judged_steps=20", "algo.calibration=8", f"out={run}"]) == 0
    assert main(["export", str(run), "--out", str(out)]) == 0
    artifact = Artifact.load(out)
    assert artifact.manifest.formulas is not None and artifact.self_test().steps > 10
    assert np.abs(artifact.golden["signals.mission"]).max() > 0
    [file] = list((run / "checkpoints").glob("*.pt"))[-1:]
    checkpoint.save(file, {**checkpoint.load(file), "companion": None})
    capsys.readouterr()
    assert main(["export", str(run), "--out", str(tmp_path / "none")]) == 2
    assert "no forecast yet" in capsys.readouterr().err and not (tmp_path / "none").exists()
