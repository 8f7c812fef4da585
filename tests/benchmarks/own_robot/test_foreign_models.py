"""Model files that nobody here wrote load as MuJoCo loads them, or are refused by name."""

from __future__ import annotations

from pathlib import Path

import mujoco
import pytest

from temporeal_benchmarks.own_robot import models
from temporeal_benchmarks.own_robot.models import FILES, LEAST, MODELS, PEER, Foreign, Outcome, differences, outcome
from temporeal_benchmarks.peers.install import installed, pins

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


def test_what_is_raised_without_the_files_name_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise ValueError("could not convert string to float")

    monkeypatch.setattr(models, "folder", lambda name: tmp_path)
    monkeypatch.setattr("temporeal.robots.spec.load_robot", load)
    assert outcome(Foreign("own", "1", "arm.xml")) == Outcome("raised", "ValueError: could not convert string to float")


@pytest.mark.slow
@pytest.mark.skipif(not installed(PEER), reason=f"python -m temporeal_benchmarks.peers {PEER}")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.package}-{model.version}/{model.file}")
def test_foreign_models_load_as_mujoco_loads_them_or_are_refused_by_name(model: Foreign) -> None:
    found = outcome(model)
    assert found.good, f"{found.kind}: {found.detail}"
