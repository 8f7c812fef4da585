"""Double of isaaclab.sensors."""

from isaaclab import Cfg, started

started("isaaclab.sensors")


class ContactSensorCfg(Cfg):
    prim_path, update_period, history_length = None, 0.0, 0
