"""Where a server process begins: ``PYTHON -I start.py PACKAGE OVERLAY MODULE ...`` in an environment of its own.

temporeal need not be installed there: of its package this makes an empty stand-in whose parts are found in the folder
PACKAGE, and nothing else of the environment that started it is seen. OVERLAY: a folder of packages that comes before
all others, or ``-``.
"""

import importlib
import sys
import types


def begin(package: str, overlay: str, module: str, *words: str) -> int:
    """Run ``module`` with ``words``."""
    stand_in = types.ModuleType("temporeal")
    stand_in.__path__ = [package]
    sys.modules["temporeal"] = stand_in
    if overlay != "-":
        sys.path.insert(0, overlay)
    status: int = importlib.import_module(f"temporeal.policies.pretrained.serving.{module}").main(words)
    return status


if __name__ == "__main__":
    sys.exit(begin(*sys.argv[1:]))
