"""Things that stand on the table, put there anew in each episode."""

from __future__ import annotations

from collections.abc import Mapping

from temporeal.robots.signals import SignalSpec, schema
from temporeal.robots.spec import Source
from temporeal.sim.scene import Object

CLAMP, CLAMP_TURN = 1e7, 1e6  # N s/m, N m s/rad: at 100 N what stands on the table creeps by 10 um/s


def standing(name: str, elements: str, *, mass: float, signals: Mapping[str, tuple[SignalSpec, Source]]) -> Object:
    """A thing that stands on the table, put there anew in each episode: its place is state, ``<name>_place``.

    The place is x m, y m and the turn about z rad. MuJoCo's worlds share the positions of fixed bodies, so this one
    has joints, so heavily damped that nothing the arm does moves it.

    Args:
        elements: MJCF of what the body ``root`` consists of; its z = 0 is the table, which it must not touch.
        mass: kg, of the part that stands (of no effect on what moves).
        signals: by name, with what the simulator finds them in.
    """
    mjcf = f"""<mujoco><compiler angle="radian"/><worldbody><body name="root">
      <inertial pos="0 0 0.1" mass="{mass}" diaginertia="{0.02 * mass} {0.02 * mass} {0.02 * mass}"/>
      <joint name="x" type="slide" axis="1 0 0" damping="{CLAMP}"/>
      <joint name="y" type="slide" axis="0 1 0" damping="{CLAMP}"/>
      <joint name="turn" type="hinge" axis="0 0 1" damping="{CLAMP_TURN}"/>
      {elements}</body></worldbody></mujoco>"""
    place = SignalSpec(f"{name}_place", (3,), "m,m,rad", "w")
    where = Source("joint_pos", tuple(f"{name}.{joint}" for joint in ("x", "y", "turn")))
    return Object(name, mjcf, signals=schema(place, *(spec for spec, _ in signals.values())),
                  sources={place.name: where, **{key: source for key, (_, source) in signals.items()}})
