"""pi0 and pi0.5 before anything is loaded: statistics of their own modes, sizes read off the weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.policies.pretrained import tiny_pi
from tests.policies.pretrained.folders import write_tensors

from temporeal.policies.pretrained.serving.folders import open_folder
from temporeal.policies.pretrained.serving.pi_sizes import Gemma, sizes_of
from temporeal.policies.pretrained.serving.statistics import normalization_of
from temporeal.policies.pretrained.serving.tensor_files import tensors
from temporeal.robots.handed_over.files import Refused


@pytest.fixture(params=tiny_pi.KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tiny_pi.folder(request.param, tmp_path)


def test_statistics_of_its_own_mode_are_needed(folder):
    """Quantiles for pi0.5, mean and deviation for pi0; those of the other, or of another set, are refused."""
    got = normalization_of(open_folder(folder), tiny_pi.SET)
    other, kind = {"pi0": "pi05", "pi05": "pi0"}, open_folder(folder).kind
    needed = {"pi0": "mean, std", "pi05": "q01, q99"}[kind]
    assert (set(got.statistics["action"]), got.source) == (set(needed.split(", ")), "train_config")
    with pytest.raises(Refused, match="trained on 'someone/pushes', the mapping says 'someone/else'"):
        normalization_of(open_folder(folder), "someone/else")
    for file in folder.glob("*normalizer_processor.safetensors"):
        write_tensors(file, {f"{feature}.{key}": value for feature, of in tiny_pi.statistics(other[kind]).items()
                             for key, value in of.items()})
    with pytest.raises(Refused, match=f"have no {needed}"):
        normalization_of(open_folder(folder), tiny_pi.SET)


@pytest.mark.parametrize("side", ["pre", "post"])
def test_without_statistics_of_state_or_action_it_is_refused(folder, side):
    (file,) = folder.glob(f"policy_{side}processor_step_*.safetensors")
    kept = tensors(file)
    feature = {"pre": "observation.state", "post": "action"}[side]
    write_tensors(file, {name: value for name, value in kept.items() if not name.startswith(feature)})
    with pytest.raises(Refused, match=f"no normalization statistics of {feature}"):
        normalization_of(open_folder(folder), tiny_pi.SET)
    write_tensors(file, {f"droid.buffer.{name}": value for name, value in kept.items()})
    with pytest.raises(Refused, match=f"{feature} are of droid, not of dataset 'someone/pushes'"):
        normalization_of(open_folder(folder), tiny_pi.SET)


def test_sizes_are_those_of_the_weights(folder):
    found = sizes_of(open_folder(folder), folder / "backbone")
    assert (found.language, found.expert) == (Gemma(16, 2, 32, 2, 1, 8), Gemma(24, 2, 40, 2, 1, 8))
    assert (found.words, found.vision["image_size"], found.vision["num_attention_heads"]) == (400, 32, 2)


def test_weights_of_something_else_are_named(folder):
    write_tensors(folder / "model.safetensors", {"weight": tiny_pi.drawn("weight", (2,))})
    with pytest.raises(Refused, match="another architecture than pi.*missing"):
        sizes_of(open_folder(folder), None)
    (folder / "backbone" / "config.json").write_text(json.dumps({"text_config": {"head_dim": 0}}))
    with pytest.raises(Refused, match="whole numbers above 0"):
        sizes_of(open_folder(folder), folder / "backbone")
