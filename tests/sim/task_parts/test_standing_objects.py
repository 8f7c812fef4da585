"""What stands is put anew in each episode and stays there."""

from math import pi

import torch

from temporeal.robots.franka.spec import (
    HIGH,
    HOME,
    LOW,
)
from temporeal.robots.signals import SignalSpec
from temporeal.robots.spec import Source, load_robot
from temporeal.sim.backends import mujoco
from temporeal.sim.scene import Scene
from temporeal.sim.task_parts.standing_objects import standing

ROBOT = load_robot("franka")


def test_what_stands_is_put_where_a_reset_says_and_stays_there():
    elements = '<geom name="geom" type="box" size="0.05 0.05 0.05" pos="0 0 0.06"/><site name="top" pos="0.01 0 0.11"/>'
    thing = standing("thing", elements, mass=2.0, signals={
        "top_w": (SignalSpec("top_w", (3,), "m", "w"), Source("pos", ("thing.top",)))})
    scene = Scene(ROBOT, (thing,))
    assert set(thing.signals) == {"thing_place", "top_w"}
    backend = mujoco.make(scene, 2, "joint_pos_cmd", dt=0.002, device="cpu", seed=0, threads=1)
    place = torch.tensor([[0.5, 0.1, 0.3], [0.5, -0.2, pi / 2]])
    backend.reset(torch.arange(2), {"thing_place": place})
    found = backend.signals()
    torch.testing.assert_close(found["thing_place"], place)
    torch.testing.assert_close(found["top_w"][1], torch.tensor([0.5, -0.19, 0.11]), atol=1e-6, rtol=0)
    # the arm leans on it with all the force it has: from above, from the side
    down = torch.tensor(HOME) + torch.tensor([0.15, 1.2, 0, 0, 0, 0, 0])
    for _ in range(10):
        backend.step(down.expand(2, 7).clamp(torch.tensor(LOW), torch.tensor(HIGH)), 50)
    assert not backend.status().bad.any()
    assert (backend.signals()["thing_place"] - place).abs().max() < 2e-4
    backend.close()
