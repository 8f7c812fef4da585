"""What the contract of the backends is tried on: small scenes, and how each backend makes them."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from temporeal.robots.signals import CommandSpec, SignalSpec, schema
from temporeal.robots.spec import Parameter, RobotSpec, Source, load_robot
from temporeal.sim.backends import mujoco, planar, quadrotor
from temporeal.sim.physics.mujoco import quadrotor as mujoco_quadrotor
from temporeal.sim.scene import Scene, box
from temporeal.sim.types import Backend

DT = 0.002  # s
HALF = 0.5**0.5
State = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Frame:
    """Signals of one moving frame: position, attitude, linear velocity (world), angular velocity (``turns`` says)."""

    pos: str
    quat: str | None
    vel: str
    ang_vel: str | None = None
    turns: str = "w"  # the frame of ang_vel: w or b


@dataclass(frozen=True)
class Case:
    """One backend with one scene.

    Args:
        build: (num_worlds, threads=, needs=) to a backend.
        claims: the capabilities that the backend says it has; what it does not claim is not tried.
        hold: the command that keeps it where it is at home; ``sway``: how far random commands go from it.
        start: state from which every parameter makes a difference within :attr:`steps` control steps.
        free: frames that a reset sets and gravity moves; ``others``: frames that are only read.
        weightless: parameters that leave a free body alone with gravity; ``airborne``: a state far above the floor.
        quarter: a state whose frames are turned by 90 degrees about z, and the signals that must come of it.
        center: what random commands lie around, where it is not ``hold``.
        idle: parameters that cannot act with this command or in this scene; it is tested that they do not.
        tolerance: what equal calls may differ by where the backend does not claim ``deterministic``.
        visible: the least change of a signal that counts as an effect of a parameter.
        blow_up: a state beyond what can be computed.
        slippery: whether the floor leaves friction to what touches it.
        positive: a parameter that must be above 0.
    """

    name: str
    build: Callable[..., Backend]
    scene: Scene
    command: str
    claims: frozenset[str]
    hold: tuple[float, ...]
    sway: tuple[float, ...]
    start: State
    free: tuple[Frame, ...]
    airborne: State
    quarter: tuple[State, State]
    blow_up: State
    others: tuple[Frame, ...] = ()
    weightless: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    center: tuple[float, ...] | None = None
    idle: tuple[str, ...] = ()
    steps: int = 12
    tolerance: float = 1e-6
    visible: float = 1e-5
    many_steps: int = 10_000
    servos: tuple[str, ...] = ()
    cramped: Callable[..., Backend] | None = None
    slippery: bool = True
    positive: str = "mass"

    def make(self, num_worlds: int, *, threads: int = 1, needs: Iterable[str] = ()) -> Backend:
        """A backend at home, all parameters nominal."""
        return self.build(num_worlds, threads=threads, needs=needs)

    def __str__(self) -> str:
        return self.name


# ---------------------------------------------------------------- the quadrotor

FLYER = load_robot("crazyflie")
WEIGHT = 9.81 * FLYER.parameters["mass"].nominal[0]
_, C1, C2 = FLYER.parameters["thrust_curve"].nominal
HOVER = (-C1 + (C1 * C1 + C2 * WEIGHT) ** 0.5) / (2 * C2)  # c1 n + c2 n^2 = weight / 4
BASE = Frame("base_pos_w", "base_quat_w", "base_vel_w", "base_ang_vel_b", "b")


def flyer(name: str, module: Any, claims: Iterable[str], command: str) -> Case:
    """The quadrotor alone."""
    motors = command == "motor_cmd"
    return Case(
        name, lambda n, **given: module.make(FLYER, n, command, dt=DT, **given), Scene(FLYER), command,
        frozenset(claims), hold=(HOVER,) * 4 if motors else (WEIGHT, 0.0, 0.0, 0.0),
        sway=(0.3,) * 4 if motors else (0.1, 3.0, 3.0, 1.5),
        start={"base_pos_w": (0.3, -0.2, 2.0), "base_vel_w": (0.5, -0.4, 0.3), "base_ang_vel_b": (0.9, -1.1, 0.7),
               "base_quat_w": (0.9, 0.3, -0.2, 0.1)},
        free=(BASE,), weightless={"drag": (0.0,) * 3, "motor_gain": (1e-9,) * 4},
        airborne={"base_pos_w": (0.1, 0.2, 5.0), "base_vel_w": (0.5, -0.3, 1.0), "rotor_speed": (0.0,) * 4},
        quarter=({"base_quat_w": (HALF, 0.0, 0.0, HALF), "base_ang_vel_b": (1.0, 0.0, 0.0)},
                 {"base_quat_w": (HALF, 0.0, 0.0, HALF)}),
        blow_up={"base_vel_w": (3e38,) * 3}, idle=("rate_gain",) if motors else ())  # fmt: skip


# ---------------------------------------------------------------- jointed scenes

JOINTS = ("turn", "bend")
FINGERS = ("left", "right")
ARM = RobotSpec(
    name="test_arm", kind="arm",
    signals=schema(
        SignalSpec("joint_pos", (2,), "rad"), SignalSpec("joint_vel", (2,), "rad/s"),
        SignalSpec("joint_torque", (2,), "N m"), SignalSpec("finger_pos", (2,), "m"),
        SignalSpec("tip_pos_w", (3,), "m", "w"), SignalSpec("tip_quat_w", (4,), "wxyz", "w"),
        SignalSpec("tip_vel_w", (3,), "m/s", "w"), SignalSpec("tip_ang_vel_b", (3,), "rad/s", "b"),
        SignalSpec("finger_force", (2,), "N"), SignalSpec("tip_acc_b", (3,), "m/s^2", "b")),
    commands={"arm_cmd": CommandSpec("arm_cmd", (4,), "rad,m", low=(-3.0, -1.5, 0.0, 0.0),
                                     high=(3.0, 0.02, 0.03, 0.03))},
    limits={}, home={"joint_pos": (0.3, -0.05), "joint_vel": (0.0, 0.0), "finger_pos": (0.005, 0.005)},
    parameters={"mass": Parameter((0.5, 0.3, 0.05, 0.05), (0.4, 0.2, 0.04, 0.04), (0.6, 0.4, 0.06, 0.06), "kg",
                                  "made up for tests")},
    model=Path(__file__).parent / "arm.xml",
    sources={
        "joint_pos": Source("joint_pos", JOINTS), "joint_vel": Source("joint_vel", JOINTS),
        "joint_torque": Source("joint_torque", JOINTS), "finger_pos": Source("joint_pos", FINGERS),
        "tip_pos_w": Source("pos", ("tip",)), "tip_quat_w": Source("quat", ("tip",)),
        "tip_vel_w": Source("lin_vel", ("tip",)), "tip_ang_vel_b": Source("ang_vel_b", ("tip",)),
        "finger_force": Source("contact_force", FINGERS), "tip_acc_b": Source("sensor", ("tip_acc",))},
    actuators={"arm_cmd": (*JOINTS, *FINGERS)},
)  # fmt: skip
CUBE = Frame("cube_pos_w", "cube_quat_w", "cube_vel_w", "cube_ang_vel_w")
TIP = Frame("tip_pos_w", "tip_quat_w", "tip_vel_w", "tip_ang_vel_b", "b")
GRIP = Frame("grip_pos_w", "grip_quat_w", "grip_vel_w")
ARM_SCENE = Scene(ARM, (box("cube", (0.02, 0.02, 0.02), mass=0.1, pos=(0.8, 0.4, 0.02)),))
FRANKA = load_robot("franka")
FRANKA_SCENE = Scene(FRANKA, (box("cube", (0.02, 0.02, 0.02), mass=0.1, pos=(0.8, 0.4, 0.02)),))
TUMBLING = {"cube_pos_w": (0.9, 0.8, 3.0), "cube_quat_w": (0.9, 0.3, -0.2, 0.1), "cube_vel_w": (0.5, -0.3, 1.0),
            "cube_ang_vel_w": (1.1, -0.9, 0.8)}  # fmt: skip
QUARTER_CUBE = {"cube_quat_w": (HALF, 0.0, 0.0, HALF), "cube_pos_w": (0.8, 0.4, 1.0)}


def jointed(
    name: str, make: Callable[..., Backend], claims: Iterable[str], scene: Scene = ARM_SCENE, **other: Any
) -> Case:
    """The arm that closes its gripper on a cube and drags it over the floor."""
    # the cube lies between the pads: 0.5 m from the axis of the first joint, which home turns by 0.3 rad
    between = {"cube_pos_w": (0.5 * 0.955336, 0.5 * 0.29552, 0.02), "cube_quat_w": (0.98877, 0.0, 0.0, 0.14944),
               "cube_vel_w": (0.1, 0.1, 0.0), "cube_ang_vel_w": (0.0, 0.0, 0.5),
               "finger_pos": (0.0149, 0.0149)}  # fmt: skip
    turned = {"joint_pos": (1.5707963, 0.0), **QUARTER_CUBE}
    return Case(
        name, lambda n, **given: make(scene, n, "arm_cmd", dt=DT, **given), scene, "arm_cmd",
        frozenset(claims), hold=(0.3, -0.05, 0.005, 0.005), center=(0.3, -0.05, 0.025, 0.025),
        sway=(1.2, 0.2, 0.005, 0.005), start=between, free=(CUBE,), others=(TIP,), airborne=TUMBLING,
        quarter=(turned, {"tip_quat_w": (HALF, 0.0, 0.0, HALF), "tip_pos_w": (0.0, 0.5, 0.03),
                          "cube_quat_w": (HALF, 0.0, 0.0, HALF)}),
        blow_up={"cube_vel_w": (1e30,) * 3}, servos=("joint_pos",), **other)


def franka(name: str, make: Callable[..., Backend], claims: Iterable[str], **other: Any) -> Case:
    """The FR3 at home with its hand closing on a cube in mid-air."""
    home = FRANKA.home["joint_pos"]
    turned = (home[0] + 1.5707963, *home[1:])
    held = {"cube_pos_w": (0.3069, 0.0, 0.4869), "cube_vel_w": (0.05, 0.1, 0.05), "cube_ang_vel_w": (0.3, 0.2, 0.4),
            "finger_pos": (0.021, 0.021)}  # fmt: skip
    return Case(
        name, lambda n, **given: make(FRANKA_SCENE, n, "arm_cmd", dt=DT, **given), FRANKA_SCENE, "arm_cmd",
        frozenset(claims), hold=(*home, 0.04), sway=(0.6,) * 7 + (0.04,), start=held, free=(CUBE,), others=(GRIP,),
        airborne=TUMBLING, quarter=({"joint_pos": turned, **QUARTER_CUBE}, {"cube_quat_w": (HALF, 0.0, 0.0, HALF)}),
        blow_up={"cube_vel_w": (1e30,) * 3}, servos=("joint_pos",),
        idle=("cube.friction",), **other)  # the pads have priority, and it does not reach the floor


# ---------------------------------------------------------------- in the plane

TURNED = (0.9801, 0.0, 0.0, 0.1985)  # about z


def flat(name: str, command: str) -> Case:
    """A robot in the plane. Nothing falls there, and what moves does so as it is told."""
    robot = load_robot(name)
    turn: State = {"base_quat_w": TURNED} if "base_quat_w" in robot.signals else {}
    quarter: State = {"base_quat_w": (HALF, 0.0, 0.0, HALF)} if turn else {"base_pos_w": (0.5, -2.0, 0.0)}
    return Case(
        f"planar-{name}", lambda n, **given: planar.make(robot, n, command, dt=DT, **given), Scene(robot), command,
        frozenset(planar.HAS), hold=(0.0, 0.0), sway=(1.0, 1.5), start={"base_pos_w": (0.3, -0.2, 0.0), **turn},
        free=(), others=(Frame("base_pos_w", "base_quat_w" if turn else None, "base_vel_w"),), airborne={},
        quarter=(quarter, quarter), blow_up={"base_pos_w": (3e38, 0.0, 0.0)}, positive="speed_gain")


# ---------------------------------------------------------------- all of them


def cramped_mujoco(tmp: Path, num_worlds: int) -> Backend:
    """The arm's scene with a heap of cubes whose contacts do not fit into MuJoCo's memory."""
    model = tmp / "arm.xml"
    text = (Path(__file__).parent / "arm.xml").read_text()
    model.write_text(text.replace("<default>", '<size memory="24K"/>\n  <default>', 1))
    return mujoco.make(replace(heap(), robot=replace(ARM, model=model)), num_worlds, "arm_cmd", dt=DT, threads=1)


def cramped_warp(tmp: Path, num_worlds: int) -> Backend:
    """The same heap where MuJoCo Warp was given room for 40 rows of constraints in each world; contacts all share."""
    from temporeal.sim.backends import mujoco_warp

    return mujoco_warp.make(heap(), num_worlds, "arm_cmd", dt=DT, device="cpu", contacts=60, constraints=40)


def make_warp(*args: Any, **kwargs: Any) -> Backend:
    """The backend on Warp's CPU device; Warp is imported where it is tried, not where tests are collected."""
    from temporeal.sim.backends import mujoco_warp

    return mujoco_warp.make(*args, device="cpu", **kwargs)


def written(backend: str, name: str) -> Any:
    """What stands at ``name = ...`` in a backend's source, without importing what the backend needs."""
    found = importlib.util.find_spec(f"temporeal.sim.backends.{backend}")
    assert found is not None and found.origin is not None
    for line in ast.parse(Path(found.origin).read_text()).body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == name:
            return ast.literal_eval(line.value)
    raise LookupError(f"{found.origin} has no {name}")


def heap() -> Scene:
    """The arm and nine cubes, at home far apart on the floor."""
    cubes = (box(f"cube{i}", (0.02, 0.02, 0.02), mass=0.1, pos=(0.9 + 0.2 * (i % 3), 0.2 * (i // 3), 0.5))
             for i in range(9))
    return Scene(ARM, tuple(cubes))


def found(module: str) -> bool:
    """Whether the tree has this module: what is in the tree must pass."""
    return importlib.util.find_spec(module) is not None


def cases() -> list[Case]:
    """Every backend in the tree with every scene it can simulate."""
    out = [
        flyer("quadrotor-motors", quadrotor, quadrotor.HAS, "motor_cmd"),
        flyer("quadrotor-rates", quadrotor, quadrotor.HAS, "ctbr_cmd"),
        flat("linear", "vel_cmd"), flat("unicycle", "twist_cmd"),
        flyer("mujoco-crazyflie", mujoco, mujoco_quadrotor.HAS, "ctbr_cmd"),
        jointed("mujoco-arm", mujoco.make, mujoco.HAS, cramped=cramped_mujoco),
        franka("mujoco-franka", mujoco.make, mujoco.HAS)]
    if found("temporeal.sim.backends.mujoco_warp"):
        out.append(jointed("mujoco_warp-arm", make_warp, (*written("mujoco_warp", "HAS"), "deterministic"),
                           cramped=cramped_warp, many_steps=300))
    for name, version in (("isaacgym", None), ("isaaclab", "2.3"), ("isaaclab", "3.0")):
        if found(f"temporeal.sim.backends.{name}") and found("tests.sim.doubles"):
            out.append(isaac(name, version))
    return out


def isaac(name: str, version: str | None) -> Case:
    """A backend of Isaac's on the double that stands in for the simulator."""
    from tests.sim import doubles

    module = importlib.import_module(f"temporeal.sim.backends.{name}")
    claims = (*module.HAS, "mass") if version is None else module.HAS  # Isaac Gym: on its CPU pipeline, as here
    make = doubles.isaacgym_backend if version is None else functools.partial(doubles.isaaclab_backend, version)
    return jointed(f"{name}{version or ''}-arm", make, claims, scene=plain(ARM_SCENE), many_steps=100,
                   slippery=version is not None,  # Isaac Gym takes the mean with its ground's
                   tolerance=1e-2, visible=1e-3)  # PhysX's solver starts from its last solution, also after a reset


def plain(scene: Scene) -> Scene:
    """Without what only MuJoCo's sensors give."""
    robot = scene.robot
    names = [name for name, source in robot.sources.items() if source.what != "sensor"]
    return replace(scene, robot=replace(robot, signals={n: robot.signals[n] for n in names},
                                        sources={n: robot.sources[n] for n in names}))


def batch(values: State, n: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """``values`` for ``n`` equal worlds; a parameter of one component as [n]."""
    return {name: torch.tensor(value, dtype=dtype).expand(n, -1).clone() for name, value in values.items()}
