"""The vision-language-action policy: it goes where the sentence says, its file equals it, what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tests.policies.imitation.chunk_files import ROBOT, exported, interface_of, rows_of, shaken, shown
from tests.policies.vla.squares import Record, Worded, squares

from temporeal.policies.data.episodes.interface import DataError
from temporeal.policies.imitation import consistency, flow, vla
from temporeal.policies.nets.normalizer import moments
from temporeal.policies.training import checkpoint, offline_learner
from temporeal.policies.training.checkpoint import CheckpointError
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla import learning, samplers
from temporeal.policies.vla.encoder import PREFIX, VlaEncoder
from temporeal.policies.vla.protocol import as_flow
from temporeal.robots.signals import SignalSpec, schema
from temporeal.sim.stl.instructions.grammar import SUITE
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION, Vocabulary

SMALL: dict[str, Any] = {
    "horizon": 4, "execute": 4, "context": 32, "keypoints": 8, "channels": (8, 16, 16), "width": 32, "layers": 1,
    "heads": 2, "denoise_steps": 3, "batch": 64, "learning_rate": 3e-3, "average": 0.97, "evaluate_updates": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run."""
    folder = tmp_path_factory.mktemp("vla")
    vla.train(squares(), vla.FlowVlaConfig(updates=250, **SMALL), out=folder)
    (folder / "config.yaml").write_text(yaml.safe_dump({"algo": {"name": "vla"}}))
    return folder


def near(policy: ChunkPolicy, swapped: bool = False) -> float:
    """Share of fresh pictures in which the chunk goes to the named square, or to where a swapped sentence does not."""
    data, vocabulary = squares(80, 1, seed=7), policy.encoder.vocabulary
    texts = [record.language for record in data.records]
    if swapped:
        texts = [text.replace("red", "?").replace("blue", "red").replace("?", "blue")
                 for text in texts]
    with torch.no_grad():
        rows = policy.rows({"front_rgb": torch.from_numpy(data.column("front_rgb")[::2]),
                            "instruction": torch.from_numpy(np.stack([vocabulary.encode(text) for text in texts]))})
    apart = np.abs(rows.numpy().mean(1) - data.column("target_pos_w")[::2]).max(1)
    return float((apart < 0.25).mean())


def test_it_goes_where_the_sentence_says_and_elsewhere_by_another_one(run: Path) -> None:
    policy = vla.load_chunks(run)
    assert policy.signals == ("front_rgb", "instruction")  # not the place of the target, and not the speed
    assert policy.encoder.vocabulary == Vocabulary(("blue", "go", "red", "square", "the", "to"))
    assert near(policy) > 0.9 and near(policy, swapped=True) < 0.1


def test_few_demonstrations_tune_the_expert_on_a_frozen_prefix(run: Path, tmp_path: Path) -> None:
    config = vla.FlowVlaConfig(updates=60, policy=str(run), take="prefix", tune="expert", **SMALL)
    algorithm, batches = learning.begin(squares(30), config, vla.flow, "vla", 0, torch.Generator().manual_seed(0))
    before = {name: value.clone() for name, value in algorithm.policy.state_dict().items()}
    (batch,) = batches.draw(torch.Generator().manual_seed(1), 1)
    assert "front_rgb" not in batch.signals and batch.signals[PREFIX].shape == (64, 3, 32)
    for batch in batches.draw(torch.Generator().manual_seed(0), 60):
        algorithm.update(batch)
    changed = {name.partition(".prefix.")[1] for name, value in algorithm.policy.state_dict().items()
               if not torch.equal(value, before[name])}
    assert changed == {""}
    assert near(algorithm.actor.eval()) > 0.5


def test_a_run_goes_on_from_another_with_its_scales(run: Path) -> None:
    config = vla.FlowVlaConfig(updates=1, policy=str(run), **SMALL)
    algorithm, _ = learning.begin(squares(8, seed=3), config, vla.flow, "vla", 0, torch.Generator())
    was = offline_learner.read(run)["modules"]["actor"]
    assert all(torch.equal(value, was[name]) for name, value in algorithm.actor.state_dict().items())


def test_a_run_from_before_rests_were_left_out_is_loaded_and_goes_on(tmp_path: Path) -> None:
    config = vla.FlowVlaConfig(updates=2, **SMALL)
    vla.train(squares(20), config, out=tmp_path)
    (path,) = (tmp_path / "checkpoints").glob("*.pt")
    state = checkpoint.load(path)
    del state["config"]["rest"]
    checkpoint.save(path, state)
    assert vla.load_chunks(tmp_path) is not None
    more = vla.train(squares(20), replace(config, updates=3), out=tmp_path, resume=True)
    assert more.history[-1]["updates"] == 3
    with pytest.raises(CheckpointError, match="rest"):
        vla.train(squares(20), replace(config, updates=4, rest=5), out=tmp_path, resume=True)


def test_it_becomes_one_step(run: Path, tmp_path: Path) -> None:
    config = consistency.ConsistencyConfig(policy=str(run), updates=3, batch=16, execute=4, shift=0)
    consistency.train(squares(8, seed=3), config, out=tmp_path)
    student = consistency.load_chunks(tmp_path)
    assert student.vocabulary == vla.load_chunks(run).vocabulary
    assert near(student) > 0.9 and near(student, swapped=True) < 0.1  # it sees and reads


def test_scales_are_taken_for_the_same_signals_and_commands_alone(run: Path, tmp_path: Path) -> None:
    begin = partial(learning.begin, squares(8), build=vla.flow, name="vla", seed=0, generator=torch.Generator())
    read = ("front_rgb", "instruction", "speed")
    with pytest.raises(DataError, match="whose scales are taken: the interfaces differ: signal speed is not needed"):
        begin(config=vla.FlowVlaConfig(policy=str(run), signals=read, **SMALL))
    with pytest.raises(SettingsError, match=r"in another order: set algo.signals=\[front_rgb,instruction\]"):
        begin(config=vla.FlowVlaConfig(policy=str(run), signals=("instruction", "front_rgb"), **SMALL))
    vla.train(squares(8), vla.FlowVlaConfig(updates=1, signals=read, relative="speed", **SMALL), out=tmp_path)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"algo": {"name": "vla"}}))
    with pytest.raises(SettingsError, match="commands are relative to speed; set algo.relative='speed'"):
        begin(config=vla.FlowVlaConfig(policy=str(tmp_path), signals=read, **SMALL))


def test_words_that_were_never_shown_are_nothing(run: Path) -> None:
    sentence = vla.load_chunks(run).encoder.prefix.sentence
    sentence.silence(torch.tensor([[1, 3, 0]]))
    assert sentence.words.weight.norm(dim=1).gt(0).tolist() == [False, True, False, True, False, False, False]


def test_words_stay_those_of_the_run_to_begin_with(run: Path) -> None:
    config = vla.FlowVlaConfig(updates=1, policy=str(run), **SMALL)
    begin = partial(learning.begin, build=vla.flow, name="vla", seed=0, generator=torch.Generator())
    fewer = broken(records=lambda data: tuple(Record("go to the red square") for _ in data.records))
    _, batches = begin(fewer, config)
    assert batches.data.numbers["instruction"][0].tolist() == [2, 6, 5, 3, 4, *[0] * 11]
    with pytest.raises(DataError, match="episode 0: unknown word: 'green'"):
        begin(broken(records=lambda data: tuple(Record("the green square") for _ in data.records)), config)


def test_tuning_takes_it_as_any_flow(run: Path) -> None:
    policy, data = as_flow(vla.load_chunks(run)), squares(6, 1)
    signals = {"front_rgb": torch.from_numpy(data.column("front_rgb")[::2]),
               "instruction": torch.ones(6, 16, dtype=torch.int32)}
    with torch.no_grad():
        context = policy.encode(signals)
        assert context.shape == (6, 4, 32)  # the sentence, two of the camera, and the place that they tell
        decision = samplers.decide(policy, context, samplers.flow_sde(0.5), 2)
        again = samplers.decision_log_prob(policy, context, samplers.flow_sde(0.5), decision, 2)
    assert torch.allclose(again, decision.log_prob, atol=1e-5)


def camera(name: str) -> SignalSpec:
    return SignalSpec(name, (32, 32, 3), "1", "", "uint8")


SEEN = schema(*(ROBOT.signals[name] for name in ("joint_pos", "grip_quat_w")), camera("front_rgb"),
              camera("wrist_rgb"), INSTRUCTION)
INTERFACE = interface_of(SEEN)


def arm_policy(**settings: Any) -> ChunkPolicy:
    """With random weights, also where they are zero at first."""
    torch.manual_seed(0)
    config = vla.FlowVlaConfig(relative="joint_pos", **{**SMALL, **settings})
    policy = learner.make_policy(INTERFACE, config, vla.flow, partial(learning.vla_encoder, vocabulary=SUITE, told=()))
    return shaken(policy)


def told(count: int) -> dict[str, np.ndarray]:
    """What the arm sees, and sentences of five words."""
    words = np.random.default_rng(1).integers(1, len(SUITE.words), (count, 16))
    return {**shown(SEEN, count), "instruction": np.where(np.arange(16) < 5, words, 0).astype("i4")}


@pytest.mark.parametrize("settings", [{}, {"patches": 2, "advantage": True, "layers": 2}])
def test_the_file_gives_what_the_policy_gives(settings: dict[str, Any], tmp_path: Path) -> None:
    policy, signals = arm_policy(**settings), told(4)
    rows = rows_of(policy, signals)
    assert rows.shape == (4, 4, 8) and np.ptp(rows, axis=0).max() > 1e-3
    artifact = exported(policy, signals, rows, tmp_path / "artifact")
    assert np.abs(artifact.act_batch(signals, {})[0]["arm_cmd"] - rows).max() < 1e-5


def test_a_sentence_without_words_and_one_that_ends_early_are_numbers() -> None:
    policy = arm_policy()
    signals = {key: torch.from_numpy(value) for key, value in told(2).items()}
    signals["instruction"] = torch.tensor([[0] * 16, [3] + [0] * 15], dtype=torch.int32)
    with torch.no_grad():
        context = policy.encoder(signals)
    assert bool(context.isfinite().all())
    assert not torch.equal(context[0, 0], context[1, 0])


def test_what_is_told_is_learned_of_the_truth_alone_and_reaches_the_expert() -> None:
    spec, config = SignalSpec("target_pos_w", (2,), "m", "w"), vla.FlowVlaConfig(**SMALL)
    torch.manual_seed(0)
    encoder = VlaEncoder((camera("front_rgb"),), None, config, told=(spec,))
    places = encoder.prefix.places
    assert places is not None
    places.normalizer.update(moments(torch.tensor([[1.0, 2.0], [3.0, 6.0]])))
    signals = {"front_rgb": torch.randint(0, 256, (5, 32, 32, 3), dtype=torch.uint8)}
    context = encoder(signals)
    context[:, -1].sum().backward(retain_graph=True)
    assert places.head.weight.grad is None
    places.loss(context, {"target_pos_w": torch.zeros(5, 2)}).backward()
    assert bool(places.head.weight.grad.abs().sum() > 0)
    with torch.no_grad():
        normalized = (places.told(context) - torch.tensor([2.0, 4.0])) / torch.tensor([1.0, 2.0])
        assert torch.allclose(normalized, places(context), atol=1e-5)
        places.head.bias += 1.0  # elsewhere: the state's token follows, the prefix's do not
        moved = encoder(signals)
    assert torch.equal(moved[:, :-1], context[:, :-1]) and not torch.allclose(moved[:, -1], context[:, -1], atol=1e-3)


def test_a_number_alone_is_enough() -> None:
    encoder = VlaEncoder((SignalSpec("grip_open"),), None, vla.FlowVlaConfig(**SMALL))
    assert encoder({"grip_open": torch.rand(3)}).shape == (3, 2, 32)


def broken(**change: Any) -> Worded:
    """A set with something wrong."""
    data = squares(4)
    return replace(data, **{key: make(data) for key, make in change.items()})


def test_what_cannot_be_is_refused_by_name(run: Path, tmp_path: Path) -> None:
    config, begin = vla.FlowVlaConfig(**SMALL), partial(learning.begin, build=vla.flow, name="vla", seed=0,
                                                        generator=torch.Generator())
    with pytest.raises(DataError, match="episode 1: the instruction is empty"):
        begin(broken(records=lambda data: (data.records[0], Record(""), *data.records[2:])), config)
    numbers = np.full((24, 16), 0, np.int32)
    numbers[7, 2] = 999
    with pytest.raises(DataError, match="episode 1: signal instruction at sample 7 has the word numbers"):
        begin(broken(columns=lambda data: {**data.columns, "instruction": numbers}, interface=lambda data: replace(
            data.interface, signals={**data.interface.signals, "instruction": INSTRUCTION})), config)
    with pytest.raises(DataError, match="wrist_rgb are not in the dataset"):
        begin(squares(4), replace(config, signals=("wrist_rgb",)))
    with pytest.raises(SettingsError, match="is a sentence, which this algorithm does not read"):
        learner.make_policy(INTERFACE, flow.FlowConfig(hidden=(8,)), flow.Flow)
    with pytest.raises(SettingsError, match=r"other sizes: set algo.keypoints=8$"):
        begin(squares(4), vla.FlowVlaConfig(**{**SMALL, "keypoints": 4}, policy=str(run)))
    with pytest.raises(SettingsError, match=r"other sizes: set algo.channels=\[8,16,16\] algo.keypoints=8$"):
        begin(squares(4), vla.FlowVlaConfig(**{**SMALL, "keypoints": 4, "channels": (8, 8, 8)}, policy=str(run)))
    with pytest.raises(SettingsError, match="algo.policy=RUN"):
        vla.FlowVlaConfig(tune="expert")
    with pytest.raises(CheckpointError, match="written by another version"):
        flow.load_chunks(run)


@pytest.mark.parametrize("told", [
    None, [{"name": "x", "shape": ["a"]}], [{"size": 3}], [{"name": "x", "shape": [9**9]}], "abc", [5], {"a": 1},
    [{"name": f"x{i}", "shape": [9000]} for i in range(50)]])
def test_places_that_a_checkpoint_cannot_tell_are_refused(told: Any, run: Path) -> None:
    state = offline_learner.read(run)
    sizes = {key: value for key, value in state["sizes"].items() if key != "told"}
    with pytest.raises(CheckpointError, match="prefix tells cannot be read|its .* weights are not theirs"):
        learning.encode_of(state, sizes if told is None else {**sizes, "told": told})
