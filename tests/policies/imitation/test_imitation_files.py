"""A learner's file in configs/algo names every setting, each with the default that the code has."""

from __future__ import annotations

import typing
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from temporeal.robots.registry import names, resolve

FOLDER = Path(__file__).parents[3] / "configs" / "algo"
REGISTRY = "temporeal.policies.imitation"


@pytest.mark.parametrize("name", names(REGISTRY))
def test_configuration_file_has_the_defaults(name: str) -> None:
    kind = typing.get_type_hints(resolve(REGISTRY, name).train)["config"]
    found = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    assert set(found) == {f.name for f in fields(kind)}
    assert kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in found.items()}) == kind()
