"""A base goes on in another task or on another robot where what it reads and commands agrees, and nowhere else."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.policies.runs.test_residual import PPO, commands

from temporeal.policies.runs import environments, offline
from temporeal.policies.runs.demonstrating import demonstrations
from temporeal.policies.runs.errors import BadInput
from temporeal.policies.runs.residual.fitting import check_fit
from temporeal.policies.runs.residual.transferring import elsewhere, other_action, other_signals
from temporeal.policies.runs.run_folders import check_same, compared
from temporeal.policies.runs.settings.compose import compose
from temporeal.policies.runs.training import train
from temporeal.robots.signals import SignalSpec
from temporeal.sim.task import Task

BASE = Path("base")
TRANSFER = ["base.policy=base", "base.transfer=true"]


def fit(base: list[str], here: list[str]) -> None:
    settings = compose(here)
    check_fit(BASE, compose(base), settings, environments.make_task(settings), trained=False,
              transfer=settings["base"]["transfer"])


def test_where_reads_and_commands_agree_it_is_said_and_goes() -> None:
    with pytest.raises(BadInput, match="task hold, here joint_target.*base.transfer=true corrects it here"):
        fit(["task=hold"], ["task=joint_target", "base.policy=base"])
    fit(["task=hold"], ["task=joint_target", *TRANSFER])
    fit(["task=lift", "algo=flow"], ["task=push", *TRANSFER])  # commands of chunks are physical


@pytest.mark.parametrize(("base", "here", "told"), [
    (["task=lift"], ["task=push"], r"observation of 58 numbers, .*here of 60.*; action ToolAction of 7 numbers, here"),
    (["task=hover", "algo=flow"], ["task=waypoints"], "command motor_cmd, here ctbr_cmd; rate 100 Hz, here 50 Hz"),
    (["task=hover"], ["task=hover", "task.settings.constants.home=[0.0,0.0,2.0]"],
     "numbers of the observation, of base_pos_w, are made otherwise here"),
    (["task=stl/linear_reach", "algo=tgpo"], ["task=stl/linear_stay"],
     "of base_pos_w, schedule, are made otherwise here")])
def test_what_differs_is_named(base: list[str], here: list[str], told: str) -> None:
    with pytest.raises(BadInput, match=told) as error:
        fit(base, [*here, *TRANSFER])
    assert "base.transfer=true" not in str(error.value)


def test_another_robot_goes_where_its_command_is_the_same() -> None:
    before = compose(["task=hover", "algo=flow"])
    task = environments.make_task(before)

    def on(**changed: Any) -> Task:
        named = {**task.robot.commands, task.command: replace(task.robot.command(task.command), **changed)}
        robot = replace(task.robot, name="another", commands=named)
        return replace(task, scene=replace(task.scene, robot=robot))

    assert list(elsewhere(before, on())) == []
    low = [-0.5] * 4
    (told,) = elsewhere(before, on(low=tuple(low)))
    assert told.startswith("low of motor_cmd") and told.endswith(f"here {low}")


@pytest.mark.parametrize(("was", "here"), [(None, 0.05), (0.05, None), (0.05, 0.06)])
def test_a_constant_that_one_action_alone_has_is_named(was: float | None, here: float | None) -> None:
    then, now = (environments.make_task(compose(["task=lift"])).act for _ in range(2))
    assert list(other_action(then, now)) == []
    then.leash, now.leash = was, here  # type: ignore[assignment]
    (told,) = other_action(then, now)
    assert told.startswith("leash of ")


def test_signals_are_compared_by_all_that_they_are() -> None:
    spec = SignalSpec("cube_pos_w", (3,), "m", "world")
    assert list(other_signals({"cube_pos_w": spec}, {"cube_pos_w": spec})) == []
    assert list(other_signals({"cube_pos_w": spec}, {})) == ["it reads cube_pos_w, which is not here"]
    other = replace(spec, unit="1", frame="base")
    assert list(other_signals({"cube_pos_w": spec}, {"cube_pos_w": other})) == [
        "unit of cube_pos_w m, here 1", "frame of cube_pos_w world, here base"]


def test_runs_of_before_it_resume() -> None:
    settings = compose(["task=hover", "algo=resip", "base.policy=base"])
    before = {**settings, "base": {k: v for k, v in settings["base"].items() if k != "transfer"}}
    check_same(before, settings)
    moved = {**settings, "base": {**settings["base"], "transfer": True}}
    assert compared("base", moved["base"])["transfer"]
    with pytest.raises(BadInput, match="base.transfer of the run is not set, now true"):
        check_same(before, moved)
    with pytest.raises(BadInput, match="base.transfer=true is for the policy of another task or robot"):
        train(cast("Any", compose(["task=hover", "algo=resip", "base.expert=scripted", "base.transfer=true"])))


@pytest.mark.slow
def test_a_chunk_policy_goes_on_in_another_task_and_forgets_nothing(tmp_path: Path) -> None:
    """The base on its old task, from the new run's copy, commands what it did, bit for bit."""
    pytest.importorskip("mujoco")
    data, base, run = (tmp_path / name for name in ("set", "base", "run"))
    demonstrations.generate(demonstrations.request_of(["task=hold", "expert=scripted", "episodes=2", f"out={data}"]))
    found = offline.settings_of([
        f"dataset={data}", "algo=flow", "algo.updates=2", "algo.batch=4", "algo.horizon=4", "algo.execute=3",
        "algo.hidden=[8]", "algo.context=8", "algo.evaluate_updates=0", f"out={base}"])
    train({**found, "compiled": False}, quiet=True)
    words = ["task=joint_target", *PPO, f"base.policy={base}", "base.reward=sparse", f"out={run}"]
    with pytest.raises(BadInput, match="task hold, here joint_target.*base.transfer=true"):
        train({**compose(words), "compiled": False}, quiet=True)
    train({**compose([*words, "base.transfer=true"]), "compiled": False}, quiet=True)
    for task in ("task=joint_target", "task=hold"):
        alone = commands(base, task, "randomize=none")
        np.testing.assert_array_equal(commands(run, task, "randomize=none", "base.scale=0"), alone)
        assert not np.array_equal(commands(run, task, "randomize=none"), alone)
