"""Bases in worlds whose episodes end at different times: each world is as if it were alone."""

import pytest
import torch

from temporeal.policies.data.demonstrators.scripted import scripted
from temporeal.policies.nets.actor import begin_at_zero, make_actor
from temporeal.policies.nets.bounded_actor import BoundedActor, SquashedActor
from temporeal.policies.training.residual.base import Mixing, gathered
from temporeal.policies.training.residual.bases import ChunkBase
from temporeal.policies.training.residual.controllers import ControllerBase
from temporeal.sim.env import make_env
from temporeal.sim.task import load_task
from temporeal.sim.types import Obs

NOTHING = Obs(torch.zeros(3, 1), torch.zeros(3, 1))


def counted(calls):
    """Rows that say which inference they are of, and which row they are."""
    def rows(ids):
        calls.append(ids.tolist())
        return (10.0 * len(calls) + torch.arange(4.0))[None, :, None].expand(len(ids), 4, 2)

    return rows


def test_each_world_plays_its_own_chunk_and_looks_anew_where_its_episode_begins():
    calls = []
    base = ChunkBase(counted(calls), 3, 4, 3, 2, 2, "chunks")
    base.begin(torch.arange(3))
    played = []
    for k in range(6):
        if k == 2:
            base.begin(torch.tensor([1]))
        acted = base.act(NOTHING, {})
        played.append(acted.command[:, 0].tolist())
        if k == 0:
            assert acted.anew.tolist() == [True] * 3
    assert calls == [[0, 1, 2], [1], [0, 2], [1]]
    assert played == [[10, 10, 10], [11, 11, 11], [12, 20, 12], [30, 21, 30], [31, 22, 31], [32, 40, 32]]


def test_a_chunk_under_way_is_restored():
    one, two = (ChunkBase(counted([]), 3, 4, 3, 2, 2, "chunks") for _ in range(2))
    one.begin(torch.arange(3))
    one.act(NOTHING, {})
    two.load_state_dict(one.state_dict())
    assert torch.equal(two.act(NOTHING, {}).command, torch.full((3, 2), 11.0))
    with pytest.raises(ValueError, match="the state of the base is of"):
        two.load_state_dict({"chunk": torch.zeros(3, 5, 2), "age": torch.zeros(3)})


@pytest.mark.parametrize("name", ["lift", "hover"])
def test_a_controller_begins_anew_in_single_worlds_and_resumes(name):
    task = load_task(name)
    make = scripted(task)
    env = make_env(task, num_worlds=3, seed=5, threads=1, compiled=False)
    obs = env.reset()
    base = ControllerBase(make, 3, env.action_dim, "controller")
    assert base.start  # it remembers something
    signals = {key: value.clone() for key, value in env.true_signals().items()}
    for place in ("cube_pos_w", "lift"):
        if place in signals:  # as if the tool were there: the controller closes
            signals[place] = signals[f"{task.robot.tool}_pos_w"].clone()
    first = base.act(obs, signals).action
    for _ in range(3):
        base.act(obs, signals)
    held = base.state_dict()
    later = base.act(obs, signals).action
    base.load_state_dict(held)
    assert torch.equal(base.act(obs, signals).action, later)
    assert base.after(obs, signals) is not None and torch.equal(base.after(obs, signals), base.after(obs, signals))
    base.begin(torch.tensor([1]))
    assert all(torch.equal(value[1], base.start[key][1]) for key, value in base.state_dict().items() if not (
        value[1].isnan().any()))
    again = base.act(obs, signals).action
    assert torch.allclose(again[1], first[1])


def test_which_numbers_of_a_command_add_up():
    lift, hover, joints = (load_task(name) for name in ("lift", "hover", "joint_target"))
    joint_count = lift.act.joints
    assert gathered(lift.act, 8).tolist() == [1.0] * joint_count + [0.0] * (8 - joint_count)
    assert gathered(joints.act, 7).tolist() == [1.0] * 7
    assert not gathered(hover.act, 4).any()


def test_corrections_of_absolute_targets_add_up_until_the_base_looks_anew():
    task = load_task("joint_target")
    mixing, n = Mixing(task), 7
    memory = {key: torch.zeros(1, *shape) for key, shape in task.observe.memory.items()}
    memory["target"] = torch.tensor([task.robot.home["joint_pos"]])
    nothing, some = torch.zeros(1, n), torch.full((1, n), 0.3)
    one = mixing.moved(nothing, some, torch.zeros(1, n), memory)
    two = mixing.moved(nothing, some, one, memory)
    assert bool((one > 0).all()) and torch.allclose(two, 2 * one)
    own = torch.tensor([[9.0, -9.0, 0.1, 0.2, 0.3, 0.4, 0.5]])  # beyond the limits, as a base may command
    assert torch.equal(mixing.command(own, torch.zeros(1, n)), own)
    assert bool((mixing.command(own, one)[0, 0] <= mixing.high[0]).all())


@pytest.mark.parametrize("actor", [
    make_actor(3, 2, (4,)), make_actor(3, 2, (4, 4), hidden_dim=5), BoundedActor(3, 2, (4,)),
    SquashedActor(3, 2, (4,))])
def test_what_corrects_begins_with_the_action_0_everywhere(actor):
    begin_at_zero(actor)
    seen = (torch.randn(6, 3), torch.randn(6, 5)) if actor.hidden_dim else (torch.randn(6, 3),)
    found = actor(*seen)
    assert torch.equal(found[0] if actor.hidden_dim else found, torch.zeros(6, 2))
