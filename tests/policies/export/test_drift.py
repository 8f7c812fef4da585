"""What an artifact says of the machine that it was trained for: of the run's draws, or of an identified.yaml."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.policies.export.test_artifact import write_artifact

from temporeal.policies.cli.verbs import export as verb
from temporeal.policies.export.drift import LATEST, NOISE, TRAINED, drift_of, identified_drift, trained_drift
from temporeal.policies.runs.errors import BadInput
from temporeal.robots.artifact.additions import DriftSpec
from temporeal.robots.artifact.loading import load_manifest
from temporeal.robots.artifact.manifest import ArtifactError, decode, encode
from temporeal.robots.spec import load_robot
from temporeal.sim.env import make_env
from temporeal.sim.identification import identified_file
from temporeal.sim.tasks import waypoints

ROBOT = load_robot("crazyflie")
SPEC = DriftSpec("by hand", 0.03, (0.0, 0.0, 0.12), (0.0, 0.0, 0.12), (0.05, 0.1, 0.15), (0.05, 0.1, 0.15),
                 (0.0, 0.01, 0.02), (0.0, 0.01, 0.02), (0.85, 1.0, 1.2), 0.02)


def world(randomize: Any = None, sensors: Any = None) -> Any:
    return make_env(waypoints.make(), num_worlds=1, backend="quadrotor", randomize=randomize, sensors=sensors,
                    compiled=False)


def test_a_run_without_randomization_was_trained_for_the_spec_alone():
    """How exact its lags are is another question."""
    found = trained_drift(world(), "ctbr_cmd")
    assert found.ratio == (1.0, 1.0, 1.0) and found.delay == (0.0, LATEST / 2, LATEST) and found.noise == NOISE
    assert found.mass == pytest.approx(0.0319) and found.drag == pytest.approx((0.0, 0.0128, 0.0128))  # its sources
    assert found.tau_up == pytest.approx((0.055, 1 / 7.3556, 0.15))
    assert found.thrust_curve == found.believed_curve == pytest.approx(ROBOT.parameters["thrust_curve"].nominal)


def test_what_the_run_drew_is_what_it_was_trained_for():
    """Mass 0.5 to 2 of nominal: thrust per mass 0.5 to 2, but for half a percent of the draws at each end. By hand: a
    factor uniform in [0.5, 2] has its 0.5 % at 0.5075, its 99.5 % at 1.9925."""
    found = trained_drift(world(
        {"mass": {"kind": "scale", "low": 0.5, "high": 2.0}, "command_delay": {"kind": "uniform", "low": 0.0,
                                                                               "high": 0.02}},
        {"noise": {"base_vel_w": 0.05}, "delay_steps": 1}), "ctbr_cmd")
    assert found.ratio == pytest.approx((1 / 1.9925, 1.0, 1 / 0.5075), rel=0.02)
    assert found.delay == pytest.approx((0.0, 0.02, 0.04), abs=1e-4) and found.noise == pytest.approx(0.05)


def test_a_disturbing_force_counts_as_thrust_that_is_missing():
    """Normal, a tenth of the weight: 99 % are within 2.576 of it."""
    weight = 0.0319 * 9.81
    found = trained_drift(world({"force_w": {"kind": "normal", "std": weight / 10}}), "ctbr_cmd")
    assert found.ratio == pytest.approx((1 - 0.2576, 1.0, 1 + 0.2576), abs=0.02)


def identified(folder: Path, **changes: Any) -> Path:
    """A file of the least that is legal."""
    acts = {"unit": "m/s^2", "value": 14.0, "low": 13.3, "high": 14.7, "status": "identified", "why": "",
            "prior_low": 10.0, "prior_high": 20.0, "shrink": 0.1, "logarithm": True}
    ends = {name: {"value": value, "low": [0.9 * x for x in value], "high": [1.1 * x for x in value]}
            for name, value in (("mass", [0.03]), ("thrust_curve", [0.0, 0.0, 0.1]), ("tau_up", [0.06]),
                                ("tau_down", [0.07]), ("drag", [0.01, 0.01, 0.02]), ("motor_gain", [1.1] * 4),
                                ("command_delay", [0.01]))}
    content = {
        "format": "temporeal identified quadrotor", "version": identified_file.VERSION, "robot": "crazyflie",
        "revision": "test", "logs": [{"name": "a", "sha256": "", "seconds": 9.0, "step_s": 0.01}],
        "fit": dict.fromkeys(identified_file.OF_FIT, 1) | {"converged": True, "sampled_widths": []},
        "parameters": {"thrust_to_mass": acts},
        "covariance": {"order": ["thrust_to_mass"], "mean": [2.639057], "matrix": [[0.001]]}, "simulator": ends,
        "sensors": {}, **changes}
    path = folder / "identified.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_an_identified_robot_is_what_its_file_says(tmp_path):
    found = identified_drift(ROBOT, "ctbr_cmd", identified(tmp_path))
    assert found.ratio == pytest.approx((0.95, 1.0, 1.05)) and found.mass == 0.03
    assert found.thrust_curve == pytest.approx((0.0, 0.0, 0.11))  # the mean gain is in it
    assert found.believed_curve == pytest.approx(ROBOT.parameters["thrust_curve"].nominal)
    assert found.tau_up == pytest.approx((0.054, 0.06, 0.066)) and found.drag == pytest.approx((0.018, 0.02, 0.022))
    assert found.delay == pytest.approx((0.009, (0.009 + LATEST) / 2, LATEST)) and "identified.yaml" in found.source


@pytest.mark.parametrize(("changes", "why"), [
    ({"robot": "heron"}, "is of robot 'heron'"), ({"simulator": {}}, "lacks mass"), ({"format": "x"}, "format 'x'"),
    ({"parameters": {}, "covariance": {"order": [], "mean": [], "matrix": []}}, "covariance|thrust_to_mass")])
def test_a_file_that_says_too_little_is_refused(tmp_path, changes, why):
    with pytest.raises(ValueError, match=why):
        identified_drift(ROBOT, "ctbr_cmd", identified(tmp_path, **changes))


def test_only_quadrotors_are_watched():
    with pytest.raises(ArtifactError, match="of quadrotors; robot 'franka' is of kind 'arm'"):
        identified_drift(load_robot("franka"), "joint_pos_cmd", Path("none"))
    with pytest.raises(ArtifactError, match="gives 'wrench'"):
        identified_drift(ROBOT, "wrench", Path("none"))
    assert drift_of("", None, "wrench") is None and TRAINED == "trained"


def test_the_artifact_carries_it_and_an_old_program_refuses_it(tmp_path):
    write_artifact(tmp_path / "a", drift=SPEC)
    manifest = load_manifest(tmp_path / "a")
    assert manifest.drift == SPEC and manifest.schema_version == 4
    assert decode(encode(manifest)) == manifest
    write_artifact(tmp_path / "b")
    assert load_manifest(tmp_path / "b").drift is None and load_manifest(tmp_path / "b").schema_version == 1


@pytest.mark.parametrize(("changes", "why"), [
    ({"mass": 0.0}, "mass is a number above 0"), ({"noise": float("nan")}, "noise"),
    ({"tau_up": (0.2, 0.1, 0.3)}, "tau_up is least, value and greatest"), ({"delay": (-1.0, 0.0, 0.1)}, "delay"),
    ({"ratio": (0.9, 0.95, 1.0)}, "the value of ratio is 1"), ({"ratio": [0.9, 1.0, 1.1]}, "ratio is three numbers"),
    ({"believed_curve": (0.0, 0.1, 0.0)}, "c2 > 0"), ({"thrust_curve": (0.0, 0.1, -0.1)}, "thrust at full speed"),
    ({"drag": (0.0, 0.1)}, "drag is three numbers"),
    ({"source": 3}, "source is text")])
def test_a_wrong_block_is_refused_with_the_rule(changes, why):
    with pytest.raises(ValueError, match=why):
        replace(SPEC, **changes)


def test_the_verb_says_what_it_cannot_do(tmp_path):
    (tmp_path / "model.zip").write_bytes(b"")
    with pytest.raises(BadInput, match="--drift lost.yaml: trained, or the file"):
        verb.run([str(tmp_path), "--drift", "lost.yaml"])
    with pytest.raises(BadInput, match="--drift is for runs"):
        verb.run([str(tmp_path / "model.zip"), "task=hover", "--drift", "trained"])
