"""What ships: the wheel holds code, settings and models, and works where it is unpacked."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = (".py", ".yaml", ".xml", ".html", ".js", ".css", ".lark", ".npz")
PACKAGES = ("robots", "sim", "policies", "configs")
HOSTILE = "raise RuntimeError('a folder of the user was imported in place of ours')\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that no build folder is left in the tree."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc"))
    shutil.copytree(ROOT / "src" / "temporeal", tree / "src" / "temporeal", symlinks=True,
                    ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    code = f"from setuptools import build_meta; print(build_meta.build_wheel({str(out)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=tree, check=True, capture_output=True, timeout=300)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``bin`` of an empty environment with the wheel in it. The packages that it depends on are those of this
    environment, by a path file: nothing is downloaded, and no path file of theirs (an editable install) is read."""
    env = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env)], check=True, timeout=60)
    site = next((env / "lib").glob("python*")) / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(env / "bin" / "python"),
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--ignore-installed",
            str(wheel),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return env / "bin"


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    """A user's folder with packages of his own that are called like our folders."""
    for name in (*PACKAGES, "launch", "benchmarks", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(HOSTILE)
    return tmp_path


def run(installed: Path, folder: Path, *command: str) -> str:
    """What a command of the empty environment prints, run from ``folder`` as a user would."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(installed / command[0]), *command[1:]], cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_holds_every_module_and_data_file(wheel: Path) -> None:
    shipped = set(zipfile.ZipFile(wheel).namelist())
    ours = [path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()]
    kept = [path for path in ours if path.parent.name != "__pycache__" and path.suffix in SHIPPED]
    there = {f"temporeal/{path.relative_to(ROOT)}" for path in kept}
    assert "temporeal/configs/config.yaml" in there
    assert there <= shipped, f"not in the wheel: {sorted(there - shipped)}; see package_data in setup.cfg"


def test_wheel_holds_one_import_name(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"temporeal"}


@pytest.mark.slow
def test_installed_wheel_is_not_hidden_by_a_users_packages(installed: Path, crowded: Path) -> None:
    assert "temporeal/policies/cli" in run(
        installed, crowded, "python", "-c", "import temporeal.policies.cli.main as m; print(m.__file__)")
    assert "name: hover" in run(installed, crowded, "temporeal", "train", "task=hover", "--config")
    assert run(installed, crowded, "python", "-m", "temporeal.policies.cli.main", "--version").startswith("temporeal ")


@pytest.mark.slow
def test_a_robot_of_ones_own_needs_nothing_but_the_wheel(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, elsewhere = tmp_path / "mine", tmp_path / "elsewhere"
    elsewhere.mkdir()
    urdf = ROOT / "examples" / "six_axis.urdf"
    run(installed, tmp_path, "temporeal", "robot", "new", str(urdf), "--out", str(mine / "robots" / "my_arm"), "--yes")
    monkeypatch.setenv("TEMPOREAL_PATH", str(mine))
    assert "my_arm" in run(installed, elsewhere, "temporeal", "robot", "list")
    assert "name: my_arm" in run(installed, elsewhere, "temporeal", "train", "task=reach", "robot=my_arm", "--config")


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
    wanted = {re.split(r"[>=;\[\s]", line, maxsplit=1)[0].lower() for line in named.splitlines() if line.strip()}
    assert wanted <= pinned, f"constraints.txt does not pin {sorted(wanted - pinned)}"
