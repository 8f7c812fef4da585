"""Backend isaaclab on the strict double of Isaac Lab 2.3 and of 3.0. On the real one nothing was run.

With TEMPOREAL_ISAACLAB=real the protocol's tests run on the Isaac Lab of this Python
(docs/reference/backends/isaac.md).
"""

from __future__ import annotations

import importlib
import os
import sys

import pytest
import torch
from tests.sim.doubles import REAL_LAB, behaviour, forget_isaaclab, install_isaaclab, isaaclab_backend
from tests.sim.doubles.bench_arm import scene

from temporeal.sim.backends import isaaclab


@pytest.fixture(scope="module", params=["2.3", "3.0"])
def world(request, tmp_path_factory):
    """The shared backend with its scene."""
    made = scene(tmp_path_factory.mktemp("arm"))
    backend = isaaclab_backend(request.param, made, behaviour.WORLDS, behaviour.COMMAND, dt=behaviour.DT)
    if os.environ.get(REAL_LAB) != "real":
        assert backend.engine.version.name == request.param
    yield backend, made
    backend.close()
    forget_isaaclab()


@pytest.mark.parametrize("check", behaviour.CHECKS, ids=lambda check: check.__name__)
def test_protocol(world, check):
    check(world[0])


def test_it_moves_like_mujoco(world):
    behaviour.moves_like_mujoco(*world)


def test_needs_are_checked(tmp_path):
    made = scene(tmp_path)
    behaviour.needs_are_checked(lambda **given: isaaclab.make(
        made, **{"num_worlds": 2, "command": behaviour.COMMAND, "device": "cpu", **given}))


def test_without_isaac_lab_the_error_says_what_to_do(tmp_path, monkeypatch):
    forget_isaaclab()
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not p.endswith("doubles")])
    with pytest.raises(isaaclab.IsaacLabError, match="pip install isaaclab"):
        isaaclab.make(scene(tmp_path), 2, behaviour.COMMAND, device="cpu")


def test_a_second_simulation_of_one_process_is_refused(world):
    backend, made = world
    with pytest.raises(isaaclab.IsaacLabError, match="one simulation per process"):
        isaaclab.make(made, 2, behaviour.COMMAND, device="cpu", dt=behaviour.DT)
    behaviour.worlds_are_alike(backend)


def test_frictionloss_is_a_torque(world):
    """Isaac Sim 5 takes joint friction in N m: below it a joint creeps at most (MuJoCo's friction is soft)."""
    backend = behaviour.fresh(world[0])
    loss = torch.zeros(3, len(backend.parameters["frictionloss"].nominal))
    loss[1] = 200.0
    backend.set_params(behaviour.every(backend), {"frictionloss": loss})
    backend.reset(behaviour.every(backend), {})
    before = backend.signals()["joint_pos"].clone()
    backend.step(behaviour.held(backend, 0.3, 0.4, 0.5, 0.03), 50)
    moved = (backend.signals()["joint_pos"] - before).abs().max(1).values
    assert moved[0] > 0.05 and moved[0] > 3 * moved[1]


# ---- the double notices what is wrong


@pytest.fixture
def violation(world):
    return importlib.import_module("isaaclab").Violation


def test_data_is_read_after_update_only(world, violation):
    engine = behaviour.fresh(world[0]).engine
    engine.scene.write_data_to_sim()
    engine.sim.step(render=False)
    robot = engine.entities["stand"]
    with pytest.raises(violation, match=r"without scene.update"):
        _ = robot.data.joint_pos
    engine.scene.update(engine.dt)
    with pytest.raises(violation, match="targets were not written"):
        engine.sim.step(render=False)
    engine.scene.write_data_to_sim()
    with pytest.raises(violation, match="renders"):
        engine.sim.step()


def test_written_states_are_not_seen_before_the_next_step(world, violation):
    backend = behaviour.fresh(world[0])
    backend.step(behaviour.held(backend), 1)
    engine = backend.engine
    engine._write(torch.tensor([0]), backend._states)
    with pytest.raises(violation, match="before the next step"):
        _ = engine.entities["cube.root".replace(".", "_")].data.body_link_pose_w
    backend.step(behaviour.held(backend), 1)


def test_orders_and_types_are_those_of_the_version(world, violation):
    backend = world[0]
    engine, newest = backend.engine, backend.engine.version.xyzw
    cube = engine.entities["cube_root"]
    behaviour.fresh(backend).step(behaviour.held(backend), 1)
    data = cube.data.body_link_pose_w
    assert isinstance(data, torch.Tensor) is not newest
    ids = torch.tensor([0], dtype=torch.int32)
    if newest:
        with pytest.raises(TypeError):
            cube.write_root_link_pose_to_sim_index(torch.zeros(1, 7), ids)  # keywords only
        with pytest.raises(violation, match="not int32"):
            cube.write_root_link_pose_to_sim_index(root_pose=torch.zeros(1, 7), env_ids=ids.long())
        with pytest.raises(violation, match="is called limits"):
            engine.entities["stand"].write_joint_effort_limit_to_sim_index(
                effort=torch.zeros(1, 1), joint_ids=[0], env_ids=ids)
        assert not hasattr(cube, "write_root_link_pose_to_sim")
    else:
        with pytest.raises(violation, match="length 0"):
            cube.write_root_link_pose_to_sim(torch.zeros(1, 7), env_ids=ids)
        with pytest.raises(violation, match="CPU tensors of all envs"):
            cube.root_physx_view.set_masses(torch.ones(1, 1), torch.tensor([0]))
        with pytest.raises(violation, match="in the link's frame"):
            cube.set_external_force_and_torque(torch.zeros(3, 1, 3), torch.zeros(3, 1, 3), body_ids=[0])


def test_settings_and_order_of_start(violation):
    version = importlib.import_module("isaaclab").VERSION
    sim = importlib.import_module("isaaclab.sim")
    with pytest.raises(violation, match="no field 'timestep'"):
        sim.SimulationCfg(timestep=0.1)
    with pytest.raises(violation, match="singleton"):
        sim.SimulationContext(sim.SimulationCfg())
    kept = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "isaaclab"}
    application = list(isaaclab._APP)
    install_isaaclab(version)
    try:
        with pytest.raises(RuntimeError, match="before AppLauncher"):
            importlib.import_module("isaaclab.sim")
    finally:
        forget_isaaclab()
        sys.modules.update(kept)
        isaaclab._APP[:] = application
