"""A model is refused unless its normalization statistics are there, are numbers, and are of the named dataset."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from tests.policies.pretrained.folders import ACTION, CONFIG, STATE, model, write_tensors

from temporeal.policies.pretrained.serving.folders import open_folder
from temporeal.policies.pretrained.serving.statistics import normalization_of
from temporeal.policies.pretrained.serving.tensor_files import tensors
from temporeal.robots.handed_over.files import Refused

SET = "someone/pushes"


def found(path: Path, dataset: str = SET, raw: tuple[str, ...] = ()):
    return normalization_of(open_folder(path), dataset, raw)


def test_good_statistics_are_read(tmp_path):
    got = found(model(tmp_path))
    assert got.source == "stated" and set(got.statistics) == {"observation.state", "action"}
    np.testing.assert_array_equal(got.statistics["action"]["std"], [0.5, 0.0])
    assert found(model(tmp_path, trained_on=SET)).source == "train_config"


def keyed(values: dict[str, np.ndarray], owner: str) -> dict[str, np.ndarray]:
    return {f"{owner}.buffer.{name}": value for name, value in values.items()}


def test_keys_with_a_dataset_are_resolved_by_its_name(tmp_path):
    """As in lerobot/smolvla_base, whose keys LeRobot does not find, so that it normalizes nothing."""
    state, action = keyed(STATE, "so100"), {**keyed(ACTION, "so100"), **keyed(ACTION, "so101")}
    got = found(model(tmp_path, state=state, action=action), "so100")
    assert got.source == "key" and set(got.statistics) == {"observation.state", "action"}
    with pytest.raises(Refused, match="are of so100, not of dataset 'so101'"):
        found(model(tmp_path, state=state, action=action), "so101")


@pytest.mark.parametrize(("state", "action", "says"), [
    ({}, None, "no normalization statistics of observation.state"),
    (None, {}, "no normalization statistics of action"),
    (None, {"other.mean": np.zeros(2)}, "there are those of: other"),
    ({"observation.state.mean": np.zeros(3)}, None, "have no std"),
    ({**STATE, "observation.state.std": np.zeros(3)}, None, "zero everywhere"),
    (None, {**ACTION, "action.std": np.array([1.0, -1.0])}, "negative"),
    (None, {**ACTION, "action.mean": np.array([np.nan, 0.0])}, "not finite"),
    (None, {**ACTION, "action.std": np.array([np.inf, 1.0])}, "not finite"),
    ({**STATE, "observation.state.mean": np.zeros(4)}, None, r"shape \[4\], the feature needs \[3\]"),
    (None, {"action.mean": np.zeros(()), "action.std": np.ones(())}, "needs"),
])
def test_statistics_that_are_none_are_refused(tmp_path, state, action, says):
    with pytest.raises(Refused, match=says):
        found(model(tmp_path, state=state, action=action))


def test_raw_numbers_are_said_to_be_raw(tmp_path):
    identity = {**CONFIG, "normalization_mapping": {"STATE": "MEAN_STD", "ACTION": "IDENTITY"}}
    with pytest.raises(Refused, match=r"not_normalized: \[action\]"):
        found(model(tmp_path, identity))
    assert set(found(model(tmp_path, identity), raw=("action",)).statistics) == {"observation.state"}
    with pytest.raises(Refused, match="says that action is not normalized; the config"):
        found(model(tmp_path), raw=("action",))


@pytest.mark.parametrize(("mode", "names"), [("MIN_MAX", ("min", "max")), ("QUANTILES", ("q01", "q99"))])
def test_each_mode_has_its_statistics(tmp_path, mode, names):
    config = {**CONFIG, "normalization_mapping": {"STATE": "MEAN_STD", "ACTION": mode}}
    with pytest.raises(Refused, match=f"have no {', '.join(names)}"):
        found(model(tmp_path, config))
    low, high = (f"action.{name}" for name in names)
    found(model(tmp_path, config, action={low: np.zeros(2), high: np.ones(2)}))
    with pytest.raises(Refused, match="negative"):
        found(model(tmp_path, config, action={low: np.ones(2), high: np.zeros(2)}))


def test_pictures_are_normalized_by_channel(tmp_path):
    config = {**CONFIG, "normalization_mapping": {"VISUAL": "MEAN_STD", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"}}
    with pytest.raises(Refused, match=r"no normalization statistics of observation\.images\.front"):
        found(model(tmp_path, config))
    of = {f"observation.images.front.{key}": np.ones((3, 1, 1)) for key in ("mean", "std")}
    assert len(found(model(tmp_path, config, state={**STATE, **of})).statistics) == 3


@pytest.mark.parametrize(("group", "kind"), [("input_features", "STATE"), ("output_features", "ACTION")])
def test_a_policy_has_a_state_and_an_action(tmp_path, group, kind):
    with pytest.raises(Refused, match=f"no feature of type {kind}"):
        found(model(tmp_path, {**CONFIG, group: {}}))


def test_a_state_that_never_changed_is_noted(tmp_path):
    (note,) = found(model(tmp_path, state={**STATE, "observation.state.std": np.array([1.0, 0.0, 1.0])})).notes
    assert "components [1] never changed" in note


def test_statistics_in_the_network_are_of_an_old_version(tmp_path):
    write_tensors(model(tmp_path) / "model.safetensors", {"normalize_inputs.buffer_observation_state.mean": np.ones(3)})
    with pytest.raises(Refused, match="LeRobot before 0.4"):
        found(tmp_path)


# ---- the folder itself


@pytest.mark.parametrize("name", ["pytorch_model.bin", "extra/old.pt", "stats.pkl"])
def test_pickles_are_refused_with_the_reason(tmp_path, name):
    file = model(tmp_path) / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"x")
    with pytest.raises(Refused, match="can run any code; only safetensors"):
        open_folder(tmp_path)


@pytest.mark.parametrize(("config", "says"), [
    ({**CONFIG, "type": "my_package.Policy"}, "names the policy 'my_package.Policy'; served are: smolvla"),
    ({**CONFIG, "type": ["act"]}, "never names a class"), ({**CONFIG, "chunk_size": 0}, "chunk_size is 0"),
    ({**CONFIG, "auto_map": {"AutoModel": "evil.Model"}}, "auto_map"), ({}, "names the policy 'None'"),
])
def test_a_config_chooses_among_our_kinds(tmp_path, config, says):
    with pytest.raises(Refused, match=says):
        open_folder(model(tmp_path, config))


@pytest.mark.parametrize(("name", "text", "says"), [
    ("config.json", None, r"holds no config\.json"), ("config.json", "[]", "holds no object"),
    ("policy_preprocessor.json", None, r"holds no policy_preprocessor\.json"),
    ("tokenizer_config.json", "{", "is not JSON"), ("tokenizer_config.json", '{"auto_map": {}}', "auto_map"),
])
def test_files_of_a_folder_are_there_and_objects(tmp_path, name, text, says):
    file = model(tmp_path) / name
    file.unlink(missing_ok=True)
    if text is not None:
        file.write_text(text)
    with pytest.raises(Refused, match=says):
        found(tmp_path)


def test_a_processor_names_no_class_and_no_file_outside(tmp_path):
    file = model(tmp_path) / "policy_postprocessor.json"
    for step in ({"class": "os.system"}, {"class": "os.system", "registry_name": "unnormalizer_processor"}):
        file.write_text(json.dumps({"steps": [step]}))
        with pytest.raises(Refused, match=r"names the class 'os\.system'"):
            found(tmp_path)
    file.write_text(json.dumps({"steps": [{"registry_name": 3}]}))
    with pytest.raises(Refused, match="only LeRobot's registered steps"):
        found(tmp_path)
    gone = {"registry_name": "unnormalizer_processor", "state_file": "gone.safetensors"}
    file.write_text(json.dumps({"steps": [gone]}))
    with pytest.raises(Refused, match=r"names gone\.safetensors, with its statistics, which cannot be read"):
        found(tmp_path)
    outside = {"registry_name": "unnormalizer_processor", "state_file": "../x.safetensors"}
    file.write_text(json.dumps({"steps": [outside]}))
    with pytest.raises(Refused, match="inside the folder"):
        found(tmp_path)


def test_links_lead_nowhere_else(tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    folder = model(tmp_path / "model")
    (tmp_path / "elsewhere").mkdir()
    for name, target in (("notes.json", secret), ("backbone", tmp_path / "elsewhere")):
        (folder / name).symlink_to(target)
        with pytest.raises(Refused, match="leads out"):
            open_folder(folder)
        (folder / name).unlink()


def test_a_folder_has_a_bounded_number_of_files(tmp_path, monkeypatch):
    monkeypatch.setattr("temporeal.policies.pretrained.serving.folders.FILES", 5)
    with pytest.raises(Refused, match="more than 5 files"):
        open_folder(model(tmp_path))


def test_no_folder_is_no_name_on_a_hub(tmp_path):
    with pytest.raises(Refused, match="nothing is downloaded"):
        open_folder(Path("lerobot/smolvla_base"))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(Refused, match="no weights"):
        open_folder(tmp_path)


@pytest.mark.parametrize("data", [
    b"", b"\xff" * 64, (10).to_bytes(8, "little") + b"[1,2,3,4] ", (9).to_bytes(8, "little") + b'{"a": [1]}',
    (64).to_bytes(8, "little") + b"{}x"])
def test_foreign_bytes_are_no_tensors(tmp_path, data):
    (tmp_path / "a.safetensors").write_bytes(data)
    with pytest.raises(Refused):
        tensors(tmp_path / "a.safetensors")


def test_a_tensor_lies_in_its_file(tmp_path):
    (tmp_path / "none.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    assert tensors(tmp_path / "none.safetensors") == {}
    header = json.dumps({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(Refused, match="cannot be read"):
        tensors(tmp_path / "a.safetensors")


# ---- whatever stands in the files

VALUES = [None, 0, -1, 1e300, "x", [], [1], {}, {"a": 1}, True]


@pytest.mark.parametrize("key", ["type", "chunk_size", "input_features", "output_features", "normalization_mapping"])
def test_whatever_a_config_holds_is_refused_in_words(tmp_path, key):
    for value in VALUES:
        with contextlib.suppress(Refused):
            found(model(tmp_path, {**CONFIG, key: value}))


def test_whatever_a_feature_or_a_step_holds_is_refused_in_words(tmp_path):
    for value in (None, -1, "x", [1], {"a": 1}):
        for feature in (value, {"type": value, "shape": [3]}, {"type": "STATE", "shape": value}):
            with contextlib.suppress(Refused):
                found(model(tmp_path, {**CONFIG, "input_features": {"observation.state": feature}}))
        with contextlib.suppress(Refused):
            found(model(tmp_path, {**CONFIG, "normalization_mapping": {"STATE": value}}))
        named = {"registry_name": "a_normalizer", "state_file": value}
        for steps in (value, [value], [{"registry_name": value}], [named]):
            (model(tmp_path) / "policy_preprocessor.json").write_text(json.dumps({"steps": steps}))
            with pytest.raises(Refused):
                found(tmp_path)
