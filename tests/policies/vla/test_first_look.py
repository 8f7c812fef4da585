"""The first look: kept to an episode's end, in training, in worlds and in the file; a new sentence is a new look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.policies.chunk_worlds import SIGNALS, STEPS, PointWorlds, flow, interface
from tests.policies.imitation.chunk_files import exported, shaken
from tests.policies.vla.squares import Worded, squares
from tests.policies.vla.test_vla import INTERFACE, SMALL, told
from torch import Tensor

from temporeal.policies.algos.flow_sde import SDEAgent
from temporeal.policies.imitation import vla
from temporeal.policies.nets.encoders import SignalEncoder
from temporeal.policies.nets.normalizer import moments
from temporeal.policies.runs.chunks import Inference, infer_by_artifact
from temporeal.policies.training.chunk_rl.rewards import Sparse
from temporeal.policies.training.chunk_rl.worlds import ChunkWorlds
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.chunks.policy import ChunkPolicy
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla import learning
from temporeal.policies.vla.encoder import FIRST, PREFIX
from temporeal.policies.vla.protocol import as_flow
from temporeal.robots.artifact.manifest import ArtifactError, MemorySpec, check
from temporeal.robots.signals import SignalSpec
from temporeal.sim.stl.instructions.grammar import SUITE

PLACE = SignalSpec("target_pos_w", (3,), "m", "w")


def hidden_later(count: int = 6) -> Worded:
    """Squares that are seen in the first picture of each episode only."""
    data = squares(count)
    pictures = data.columns["front_rgb"].copy()
    later = np.ones(len(pictures), bool)
    later[data.starts[:-1]] = False
    pictures[later] = 0
    return replace(data, columns={**data.columns, "front_rgb": pictures})


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Worded]:
    """A learner of the expert, before its first update, its batches, and the data."""
    folder, data = tmp_path_factory.mktemp("eye"), hidden_later()
    vla.train(data, vla.FlowVlaConfig(updates=2, **SMALL), out=folder)
    (folder / "config.yaml").write_text("algo: {name: vla}\n")
    config = vla.FlowVlaConfig(updates=3, policy=str(folder), take="prefix", tune="expert", remember="first",
                               **{**SMALL, "noise": 0.5})
    return *learning.begin(data, config, vla.flow, "vla", 0, torch.Generator().manual_seed(0)), data


def test_windows_know_the_first_look_of_their_episode(tuned: Any) -> None:
    algorithm, batches, data = tuned
    encoder = algorithm.policy.encoder
    with torch.no_grad():
        pictures = {"front_rgb": torch.from_numpy(data.column("front_rgb")[data.starts[:-1]]),
                    "instruction": batches.data.numbers["instruction"][torch.from_numpy(data.starts[:-1])]}
        first = encoder.prefix.places(encoder.prefix(pictures))
    assert len(torch.unique(first, dim=0)) == len(first)
    looks = batches.data.numbers[FIRST]
    assert looks.shape == (len(data.column("front_rgb")), 1 + 2 + 16)
    for episode, (begin, end) in enumerate(zip(data.starts[:-1], data.starts[1:])):
        torch.testing.assert_close(looks[begin:end, 1:3], first[episode].expand(end - begin, -1))
    (batch,) = batches.draw(torch.Generator().manual_seed(1), 1)  # noise is of what is measured
    assert bool((batch.signals[FIRST][:, None] == looks[None]).all(-1).any(1).all())
    assert bool(torch.isfinite(algorithm.update(batch)).all())


def test_it_is_told_to_the_expert_until_another_sentence_is_said(tuned: Any) -> None:
    policy = tuned[0].policy
    seen = {"front_rgb": torch.randint(0, 256, (2, 16, 16, 3), dtype=torch.uint8),
            "instruction": torch.ones(2, 16, dtype=torch.int32)}
    later = {**seen, "front_rgb": torch.zeros_like(seen["front_rgb"])}
    with torch.no_grad():
        now, first = policy.remembering(seen, policy.initial_memory(2))
        assert torch.equal(policy.encoder(now), policy.encoder(seen))  # nothing else was seen yet
        shown, second = policy.remembering(later, first)
        assert torch.equal(second[FIRST], first[FIRST])
        told_first, told_now = policy.encoder(shown), policy.encoder(later)
        assert torch.equal(told_first[:, :-1], told_now[:, :-1])  # the prefix is as it is now, the state's token not
        assert not torch.allclose(told_first[:, -1], told_now[:, -1])
        other = {**later, "instruction": torch.tensor([[1] * 16, [2] * 16], dtype=torch.int32)}
        third = policy.remembering(other, second)[1][FIRST]
    assert torch.equal(third[0], second[FIRST][0]) and not torch.equal(third[1, :3], second[FIRST][1, :3])


def test_an_eye_that_learns_cannot_be_remembered() -> None:
    with pytest.raises(SettingsError, match="algo.tune=expert, or algo.remember=none"):
        vla.FlowVlaConfig(remember="first")
    with pytest.raises(SettingsError, match="remember.*none, first"):
        vla.FlowVlaConfig(remember="last")
    with pytest.raises(SettingsError, match="rest"):
        vla.FlowVlaConfig(rest=-1)


class Remembers(SignalEncoder):
    """The context is where the point and its goal were at the first look."""

    def __init__(self) -> None:
        super().__init__(tuple(SIGNALS.values()), 16, 1)

    def initial_memory(self, n: int) -> dict[str, Tensor]:
        return {FIRST: torch.zeros(n, 5)}

    def remembering(self, signals: Mapping[str, Tensor], memory: Mapping[str, Tensor]) -> Any:
        now = torch.cat([torch.ones(len(signals["pos"]), 1), signals["pos"], signals["goal"]], 1)
        after = {FIRST: torch.where(memory[FIRST][:, :1] > 0, memory[FIRST], now)}
        return {**signals, **after}, after

    def forward(self, signals: Mapping[str, Tensor]) -> Tensor:
        return torch.nn.functional.pad(signals[FIRST][:, 1:], (0, 12))


def worlds_of(count: int = 3) -> tuple[ChunkWorlds, SDEAgent]:
    torch.manual_seed(0)
    policy = ChunkPolicy(interface(), 4, Remembers(), flow(4))
    policy.encoder.normalizer.update(moments(torch.rand(9, 4)))
    env = PointWorlds(count)
    return ChunkWorlds(env, as_flow(policy.eval()), env.true_signals, (), 3, Sparse(env)), SDEAgent(policy, 0.5, 3)


def test_worlds_remember_to_the_end_of_their_episode_and_learn_of_what_they_remembered() -> None:
    worlds, agent = worlds_of()
    generator = torch.Generator().manual_seed(0)
    found = worlds.rollout(agent.draw, 2 * STEPS + 2, generator)
    goals = torch.stack([own_goal(int(world), episode) for world, episode in decided(found)])
    context = found.seen.context
    assert not bool(context[:, :2].any()) and torch.equal(context[:, 2:4], goals)
    assert found.tail is not None and torch.equal(found.tail[1].context[:, 2:4], goals[found.tail[0]])
    now, _ = agent.log_prob(context, found.drawn.kept)
    torch.testing.assert_close((now - found.drawn.log_prob).exp(), torch.ones(found.rows), atol=1e-5, rtol=0)
    again, _ = worlds_of()
    again.load_state_dict(worlds.state_dict())
    assert torch.equal(again.memory[FIRST], worlds.memory[FIRST]) and bool(worlds.memory[FIRST][:, 0].all())
    worlds.begin(worlds.env.reset())
    assert not bool(worlds.memory[FIRST].any())


def decided(found: Any) -> list[tuple[int, int]]:
    """World and number of the episode of each decision."""
    over, out = dict.fromkeys(range(3), 0), []
    for row, world in enumerate(found.worlds.tolist()):
        out.append((world, over[world]))
        over[world] += bool(found.ended[row])
    return out


def own_goal(world: int, episode: int) -> Tensor:
    """As the worlds draw it."""
    return 2 * torch.rand(2, generator=torch.Generator().manual_seed(7 * world + 101 * episode)) - 1


def arm_policy() -> ChunkPolicy:
    """With random weights, and a first look."""
    torch.manual_seed(0)
    config = vla.FlowVlaConfig(relative="joint_pos", remember="first", tune="expert", policy="eye", **SMALL)
    return shaken(learner.make_policy(INTERFACE, config, vla.flow,
                                      partial(learning.vla_encoder, vocabulary=SUITE, told=(PLACE,))))


def traced(policy: Any, count: int = 4) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, np.ndarray]]:
    """Signals of one episode with one sentence, the rows of one inference after the other, and the memory before."""
    signals, infer = told(count), Inference(policy)
    signals["instruction"][:] = signals["instruction"][0]
    rows, held = [], []
    for t in range(count):
        held.append(infer.before(1)[FIRST][0].numpy().copy())
        rows.append(infer({name: value[t : t + 1] for name, value in signals.items()}))
    return signals, np.concatenate(rows), {f"memory.{FIRST}": np.stack(held)}


def test_the_file_remembers_from_the_start_of_a_mission_and_of_a_sentence(tmp_path: Path) -> None:
    policy = arm_policy()
    signals, rows, held = traced(policy)
    artifact = exported(policy, signals, rows, tmp_path / "artifact", held)
    one = [{name: value[t] for name, value in signals.items()} for t in range(4)]
    begun, after = artifact.act(one[0])["arm_cmd"], artifact.act(one[1])["arm_cmd"]
    assert np.abs(np.stack([begun, after]) - rows[:2]).max() < 1e-5
    kept = artifact.memory[FIRST].copy()
    artifact.act({**one[2], "instruction": np.ones(16, np.int32)})
    assert not np.allclose(artifact.memory[FIRST], kept)  # another sentence: other places
    artifact.reset()
    assert np.abs(artifact.act(one[1])["arm_cmd"] - after).max() > 1e-4
    infer = infer_by_artifact(artifact)  # a batch of episodes
    for t in range(3):
        found = infer({name: value[t : t + 1] for name, value in signals.items()})
        assert np.abs(found - rows[t]).max() < 1e-5


class Rewrites(ChunkPolicy):
    """Its memory is what it saw last."""

    def remembering(self, signals: Any, memory: Any) -> Any:
        return super().remembering(signals, {FIRST: 0.0 * memory[FIRST]})


def test_memory_that_moves_on_is_refused_in_a_file_of_chunks(tmp_path: Path) -> None:
    policy = arm_policy()
    policy.__class__ = Rewrites
    with pytest.raises(ArtifactError, match="first_look' is written once"):
        exported(policy, *traced(policy)[:2], tmp_path / "artifact", traced(policy)[2])
    policy.__class__ = ChunkPolicy
    manifest = exported(policy, *traced(policy)[:2], tmp_path / "artifact").manifest
    with pytest.raises(ArtifactError, match="no memory but a 'first_look'"):
        check(replace(manifest, memory=(MemorySpec("last_action", (8,), [0.0] * 8),)))
    with pytest.raises(ArtifactError, match="the first number says whether there was a look, and begins with 0"):
        check(replace(manifest, memory=(MemorySpec(FIRST, (2,), [1.0, 0.0]),)))


def test_the_prefix_is_computed_once_for_look_and_context(tuned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, calls = tuned[0].policy, []
    prefix = policy.encoder.prefix
    monkeypatch.setattr(prefix, "forward", lambda signals: calls.append(1) or prefix.looked(signals)[0])
    seen = {"front_rgb": torch.zeros(1, 16, 16, 3, dtype=torch.uint8),
            "instruction": torch.ones(1, 16, dtype=torch.int32)}
    shown, _ = policy.remembering(seen, policy.initial_memory(1))
    policy.encoder(shown)
    assert len(calls) == 1 and PREFIX in shown
