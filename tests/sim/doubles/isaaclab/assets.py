"""Double of isaaclab.assets."""

import re

import double_physics
import numpy as np
import torch
from isaaclab import VERSION, Cfg, Violation, started

started("isaaclab.assets")
XYZW = VERSION == "3.0"


class Proxy:
    """What data is in 3.0: not a tensor; ``.torch`` and ``.warp`` are views."""

    def __init__(self, tensor):
        self._tensor = tensor

    @property
    def torch(self):
        return self._tensor

    @property
    def warp(self):
        import warp

        return warp.from_torch(self._tensor)


def given(tensor):
    """Data as the version gives it."""
    return Proxy(tensor) if XYZW else tensor


def quat_in(values):
    """wxyz of the version's order; not of unit length is refused."""
    if abs(np.linalg.norm(values) - 1) > 1e-3:
        raise Violation(f"a quaternion of length {np.linalg.norm(values):g}")
    return np.asarray([values[3], *values[:3]] if XYZW else values, float)


class AssetBaseCfg(Cfg):
    class InitialStateCfg(Cfg):
        pos, rot = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0) if XYZW else (1.0, 0.0, 0.0, 0.0)

    prim_path = spawn = None
    init_state = InitialStateCfg()


class RigidObjectCfg(AssetBaseCfg):
    class InitialStateCfg(AssetBaseCfg.InitialStateCfg):
        lin_vel = ang_vel = (0.0, 0.0, 0.0)


class ArticulationCfg(AssetBaseCfg):
    class InitialStateCfg(RigidObjectCfg.InitialStateCfg):
        joint_pos, joint_vel = None, None

    actuators, soft_joint_pos_limit_factor = None, 1.0


class View:
    """PhysX's tensor view of an asset."""

    def __init__(self, asset):
        self.asset, n = asset, len(asset.links)
        count = asset.scene.count
        self.single = isinstance(asset, RigidObject)
        self.masses, self.inertias = torch.ones(count, n), torch.zeros(count, n, 9)
        self.coms = torch.zeros(count, n, 7)
        self.materials = torch.zeros(count, sum(asset.described.shapes[x] for x in asset.links), 3)

    def _out(self, tensor):
        if XYZW:
            import warp

            return warp.from_torch(tensor.contiguous())
        return tensor

    def get_masses(self):
        return self._out(self.masses)

    def get_inertias(self):
        return self._out(self.inertias[:, 0] if self.single else self.inertias)

    def get_coms(self):
        return self._out(self.coms[:, 0] if self.single else self.coms)

    def get_material_properties(self):
        return self._out(self.materials)

    def _take(self, mine, value, indices):
        if XYZW:
            import warp

            if isinstance(value, torch.Tensor) or isinstance(indices, torch.Tensor):
                raise Violation("views of 3.0 take warp arrays")
            value, indices = warp.to_torch(value), warp.to_torch(indices)
        if value.device.type != "cpu" or len(indices) != len(mine) or value.numel() != mine.numel():
            raise Violation("views take CPU tensors of all envs")
        mine[:] = value.reshape(mine.shape)

    def set_masses(self, value, indices):
        self._take(self.masses, value, indices)

    def set_coms(self, value, indices):
        self._take(self.coms, value, indices)
        if not torch.allclose(self.coms[..., 3:], torch.tensor([0.0, 0, 0, 1])):
            raise Violation("centres of mass with axes other than the link's (xyzw)")

    def set_inertias(self, value, indices):
        self._take(self.inertias, value, indices)
        self.asset.apply_masses(self.masses, self.coms, self.inertias)

    def set_material_properties(self, value, indices):
        self._take(self.materials, value, indices)
        for env, rows in zip(self.asset.scene.envs, self.materials):
            first = 0
            for link in self.asset.links:
                for i in range(self.asset.described.shapes[link]):
                    env.model.geom_friction[env.geom(self.asset.name, link, i), 0] = float(rows[first + i, 0])
                first += self.asset.described.shapes[link]


class Asset:
    """Articulations and rigid objects."""

    def __init__(self, scene, cfg):
        self.scene, self.cfg, self.device = scene, cfg, "cpu"
        self.name = cfg.prim_path.rpartition("/")[2]
        if cfg.spawn.merge_fixed_joints or not cfg.spawn.force_usd_conversion:
            raise Violation(f"{self.name}: links behind fixed joints are merged away, or an older conversion is taken")
        self.described = double_physics.describe(cfg.spawn.asset_path)
        self.links, self.dofs = self.described.links, self.described.dofs
        self.data, self.view = Data(self), None
        self.wrench = np.zeros((scene.count, 6))

    def spec(self, number):
        spawn, state = self.cfg.spawn, self.cfg.init_state
        fixed = bool(spawn.fix_base or spawn.rigid_props.kinematic_enabled)
        apart = not spawn.articulation_props.enabled_self_collisions
        bits = dict.fromkeys(self.links, 1 << number) if apart else {}
        return double_physics.ActorSpec(self.name, spawn.asset_path, fixed, not spawn.rigid_props.disable_gravity,
                                        state.pos, tuple(quat_in(state.rot)), bits)

    def start(self):
        self.view = View(self)

    def push(self):
        pass

    def applied(self, world):
        return {(self.name, self.links[0]): self.wrench[world]} if self.wrench[world].any() else {}

    def read(self):
        rows = [[env.link(self.name, x, at_com=False) for x in self.links] for env in self.scene.envs]
        self.link = torch.tensor(np.array(rows), dtype=torch.float32)
        self.link[..., :3] += self.scene.env_origins[:, None]

    def apply_masses(self, masses, coms, inertias):
        for w, env in enumerate(self.scene.envs):
            for i, link in enumerate(self.links):
                env.set_mass(self.name, link, float(masses[w, i]), coms[w, i, :3].numpy().astype(float),
                             inertias[w, i].reshape(3, 3).numpy().astype(float))

    def _worlds(self, env_ids, value, width):
        if not isinstance(env_ids, torch.Tensor) or env_ids.dtype not in (torch.int32, torch.int64):
            raise Violation(f"env_ids are {env_ids!r}, not an int tensor")
        if tuple(value.shape) != (len(env_ids), width) or value.dtype != torch.float32:
            raise Violation(f"a {value.dtype} tensor of shape {tuple(value.shape)} for {(len(env_ids), width)}")
        return env_ids.tolist()

    def _pose(self, pose, env_ids):
        for w, row in zip(self._worlds(env_ids, pose, 7), pose.numpy()):
            env = self.scene.envs[w]
            state = env.link(self.name, self.links[0], at_com=False)
            state[:3], state[3:7] = row[:3] - self.scene.env_origins[w].numpy(), quat_in(row[3:])
            env.set_root(self.name, state, at_com=False)
        self.scene.written = True

    def _velocity(self, velocity, env_ids):
        for w, row in zip(self._worlds(env_ids, velocity, 6), velocity.numpy()):
            env = self.scene.envs[w]
            env.refresh()
            state = env.link(self.name, self.links[0], at_com=False)
            state[7:] = row
            env.set_root(self.name, state, at_com=False)
        self.scene.written = True

    def _set_wrench(self, forces, torques, body_ids, is_global):
        if not is_global:
            raise Violation("a wrench in the link's frame, though it is meant in the world's")
        if body_ids != [0] or forces.shape != (self.scene.count, 1, 3) or torques.shape != forces.shape:
            raise Violation(f"a wrench of shape {tuple(forces.shape)} on bodies {body_ids}")
        self.wrench = torch.cat((forces, torques), -1)[:, 0].double().numpy()


class Data:
    """``asset.data``."""

    def __init__(self, asset):
        self.asset = asset

    def _get(self, what, tensor):
        self.asset.scene.check(what)
        return given(tensor())

    @property
    def body_link_pose_w(self):
        order = [0, 1, 2, 4, 5, 6, 3] if XYZW else [0, 1, 2, 3, 4, 5, 6]
        return self._get("body_link_pose_w", lambda: self.asset.link[..., order])

    @property
    def body_link_vel_w(self):
        return self._get("body_link_vel_w", lambda: self.asset.link[..., 7:])

    @property
    def joint_pos(self):
        return self._get("joint_pos", lambda: self.asset.joint[..., 0])

    @property
    def joint_vel(self):
        return self._get("joint_vel", lambda: self.asset.joint[..., 1])


class RigidObject(Asset):
    def __init__(self, scene, cfg):
        super().__init__(scene, cfg)
        if cfg.spawn.articulation_props.articulation_enabled is not False:
            raise Violation(f"{self.name}: a rigid object with an articulation root; disable it when spawning")
        if len(self.links) > 1:
            raise Violation(f"{self.name}: a rigid object of {len(self.links)} bodies")

    @property
    def body_names(self):
        return list(self.links)


class Articulation(Asset):
    def __init__(self, scene, cfg):
        super().__init__(scene, cfg)
        n = scene.count
        self.position, self.effort = torch.zeros(n, len(self.dofs)), torch.zeros(n, len(self.dofs))
        self.values = {}

    @property
    def body_names(self):
        return list(self.links)

    @property
    def joint_names(self):
        return list(self.dofs)

    def start(self):
        super().start()
        n, drive = self.scene.count, self.cfg.actuators["drives"]
        fields = {"stiffness": drive.stiffness, "damping": drive.damping, "effort": drive.effort_limit_sim,
                  "velocity": drive.velocity_limit_sim, "armature": drive.armature, "friction": drive.friction}
        known = [x for x in self.dofs if any(re.fullmatch(e, x) for e in drive.joint_names_expr)]
        if known != self.dofs:
            raise Violation(f"joints without an actuator: {sorted(set(self.dofs) - set(known))}")
        self.values = {k: torch.tensor([[v[x] for x in self.dofs]] * n) for k, v in fields.items()}
        self.apply_drives()
        for x, value in self.cfg.init_state.joint_pos.items():
            low, high = self.described.limits[x][:2]
            if (low, high) != (0.0, 0.0) and not low <= value <= high:
                raise ValueError(f"default joint position of {x} is outside its limits")
            for env in self.scene.envs:
                env.set_dof(self.name, x, value, 0.0)
                env.refresh()

    def apply_drives(self):
        for w, env in enumerate(self.scene.envs):
            for i, x in enumerate(self.dofs):
                env.set_drive(self.name, x, **{k: float(v[w, i]) for k, v in self.values.items() if k != "dynamic"})

    def push(self):
        for w, env in enumerate(self.scene.envs):
            for i, x in enumerate(self.dofs):
                env.drive(self.name, x, float(self.position[w, i]), float(self.effort[w, i]))

    def read(self):
        super().read()
        rows = [[env.dof(self.name, x) for x in self.dofs] for env in self.scene.envs]
        self.joint = torch.tensor(np.array(rows), dtype=torch.float32)

    def _joints(self, position, velocity, joint_ids, env_ids):
        for value in (position, velocity):
            if value is not None:
                worlds = self._worlds(env_ids, value, len(joint_ids))
        for k, w in enumerate(worlds):
            for j, i in enumerate(joint_ids):
                env = self.scene.envs[w]
                pos, vel = env.dof(self.name, self.dofs[i])
                env.set_dof(self.name, self.dofs[i], pos if position is None else float(position[k, j]),
                            vel if velocity is None else float(velocity[k, j]))
        self.scene.written = True

    def _drive(self, what, value, joint_ids, env_ids):
        worlds = self._worlds(env_ids, value, len(joint_ids))
        if what not in self.values:
            self.values[what] = self.values["friction"].clone()
        for k, w in enumerate(worlds):
            self.values[what][w, joint_ids] = value[k]
        self.apply_drives()

    def _target(self, mine, value, joint_ids):
        if value.shape != (self.scene.count, len(joint_ids)):
            raise Violation(f"targets of shape {tuple(value.shape)}")
        mine[:, joint_ids] = value
        self.scene.pushed = False


def _methods_23():
    """The writers of 2.3."""
    def joint_state(self, position, velocity, joint_ids=None, env_ids=None):
        self._joints(position, velocity, joint_ids, env_ids)

    def friction(self, joint_friction_coeff, joint_dynamic_friction_coeff=None, joint_viscous_friction_coeff=None,
                 joint_ids=None, env_ids=None):
        self._drive("friction", joint_friction_coeff, joint_ids, env_ids)

    for name, what in {"stiffness": "stiffness", "damping": "damping", "effort_limit": "effort", "armature": "armature",
                       "velocity_limit": "velocity"}.items():
        def write(self, value, joint_ids=None, env_ids=None, what=what):
            self._drive(what, value, joint_ids, env_ids)

        setattr(Articulation, f"write_joint_{name}_to_sim", write)
    Articulation.write_joint_state_to_sim = joint_state
    Articulation.write_joint_friction_coefficient_to_sim = friction
    Articulation.set_joint_position_target = lambda self, target, joint_ids=None, env_ids=None: self._target(
        self.position, target, joint_ids)
    Articulation.set_joint_effort_target = lambda self, target, joint_ids=None, env_ids=None: self._target(
        self.effort, target, joint_ids)
    Asset.write_root_link_pose_to_sim = lambda self, root_pose, env_ids=None: self._pose(root_pose, env_ids)
    Asset.write_root_link_velocity_to_sim = lambda self, root_velocity, env_ids=None: self._velocity(
        root_velocity, env_ids)
    Asset.set_external_force_and_torque = (
        lambda self, forces, torques, positions=None, body_ids=None, env_ids=None, is_global=False: self._set_wrench(
            forces, torques, body_ids, is_global))
    Asset.root_physx_view = property(lambda self: self.view)


def _methods_30():
    """The writers of 3.0: keyword arguments only, int32 env_ids."""
    def ids(env_ids):
        if env_ids.dtype != torch.int32:
            raise Violation(f"env_ids are {env_ids.dtype}, not int32")
        return env_ids

    def drive(what, keyword):
        def write(self, *, joint_ids=None, env_ids=None, **value):
            if set(value) != {keyword}:
                raise Violation(f"{what}: the argument is called {keyword}, not {sorted(value)}")
            self._drive(what, value[keyword], joint_ids, ids(env_ids))

        return write

    names = {"stiffness": ("stiffness", "stiffness"), "damping": ("damping", "damping"),
             "effort_limit": ("effort", "limits"), "velocity_limit": ("velocity", "limits"),
             "armature": ("armature", "armature"), "friction_coefficient": ("friction", "joint_friction_coeff"),
             "dynamic_friction_coefficient": ("dynamic", "joint_dynamic_friction_coeff")}
    for name, (what, keyword) in names.items():
        setattr(Articulation, f"write_joint_{name}_to_sim_index", drive(what, keyword))

    def position(self, *, position, joint_ids=None, env_ids=None):
        self._joints(position, None, joint_ids, ids(env_ids))

    def velocity(self, *, velocity, joint_ids=None, env_ids=None):
        self._joints(None, velocity, joint_ids, ids(env_ids))

    def target(attribute):
        return lambda self, *, target, joint_ids=None, env_ids=None: self._target(
            getattr(self, attribute), target, joint_ids)

    Articulation.write_joint_position_to_sim_index = position
    Articulation.write_joint_velocity_to_sim_index = velocity
    Articulation.set_joint_position_target_index = target("position")
    Articulation.set_joint_effort_target_index = target("effort")

    def pose(self, *, root_pose, env_ids=None):
        self._pose(root_pose, ids(env_ids))

    def root_velocity(self, *, root_velocity, env_ids=None):
        self._velocity(root_velocity, ids(env_ids))

    def all_of(name):
        def write(self, *, body_ids=None, env_ids=None, **value):
            mine = getattr(self.view, name)
            if len(ids(env_ids)) != len(mine) or set(value) != {name}:
                raise Violation(f"set_{name}_index: {sorted(value)} of {len(env_ids)} envs")
            mine[:, body_ids] = value[name].reshape(len(mine), len(body_ids), *mine.shape[2:])
            if name == "inertias":
                self.apply_masses(self.view.masses, self.view.coms, self.view.inertias)

        return write

    class Composer:
        def __init__(self, asset):
            self.asset = asset

        def set_forces_and_torques_index(self, *, forces, torques, positions=None, body_ids=None, env_ids=None,
                                         is_global=False):
            self.asset._set_wrench(forces, torques, body_ids, is_global)

    Asset.write_root_link_pose_to_sim_index, Asset.write_root_link_velocity_to_sim_index = pose, root_velocity
    for name in ("masses", "coms", "inertias"):
        setattr(Asset, f"set_{name}_index", all_of(name))
    Asset.permanent_wrench_composer = property(Composer)
    Asset.root_view = property(lambda self: self.view)


_methods_30() if XYZW else _methods_23()
