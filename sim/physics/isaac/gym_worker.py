"""The process that runs Isaac Gym (Preview 4): started by the backend isaacgym with the user's Python 3.8.

Imports nothing of this project and uses nothing newer than Python 3.8: isaacgym (which must come before torch), torch,
numpy. Arguments: file descriptors to read from and to write to, process id of the parent.

Messages are JSON behind a length of four bytes. Arrays lie in one file that both processes map: there, quaternions are
wxyz, positions are those of each world, rows are in the order of names that the parent gave. This file is the only
place that knows Isaac Gym's xyzw, its env origins and its orders.
"""

import json
import mmap
import os
import struct
import sys
import threading
import time
import traceback

PROTOCOL = 1
HERE = os.path.dirname(os.path.abspath(__file__))


def forget_own_folder():
    """Remove this script's folder from sys.path: its modules would hide others of the same name."""
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or os.getcwd()) != HERE]


def die_with(parent):
    """End this process when its parent has ended, even during a simulation."""
    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def read_exactly(fd, count):
    data = b""
    while len(data) < count:
        part = os.read(fd, count - len(data))
        if not part:
            raise EOFError("the parent closed the pipe")
        data += part
    return data


def receive(fd):
    (size,) = struct.unpack("<I", read_exactly(fd, 4))
    return json.loads(read_exactly(fd, size).decode())


def send(fd, message):
    data = json.dumps(message).encode()
    data = struct.pack("<I", len(data)) + data
    while data:
        data = data[os.write(fd, data):]


class Arrays:
    """The shared file as numpy arrays by name."""

    def __init__(self, np, path, layout):
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        for name, (dtype, shape, offset) in layout.items():
            count = 1
            for size in shape:
                count *= size
            setattr(self, name, np.frombuffer(self.map, dtype, count, offset).reshape(shape))


class Worker:
    """One Isaac Gym simulation."""

    def __init__(self, message):
        from isaacgym import gymapi, gymtorch  # noqa: I001 (before torch, or it refuses)
        import numpy as np
        import torch

        self.gymapi, self.gymtorch, self.torch, self.np = gymapi, gymtorch, torch, np
        self.gym = gymapi.acquire_gym()
        self.plan = message
        self.shared = Arrays(np, message["file"], message["layout"])
        self.gpu = message["device"].startswith("cuda")
        self.device = message["device"] if self.gpu else "cpu"
        self.kept = []  # Isaac Gym copies nothing: what setters were given must live until the next simulate
        self.create()
        self.populate()
        self.gym.prepare_sim(self.sim)
        self.index()
        self.acquire()
        self.calibrate()

    # ---- building

    def create(self):
        gymapi, plan = self.gymapi, self.plan
        params = gymapi.SimParams()
        params.dt, params.substeps = plan["dt"], 1
        params.up_axis = gymapi.UP_AXIS_Z
        params.gravity = gymapi.Vec3(*plan["gravity"])
        params.use_gpu_pipeline = self.gpu
        params.physx.use_gpu = self.gpu
        params.physx.solver_type = 1
        params.physx.num_threads = plan["threads"]
        params.physx.num_position_iterations = plan["position_iterations"]
        params.physx.num_velocity_iterations = plan["velocity_iterations"]
        params.physx.contact_offset = plan["contact_offset"]
        params.physx.rest_offset = 0.0
        params.physx.contact_collection = gymapi.ContactCollection(1)  # of the last substep: the reliable one
        compute = int(plan["device"].partition(":")[2] or 0) if self.gpu else 0
        self.sim = self.gym.create_sim(compute, -1, gymapi.SIM_PHYSX, params)
        if self.sim is None:
            raise RuntimeError("gym.create_sim returned None: see the log above")
        if plan["floor"] is not None:
            ground = gymapi.PlaneParams()
            ground.normal = gymapi.Vec3(0.0, 0.0, 1.0)
            ground.static_friction = ground.dynamic_friction = plan["floor"]
            self.gym.add_ground(self.sim, ground)

    def asset(self, actor):
        gymapi = self.gymapi
        options = gymapi.AssetOptions()
        options.fix_base_link = not actor["floating"]
        options.disable_gravity = not actor["gravity"]
        options.collapse_fixed_joints = False
        options.override_com = options.override_inertia = False
        options.replace_cylinder_with_capsule = False
        options.angular_damping = options.linear_damping = 0.0
        options.max_angular_velocity = options.max_linear_velocity = 1000.0
        options.armature = 0.0
        options.thickness = 0.0
        asset = self.gym.load_asset(self.sim, self.plan["folder"], actor["urdf"], options)
        if asset is None:
            raise RuntimeError("gym.load_asset returned None for " + actor["urdf"])
        self.check_names(actor, self.gym.get_asset_rigid_body_names(asset), actor["links"], "links")
        self.check_names(actor, self.gym.get_asset_dof_names(asset), actor["dofs"], "joints")
        shapes = self.gym.get_asset_rigid_shape_properties(asset)
        ranges = self.gym.get_asset_rigid_body_shape_indices(asset)
        names = self.gym.get_asset_rigid_body_names(asset)
        for name, count, bits in zip(actor["links"], actor["shapes"], actor["filters"]):
            where = ranges[names.index(name)]
            if where.count != count:
                raise RuntimeError(f"link {name} has {where.count} shapes, its URDF has {count}")
            for shape in shapes[where.start:where.start + where.count]:
                shape.filter = bits
        self.gym.set_asset_rigid_shape_properties(asset, shapes)
        return asset, {n: ranges[names.index(n)] for n in actor["links"]}

    @staticmethod
    def check_names(actor, found, wanted, kind):
        if sorted(found) != sorted(wanted):
            raise RuntimeError(f"{kind} of {actor['name']}: loaded {found}, written {wanted}")

    def populate(self):
        gymapi, plan, half = self.gymapi, self.plan, self.plan["spacing"] / 2
        loaded = [self.asset(actor) for actor in plan["actors"]]
        self.shape_ranges = [ranges for _, ranges in loaded]
        lower, upper = gymapi.Vec3(-half, -half, 0.0), gymapi.Vec3(half, half, 2 * half)
        per_row = max(1, int(plan["num_worlds"] ** 0.5))
        self.envs, self.handles = [], []
        for world in range(plan["num_worlds"]):
            env = self.gym.create_env(self.sim, lower, upper, per_row)
            handles = []
            for actor, (asset, _) in zip(plan["actors"], loaded):
                pose = gymapi.Transform()
                pose.p = gymapi.Vec3(*actor["pos"])
                w, x, y, z = actor["quat"]
                pose.r = gymapi.Quat(x, y, z, w)
                handle = self.gym.create_actor(env, asset, pose, actor["name"], world, 0, 0)
                if plan["forces"] and actor["dofs"]:
                    self.gym.enable_actor_dof_force_sensors(env, handle)
                handles.append(handle)
            self.envs.append(env)
            self.handles.append(handles)
        everything = range(plan["num_worlds"])
        self.set_drives(everything)
        self.set_friction(everything)

    def index(self):
        """The indices of our rows in Isaac Gym's tensors: int64 [N, L], [N, D], [N, R], and actor numbers int32."""
        gym, domain, long = self.gym, self.gymapi.DOMAIN_SIM, self.torch.long
        links, dofs, roots, jointed = [], [], [], []
        for env, handles in zip(self.envs, self.handles):
            pairs = list(zip(self.plan["actors"], handles))
            links.append([gym.find_actor_rigid_body_index(env, h, n, domain) for a, h in pairs for n in a["links"]])
            dofs.append([gym.find_actor_dof_index(env, h, n, domain) for a, h in pairs for n in a["dofs"]])
            roots.append([gym.get_actor_index(env, h, domain) for a, h in pairs if a["floating"]])
            jointed.append([gym.get_actor_index(env, h, domain) for a, h in pairs if a["dofs"]])
        count = self.plan["num_worlds"]
        tensor = lambda rows, kind: self.torch.tensor(rows, dtype=kind, device=self.device).reshape(count, -1)  # noqa
        self.links, self.dofs, self.roots = tensor(links, long), tensor(dofs, long), tensor(roots, long)
        self.root_actors = tensor(roots, self.torch.int32)
        self.dof_actors = tensor(jointed, self.torch.int32)

    def acquire(self):
        """Tensors, once, after prepare_sim: views of the simulation's memory for as long as it lives."""
        gym, wrap, torch, sim = self.gym, self.gymtorch.wrap_tensor, self.torch, self.sim
        self.refreshers = [gym.refresh_actor_root_state_tensor, gym.refresh_rigid_body_state_tensor]
        self.root_state = wrap(gym.acquire_actor_root_state_tensor(sim))
        self.body_state = wrap(gym.acquire_rigid_body_state_tensor(sim))
        self.has_dofs = self.dofs.shape[1] > 0
        if self.has_dofs:
            self.dof_state = wrap(gym.acquire_dof_state_tensor(sim)).view(-1, 2)
            self.refreshers.append(gym.refresh_dof_state_tensor)
        if self.plan["forces"] and self.has_dofs:
            self.dof_force = wrap(gym.acquire_dof_force_tensor(sim)).view(-1)
            self.refreshers.append(gym.refresh_dof_force_tensor)
        if self.plan["contacts"]:
            self.contact = wrap(gym.acquire_net_contact_force_tensor(sim)).view(-1, 3)
            self.refreshers.append(gym.refresh_net_contact_force_tensor)
        zeros = lambda *shape: torch.zeros(*shape, dtype=torch.float32, device=self.device)  # noqa: E731
        bodies = gym.get_sim_rigid_body_count(sim)
        self.force, self.torque = zeros(bodies, 3), zeros(bodies, 3)
        if self.has_dofs:
            self.target, self.effort = zeros(gym.get_sim_dof_count(sim)), zeros(gym.get_sim_dof_count(sim))

    def calibrate(self):
        """Env origins in the tensors [N, 3]: measured, because it is not documented whether they are included."""
        self.simulate()
        self.refresh()
        first = self.links[:, 0]
        expected = self.torch.tensor(self.plan["actors"][0]["pos"], device=self.device)
        found = self.body_state[first, :3] - expected
        given = self.torch.tensor([[o.x, o.y, o.z] for o in map(self.gym.get_env_origin, self.envs)],
                                  device=self.device)
        candidates = [self.torch.zeros_like(given), given]
        errors = [(found - candidate).abs().max().item() for candidate in candidates]
        if not min(errors) < 0.3:  # one step moves nothing that far
            name = self.plan["actors"][0]["name"]
            raise RuntimeError(f"positions of {name} after one step are neither those of its world nor those of the "
                               f"env grid: off by {errors} m")
        self.origin = candidates[errors.index(min(errors))]
        self.publish()

    # ---- stepping

    def simulate(self):
        self.gym.simulate(self.sim)
        if not self.gpu:
            self.gym.fetch_results(self.sim, True)
        self.kept = []

    def refresh(self):
        for refresh in self.refreshers:
            refresh(self.sim)

    def give(self, tensor):
        """A tensor in Isaac Gym's form, kept alive until the next simulate."""
        tensor = tensor.contiguous()
        self.kept.append(tensor)
        return self.gymtorch.unwrap_tensor(tensor)

    def load(self, array):
        return self.torch.from_numpy(array.copy()).to(self.device)

    def step(self, message):
        shared = self.shared
        if message["dirty"]:
            self.write_states(self.np.flatnonzero(shared.dirty))
        if message["wrench"]:
            wrench = self.load(shared.wrench)
            root_links = self.links[:, self.plan["root_links"]]
            self.force[root_links], self.torque[root_links] = wrench[..., :3], wrench[..., 3:]
        for i in range(message["substeps"]):
            self.write_targets(i if message["varying"] else 0)
            if message["wrench"]:
                self.gym.apply_rigid_body_force_tensors(self.sim, self.give(self.force), self.give(self.torque),
                                                        self.gymapi.ENV_SPACE)
            self.simulate()
        self.refresh()
        self.publish()

    def write_targets(self, row):
        if not self.has_dofs:
            return
        self.target[self.dofs] = self.load(self.shared.target[row])
        self.gym.set_dof_position_target_tensor(self.sim, self.give(self.target))
        if self.plan["efforts"]:
            self.effort[self.dofs] = self.load(self.shared.effort[row])
            self.gym.set_dof_actuation_force_tensor(self.sim, self.give(self.effort))

    def write_states(self, worlds):
        """Set the states of all worlds that were reset since the last step: one call of each setter."""
        rows = self.torch.as_tensor(worlds, device=self.device)
        if self.roots.shape[1]:
            state = self.load(self.shared.root[worlds])  # pos, wxyz, velocities
            full = self.root_state.clone()
            state = self.torch.cat((state[..., :3] + self.origin[rows, None], state[..., 4:7], state[..., 3:4],
                                    state[..., 7:]), dim=-1)
            full[self.roots[rows]] = state
            actors = self.root_actors[rows].flatten().contiguous()
            self.gym.set_actor_root_state_tensor_indexed(self.sim, self.give(full), self.give(actors), len(actors))
        if self.has_dofs:
            full = self.dof_state.clone()
            full[self.dofs[rows]] = self.torch.stack((self.load(self.shared.dof_pos[worlds]),
                                                      self.load(self.shared.dof_vel[worlds])), dim=-1)
            actors = self.dof_actors[rows].flatten().contiguous()
            self.gym.set_dof_state_tensor_indexed(self.sim, self.give(full), self.give(actors), len(actors))

    def publish(self):
        """Copy refreshed tensors into the shared arrays."""
        shared = self.shared
        body = self.body_state[self.links]
        body = self.torch.cat((body[..., :3] - self.origin[:, None], body[..., 6:7], body[..., 3:6], body[..., 7:]), -1)
        shared.link[:] = body.cpu().numpy()
        if self.roots.shape[1]:
            root = self.root_state[self.roots]
            root = self.torch.cat((root[..., :3] - self.origin[:, None], root[..., 6:7], root[..., 3:6], root[..., 7:]),
                                  -1)
            shared.root[:] = root.cpu().numpy()
        if self.has_dofs:
            state = self.dof_state[self.dofs].cpu().numpy()
            shared.dof_pos[:], shared.dof_vel[:] = state[..., 0], state[..., 1]
        if self.plan["forces"] and self.has_dofs:
            shared.dof_force[:] = self.dof_force[self.dofs].cpu().numpy()
        if self.plan["contacts"]:
            shared.contact[:] = self.contact[self.links].cpu().numpy()

    # ---- parameters

    def set_drives(self, worlds):
        """Set drives from the shared array [N, D, 6]: stiffness, damping, effort, velocity, armature, friction."""
        gymapi = self.gymapi
        for world in worlds:
            first = 0
            for actor, handle in zip(self.plan["actors"], self.handles[world]):
                count = len(actor["dofs"])
                if not count:
                    continue
                properties = self.gym.get_actor_dof_properties(self.envs[world], handle)
                order = self.gym.get_actor_dof_names(self.envs[world], handle)
                for i, name in enumerate(actor["dofs"]):
                    row, values = order.index(name), self.shared.drive[world, first + i]
                    servo = actor["servo"][i]
                    properties["driveMode"][row] = gymapi.DOF_MODE_POS if servo else gymapi.DOF_MODE_EFFORT
                    properties["stiffness"][row], properties["damping"][row] = values[0], values[1]
                    properties["effort"][row], properties["velocity"][row] = values[2], values[3]
                    properties["armature"][row], properties["friction"][row] = values[4], values[5]
                self.gym.set_actor_dof_properties(self.envs[world], handle, properties)
                first += count

    def set_friction(self, worlds):
        """Set the friction of shapes from the shared array [N, S], in the order of the URDFs."""
        for world in worlds:
            first = 0
            for actor, handle, ranges in zip(self.plan["actors"], self.handles[world], self.shape_ranges):
                shapes = self.gym.get_actor_rigid_shape_properties(self.envs[world], handle)
                for name, count in zip(actor["links"], actor["shapes"]):
                    for i in range(count):
                        shapes[ranges[name].start + i].friction = float(self.shared.friction[world, first + i])
                    first += count
                self.gym.set_actor_rigid_shape_properties(self.envs[world], handle, shapes)

    def set_mass(self, worlds):
        """Set mass, centre and inertia (about it, link axes) of links from the shared array [N, L, 13]."""
        if self.gpu:
            raise RuntimeError("Isaac Gym's GPU pipeline cannot change masses once it runs")
        for world in worlds:
            first = 0
            for actor, handle in zip(self.plan["actors"], self.handles[world]):
                names = self.gym.get_actor_rigid_body_names(self.envs[world], handle)
                bodies = self.gym.get_actor_rigid_body_properties(self.envs[world], handle)
                for i, name in enumerate(actor["links"]):
                    values = [float(x) for x in self.shared.mass[world, first + i]]
                    body = bodies[names.index(name)]
                    body.mass, body.com = values[0], self.gymapi.Vec3(*values[1:4])
                    body.inertia.x = self.gymapi.Vec3(*values[4:7])
                    body.inertia.y = self.gymapi.Vec3(*values[7:10])
                    body.inertia.z = self.gymapi.Vec3(*values[10:13])
                first += len(actor["links"])
                self.gym.set_actor_rigid_body_properties(self.envs[world], handle, bodies, False)

    def handle(self, message):
        """Answer one request."""
        if message["do"] == "step":
            self.step(message)
        else:
            getattr(self, message["do"])(message["worlds"])

    def close(self):
        self.gym.destroy_sim(self.sim)


def versions():
    """The first answer to the parent: versions; importing isaacgym fails most often."""
    import isaacgym
    import numpy
    import torch

    return {"protocol": PROTOCOL, "pid": os.getpid(), "python": sys.version.split()[0], "numpy": numpy.__version__,
            "torch": torch.__version__, "cuda": torch.cuda.is_available(),
            "isaacgym": getattr(isaacgym, "__version__", "unknown")}


def serve(read, write):
    worker = None
    send(write, versions())
    while True:
        message = receive(read)
        if message["do"] == "close":
            if worker is not None:
                worker.close()
            send(write, {"ok": True})
            return
        if message["do"] == "build":
            worker = Worker(message)
        else:
            worker.handle(message)
        send(write, {"ok": True})


def main():
    read, write, parent = (int(x) for x in sys.argv[1:4])
    forget_own_folder()
    die_with(parent)
    try:
        serve(read, write)
    except EOFError:
        pass  # the parent is gone
    except BaseException:  # the parent reports it, whatever it was
        text = traceback.format_exc()
        sys.stderr.write(text)
        try:
            send(write, {"error": text})
        except OSError:
            pass
        sys.exit(1)


if __name__ == "__main__":
    main()
