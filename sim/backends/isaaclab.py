"""Isaac Lab, 2.3 and 3.0: N worlds of a scene in PhysX through InteractiveScene, in this process.

    backend = make(Scene(load_robot("franka")), 4096, "joint_pos_cmd", dt=0.005, device="cuda:0")

Nothing of Isaac is imported before :func:`make` is called; it starts the application (AppLauncher), which must come
before any other import of isaaclab. What differs between the versions is one table
(:mod:`temporeal.sim.physics.isaac.lab_versions`). What was run where: docs/reference/backends/isaac.md.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from temporeal.robots.spec import RobotSpec
from temporeal.sim.capabilities import require, require_kind
from temporeal.sim.physics.isaac import urdf
from temporeal.sim.physics.isaac.actors import plan_of
from temporeal.sim.physics.isaac.drives import drives
from temporeal.sim.physics.isaac.lab_versions import IsaacLabError, NoIsaacLab, version_of
from temporeal.sim.physics.isaac.plan import Actor, Plan
from temporeal.sim.physics.isaac.shapes import nominal, solids
from temporeal.sim.physics.isaac.worlds import ALWAYS, DRIVES, MASS, Readings, States, Worlds, is_gpu
from temporeal.sim.physics.mujoco import mjcf
from temporeal.sim.physics.mujoco.model import Array
from temporeal.sim.physics.setup import setup_of
from temporeal.sim.scene import Scene
from temporeal.sim.types import Backend

HAS = ("objects", "arms", "wrench", "delay", "mass")
KINDS = ("friction", *MASS, *DRIVES, *ALWAYS)
PREFIX = "actor_"  # of the scene's entries: an actor may be called like a field of InteractiveSceneCfg
LIMIT_DEG = 57295.8  # degrees/s = 1000 rad/s
_APP: list[Any] = []  # the application lives as long as the process
_USED: list[bool] = []  # whether this process had a simulation before


def make(
    what: Scene | RobotSpec, num_worlds: int, command: str, *, dt: float = 0.005, device: str = "cuda:0",
    seed: int = 0, threads: int = 0, needs: Iterable[str] = (), spacing: float = 2.5, self_collisions: bool = False,
    position_iterations: int = 8, velocity_iterations: int = 1, launch: Mapping[str, Any] | None = None,
) -> Backend:  # fmt: skip
    """The backend for ``num_worlds`` worlds of a scene (or of a robot alone).

    Args:
        command: one of the robot's commands.
        dt: physics step, s.
        device: ``cuda:<n>`` or ``cpu``.
        seed, threads: kept for the caller; PhysX draws no random numbers and counts its own threads here.
        needs: capabilities (:mod:`temporeal.sim.capabilities`) that the caller cannot do without.
        spacing: between worlds, m.
        self_collisions: whether links of one robot touch each other. Isaac Lab has no setting for single pairs, so a
            model that excludes some pairs keeps its links from touching each other altogether unless this is set.
        position_iterations, velocity_iterations: of PhysX's solver.
        launch: arguments of AppLauncher, which is started once per process (headless unless they say otherwise); where
            the calling script has started it already, an empty mapping.
    """
    gpu = is_gpu(device)
    setup = setup_of(what, num_worlds, command, dt, device, seed, threads)
    require_kind("isaaclab", setup.scene.robot.name, setup.scene.robot.kind)
    has = require("isaaclab", (*HAS, "cuda") if gpu else HAS, needs)
    plan = plan_of(mjcf.build(setup.scene, command, dt))
    check_plan(plan)
    start(device, launch)
    settings = {"spacing": spacing, "self_collisions": self_collisions, "position": position_iterations,
                "velocity": velocity_iterations}
    engine = LabEngine(plan, num_worlds, device, has, settings)
    try:
        return Worlds("isaaclab", plan, engine, setup)
    except BaseException:
        engine.close()
        raise


def check_plan(plan: Plan) -> None:
    """Refuse what Isaac Lab's assets do not hold."""
    for actor in plan.actors:
        if not actor.dofs and len(actor.links) > 1:
            raise ValueError(f"{actor.name!r} has {len(actor.links)} links and no joint; a rigid object of Isaac Lab "
                             "is one body")


def start(device: str, launch: Mapping[str, Any] | None) -> None:
    """Import isaaclab and start its application, once per process."""
    if importlib.util.find_spec("isaaclab") is None:
        raise NoIsaacLab(
            "backend isaaclab needs Isaac Lab 2.3 or 3.0 in this Python, and it is not there: see "
            "https://isaac-sim.github.io/IsaacLab (2.3: pip install isaaclab[isaacsim,all]==2.3.2.post1, with the "
            "index that this page names), then install this package into that environment")
    if _APP or launch == {}:
        return
    launcher = importlib.import_module("isaaclab.app").AppLauncher
    _APP.append(launcher(**{"headless": True, "device": device, **(launch or {})}))


class LabEngine:
    """Isaac Lab behind the interface of :class:`temporeal.sim.physics.isaac.worlds.Engine`."""

    kinds = KINDS

    def __init__(
        self, plan: Plan, num_worlds: int, device: str, has: frozenset[str], settings: Mapping[str, Any]
    ) -> None:
        self.sim_utils = importlib.import_module("isaaclab.sim")
        self.assets = importlib.import_module("isaaclab.assets")
        self.plan, self.num_worlds, self.capabilities = plan, num_worlds, has
        self.version, self.device = version_of(self.assets), torch.device(device)
        context = self.sim_utils.SimulationContext
        if context.instance() is not None:
            raise IsaacLabError("Isaac Lab has one simulation per process, and there is one: close that backend first")
        self.folder = Path(tempfile.mkdtemp(prefix="temporeal-isaaclab-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        try:
            if _USED:  # the stage still holds the simulation before this one
                importlib.import_module("isaaclab.sim.utils.stage").create_new_stage()
            _USED.append(True)
            gravity = tuple(map(float, plan.model.mj.opt.gravity))
            self.dt = float(plan.model.mj.opt.timestep)
            self.sim = context(self.sim_utils.SimulationCfg(dt=self.dt, device=device, gravity=gravity))
            self.scene = self._scene(settings)
            self.sim.reset()
            self._find()
            self._nominal()
        except BaseException:
            self.close()
            raise

    # ---- the scene

    def _scene(self, settings: Mapping[str, Any]) -> Any:
        scene = importlib.import_module("isaaclab.scene")
        files = urdf.write(self.plan, self.folder)
        cfg = scene.InteractiveSceneCfg(num_envs=self.num_worlds, env_spacing=settings["spacing"],
                                        replicate_physics=True)
        if self.plan.floor is not None:
            cfg.ground = self._ground(settings["spacing"])
        for actor in self.plan.actors:
            setattr(cfg, PREFIX + actor.name, self._asset(actor, files[actor.name], settings))
        for name in self._touched():
            sensors = importlib.import_module("isaaclab.sensors")
            sensor = sensors.ContactSensorCfg(prim_path=f"{{ENV_REGEX_NS}}/{name}/.*", update_period=0.0)
            setattr(cfg, f"contact_{name}", sensor)
        return scene.InteractiveScene(cfg)

    def _touched(self) -> list[str]:
        """Actors with links whose contact force is a signal."""
        rows = {r for g in self.plan.gathers.values() if g.what == "contact_force" for r in g.rows}
        return sorted({self.plan.links[r].actor for r in rows})

    def _ground(self, spacing: float) -> Any:
        """A block below z = 0: Isaac's own ground plane is a file of a server."""
        utils, side = self.sim_utils, 100.0 + 2 * spacing * self.num_worlds**0.5
        friction = self.plan.floor
        material = utils.RigidBodyMaterialCfg(static_friction=friction, dynamic_friction=friction, restitution=0.0,
                                              friction_combine_mode="max")
        spawn = utils.CuboidCfg(size=(side, side, 1.0), collision_props=utils.CollisionPropertiesCfg(),
                                physics_material=material)
        state = self.assets.AssetBaseCfg.InitialStateCfg(pos=(0.0, 0.0, -0.5))
        return self.assets.AssetBaseCfg(prim_path="/World/ground", spawn=spawn, init_state=state)

    def _asset(self, actor: Actor, file: Path, settings: Mapping[str, Any]) -> Any:
        mj, pos, quat = self.plan.model.mj, actor.links[0].pos, actor.links[0].quat
        if actor.floating:
            first = mj.jnt_qposadr[actor.joint]
            pos, quat = self.plan.model.home_qpos[first : first + 3], self.plan.model.home_qpos[first + 3 : first + 7]
        w, x, y, z = map(float, quat)
        pose = {"pos": tuple(map(float, pos)), "rot": (x, y, z, w) if self.version.xyzw else (w, x, y, z)}
        path, spawn = f"{{ENV_REGEX_NS}}/{actor.name}", self._spawn(actor, file, settings)
        if not actor.dofs:
            state = self.assets.RigidObjectCfg.InitialStateCfg(**pose)
            return self.assets.RigidObjectCfg(prim_path=path, spawn=spawn, init_state=state)
        home = self.plan.model.home_qpos
        joints = {d.name: float(np.clip(home[mj.jnt_qposadr[d.joint]] - d.ref, d.lower, d.upper)) for d in actor.dofs}
        state = self.assets.ArticulationCfg.InitialStateCfg(**pose, joint_pos=joints, joint_vel={".*": 0.0})
        return self.assets.ArticulationCfg(prim_path=path, spawn=spawn, init_state=state,
                                           actuators={"drives": self._actuators(actor)})

    def _spawn(self, actor: Actor, file: Path, settings: Mapping[str, Any]) -> Any:
        utils, drive = self.sim_utils, self.sim_utils.UrdfConverterCfg.JointDriveCfg
        touch = settings["self_collisions"] or not actor.apart
        return utils.UrdfFileCfg(
            asset_path=str(file), usd_dir=str(self.folder), force_usd_conversion=True, merge_fixed_joints=False,
            fix_base=bool(actor.dofs) and not actor.floating,
            joint_drive=drive(target_type="position", gains=drive.PDGainsCfg(stiffness=0.0, damping=0.0)),
            activate_contact_sensors=actor.name in self._touched(),
            rigid_props=utils.RigidBodyPropertiesCfg(
                disable_gravity=not actor.gravity, kinematic_enabled=actor.static, linear_damping=0.0,
                angular_damping=0.0, max_linear_velocity=1000.0, max_angular_velocity=LIMIT_DEG),
            articulation_props=utils.ArticulationRootPropertiesCfg(
                articulation_enabled=bool(actor.dofs), enabled_self_collisions=touch,
                solver_position_iteration_count=settings["position"],
                solver_velocity_iteration_count=settings["velocity"]))

    def _actuators(self, actor: Actor) -> Any:
        values = drives(self.plan, nominal(self.plan.model.mj))
        rows = [self.plan.dofs.index(d) for d in actor.dofs]
        given = {k: {d.name: float(v[0, r]) for d, r in zip(actor.dofs, rows)} for k, v in values.items()}
        return importlib.import_module("isaaclab.actuators").ImplicitActuatorCfg(
            joint_names_expr=[d.name for d in actor.dofs], stiffness=given["stiffness"], damping=given["damping"],
            effort_limit_sim=given["effort"], velocity_limit_sim=given["velocity"], armature=given["armature"],
            friction=given["friction"])

    def _find(self) -> None:
        """Assets and the numbers of our links and joints in them, by name."""
        self.entities = {a.name: self.scene[PREFIX + a.name] for a in self.plan.actors}
        self.bodies, self.joints, self.dof_rows, self.link_rows = {}, {}, {}, {}
        dofs, links = list(self.plan.dofs), [link.name for link in self.plan.links]
        for actor in self.plan.actors:
            entity = self.entities[actor.name]
            if not actor.dofs:
                self.bodies[actor.name] = [0]
            else:
                self.bodies[actor.name] = _rows(entity.body_names, [x.name for x in actor.links], "links", actor.name)
                self.joints[actor.name] = _rows(entity.joint_names, [d.name for d in actor.dofs], "joints", actor.name)
            self.dof_rows[actor.name] = [dofs.index(d) for d in actor.dofs]
            self.link_rows[actor.name] = [links.index(x.name) for x in actor.links]
        self.sensors = {name: self.scene[f"contact_{name}"] for name in self._touched()}
        self.touched = {name: _rows(sensor.body_names, [x.name for x in self._actor(name).links], "links", name)
                        for name, sensor in self.sensors.items()}
        self.floating = [a.name for a in self.plan.floating]
        self.origins = self.scene.env_origins.to(self.device)

    def _actor(self, name: str) -> Actor:
        return next(a for a in self.plan.actors if a.name == name)

    def _nominal(self) -> None:
        every, fields = np.arange(self.num_worlds), nominal(self.plan.model.mj)
        fields = {name: np.repeat(value, self.num_worlds, 0) for name, value in fields.items()}
        self._drives: dict[str, Tensor] = {}
        self._wrenched = False
        geoms = [s.geom for link in self.plan.links for s in link.shapes if s.touches]
        self._frictions = torch.zeros(self.num_worlds, len(geoms))
        self._solids = tuple(torch.from_numpy(x).float() for x in solids(self.plan, fields))
        self.set_drives(every, drives(self.plan, fields))
        self.set_friction(every, fields["geom_friction"][:, geoms, 0])

    # ---- the interface

    def run(
        self, position: Array, effort: Array, substeps: int, dirty: Array, states: States, wrench: Array | None
    ) -> Readings:
        """Write states, then step (see :class:`temporeal.sim.physics.isaac.worlds.Engine`)."""
        if dirty.any():
            self._write(torch.as_tensor(np.flatnonzero(dirty), device=self.device), states)
        self._apply_wrench(wrench)
        targets, efforts = (torch.from_numpy(x).to(self.device, torch.float32) for x in (position, effort))
        for i in range(substeps):
            row = min(i, len(targets) - 1)
            for name, joints in self.joints.items():
                columns = self.dof_rows[name]
                self.version.target(self.entities[name], targets[row][:, columns], efforts[row][:, columns], joints)
            self.scene.write_data_to_sim()
            self.sim.step(render=False)
            self.scene.update(self.dt)
        return self._readings(targets[row], efforts[row])

    def _write(self, worlds: Tensor, states: States) -> None:
        for i, name in enumerate(self.floating):
            root = states.root[worlds, i]
            quat = root[:, [4, 5, 6, 3]] if self.version.xyzw else root[:, 3:7]
            pose = torch.cat((root[:, :3] + self.origins[worlds], quat), -1)
            self.version.write(self.entities[name], "pose", pose, worlds)
            self.version.write(self.entities[name], "velocity_of_root", root[:, 7:].contiguous(), worlds)
        for name, joints in self.joints.items():
            columns = self.dof_rows[name]
            value = states.dof_pos[worlds][:, columns], states.dof_vel[worlds][:, columns]
            self.version.write(self.entities[name], "joints", value, worlds, joints)

    def _apply_wrench(self, wrench: Array | None) -> None:
        """Wrenches stay until they are set again: once more, to zero, when they end."""
        if wrench is None and not self._wrenched:
            return
        given = np.zeros((self.num_worlds, len(self.floating), 6)) if wrench is None else wrench
        value = torch.from_numpy(given).to(self.device, torch.float32)
        for i, name in enumerate(self.floating):
            self.version.wrench(self.entities[name], value[:, i : i + 1, :3].contiguous(),
                                value[:, i : i + 1, 3:].contiguous(), self.bodies[name][0])
        self._wrenched = wrench is not None

    def _readings(self, target: Tensor, effort: Tensor) -> Readings:
        get, n = self.version.tensor, self.num_worlds
        zeros = lambda *shape: torch.zeros(n, *shape, device=self.device)  # noqa: E731
        link, contact = zeros(len(self.plan.links), 13), zeros(len(self.plan.links), 3)
        pos, vel = zeros(len(self.plan.dofs)), zeros(len(self.plan.dofs))
        for name, entity in self.entities.items():
            rows, data = self.bodies[name], entity.data
            pose = get(data.body_link_pose_w)[:, rows]
            quat = pose[..., [6, 3, 4, 5]] if self.version.xyzw else pose[..., 3:7]
            state = torch.cat((pose[..., :3] - self.origins[:, None], quat, get(data.body_link_vel_w)[:, rows]), -1)
            link[:, self.link_rows[name]] = state
            if name in self.joints:
                pos[:, self.dof_rows[name]] = get(data.joint_pos)[:, self.joints[name]]
                vel[:, self.dof_rows[name]] = get(data.joint_vel)[:, self.joints[name]]
            if name in self.sensors:
                force = get(self.sensors[name].data.net_forces_w)
                contact[:, self.link_rows[name]] = force[:, self.touched[name]]
        roots = [self.link_rows[name][0] for name in self.floating]
        drive = self._drives
        torque = drive["stiffness"] * (target - pos) - drive["damping"] * vel + effort
        # PhysX does not report the drives' forces: computed by their law
        torque = torque.clamp(-drive["effort"], drive["effort"])
        return Readings(States(pos, vel, link[:, roots].clone()), link, torque, contact)

    def set_drives(self, worlds: Array, drives: Mapping[str, Array]) -> None:
        """Drive values [K, D]."""
        ids = torch.as_tensor(worlds, device=self.device)
        for what, value in drives.items():
            given = torch.from_numpy(value).to(self.device, torch.float32)
            self._drives.setdefault(what, torch.zeros(self.num_worlds, value.shape[1], device=self.device))[ids] = given
            for name, joints in self.joints.items():
                self.version.write(self.entities[name], what, given[:, self.dof_rows[name]].contiguous(), ids, joints)

    def set_friction(self, worlds: Array, friction: Array) -> None:
        """Friction [K, S]: shapes of an asset are taken in the order of its own links, as in their URDF."""
        self._frictions[torch.from_numpy(worlds)] = torch.from_numpy(friction).float()
        first = 0
        for actor in self.plan.actors:
            columns: dict[int, list[int]] = {}
            for link, body in zip(actor.links, self.bodies[actor.name]):
                count = sum(s.touches for s in link.shapes)
                columns[body] = list(range(first, first + count))
                first += count
            order = [c for body in sorted(columns) for c in columns[body]]
            if order:
                self.version.friction(self.entities[actor.name], self._frictions[:, order])

    def set_mass(self, worlds: Array, mass: Array, com: Array, inertia: Array) -> None:
        """Mass [K, L], centre of mass [K, L, 3], inertia about it [K, L, 3, 3]."""
        for kept, given in zip(self._solids, (mass, com, inertia)):
            kept[torch.from_numpy(worlds)] = torch.from_numpy(given).float()
        for actor in self.plan.actors:
            if not actor.static:
                rows = self.link_rows[actor.name]
                self.version.mass(self.entities[actor.name], self.bodies[actor.name],
                                  *(x[:, rows].contiguous() for x in self._solids))

    def close(self) -> None:
        """End the simulation; the application goes on, since it can be started once per process."""
        if hasattr(self, "sim"):
            del self.sim
            self.scene = self.entities = self.sensors = None  # type: ignore[assignment]
            self.sim_utils.SimulationContext.clear_instance()
        shutil.rmtree(self.folder, ignore_errors=True)


def _rows(found: Iterable[str], wanted: list[str], kind: str, actor: str) -> list[int]:
    """Where the wanted names are among the found ones."""
    found = list(found)
    if sorted(found) != sorted(wanted):
        raise IsaacLabError(f"{kind} of {actor}: Isaac Lab has {found}, its URDF has {wanted}")
    return [found.index(name) for name in wanted]
