"""Double of isaaclab.actuators."""

from isaaclab import Cfg, started

started("isaaclab.actuators")


class ImplicitActuatorCfg(Cfg):
    joint_names_expr = stiffness = damping = armature = friction = dynamic_friction = None
    effort_limit_sim = velocity_limit_sim = effort_limit = velocity_limit = None
