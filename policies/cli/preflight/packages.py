"""Checks of installed software: Python, extras, numba, torch, rendering, CMA-ES."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from temporeal.policies.cli.preflight.findings import Check
from temporeal.robots.optional_packages import install

EXTRAS = {
    "train": "learn and judge", "robot": "fly an artifact", "spec": "score formulas on files",
    "gpu": "simulate on a GPU", "cameras": "see what simulated cameras see, make videos",
    "view": "look at tasks in a browser", "own-robot": "read xacro and .dae meshes",
    "adapters": "train with other learners", "data": "read and write datasets", "dev": "develop"}


def python() -> Iterator[Check]:
    """The interpreter."""
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < (3, 11):
        yield Check("python", "warn", found, "enough for the robot side; training is pinned for 3.11 and newer")
    else:
        yield Check("python", "ok", found)


def packages() -> Iterator[Check]:
    """Which extras are complete."""
    try:
        installed = importlib.metadata.version("temporeal")
        required = importlib.metadata.requires("temporeal") or []
    except importlib.metadata.PackageNotFoundError:
        yield Check("temporeal", "warn", "runs from its folder, not installed", "make install (or pip install -e .)")
        return
    yield Check("temporeal", "ok", installed)
    for extra, purpose in EXTRAS.items():
        needed = extra_packages(required, extra)
        have = {name: installed_version(name) for name in needed}
        missing = [name for name, version in have.items() if version is None]
        detail = ", ".join(f"{name} {version}" for name, version in have.items() if version)
        advice = f"to {purpose}: {install(extra)}" if missing else ""
        found = f"missing {', '.join(missing)}" if missing else detail
        yield Check(f"extra {extra}", "warn" if missing else "ok", found, advice)


def extra_packages(required: Sequence[str], extra: str) -> list[str]:
    """Names of the distributions that ``extra`` adds, those of another platform left out."""
    out = []
    for line in required:
        requirement, _, marker = line.partition(";")
        if not re.search(rf"""extra\s*==\s*["']{extra}["']""", marker):
            continue
        if "aarch64" in marker and sys.platform == "linux" and platform.machine() == "aarch64":
            continue
        out.append(re.split(r"[\s<>=!~\[(]", requirement.strip(), maxsplit=1)[0])
    return out


def installed_version(distribution: str) -> str | None:
    """Its version, None where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def numba_threads() -> Iterator[Check]:
    """Compile and run a parallel loop; where compiled code is cached."""
    if importlib.util.find_spec("numba") is None:
        yield Check("numba", "warn", "not installed", f"the simulator needs it: {install('train')}")
        return
    import numba

    @numba.njit(parallel=True)
    def total(n: int) -> int:
        out = 0
        for i in numba.prange(n):
            out += i
        return out

    assert total(1000) == 499500
    layer, threads = numba.threading_layer(), numba.get_num_threads()
    yield Check("numba", "ok", f"{numba.__version__}, {threads} threads, threading layer {layer}")
    yield numba_cache()


def numba_cache() -> Check:
    """Whether compiled kernels can be cached: otherwise every start compiles them again."""
    from temporeal import sim

    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(str(sim.__file__)).parent)
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Check("numba cache", "ok", str(folder))
    return Check("numba cache", "warn", f"cannot write to {folder}",
                 "export NUMBA_CACHE_DIR=<a folder of yours>, or every start compiles for many seconds")


def torch_gpu() -> Iterator[Check]:
    """torch, and a GPU where there is one."""
    driver = shutil.which("nvidia-smi") is not None
    if importlib.util.find_spec("torch") is None:
        yield Check("torch", "warn", "not installed", f"to train: {install('train')}")
        return
    import torch

    yield Check("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads")
    if torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        yield Check("gpu", "ok", f"{torch.cuda.get_device_name(0)}, {memory:.0f} GiB: device=cuda")
    elif driver:
        yield Check("gpu", "warn", "an NVIDIA driver, but torch cannot use it",
                    f"torch {torch.__version__} is a CPU build or wants a newer driver: install torch's CUDA build")
    else:
        yield Check("gpu", "ok", "none, and none is needed: device=cpu")


def pictures() -> Iterator[Check]:
    """Whether OpenGL renders here; the other renderer, MuJoCo Warp, is a package."""
    try:
        import mujoco
        import torch

        from temporeal.sim.rendering.opengl_renderer import MissingRenderer
    except ModuleNotFoundError as error:
        yield Check("pictures", "warn", f"{error.name} is missing", "see extra train")
        return
    from temporeal.sim.rendering.cameras import Camera
    from temporeal.sim.rendering.rig import Rig

    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    try:
        with Rig(model, 1, (Camera("eye", 8, 8, pos=(0.0, 0.0, 3.0)),), renderer="gl") as rig:
            rig.render(torch.zeros(1, 0))
    except (MissingRenderer, ModuleNotFoundError) as error:
        yield Check("pictures", "warn", "no OpenGL", f"{error}; or renderer=warp, which needs none")
    else:
        yield Check("pictures", "ok", "OpenGL renders offscreen")


def falsification() -> Iterator[Check]:
    """CMA-ES, which `temporeal falsify` searches with."""
    version = installed_version("cma")
    if version is None:
        yield Check("cma", "warn", "not installed",
                    "`temporeal falsify` searches with it: pip install cma; --method random needs none")
    else:
        yield Check("cma", "ok", version)
