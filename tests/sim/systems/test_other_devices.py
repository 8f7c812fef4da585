"""What a training on a GPU computes there. The stand-in for the GPU is torch's device ``meta``: shapes without numbers,
which refuses, as CUDA does, to be mixed with tensors on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.examples import thinned

from temporeal.policies.algos.npc import NPCConfig
from temporeal.policies.runs import environments
from temporeal.policies.runs.settings import compose
from temporeal.policies.training.predictive_policy import Policy, Seen
from temporeal.robots.registry import resolve
from temporeal.sim.compiler.devices import on_device
from temporeal.sim.rewards.scheduled import SCHEDULE
from temporeal.sim.task import load_task

META = torch.device("meta")
ON_A_GPU = {"quadrotor": "choice", "franka": "key", "ant": "patrol"}
"""Systems whose simulators run on GPUs, and one of their formulas."""
VIEWS = ("scheduled", "tau_mdp", "f_mdp", "terminal_robustness")
N = 6


def task_of(system, view="scheduled"):
    task = environments.make_task(
        compose.compose([f"task=stl/{system}_{ON_A_GPU[system]}", f"task.settings.view={view}"])
    )
    if task.schedules is not None:
        task.schedules.compiled = False
    return task


def drawn(device):
    return lambda _, size: torch.rand(N, size, device=device)


def start(task, device):
    """All signals and memories of a task, as numbers without meaning."""
    seen = {name: torch.rand(N, *spec.shape, device=device) for name, spec in task.scene.signals.items()}
    if task.extra is not None:
        seen |= {name: torch.rand(N, *spec.shape, device=device) for name, spec in task.extra.signals.items()}
    zeros = [{name: torch.zeros(N, *shape, device=device) for name, shape in shapes.items()}
             for shapes in (task.observe.memory, task.objective.carry)]
    return seen, *zeros


@pytest.mark.parametrize("system, view", thinned(
    [(system, view) for system in ON_A_GPU for view in VIEWS],
    keep=[("quadrotor", "scheduled"), ("quadrotor", "tau_mdp"), ("franka", "f_mdp"), ("ant", "terminal_robustness")]))
def test_a_task_observes_acts_and_pays_on_its_device(system, view):
    task = task_of(system, view)
    seen, memory, progress = start(task, META)
    observe, act, objective = task.observe.to(META), task.act.to(META), on_device(task.objective, META)
    obs, memory = observe(seen, memory)
    action = torch.zeros(N, act.action_dim, device=META)
    command = act(action, observe.record(memory, action))
    progress = objective.start(seen, progress)
    reward, terminated, progress = objective.step(seen, action, progress)
    paid = (reward, terminated, objective.privileged(seen, progress), objective.success(seen, progress))
    assert {x.device for x in (obs, command, *paid, *memory.values(), *progress.values())} == {META}


@pytest.mark.parametrize("system", ON_A_GPU)
def test_missions_start_on_the_device_of_the_draws_after_the_maps_went_to_another(system):
    task = task_of(system)
    task.observe.to(META), task.act.to(META)  # an environment takes them to its device
    for device in (torch.device("cpu"), META):
        state, memory = task.mid_episode(drawn(device))
        places, there, possible = task.schedules.places(drawn(device), 2)
        assert {x.device for x in (*state.values(), *memory.values(), *places.values(), *there.values(), possible)
                } == {device}
        assert state[SCHEDULE].shape[0] == places[SCHEDULE].shape[0] == N


@pytest.mark.parametrize("system", ["quadrotor", "franka"])
def test_a_model_is_where_its_states_are(system):
    of = resolve("temporeal.sim.systems", system).make()
    seen = {name: torch.rand(N, *of.scene.robot.signals[name].shape) for name in of.reads}
    of.act.to(META)
    state = of.model.state(seen)
    assert bool(torch.isfinite(of.model.step(state, torch.zeros(N, of.model.action_dim))).all())
    moved = of.model.state({name: value.to(META) for name, value in seen.items()})
    assert moved.device == META and moved.shape == state.shape
    assert {x.device for x in of.model.signals(moved).values()} == {META}


def test_a_model_in_torch_steps_there():
    model = resolve("temporeal.sim.systems", "franka").make().model
    state = model.state({"joint_pos": torch.rand(N, 7, device=META)})
    assert model.step(state, torch.zeros(N, 3, device=META)).device == META


@pytest.mark.parametrize("system", ["quadrotor", "franka"])
def test_a_network_of_npc_sees_on_its_device(system):
    task = task_of(system)
    task.act.to(META)
    model = task.observe.system.model
    known = {name: torch.rand(1, *task.scene.robot.signals[name].shape) for name in task.observe.system.reads}
    size = model.state(known).shape[1]
    seen = Seen(task, Policy(size, model.action_dim, task.steps, NPCConfig()))
    signals = {name: torch.rand(N, *spec.shape, device=META)
               for name, spec in task.scene.robot.signals.items() if name in seen.signals}
    obs, memory = seen(signals, {name: torch.zeros(N, *shape, device=META) for name, shape in seen.memory.items()})
    assert {x.device for x in (obs, *memory.values())} == {META}


def test_waypoints_start_in_mid_mission_on_the_device_of_the_draws():
    mid_episode = load_task("waypoints").mid_episode
    assert {x.device for part in mid_episode(drawn(META)) for x in part.values()} == {META}


def test_a_copy_of_the_arm_s_maps_is_apart_from_those_that_went_to_a_gpu():
    task = task_of("franka")
    task.observe.to(META), task.act.to(META)
    system = copy.deepcopy(task.observe.system)
    assert system.follow.__self__ is system.act is system.record.__self__ is not task.observe.system.act
