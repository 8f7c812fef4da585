"""Steps with results taken ahead and steps in general: the same numbers, and what was returned stays as it was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from temporeal.sim.compiler.allocator import BY_USER
from temporeal.sim.compiler.step_buffers import AHEAD, Compiled, General
from temporeal.sim.env import make_env
from temporeal.sim.step_functions import OUTCOMES
from temporeal.sim.task import load_task

# nothing is privileged
ALL_SEEN = {"formula": "F[0,2] (hypot(base_pos_w.x - 1, base_pos_w.y) < 0.5)", "system": "linear"}


def reach(worlds, general=False, **settings):
    env = make_env(load_task("stl" if settings else "reach", **settings), num_worlds=worlds, seed=3, threads=1)
    if general:
        table = env.table
        table.work = General(table.command, table.after, table.rows, table.rows[-len(OUTCOMES) :, :worlds], table.sizes)
    env.reset()
    return env


def action(env, k):
    generator = torch.Generator().manual_seed(k)
    return 2 * torch.rand(env.num_worlds, env.action_dim, generator=generator) - 1


def flat(step):
    return [*step.obs[:2], *step.final_obs[:2], step.reward, step.terminated, step.truncated, step.info["success"],
            step.info["finite"], *step.info["signals"].values()]


@pytest.mark.parametrize("settings", [{}, ALL_SEEN])
def test_whole_blocks_of_worlds_run_compiled_and_the_results_are_those_of_the_general_way(settings):
    quick, general = reach(16, **settings), reach(16, general=True, **settings)
    assert isinstance(quick.table.work, Compiled)
    assert isinstance(reach(5).table.work, General)
    for env in (quick, general):
        env.column["count"].copy_(env.task.steps // 16 * torch.arange(16.0))  # some episodes end on the way
    ended = 0
    for k in range(12):
        steps = [env.step(action(env, k)) for env in (quick, general)]
        assert all(torch.equal(a, b) for a, b in zip(*map(flat, steps)))
        ended += int((steps[0].terminated | steps[0].truncated).sum())
    assert ended


def test_critics_see_the_same_tensor_where_nothing_is_privileged():
    env = reach(16, **ALL_SEEN)
    assert not env.task.objective.privileged_dim
    ended = 0
    for k in range(env.task.steps + 1):
        step = env.step(action(env, k))
        assert step.obs.critic is step.obs.actor and step.final_obs.critic is step.final_obs.actor
        ended += int((step.terminated | step.truncated).sum())
    assert ended
    arm = reach(16)
    step = arm.step(action(arm, 0))
    assert step.obs.critic.shape[1] > step.obs.actor.shape[1]


@pytest.mark.parametrize(("environment", "kept"), [({}, True), ({"MALLOC_TRIM_THRESHOLD_": "131072"}, False)])
def test_freed_memory_stays_with_the_process_unless_the_user_has_set_malloc(environment, kept):
    text = "from temporeal.sim.compiler.allocator import keep_freed; print(keep_freed())"
    plain = {k: v for k, v in os.environ.items() if k not in BY_USER}
    found = subprocess.run([sys.executable, "-c", text], env={**plain, **environment}, capture_output=True, text=True,
                           check=True)
    assert found.stdout.strip() == str(kept)


def test_what_a_step_returned_outlives_later_steps():
    env = reach(16)
    kept = []
    for k in range(AHEAD + 3):
        step = env.step(action(env, k))
        mine = [step.obs.actor, step.obs.critic, step.reward, step.truncated, env.command]
        kept.append((mine, [x.clone() for x in mine]))
    assert all(torch.equal(a, b) for mine, copies in kept for a, b in zip(mine, copies))


@pytest.mark.parametrize("other", [
    lambda a: a.double(), lambda a: a.t().contiguous().t(), lambda a: a.clone().requires_grad_()])
@pytest.mark.slow
def test_any_kind_of_action_tensor_does_the_same(other):
    one, two = reach(16), reach(16)
    for k in range(3):
        a, b = one.step(action(one, k)), two.step(other(action(two, k)))
        assert torch.equal(a.obs.actor, b.obs.actor)
    assert not b.obs.actor.requires_grad


def test_a_bad_world_ends_and_the_others_do_not_see_it():
    env, calm = reach(16), reach(16)
    env.backend.views()["qvel"][3, 0] = float("nan")
    a, b = env.step(action(env, 0)), calm.step(action(calm, 0))
    assert a.terminated.nonzero().tolist() == [[3]]
    assert not a.info["finite"][3]
    others = torch.arange(16) != 3
    assert torch.equal(a.final_obs.actor[others], b.final_obs.actor[others])
    assert env.diverged == 1
