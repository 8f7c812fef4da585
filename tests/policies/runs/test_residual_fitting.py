"""A base fits changed worlds of its task, and no other world whose numbers merely look alike."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from temporeal.policies.runs import environments
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.fitting import check_fit, check_worlds
from temporeal.policies.runs.settings.compose import compose

BASE = Path("base")


def fit(base: list[str], here: list[str], *, trained: bool = False, **changed: Any) -> None:
    settings = compose(here)
    task = environments.make_task(settings)
    task = replace(task, observe=cast("Any", Seen(task.observe, **changed))) if changed else task
    check_fit(BASE, compose(base), settings, task, trained=trained)


class Seen:
    """An observation that differs from ``other`` in what is said."""

    def __init__(self, other: Any, **changed: Any) -> None:
        self.signals, self.memory, self.obs_dim = other.signals, other.memory, other.obs_dim
        vars(self).update(changed)


@pytest.mark.parametrize(("base", "here", "told"), [
    (["task=stl/linear_reach"], ["task=stl/linear_stay"], "does not fit stl-linear_stay: task.settings.formula"),
    (["task=hover"], ["task=hover", "task.settings.history=16"],
     "observation of 146 numbers, here 82; memory actions")])
def test_another_meaning_of_the_numbers_is_refused_by_name(base: list[str], here: list[str], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        fit(base, here)


def test_signals_are_compared_by_name_and_order_and_the_memory_by_its_shapes() -> None:
    order = ("base_quat_w", "base_pos_w", "base_vel_w", "base_ang_vel_b")
    with pytest.raises(BadInput, match=f"observation made of base_pos_w, .*, here of {', '.join(order)}"):
        fit(["task=hover"], ["task=hover"], signals=order)
    with pytest.raises(BadInput, match=r"memory actions of the observation \[128\], here none; memory past"):
        fit(["task=hover"], ["task=hover"], memory={"past": (128,)}, trained=True)


def test_what_residuals_are_trained_for_is_let_through() -> None:
    fit(["task=waypoints"], ["task=waypoints", "randomize=disturbances", "task.settings.slack=0.05",
                             "task.settings.constants.reach=0.3"])
    fit(["task=peg"], ["task=peg", "task.settings.clearance=0.002"])
    fit(["task=stl/linear_reach"], ["task=stl/linear_stay"], trained=True)  # judged in another world


@pytest.mark.parametrize(("then", "now", "goes"), [
    ("peg-insert-side-v3", "peg-hard", True), ("peg-hard", "peg-insert-side-v3", True), ("mt10", "door-open-v3", True),
    ("soccer-v3", "peg-hard", False), ("door-open-v3", "mt10", False), ("mt10", "soccer-v3", False),
    ("reach-v3, push-v3", "push-v3", True)])
def test_meta_worlds_environments_show_numbers_of_one_layout(then: str, now: str, goes: bool) -> None:
    before, settings = compose(["task=metaworld"]), compose(["task=metaworld"])
    before["task"]["settings"]["env"], settings["task"]["settings"]["env"] = then, now
    if goes:
        return check_worlds(BASE, before, settings)
    with pytest.raises(BadInput, match=f"does not fit metaworld: task.settings.env {then}, here {now}"):
        check_worlds(BASE, before, settings)
