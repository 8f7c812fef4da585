"""What stands in one world: a robot and the objects around it, with the signals they give. Data only: no simulator.

    scene = Scene(load_robot("franka"), (box("cube", (0.02, 0.02, 0.02), mass=0.05, pos=(0.5, 0, 0.02)),))
    scene.signals       # joint_pos, ..., cube_pos_w, cube_quat_w, cube_vel_w, cube_ang_vel_w

Backends make their model of it (:mod:`temporeal.sim.physics.mujoco.mjcf` for MuJoCo's) and give its signals by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from temporeal.robots.signals import Schema, SignalSpec, schema
from temporeal.robots.spec import RobotSpec, Source

Vector = Sequence[float]


@dataclass(frozen=True)
class Object:
    """One object: a tree of bodies.

    Args:
        name: the prefix of its names: of its signals (``cube_pos_w``), of its parameters (``cube.mass``) and of all
            elements in the compiled model (``cube.root``).
        mjcf: a whole MJCF document; its world body holds one body, called ``root``, at the origin. Angles are degrees
            unless it says ``<compiler angle="radian"/>``.
        pos, quat: where the root stands, m and wxyz, world frame. A free object starts there.
        signals, sources: what the simulator gives of it.
    """

    name: str
    mjcf: str
    pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quat: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    signals: Schema = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"an object's name is an identifier (letters, digits, underscore), got {self.name!r}")
        if set(self.signals) != set(self.sources):
            raise ValueError(f"object {self.name!r}: signals {sorted(self.signals)}, sources {sorted(self.sources)}")


@dataclass(frozen=True)
class View:
    """Where a camera of a name is placed, unless its settings say where it is, or the model has one of that name.

    Args:
        pos, quat: m and wxyz, camera to frame; it looks along its -z, x to the right, y up.
        fovy_deg: vertical field of view, degrees.
        frame: what it is fixed to: the world, a body or a site of the model.
    """

    pos: tuple[float, float, float]
    quat: tuple[float, float, float, float]
    fovy_deg: float = 45.0
    frame: str = "world"


@dataclass(frozen=True)
class Scene:
    """A robot among objects.

    Args:
        objects: in the order in which they are added to the model.
        floor: whether there is a plane z = 0 that everything touches (ignored if the robot's model brings one). It has
            no friction of its own: two shapes rub with the larger of theirs, so what touches the floor decides.
        base_pos, base_quat: where a robot that is fixed to the world stands, world frame.
        views: where cameras are placed by name.
    """

    robot: RobotSpec
    objects: tuple[Object, ...] = ()
    floor: bool = True
    base_pos: tuple[float, float, float] = (0.0, 0.0, 0.0)
    base_quat: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    views: Mapping[str, View] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [o.name for o in self.objects]
        if len(set(names)) != len(names):
            raise ValueError(f"objects of one scene need different names, got {names}")

    @property
    def signals(self) -> dict[str, SignalSpec]:
        """The robot's signals and the objects'."""
        return schema(*self.robot.signals.values(), *(s for o in self.objects for s in o.signals.values()))

    @property
    def sources(self) -> dict[str, Source]:
        """Where a simulator finds them."""
        return {**self.robot.sources, **{k: v for o in self.objects for k, v in o.sources.items()}}


def as_scene(what: Scene | RobotSpec) -> Scene:
    """A bare robot as a scene."""
    return what if isinstance(what, Scene) else Scene(what)


def free_body(name: str) -> tuple[Schema, dict[str, Source]]:
    """Signals and sources of an object whose root moves freely: pose and velocities, world frame."""
    specs = schema(
        SignalSpec(f"{name}_pos_w", (3,), "m", "w"), SignalSpec(f"{name}_quat_w", (4,), "wxyz", "w"),
        SignalSpec(f"{name}_vel_w", (3,), "m/s", "w"), SignalSpec(f"{name}_ang_vel_w", (3,), "rad/s", "w"))
    what = ("pos", "quat", "lin_vel", "ang_vel")
    return specs, {signal: Source(kind, (f"{name}.root",)) for signal, kind in zip(specs, what)}


def fixed_body(name: str) -> tuple[Schema, dict[str, Source]]:
    """Signals and sources of an object whose root stands still: its pose, world frame."""
    specs = schema(SignalSpec(f"{name}_pos_w", (3,), "m", "w"), SignalSpec(f"{name}_quat_w", (4,), "wxyz", "w"))
    return specs, {signal: Source(kind, (f"{name}.root",)) for signal, kind in zip(specs, ("pos", "quat"))}


def box(
    name: str, half: Vector, *, mass: float, pos: Vector = (0, 0, 0), quat: Vector = (1, 0, 0, 0),
    friction: Vector = (1.0, 0.005, 0.0001), rgba: Vector = (0.8, 0.3, 0.2, 1), condim: int = 4, free: bool = True,
) -> Object:  # fmt: skip
    """A box of half sizes ``half`` m and ``mass`` kg; ``friction``: sliding, torsional (m), rolling (m).

    On the scene's floor it is what acts; against another shape the larger of both acts, against one of a higher
    ``priority`` (the pads of the Franka's fingers) that one's alone.
    """
    joint = '<freejoint name="joint"/>' if free else ""
    mjcf = f"""<mujoco><worldbody><body name="root">{joint}
      <geom name="geom" type="box" size="{numbers(half)}" mass="{mass!r}" friction="{numbers(friction)}"
        condim="{condim}" rgba="{numbers(rgba)}"/></body></worldbody></mujoco>"""
    signals, sources = free_body(name) if free else ({}, {})
    return Object(name, mjcf, tuple(map(float, pos)), tuple(map(float, quat)), signals, sources)  # type: ignore[arg-type]


def numbers(values: Vector) -> str:
    """Numbers as MJCF writes them."""
    return " ".join(repr(float(x)) for x in values)
