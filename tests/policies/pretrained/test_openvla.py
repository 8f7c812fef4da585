"""OpenVLA and OpenVLA-OFT before anything is loaded: statistics, parts, what a mapping must say; and pictures."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.policies.pretrained import tiny_openvla as tiny
from tests.policies.pretrained.folders import model, write_tensors

from temporeal.policies.pretrained.serving.folders import open_folder
from temporeal.policies.pretrained.serving.interface import Field, Interface
from temporeal.policies.pretrained.serving.openvla.checkpoint import (
    Settings,
    check_asked,
    check_interface,
    check_words,
    checkpoint_of,
    weight_files,
)
from temporeal.policies.pretrained.serving.openvla.pictures import normal_of, prepared
from temporeal.policies.pretrained.serving.openvla.statistics import scale_of
from temporeal.robots.handed_over.files import Refused

OPEN = {"model_type": "openvla", "auto_map": {"AutoConfig": "configuration_prismatic.OpenVLAConfig"}}
BRIDGE = {"action": {"q01": [0.0] * 7, "q99": [1.0] * 7}}


@pytest.fixture(scope="module")
def oft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without the network's numbers, which nothing here reads."""
    return tiny.folder(tmp_path_factory.mktemp("oft"), weights={"a": np.zeros(1), "b": np.zeros(1)})


@pytest.fixture
def changed(oft: Path, tmp_path: Path) -> Any:
    """``changed("config.json", key=value)``: a copy of the folder with another file."""
    for file in oft.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())

    def change(name: str, **keys: Any) -> Path:
        found = json.loads((tmp_path / name).read_text())
        (tmp_path / name).write_text(json.dumps({**found, **keys}))
        return tmp_path

    return change


def found(path: Path, dataset: str = tiny.SET, **settings: Any):
    return checkpoint_of(open_folder(path), dataset, {**tiny.OFT, **settings})


# ---- statistics


def test_statistics_are_keyed_by_dataset(tmp_path):
    folder = open_folder(model(tmp_path, {**OPEN, "norm_stats": {"bridge_orig": BRIDGE}}))
    assert scale_of(folder, "bridge_orig").high.shape == (7,)
    with pytest.raises(Refused, match="statistics of bridge_orig, not of dataset 'libero_spatial'"):
        scale_of(folder, "libero_spatial")


@pytest.mark.parametrize(("action", "says"), [
    ({}, "no action with q01 and q99"), ({"q01": "x", "q99": [1.0]}, "no action with q01 and q99"), (3, "no action"),
    ({"q01": [0.0], "q99": [float("inf")]}, "Infinity"), ({"q01": [0.0] * 7, "q99": [0.0] * 7}, "no numbers of data"),
    ({"q01": [0.0] * 7, "q99": [1.0] * 6}, "no numbers of data"), ({"q01": [[0.0]], "q99": [[1.0]]}, "of data"),
    ({"q01": [0.0, 1.0], "q99": [1.0, 0.0]}, "no numbers of data"),
    ({"q01": [0.0], "q99": [1.0], "mask": [1]}, "the mask"), ({"q01": [0.0], "q99": [1.0], "mask": [True] * 2}, "mask"),
    ({"q01": [0.0] * 2, "q99": [1.0] * 2, "mask": [False] * 2}, "has no true component"),
])
def test_statistics_are_numbers_of_data(tmp_path, action, says):
    folder = model(tmp_path, {**OPEN, "norm_stats": {}})
    (folder / "dataset_statistics.json").write_text(json.dumps({"a": {"action": action}}))
    with pytest.raises(Refused, match=says):
        scale_of(open_folder(folder), "a")


@pytest.mark.parametrize("config", [OPEN, {**OPEN, "norm_stats": {}}, {**OPEN, "norm_stats": [1]}])
def test_a_model_without_statistics_is_refused(tmp_path, config):
    with pytest.raises(Refused, match="holds no normalization statistics"):
        scale_of(open_folder(model(tmp_path, config)), "a")


def test_a_state_without_statistics_is_refused(changed):
    folder = changed("dataset_statistics.json", **{tiny.SET: {"action": tiny.statistics()[tiny.SET]["action"]}})
    with pytest.raises(Refused, match="have no proprio with q01 and q99"):
        found(folder)


def test_bounds_are_one_and_what_is_masked_stays(oft):
    """By hand: q01 is -1, q99 is 1, the gripper passes; with min_max the bounds are the others."""
    for bounds, factor in (("q99", 1.0), ("min_max", 2.0)):
        scale = scale_of(open_folder(oft), tiny.SET, "action", bounds)
        low = factor * np.array(tiny.statistics()[tiny.SET]["action"]["q01"])
        np.testing.assert_allclose(scale.raw(np.full(7, -1.0))[:6], low[:6], atol=1e-7)
        np.testing.assert_allclose(scale.scaled(low)[:6], -1.0, atol=1e-7)
        assert scale.raw(np.full(7, 0.25))[6] == 0.25
        np.testing.assert_allclose(scale.scaled(scale.raw(np.full(7, 0.3))), 0.3, atol=1e-12)
        assert scale.scaled(np.full(7, 9.0)).max() == 1.0


# ---- what is in the folder, and what the mapping says


def test_a_folder_fits_its_mapping(oft):
    got = found(oft)
    assert (got.bins.count, got.bins.padding) == (256, 64)
    assert got.head and got.proprio is not None and got.normal.pixels == tiny.PIXELS
    assert [file.name for file in got.weights()] == ["model-00001-of-00002.safetensors",
                                                     "model-00002-of-00002.safetensors"]
    assert check_interface(got, asked()) == tiny.ROWS


def asked(pixels: int = tiny.PIXELS, state: int = tiny.PROPRIO, size: int = tiny.ACTION, resize: bool = False,
          instruction: bool = True, pictures: int = 2) -> Interface:
    inputs = [Field(f"picture_{k}", (pixels, pixels, 3), "uint8", resize=resize) for k in range(pictures)]
    return Interface((*inputs, *([Field("state", (state,))] if state else [])), Field("action", (size,)), 20.0,
                     instruction)


@pytest.mark.parametrize(("interface", "says"), [
    (asked(pixels=64), "resize: true"), (asked(state=7), "one input of 8 numbers"), (asked(state=0), "one input of 8"),
    (asked(size=8), "has 7 numbers"), (asked(instruction=False), "needs an instruction"),
    (asked(pictures=0), "one picture or several"),
])
def test_what_a_mapping_gives_is_what_the_model_reads(oft, interface, says):
    with pytest.raises(Refused, match=says):
        check_interface(found(oft), interface)
    assert check_interface(found(oft), asked(pixels=64, resize=True)) == tiny.ROWS


def test_without_a_projector_no_state_is_read(changed):
    folder = changed("config.json")
    (folder / "proprio_projector.safetensors").unlink()
    with pytest.raises(Refused, match="no state .it holds no proprio_projector"):
        check_interface(found(folder), asked())
    assert check_asked(found(folder), 1, 7, True) == tiny.ROWS


@pytest.mark.parametrize(("settings", "says"), [
    ({"decoding": "autoregressive"}, "gives one row, the mapping says 8"),
    ({"decoding": "autoregressive", "rows": 1}, "parts of OpenVLA-OFT"),
    ({"bounds": "NORMAL"}, "legal: parallel, autoregressive; q99, min_max"),
])
def test_settings_are_those_of_the_folder(oft, settings, says):
    with pytest.raises(Refused, match=says):
        found(oft, **settings)


def test_how_it_decodes_is_said_by_the_mapping(oft):
    with pytest.raises(Refused, match="no file of it says how it decodes. The mapping must"):
        checkpoint_of(open_folder(oft), tiny.SET, None)
    assert found(oft).settings == Settings(**tiny.OFT)


@pytest.mark.parametrize(("name", "keys", "says"), [
    ("config.json", {"vision_backbone_id": "siglip-vit-so400m"}, "served: dinosiglip"),
    ("config.json", {"llm_backbone_id": "phi-2-3b"}, "its llm_backbone_id is 'phi-2-3b'"),
    ("config.json", {"n_action_bins": 1}, "its n_action_bins is '1'; a whole number from 2 to"),
    ("config.json", {"n_action_bins": "256"}, "its n_action_bins is '256'"),
    ("config.json", {"n_action_bins": True}, "its n_action_bins is 'True'"),
    ("config.json", {"pad_to_multiple_of": -1}, "its pad_to_multiple_of is '-1'; a whole number from 0 to"),
    ("config.json", {"pad_to_multiple_of": 0.5}, "its pad_to_multiple_of is '0.5'"),
    ("preprocessor_config.json", {"means": [[0.5] * 3]}, "two vision towers"),
    ("preprocessor_config.json", {"stds": [[0.5] * 3, [0.0] * 3]}, "numbers above 0"),
    ("preprocessor_config.json", {"input_sizes": [[3, 56, 56], [3, 64, 64]]}, "of one size"),
    ("preprocessor_config.json", {"image_resize_strategy": "letterbox"}, "served: resize-naive"),
    ("model.safetensors.index.json", {"weight_map": {"a": "../other.safetensors"}}, "inside the folder"),
    ("model.safetensors.index.json", {"weight_map": {}}, "no weight_map"),
])
def test_another_network_is_refused_in_words(changed, name, keys, says):
    folder = changed(name, **keys)
    with pytest.raises(Refused, match=says):
        found(folder).weights()


def test_each_bin_has_a_word(oft):
    check_words(found(oft), 256 + 64)
    with pytest.raises(Refused, match="n_action_bins=256 bins, and the vocabulary has 319 words"):
        check_words(found(oft), 319)


def test_parts_are_for_the_numbers_of_the_statistics(changed):
    folder = changed("config.json")
    write_tensors(folder / "action_head.safetensors", {"module.model.fc2.weight": np.zeros((14, 32))})
    with pytest.raises(Refused, match="is for 14 numbers, the statistics have 7"):
        found(folder)
    write_tensors(folder / "action_head.safetensors", {"noise_predictor.fc2": np.zeros(3)})
    with pytest.raises(Refused, match=r"has no matrix model\.fc2\.weight; it holds: noise_predictor"):
        found(folder)


@pytest.mark.parametrize("name", ["noisy_action_projector", "vision_backbone"])
def test_parts_that_nothing_reads_are_refused(changed, name):
    """The diffusion head; vision towers that words modulate (FiLM): without them it would be another model."""
    folder = changed("config.json")
    write_tensors(folder / f"{name}.safetensors", {"fc1.weight": np.zeros((2, 1))})
    with pytest.raises(Refused, match=f"holds {name}.safetensors, which nothing here reads.*diffusion head, and no"):
        found(folder)


def test_adapters_alone_are_no_network(tmp_path):
    write_tensors(tmp_path / "adapter_model.safetensors", {"a": np.zeros(2)})
    with pytest.raises(Refused, match="adapters of LoRA must be merged"):
        weight_files(tmp_path)


def test_published_pickles_are_refused(changed):
    """As published: the head beside the weights is a pickle."""
    folder = changed("config.json")
    (folder / "action_head--150000_checkpoint.pt").write_bytes(b"x")
    with pytest.raises(Refused, match=r"action_head--150000_checkpoint\.pt.*Convert it where you trust it"):
        open_folder(folder)


# ---- pictures


def test_a_picture_is_cropped_about_its_middle():
    """Nine tenths of the area of a ramp of two pixels of width 1: by hand, ends lie (1 - sqrt .9) / 2 inside."""
    ramp = np.tile(np.arange(0, 255, 5, np.uint8)[None, :, None], (51, 1, 3))
    got = prepared(ramp, 51, True).astype(float)
    inset = (1.0 - math.sqrt(0.9)) / 2.0 * 50.0 * 5.0
    assert np.abs(got[:, [0, 25, 50], 0] - np.array([inset, 125.0, 250.0 - inset])).max() <= 0.6
    np.testing.assert_array_equal(got[0], got[-1])
    np.testing.assert_array_equal(prepared(ramp, 51, False), ramp)


def test_a_picture_is_scaled_and_made_numbers(oft):
    grey = np.full((20, 30, 3), 128, np.uint8)
    normal = replace(normal_of(oft), pixels=10)
    got = normal.numbers(prepared(grey, 10, True))
    assert got.shape == (6, 10, 10) and got.dtype == np.float32
    np.testing.assert_allclose(got[:, 0, 0], (128 / 255 - normal.mean) / normal.std, atol=0.02)
