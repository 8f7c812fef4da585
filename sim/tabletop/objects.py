"""What stands on the table: movable things, places marked on it, a drawer and a button.

All worlds of a batch share one model, so the bodies are the same in all: two cubes, a ball and a cylinder. Their
colours are drawn (:mod:`temporeal.sim.tabletop.scenes`); pictures show them. Lengths are of an arm that reaches a
metre: :meth:`temporeal.sim.task_parts.arms.arm.Arm.in_front` puts them before another one, and before a smaller one
they are smaller (:func:`size_of`).

Seen from the robot, which looks along x: things in two rows, behind them the places, behind these drawer and button,
all of it low enough for a hand to pass over.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import cos, sin

import torch

from temporeal.robots.signals import SignalSpec, schema
from temporeal.robots.spec import Source
from temporeal.sim.scene import Object, Scene, free_body, numbers
from temporeal.sim.tabletop.views import views_of
from temporeal.sim.task_parts.arms.arm import Arm

HALF = 0.025  # m: of the cubes' edges, of the cylinder's height, and its radius: a hand opens 8 cm
RADIUS = 0.027  # m, of the ball
MASS = 0.08  # kg: 640 kg/m^3, soft wood
FRICTION = (0.6, 0.005, 0.0001)
ROLLING = (0.6, 0.005, 0.012)  # m: a ball filled with sand stops at once
BODIES = ("first_cube", "second_cube", "ball", "cylinder")
SHAPE_OF = {"first_cube": "cube", "second_cube": "cube", "ball": "ball", "cylinder": "cylinder"}
RGB = {"red": (0.85, 0.12, 0.10), "green": (0.12, 0.65, 0.18), "blue": (0.12, 0.25, 0.85), "yellow": (0.92, 0.80, 0.10)}
HEIGHTS = {"first_cube": HALF, "second_cube": HALF, "ball": RADIUS, "cylinder": HALF}
"""m, of the middles of what lies on the table."""

MOVED_PLACES = ("tray", "plate")
"""Places that change sides from episode to episode; zones stay."""
ZONES = {"left_zone": (0.59, 0.20), "right_zone": (0.59, -0.20)}
PLACE_SIZE = 0.06  # m, half a tray and the radius of a plate
CLAMP = 1e4  # N s/m: nothing touches a marked place, so nothing moves it

CABINET = (0.75, 0.13)  # m, the middle of the drawer's closed front
BUTTON = (0.71, -0.14)
TRAVEL = 0.12  # m, of the drawer
BAR, GAP, REACH = 0.006, 0.055, 0.045  # m, of the handle's bar: half its thickness, from the front, half its length;
# the gap is for a hand, and before a smaller arm, whose hand is not smaller, it is as wide (:func:`gap_of`)
HANDLE = 0.04  # m, height of the bar over the table: all is low enough for the hand to pass over it
STROKE = 0.015  # m, of the button
CAP = 0.05  # m, height of the button's top
SOLID = 'solref="0.01 1" solimp="0.95 0.99 0.001"'
SEEN = 'contype="0" conaffinity="0"'


def size_of(of: Arm) -> float:
    """The share of their lengths that things have before ``of``: 1 before an arm that reaches a metre or more."""
    return min(1.0, of.scale)


def gap_of(size: float) -> float:
    """How far the handle's bar is from the front in lengths, m, that are then made ``size`` times as long: always the
    same in the end. An SO-101's things have 0.44 of their lengths, and its closed jaws are 36 mm thick: a gap of that
    share, 24 mm, they do not enter."""
    return GAP / size


def resized(mjcf: str, size: float) -> str:
    """``mjcf`` with its lengths ``size`` times as long."""
    def shorter(found: re.Match[str]) -> str:
        return f'{found[1]}="{numbers([size * float(x) for x in found[2].split()])}"'

    return mjcf if size == 1.0 else re.sub(r'\b(size|pos|range|springref)="([^"]*)"', shorter, mjcf)


def movables(size: float) -> tuple[Object, ...]:
    """The bodies whose colours are drawn."""
    forms = (("box", (HALF,) * 3, FRICTION, 4),) * 2 + (
        ("sphere", (RADIUS,), ROLLING, 6), ("cylinder", (HALF, HALF), FRICTION, 4))
    return tuple(movable(name, size, *form) for name, form in zip(BODIES, forms))


def movable(
    name: str, scale: float, kind: str, size: Sequence[float], friction: Sequence[float], condim: int
) -> Object:
    """A free body of one geom, its lengths times ``scale``."""
    mjcf = f"""<mujoco><worldbody><body name="root"><freejoint name="joint"/>
      <geom name="geom" type="{kind}" size="{numbers(size)}" mass="{MASS * scale**3}" friction="{numbers(friction)}"
        condim="{condim}"/></body></worldbody></mujoco>"""
    signals, sources = free_body(name)
    return Object(name, resized(mjcf, scale), (0.0, 0.0, scale * HEIGHTS[name]), signals=signals, sources=sources)


def marked(name: str, geoms: str, size: float) -> Object:
    """A place marked on the table, put somewhere else in each episode: state ``<name>_place`` [2] m, x and y."""
    mjcf = f"""<mujoco><worldbody><body name="root">
      <inertial pos="0 0 0" mass="1" diaginertia="0.01 0.01 0.01"/>
      <joint name="x" type="slide" axis="1 0 0" damping="{CLAMP}"/>
      <joint name="y" type="slide" axis="0 1 0" damping="{CLAMP}"/>{geoms}</body></worldbody></mujoco>"""
    place, pose = SignalSpec(f"{name}_place", (2,), "m", "w"), SignalSpec(f"{name}_pos_w", (3,), "m", "w")
    return Object(name, resized(mjcf, size), signals=schema(place, pose), sources={
        place.name: Source("joint_pos", (f"{name}.x", f"{name}.y")), pose.name: Source("pos", (f"{name}.root",))})


def tray(scale: float) -> Object:
    """A square with a dark rim."""
    half, rim = PLACE_SIZE, 0.008
    return marked("tray", f"""
      <geom name="rim" type="box" size="{half} {half} 0.001" pos="0 0 0.001" {SEEN} rgba="0.30 0.20 0.12 1"/>
      <geom name="ground" type="box" size="{half - rim} {half - rim} 0.001" pos="0 0 0.002" {SEEN}
        rgba="0.62 0.45 0.28 1"/>""", scale)


def plate(scale: float) -> Object:
    """A white disc with a grey rim."""
    return marked("plate", f"""
      <geom name="rim" type="cylinder" size="{PLACE_SIZE} 0.001" pos="0 0 0.001" {SEEN} rgba="0.60 0.62 0.66 1"/>
      <geom name="ground" type="cylinder" size="{PLACE_SIZE - 0.012} 0.001" pos="0 0 0.002" {SEEN}
        rgba="0.97 0.97 0.97 1"/>""", scale)


def table(of: Arm) -> Object:
    """The table's top, to be seen, with the zones marked on it. The floor of the world bears what lies there."""
    signals, sources, marks = {}, {}, ""
    half, (wide, deep) = size_of(of) * PLACE_SIZE, (of.scale * x for x in (0.45, 0.6))
    for name, place in ZONES.items():
        x, y = in_front(of, place)
        marks += f"""<site name="{name}" pos="{x} {y} 0" size="0.004"/>
          <geom name="{name}" type="box" size="{half} {half} 0.0005" pos="{x} {y} 0.0005" {SEEN}
            rgba="0.20 0.55 0.60 1"/>"""
        spec = SignalSpec(f"{name}_pos_w", (3,), "m", "w")
        signals[spec.name], sources[spec.name] = spec, Source("pos", (f"table.{name}",))
    x, y = in_front(of, (0.5, 0.0))
    mjcf = f"""<mujoco><worldbody><body name="root">
      <geom name="top" type="box" size="{wide} {deep} 0.0002" pos="{x} {y} 0.0001" {SEEN} rgba="0.50 0.52 0.55 1"/>
      {marks}</body></worldbody></mujoco>"""
    return Object("table", mjcf, signals=signals, sources=sources)


def drawer(of: Arm) -> Object:
    """A small cabinet whose drawer comes out towards the robot; a finger fits behind the bar of its handle. The handle
    is where it is before any arm: a wider gap moves the cabinet back."""
    gap = gap_of(size_of(of))
    bar = f'type="box" condim="4" friction="0.6 0.005 0.0001" {SOLID} rgba="0.15 0.15 0.17 1"'
    elements = f"""
      <geom name="body" type="box" size="0.065 0.06 0.026" pos="0.065 0 0.028" rgba="0.45 0.30 0.18 1"/>
      <body name="drawer" pos="0 0 0.028">
        <inertial pos="0.05 0 0" mass="0.6" diaginertia="0.002 0.002 0.003"/>
        <joint name="slide" type="slide" axis="-1 0 0" range="0 {TRAVEL}" frictionloss="1.5" damping="8"
          solreflimit="0.005 1" solimplimit="0.95 0.99 0.001"/>
        <geom name="front" type="box" size="0.005 0.055 0.022" pos="-0.005 0 0" rgba="0.80 0.68 0.50 1"/>
        <geom name="inside" type="box" size="0.055 0.05 0.004" pos="0.055 0 -0.016" {SEEN} rgba="0.80 0.68 0.50 1"/>
        <geom name="bar" {bar} size="{BAR} {REACH} {BAR}" pos="{-0.01 - gap} 0 {HANDLE - 0.028}"/>
        <geom name="post1" {bar} size="{gap / 2} {BAR} {BAR}" pos="{-0.01 - gap / 2} {REACH} {HANDLE - 0.028}"/>
        <geom name="post2" {bar} size="{gap / 2} {BAR} {BAR}" pos="{-0.01 - gap / 2} {-REACH} {HANDLE - 0.028}"/>
        <site name="handle" pos="{-0.01 - gap} 0 {HANDLE - 0.028}" size="0.004"/>
      </body>"""
    return fixture("cabinet", "drawer", "cabinet.handle", (CABINET[0] + gap - GAP, CABINET[1]), elements, of)


def button(of: Arm) -> Object:
    """A button on a spring: 2 N hold it down."""
    elements = f"""
      <geom name="housing" type="cylinder" size="0.04 0.008" pos="0 0 0.009" rgba="0.25 0.26 0.28 1"/>
      <body name="cap" pos="0 0 {CAP - 0.008}">
        <inertial pos="0 0 0" mass="0.05" diaginertia="0.00002 0.00002 0.00002"/>
        <joint name="slide" type="slide" axis="0 0 -1" range="0 {STROKE}" stiffness="150" damping="3"
          springref="-0.004"/>
        <geom name="cap" type="cylinder" size="0.028 0.008" {SOLID} rgba="0.90 0.35 0.75 1"/>
        <site name="top" pos="0 0 0.008" size="0.004"/>
      </body>"""
    return fixture("button_box", "button", "button_box.top", BUTTON, elements, of)


def fixture(name: str, what: str, site: str, place: Sequence[float], elements: str, of: Arm) -> Object:
    """A thing that stands still, one part of which slides: ``<what>_pos`` m, and ``<what>_at_w`` of its ``site``."""
    x, y = in_front(of, place)
    mjcf = f'<mujoco><worldbody><body name="root">{elements}</body></worldbody></mujoco>'
    slide, at = SignalSpec(f"{what}_pos", (), "m"), SignalSpec(f"{what}_at_w", (3,), "m", "w")
    turn = (cos(0.5 * of.heading), 0.0, 0.0, sin(0.5 * of.heading))  # it faces the robot
    return Object(name, resized(mjcf, size_of(of)), (x, y, 0.0), turn, signals=schema(slide, at), sources={
        slide.name: Source("joint_pos", (f"{name}.slide",)), at.name: Source("pos", (site,))})


def in_front(of: Arm, place: Sequence[float]) -> tuple[float, float]:
    """``place`` [2] m of an arm that reaches a metre, as ``of`` has it."""
    x, y = of.in_front(torch.tensor([list(place)]))[0].tolist()
    return x, y


def scene_of(of: Arm) -> Scene:
    """The robot at its table."""
    size = size_of(of)
    return Scene(of.robot, (*movables(size), tray(size), plate(size), table(of), drawer(of), button(of)),
                 views=views_of(of))
