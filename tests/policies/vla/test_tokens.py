"""Chunks as tokens: the code, the chances of what is written, and what a deployed chunk is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.policies.imitation import chunk_files as files
from tests.policies.imitation.chunk_files import ROBOT, exported, interface_of, rows_of
from tests.policies.vla.squares import squares

from temporeal.policies.imitation import vla_tokens
from temporeal.policies.imitation.vla_tokens import TokenVlaConfig
from temporeal.policies.training.chunks import learner
from temporeal.policies.training.errors import SettingsError
from temporeal.policies.vla import learning
from temporeal.policies.vla.protocol import as_flow, as_tokens
from temporeal.policies.vla.token_sampling import token_log_prob, write
from temporeal.policies.vla.tokens import Bins, Writer, cosines
from temporeal.robots.signals import schema
from temporeal.sim.stl.instructions.grammar import SUITE
from temporeal.sim.stl.instructions.vocabulary import INSTRUCTION

SMALL: dict[str, Any] = {
    "horizon": 6, "execute": 4, "context": 32, "keypoints": 8, "channels": (8, 16, 16), "width": 32, "layers": 2,
    "heads": 2, "bins": 32, "coefficients": 2, "batch": 64, "learning_rate": 3e-3, "text_layers": 0}


def test_the_transform_is_orthonormal_and_tokens_give_back_what_they_were_made_of() -> None:
    assert torch.allclose(cosines(8, 8) @ cosines(8, 8).T, torch.eye(8), atol=1e-6)
    code = Bins((8, 3), 8, 256)
    chunk = 2.0 * torch.rand(50, 8, 3, generator=torch.Generator().manual_seed(0)) - 1.0
    code.fit(chunk)
    found = code.back(code(chunk))
    # half a bin of each coefficient: |error|^2 sums over them as the transform is orthonormal
    bound = (code.reach / 255).square().sum(0).sqrt()
    assert bool(((found - chunk).square().sum(1).sqrt() <= bound + 1e-6).all())
    assert torch.equal(code(found), code(chunk))


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A few updates of training."""
    out: Path = tmp_path_factory.mktemp("tokens")
    vla_tokens.train(squares(60), TokenVlaConfig(updates=10, evaluate_updates=0, **SMALL), out=out)
    return vla_tokens.load_chunks(out)


def shown(policy: Any, count: int) -> dict[str, torch.Tensor]:
    data = squares(count, 1, seed=9)
    words = np.stack([policy.vocabulary.encode(record.language) for record in data.records])
    return {"front_rgb": torch.from_numpy(data.column("front_rgb")[::2]), "instruction": torch.from_numpy(words)}


@torch.no_grad()
def test_what_is_written_has_the_chance_that_one_pass_says(policy: Any) -> None:
    tokens = as_tokens(policy)
    context = tokens.encode(shown(policy, 12))
    written = write(tokens, context, 1.3, torch.Generator().manual_seed(0))
    assert written.tokens.shape == (12, 4) and tokens.chunk_of(written.tokens).shape == (12, 6, 2)
    again = token_log_prob(tokens, context, written.tokens, 1.3)
    assert float((again - written.log_prob).exp().sub(1.0).abs().max()) < 1e-5
    logits = tokens.logits(context, written.tokens[:, :2]) / 1.3
    wanted = torch.distributions.Categorical(logits=logits).log_prob(written.tokens[:, 2])
    assert torch.allclose(wanted, written.log_prob[:, 2], atol=1e-5)


@torch.no_grad()
def test_the_deployed_chunk_is_that_of_the_likeliest_tokens(policy: Any) -> None:
    signals = shown(policy, 5)
    context = policy.encoder(signals)
    tokens = torch.zeros((5, 0), dtype=torch.long)
    for _ in range(4):
        tokens = torch.cat([tokens, policy.decoder.logits(context, tokens).argmax(-1, keepdim=True)], 1)
    assert torch.equal(policy.decoder.greedy(context), tokens)
    assert torch.allclose(policy.rows(signals), policy.commands(policy.decoder.code.back(tokens), signals), atol=1e-6)


@pytest.mark.slow
def test_it_learns(policy: Any) -> None:
    config = TokenVlaConfig(updates=150, **SMALL)
    algorithm, batches = learning.begin(squares(60), config, vla_tokens.writer, "vla_tokens", 0,
                                        torch.Generator().manual_seed(0), vla_tokens.fit)
    losses = [float(algorithm.update(batch)[0]) for batch in batches.draw(torch.Generator().manual_seed(0), 150)]
    # the second coefficient of these constant chunks is 0, so that half of the tokens is sure; of the others one of 5
    # places is: without pictures and words, half of ln 5 is left
    assert np.mean(losses[:3]) > 0.9 * np.log(32) and np.mean(losses[-5:]) < 0.3 * np.log(5)
    assert isinstance(algorithm.policy.decoder, Writer)


def test_what_cannot_be_is_refused(policy: Any) -> None:
    with pytest.raises(SettingsError, match="Writer has no velocity"):
        as_flow(policy)
    with pytest.raises(SettingsError, match="coefficients is at most algo.horizon=6, got 7"):
        TokenVlaConfig(**{**SMALL, "coefficients": 7})


def test_the_file_writes_the_same_tokens(tmp_path: Path) -> None:
    torch.manual_seed(0)
    seen = schema(ROBOT.signals["joint_pos"], INSTRUCTION)
    config = TokenVlaConfig(**{**SMALL, "layers": 1, "coefficients": 1})
    policy = learner.make_policy(interface_of(seen), config, vla_tokens.writer,
                                 partial(learning.vla_encoder, vocabulary=SUITE, told=())).eval()
    words = np.random.default_rng(0).integers(1, 9, (5, 16)).astype(np.int32)
    signals = {**files.shown(seen, 5), "instruction": words}
    rows = rows_of(policy, signals)
    artifact = exported(policy, signals, rows, tmp_path / "artifact")
    assert np.abs(artifact.act_batch(signals, {})[0]["arm_cmd"] - rows).max() < 1e-5 < np.ptp(rows)
