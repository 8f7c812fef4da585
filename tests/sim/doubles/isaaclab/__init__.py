"""A strict double of Isaac Lab: what our backend uses of 2.3 and of 3.0, over MuJoCo. Not Isaac Lab. Test support only.

The variable ISAACLAB_DOUBLE says which version it is. Enforced, with a Violation each: the application is started
before anything else is imported; one SimulationContext; settings have no other fields than the declared ones; data is
read after reset, and after each step only once scene.update was called; targets reach the simulation with
write_data_to_sim; states that were written are not read before the next step; tensors have the version's shapes, types
and order of quaternions; PhysX's views take CPU tensors of all envs.
"""

import os

VERSION = os.environ.get("ISAACLAB_DOUBLE", "2.3")
STARTED = []
if VERSION == "3.0":
    from temporeal.sim.compiler.warp_graphs import start  # Warp's banner is not the double's to print

    start()


class Violation(RuntimeError):
    """A rule of Isaac Lab was broken."""


def started(what):
    """Everything but isaaclab.app needs the application."""
    if not STARTED:
        raise Violation(f"{what} was imported before AppLauncher started the application")


class Cfg:
    """Settings: class attributes are the fields, with their defaults; no others are taken."""

    def __init__(self, **values):
        for name, value in values.items():
            if not hasattr(type(self), name):
                raise Violation(f"{type(self).__name__} has no field {name!r}")
            setattr(self, name, value)
