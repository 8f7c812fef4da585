"""Model files that nobody here wrote load as MuJoCo loads them, or are refused by name."""

from __future__ import annotations

from pathlib import Path

import mujoco
import pytest

from temporeal_benchmarks.own_robot import models
from temporeal_benchmarks.own_robot.models import FILES, LEAST, MODELS, PEER, Foreign, Outcome, differences, outcome
from temporeal_benchmarks.peers.install import PeerError, installed, pins

MJCF = """<mujoco><worldbody>
<body><joint name="swing" axis="0 1 0" damping="{}"/><geom size="0.1" pos="0.3 0 0"/></body>
</worldbody><actuator><motor joint="swing" ctrlrange="-1 1"/></actuator></mujoco>"""


def test_the_list_names_packages_with_versions() -> None:
    assert len(MODELS) == len(set(MODELS)) >= LEAST
    assert {f"{model.package}=={model.version}" for model in MODELS} == set(pins(PEER))
    assert all(files and not any(file.startswith(("/", "..")) for file in files) for files in FILES.values())


def test_two_models_are_equal_only_if_all_their_numbers_are() -> None:
    one, same, other = (mujoco.MjModel.from_xml_string(MJCF.format(x)) for x in (0.1, 0.1, 0.2))
    assert not [*differences(one, same)]
    assert {"dof_damping", "qpos after 50 steps"} <= {*differences(one, other)}


@pytest.mark.parametrize(("text", "kind"), [
    (MJCF.format(0.1), "equal"), ("<mujoco><worldbody>", "refused"), ("<sdf/>", "refused"),
    (MJCF.format("much"), "refused")])
def test_a_file_loads_or_is_refused_by_name(
    text: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "folder", lambda name: tmp_path)
    (tmp_path / "arm.xml").write_text(text)
    found = outcome(Foreign("own", "1", "arm.xml"))
    assert found.kind == kind and found.good, found
    assert ("arm.xml" in found.detail) == (kind == "refused")


URDF = """<robot name="arm"><link name="base"/><link name="upper">
<inertial><mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
<collision><geometry><mesh filename="upper.stl"/></geometry></collision></link>
<joint name="swing" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
<limit lower="-1" upper="1" effort="5" velocity="2"/></joint></robot>"""


def test_what_only_a_conversion_opens_is_compared_without_its_meshes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mesh as text: MuJoCo takes binary STL only."""
    pytest.importorskip("trimesh").creation.box((0.1, 0.2, 0.3)).export(tmp_path / "upper.stl", file_type="stl_ascii")
    (tmp_path / "arm.urdf").write_text(URDF)
    monkeypatch.setattr(models, "folder", lambda name: tmp_path)
    found = outcome(Foreign("own", "1", "arm.urdf"))
    assert found.kind == "loaded" and "upper.stl" in found.detail
    monkeypatch.setattr(models, "reference", lambda path, meshes=True: heavier(meshes))
    assert outcome(Foreign("own", "1", "arm.urdf")) == Outcome("differs", "body_mass")


def heavier(meshes: bool) -> mujoco.MjModel:
    """What MuJoCo makes of the arm with another mass, where it has no meshes to refuse."""
    if meshes:
        raise ValueError("no decoder found for mesh file")
    text = URDF.replace('<mass value="1"/>', '<mass value="2"/>').replace('<mesh filename="upper.stl"/>',
                                                                         '<sphere radius="0.1"/>')
    spec = mujoco.MjSpec.from_string(text)
    spec.compiler.fusestatic = False
    return spec.compile()


def test_what_is_raised_without_the_files_name_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise ValueError("could not convert string to float")

    monkeypatch.setattr(models, "folder", lambda name: tmp_path)
    monkeypatch.setattr("temporeal.robots.spec.load_robot", load)
    assert outcome(Foreign("own", "1", "arm.xml")) == Outcome("raised", "ValueError: could not convert string to float")


def test_rows_count_what_came_of_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ["equal", "refused", "differs", *["equal"] * (len(MODELS) - 3)]
    monkeypatch.setattr(models, "install_missing", lambda names: None)
    monkeypatch.setattr(models, "outcome", lambda model: Outcome(kinds[MODELS.index(model)], "it says why"))
    found = {row.name: row for row in models.rows()}
    assert {name: row.value for name, row in found.items()} == {
        "models": len(MODELS), "models.wrong": 1, "models.equal": len(MODELS) - 2, "models.loaded": 0,
        "models.refused": 1}
    assert found["models"].ok and found["models.wrong"].ok is False
    assert MODELS[2].name in str(found["models.wrong"].peer) and MODELS[1].name in str(found["models.refused"].peer)


def test_without_the_packages_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(names: object) -> None:
        raise PeerError("robot-models is not installed")

    monkeypatch.setattr(models, "install_missing", absent)
    assert [(row.name, row.value, row.ok) for row in models.rows()] == [
        ("models", None, False), ("models.wrong", None, False)]


@pytest.mark.slow
@pytest.mark.skipif(not installed(PEER), reason=f"python -m temporeal_benchmarks.peers {PEER}")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.package}-{model.version}/{model.file}")
def test_foreign_models_load_as_mujoco_loads_them_or_are_refused_by_name(model: Foreign) -> None:
    found = outcome(model)
    assert found.good, f"{found.kind}: {found.detail}"
