"""Double of isaaclab.scene: the envs, and the assets in them."""

import double_physics
import numpy as np
import torch
from isaaclab import Cfg, Violation, started

started("isaaclab.scene")

from isaaclab import assets, sensors  # noqa: E402
from isaaclab.sim import SimulationContext  # noqa: E402


class InteractiveSceneCfg(Cfg):
    num_envs, env_spacing, replicate_physics, filter_collisions, lazy_sensor_update = 1, 1.0, True, True, True


class InteractiveScene:
    """Envs on a grid whose origins are part of all positions."""

    def __init__(self, cfg):
        self.cfg, self.sim = cfg, SimulationContext.instance()
        if self.sim is None:
            raise Violation("InteractiveScene: there is no SimulationContext")
        self.sim.scene = self
        self.count, self.floor, self.entities, self.contacts = cfg.num_envs, None, {}, {}
        side = int(np.ceil(self.count**0.5))
        grid = [[i % side, i // side, 0.0] for i in range(self.count)]
        self.env_origins = (torch.tensor(grid, dtype=torch.float32) - (side - 1) / 2) * cfg.env_spacing
        self.env_origins[:, 2] = 0.0
        fields = {k: v for k, v in cfg.__dict__.items() if not hasattr(InteractiveSceneCfg, k)}
        for name, value in fields.items():
            self.add(name, value)
        self.fresh = self.written = self.pushed = False

    def add(self, name, cfg):
        if isinstance(cfg, sensors.ContactSensorCfg):
            path = cfg.prim_path.removesuffix("/.*")
            asset = next(e for e in self.entities.values() if e.cfg.prim_path == path)
            if not asset.cfg.spawn.activate_contact_sensors:
                raise Violation(f"contact sensor on {path}: contact sensors are not activated there")
            self.contacts[name] = Contact(self, asset)
        elif isinstance(cfg, (assets.ArticulationCfg, assets.RigidObjectCfg)):
            kind = assets.Articulation if isinstance(cfg, assets.ArticulationCfg) else assets.RigidObject
            self.entities[name] = kind(self, cfg)
        elif isinstance(cfg, assets.AssetBaseCfg):
            if not np.isclose(cfg.init_state.pos[2] + cfg.spawn.size[2] / 2, 0.0):
                raise Violation("the double knows a ground whose top is z = 0")
            self.floor = cfg.spawn.physics_material.static_friction
        else:
            raise Violation(f"scene: {name} is a {type(cfg).__name__}")

    def __getitem__(self, name):
        return {**self.entities, **self.contacts}[name]

    def start(self):
        cfg = self.sim.cfg
        self.envs = [double_physics.Env([e.spec(i) for i, e in enumerate(self.entities.values())], cfg.dt, cfg.gravity,
                                        self.floor) for _ in range(self.count)]
        for entity in self.entities.values():
            entity.start()
        self.read()

    def write_data_to_sim(self):
        for entity in self.entities.values():
            entity.push()
        self.pushed = True

    def step(self):
        if not self.pushed:
            raise Violation("sim.step: targets were not written (scene.write_data_to_sim)")
        for i, env in enumerate(self.envs):
            env.step({k: v for e in self.entities.values() for k, v in e.applied(i).items()})
        self.fresh, self.written, self.pushed = False, False, False

    def update(self, dt):
        if not np.isclose(dt, self.sim.cfg.dt):
            raise Violation(f"scene.update({dt}): the physics step is {self.sim.cfg.dt}")
        self.read()

    def read(self):
        for entity in self.entities.values():
            entity.read()
        self.fresh = True

    def check(self, what):
        if not self.sim.playing:
            raise Violation(f"{what}: before sim.reset")
        if not self.fresh:
            raise Violation(f"{what}: read after a step without scene.update")
        if self.written:
            raise Violation(f"{what}: states were written; they are not to be seen before the next step")


class Contact:
    """A contact sensor on all links of an asset."""

    def __init__(self, scene, asset):
        self.scene, self.asset = scene, asset
        self.data = self

    @property
    def body_names(self):
        return list(self.asset.links)

    @property
    def net_forces_w(self):
        self.scene.check("net_forces_w")
        rows = [[env.touch[env.body(self.asset.name, n)] for n in self.asset.links] for env in self.scene.envs]
        return assets.given(torch.tensor(np.array(rows), dtype=torch.float32))
