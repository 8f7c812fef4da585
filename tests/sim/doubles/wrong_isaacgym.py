"""Breaks each rule of Isaac Gym once, on the double, and prints which were noticed: JSON, rule -> what was raised.

A script, because the rules are about a whole process (isaacgym before torch, one simulation). Run with the folder of
the doubles on PYTHONPATH.
"""

import gc
import json
import sys
import tempfile
from pathlib import Path

INERTIAL = """<inertial><origin xyz="0 0 0" rpy="0 0 0"/><mass value="1"/>
  <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.01" iyz="0" izz="0.01"/></inertial>"""
BOX = '<collision><geometry><box size="0.1 0.1 0.1"/></geometry></collision>'
PENDULUM = f"""<robot name="pendulum"><link name="base">{INERTIAL}</link><link name="rod">{INERTIAL}{BOX}</link>
  <joint name="hinge" type="revolute"><parent link="base"/><child link="rod"/><origin xyz="0 0 1" rpy="0 0 0"/>
  <axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="10" velocity="10"/></joint></robot>"""
CRATE = f'<robot name="crate"><link name="crate">{INERTIAL}{BOX}</link></robot>'
BARE = '<robot name="bare"><link name="bare"/></robot>'

CASES = {}


def case(function):
    """Collect a rule."""
    CASES[function.__name__] = function
    return function


class Table:
    """A prepared simulation: an env with a pendulum and a crate, and one more."""

    def __init__(self, gymapi, gymtorch, torch, gpu=False):
        self.gymapi, self.gymtorch, self.torch = gymapi, gymtorch, torch
        gymapi.SIMS.clear()  # a process of its own for each rule would be true to life, and slow
        self.gym, params = gymapi.acquire_gym(), gymapi.SimParams()
        params.up_axis, params.dt, params.substeps = gymapi.UP_AXIS_Z, 0.01, 1
        params.use_gpu_pipeline = params.physx.use_gpu = gpu
        self.params = params
        self.sim = self.gym.create_sim(0, -1, gymapi.SIM_PHYSX, params)
        self.envs = []

    def options(self, fixed):
        options = self.gymapi.AssetOptions()
        options.fix_base_link = fixed
        return options

    def populate(self, folder):
        gymapi, up = self.gymapi, self.gymapi.Vec3(1, 1, 1)
        assets = [self.gym.load_asset(self.sim, folder, n + ".urdf", self.options(n == "pendulum"))
                  for n in ("pendulum", "crate")]
        for i in range(2):
            env = self.gym.create_env(self.sim, gymapi.Vec3(-1, -1, 0), up, 2)
            for asset, name in zip(assets, ("pendulum", "crate")):
                self.gym.create_actor(env, asset, gymapi.Transform(), name, i, 0)
            self.envs.append(env)
        self.gym.prepare_sim(self.sim)
        return self

    def acquire(self):
        wrap = self.gymtorch.wrap_tensor
        self.root = wrap(self.gym.acquire_actor_root_state_tensor(self.sim))
        self.dof = wrap(self.gym.acquire_dof_state_tensor(self.sim))
        return self

    def step(self):
        self.gym.simulate(self.sim)
        self.gym.fetch_results(self.sim, True)
        return self

    def give(self, tensor):
        return self.gymtorch.unwrap_tensor(tensor)

    def ids(self, *values):
        return self.torch.tensor(values, dtype=self.torch.int32)


@case
def two_sims(t):
    t.gym.create_sim(0, -1, t.gymapi.SIM_PHYSX, t.params)


@case
def misspelt_setting(t):
    t.params.physx.num_iterations = 3


@case
def tensor_before_prepare(t):
    t.gym.acquire_actor_root_state_tensor(t.sim)


@case
def simulate_before_prepare(t):
    t.gym.simulate(t.sim)


@case
def envs_that_touch(t):
    env = t.gym.create_env(t.sim, t.gymapi.Vec3(), t.gymapi.Vec3(1, 1, 1), 1)
    asset = t.gym.load_asset(t.sim, t.folder, "crate.urdf", t.options(False))
    t.gym.create_actor(env, asset, t.gymapi.Transform(), "crate", 5, 0)


@case
def actor_after_prepare(t):
    t.populate(t.folder).gym.create_env(t.sim, t.gymapi.Vec3(), t.gymapi.Vec3(1, 1, 1), 1)


@case
def acquired_twice(t):
    t.populate(t.folder).acquire().acquire()


@case
def refresh_before_simulate(t):
    t.populate(t.folder).acquire().gym.refresh_actor_root_state_tensor(t.sim)


@case
def refresh_without_fetch(t):
    t.populate(t.folder).acquire().gym.simulate(t.sim)
    t.gym.refresh_actor_root_state_tensor(t.sim)


@case
def refresh_after_setter(t):
    t.populate(t.folder).acquire().step()
    full, ids = t.root.clone(), t.ids(1)
    t.gym.set_actor_root_state_tensor_indexed(t.sim, t.give(full), t.give(ids), 1)
    t.gym.refresh_actor_root_state_tensor(t.sim)


@case
def setter_twice(t):
    t.populate(t.folder).acquire().step()
    full, one, two = t.root.clone(), t.ids(1), t.ids(3)
    t.gym.set_actor_root_state_tensor_indexed(t.sim, t.give(full), t.give(one), 1)
    t.gym.set_actor_root_state_tensor_indexed(t.sim, t.give(full), t.give(two), 1)


@case
def int64_indices(t):
    t.populate(t.folder).acquire().step()
    full, ids = t.root.clone(), t.torch.tensor([1])
    t.gym.set_actor_root_state_tensor_indexed(t.sim, t.give(full), t.give(ids), 1)


@case
def env_indices_for_actors(t):
    t.populate(t.folder).acquire().step()
    full, ids = t.root.clone(), t.ids(0, 1)  # envs 0 and 1; actor 0 is a pendulum, whose base is fixed
    t.gym.set_actor_root_state_tensor_indexed(t.sim, t.give(full), t.give(ids), 2)


@case
def wrong_count(t):
    t.populate(t.folder).acquire().step()
    full, ids = t.root.clone(), t.ids(1, 3)
    t.gym.set_actor_root_state_tensor_indexed(t.sim, t.give(full), t.give(ids), 1)


@case
def index_twice(t):
    t.populate(t.folder).acquire().step()
    full, ids = t.root.clone(), t.ids(1, 1)
    t.gym.set_actor_root_state_tensor_indexed(t.sim, t.give(full), t.give(ids), 2)


@case
def dof_state_of_actor_without_dofs(t):
    t.populate(t.folder).acquire().step()
    full, ids = t.dof.clone(), t.ids(1)
    t.gym.set_dof_state_tensor_indexed(t.sim, t.give(full), t.give(ids), 1)


@case
def part_of_a_tensor(t):
    t.populate(t.folder).acquire().step()
    part = t.root[:2].clone()
    t.gym.set_actor_root_state_tensor_indexed(t.sim, t.give(part), t.give(t.ids(1)), 1)


@case
def not_contiguous(t):
    t.populate(t.folder).acquire().step()
    t.give(t.torch.zeros(2, 4).T)


@case
def float64(t):
    t.populate(t.folder).acquire().step()
    t.give(t.torch.zeros(2, dtype=t.torch.float64))


@case
def forgotten_reference(t):
    t.populate(t.folder).acquire().step()
    t.gym.set_dof_position_target_tensor(t.sim, t.give(t.torch.zeros(2)))
    gc.collect()
    t.gym.simulate(t.sim)


@case
def link_without_inertia(t):
    t.gym.load_asset(t.sim, t.folder, "bare.urdf", t.options(False))


@case
def quaternion_wxyz_in_a_pose(t):
    t.gymapi.Quat(1.0, 0.0, 0.0, 1.0)


@case
def dof_forces_without_sensors(t):
    t.populate(t.folder).gym.acquire_dof_force_tensor(t.sim)


@case
def stiff_effort_drive(t):
    t.populate(t.folder)
    properties = t.gym.get_actor_dof_properties(t.envs[0], 0)
    properties["driveMode"], properties["stiffness"] = t.gymapi.DOF_MODE_EFFORT, 1.0
    t.gym.set_actor_dof_properties(t.envs[0], 0, properties)


@case
def gpu_mass(t):
    t = Table(t.gymapi, t.gymtorch, t.torch, gpu=True).populate(t.folder)
    bodies = t.gym.get_actor_rigid_body_properties(t.envs[0], 1)
    t.gym.set_actor_rigid_body_properties(t.envs[0], 1, bodies, False)


def stale(t):
    """Not an error, but a trap: what was set is not in the tensors until the next simulate."""
    t.populate(t.folder).acquire().step()
    t.gym.refresh_actor_root_state_tensor(t.sim)
    full, ids = t.root.clone(), t.ids(1)
    full[1, :3] = t.torch.tensor([0.0, 0.0, 5.0])
    t.gym.set_actor_root_state_tensor_indexed(t.sim, t.give(full), t.give(ids), 1)
    before = float(t.root[1, 2])
    t.step().gym.refresh_actor_root_state_tensor(t.sim)
    return [before, float(t.root[1, 2])]


def main():
    from isaacgym import gymapi  # noqa: I001
    import torch
    from isaacgym import Violation, gymtorch

    folder = tempfile.mkdtemp()
    for name, text in {"pendulum": PENDULUM, "crate": CRATE, "bare": BARE}.items():
        Path(folder, f"{name}.urdf").write_text(text)
    out = {}
    for name, function in CASES.items():
        table = Table(gymapi, gymtorch, torch)
        table.folder = folder
        try:
            function(table)
            out[name] = "not noticed"
        except (Violation, ValueError) as error:
            out[name] = f"{type(error).__name__}: {error}"
    table = Table(gymapi, gymtorch, torch)
    table.folder = folder
    out["stale"] = stale(table)
    del sys.modules["isaacgym"]  # as a program that has torch and only then imports isaacgym
    try:
        import isaacgym  # noqa: F401

        out["torch_before_isaacgym"] = "not noticed"
    except ImportError as error:
        out["torch_before_isaacgym"] = f"Violation: {error}"
    print(json.dumps(out))


if __name__ == "__main__":
    main()
