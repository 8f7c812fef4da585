"""A backend that is refused says what it does not simulate, and who does."""

from __future__ import annotations

import pytest

from temporeal.robots.registry import names
from temporeal.sim.capabilities import NOT_SIMULATED, MissingCapability, require, require_kind


@pytest.mark.parametrize(("backend", "kind", "told"), [
    ("quadrotor", "arm", "quadrotors; robot 'x' is of kind 'arm'. It does not simulate joints, contacts and "),
    ("planar", "quadrotor", "does not simulate flight, joints, contacts and objects: quadrotors are simulated by "),
    ("mujoco_warp", "quadrotor", "jointed robots; robot 'x' is of kind 'quadrotor'. It does not simulate rot"),
    ("isaacgym", "planar", "It does not simulate rotors and robots in the plane"),
    ("isaaclab", "quadrotor", "quadrotors are simulated by quadrotor and mujoco")])
def test_a_refused_backend_says_what_it_does_not_simulate(backend: str, kind: str, told: str) -> None:
    with pytest.raises(MissingCapability) as error:
        require_kind(backend, "x", kind)
    assert told in str(error.value)


def test_what_is_simulated_is_not_refused() -> None:
    require_kind("quadrotor", "x", "quadrotor")
    require_kind("planar", "x", "planar")
    for kind in ("arm", "hand", "legged", "quadruped", "robot", "mobile_base"):
        require_kind("isaaclab", "x", kind)


def test_a_missing_capability_says_so_too() -> None:
    with pytest.raises(MissingCapability, match="lacks objects .*; it has: delay. It does not simulate joints, "):
        require("quadrotor", ["delay"], ["objects"])


def test_the_backends_are_there() -> None:
    assert set(NOT_SIMULATED) <= set(names("temporeal.sim.backends"))
