"""Double of isaaclab.sim."""

from isaaclab import Cfg, Violation, started

started("isaaclab.sim")


class SimulationCfg(Cfg):
    dt, device, gravity, render_interval, physx = 1 / 60, "cuda:0", (0.0, 0.0, -9.81), 1, None


class SimulationContext:
    """The singleton."""

    _instance = None

    def __init__(self, cfg):
        if SimulationContext._instance is not None:
            raise Violation("SimulationContext is a singleton")
        SimulationContext._instance = self
        self.cfg, self.scene, self.playing, self.steps = cfg, None, False, 0

    @classmethod
    def instance(cls):
        return cls._instance

    @classmethod
    def clear_instance(cls):
        cls._instance = None

    def reset(self):
        if self.scene is None:
            raise Violation("sim.reset: there is no scene")
        self.playing = True
        self.scene.start()

    def step(self, render=True):
        if not self.playing:
            raise Violation("sim.step: before sim.reset")
        if render:
            raise Violation("sim.step renders unless it is told not to")
        self.steps += 1
        self.scene.step()


class RigidBodyMaterialCfg(Cfg):
    static_friction, dynamic_friction, restitution = 0.5, 0.5, 0.0
    friction_combine_mode, restitution_combine_mode = "average", "average"


class CollisionPropertiesCfg(Cfg):
    collision_enabled = None


class RigidBodyPropertiesCfg(Cfg):
    disable_gravity = kinematic_enabled = linear_damping = angular_damping = None
    max_linear_velocity = max_angular_velocity = max_depenetration_velocity = None


class ArticulationRootPropertiesCfg(Cfg):
    articulation_enabled = enabled_self_collisions = None
    solver_position_iteration_count = solver_velocity_iteration_count = None


class CuboidCfg(Cfg):
    size, collision_props, physics_material, rigid_props, mass_props = (1.0, 1.0, 1.0), None, None, None, None


class UrdfConverterCfg(Cfg):
    class JointDriveCfg(Cfg):
        class PDGainsCfg(Cfg):
            stiffness, damping = None, None

        target_type, drive_type, gains = "position", "force", None


class UrdfFileCfg(Cfg):
    asset_path = usd_dir = None
    fix_base, merge_fixed_joints, force_usd_conversion = None, True, False
    joint_drive = rigid_props = articulation_props = None
    activate_contact_sensors = collision_from_visuals = replace_cylinders_with_capsules = False
