"""Every number that a learner from data, or one that tunes chunk policies, takes has a range, and is refused outside
by its name."""

from __future__ import annotations

import importlib
import typing
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

from temporeal.policies.training.errors import SettingsError, choose, require
from temporeal.policies.training.registries import FROM_DATA
from temporeal.robots.registry import names

ALGOS = "temporeal.policies.algos"
TUNERS = [(ALGOS, name) for name in (
    "flow_sde", "flow_noise", "flow_grpo", "token_ppo", "dsrl", "residual", "sac", "td3")]
LEARNERS = [(package, name) for package in FROM_DATA for name in names(package)]
ANY = {("cql", "entropy"), ("dsrl", "entropy"), ("sac", "entropy")}  # a wish in nats may have any sign


@dataclass(frozen=True)
class Some:
    share: float = 0.5
    widths: tuple[int, ...] = (4, 4)
    limit: float | None = None
    word: str = "a"


def test_ranges_are_intervals_and_messages_name_value_and_rule() -> None:
    require(Some(share=0.0, limit=None), share="[0, 1)", widths="[1, inf)", limit="(0, inf)")
    for some, ranges, said in ((Some(share=1.0), {"share": "[0, 1)"}, r"algo.share lies in \[0, 1\), got 1.0"),
                               (Some(share=0.0), {"share": "(0, inf)"}, "algo.share must be positive, got 0.0"),
                               (Some(widths=(4, 0)), {"widths": "[1, inf)"}, "algo.widths is at least 1, got 0"),
                               (Some(limit=-1.0), {"limit": "(0, inf)"}, "algo.limit must be positive")):
        with pytest.raises(SettingsError, match=said):
            require(some, **ranges)
    with pytest.raises(SettingsError, match="algo.word=a: one of b, c"):
        choose(Some(), word=("b", "c"))


@pytest.mark.parametrize("package, name", [*LEARNERS, *TUNERS])
def test_no_number_of_a_learner_may_be_anything(package: str, name: str) -> None:
    kind: Any = typing.get_type_hints(importlib.import_module(f"{package}.{name}").train)["config"]
    taken = []
    for field in fields(kind):
        number = isinstance(field.default, (int, float)) and not isinstance(field.default, bool)
        widths = isinstance(field.default, tuple) and field.default and isinstance(field.default[0], int)
        if (number or widths or field.name in ("max_seconds", "ensemble")) and (name, field.name) not in ANY:
            try:
                replace(kind(), **{field.name: -(10 ** 6) if not widths else (0,)})
                taken.append(field.name)
            except ValueError:
                pass
    assert not taken


@pytest.mark.parametrize("name, settings", [
    ("iql", {"expectile": 1.5}), ("iql", {"target_rate": 5.0}), ("iql", {"learning_rate": 0.0}),
    ("iql", {"hidden": (0,)}), ("td3bc", {"policy_every": 0}), ("recap", {"label_dropout": 2.0}),
    ("cql", {"samples": 0}), ("awac", {"lagrange": 0.0})])
def test_settings_that_crashed_or_trained_for_nothing_are_refused(name: str, settings: dict[str, Any]) -> None:
    module = importlib.import_module(f"temporeal.policies.offline.{name}")
    with pytest.raises(SettingsError, match=f"algo.{next(iter(settings))}"):
        typing.get_type_hints(module.train)["config"](**settings)
