"""Double of isaacgym.gymapi. Enforced, with a Violation each:

- one sim per process; assets and actors before prepare_sim, tensors after it, each acquired once
- refresh only after simulate (and on the CPU pipeline after fetch_results), and before setters
- each setter at most once between two simulates; tensors contiguous, of full size, float32; indices int32, of actors in
  DOMAIN_SIM, each once; root states of floating actors only, dof states of actors with dofs only
- what setters were given is alive at the next simulate
- targets act only on joints with the matching drive mode
- masses do not change on the GPU pipeline
"""

import os
import time
from enum import IntEnum

import double_physics
import numpy as np
from isaacgym import Violation, settings

SIM_PHYSX, UP_AXIS_Z = 1, 1
DOMAIN_ENV, DOMAIN_SIM = 1, 2
ENV_SPACE, LOCAL_SPACE, GLOBAL_SPACE = 0, 1, 2
DOF_MODE_NONE, DOF_MODE_POS, DOF_MODE_VEL, DOF_MODE_EFFORT = 0, 1, 2, 3
SIMS = []


class ContactCollection(IntEnum):
    CC_NEVER, CC_LAST_SUBSTEP, CC_ALL_SUBSTEPS = 0, 1, 2


class Strict:
    """Settings without others than the declared ones: a misspelt one is an error, not a silence."""

    fields = {}

    def __init__(self):
        self.__dict__.update({k: v() if callable(v) else v for k, v in self.fields.items()})

    def __setattr__(self, name, value):
        if name not in self.fields:
            raise Violation(f"{type(self).__name__} has no attribute {name!r}")
        self.__dict__[name] = value


class Vec3:
    def __init__(self, x=0.0, y=0.0, z=0.0):
        self.x, self.y, self.z = float(x), float(y), float(z)


class Quat:
    def __init__(self, x=0.0, y=0.0, z=0.0, w=1.0):
        self.x, self.y, self.z, self.w = float(x), float(y), float(z), float(w)
        if abs(self.x**2 + self.y**2 + self.z**2 + self.w**2 - 1) > 1e-3:
            raise Violation("a quaternion that is not of unit length")


class Mat33:
    def __init__(self):
        self.x, self.y, self.z = Vec3(), Vec3(), Vec3()


class Transform(Strict):
    fields = {"p": Vec3, "r": Quat}


class PhysXParams(Strict):
    fields = {"num_threads": 0, "solver_type": 1, "use_gpu": False, "num_position_iterations": 4,
              "num_velocity_iterations": 1, "contact_offset": 0.02, "rest_offset": 0.001,
              "bounce_threshold_velocity": 0.2, "max_depenetration_velocity": 100.0,
              "default_buffer_size_multiplier": 2.0, "max_gpu_contact_pairs": 1 << 20, "num_subscenes": 0,
              "contact_collection": ContactCollection.CC_ALL_SUBSTEPS}


class SimParams(Strict):
    fields = {"dt": 1 / 60, "substeps": 2, "num_client_threads": 0, "use_gpu_pipeline": False, "up_axis": 0,
              "gravity": Vec3, "physx": PhysXParams}


class PlaneParams(Strict):
    fields = {"normal": Vec3, "distance": 0.0, "static_friction": 1.0, "dynamic_friction": 1.0, "restitution": 0.0,
              "segmentation_id": 0}


class AssetOptions(Strict):
    fields = {"fix_base_link": False, "collapse_fixed_joints": False, "disable_gravity": False,
              "default_dof_drive_mode": DOF_MODE_NONE, "flip_visual_attachments": False, "thickness": 0.02,
              "armature": 0.0, "angular_damping": 0.5, "linear_damping": 0.0, "max_angular_velocity": 64.0,
              "max_linear_velocity": 1000.0, "override_com": False, "override_inertia": False, "density": 1000.0,
              "replace_cylinder_with_capsule": False, "use_mesh_materials": False, "vhacd_enabled": False}


class RigidShapeProperties(Strict):
    fields = {"friction": 1.0, "rolling_friction": 0.0, "torsion_friction": 0.0, "restitution": 0.0, "compliance": 0.0,
              "thickness": 0.0, "filter": 0}


class RigidBodyProperties(Strict):
    fields = {"mass": 1.0, "com": Vec3, "inertia": Mat33, "flags": 0}


class IndexRange:
    def __init__(self, start, count):
        self.start, self.count = start, count


DOF_PROPERTIES = np.dtype([("hasLimits", "?"), ("lower", "f4"), ("upper", "f4"), ("driveMode", "i4"),
                           ("velocity", "f4"), ("effort", "f4"), ("stiffness", "f4"), ("damping", "f4"),
                           ("friction", "f4"), ("armature", "f4")])


class Asset:
    def __init__(self, path, options):
        self.path, self.options = path, options
        self.described = double_physics.describe(path)
        counts = [self.described.shapes[n] for n in self.described.links]
        self.ranges = [IndexRange(sum(counts[:i]), c) for i, c in enumerate(counts)]
        self.shapes = [RigidShapeProperties() for _ in range(sum(counts))]


class Buffer:
    """A tensor of the simulation: numpy memory, views of which live as long as the sim."""

    def __init__(self, *shape):
        self.array = np.zeros(shape, np.float32)


class Actor:
    def __init__(self, env, asset, pose, name, index):
        self.env, self.asset, self.pose, self.name, self.index = env, asset, pose, name, index
        self.fixed, self.described = asset.options.fix_base_link, asset.described
        self.dofs = np.zeros(len(self.described.dofs), DOF_PROPERTIES)
        for i, n in enumerate(self.described.dofs):
            self.dofs[i]["lower"], self.dofs[i]["upper"], self.dofs[i]["effort"], self.dofs[i]["velocity"] = (
                self.described.limits[n])
        self.shapes = [copy(s) for s in asset.shapes]
        self.first_body = self.first_dof = 0
        self.forces = False


def copy(properties):
    out = type(properties)()
    out.__dict__.update(properties.__dict__)
    return out


class EnvHandle:
    def __init__(self, sim, origin):
        self.sim, self.origin, self.actors, self.physics = sim, origin, [], None


class Sim:
    def __init__(self, params):
        self.params, self.gpu = params, params.use_gpu_pipeline
        self.envs, self.actors, self.floor = [], [], None
        self.ready = self.simulated = self.fetched = False
        self.written, self.given, self.buffers = set(), [], {}
        self.applied, self.count = None, 0


def acquire_gym():
    return Gym()


class Gym:
    """The functions; ``sim``, ``env`` and ``actor`` handles as in the real one."""

    def create_sim(self, compute_device, graphics_device, kind, params):
        if SIMS:
            raise Violation("one sim per process: a second create_sim")
        if kind != SIM_PHYSX or params.substeps < 1 or params.up_axis != UP_AXIS_Z:
            raise Violation("create_sim: PhysX, at least one substep and z up are expected")
        if params.use_gpu_pipeline != params.physx.use_gpu:
            raise Violation("use_gpu_pipeline needs physx.use_gpu")
        SIMS.append(Sim(params))
        return SIMS[0]

    def destroy_sim(self, sim):
        sim.ready = False

    # ---- building

    def _building(self, sim):
        if sim.ready:
            raise Violation("assets and actors are made before prepare_sim")

    def add_ground(self, sim, plane):
        self._building(sim)
        if (plane.normal.x, plane.normal.y, plane.normal.z) != (0.0, 0.0, 1.0):
            raise Violation("add_ground: the default normal is not z up")
        sim.floor = plane.static_friction

    def load_asset(self, sim, root, file, options):
        self._building(sim)
        return Asset(os.path.join(root, file), options)

    def get_asset_rigid_body_names(self, asset):
        return list(asset.described.links)

    def get_asset_dof_names(self, asset):
        return list(asset.described.dofs)

    def get_asset_rigid_shape_properties(self, asset):
        return [copy(s) for s in asset.shapes]

    def set_asset_rigid_shape_properties(self, asset, shapes):
        if len(shapes) != len(asset.shapes):
            raise Violation("set_asset_rigid_shape_properties: another number of shapes")
        asset.shapes = [copy(s) for s in shapes]

    def get_asset_rigid_body_shape_indices(self, asset):
        return list(asset.ranges)

    def create_env(self, sim, lower, upper, per_row):
        self._building(sim)
        i = len(sim.envs)
        origin = Vec3((i % per_row) * (upper.x - lower.x), (i // per_row) * (upper.y - lower.y), 0.0)
        sim.envs.append(EnvHandle(sim, origin))
        return sim.envs[-1]

    def get_env_origin(self, env):
        return env.origin

    def create_actor(self, env, asset, pose, name, group, filter_, segmentation=0):
        self._building(env.sim)
        if group != env.sim.envs.index(env):
            raise Violation(f"create_actor: collision group {group} in env {env.sim.envs.index(env)}: envs would touch")
        actor = Actor(env, asset, pose, name, len(env.sim.actors))
        env.sim.actors.append(actor)
        env.actors.append(actor)
        return len(env.actors) - 1

    def enable_actor_dof_force_sensors(self, env, handle):
        self._building(env.sim)
        env.actors[handle].forces = True
        return True

    def prepare_sim(self, sim):
        self._building(sim)
        bodies = dofs = 0
        for env in sim.envs:
            specs = [self._spec(a) for a in env.actors]
            g = sim.params.gravity
            env.physics = double_physics.Env(specs, sim.params.dt, [g.x, g.y, g.z], sim.floor)
            for actor in env.actors:
                actor.first_body, actor.first_dof = bodies, dofs
                bodies, dofs = bodies + len(actor.described.links), dofs + len(actor.described.dofs)
                self._apply_dofs(actor)
                self._apply_shapes(actor)
        sim.bodies, sim.dofs, sim.ready = bodies, dofs, True
        sim.target, sim.effort = np.zeros(dofs, np.float32), np.zeros(dofs, np.float32)
        return True

    def _spec(self, actor):
        pose, names = actor.pose, actor.described.links
        bits = {n: actor.shapes[r.start].filter if r.count else 0 for n, r in zip(names, actor.asset.ranges)}
        return double_physics.ActorSpec(
            actor.name, actor.asset.path, actor.fixed, not actor.asset.options.disable_gravity,
            (pose.p.x, pose.p.y, pose.p.z), (pose.r.w, pose.r.x, pose.r.y, pose.r.z), bits)

    # ---- names

    def get_actor_index(self, env, handle, domain):
        return env.actors[handle].index if domain == DOMAIN_SIM else handle

    def find_actor_rigid_body_index(self, env, handle, name, domain):
        actor = env.actors[handle]
        base = actor.first_body if domain == DOMAIN_SIM else actor.first_body - env.actors[0].first_body
        return base + actor.described.links.index(name)

    def find_actor_dof_index(self, env, handle, name, domain):
        actor = env.actors[handle]
        base = actor.first_dof if domain == DOMAIN_SIM else actor.first_dof - env.actors[0].first_dof
        return base + actor.described.dofs.index(name)

    def get_actor_dof_names(self, env, handle):
        return list(env.actors[handle].described.dofs)

    def get_actor_rigid_body_names(self, env, handle):
        return list(env.actors[handle].described.links)

    def get_sim_rigid_body_count(self, sim):
        return sim.bodies

    def get_sim_dof_count(self, sim):
        return sim.dofs

    # ---- properties

    def get_actor_dof_properties(self, env, handle):
        return env.actors[handle].dofs.copy()

    def set_actor_dof_properties(self, env, handle, properties):
        env.actors[handle].dofs = properties.copy()
        if env.physics is not None:
            self._apply_dofs(env.actors[handle])
        return True

    def _apply_dofs(self, actor):
        for name, p in zip(actor.described.dofs, actor.dofs):
            servo = p["driveMode"] == DOF_MODE_POS
            if p["driveMode"] == DOF_MODE_EFFORT and p["stiffness"]:
                raise Violation("an effort drive with stiffness pulls to zero")
            actor.env.physics.set_drive(actor.name, name, p["stiffness"] if servo else 0.0, p["damping"], p["effort"],
                                        p["velocity"], p["armature"], p["friction"])

    def get_actor_rigid_shape_properties(self, env, handle):
        return [copy(s) for s in env.actors[handle].shapes]

    def set_actor_rigid_shape_properties(self, env, handle, shapes):
        env.actors[handle].shapes = [copy(s) for s in shapes]
        if env.physics is not None:
            self._apply_shapes(env.actors[handle])
        return True

    def _apply_shapes(self, actor):
        for name, r in zip(actor.described.links, actor.asset.ranges):
            for i in range(r.count):
                geom = actor.env.physics.geom(actor.name, name, i)
                actor.env.physics.model.geom_friction[geom, 0] = actor.shapes[r.start + i].friction

    def get_actor_rigid_body_properties(self, env, handle):
        return [RigidBodyProperties() for _ in env.actors[handle].described.links]

    def set_actor_rigid_body_properties(self, env, handle, bodies, recompute_inertia=False):
        if env.sim.gpu and env.sim.ready:
            raise Violation("masses cannot change at run time on the GPU pipeline")
        actor = env.actors[handle]
        rows = lambda m: [[v.x, v.y, v.z] for v in (m.x, m.y, m.z)]  # noqa: E731
        for name, b in zip(actor.described.links, bodies):
            env.physics.set_mass(actor.name, name, b.mass, (b.com.x, b.com.y, b.com.z), np.array(rows(b.inertia)))
        return True

    # ---- tensors

    def _acquire(self, sim, name, *shape):
        if not sim.ready:
            raise Violation(f"acquire {name}: before prepare_sim")
        if name in sim.buffers:
            raise Violation(f"acquire {name}: acquired twice")
        sim.buffers[name] = Buffer(*shape)
        return sim.buffers[name]

    def acquire_actor_root_state_tensor(self, sim):
        return self._acquire(sim, "root", len(sim.actors), 13)

    def acquire_rigid_body_state_tensor(self, sim):
        return self._acquire(sim, "body", sim.bodies if sim.ready else 0, 13)

    def acquire_dof_state_tensor(self, sim):
        return self._acquire(sim, "dof", sim.dofs, 2)

    def acquire_dof_force_tensor(self, sim):
        if not all(a.forces for a in sim.actors if len(a.dofs)):
            raise Violation("acquire_dof_force_tensor: dof force sensors are not enabled")
        return self._acquire(sim, "dof_force", sim.dofs)

    def acquire_net_contact_force_tensor(self, sim):
        if sim.params.physx.contact_collection == ContactCollection.CC_NEVER:
            raise Violation("contacts are not collected")
        return self._acquire(sim, "contact", sim.bodies, 3)

    def _refresh(self, sim, name):
        if name not in sim.buffers:
            raise Violation(f"refresh {name}: not acquired")
        if not sim.simulated:
            raise Violation(f"refresh {name}: no simulate yet")
        if not sim.gpu and not sim.fetched:
            raise Violation(f"refresh {name}: on the CPU pipeline, fetch_results comes first")
        if sim.written:
            raise Violation(f"refresh {name}: after setters ({', '.join(sorted(sim.written))}), before simulate")
        return sim.buffers[name].array

    def _row(self, env, state):
        origin = env.origin if settings().get("world_frame") else Vec3()
        pos = state[:3] + [origin.x, origin.y, origin.z]
        return np.concatenate((pos, state[4:7], state[3:4], state[7:]))  # xyzw

    def refresh_actor_root_state_tensor(self, sim):
        out = self._refresh(sim, "root")
        for a in sim.actors:
            out[a.index] = self._row(a.env, a.env.physics.root(a.name))
        return True

    def refresh_rigid_body_state_tensor(self, sim):
        out = self._refresh(sim, "body")
        for a in sim.actors:
            for i, name in enumerate(a.described.links):
                out[a.first_body + i] = self._row(a.env, a.env.physics.link(a.name, name))
        return True

    def refresh_dof_state_tensor(self, sim):
        out = self._refresh(sim, "dof")
        for a in sim.actors:
            for i, name in enumerate(a.described.dofs):
                out[a.first_dof + i] = a.env.physics.dof(a.name, name)
        return True

    def refresh_dof_force_tensor(self, sim):
        out = self._refresh(sim, "dof_force")
        for a in sim.actors:
            for i, name in enumerate(a.described.dofs):
                out[a.first_dof + i] = a.env.physics.dof_force(a.name, name)
        return True

    def refresh_net_contact_force_tensor(self, sim):
        out = self._refresh(sim, "contact")
        for a in sim.actors:
            for i, name in enumerate(a.described.links):
                out[a.first_body + i] = a.env.physics.touch[a.env.physics.body(a.name, name)]
        return True

    # ---- setters

    def _set(self, sim, name, *handles):
        if not sim.ready:
            raise Violation(f"{name}: before prepare_sim")
        if name in sim.written:
            raise Violation(f"{name}: twice between two simulates; on the GPU pipeline the first is lost")
        sim.written.add(name)
        sim.given += [h for h in handles if h is not None]

    @staticmethod
    def _full(name, handle, *shape):
        import torch

        if handle.dtype != torch.float32:
            raise Violation(f"{name}: {handle.dtype}, not float32")
        if np.prod(handle.shape) != np.prod(shape):
            raise Violation(f"{name}: the tensor has shape {handle.shape}; it must be the full {shape}")
        return handle.array().reshape(shape)

    def _actors(self, sim, name, handle, count):
        import torch

        if handle.dtype != torch.int32:
            raise Violation(f"{name}: actor indices are {handle.dtype}, not int32")
        rows = handle.array()
        if rows.shape != (count,) or len(set(rows.tolist())) != count:
            raise Violation(f"{name}: {count} different actor indices, got {rows}")
        if count and not 0 <= rows.min() <= rows.max() < len(sim.actors):
            raise Violation(f"{name}: indices {rows} are not of actors in DOMAIN_SIM")
        return [sim.actors[i] for i in rows]

    def set_actor_root_state_tensor_indexed(self, sim, handle, indices, count):
        name = "set_actor_root_state_tensor"
        self._set(sim, name, handle, indices)
        full = self._full(name, handle, len(sim.actors), 13)
        for actor in self._actors(sim, name, indices, count):
            if actor.fixed:
                raise Violation(f"{name}: {actor.name} has a fixed base")
            state = full[actor.index].astype(float)
            if settings().get("world_frame"):
                state[:3] -= [actor.env.origin.x, actor.env.origin.y, actor.env.origin.z]
            actor.env.physics.set_root(actor.name, np.concatenate((state[:3], state[6:7], state[3:6], state[7:])))
        return True

    def set_dof_state_tensor_indexed(self, sim, handle, indices, count):
        name = "set_dof_state_tensor"
        self._set(sim, name, handle, indices)
        full = self._full(name, handle, sim.dofs, 2)
        for actor in self._actors(sim, name, indices, count):
            if not len(actor.dofs):
                raise Violation(f"{name}: {actor.name} has no dofs")
            for i, n in enumerate(actor.described.dofs):
                actor.env.physics.set_dof(actor.name, n, *full[actor.first_dof + i])
        return True

    def set_dof_position_target_tensor(self, sim, handle):
        self._set(sim, "set_dof_position_target_tensor", handle)
        sim.target[:] = self._full("set_dof_position_target_tensor", handle, sim.dofs)
        return True

    def set_dof_actuation_force_tensor(self, sim, handle):
        self._set(sim, "set_dof_actuation_force_tensor", handle)
        sim.effort[:] = self._full("set_dof_actuation_force_tensor", handle, sim.dofs)
        return True

    def apply_rigid_body_force_tensors(self, sim, forces, torques, space):
        name = "apply_rigid_body_force_tensors"
        self._set(sim, name, forces, torques)
        if space != ENV_SPACE:
            raise Violation(f"{name}: this double knows ENV_SPACE only")
        zero = np.zeros((sim.bodies, 3))
        both = [zero if h is None else self._full(name, h, sim.bodies, 3) for h in (forces, torques)]
        sim.applied = np.concatenate(both, 1)
        return True

    # ---- time

    def simulate(self, sim):
        if not sim.ready:
            raise Violation("simulate: before prepare_sim")
        for handle in sim.given:
            handle.array()
        sim.count += 1
        self._misbehave(sim)
        for env in sim.envs:
            wrenches = {}
            for a in env.actors:
                for i, name in enumerate(a.described.dofs):
                    servo = a.dofs[i]["driveMode"] == DOF_MODE_POS
                    env.physics.drive(a.name, name, sim.target[a.first_dof + i] if servo else 0.0,
                                      sim.effort[a.first_dof + i] if not servo else 0.0)
                if sim.applied is not None:
                    rows = sim.applied[a.first_body : a.first_body + len(a.described.links)]
                    wrenches.update({(a.name, n): row for n, row in zip(a.described.links, rows) if row.any()})
            env.physics.step(wrenches)
        sim.applied, sim.effort[:] = None, 0.0
        sim.given, sim.simulated, sim.fetched = [], True, False
        sim.written.clear()

    def _misbehave(self, sim):
        wanted = settings()
        if wanted.get("raise_at") == sim.count:
            raise RuntimeError("the double was told to fail here")
        if wanted.get("die_at") == sim.count:
            os._exit(7)
        if wanted.get("hang_at") == sim.count:
            time.sleep(600)
        if wanted.get("nan_at", [0])[0] == sim.count:
            sim.envs[wanted["nan_at"][1]].physics.data.qvel[:] = np.nan

    def fetch_results(self, sim, wait):
        if not sim.simulated:
            raise Violation("fetch_results: before simulate")
        sim.fetched = True
