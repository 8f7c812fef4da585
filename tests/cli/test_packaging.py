"""What ships: the wheel holds code, settings and models, and works where it is unpacked."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = (".py", ".yaml", ".xml", ".html", ".js", ".css", ".lark")
PACKAGES = ("robots", "sim", "policies", "configs")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that no build folder is left in the tree."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    code = f"from setuptools import build_meta; print(build_meta.build_wheel({str(out)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=tree, check=True, capture_output=True, timeout=300)
    return next(out.glob("*.whl"))


def test_wheel_holds_every_module_and_data_file(wheel: Path) -> None:
    shipped = set(zipfile.ZipFile(wheel).namelist())
    ours = [path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()]
    kept = [path for path in ours if path.parent.name != "__pycache__" and path.suffix in SHIPPED]
    there = {str(path.relative_to(ROOT)) for path in kept}
    assert "configs/config.yaml" in there
    assert there <= shipped, f"not in the wheel: {sorted(there - shipped)}; see package_data in setup.cfg"


def test_wheel_holds_nothing_else(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_unpacked_wheel_works_beside_a_folder_named_sim(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "work" / "sim").mkdir(parents=True)
    code = "from temporeal.policies.cli.settings import compose; print(compose(['task=hover'])['task']['name'])"
    done = subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-I", "-c", code], cwd=tmp_path / "work",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "hover", done.stderr


def test_folders_that_hydra_reads_are_packages() -> None:
    for folder in [ROOT / "configs", *(path.parent for path in (ROOT / "configs").rglob("*.yaml"))]:
        assert (folder / "__init__.py").is_file(), folder


def test_launch_is_no_package() -> None:
    """An ``__init__.py`` there would hide ROS 2's own package ``launch``."""
    assert not (ROOT / "launch" / "__init__.py").exists()


def test_versions_are_pinned_in_one_place() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    named = setup["options"]["install_requires"] + "".join(setup["options.extras_require"].values())
    assert "==" not in named.replace("platform_machine ==", "")
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    assert all(line.count("==") == 1 for line in pins)
    pinned = {re.sub("[-_.]+", "-", line.split("==")[0]).lower() for line in pins}
    wanted = {re.split(r"[>=;\s]", line, maxsplit=1)[0].lower() for line in named.splitlines() if line.strip()}
    assert wanted <= pinned, f"constraints.txt does not pin {sorted(wanted - pinned)}"
