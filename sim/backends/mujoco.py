"""N worlds of a scene in MuJoCo, on CPU threads (:mod:`temporeal.sim.physics.mujoco.worlds`).

    backend = make(Scene(load_robot("franka")), 256, "joint_pos_cmd", dt=0.002)
    backend.step(ctrl, substeps=10)          # ctrl [256, 7]: a control step of 20 ms
    backend.signals()["grip_pos_w"]          # [256, 3]

Quadrotors, whose rotors MuJoCo does not model, are :mod:`temporeal.sim.physics.mujoco.quadrotor`. MuJoCo's warnings
about worlds that diverge or have no room for contacts are in ``status()``, not on stderr and in MUJOCO_LOG.TXT.
"""

from __future__ import annotations

from collections.abc import Iterable

from temporeal.robots.spec import RobotSpec
from temporeal.sim.capabilities import require
from temporeal.sim.physics.mujoco import mjcf, quadrotor
from temporeal.sim.physics.mujoco.worlds import HAS, Worlds
from temporeal.sim.physics.setup import setup_of
from temporeal.sim.scene import Scene
from temporeal.sim.types import Backend


def make(
    what: Scene | RobotSpec, num_worlds: int, command: str, *, dt: float = 0.002, device: str = "cpu", seed: int = 0,
    threads: int = 0, integrator: str = "auto", needs: Iterable[str] = (),
) -> Backend:
    """The backend for ``num_worlds`` worlds of a scene (or of a robot alone).

    Args:
        command: one of the robot's commands.
        dt: physics step, s.
        device: where the tensors live; the simulation itself runs on the CPU.
        seed: kept for the caller; the physics draws no random numbers.
        threads: CPU threads; 0 takes every core this process may use.
        integrator: one of :data:`temporeal.sim.physics.mujoco.mjcf.INTEGRATORS`, or ``auto`` for the one that the
            robot's MJCF names. Quadrotors have their own.
        needs: capabilities (:mod:`temporeal.sim.capabilities`) that the caller cannot do without.
    """
    setup = setup_of(what, num_worlds, command, dt, device, seed, threads)
    if setup.scene.robot.kind == "quadrotor":
        require("mujoco (quadrotors)", quadrotor.HAS, needs)
        if integrator != "auto":
            raise ValueError(f"integrator is {integrator!r}; quadrotors have their own: auto")
        return quadrotor.QuadrotorWorlds(setup)
    require("mujoco", HAS, needs)
    return Worlds(mjcf.build(setup.scene, command, dt, integrator), setup)
