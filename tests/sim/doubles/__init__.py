"""Backends on the strict doubles of Isaac Gym and Isaac Lab. The doubles stand in for the simulators in tests only.

Where TEMPOREAL_ISAACGYM_PYTHON names an interpreter with the real Isaac Gym, :func:`isaacgym_backend` uses that; where
TEMPOREAL_ISAACLAB is ``real``, :func:`isaaclab_backend` uses the Isaac Lab of this Python. See
docs/reference/backends/isaac.md.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from unittest import mock

FOLDER = Path(__file__).parent
REAL = "TEMPOREAL_ISAACGYM_PYTHON"
REAL_LAB = "TEMPOREAL_ISAACLAB"  # "real": Isaac Lab is in this Python


def device():
    """Of the real simulators: TEMPOREAL_ISAAC_DEVICE, or the CPU."""
    return os.environ.get("TEMPOREAL_ISAAC_DEVICE", "cpu")


def isaacgym_backend(scene, num_worlds, command, *, misbehave=None, **settings):
    """Backend isaacgym on the double, in a real worker process; on the real one if its interpreter is given."""
    from temporeal.sim.backends import isaacgym

    if os.environ.get(REAL) and misbehave is None:
        return isaacgym.make(scene, num_worlds, command, **{"device": device(), **settings})
    variables = {"PYTHONPATH": os.pathsep.join((str(FOLDER), os.environ.get("PYTHONPATH", ""))),
                 "ISAACGYM_DOUBLE": json.dumps(misbehave or {}), "OMP_NUM_THREADS": "1"}
    with mock.patch.dict(os.environ, variables):
        return isaacgym.make(scene, num_worlds, command, **{"python": sys.executable, "device": "cpu", **settings})


def forget_isaaclab():
    """Forget a double of Isaac Lab that was imported: the next one may be of the other version."""
    from temporeal.sim.backends import isaaclab

    if os.environ.get(REAL_LAB) == "real":
        return
    for name in [n for n in sys.modules if n.partition(".")[0] == "isaaclab"]:
        del sys.modules[name]
    isaaclab._APP.clear()
    isaaclab._USED.clear()


def install_isaaclab(version):
    """Make ``import isaaclab`` find the double of ``version`` (2.3 or 3.0)."""
    forget_isaaclab()
    os.environ["ISAACLAB_DOUBLE"] = version
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))


def isaaclab_backend(version, scene, num_worlds, command, **settings):
    """Backend isaaclab on the double of ``version``, in this process; on the real one, whatever its version."""
    from temporeal.sim.backends import isaaclab

    if os.environ.get(REAL_LAB) == "real":
        return isaaclab.make(scene, num_worlds, command, **{"device": device(), **settings})
    install_isaaclab(version)
    return isaaclab.make(scene, num_worlds, command, **{"device": "cpu", **settings})
