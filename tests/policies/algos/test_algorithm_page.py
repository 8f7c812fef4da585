"""The algorithm of docs/how-to/adding-an-algorithm.md is one: it learns, goes on where it stopped, and is loaded."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml

from temporeal.sim.env import make_env
from temporeal.sim.task import load_task

PAGE = (Path(__file__).parents[3] / "docs/how-to/adding-an-algorithm.md").read_text(encoding="utf-8")


@pytest.fixture
def ars() -> Iterator[ModuleType]:
    """The page's module."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    module = ModuleType("ars_of_the_page")
    sys.modules[module.__name__] = module  # dataclasses look it up
    exec(compile(text, "docs/how-to/adding-an-algorithm.md", "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


def test_a_training_that_stopped_goes_on_as_if_it_had_not(ars: ModuleType, tmp_path: Path) -> None:
    def run(folder: str, updates: int, resume: bool = False) -> torch.Tensor:
        env = make_env(load_task("hover"), num_worlds=32, seed=1, threads=1)
        config = ars.ARSConfig(updates=updates, rollout_steps=8)
        weights: torch.Tensor = ars.train(env, config, out=tmp_path / folder, seed=1, resume=resume).weights
        return weights

    whole = run("whole", 4)
    run("parts", 2)
    assert torch.equal(run("parts", 4, resume=True), whole) and whole.any()
    actor, normalizer, config = ars.load_policy(tmp_path / "whole")
    assert torch.equal(actor.net[0].weight, whole) and config.updates == 4 and normalizer.count > 0


def test_the_page_s_settings_are_the_defaults_of_its_code(ars: ModuleType) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    assert yaml.safe_load(text) == asdict(ars.ARSConfig())
