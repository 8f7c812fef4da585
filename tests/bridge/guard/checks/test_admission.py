"""What the guard asks of a proposal before it is a command."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from temporeal.robots.signals import CommandSpec
from temporeal_bridge.guard.checks import admission
from temporeal_bridge.guard.safety.profile import Ages
from temporeal_bridge.guard.safety.reasons import NOTHING
from temporeal_bridge.link.datagrams import COMMAND, Proposal

PROFILE = SimpleNamespace(age=lambda topic: Ages(0.1, None), oldest_s=0.1)


def spec(shape: tuple[int, ...]) -> CommandSpec:
    size = int(np.prod(shape, dtype=int))
    return CommandSpec("u", shape, "1", low=(-1.0,) * size, high=(1.0,) * size)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)])
def test_as_many_finite_numbers_as_the_command_has_are_usable_and_nothing_else(shape):
    size = spec(shape).size

    def said(values: np.ndarray, age: float = 0.05) -> tuple[str, str]:
        return admission.unusable(Proposal(COMMAND, seen=1.0, values=values), 1.0 + age, spec(shape), PROFILE)

    assert said(np.zeros(size)) == said(np.zeros(size, dtype=">f8")) == said([0] * size) == NOTHING
    for wrong in (np.nan, np.inf, -np.inf):
        for place in range(size):
            code, text = said(np.where(np.arange(size) == place, wrong, 0.0))
            assert code == "policy" and "u is not finite" in text
    for count in (0, size + 1, 2 * size + 1):
        code, text = said(np.zeros(count))
        assert code == "policy" and f"u has shape ({count},), {shape} is needed" in text
    assert said(np.zeros((size, 2)))[0] == "policy" and said(np.zeros((size, 2)))[1]
    assert said(np.zeros(size), age=0.2)[0] == "stale" and said(np.zeros(size), age=np.nan)[0] == "stale"


def test_of_a_state_the_part_that_paces_is_asked_its_own_age_and_the_oldest_that_of_others():
    profile = SimpleNamespace(age=lambda topic: Ages(0.03, None), oldest_s=0.1)

    def said(seen: float, oldest: float) -> str:
        proposal = Proposal(COMMAND, seen=1.0 - seen, oldest=1.0 - oldest, values=np.zeros(3))
        return admission.unusable(proposal, 1.0, spec((3,)), profile)[1]

    assert said(0.02, 0.09) == said(0.02, 0.02) == ""
    assert said(0.04, 0.04).endswith("the newest state is 0.040 s old, 0.030 s is allowed")
    assert said(0.02, 0.11).endswith("the newest state is 0.110 s old, 0.100 s is allowed")
    assert "in the future" in said(-0.2, -0.2) and "in the future" not in said(0.02, -0.2)
