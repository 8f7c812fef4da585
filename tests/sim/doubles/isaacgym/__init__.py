"""A strict double of Isaac Gym Preview 4: what our backend uses of it, over MuJoCo. Not Isaac Gym. Test support only.

It raises Violation where the real one would crash, hang or quietly give wrong numbers; see gymapi.py. The variable
ISAACGYM_DOUBLE (JSON) makes it misbehave: see :func:`settings`.
"""

import json
import os
import sys
import time

__version__ = "double"


def settings():
    """world_frame: positions in tensors include env origins. sleep_at_import: s. In the n-th simulate: raise_at,
    die_at, hang_at; nan_at: [n, env] makes that env's first joint NaN.
    """
    return json.loads(os.environ.get("ISAACGYM_DOUBLE", "{}"))


class Violation(RuntimeError):
    """A rule of Isaac Gym was broken."""


if "torch" in sys.modules:
    raise ImportError("PyTorch was imported before isaacgym modules. Please import torch after isaacgym modules.")
if settings().get("no_import"):
    raise ImportError("libpython3.8.so.1.0: cannot open shared object file")
time.sleep(settings().get("sleep_at_import", 0))
