"""An arm that is nobody's, from its excitation through the real nodes and the recorder to its parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")

from tests.bridge.foreign_robots import joint, link, written
from tests.bridge.test_excitation_in_memory import flown

from temporeal.policies.cli.main import main
from temporeal.sim.identification import identified_file

pytestmark = pytest.mark.slow
TURNS = 'lower="-2.8" upper="2.8" effort="20" velocity="2.5"'
URDF = ('<robot name="two">' + link("base", 3.0, "0 0 0.02") + link("upper", 1.0, "0.15 0 0")
        + link("lower", 0.5, "0.15 0 0") + link("tip", 0.01, "0 0 0")
        + joint("lift", "revolute", "base", "upper", "0 0 0.6", "0 1 0", TURNS)
        + joint("bend", "revolute", "upper", "lower", "0.3 0 0", "0 1 0", TURNS)
        + joint("fixed", "fixed", "lower", "tip", "0.3 0 0", "0 0 1", 'effort="0" velocity="0"') + "</robot>")
TRUE = {"kp": (60.0, 40.0), "kd": (4.0, 2.0), "armature": (0.02, 0.01), "frictionloss": (0.3, 0.15)}
ARM: dict[str, Any] = {
    "model": "model.urdf", "kind": "hand", "joints": ["lift", "bend"], "control_hz": 25, "rate_hz": 100,
    "commands": {"joint_pos_cmd": {"joints": ["lift", "bend"], "kp": list(TRUE["kp"]), "kd": list(TRUE["kd"]),
                                   "strength": [20.0, 20.0]}},
    "home": {"lift": 0.3, "bend": 0.4},
    **{name: dict(zip(("lift", "bend"), TRUE[name])) for name in ("armature", "frictionloss")}}


def test_from_excite_to_identified(lockstep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPOREAL_PATH", str(tmp_path / "robots"))
    folder = tmp_path / "robots" / "two"
    written(folder, "model.urdf", URDF, ARM, "joint_trajectory")
    assert main(["excite", "robot=two", f"out={tmp_path / 'art'}", "seconds=18", "sweeps=1", "low_hz=0.4"]) == 0
    verdict, guard, _ = flown(lockstep, tmp_path / "art", tmp_path / "bag")
    assert verdict["verdict"] == "satisfied" and guard["limited"] == 0
    assert main(["identify", str(tmp_path / "bag"), "--out", str(tmp_path / "i.yaml")]) == 0
    found = identified_file.read(tmp_path / "i.yaml", identified_file.JOINTS)
    assert found["robot"] == "two" and found["fit"]["physics_s"] == pytest.approx(0.001)
    for name in ("kp", "armature", "frictionloss"):
        for joint_name, true in zip(("lift", "bend"), TRUE[name]):
            each = found["parameters"][f"{name}[{joint_name}]"]
            assert each["status"] == "identified", (name, joint_name)
            assert abs(np.log(each["value"] / true)) < 0.25, (name, joint_name, each["value"])
